/*
 * Text for a terminal. The first lines hold the verdict, and for every finding one sentence with
 * class and place and the last good point before it; then the findings in full, the table of
 * checks, the notes.
 */
#include <stdlib.h>
#include <string.h>

#include "reports/render.h"
#include "reports/summary.h"
#include "reports/text.h"

assay_render_fn assay_render_text;

enum { INDENT = 14, HEAD_FINDINGS = 4, LISTED_POINTS = 8 };

typedef struct page {
    FILE *out;
    const assay_render_options *options;
    int width;
} page;

static const char *style_of(const page *p, const char *code)
{
    return p->options->color ? code : "";
}

static const char *verdict_style(const page *p, assay_verdict verdict)
{
    static const char *const codes[] = {"\033[1;32m", "\033[1;31m", "\033[1;33m", "\033[2m"};
    return style_of(p, codes[verdict]);
}

static const char *bold(const page *p)
{
    return style_of(p, "\033[1m");
}

static const char *normal(const page *p)
{
    return style_of(p, "\033[0m");
}

static void line(const page *p, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(p->out, "   %s%*s", label, INDENT - 3 - (int)strlen(label), "");
    assay_text_wrap(p->out, text, INDENT, INDENT, p->width);
}

/* A command stays on one line, so that it can be copied. */
static void command(const page *p, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(p->out, "   %s%*s", label, INDENT - 3 - (int)strlen(label), "");
    assay_text_put(p->out, ASSAY_TEXT_TERMINAL, text);
    fputc('\n', p->out);
}

static void list(const page *p, const char *label, const assay_strings *items)
{
    for (int i = 0; i < items->n; i++)
        line(p, i ? "" : label, items->items[i]);
}

static const char *either(const char *text, const char *other)
{
    return text && *text ? text : other;
}

/* " (ranks 0-3)": what point and sentence do not say. */
static const char *spread(char *out, size_t room, const assay_finding *f)
{
    char ranks[40];
    assay_text_ranges(ranks, sizeof ranks, &f->ranks);
    out[0] = '\0';
    if (f->ranks.n)
        snprintf(out, room, " (%s %s)", f->ranks.n == 1 ? "rank" : "ranks", ranks);
    return out;
}

/* "1. CLASS at point: sentence" and the last good point, as they stand in the head. */
static void head_finding(const page *p, const assay_result *result, int number,
                         const assay_finding *f)
{
    char lead[32], where[128];
    int n = snprintf(lead, sizeof lead, "%2d. ", number);
    const char *class = either(f->fault_class, "UNKNOWN"),
               *point = either(f->point, "unknown place");
    fprintf(p->out, "%s%s", lead, bold(p));
    assay_text_put(p->out, ASSAY_TEXT_TERMINAL, class);
    fprintf(p->out, "%s at %s", normal(p), bold(p));
    assay_text_put(p->out, ASSAY_TEXT_TERMINAL, point);
    fprintf(p->out, "%s%s: ", normal(p), spread(where, sizeof where, f));
    int column =
        n + assay_text_width(class) + 4 + assay_text_width(point) + assay_text_width(where) + 2;
    assay_text_wrap(p->out, assay_summary_sentence(f), column, n, p->width);
    char good[256];
    if (*assay_summary_last_good(good, sizeof good, result, f)) {
        fprintf(p->out, "%*s", n, "");
        assay_text_wrap(p->out, good, n, n, p->width);
    }
}

static void head(const page *p, const assay_result *result)
{
    assay_verdict verdict = assay_result_verdict(result);
    const char *name = assay_verdict_name(verdict),
               *subject = assay_summary_basename(assay_summary_subject(result));
    char counts[256], *text = NULL;
    fprintf(p->out, "%s%s%s  ", verdict_style(p, verdict), name, normal(p));
    if (asprintf(&text, "%s%s%s: %s", either(result->command, "result"), *subject ? " " : "",
                 subject, assay_summary_counts(counts, sizeof counts, result)) >= 0)
        assay_text_wrap(p->out, text, (int)strlen(name) + 2, (int)strlen(name) + 2, p->width);
    else
        assay_lack("the first line");
    free(text);
    int shown = result->n_findings > HEAD_FINDINGS ? HEAD_FINDINGS - 1 : result->n_findings;
    for (int i = 0; i < shown; i++)
        head_finding(p, result, i + 1, &result->findings[i]);
    if (shown < result->n_findings)
        fprintf(p->out, "    and %d more below\n", result->n_findings - shown);
    if (!result->n_findings && verdict != ASSAY_VERDICT_PASS) {
        fputs("    ", p->out);
        assay_text_wrap(p->out, assay_summary_open_reason(result), 4, 4, p->width);
    }
}

/* The first points of a long list, and how many more there are. */
static void points(const page *p, const assay_finding *f)
{
    char *text = NULL;
    size_t n = 0;
    if (f->points.n < 2)
        return;
    FILE *memory = open_memstream(&text, &n);
    if (!memory) {
        assay_lack("a list of points");
        return;
    }
    int shown =
        p->options->verbose || f->points.n <= LISTED_POINTS ? f->points.n : LISTED_POINTS - 1;
    for (int i = 0; i < shown; i++)
        fprintf(memory, "%s%s", i ? ", " : "", f->points.items[i]);
    if (shown < f->points.n)
        fprintf(memory, " and %d more", f->points.n - shown);
    if (fclose(memory) != 0 || !text)
        assay_lack("a list of points");
    line(p, "points", text ? text : "");
    free(text);
}

static void finding(const page *p, int number, const assay_finding *f)
{
    char text[512];
    fprintf(p->out, "\n%2d. %s", number, bold(p));
    assay_text_put(p->out, ASSAY_TEXT_TERMINAL, either(f->fault_class, "UNKNOWN"));
    fputs(normal(p), p->out);
    if (f->kind && *f->kind) {
        fputs(", ", p->out);
        assay_text_put(p->out, ASSAY_TEXT_TERMINAL, f->kind);
    }
    fputc('\n', p->out);
    line(p, "where", f->point);
    line(p, "", assay_summary_where(text, sizeof text, f));
    points(p, f);
    line(p, "op", f->op);
    line(p, "error", assay_summary_error(text, sizeof text, f));
    line(p, "first bad", assay_summary_first_bad(text, sizeof text, f));
    char *fitted = assay_summary_fitted(f);
    line(p, "fitted", fitted);
    free(fitted);
    line(p, "how sure", assay_summary_sure(text, sizeof text, f));
    list(p, "evidence", &f->evidence);
    line(p, "what to do", f->advice);
    command(p, "see it", f->reproduce);
    command(p, "no model?", assay_summary_replay(text, sizeof text, f));
}

static void checks(const page *p, const assay_result *result)
{
    int name_width = 5, verdict_width = 7;
    if (!result->n_checks)
        return;
    for (int i = 0; i < result->n_checks; i++) {
        int w = assay_text_width(either(result->checks[i].name, "")),
            v = (int)strlen(assay_verdict_name(result->checks[i].verdict));
        name_width = w > name_width ? w : name_width;
        verdict_width = v > verdict_width ? v : verdict_width;
    }
    int indent = name_width + 2 + verdict_width + 2 + 7 + 2;
    fprintf(p->out, "\n%s%-*s  %-*s  %7s  %s%s\n", bold(p), name_width, "check", verdict_width,
            "verdict", "seconds", "what was seen", normal(p));
    for (int i = 0; i < result->n_checks; i++) {
        const assay_check_row *row = &result->checks[i];
        const char *name = either(row->name, "");
        assay_text_put(p->out, ASSAY_TEXT_TERMINAL, name);
        fprintf(p->out, "%*s  %s%-*s%s  %7.1f  ", name_width - assay_text_width(name), "",
                verdict_style(p, row->verdict), verdict_width, assay_verdict_name(row->verdict),
                normal(p), row->seconds);
        assay_text_wrap(p->out, row->summary, indent, indent, p->width);
        for (int d = 0; d < row->details.n && p->options->verbose; d++) {
            fprintf(p->out, "%*s- ", indent, "");
            assay_text_wrap(p->out, row->details.items[d], indent + 2, indent + 2, p->width);
        }
    }
}

static void agreement(const page *p, const assay_result *result)
{
    char text[512];
    if (!*assay_summary_agreement(text, sizeof text, result))
        return;
    fputc('\n', p->out);
    assay_text_wrap(p->out, text, 0, 0, p->width);
}

static void notes(const page *p, const assay_result *result)
{
    if (!result->notes.n)
        return;
    fprintf(p->out, "\n%snotes%s\n", bold(p), normal(p));
    for (int i = 0; i < result->notes.n; i++) {
        fputs(" - ", p->out);
        assay_text_wrap(p->out, result->notes.items[i], 3, 3, p->width);
    }
}

/* Commands that lead on, each on its own line. */
static void next(const page *p, const assay_result *result)
{
    const json_t *list = json_object_get(result->extra, "next"), *item;
    size_t i;
    if (json_array_size(list))
        fprintf(p->out, "\n%snext%s\n", bold(p), normal(p));
    json_array_foreach(list, i, item)
    {
        fputs("   ", p->out);
        assay_text_put(p->out, ASSAY_TEXT_TERMINAL, either(json_string_value(item), ""));
        fputc('\n', p->out);
    }
}

assay_status assay_render_text(FILE *out, const assay_result *result,
                               const assay_render_options *options)
{
    int width = options->width ? options->width : 100;
    page p = {out, options, width < 40 ? 40 : width};
    head(&p, result);
    if (!options->quiet) {
        for (int i = 0; i < result->n_findings; i++)
            finding(&p, i + 1, &result->findings[i]);
        checks(&p, result);
        agreement(&p, result);
        notes(&p, result);
        next(&p, result);
    }
    return ferror(out) ? assay_fail(ASSAY_IO, "cannot write the report") : ASSAY_OK;
}
