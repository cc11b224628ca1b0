/* F16: IEEE 754 binary16, exact in float32. */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_f16(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict p = blocks;
    for (int64_t i = 0; i < n; i++)
        out[i] = block_f16(p + 2 * i);
}
