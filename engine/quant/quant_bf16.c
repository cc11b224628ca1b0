/* BF16: the upper half of a float32. */
#include "engine/quant/block.h"

void assay_dequant_bf16(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i++)
        out[i] = assay_bf16_to_f32(block_u16(p + 2 * i));
}
