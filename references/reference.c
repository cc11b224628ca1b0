#include "references/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture.h"
#include "probes/selector.h"

enum { EXACT, F32, BF16, N_PASSES };

typedef struct maker {
    assay_oracle *oracle;
    const assay_reference_options *options;
    assay_pass *passes[N_PASSES]; /* rounded ones NULL without floors */
    assay_capture *capture;
    assay_selector *selector;
    int first, last, n_layers;
    assay_reference_made made;
} maker;

static assay_status open_passes(maker *m)
{
    static const assay_dtype formats[N_PASSES] = {ASSAY_DTYPE_F64, ASSAY_DTYPE_F32,
                                                  ASSAY_DTYPE_BF16};
    for (int i = 0; i < (m->options->no_floor ? 1 : N_PASSES); i++) {
        assay_knobs k = m->options->knobs ? *m->options->knobs : *assay_oracle_knobs(m->oracle);
        k.round_out = formats[i];
        k.round_weight = formats[i];
        assay_pass_options options = {.latent = m->options->latent, .knobs = &k};
        ASSAY_TRY(assay_pass_new(&m->passes[i], m->oracle, &options));
    }
    return ASSAY_OK;
}

static assay_status open_capture(maker *m, const char *path)
{
    const assay_oracle_shape *shape = assay_oracle_shape_of(m->oracle);
    assay_capture_about about = {.producer = "assay",
                                 .producer_version = ASSAY_VERSION,
                                 .architecture = shape->architecture,
                                 .model_sha256 = m->options->sha256,
                                 .dtype = "f64",
                                 .path =
                                     m->options->latent && shape->is_mla ? "latent" : "expanded",
                                 .backend = "cpu",
                                 .mode = "eager",
                                 .profile = m->options->profile,
                                 .n_ranks = 1};
    /* selection happens here, before anything is computed */
    ASSAY_TRY(assay_capture_create(&m->capture, path, &about, NULL));
    return assay_capture_mark_reference(m->capture, "assay oracle " ASSAY_VERSION,
                                        "float64, weights decoded exactly");
}

static bool is_wanted(const maker *m, assay_point point, int layer, int step)
{
    bool expert = point >= ASSAY_POINT_MOE_EXPERT_GATE && point <= ASSAY_POINT_MOE_EXPERT_DOWN;
    if (!m->options->selector && (expert || point == ASSAY_POINT_PROBS))
        return false; /* large, and read from the points around them */
    return assay_oracle_has_point(m->oracle, point, layer, m->options->latent) &&
           assay_selector_has(m->selector, point, layer, step);
}

static assay_status add_step(maker *m, const int32_t *tokens, int64_t n, int64_t position)
{
    int step = 0;
    for (int i = 0; i < N_PASSES; i++)
        if (m->passes[i])
            ASSAY_TRY(assay_pass_add_step(&step, m->passes[i], tokens, n, position));
    m->made.n_steps = step + 1;
    return assay_capture_step(m->capture, step == 0, position, tokens, n);
}

/* Choices of the exact pass stand in the rounded ones: a flip is no noise of the numbers behind it.
 */
static assay_status follow_choices(maker *m, int step, int layer, int64_t n_tokens)
{
    static const assay_point choices[] = {ASSAY_POINT_INDEX_TOPK, ASSAY_POINT_MOE_TOPK};
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
        if (!assay_oracle_has_point(m->oracle, choices[c], layer, m->options->latent))
            continue;
        const double *ids;
        int n_dims;
        int64_t dims[ASSAY_MAX_DIMS];
        ASSAY_TRY(assay_pass_dims(&n_dims, dims, m->passes[EXACT], step, choices[c], layer));
        ASSAY_TRY(assay_pass_value(&ids, m->passes[EXACT], step, choices[c], layer));
        for (int i = F32; i < N_PASSES; i++)
            if (m->passes[i])
                ASSAY_TRY(
                    assay_pass_put(m->passes[i], step, choices[c], layer, ids, n_tokens * dims[1]));
    }
    return ASSAY_OK;
}

/* Relative L2; equal infinities (masked scores) are no difference. */
static double distance(const double *got, const double *want, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] && isinf(want[i]))
            continue;
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return error == 0 ? 0 : size > 0 ? sqrt(error / size) : HUGE_VAL;
}

static assay_status floors_of(double floors[N_PASSES], maker *m, int step, assay_point point,
                              int layer, const double *exact, int64_t n)
{
    floors[EXACT] = floors[F32] = floors[BF16] = -1;
    for (int i = F32; i < N_PASSES && !assay_point_at(point)->is_ids; i++) {
        const double *rounded;
        if (!m->passes[i])
            continue;
        ASSAY_TRY(assay_pass_value(&rounded, m->passes[i], step, point, layer));
        floors[i] = distance(rounded, exact, n);
    }
    return ASSAY_OK;
}

/* Ids as int32, everything else as float64. */
static assay_status write_value(maker *m, const char *name, assay_point point, const double *values,
                                int n_dims, const int64_t *dims, int64_t n, double floor)
{
    const char *axes = assay_oracle_axes(m->oracle, point);
    if (!assay_point_at(point)->is_ids) {
        assay_buffer view = assay_buffer_view((void *)values, ASSAY_DTYPE_F64, n_dims, dims);
        return assay_capture_value(m->capture, name, axes, &view, ASSAY_DTYPE_F64, floor);
    }
    int32_t *ids;
    ASSAY_TRY(assay_alloc(&ids, (size_t)n, sizeof *ids, "ids of a reference"));
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)values[i];
    assay_buffer view = assay_buffer_view(ids, ASSAY_DTYPE_I32, n_dims, dims);
    assay_status s = assay_capture_value(m->capture, name, axes, &view, ASSAY_DTYPE_I32, -1);
    free(ids);
    return s;
}

static assay_status write_point(maker *m, int step, assay_point point, int layer)
{
    if (!is_wanted(m, point, layer, step))
        return ASSAY_OK;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    const double *values;
    double floors[N_PASSES];
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, point, layer);
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, m->passes[EXACT], step, point, layer));
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    ASSAY_TRY(assay_pass_value(&values, m->passes[EXACT], step, point, layer));
    ASSAY_TRY(floors_of(floors, m, step, point, layer, values, n));
    ASSAY_TRY(write_value(m, name, point, values, n_dims, dims, n, floors[F32]));
    if (floors[BF16] >= 0)
        ASSAY_TRY(assay_capture_floor_bf16(m->capture, name, floors[BF16]));
    if (point == ASSAY_POINT_LOGITS && step == 0 && !m->options->no_floor) {
        m->made.logits_f32 = floors[F32];
        m->made.logits_bf16 = floors[BF16];
    }
    m->made.n_values++;
    return ASSAY_OK;
}

static assay_status write_layer(maker *m, int step, int layer, int64_t n_tokens)
{
    const double *unused;
    ASSAY_TRY(follow_choices(m, step, layer, n_tokens));
    for (int p = 0; p < ASSAY_POINT_COUNT && layer >= m->first; p++)
        if (assay_point_at((assay_point)p)->per_layer)
            ASSAY_TRY(write_point(m, step, (assay_point)p, layer));
    for (int i = 0; i < N_PASSES; i++)
        if (m->passes[i]) { /* what the next layer starts from stays */
            ASSAY_TRY(assay_pass_value(&unused, m->passes[i], step, ASSAY_POINT_OUT, layer));
            if (m->options->n_new <= 1)
                assay_pass_forget(m->passes[i], layer);
        }
    return ASSAY_OK;
}

static assay_status write_step(maker *m, int step, int64_t n_tokens)
{
    if (m->first == 0)
        ASSAY_TRY(write_point(m, step, ASSAY_POINT_EMBED, -1));
    for (int layer = 0; layer <= m->last; layer++) {
        if (m->options->progress)
            m->options->progress(m->options->user, step == 0 ? layer : m->n_layers, m->n_layers);
        ASSAY_TRY(write_layer(m, step, layer, n_tokens));
    }
    if (m->last + 1 < m->n_layers)
        return ASSAY_OK;
    ASSAY_TRY(write_point(m, step, ASSAY_POINT_FINAL_NORM, -1));
    return write_point(m, step, ASSAY_POINT_LOGITS, -1);
}

static assay_status choose(int32_t *id, maker *m, int step, int64_t n_tokens)
{
    const double *logits;
    int n_vocab = assay_oracle_shape_of(m->oracle)->n_vocab, best = 0;
    ASSAY_TRY(assay_pass_value(&logits, m->passes[EXACT], step, ASSAY_POINT_LOGITS, -1));
    logits += (n_tokens - 1) * n_vocab;
    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    *id = best;
    return ASSAY_OK;
}

static assay_status write_steps(maker *m, const int32_t *tokens, int64_t n)
{
    ASSAY_TRY(add_step(m, tokens, n, 0));
    ASSAY_TRY(write_step(m, 0, n));
    int n_new = m->options->n_new;
    if (n_new <= 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&m->made.greedy, (size_t)n_new, sizeof(int32_t), "greedy ids"));
    for (int i = 0; i < n_new; i++) {
        ASSAY_TRY(choose(&m->made.greedy[i], m, i, i == 0 ? n : 1));
        m->made.n_greedy = i + 1;
        if (i + 1 == n_new)
            break;
        ASSAY_TRY(add_step(m, &m->made.greedy[i], 1, n + i));
        ASSAY_TRY(write_step(m, i + 1, 1));
    }
    return assay_capture_greedy(m->capture, m->made.greedy, n_new);
}

static assay_status check_layers(maker *m)
{
    m->n_layers = assay_oracle_shape_of(m->oracle)->n_layer;
    m->first = m->options->first_layer;
    m->last = m->options->last_layer < 0 ? m->n_layers - 1 : m->options->last_layer;
    if (m->first < 0 || m->first > m->last || m->last >= m->n_layers)
        return assay_fail(ASSAY_USAGE, "layers %d-%d of a model with %d", m->first, m->last,
                          m->n_layers);
    if (m->options->n_new > 0 && m->last + 1 < m->n_layers)
        return assay_fail(ASSAY_USAGE, "ids to choose need the last layer (%d)", m->n_layers - 1);
    return ASSAY_OK;
}

static void maker_clear(maker *m)
{
    for (int i = 0; i < N_PASSES; i++)
        assay_pass_free(m->passes[i]);
    assay_selector_free(m->selector);
    assay_capture_abandon(m->capture);
}

assay_status assay_reference_write(assay_reference_made *out, const char *path,
                                   assay_oracle *oracle, const int32_t *tokens, int64_t n_tokens,
                                   const assay_reference_options *options)
{
    maker m = {.oracle = oracle, .options = options};
    assay_status s;
    m.made.logits_f32 = m.made.logits_bf16 = NAN;
    ASSAY_GO(check_layers(&m));
    ASSAY_GO(assay_selector_new(&m.selector, options->selector));
    ASSAY_GO(open_passes(&m));
    ASSAY_GO(open_capture(&m, path));
    ASSAY_GO(assay_capture_prompt(m.capture, options->prompt ? options->prompt : "default",
                                  options->text, tokens, n_tokens));
    ASSAY_GO(write_steps(&m, tokens, n_tokens));
    for (int i = 0; i < N_PASSES; i++)
        m.made.n_ops += m.passes[i] ? assay_pass_n_ops(m.passes[i]) : 0;
    s = assay_capture_finish(m.capture);
    m.capture = NULL;
out:
    maker_clear(&m);
    if (s == ASSAY_OK)
        *out = m.made;
    else
        free(m.made.greedy);
    return s;
}
