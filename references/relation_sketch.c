#include "references/relation_sketch.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = ASSAY_SKETCH_N / 2, MOST_ROUNDS = 12 };

/* Where the rectangles lie: all rows, or rows of one group at a time. */
typedef struct cut {
    int64_t rows, cols, n_across;
    int64_t per_fit; /* parts that are fitted together */
    bool shared;     /* over all groups */
} cut;

static bool cut_of(cut *out, const assay_relation_pair *p, int64_t rows, int64_t cols)
{
    out->rows = rows;
    out->cols = cols;
    out->n_across = p->cols / cols;
    out->shared = rows == p->rows;
    /* rows of the pair and of the sketch are the same, but where heads come first */
    if (!out->shared && (p->sketch->rows != p->rows || rows != 1))
        return false;
    int64_t n_down = p->rows < ASSAY_SKETCH_ROWS ? p->rows : ASSAY_SKETCH_ROWS;
    out->per_fit = out->shared ? out->n_across : n_down * out->n_across;
    int64_t numbers = out->shared ? MOST_PARTS * p->sketch->n_groups : MOST_PARTS;
    return out->per_fit <= (numbers < ASSAY_SKETCH_N ? numbers : ASSAY_SKETCH_N);
}

bool assay_relation_fit_parts(double *factors, const assay_relation_pair *pair, int64_t rows,
                              int64_t cols)
{
    cut c;
    int64_t n = pair->rows * pair->cols, n_groups = pair->sketch->n_groups;
    if (!cut_of(&c, pair, rows, cols))
        return false;
    double *lists =
        assay_alloc_or_lack((size_t)(c.per_fit + 1) * (size_t)n, sizeof *lists, "parts");
    double *found = assay_alloc_or_lack((size_t)(c.per_fit * n_groups), sizeof *found, "factors");
    const double **parts = assay_alloc_or_lack((size_t)c.per_fit, sizeof *parts, "parts");
    bool good = lists && found && parts;
    for (int64_t k = 0; good && k < c.per_fit; k++)
        parts[k] = lists + (k + 1) * n;
    for (int64_t i = 0; good && i < n; i++) {
        int64_t row = c.shared ? 0 : i / pair->cols % ASSAY_SKETCH_ROWS;
        lists[(row * c.n_across + i % pair->cols / c.cols + 1) * n + i] = pair->expected[i];
    }
    good = good && assay_projection_fit(found, pair->sketch, lists, parts, (int)c.per_fit,
                                        c.shared) == ASSAY_OK;
    int64_t n_parts = c.shared ? c.n_across : pair->rows * c.n_across;
    for (int64_t k = 0; good && k < n_parts; k++) {
        int64_t row = c.shared ? 0 : k / c.n_across, g = row / ASSAY_SKETCH_ROWS;
        factors[k] = found[g * c.per_fit + row % ASSAY_SKETCH_ROWS * c.n_across + k % c.n_across];
    }
    free(lists);
    free(found);
    free(parts);
    return good;
}

void assay_relation_fit_again(assay_relation *rel, double *out, const assay_relation_pair *pair,
                              assay_relation_fit_fn *fit, const void *how)
{
    size_t n = (size_t)(pair->rows * pair->cols);
    fit(rel, out, pair, how);
    if (!pair->sketch || !pair->is_noisy)
        return;
    double *got = assay_alloc_or_lack(n, 2 * sizeof *got, "values");
    for (int round = 0; got && round < MOST_ROUNDS; round++) {
        assay_relation next = *rel;
        assay_relation_pair nearer = *pair;
        bool exact;
        if (assay_projection_approach(got, &exact, pair->sketch, out) != ASSAY_OK)
            break;
        nearer.got = got;
        fit(&next, got + n, &nearer, how);
        if (!(next.explained > rel->explained + 1e-9))
            break;
        *rel = next;
        memcpy(out, got + n, n * sizeof *out);
    }
    free(got);
}
