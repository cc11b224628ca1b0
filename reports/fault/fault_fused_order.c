/*
 * FUSED-ORDER: the expected columns under a permutation of parts, whose borders come from the
 * model's shapes: q_a and kv_a, gate and up, the key and value rows of kv_b, heads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_experts.h"
#include "reports/home_ranks.h"

const assay_fault_kind assay_fault_kinds_fused_order[] = {
    {.name = "file-order",
     .about = "the parts of the merged q_a + kv_a projection in the order kv_a, q_a",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_FUSED_QA_ORDER,
     .n_ints = 2,
     .ints = {1, 0},
     .needs = ASSAY_NEEDS_RANK_Q,
     .home = "attn.q_a"},
    {.name = "gate-up-order",
     .about = "the parts of merged gate + up in the order up, gate (dense and shared experts)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_FUSED_GATE_UP_ORDER,
     .n_ints = 2,
     .ints = {1, 0},
     .home = "ffn.gate moe.shared.gate moe.expert.gate"},
    {.name = "gate-up-riffle",
     .about = "merged gate + up taken for interleaved columns",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_GATE_UP_RIFFLE,
     .value = 1,
     .needs = ASSAY_NEEDS_DENSE,
     .home = "ffn.gate moe.shared.gate ffn.act moe.shared.act"},
    {.name = "kv-b-halves",
     .about = "value rows of kv_b before key rows in every head",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_B_VIEW,
     .value = 1,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.kv_b attn.q_latent attn.kernel_out"},
    {.name = "qkv-grouped",
     .about = "rows of q, k and v that lie together by key head split as if all q came first",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_QKV_GROUPED,
     .value = 1,
     .needs = ASSAY_NEEDS_GQA,
     .home = "attn.q attn.k attn.v"},
    {0}};

typedef struct fused { /* tensors that come out of one fused product, side by side */
    assay_point first, second;
    const char *kind, *family, *parts;
} fused;

static const fused groups[] = {
    {ASSAY_POINT_Q_A, ASSAY_POINT_KV_A, "parts exchanged", "fused q_a + kv_a",
     "q_a, latent, rotary"},
    {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_UP, "gate and up exchanged", "fused gate + up",
     "gate, up"},
    {ASSAY_POINT_MOE_EXPERT_GATE, ASSAY_POINT_MOE_EXPERT_UP, "gate and up exchanged",
     "fused expert gate + up", "gate, up"},
    {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_UP, "gate and up exchanged",
     "fused shared gate + up", "gate, up"},
};

/* Lays two tensors of the same rows side by side. */
static void join(double *out, const double *a, int64_t na, const double *b, int64_t nb,
                 int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        memcpy(out + r * (na + nb), a + r * na, (size_t)na * sizeof *out);
        memcpy(out + r * (na + nb) + na, b + r * nb, (size_t)nb * sizeof *out);
    }
}

/* One of two side by side. */
static void split(double *out, const double *both, int64_t from, int64_t n, int64_t width,
                  int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * n, both + r * width + from, (size_t)n * sizeof *out);
}

static json_t *order_json(const assay_relation *rel)
{
    json_t *list = json_array();
    for (int i = 0; i < rel->n_blocks; i++)
        json_array_append_new(list, json_integer(rel->map[i]));
    return json_pack("{s:o}", "permutation", list);
}

static bool is_identity(const assay_relation *rel)
{
    for (int i = 0; i < rel->n_blocks; i++)
        if (rel->map[i] != i)
            return false;
    return true;
}

/* Offers the home's part of a joint map that is in `both`. */
static assay_status offer_part(assay_home *home, const fused *g, const double *both, bool is_first,
                               int64_t na, int64_t nb, json_t *fitted, const char *how,
                               const char *kind)
{
    char text[320];
    snprintf(text, sizeof text,
             "side by side, the outputs are the expected ones with their parts "
             "(%s) %s: share of the error removed %.6f",
             g->parts, how, home->rel.explained);
    split(home->scratch, both, is_first ? 0 : na, is_first ? na : nb, na + nb, home->pair.rows);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = kind,
                                                .family = g->family,
                                                .complexity = home->rel.complexity,
                                                .fitted = fitted,
                                                .evidence = text});
}

static int part_widths(int64_t widths[ASSAY_RELATION_PARTS], const assay_home *home, const fused *g,
                       int64_t na, int64_t nb)
{
    widths[0] = na;
    if (g->first == ASSAY_POINT_Q_A && home->shape->n_rank_kv + home->shape->d_rope == nb) {
        widths[1] = home->shape->n_rank_kv;
        widths[2] = home->shape->d_rope;
        return 3;
    }
    widths[1] = nb;
    return 2;
}

static assay_status try_joint(assay_home *home, const fused *g)
{
    bool is_first = home->judged->point == g->first;
    double *other_expected, *other_got, *both;
    int64_t cols, rows = home->pair.rows;
    assay_status s = assay_home_partner(&other_expected, &other_got, &cols, home,
                                        is_first ? g->second : g->first);
    if (s == ASSAY_MISSING)
        return ASSAY_OK;
    ASSAY_TRY(s);
    int64_t na = is_first ? home->pair.cols : cols, nb = is_first ? cols : home->pair.cols;
    s = assay_alloc(&both, (size_t)(rows * (na + nb)), 3 * sizeof *both, "fused outputs");
    if (s == ASSAY_OK) {
        double *want = both + rows * (na + nb), *map = want + rows * (na + nb);
        join(both, is_first ? home->got : other_got, na, is_first ? other_got : home->got, nb,
             rows);
        join(want, is_first ? home->expected : other_expected, na,
             is_first ? other_expected : home->expected, nb, rows);
        assay_relation_pair pair = {.got = both, .expected = want, .rows = rows, .cols = na + nb};
        int64_t widths[ASSAY_RELATION_PARTS];
        int n = part_widths(widths, home, g, na, nb);
        if (home->pair.sketch) /* the other one's values may not be known yet */
            assay_relation_parts_within(&home->rel, map, &home->pair, want, is_first ? 0 : na,
                                        widths, n);
        else
            assay_relation_parts(&home->rel, map, &pair, widths, n);
        if (home->rel.explained > 0.2)
            s = offer_part(home, g, map, is_first, na, nb, order_json(&home->rel),
                           "in another order", g->kind);
        for (int apart = 0; apart < 2 && s == ASSAY_OK && home->pair.sketch && na == nb; apart++) {
            home->rel = (assay_relation){.complexity = 0.1, .explained = NAN};
            assay_relation_lay_riffle(map, &pair, 1, apart);
            s = offer_part(home, g, map, is_first, na, nb,
                           json_pack("{s:s}", "riffle", apart ? "taken apart" : "interleaved"),
                           "interleaved", "gate and up interleaved");
        }
        if (s == ASSAY_OK && na == nb && na % 2 == 0 && !home->pair.sketch) {
            assay_relation_riffle(&home->rel, map, &pair, 1);
            if (home->rel.explained > 0.2)
                s = offer_part(home, g, map, is_first, na, nb,
                               json_pack("{s:s}", "riffle",
                                         home->rel.value > 0 ? "interleaved" : "taken apart"),
                               "interleaved", "gate and up interleaved");
        }
    }
    free(both);
    free(other_expected);
    free(other_got);
    return s;
}

/* Heads or other equal blocks in another order, all within one tensor. */
static assay_status try_blocks(assay_home *home, int n_blocks, const char *kind)
{
    char text[320];
    if (n_blocks < 2 || n_blocks > ASSAY_RELATION_BLOCKS || home->pair.cols % n_blocks)
        return ASSAY_OK;
    assay_relation_blocks(&home->rel, home->scratch, &home->pair, n_blocks);
    if (home->rel.kind != ASSAY_REL_PERMUTED || is_identity(&home->rel))
        return ASSAY_OK;
    snprintf(text, sizeof text, "the %d blocks of a row are the expected ones in another order",
             n_blocks);
    return assay_home_offer_relation(
        home,
        &(assay_offer_text){.kind = kind, .fitted = order_json(&home->rel), .evidence = text});
}

static assay_status try_kv_b(assay_home *home)
{
    static const struct {
        assay_kv_b_view view;
        const char *kind, *evidence;
    } views[] = {
        {ASSAY_KV_B_HALVES_EXCHANGED, "key and value rows of kv_b exchanged",
         "kv_b with value rows before key rows in every head gives the value"},
        {ASSAY_KV_B_SPLIT_EXCHANGED, "kv_b's output cut with values first",
         "the product cut as values, keys for keys, values gives the value"},
        {ASSAY_KV_B_SPLIT_BY_KIND, "kv_b's output cut by kind for by head",
         "the product cut as all keys, all values gives the value"},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.kv_b = views[i].view;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs,
                                           &(assay_offer_text){.kind = views[i].kind,
                                                               .family = "kv_b",
                                                               .complexity = 0.2,
                                                               .evidence = views[i].evidence}));
    }
    return ASSAY_OK;
}

/* Channels of every row that are the expected ones of other places: channel c is from[c]. */
static assay_status offer_channels(assay_home *home, const int64_t *from,
                                   const assay_offer_text *text)
{
    int64_t cols = home->pair.cols;
    for (int64_t i = 0; i < home->n; i++)
        home->scratch[i] = home->expected[i - i % cols + from[i % cols]];
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    return assay_home_offer_relation(home, text);
}

/* kv_b's rows lie head by head, keys and values of each; taken as all keys, then all values, or the
 * other way. */
static assay_status try_kv_b_rows(assay_home *home)
{
    int64_t H = home->shape->n_head, N = home->shape->d_nope, V = home->shape->d_value;
    int64_t cols = home->pair.cols, *from;
    if (!assay_home_is(home, ASSAY_POINT_KV_B) || cols != H * (N + V) || home->pair.sketch)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&from, (size_t)(2 * cols), sizeof *from, "rows of kv_b"));
    int64_t *back = from + cols;
    for (int64_t c = 0; c < cols; c++) {
        int64_t h = c / (N + V), i = c % (N + V);
        from[c] = i < N ? h * N + i : H * N + h * V + i - N;
        back[from[c]] = c;
    }
    assay_offer_text text = {
        .kind = "kv_b cut by kind for by head",
        .family = "kv_b",
        .complexity = 0.1,
        .evidence = "rows that lie head by head, keys and values of each, taken as all keys, then "
                    "all values, give the value"};
    assay_status s = offer_channels(home, from, &text);
    text.kind = "kv_b cut by head for by kind";
    text.evidence = "rows that lie as all keys, then all values, taken head by head give the value";
    if (s == ASSAY_OK)
        s = offer_channels(home, back, &text);
    free(from);
    return s;
}

/* The rotary part of every head before the other one. */
static assay_status try_q_parts(assay_home *home)
{
    int64_t H = home->shape->n_head, N = home->shape->d_nope, R = home->shape->d_rope;
    int64_t cols = home->pair.cols, *from;
    if (!assay_home_is(home, ASSAY_POINT_Q) || cols != H * (N + R) || home->pair.sketch)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&from, (size_t)cols, sizeof *from, "parts of heads"));
    assay_status s = ASSAY_OK;
    for (int way = 0; way < 2 && s == ASSAY_OK; way++) {
        for (int64_t c = 0; c < cols; c++)
            from[c] = c - c % (N + R) + (c % (N + R) + (way ? R : N)) % (N + R);
        s = offer_channels(home, from,
                           &(assay_offer_text){.kind = "rotary and other part of heads exchanged",
                                               .family = "q",
                                               .complexity = 0.1,
                                               .evidence = "every head's channels with the rotary "
                                                           "part at the other end are the value"});
    }
    free(from);
    return s;
}

/* kv_a's product is right, its cut into latent and rotary key takes the rotary part first. */
static assay_status try_kv_a_cut(assay_home *home)
{
    int64_t n, R = home->shape->d_rope, C = home->shape->n_rank_kv + R;
    double *x, *turned = NULL;
    if ((!assay_home_is(home, ASSAY_POINT_KV_LATENT) && !assay_home_is(home, ASSAY_POINT_K_ROPE)) ||
        home->judged->n_nonfinite > 0 ||
        assay_home_value(&x, &n, home, ASSAY_POINT_KV_A, home->judged->layer) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    if (n % C == 0)
        s = assay_alloc(&turned, (size_t)n, sizeof *turned, "kv_a in another order");
    for (int64_t i = 0; turned && i < n; i++)
        turned[i] = x[i - i % C + (i % C + R) % C];
    if (turned)
        s = assay_home_expect_from(home->scratch, home, ASSAY_POINT_KV_A, turned, n);
    if (turned && s == ASSAY_OK)
        s = assay_home_offer(
            home, home->scratch,
            &(assay_offer_text){.kind = "kv_a cut with the rotary part first",
                                .family = "kv_a cut",
                                .complexity = 0.2,
                                .evidence = "kv_a's output taken as rotary part, then latent, "
                                            "gives the value"});
    free(x);
    free(turned);
    return s == ASSAY_MISSING || s == ASSAY_BAD_SHAPE ? ASSAY_OK : s;
}

static assay_status offer_gate_up(assay_home *home, const assay_knobs *knobs, const char *kind,
                                  const char *evidence)
{
    const assay_offer_text text = {.kind = kind, .complexity = 0.2, .evidence = evidence};
    ASSAY_TRY(assay_home_offer_variant(home, knobs, &text));
    return assay_home_whole(home) ? ASSAY_OK : assay_home_offer_in_experts(home, knobs, &text);
}

static assay_status try_activation(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    knobs.gate_up_exchanged = true;
    ASSAY_TRY(offer_gate_up(home, &knobs, "gate and up exchanged",
                            "silu(up) * gate for silu(gate) * up gives the value"));
    knobs = *home->knobs;
    knobs.gate_up_riffle = true;
    return offer_gate_up(home, &knobs, "gate and up interleaved",
                         "columns 2i and 2i + 1 of gate and up, side by side, taken for gate and "
                         "up give the value");
}

/* Head i of [q | k | v] when the rows lie by key head: its queries, its key, its value. */
static const double *grouped_head(int64_t *cols, double *const part[3], const int64_t width[3],
                                  int n_head, int n_kv, int i)
{
    int each = n_head / n_kv, group = i / (each + 2), at = i % (each + 2);
    int kind = at < each ? 0 : at - each + 1;
    int64_t size = kind == 0 ? width[0] / n_head : width[kind] / n_kv;
    *cols = width[kind];
    return part[kind] + (kind == 0 ? group * each + at : group) * size;
}

static assay_status offer_grouped(assay_home *home, double *const part[3], const int64_t width[3],
                                  int which)
{
    const assay_oracle_shape *shape = home->shape;
    int H = shape->n_head, G = shape->n_head_kv, n = which == 0 ? H : G;
    int first = which == 0 ? 0 : which == 1 ? H : H + G;
    int64_t cols, size = width[which] / n;
    for (int i = 0; i < n; i++) {
        const double *from = grouped_head(&cols, part, width, H, G, first + i);
        for (int64_t t = 0; t < home->pair.rows; t++)
            memcpy(home->scratch + t * home->pair.cols + i * size, from + t * cols,
                   (size_t)size * sizeof *from);
    }
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){
            .kind = "grouped q, k, v split as plain",
            .family = "fused q + k + v",
            .complexity = 0.1,
            .evidence =
                "the heads are those of rows that lie by key head (its queries, its key, its "
                "value), split as if all queries came first, then all keys: split by group"});
}

/* q, k and v of grouped queries: one fused weight by key head, taken for [q | k | v]. */
static assay_status try_grouped(assay_home *home)
{
    static const assay_point points[] = {ASSAY_POINT_Q, ASSAY_POINT_K, ASSAY_POINT_V};
    int G = home->shape->n_head_kv, H = home->shape->n_head, which = -1;
    double *part[3] = {NULL};
    int64_t width[3];
    assay_status s = ASSAY_OK;
    for (int i = 0; i < 3; i++)
        which = home->judged->point == points[i] ? i : which;
    if (which < 0 || G < 2 || G == H)
        return ASSAY_OK;
    for (int i = 0; i < 3 && s == ASSAY_OK; i++) {
        if (i != which) {
            s = assay_home_partner(&part[i], NULL, &width[i], home, points[i]);
            continue;
        }
        width[i] = home->pair.cols;
        s = assay_alloc(&part[i], (size_t)home->n, sizeof **part, "expected values");
        if (s == ASSAY_OK)
            memcpy(part[i], home->expected, (size_t)home->n * sizeof **part);
    }
    if (s == ASSAY_OK && width[0] / H == width[1] / G && width[1] == width[2])
        s = offer_grouped(home, part, width, which);
    for (int i = 0; i < 3; i++)
        free(part[i]);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

assay_status assay_fault_match_fused_order(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->is_ids || j->against)
        return ASSAY_OK;
    if (!home->shape->is_mla)
        ASSAY_TRY(try_grouped(home));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (j->point == groups[i].first || j->point == groups[i].second) {
            ASSAY_TRY(try_joint(home, &groups[i]));
            ASSAY_TRY(assay_home_try_fused_slices(home, groups[i].first, groups[i].second));
        }
    if (home->shape->is_mla &&
        (assay_home_covers(home, ASSAY_POINT_KV_B) || assay_home_covers(home, ASSAY_POINT_K) ||
         assay_home_covers(home, ASSAY_POINT_V) || assay_home_covers(home, ASSAY_POINT_Q_LATENT) ||
         assay_home_is(home, ASSAY_POINT_KERNEL_OUT)))
        ASSAY_TRY(try_kv_b(home));
    if (home->shape->is_mla) {
        ASSAY_TRY(try_kv_b_rows(home));
        ASSAY_TRY(try_q_parts(home));
        ASSAY_TRY(try_kv_a_cut(home));
    }
    if (assay_home_covers(home, ASSAY_POINT_FFN_ACT) ||
        assay_home_covers(home, ASSAY_POINT_SHARED_ACT) ||
        assay_home_covers(home, ASSAY_POINT_MOE_EXPERT_ACT))
        ASSAY_TRY(try_activation(home));
    if (j->n_groups > 1)
        ASSAY_TRY(try_blocks(home, j->n_groups, "heads in another order"));
    else if (j->n_cols % 2 == 0 && j->n_cols >= 8)
        ASSAY_TRY(try_blocks(home, 2, "halves exchanged"));
    for (int n = 4; n <= 16 && j->n_groups == 1 && j->n_cols >= 8 * n; n *= 2)
        if (!assay_home_best(home))
            ASSAY_TRY(try_blocks(home, n, "equal blocks in another order"));
    return ASSAY_OK;
}
