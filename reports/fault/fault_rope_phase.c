/*
 * ROPE-PHASE: the pairing right, the angle wrong: left out, reversed, another base, factor, width
 * or position. Numbers are fitted.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_rope_phase[] = {
    {.name = "rope-base",
     .about = "another rotary base",
     .weakest = 500000.0,
     .strongest = 900000.0,
     .seam = ASSAY_SEAM_ROPE_BASE,
     .value = 500000.0,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-width",
     .about = "half of the rotary channels turned",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_WIDTH,
     .value = 16,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-frequency-width",
     .about = "the exponent of the frequencies divided by another width",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_FREQUENCY_WIDTH,
     .value = 96,
     .needs = ASSAY_NEEDS_MLA,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-position",
     .about = "positions of the queries off by one",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_POSITION,
     .value = 1,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-position-scale",
     .about = "positions multiplied by a factor",
     .weakest = 0.5,
     .strongest = 0.98,
     .seam = ASSAY_SEAM_ROPE_POSITION_SCALE,
     .value = 0.5,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-skip-k",
     .about = "keys are not rotated",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_SKIP,
     .value = 1,
     .n_ints = 1,
     .ints = {1},
     .home = "attn.k_rope"},
    {.name = "rope-inverse",
     .about = "turned the other way",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_INVERSE,
     .value = 1,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "rope-factor",
     .about = "the factor of the context extension",
     .weakest = 20,
     .strongest = 1,
     .seam = ASSAY_SEAM_ROPE_FACTOR,
     .value = 20,
     .needs = ASSAY_NEEDS_EXTENSION,
     .home = "attn.q_rope attn.k_rope"},
    {0}};

static const char *family_of(bool index)
{
    return index ? "rotary of the indexer" : "rotary";
}

static assay_status offer(assay_home *home, const assay_knobs *knobs, bool index, const char *kind,
                          double complexity, json_t *fitted, const char *evidence)
{
    return assay_home_offer_variant(home, knobs,
                                    &(assay_offer_text){.kind = kind,
                                                        .family = family_of(index),
                                                        .complexity = complexity,
                                                        .fitted = fitted,
                                                        .evidence = evidence});
}

static assay_rope_knobs *rope_of(assay_knobs *knobs, bool index)
{
    return index ? &knobs->index_rope : &knobs->rope;
}

static assay_status try_flags(assay_home *home, bool index)
{
    assay_knobs knobs = *home->knobs;
    rope_of(&knobs, index)->skip = true;
    ASSAY_TRY(offer(home, &knobs, index, "not rotated", 0.1, NULL,
                    "the value is the one before the rotation; position 0 is right"));
    knobs = *home->knobs;
    rope_of(&knobs, index)->skip_k = true;
    ASSAY_TRY(offer(home, &knobs, index, "keys not rotated", 0.2, NULL,
                    "keys as before the rotation, queries rotated, give the value"));
    knobs = *home->knobs;
    rope_of(&knobs, index)->skip_q = true;
    ASSAY_TRY(offer(home, &knobs, index, "queries not rotated", 0.2, NULL,
                    "queries as before the rotation, keys rotated, give the value"));
    knobs = *home->knobs;
    rope_of(&knobs, index)->inverse = true;
    ASSAY_TRY(offer(home, &knobs, index, "rotated the other way", 0.2, NULL,
                    "the angle with the other sign gives the value"));
    if (home->knobs->rope.factor != 1) {
        knobs = *home->knobs;
        rope_of(&knobs, index)->factor = 1;
        ASSAY_TRY(offer(home, &knobs, index, "context extension left out", 0.2, NULL,
                        "plain frequencies without the context extension give the value"));
        knobs = *home->knobs;
        rope_of(&knobs, index)->yarn = !rope_of(&knobs, index)->yarn;
        ASSAY_TRY(
            offer(home, &knobs, index, "other kind of context extension", 0.2, NULL,
                  "linear scaling for the per-channel ramp (or the reverse) gives the value"));
    }
    return ASSAY_OK;
}

static assay_status try_widths(assay_home *home, bool index)
{
    int width = index ? home->knobs->index_rope.width : home->knobs->rope.width;
    const int head = index ? home->shape->index_d_head : home->shape->d_nope + home->shape->d_rope;
    const int widths[] = {width / 2,     width / 4, 2 * width,    head,
                          3 * width / 4, width / 8, 7 * width / 8};
    char text[320];
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (widths[i] < 2 || widths[i] % 2 || widths[i] == width)
            continue;
        assay_knobs knobs = *home->knobs;
        if (widths[i] < width) {
            rope_of(&knobs, index)->width = widths[i];
            snprintf(text, sizeof text, "rotating %d channels for %d gives the value", widths[i],
                     width);
            ASSAY_TRY(offer(home, &knobs, index, "rotary width", 0.3,
                            json_pack("{s:i}", "width", widths[i]), text));
            /* frequencies of the narrow width in the right exponent */
            rope_of(&knobs, index)->frequency_width = width;
            ASSAY_TRY(offer(home, &knobs, index, "rotary width", 0.4,
                            json_pack("{s:i, s:i}", "width", widths[i], "frequency width", width),
                            text));
        }
        knobs = *home->knobs;
        rope_of(&knobs, index)->frequency_width = widths[i];
        snprintf(text, sizeof text, "frequencies base^(-2i/%d) for base^(-2i/%d) give the value",
                 widths[i], width);
        ASSAY_TRY(offer(home, &knobs, index, "frequencies of another width", 0.3,
                        json_pack("{s:i}", "frequency width", widths[i]), text));
    }
    return ASSAY_OK;
}

static assay_status try_positions(assay_home *home, bool index)
{
    static const int offsets[] = {-1, 1, -2, 2, -3, 3, -4, 4, 8, -8};
    /* a rotated tensor speaks for itself alone; behind it, both sides' positions matter */
    bool alone =
        assay_home_is(home, ASSAY_POINT_Q_ROPE) || assay_home_is(home, ASSAY_POINT_K_ROPE) ||
        assay_home_is(home, ASSAY_POINT_INDEX_Q) || assay_home_is(home, ASSAY_POINT_INDEX_K);
    char text[320];
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int side = 0; side < (alone ? 1 : 3); side++) {
            assay_knobs knobs = *home->knobs;
            assay_rope_knobs *rope = rope_of(&knobs, index);
            bool q = side != 1, k = side != 2;
            rope->position_offset_q += q ? offsets[i] : 0;
            rope->position_offset_k += k ? offsets[i] : 0;
            snprintf(text, sizeof text, "positions off by %d%s give the value", offsets[i],
                     alone    ? ""
                     : q && k ? " (queries and keys)"
                     : q      ? " (queries)"
                              : " (keys)");
            json_t *fitted = json_pack("{s:i}", "offset", offsets[i]);
            if (!alone)
                json_object_set_new(fitted, "of", json_string(q && k ? "both" : q ? "q" : "k"));
            ASSAY_TRY(
                offer(home, &knobs, index, "position offset", side ? 0.5 : 0.4, fitted, text));
        }
    return ASSAY_OK;
}

static assay_status try_fit(assay_home *home, bool index, bool base)
{
    assay_knobs knobs = *home->knobs;
    assay_rope_knobs *rope = rope_of(&knobs, index);
    double *at = base ? &rope->base : &rope->position_scale, right = *at, best, rest;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, at, base ? 100 : right / 64,
                             base ? 1e9 : right * 64, 33));
    if (fabs(best / right - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text,
             base ? "fitted base %.6g, the model has %.6g"
                  : "fitted factor on positions %.6g, right is %.6g",
             best, right);
    return offer(home, &knobs, index, base ? "rotary base" : "position scale", 1,
                 json_pack("{s:f, s:f}", base ? "base" : "position scale", best, "right", right),
                 text);
}

/* The numbers of a context extension: its factor, the borders of its ramp, the length that it
 * starts from. */
static assay_status try_extension(assay_home *home, bool index)
{
    static const struct {
        size_t at;
        double low, high;
        const char *kind, *name;
    } numbers[] = {
        {offsetof(assay_rope_knobs, factor), 1.0 / 16, 16, "factor of the extension", "factor"},
        {offsetof(assay_rope_knobs, beta_fast), 1.0 / 16, 16, "ramp of the extension", "beta_fast"},
        {offsetof(assay_rope_knobs, beta_slow), 1.0 / 16, 16, "ramp of the extension", "beta_slow"},
        {offsetof(assay_rope_knobs, orig_context), 1.0 / 64, 64, "original length of the extension",
         "original context"},
    };
    if (home->knobs->rope.factor == 1)
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assay_knobs knobs = *home->knobs;
        double *at = (double *)((char *)rope_of(&knobs, index) + numbers[i].at), right = *at;
        double best, rest;
        char text[320];
        ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, at, right * numbers[i].low,
                                 right * numbers[i].high, 33));
        if (fabs(best / right - 1) < 1e-3)
            continue;
        snprintf(text, sizeof text, "fitted %s %.6g, the model has %.6g", numbers[i].name, best,
                 right);
        ASSAY_TRY(offer(home, &knobs, index, numbers[i].kind, 1,
                        json_pack("{s:f, s:f}", numbers[i].name, best, "right", right), text));
        if (assay_home_settled(home))
            break;
    }
    return ASSAY_OK;
}

#define MANY_POSITIONS 64

/* Each token with the offset that fits it best; told when few offsets do (positions that start
 * again, a second sequence counted on). */
static assay_status try_each_row(assay_home *home)
{
    const assay_judged *j = home->judged;
    bool used[2 * MANY_POSITIONS + 1] = {0};
    int64_t cols = j->n_cols, n_moved = 0, first = -1;
    int n_offsets = 0, most = 0;
    double *rest;
    char text[320];
    if (j->point != ASSAY_POINT_Q_ROPE && j->point != ASSAY_POINT_K_ROPE)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&rest, (size_t)(home->n + 2 * j->n_rows), sizeof *rest, "offsets"));
    double *offset = rest + j->n_rows, *best = offset + j->n_rows;
    assay_status s = ASSAY_OK;
    for (int k = 0; k <= 2 * MANY_POSITIONS && s == ASSAY_OK; k++) {
        int d = k % 2 ? -(k + 1) / 2 : k / 2;
        assay_knobs knobs = *home->knobs;
        knobs.rope.position_offset_q += d;
        knobs.rope.position_offset_k += d;
        if (abs(d) >= j->first_row + j->n_rows)
            break;
        s = assay_forced_expect(home->scratch, home->forced, home->index, &knobs);
        for (int64_t r = 0; r < j->n_rows; r++) {
            double sum = 0;
            for (int64_t i = r * cols; i < (r + 1) * cols; i++)
                sum += (home->got[i] - home->scratch[i]) * (home->got[i] - home->scratch[i]);
            if (k > 0 && !(sum < 0.5 * rest[r]))
                continue;
            rest[r] = sum;
            offset[r] = d;
            memcpy(best + r * cols, home->scratch + r * cols, (size_t)cols * sizeof *best);
        }
    }
    for (int64_t r = 0; r < j->n_rows; r++) {
        int d = (int)offset[r];
        n_offsets += d != 0 && !used[d + MANY_POSITIONS];
        used[d + MANY_POSITIONS] = true;
        if (d != 0 && n_moved++ == 0) {
            first = r;
            most = d;
        }
    }
    snprintf(text, sizeof text,
             "%lld of %lld tokens are rotated for another position, from token %lld on by %+d",
             (long long)n_moved, (long long)j->n_rows, (long long)first, most);
    if (s == ASSAY_OK && n_offsets == 1 && n_moved == j->n_rows) {
        snprintf(text, sizeof text, "positions off by %d give the value", most);
        s = assay_home_offer(home, best,
                             &(assay_offer_text){.kind = "position offset",
                                                 .family = family_of(false),
                                                 .complexity = 0.7,
                                                 .fitted = json_pack("{s:i}", "offset", most),
                                                 .evidence = text});
    } else if (s == ASSAY_OK && n_offsets > 0 && n_offsets <= 4 && j->n_rows >= 4)
        s = assay_home_offer(home, best,
                             &(assay_offer_text){.kind = "positions of some tokens",
                                                 .family = family_of(false),
                                                 .complexity = 1.0 + n_offsets,
                                                 .fitted = json_pack("{s:i, s:I}", "offset", most,
                                                                     "first", (json_int_t)first),
                                                 .evidence = text});
    free(rest);
    return s;
}

static assay_status try_all(assay_home *home, bool index)
{
    ASSAY_TRY(try_flags(home, index));
    ASSAY_TRY(try_widths(home, index));
    ASSAY_TRY(try_positions(home, index));
    if (assay_home_settled(home) || home->judged->is_ids)
        return ASSAY_OK;
    if (!index)
        ASSAY_TRY(try_each_row(home));
    if (assay_home_settled(home))
        return ASSAY_OK;
    ASSAY_TRY(try_fit(home, index, true));
    ASSAY_TRY(try_fit(home, index, false));
    return assay_home_settled(home) ? ASSAY_OK : try_extension(home, index);
}

assay_status assay_fault_match_rope_phase(assay_home *home)
{
    if (home->judged->against)
        return ASSAY_OK;
    if (home->judged->is_ids) /* a selection whose scores were not captured */
        return assay_home_is(home, ASSAY_POINT_INDEX_TOPK) &&
                       (assay_home_covers(home, ASSAY_POINT_INDEX_Q) ||
                        assay_home_covers(home, ASSAY_POINT_INDEX_K))
                   ? try_all(home, true)
                   : ASSAY_OK;
    if (assay_home_covers(home, ASSAY_POINT_Q_ROPE) || assay_home_covers(home, ASSAY_POINT_K_ROPE))
        ASSAY_TRY(try_all(home, false));
    if (assay_home_covers(home, ASSAY_POINT_INDEX_Q) ||
        assay_home_covers(home, ASSAY_POINT_INDEX_K))
        ASSAY_TRY(try_all(home, true));
    return ASSAY_OK;
}
