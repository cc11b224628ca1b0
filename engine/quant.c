/*
 * The table of tensor types and the look-ups in it.
 */
#include "engine/quant.h"

#include <math.h>
#include <stddef.h>
#include <strings.h>

#include "engine/quant/block.h"

static const assay_quant table[] = {
#define X(id, number, name, elements, bytes, scale, at, second, decode, encode, unpack, streams)   \
    {name,   number, elements, bytes,  ASSAY_SCALE_##scale, at, second,                            \
     decode, encode, unpack,   streams},
#include "engine/quant.def"
#undef X
};

int assay_quant_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_quant *assay_quant_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_quant_count());
    return &table[index];
}

const assay_quant *assay_quant_find(int number)
{
    for (int i = 0; i < assay_quant_count(); i++)
        if (table[i].number == number)
            return &table[i];
    return NULL;
}

const assay_quant *assay_quant_by_name(const char *name)
{
    for (int i = 0; i < assay_quant_count(); i++)
        if (strcasecmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

int64_t assay_quant_bytes(const assay_quant *quant, int64_t n)
{
    return n / quant->block_elements * quant->block_bytes;
}

/* All bits of the exponent set: NaN or infinite. */
static bool f16_is_finite(uint16_t x)
{
    return (x & 0x7C00) != 0x7C00;
}

bool assay_quant_block_is_finite(const assay_quant *quant, const void *block)
{
    const uint8_t *p = (const uint8_t *)block + quant->scale_at;
    const uint8_t *second = (const uint8_t *)block + quant->second_at;
    double wide;
    switch (quant->scale) {
    case ASSAY_SCALE_F16:
        return f16_is_finite(block_u16(p)) &&
               (quant->second_at < 0 || f16_is_finite(block_u16(second)));
    case ASSAY_SCALE_BF16:
        return (block_u16(p) & 0x7F80) != 0x7F80;
    case ASSAY_SCALE_F32:
        return (block_u32(p) & 0x7F800000) != 0x7F800000;
    case ASSAY_SCALE_F64:
        memcpy(&wide, p, sizeof wide);
        return isfinite((float)wide);
    case ASSAY_SCALE_E8M0:
        return *p != 0xFF;
    case ASSAY_SCALE_NIBBLES: /* the top two nibbles hold the exponent */
        return ((block_u16(p + 4) >> 12 & 0xC) | (block_u16(p + 6) >> 12 & 7) << 4) != 0x7C;
    case ASSAY_SCALE_NONE:
        break;
    }
    return true;
}

/* The type, when n is a whole number of its blocks. */
static assay_status whole_blocks(const assay_quant **out, int number, int64_t n)
{
    const assay_quant *quant = assay_quant_find(number);
    if (!quant)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor type %d is not known", number);
    if (n < 0 || n % quant->block_elements != 0)
        return assay_fail(ASSAY_BAD_SHAPE, "%lld elements of %s, expected a multiple of %d",
                          (long long)n, quant->name, quant->block_elements);
    *out = quant;
    return ASSAY_OK;
}

assay_status assay_quant_decode(float *out, int number, const void *blocks, int64_t n)
{
    const assay_quant *quant = NULL;
    ASSAY_TRY(whole_blocks(&quant, number, n));
    if (!quant->decode)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor type %s holds no weights to decode",
                          quant->name);
    quant->decode(out, blocks, n);
    return ASSAY_OK;
}

assay_status assay_quant_encode(void *blocks, int number, const float *x, int64_t n)
{
    const assay_quant *quant = NULL;
    ASSAY_TRY(whole_blocks(&quant, number, n));
    if (!quant->encode)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor type %s can be read and not written",
                          quant->name);
    quant->encode(blocks, x, n);
    return ASSAY_OK;
}
