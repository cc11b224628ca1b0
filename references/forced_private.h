/*
 * Inside of the forced pass: what forced.c and forced_sketched.c share.
 */
#ifndef ASSAY_REFERENCES_FORCED_PRIVATE_H
#define ASSAY_REFERENCES_FORCED_PRIVATE_H

#include "references/forced_part.h"
#include "references/forced_pool.h"
#include "references/forced_sketched.h"

typedef struct assay_text_list {
    char **items;
    int n, room;
} assay_text_list;

struct assay_forced {
    assay_run *run;
    assay_oracle *oracle;
    assay_knobs knobs, rounding;
    assay_dtype format; /* of its arithmetic */
    bool is_mixed;      /* some values are float32, most products are not */
    int first_layer, last_layer;
    const bool *layers;
    const assay_forced_place *only; /* while values are judged */
    int n_only;
    assay_pass **passes;
    /* A walk over sketches has a second pass of each prompt, in which every value accepted so far
     * is what another rounding would have made of it (forced_sketched.h); NULL: no walk. */
    assay_pass **shadows;
    bool *latent;
    assay_judged *judged;
    int n_judged, room;
    assay_forced_pool *pool;
    assay_text_list unjudged, notes;
    double *got, *expected, *rounded; /* of value `held` */
    int held;
    int64_t held_size;
};

/* The format that a run computes in; *mixed: it says float32, and a third of its values are of 16
 * bits. */
assay_dtype assay_forced_format(bool *mixed, const assay_run *run);

void assay_forced_say(assay_text_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Everything but the judgement: knobs, passes with their steps, captured values put. */
assay_status assay_forced_start(assay_forced **out, assay_run *run, assay_oracle *oracle,
                                const assay_forced_options *options);
/* Runs that keep more keys than the file says are judged with their own number. */
assay_status assay_forced_follow_sizes(assay_forced *f);
/* Room for one more judged value, zeroed, with its place; not counted yet. */
assay_status assay_forced_next(assay_judged **out, assay_forced *f, int prompt, int step,
                               const assay_seen *seen);
/* got, expected and rounded of a judged value into f. */
assay_status assay_forced_hold(assay_forced *f, int index);
/* `rounded` is as far from expected as it is, and by this much of each row's size besides. */
void assay_forced_widen(assay_forced *f, const assay_judged *j, int64_t n, double by);
void assay_forced_shape_of(assay_judged *j, assay_forced *f, int64_t n);
void assay_forced_describe_interval(assay_judged *j, assay_forced *f);
/* What the values of a sketch may have been, into f->got. */
assay_status assay_forced_guess(assay_forced *f, const assay_judged *j, int64_t n);
/* Values of a home that need no arithmetic, into f->got: zeros, nothing finite, what is missing,
 * the bits of another value. *found false: none fits. */
assay_status assay_forced_fact(bool *found, assay_forced *f, const assay_judged *j, int64_t n);
void assay_forced_sketch_of(assay_projection *out, const assay_seen *seen);
/* The rule that makes a home, on sketches. */
assay_status assay_forced_judge_sketch(assay_judged *judged, const assay_forced *f,
                                       const double *expected, const double *rounded);

#endif
