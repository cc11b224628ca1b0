/*
 * Captures of the engine under test over all prompts of a check, by the reference's own steps where
 * there are some, so that every captured step has its counterpart. They lie in the check's scratch
 * folder under their names.
 */
#ifndef ASSAY_SUITES_CHECK_CAPTURE_H
#define ASSAY_SUITES_CHECK_CAPTURE_H

#include "suites/check.h"

#define ASSAY_CHECK_DECODE_STEPS                                                                   \
    3 /* of a seeded prompt; on a device: eager, captured, replayed                                \
       */

/* What one capture keeps. */
typedef struct assay_check_keep {
    const char *name, *tier;
    /* [n_layer]: every point of these, and what their judgement needs besides: the layer's input, a
     * selection that it shares. NULL: every point of the run. */
    const bool *layers;
    bool head; /* beside layers: the last layer's output, final norm and logits */
} assay_check_keep;

/*
 * Runs the engine once and writes one capture for each of the n. is_led: the reference's stream is
 * put in place of the engine's at the input of every layer, once what the engine made there has
 * been kept, so that each layer shows what it does itself. Needs a reference then.
 */
assay_status assay_check_capture_run(assay_check_context *context, const assay_check_keep *keeps,
                                     int n, bool is_led);
/* Opens a capture of that name; close it with assay_run_close. */
assay_status assay_check_capture_open(assay_run **out, const assay_check_context *context,
                                      const char *name);
void assay_check_capture_unlink(const assay_check_context *context, const char *name);

/* Whether the reference has the stream at the input of a layer (n_layer: of the head) in a step. */
bool assay_check_has_input(const assay_check_context *context, int reference_prompt, int step,
                           int layer);

#endif
