/*
 * Layers behind the trunk that predict further tokens, run in the step that the trunk has just run:
 *
 *   x[t] = eh_proj [ enorm(embedding of token t + 1 + d) | hnorm(hidden state of row t) ]
 *
 * then a layer like the trunk's last (dense attention), a norm and an output head; d counts these
 * layers. The hidden state is what final_norm gives, or the norm of the layer before. What follows
 * a row: the next row's token; behind the last one what the caller says, else what the logits make
 * likeliest. Rows that hold drafts are true only as far as the logits agree: behind the first that
 * they do not, nothing is kept. Source: DeepSeek-V3's multi-token prediction, arXiv:2412.19437, as
 * GLM-5 has it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "engine/ops/pointwise.h"

static int32_t likeliest(const assay_engine *e, assay_point point, int64_t row)
{
    assay_rows y = assay_slots_rows(&e->slots, point);
    return assay_op_greedy(y.at + row * y.stride, y.width);
}

/* Token behind every row of the span, by the trunk; returns the last row whose token is true. */
static int64_t true_tokens(int32_t *next, const assay_engine *e, const assay_span *s)
{
    int64_t first_drafted = s->n_rows - e->n_drafted, last = s->n_rows - 1;
    for (int64_t r = 0; r < s->n_rows; r++) {
        bool known = r + 1 < first_drafted;
        next[r] = known ? e->batch.tokens[s->rows[r + 1]]
                  : r == last && !e->n_drafted && e->next_token >= 0
                      ? e->next_token
                      : likeliest(e, ASSAY_POINT_LOGITS, s->rows[r]);
        if (r + 1 < s->n_rows && next[r] != e->batch.tokens[s->rows[r + 1]])
            return r;
    }
    return last;
}

/* The token that row r is joined with at this depth. */
static int32_t following(const assay_engine *e, const assay_span *s, const int32_t *next,
                         int64_t last, int64_t r, int depth)
{
    if (r + depth <= last)
        return next[r + depth];
    return depth ? likeliest(e, ASSAY_POINT_NEXTN_LOGITS, s->rows[r])
                 : likeliest(e, ASSAY_POINT_LOGITS, s->rows[r]);
}

typedef struct joined { /* [T, 2 D]: both halves normed; tokens [T] */
    float *both, *embedded;
    int32_t *tokens;
    int64_t n_rows, width;
} joined;

static assay_status embed_rows(const joined *j, assay_engine *e, int layer, bool lost)
{
    const assay_weight *own = assay_model_weight(e->model, ASSAY_ROLE_NEXTN_EMBED, layer);
    const assay_weight *table = own ? own : assay_model_weight(e->model, ASSAY_ROLE_TOKEN_EMBD, -1);
    memset(j->embedded, 0, (size_t)(j->n_rows * j->width) * sizeof *j->embedded);
    for (int64_t t = 0; t < j->n_rows; t++)
        if (e->sequences[t] >= 0 && !(lost && e->positions[t] == 0))
            ASSAY_TRY(assay_model_decode_rows(j->embedded + t * j->width, table, j->tokens[t], 1,
                                              e->options.dtype));
    return ASSAY_OK;
}

static assay_status norm_half(const joined *j, assay_engine *e, int64_t at, assay_rows x,
                              assay_role role, int layer)
{
    const float *w;
    assay_norm how = {.eps = e->hp->eps_norm};
    assay_rows half = {j->both + at, j->n_rows, j->width, 2 * j->width};
    ASSAY_TRY(assay_vector(&w, e, role, layer));
    assay_op_rmsnorm(half, x, w, &how);
    if (e->options.dtype == ASSAY_DTYPE_BF16)
        assay_op_round_bf16(half);
    return ASSAY_OK;
}

/* How a wrong engine makes the input (seam nextn-input). */
enum { INPUT_RIGHT, INPUT_EXCHANGED, INPUT_RAW, INPUT_LOST };

static assay_status join(assay_engine *e, const joined *j, int layer)
{
    int how = (int)assay_bent(e, ASSAY_SEAM_NEXTN_INPUT, layer, INPUT_RIGHT);
    assay_point hidden = layer == e->hp->n_layer ? ASSAY_POINT_FINAL_NORM : ASSAY_POINT_NEXTN_NORM;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, hidden, ASSAY_POINT_NEXTN_IN));
    if (how == INPUT_RAW)
        x = assay_slots_rows(&e->slots, ASSAY_POINT_OUT);
    ASSAY_TRY(embed_rows(j, e, layer, how == INPUT_LOST));
    int64_t first = how == INPUT_EXCHANGED ? j->width : 0;
    ASSAY_TRY(norm_half(j, e, first, assay_rows_of(j->embedded, j->n_rows, j->width),
                        ASSAY_ROLE_NEXTN_ENORM, layer));
    ASSAY_TRY(norm_half(j, e, j->width - first, x, ASSAY_ROLE_NEXTN_HNORM, layer));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_NEXTN_IN, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_NEXTN_IN),
                                assay_rows_of(j->both, j->n_rows, 2 * j->width),
                                ASSAY_ROLE_NEXTN_EH_PROJ, layer, ASSAY_ROLE_COUNT));
    return assay_point_done(e, ASSAY_POINT_NEXTN_IN, layer);
}

static assay_status predict(assay_engine *e, int layer)
{
    bool norm = assay_model_weight(e->model, ASSAY_ROLE_NEXTN_HEAD_NORM, layer) != NULL;
    bool head = assay_model_weight(e->model, ASSAY_ROLE_NEXTN_HEAD, layer) != NULL;
    bool tied = !assay_model_weight(e->model, ASSAY_ROLE_OUTPUT, -1);
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_OUT, ASSAY_POINT_NEXTN_NORM));
    ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_NEXTN_NORM, x,
                                 norm ? ASSAY_ROLE_NEXTN_HEAD_NORM : ASSAY_ROLE_OUTPUT_NORM,
                                 ASSAY_NORM_FINAL, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_NEXTN_NORM, ASSAY_POINT_NEXTN_LOGITS));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_NEXTN_LOGITS, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_NEXTN_LOGITS), x,
                                head   ? ASSAY_ROLE_NEXTN_HEAD
                                : tied ? ASSAY_ROLE_TOKEN_EMBD
                                       : ASSAY_ROLE_OUTPUT,
                                head ? layer : -1, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_NEXTN_LOGITS, layer));
    assay_slots_no_reader(&e->slots, ASSAY_POINT_NEXTN_LOGITS);
    return ASSAY_OK;
}

/* tokens of all rows at this depth */
static void choose_tokens(const joined *j, const assay_engine *e, int32_t *const *next,
                          const int64_t *last, int depth)
{
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        for (int64_t r = 0; r < s->n_rows; r++)
            j->tokens[s->rows[r]] = following(e, s, next[i], last[i], r, depth);
    }
}

static assay_status run_layers(assay_engine *e, const joined *j, int32_t *const *next,
                               const int64_t *last)
{
    for (int d = 0; d < e->hp->n_layer_nextn; d++) {
        int layer = e->hp->n_layer + d;
        choose_tokens(j, e, next, last, d);
        assay_status s = join(e, j, layer);
        if (s == ASSAY_OK)
            s = assay_forward_layer(e, layer);
        if (s == ASSAY_OK)
            s = predict(e, layer);
        if (s != ASSAY_OK)
            return assay_within(s, "layer %d", layer);
        e->drafts[d] = likeliest(e, ASSAY_POINT_NEXTN_LOGITS, e->spans[0].rows[last[0]]);
    }
    return ASSAY_OK;
}

assay_status assay_forward_drafts(assay_engine *e)
{
    int64_t n = e->batch.n, width = e->hp->n_embd;
    joined j = {.n_rows = n, .width = width};
    int32_t *memory = NULL, **next = NULL;
    int64_t *last = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&j.both, (size_t)(3 * n * width), sizeof *j.both, "drafts"));
    j.embedded = j.both + 2 * n * width;
    ASSAY_GO(assay_alloc(&memory, (size_t)n, 2 * sizeof *memory, "drafts"));
    ASSAY_GO(assay_alloc(&next, (size_t)e->n_spans, sizeof *next, "drafts"));
    ASSAY_GO(assay_alloc(&last, (size_t)e->n_spans, sizeof *last, "drafts"));
    j.tokens = memory + n;
    for (int64_t i = 0, at = 0; i < e->n_spans; at += e->spans[i++].n_rows) {
        next[i] = memory + at;
        last[i] = true_tokens(next[i], e, &e->spans[i]);
    }
    e->n_true = e->n_spans ? last[0] + 1 : 0;
    s = e->n_spans ? run_layers(e, &j, next, last) : ASSAY_OK;
out:
    free(j.both);
    free(memory);
    free(next);
    free(last);
    return s;
}
