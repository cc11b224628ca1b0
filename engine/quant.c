/*
 * The table of tensor types and the look-ups in it.
 */
#include "engine/quant.h"

#include <stddef.h>
#include <strings.h>

#include "engine/quant/block.h"

static const assay_quant table[] = {
#define X(id, number, name, elements, bytes, decode) {name, number, elements, bytes, decode},
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

assay_status assay_quant_decode(float *out, int number, const void *blocks, int64_t n)
{
    const assay_quant *quant = assay_quant_find(number);
    if (!quant)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor type %d is not known", number);
    if (!quant->decode)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor type %s holds no weights to decode",
                          quant->name);
    if (n < 0 || n % quant->block_elements != 0)
        return assay_fail(ASSAY_BAD_SHAPE, "%lld elements of %s, expected a multiple of %d",
                          (long long)n, quant->name, quant->block_elements);
    quant->decode(out, blocks, n);
    return ASSAY_OK;
}
