/*
 * Faults that no seam of the engine makes: at one point of a healthy run the engine's value is
 * replaced, while it runs, by what other arithmetic gives on the values it had. The weights are the
 * oracle's, the sums are plain loops here.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle.h"

#define N 24
#define N_NEW 2

static const int32_t text[N] = {593, 283, 286, 76,  300, 340, 271, 208, 60, 290, 303, 346,
                                292, 336, 335, 274, 325, 371, 583, 594, 93, 21,  402, 373};

static assay_result result;

typedef struct value {
    float *x;
    int64_t rows, cols;
} value;

typedef struct fault fault;
typedef void arithmetic(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step);

struct fault {
    const char *what;
    assay_point point;
    int layer;
    arithmetic *make;
    const char *expected, *kind;
};

/* What the run has shown so far. */
static value seen[ASSAY_POINT_COUNT][8][N_NEW + 1];
static assay_oracle *oracle;

static value *of(assay_point point, int layer, int64_t step)
{
    return &seen[point][layer + 1][step];
}

static const float *row(assay_point point, int layer, int64_t step, int64_t r)
{
    value *v = of(point, layer, step);
    ck_assert_msg(v->x && r < v->rows, "%s was not shown", assay_point_at(point)->name);
    return v->x + r * v->cols;
}

static double *weight(int64_t *rows, int64_t *cols, const char *name)
{
    const double *w;
    int64_t dims[4];
    EXPECT_OK(assay_oracle_weight(&w, dims, oracle, name));
    *rows = dims[2];
    *cols = dims[3];
    double *copy = calloc((size_t)(dims[2] * dims[3]), sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, w, (size_t)(dims[2] * dims[3]) * sizeof *copy);
    return copy;
}

static void multiply(float *y, const float *x, const double *w, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++)
            sum += w[i * cols + k] * x[k];
        y[i] = (float)sum;
    }
}

static assay_status inject(void *user, const assay_tap_event *e)
{
    const fault *f = user;
    const assay_buffer *b = e->buffer;
    int64_t rows = e->rows.n, cols = b->dims[b->n_dims - 1];
    if (e->layer > 6 || e->partial)
        return ASSAY_OK;
    bool strided = b->n_dims > 1 && b->strides[b->n_dims - 2] != cols; /* of a merged product */
    if (!strided && b->n_dims > 1) {
        cols = assay_buffer_count(b) / b->dims[0];
        rows = b->dims[0];
    }
    bool is_it = f && e->point == f->point && e->layer == f->layer;
    float *flat = b->data;
    int64_t stride = strided ? b->strides[0] : cols;
    if (is_it) {
        float *y = calloc((size_t)(rows * cols), sizeof *y);
        ck_assert_ptr_nonnull(y);
        for (int64_t r = 0; r < rows; r++)
            memcpy(y + r * cols, flat + r * stride, (size_t)cols * sizeof *y);
        f->make(f, y, rows, cols, e->step);
        for (int64_t r = 0; r < rows; r++)
            memcpy(flat + r * stride, y + r * cols, (size_t)cols * sizeof *y);
        free(y);
    }
    value *v = of(e->point, e->layer, e->step);
    free(v->x);
    *v = (value){calloc((size_t)(rows * cols), sizeof *v->x), rows, cols};
    ck_assert_ptr_nonnull(v->x);
    for (int64_t r = 0; r < rows; r++)
        memcpy(v->x + r * cols, flat + r * stride, (size_t)cols * sizeof *v->x);
    return ASSAY_OK;
}

/* ---- arithmetic ---- */

static void packed_order(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    double *w = weight(&n, &width, "blk.0.ffn_gate.weight");
    for (int64_t i = 0; i < n * width; i += 8) {
        static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        double kept[8];
        memcpy(kept, w + i, sizeof kept);
        for (int k = 0; k < 8; k++)
            w[i + k] = kept[order[k]];
    }
    for (int64_t r = 0; r < rows; r++)
        multiply(y + r * cols, row(ASSAY_POINT_FFN_NORM, f->layer, step, r), w, n, width);
    free(w);
}

static double largest(const double *w, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(w[i]));
    return most;
}

static void next_scale(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    double *w = weight(&n, &width, "blk.2.attn_output.weight");
    for (int64_t i = 0; i < n; i++) {
        double sizes[64], *at = w + i * width;
        int64_t blocks = width / 32;
        for (int64_t b = 0; b < blocks; b++)
            sizes[b] = largest(at + b * 32, 32);
        for (int64_t k = 0; k < width; k++)
            at[k] *= sizes[(k / 32 + 1) % blocks] / sizes[k / 32];
    }
    for (int64_t r = 0; r < rows; r++)
        multiply(y + r * cols, row(ASSAY_POINT_OUT_ATTN, f->layer, step, r), w, n, width);
    free(w);
}

/* Blocks of 64 x 64 with scales for 8-bit floats, of which the exponent is left. */
static void scale_exponents(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    double *w = weight(&n, &width, "blk.1.ffn_gate_shexp.weight");
    for (int64_t i = 0; i < n; i += 64)
        for (int64_t k = 0; k < width; k += 64) {
            double scale = 0;
            for (int64_t c = i; c < i + 64; c++)
                scale = fmax(scale, largest(w + c * width + k, 64) / 448);
            for (int64_t c = i; c < i + 64; c++)
                for (int64_t d = k; d < k + 64; d++)
                    w[c * width + d] *= exp2(floor(log2(scale))) / scale;
        }
    for (int64_t r = 0; r < rows; r++)
        multiply(y + r * cols, row(ASSAY_POINT_FFN_NORM, f->layer, step, r), w, n, width);
    free(w);
}

static void reads_last_step(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    if (step == 0)
        return;
    double *w = weight(&n, &width, "blk.1.attn_output.weight");
    value *last = of(ASSAY_POINT_OUT_ATTN, f->layer, step - 1);
    for (int64_t r = 0; r < rows; r++)
        multiply(y + r * cols, last->x + (last->rows - rows + r) * last->cols, w, n, width);
    free(w);
}

static void reads_before_norm(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    double *w = weight(&n, &width, "blk.3.ffn_gate_shexp.weight");
    for (int64_t r = 0; r < rows; r++)
        multiply(y + r * cols, row(ASSAY_POINT_ATTN_RESID, f->layer, step, r), w, n, width);
    free(w);
}

static void stale_addend(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    for (int64_t r = 10; r < rows; r++)
        for (int64_t i = 0; i < cols; i++)
            y[r * cols + i] += row(ASSAY_POINT_SHARED, f->layer - 1, step, r)[i] -
                               row(ASSAY_POINT_SHARED, f->layer, step, r)[i];
}

static void rows_left_over(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    for (int64_t r = 16; r < rows; r++)
        memcpy(y + r * cols, row(f->point, f->layer - 1, step, r), (size_t)cols * sizeof *y);
}

static void other_norm(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t one, n;
    double *own = weight(&one, &n, "blk.1.attn_norm.weight");
    double *other = weight(&one, &n, "blk.1.ffn_norm.weight");
    (void)f, (void)step;
    for (int64_t i = 0; i < rows * cols; i++)
        y[i] = (float)(y[i] / own[i % cols] * other[i % cols]);
    free(own);
    free(other);
}

static void head_rows(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t n, width;
    double *w = weight(&n, &width, "output.weight");
    (void)f;
    for (int64_t r = 0; r < rows && step == 0; r++)
        for (int64_t i = 0; i < cols; i++)
            y[r * cols + i] = (float)w[text[r] * width + i];
    free(w);
}

/* Channels of every row moved: channel c is from(c). */
static void move(float *y, int64_t rows, int64_t cols, int64_t (*from)(int64_t c))
{
    float kept[4096];
    ck_assert_int_le(cols, 4096);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(kept, y + r * cols, (size_t)cols * sizeof *kept);
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = kept[from(c)];
    }
}

/* 8 heads, 64 rows of keys and 64 of values each */
static int64_t by_kind(int64_t c)
{
    return c % 128 < 64 ? c / 128 * 64 + c % 128 : 512 + c / 128 * 64 + c % 128 - 64;
}

static void cut_by_kind(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    (void)f, (void)step;
    move(y, rows, cols, by_kind);
}

/* 64 channels and a rotary part of 32 in every head */
static int64_t rotary_first(int64_t c)
{
    return c - c % 96 + (c % 96 + 64) % 96;
}

static void head_parts_exchanged(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    (void)f, (void)step;
    move(y, rows, cols, rotary_first);
}

static void latent_cut_late(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t one, n;
    double *w = weight(&one, &n, "blk.2.attn_kv_a_norm.weight");
    for (int64_t r = 0; r < rows; r++) {
        const float *x = row(ASSAY_POINT_KV_A, f->layer, step, r) + 32;
        double square = 0;
        for (int64_t i = 0; i < cols; i++)
            square += (double)x[i] * x[i];
        double by = 1 / sqrt(square / (double)cols + assay_oracle_knobs(oracle)->eps[2]);
        for (int64_t i = 0; i < cols; i++)
            y[r * cols + i] = (float)(x[i] * by * w[i]);
    }
    free(w);
}

static void one_expert_exchanged(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    static int32_t wrong = -1; /* whichever the first token has */
    value *ids = of(ASSAY_POINT_MOE_TOPK, f->layer, step);
    int64_t used = ids->cols, width = cols / used;
    if (step == 0)
        memcpy(&wrong, ids->x, sizeof wrong);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < used; u++) {
            int32_t id;
            memcpy(&id, ids->x + r * used + u, sizeof id);
            for (int64_t i = u * width; id == wrong && i < (u + 1) * width; i++) {
                double gate = row(ASSAY_POINT_MOE_EXPERT_GATE, f->layer, step, r)[i];
                double up = row(ASSAY_POINT_MOE_EXPERT_UP, f->layer, step, r)[i];
                y[r * cols + i] = (float)(up / (1 + exp(-up)) * gate);
            }
        }
}

/* Rows of the prefill from token 9 on do not see the keys before; y is [H x T, S]. */
static void packed_border(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    (void)f;
    for (int64_t r = 0; step == 0 && r < rows * cols / N; r++) {
        double kept = 0;
        float *p = y + r * N;
        for (int64_t i = 9; i < N; i++)
            kept += p[i];
        for (int64_t i = 0; i < N && r % N >= 9; i++)
            p[i] = i < 9 ? 0 : (float)(p[i] / kept);
    }
}

/* Tokens 3 and 4 see three keys too many and not key 1, a set that no rule has; y is [H x T, S]. */
static void sees_one_more(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    for (int64_t r = 0; step == 0 && r < rows * cols / N; r++) {
        int64_t h = r / N, t = r % N;
        double top = -INFINITY, sum = 0, p[N];
        if (t != 3 && t != 4)
            continue;
        for (int64_t i = 0; i <= t + 3; i++) {
            const float *q = row(ASSAY_POINT_Q, f->layer, step, t) + h * 96;
            const float *qr = row(ASSAY_POINT_Q_ROPE, f->layer, step, t) + h * 32;
            const float *k = row(ASSAY_POINT_K, f->layer, step, i) + h * 96;
            double s = 0;
            for (int64_t c = 0; c < 96; c++)
                s += (double)(c < 64 ? q[c] : qr[c - 64]) * k[c];
            p[i] = s * assay_oracle_knobs(oracle)->softmax_scale;
            top = fmax(top, p[i]);
        }
        for (int64_t i = 0; i <= t + 3; i++) {
            p[i] = i == 1 ? 0 : exp(p[i] - top);
            sum += p[i];
        }
        for (int64_t i = 0; i < N; i++)
            y[r * N + i] = i <= t + 3 ? (float)(p[i] / sum) : 0;
    }
}

static void over_all_experts(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    int64_t E = of(ASSAY_POINT_MOE_PROBS, f->layer, step)->cols;
    for (int64_t r = 0; r < rows; r++) {
        const float *p = row(ASSAY_POINT_MOE_PROBS, f->layer, step, r);
        const float *ids = row(ASSAY_POINT_MOE_TOPK, f->layer, step, r);
        double all = 0, chosen = 0;
        for (int64_t e = 0; e < E; e++)
            all += p[e];
        for (int64_t u = 0; u < cols; u++) {
            int32_t id;
            memcpy(&id, ids + u, sizeof id);
            chosen += p[id];
        }
        for (int64_t u = 0; u < cols; u++)
            y[r * cols + u] = (float)(y[r * cols + u] * chosen / all);
    }
}

static void shared_scaled(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++)
            y[r * cols + i] += 1.5F * row(ASSAY_POINT_SHARED, f->layer, step, r)[i];
}

static void of_row_before(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    (void)f, (void)step;
    for (int64_t r = rows - 1; r > 0; r--)
        memcpy(y + r * cols, y + (r - 1) * cols, (size_t)cols * sizeof *y);
}

static const fault faults[] = {
    {"columns of a weight in the order of packed codes", ASSAY_POINT_FFN_GATE, 0, packed_order,
     "BLOCK-MAP", "columns of the weight exchanged"},
    {"groups of 32 weights with the next group's scale", ASSAY_POINT_PROJ, 2, next_scale,
     "BLOCK-MAP", "scale of a neighbouring block of weights"},
    {"scales of blocks without their mantissa", ASSAY_POINT_SHARED_GATE, 1, scale_exponents,
     "DTYPE-READ", "mantissa of the scales dropped"},
    {"the step before's input", ASSAY_POINT_PROJ, 1, reads_last_step, "BUFFER",
     "reads the step before's buffer"},
    {"the stream before its norm, larger than what is due", ASSAY_POINT_SHARED_GATE, 3,
     reads_before_norm, "BUFFER", "reads the value before the norm"},
    {"rows with the shared expert of the layer before", ASSAY_POINT_MOE_OUT, 3, stale_addend,
     "BUFFER", "adds another layer's value, in some rows"},
    {"rows of the layer before", ASSAY_POINT_SHARED_UP, 2, rows_left_over, "UNWRITTEN",
     "left over from the layer before, in some rows"},
    {"the other norm's weight", ASSAY_POINT_IN_NORM, 1, other_norm, "WEIGHT-SOURCE",
     "another norm's weight"},
    {"embeddings from the output head", ASSAY_POINT_EMBED, -1, head_rows, "WEIGHT-SOURCE",
     "embedding taken from the output head"},
    {"kv_b by kind", ASSAY_POINT_KV_B, 1, cut_by_kind, "FUSED-ORDER",
     "kv_b cut by kind for by head"},
    {"the rotary part before the other one", ASSAY_POINT_Q, 2, head_parts_exchanged, "FUSED-ORDER",
     "rotary and other part of heads exchanged"},
    {"kv_a cut behind its rotary part", ASSAY_POINT_KV_LATENT, 2, latent_cut_late, "FUSED-ORDER",
     "kv_a cut with the rotary part first"},
    {"gate and up exchanged in one expert", ASSAY_POINT_MOE_EXPERT_ACT, 1, one_expert_exchanged,
     "FUSED-ORDER", "gate and up exchanged, in some experts"},
    {"a border between packed sequences", ASSAY_POINT_PROBS, 2, packed_border, "VALID-SET",
     "keys left out"},
    {"a set of keys without a rule", ASSAY_POINT_PROBS, 2, sees_one_more, "VALID-SET",
     "another set of keys"},
    {"weights over the sum of all experts", ASSAY_POINT_MOE_WEIGHTS, 3, over_all_experts, "ROUTE",
     "renormalised over all experts"},
    {"the routed scale on the shared expert, too", ASSAY_POINT_MOE_OUT, 1, shared_scaled,
     "REDUCE-COUNT", "shared expert times a factor"},
    {"experts of the token before", ASSAY_POINT_MOE_TOPK, 1, of_row_before, "ADDR-ARITH",
     "rows of another place"},
};

static void forget(void)
{
    for (int p = 0; p < ASSAY_POINT_COUNT; p++)
        for (int l = 0; l < 8; l++)
            for (int s = 0; s <= N_NEW; s++) {
                free(seen[p][l][s].x);
                seen[p][l][s].x = NULL;
            }
}

static void diagnose_with(const fault *f, assay_dtype dtype)
{
    char model[600], capture[600];
    assay_gguf *file;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("other.h5"));
    EXPECT_OK(assay_gguf_open(&file, model));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    EXPECT_OK(capture_injected(capture, model, text, N, N_NEW, dtype, NULL, 0, inject,
                               (void *)(uintptr_t)f));
    forget();
    EXPECT_OK(diagnosed(&result, capture, model));
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}

static void expect_named(const fault *f)
{
    diagnose_with(f, ASSAY_DTYPE_F32);
    const assay_finding *found =
        diagnosed_find(&result, f->expected, assay_point_at(f->point)->name);
    ck_assert_msg(found != NULL, "%s: expected %s at %s, found %s", f->what, f->expected,
                  assay_point_at(f->point)->name, diagnosed_text(&result));
    ck_assert_msg(!strcmp(found->kind, f->kind), "%s: expected '%s', found %s", f->what, f->kind,
                  diagnosed_text(&result));
    if (f->layer >= 0)
        ck_assert_msg(found->layers.n == 1 && found->layers.items[0] == f->layer, "%s: %s", f->what,
                      diagnosed_text(&result));
    assay_result_clear(&result);
}

START_TEST(faults_of_other_arithmetic_are_named)
{
    const char *only = getenv("ASSAY_FAULT");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (!only || strstr(faults[i].what, only))
            expect_named(&faults[i]);
}
END_TEST

START_TEST(the_same_run_without_a_fault_shows_nothing)
{
    diagnose_with(NULL, ASSAY_DTYPE_F32);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

/* Numbers of the right size and no likeness: what stands for its own explanation is a guess. */
static void noise(const fault *f, float *y, int64_t rows, int64_t cols, int64_t step)
{
    uint64_t state = 88172645463325252ULL + (uint64_t)step;
    (void)f;
    for (int64_t r = 0; r < rows; r++) {
        double size = 0;
        for (int64_t i = 0; i < cols; i++)
            size += (double)y[r * cols + i] * y[r * cols + i];
        for (int64_t i = 0; i < cols; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            y[r * cols + i] =
                (float)(sqrt(3 * size / (double)cols) * ((double)(state >> 11) / 0x1p52 - 1));
        }
    }
}

START_TEST(what_only_says_where_is_not_sure)
{
    static const fault f = {"noise", ASSAY_POINT_PROJ, 1, noise, "", ""};
    diagnose_with(&f, ASSAY_DTYPE_F32);
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    EXPECT_NEAR(fmax(result.findings[0].confidence - 0.5, 0), 0, 1e-9);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("other_arithmetic", faults_of_other_arithmetic_are_named,
            the_same_run_without_a_fault_shows_nothing, what_only_says_where_is_not_sure)
