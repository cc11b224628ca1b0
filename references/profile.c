#include <math.h>
#include <string.h>

#include "references/run_private.h"

static const assay_profile table[] = {
#define X(name, about, q_a, kv_a, index, half_split, hadamard, q8, residual, rope_first)           \
    {name, about, q_a, kv_a, index, half_split, hadamard, q8, residual, rope_first},
#include "references/profile.def"
#undef X
};

int assay_profile_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_profile *assay_profile_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_profile_count());
    return &table[index];
}

const assay_profile *assay_profile_find(const char *name)
{
    for (int i = 0; i < assay_profile_count(); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const char *assay_profile_of_own(bool integer_products)
{
    return integer_products ? "assay-integer" : NULL;
}

const assay_profile *assay_profile_for(const char *producer, const char *model_class)
{
    if (!strncmp(producer, "transformers", 12) && !strncmp(model_class, "DeepseekV2", 10))
        return assay_profile_find("transformers-adjacent");
    for (int i = 0; i < assay_profile_count(); i++)
        if (!strncmp(producer, table[i].name, strlen(table[i].name)))
            return &table[i];
    return assay_profile_find("plain");
}
