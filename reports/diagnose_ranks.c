/*
 * Runs of several ranks: the pass reads one rank's copy of what all ranks hold. Where a copy of
 * another rank parts ways, ops behind it had other inputs there, and only the place itself is
 * judged: by a view of the run in which it is wrong.
 */
#include <math.h>
#include <stdlib.h>

#include "reports/diagnose_private.h"

/* Copies that differ by less are roundings of one sum in another order. */
#define SAME_COPY 1e-5

static int64_t count_of(const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    return n;
}

/* Whether y is another value than x; non-finite ones at equal places are equal. */
static bool differ(const double *x, const double *y, int64_t n, double bound)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i]) != isfinite(y[i]))
            return true;
        if (!isfinite(x[i]))
            continue;
        error += (x[i] - y[i]) * (x[i] - y[i]);
        size += x[i] * x[i];
    }
    return error > bound * bound * size;
}

static const assay_seen *part_of(const assay_run *run, const assay_judged *j, int rank)
{
    return assay_run_find_part(run, j->prompt, j->step, j->point, j->layer, rank,
                               j->seen->hand_over);
}

/* So many neighbouring ranks hold the same of the value; 0: none do, or it is not known. */
static int copies_of(const assay_run *run, const assay_judged *j, int n_ranks)
{
    int64_t n = count_of(j->seen), all = 0;
    for (int r = 0; r < n_ranks; r++) {
        const assay_seen *part = part_of(run, j, r);
        if (!part || !part->has_values)
            return 0;
        all += count_of(part);
    }
    return all > n && all % n == 0 && n_ranks % (all / n) == 0 ? (int)(all / n) : 0;
}

/* The first rank whose copy is not the one that the pass reads; -1: none. */
static assay_status odd_rank(int *rank, const assay_run *run, const assay_judged *j, int n_ranks)
{
    double *x = NULL, *y = NULL;
    assay_status s = ASSAY_OK;
    *rank = -1;
    if (j->is_ids || j->against || j->seen->rank >= 0 || !j->seen->has_values)
        return ASSAY_OK;
    int copies = copies_of(run, j, n_ranks);
    if (copies == 0)
        return ASSAY_OK;
    int64_t n = count_of(part_of(run, j, 0));
    ASSAY_GO(assay_alloc(&x, (size_t)n, sizeof *x, "a copy"));
    ASSAY_GO(assay_alloc(&y, (size_t)n, sizeof *y, "a copy"));
    for (int r = 0; r < n_ranks && *rank < 0; r++) {
        const assay_seen *part = part_of(run, j, r);
        if (count_of(part) != n)
            break;
        if (r % copies == 0) {
            ASSAY_GO(assay_run_read(x, run, copies == n_ranks ? j->seen : part));
            if (copies < n_ranks)
                continue;
        }
        ASSAY_GO(assay_run_read(y, run, part));
        if (differ(x, y, n, SAME_COPY + 10 * j->floor_rel))
            *rank = r;
    }
out:
    free(x);
    free(y);
    return s;
}

/* Without a latent the rotated key comes out of the key, which stands behind it in point.def. */
static assay_status key_before(int *index, const assay_forced *forced, int n_ranks)
{
    const assay_judged *rotated = assay_forced_at(forced, *index);
    for (int i = *index; rotated->point == ASSAY_POINT_K_ROPE && i < assay_forced_n(forced); i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        int rank;
        if (j->point != ASSAY_POINT_K || j->layer != rotated->layer || j->step != rotated->step ||
            j->prompt != rotated->prompt)
            continue;
        ASSAY_TRY(odd_rank(&rank, assay_forced_run(forced), j, n_ranks));
        *index = rank < 0 ? *index : i;
        break;
    }
    return ASSAY_OK;
}

assay_status assay_diagnosis_part_ways(int *index, int *rank, const assay_forced *forced,
                                       int prompt)
{
    const assay_run *run = assay_forced_run(forced);
    int n_ranks = assay_run_about(run)->n_ranks;
    *index = *rank = -1;
    if (n_ranks < 2)
        return ASSAY_OK;
    for (int i = 0; i < assay_forced_n(forced) && *rank < 0; i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        if (j->prompt != prompt)
            continue;
        ASSAY_TRY(odd_rank(rank, run, j, n_ranks));
        *index = *rank < 0 ? -1 : i;
    }
    return *rank < 0 ? ASSAY_OK : key_before(index, forced, n_ranks);
}

assay_status assay_diagnosis_view(assay_forced **forced, assay_run *run, assay_oracle *oracle,
                                  const assay_forced_options *options)
{
    int index, rank;
    ASSAY_TRY(assay_forced_new(forced, run, oracle, options));
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        ASSAY_TRY(assay_diagnosis_part_ways(&index, &rank, *forced, p));
        if (rank < 0 || assay_forced_at(*forced, index)->is_home)
            continue;
        assay_forced_free(*forced);
        *forced = NULL;
        ASSAY_TRY(assay_run_view(run, rank));
        return assay_forced_new(forced, run, oracle, options);
    }
    return ASSAY_OK;
}

assay_status assay_diagnosis_drop_behind(assay_result *result, assay_diagnosis *d)
{
    char name[ASSAY_POINT_NAME_BYTES];
    for (int p = 0; p < assay_run_n_prompts(assay_forced_run(d->forced)); p++) {
        int index, rank, kept = 0;
        ASSAY_TRY(assay_diagnosis_part_ways(&index, &rank, d->forced, p));
        if (rank < 0)
            continue;
        for (int i = 0; i < d->n; i++)
            if (d->homes[i].index <= index ||
                assay_forced_at(d->forced, d->homes[i].index)->prompt != p)
                d->homes[kept++] = d->homes[i];
        const assay_judged *j = assay_forced_at(d->forced, index);
        if (kept < d->n)
            ASSAY_TRY(assay_strings_add(
                &result->notes,
                "%s: the ranks' copies part ways here (rank %d), so %d wrong values behind it in "
                "prompt '%s' are not judged: their inputs were not the same on all ranks",
                assay_point_format(name, j->point, j->layer), rank, d->n - kept,
                assay_run_prompt_at(assay_forced_run(d->forced), p)->name));
        d->n = kept;
    }
    return ASSAY_OK;
}
