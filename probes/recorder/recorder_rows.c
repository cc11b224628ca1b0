#include <string.h>

#include "probes/recorder.h"

#define N_ENDS 2

assay_record_fn assay_record_rows;

assay_status assay_record_rows(assay_recorded *out, const assay_buffer *values)
{
    int64_t n_rows = values->n_dims ? values->dims[0] : 0;
    if (n_rows <= 2 * N_ENDS) {
        out->values = values->data;
        return ASSAY_OK;
    }
    size_t row = (size_t)(assay_buffer_count(values) / n_rows) * assay_dtype_bytes(values->dtype);
    ASSAY_TRY(assay_alloc(&out->owned, 2 * N_ENDS, row, "rows"));
    ASSAY_TRY(assay_alloc(&out->rows, 2 * N_ENDS, sizeof *out->rows, "rows"));
    const char *from = values->data;
    for (int i = 0; i < 2 * N_ENDS; i++) {
        int64_t r = i < N_ENDS ? i : n_rows - 2 * N_ENDS + i;
        out->rows[i] = (int32_t)r;
        memcpy((char *)out->owned + (size_t)i * row, from + (size_t)r * row, row);
    }
    out->values = out->owned;
    out->dims[0] = 2 * N_ENDS;
    return ASSAY_OK;
}
