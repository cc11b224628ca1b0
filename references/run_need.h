/*
 * What a capture of a run takes, by the tables of points and the sizes of the model, before
 * anything is run: values of 4 bytes, as the engine shows them; a row of statistics per value
 * (probes/capture.h); a sketch per 32 rows (probes/recorder.h). What HDF5 adds is left out: 1 to 2
 * KB a value.
 */
#ifndef ASSAY_REFERENCES_RUN_NEED_H
#define ASSAY_REFERENCES_RUN_NEED_H

#include "references/oracle/oracle.h"

typedef struct assay_run_need {
    int64_t n_values;
    int64_t full_bytes;   /* tier `full`, without its statistics */
    int64_t sketch_bytes; /* tiers `stats` and `sketch` */
} assay_run_need;

/*
 * Adds a step of n_tokens tokens behind n_before others. needs: [n_layer + 1], points of layer N at
 * N + 1, those of no layer at 0.
 */
assay_status assay_run_need_add_step(assay_run_need *needs, assay_oracle *oracle, bool latent,
                                     int64_t n_before, int64_t n_tokens);
assay_run_need assay_run_need_sum(const assay_run_need *needs, int n_layers);

#endif
