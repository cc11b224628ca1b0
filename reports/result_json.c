/*
 * A result as JSON and back (schema: reports/result.schema.json, prose: reports/README.md).
 *
 * JSON has no NaN and no infinities: where a measured value may be one (first_bad), it is the
 * string "NaN", "Infinity" or "-Infinity"; a number that was not measured is null.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/finding.h"
#include "reports/text.h"

static json_t *number(double x)
{
    if (isnan(x))
        return json_null();
    if (isinf(x))
        return json_string(x > 0 ? "Infinity" : "-Infinity");
    return json_real(x);
}

static json_t *measured(double x)
{
    return isnan(x) ? json_string("NaN") : number(x);
}

static json_t *strings_json(const assay_strings *list)
{
    json_t *array = json_array();
    for (int i = 0; i < list->n; i++)
        json_array_append_new(array, assay_text_json(list->items[i]));
    return array;
}

static json_t *numbers_json(const int64_t *items, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer(items[i]));
    return array;
}

static json_t *first_bad_json(const assay_finding *f)
{
    if (!f->has_first_bad)
        return json_null();
    json_t *json = json_object();
    json_object_set_new(json, "at", numbers_json(f->first_bad, f->n_first_bad));
    json_object_set_new(json, "got", measured(f->first_bad_got));
    json_object_set_new(json, "expected", measured(f->first_bad_expected));
    return json;
}

json_t *assay_finding_to_json(const assay_finding *f)
{
    json_t *json = json_object(), *error = json_object();
    json_object_set_new(error, "rel", number(f->error_rel));
    json_object_set_new(error, "cos", number(f->error_cos));
    json_object_set_new(error, "gain", number(f->error_gain));
    json_object_set_new(json, "class", assay_text_json(f->fault_class ? f->fault_class : ""));
    json_object_set_new(json, "kind", assay_text_json(f->kind ? f->kind : ""));
    json_object_set_new(json, "point", assay_text_json(f->point ? f->point : ""));
    json_object_set_new(json, "points", strings_json(&f->points));
    json_object_set_new(json, "last_good", assay_text_json(f->last_good));
    json_object_set_new(json, "op", assay_text_json(f->op));
    json_object_set_new(json, "layers", numbers_json(f->layers.items, f->layers.n));
    json_object_set_new(json, "ranks", numbers_json(f->ranks.items, f->ranks.n));
    json_object_set_new(json, "steps", numbers_json(f->steps.items, f->steps.n));
    json_object_set_new(json, "prompts", strings_json(&f->prompts));
    if (f->fitted)
        json_object_set(json, "fitted", f->fitted);
    else
        json_object_set_new(json, "fitted", json_object());
    json_object_set_new(json, "confidence", number(f->confidence));
    json_object_set_new(json, "explained", number(f->explained));
    json_object_set_new(json, "error", error);
    json_object_set_new(json, "floor", number(f->floor));
    json_object_set_new(json, "first_bad", first_bad_json(f));
    json_object_set_new(json, "sentence", assay_text_json(f->sentence ? f->sentence : ""));
    json_object_set_new(json, "evidence", strings_json(&f->evidence));
    json_object_set_new(json, "advice", assay_text_json(f->advice ? f->advice : ""));
    json_object_set_new(json, "reproduce", assay_text_json(f->reproduce ? f->reproduce : ""));
    if (f->bundle)
        json_object_set_new(json, "bundle", assay_text_json(f->bundle));
    if (f->check)
        json_object_set_new(json, "check", assay_text_json(f->check));
    return json;
}

static json_t *check_json(const assay_check_row *row)
{
    json_t *json = json_object();
    json_object_set_new(json, "name", assay_text_json(row->name ? row->name : ""));
    json_object_set_new(json, "verdict", json_string(assay_verdict_name(row->verdict)));
    json_object_set_new(json, "summary", assay_text_json(row->summary ? row->summary : ""));
    json_object_set_new(json, "seconds", number(row->seconds));
    json_object_set_new(json, "details", strings_json(&row->details));
    return json;
}

json_t *assay_result_to_json(const assay_result *result)
{
    json_t *json = json_object(), *coverage = json_object(), *checks = json_array(),
           *findings = json_array();
    json_object_set_new(json, "assay", json_string(ASSAY_VERSION));
    json_object_set_new(json, "command", assay_text_json(result->command ? result->command : ""));
    json_object_set_new(json, "command_line", assay_text_json(result->command_line));
    json_object_set_new(json, "verdict",
                        json_string(assay_verdict_name(assay_result_verdict(result))));
    json_object_set_new(json, "exit", json_integer(assay_result_exit(result)));
    json_object_set_new(json, "inconclusive", json_boolean(result->inconclusive));
    json_object_set_new(json, "seconds", number(result->seconds));
    if (result->model)
        json_object_set(json, "model", result->model);
    else
        json_object_set_new(json, "model", json_object());
    json_object_set_new(coverage, "points", json_integer(result->n_points));
    json_object_set_new(coverage, "judged", json_integer(result->n_judged));
    json_object_set_new(json, "coverage", coverage);
    for (int i = 0; i < result->n_checks; i++)
        json_array_append_new(checks, check_json(&result->checks[i]));
    json_object_set_new(json, "checks", checks);
    for (int i = 0; i < result->n_findings; i++)
        json_array_append_new(findings, assay_finding_to_json(&result->findings[i]));
    json_object_set_new(json, "findings", findings);
    json_object_set_new(json, "notes", strings_json(&result->notes));
    if (result->extra)
        json_object_update_missing(json, result->extra);
    return json;
}

/* --- reading back --- */

/* Where the reader stands, for the error line: "findings[2]" or "" at the top. */
typedef struct place {
    const char *path, *file;
} place;

static const char *type_name(const json_t *json)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return json ? names[json_typeof(json)] : "nothing";
}

static assay_status wrong(place at, const char *member, const char *expected, const json_t *found)
{
    return assay_fail(ASSAY_BAD_FILE, "'%s': member %s%s%s: expected %s, found %s", at.file,
                      at.path, *at.path && *member ? "." : "", member, expected, type_name(found));
}

/* A text; with `may_be_null` also null or absent, and *out is then NULL. */
static assay_status get_text(char **out, const json_t *object, const char *member, place at,
                             bool may_be_null)
{
    const json_t *json = json_object_get(object, member);
    if (may_be_null && (!json || json_is_null(json)))
        return ASSAY_OK;
    if (!json_is_string(json))
        return wrong(at, member, "a string", json);
    *out = strdup(json_string_value(json));
    return *out ? ASSAY_OK : assay_fail(ASSAY_NO_MEMORY, "'%s': no memory", at.file);
}

static assay_status get_number(double *out, const json_t *object, const char *member, place at)
{
    const json_t *json = json_object_get(object, member);
    const char *text = json_is_string(json) ? json_string_value(json) : "";
    if (json_is_number(json))
        *out = json_number_value(json);
    else if (json_is_null(json) || !strcmp(text, "NaN"))
        *out = NAN;
    else if (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity"))
        *out = text[0] == '-' ? -INFINITY : INFINITY;
    else
        return wrong(at, member, "a number", json);
    return ASSAY_OK;
}

static assay_status get_strings(assay_strings *out, const json_t *object, const char *member,
                                place at)
{
    const json_t *array = json_object_get(object, member), *json;
    size_t i;
    if (!json_is_array(array))
        return wrong(at, member, "an array of strings", array);
    json_array_foreach(array, i, json)
    {
        if (!json_is_string(json))
            return wrong(at, member, "an array of strings", json);
        ASSAY_TRY(assay_strings_add(out, "%s", json_string_value(json)));
    }
    return ASSAY_OK;
}

static assay_status get_integers(assay_numbers *out, const json_t *object, const char *member,
                                 place at)
{
    const json_t *array = json_object_get(object, member), *json;
    size_t i;
    if (!json_is_array(array))
        return wrong(at, member, "an array of integers", array);
    json_array_foreach(array, i, json)
    {
        if (!json_is_integer(json))
            return wrong(at, member, "an array of integers", json);
        ASSAY_TRY(assay_numbers_add(out, json_integer_value(json)));
    }
    return ASSAY_OK;
}

static assay_status get_count(int64_t *out, const json_t *object, const char *member, place at)
{
    const json_t *json = json_object_get(object, member);
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return wrong(at, member, "a count", json);
    *out = json_integer_value(json);
    return ASSAY_OK;
}

static assay_status get_verdict(assay_verdict *out, const json_t *object, place at)
{
    const json_t *json = json_object_get(object, "verdict");
    for (int v = ASSAY_VERDICT_PASS; v <= ASSAY_VERDICT_SKIP; v++)
        if (json_is_string(json) &&
            !strcmp(json_string_value(json), assay_verdict_name((assay_verdict)v))) {
            *out = (assay_verdict)v;
            return ASSAY_OK;
        }
    return wrong(at, "verdict", "PASS, FAIL, INCONCLUSIVE or SKIP", json);
}

static assay_status get_first_bad(assay_finding *f, const json_t *object, place at)
{
    const json_t *json = json_object_get(object, "first_bad"), *where, *item;
    size_t i;
    if (!json || json_is_null(json))
        return ASSAY_OK;
    if (!json_is_object(json))
        return wrong(at, "first_bad", "an object", json);
    where = json_object_get(json, "at");
    if (!json_is_array(where) || json_array_size(where) > 4)
        return wrong(at, "first_bad.at", "an array of at most 4 integers", where);
    json_array_foreach(where, i, item)
    {
        if (!json_is_integer(item))
            return wrong(at, "first_bad.at", "an array of at most 4 integers", item);
        f->first_bad[f->n_first_bad++] = json_integer_value(item);
    }
    ASSAY_TRY(get_number(&f->first_bad_got, json, "got", at));
    ASSAY_TRY(get_number(&f->first_bad_expected, json, "expected", at));
    f->has_first_bad = true;
    return ASSAY_OK;
}

static assay_status finding_from(assay_finding *f, const json_t *json, place at)
{
    if (!json_is_object(json))
        return wrong(at, "", "an object", json);
    const json_t *error = json_object_get(json, "error"), *fitted = json_object_get(json, "fitted");
    ASSAY_TRY(get_text(&f->fault_class, json, "class", at, false));
    ASSAY_TRY(get_text(&f->kind, json, "kind", at, false));
    ASSAY_TRY(get_text(&f->point, json, "point", at, false));
    ASSAY_TRY(get_text(&f->last_good, json, "last_good", at, true));
    ASSAY_TRY(get_text(&f->op, json, "op", at, true));
    ASSAY_TRY(get_strings(&f->points, json, "points", at));
    ASSAY_TRY(get_integers(&f->layers, json, "layers", at));
    ASSAY_TRY(get_integers(&f->ranks, json, "ranks", at));
    ASSAY_TRY(get_integers(&f->steps, json, "steps", at));
    ASSAY_TRY(get_strings(&f->prompts, json, "prompts", at));
    if (!json_is_object(fitted))
        return wrong(at, "fitted", "an object", fitted);
    json_object_update(f->fitted, (json_t *)fitted);
    ASSAY_TRY(get_number(&f->confidence, json, "confidence", at));
    ASSAY_TRY(get_number(&f->explained, json, "explained", at));
    if (!json_is_object(error))
        return wrong(at, "error", "an object", error);
    ASSAY_TRY(get_number(&f->error_rel, error, "rel", at));
    ASSAY_TRY(get_number(&f->error_cos, error, "cos", at));
    ASSAY_TRY(get_number(&f->error_gain, error, "gain", at));
    ASSAY_TRY(get_number(&f->floor, json, "floor", at));
    ASSAY_TRY(get_first_bad(f, json, at));
    ASSAY_TRY(get_text(&f->sentence, json, "sentence", at, false));
    ASSAY_TRY(get_strings(&f->evidence, json, "evidence", at));
    ASSAY_TRY(get_text(&f->advice, json, "advice", at, false));
    if (json_object_get(json, "bundle"))
        ASSAY_TRY(get_text(&f->bundle, json, "bundle", at, false));
    if (json_object_get(json, "check"))
        ASSAY_TRY(get_text(&f->check, json, "check", at, false));
    return get_text(&f->reproduce, json, "reproduce", at, false);
}

static assay_status findings_from(assay_result *out, const json_t *top, const char *file)
{
    const json_t *array = json_object_get(top, "findings"), *json;
    size_t i;
    if (!json_is_array(array))
        return wrong((place){"", file}, "findings", "an array", array);
    json_array_foreach(array, i, json)
    {
        char path[64];
        assay_finding f;
        snprintf(path, sizeof path, "findings[%zu]", i);
        assay_finding_init(&f);
        assay_status s = finding_from(&f, json, (place){path, file});
        if (s == ASSAY_OK)
            s = assay_result_add_finding(out, &f);
        assay_finding_clear(&f);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

static assay_status checks_from(assay_result *out, const json_t *top, const char *file)
{
    const json_t *array = json_object_get(top, "checks"), *json;
    size_t i;
    if (!json_is_array(array))
        return wrong((place){"", file}, "checks", "an array", array);
    json_array_foreach(array, i, json)
    {
        char path[64];
        assay_check_row *row;
        snprintf(path, sizeof path, "checks[%zu]", i);
        place at = {path, file};
        if (!json_is_object(json))
            return wrong(at, "", "an object", json);
        const json_t *name = json_object_get(json, "name");
        if (!json_is_string(name))
            return wrong(at, "name", "a string", name);
        ASSAY_TRY(assay_result_add_check(&row, out, json_string_value(name)));
        ASSAY_TRY(get_verdict(&row->verdict, json, at));
        ASSAY_TRY(get_text(&row->summary, json, "summary", at, false));
        ASSAY_TRY(get_number(&row->seconds, json, "seconds", at));
        ASSAY_TRY(get_strings(&row->details, json, "details", at));
    }
    return ASSAY_OK;
}

/* Members that are no part of every result belong to the command. */
static void extra_from(assay_result *out, json_t *top)
{
    static const char *const known[] = {"assay",  "command",  "command_line", "verdict",
                                        "exit",   "seconds",  "inconclusive", "model",
                                        "checks", "coverage", "findings",     "notes"};
    const char *key;
    json_t *value;
    json_object_foreach(top, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= !strcmp(key, known[i]);
        if (!is_known)
            json_object_set(out->extra, key, value);
    }
}

static assay_status result_from(assay_result *out, json_t *top, const char *file)
{
    place at = {"", file};
    const json_t *coverage = json_object_get(top, "coverage"),
                 *model = json_object_get(top, "model"),
                 *inconclusive = json_object_get(top, "inconclusive");
    assay_verdict verdict = ASSAY_VERDICT_PASS;
    if (!json_is_string(json_object_get(top, "assay")))
        return wrong(at, "assay", "a version (is this a result of assay?)",
                     json_object_get(top, "assay"));
    ASSAY_TRY(get_text(&out->command_line, top, "command_line", at, true));
    ASSAY_TRY(get_verdict(&verdict, top, at));
    ASSAY_TRY(get_number(&out->seconds, top, "seconds", at));
    if (!json_is_boolean(inconclusive))
        return wrong(at, "inconclusive", "true or false", inconclusive);
    out->inconclusive = json_is_true(inconclusive);
    if (!json_is_object(model))
        return wrong(at, "model", "an object", model);
    json_object_update(out->model, (json_t *)model);
    if (!json_is_object(coverage))
        return wrong(at, "coverage", "an object", coverage);
    at.path = "coverage";
    ASSAY_TRY(get_count(&out->n_points, coverage, "points", at));
    ASSAY_TRY(get_count(&out->n_judged, coverage, "judged", at));
    ASSAY_TRY(checks_from(out, top, file));
    ASSAY_TRY(findings_from(out, top, file));
    at.path = "";
    ASSAY_TRY(get_strings(&out->notes, top, "notes", at));
    extra_from(out, top);
    if (assay_result_verdict(out) != verdict)
        return assay_fail(
            ASSAY_BAD_FILE, "'%s': member verdict: says %s, its findings and checks say %s", file,
            assay_verdict_name(verdict), assay_verdict_name(assay_result_verdict(out)));
    return ASSAY_OK;
}

assay_status assay_result_from_json(assay_result *out, const char *path)
{
    json_error_t error;
    assay_result result;
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s': %s", path, strerror(errno));
    int first = ungetc(fgetc(file), file);
    json_t *top = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!top && error.line <= 1 && (first == 'G' || first == 0x89))
        return assay_fail(ASSAY_BAD_FILE,
                          "'%s' is no saved result but %s; expected what --json prints, or "
                          "result.json of a --report folder",
                          path, first == 'G' ? "a GGUF model" : "an HDF5 file");
    if (!top)
        return assay_fail(ASSAY_BAD_FILE, "'%s': line %d, column %d: %s", path, error.line,
                          error.column, error.text);
    const json_t *command = json_object_get(top, "command");
    assay_status s = json_is_string(command)
                         ? assay_result_init(&result, json_string_value(command))
                         : wrong((place){"", path}, "command", "a string", command);
    if (s == ASSAY_OK) {
        s = result_from(&result, top, path);
        if (s == ASSAY_OK)
            *out = result;
        else
            assay_result_clear(&result);
    }
    json_decref(top);
    return s;
}
