#include "engine/arch.h"

#include <string.h>

static const struct {
    const char *name, *about;
    const assay_arch *arch;
} table[] = {
#define X(id, name, about) {name, about, &assay_arch_##id},
#include "engine/arch.def"
#undef X
};

int assay_arch_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const char *assay_arch_name(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_arch_count());
    return table[index].name;
}

const char *assay_arch_about(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_arch_count());
    return table[index].about;
}

const assay_arch *assay_arch_find(const char *name)
{
    for (int i = 0; i < assay_arch_count(); i++)
        if (!strcmp(table[i].name, name))
            return table[i].arch;
    return NULL;
}

assay_use assay_arch_use_common(const assay_hparams *hp, assay_role role, int layer)
{
    switch (role) {
    case ASSAY_ROLE_TOKEN_EMBD:
    case ASSAY_ROLE_OUTPUT_NORM:
        return ASSAY_USE_NEEDED;
    case ASSAY_ROLE_OUTPUT:
        return ASSAY_USE_OPTIONAL; /* absent: the head is tied to the embedding */
    case ASSAY_ROLE_ATTN_NORM:
    case ASSAY_ROLE_ATTN_OUTPUT:
    case ASSAY_ROLE_FFN_NORM:
        return layer < hp->n_layer ? ASSAY_USE_NEEDED : ASSAY_USE_ASIDE;
    default:
        return ASSAY_USE_NONE;
    }
}
