/*
 * JUnit XML: one test case per check and per finding (schema of Apache Ant's JUnit tasks). A check
 * that cannot judge is an error, not a failure; findings are failures.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reports/render.h"
#include "reports/summary.h"
#include "reports/text.h"

assay_render_fn assay_render_junit;

static void put(FILE *out, const char *text)
{
    assay_text_put(out, ASSAY_TEXT_XML, text ? text : "");
}

/* xs:token: no blank at either end, no two blanks in a row, no line ends. */
static void put_token(FILE *out, const char *text, const char *otherwise)
{
    char *copy = strdup(text && text[strspn(text, " \t\r\n")] ? text : otherwise), *rest = NULL;
    if (!copy) {
        assay_lack("a name of JUnit");
        return;
    }
    char *word = strtok_r(copy, " \t\r\n", &rest);
    for (int i = 0; word; word = strtok_r(NULL, " \t\r\n", &rest), i++) {
        if (i)
            fputc(' ', out);
        put(out, word);
    }
    free(copy);
}

static double seconds_of(double x)
{
    return isfinite(x) && x > 0 ? x : 0;
}

static void test_case(FILE *out, const assay_result *result, const char *group, const char *name,
                      double seconds)
{
    fputs("<testcase classname=\"assay.", out);
    put_token(out, result->command, "result");
    fprintf(out, ".%s\" name=\"", group);
    put_token(out, name, "unnamed");
    fprintf(out, "\" time=\"%.3f\">", seconds_of(seconds));
}

static void check(FILE *out, const assay_result *result, const assay_check_row *row)
{
    test_case(out, result, "check", row->name, row->seconds);
    const char *tag = row->verdict == ASSAY_VERDICT_FAIL           ? "failure"
                      : row->verdict == ASSAY_VERDICT_INCONCLUSIVE ? "error"
                      : row->verdict == ASSAY_VERDICT_SKIP         ? "skipped"
                                                                   : NULL;
    if (tag) {
        fprintf(out, "<%s message=\"", tag);
        put(out, row->summary);
        if (row->verdict == ASSAY_VERDICT_SKIP) {
            fputs("\"/>", out);
        } else {
            fprintf(out, "\" type=\"%s\">", assay_verdict_name(row->verdict));
            for (int i = 0; i < row->details.n; i++) {
                put(out, row->details.items[i]);
                fputc('\n', out);
            }
            fprintf(out, "</%s>", tag);
        }
    }
    fputs("</testcase>\n", out);
}

static void field(FILE *out, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(out, "%s: ", label);
    put(out, text);
    fputc('\n', out);
}

static void finding(FILE *out, const assay_result *result, const assay_finding *f)
{
    char text[512], *name = NULL;
    if (asprintf(&name, "%s at %s", f->fault_class ? f->fault_class : "UNKNOWN",
                 f->point ? f->point : "unknown place") < 0) {
        assay_lack("a name of JUnit");
        return;
    }
    test_case(out, result, "finding", name, 0);
    fputs("<failure message=\"", out);
    put(out, f->sentence && *f->sentence ? f->sentence : name);
    fputs("\" type=\"", out);
    put(out, f->fault_class);
    fputs("\">", out);
    field(out, "kind", f->kind);
    field(out, "where", assay_summary_where(text, sizeof text, f));
    field(out, "op", f->op);
    field(out, "last good point before it", f->last_good);
    field(out, "error", assay_summary_error(text, sizeof text, f));
    field(out, "first bad", assay_summary_first_bad(text, sizeof text, f));
    char *fitted = assay_summary_fitted(f);
    field(out, "fitted", fitted);
    free(fitted);
    field(out, "how sure", assay_summary_sure(text, sizeof text, f));
    for (int i = 0; i < f->evidence.n; i++)
        field(out, "evidence", f->evidence.items[i]);
    field(out, "what to do", f->advice);
    field(out, "see it", f->reproduce);
    field(out, "without the model", assay_summary_replay(text, sizeof text, f));
    fputs("</failure></testcase>\n", out);
    free(name);
}

static void property(FILE *out, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    fprintf(out, "<property name=\"%s\" value=\"", name);
    put(out, value);
    fputs("\"/>\n", out);
}

/* A result that says nothing on its own still fails the job: a case of its own. */
static bool needs_own_case(const assay_result *result)
{
    return assay_result_verdict(result) == ASSAY_VERDICT_INCONCLUSIVE &&
           !assay_summary_n_checks(result, ASSAY_VERDICT_INCONCLUSIVE);
}

assay_status assay_render_junit(FILE *out, const assay_result *result,
                                const assay_render_options *options)
{
    (void)options;
    char now[32], coverage[64];
    time_t t = time(NULL);
    struct tm utc;
    bool own = needs_own_case(result);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t, &utc));
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite id=\"0\" "
          "package=\"assay\" name=\"assay ",
          out);
    put_token(out, result->command, "result");
    fprintf(out,
            "\" timestamp=\"%s\" hostname=\"localhost\" tests=\"%d\" failures=\"%d\" "
            "errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n<properties>\n",
            now, result->n_checks + result->n_findings + own,
            result->n_findings + assay_summary_n_checks(result, ASSAY_VERDICT_FAIL),
            assay_summary_n_checks(result, ASSAY_VERDICT_INCONCLUSIVE) + own,
            assay_summary_n_checks(result, ASSAY_VERDICT_SKIP), seconds_of(result->seconds));
    property(out, "assay", ASSAY_VERSION);
    property(out, "verdict", assay_verdict_name(assay_result_verdict(result)));
    property(out, "command_line", result->command_line);
    property(out, "model", assay_summary_model(result, "path"));
    property(out, "model_sha256", assay_summary_model(result, "sha256"));
    snprintf(coverage, sizeof coverage, "%lld of %lld points judged", (long long)result->n_judged,
             (long long)result->n_points);
    property(out, "coverage", coverage);
    fputs("</properties>\n", out);
    for (int i = 0; i < result->n_checks; i++)
        check(out, result, &result->checks[i]);
    for (int i = 0; i < result->n_findings; i++)
        finding(out, result, &result->findings[i]);
    if (own) {
        test_case(out, result, "verdict", "something was judged", 0);
        fputs("<error type=\"INCONCLUSIVE\" message=\"", out);
        put(out, assay_summary_open_reason(result));
        fputs("\"></error></testcase>\n", out);
    }
    fputs("<system-out>", out);
    for (int i = 0; i < result->notes.n; i++) {
        put(out, result->notes.items[i]);
        fputc('\n', out);
    }
    fputs("</system-out>\n<system-err></system-err>\n</testsuite>\n</testsuites>\n", out);
    return ferror(out) ? assay_fail(ASSAY_IO, "cannot write JUnit XML") : ASSAY_OK;
}
