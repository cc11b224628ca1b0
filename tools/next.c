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

static void add_model(char *line, size_t room, const char *before, const char *model)
{
    size_t n = strlen(line);
    snprintf(line + n, room - n, "%s", before);
    n = strlen(line);
    if (model)
        assay_option_word(line + n, room - n, model);
    else
        snprintf(line + n, room - n, "MODEL.gguf");
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
    if (reference || model) { /* beside the reference where there is one */
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
        add_model(line, sizeof line, " --model ", model);
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

assay_status assay_next_full(assay_result *result, const char *model, const char *sketches,
                             const char *prompt, assay_point point, int layer)
{
    char where[64], source[4096], line[8192] = "assay run ";
    json_t *list = json_array();
    assay_status s = ASSAY_OK;
    if (layer < 0)
        snprintf(where, sizeof where, "point=%s", assay_point_at(point)->name);
    else
        snprintf(where, sizeof where, "layer=%d-%d", layer > 0 ? layer - 1 : 0, layer);
    add_model(line, sizeof line, "", model);
    snprintf(source, sizeof source, "%.3000s:%.1000s", sketches, prompt);
    strcat(line, " --tokens ");
    assay_option_word(line + strlen(line), sizeof line - strlen(line), source);
    snprintf(line + strlen(line), sizeof line - strlen(line),
             " --capture FULL.h5 --points \"%s\" --tier full", where);
    ASSAY_GO(add(list, line));
    snprintf(line, sizeof line, "assay diagnose FULL.h5");
    add_model(line, sizeof line, " --model ", model);
    if (layer >= 0)
        snprintf(line + strlen(line), sizeof line - strlen(line), " --layers %d-%d", layer, layer);
    ASSAY_GO(add(list, line));
    if (json_object_set(result->extra, "next", list))
        s = assay_fail(ASSAY_NO_MEMORY, "no memory for the next commands");
out:
    json_decref(list);
    return s;
}
