/*
 * Blocks of weights whose scales follow from the weights themselves, and orders of columns: what an
 * engine that packs and quantizes at load time may get wrong, without a scale in the file.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_blocks.h"

#define GRAIN 16 /* inputs: blocks are multiples of it */
#define SAMPLE_ROWS 8
#define SAMPLE_CHANNELS 48

typedef enum { NEXT_BLOCK, BLOCK_BEFORE, NEXT_ROW, ROW_BEFORE, N_WAYS, EXPONENT = N_WAYS } rule;

typedef struct scales {
    assay_home_product p;
    int64_t row_step, channel_step, n_channels; /* of the sample */
    double *grains;                             /* [cols, width / GRAIN]: largest weights */
    double *parts;       /* [sampled channels, rows, width / GRAIN]: what each adds */
    double *sizes;       /* [tiles, blocks]: largest weights under one scale */
    double *room;        /* [rows] */
    int64_t rows, block; /* of weights under one scale */
    int64_t tiles, blocks;
    rule how;
    double largest; /* EXPONENT: of the format */
} scales;

/* What the fault multiplies the tile's weights with. */
static double factor_of(const scales *s, int64_t tile, int64_t block)
{
    double own = s->sizes[tile * s->blocks + block];
    if (!(own > 0))
        return 1;
    if (s->how == EXPONENT) {
        double scale = own / s->largest;
        return exp2(floor(log2(scale))) / scale;
    }
    int64_t step = s->how == NEXT_BLOCK || s->how == NEXT_ROW ? 1 : -1;
    if (s->how <= BLOCK_BEFORE)
        block = (block + step + s->blocks) % s->blocks;
    else
        tile = (tile + step + s->tiles) % s->tiles;
    return s->sizes[tile * s->blocks + block] / own;
}

static double part_of(const scales *s, int64_t channel, int64_t row, int64_t first, int64_t n)
{
    const double *x = s->p.x + row * s->p.width + first, *w = s->p.w + channel * s->p.width + first;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * w[i];
    return sum;
}

static void survey(scales *s)
{
    int64_t n = s->p.width / GRAIN;
    for (int64_t c = 0; c < s->p.cols; c++)
        for (int64_t g = 0; g < n; g++) {
            double most = 0;
            for (int64_t i = g * GRAIN; i < (g + 1) * GRAIN; i++)
                most = fmax(most, fabs(s->p.w[c * s->p.width + i]));
            s->grains[c * n + g] = most;
        }
    for (int64_t k = 0; k < s->n_channels; k++)
        for (int64_t t = 0; t < s->p.rows; t += s->row_step)
            for (int64_t g = 0; g < n; g++)
                s->parts[(k * s->p.rows + t) * n + g] =
                    part_of(s, k * s->channel_step, t, g * GRAIN, GRAIN);
}

static void cut(scales *s, int64_t rows, int64_t block)
{
    int64_t n = s->p.width / GRAIN, each = block / GRAIN;
    s->rows = rows;
    s->block = block;
    s->tiles = (s->p.cols + rows - 1) / rows;
    s->blocks = s->p.width / block;
    for (int64_t i = 0; i < s->tiles * s->blocks; i++)
        s->sizes[i] = 0;
    for (int64_t c = 0; c < s->p.cols; c++)
        for (int64_t g = 0; g < n; g++) {
            double *size = &s->sizes[c / rows * s->blocks + g / each];
            *size = fmax(*size, s->grains[c * n + g]);
        }
}

/* Share of the error that the rule removes, of the sample. */
static double sampled(const scales *s, const assay_home *home)
{
    int64_t n = s->p.width / GRAIN, each = s->block / GRAIN;
    double rest = 0, error = 0;
    for (int64_t k = 0; k < s->n_channels; k++) {
        int64_t c = k * s->channel_step;
        for (int64_t t = 0; t < s->p.rows; t += s->row_step)
            s->room[t] = 0;
        for (int64_t b = 0; b < s->blocks; b++) {
            double factor = factor_of(s, c / s->rows, b);
            for (int64_t t = 0; t < s->p.rows; t += s->row_step)
                for (int64_t g = b * each; g < (b + 1) * each; g++)
                    s->room[t] += factor * s->parts[(k * s->p.rows + t) * n + g];
        }
        for (int64_t t = 0; t < s->p.rows; t += s->row_step) {
            double got = home->got[t * s->p.cols + c], due = home->expected[t * s->p.cols + c];
            rest += (got - s->room[t]) * (got - s->room[t]);
            error += (got - due) * (got - due);
        }
    }
    return error > 0 ? 1 - rest / error : 0;
}

static assay_status offer_scales(assay_home *home, const scales *s, const char *kind,
                                 const char *evidence)
{
    for (int64_t c = 0; c < s->p.cols; c++)
        for (int64_t t = 0; t < s->p.rows; t++) {
            double sum = 0;
            for (int64_t b = 0; b < s->blocks; b++)
                sum += factor_of(s, c / s->rows, b) * part_of(s, c, t, b * s->block, s->block);
            home->scratch[t * s->p.cols + c] = sum;
        }
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = kind,
                            .complexity = 0.6,
                            .fitted = json_pack("{s:I, s:I}", "rows", (json_int_t)s->rows, "inputs",
                                                (json_int_t)s->block),
                            .evidence = evidence});
}

static assay_status try_rule(assay_home *home, const scales *s)
{
    static const char *const whose[N_WAYS] = {"of the next block", "of the block before",
                                              "of the same block in the next row",
                                              "of the same block in the row before"};
    char text[320];
    if (assay_home_settled(home) || !(sampled(s, home) > 0.98))
        return ASSAY_OK;
    if (s->how == EXPONENT) {
        snprintf(text, sizeof text,
                 "blocks of %lld x %lld weights, each times the power of two below its scale over "
                 "that scale (largest weight / %g), give the value",
                 (long long)s->rows, (long long)s->block, s->largest);
        return offer_scales(home, s, "mantissa of the scales dropped", text);
    }
    snprintf(text, sizeof text,
             "blocks of %lld x %lld weights, each with the scale %s (scales from the largest "
             "weight of a block), give the value",
             (long long)s->rows, (long long)s->block, whose[s->how]);
    return offer_scales(home, s, "scale of a neighbouring block of weights", text);
}

static assay_status try_cuts(assay_home *home, scales *s, bool exponent)
{
    static const int64_t blocks[] = {32, 128, 64, 16, 256}, rows[] = {1, 128, 64, 32};
    /* largest codes: 8-bit floats, 8- and 4-bit integers, 4-bit floats; a power of two */
    static const double largest[] = {448, 240, 127, 7, 6, 1};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            if (s->p.width % blocks[b] || rows[r] > s->p.cols ||
                (blocks[b] == s->p.width && rows[r] == s->p.cols))
                continue;
            cut(s, rows[r], blocks[b]);
            for (int way = 0; !exponent && way < N_WAYS; way++) {
                s->how = (rule)way;
                ASSAY_TRY(try_rule(home, s));
            }
            s->how = EXPONENT;
            for (size_t k = 0; exponent && k < sizeof largest / sizeof *largest; k++) {
                s->largest = largest[k];
                ASSAY_TRY(try_rule(home, s));
            }
        }
    return ASSAY_OK;
}

static assay_status try_scales(assay_home *home, bool exponent)
{
    scales of = {0};
    assay_status s = ASSAY_OK;
    if (home->judged->n_nonfinite > 0 || home->judged->layer < 0 || home->pair.sketch)
        return ASSAY_OK;
    ASSAY_TRY(assay_home_find_product(&of.p, home));
    if (!of.p.x || of.p.width % GRAIN)
        goto out;
    int64_t n = of.p.width / GRAIN;
    of.row_step = 1 + (of.p.rows - 1) / SAMPLE_ROWS;
    of.channel_step = 1 + (of.p.cols - 1) / SAMPLE_CHANNELS;
    of.n_channels = 1 + (of.p.cols - 1) / of.channel_step;
    ASSAY_GO(assay_alloc(&of.grains,
                         (size_t)((2 * of.p.cols + of.n_channels * of.p.rows) * n + of.p.rows),
                         sizeof *of.grains, "sizes of blocks"));
    of.sizes = of.grains + of.p.cols * n;
    of.parts = of.sizes + of.p.cols * n;
    of.room = of.parts + of.n_channels * of.p.rows * n;
    survey(&of);
    s = try_cuts(home, &of, exponent);
out:
    free(of.grains);
    free(of.p.x);
    return s;
}

assay_status assay_home_try_neighbour_scales(assay_home *home)
{
    return try_scales(home, false);
}

assay_status assay_home_try_scale_exponents(assay_home *home)
{
    return try_scales(home, true);
}

/* ---- orders of columns ---- */

static const struct {
    int n;        /* columns that change places among themselves */
    int order[8]; /* of n_order equal parts of them */
    int n_order;
    const char *evidence;
} orders[] = {
    {2, {1, 0}, 2, "columns 2i and 2i + 1 of the weight exchanged give the value"},
    {16, {1, 0}, 2, "halves of every 16 columns of the weight exchanged give the value"},
    {32, {1, 0}, 2, "halves of every 32 columns of the weight exchanged give the value"},
    {64, {1, 0}, 2, "halves of every 64 columns of the weight exchanged give the value"},
    {128, {1, 0}, 2, "halves of every 128 columns of the weight exchanged give the value"},
    {8,
     {0, 2, 4, 6, 1, 3, 5, 7},
     8,
     "every 8 columns of the weight in the order 0 2 4 6 1 3 5 7 give the value"},
    {8,
     {0, 4, 1, 5, 2, 6, 3, 7},
     8,
     "every 8 columns of the weight in the order 0 4 1 5 2 6 3 7 give the value"},
};

assay_status assay_home_try_columns(assay_home *home)
{
    assay_home_product p;
    double *x = NULL;
    if (home->judged->n_nonfinite > 0 || home->judged->layer < 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_home_find_product(&p, home));
    if (!p.x)
        return ASSAY_OK;
    int64_t n = p.rows * p.width;
    assay_status s = assay_alloc(&x, (size_t)n, sizeof *x, "inputs in another order");
    for (size_t k = 0; k < sizeof orders / sizeof *orders && s == ASSAY_OK; k++) {
        int64_t all = orders[k].n, each = all / orders[k].n_order;
        if (p.width % all || assay_home_settled(home))
            continue;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = i % all;
            x[i] = p.x[i - at + orders[k].order[at / each] * each + at % each];
        }
        s = assay_home_expect_from(home->scratch, home, p.input, x, n);
        if (s == ASSAY_OK)
            s = assay_home_offer(home, home->scratch,
                                 &(assay_offer_text){.kind = "columns of the weight exchanged",
                                                     .complexity = 0.4,
                                                     .evidence = orders[k].evidence});
    }
    free(x);
    free(p.x);
    return s == ASSAY_MISSING || s == ASSAY_BAD_SHAPE ? ASSAY_OK : s;
}
