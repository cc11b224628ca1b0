/* Inside of a comparison: what compare.c, compare_match.c and compare_point.c share. */
#ifndef ASSAY_REFERENCES_COMPARE_PRIVATE_H
#define ASSAY_REFERENCES_COMPARE_PRIVATE_H

#include "references/choices.h"
#include "references/compare.h"
#include "references/contrast.h"
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

/* A point of a layer over the pairs of a group, and what came of it. */
typedef struct assay_compare_place {
    assay_point point;
    int layer;
    double bytes;    /* what there is to do; infinite: some of it must be read by way of HDF5 */
    double unpacked; /* bytes of it that are unpacked into memory */
    bool has_item;
    assay_compared item;
    assay_gain *gain[SIDES]; /* of candidate and twin; freed by whoever made the place */
} assay_compare_place;

/* Compares one point over the pairs of a group; no item where neither side has it. Places may be
 * compared by several threads at once, ASSAY_POINT_LOGITS by one of them. */
assay_status assay_compare_point(assay_compare_place *place, assay_contrast_room *room,
                                 assay_comparison *c, const assay_match *match,
                                 const assay_pair *pairs, int n_pairs);

/* Whether slots are put in order by the experts that were chosen. */
bool assay_compare_by_expert(assay_point point);

/* Compares n places and adds their items and gains in the order of the list. */
assay_status assay_compare_places(assay_comparison *c, assay_compare_place *places, int n,
                                  const assay_match *match, const assay_pair *pairs, int n_pairs);

#endif
