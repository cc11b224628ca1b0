/*
 * A model's weights: tensors of the file bound to roles, their shapes checked, decoded on demand.
 *
 * Every tensor of the file must be of a known role that the architecture has in that layer, with
 * exactly that shape; what the architecture knows and the engine does not run (blocks that predict
 * further tokens, indexers of layers that reuse a selection) is set aside. Decoded values that
 * are asked for are kept while all of the model's fit in the budget; else they are decoded block by
 * block into scratch memory at each use, so memory does not grow with the model.
 */
#ifndef ASSAY_ENGINE_MODEL_H
#define ASSAY_ENGINE_MODEL_H

#include "engine/arch.h"
#include "engine/base/number.h"
#include "engine/engine.h"

typedef struct assay_weight {
    const assay_gguf_tensor_info *info;
    assay_role role;
    int layer;
    int n_dims;
    int64_t dims[4];       /* row-major, outermost first */
    int64_t n_rows, width; /* all outer dims together; the innermost */
} assay_weight;

/* NULL: the file has no such tensor. layer -1: global roles. */
const assay_weight *assay_model_weight(const assay_model *model, assay_role role, int layer);

/* Layers that the options opened. */
int assay_model_first_layer(const assay_model *model);
int assay_model_last_layer(const assay_model *model);
/* Tensors that are known and not used, and the bytes of all blocks set aside. */
int assay_model_n_aside(const assay_model *model);

/* Whether every layer behind the trunk is whole. Fails: ASSAY_BAD_FILE, with what is missing. */
assay_status assay_model_check_nextn(const assay_model *model);

/* True: assay_model_decoded works; false: use assay_model_decode_rows. */
bool assay_model_keeps(const assay_model *model);

/*
 * The whole weight as float32 (exact, or rounded to bfloat16), [n_rows, width]; kept by the model,
 * borrowed until it is closed. Threads may call it at once.
 */
assay_status assay_model_decoded(const float **out, assay_model *model, const assay_weight *weight,
                                 assay_dtype dtype);

/* The values themselves as they lie in the file, where they are float32 and wanted so; else NULL.
 */
const float *assay_model_plain(const assay_weight *weight, assay_dtype dtype);

/* Rows first ... first + n - 1 into the caller's memory. */
assay_status assay_model_decode_rows(float *out, const assay_weight *weight, int64_t first,
                                     int64_t n, assay_dtype dtype);

/*
 * kv_b [H (N + V), L] of one layer, per head N key rows then V value rows: as the file has it, or
 * put together from k_b (transposed per head) and v_b. `scratch` (H (N + V) L floats, and L N more)
 * is used where the model keeps nothing.
 */
assay_status assay_model_kv_b(const float **out, assay_model *model, int layer, assay_dtype dtype,
                              float *scratch);

#endif
