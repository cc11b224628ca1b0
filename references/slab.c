#include "references/slab.h"

#include <stdlib.h>
#include <string.h>

/* Models without a latent cache keep an axis of key/value heads where the point's axes have none
 * (k_rope [T, G, R]): tokens and keys are then still the axes at the same end. */
static int axis_of(const assay_seen *seen, char letter)
{
    const char *axes = assay_point_at(seen->point)->axes, *at = strchr(axes, letter);
    int n = (int)strlen(axes);
    if (!at || !seen->n_dims)
        return -1;
    return letter == 'S' ? seen->n_dims - (n - (int)(at - axes)) : (int)(at - axes);
}

static assay_status bad_shape(const assay_seen *seen, const char *what)
{
    char name[ASSAY_POINT_NAME_BYTES];
    return assay_fail(ASSAY_CANNOT_JUDGE, "%s: %s",
                      assay_point_format(name, seen->point, seen->layer), what);
}

int64_t assay_slab_keys(const assay_seen *seen)
{
    int axis = axis_of(seen, 'S');
    return axis < 0 ? -1 : seen->dims[axis];
}

assay_status assay_slab_range(int64_t *first, int64_t *end, const assay_seen *seen,
                              const assay_run_step *step)
{
    int axis = axis_of(seen, 'T');
    if (axis < 0 || axis > 1 || seen->n_dims < 2)
        return bad_shape(seen, "has no token axis");
    if (seen->dims[axis] > step->n_tokens)
        return bad_shape(seen, "has more rows than the step has tokens");
    *end = step->first_position + step->n_tokens;
    *first = *end - seen->dims[axis];
    return ASSAY_OK;
}

assay_status assay_slab_read(assay_slab *out, const assay_run *run, const assay_seen *seen,
                             const assay_run_step *step, int64_t first, int64_t end, int64_t n_keys)
{
    int64_t from, until, count = 1, n_outer, n_inner, keep;
    int axis = axis_of(seen, 'T');
    double *all = NULL, *x = NULL;
    ASSAY_TRY(assay_slab_range(&from, &until, seen, step));
    ASSAY_BUG_IF(first < from || end > until || first > end);
    for (int d = 0; d < seen->n_dims; d++)
        count *= seen->dims[d];
    n_outer = axis ? seen->dims[0] : 1; /* heads in front of the tokens */
    n_inner = seen->dims[seen->n_dims - 1];
    int64_t n_t = seen->dims[axis],
            n_middle = n_t && n_inner && n_outer ? count / (n_t * n_inner * n_outer) : 0;
    bool by_key = axis_of(seen, 'S') == seen->n_dims - 1;
    keep = by_key && n_keys >= 0 && n_keys < n_inner ? n_keys : n_inner;
    assay_slab slab = {.n_tokens = end - first, .n_sub = n_outer * n_middle, .n_cols = keep};
    ASSAY_TRY(assay_alloc(&all, (size_t)count, sizeof *all, "values"));
    assay_status s = assay_run_read(all, run, seen);
    if (s == ASSAY_OK)
        s = assay_alloc(&x, (size_t)(slab.n_tokens * slab.n_sub * keep), sizeof *x, "values");
    if (s == ASSAY_OK) {
        for (int64_t t = 0; t < slab.n_tokens; t++)
            for (int64_t o = 0; o < n_outer; o++)
                for (int64_t m = 0; m < n_middle; m++)
                    memcpy(x + ((t * n_outer + o) * n_middle + m) * keep,
                           all + ((o * n_t + first - from + t) * n_middle + m) * n_inner,
                           (size_t)keep * sizeof *x);
        slab.x = x;
        *out = slab;
    }
    free(all);
    return s;
}

void assay_slab_clear(assay_slab *slab)
{
    free(slab->x);
    *slab = (assay_slab){0};
}

void assay_slab_coordinates(int64_t out[ASSAY_MAX_DIMS], const assay_seen *seen,
                            const assay_run_step *step, int64_t first, int64_t token, int64_t sub,
                            int64_t col)
{
    int axis = axis_of(seen, 'T');
    int64_t offset = first - (step->first_position + step->n_tokens - seen->dims[axis]);
    for (int d = seen->n_dims - 2; d >= 0; d--)
        if (d != axis) { /* at most one axis besides tokens and columns holds more than one */
            out[d] = sub % seen->dims[d];
            sub /= seen->dims[d];
        }
    out[axis] = offset + token;
    out[seen->n_dims - 1] = col;
}
