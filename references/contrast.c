#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "probes/recorder.h"
#include "references/contrast_private.h"

enum { MAX_BLOCKS = 32, MIN_BLOCKS = 8, CHANNEL_SUMS = 1 << 18, SLICE = 512 };

static int64_t room_of(const pass *p)
{
    return 2 * p->width * (p->narrow ? AT_ONCE / 2 : 1);
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
        t->proof.got[0] += prove_row(got, token, s);
        t->proof.ref[0] += prove_row(ref, token, s);
    }
    if (p->narrow)
        assay_row_sums_of_f32(row, &t->proof, narrow_row(p, t, GOT, k, s),
                              narrow_row(p, t, REF, k, s), assay_rows_place(ref, token, s),
                              p->n_cols);
    else
        *row = assay_row_sums_of(wide_row(p, t, GOT, s), wide_row(p, t, REF, s), p->n_cols);
}

static void judge_rows(const pass *p, const tile *t, assay_contrast_part *part)
{
    const int64_t first = t->first * p->n_sub, end = (t->first + t->n) * p->n_sub;
    for (int64_t r = first; r < end; r++) {
        p->errors[r] = p->n_cols ? assay_row_rel(&p->rows[r]) : NAN;
        assay_row_sums_add(&part->whole, &p->rows[r]);
        if (p->errors[r] > part->largest) {
            part->largest = p->errors[r];
            part->worst_row = r;
        }
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

static void run_block(const pass *p, int64_t b)
{
    const int64_t n_sums = p->n_channels + p->n_heads;
    int64_t end = (b + 1) * p->block < p->n_tokens ? (b + 1) * p->block : p->n_tokens;
    tile t = {.room = p->room + room_of(p) * omp_get_thread_num(),
              .proof.proves = p->proves && p->side[GOT]->values.dtype == ASSAY_DTYPE_F32 &&
                              p->side[REF]->values.dtype == ASSAY_DTYPE_F32};
    if (p->state) {
        t.de = p->channels + 2 * n_sums * b;
        t.ee = t.de + n_sums;
        memset(t.de, 0, (size_t)(2 * n_sums) * sizeof *t.de);
    }
    assay_contrast_part part = {.largest = -1, .worst_row = -1};
    int at_once = p->narrow ? AT_ONCE : 1;
    for (t.first = b * p->block; t.first < end; t.first += t.n) {
        t.n = end - t.first < at_once ? (int)(end - t.first) : at_once;
        sum_rows(p, &t);
        judge_rows(p, &t, &part);
        if (p->state) /* of what is still in the cache */
            assay_contrast_channels(p, &t);
    }
    for (int j = 0; j < ASSAY_LANES_F64; j++) {
        part.sum_got += t.proof.got[j];
        part.sum_ref += t.proof.ref[j];
    }
    p->parts[b] = part;
}

static void add_part(assay_contrast_part *to, const assay_contrast_part *more)
{
    assay_row_sums_add(&to->whole, &more->whole);
    to->sum_got += more->sum_got;
    to->sum_ref += more->sum_ref;
    if (more->largest > to->largest) {
        to->largest = more->largest;
        to->worst_row = more->worst_row;
    }
}

static void run_blocks(const pass *p)
{
    const int64_t n_sums = p->state ? 2 * (p->n_channels + p->n_heads) : 0;
#pragma omp parallel for schedule(dynamic, 1) if (p->n_tokens * p->width > 1 << 15)
    for (int64_t b = 0; b < p->n_blocks; b++)
        run_block(p, b);
    for (int64_t b = 1; b < p->n_blocks; b++)
        add_part(&p->parts[0], &p->parts[b]);
#pragma omp parallel for schedule(static) if (n_sums * p->n_blocks > 1 << 15)
    for (int64_t first = 0; first < n_sums; first += SLICE)
        for (int64_t b = 1; b < p->n_blocks; b++)
            for (int64_t i = first; i < first + SLICE && i < n_sums; i++)
                p->channels[i] += p->channels[n_sums * b + i];
}

/* Gains of the tokens that took part. */
static assay_status add_gains(assay_gain *gain, assay_point point, int layer, const pass *p)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < p->n_tokens; t++)
        if (!(p->state[t * p->n_sub] & p->dirty))
            p->gains[kept++] = p->gains[t];
    const double *de = p->channels, *ee = de + p->n_channels + p->n_heads;
    const assay_gain_sums channels = {p->n_channels, de, ee},
                          heads = {p->n_heads, de + p->n_channels, ee + p->n_channels};
    return assay_gain_add_sums(gain, point, layer, p->gains, kept, &heads, &channels);
}

/* Words of a checksum hold two elements: rows of an odd number would share them. */
static bool can_prove_rows(const assay_rows_seen *got, const assay_rows_seen *ref)
{
    return (got->values.unproven || ref->values.unproven) && assay_rows_are_all(got) &&
           assay_rows_are_all(ref) && got->n_middle == ref->n_middle && got->n_cols % 2 == 0;
}

static assay_status prove(assay_rows_seen *got, assay_rows_seen *ref, const assay_contrast_part *by)
{
    ASSAY_TRY(assay_stored_prove(&got->values, by ? &by->sum_got : NULL));
    return assay_stored_prove(&ref->values, by ? &by->sum_ref : NULL);
}

static bool is_narrow(const assay_stored *values)
{
    return values->dtype == ASSAY_DTYPE_F32 || values->dtype == ASSAY_DTYPE_F16 ||
           values->dtype == ASSAY_DTYPE_BF16;
}

/* Each has its own sums, of wide values fewer. */
static int64_t blocks_of(int64_t n_sums)
{
    int64_t n = CHANNEL_SUMS / (2 * n_sums + 1);
    return n < MIN_BLOCKS ? MIN_BLOCKS : n > MAX_BLOCKS ? MAX_BLOCKS : n;
}

static pass plan(const assay_rows_seen *got, const assay_rows_seen *ref, const uint8_t *state,
                 uint8_t dirty, assay_point point)
{
    const char *axes = assay_point_at(point)->axes;
    bool by_key = axes[strlen(axes) - 1] == 'S'; /* which are no channels but other tokens */
    int64_t n = got->n_tokens, n_heads = got->n_sub > 1 ? got->n_sub : 0, n_channels = 0;
    int n_runs = by_key ? 0 : assay_runs_of(NULL, &n_channels, got->n_sub, got->n_cols);
    int64_t most = blocks_of(n_channels + n_heads), block = (n + most - 1) / most;
    block = (block + AT_ONCE - 1) / AT_ONCE * AT_ONCE; /* no tile half empty */
    pass p = {.side = {got, ref},
              .state = state,
              .dirty = dirty,
              .narrow = is_narrow(&got->values) && is_narrow(&ref->values),
              .proves = can_prove_rows(got, ref),
              .n_tokens = n,
              .n_sub = got->n_sub,
              .n_cols = got->n_cols,
              .width = got->n_sub * got->n_cols,
              .n_channels = n_channels,
              .n_heads = n_heads,
              .n_runs = n_runs,
              .block = block > AT_ONCE ? block : AT_ONCE};
    p.n_blocks = (n + p.block - 1) / p.block;
    return p;
}

/* Everything that a pass needs, from the room that is kept. Nothing of it is zeroed. */
static assay_status make_room(pass *p, assay_contrast_room *room, bool gains)
{
    const int64_t n_rows = p->n_tokens * p->n_sub, per_row = sizeof *p->rows / sizeof(double),
                  per_part = sizeof *p->parts / sizeof(double),
                  n_room = room_of(p) * omp_get_max_threads(),
                  per_run = sizeof *p->runs / sizeof(double),
                  n_sums = gains ? 2 * (p->n_channels + p->n_heads) * p->n_blocks : 0,
                  n = n_rows * (per_row + 2) + p->n_tokens + (p->n_blocks + 1) * per_part + n_room +
                      p->n_runs * per_run + n_sums;
    if (n > room->n) {
        free(room->numbers);
        room->numbers = malloc((size_t)n * sizeof *room->numbers);
        room->n = room->numbers ? n : 0;
    }
    if (!room->numbers)
        return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory for %lld rows",
                          (long long)n_rows);
    p->rows = (assay_row_sums *)(void *)room->numbers;
    p->parts = (assay_contrast_part *)(void *)(p->rows + n_rows);
    p->errors = (double *)(void *)(p->parts + p->n_blocks + 1);
    p->row_gains = p->errors + n_rows;
    p->gains = p->row_gains + n_rows;
    p->room = p->gains + p->n_tokens;
    p->channels = p->room + n_room;
    p->runs = (assay_run_of_channels *)(void *)(p->channels + n_sums);
    if (p->n_runs)
        assay_runs_of(p->runs, &p->n_channels, p->n_sub, p->n_cols);
    return ASSAY_OK;
}

static void measure(assay_metrics *out, const pass *p, double worst)
{
    const int64_t n_rows = p->n_tokens * p->n_sub;
    assay_metrics_of_whole(out, &p->parts[0].whole, n_rows, p->n_cols);
    if (!out->n)
        return;
    out->row_rel_max = p->parts[0].largest;
    out->worst_row = p->parts[0].worst_row;
    if (out->row_rel_max > worst)
        out->gain_row_median = assay_row_gain_median(p->row_gains, p->rows, n_rows);
}

assay_status assay_contrast(assay_metrics *out, double *row_errors, double worst, assay_gain *gain,
                            assay_contrast_room *room, assay_point point, int layer,
                            assay_rows_seen *got, assay_rows_seen *ref, const uint8_t *state,
                            uint8_t dirty)
{
    ASSAY_BUG_IF(got->n_tokens != ref->n_tokens || got->n_sub != ref->n_sub ||
                 got->n_cols != ref->n_cols);
    pass p = plan(got, ref, gain ? state : NULL, dirty, point);
    assay_status s = ASSAY_OK;
    ASSAY_TRY(make_room(&p, room, gain != NULL));
    p.errors = row_errors ? row_errors : p.errors;
    p.parts[0] = (assay_contrast_part){.largest = -1, .worst_row = -1};
    if (!p.proves)
        ASSAY_TRY(prove(got, ref, NULL));
    run_blocks(&p);
    if (p.proves)
        ASSAY_TRY(prove(got, ref, &p.parts[0]));
    measure(out, &p, worst);
    if (gain)
        s = add_gains(gain, point, layer, &p);
    return s;
}
