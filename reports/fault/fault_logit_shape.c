/*
 * LOGIT-SHAPE: attention with another scale, a cap, another magnitude of the rotary part, or a
 * denominator that is too large in every head alike.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_logit_shape[] = {
    {.name = "softmax-scale",
     .about = "softmax scale times a factor",
     .weakest = 1.02,
     .strongest = 3,
     .seam = ASSAY_SEAM_SOFTMAX_SCALE,
     .value = 1.05,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "logit-cap",
     .about = "soft cap on the scores",
     .weakest = 2,
     .strongest = 10,
     .seam = ASSAY_SEAM_LOGIT_CAP,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "rope-magnitude",
     .about = "cos and sin times a factor",
     .weakest = 1.02,
     .strongest = 2,
     .seam = ASSAY_SEAM_ROPE_MAGNITUDE,
     .value = 1.1,
     .home = "attn.q_rope attn.k_rope"},
    {0}};

/* What the fitted scale is likely to be. */
static const char *name_scale(const assay_home *home, double scale)
{
    const assay_oracle_shape *s = home->shape;
    double right = home->knobs->softmax_scale, plain = 1 / sqrt(s->d_nope + s->d_rope);
    const struct {
        double value;
        const char *name;
    } known[] = {
        {1, "no scale at all"},
        {1 / right, "the scale inverted"},
        {right * right, "the scale applied twice"},
        {plain, "the magnitude of the context extension missing"},
        {sqrt(plain * right), "the magnitude of the context extension not squared"},
        {1 / sqrt(s->d_nope), "1/sqrt of the nope width"},
        {1 / sqrt(s->d_rope > 0 ? s->d_rope : 1), "1/sqrt of the rotary width"},
        {1 / sqrt(s->d_value > 0 ? s->d_value : 1), "1/sqrt of the value width"},
        {1 / sqrt(s->n_rank_kv + s->d_rope + 1e-9), "1/sqrt of the latent and rotary width"},
        {1 / sqrt(s->n_rank_kv + 1e-9), "1/sqrt of the latent width"},
        {1.0 / (s->d_nope + s->d_rope), "1/width for 1/sqrt(width)"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(scale / known[i].value - 1) < 5e-3 && fabs(known[i].value / right - 1) > 5e-3)
            return known[i].name;
    return "";
}

static assay_status try_scale(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, right = knobs.softmax_scale;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.softmax_scale, right / 256,
                             right * 256, 33));
    if (fabs(best / right - 1) < 1e-3)
        return ASSAY_OK;
    const char *name = name_scale(home, best);
    snprintf(text, sizeof text, "fitted softmax scale %.6g, right is %.6g (ratio %.4f)%s%s", best,
             right, best / right, name[0] ? ": " : "", name);
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "softmax scale",
                            .family = "attention",
                            .complexity = 1,
                            .fitted = json_pack("{s:f, s:f, s:f}", "scale", best, "right", right,
                                                "ratio", best / right),
                            .evidence = text});
}

static assay_status try_cap(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, right = knobs.logit_cap;
    char text[320];
    knobs.logit_cap = 50;
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.logit_cap, 0.5, 500, 17));
    snprintf(text, sizeof text, "logits bend: c tanh(x/c) with c = %.4g, right is %s", best,
             right > 0 ? "another" : "none");
    return assay_home_offer_variant(home, &knobs,
                                    &(assay_offer_text){.kind = "logit cap",
                                                        .family = "attention",
                                                        .complexity = 1.2,
                                                        .fitted = json_pack("{s:f}", "cap", best),
                                                        .evidence = text});
}

static assay_status try_magnitude(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, right = knobs.rope.magnitude;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.rope.magnitude, right / 4,
                             right * 4, 17));
    if (fabs(best / right - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text, "fitted magnitude of the rotary part %.6g, right is %.6g", best,
             right);
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "rotary magnitude",
                            .family = "rotary",
                            .complexity = 1,
                            .fitted = json_pack("{s:f, s:f}", "magnitude", best, "right", right),
                            .evidence = text});
}

/* A sink in the denominator, or a denominator that counts more: a factor per row of every head, at
 * most 1. */
static assay_status try_denominator(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t width = j->n_cols / j->n_groups;
    bool below = true;
    for (int64_t c = 0; c < j->n_rows * j->n_groups; c++) {
        double cross = 0, square = 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            cross += home->got[i] * home->expected[i];
            square += home->expected[i] * home->expected[i];
        }
        double factor = square > 0 ? cross / square : 1;
        below = below && factor > 0.01 && factor < 1.02;
        for (int64_t i = c * width; i < (c + 1) * width; i++)
            home->scratch[i] = factor * home->expected[i];
    }
    if (!below)
        return ASSAY_OK;
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = "denominator too large",
                            .family = "attention",
                            .complexity = (double)(j->n_rows * j->n_groups),
                            .evidence = "every head of every row is the expected one times a "
                                        "factor of at most 1: a sink or further terms in the "
                                        "denominator"});
}

/*
 * A term on the scores that falls with the distance to the key: the logarithm of got over expected
 * is then a line in the distance, with one slope for every head.
 */
static assay_status try_distance(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t H = home->shape->n_head, T = j->n_rows / H, S = j->n_cols, first = S - T;
    char text[320];
    double steepest = 0;
    json_t *slopes = json_array();
    for (int64_t h = 0; h < H; h++) {
        double cross = 0, square = 0;
        for (int64_t t = 0; t < T; t++) {
            const double *g = home->got + (h * T + t) * S, *e = home->expected + (h * T + t) * S;
            double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
            for (int64_t k = 0; k <= first + t && k < S; k++) {
                double x = (double)(first + t - k), y = log(g[k] / e[k]);
                if (!isfinite(y))
                    continue;
                n++;
                sum_x += x;
                sum_y += y;
                sum_xx += x * x;
                sum_xy += x * y;
            }
            cross += n > 0 ? sum_xy - sum_x * sum_y / n : 0;
            square += n > 0 ? sum_xx - sum_x * sum_x / n : 0;
        }
        double slope = square > 0 ? cross / square : 0;
        steepest = fabs(slope) > fabs(steepest) ? slope : steepest;
        json_array_append_new(slopes, json_real(slope));
        for (int64_t t = 0; t < T; t++) {
            double *out = home->scratch + (h * T + t) * S, sum = 0;
            for (int64_t k = 0; k < S; k++) {
                out[k] = home->expected[(h * T + t) * S + k] * exp(slope * (double)(first + t - k));
                sum += out[k];
            }
            for (int64_t k = 0; k < S; k++)
                out[k] /= sum > 0 ? sum : 1;
        }
    }
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text,
             "each score has a term that grows by %.5g for every position of distance (steepest of "
             "%lld heads)",
             steepest, (long long)H);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "scores fall with the distance",
                                  .family = "attention",
                                  .complexity = (double)H < 6 ? (double)H : 6,
                                  .fitted = json_pack("{s:o}", "slopes", slopes),
                                  .evidence = text});
}

assay_status assay_fault_match_logit_shape(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home)) {
        ASSAY_TRY(try_scale(home));
        if (!assay_home_settled(home))
            ASSAY_TRY(try_cap(home));
        if (j->point == ASSAY_POINT_PROBS && !assay_home_best(home) && j->n_nonfinite_added == 0)
            ASSAY_TRY(try_distance(home));
        if (j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_KERNEL_OUT ||
            j->point == ASSAY_POINT_O_LATENT)
            ASSAY_TRY(try_denominator(home));
    }
    if (assay_home_is(home, ASSAY_POINT_Q_ROPE) || assay_home_is(home, ASSAY_POINT_K_ROPE))
        ASSAY_TRY(try_magnitude(home));
    return ASSAY_OK;
}
