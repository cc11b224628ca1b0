/*
 * Input of a layer that predicts a further token (multi-token prediction):
 *
 *     x[t] = eh_proj [ enorm(embedding of the token that follows) | hnorm(hidden state of t) ]
 *
 * Layer n_layer + d of the file, d = 0, 1, ..., follows token t by the token at t + 1 + d: the
 * pass's own where it has one, else the likeliest by the logits of row t one depth before. Its
 * attention is dense.
 */
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

static int32_t likeliest(const double *logits, int64_t n)
{
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

static assay_status following(int32_t *token, const oracle_call *call, int64_t row)
{
    oracle_eval *e = call->eval;
    const assay_oracle_shape *s = &e->oracle->shape;
    int depth = call->layer - s->n_layer;
    int64_t index = call->at->first_key + row + 1 + depth;
    for (int i = call->step; i < e->pass->n_steps; i++) {
        const oracle_step *step = &e->pass->steps[i];
        if (index < step->first_key + step->n_tokens) {
            *token = step->tokens[index - step->first_key];
            return ASSAY_OK;
        }
    }
    const double *logits;
    ASSAY_TRY(assay_oracle_value(&logits, e, call->step,
                                 depth ? ASSAY_POINT_NEXTN_LOGITS : ASSAY_POINT_LOGITS,
                                 depth ? call->layer - 1 : -1));
    *token = likeliest(logits + row * s->n_vocab, s->n_vocab);
    return ASSAY_OK;
}

/* Both halves of one row, normed, in their order. */
static assay_status join_row(double *both, double *embedded, const oracle_call *call, int64_t row)
{
    oracle_eval *e = call->eval;
    const assay_knobs *k = e->knobs;
    int64_t D = call->width;
    int32_t token;
    oracle_matrix table;
    const double *enorm, *hnorm;
    bool own = assay_oracle_find(e->oracle, call->layer, "nextn.embed_tokens.weight") != NULL;
    ASSAY_TRY(following(&token, call, row));
    ASSAY_TRY(assay_oracle_matrix(&table, e->oracle, own ? call->layer : -1,
                                  own ? "nextn.embed_tokens.weight" : "token_embd.weight", 1,
                                  e->oracle->shape.n_vocab, D, k));
    ASSAY_TRY(assay_oracle_row(embedded, e->oracle, &table, 0, token));
    ASSAY_TRY(assay_oracle_vector(&enorm, e, call->layer, "nextn.enorm.weight", D));
    ASSAY_TRY(assay_oracle_vector(&hnorm, e, call->layer, "nextn.hnorm.weight", D));
    int64_t first = k->nextn_concat_exchanged ? D : 0;
    assay_oracle_rms_norm(both + first, embedded, enorm, D, k->eps[ASSAY_NORM_OF_ATTN],
                          ASSAY_NORM_RIGHT, k->round_out);
    assay_oracle_rms_norm(both + D - first, call->in[0] + row * D, hnorm, D,
                          k->eps[ASSAY_NORM_OF_ATTN], ASSAY_NORM_RIGHT, k->round_out);
    return ASSAY_OK;
}

assay_status assay_oracle_op_nextn_in(double *out, const oracle_call *call)
{
    oracle_eval *e = call->eval;
    int64_t D = call->width, T = call->n_tokens;
    oracle_matrix w;
    oracle_part part = {.n_rows = D, .n_cols = 2 * D};
    double *both;
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, call->layer, "nextn.eh_proj.weight", 1, D, 2 * D,
                                  e->knobs));
    ASSAY_TRY(assay_alloc(&both, (size_t)((2 * T + 1) * D), sizeof *both, "joined halves"));
    assay_status s = ASSAY_OK;
    for (int64_t t = 0; t < T && s == ASSAY_OK; t++)
        s = join_row(both + 2 * t * D, both + 2 * T * D, call, t);
    if (s == ASSAY_OK)
        s = assay_oracle_product(out, D, both, 2 * D, T, e->oracle, &w, part, e->knobs);
    free(both);
    return s;
}
