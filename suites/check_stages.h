/*
 * Runs that are too large to be captured whole: stage one keeps a sketch of every point, stage two
 * every value of the layers that matter.
 *
 * Stage one, with a reference: the engine runs once, and the sketches are held against the
 * reference's values in the order in which they were made. If all are within their bounds, that is
 * all. Else what lies behind the first difference has inherited it, so the engine runs again and is
 * led: at the input of every layer the reference's stream is put in place of its own. Each layer
 * then shows what it does itself, and no fault hides behind one of another layer. Suspects are the
 * layers in which a value is beyond its bound or a choice differs, and those that nothing could
 * acquit (the reference lacks their input).
 *
 * Stage two: the engine runs again, unled, once for as many suspects as fit the budget, and the
 * forced pass judges every value of theirs. Without a reference nothing speaks for any layer but
 * the oracle: then all layers are captured and judged like this, a few at a time.
 *
 * What sketches do not see: deviations below 12 floors (an epsilon in float32), a few wrong rows
 * whose error is small beside all rows, points that the reference lacks.
 */
#ifndef ASSAY_SUITES_CHECK_STAGES_H
#define ASSAY_SUITES_CHECK_STAGES_H

#include "references/run_need.h"
#include "references/sketched.h"
#include "suites/check.h"

typedef struct assay_check_stages {
    int n_layers;
    assay_run_need *needs; /* [n_layers + 1], of all prompts (references/run_need.h) */
    assay_run_need need;   /* their sum */
    int64_t n_tokens;
    bool is_large; /* every value of the run would take more than the budget */
    bool has_looked;
    assay_status looked; /* what came of it: ASSAY_CANNOT_JUDGE, why in look_error */
    char look_error[512];
    assay_run *logits; /* of the run, whole; NULL: beyond the budget */
    int64_t n_sketches;
    assay_sketched plain;             /* the unled run, up to its first difference */
    bool was_led;                     /* something differed: */
    bool has_bad;                     /* a value of the led run beyond its bound; the first: */
    assay_sketched_value bad;         /* */
    bool suspects[ASSAY_MAX_LAYERS];  /* layers */
    bool head_suspected;              /* final norm and logits */
    int n_suspects;                   /* of layers */
    int64_t judged[ASSAY_MAX_LAYERS]; /* sketches judged in each layer of the led run */
} assay_check_stages;

/* What the run takes; computed once. Borrowed from the context. */
assay_status assay_check_plan(assay_check_stages **out, assay_check_context *context);
/* Stage one, once. Fails: ASSAY_CANNOT_JUDGE when the reference and the sketches have nothing in
 * common. */
assay_status assay_check_look(assay_check_stages **out, assay_check_context *context);
/* Final norm and logits of the run alone; close it with assay_run_close. */
assay_status assay_check_capture_head(assay_run **out, assay_check_context *context);
/*
 * Stage two over these layers [n_layers] (and the head): captured and diagnosed in parts that fit
 * the budget; findings of one cause become one. *n_judged: values; *n_parts: runs of the engine.
 */
assay_status assay_check_diagnose_layers(int64_t *n_judged, int *n_parts,
                                         assay_check_context *context, const bool *layers,
                                         bool head, const assay_knobs *knobs);
void assay_check_stages_free(assay_check_stages *stages);

/* "1, 3-5 and the head" */
char *assay_check_suspects_text(char *out, size_t room, const assay_check_stages *stages);

#endif
