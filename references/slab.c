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

assay_status assay_rows_look_unproven(assay_rows_seen *out, const assay_run *run,
                                      const assay_seen *seen, const assay_run_step *step,
                                      int64_t first, int64_t end, int64_t n_keys)
{
    int64_t from, until, count = assay_seen_count(seen);
    int axis = axis_of(seen, 'T');
    ASSAY_TRY(assay_slab_range(&from, &until, seen, step));
    ASSAY_BUG_IF(first < from || end > until || first > end);
    int64_t n_outer = axis ? seen->dims[0] : 1; /* heads in front of the tokens */
    int64_t n_inner = seen->dims[seen->n_dims - 1], n_t = seen->dims[axis];
    int64_t n_middle = n_t && n_inner && n_outer ? count / (n_t * n_inner * n_outer) : 0;
    bool by_key = axis_of(seen, 'S') == seen->n_dims - 1;
    assay_rows_seen rows = {.n_tokens = end - first,
                            .n_sub = n_outer * n_middle,
                            .n_cols = by_key && n_keys >= 0 && n_keys < n_inner ? n_keys : n_inner,
                            .first = first - from,
                            .n_t = n_t,
                            .n_middle = n_middle,
                            .n_inner = n_inner};
    ASSAY_TRY(assay_run_look_unproven(&rows.values, run, seen));
    *out = rows;
    return ASSAY_OK;
}

assay_status assay_rows_look(assay_rows_seen *out, const assay_run *run, const assay_seen *seen,
                             const assay_run_step *step, int64_t first, int64_t end, int64_t n_keys)
{
    assay_rows_seen rows;
    ASSAY_TRY(assay_rows_look_unproven(&rows, run, seen, step, first, end, n_keys));
    assay_status s = assay_stored_prove(&rows.values, NULL);
    if (s == ASSAY_OK)
        *out = rows;
    else
        assay_rows_clear(&rows);
    return s;
}

bool assay_rows_are_all(const assay_rows_seen *rows)
{
    return !rows->first && rows->n_tokens == rows->n_t && rows->n_cols == rows->n_inner &&
           !rows->order;
}

void assay_rows_clear(assay_rows_seen *rows)
{
    assay_stored_clear(&rows->values);
    free(rows->order);
    *rows = (assay_rows_seen){0};
}

const double *assay_rows_at(const assay_rows_seen *rows, int64_t token, int64_t sub, double *room)
{
    return assay_stored_at(&rows->values, assay_rows_place(rows, token, sub), rows->n_cols, room);
}

void assay_rows_copy(double *out, const assay_rows_seen *rows, int64_t token, int64_t sub)
{
    const double *row = assay_rows_at(rows, token, sub, out);
    if (row != out)
        memcpy(out, row, (size_t)rows->n_cols * sizeof *out);
}

assay_status assay_slab_read(assay_slab *out, const assay_run *run, const assay_seen *seen,
                             const assay_run_step *step, int64_t first, int64_t end, int64_t n_keys)
{
    assay_rows_seen rows;
    double *x;
    ASSAY_TRY(assay_rows_look(&rows, run, seen, step, first, end, n_keys));
    int64_t n_cols = rows.n_cols, n_rows = rows.n_tokens * rows.n_sub;
    assay_status s = assay_alloc(&x, (size_t)(n_rows * n_cols), sizeof *x, "values");
    for (int64_t r = 0; r < n_rows && s == ASSAY_OK; r++)
        assay_rows_copy(x + r * n_cols, &rows, r / rows.n_sub, r % rows.n_sub);
    if (s == ASSAY_OK)
        *out =
            (assay_slab){.n_tokens = rows.n_tokens, .n_sub = rows.n_sub, .n_cols = n_cols, .x = x};
    assay_rows_clear(&rows);
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
