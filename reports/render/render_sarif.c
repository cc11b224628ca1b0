/*
 * SARIF 2.1.0 (OASIS standard, March 2020): fault classes and failed checks are rules, each finding
 * a result. Its location is the capture or the model file; the point is the logical location. What
 * could not be judged is a notification of the invocation.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reports/fault.h"
#include "reports/render.h"
#include "reports/summary.h"
#include "reports/text.h"

assay_render_fn assay_render_sarif;

static void set(json_t *object, const char *member, json_t *value)
{
    json_object_set_new(object, member, value);
}

static json_t *message(const char *text)
{
    json_t *json = json_object();
    set(json, "text", assay_text_json(text && *text ? text : "no text"));
    return json;
}

static char *lacking(void)
{
    assay_lack("a text of SARIF");
    return NULL;
}

/* RFC 3986: everything but unreserved characters and the slash is escaped. */
static json_t *uri(const char *path)
{
    char *text = assay_alloc_or_lack(3 * strlen(path) + 8, 1, "a path"), *p = text;
    if (!text)
        return NULL;
    if (*path == '/')
        p = stpcpy(p, "file://");
    for (const unsigned char *c = (const unsigned char *)path; *c; c++)
        if (*c < 0x80 && (isalnum(*c) || strchr("-._~/", *c)))
            *p++ = (char)*c;
        else
            p += sprintf(p, "%%%02X", *c);
    *p = '\0';
    json_t *json = json_string(text);
    free(text);
    return json;
}

static json_t *locations(const assay_result *result, const char *point)
{
    const char *subject = assay_summary_subject(result);
    json_t *location = json_object(), *array = json_array();
    if (*subject) {
        json_t *artifact = json_object(), *physical = json_object();
        set(artifact, "uri", uri(subject));
        set(physical, "artifactLocation", artifact);
        set(location, "physicalLocation", physical);
    }
    if (point && *point) {
        json_t *logical = json_object(), *logicals = json_array();
        set(logical, "fullyQualifiedName", assay_text_json(point));
        set(logical, "kind", json_string("member"));
        json_array_append_new(logicals, logical);
        set(location, "logicalLocations", logicals);
    }
    json_array_append_new(array, location);
    return array;
}

/* What a class is and what to do, as `assay explain` has it. */
static void describe(json_t *entry, const char *id, const char *about, const char *help)
{
    const assay_fault *fault = assay_fault_find(id);
    json_t *configuration = json_object(), *words = json_object();
    char *text = NULL;
    if (fault && asprintf(&text, "%s `assay explain %s` says more.", fault->advice, id) < 0)
        text = lacking();
    set(entry, "name", assay_text_json(id));
    set(entry, "shortDescription", message(fault ? fault->definition : about));
    set(entry, "fullDescription", message(fault ? fault->definition : about));
    const char *shown = text ? text : help && *help ? help : about;
    set(words, "text", assay_text_json(shown));
    set(words, "markdown", assay_text_json(shown));
    set(entry, "help", words);
    set(configuration, "level", json_string("error"));
    set(entry, "defaultConfiguration", configuration);
    free(text);
}

/* Index of the rule with this id, which is added when it is new. */
static size_t rule(json_t *rules, const char *id, const char *about, const char *help)
{
    json_t *clean = assay_text_json(id), *entry;
    size_t i;
    json_array_foreach(rules, i, entry)
    {
        if (json_equal(json_object_get(entry, "id"), clean)) {
            json_decref(clean);
            return i;
        }
    }
    entry = json_object();
    set(entry, "id", clean);
    describe(entry, id, about, help);
    json_array_append_new(rules, entry);
    return json_array_size(rules) - 1;
}

static json_t *result_of(json_t *rules, const assay_result *result, const char *id,
                         const char *about, const char *help, const char *text, const char *point)
{
    json_t *json = json_object();
    size_t index = rule(rules, id, about, help);
    set(json, "ruleId", assay_text_json(id));
    set(json, "ruleIndex", json_integer((json_int_t)index));
    set(json, "level", json_string("error"));
    set(json, "message", message(text));
    set(json, "locations", locations(result, point));
    return json;
}

static json_t *finding(json_t *rules, const assay_result *result, const assay_finding *f)
{
    const char *class = f->fault_class && *f->fault_class ? f->fault_class : "UNKNOWN",
               *point = f->point ? f->point : "";
    char *about = NULL, *text = NULL, *print = NULL, where[512];
    json_t *json = NULL, *properties = json_object(), *prints = json_object();
    if (asprintf(&about, "%s",
                 strcmp(class, "UNKNOWN")
                     ? "A fault of the model file or the run"
                     : "Wrong numbers that no class of the table explains") < 0)
        about = lacking();
    if (asprintf(&text, "%s at %s: %s%s%s", class, *point ? point : "unknown place",
                 assay_summary_sentence(f), f->last_good ? ". Last good point before it: " : "",
                 f->last_good ? f->last_good : "") < 0)
        text = lacking();
    if (asprintf(&print, "%s|%s|%s", class, f->kind ? f->kind : "", point) < 0)
        print = lacking();
    json = result_of(rules, result, class, about ? about : class, f->advice, text, point);
    set(prints, "assayFinding/v1", assay_text_json(print ? print : class));
    set(json, "partialFingerprints", prints);
    set(properties, "where", assay_text_json(assay_summary_where(where, sizeof where, f)));
    set(properties, "kind", assay_text_json(f->kind ? f->kind : ""));
    set(properties, "confidence", json_real(assay_text_has(f->confidence) ? f->confidence : 0));
    set(properties, "reproduce", assay_text_json(f->reproduce ? f->reproduce : ""));
    if (f->bundle)
        set(properties, "bundle", assay_text_json(f->bundle));
    set(json, "properties", properties);
    free(about);
    free(text);
    free(print);
    return json;
}

static void failed_check(json_t *results, json_t *rules, const assay_result *result,
                         const assay_check_row *row)
{
    char *id = NULL, *about = NULL;
    if (asprintf(&id, "check/%s", row->name ? row->name : "") >= 0 &&
        asprintf(&about,
                 "Row %s of the list before serving; `assay list checks` says what it shows",
                 row->name ? row->name : "") >= 0)
        json_array_append_new(results,
                              result_of(rules, result, id, about, NULL, row->summary, NULL));
    else
        lacking();
    free(id);
    free(about);
}

static void notify(json_t *notifications, const char *level, const char *text)
{
    json_t *json = json_object();
    set(json, "level", json_string(level));
    set(json, "message", message(text));
    json_array_append_new(notifications, json);
}

static json_t *invocations(const assay_result *result)
{
    json_t *array = json_array(), *json = json_object(), *notifications = json_array();
    bool open = assay_result_verdict(result) == ASSAY_VERDICT_INCONCLUSIVE;
    set(json, "executionSuccessful", json_true());
    set(json, "exitCode", json_integer(assay_result_exit(result)));
    set(json, "exitCodeDescription", json_string(assay_verdict_name(assay_result_verdict(result))));
    if (result->command_line)
        set(json, "commandLine", assay_text_json(result->command_line));
    if (open)
        notify(notifications, "warning", assay_summary_open_reason(result));
    for (int i = 0; i < result->n_checks; i++)
        if (result->checks[i].verdict == ASSAY_VERDICT_INCONCLUSIVE)
            notify(notifications, "warning", result->checks[i].summary);
    for (int i = 0; i < result->notes.n; i++)
        notify(notifications, "note", result->notes.items[i]);
    set(json, "toolExecutionNotifications", notifications);
    json_array_append_new(array, json);
    return array;
}

assay_status assay_render_sarif(FILE *out, const assay_result *result,
                                const assay_render_options *options)
{
    (void)options;
    json_t *top = json_object(), *runs = json_array(), *run = json_object(), *tool = json_object(),
           *driver = json_object(), *rules = json_array(), *results = json_array();
    for (int i = 0; i < assay_fault_count(); i++)
        rule(rules, assay_fault_at(i)->name, NULL, NULL);
    for (int i = 0; i < result->n_findings; i++)
        json_array_append_new(results, finding(rules, result, &result->findings[i]));
    for (int i = 0; i < result->n_checks; i++)
        if (result->checks[i].verdict == ASSAY_VERDICT_FAIL)
            failed_check(results, rules, result, &result->checks[i]);
    set(driver, "name", json_string("assay"));
    set(driver, "version", json_string(ASSAY_VERSION));
    set(driver, "rules", rules);
    set(tool, "driver", driver);
    set(run, "tool", tool);
    set(run, "invocations", invocations(result));
    set(run, "results", results);
    json_array_append_new(runs, run);
    set(top, "version", json_string("2.1.0"));
    set(top, "$schema", json_string("https://json.schemastore.org/sarif-2.1.0.json"));
    set(top, "runs", runs);
    int bad = json_dumpf(top, out, JSON_INDENT(1));
    json_decref(top);
    if (bad || fputc('\n', out) == EOF)
        return assay_fail(ASSAY_IO, "cannot write SARIF");
    return ASSAY_OK;
}
