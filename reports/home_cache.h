/*
 * Attention of a home's step over another cache than its own: slots that hold other keys, another
 * layer's, another request's or none.
 */
#ifndef ASSAY_REPORTS_HOME_CACHE_H
#define ASSAY_REPORTS_HOME_CACHE_H

#include "reports/home.h"

typedef struct assay_slot { /* what a slot holds */
    int prompt, layer;
    int64_t position; /* -1: zeros */
    int head_shift;   /* head h of the slot is head h + head_shift of the row; 0 */
    double scale;     /* of what is read; 1 */
    bool due;         /* what should have been there, where the run shows something else */
} assay_slot;

typedef enum {
    ASSAY_CACHED_ALL,
    ASSAY_CACHED_KEYS,
    ASSAY_CACHED_VALUES,
    ASSAY_CACHED_LATENT /* latents and rotary keys are cached, keys and values made from these when
                           they are read; the scale is the latents' */
} assay_cached;

/* Keys of the step: its own and all earlier ones. */
int64_t assay_home_n_keys(const assay_home *home);

/* Every slot with its own key; slots: [n_keys]. */
void assay_home_own_slots(assay_slot *slots, const assay_home *home);

/*
 * The home's value with these slots (of keys, of values, of both; the latent cache has one tensor
 * for both). out: [rows, cols]. Fails: ASSAY_MISSING where a slot's content is not known.
 */
assay_status assay_home_attend(double *out, assay_home *home, const assay_slot *slots,
                               assay_cached what);

/*
 * The home's value where the steps before cached what was due, not what they showed: their rotary
 * keys, latents and values that are homes are put as expected. *differs false: none of them is a
 * home. Fails like assay_home_attend.
 */
assay_status assay_home_attend_due(double *out, bool *differs, assay_home *home);

/*
 * Which key each slot holds, told from attention's probabilities in the last row of the step, which
 * sees every slot: the scores of all heads are its mark. Needs the probabilities (the home's own or
 * captured beside it). *moved: slots that hold another key than their own; 0: none, or not told.
 */
assay_status assay_home_assign_slots(assay_slot *slots, int64_t *moved, assay_home *home);

#endif
