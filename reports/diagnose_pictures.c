#include "reports/diagnose_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/series.h"

enum { SCATTER = 1500, TOKENS = 128, BLOCKS = 32, LIKENESS = 16, EXPERTS = 512 };

typedef struct value {
    const assay_judged *judged;
    const double *got, *expected; /* [rows, blocks, width] */
    int64_t rows, blocks, width;
    const char *block_name;
} value;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Largest number of equal blocks up to `most`. */
static int64_t divisor(int64_t n, int64_t most)
{
    for (int64_t d = least(n, most); d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

static assay_status read_value(value *v, assay_forced *forced, int index)
{
    const assay_judged *j = assay_forced_at(forced, index);
    const char *axes = assay_point_at(j->point)->axes;
    *v = (value){.judged = j, .rows = j->n_rows, .block_name = "head"};
    ASSAY_TRY(assay_forced_values(&v->got, &v->expected, forced, index));
    bool has_heads = axes[0] == 'T' && axes[1] == 'H' && j->seen->n_dims == 3;
    v->blocks = has_heads ? j->seen->dims[1] : 1;
    if (v->blocks < 2 || j->n_cols % v->blocks) {
        v->blocks = divisor(j->n_cols, BLOCKS);
        v->block_name = "block of channels";
    }
    v->width = v->blocks ? j->n_cols / v->blocks : 0;
    return ASSAY_OK;
}

static double relative_error(const double *got, const double *expected, int64_t n)
{
    double dd = 0, ee = 0;
    for (int64_t i = 0; i < n; i++) {
        dd += (got[i] - expected[i]) * (got[i] - expected[i]);
        ee += expected[i] * expected[i];
    }
    if (isnan(dd) || isnan(ee))
        return INFINITY;
    return ee > 0 ? sqrt(dd / ee) : dd > 0 ? INFINITY : 0;
}

static assay_status add_error_map(assay_result *result, int finding, const value *v)
{
    char title[160], name[ASSAY_POINT_NAME_BYTES], tokens[40] = "token";
    int64_t stride = (v->rows + TOKENS - 1) / TOKENS, n = v->rows / stride;
    double *map;
    ASSAY_TRY(assay_alloc(&map, (size_t)(n * v->blocks), sizeof *map, "map"));
    for (int64_t b = 0; b < v->blocks; b++)
        for (int64_t t = 0; t < n; t++) {
            int64_t at = (t * stride * v->blocks + b) * v->width;
            map[b * n + t] = relative_error(v->got + at, v->expected + at, v->width);
        }
    snprintf(title, sizeof title, "Relative error at %s, by %s and token",
             assay_point_format(name, v->judged->point, v->judged->layer), v->block_name);
    if (stride > 1)
        snprintf(tokens, sizeof tokens, "token / %lld", (long long)stride);
    assay_series_map entry = {.title = title,
                              .x = tokens,
                              .y = v->block_name,
                              .unit = "relative error",
                              .finding = finding,
                              .n_x = (int)n,
                              .n_y = (int)v->blocks,
                              .values = map};
    assay_status s = assay_series_add_map(result, &entry);
    free(map);
    return s;
}

static assay_status add_scatter(assay_result *result, int finding, const value *v)
{
    double expected[SCATTER], got[SCATTER];
    char title[160], name[ASSAY_POINT_NAME_BYTES];
    int64_t n = v->rows * v->blocks * v->width, kept = least(n, SCATTER);
    for (int64_t i = 0; i < kept; i++) { /* evenly spread, the same ones each time */
        int64_t at = (int64_t)((double)i * (double)n / (double)kept);
        expected[i] = v->expected[at];
        got[i] = v->got[at];
    }
    snprintf(title, sizeof title, "Candidate against expected at %s, %lld of %lld elements",
             assay_point_format(name, v->judged->point, v->judged->layer), (long long)kept,
             (long long)n);
    return assay_series_scatter(result, title, finding, expected, got, kept);
}

/* Cosine of block i of got with block j of expected, over all rows. */
static double likeness(const value *v, int64_t blocks, int64_t i, int64_t j)
{
    int64_t cols = v->blocks * v->width, width = cols / blocks;
    double gg = 0, ee = 0, ge = 0;
    for (int64_t r = 0; r < v->rows; r++) {
        const double *g = v->got + r * cols + i * width, *e = v->expected + r * cols + j * width;
        for (int64_t c = 0; c < width; c++) {
            gg += g[c] * g[c];
            ee += e[c] * e[c];
            ge += g[c] * e[c];
        }
    }
    return gg > 0 && ee > 0 ? ge / sqrt(gg * ee) : 0;
}

static assay_status add_likeness(assay_result *result, int finding, const value *v)
{
    int64_t blocks =
        !strcmp(v->block_name, "head") ? v->blocks : divisor(v->blocks * v->width, LIKENESS);
    char title[160], name[ASSAY_POINT_NAME_BYTES];
    /* Where the error is small the diagonal says nothing; one block has no order; zero has none. */
    if (blocks < 2 || blocks > 2 * BLOCKS || !(v->judged->rel > 0.1) || v->judged->gain == 0)
        return ASSAY_OK;
    double *map;
    ASSAY_TRY(assay_alloc(&map, (size_t)(blocks * blocks), sizeof *map, "map"));
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t j = 0; j < blocks; j++)
            map[i * blocks + j] = likeness(v, blocks, i, j);
    snprintf(title, sizeof title,
             "Likeness of blocks at %s: a permutation is a line off the diagonal",
             assay_point_format(name, v->judged->point, v->judged->layer));
    assay_series_map entry = {.title = title,
                              .x = "expected block",
                              .y = "candidate's block",
                              .unit = "cosine",
                              .finding = finding,
                              .n_x = (int)blocks,
                              .n_y = (int)blocks,
                              .values = map};
    assay_status s = assay_series_add_map(result, &entry);
    free(map);
    return s;
}

/* The other part of the fused first projection, judged in the same step; -1: none. */
static int fused_partner(const assay_forced *forced, int index)
{
    const assay_judged *j = assay_forced_at(forced, index);
    assay_point wanted = j->point == ASSAY_POINT_Q_A    ? ASSAY_POINT_KV_A
                         : j->point == ASSAY_POINT_KV_A ? ASSAY_POINT_Q_A
                                                        : j->point;
    for (int i = 0; i < assay_forced_n(forced) && wanted != j->point; i++) {
        const assay_judged *k = assay_forced_at(forced, i);
        if (k->point == wanted && k->layer == j->layer && k->step == j->step &&
            k->prompt == j->prompt && k->n_rows == j->n_rows)
            return i;
    }
    return -1;
}

/* Copies one part into the rows of the fused value. */
static assay_status copy_part(double *got, double *expected, int64_t at, int64_t cols,
                              assay_forced *forced, int index)
{
    const double *g, *e;
    const assay_judged *j = assay_forced_at(forced, index);
    ASSAY_TRY(assay_forced_values(&g, &e, forced, index));
    for (int64_t r = 0; r < j->n_rows; r++) {
        memcpy(got + r * cols + at, g + r * j->n_cols, (size_t)j->n_cols * sizeof *got);
        memcpy(expected + r * cols + at, e + r * j->n_cols, (size_t)j->n_cols * sizeof *got);
    }
    return ASSAY_OK;
}

/* Blocks whose borders are borders of the parts, too: a part in another place is a line then. */
static int64_t blocks_of_parts(int64_t first, int64_t second)
{
    int64_t a = first, b = second;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    int64_t n = a > 0 ? (first + second) / a : 1;
    return n <= 2 * BLOCKS ? n : divisor(first + second, BLOCKS);
}

/* q_a and kv_a side by side, as the fused projection writes them: exchanged parts then show as two
 * lines off the diagonal. */
static assay_status add_fused_likeness(assay_result *result, int finding, assay_forced *forced,
                                       int index, int partner)
{
    const assay_judged *j = assay_forced_at(forced, index);
    bool is_first = j->point == ASSAY_POINT_Q_A;
    int q = is_first ? index : partner, kv = is_first ? partner : index;
    int64_t n_q = assay_forced_at(forced, q)->n_cols,
            cols = n_q + assay_forced_at(forced, kv)->n_cols;
    double *got, *map = NULL;
    int64_t blocks = blocks_of_parts(n_q, cols - n_q);
    ASSAY_TRY(assay_alloc(&got, (size_t)(2 * j->n_rows * cols), sizeof *got, "fused value"));
    value v = {.judged = j,
               .got = got,
               .expected = got + j->n_rows * cols,
               .rows = j->n_rows,
               .blocks = 1,
               .width = cols};
    char title[200];
    snprintf(title, sizeof title,
             "Likeness of blocks of the fused projection of layer %d (q_a, then kv_a): parts in "
             "another order are lines off the diagonal",
             j->layer);
    assay_status s = copy_part(got, got + j->n_rows * cols, 0, cols, forced, q);
    if (s == ASSAY_OK)
        s = copy_part(got, got + j->n_rows * cols, n_q, cols, forced, kv);
    if (s == ASSAY_OK && blocks > 1)
        s = assay_alloc(&map, (size_t)(blocks * blocks), sizeof *map, "map");
    for (int64_t i = 0; map && i < blocks * blocks; i++)
        map[i] = likeness(&v, blocks, i / blocks, i % blocks);
    assay_series_map entry = {.title = title,
                              .x = "expected block",
                              .y = "candidate's block",
                              .unit = "cosine",
                              .finding = finding,
                              .n_x = (int)blocks,
                              .n_y = (int)blocks,
                              .values = map};
    if (map)
        s = assay_series_add_map(result, &entry);
    free(map);
    free(got);
    return s;
}

assay_status assay_diagnosis_pictures(assay_result *result, int finding, assay_forced *forced,
                                      int index)
{
    value v;
    bool by_rank;
    if (assay_forced_at(forced, index)->is_ids)
        return ASSAY_OK;
    int partner = fused_partner(forced, index);
    ASSAY_TRY(read_value(&v, forced, index));
    if (!v.rows || !v.width)
        return ASSAY_OK;
    ASSAY_TRY(add_error_map(result, finding, &v));
    ASSAY_TRY(assay_rank_picture(&by_rank, result, finding, forced, index));
    ASSAY_TRY(read_value(&v, forced, index));
    ASSAY_TRY(add_scatter(result, finding, &v));
    if (partner >= 0 && v.judged->rel > 0.1)
        return add_fused_likeness(result, finding, forced, index, partner);
    return by_rank ? ASSAY_OK : add_likeness(result, finding, &v);
}

typedef struct load {
    int n_layers, n_experts;
    double *counts; /* [n_layers, EXPERTS] */
} load;

static assay_status count_ids(load *l, const assay_run *run, const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    double *ids;
    if (seen->layer < 0 || seen->layer >= EXPERTS)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&ids, (size_t)n, sizeof *ids, "expert ids"));
    assay_status s = assay_run_read(ids, run, seen);
    for (int64_t i = 0; i < n && s == ASSAY_OK; i++)
        if (ids[i] >= 0 && ids[i] < EXPERTS) {
            l->counts[seen->layer * EXPERTS + (int)ids[i]]++;
            l->n_experts = ids[i] >= l->n_experts ? (int)ids[i] + 1 : l->n_experts;
            l->n_layers = seen->layer >= l->n_layers ? seen->layer + 1 : l->n_layers;
        }
    free(ids);
    return s;
}

static assay_status count_run(load *l, const assay_run *run)
{
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int s = 0; s < assay_run_prompt_at(run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(run, p, s); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, s, i);
                if (seen->point == ASSAY_POINT_MOE_TOPK && seen->has_values && seen->rank < 0 &&
                    !seen->hand_over)
                    ASSAY_TRY(count_ids(l, run, seen));
            }
    return ASSAY_OK;
}

assay_status assay_series_expert_load(assay_result *result, const assay_run *run)
{
    load l = {0};
    ASSAY_TRY(assay_alloc(&l.counts, (size_t)EXPERTS * EXPERTS, sizeof *l.counts, "expert load"));
    assay_status s = count_run(&l, run);
    if (s == ASSAY_OK && l.n_layers) {
        for (int layer = 0; layer < l.n_layers; layer++)
            memmove(l.counts + (size_t)layer * (size_t)l.n_experts,
                    l.counts + (size_t)layer * EXPERTS, (size_t)l.n_experts * sizeof *l.counts);
        assay_series_map entry = {.title = "Expert load: tokens that each expert got",
                                  .x = "expert",
                                  .y = "layer",
                                  .unit = "tokens",
                                  .finding = -1,
                                  .n_x = l.n_experts,
                                  .n_y = l.n_layers,
                                  .values = l.counts};
        s = assay_series_add_map(result, &entry);
    }
    free(l.counts);
    return s;
}
