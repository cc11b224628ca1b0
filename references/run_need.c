#include "references/run_need.h"

#include <stdlib.h>

#include "probes/recorder.h"

#define VALUE_BYTES 4
#define STATS_BYTES (ASSAY_POINT_NAME_BYTES + 4 + 8 + 10 * 8) /* name, step, checksum, numbers */
#define GROUP_BYTES (2 * 4 + ASSAY_SKETCH_N * 4)              /* row and group, numbers */

/* A pass knows the shapes; what the tokens are does not matter to them. */
static assay_status begin(assay_pass **out, int *step, assay_oracle *oracle, bool latent,
                          int64_t n_before, int64_t n_tokens)
{
    int64_t n = n_before > n_tokens ? n_before : n_tokens;
    assay_pass_options options = {.latent = latent};
    int32_t *tokens = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&tokens, (size_t)n, sizeof *tokens, "tokens of a step"));
    ASSAY_GO(assay_pass_new(out, oracle, &options));
    if (n_before > 0)
        ASSAY_GO(assay_pass_add_step(step, *out, tokens, n_before, 0));
    ASSAY_GO(assay_pass_add_step(step, *out, tokens, n_tokens, n_before));
out:
    free(tokens);
    return s;
}

static assay_status add_value(assay_run_need *need, assay_pass *pass, int step, assay_point point,
                              int layer)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, layer));
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    need->n_values++;
    need->full_bytes += n * VALUE_BYTES;
    need->sketch_bytes += STATS_BYTES + assay_sketch_groups(dims[0]) * GROUP_BYTES;
    return ASSAY_OK;
}

assay_status assay_run_need_add_step(assay_run_need *needs, assay_oracle *oracle, bool latent,
                                     int64_t n_before, int64_t n_tokens)
{
    assay_pass *pass = NULL;
    assay_status s;
    int step, n_layers = assay_oracle_shape_of(oracle)->n_layer;
    ASSAY_GO(begin(&pass, &step, oracle, latent, n_before, n_tokens));
    for (int p = 0; p < ASSAY_POINT_COUNT; p++) {
        assay_point point = (assay_point)p;
        bool per_layer = assay_point_at(point)->per_layer;
        for (int layer = per_layer ? 0 : -1; layer < (per_layer ? n_layers : 0); layer++)
            if (assay_oracle_has_point(oracle, point, layer, latent))
                ASSAY_GO(add_value(&needs[layer + 1], pass, step, point, layer));
    }
out:
    assay_pass_free(pass);
    return s;
}

assay_run_need assay_run_need_sum(const assay_run_need *needs, int n_layers)
{
    assay_run_need sum = {0};
    for (int i = 0; i <= n_layers; i++) {
        sum.n_values += needs[i].n_values;
        sum.full_bytes += needs[i].full_bytes;
        sum.sketch_bytes += needs[i].sketch_bytes;
    }
    return sum;
}
