#include "suites/audit_role.h"

#include <stdio.h>
#include <string.h>

bool audit_resolve(assay_role *role, int *layer, const char *name)
{
    int n = 0, number = -1;
    char formatted[64];
    const char *rest = sscanf(name, "blk.%d.%n", &number, &n) == 1 && n > 0 ? name + n : name;
    *layer = rest == name ? -1 : number;
    for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
        const assay_role_info *info = assay_role_at((assay_role)r);
        if (info->per_layer != (*layer >= 0) || strcmp(info->name, rest) != 0)
            continue;
        *role = (assay_role)r;
        /* "blk.03.x" is no way to write layer 3 */
        return strcmp(assay_role_format(formatted, *role, *layer), name) == 0;
    }
    return false;
}

bool audit_has_shape(const assay_gguf_tensor_info *t, const assay_hparams *hp, assay_role role)
{
    int64_t dims[4];
    int n = assay_role_dims(dims, hp, role);
    for (int d = 0; d < 4; d++)
        if (t->ne[d] != (d < n ? dims[n - 1 - d] : 1))
            return false;
    return true;
}
