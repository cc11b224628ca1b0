#include "references/contrast.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"
#include "probes/recorder.h"
#include "references/row_f32.h"

enum { MAX_BLOCKS = 32, MIN_BLOCKS = 8, LEAST_BLOCK = 8, CHANNEL_SUMS = 1 << 18 };
enum { AT_ONCE = ASSAY_ROWS_AT_ONCE, GOT = 0, REF = 1 };

typedef struct pass {
    const assay_rows_seen *side[2];
    const uint8_t *state; /* NULL: no gains */
    uint8_t dirty;
    bool narrow, proves; /* both sides fit float32; checksums are proven on the way */
    int64_t n_tokens, n_sub, n_cols, width, block, n_blocks;
    bool by_key;             /* columns are keys: sums of heads stand in place of channels */
    int64_t n_channels;      /* n_sub * n_cols, or n_sub */
    assay_row_sums *rows;    /* [n_tokens, n_sub] */
    double *gains;           /* [n_tokens]; NaN: takes no part */
    double *channels;        /* [n_blocks, 2, n_channels] */
    assay_row_proof *proofs; /* [n_blocks] */
    double *room;            /* [threads, room_of()] */
} pass;

/* A few tokens that one thread has at work. */
typedef struct tile {
    int64_t first;
    int n;
    double *room; /* float64: [2, width]; float32: [2, AT_ONCE, width] */
    double *de, *ee;
    assay_row_proof proof;
} tile;

static int64_t room_of(const pass *p)
{
    return 2 * p->width * (p->narrow ? AT_ONCE / 2 : 1);
}

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
static const float *narrow_again(const pass *p, const tile *t, int side, int k, int64_t s)
{
    if (p->side[side]->values.dtype == ASSAY_DTYPE_F32)
        return narrow_row(p, t, side, k, s);
    return (const float *)t->room + (side * AT_ONCE + k) * p->width + s * p->n_cols;
}

static const double *wide_row(const pass *p, const tile *t, int side, int64_t s)
{
    return assay_rows_at(p->side[side], t->first, s, t->room + side * p->width + s * p->n_cols);
}

static const double *wide_again(const pass *p, const tile *t, int side, int64_t s)
{
    return p->side[side]->values.dtype == ASSAY_DTYPE_F64
               ? wide_row(p, t, side, s)
               : t->room + side * p->width + s * p->n_cols;
}

/* What a row adds to its side's checksum. */
static uint64_t prove_row(const assay_rows_seen *rows, int64_t token, int64_t s)
{
    if (!rows->values.unproven)
        return 0;
    int64_t first = assay_rows_place(rows, token, s);
    return assay_checksum_part(rows->values.data, assay_dtype_bytes(rows->values.dtype), first,
                               first + rows->n_cols);
}

static void sum_row(const pass *p, tile *t, int k, int64_t s)
{
    const assay_rows_seen *got = p->side[GOT], *ref = p->side[REF];
    int64_t token = t->first + k;
    assay_row_sums *row = &p->rows[token * p->n_sub + s];
    if (p->proves && !t->proof.proves) {
        t->proof.got += prove_row(got, token, s);
        t->proof.ref += prove_row(ref, token, s);
    }
    if (p->narrow)
        assay_row_sums_of_f32(row, &t->proof, narrow_row(p, t, GOT, k, s),
                              narrow_row(p, t, REF, k, s), assay_rows_place(ref, token, s),
                              p->n_cols);
    else
        *row = assay_row_sums_of(wide_row(p, t, GOT, s), wide_row(p, t, REF, s), p->n_cols);
}

/* The token's own gain, and what weighs it among the others; 0: it takes no part. dd: of the token.
 */
static double weigh(double *gain, double *dd, const assay_row_sums *rows, int64_t n_sub,
                    int64_t n_cols)
{
    double ee = 0, de = 0;
    bool finite = true;
    *dd = 0;
    for (int64_t s = 0; s < n_sub; s++) {
        finite = finite && rows[s].n == n_cols;
        ee += rows[s].rr;
        de += rows[s].dr;
        *dd += rows[s].dd;
    }
    bool good = finite && isfinite(ee) && ee > 0 && isfinite(de);
    *gain = good ? 1 + de / ee : NAN;
    return good ? 1 / ee : 0;
}

/* Weighted <got - ref, ref> and <ref, ref> of each channel. */
ASSAY_WIDEST static void add_channels(double *restrict de, double *restrict ee, const double *got,
                                      const double *ref, int64_t n, double weight)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double r = ref[i], wr = weight * r;
        de[i] += (got[i] - r) * wr;
        ee[i] += wr * r;
    }
}

/* The tokens ks[0] ... ks[n - 1] of the tile, together. */
static void add_narrow(const pass *p, const tile *t, const int *ks, int n, const float *weights)
{
    for (int64_t s = 0; s < p->n_sub; s++) {
        const float *got[AT_ONCE], *ref[AT_ONCE];
        float weight[AT_ONCE] = {0};
        for (int i = 0; i < AT_ONCE; i++) {
            int k = ks[i < n ? i : 0];
            got[i] = narrow_again(p, t, GOT, k, s);
            ref[i] = narrow_again(p, t, REF, k, s);
            weight[i] = i < n ? weights[i] : 0;
        }
        assay_channels_add_f32(t->de + s * p->n_cols, t->ee + s * p->n_cols, got, ref, weight,
                               p->n_cols);
    }
}

static void add_wide(const pass *p, const tile *t, int k, double weight)
{
    for (int64_t s = 0; s < p->n_sub; s++) {
        double *de = t->de + s * p->n_cols, *ee = t->ee + s * p->n_cols;
        if (p->narrow)
            assay_channels_add_wide(de, ee, narrow_again(p, t, GOT, k, s),
                                    narrow_again(p, t, REF, k, s), weight, p->n_cols);
        else
            add_channels(de, ee, wide_again(p, t, GOT, s), wide_again(p, t, REF, s), p->n_cols,
                         weight);
    }
}

static void add_heads(const pass *p, const tile *t, int64_t token, double weight)
{
    for (int64_t s = 0; s < p->n_sub; s++) {
        const assay_row_sums *row = &p->rows[token * p->n_sub + s];
        t->de[s] += weight * row->dr;
        t->ee[s] += weight * row->rr;
    }
}

/* In the order in which they lie: [outer, T, middle]. */
static void sum_rows(const pass *p, tile *t)
{
    const int64_t n_middle = p->side[REF]->n_middle;
    for (int64_t first = 0; first < p->n_sub; first += n_middle)
        for (int k = 0; k < t->n; k++)
            for (int64_t s = first; s < first + n_middle; s++)
                sum_row(p, t, k, s);
}

/* Sums of the tile's rows, then, of what is still in the cache, the sums of its channels. */
static void run_tile(const pass *p, tile *t)
{
    float weights[AT_ONCE];
    int ks[AT_ONCE], n = 0;
    sum_rows(p, t);
    for (int k = 0; k < t->n; k++) {
        int64_t token = t->first + k;
        double dd;
        p->gains[token] = NAN;
        if (!p->state || p->state[token * p->n_sub] & p->dirty)
            continue;
        double weight =
            weigh(&p->gains[token], &dd, p->rows + token * p->n_sub, p->n_sub, p->n_cols);
        if (p->by_key) {
            add_heads(p, t, token, weight * ASSAY_CHANNELS_SCALE);
        } else if (p->narrow && assay_channels_fit(weight, dd)) {
            weights[n] = (float)(weight * ASSAY_CHANNELS_SCALE);
            ks[n++] = k;
        } else if (weight > 0) {
            add_wide(p, t, k, weight * ASSAY_CHANNELS_SCALE);
        }
    }
    if (n)
        add_narrow(p, t, ks, n, weights);
}

static void run_block(const pass *p, int64_t b)
{
    int64_t end = (b + 1) * p->block < p->n_tokens ? (b + 1) * p->block : p->n_tokens;
    tile t = {.room = p->room + room_of(p) * omp_get_thread_num(),
              .proof.proves = p->proves && p->side[GOT]->values.dtype == ASSAY_DTYPE_F32 &&
                              p->side[REF]->values.dtype == ASSAY_DTYPE_F32};
    if (p->state) {
        t.de = p->channels + 2 * p->n_channels * b;
        t.ee = t.de + p->n_channels;
        memset(t.de, 0, (size_t)(2 * p->n_channels) * sizeof *t.de);
    }
    int at_once = p->narrow ? AT_ONCE : 1;
    for (t.first = b * p->block; t.first < end; t.first += t.n) {
        t.n = end - t.first < at_once ? (int)(end - t.first) : at_once;
        run_tile(p, &t);
    }
    p->proofs[b] = t.proof;
}

static void run_blocks(const pass *p)
{
#pragma omp parallel for schedule(dynamic, 1) if (p->n_tokens * p->width > 1 << 15)
    for (int64_t b = 0; b < p->n_blocks; b++)
        run_block(p, b);
    for (int64_t b = 1; b < p->n_blocks; b++) {
        p->proofs[0].got += p->proofs[b].got;
        p->proofs[0].ref += p->proofs[b].ref;
        for (int64_t i = 0; p->state && i < 2 * p->n_channels; i++)
            p->channels[i] += p->channels[2 * p->n_channels * b + i];
    }
}

/* Gains of the tokens that took part. */
static assay_status add_gains(assay_gain *gain, assay_point point, int layer, const pass *p)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < p->n_tokens; t++)
        if (!(p->state[t * p->n_sub] & p->dirty))
            p->gains[kept++] = p->gains[t];
    return assay_gain_add_sums(gain, point, layer, p->gains, kept, p->channels,
                               p->channels + p->n_channels, p->n_sub, p->by_key ? 0 : p->n_cols);
}

/* Words of a checksum hold two elements: rows of an odd number would share them. */
static bool can_prove_rows(const assay_rows_seen *got, const assay_rows_seen *ref)
{
    return (got->values.unproven || ref->values.unproven) && assay_rows_are_all(got) &&
           assay_rows_are_all(ref) && got->n_middle == ref->n_middle && got->n_cols % 2 == 0;
}

static assay_status prove(assay_rows_seen *got, assay_rows_seen *ref, const assay_row_proof *proof)
{
    ASSAY_TRY(assay_stored_prove(&got->values, proof ? &proof->got : NULL));
    return assay_stored_prove(&ref->values, proof ? &proof->ref : NULL);
}

static bool is_narrow(const assay_stored *values)
{
    return values->dtype == ASSAY_DTYPE_F32 || values->dtype == ASSAY_DTYPE_F16 ||
           values->dtype == ASSAY_DTYPE_BF16;
}

/* Each has its own sums of channels, of wide values fewer. */
static int64_t blocks_of(int64_t n_channels)
{
    int64_t n = CHANNEL_SUMS / (2 * n_channels + 1);
    return n < MIN_BLOCKS ? MIN_BLOCKS : n > MAX_BLOCKS ? MAX_BLOCKS : n;
}

static pass plan(const assay_rows_seen *got, const assay_rows_seen *ref, const uint8_t *state,
                 uint8_t dirty, assay_point point)
{
    const char *axes = assay_point_at(point)->axes;
    bool by_key = axes[strlen(axes) - 1] == 'S';
    int64_t n = got->n_tokens, n_channels = got->n_sub * (by_key ? 1 : got->n_cols),
            most = blocks_of(n_channels), block = (n + most - 1) / most;
    pass p = {.side = {got, ref},
              .state = state,
              .dirty = dirty,
              .narrow = is_narrow(&got->values) && is_narrow(&ref->values),
              .proves = can_prove_rows(got, ref),
              .n_tokens = n,
              .n_sub = got->n_sub,
              .n_cols = got->n_cols,
              .width = got->n_sub * got->n_cols,
              .by_key = by_key,
              .n_channels = n_channels,
              .block = block > LEAST_BLOCK ? block : LEAST_BLOCK};
    p.n_blocks = (n + p.block - 1) / p.block;
    return p;
}

/* Everything that a pass needs, from the room that is kept. Nothing of it is zeroed. */
static assay_status make_room(pass *p, assay_contrast_room *room, bool gains)
{
    const int64_t n_rows = p->n_tokens * p->n_sub, per_row = sizeof *p->rows / sizeof(double),
                  per_proof = sizeof *p->proofs / sizeof(double),
                  n_room = room_of(p) * omp_get_max_threads(),
                  n = n_rows * per_row + p->n_tokens + (p->n_blocks + 1) * per_proof + n_room +
                      (gains ? 2 * p->n_channels * p->n_blocks : 0);
    if (n > room->n) {
        free(room->numbers);
        room->numbers = malloc((size_t)n * sizeof *room->numbers);
        room->n = room->numbers ? n : 0;
    }
    if (!room->numbers)
        return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory for %lld rows",
                          (long long)n_rows);
    p->rows = (assay_row_sums *)(void *)room->numbers;
    p->proofs = (assay_row_proof *)(void *)(p->rows + n_rows);
    p->gains = (double *)(void *)(p->proofs + p->n_blocks + 1);
    p->room = p->gains + p->n_tokens;
    p->channels = gains ? p->room + n_room : NULL;
    return ASSAY_OK;
}

assay_status assay_contrast(assay_metrics *out, double *row_errors, assay_gain *gain,
                            assay_contrast_room *room, assay_point point, int layer,
                            assay_rows_seen *got, assay_rows_seen *ref, const uint8_t *state,
                            uint8_t dirty)
{
    ASSAY_BUG_IF(got->n_tokens != ref->n_tokens || got->n_sub != ref->n_sub ||
                 got->n_cols != ref->n_cols);
    pass p = plan(got, ref, gain ? state : NULL, dirty, point);
    assay_status s = ASSAY_OK;
    ASSAY_TRY(make_room(&p, room, gain != NULL));
    p.proofs[0] = (assay_row_proof){.got = 0};
    if (!p.proves)
        ASSAY_TRY(prove(got, ref, NULL));
    run_blocks(&p);
    if (p.proves)
        ASSAY_TRY(prove(got, ref, &p.proofs[0]));
    assay_metrics_from_rows(out, row_errors, p.rows, p.n_tokens * p.n_sub, p.n_cols);
    if (gain)
        s = add_gains(gain, point, layer, &p);
    return s;
}
