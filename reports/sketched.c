#include "reports/sketched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static assay_status fill(assay_finding *f, const assay_sketched *s, const assay_run *candidate,
                         const char *reproduce)
{
    char name[ASSAY_POINT_NAME_BYTES], text[256];
    const char *op = assay_point_at(s->point)->made_by;
    assay_point_format(name, s->point, s->layer);
    snprintf(text, sizeof text,
             "the %s makes the first value whose sketch differs from the "
             "reference's: %.3g, allowed are %.3g",
             op, s->rel, s->bound);
    f->fault_class = strdup("UNKNOWN");
    f->kind = strdup("differs from the reference");
    f->point = strdup(name);
    f->op = strdup(op);
    f->sentence = strdup(text);
    f->advice = strdup("sketches show where, values show why: capture the values of the layers "
                       "named below, and diagnose them");
    f->reproduce = strdup(reproduce ? reproduce : "");
    if (!f->fault_class || !f->kind || !f->point || !f->op || !f->sentence || !f->advice ||
        !f->reproduce)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a finding");
    f->error_rel = s->rel;
    f->error_cos = f->error_gain = f->confidence = f->explained = NAN;
    f->floor = s->bound;
    ASSAY_TRY(assay_strings_add(&f->points, "%s", name));
    if (s->layer >= 0)
        ASSAY_TRY(assay_numbers_add(&f->layers, s->layer));
    ASSAY_TRY(assay_numbers_add(&f->steps, s->step));
    ASSAY_TRY(
        assay_strings_add(&f->prompts, "%s", assay_run_prompt_at(candidate, s->prompt)->name));
    return assay_strings_add(&f->evidence, "relative L2 of sketches, within about 6 %%");
}

assay_status assay_result_add_sketched(assay_result *result, const assay_sketched *sketched,
                                       const assay_run *candidate, const char *reproduce)
{
    char name[ASSAY_POINT_NAME_BYTES];
    result->n_points += sketched->n_sketches;
    result->n_judged += sketched->n_judged;
    if (!assay_run_about(candidate)->is_complete) {
        result->inconclusive = true;
        ASSAY_TRY(assay_strings_add(&result->notes, "not a pass: the capture was cut off"));
    }
    if (sketched->has_flip) {
        result->inconclusive = true;
        assay_point_format(name, sketched->flip_point, sketched->flip_layer);
        ASSAY_TRY(assay_strings_add(
            &result->notes, "prompt '%s': %s differs; what lies behind it was not judged",
            assay_run_prompt_at(candidate, sketched->flip_prompt)->name, name));
    }
    if (!sketched->has_bad)
        return ASSAY_OK;
    assay_finding f;
    assay_finding_init(&f);
    assay_status s = fill(&f, sketched, candidate, reproduce);
    if (s == ASSAY_OK)
        s = assay_result_add_finding(result, &f);
    assay_finding_clear(&f);
    return s;
}
