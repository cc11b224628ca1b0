/* Markdown for the summary of a pull request: verdict, findings, table of checks. */
#include <stdlib.h>
#include <string.h>

#include "reports/render.h"
#include "reports/summary.h"
#include "reports/text.h"

assay_render_fn assay_render_markdown;

static void put(FILE *out, const char *text)
{
    assay_text_put(out, ASSAY_TEXT_MARKDOWN, text ? text : "");
}

/* A code span in a fence longer than any run of backticks in it. */
static void code(FILE *out, const char *text)
{
    int longest = 0, run = 0;
    for (const char *p = text; *p; p++) {
        run = *p == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    for (int i = 0; i <= longest; i++)
        fputc('`', out);
    if (longest)
        fputc(' ', out);
    assay_text_put(out, ASSAY_TEXT_TERMINAL, text);
    if (longest)
        fputc(' ', out);
    for (int i = 0; i <= longest; i++)
        fputc('`', out);
}

static void item(FILE *out, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(out, "- %s: ", label);
    put(out, text);
    fputc('\n', out);
}

static void finding(FILE *out, int number, const assay_finding *f)
{
    char text[512];
    fprintf(out, "\n### %d. ", number);
    put(out, f->fault_class && *f->fault_class ? f->fault_class : "UNKNOWN");
    fputs(" at ", out);
    code(out, f->point && *f->point ? f->point : "unknown place");
    fputs("\n\n", out);
    put(out, assay_summary_sentence(f));
    fputs("\n\n", out);
    item(out, "where", assay_summary_where(text, sizeof text, f));
    item(out, "op", f->op);
    if (f->last_good) {
        fputs("- last good point before it: ", out);
        code(out, f->last_good);
        fputc('\n', out);
    }
    item(out, "error", assay_summary_error(text, sizeof text, f));
    item(out, "first bad", assay_summary_first_bad(text, sizeof text, f));
    char *fitted = assay_summary_fitted(f);
    item(out, "fitted", fitted);
    free(fitted);
    item(out, "how sure", assay_summary_sure(text, sizeof text, f));
    for (int i = 0; i < f->evidence.n; i++)
        item(out, "evidence", f->evidence.items[i]);
    item(out, "what to do", f->advice);
    if (f->reproduce && *f->reproduce) {
        fputs("- see it: ", out);
        code(out, f->reproduce);
        fputc('\n', out);
    }
    if (*assay_summary_replay(text, sizeof text, f)) {
        fputs("- without the model: ", out);
        code(out, text);
        fputc('\n', out);
    }
}

assay_status assay_render_markdown(FILE *out, const assay_result *result,
                                   const assay_render_options *options)
{
    (void)options;
    char counts[256];
    const char *subject = assay_summary_basename(assay_summary_subject(result));
    fprintf(out, "## assay ");
    put(out, result->command);
    fprintf(out, ": %s\n\n", assay_verdict_name(assay_result_verdict(result)));
    if (*subject) {
        code(out, subject);
        fputs(": ", out);
    }
    put(out, assay_summary_counts(counts, sizeof counts, result));
    fputc('\n', out);
    if (!result->n_findings && *assay_summary_open_reason(result)) {
        fputc('\n', out);
        put(out, assay_summary_open_reason(result));
        fputc('\n', out);
    }
    for (int i = 0; i < result->n_findings; i++)
        finding(out, i + 1, &result->findings[i]);
    char agreement[512];
    if (*assay_summary_agreement(agreement, sizeof agreement, result)) {
        fputc('\n', out);
        put(out, agreement);
        fputc('\n', out);
    }
    if (result->n_checks)
        fputs("\n| check | verdict | what was seen |\n|---|---|---|\n", out);
    for (int i = 0; i < result->n_checks; i++) {
        const assay_check_row *row = &result->checks[i];
        fputs("| ", out);
        put(out, row->name);
        fprintf(out, " | %s | ", assay_verdict_name(row->verdict));
        put(out, row->summary);
        fputs(" |\n", out);
    }
    if (result->notes.n)
        fputs("\n<details><summary>notes</summary>\n\n", out);
    for (int i = 0; i < result->notes.n; i++) {
        fputs("- ", out);
        put(out, result->notes.items[i]);
        fputc('\n', out);
    }
    if (result->notes.n)
        fputs("\n</details>\n", out);
    return ferror(out) ? assay_fail(ASSAY_IO, "cannot write Markdown") : ASSAY_OK;
}
