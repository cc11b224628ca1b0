/* F64: rounded to the nearest float32. */
#include "engine/quant/block.h"

void assay_dequant_f64(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i++, p += 8) {
        double x;
        memcpy(&x, p, sizeof x);
        out[i] = (float)x;
    }
}
