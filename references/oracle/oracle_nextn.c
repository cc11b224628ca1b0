/*
 * Input of a layer that predicts a further token (multi-token prediction):
 *
 *     x[t] = eh_proj [ enorm(embedding of the token that follows) | hnorm(hidden state of t) ]
 *
 * Layer n_layer + d of the file, d = 0, 1, ..., follows token t by the token at t + 1 + d: the
 * step's own; right behind the step the next step's first one, or what the last row's logits make
 * likeliest; further on the likeliest by the logits of row t one depth before, which is all that an
 * engine knows when it runs the step. Its attention is dense.
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
    int64_t end = call->at->first_key + call->at->n_tokens;
    if (index < end) {
        *token = call->at->tokens[index - call->at->first_key];
        return ASSAY_OK;
    }
    if (index == end && call->step + 1 < e->pass->n_steps) {
        *token = e->pass->steps[call->step + 1].tokens[0];
        return ASSAY_OK;
    }
    const double *logits;
    bool trunk = index == end;
    ASSAY_TRY(assay_oracle_value(&logits, e, call->step,
                                 trunk ? ASSAY_POINT_LOGITS : ASSAY_POINT_NEXTN_LOGITS,
                                 trunk ? -1 : call->layer - 1));
    row = trunk ? call->at->n_tokens - 1 : row;
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
    if (k->nextn_embed_lost && call->at->first_position + row == 0)
        memset(embedded, 0, (size_t)D * sizeof *embedded);
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
