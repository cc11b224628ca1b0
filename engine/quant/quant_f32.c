/* F32: the values themselves. */
#include "engine/quant/block.h"

void assay_dequant_f32(float *out, const void *blocks, int64_t n)
{
    memcpy(out, blocks, (size_t)n * sizeof *out);
}
