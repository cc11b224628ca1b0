/* BF16: the upper half of a float32. */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_bf16(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict p = blocks;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)block_u16(p + 2 * i) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}
