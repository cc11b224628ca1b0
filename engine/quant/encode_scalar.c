/* F32, F16, BF16: each value rounded to the nearest, ties to even. */
#include "engine/quant/block.h"

void assay_encode_f32(void *blocks, const float *x, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof *x);
}

void assay_encode_f16(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        block_put_u16(b + 2 * i, assay_f32_to_f16(x[i]));
}

void assay_encode_bf16(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        block_put_u16(b + 2 * i, assay_f32_to_bf16(x[i]));
}
