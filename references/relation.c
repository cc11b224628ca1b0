#include "references/relation.h"
#include "references/relation_sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[ASSAY_REL_KIND_COUNT] = {
    "all zero",
    "scaled by one factor",
    "scaled by a factor per row",
    "scaled by a factor per channel",
    "scaled by a factor per block",
    "rows zero",
    "blocks zero",
    "tail zero",
    "blocks permuted",
    "blocks repeated",
    "parts in another order",
    "halves interleaved",
    "channels permuted inside every block",
    "transposed",
    "rows shifted",
    "equal to another tensor",
    "components counted otherwise",
    "a constant added",
};

const char *assay_relation_kind_name(assay_relation_kind kind)
{
    ASSAY_BUG_IF((unsigned)kind >= ASSAY_REL_KIND_COUNT);
    return names[kind];
}

static void start(assay_relation *rel, assay_relation_kind kind, double complexity)
{
    memset(rel, 0, sizeof *rel);
    rel->kind = kind;
    rel->complexity = complexity;
    rel->index = -1;
    rel->value = NAN;
}

void assay_relation_score(assay_relation *rel, const double *out, const assay_relation_pair *pair)
{
    double rest = 0, error = 0, size = 0;
    if (pair->sketch) {
        rest = assay_projection_rest(NULL, pair->sketch, out);
        error = assay_projection_rest(NULL, pair->sketch, pair->expected);
        for (int64_t k = 0; k < pair->sketch->n_groups * ASSAY_SKETCH_N; k++)
            size += (double)pair->sketch->y[k] * pair->sketch->y[k];
    }
    for (int64_t i = 0; i < pair->rows * pair->cols && !pair->sketch; i++) {
        double g = pair->got[i], e = pair->expected[i];
        if (!isfinite(g) || !isfinite(e))
            continue;
        rest += (g - out[i]) * (g - out[i]);
        error += (g - e) * (g - e);
        size += g * g;
    }
    rel->explained = error > 0 ? 1 - rest / error : 0;
    rel->residual = size > 0 ? sqrt(rest / size) : rest > 0 ? INFINITY : 0;
}

void assay_relation_zero(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_ZERO, 0);
    memset(out, 0, (size_t)(pair->rows * pair->cols) * sizeof *out);
    assay_relation_score(rel, out, pair);
}

/* <got, expected> and <expected, expected> of a rectangle. */
static void regress(double *cross, double *square, const assay_relation_pair *p, int64_t r0,
                    int64_t r1, int64_t c0, int64_t c1)
{
    double a = 0, b = 0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            double g = p->got[r * p->cols + c], e = p->expected[r * p->cols + c];
            if (!isfinite(g) || !isfinite(e))
                continue;
            a += g * e;
            b += e * e;
        }
    *cross = a;
    *square = b;
}

static double factor_of(const assay_relation_pair *p, int64_t r0, int64_t r1, int64_t c0,
                        int64_t c1)
{
    double a, b;
    regress(&a, &b, p, r0, r1, c0, c1);
    return b > 0 ? a / b : 1;
}

/*
 * Factors of n parts of expected, `rows` x `cols` rectangles counted along the rows first; of
 * sketches by least squares, all parts at once.
 */
static void factors_of(double *list, const assay_relation_pair *p, int64_t rows, int64_t cols)
{
    int64_t n_down = p->rows / rows, n_across = p->cols / cols, n = n_down * n_across;
    if (p->sketch && assay_relation_fit_parts(list, p, rows, cols))
        return;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / n_across * rows, c = i % n_across * cols;
        list[i] = factor_of(p, r, r + rows, c, c + cols);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of the factors to value, their relative range to spread; sorts list. */
static void summarise(assay_relation *rel, double *list, int64_t n)
{
    qsort(list, (size_t)n, sizeof *list, by_value);
    rel->value = n % 2 ? list[n / 2] : (list[n / 2 - 1] + list[n / 2]) / 2;
    double size = fabs(rel->value);
    rel->spread = size > 0 ? (list[n - 1] - list[0]) / size : INFINITY;
}

void assay_relation_scale(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_SCALE, 1);
    factors_of(&rel->value, pair, pair->rows, pair->cols);
    for (int64_t i = 0; i < pair->rows * pair->cols; i++)
        out[i] = pair->expected[i] * rel->value;
    assay_relation_score(rel, out, pair);
}

void assay_relation_scale_rows(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_SCALE_ROWS, (double)pair->rows);
    double *list = assay_alloc_or_lack((size_t)pair->rows, sizeof *list, "factors of rows");
    if (list)
        factors_of(list, pair, 1, pair->cols);
    for (int64_t r = 0; r < pair->rows; r++) {
        double f = list ? list[r] : 1;
        for (int64_t c = 0; c < pair->cols; c++)
            out[r * pair->cols + c] = pair->expected[r * pair->cols + c] * f;
    }
    if (list)
        summarise(rel, list, pair->rows);
    free(list);
    assay_relation_score(rel, out, pair);
}

void assay_relation_scale_cols(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_SCALE_COLS, (double)pair->cols);
    double *list = assay_alloc_or_lack((size_t)pair->cols, sizeof *list, "factors of columns");
    if (list)
        factors_of(list, pair, pair->rows, 1);
    for (int64_t c = 0; c < pair->cols; c++) {
        double f = list ? list[c] : 1;
        for (int64_t r = 0; r < pair->rows; r++)
            out[r * pair->cols + c] = pair->expected[r * pair->cols + c] * f;
    }
    if (list)
        summarise(rel, list, pair->cols);
    free(list);
    assay_relation_score(rel, out, pair);
}

static void fill_block(double *out, const assay_relation_pair *p, int64_t width, int to, int from,
                       double f)
{
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < width; c++)
            out[r * p->cols + to * width + c] = p->expected[r * p->cols + from * width + c] * f;
}

static int blocks_fit(const assay_relation_pair *p, int n)
{
    return n >= 1 && n <= ASSAY_RELATION_BLOCKS && p->cols % n == 0;
}

void assay_relation_scale_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                 int n_blocks)
{
    ASSAY_BUG_IF(!blocks_fit(pair, n_blocks));
    start(rel, ASSAY_REL_SCALE_BLOCKS, n_blocks);
    int64_t width = pair->cols / n_blocks;
    double list[ASSAY_RELATION_BLOCKS];
    factors_of(list, pair, pair->rows, width);
    for (int b = 0; b < n_blocks; b++) {
        rel->count[b] = list[b];
        fill_block(out, pair, width, b, b, list[b]);
    }
    rel->n_blocks = n_blocks;
    summarise(rel, list, n_blocks);
    assay_relation_score(rel, out, pair);
}

void assay_relation_scale_one_block(assay_relation *rel, double *out,
                                    const assay_relation_pair *pair, int n_blocks)
{
    ASSAY_BUG_IF(!blocks_fit(pair, n_blocks));
    int64_t width = pair->cols / n_blocks;
    int best = 0;
    double list[ASSAY_RELATION_BLOCKS];
    factors_of(list, pair, pair->rows, width);
    for (int b = 1; b < n_blocks; b++)
        if (fabs(list[b] - 1) > fabs(list[best] - 1))
            best = b;
    start(rel, ASSAY_REL_SCALE_BLOCKS, 1 + log2(n_blocks) / 10);
    rel->index = best;
    rel->n_blocks = n_blocks;
    rel->value = list[best];
    for (int b = 0; b < n_blocks; b++) {
        rel->count[b] = b == best ? rel->value : 1;
        fill_block(out, pair, width, b, b, rel->count[b]);
    }
    assay_relation_score(rel, out, pair);
}

/* Exactly, or as far as a sketch can tell. */
static int is_zero(const assay_relation_pair *p, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    if (p->sketch && p->is_noisy)
        return factor_of(p, r0, r1, c0, c1) < 0.5;
    if (p->sketch) {
        double got = 0, want = 0;
        for (int64_t r = r0; r < r1; r++)
            for (int64_t c = c0; c < c1; c++) {
                got += p->got[r * p->cols + c] * p->got[r * p->cols + c];
                want += p->expected[r * p->cols + c] * p->expected[r * p->cols + c];
            }
        return got < 1e-6 * want;
    }
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            if (p->got[r * p->cols + c] != 0)
                return 0;
    return 1;
}

void assay_relation_zero_rows(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_ZERO_ROWS, 0.1);
    int64_t n = 0;
    double *list = pair->sketch
                       ? assay_alloc_or_lack((size_t)pair->rows, sizeof *list, "factors of rows")
                       : NULL;
    if (list)
        factors_of(list, pair, 1, pair->cols);
    for (int64_t r = 0; r < pair->rows; r++) {
        int zero = list ? list[r] < 0.5 : is_zero(pair, r, r + 1, 0, pair->cols);
        if (zero && n++ == 0)
            rel->index = r;
        for (int64_t c = 0; c < pair->cols; c++)
            out[r * pair->cols + c] = zero ? 0 : pair->expected[r * pair->cols + c];
    }
    free(list);
    rel->value = (double)n;
    assay_relation_score(rel, out, pair);
}

void assay_relation_zero_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                int n_blocks)
{
    ASSAY_BUG_IF(!blocks_fit(pair, n_blocks));
    start(rel, ASSAY_REL_ZERO_BLOCKS, 0.1);
    int64_t width = pair->cols / n_blocks;
    int n = 0;
    double list[ASSAY_RELATION_BLOCKS];
    if (pair->sketch)
        factors_of(list, pair, pair->rows, width);
    for (int b = 0; b < n_blocks; b++) {
        int zero =
            pair->sketch ? list[b] < 0.5 : is_zero(pair, 0, pair->rows, b * width, (b + 1) * width);
        if (zero && n++ == 0)
            rel->index = b;
        rel->count[b] = !zero;
        fill_block(out, pair, width, b, b, zero ? 0 : 1);
    }
    rel->n_blocks = n_blocks;
    rel->value = n;
    assay_relation_score(rel, out, pair);
}

void assay_relation_tail(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_TAIL, 0.5);
    int64_t from = pair->cols;
    while (from > 0 && is_zero(pair, 0, pair->rows, from - 1, from))
        from--;
    rel->index = from;
    for (int64_t r = 0; r < pair->rows; r++)
        for (int64_t c = 0; c < pair->cols; c++)
            out[r * pair->cols + c] = c < from ? pair->expected[r * pair->cols + c] : 0;
    assay_relation_score(rel, out, pair);
}

void assay_relation_constant(assay_relation *rel, double *out, const assay_relation_pair *pair)
{
    start(rel, ASSAY_REL_CONSTANT, (double)pair->cols);
    double square = 0;
    for (int64_t c = 0; c < pair->cols; c++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t r = 0; r < pair->rows; r++) {
            double d = pair->got[r * pair->cols + c] - pair->expected[r * pair->cols + c];
            if (isfinite(d)) {
                sum += d;
                n++;
            }
        }
        double added = n ? sum / (double)n : 0;
        square += added * added;
        for (int64_t r = 0; r < pair->rows; r++)
            out[r * pair->cols + c] = pair->expected[r * pair->cols + c] + added;
    }
    rel->value = pair->cols > 0 ? sqrt(square / (double)pair->cols) : 0;
    assay_relation_score(rel, out, pair);
}

void assay_relation_transposed(assay_relation *rel, double *out, const assay_relation_pair *pair,
                               int64_t a, int64_t b)
{
    ASSAY_BUG_IF(a * b != pair->cols);
    start(rel, ASSAY_REL_TRANSPOSED, 0.2);
    rel->value = (double)a;
    for (int64_t r = 0; r < pair->rows; r++)
        for (int64_t i = 0; i < a; i++)
            for (int64_t j = 0; j < b; j++)
                out[r * pair->cols + j * a + i] = pair->expected[r * pair->cols + i * b + j];
    assay_relation_score(rel, out, pair);
}

void assay_relation_equals(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           const double *other)
{
    start(rel, ASSAY_REL_EQUALS, 0.3);
    memcpy(out, other, (size_t)(pair->rows * pair->cols) * sizeof *out);
    assay_relation_score(rel, out, pair);
}

void assay_relation_shifted_rows(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                 int max_shift)
{
    assay_relation best;
    start(&best, ASSAY_REL_SHIFTED_ROWS, 0.3);
    best.explained = -INFINITY;
    size_t row = (size_t)pair->cols * sizeof *out;
    for (int pass = 0; pass < 2; pass++) /* the second writes the best shift again */
        for (int s = -max_shift; s <= max_shift; s++) {
            if (s == 0 || llabs(s) >= pair->rows || (pass && s != best.value))
                continue;
            for (int64_t r = 0; r < pair->rows; r++) {
                int64_t from = r - s;
                const double *source = from >= 0 && from < pair->rows
                                           ? pair->expected + from * pair->cols
                                           : pair->got + r * pair->cols;
                memcpy(out + r * pair->cols, source, row);
            }
            start(rel, ASSAY_REL_SHIFTED_ROWS, 0.3);
            rel->value = s;
            assay_relation_score(rel, out, pair);
            if (rel->explained > best.explained)
                best = *rel;
        }
    if (best.explained == -INFINITY) {
        memcpy(out, pair->expected, (size_t)pair->rows * row);
        assay_relation_score(&best, out, pair);
    }
    *rel = best;
}
