#include "reports/finding.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *assay_verdict_name(assay_verdict verdict)
{
    static const char *const names[] = {"PASS", "FAIL", "INCONCLUSIVE", "SKIP"};
    ASSAY_BUG_IF((unsigned)verdict >= sizeof names / sizeof *names);
    return names[verdict];
}

/* Room for one more element behind n; *items is moved. */
static assay_status grow(void *items, int n, size_t size, const char *what)
{
    void *old, *more;
    memcpy(&old, items, sizeof old);
    /* Doubling at powers of two keeps growth linear without a stored capacity. */
    if (n & (n - 1))
        return ASSAY_OK;
    size_t room = n ? 2 * (size_t)n : 1;
    more = realloc(old, room * size);
    if (!more)
        return assay_fail(ASSAY_NO_MEMORY, "%s: no memory for %zu bytes", what, room * size);
    memcpy(items, &more, sizeof more);
    return ASSAY_OK;
}

static assay_status take(assay_strings *list, char *text)
{
    assay_status s = text ? grow(&list->items, list->n, sizeof *list->items, "list of texts")
                          : assay_fail(ASSAY_NO_MEMORY, "no memory for a text");
    if (s != ASSAY_OK) {
        free(text);
        return s;
    }
    list->items[list->n++] = text;
    return ASSAY_OK;
}

assay_status assay_strings_add(assay_strings *list, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return take(list, text);
}

assay_status assay_strings_add_once(assay_strings *list, const char *text)
{
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->items[i], text))
            return ASSAY_OK;
    return take(list, strdup(text));
}

void assay_strings_clear(assay_strings *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (assay_strings){0};
}

assay_status assay_finding_set(char **to, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return assay_fail(ASSAY_NO_MEMORY, "out of memory for a finding");
    free(*to);
    *to = text;
    return ASSAY_OK;
}

assay_status assay_finding_add_place(assay_finding *finding, const char *point, int layer, int step,
                                     const char *prompt)
{
    ASSAY_TRY(assay_strings_add_once(&finding->points, point));
    if (layer >= 0)
        ASSAY_TRY(assay_numbers_add(&finding->layers, layer));
    ASSAY_TRY(assay_numbers_add(&finding->steps, step));
    return assay_strings_add_once(&finding->prompts, prompt);
}

assay_status assay_numbers_add(assay_numbers *list, int64_t number)
{
    int at = list->n;
    while (at > 0 && list->items[at - 1] >= number)
        at--;
    if (at < list->n && list->items[at] == number)
        return ASSAY_OK;
    ASSAY_TRY(grow(&list->items, list->n, sizeof *list->items, "list of numbers"));
    memmove(list->items + at + 1, list->items + at, (size_t)(list->n - at) * sizeof *list->items);
    list->items[at] = number;
    list->n++;
    return ASSAY_OK;
}

void assay_numbers_clear(assay_numbers *list)
{
    free(list->items);
    *list = (assay_numbers){0};
}

void assay_finding_init(assay_finding *finding)
{
    *finding = (assay_finding){.error_rel = NAN,
                               .error_cos = NAN,
                               .error_gain = NAN,
                               .floor = NAN,
                               .first_bad_got = NAN,
                               .first_bad_expected = NAN};
    finding->fitted = json_object();
}

void assay_finding_clear(assay_finding *finding)
{
    free(finding->fault_class);
    free(finding->kind);
    free(finding->point);
    free(finding->last_good);
    free(finding->op);
    free(finding->sentence);
    free(finding->advice);
    free(finding->reproduce);
    free(finding->bundle);
    free(finding->check);
    assay_strings_clear(&finding->points);
    assay_strings_clear(&finding->prompts);
    assay_strings_clear(&finding->evidence);
    assay_numbers_clear(&finding->layers);
    assay_numbers_clear(&finding->ranks);
    assay_numbers_clear(&finding->steps);
    json_decref(finding->fitted);
    *finding = (assay_finding){0};
}

assay_status assay_result_init(assay_result *result, const char *command)
{
    *result = (assay_result){.command = strdup(command)};
    result->model = json_object();
    result->extra = json_object();
    if (result->command && result->model && result->extra)
        return ASSAY_OK;
    assay_result_clear(result);
    return assay_fail(ASSAY_NO_MEMORY, "no memory for a result");
}

void assay_result_clear(assay_result *result)
{
    free(result->command);
    free(result->command_line);
    json_decref(result->model);
    json_decref(result->extra);
    for (int i = 0; i < result->n_checks; i++) {
        free(result->checks[i].name);
        free(result->checks[i].summary);
        assay_strings_clear(&result->checks[i].details);
    }
    free(result->checks);
    for (int i = 0; i < result->n_findings; i++)
        assay_finding_clear(&result->findings[i]);
    free(result->findings);
    assay_strings_clear(&result->notes);
    *result = (assay_result){0};
}

assay_status assay_result_add_finding(assay_result *result, assay_finding *finding)
{
    ASSAY_TRY(grow(&result->findings, result->n_findings, sizeof *finding, "list of findings"));
    result->findings[result->n_findings++] = *finding;
    assay_finding_init(finding);
    return ASSAY_OK;
}

assay_status assay_result_add_check(assay_check_row **row, assay_result *result, const char *name)
{
    char *copy = strdup(name);
    assay_status s = copy ? grow(&result->checks, result->n_checks, sizeof **row, "list of checks")
                          : assay_fail(ASSAY_NO_MEMORY, "no memory for a check");
    if (s != ASSAY_OK) {
        free(copy);
        return s;
    }
    *row = &result->checks[result->n_checks++];
    /* A row that nobody fills is not a pass. */
    **row = (assay_check_row){.name = copy, .verdict = ASSAY_VERDICT_INCONCLUSIVE};
    return ASSAY_OK;
}

assay_verdict assay_result_verdict(const assay_result *result)
{
    bool judged = result->n_judged > 0, open = result->inconclusive;
    if (result->n_findings > 0)
        return ASSAY_VERDICT_FAIL;
    for (int i = 0; i < result->n_checks; i++) {
        if (result->checks[i].verdict == ASSAY_VERDICT_FAIL)
            return ASSAY_VERDICT_FAIL;
        judged |= result->checks[i].verdict == ASSAY_VERDICT_PASS;
        open |= result->checks[i].verdict == ASSAY_VERDICT_INCONCLUSIVE;
    }
    return open || !judged ? ASSAY_VERDICT_INCONCLUSIVE : ASSAY_VERDICT_PASS;
}

int assay_result_exit(const assay_result *result)
{
    switch (assay_result_verdict(result)) {
    case ASSAY_VERDICT_PASS:
        return 0;
    case ASSAY_VERDICT_FAIL:
        return 1;
    default:
        return 125;
    }
}
