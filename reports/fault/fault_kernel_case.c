/*
 * KERNEL-CASE: another activation; or rows and channels that are right up to a tile border and
 * wrong behind it, whatever the value there is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home_blocks.h"
#include "reports/home_experts.h"

const assay_fault_kind assay_fault_kinds_kernel_case[] = {
    {.name = "activation",
     .about = "gelu for silu",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ACTIVATION_GELU,
     .value = 1,
     .home = "ffn.act moe.shared.act moe.expert.act"},
    {.name = "tile-rest",
     .about = "the output projection uses half of the inputs in an incomplete tile of rows",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_TILE_REST,
     .value = 8,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "tile-rest-shared",
     .about = "the shared expert's up projection does",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_TILE_REST,
     .value = 16,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_UP_SHEXP},
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.shared.up"},
    {0}};

/* True when everything before `border` along the axis is right and what is behind is not. */
static assay_status try_border(assay_home *home, bool rows, int64_t border)
{
    const assay_judged *j = home->judged;
    char text[320];
    int64_t n = rows ? j->n_rows : j->n_cols;
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t i = 0; i < home->n; i++)
        if ((rows ? i / j->n_cols : i % j->n_cols) >= border)
            home->scratch[i] = home->got[i];
    snprintf(text, sizeof text,
             "%s 0 ... %lld are right, those from the tile border %lld to %lld "
             "are wrong; nothing else explains them",
             rows ? "rows" : "channels", (long long)border - 1, (long long)border,
             (long long)n - 1);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = "wrong behind a tile border",
                            .complexity = 6,
                            .shape_only = true,
                            .fitted = json_pack("{s:s, s:I}", "axis", rows ? "rows" : "channels",
                                                "border", (json_int_t)border),
                            .evidence = text});
}

/* First row or channel whose error stands out. */
static int64_t first_wrong(const assay_home *home, bool rows)
{
    const assay_judged *j = home->judged;
    int64_t n = rows ? j->n_rows : j->n_cols;
    for (int64_t k = 0; k < n; k++) {
        double error = 0, size = 0;
        for (int64_t i = 0; i < (rows ? j->n_cols : j->n_rows); i++) {
            int64_t at = rows ? k * j->n_cols + i : i * j->n_cols + k;
            double d = home->got[at] - home->expected[at];
            error += isfinite(d) ? d * d : INFINITY;
            size += home->expected[at] * home->expected[at];
        }
        if (error > 36 * j->floor_row_median * j->floor_row_median * size)
            return k;
    }
    return n;
}

static const char *const activations[ASSAY_N_ACTS] = {[ASSAY_ACT_GELU_TANH] = "gelu (tanh form)",
                                                      [ASSAY_ACT_GELU_ERF] = "gelu (exact)",
                                                      [ASSAY_ACT_QUICK_GELU] = "x sigmoid(1.702 x)",
                                                      [ASSAY_ACT_RELU] = "relu",
                                                      [ASSAY_ACT_RELU_SQUARED] = "relu squared",
                                                      [ASSAY_ACT_SIGMOID] = "sigmoid",
                                                      [ASSAY_ACT_TANH] = "tanh",
                                                      [ASSAY_ACT_IDENTITY] = "no function at all"};

static assay_status try_activations(assay_home *home)
{
    char text[320];
    assay_knobs alone = *home->knobs;
    alone.up_left_out = true;
    ASSAY_TRY(assay_home_offer_variant(
        home, &alone,
        &(assay_offer_text){.kind = "product with up left out",
                            .complexity = 0.2,
                            .evidence = "silu(gate) alone, not times up, gives the value"}));
    for (int i = 0; i < ASSAY_N_ACTS; i++) {
        assay_knobs knobs = *home->knobs;
        if (!activations[i])
            continue;
        knobs.activation = (assay_activation)i;
        snprintf(text, sizeof text, "%s for silu gives the value", activations[i]);
        assay_offer_text offered = {.kind = i == ASSAY_ACT_IDENTITY ? "activation left out"
                                                                    : "another activation",
                                    .complexity = 0.2,
                                    .fitted = json_pack("{s:s}", "activation", activations[i]),
                                    .evidence = text};
        ASSAY_TRY(assay_home_offer_variant(home, &knobs, &offered));
        if (!assay_home_whole(home))
            ASSAY_TRY(assay_home_offer_in_experts(home, &knobs, &offered));
    }
    return ASSAY_OK;
}

/* Rows of an incomplete last tile computed from half of the inputs. Tiles that leave the same rest
 * are told apart only by other steps. */
static assay_status try_tiles(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    int64_t last = -1;
    if (!assay_home_multiplies(home) || j->first_row > 0)
        return ASSAY_OK;
    for (int tile = 128; tile >= 4; tile /= 2) {
        assay_knobs knobs = *home->knobs;
        int64_t rest = j->n_rows % tile;
        if (rest == 0 || rest == last || tile > j->n_rows)
            continue;
        last = rest;
        knobs.tile_rest = tile;
        snprintf(text, sizeof text,
                 "the last %lld rows, an incomplete tile of %d, use the first half of the inputs "
                 "only",
                 (long long)rest, tile);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "wrong in an incomplete tile",
                                .complexity = 0.6,
                                .fitted = json_pack("{s:i}", "rows", (int)rest),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_kernel_case(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_covers(home, ASSAY_POINT_FFN_ACT) ||
        assay_home_covers(home, ASSAY_POINT_SHARED_ACT) ||
        assay_home_covers(home, ASSAY_POINT_MOE_EXPERT_ACT))
        ASSAY_TRY(try_activations(home));
    if (assay_home_settled(home))
        return ASSAY_OK;
    ASSAY_TRY(try_tiles(home));
    if (assay_home_settled(home))
        return ASSAY_OK;
    if (!assay_home_best(home))
        ASSAY_TRY(assay_home_try_left_out(home));
    int64_t row = first_wrong(home, true), column = first_wrong(home, false);
    if (row >= 16 && row % 16 == 0 && row < j->n_rows)
        ASSAY_TRY(try_border(home, true, row));
    if (column >= 16 && column % 16 == 0 && column < j->n_cols)
        ASSAY_TRY(try_border(home, false, column));
    return ASSAY_OK;
}
