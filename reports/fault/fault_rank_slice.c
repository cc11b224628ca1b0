/*
 * RANK-SLICE: the heads or channels of one rank are another rank's, or the heads that reach the
 * output projection are exchanged in whole slices.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home_ranks.h"

const assay_fault_kind assay_fault_kinds_rank_slice[] = {
    {.name = "head-slices",
     .about = "two slices of heads exchanged on their way to the output projection",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_HEAD_ORDER,
     .n_ints = 2,
     .ints = {1, 0},
     .home = "attn.out"},
    {.name = "slice-repeated",
     .about = "the second half of the output projection's rows is the first half again",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 8,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "slice-shifted",
     .about = "the rows of kv_a are read one row too late",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 6,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_KV_A},
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.kv_a"},
    {.name = "heads-shifted",
     .about = "every head of kv_b is the next one",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_B_VIEW,
     .value = 4,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.kv_b attn.q_latent attn.kernel_out"},
    {.name = "rank-slice",
     .about =
         "rank 0's slice of the queries' projection on every rank (or on rank=R, value's slice)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_Q_B},
     .needs = ASSAY_NEEDS_RANK_Q,
     .ranks = true,
     .home = "attn.q"},
    {.name = "rank-slice-gate",
     .about = "rank 0's slice of the dense gate on every rank (or on rank=R, value's slice)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_FFN_GATE},
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "ffn.gate"},
    {.name = "rank-slice-output",
     .about = "rank 0's columns of the output projection on every rank (or on rank=R, value's)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "rank-shifted",
     .about = "a rank's slice of the dense gate starts value rows late",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE_SHIFT,
     .value = 4,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_FFN_GATE},
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "ffn.gate"},
    {.name = "rank-shifted-head",
     .about = "a rank's slice of the queries' projection starts value rows late",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE_SHIFT,
     .value = 8,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_Q_B},
     .needs = ASSAY_NEEDS_RANK_Q,
     .ranks = true,
     .home = "attn.q"},
    {.name = "rank-short",
     .about = "the last value rows of a rank's slice of the dense up projection were not loaded",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE_SHORT,
     .value = 4,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_FFN_UP},
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "ffn.up"},
    {.name = "rank-key-head",
     .about = "rank 0's key heads on every rank (or on rank=R, value's)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_K},
     .needs = ASSAY_NEEDS_GQA,
     .ranks = true,
     .home = "attn.k"},
    {.name = "rank-columns-shifted",
     .about = "a rank's columns of the output projection start value too late",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE_SHIFT,
     .value = 4,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "rank-columns-short",
     .about =
         "the last value columns of a rank's slice of the dense down projection were not loaded",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_SLICE_SHORT,
     .value = 8,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_FFN_DOWN},
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "ffn.out"},
    {.name = "rank-other-axis",
     .about = "a rank's part of the output projection is cut out along the other axis",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_VIEW,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "rank-norm-late",
     .about = "a rank's copy of the weight of the norm before attention starts half a head late",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_VIEW,
     .value = 2,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_NORM},
     .ranks = true,
     .home = "attn.in_norm"},
    {.name = "rank-bias-share",
     .about = "a rank has its share of the router's bias in front, and zeros behind",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_VIEW,
     .value = 3,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ROUTER_BIAS},
     .needs = ASSAY_NEEDS_ROUTER_BIAS,
     .ranks = true,
     .home = "moe.topk"},
    {0}};

static json_t *map_json(const int *map, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(map[i]));
    return list;
}

/* The slices that are not their own. */
static json_t *moved_json(const int *map, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (map[i] != i)
            json_array_append_new(list, json_integer(i));
    return list;
}

/*
 * Slice i is i % each * s + i / each for each = n / s: dealt out in turn to s ranks, as if rank r
 * held slices r, r + s, ...; 0: not so. Four slices dealt to two are two exchanged ones.
 */
static int dealt_to(const int *map, int n)
{
    for (int s = 2; n >= 8 && s <= n / 2; s++) {
        bool all = n % s == 0;
        for (int i = 0; i < n && all; i++)
            all = map[i] == i % (n / s) * s + i / (n / s);
        if (all)
            return s;
    }
    return 0;
}

static void say_slices(char *text, size_t room, const int *map, int n, bool repeated)
{
    int ranks = dealt_to(map, n);
    if (ranks)
        snprintf(text, room,
                 "of %d equal slices, rank r of %d holds r, r + %d, ...: dealt out in turn; give "
                 "every rank %d neighbours",
                 n, ranks, ranks, n / ranks);
    else
        snprintf(text, room, "of %d equal slices, %s", n,
                 repeated ? "some appear twice and some never" : "each is another one's");
}

/* Slices of n ranks: permuted or repeated. */
static assay_status try_slices(assay_home *home, int n_ranks)
{
    char text[320];
    bool moved = false;
    if (home->pair.cols % n_ranks || home->pair.cols / n_ranks < 4)
        return ASSAY_OK;
    assay_relation_blocks(&home->rel, home->scratch, &home->pair, n_ranks);
    for (int i = 0; i < n_ranks; i++)
        moved = moved || home->rel.map[i] != i;
    if (!moved)
        return ASSAY_OK;
    bool repeated = home->rel.kind == ASSAY_REL_REPEATED;
    say_slices(text, sizeof text, home->rel.map, n_ranks, repeated);
    return assay_home_offer_relation(
        home,
        &(assay_offer_text){.kind = repeated                           ? "slices repeated"
                                    : dealt_to(home->rel.map, n_ranks) ? "slices dealt out in turn"
                                                                       : "slices exchanged",
                            .complexity = 0.15 + 0.05 * n_ranks,
                            .fitted = json_pack("{s:i, s:o}", "slices", n_ranks, "map",
                                                map_json(home->rel.map, n_ranks)),
                            .evidence = text});
}

/* sum over slices of W[:, map[i]] x heads[i] for the output projection. */
static void project(double *out, const assay_home *home, const double *weight, const double *heads,
                    const int *map, int n, int64_t width)
{
    const assay_judged *j = home->judged;
    int64_t slice = width / n;
    for (int64_t t = 0; t < j->n_rows; t++)
        for (int64_t d = 0; d < j->n_cols; d++) {
            double sum = 0;
            for (int i = 0; i < n; i++) {
                const double *w = weight + d * width + map[i] * slice;
                const double *x = heads + t * width + i * slice;
                for (int64_t v = 0; v < slice; v++)
                    sum += w[v] * x[v];
            }
            out[t * j->n_cols + d] = sum;
        }
}

/*
 * got = sum_i W_{map[i]} x_i for an unknown map: least squares over all n^2 products says which
 * slice meets which columns. n at most 8 (64 unknowns).
 */
static assay_status find_map(int *map, assay_home *home, const double *weight, const double *heads,
                             int n, int64_t width)
{
    const assay_judged *j = home->judged;
    int64_t slice = width / n;
    double *room;
    const double *parts[64];
    ASSAY_TRY(assay_alloc(&room, (size_t)(n * n * home->n), sizeof *room, "products of slices"));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double *part = room + (i * n + k) * home->n;
            parts[i * n + k] = part;
            for (int64_t t = 0; t < j->n_rows; t++)
                for (int64_t d = 0; d < j->n_cols; d++) {
                    const double *w = weight + d * width + i * slice;
                    const double *x = heads + t * width + k * slice;
                    double sum = 0;
                    for (int64_t v = 0; v < slice; v++)
                        sum += w[v] * x[v];
                    part[t * j->n_cols + d] = sum;
                }
        }
    assay_relation_components(&home->rel, home->scratch, &home->pair, parts, n * n);
    for (int k = 0; k < n; k++) { /* each slice of heads meets one slice of columns */
        map[k] = k;
        for (int i = 0; i < n; i++)
            if (home->rel.count[i * n + k] > home->rel.count[map[k] * n + k])
                map[k] = i;
    }
    free(room);
    return ASSAY_OK;
}

static assay_status try_projection(assay_home *home)
{
    const assay_judged *j = home->judged;
    double *heads;
    const double *weight;
    int64_t n_values, dims[4];
    char name[64], text[320];
    int map[8], H = home->shape->n_head;
    snprintf(name, sizeof name, "blk.%d.attn_output.weight", j->layer);
    if (assay_home_value(&heads, &n_values, home, ASSAY_POINT_OUT_ATTN, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    int64_t width = n_values / j->n_rows;
    assay_status s = assay_oracle_weight(&weight, dims, assay_forced_oracle(home->forced), name);
    for (int n = 2; s == ASSAY_OK && n <= 8 && dims[3] == width; n *= 2) {
        bool moved = false;
        if (H % n)
            break;
        s = find_map(map, home, weight, heads, n, width);
        for (int i = 0; i < n; i++)
            moved = moved || map[i] != i;
        if (s != ASSAY_OK || !moved)
            continue;
        project(home->scratch, home, weight, heads, map, n, width);
        assay_relation_score(&home->rel, home->scratch, &home->pair);
        snprintf(
            text, sizeof text,
            "the output projection of the captured heads with their %d slices in another order "
            "gives the value",
            n);
        json_t *fitted = json_pack("{s:i, s:o}", "slices", n, "map", map_json(map, n));
        if (n == assay_run_about(assay_forced_run(home->forced))->n_ranks)
            json_object_set_new(fitted, "ranks", moved_json(map, n));
        s = assay_home_offer_relation(home, &(assay_offer_text){.kind = "slices of heads exchanged",
                                                                .complexity = 0.15 + 0.05 * n,
                                                                .fitted = fitted,
                                                                .evidence = text});
        if (assay_home_settled(home))
            break;
    }
    free(heads);
    return s;
}

/* Every channel is the one `shift` further: rows of the weight read too late or too early. Channels
 * without a source are left open. */
static assay_status try_shift(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32};
    int64_t cols = home->pair.cols;
    char text[320];
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        if (labs(shifts[i]) * 4 > cols)
            continue;
        for (int64_t k = 0; k < home->n; k++) {
            int64_t from = k % cols + shifts[i];
            home->scratch[k] =
                from >= 0 && from < cols ? home->expected[k + shifts[i]] : home->got[k];
        }
        assay_relation_score(&home->rel, home->scratch, &home->pair);
        snprintf(text, sizeof text, "channel c is the expected channel c %+d", shifts[i]);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "slice shifted",
                                      .complexity = 0.6,
                                      .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                      .evidence = text}));
    }
    return ASSAY_OK;
}

#define MOST_HEADS 64

static double rest_of_head(const assay_home *home, const double *values, int h)
{
    const assay_judged *j = home->judged;
    int64_t width = j->n_cols / j->n_groups;
    double rest = 0;
    for (int64_t t = 0; t < j->n_rows; t++)
        for (int64_t i = h * width; i < (h + 1) * width; i++) {
            double d = home->got[t * j->n_cols + i] - values[t * j->n_cols + i];
            rest += isfinite(d) ? d * d : 0;
        }
    return rest;
}

static void take_head(double *out, const double *from, const assay_judged *j, int h)
{
    int64_t width = j->n_cols / j->n_groups;
    for (int64_t t = 0; t < j->n_rows; t++)
        memcpy(out + t * j->n_cols + h * width, from + t * j->n_cols + h * width,
               (size_t)width * sizeof *out);
}

static assay_status offer_heads(assay_home *home, const double *out, const int *map, int H)
{
    int n_moved = 0;
    bool shifted = true, one = true;
    char text[320], list[120] = "";
    size_t used = 0;
    for (int h = 0; h < H; h++) {
        n_moved += map[h] != h;
        one = one && map[h] == map[0];
        shifted = shifted && (map[h] - h + H) % H == (map[0] + H) % H;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, " %d", map[h]);
    }
    if (n_moved == 0 || one) /* one head for all is a stride of 0: ADDR-ARITH */
        return ASSAY_OK;
    snprintf(text, sizeof text, "heads of kv_b, each told by what fits it best: %s%s",
             shifted ? "all shifted alike:" : "", list);
    return assay_home_offer(
        home, out,
        &(assay_offer_text){
            .kind = shifted ? "heads of kv_b shifted" : "heads of kv_b in another order",
            .family = "kv_b",
            .complexity = shifted ? 0.3 : 0.15 + 0.05 * n_moved,
            .fitted = json_pack("{s:i, s:o}", "moved", n_moved, "map", map_json(map, H)),
            .evidence = text});
}

/* Which head's part of kv_b each head was given: the one that leaves least of it. */
static assay_status try_kv_b_heads(assay_home *home)
{
    const assay_judged *j = home->judged;
    int H = home->shape->n_head, map[MOST_HEADS];
    double least[MOST_HEADS], *room;
    if (j->n_groups != H || H > MOST_HEADS || assay_home_best(home))
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&room, (size_t)(2 * home->n), sizeof *room, "heads of kv_b"));
    double *out = room + home->n;
    assay_status s = ASSAY_OK;
    memcpy(out, home->expected, (size_t)home->n * sizeof *out);
    for (int h = 0; h < H; h++) {
        map[h] = h;
        least[h] = rest_of_head(home, home->expected, h);
    }
    for (int shift = 1; shift < H && s == ASSAY_OK; shift++) {
        assay_knobs knobs = *home->knobs;
        knobs.kv_b = ASSAY_KV_B_OTHER_HEAD;
        knobs.kv_b_head_shift = shift;
        s = assay_forced_expect(room, home->forced, home->index, &knobs);
        for (int h = 0; h < H && s == ASSAY_OK; h++) {
            double rest = rest_of_head(home, room, h);
            if (!(rest < 0.5 * least[h]))
                continue;
            least[h] = rest;
            map[h] = (h + shift) % H;
            take_head(out, room, j, h);
        }
    }
    if (s == ASSAY_OK)
        s = offer_heads(home, out, map, H);
    free(room);
    return s;
}

assay_status assay_fault_match_rank_slice(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_home_try_vectors(home));
    if (j->is_ids)
        return ASSAY_OK;
    ASSAY_TRY(assay_home_try_slices(home));
    ASSAY_TRY(assay_home_try_addends(home));
    static const assay_point sharded[] = {ASSAY_POINT_Q,
                                          ASSAY_POINT_KV_B,
                                          ASSAY_POINT_K,
                                          ASSAY_POINT_V,
                                          ASSAY_POINT_Q_ROPE,
                                          ASSAY_POINT_KERNEL_OUT,
                                          ASSAY_POINT_OUT_ATTN,
                                          ASSAY_POINT_FFN_GATE,
                                          ASSAY_POINT_FFN_UP,
                                          ASSAY_POINT_FFN_ACT,
                                          ASSAY_POINT_SHARED_GATE,
                                          ASSAY_POINT_SHARED_UP,
                                          ASSAY_POINT_SHARED_ACT,
                                          ASSAY_POINT_LOGITS,
                                          ASSAY_POINT_EMBED,
                                          ASSAY_POINT_Q_LATENT,
                                          ASSAY_POINT_O_LATENT,
                                          ASSAY_POINT_MOE_EXPERT_GATE,
                                          ASSAY_POINT_MOE_EXPERT_UP,
                                          ASSAY_POINT_MOE_EXPERT_ACT};
    for (size_t i = 0; i < sizeof sharded / sizeof *sharded; i++)
        if (assay_home_is(home, sharded[i]))
            for (int n = 2; n <= 8; n *= 2)
                ASSAY_TRY(try_slices(home, n));
    if (assay_home_multiplies(home) && j->n_interval == 0)
        ASSAY_TRY(try_shift(home));
    bool latent = assay_forced_is_latent(home->forced, j->prompt);
    if (home->shape->is_mla && (assay_home_covers(home, ASSAY_POINT_KV_B) ||
                                assay_home_covers(home, ASSAY_POINT_Q_LATENT) ||
                                (latent && assay_home_is(home, ASSAY_POINT_KERNEL_OUT))))
        ASSAY_TRY(try_kv_b_heads(home));
    /* the projection's own rows are cut where the weight is column parallel, by halves or by ranks
     */
    int n_ranks = assay_run_about(assay_forced_run(home->forced))->n_ranks;
    for (int n = 2; n <= 8 && assay_home_is(home, ASSAY_POINT_PROJ); n *= 2)
        if (n == 2 || n == n_ranks)
            ASSAY_TRY(try_slices(home, n));
    if (assay_home_is(home, ASSAY_POINT_PROJ) && !assay_home_settled(home))
        ASSAY_TRY(try_projection(home));
    return ASSAY_OK;
}
