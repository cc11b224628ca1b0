/* Inside of a comparison: what compare.c, compare_match.c and compare_point.c share. */
#ifndef ASSAY_REFERENCES_COMPARE_PRIVATE_H
#define ASSAY_REFERENCES_COMPARE_PRIVATE_H

#include "references/choices.h"
#include "references/compare.h"
#include "references/gain.h"

enum { CANDIDATE, REFERENCE, TWIN, SIDES };

/* One prompt that candidate and reference both have. */
typedef struct assay_match {
    int prompt[SIDES]; /* -1: that side lacks it */
    int64_t n_common;  /* positions 0 ... with equal tokens in candidate and reference */
    int64_t n_twin;    /* the same for twin and reference; 0: no twin */
    assay_choices *choices[SIDES]; /* of candidate and twin against the reference */
} assay_match;

/* Steps of the three sides that share positions [first, end) of equal tokens. */
typedef struct assay_pair {
    int step[SIDES]; /* -1: no twin here */
    int64_t first, end;
} assay_pair;

struct assay_comparison {
    const assay_run *run[SIDES];
    int n_layers;
    bool use_twin;
    assay_compared *items;
    int n, room;
    char **notes;
    int n_notes;
    char *open_reason;
    int64_t n_points, n_judged;
    assay_agreement agreement;
    assay_gain *gain[SIDES]; /* of candidate and twin */
};

assay_status assay_comparison_add_note(assay_comparison *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The first reason is kept; later ones become notes. */
assay_status assay_comparison_leave_open(assay_comparison *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prompts that candidate and reference have in common, with how far their tokens agree. Notes what
 * has no partner. *out is the caller's to free, after assay_match_clear of each. */
assay_status assay_match_prompts(assay_match **out, int *n, assay_comparison *c);
void assay_match_clear(assay_match *match);
/* Pairs of steps of one phase of the candidate. *out is the caller's to free. */
assay_status assay_match_steps(assay_pair **out, int *n, const assay_comparison *c,
                               const assay_match *match, bool is_prefill);

/* Compares one point over the pairs of a group and adds an item, unless neither side has it. */
assay_status assay_compare_point(assay_comparison *c, const assay_match *match,
                                 const assay_pair *pairs, int n_pairs, assay_point point,
                                 int layer);

#endif
