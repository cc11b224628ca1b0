#include "reports/finding_join.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text.h"

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_one_fault(const assay_finding *a, const assay_finding *b)
{
    return same_text(a->fault_class, b->fault_class) && same_text(a->kind, b->kind) &&
           same_text(a->op, b->op) && a->layers.n && b->layers.n;
}

static assay_status take_places(assay_finding *to, const assay_finding *from)
{
    for (int i = 0; i < from->points.n; i++)
        ASSAY_TRY(assay_strings_add_once(&to->points, from->points.items[i]));
    for (int i = 0; i < from->prompts.n; i++)
        ASSAY_TRY(assay_strings_add_once(&to->prompts, from->prompts.items[i]));
    for (int i = 0; i < from->layers.n; i++)
        ASSAY_TRY(assay_numbers_add(&to->layers, from->layers.items[i]));
    for (int i = 0; i < from->ranks.n; i++)
        ASSAY_TRY(assay_numbers_add(&to->ranks, from->ranks.items[i]));
    for (int i = 0; i < from->steps.n; i++)
        ASSAY_TRY(assay_numbers_add(&to->steps, from->steps.items[i]));
    char layers[128];
    assay_text_ranges(layers, sizeof layers, &to->layers);
    to->confidence = fmin(to->confidence, from->confidence);
    return strcmp(to->fault_class, "UNKNOWN")
               ? assay_finding_set(&to->sentence, "%s: %s (layers %s)", to->point, to->kind, layers)
               : ASSAY_OK;
}

/* Pictures carry the number of their finding; those of a finding that is gone (-1) go. */
static void renumber(json_t *series, const char *member, const int *now, int n)
{
    json_t *list = json_object_get(series, member);
    for (size_t i = json_array_size(list); i-- > 0;) {
        json_t *entry = json_array_get(list, i), *at = json_object_get(entry, "finding");
        json_int_t number = json_integer_value(at);
        if (!at || number < 0 || number >= n)
            continue;
        if (now[number] < 0)
            json_array_remove(list, i);
        else
            json_object_set_new(entry, "finding", json_integer(now[number]));
    }
}

assay_status assay_result_join_findings(assay_result *result, int first)
{
    int n = result->n_findings, kept = first, *now;
    json_t *series = json_object_get(result->extra, "series");
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&now, (size_t)n, sizeof *now, "findings"));
    for (int i = 0; i < first; i++)
        now[i] = i;
    for (int i = first; i < n; i++) {
        assay_finding *f = &result->findings[i];
        int twin = first;
        while (twin < kept && !is_one_fault(&result->findings[twin], f))
            twin++;
        if (twin < kept) {
            s = s == ASSAY_OK ? take_places(&result->findings[twin], f) : s;
            assay_finding_clear(f);
            now[i] = -1;
        } else {
            now[i] = kept;
            result->findings[kept++] = *f;
        }
    }
    result->n_findings = kept;
    renumber(series, "maps", now, n);
    renumber(series, "scatters", now, n);
    free(now);
    return s;
}

void assay_result_join_notes(assay_result *result, int first)
{
    assay_strings *notes = &result->notes;
    int kept = first;
    for (int i = first; i < notes->n; i++) {
        int twin = 0;
        while (twin < kept && strcmp(notes->items[twin], notes->items[i]) != 0)
            twin++;
        if (twin < kept)
            free(notes->items[i]);
        else
            notes->items[kept++] = notes->items[i];
    }
    notes->n = kept;
}
