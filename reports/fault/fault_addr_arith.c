/*
 * ADDR-ARITH: a tensor or weight read with the strides of its transpose; query heads that take the
 * wrong key head by a modulo for a division.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_addr_arith[] = {
    {.name = "weight-transposed",
     .about = "the output projection read with the other stride",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "weight-reversed",
     .about = "the rows of the output projection from last to first",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 4,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "kv-b-transposed",
     .about = "the key half of kv_b read as its transpose",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_B_VIEW,
     .value = 2,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.kv_b attn.q_latent"},
    {.name = "kv-heads-modulo",
     .about = "key heads by modulo for division",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_HEAD_MAP,
     .value = 1,
     .needs = ASSAY_NEEDS_GQA,
     .home = "attn.probs attn.kernel_out attn.lse"},
    {0}};

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          const char *evidence)
{
    return assay_home_offer_variant(
        home, knobs, &(assay_offer_text){.kind = kind, .complexity = 0.4, .evidence = evidence});
}

/* Rows that are other rows of the same result: a row index off. Of cached tensors KV-ADDR speaks,
 * of the embedding VOCAB. */
static assay_status try_rows(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2};
    static const assay_point other[] = {
        ASSAY_POINT_EMBED,     ASSAY_POINT_K,    ASSAY_POINT_V,       ASSAY_POINT_K_ROPE,
        ASSAY_POINT_KV_LATENT, ASSAY_POINT_KV_B, ASSAY_POINT_INDEX_K, ASSAY_POINT_PROBS};
    int64_t rows = home->pair.rows, cols = home->pair.cols;
    double *moved;
    char text[320];
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (home->judged->point == other[i])
            return ASSAY_OK;
    if (rows < 4 || cols < 8)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&moved, (size_t)home->n, sizeof *moved, "rows of another place"));
    assay_status s = ASSAY_OK;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts && s == ASSAY_OK; i++) {
        for (int64_t r = 0; r < rows; r++) {
            int64_t from = r - shifts[i];
            bool inside = from >= 0 && from < rows;
            memcpy(moved + r * cols, home->expected + (inside ? from : r) * cols,
                   (size_t)cols * sizeof *moved);
        }
        snprintf(text, sizeof text, "row t holds what row t%+d should hold", -shifts[i]);
        assay_offer_text offered = {.kind = "rows of another place",
                                    .complexity = 0.6,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text};
        s = assay_home_offer_partly(home, moved, home->scratch, &offered);
        json_decref(offered.fitted);
    }
    free(moved);
    return s;
}

typedef enum { HEADS_CHANNELS, TOKENS_HEADS, DENSE_ROWS, N_READINGS } reading;

/* The memory of x [T, width], read otherwise. */
static void read_otherwise(double *out, const double *x, int64_t T, int64_t width, int64_t heads,
                           int64_t part, reading how)
{
    int64_t w = width / heads;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < width; i++) {
            int64_t h = i / w, c = i % w, flat = t * width + i;
            if (how == HEADS_CHANNELS) /* [width, heads] for [heads, width] */
                out[flat] = x[t * width + i % heads * w + i / heads];
            else if (how == TOKENS_HEADS) /* [heads, tokens] for [tokens, heads] */
                out[flat] = x[((t * heads + h) % T * heads + (t * heads + h) / T) * w + c];
            else /* rows of the first part lie as if nothing stood between them */
                out[flat] = i < part ? x[t * part + i] : x[flat];
        }
}

/* The op on its input read with other strides, where that input is the only one. */
static assay_status try_input(assay_home *home, assay_point input, int64_t heads, int64_t part,
                              reading how)
{
    static const char *const kinds[N_READINGS] = {"heads and channels transposed",
                                                  "tokens and heads transposed",
                                                  "rows of a view taken for dense"};
    static const char *const evidence[N_READINGS] = {
        "the op on its input read as [width, heads] for [heads, width] gives the value",
        "the op on its input read as [heads, tokens] for [tokens, heads] gives the value",
        "the op on its input read as if the rows of its part lay behind each other gives the "
        "value"};
    const assay_judged *j = home->judged;
    double *x, *moved;
    int64_t n;
    if (j->n_rows < 2 && how != HEADS_CHANNELS)
        return ASSAY_OK;
    if (assay_home_value(&x, &n, home, input, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = assay_alloc(&moved, (size_t)n, sizeof *moved, "another reading");
    if (s == ASSAY_OK) {
        read_otherwise(moved, x, j->n_rows, n / j->n_rows, heads, part, how);
        s = assay_home_expect_from(home->scratch, home, input, moved, n);
        free(moved);
    }
    free(x);
    if (s == ASSAY_OK)
        return assay_home_offer(
            home, home->scratch,
            &(assay_offer_text){.kind = kinds[how], .complexity = 0.4, .evidence = evidence[how]});
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

static assay_status try_inputs(assay_home *home)
{
    const assay_oracle_shape *shape = home->shape;
    if (assay_home_is(home, ASSAY_POINT_PROJ)) {
        ASSAY_TRY(try_input(home, ASSAY_POINT_OUT_ATTN, shape->n_head, 0, HEADS_CHANNELS));
        ASSAY_TRY(try_input(home, ASSAY_POINT_OUT_ATTN, shape->n_head, 0, TOKENS_HEADS));
    }
    if (assay_home_is(home, ASSAY_POINT_KV_LATENT))
        ASSAY_TRY(try_input(home, ASSAY_POINT_KV_A, 1, shape->n_rank_kv, DENSE_ROWS));
    return ASSAY_OK;
}

assay_status assay_fault_match_addr_arith(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_knobs knobs = *home->knobs;
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (j->n_groups > 1) {
        assay_relation_transposed(&home->rel, home->scratch, &home->pair, j->n_groups,
                                  j->n_cols / j->n_groups);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "heads and channels transposed",
                                      .evidence = "each row is the expected one read as [width, "
                                                  "heads] for [heads, width]"}));
    }
    if (assay_home_multiplies(home)) {
        knobs.weight_view = ASSAY_WEIGHT_TRANSPOSED;
        ASSAY_TRY(offer(home, &knobs, "weight read with the other stride",
                        "the weight's memory read with the strides of its transpose gives the "
                        "value"));
        knobs.weight_view = ASSAY_WEIGHT_ROWS_REVERSED;
        ASSAY_TRY(offer(home, &knobs, "weight rows reversed",
                        "the weight's rows from last to first give the value"));
    }
    if (home->shape->is_mla &&
        (assay_home_covers(home, ASSAY_POINT_KV_B) || assay_home_covers(home, ASSAY_POINT_K) ||
         assay_home_covers(home, ASSAY_POINT_V) || assay_home_covers(home, ASSAY_POINT_Q_LATENT) ||
         assay_home_covers(home, ASSAY_POINT_KERNEL_OUT))) {
        knobs = *home->knobs;
        knobs.kv_b = ASSAY_KV_B_KEY_TRANSPOSED;
        ASSAY_TRY(offer(home, &knobs, "key half of kv_b transposed",
                        "the memory of kv_b's key half read as its transpose gives the value"));
        knobs.kv_b = ASSAY_KV_B_KEY_RESTRIDED;
        ASSAY_TRY(offer(home, &knobs, "key half of kv_b transposed",
                        "kv_b's key half, put together and read with the strides of its "
                        "transpose, gives the value"));
        knobs.kv_b = ASSAY_KV_B_VALUE_TRANSPOSED;
        ASSAY_TRY(offer(home, &knobs, "value half of kv_b transposed",
                        "the memory of kv_b's value half read as its transpose gives the value"));
    }
    if (!home->shape->is_mla && assay_home_attends(home)) {
        knobs = *home->knobs;
        knobs.kv_heads_modulo = true;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "key heads by modulo for division",
                                .family = "attention",
                                .complexity = 0.4,
                                .evidence = "query head h with key head h mod G for h / (H / G) "
                                            "gives the value"}));
    }
    if (assay_home_settled(home))
        return ASSAY_OK;
    ASSAY_TRY(try_inputs(home));
    return try_rows(home);
}
