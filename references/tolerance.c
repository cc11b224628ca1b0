#include "references/tolerance.h"

#include <math.h>
#include <string.h>

static const assay_tolerance_row table[] = {
#define X(id, family, points, depth, amplification, reason)                                        \
    {family, points, reason, depth, amplification},
#include "references/tolerance.def"
#undef X
};

enum { LAYER_DEPTH = 16, LARGEST = 4 };

int assay_tolerance_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_tolerance_row *assay_tolerance_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_tolerance_count());
    return &table[index];
}

double assay_tolerance_step(assay_dtype dtype, bool activations_q8)
{
    int mantissa = assay_dtype_mantissa(dtype);
    double output = mantissa ? 0.43 * ldexp(1, -mantissa) : 0, sums = 2.5 * 0x1p-24,
           blocks = activations_q8 ? 0.0054 : 0;
    return sqrt(output * output + sums * sums + blocks * blocks);
}

static bool holds(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if ((p == names || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

assay_tolerance assay_tolerance_of(assay_point point, int layer, int n_layers, assay_dtype dtype,
                                   bool activations_q8)
{
    const assay_point_info *info = assay_point_at(point);
    int before = info->per_layer ? layer : point == ASSAY_POINT_EMBED ? 0 : n_layers;
    for (int i = 0; i < assay_tolerance_count(); i++) {
        const assay_tolerance_row *row = &table[i];
        if (!holds(row->points, info->name))
            continue;
        double depth = 1 + LAYER_DEPTH * (double)before + row->depth;
        double bound =
            row->amplification * assay_tolerance_step(dtype, activations_q8) * sqrt(depth);
        return (assay_tolerance){row->family, row->reason, bound, LARGEST * bound};
    }
    return (assay_tolerance){0};
}
