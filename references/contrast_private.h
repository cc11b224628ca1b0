/* Shared by contrast.c, which goes through the rows, and contrast_channels.c. */
#ifndef ASSAY_REFERENCES_CONTRAST_PRIVATE_H
#define ASSAY_REFERENCES_CONTRAST_PRIVATE_H

#include "references/contrast.h"
#include "references/row_f32.h"

enum { AT_ONCE = ASSAY_ROWS_AT_ONCE, GOT = 0, REF = 1 };

/* Neighbours whose sums are kept: columns [col, col + n) of a sub, from `at` on among all kept. */
typedef struct assay_run_of_channels {
    int64_t sub, col, n, at;
} assay_run_of_channels;

/* What one block of tokens comes to. */
typedef struct assay_contrast_part {
    assay_row_sums whole;
    double largest; /* error of a row, and which; -1: there is none */
    int64_t worst_row;
    uint64_t sum_got, sum_ref; /* checksums */
} assay_contrast_part;

typedef struct pass {
    const assay_rows_seen *side[2];
    const uint8_t *state; /* NULL: no gains */
    uint8_t dirty;
    bool narrow, proves; /* both sides fit float32; checksums are proven on the way */
    int64_t n_tokens, n_sub, n_cols, width, block, n_blocks;
    int64_t n_channels, n_heads; /* whose sums are kept: see assay_runs_of; n_sub, or 0 of one */
    int n_runs;
    assay_run_of_channels *runs; /* [n_runs] */
    assay_row_sums *rows;        /* [n_tokens, n_sub] */
    double *gains;               /* [n_tokens]; NaN: takes no part */
    double *channels;            /* [n_blocks, 2, n_channels + n_heads]: de, ee */
    assay_contrast_part *parts;  /* [n_blocks] */
    double *errors, *row_gains;  /* [n_tokens, n_sub] */
    double *room;                /* [threads, room_of()] */
} pass;

/* A few tokens that one thread has at work. */
typedef struct tile {
    int64_t first;
    int n;
    double *room; /* float64: [2, width]; float32: [2, AT_ONCE, width] */
    double *de, *ee;
    assay_row_proof proof;
} tile;

/* All channels of [n_sub, n_cols], or of more than ASSAY_GAIN_KEPT every k-th group of neighbours:
 * that many gains are enough for a median, and a vocabulary has 100,000. Returns the number of
 * runs; NULL: counts only. n_channels: in all of them. */
int assay_runs_of(assay_run_of_channels *out, int64_t *n_channels, int64_t n_sub, int64_t n_cols);

/* Adds the tile's tokens that take part, whose sums of rows are there. */
void assay_contrast_channels(const pass *p, tile *t);

/* Row of token `first + k` of the tile. */
static inline const float *narrow_row(const pass *p, const tile *t, int side, int k, int64_t s)
{
    const assay_stored *values = &p->side[side]->values;
    int64_t place = assay_rows_place(p->side[side], t->first + k, s);
    if (values->dtype == ASSAY_DTYPE_F32)
        return (const float *)values->data + place;
    float *room = (float *)t->room + (side * AT_ONCE + k) * p->width + s * p->n_cols;
    return assay_stored_at_f32(values, place, p->n_cols, room);
}

/* The same once it has been widened. */
static inline const float *narrow_again(const pass *p, const tile *t, int side, int k, int64_t s)
{
    if (p->side[side]->values.dtype == ASSAY_DTYPE_F32)
        return narrow_row(p, t, side, k, s);
    return (const float *)t->room + (side * AT_ONCE + k) * p->width + s * p->n_cols;
}

static inline const double *wide_row(const pass *p, const tile *t, int side, int64_t s)
{
    return assay_rows_at(p->side[side], t->first, s, t->room + side * p->width + s * p->n_cols);
}

static inline const double *wide_again(const pass *p, const tile *t, int side, int64_t s)
{
    return p->side[side]->values.dtype == ASSAY_DTYPE_F64
               ? wide_row(p, t, side, s)
               : t->room + side * p->width + s * p->n_cols;
}

#endif
