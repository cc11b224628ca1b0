/*
 * One page that opens from disk and asks the network for nothing: verdict, findings as cards,
 * checks, pictures, notes. No script; its own policy forbids everything but its style and its
 * pictures.
 */
#include <stdlib.h>
#include <string.h>

#include "reports/pictures.h"
#include "reports/plot.h"
#include "reports/render.h"
#include "reports/summary.h"
#include "reports/text.h"

assay_render_fn assay_render_html;

enum { SHOWN_POINTS = 8 };

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; img-src data:\">\n";

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ground:#fcfcfb;--card:#fff;--text:#1d2126;--soft:#5b6470;"
    "--line:#d9dde2;--good:#1a7f45;--bad:#b3263a;--open:#8a5a00;--code:#f1f3f5}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--text:#e4e7ea;"
    "--soft:#a2abb5;--line:#343a41;--good:#55c987;--bad:#ff7d8c;--open:#e0b04c;--code:#262b31}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--ground);color:var(--text);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.6rem;margin:0 0 .25rem;display:flex;gap:.75rem;align-items:center;"
    "flex-wrap:wrap}\n"
    "h2{font-size:1.2rem;margin:2rem 0 .75rem;border-bottom:1px solid var(--line);"
    "padding-bottom:.25rem}\n"
    "h3{font-size:1.05rem;margin:0 0 .25rem;overflow-wrap:anywhere}\n"
    "p{margin:.25rem 0}\n"
    ".verdict{font-weight:700;letter-spacing:.04em;padding:.1rem .7rem;border-radius:.4rem;"
    "border:2px solid currentColor}\n"
    ".PASS{color:var(--good)}.FAIL{color:var(--bad)}.INCONCLUSIVE{color:var(--open)}"
    ".SKIP{color:var(--soft)}\n"
    ".soft{color:var(--soft)}\n"
    "nav a{margin-right:1rem}a{color:inherit}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--bad);"
    "border-radius:.5rem;padding:1rem 1.25rem;margin:0 0 1rem}\n"
    "dl{display:grid;grid-template-columns:9rem 1fr;gap:.25rem 1rem;margin:.75rem 0}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    "code,pre{font:.9em/1.45 ui-monospace,monospace;background:var(--code);border-radius:.3rem}\n"
    "code{padding:.05rem .3rem}pre{padding:.5rem .75rem;margin:0;white-space:pre-wrap;"
    "overflow-wrap:anywhere}pre code{background:none;padding:0}pre+pre{margin-top:.4rem}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);"
    "vertical-align:top}\n"
    "thead th{color:var(--soft);font-weight:600}tbody th{font-weight:500}\n"
    ".scroll{overflow:auto;max-height:26rem;font-size:.85rem}\n"
    "tr.bad td,tr.bad th{color:var(--bad)}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,29rem),1fr));"
    "gap:0 2rem;align-items:start}.wide{grid-column:1/-1}\n"
    "figure{margin:0 0 1.5rem;break-inside:avoid;min-width:0}.picture{overflow-x:auto}"
    "img{max-width:100%;min-width:24rem;height:auto;display:block}.wide img{min-width:44rem}\n"
    ":focus-visible{outline:2px solid var(--text);outline-offset:2px}\n"
    "figcaption{color:var(--soft);font-size:.9rem;margin:.25rem 0}\n"
    "details{margin:.25rem 0}summary{cursor:pointer;color:var(--soft)}\n"
    ".hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);"
    "white-space:nowrap}\n"
    "footer{margin-top:2rem;color:var(--soft);font-size:.85rem}\n"
    "@media(max-width:40rem){body{padding:1rem}dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}"
    "#checks table{font-size:.9rem}#checks th,#checks td{padding:.3rem .35rem .3rem 0}"
    "#checks tbody th,#checks td:nth-child(2){white-space:nowrap}"
    "#checks td:last-child{overflow-wrap:anywhere}"
    "#checks th:nth-child(3),#checks td:nth-child(3){display:none}.card{padding:.75rem}}\n"
    "@media print{:root{color-scheme:light;--ground:#fff;--card:#fff;--text:#000;--soft:#444;"
    "--line:#bbb;--good:#1a7f45;--bad:#b3263a;--open:#8a5a00;--code:#f1f3f5}"
    "body{max-width:none;padding:0}nav{display:none}.card{border-color:#999}"
    ".scroll{max-height:none;overflow:visible}.figures{grid-template-columns:1fr 1fr}"
    "img,.wide img{min-width:0}h2,h3{break-after:avoid}}\n"
    "</style>\n";

static void put(FILE *out, const char *text)
{
    assay_text_put(out, ASSAY_TEXT_XML, text ? text : "");
}

static void code(FILE *out, const char *text)
{
    fputs("<code>", out);
    put(out, text);
    fputs("</code>", out);
}

static const char *either(const char *text, const char *other)
{
    return text && *text ? text : other;
}

static void begin(FILE *out, const assay_result *result)
{
    char counts[256];
    const char *verdict = assay_verdict_name(assay_result_verdict(result)),
               *subject = assay_summary_basename(assay_summary_subject(result)),
               *sha256 = assay_summary_model(result, "sha256");
    fputs(head, out);
    fprintf(out, "<title>%s: assay ", verdict);
    put(out, result->command);
    fprintf(out, " ");
    put(out, subject);
    fputs("</title>\n", out);
    fputs(style, out);
    fprintf(out, "</head>\n<body>\n<header>\n<h1><span class=\"verdict %s\">%s</span> assay ",
            verdict, verdict);
    put(out, result->command);
    fputc(' ', out);
    put(out, subject);
    fputs("</h1>\n<p>", out);
    put(out, assay_summary_counts(counts, sizeof counts, result));
    fputs("</p>\n", out);
    if (!result->n_findings && *assay_summary_open_reason(result)) {
        fputs("<p><strong>", out);
        put(out, assay_summary_open_reason(result));
        fputs("</strong></p>\n", out);
    }
    if (*assay_summary_model(result, "path")) {
        fputs("<p class=\"soft\">Model ", out);
        code(out, assay_summary_model(result, "path"));
        if (*sha256)
            fprintf(out, " SHA-256 %.16s...", sha256);
        fputs("</p>\n", out);
    }
    if (result->command_line) {
        fputs("<p class=\"soft\">Command ", out);
        code(out, result->command_line);
        fputs("</p>\n", out);
    }
    fputs("</header>\n", out);
}

static void navigation(FILE *out, const assay_result *result)
{
    fputs("<nav aria-label=\"Sections\">", out);
    if (result->n_findings)
        fputs("<a href=\"#findings\">Findings</a>", out);
    if (result->n_checks)
        fputs("<a href=\"#checks\">Checks</a>", out);
    if (assay_pictures_any(result))
        fputs("<a href=\"#pictures\">Pictures</a>", out);
    if (result->notes.n)
        fputs("<a href=\"#notes\">Notes</a>", out);
    fputs("</nav>\n", out);
}

static void row(FILE *out, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(out, "<dt>%s</dt><dd>", label);
    put(out, text);
    fputs("</dd>\n", out);
}

static void code_row(FILE *out, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(out, "<dt>%s</dt><dd>", label);
    code(out, text);
    fputs("</dd>\n", out);
}

static void list_row(FILE *out, const char *label, const assay_strings *items)
{
    if (!items->n)
        return;
    fprintf(out, "<dt>%s</dt><dd>", label);
    for (int i = 0; i < items->n; i++) {
        fputs("<p>", out);
        put(out, items->items[i]);
        fputs("</p>", out);
    }
    fputs("</dd>\n", out);
}

/* A long list folds. */
static void points(FILE *out, const assay_strings *list)
{
    if (list->n < 2)
        return;
    fputs("<dt>Points</dt><dd>", out);
    for (int i = 0; i < list->n; i++) {
        if (i == SHOWN_POINTS)
            fprintf(out, "<details><summary>%d more</summary>", list->n - i);
        code(out, list->items[i]);
        fputc('\n', out);
    }
    fprintf(out, "%s</dd>\n", list->n > SHOWN_POINTS ? "</details>" : "");
}

static void finding(FILE *out, const assay_result *result, int index)
{
    const assay_finding *f = &result->findings[index];
    char text[512];
    fprintf(out, "<article class=\"card\" aria-labelledby=\"f%d\">\n<h3 id=\"f%d\">%d. ", index,
            index, index + 1);
    put(out, either(f->fault_class, "UNKNOWN"));
    fputs(" at ", out);
    code(out, either(f->point, "unknown place"));
    fputs("</h3>\n<p>", out);
    put(out, assay_summary_sentence(f));
    fputs("</p>\n<dl>\n", out);
    if (f->kind && strncmp(assay_summary_sentence(f), f->kind, strlen(f->kind)) != 0)
        row(out, "Kind", f->kind);
    code_row(out, "Last good point", f->last_good);
    row(out, "Where", assay_summary_where(text, sizeof text, f));
    points(out, &f->points);
    row(out, "Op", f->op);
    row(out, "Error", assay_summary_error(text, sizeof text, f));
    row(out, "First bad", assay_summary_first_bad(text, sizeof text, f));
    char *fitted = assay_summary_fitted(f);
    row(out, "Fitted", fitted);
    free(fitted);
    row(out, "How sure", assay_summary_sure(text, sizeof text, f));
    list_row(out, "Evidence", &f->evidence);
    row(out, "What to do", f->advice);
    if (f->reproduce && *f->reproduce) {
        fputs("<dt>See it again</dt><dd><pre><code>", out);
        put(out, f->reproduce);
        fputs("</code></pre></dd>\n", out);
    }
    code_row(out, "Without the model", assay_summary_replay(text, sizeof text, f));
    fputs("</dl>\n<div class=\"figures\">\n", out);
    assay_pictures_of(out, result, index);
    fputs("</div>\n</article>\n", out);
}

static void checks(FILE *out, const assay_result *result)
{
    if (!result->n_checks)
        return;
    fputs(
        "<section id=\"checks\"><h2>Checks</h2>\n<table><caption class=\"hidden\">Rows of the "
        "check</caption><thead><tr><th scope=\"col\">check</th><th scope=\"col\">verdict</th>"
        "<th scope=\"col\">seconds</th><th scope=\"col\">what was seen</th></tr></thead><tbody>\n",
        out);
    for (int i = 0; i < result->n_checks; i++) {
        const assay_check_row *r = &result->checks[i];
        const char *verdict = assay_verdict_name(r->verdict);
        fputs("<tr><th scope=\"row\">", out);
        put(out, r->name);
        fprintf(out, "</th><td class=\"%s\">%s</td><td>%.1f</td><td>", verdict, verdict,
                r->seconds);
        put(out, r->summary);
        if (r->details.n) {
            fputs("<details><summary>Details</summary>", out);
            for (int d = 0; d < r->details.n; d++) {
                fputs("<p>", out);
                put(out, r->details.items[d]);
                fputs("</p>", out);
            }
            fputs("</details>", out);
        }
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></section>\n", out);
}

static void pictures(FILE *out, const assay_result *result)
{
    if (!assay_pictures_any(result))
        return;
    fputs("<section id=\"pictures\"><h2>Pictures</h2>\n", out);
    if (!assay_plot_available())
        fputs("<p>gnuplot, which draws the pictures, is not installed: tables stand in their "
              "place.</p>\n",
              out);
    fputs("<div class=\"figures\">\n", out);
    assay_pictures_confusion(out, result);
    assay_pictures_depth(out, result);
    assay_pictures_of(out, result, -1);
    fputs("</div>\n</section>\n", out);
}

static void notes(FILE *out, const assay_result *result)
{
    if (!result->notes.n)
        return;
    fputs("<section id=\"notes\"><h2>Notes</h2>\n<ul>\n", out);
    for (int i = 0; i < result->notes.n; i++) {
        fputs("<li>", out);
        put(out, result->notes.items[i]);
        fputs("</li>\n", out);
    }
    fputs("</ul></section>\n", out);
}

static void next(FILE *out, const assay_result *result)
{
    const json_t *list = json_object_get(result->extra, "next"), *item;
    size_t i;
    if (!json_array_size(list))
        return;
    fputs("<section id=\"next\"><h2>Next</h2>\n", out);
    json_array_foreach(list, i, item)
    {
        fputs("<pre><code>", out);
        put(out, json_string_value(item));
        fputs("</code></pre>\n", out);
    }
    fputs("</section>\n", out);
}

assay_status assay_render_html(FILE *out, const assay_result *result,
                               const assay_render_options *options)
{
    char agreement[512];
    (void)options;
    begin(out, result);
    navigation(out, result);
    fputs("<main>\n", out);
    if (*assay_summary_agreement(agreement, sizeof agreement, result)) {
        fputs("<p>", out);
        put(out, agreement);
        fputs("</p>\n", out);
    }
    if (result->n_findings)
        fputs("<section id=\"findings\"><h2>Findings</h2>\n", out);
    for (int i = 0; i < result->n_findings; i++)
        finding(out, result, i);
    if (result->n_findings)
        fputs("</section>\n", out);
    checks(out, result);
    pictures(out, result);
    notes(out, result);
    next(out, result);
    fputs("</main>\n<footer>assay " ASSAY_VERSION "</footer>\n</body>\n</html>\n", out);
    return ferror(out) ? assay_fail(ASSAY_IO, "cannot write HTML") : ASSAY_OK;
}
