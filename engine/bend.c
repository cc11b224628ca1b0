/*
 * The parameters of every op: the right ones by the model, each asked of its seam.
 */
#include <math.h>
#include <string.h>

#include "engine/forward.h"

double assay_bent(const assay_engine *e, assay_seam seam, int layer, double right)
{
    return assay_seam_value(e->options.seams, seam, assay_place_of(e, layer), right);
}

const assay_seam_setting *assay_bent_of(const assay_engine *e, assay_seam seam, int layer,
                                        int which)
{
    return assay_seam_of(e->options.seams, seam, assay_place_of(e, layer), which);
}

double assay_bent_value_of(const assay_engine *e, assay_seam seam, int layer, int which,
                           double right)
{
    const assay_seam_setting *s = assay_bent_of(e, seam, layer, which);
    return s ? s->value : right;
}

assay_norm assay_norm_of(const assay_engine *e, int layer, int which)
{
    const assay_hparams *hp = e->hp;
    const double eps[] = {hp->eps_norm, hp->eps_q_a,  hp->eps_kv_a,
                          hp->eps_norm, hp->eps_norm, hp->eps_index};
    return (assay_norm){
        .eps = assay_bent_value_of(e, ASSAY_SEAM_NORM_EPS, layer, which, eps[which]),
        .weight_offset = assay_bent_value_of(e, ASSAY_SEAM_NORM_WEIGHT_OFFSET, layer, which, 0),
        .is_left_out = assay_bent_value_of(e, ASSAY_SEAM_NORM_LEFT_OUT, layer, which, 0) != 0,
        .sums = assay_bent_value_of(e, ASSAY_SEAM_NORM_SUM, layer, which, 0) != 0,
        .no_weight = assay_bent_value_of(e, ASSAY_SEAM_NORM_NO_WEIGHT, layer, which, 0) != 0};
}

/* Rotations of the main attention are meant where a setting counts none; the indexer's only by
 * number. */
static double turn_value(const assay_engine *e, assay_seam seam, int layer, int which, double right)
{
    const assay_seam_setting *s = assay_bent_of(e, seam, layer, which);
    bool index = which == ASSAY_TURN_INDEX_Q || which == ASSAY_TURN_INDEX_K;
    return s && !(index && s->n_ints == 0) ? s->value : right;
}

assay_rotary assay_rotary_of(const assay_engine *e, int layer, int which)
{
    const assay_hparams *hp = e->hp;
    bool index = which == ASSAY_TURN_INDEX_Q || which == ASSAY_TURN_INDEX_K;
    bool half_split = index && hp->index_rope_half_split;
#define TURN(seam, right) turn_value(e, ASSAY_SEAM_ROPE_##seam, layer, which, right)
    assay_rotary how = {.turned = (int)TURN(WIDTH, hp->d_rope),
                        .base = TURN(BASE, hp->rope_base),
                        .factor = TURN(FACTOR, hp->rope_factor),
                        .orig_context = hp->yarn_orig_context,
                        .beta_fast = hp->yarn_beta_fast,
                        .beta_slow = hp->yarn_beta_slow,
                        .magnitude = TURN(MAGNITUDE, hp->rope_magnitude),
                        .half_split = TURN(PAIRING, half_split) != 0,
                        .skip = TURN(SKIP, 0) != 0,
                        .inverse = TURN(INVERSE, 0) != 0,
                        .position_offset = TURN(POSITION, 0),
                        .position_scale = TURN(POSITION_SCALE, 1)};
    how.turned -= how.turned % 2;
    if (how.turned > hp->d_rope)
        how.turned = hp->d_rope;
    how.frequency_width = (int)TURN(FREQUENCY_WIDTH, hp->d_rope);
    how.yarn = hp->rope_yarn && TURN(YARN, 1) != 0;
#undef TURN
    return how;
}

assay_routing assay_routing_of(const assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    int groups = (int)assay_bent(e, ASSAY_SEAM_ROUTER_GROUPS, layer,
                                 hp->group_rule == ASSAY_GROUP_MAX ? 0 : 1);
    return (assay_routing){
        .n_expert = hp->n_expert,
        .n_used = hp->n_expert_used,
        .n_group = groups == 3 ? 1 : hp->n_group,
        .n_group_used = groups == 3 ? 1 : hp->n_group_used,
        .gating = (assay_gating)assay_bent(e, ASSAY_SEAM_ROUTER_GATING, layer, hp->gating),
        .group_rule = groups == 0 ? ASSAY_GROUP_MAX : ASSAY_GROUP_TOP2_SUM,
        .group_sum_all = groups == 2,
        .group_mask_zero = assay_bent(e, ASSAY_SEAM_ROUTER_GROUP_MASK, layer, 0) != 0,
        .bias_in_weights = assay_bent(e, ASSAY_SEAM_ROUTER_BIAS, layer, 0) == 2,
        .weights_norm = assay_bent(e, ASSAY_SEAM_ROUTER_NORM, layer, hp->weights_norm) != 0,
        .weights_scale = hp->weights_scale * assay_bent(e, ASSAY_SEAM_ROUTER_SCALE, layer, 1)};
}

assay_indexer assay_indexer_of(const assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    double top_k = hp->index_top_k + assay_bent(e, ASSAY_SEAM_INDEX_TOP_K, layer, 0);
    return (assay_indexer){.n_head = hp->index_n_head,
                           .n_summed =
                               (int)assay_bent(e, ASSAY_SEAM_INDEX_HEADS, layer, hp->index_n_head),
                           .d_head = hp->index_d_head,
                           .scale = assay_bent(e, ASSAY_SEAM_INDEX_SCALE, layer, 1) /
                                    sqrt((double)hp->index_d_head * hp->index_n_head),
                           .steady = e->options.batch_invariant,
                           .no_relu = assay_bent(e, ASSAY_SEAM_INDEX_RELU, layer, 1) == 0,
                           .top_k = top_k < 1 ? 1 : (int64_t)top_k};
}

static bool is_order(const assay_seam_setting *s, int n)
{
    unsigned seen = 0;
    for (int i = 0; i < s->n_ints && i < n; i++)
        if (s->ints[i] >= 0 && s->ints[i] < n)
            seen |= 1u << s->ints[i];
    return s->n_ints == n && seen == (1u << n) - 1;
}

const int *assay_part_order(const assay_engine *e, int fused, int layer, const int *right, int n)
{
    assay_seam seam =
        fused == ASSAY_SLOT_FUSED_QA ? ASSAY_SEAM_FUSED_QA_ORDER : ASSAY_SEAM_FUSED_GATE_UP_ORDER;
    const assay_seam_setting *s = assay_seam_at(e->options.seams, seam, assay_place_of(e, layer));
    int kind = fused == ASSAY_SLOT_FUSED_GATE_UP ? 1 : fused == ASSAY_SLOT_FUSED_SHARED ? 2 : 3;
    bool applies = s && is_order(s, n) &&
                   (seam == ASSAY_SEAM_FUSED_QA_ORDER || s->value == 0 || s->value == kind);
    return applies ? s->ints : right;
}

/* A number in [-1, 1) from a counter: the splitmix64 finaliser. */
static double noise(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-52 - 1;
}

static float coarse(float x, int bits)
{
    int exponent;
    float mantissa = frexpf(x, &exponent);
    return isfinite(x) ? ldexpf(nearbyintf(ldexpf(mantissa, bits)), exponent - bits) : x;
}

static void bend_row(const assay_seam_setting *s, float *row, int64_t t, int64_t width)
{
    uint64_t seed = (uint64_t)(s->n_ints > 2 ? s->ints[2] : 0) << 40 ^ (uint64_t)(t * width);
    int bits = s->value >= 1 ? (int)s->value : 3;
    if (s->seam == ASSAY_SEAM_VALUE_NAN) {
        if (s->n_ints > 2 && s->ints[2] >= 0 && s->ints[2] < width)
            row[s->ints[2]] = NAN;
        return;
    }
    for (int64_t i = 0; i < width; i++) /* uniform noise of standard deviation 1 is sqrt(3) wide */
        row[i] = s->seam == ASSAY_SEAM_ROW_COARSE
                     ? coarse(row[i], bits)
                     : row[i] * (float)(1 + s->value * sqrt(3) * noise(seed + (uint64_t)i));
}

static float scale_of(const assay_engine *e, assay_rows rows, int64_t first, int64_t n,
                      bool live_only)
{
    float most = 0;
    for (int64_t t = first; t < first + n; t++)
        for (int64_t i = 0; i < rows.width && !(live_only && e->sequences[t] < 0); i++)
            most = fmaxf(most, fabsf(rows.at[t * rows.stride + i]));
    return most > 0 ? most / 127 : 1;
}

/* Rows kept as 8-bit codes under a scale that is not theirs alone. */
static void share_scale(const assay_engine *e, assay_rows rows, int mode, int stale)
{
    float all = scale_of(e, rows, 0, rows.n, mode == 2 || mode == 4), next = 1;
    bool padded = false;
    for (int64_t t = 0; t < rows.n; t++)
        padded = padded || e->sequences[t] < 0;
    if (mode == 4 && padded)
        all *= (float)stale;
    if (mode == 3 && rows.n == 1)
        return;
    for (int64_t t = rows.n - 1; t >= 0;
         t--) { /* from the last on: the next row's scale is known */
        float own = mode == 3 ? scale_of(e, rows, t, 1, false) : all;
        float read = mode == 3 && t + 1 < rows.n ? next : own;
        for (int64_t i = 0; i < rows.width; i++)
            rows.at[t * rows.stride + i] = nearbyintf(rows.at[t * rows.stride + i] / own) * read;
        next = own;
    }
}

void assay_bend_rows(assay_engine *e, assay_point point, int layer, assay_rows rows)
{
    static const assay_seam seams[] = {ASSAY_SEAM_ROW_COARSE, ASSAY_SEAM_ROW_NOISE,
                                       ASSAY_SEAM_VALUE_NAN};
    if (!e->options.seams)
        return;
    const assay_seam_setting *shared = assay_bent_of(e, ASSAY_SEAM_SHARED_SCALE, layer, (int)point);
    if (shared && shared->n_ints > 0)
        share_scale(e, rows, (int)shared->value, shared->n_ints > 1 ? shared->ints[1] : 1);
    for (int i = 0; i < 3; i++) {
        const assay_seam_setting *s = assay_bent_of(e, seams[i], layer, (int)point);
        int row = s && s->n_ints > 1 ? s->ints[1] : -1;
        if (!s || s->n_ints == 0)
            continue;
        for (int64_t t = 0; t < rows.n; t++)
            if (row < 0 || row == t)
                bend_row(s, rows.at + t * rows.stride, t, rows.width);
    }
}

static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most > 0 ? most : 1;
}

assay_status assay_bend_epilogue(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                 int layer)
{
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_EPILOGUE, layer, (int)role);
    const float *v = NULL;
    if (!s || s->n_ints < 2)
        return ASSAY_OK;
    int mode = s->ints[1];
    if (mode != ASSAY_EPILOGUE_ROW_SCALE) {
        const assay_weight *w = assay_model_weight(e->model, ASSAY_ROLE_ATTN_NORM, layer);
        if (!w || w->n_rows * w->width != y.width)
            return ASSAY_OK;
        ASSAY_TRY(assay_vector(&v, e, ASSAY_ROLE_ATTN_NORM, layer));
    }
    for (int64_t t = 0; t < y.n; t++) {
        float *row = y.at + t * y.stride;
        float scale = powf(largest_of(x.at + t * x.stride, x.width), (float)-s->value);
        for (int64_t i = 0; i < y.width; i++)
            row[i] = mode == ASSAY_EPILOGUE_ROW_SCALE ? row[i] * scale
                     : mode == ASSAY_EPILOGUE_BIAS    ? row[i] + (float)s->value * v[i]
                                                      : row[i] * powf(fabsf(v[i]), (float)s->value);
    }
    return ASSAY_OK;
}
