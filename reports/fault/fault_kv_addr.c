/*
 * KV-ADDR: what attention reads is another slot's, layer's or head's value, of the right size.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_cache.h"

const assay_fault_kind assay_fault_kinds_kv_addr[] = {
    {.name = "kv-slot",
     .about = "keys written one slot too far",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_SLOT,
     .value = 1,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .also = {true, ASSAY_SEAM_KV_BLANK, true, 1, 0, {0}}},
    {.name = "kv-read-layer",
     .about = "the cache of layer 0 is read",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_READ_LAYER,
     .value = 0,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
    {.name = "kv-dropped",
     .about = "position 2 is not written to the cache",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_DROPPED,
     .value = 1,
     .n_ints = 1,
     .ints = {2},
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
    {0}};

static assay_status try_slots(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2, 3, 4};
    char text[320];
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
        for (int what = 0; what < 3; what++) {
            assay_knobs knobs = *home->knobs;
            knobs.key_row_shift = what != 2 ? shifts[i] : 0;
            knobs.value_row_shift = what != 1 ? shifts[i] : 0;
            snprintf(text, sizeof text, "%s read %d slot(s) off give the value",
                     what == 0   ? "keys and values"
                     : what == 1 ? "keys"
                                 : "values",
                     shifts[i]);
            ASSAY_TRY(assay_home_offer_variant(
                home, &knobs,
                &(assay_offer_text){.kind = "slots shifted",
                                    .family = "attention",
                                    .complexity = 0.5,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text}));
        }
    return ASSAY_OK;
}

/* A cached tensor that is another layer's. */
static assay_status try_layers(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    for (int layer = 0; layer < home->shape->n_layer; layer++) {
        double *other;
        int64_t n;
        if (layer == j->layer || assay_home_value(&other, &n, home, j->point, layer) != ASSAY_OK)
            continue;
        assay_status s = ASSAY_OK;
        if (n == home->n) {
            assay_relation_equals(&home->rel, home->scratch, &home->pair, other);
            snprintf(text, sizeof text, "the value is layer %d's", layer);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "another layer's",
                                          .fitted = json_pack("{s:i}", "layer", layer),
                                          .evidence = text});
        }
        free(other);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

static assay_status try_rows(assay_home *home)
{
    char text[320];
    if (home->pair.rows < 3)
        return ASSAY_OK;
    assay_relation_shifted_rows(&home->rel, home->scratch, &home->pair, 4);
    snprintf(text, sizeof text, "every row is the one of %.0f position(s) before", home->rel.value);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "rows shifted",
                                  .fitted = json_pack("{s:f}", "shift", home->rel.value),
                                  .evidence = text});
}

/* The rotary key of another token, rotated for the place of this one: the angle is the token's own,
 * the vector is not. */
static assay_status try_rotated_rows(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2};
    int64_t cols = home->pair.cols, rows = home->pair.rows;
    double *moved;
    char text[320];
    if (rows < 4)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&moved, (size_t)home->n, sizeof *moved, "rotated keys"));
    assay_status s = ASSAY_OK;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts && s == ASSAY_OK; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.rope.position_offset_k += shifts[i];
        s = assay_forced_expect(moved, home->forced, home->index, &knobs);
        for (int64_t t = 0; t < rows; t++) {
            int64_t from = t - shifts[i];
            bool inside = from >= 0 && from < rows;
            memcpy(home->scratch + t * cols, inside ? moved + from * cols : home->got + t * cols,
                   (size_t)cols * sizeof *moved);
        }
        snprintf(text, sizeof text,
                 "the rotary key of token t is that of token t%+d, rotated by t's own angle",
                 -shifts[i]);
        if (s == ASSAY_OK)
            s = assay_home_offer(
                home, home->scratch,
                &(assay_offer_text){.kind = "another token's rotary key",
                                    .complexity = 0.5,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text});
    }
    free(moved);
    return s;
}

static assay_status offer_slots(assay_home *home, const assay_slot *slots, assay_cached what,
                                const assay_offer_text *text)
{
    double *out;
    assay_status s = assay_alloc(&out, (size_t)home->n, sizeof *out, "a value");
    if (s == ASSAY_OK)
        s = assay_home_attend(out, home, slots, what);
    if (s == ASSAY_OK)
        s = assay_home_offer(home, out, text);
    else
        json_decref(text->fitted);
    free(out);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

/* With own: what the step itself computed does not pass through the cache. */
static assay_status offer_layer(assay_home *home, assay_slot *slots, int layer, bool own)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t n = own ? at->first_position : assay_home_n_keys(home);
    char text[320];
    if (own && n == 0)
        return ASSAY_OK;
    assay_home_own_slots(slots, home);
    for (int64_t i = 0; i < n; i++)
        slots[i].layer = layer;
    bool mla = home->shape->is_mla && !assay_forced_is_latent(home->forced, j->prompt);
    for (int latent = 0; latent <= mla && !assay_home_settled(home); latent++) {
        snprintf(text, sizeof text, "attention with layer %d's %s%s gives the value", layer,
                 latent ? "latents and rotary keys" : "keys and values",
                 own ? " of earlier steps, and the step's own," : "");
        ASSAY_TRY(offer_slots(home, slots, latent ? ASSAY_CACHED_LATENT : ASSAY_CACHED_ALL,
                              &(assay_offer_text){.kind = "another layer's cache is read",
                                                  .family = "cache",
                                                  .complexity = own ? 0.6 : 0.5,
                                                  .fitted = json_pack("{s:i}", "layer", layer),
                                                  .evidence = text}));
    }
    return ASSAY_OK;
}

static assay_status try_other_cache(assay_home *home, assay_slot *slots)
{
    for (int layer = 0; layer < home->shape->n_layer; layer++)
        for (int own = 0; own < 2 && layer != home->judged->layer; own++)
            ASSAY_TRY(offer_layer(home, slots, layer, own));
    return ASSAY_OK;
}

/* The first few slots that hold another key, in words and as a list [slot, key]. */
static json_t *moved_slots(char *text, size_t room, const assay_slot *slots, int64_t n)
{
    json_t *list = json_array();
    size_t used = 0;
    for (int64_t i = 0; i < n && json_array_size(list) < 16; i++) {
        if (slots[i].position == i)
            continue;
        if (used < room)
            used += (size_t)snprintf(text + used, room - used,
                                     slots[i].position < 0 ? "%s%lld nothing" : "%s%lld key %lld",
                                     used ? ", " : "", (long long)i, (long long)slots[i].position);
        json_array_append_new(list,
                              json_pack("[I,I]", (json_int_t)i, (json_int_t)slots[i].position));
    }
    return json_pack("{s:o}", "slots", list);
}

static assay_status offer_map(assay_home *home, const assay_slot *slots, assay_cached what,
                              double complexity)
{
    static const char *const whose[] = {"of keys and values", "of keys", "of values",
                                        "of latents and rotary keys"};
    char list[200] = "", text[320];
    json_t *fitted = moved_slots(list, sizeof list, slots, assay_home_n_keys(home));
    snprintf(text, sizeof text, "slots %s that hold another than their own: %s", whose[what], list);
    return offer_slots(home, slots, what,
                       &(assay_offer_text){.kind = "slots hold other keys",
                                           .family = "attention",
                                           .complexity = complexity,
                                           .fitted = fitted,
                                           .evidence = text});
}

/* Which slot holds what is read off the probabilities; the kernel's output says whose tensor. */
static assay_status try_assigned(assay_home *home, assay_slot *slots)
{
    int64_t moved;
    ASSAY_TRY(assay_home_assign_slots(slots, &moved, home));
    if (moved == 0)
        return ASSAY_OK;
    ASSAY_TRY(offer_map(home, slots, ASSAY_CACHED_ALL, 0.9));
    return home->judged->point == ASSAY_POINT_PROBS || assay_home_settled(home)
               ? ASSAY_OK
               : offer_map(home, slots, ASSAY_CACHED_KEYS, 0.95);
}

/* The last of ALL, KEYS, VALUES that gives this home another value than those before it: scores and
 * probabilities are the same whether values move along or not. */
static assay_cached last_told_apart(const assay_home *home)
{
    assay_point point = home->judged->point;
    return point == ASSAY_POINT_PROBS || point == ASSAY_POINT_LSE ||
                   point == ASSAY_POINT_INDEX_SCORES
               ? ASSAY_CACHED_ALL
               : ASSAY_CACHED_VALUES;
}

/* Decode steps write one slot early: each key over the one before it, and the last slot stays
 * empty; of the newest alone, or of all since the first step. A run that shows its cache shows
 * zeros for what should be in the empty slot (due). */
static assay_status try_one_early(assay_home *home, assay_slot *slots)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    const assay_run_step *at = assay_run_step_at(run, j->prompt, j->step);
    int64_t n = assay_home_n_keys(home), first = assay_run_step_at(run, j->prompt, 0)->n_tokens;
    bool latent = home->shape->is_mla && !assay_forced_is_latent(home->forced, j->prompt);
    if (at->first_position == 0 || at->n_tokens != 1 || n < 2)
        return ASSAY_OK;
    for (int way = 0; way < 4; way++)
        for (assay_cached what = ASSAY_CACHED_ALL; what <= ASSAY_CACHED_LATENT; what++) {
            if ((what > last_told_apart(home) && what != ASSAY_CACHED_LATENT) ||
                (what == ASSAY_CACHED_LATENT && !latent) || assay_home_settled(home))
                continue;
            assay_home_own_slots(slots, home);
            for (int64_t i = way < 2 || first >= n ? n - 2 : first - 1; i < n - 1; i++) {
                slots[i].position = i + 1;
                slots[i].due = way % 2;
            }
            slots[n - 1].position = -1;
            ASSAY_TRY(offer_map(home, slots, what, 0.8));
        }
    return ASSAY_OK;
}

/* Without probabilities: the newest key over the one before it, a slot that is empty, neighbouring
 * pages exchanged. */
static assay_status try_guesses(assay_home *home, assay_slot *slots)
{
    int64_t n = assay_home_n_keys(home);
    ASSAY_TRY(try_one_early(home, slots));
    for (assay_cached what = ASSAY_CACHED_ALL; what <= last_told_apart(home); what++) {
        for (int64_t i = 0; i < n && n <= 64 && !assay_home_settled(home); i++) {
            assay_home_own_slots(slots, home);
            slots[i].position = -1;
            ASSAY_TRY(offer_map(home, slots, what, 1));
        }
        for (int64_t page = 2; page <= 64 && !assay_home_settled(home); page *= 2)
            for (int64_t p = 0; (p + 2) * page <= n && p < 8; p++) {
                assay_home_own_slots(slots, home);
                for (int64_t i = p * page; i < (p + 1) * page; i++) {
                    slots[i].position = i + page;
                    slots[i + page].position = i;
                }
                ASSAY_TRY(offer_map(home, slots, what, 1));
            }
    }
    return ASSAY_OK;
}

/* Every head reads the keys, the values or both of the next or last head, or of half of the heads
 * further on. */
static assay_status try_heads(assay_home *home, assay_slot *slots)
{
    static const char *const whose[] = {"keys and values", "keys", "values"};
    int H = home->shape->is_mla ? home->shape->n_head : home->shape->n_head_kv;
    const int shifts[] = {1, -1, H / 2};
    char text[320];
    if (H < 2 || assay_forced_is_latent(home->forced, home->judged->prompt))
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts - (H == 2); i++)
        for (assay_cached what = ASSAY_CACHED_ALL; what <= last_told_apart(home); what++) {
            assay_home_own_slots(slots, home);
            for (int64_t k = 0; k < assay_home_n_keys(home); k++)
                slots[k].head_shift = shifts[i];
            snprintf(text, sizeof text,
                     "every head with the %s of head h%+d (mod %d) gives the value", whose[what],
                     shifts[i], H);
            ASSAY_TRY(
                offer_slots(home, slots, what,
                            &(assay_offer_text){.kind = "heads of the cache shifted",
                                                .family = "attention",
                                                .complexity = 0.6,
                                                .fitted = json_pack("{s:i, s:s}", "heads",
                                                                    shifts[i], "of", whose[what]),
                                                .evidence = text}));
        }
    return ASSAY_OK;
}

static bool is_lost(const assay_home *home, int64_t cell, int64_t width)
{
    bool lost = false;
    for (int64_t i = cell * width; i < (cell + 1) * width; i++)
        lost = lost || isnan(home->got[i]);
    return lost;
}

/* The first row of the step that is lost, where that and all behind it are lost in all heads and no
 * row before; -1: the loss has another shape. */
static int64_t first_lost(const assay_home *home)
{
    const assay_judged *j = home->judged;
    bool probs = j->point == ASSAY_POINT_PROBS;
    int64_t H = probs ? home->shape->n_head : j->n_groups, T = probs ? j->n_rows / H : j->n_rows;
    int64_t width = probs ? j->n_cols : j->n_cols / H, first = T;
    if (H < 2)
        return -1;
    for (int64_t h = 0; h < H; h++)
        for (int64_t t = 0; t < T; t++) {
            bool lost = is_lost(home, probs ? h * T + t : t * H + h, width);
            if (h == 0 && lost && first == T)
                first = t;
            if (lost != (t >= first))
                return -1;
        }
    return first;
}

/* The same of the indexer's scores, which a slot touches in its own column alone. */
static int64_t lost_column(const assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t column = -1;
    for (int64_t i = 0; i < home->n; i++) {
        if (!isfinite(home->expected[i]))
            continue;
        if (isnan(home->got[i]) && column < 0)
            column = i % j->n_cols;
        if (column >= 0 && isnan(home->got[i]) != (i % j->n_cols == column))
            return -1;
    }
    return column;
}

/*
 * A slot that nobody wrote holds whatever memory held. Where that is not finite, every row that
 * sees the slot is lost in all heads and no other row is, although all that went into the cache is
 * finite. Memory that is filled with NaN before use makes it so, and its pattern says that the NaN
 * is not the output's own.
 */
static assay_status try_unwritten_slot(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    bool scores = j->point == ASSAY_POINT_INDEX_SCORES;
    int64_t own, foreign, first;
    uint32_t owner = 0;
    char text[320], fact[120] = "";
    if (j->n_nonfinite_added == 0)
        return ASSAY_OK;
    assay_home_poison(&own, &foreign, &owner, home);
    first = scores ? lost_column(home) : first_lost(home);
    if (first < 0 || own > 0)
        return ASSAY_OK;
    for (int64_t i = 0; i < home->n; i++)
        home->scratch[i] = isfinite(home->got[i]) ? home->expected[i] : home->got[i];
    if (foreign > 0)
        snprintf(fact, sizeof fact,
                 "; %lld elements carry the NaN pattern of buffer %u, not of "
                 "this output",
                 (long long)foreign, owner);
    first += scores ? 0 : at->first_position;
    snprintf(
        text, sizeof text,
        "all that was written to the cache is finite, yet all that sees position %lld%s is NaN "
        "and nothing else: a slot that was never written is read%s",
        (long long)first, scores ? "" : " (or what is behind it)", fact);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = "an unwritten slot is read",
                            .family = "attention",
                            .complexity = 0.04,
                            .shape_only = foreign == 0,
                            .fitted = json_pack("{s:I}", "first position", (json_int_t)first),
                            .evidence = text});
}

static assay_status try_cache(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t n = assay_home_n_keys(home);
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t rows = j->point == ASSAY_POINT_PROBS ? j->n_rows / home->shape->n_head : j->n_rows;
    assay_slot *slots;
    if (rows != at->n_tokens)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&slots, (size_t)n, sizeof *slots, "slots"));
    assay_status s = try_other_cache(home, slots);
    if (s == ASSAY_OK && !assay_home_best(home) && j->point != ASSAY_POINT_INDEX_SCORES)
        s = try_heads(home, slots);
    if (s == ASSAY_OK && !assay_home_best(home) && j->point != ASSAY_POINT_INDEX_SCORES)
        s = try_assigned(home, slots);
    if (s == ASSAY_OK && !assay_home_best(home) && n <= 256)
        s = try_guesses(home, slots);
    free(slots);
    return s;
}

assay_status assay_fault_match_kv_addr(assay_home *home)
{
    const assay_judged *j = home->judged;
    static const assay_point cached[] = {ASSAY_POINT_K,      ASSAY_POINT_V,
                                         ASSAY_POINT_K_ROPE, ASSAY_POINT_KV_LATENT,
                                         ASSAY_POINT_KV_B,   ASSAY_POINT_INDEX_K};
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home))
        ASSAY_TRY(try_slots(home));
    if (assay_home_attends(home) || j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_unwritten_slot(home));
    if (j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_LSE ||
        j->point == ASSAY_POINT_KERNEL_OUT || j->point == ASSAY_POINT_O_LATENT ||
        j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_cache(home));
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
        if (j->point == cached[i]) {
            ASSAY_TRY(try_layers(home));
            ASSAY_TRY(try_rows(home));
            if (j->point == ASSAY_POINT_K_ROPE)
                ASSAY_TRY(try_rotated_rows(home));
        }
    return ASSAY_OK;
}
