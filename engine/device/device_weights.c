/*
 * Weights in device memory: matrices packed as in the file (Q8_0 with codes and scales apart),
 * vectors as float32. What a plant bends is taken as the bent float32 values.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"
#include "engine/quant.h"

#define F32 0 /* numbers in quant.def */
#define Q8_0 8
#define STAGE_BYTES ((int64_t)64 << 20)

static size_t index_of(assay_role role, int layer)
{
    return (size_t)(layer + 1) * ASSAY_ROLE_COUNT + role;
}

const assay_packed *assay_device_weight(const assay_engine *e, assay_role role, int layer)
{
    const assay_packed *w =
        &e->device->weights[index_of(role, assay_role_at(role)->per_layer ? layer : -1)];
    return w->data ? w : NULL;
}

const float *assay_device_vector(const assay_engine *e, assay_role role, int layer)
{
    return e->device->vectors[index_of(role, assay_role_at(role)->per_layer ? layer : -1)];
}

/* Whole blocks at a time through a buffer, then apart. */
static assay_status upload_split(assay_packed *w, assay_device *d,
                                 const assay_gguf_tensor_info *info)
{
    int64_t n_blocks = w->n_rows * w->width / 32, per = STAGE_BYTES / 34;
    void *stage, *codes, *scales;
    ASSAY_TRY(assay_cuda_alloc(&codes, (size_t)n_blocks * 32, info->name));
    w->data = codes;
    ASSAY_TRY(assay_cuda_alloc(&scales, (size_t)n_blocks * 2, info->name));
    w->scales = scales;
    ASSAY_TRY(assay_cuda_alloc(&stage, (size_t)(n_blocks < per ? n_blocks : per) * 34, info->name));
    assay_status s = ASSAY_OK;
    for (int64_t first = 0; first < n_blocks && s == ASSAY_OK; first += per) {
        int64_t n = n_blocks - first < per ? n_blocks - first : per;
        s = assay_cuda_to_device(d->stream, stage, (const char *)info->data + first * 34,
                                 (size_t)n * 34);
        if (s == ASSAY_OK)
            s = assay_device_split_q8_0(d->stream, (char *)codes + first * 32,
                                        (char *)scales + first * 2, stage, n);
        if (s == ASSAY_OK)
            s = assay_cuda_sync(d->stream);
    }
    assay_cuda_free(stage);
    return s;
}

static assay_status upload_packed(assay_packed *w, assay_device *d, const assay_weight *weight)
{
    const assay_gguf_tensor_info *info = weight->info;
    void *data;
    *w = (assay_packed){.type = info->type,
                        .n_rows = weight->n_rows,
                        .width = weight->width,
                        .row_bytes = (int64_t)(info->n_bytes / (uint64_t)weight->n_rows)};
    d->weight_bytes += (int64_t)info->n_bytes;
    if (info->type == Q8_0)
        return upload_split(w, d, info);
    ASSAY_TRY(assay_cuda_alloc(&data, info->n_bytes, info->name));
    w->data = data;
    ASSAY_TRY(assay_cuda_to_device(d->stream, data, info->data, info->n_bytes));
    return assay_cuda_sync(d->stream);
}

static assay_status upload_values(void **out, assay_device *d, const float *values, size_t n,
                                  const char *name)
{
    ASSAY_TRY(assay_cuda_alloc(out, n * sizeof *values, name));
    ASSAY_TRY(assay_cuda_to_device(d->stream, *out, values, n * sizeof *values));
    return assay_cuda_sync(d->stream);
}

static assay_status upload_vector(float **out, assay_engine *e, const assay_weight *weight)
{
    size_t n = (size_t)(weight->n_rows * weight->width);
    float *values;
    ASSAY_TRY(assay_alloc(&values, n, sizeof *values, weight->info->name));
    assay_status s = assay_model_decode_rows(values, weight, 0, weight->n_rows, e->options.dtype);
    if (s == ASSAY_OK)
        s = upload_values((void **)out, e->device, values, n, weight->info->name);
    free(values);
    return s;
}

static assay_status upload_bent(assay_engine *e, const assay_weight *w, size_t at,
                                const float *values)
{
    assay_device *d = e->device;
    size_t n = (size_t)(w->n_rows * w->width);
    void *data = NULL;
    assay_status s = upload_values(&data, d, values, n, w->info->name);
    if (w->n_dims == 1)
        d->vectors[at] = data;
    else
        d->weights[at] = (assay_packed){.data = data,
                                        .type = F32,
                                        .n_rows = w->n_rows,
                                        .width = w->width,
                                        .row_bytes = w->width * (int64_t)sizeof *values};
    return s;
}

static assay_status upload_one(assay_engine *e, assay_role role, int layer)
{
    assay_device *d = e->device;
    const assay_weight *w = assay_model_weight(e->model, role, layer);
    const float *values;
    bool bent;
    if (!w)
        return ASSAY_OK;
    ASSAY_TRY(assay_bent_weight(&bent, &values, e, w));
    if (bent)
        return upload_bent(e, w, index_of(role, layer), values);
    if (w->n_dims == 1)
        return upload_vector(&d->vectors[index_of(role, layer)], e, w);
    return upload_packed(&d->weights[index_of(role, layer)], d, w);
}

assay_status assay_device_upload(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n = (size_t)(e->hp->n_layer + 1) * ASSAY_ROLE_COUNT;
    ASSAY_TRY(assay_alloc(&d->weights, n, sizeof *d->weights, "weights"));
    ASSAY_TRY(assay_alloc(&d->vectors, n, sizeof *d->vectors, "weights"));
    for (int layer = -1; layer < e->hp->n_layer; layer++) {
        bool used = layer < 0 || (layer >= assay_model_first_layer(e->model) &&
                                  layer <= assay_model_last_layer(e->model));
        for (int r = 0; r < ASSAY_ROLE_COUNT && used; r++)
            if (assay_role_at((assay_role)r)->per_layer == (layer >= 0))
                ASSAY_TRY(upload_one(e, (assay_role)r, layer));
    }
    return ASSAY_OK;
}

void assay_device_drop_weights(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n = (size_t)(e->hp->n_layer + 1) * ASSAY_ROLE_COUNT;
    for (size_t i = 0; i < n && d->weights; i++) {
        assay_cuda_free((void *)d->weights[i].data);
        assay_cuda_free((void *)d->weights[i].scales);
    }
    for (size_t i = 0; i < n && d->vectors; i++)
        assay_cuda_free(d->vectors[i]);
    free(d->weights);
    free(d->vectors);
}
