#include "reports/summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text.h"

/* Appends to a text of limited room; what does not fit is cut. */
static void append(char *out, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *out, size_t room, const char *format, ...)
{
    size_t n = strlen(out);
    va_list args;
    va_start(args, format);
    if (n < room)
        vsnprintf(out + n, room - n, format, args);
    va_end(args);
}

const char *assay_summary_model(const assay_result *result, const char *member)
{
    const char *text = json_string_value(json_object_get(result->model, member));
    return text ? text : "";
}

const char *assay_summary_subject(const assay_result *result)
{
    const json_t *candidate = json_object_get(result->extra, "candidate");
    const char *path = json_string_value(json_object_get(candidate, "path"));
    return path ? path : assay_summary_model(result, "path");
}

const char *assay_summary_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int assay_summary_n_checks(const assay_result *result, assay_verdict verdict)
{
    int n = 0;
    for (int i = 0; i < result->n_checks; i++)
        n += result->checks[i].verdict == verdict;
    return n;
}

static void append_checks(char *out, size_t room, const assay_result *result)
{
    int failed = assay_summary_n_checks(result, ASSAY_VERDICT_FAIL),
        skipped = assay_summary_n_checks(result, ASSAY_VERDICT_SKIP),
        open = assay_summary_n_checks(result, ASSAY_VERDICT_INCONCLUSIVE),
        n = result->n_checks - skipped;
    if (failed)
        append(out, room, "; %d of %d checks failed", failed, n);
    else
        append(out, room, "; %d of %d checks passed", n - open, n);
    if (open)
        append(out, room, ", %d open", open);
    if (skipped)
        append(out, room, ", %d skipped", skipped);
}

char *assay_summary_counts(char *out, size_t room, const assay_result *result)
{
    out[0] = '\0';
    if (result->n_findings)
        append(out, room, "%d finding%s", result->n_findings, result->n_findings == 1 ? "" : "s");
    else
        append(out, room, "%s",
               assay_result_verdict(result) == ASSAY_VERDICT_INCONCLUSIVE ? "cannot judge"
               : assay_result_verdict(result) == ASSAY_VERDICT_FAIL       ? "no finding"
                                                                          : "nothing found");
    if (result->n_checks)
        append_checks(out, room, result);
    if (result->n_points || result->n_judged)
        append(out, room, "; %" PRId64 " of %" PRId64 " points judged", result->n_judged,
               result->n_points);
    if (result->seconds > 0)
        append(out, room, "; %.1f s", result->seconds);
    return out;
}

const char *assay_summary_open_reason(const assay_result *result)
{
    assay_verdict verdict = assay_result_verdict(result);
    if (verdict == ASSAY_VERDICT_PASS || result->n_findings)
        return "";
    for (int i = 0; i < result->n_checks; i++)
        if (result->checks[i].verdict == verdict && result->checks[i].summary)
            return result->checks[i].summary;
    return result->notes.n ? result->notes.items[0] : "nothing was judged";
}

const char *assay_summary_sentence(const assay_finding *finding)
{
    const char *sentence = finding->sentence, *point = finding->point;
    size_t n = point ? strlen(point) : 0;
    if (!sentence || !*sentence)
        return finding->kind && *finding->kind ? finding->kind : "wrong numbers";
    size_t quote = *sentence == '\''; /* the audit quotes names of tensors */
    const char *rest = sentence + quote + n + quote;
    if (n && !strncmp(sentence + quote, point, n) && (!quote || rest[-1] == '\'') &&
        !strncmp(rest, ": ", 2) && rest[2])
        return rest + 2;
    return sentence;
}

char *assay_summary_last_good(char *out, size_t room, const assay_result *result,
                              const assay_finding *f)
{
    out[0] = '\0';
    if (f->last_good && *f->last_good)
        append(out, room, "last good point before it: %s", f->last_good);
    else if (f->op && *f->op && result->n_judged > f->points.n &&
             strcmp(result->command ? result->command : "", "repro") != 0)
        append(out, room, "no good point was seen before it");
    return out;
}

char *assay_summary_sure(char *out, size_t room, const assay_finding *f)
{
    out[0] = '\0';
    if (f->fault_class && !strcmp(f->fault_class, "UNKNOWN"))
        return out; /* no class is claimed */
    if (assay_text_has(f->confidence))
        append(out, room, "confidence %.2f", f->confidence);
    if (*out && assay_text_has(f->explained))
        append(out, room, "; explains %.4g %% of the added error", 100 * f->explained);
    return out;
}

static void append_list(char *out, size_t room, const char *one, const char *many,
                        const assay_numbers *list)
{
    char ranges[160];
    if (list->n)
        append(out, room, "%s%s %s", *out ? "; " : "", list->n == 1 ? one : many,
               assay_text_ranges(ranges, sizeof ranges, list));
}

char *assay_summary_where(char *out, size_t room, const assay_finding *finding)
{
    out[0] = '\0';
    append_list(out, room, "layer", "layers", &finding->layers);
    append_list(out, room, "rank", "ranks", &finding->ranks);
    append_list(out, room, "step", "steps", &finding->steps);
    for (int i = 0; i < finding->prompts.n; i++)
        append(out, room, "%s%s",
               i                         ? ", "
               : finding->prompts.n == 1 ? "; prompt "
                                         : "; prompts ",
               finding->prompts.items[i]);
    return strncmp(out, "; ", 2) ? out : memmove(out, out + 2, strlen(out + 2) + 1);
}

static void append_number(char *out, size_t room, const char *name, double x)
{
    char text[32];
    if (assay_text_has(x))
        append(out, room, "%s%s %s", *out ? ", " : "", name, assay_text_number(text, x));
}

char *assay_summary_error(char *out, size_t room, const assay_finding *finding)
{
    out[0] = '\0';
    append_number(out, room, "relative", finding->error_rel);
    append_number(out, room, "cosine", finding->error_cos);
    append_number(out, room, "gain", finding->error_gain);
    append_number(out, room, "floor", finding->floor);
    return out;
}

char *assay_summary_first_bad(char *out, size_t room, const assay_finding *finding)
{
    char got[32], expected[32];
    out[0] = '\0';
    if (!finding->has_first_bad)
        return out;
    append(out, room, "[");
    for (int i = 0; i < finding->n_first_bad; i++)
        append(out, room, "%s%" PRId64, i ? ", " : "", finding->first_bad[i]);
    append(out, room, "]: got %s, expected %s", assay_text_number(got, finding->first_bad_got),
           assay_text_number(expected, finding->first_bad_expected));
    return out;
}

char *assay_summary_replay(char *out, size_t room, const assay_finding *finding)
{
    out[0] = '\0';
    if (finding->bundle)
        append(out, room, "assay repro %s", finding->bundle);
    return out;
}

char *assay_summary_fitted(const assay_finding *finding)
{
    char *out = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&out, &n);
    const char *key;
    json_t *value;
    bool first = true;
    if (!memory) {
        assay_lack("fitted values");
        return NULL;
    }
    json_object_foreach(finding->fitted, key, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(5));
        if (!text)
            assay_lack("fitted values");
        fprintf(memory, "%s%s %s", first ? "" : ", ", key, text ? text : "?");
        free(text);
        first = false;
    }
    if (fclose(memory) != 0 || !out) /* glibc's fclose does not say that it had no memory */
        assay_lack("fitted values");
    return out;
}

static double number_of(const json_t *object, const char *member)
{
    const json_t *json = json_object_get(object, member);
    return json_is_number(json) ? json_number_value(json) : INFINITY;
}

char *assay_summary_agreement(char *out, size_t room, const assay_result *result)
{
    const json_t *a = json_object_get(result->extra, "agreement"),
                 *worst = json_object_get(a, "worst");
    const char *prompt = json_string_value(json_object_get(worst, "prompt"));
    char mean[32], largest[32];
    out[0] = '\0';
    if (!json_is_object(a))
        return out;
    append(out, room,
           "logits: same first choice in %.0f of %.0f rows, top-5 overlap %.3f, divergence (KL) "
           "mean %s, largest %s",
           number_of(a, "top1_equal"), number_of(a, "rows"), number_of(a, "top5_overlap"),
           assay_text_number(mean, number_of(a, "kl_mean")),
           assay_text_number(largest, number_of(a, "kl_max")));
    if (prompt)
        append(out, room, " at prompt %s, position %.0f", prompt, number_of(worst, "position"));
    return out;
}
