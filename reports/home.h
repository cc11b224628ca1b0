/*
 * One home of the forced pass as the fault classes see it, and the explanations they offer.
 *
 * A class looks at got and expected, computes what its fault would have made of the inputs
 * (`explained`, by a relation of references/relation.h or by the oracle with one knob turned), and
 * offers it. The offer is judged by the rule that made the home: what is left must be no home.
 * Nothing here knows a class.
 *
 * Among offers that leave no home, those whose rest is within 5 % of the smallest are equal; the
 * one with the least complexity wins, then the one whose class stands first in fault.def.
 */
#ifndef ASSAY_REPORTS_HOME_H
#define ASSAY_REPORTS_HOME_H

#include "references/forced.h"
#include "references/forced_sketched.h"
#include "references/relation.h"
#include "reports/fault.h"

typedef struct assay_offer {
    int fault;       /* index in fault.def */
    char kind[80];   /* "parts exchanged" */
    char family[80]; /* findings of one class, kind and family are one; default: the point's name */
    double explained, residual, complexity; /* residual: relative, of rows equally */
    bool complete;                          /* what is left is no home */
    bool convention;                        /* a note, not a finding */
    bool shape_only; /* says where, not what: wins only when nothing else explains the error */
    json_t *fitted;  /* owned */
    double *values;  /* of a complete offer to a sketch, [rows, cols]; owned; else NULL */
    char evidence[320];
} assay_offer;

typedef struct assay_home {
    assay_forced *forced;
    int index; /* of the judged value */
    const assay_judged *judged;
    const assay_oracle_shape *shape;
    const assay_knobs *knobs;
    int64_t n;              /* rows * cols */
    double *got, *expected; /* [rows, cols] */
    double *scratch;        /* [rows, cols]: for maps */
    assay_relation_pair pair;
    /* got is known by its sketch alone: offers are judged by it, and got is what
     * assay_projection_approach makes of expected; pair.sketch says so */
    assay_projection sketch;
    double sketch_error, sketch_size; /* squares: of the error, of got */
    assay_point interval[ASSAY_FORCED_INTERVAL];
    int interval_layers[ASSAY_FORCED_INTERVAL], interval_steps[ASSAY_FORCED_INTERVAL];
    int n_interval;
    int fault; /* class that is being asked */
    assay_offer *offers;
    int n_offers, room;
    assay_relation rel;    /* last relation tried */
    double bound;          /* smallest rest of a complete offer so far */
    bool *focus;           /* cells (rows, or heads of rows) that fits look at; NULL: all */
    const double *variant; /* while one is offered: its values and knobs; NULL: none */
    const assay_knobs *variant_knobs;
} assay_home;

assay_status assay_home_new(assay_home **out, assay_forced *forced, int index);
void assay_home_free(assay_home *home);

/* True when the value's own op or an uncaptured op of its layer and step behind it is `point`. */
bool assay_home_covers(const assay_home *home, assay_point point);
bool assay_home_is(const assay_home *home, assay_point point);
/* Whether attention over the keys, a product with a weight matrix, or an op with any weight is the
 * value's own op or lies behind it. */
bool assay_home_attends(const assay_home *home);
bool assay_home_multiplies(const assay_home *home);
bool assay_home_weighs(const assay_home *home);

/* Elements that hold a NaN pattern which memory was filled with before use: of the very buffer that
 * the op writes, or of another, that came in by arithmetic; *owner: number of that buffer. A run
 * that does not say which buffer the op wrote has no others. */
void assay_home_poison(int64_t *own, int64_t *foreign, uint32_t *owner, const assay_home *home);

typedef struct assay_offer_text {
    const char *kind;
    const char *family; /* NULL: the point */
    double complexity;
    json_t *fitted; /* stolen; NULL: none */
    const char *evidence;
    bool convention, shape_only;
} assay_offer_text;

/* Offers `explained` [rows, cols]. */
assay_status assay_home_offer(assay_home *home, const double *explained,
                              const assay_offer_text *text);
/* Whether what is wrong are zeros: nothing was written there, whatever else would give them. */
bool assay_home_is_zeroed(const assay_home *home);

/* Factors of n <= 256 parts [rows, cols] that bring base nearest to got, over the whole value; of a
 * sketch too (assay_projection_fit). */
assay_status assay_home_fit_parts(double *factors, const assay_home *home, const double *base,
                                  const double *const *parts, int n);

/* Offers what the last relation (home->rel, result in home->scratch) makes. */
assay_status assay_home_offer_relation(assay_home *home, const assay_offer_text *text);
/*
 * Offers what the oracle computes with these knobs; where it fits some rows or heads and the others
 * are as expected, that too (kind + " in some rows" or heads).
 */
assay_status assay_home_offer_variant(assay_home *home, const assay_knobs *knobs,
                                      const assay_offer_text *text);

/* Offers `explained`, which is `variant` (what the oracle computes with these knobs) wherever the
 * two are equal: judged under the rounding of the variant there. */
assay_status assay_home_offer_near(assay_home *home, const double *explained, const double *variant,
                                   const assay_knobs *knobs, const assay_offer_text *text);

/* Only the second half of that, for values from elsewhere; room: [rows, cols]; text->fitted stays
 * yours. */
assay_status assay_home_offer_partly(assay_home *home, const double *variant, double *room,
                                     const assay_offer_text *text);

/* The relative rest |got - variant| / |got| of a variant; for fits. Ids: share that differs. */
assay_status assay_home_rest(double *rest, assay_home *home, const assay_knobs *knobs);

/*
 * Fits one positive number: *at(knobs) is set to values between low and high, first on a
 * logarithmic grid of n_grid, then refined by golden section to 1e-4 (relative). *best, *rest: the
 * fit; knobs keep the best value.
 */
assay_status assay_home_fit(double *best, double *rest, assay_home *home, assay_knobs *knobs,
                            double *at, double low, double high, int n_grid);

/* What the home's op gives where `values` [n] stand at `input`, its only input of this layer and
 * step. Fails: ASSAY_MISSING where it needs another that was not captured. */
assay_status assay_home_expect_from(double *out, assay_home *home, assay_point input,
                                    const double *values, int64_t n);

/* Whether the first n numbers that were due at this place in an earlier step are those due here, as
 * of the same token again: then what that step left says nothing. */
bool assay_home_was_due(const assay_home *home, int step, int64_t n);

/* Values of another point in the same prompt and step, as captured (or, when it was not, as the
 * pass computes it). Yours to free. Fails: ASSAY_MISSING. */
assay_status assay_home_value(double **out, int64_t *n, assay_home *home, assay_point point,
                              int layer);
/* Expected (not captured) values of a judged point of the same layer and step. Yours to free;
 * *got may be NULL. ASSAY_MISSING: not captured. */
assay_status assay_home_partner(double **expected, double **got, int64_t *cols, assay_home *home,
                                assay_point point);

/* [rows, n_expert_used, D]: outputs of the experts at the captured choice under these knobs. */
assay_status assay_home_expert_outputs(double *out, assay_home *home, const assay_knobs *knobs);

/* The winner; NULL: nothing explains the error. */
const assay_offer *assay_home_best(const assay_home *home);
/* A simple explanation is complete: costly searches may be left out. */
bool assay_home_settled(const assay_home *home);
/* The best offer of another class than `than`; complete or not; NULL: none. */
const assay_offer *assay_home_second(const assay_home *home, const assay_offer *than);
/* The offer that removes most of the error, complete or not; NULL: none. */
const assay_offer *assay_home_nearest(const assay_home *home);
/* explained share x margin over the best other class (reports/README.md). */
double assay_home_confidence(const assay_home *home, const assay_offer *offer);

#endif
