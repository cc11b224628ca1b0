#include "reports/home_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 64

static const struct {
    assay_point point, input;
    const char *weight; /* behind "blk.N." */
} products[] = {
    {ASSAY_POINT_Q_A, ASSAY_POINT_IN_NORM, "attn_q_a.weight"},
    {ASSAY_POINT_Q, ASSAY_POINT_Q_A_NORM, "attn_q_b.weight"},
    {ASSAY_POINT_Q, ASSAY_POINT_IN_NORM, "attn_q.weight"},
    {ASSAY_POINT_K, ASSAY_POINT_IN_NORM, "attn_k.weight"},
    {ASSAY_POINT_V, ASSAY_POINT_IN_NORM, "attn_v.weight"},
    {ASSAY_POINT_KV_A, ASSAY_POINT_IN_NORM, "attn_kv_a_mqa.weight"},
    {ASSAY_POINT_PROJ, ASSAY_POINT_OUT_ATTN, "attn_output.weight"},
    {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_NORM, "ffn_gate.weight"},
    {ASSAY_POINT_FFN_UP, ASSAY_POINT_FFN_NORM, "ffn_up.weight"},
    {ASSAY_POINT_FFN_OUT, ASSAY_POINT_FFN_ACT, "ffn_down.weight"},
    {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_FFN_NORM, "ffn_gate_shexp.weight"},
    {ASSAY_POINT_SHARED_UP, ASSAY_POINT_FFN_NORM, "ffn_up_shexp.weight"},
    {ASSAY_POINT_SHARED, ASSAY_POINT_SHARED_ACT, "ffn_down_shexp.weight"},
};

typedef struct product {
    double *x;
    const double *w;
    int64_t rows, cols, width;
    double *parts;   /* [n_blocks][rows, cols] */
    double *factors; /* [n_blocks][rows], or [n_blocks][cols] */
    int n_blocks;
    bool left_out; /* looks for factors 0 and 1 alone, else for all others */
} product;

assay_status assay_home_find_product(assay_home_product *out, assay_home *home)
{
    const assay_judged *j = home->judged;
    char name[64];
    int64_t dims[4], n;
    *out = (assay_home_product){.rows = j->n_rows, .cols = j->n_cols};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (!assay_home_is(home, products[i].point))
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", j->layer, products[i].weight);
        if (assay_home_value(&out->x, &n, home, products[i].input, j->layer) != ASSAY_OK)
            continue;
        if (assay_oracle_weight(&out->w, dims, assay_forced_oracle(home->forced), name) ==
            ASSAY_OK) {
            out->width = dims[3];
            out->input = products[i].input;
            if (dims[2] == out->cols && n == out->rows * out->width)
                return ASSAY_OK;
        }
        free(out->x);
        out->x = NULL;
    }
    return ASSAY_OK;
}

static void make_parts(product *p)
{
    int64_t block = p->width / p->n_blocks;
    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t t = 0; t < p->rows; t++)
            for (int64_t c = 0; c < p->cols; c++) {
                const double *x = p->x + t * p->width + b * block;
                const double *w = p->w + c * p->width + b * block;
                double sum = 0;
                for (int64_t i = 0; i < block; i++)
                    sum += x[i] * w[i];
                p->parts[(b * p->rows + t) * p->cols + c] = sum;
            }
}

/* Solves a symmetric system in place by Cholesky; false: singular. */
static bool solve(double *a, double *y, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            double sum = a[i * n + k];
            for (int m = 0; m < k; m++)
                sum -= a[i * n + m] * a[k * n + m];
            if (i == k && !(sum > 0))
                return false;
            a[i * n + k] = i == k ? sqrt(sum) : sum / a[k * n + k];
        }
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < i; m++)
            y[i] -= a[i * n + m] * y[m];
        y[i] /= a[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int m = i + 1; m < n; m++)
            y[i] -= a[m * n + i] * y[m];
        y[i] /= a[i * n + i];
    }
    return true;
}

/* Element e of unit u: a token's channels, or a channel's tokens. */
static int64_t element(const product *p, bool tokens, int64_t u, int64_t e)
{
    return tokens ? u * p->cols + e : e * p->cols + u;
}

/* Factors of the blocks for one token or one channel. */
static bool fit_unit(product *p, const assay_home *home, bool tokens, int64_t u)
{
    double a[MOST_BLOCKS * MOST_BLOCKS], y[MOST_BLOCKS];
    int n = p->n_blocks;
    int64_t n_elements = tokens ? p->cols : p->rows, units = tokens ? p->rows : p->cols;
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int k = 0; k <= i; k++)
            a[i * n + k] = 0;
        for (int64_t e = 0; e < n_elements; e++) {
            int64_t at = element(p, tokens, u, e);
            double part = p->parts[i * p->rows * p->cols + at];
            y[i] += part * home->got[at];
            for (int k = 0; k <= i; k++)
                a[i * n + k] += part * p->parts[k * p->rows * p->cols + at];
        }
    }
    if (!solve(a, y, n))
        return false;
    for (int b = 0; b < n; b++)
        p->factors[b * units + u] = y[b];
    return true;
}

static void apply(double *out, const product *p, const double *factors, bool tokens)
{
    int64_t n = p->rows * p->cols, units = tokens ? p->rows : p->cols;
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int b = 0; b < p->n_blocks; b++)
            out[i] +=
                factors[b * units + (tokens ? i / p->cols : i % p->cols)] * p->parts[b * n + i];
    }
}

/* Largest magnitude of a block of one token's inputs or one channel's weights. */
static double size_of(const product *p, bool tokens, int64_t u, int b)
{
    int64_t block = p->width / p->n_blocks;
    const double *x = (tokens ? p->x : p->w) + u * p->width + b * block;
    double most = 0;
    for (int64_t i = 0; i < block; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* Replaces the factors by the ratio of another block's size to the own one's, where they are that;
 * the neighbour in the row (way 0, 1) or the same block of the next or last unit (2, 3). */
static bool is_neighbours(double *ratios, const product *p, bool tokens, int way)
{
    int64_t units = tokens ? p->rows : p->cols, close = 0;
    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t u = 0; u < units; u++) {
            int64_t of = way < 2 ? u : (u + (way == 2 ? 1 : units - 1)) % units;
            int block = way > 1 ? b : (b + (way == 0 ? 1 : p->n_blocks - 1)) % p->n_blocks;
            double own = size_of(p, tokens, u, b), r = size_of(p, tokens, of, block) / own;
            ratios[b * units + u] = own > 0 ? r : 1;
            close += fabs(p->factors[b * units + u] / r - 1) < 0.02;
        }
    return 10 * close >= 9 * units * p->n_blocks;
}

static bool are_counts(const product *p, bool tokens)
{
    int64_t n = (tokens ? p->rows : p->cols) * p->n_blocks, whole = 0;
    for (int64_t i = 0; i < n; i++)
        whole += fabs(p->factors[i]) < 0.01 || fabs(p->factors[i] - 1) < 0.01;
    return 100 * whole >= 98 * n;
}

/* Tokens whose sums leave blocks of the inputs out. */
static assay_status offer_left_out(product *p, assay_home *home)
{
    int64_t n = p->rows * p->n_blocks, first = -1, last = -1, n_out = 0, block = 0;
    char text[320];
    for (int64_t i = 0; i < n; i++) {
        p->factors[i] = round(p->factors[i]);
        if (p->factors[i] != 0)
            continue;
        int64_t row = i % p->rows;
        first = first < 0 || row < first ? row : first;
        last = row > last ? row : last;
        block = n_out++ == 0 ? i / p->rows : block;
    }
    if (n_out == 0 || n_out == n)
        return ASSAY_OK;
    apply(home->scratch, p, p->factors, true);
    int64_t width = p->width / p->n_blocks;
    bool every = n_out % p->rows == 0 && first == 0 && last == p->rows - 1;
    if (every)
        snprintf(text, sizeof text,
                 "every row leaves out %lld block(s) of %lld inputs, the first of them inputs %lld "
                 "... %lld; all others are right",
                 (long long)(n_out / p->rows), (long long)width, (long long)(block * width),
                 (long long)((block + 1) * width - 1));
    else
        snprintf(text, sizeof text,
                 "rows %lld ... %lld leave out %lld blocks of %lld inputs, the first of them "
                 "inputs %lld ... %lld; all others are right",
                 (long long)first, (long long)last, (long long)n_out, (long long)width,
                 (long long)(block * width), (long long)((block + 1) * width - 1));
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = every ? "inputs left out" : "inputs left out in some rows",
                            .complexity = 2,
                            .fitted = json_pack("{s:I, s:I, s:I}", "first row", (json_int_t)first,
                                                "input", (json_int_t)(block * width), "inputs",
                                                (json_int_t)width),
                            .evidence = text});
}

static assay_status offer_factors(product *p, assay_home *home, bool tokens, double *ratios)
{
    static const char *const ways[] = {"of the next block", "of the block before",
                                       "of the same block in the next row",
                                       "of the same block in the row before"};
    if (are_counts(p, tokens) != p->left_out)
        return ASSAY_OK;
    if (p->left_out)
        return offer_left_out(p, home);
    int64_t units = tokens ? p->rows : p->cols, n = units * p->n_blocks,
            block = p->width / p->n_blocks;
    const char *of = tokens ? "activations" : "weights";
    char text[320], kind[80];
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, p->factors[i]);
        high = fmax(high, p->factors[i]);
    }
    for (int way = 0; way < 4; way++)
        if (is_neighbours(ratios, p, tokens, way)) {
            apply(home->scratch, p, ratios, tokens);
            snprintf(kind, sizeof kind, "scale of a neighbouring block of %s", of);
            snprintf(
                text, sizeof text,
                "every block of %lld %s carries the scale %s: fitted factors are the ratios of "
                "their largest values (%.3g ... %.3g)",
                (long long)block, of, ways[way], low, high);
            ASSAY_TRY(assay_home_offer(
                home, home->scratch,
                &(assay_offer_text){.kind = kind,
                                    .family = tokens ? assay_home_input_name(home) : NULL,
                                    .complexity = 0.6,
                                    .fitted = json_pack("{s:I}", "block", (json_int_t)block),
                                    .evidence = text}));
        }
    apply(home->scratch, p, p->factors, tokens);
    snprintf(kind, sizeof kind, "blocks of %s scaled", of);
    snprintf(
        text, sizeof text,
        "every block of %lld %s with a factor of its own gives the value; factors %.3g ... %.3g",
        (long long)block, of, low, high);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = kind,
                            .complexity = (double)n,
                            .fitted = json_pack("{s:I, s:f, s:f}", "block", (json_int_t)block,
                                                "least", low, "most", high),
                            .evidence = text});
}

static assay_status try_blocks(product *p, assay_home *home, bool tokens)
{
    int64_t units = tokens ? p->rows : p->cols, n = p->rows * p->cols;
    bool solved = true;
    double *room;
    /* more equations than unknowns by half, or the fit says nothing */
    if (p->n_blocks < 2 || 2 * (tokens ? p->cols : p->rows) < 3 * p->n_blocks)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&room, (size_t)(p->n_blocks * (n + 2 * units)), sizeof *room,
                          "parts of blocks"));
    p->parts = room;
    p->factors = room + p->n_blocks * n;
    make_parts(p);
    for (int64_t u = 0; u < units && solved; u++)
        solved = fit_unit(p, home, tokens, u);
    assay_status s =
        solved ? offer_factors(p, home, tokens, p->factors + p->n_blocks * units) : ASSAY_OK;
    free(room);
    return s;
}

static assay_status try_sizes(assay_home *home, bool left_out)
{
    static const int64_t sizes[] = {256, 128, 64, 32, 16};
    product p = {.left_out = left_out};
    assay_status s = ASSAY_OK;
    if (home->judged->n_nonfinite > 0 || home->judged->layer < 0)
        return ASSAY_OK;
    assay_home_product found;
    ASSAY_TRY(assay_home_find_product(&found, home));
    p.x = found.x;
    p.w = found.w;
    p.rows = found.rows;
    p.cols = found.cols;
    p.width = found.width;
    for (size_t i = 0; p.x && i < sizeof sizes / sizeof *sizes; i++) {
        if (p.width % sizes[i] || p.width / sizes[i] > MOST_BLOCKS || assay_home_best(home))
            continue;
        p.n_blocks = (int)(p.width / sizes[i]);
        ASSAY_GO(try_blocks(&p, home, true));
        if (!left_out)
            ASSAY_GO(try_blocks(&p, home, false));
    }
out:
    free(p.x);
    return s;
}

assay_status assay_home_try_block_factors(assay_home *home)
{
    return try_sizes(home, false);
}

assay_status assay_home_try_left_out(assay_home *home)
{
    return try_sizes(home, true);
}

const char *assay_home_input_name(const assay_home *home)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (assay_home_is(home, products[i].point))
            return assay_point_at(products[i].input)->name;
    return NULL;
}
