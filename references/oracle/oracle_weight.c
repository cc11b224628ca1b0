/*
 * Weights on demand: chunks of rows decoded to float64, kept up to a byte budget, least recently
 * used ones dropped first. A chunk is a whole slice unless that is large: of a stacked tensor only
 * the experts that are used are ever decoded, and an output head of gigabytes passes through in
 * parts.
 */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"
#include "references/oracle/oracle_private.h"

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_BF16 = 30 }; /* numbers of GGUF tensor types */

#define CHUNK_ELEMENTS ((int64_t)1 << 22) /* at most; less under a small budget */
#define N_KEPT 4 /* most recently used chunks that are never dropped: an op may hold them */
#define N_BUCKETS 1024

struct oracle_chunk {
    oracle_chunk *next;
    const assay_gguf_tensor_info *info;
    int64_t slice, row, n_rows;
    assay_weight_view view;
    assay_dtype round;
    uint64_t used;
    int64_t bytes;
    double values[];
};

assay_status assay_oracle_matrix(oracle_matrix *out, const assay_oracle *oracle, int layer,
                                 const char *name, int64_t slices, int64_t rows, int64_t cols,
                                 const assay_knobs *knobs)
{
    int from = layer < 0 ? layer : layer + knobs->weight_layer_shift;
    const assay_gguf_tensor_info *t =
        layer >= 0 && from < 0 ? NULL : assay_oracle_find(oracle, from, name);
    if (!t)
        return assay_fail(ASSAY_MISSING, "%s: layer %d has no tensor '%s'",
                          assay_gguf_path(oracle->file), from, name);
    const oracle_quant *quant = assay_oracle_quant_find(t->type);
    if (!quant)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor '%s': type %d cannot be decoded", t->name,
                          t->type);
    if (t->ne[0] != cols || t->ne[1] * t->ne[2] * t->ne[3] != rows * slices ||
        (slices > 1 && t->ne[1] != rows))
        return assay_fail(ASSAY_BAD_SHAPE,
                          "tensor '%s' is {%lld, %lld, %lld, %lld}, expected %lld slices of "
                          "[%lld, %lld]",
                          t->name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
                          (long long)t->ne[3], (long long)slices, (long long)rows, (long long)cols);
    *out = (oracle_matrix){.info = t, .quant = quant, .slices = slices, .rows = rows, .cols = cols};
    out->view = rows > 1 || quant->elements > 1 ? knobs->weight_view : ASSAY_WEIGHT_RIGHT;
    out->round = knobs->round_weight;
    return ASSAY_OK;
}

/* At least eight chunks fit into the budget, and every chunk has a row. */
static int64_t rows_of_chunk(const assay_oracle *o, const oracle_matrix *w)
{
    int64_t most = o->weight_bytes_max / (8 * (int64_t)sizeof(double));
    if (most > CHUNK_ELEMENTS)
        most = CHUNK_ELEMENTS;
    bool whole =
        w->whole || w->view == ASSAY_WEIGHT_TRANSPOSED || w->view == ASSAY_WEIGHT_ROWS_REVERSED;
    int64_t n = w->cols > 0 ? most / w->cols : w->rows;
    if (whole || n >= w->rows)
        return w->rows;
    return n < 1 ? 1 : n;
}

/* Rows of another source, widened. */
static assay_status fetch_rows(double *out, const assay_oracle *o, const oracle_matrix *w,
                               int64_t slice, int64_t row, int64_t n)
{
    float *x;
    ASSAY_TRY(assay_alloc(&x, (size_t)(n * w->cols), sizeof *x, w->info->name));
    assay_status s = o->rows(x, o->rows_user, w->info, slice * w->rows + row, n);
    for (int64_t i = 0; s == ASSAY_OK && i < n * w->cols; i++)
        out[i] = x[i];
    free(x);
    for (int64_t i = 0; s == ASSAY_OK && i < n; i++)
        assay_oracle_round(out + i * w->cols, w->cols, w->round);
    return s;
}

static assay_status decode_rows(double *out, const assay_oracle *o, const oracle_matrix *w,
                                int64_t slice, int64_t row, int64_t n)
{
    if (o->rows)
        return fetch_rows(out, o, w, slice, row, n);
    int64_t row_blocks = w->cols / w->quant->elements, n_blocks = w->rows * row_blocks;
    const uint8_t *data = (const uint8_t *)w->info->data + slice * n_blocks * w->quant->bytes;
#pragma omp parallel for if (n * w->cols > 65536)
    for (int64_t i = 0; i < n; i++) {
        assay_oracle_quant_decode(out + i * w->cols, w->quant, data, n_blocks,
                                  (row + i) * row_blocks, w->cols, w->view);
        assay_oracle_round(out + i * w->cols, w->cols, w->round);
    }
    return ASSAY_OK;
}

/* Shows the rows' bytes to who watches; under a view other rows of the slice may be looked at. */
static assay_status show_rows(const assay_oracle *o, const oracle_matrix *w, int64_t slice,
                              int64_t row, int64_t n)
{
    if (!o->watch)
        return ASSAY_OK;
    uint64_t row_bytes = (uint64_t)(w->cols / w->quant->elements * w->quant->bytes);
    uint64_t first = (uint64_t)(slice * w->rows) * row_bytes;
    if (w->view != ASSAY_WEIGHT_RIGHT)
        return o->watch(o->watch_user, w->info, first, (uint64_t)w->rows * row_bytes);
    return o->watch(o->watch_user, w->info, first + (uint64_t)row * row_bytes,
                    (uint64_t)n * row_bytes);
}

/* Views of a whole slice: rows in the other order, or its memory read with the other stride. */
static assay_status rearrange(double *values, const oracle_matrix *w)
{
    double *copy;
    int64_t rows = w->rows, cols = w->cols;
    ASSAY_TRY(assay_alloc(&copy, (size_t)(rows * cols), sizeof *copy, "weight under a view"));
    memcpy(copy, values, (size_t)(rows * cols) * sizeof *copy);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            values[r * cols + c] = w->view == ASSAY_WEIGHT_TRANSPOSED
                                       ? copy[c * rows + r]
                                       : copy[(rows - 1 - r) * cols + c];
    free(copy);
    return ASSAY_OK;
}

static size_t bucket_of(const assay_gguf_tensor_info *info, int64_t slice, int64_t row)
{
    uint64_t h = (uint64_t)(uintptr_t)info * 0x9E3779B97F4A7C15u;
    h = (h ^ (uint64_t)slice) * 0x9E3779B97F4A7C15u;
    h = (h ^ (uint64_t)row) * 0x9E3779B97F4A7C15u;
    return h >> 54 & (N_BUCKETS - 1);
}

static bool same(const oracle_chunk *c, const oracle_matrix *w, int64_t slice, int64_t row,
                 int64_t n)
{
    return c->info == w->info && c->slice == slice && c->row == row && c->n_rows == n &&
           c->view == w->view && c->round == w->round;
}

/* Drops the least recently used chunk that no op can still hold; false when there is none. */
static bool drop_oldest(assay_oracle *o)
{
    oracle_chunk **oldest = NULL;
    for (int i = 0; i < N_BUCKETS; i++)
        for (oracle_chunk **at = &o->chunks[i]; *at; at = &(*at)->next)
            if ((*at)->used + N_KEPT <= o->tick && (!oldest || (*at)->used < (*oldest)->used))
                oldest = at;
    if (!oldest)
        return false;
    oracle_chunk *dead = *oldest;
    *oldest = dead->next;
    o->weight_bytes -= dead->bytes;
    free(dead);
    return true;
}

void assay_oracle_free_chunks(assay_oracle *oracle)
{
    for (int i = 0; i < N_BUCKETS; i++)
        while (oracle->chunks[i]) {
            oracle_chunk *dead = oracle->chunks[i];
            oracle->chunks[i] = dead->next;
            free(dead);
        }
    oracle->weight_bytes = 0;
}

static assay_status decode_chunk(oracle_chunk **out, assay_oracle *o, const oracle_matrix *w,
                                 int64_t slice, int64_t row, int64_t n)
{
    int64_t bytes = (int64_t)sizeof(oracle_chunk) + n * w->cols * (int64_t)sizeof(double);
    ASSAY_TRY(show_rows(o, w, slice, row, n));
    while (o->weight_bytes + bytes > o->weight_bytes_max && drop_oldest(o))
        ;
    oracle_chunk *c = malloc((size_t)bytes);
    if (!c)
        return assay_fail(ASSAY_NO_MEMORY, "no memory: %lld bytes for tensor '%s'",
                          (long long)bytes, w->info->name);
    *c = (oracle_chunk){.info = w->info,
                        .slice = slice,
                        .row = row,
                        .n_rows = n,
                        .view = w->view,
                        .round = w->round,
                        .bytes = bytes};
    assay_status s = decode_rows(c->values, o, w, slice, row, n);
    if (!o->rows)
        assay_gguf_release(o->file, w->info);
    if (s == ASSAY_OK && w->rows > 1 &&
        (w->view == ASSAY_WEIGHT_TRANSPOSED || w->view == ASSAY_WEIGHT_ROWS_REVERSED))
        s = rearrange(c->values, w);
    if (s != ASSAY_OK) {
        free(c);
        return s;
    }
    o->weight_bytes += bytes;
    *out = c;
    return ASSAY_OK;
}

/* The chunk that holds the row; *first: its first row. */
static assay_status chunk_of(oracle_chunk **out, int64_t *first, assay_oracle *oracle,
                             const oracle_matrix *w, int64_t slice, int64_t row)
{
    int64_t per_chunk = rows_of_chunk(oracle, w);
    *first = row / per_chunk * per_chunk;
    int64_t n = w->rows - *first < per_chunk ? w->rows - *first : per_chunk;
    oracle_chunk **bucket = &oracle->chunks[bucket_of(w->info, slice, *first)], *c = *bucket;
    oracle->tick++;
    while (c && !same(c, w, slice, *first, n))
        c = c->next;
    if (!c) {
        ASSAY_TRY(decode_chunk(&c, oracle, w, slice, *first, n));
        c->next = *bucket;
        *bucket = c;
    }
    c->used = oracle->tick;
    *out = c;
    return ASSAY_OK;
}

assay_status assay_oracle_rows(const double **out, int64_t *n_rows, assay_oracle *oracle,
                               const oracle_matrix *w, int64_t slice, int64_t row)
{
    oracle_chunk *c;
    int64_t first;
    ASSAY_TRY(chunk_of(&c, &first, oracle, w, slice, row));
    *out = c->values + (row - first) * w->cols;
    *n_rows = first + c->n_rows - row;
    return ASSAY_OK;
}

assay_status assay_oracle_row(double *out, const assay_oracle *oracle, const oracle_matrix *w,
                              int64_t slice, int64_t row)
{
    if (row < 0 || row >= w->rows)
        return assay_fail(ASSAY_BAD_SHAPE, "tensor '%s' has %lld rows, row %lld was asked for",
                          w->info->name, (long long)w->rows, (long long)row);
    ASSAY_TRY(show_rows(oracle, w, slice, row, 1));
    return decode_rows(out, oracle, w, slice, row, 1);
}

static void encode(uint8_t *out, const float *x, int64_t n, int type)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = type == TYPE_F16 ? assay_f32_to_f16(x[i]) : assay_f32_to_bf16(x[i]);
        if (type == TYPE_F32)
            memcpy(out + i * 4, &x[i], 4);
        else
            memcpy(out + i * 2, &half, 2);
    }
}

assay_status assay_oracle_bytes(uint8_t *out, const assay_oracle *oracle,
                                const assay_gguf_tensor_info *tensor, uint64_t at, uint64_t n_bytes)
{
    float *x;
    if (!oracle->rows) {
        memcpy(out, (const uint8_t *)tensor->data + at, n_bytes);
        return ASSAY_OK;
    }
    ASSAY_BUG_IF(tensor->type != TYPE_F32 && tensor->type != TYPE_F16 && tensor->type != TYPE_BF16);
    uint64_t row_bytes = (uint64_t)tensor->ne[0] * (tensor->type == TYPE_F32 ? 4 : 2);
    ASSAY_BUG_IF(at % row_bytes || n_bytes % row_bytes);
    ASSAY_TRY(assay_alloc(&x, (size_t)tensor->ne[0], sizeof *x, tensor->name));
    assay_status s = ASSAY_OK;
    for (uint64_t done = 0; s == ASSAY_OK && done < n_bytes; done += row_bytes) {
        s = oracle->rows(x, oracle->rows_user, tensor, (int64_t)((at + done) / row_bytes), 1);
        if (s == ASSAY_OK)
            encode(out + done, x, tensor->ne[0], tensor->type);
    }
    free(x);
    return s;
}

static void dgemm(double *y, int64_t ldy, const double *x, int64_t ldx, const oracle_factor *w,
                  int64_t m, int64_t n, int64_t k)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, w->transposed ? CblasNoTrans : CblasTrans, (blasint)m,
                (blasint)n, (blasint)k, 1, x, (blasint)ldx, w->values, (blasint)w->ld, 0, y,
                (blasint)ldy);
}

static void square_rows(double *out, const double *x, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[i * cols + j] = x[i * ld + j] * x[i * ld + j];
}

static int64_t count_terms(const double *x, int64_t n)
{
    int64_t terms = 0;
    for (int64_t i = 0; i < n; i++)
        terms += x[i] != 0;
    return terms;
}

assay_status assay_oracle_multiply_variance(double *variance, const double *y, int64_t ldy,
                                            const double *x, int64_t ldx, const oracle_factor *w,
                                            int64_t m, int64_t n, int64_t k)
{
    int64_t w_rows = w->transposed ? k : n, w_cols = w->transposed ? n : k;
    double *a;
    ASSAY_TRY(assay_alloc(&a, (size_t)(m * k + n * k), sizeof *a, "squares of a product"));
    double *b = a + m * k;
    square_rows(a, x, ldx, m, k);
    square_rows(b, w->values, w->ld, w_rows, w_cols);
    oracle_factor squares = {.values = b, .ld = w_cols, .transposed = w->transposed};
    dgemm(variance, n, a, k, &squares, m, n, k);
    for (int64_t i = 0; i < m; i++) {
        int64_t terms = count_terms(x + i * ldx, k);
        for (int64_t j = 0; j < n; j++)
            variance[i * n + j] =
                assay_oracle_sum_variance(y[i * ldy + j], variance[i * n + j], terms);
    }
    free(a);
    return ASSAY_OK;
}

assay_status assay_oracle_multiply(double *y, int64_t ldy, const double *x, int64_t ldx,
                                   const oracle_factor *w, int64_t m, int64_t n, int64_t k,
                                   bool f32)
{
    double *variance;
    if (m == 0 || n == 0 || k == 0)
        return ASSAY_OK;
    dgemm(y, ldy, x, ldx, w, m, n, k);
    if (!f32)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&variance, (size_t)(m * n), sizeof *variance, "variance of sums"));
    assay_status s = assay_oracle_multiply_variance(variance, y, ldy, x, ldx, w, m, n, k);
    for (int64_t i = 0; s == ASSAY_OK && i < m; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * ldy + j] = assay_oracle_off_by(y[i * ldy + j], variance[i * n + j]);
    free(variance);
    return s;
}

assay_status assay_oracle_gemm(double *y, int64_t ldy, const double *x, int64_t ldx,
                               const double *w, int64_t ldw, int64_t m, int64_t n, int64_t k,
                               bool transposed, bool f32)
{
    oracle_factor factor = {.values = w, .ld = ldw, .transposed = transposed};
    return assay_oracle_multiply(y, ldy, x, ldx, &factor, m, n, k, f32);
}

/* A copy of x with each row rounded as ggml's product rounds it. */
static assay_status rounded_rows(double **out, const double *x, int64_t ldx, int64_t m, int64_t k,
                                 oracle_partner partner)
{
    ASSAY_TRY(assay_alloc(out, (size_t)(m * k), sizeof **out, "rounded activations"));
    for (int64_t i = 0; i < m; i++) {
        memcpy(*out + i * k, x + i * ldx, (size_t)k * sizeof **out);
        assay_oracle_round_activation(*out + i * k, k, partner);
    }
    return ASSAY_OK;
}

/* Products that run over the ends of their rows: the next rows' first elements enter too. */
static assay_status read_beyond(double *y, int64_t ldy, const double *x, int64_t ldx, int64_t m,
                                assay_oracle *oracle, const oracle_matrix *w, oracle_part part,
                                int64_t n)
{
    double *row;
    ASSAY_TRY(assay_alloc(&row, (size_t)w->cols, sizeof *row, "a row of a weight"));
    assay_status s = ASSAY_OK;
    n = n < part.n_cols ? n : part.n_cols;
    for (int64_t r = 0; r + 1 < part.n_rows && s == ASSAY_OK; r++) {
        s = assay_oracle_row(row, oracle, w, part.slice, part.row + r + 1);
        for (int64_t t = 0; t + 1 < m && s == ASSAY_OK; t++)
            for (int64_t i = 0; i < n; i++)
                y[t * ldy + r] += x[(t + 1) * ldx + i] * row[part.col + i];
    }
    free(row);
    return s;
}

/* Rows of an incomplete last tile, computed from the first half of the inputs. */
static assay_status tile_rest(double *y, int64_t ldy, const double *x, int64_t ldx, int64_t m,
                              assay_oracle *oracle, const oracle_matrix *w, oracle_part part,
                              const assay_knobs *knobs)
{
    int64_t rest = m % knobs->tile_rest, first = m - rest;
    assay_knobs right = *knobs;
    right.tile_rest = right.read_beyond = 0;
    part.n_cols /= 2;
    if (rest == 0 || first == 0 || part.n_cols == 0)
        return ASSAY_OK;
    return assay_oracle_product(y + first * ldy, ldy, x + first * ldx, ldx, rest, oracle, w, part,
                                &right);
}

assay_status assay_oracle_product(double *y, int64_t ldy, const double *x, int64_t ldx, int64_t m,
                                  assay_oracle *oracle, const oracle_matrix *w, oracle_part part,
                                  const assay_knobs *knobs)
{
    assay_status s = ASSAY_OK;
    double *rounded = NULL;
    bool f32 = knobs->round_out != ASSAY_DTYPE_F64;
    if (knobs->activations_q8 && w->quant->partner != ORACLE_PARTNER_NONE) {
        ASSAY_TRY(rounded_rows(&rounded, x, ldx, m, part.n_cols, w->quant->partner));
        x = rounded;
        ldx = part.n_cols;
    }
    for (int64_t done = 0; done < part.n_rows;) {
        oracle_factor rows = {.ld = w->cols};
        int64_t n;
        ASSAY_GO(assay_oracle_rows(&rows.values, &n, oracle, w, part.slice, part.row + done));
        if (n > part.n_rows - done)
            n = part.n_rows - done;
        rows.values += part.col;
        ASSAY_GO(assay_oracle_multiply(y + done, ldy, x, ldx, &rows, m, n, part.n_cols, f32));
        done += n;
    }
    if (knobs->read_beyond > 0)
        ASSAY_GO(read_beyond(y, ldy, x, ldx, m, oracle, w, part, knobs->read_beyond));
    if (knobs->tile_rest > 0)
        s = tile_rest(y, ldy, x, ldx, m, oracle, w, part, knobs);
out:
    free(rounded);
    return s;
}
