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
        ASSAY_TRY(offer(home, &knobs, "key heads by modulo for division",
                        "query head h with key head h mod G for h / (H / G) gives the value"));
    }
    return assay_home_settled(home) ? ASSAY_OK : try_rows(home);
}
