/*
 * What to type next: commands that lead on from a finding.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/options.h"

static assay_status add(json_t *list, const char *line)
{
    if (json_array_append_new(list, json_string(line)))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the next commands");
    return ASSAY_OK;
}

/* The row of the first bad element, where the first axis has rows of tokens. */
static void add_row(char *line, size_t room, const assay_finding *f)
{
    size_t n = strlen(line);
    if (f->has_first_bad && f->n_first_bad > 0)
        snprintf(line + n, room - n, " --rows %lld-%lld", (long long)f->first_bad[0],
                 (long long)f->first_bad[0]);
}

static assay_status add_show(json_t *list, const assay_finding *f, const char *const *captures,
                             int n, const char *reference, const char *model)
{
    char line[8192] = "assay show ";
    if (n != 1 || !f->point)
        return ASSAY_OK;
    assay_option_word(line + strlen(line), sizeof line - strlen(line), captures[0]);
    snprintf(line + strlen(line), sizeof line - strlen(line), " %s", f->point);
    add_row(line, sizeof line, f);
    if (reference || model) {
        strcat(line, reference ? " --reference " : " --model ");
        assay_option_word(line + strlen(line), sizeof line - strlen(line),
                          reference ? reference : model);
    }
    return add(list, line);
}

assay_status assay_next(assay_result *result, const assay_options *options,
                        const char *const *captures, int n, const char *reference,
                        const char *model)
{
    char line[8192];
    if (!result->n_findings)
        return ASSAY_OK;
    const assay_finding *f = &result->findings[0];
    bool known = f->fault_class && assay_fault_find(f->fault_class), bundled = false, can = false;
    json_t *list = json_array();
    assay_status s = ASSAY_OK;
    for (int i = 0; i < result->n_findings; i++) { /* of an op, not of a comparison or a file */
        bundled = bundled || result->findings[i].bundle;
        can = can || isfinite(result->findings[i].explained);
    }
    ASSAY_GO(add_show(list, f, captures, n, reference, model));
    if (known) {
        snprintf(line, sizeof line, "assay explain %s", f->fault_class);
        ASSAY_GO(add(list, line));
    }
    if (reference && n == 1) {
        strcpy(line, "assay diagnose ");
        assay_option_word(line + strlen(line), sizeof line - strlen(line), captures[0]);
        strcat(line, " --model MODEL.gguf");
        ASSAY_GO(add(list, line));
    } else if (model && can && !bundled) {
        snprintf(line, sizeof line, "%s --repro DIR", options->again);
        ASSAY_GO(add(list, line));
    }
    if (json_object_set(result->extra, "next", list))
        s = assay_fail(ASSAY_NO_MEMORY, "no memory for the next commands");
out:
    json_decref(list);
    return s;
}

assay_status assay_next_full(assay_result *result, assay_point point, int layer)
{
    char where[64], line[512];
    json_t *list = json_array();
    assay_status s = ASSAY_OK;
    if (layer < 0)
        snprintf(where, sizeof where, "point=%s", assay_point_at(point)->name);
    else
        snprintf(where, sizeof where, "layer=%d-%d", layer > 0 ? layer - 1 : 0, layer);
    snprintf(line, sizeof line,
             "assay run MODEL.gguf --tokens IDS --capture FULL.h5 --points \"%s\" --tier full",
             where);
    ASSAY_GO(add(list, line));
    ASSAY_GO(add(list, "assay diagnose FULL.h5 --model MODEL.gguf"));
    if (json_object_set(result->extra, "next", list))
        s = assay_fail(ASSAY_NO_MEMORY, "no memory for the next commands");
out:
    json_decref(list);
    return s;
}
