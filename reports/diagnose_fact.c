/*
 * Findings that are facts of captured ids, not of arithmetic: how many there are, and which.
 */
#include "reports/diagnose_private.h"

assay_status assay_diagnosis_fact(assay_finding *f, int fault, const char *kind, const char *op,
                                  const char *sentence, const char *advice, const char *reproduce)
{
    f->confidence = f->explained = 1;
    ASSAY_TRY(assay_finding_set(&f->fault_class, "%s", assay_fault_at(fault)->name));
    ASSAY_TRY(assay_finding_set(&f->kind, "%s", kind));
    ASSAY_TRY(assay_finding_set(&f->op, "%s", op));
    ASSAY_TRY(assay_finding_set(&f->sentence, "%s", sentence));
    ASSAY_TRY(assay_finding_set(&f->advice, "%s", advice));
    return reproduce ? assay_finding_set(&f->reproduce, "%s", reproduce) : ASSAY_OK;
}

static assay_status add_width(assay_finding *f, const assay_run *run, int prompt, int step,
                              const assay_seen *seen)
{
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, seen->point, seen->layer);
    if (!f->points.n)
        ASSAY_TRY(assay_finding_set(&f->point, "%s", name));
    return assay_finding_add_place(f, name, seen->layer, step,
                                   assay_run_prompt_at(run, prompt)->name);
}

assay_status assay_diagnosis_list_widths(assay_finding *f, int *width, const assay_run *run,
                                         assay_point point, int right, bool or_narrower)
{
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int step = 0; step < assay_run_prompt_at(run, p)->n_steps; step++)
            for (int i = 0; i < assay_run_n_seen(run, p, step); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, step, i);
                if (seen->point != point || seen->n_dims != 2 || seen->dims[1] == right ||
                    (seen->dims[1] < right && !or_narrower))
                    continue;
                *width = (int)seen->dims[1];
                ASSAY_TRY(add_width(f, run, p, step, seen));
            }
    return ASSAY_OK;
}
