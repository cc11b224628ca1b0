/*
 * Layouts: how a value lies in somebody's dump, and the way from there to the canonical axes of a
 * point.
 *
 * A layout is three short texts, the same in names.def and in a user's name map:
 *
 *   axes   letters of the stored axes, outermost first ("HTK"), '1' for an axis of size one; empty:
 *          the point's own. Behind '>' the axes that come out, where they are not the point's own
 *          ("GTK>TGK"). One stored axis may hold several neighbours ([T, H*K] for "THK"); leading
 *          axes of size one (batch) may come in front.
 *   take   parts of axes that are kept, separated by spaces: "R=K[-R:]" the last R of K, called R
 *          from then on, "L=C[:L]" the first L, "C=O[Q:]" from Q on, "H[0]" one entry, whose axis
 *          goes, "F=Y[:/2]" and "F=Y[/2:]" halves. Bounds are letters, numbers, or a number of
 *          letters ("G=A[-2G:-G]"), counted from the end behind '-'.
 *   order  what is done to the innermost axis afterwards:
 *            pairs        rotary pairs, half-split -> adjacent, on its last R, where the profile
 *                         says that the engine leaves them half-split after rotation
 *            pairs-all    the same on the whole axis, always (llama: converters permute rows of q
 *                         and k, model-spec of GGUF files)
 *            pairs-first  the same as pairs on its first R (indexer)
 *            hadamard     orthonormal Hadamard matrix (Sylvester order) undone, where the profile
 *                         says so
 *            nope-over    its last R are put in from the same point one hand-over earlier (the
 *                         kernel's query holds the nope part of attn.q as it will be read; the
 *                         rotary part before rotation is in the projection alone)
 *            residual     the tensor's second half, "<name>.out1", is added (vLLM and SGLang
 *                         return the stream as hidden + residual)
 *            scaled       alone or behind another order: times the scale of the stream, where the
 *                         profile keeps it scaled (residual_scale): the factor is undone
 *            keys         selected key positions: those >= S (padding of the cache) dropped, rows
 *                         filled up with -1 to min(X, S)
 *
 * Sizes: one number per letter, learnt from values whose axes all lie apart, from C = L + R,
 * K = N + R, B = N + V, and from the model where there is one. T and S are the step's. S is cut to
 * the keys there are when the cache was padded. Where a value has a row for each of the S keys (an
 * engine that hands its kernel the whole cache, or projects it anew in each step), its last T rows
 * are the step's.
 */
#ifndef ASSAY_REFERENCES_LAYOUT_H
#define ASSAY_REFERENCES_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/status.h"
#include "references/run.h"

#define ASSAY_LAYOUT_AXES 6

/* Another reading of a value whose map may be wrong: of the same shape, so that nothing but its
 * numbers shows it. */
typedef enum assay_relay {
    ASSAY_RELAY_NONE,
    ASSAY_RELAY_TRANSPOSED,  /* the last axis outermost: [D, T] for [T, D] */
    ASSAY_RELAY_HEAD_MAJOR,  /* [H, T, K] for [T, H, K] */
    ASSAY_RELAY_HEADS_INNER, /* [T, K, H] for [T, H, K] */
    ASSAY_RELAY_HEADS_OUTER, /* as [T, H, K], taken for [T, K, H] */
    ASSAY_RELAY_HALF_SPLIT,  /* the last axis half-split, taken for adjacent pairs */
    ASSAY_RELAY_ADJACENT,    /* the other way round */
    ASSAY_RELAY_HALVES,      /* the second half of the last axis in front */
    ASSAY_RELAY_COUNT
} assay_relay;

/* "head-major", for reports. */
const char *assay_relay_name(assay_relay relay);
/* The same numbers, read the other way, into out; false (out untouched): it has not the axes, or
 * nothing moves. */
bool assay_relay_apply(double *out, const double *in, const int64_t *dims, int n_dims,
                       assay_relay relay);

typedef struct assay_layout {
    const char *axes, *take, *order;
} assay_layout;

typedef struct assay_sizes {
    int64_t of[128];     /* by letter; 0: unknown */
    double routed_scale; /* of the weights of experts; 0: unknown */
} assay_sizes;

typedef struct assay_plan {
    int n;
    int64_t size[ASSAY_LAYOUT_AXES];  /* stored axes, one letter each */
    int64_t start[ASSAY_LAYOUT_AXES]; /* what is taken of them */
    int64_t length[ASSAY_LAYOUT_AXES];
    int from[ASSAY_MAX_DIMS]; /* stored axis behind each outgoing one */
    int n_out;
    int64_t dims[ASSAY_MAX_DIMS];
    bool adds_out1;
    int order;          /* index of the rows in layout.c */
    int64_t pairs_from; /* first channel and width of the pairs on the innermost axis */
    int64_t pairs_n;
    int64_t n_keys;
    double factor; /* of every value that comes out; 1: none */
    assay_relay relay;
} assay_plan;

/* Binds the letters of `axes` to dims, where each stored axis is one letter and T is the step's
 * (at least 2, so that it cannot be a batch axis); learns nothing else. */
void assay_sizes_learn(assay_sizes *sizes, const char *axes, const int64_t *dims, int n_dims,
                       int64_t n_tokens);
/* Follows the sums between letters until nothing new comes out. */
void assay_sizes_close(assay_sizes *sizes, bool is_mla);

/*
 * point_axes: of point.def. sizes: T and S set for this step. Fails: ASSAY_BAD_SHAPE (what does not
 * fit, in words), ASSAY_USAGE (the layout text is wrong).
 */
assay_status assay_layout_plan(assay_plan *out, const assay_layout *layout, const char *point_axes,
                               const int64_t *dims, int n_dims, const assay_sizes *sizes,
                               const assay_profile *profile);
/* As it lies, with the axes it has (at most ASSAY_MAX_DIMS). */
void assay_plan_identity(assay_plan *out, const int64_t *dims, int n_dims);
/* Whether values come out as they lie. */
bool assay_plan_is_identity(const assay_plan *plan);
int64_t assay_plan_n_in(const assay_plan *plan);
int64_t assay_plan_n_out(const assay_plan *plan);
/* out: n_out, in: n_in; not the same memory. */
void assay_plan_apply(double *out, const double *in, const assay_plan *plan);

/* nope-over: whether the plan needs the same point one hand-over earlier, and putting it in. */
bool assay_plan_needs_base(const assay_plan *plan);
void assay_plan_overlay(double *out, const double *base, const assay_plan *plan);

/* From now on every value of the point is read the other way, where a name map says how the run's
 * values lie (a dump of another engine); returns how many those are. */
int assay_run_relay(assay_run *run, assay_point point, assay_relay relay);

/* Checks the three texts alone (a user's map): ASSAY_USAGE. */
assay_status assay_layout_check(const assay_layout *layout);

/* Fast Walsh-Hadamard transform with factor 1 / sqrt(n), n a power of two: symmetric and its own
 * inverse. */
void assay_layout_hadamard(double *x, int64_t n);

#endif
