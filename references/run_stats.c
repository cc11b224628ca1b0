/*
 * The tables stats of our own captures: values of which nothing else was kept.
 */
#include <stdio.h>
#include <stdlib.h>

#include "probes/capture.h"
#include "references/run_private.h"

#define STATS_COLUMNS 10
#define MOST_ELEMENTS ((int64_t)1 << 53) /* whole numbers that a float64 holds */

typedef struct stats {
    char (*points)[ASSAY_POINT_NAME_BYTES];
    int32_t *steps;
    double *values;
    uint64_t *checksums, *buffers; /* buffers: six of each; NULL: none */
    int *entries;                  /* by row: in its step; -1: none */
    int64_t n;
    uint32_t *places; /* of the entries of one step, in their order */
    int n_places, room, step;
} stats;

static assay_status load_stats(stats *t, hid_t file, const char *prompt)
{
    char path[1024], kind;
    snprintf(path, sizeof path, "%.900s/stats", prompt);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind != 'g')
        return ASSAY_OK;
    snprintf(path, sizeof path, "%.900s/stats/step", prompt);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind != 'd')
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_read_ids(&t->steps, &t->n, file, path));
    assay_h5_info info;
    snprintf(path, sizeof path, "%.900s/stats/values", prompt);
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    if (info.n_dims != 2 || info.dims[0] != t->n || info.dims[1] != STATS_COLUMNS)
        return assay_fail(ASSAY_BAD_FILE, "'%s' does not have %lld rows of %d numbers", path,
                          (long long)t->n, STATS_COLUMNS);
    ASSAY_TRY(assay_alloc(&t->values, (size_t)info.count, sizeof *t->values, "statistics"));
    ASSAY_TRY(assay_h5_read_f64(t->values, file, path, &info));
    ASSAY_TRY(assay_alloc(&t->entries, (size_t)t->n, sizeof *t->entries, "statistics"));
    ASSAY_TRY(assay_alloc(&t->checksums, (size_t)t->n, sizeof *t->checksums, "statistics"));
    snprintf(path, sizeof path, "%.900s/stats/word_sum", prompt);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind == 'd') {
        ASSAY_TRY(assay_h5_dataset(&info, file, path));
        if (info.count != t->n)
            return assay_fail(ASSAY_BAD_FILE, "'%s' does not have %lld numbers", path,
                              (long long)t->n);
        ASSAY_TRY(assay_h5_read_u64(t->checksums, file, path, &info));
    }
    snprintf(path, sizeof path, "%.900s/stats/buffer", prompt);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind == 'd') {
        ASSAY_TRY(assay_h5_dataset(&info, file, path));
        if (info.count != 6 * t->n)
            return assay_fail(ASSAY_BAD_FILE, "'%s' does not have %lld rows of 6 numbers", path,
                              (long long)t->n);
        ASSAY_TRY(assay_alloc(&t->buffers, (size_t)info.count, sizeof *t->buffers, "statistics"));
        ASSAY_TRY(assay_h5_read_u64(t->buffers, file, path, &info));
    }
    ASSAY_TRY(assay_alloc(&t->points, (size_t)t->n, sizeof *t->points, "statistics"));
    snprintf(path, sizeof path, "%.900s/stats/point", prompt);
    return assay_h5_read_texts((char *)t->points, ASSAY_POINT_NAME_BYTES, t->n, file, path);
}

static bool same_place(const assay_seen *a, const assay_seen *b)
{
    return a->point == b->point && a->layer == b->layer && a->partial == b->partial &&
           a->hand_over == b->hand_over;
}

/* Alike for one place, seldom for two. */
static uint32_t place_of(const assay_seen *seen)
{
    return (((uint32_t)seen->layer * 512 + (uint32_t)seen->point) * 16 +
            (uint32_t)seen->hand_over) *
               2 +
           seen->partial;
}

/* Whether the step has the value of a row. Entries lie far apart, so that places are looked through
 * first. */
static assay_status is_there(bool *out, stats *t, const assay_step_data *step, int number,
                             const assay_seen *row, int file)
{
    if (t->step != number)
        t->n_places = 0;
    t->step = number;
    if (step->n_entries > t->room) {
        uint32_t *places = realloc(t->places, (size_t)step->room * sizeof *places);
        if (!places)
            return assay_fail(ASSAY_NO_MEMORY, "run: no memory for %d places", step->room);
        t->places = places;
        t->room = step->room;
    }
    for (; t->n_places < step->n_entries; t->n_places++)
        t->places[t->n_places] = place_of(&step->entries[t->n_places].seen);
    const uint32_t place = place_of(row);
    *out = false;
    for (int k = 0; !*out; k++) {
        while (k < step->n_entries && t->places[k] != place)
            k++;
        if (k == step->n_entries)
            break;
        const assay_entry *e = &step->entries[k];
        *out = same_place(&e->seen, row) && (e->seen.rank == row->rank || row->rank < 0) &&
               e->source.file == file;
    }
    return ASSAY_OK;
}

/* *says: whether it is a place of a step that there is. */
static assay_status read_row(assay_seen *out, bool *says, const stats *t, int64_t i,
                             const assay_prompt_data *p, const char *prompt)
{
    const double *row = t->values + i * STATS_COLUMNS;
    int64_t counts[6]; /* n nan +inf -inf zero poison */
    for (int k = 0; k < 6; k++)
        if ((counts[k] = assay_index_of(row[k], MOST_ELEMENTS)) < 0)
            return assay_fail(ASSAY_BAD_FILE, "%s: row %lld of the statistics counts %g elements",
                              prompt, (long long)i, row[k]);
    *out = assay_seen_blank();
    *says = t->steps[i] >= 0 && t->steps[i] < p->n_steps &&
            assay_capture_name_parse(&out->point, &out->layer, &out->partial, &out->hand_over,
                                     &out->rank, t->points[i]) == ASSAY_OK;
    out->n_dims = 1;
    out->dims[0] = counts[0];
    out->n_nan = counts[1];
    out->n_pos_inf = counts[2];
    out->n_neg_inf = counts[3];
    out->n_zero = counts[4];
    out->n_poison = counts[5];
    if (t->buffers && t->buffers[6 * i]) {
        out->written_address = t->buffers[6 * i];
        out->written_owner = (int64_t)t->buffers[6 * i + 2];
        out->read_address = t->buffers[6 * i + 3];
        out->read_owner = (int64_t)t->buffers[6 * i + 5];
    }
    out->l2 = row[9];
    out->checksum = t->checksums[i];
    return ASSAY_OK;
}

static assay_status add_row(assay_run *run, stats *t, int64_t i, assay_prompt_data *p, int file,
                            const char *prompt)
{
    assay_seen seen;
    assay_entry *e;
    bool says = false, has = false;
    t->entries[i] = -1;
    ASSAY_TRY(read_row(&seen, &says, t, i, p, prompt));
    if (!says)
        return ASSAY_OK;
    assay_step_data *step = &p->steps[t->steps[i]];
    ASSAY_TRY(is_there(&has, t, step, t->steps[i], &seen, file));
    if (has)
        return ASSAY_OK;
    if (seen.rank < 0 && run->info.n_ranks > 1 && !run->is_master)
        seen.rank = run->files[file].rank;
    seen.origin = run->info.dtype;
    seen.source = assay_point_at(seen.point)->name;
    ASSAY_TRY(assay_step_add(&e, step));
    e->seen = seen;
    e->source.file = file;
    assay_plan_identity(&e->plan, seen.dims, 1);
    t->entries[i] = step->n_entries - 1;
    return ASSAY_OK;
}

assay_status assay_run_read_stats(assay_run *run, assay_prompt_data *p, int file,
                                  const char *prompt)
{
    stats t = {.step = -1};
    hid_t id = run->files[file].id;
    assay_status s = load_stats(&t, id, prompt);
    for (int64_t i = 0; i < t.n && s == ASSAY_OK; i++)
        s = add_row(run, &t, i, p, file, prompt);
    if (s == ASSAY_OK && t.n)
        s = assay_run_read_sketches(run, p, id, prompt, t.steps, t.entries, t.n);
    free(t.points);
    free(t.steps);
    free(t.values);
    free(t.checksums);
    free(t.buffers);
    free(t.entries);
    free(t.places);
    return s;
}
