/*
 * Products with weights. Few rows: straight from the packed blocks. Many: a part of the weight is
 * decoded to scratch memory, in float32 or bfloat16, and cuBLAS multiplies.
 */
#include "engine/device/device_inside.h"

#define BLOCK_VALUES ((int64_t)64 << 20) /* of a weight, decoded at once */

static int64_t widest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* x as bfloat16, dense per row; its values are bfloat16 already. */
static assay_status convert_x(const void **x, assay_device *d, const assay_packed_product *p)
{
    int64_t heads = p->n_head > 1 && p->x_head ? p->n_head : 1;
    int64_t width = heads > 1 ? widest(p->x_stride, p->n_in) : p->n_in;
    void *memory;
    ASSAY_TRY(assay_device_scratch(&memory, d, ASSAY_SCRATCH_X, (size_t)(p->n * width) * 2));
    assay_rows rows = {(float *)p->x, p->n, width, p->x_stride};
    if (heads > 1)
        rows.width = (heads - 1) * p->x_head + p->n_in;
    ASSAY_RUN(d, assay_device_to_bf16(d->at, memory, width, rows));
    *x = memory;
    return ASSAY_OK;
}

static assay_status multiply_block(assay_engine *e, const assay_packed_product *p, int64_t first,
                                   int64_t n, const void *x, int64_t x_stride)
{
    assay_device *d = e->device;
    bool is_bf16 = p->rounded && !p->in_f32;
    int64_t columns = p->transposed ? p->n_out : p->n_in, n_head = p->n_head > 1 ? p->n_head : 1;
    int64_t of_head = p->transposed ? p->n_in : n;
    int64_t rows = (n_head - 1) * p->w_head + of_head;
    void *w;
    ASSAY_TRY(assay_device_scratch(&w, d, ASSAY_SCRATCH_WEIGHT,
                                   (size_t)(rows * columns) * (is_bf16 ? 2 : 4)));
    if (is_bf16)
        ASSAY_RUN(d, assay_device_unpack_bf16(d->at, w, columns, p->w, p->first_row + first, rows,
                                              p->column, columns));
    else
        ASSAY_RUN(d, assay_device_unpack(d->at, w, columns, p->w, p->first_row + first, rows,
                                         p->column, columns, p->rounded));
    assay_cuda_product m = {.n_rows = p->n,
                            .n_out = p->transposed ? p->n_out : n,
                            .n_in = p->n_in,
                            .n_batch = n_head,
                            .y = p->y + (p->transposed ? 0 : first),
                            .x = x,
                            .w = w,
                            .y_stride = p->y_stride,
                            .x_stride = x_stride,
                            .w_stride = columns,
                            .y_step = p->y_head,
                            .x_step = p->x_head,
                            .w_step = p->w_head * columns,
                            .transposed = p->transposed,
                            .is_bf16 = is_bf16};
    if (d->is_dry)
        return ASSAY_OK;
    if (d->times_products)
        ASSAY_TRY(assay_cuda_record(d->before, d->at));
    ASSAY_RUN(d, assay_cuda_multiply(d->blas, &m));
    if (d->times_products) {
        float ms;
        ASSAY_TRY(assay_cuda_record(d->after, d->at));
        ASSAY_TRY(assay_cuda_wait_host(d->after));
        ASSAY_TRY(assay_cuda_elapsed(&ms, d->before, d->after));
        d->counted.product_ms += ms;
    }
    return ASSAY_OK;
}

assay_status assay_device_multiply(assay_engine *e, assay_packed_product *p)
{
    assay_device *d = e->device;
    const void *x = p->x;
    int64_t x_stride = p->x_stride;
    p->rounded = e->options.dtype == ASSAY_DTYPE_BF16;
    if (p->n <= ASSAY_DEVICE_FEW || p->ids) {
        ASSAY_RUN(d, assay_device_product(d->at, p));
        return ASSAY_OK;
    }
    if (!d->blas && !d->is_capturing)
        ASSAY_TRY(assay_cuda_blas_new(&d->blas, d->stream));
    if (p->rounded && !p->in_f32) {
        ASSAY_TRY(convert_x(&x, d, p));
        x_stride = p->n_head > 1 && p->x_head ? widest(p->x_stride, p->n_in) : p->n_in;
    }
    if (p->n_head > 1 || p->transposed)
        return multiply_block(e, p, 0, p->n_out, x, x_stride);
    int64_t block = BLOCK_VALUES / p->n_in > 0 ? BLOCK_VALUES / p->n_in : 1;
    for (int64_t first = 0; first < p->n_out; first += block) {
        int64_t n = p->n_out - first < block ? p->n_out - first : block;
        ASSAY_TRY(multiply_block(e, p, first, n, x, x_stride));
    }
    return ASSAY_OK;
}

assay_status assay_device_linear_slice(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                       int layer, assay_slice slice)
{
    assay_packed_product p = {.w = assay_device_weight(e, role, layer),
                              .y = y.at,
                              .x = x.at,
                              .n = y.n,
                              .y_stride = y.stride,
                              .x_stride = x.stride,
                              .first_row = slice.row,
                              .n_out = slice.n_rows,
                              .column = slice.column,
                              .n_in = slice.n_columns,
                              .n_head = 1,
                              .in_f32 = role == ASSAY_ROLE_ROUTER};
    ASSAY_BUG_IF(y.width != slice.n_rows || x.width != slice.n_columns);
    return assay_device_multiply(e, &p);
}

/* What follows the product besides, where the seam says so; as in engine/bend.c. */
static assay_status bend_epilogue(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                  int layer)
{
    assay_device *d = e->device;
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_EPILOGUE, layer, (int)role);
    const float *v = NULL;
    if (!s || s->n_ints < 2)
        return ASSAY_OK;
    if (s->ints[1] != ASSAY_EPILOGUE_ROW_SCALE) {
        const assay_weight *w = assay_model_weight(e->model, ASSAY_ROLE_ATTN_NORM, layer);
        if (!w || w->n_rows * w->width != y.width)
            return ASSAY_OK;
        v = assay_device_vector(e, ASSAY_ROLE_ATTN_NORM, layer);
    }
    ASSAY_RUN(d, assay_device_epilogue(d->at, y, x, v, s->ints[1], (float)s->value));
    return ASSAY_OK;
}

assay_status assay_device_linear(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                 int layer, assay_role bias)
{
    int at = assay_role_at(role)->per_layer ? layer : -1;
    const assay_weight *w = assay_model_weight(e->model, role, at);
    assay_slice slice = assay_slice_of(e, w);
    bool once = slice.n_columns == w->width || e->part.rank == 0 ||
                assay_bent(e, ASSAY_SEAM_RANK_BIAS, layer, 0) != 0;
    const float *b = bias == ASSAY_ROLE_COUNT ? NULL : assay_device_vector(e, bias, layer);
    ASSAY_TRY(assay_device_linear_slice(e, y, x, role, layer, slice));
    if (b && once)
        ASSAY_RUN(e->device, assay_device_bias(e->device->at, y, b + slice.row));
    return e->options.seams ? bend_epilogue(e, y, x, role, layer) : ASSAY_OK;
}
