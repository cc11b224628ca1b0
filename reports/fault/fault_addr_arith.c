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
    {.name = "kv-b-stride-0",
     .about = "every head reads head 0 of kv_b: a stride of 0",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_B_VIEW,
     .value = 5,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.kv_b attn.q_latent attn.kernel_out"},
    {.name = "view-dense",
     .about = "the norm behind q_a, a view into the merged projection, takes its rows for dense",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_VIEW_STRIDE,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_POINT_Q_A},
     .needs = ASSAY_NEEDS_RANK_Q,
     .home = "attn.q_a_norm"},
    {.name = "slot-wraps",
     .about = "the product of slot and row size wraps: slot 8 is read at slot 0",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_WRAP,
     .value = 8,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.page_size = 4}},
    {.name = "row-wraps",
     .about = "the product of row and width wraps: rows from 5 on land on the first ones",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROW_WRAP,
     .value = 5,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {0}};

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          const char *evidence)
{
    return assay_home_offer_variant(
        home, knobs, &(assay_offer_text){.kind = kind, .complexity = 0.4, .evidence = evidence});
}

/* Experts that were chosen for another token. */
static assay_status offer_ids(assay_home *home, const double *moved, const assay_offer_text *text)
{
    assay_offer_text ids = *text;
    if (!assay_home_is(home, ASSAY_POINT_MOE_TOPK) || home->pair.sketch)
        return ASSAY_OK;
    ids.fitted = json_incref(text->fitted);
    return assay_home_offer(home, moved, &ids);
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
    if (rows < 4 || (cols < 8 && !home->judged->is_ids))
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&moved, (size_t)home->n, sizeof *moved, "rows of another place"));
    assay_status s = ASSAY_OK;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts && s == ASSAY_OK; i++) {
        for (int64_t r = 0; r < rows; r++) {
            int64_t from = r - shifts[i];
            bool inside = from >= 0 && from < rows;
            const double *edge = home->judged->is_ids ? home->got : home->expected;
            memcpy(moved + r * cols, inside ? home->expected + from * cols : edge + r * cols,
                   (size_t)cols * sizeof *moved);
        }
        snprintf(text, sizeof text, "row t holds what row t%+d should hold", -shifts[i]);
        assay_offer_text offered = {.kind = "rows of another place",
                                    .complexity = 0.6,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text};
        s = home->judged->is_ids ? offer_ids(home, moved, &offered)
                                 : assay_home_offer_partly(home, moved, home->scratch, &offered);
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

/* q_a and kv_a lie side by side in one buffer; the reader of one takes its rows for dense. */
static assay_status try_merged(assay_home *home, assay_point part)
{
    double *q = NULL, *kv = NULL, *both = NULL;
    int64_t T = home->judged->n_rows, n_q, n_kv, layer = home->judged->layer;
    assay_status s = assay_home_value(&q, &n_q, home, ASSAY_POINT_Q_A, (int)layer);
    if (s == ASSAY_OK)
        s = assay_home_value(&kv, &n_kv, home, ASSAY_POINT_KV_A, (int)layer);
    if (s != ASSAY_OK || T < 2) {
        free(q);
        free(kv);
        return s == ASSAY_MISSING || s == ASSAY_OK ? ASSAY_OK : s;
    }
    int64_t wq = n_q / T, wk = n_kv / T, w = part == ASSAY_POINT_Q_A ? wq : wk;
    ASSAY_GO(assay_alloc(&both, (size_t)(2 * (n_q + n_kv)), sizeof *both, "a merged buffer"));
    double *dense = both + n_q + n_kv, *from = both + (part == ASSAY_POINT_Q_A ? 0 : wq);
    for (int64_t t = 0; t < T; t++) {
        memcpy(both + t * (wq + wk), q + t * wq, (size_t)wq * sizeof *both);
        memcpy(both + t * (wq + wk) + wq, kv + t * wk, (size_t)wk * sizeof *both);
    }
    memcpy(dense, from, (size_t)(T * w) * sizeof *dense);
    s = assay_home_expect_from(home->scratch, home, part, dense, T * w);
    if (s == ASSAY_OK)
        s = assay_home_offer(
            home, home->scratch,
            &(assay_offer_text){.kind = "rows of a view taken for dense",
                                .complexity = 0.4,
                                .evidence =
                                    "q_a and kv_a side by side in one buffer, read as if the "
                                    "rows of one lay behind each other, give the value"});
out:
    free(both);
    free(q);
    free(kv);
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
    if (assay_home_is(home, ASSAY_POINT_KV_LATENT) || assay_home_is(home, ASSAY_POINT_K_ROPE))
        ASSAY_TRY(try_merged(home, ASSAY_POINT_KV_A));
    return ASSAY_OK;
}

/* Rows 0 ... n - 1 are right; whoever sees more keys reads those from n on at the first slots. */
static assay_status try_slot_wrap(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t n_keys = step->first_position + step->n_tokens, wrong = n_keys;
    int64_t tokens = j->point == ASSAY_POINT_PROBS ? j->n_rows / home->shape->n_head : j->n_rows;
    char text[320];
    for (int64_t r = 0; r < j->n_rows; r++) {
        double error = 0, size = 0;
        int64_t at = step->first_position + step->n_tokens - tokens + r % tokens;
        for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++) {
            double d = home->got[i] - home->expected[i];
            error += isfinite(d) ? d * d : 0;
            size += isfinite(home->expected[i]) ? home->expected[i] * home->expected[i] : 0;
        }
        if (error > 36 * j->floor_row_median * j->floor_row_median * size && at < wrong)
            wrong = at;
    }
    for (int64_t n = 1; n < n_keys; n++) {
        if ((n & (n - 1)) != 0 && n != wrong)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.key_wrap = (int)n;
        snprintf(text, sizeof text, "slot %lld and those behind are read at slot 0 and behind",
                 (long long)n);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "a product of slot and size wraps",
                                .family = "attention",
                                .complexity = 0.5,
                                .fitted = json_pack("{s:i}", "slots", (int)n),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

/* Rows from n on are zero, and the last of those that map there lies on each of the first n. */
static assay_status try_row_wrap(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t rows = j->n_rows, cols = j->n_cols, n = rows;
    char text[320];
    for (int64_t r = rows - 1; r >= 0; r--) {
        bool zero = true;
        for (int64_t i = 0; i < cols && zero; i++)
            zero = home->got[r * cols + i] == 0;
        if (!zero)
            break;
        n = r;
    }
    if (n == 0 || n == rows)
        return ASSAY_OK;
    memset(home->scratch, 0, (size_t)home->n * sizeof *home->scratch);
    for (int64_t r = 0; r < rows; r++)
        memcpy(home->scratch + r % n * cols, home->expected + r * cols,
               (size_t)cols * sizeof *home->scratch);
    snprintf(text, sizeof text,
             "rows %lld ... %lld are zero and lie on rows 0 ...: row r was stored at r mod %lld",
             (long long)n, (long long)rows - 1, (long long)n);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = "a product of row and width wraps",
                                                .complexity = 0.3,
                                                .fitted = json_pack("{s:i}", "rows", (int)n),
                                                .evidence = text});
}

/* Puts what the run has at a point, rows taken from a merged buffer as if it were dense. */
static assay_status offer_dense(assay_home *home, const double *merged, int64_t width,
                                int64_t stride)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    assay_pass_options options = {.latent = assay_forced_is_latent(home->forced, j->prompt),
                                  .knobs = home->knobs};
    assay_pass *pass;
    double *dense = NULL;
    int step;
    char text[320];
    ASSAY_TRY(assay_pass_new(&pass, assay_forced_oracle(home->forced), &options));
    assay_status s = ASSAY_OK;
    ASSAY_GO(assay_alloc(&dense, (size_t)(at->n_tokens * width), sizeof *dense, "a view"));
    memcpy(dense, merged, (size_t)(at->n_tokens * width) * sizeof *dense);
    ASSAY_GO(assay_pass_add_step(&step, pass, at->tokens, at->n_tokens, at->first_position));
    ASSAY_GO(assay_pass_put(pass, step, ASSAY_POINT_Q_A, j->layer, dense, at->n_tokens * width));
    ASSAY_GO(assay_pass_expect(home->scratch, pass, step, j->point, j->layer, home->knobs));
    snprintf(text, sizeof text,
             "row t of the view is read at t x %lld of the merged buffer, whose rows are %lld wide",
             (long long)width, (long long)stride);
    s = assay_home_offer(home, home->scratch,
                         &(assay_offer_text){.kind = "rows of a view taken for dense",
                                             .complexity = 0.3,
                                             .evidence = text});
out:
    free(dense);
    assay_pass_free(pass);
    return s;
}

/* q_a and kv_a are views into one buffer [q_a | kv_a]; the norm reads the first. */
static assay_status try_view(assay_home *home)
{
    const assay_judged *j = home->judged;
    double *parts[2] = {NULL, NULL}, *merged = NULL;
    int64_t n[2], rows = j->n_rows;
    if (!assay_home_is(home, ASSAY_POINT_Q_A_NORM) || rows < 2 || j->first_row > 0 ||
        j->n_interval > 0)
        return ASSAY_OK;
    assay_status s = assay_home_value(&parts[0], &n[0], home, ASSAY_POINT_Q_A, j->layer);
    if (s == ASSAY_OK)
        s = assay_home_value(&parts[1], &n[1], home, ASSAY_POINT_KV_A, j->layer);
    if (s == ASSAY_OK)
        s = assay_alloc(&merged, (size_t)(n[0] + n[1]), sizeof *merged, "a merged buffer");
    if (s == ASSAY_OK) {
        int64_t a = n[0] / rows, b = n[1] / rows;
        for (int64_t t = 0; t < rows; t++) {
            memcpy(merged + t * (a + b), parts[0] + t * a, (size_t)a * sizeof *merged);
            memcpy(merged + t * (a + b) + a, parts[1] + t * b, (size_t)b * sizeof *merged);
        }
        s = offer_dense(home, merged, a, a + b);
    }
    free(merged);
    free(parts[0]);
    free(parts[1]);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

assay_status assay_fault_match_addr_arith(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_knobs knobs = *home->knobs;
    if (j->against)
        return ASSAY_OK;
    if (j->is_ids)
        return try_rows(home);
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
        knobs.kv_b = ASSAY_KV_B_FIRST_HEAD;
        ASSAY_TRY(offer(home, &knobs, "a stride of 0 over heads",
                        "kv_b's head 0 in the place of every head gives the value"));
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
    if (assay_home_attends(home) || j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_slot_wrap(home));
    if (assay_home_settled(home))
        return ASSAY_OK;
    ASSAY_TRY(try_row_wrap(home));
    ASSAY_TRY(try_view(home));
    if (!assay_home_settled(home))
        ASSAY_TRY(try_inputs(home));
    return assay_home_settled(home) ? ASSAY_OK : try_rows(home);
}
