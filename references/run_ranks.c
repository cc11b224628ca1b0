/*
 * Runs of several ranks: what each rank saw stays there under its number, and the whole is put
 * together from the shards.
 *
 * Whether a value is split is said by its shard attribute (our captures) or a name map; else by its
 * axes: heads, feed-forward width, vocabulary and experts can be split, and are if the ranks'
 * values of most such points differ. Values before a reduction (partial) have no whole. Where a
 * rank is missing, split values stay per rank and a note says so: nothing is filled in.
 */
#include <stdlib.h>
#include <string.h>

#include "references/run_private.h"

#define SPLIT_LETTERS "HGFZMWE"
#define MAX_RANKS 4096
#define N_ASKED 8 /* values that are compared to find out whether a letter is split */

typedef struct joiner {
    assay_run *run;
    bool here[MAX_RANKS];
    int n_here;
    int asked[128], differ[128]; /* by letter */
} joiner;

static int by_group(const void *a, const void *b)
{
    const assay_seen *x = &((const assay_entry *)a)->seen, *y = &((const assay_entry *)b)->seen;
    if (x->layer != y->layer)
        return x->layer - y->layer;
    if (x->point != y->point)
        return (int)x->point - (int)y->point;
    if (x->hand_over != y->hand_over)
        return x->hand_over - y->hand_over;
    if (x->partial != y->partial)
        return x->partial - y->partial;
    return x->rank - y->rank;
}

static int group_end(const assay_step_data *step, int first)
{
    const assay_seen *a = &step->entries[first].seen;
    int last = first + 1;
    for (; last < step->n_entries; last++) {
        const assay_seen *b = &step->entries[last].seen;
        if (b->layer != a->layer || b->point != a->point || b->hand_over != a->hand_over ||
            b->partial != a->partial)
            break;
    }
    return last;
}

/* Axis of the value that ranks may share out; -1: none. llama's k and v: G for H. */
static int split_axis(const assay_entry *e, char *letter)
{
    const char *axes = assay_point_at(e->seen.point)->axes;
    for (int i = 0; axes[i] && i < e->seen.n_dims; i++)
        if (strchr(SPLIT_LETTERS, axes[i])) {
            *letter = axes[i];
            return i;
        }
    return -1;
}

static int64_t count_of(const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    return n;
}

static assay_status equal_values(bool *out, const assay_run *run, const assay_entry *a,
                                 const assay_entry *b)
{
    int64_t n = count_of(&a->seen);
    *out = false;
    if (count_of(&b->seen) != n)
        return ASSAY_OK;
    double *x = NULL, *y = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&x, (size_t)n, sizeof *x, a->seen.source));
    ASSAY_GO(assay_alloc(&y, (size_t)n, sizeof *y, b->seen.source));
    ASSAY_GO(assay_run_read(x, run, &a->seen));
    ASSAY_GO(assay_run_read(y, run, &b->seen));
    *out = !memcmp(x, y, (size_t)n * sizeof *x);
out:
    free(x);
    free(y);
    return s;
}

/* One vote of a point on whether its letter is split. */
static assay_status ask(joiner *j, const assay_entry *first, int n)
{
    char letter;
    if (n < 2 || first->shard_axis != ASSAY_SHARD_UNKNOWN || split_axis(first, &letter) < 0 ||
        first->seen.partial || !first->seen.has_values || j->asked[(int)letter] == N_ASKED ||
        assay_plan_needs_base(&first->plan))
        return ASSAY_OK;
    bool equal;
    ASSAY_TRY(equal_values(&equal, j->run, &first[0], &first[1]));
    j->asked[(int)letter]++;
    j->differ[(int)letter] += !equal;
    return ASSAY_OK;
}

static int axis_of(const joiner *j, const assay_entry *e)
{
    char letter;
    int axis = split_axis(e, &letter);
    if (e->shard_axis != ASSAY_SHARD_UNKNOWN)
        return e->shard_axis;
    if (axis < 0)
        return -1;
    bool known = j->asked[(int)letter] > 0;
    bool split = 2 * j->differ[(int)letter] > j->asked[(int)letter];
    return known && !split ? -1 : axis;
}

static assay_status add_whole(joiner *j, assay_step_data *step, int first, int last, int axis)
{
    int copies = step->entries[first].n_copies > 1 ? step->entries[first].n_copies : 1;
    int n_parts = axis < 0 ? 1 : (last - first) / copies;
    int32_t *ranks;
    ASSAY_TRY(assay_alloc(&ranks, (size_t)n_parts, sizeof *ranks, "ranks"));
    ASSAY_TRY(assay_run_keep(j->run, ranks));
    assay_entry whole = step->entries[first], *e;
    whole.seen.rank = -1;
    whole.n_parts = n_parts;
    whole.part_axis = axis;
    whole.n_copies = copies;
    whole.part_ranks = ranks;
    for (int i = 0; i < n_parts; i++) {
        const assay_seen *part = &step->entries[first + i * copies].seen;
        ranks[i] = part->rank;
        if (i == 0)
            continue;
        for (int d = 0; d < part->n_dims; d++)
            if (part->n_dims != whole.seen.n_dims ||
                (d != axis && part->dims[d] != whole.seen.dims[d]))
                return assay_run_add_unmapped(j->run, "%s: the shapes of ranks %d and %d disagree",
                                              part->source, ranks[0], part->rank);
        whole.seen.dims[axis] += part->dims[axis];
        whole.seen.has_values = whole.seen.has_values && part->has_values;
    }
    if (axis >= 0)
        whole.seen.n_nan = whole.seen.n_pos_inf = whole.seen.n_neg_inf = whole.seen.n_zero =
            whole.seen.n_poison = -1;
    ASSAY_TRY(assay_step_add(&e, step));
    *e = whole;
    return ASSAY_OK;
}

static assay_status join_step(joiner *j, assay_step_data *step, int64_t *n_alone)
{
    int n = step->n_entries;
    for (int i = 0, last; i < n; i = last) {
        last = group_end(step, i);
        last = last > n ? n : last;
        const assay_entry *e = &step->entries[i];
        if (e->seen.partial || e->seen.rank < 0)
            continue;
        int axis = axis_of(j, e);
        if (axis >= 0 && last - i < j->run->info.n_ranks)
            ++*n_alone;
        else
            ASSAY_TRY(add_whole(j, step, i, last, axis));
    }
    return ASSAY_OK;
}

static assay_status find_ranks(joiner *j)
{
    assay_run *run = j->run;
    for (int f = 0; f < run->n_files; f++) {
        int rank = run->files[f].rank;
        if (rank < 0 || rank >= run->info.n_ranks || rank >= MAX_RANKS)
            return assay_fail(ASSAY_BAD_FILE, "'%s' says rank %d of %d", run->files[f].path, rank,
                              run->info.n_ranks);
        if (j->here[rank])
            return assay_fail(ASSAY_BAD_FILE, "'%s': rank %d was given twice", run->files[f].path,
                              rank);
        j->here[rank] = true;
        j->n_here++;
    }
    return ASSAY_OK;
}

assay_status assay_run_join_ranks(assay_run *run)
{
    joiner *j;
    ASSAY_TRY(assay_alloc(&j, 1, sizeof *j, "ranks"));
    j->run = run;
    int64_t n_alone = 0;
    assay_status s;
    ASSAY_GO(find_ranks(j));
    for (int p = 0; p < run->n_prompts; p++)
        for (int k = 0; k < run->prompts[p].n_steps; k++) {
            assay_step_data *step = &run->prompts[p].steps[k];
            if (step->n_entries)
                qsort(step->entries, (size_t)step->n_entries, sizeof *step->entries, by_group);
            for (int i = 0, last; i < step->n_entries; i = last) {
                last = group_end(step, i);
                ASSAY_GO(ask(j, &step->entries[i], last - i));
            }
        }
    for (int p = 0; p < run->n_prompts; p++)
        for (int k = 0; k < run->prompts[p].n_steps; k++)
            ASSAY_GO(join_step(j, &run->prompts[p].steps[k], &n_alone));
    for (int r = 0; r < run->info.n_ranks && j->n_here < run->info.n_ranks; r++)
        if (!j->here[r])
            ASSAY_GO(assay_run_add_note(run, "rank %d of %d is missing", r, run->info.n_ranks));
    if (n_alone)
        ASSAY_GO(assay_run_add_note(run,
                                    "%lld values that are split over ranks are known in part only",
                                    (long long)n_alone));
out:
    free(j);
    return s;
}

static const assay_entry *of_rank(const assay_step_data *step, const assay_entry *whole, int rank)
{
    assay_entry key = {.seen = whole->seen};
    key.seen.rank = rank;
    return bsearch(&key, step->entries, (size_t)step->n_entries, sizeof key, assay_entry_by_place);
}

/* The part of which `rank` holds a copy, as that rank holds it. */
static assay_status view_copy(assay_run *run, const assay_step_data *step, assay_entry *whole,
                              int rank)
{
    int at = rank / whole->n_copies;
    const assay_entry **parts, *found = of_rank(step, whole, rank);
    if (!found || at >= whole->n_parts || !whole->parts)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&parts, (size_t)whole->n_parts, sizeof *parts, "a rank's copy"));
    ASSAY_TRY(assay_run_keep(run, parts));
    for (int i = 0; i < whole->n_parts; i++)
        parts[i] = i == at ? found : whole->parts[i];
    whole->parts = parts;
    return ASSAY_OK;
}

static assay_status view_step(assay_run *run, assay_step_data *step, int rank)
{
    for (int i = 0; i < step->n_entries; i++) {
        assay_entry *whole = &step->entries[i];
        const assay_entry **copy;
        if (whole->n_copies > 1 && whole->seen.rank < 0)
            ASSAY_TRY(view_copy(run, step, whole, rank));
        if (whole->n_parts != 1 || whole->part_axis >= 0)
            continue;
        const assay_entry *found = of_rank(step, whole, rank);
        if (!found)
            continue;
        ASSAY_TRY(assay_alloc(&copy, 1, sizeof *copy, "a rank's copy"));
        ASSAY_TRY(assay_run_keep(run, copy));
        *copy = found;
        whole->parts = copy;
    }
    return ASSAY_OK;
}

assay_status assay_run_view(assay_run *run, int rank)
{
    bool here = false;
    for (int f = 0; f < run->n_files; f++)
        here = here || run->files[f].rank == rank;
    if (!here && !run->is_master)
        return assay_fail(ASSAY_MISSING, "rank %d is not in the run", rank);
    for (int p = 0; p < run->n_prompts; p++)
        for (int k = 0; k < run->prompts[p].n_steps; k++)
            ASSAY_TRY(view_step(run, &run->prompts[p].steps[k], rank));
    return ASSAY_OK;
}
