/*
 * One value on its way into the file: a dense copy where it is strided, statistics, the tier's
 * recorder, the budget, the dataset with its attributes; and the tables of the cheap tiers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture_private.h"

#define MAX_DROPPED 10000

static assay_status grow(void *list, int64_t n, size_t size)
{
    void *old, *more;
    memcpy(&old, list, sizeof old);
    more = realloc(old, (size_t)n * size);
    if (!more)
        return assay_fail(ASSAY_NO_MEMORY, "capture: no memory for %lld rows", (long long)n);
    memcpy(list, &more, sizeof more);
    return ASSAY_OK;
}

static assay_status table_room(assay_table *t, int64_t n_groups)
{
    if (t->n == t->room) {
        int64_t room = t->room ? 2 * t->room : 256;
        ASSAY_TRY(grow(&t->points, room, sizeof *t->points));
        ASSAY_TRY(grow(&t->steps, room, sizeof *t->steps));
        ASSAY_TRY(grow(&t->values, room * ASSAY_STATS_COLUMNS, sizeof *t->values));
        ASSAY_TRY(grow(&t->checksums, room, sizeof *t->checksums));
        ASSAY_TRY(grow(&t->buffers, room * ASSAY_BUFFER_COLUMNS, sizeof *t->buffers));
        t->room = room;
    }
    if (t->n_sketch + n_groups > t->sketch_room) {
        int64_t room = 2 * (t->n_sketch + n_groups);
        ASSAY_TRY(grow(&t->sketch_rows, room * 2, sizeof *t->sketch_rows));
        ASSAY_TRY(grow(&t->sketch, room * ASSAY_SKETCH_N, sizeof *t->sketch));
        t->sketch_room = room;
    }
    return ASSAY_OK;
}

void assay_table_clear(assay_table *t)
{
    free(t->points);
    free(t->steps);
    free(t->values);
    free(t->checksums);
    free(t->buffers);
    free(t->sketch_rows);
    free(t->sketch);
    *t = (assay_table){.n = 0};
}

static assay_status add_row(assay_capture *c, const assay_value_about *about,
                            const assay_recorded *kept)
{
    assay_table *t = &c->table;
    const assay_stats *s = &kept->stats;
    ASSAY_TRY(table_room(t, kept->n_groups));
    memset(t->points[t->n], 0, sizeof *t->points);
    snprintf(t->points[t->n], sizeof *t->points, "%s", about->name);
    t->steps[t->n] = c->step;
    const double row[ASSAY_STATS_COLUMNS] = {(double)s->n,
                                             (double)s->n_nan,
                                             (double)s->n_pos_inf,
                                             (double)s->n_neg_inf,
                                             (double)s->n_zero,
                                             (double)s->n_poison,
                                             s->min,
                                             s->max,
                                             s->mean,
                                             s->l2};
    memcpy(t->values + t->n * ASSAY_STATS_COLUMNS, row, sizeof row);
    t->checksums[t->n] = s->checksum;
    memset(t->buffers + t->n * ASSAY_BUFFER_COLUMNS, 0, ASSAY_BUFFER_COLUMNS * sizeof *t->buffers);
    if (about->has_buffer)
        memcpy(t->buffers + t->n * ASSAY_BUFFER_COLUMNS, about->buffer, sizeof about->buffer);
    for (int64_t g = 0; g < kept->n_groups; g++) {
        t->sketch_rows[2 * t->n_sketch] = (int32_t)(c->n_table + t->n);
        t->sketch_rows[2 * t->n_sketch + 1] = (int32_t)g;
        memcpy(t->sketch + t->n_sketch * ASSAY_SKETCH_N, kept->sketch + g * ASSAY_SKETCH_N,
               ASSAY_SKETCH_N * sizeof *t->sketch);
        t->n_sketch++;
    }
    t->n++;
    return ASSAY_OK;
}

static assay_status flush_stats(assay_capture *c, const char *group)
{
    assay_table *t = &c->table;
    char path[ASSAY_CAPTURE_PATH + 32];
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, ASSAY_POINT_NAME_BYTES);
    snprintf(path, sizeof path, "%s/point", group);
    assay_status s = assay_h5_append(c->file, path, text, 0, t->points, t->n);
    H5Tclose(text);
    ASSAY_TRY(s);
    snprintf(path, sizeof path, "%s/step", group);
    ASSAY_TRY(assay_h5_append(c->file, path, H5T_NATIVE_INT32, 0, t->steps, t->n));
    snprintf(path, sizeof path, "%s/word_sum", group);
    ASSAY_TRY(assay_h5_append(c->file, path, H5T_NATIVE_UINT64, 0, t->checksums, t->n));
    snprintf(path, sizeof path, "%s/buffer", group);
    ASSAY_TRY(
        assay_h5_append(c->file, path, H5T_NATIVE_UINT64, ASSAY_BUFFER_COLUMNS, t->buffers, t->n));
    snprintf(path, sizeof path, "%s/values", group);
    return assay_h5_append(c->file, path, H5T_NATIVE_DOUBLE, ASSAY_STATS_COLUMNS, t->values, t->n);
}

assay_status assay_capture_flush_table(assay_capture *c)
{
    assay_table *t = &c->table;
    if (t->n == 0)
        return ASSAY_OK;
    char group[ASSAY_CAPTURE_PATH + 16], path[ASSAY_CAPTURE_PATH + 32];
    snprintf(group, sizeof group, "%s/stats", c->prompt);
    if (c->n_table == 0) {
        ASSAY_TRY(assay_h5_make_group(c->file, group));
        ASSAY_TRY(assay_h5_put_text(c->file, group, "columns",
                                    "n nan +inf -inf zero poison min max mean l2"));
    }
    ASSAY_TRY(flush_stats(c, group));
    if (t->n_sketch) {
        snprintf(group, sizeof group, "%s/sketch", c->prompt);
        if (assay_h5_kind(c->file, group) != 'g') {
            ASSAY_TRY(assay_h5_make_group(c->file, group));
            ASSAY_TRY(assay_h5_put_text(c->file, group, "columns", "row of stats, row group"));
        }
        snprintf(path, sizeof path, "%s/row", group);
        ASSAY_TRY(assay_h5_append(c->file, path, H5T_NATIVE_INT32, 2, t->sketch_rows, t->n_sketch));
        snprintf(path, sizeof path, "%s/values", group);
        ASSAY_TRY(assay_h5_append(c->file, path, H5T_NATIVE_FLOAT, ASSAY_SKETCH_N, t->sketch,
                                  t->n_sketch));
    }
    c->n_table += t->n;
    t->n = t->n_sketch = 0;
    return ASSAY_OK;
}

/* A strided view as dense memory; *owned is NULL when it was dense already. */
static assay_status dense_of(assay_buffer *out, void **owned, const assay_buffer *in)
{
    *owned = NULL;
    *out = *in;
    if (in->place != ASSAY_PLACE_HOST)
        return assay_fail(ASSAY_UNSUPPORTED, "a device buffer reached the host's capture");
    if (assay_buffer_is_dense(in))
        return ASSAY_OK;
    size_t size = assay_dtype_bytes(in->dtype);
    int64_t n = assay_buffer_count(in), run = 1, at[ASSAY_MAX_DIMS] = {0};
    int outer = in->n_dims; /* axes; those behind them lie in one piece */
    while (outer > 0 && (in->dims[outer - 1] == 1 || in->strides[outer - 1] == run))
        run *= in->dims[--outer];
    ASSAY_TRY(assay_alloc(owned, (size_t)n, size, "dense copy"));
    for (int64_t i = 0; i < n; i += run) {
        int64_t from = 0;
        for (int d = 0; d < outer; d++)
            from += at[d] * in->strides[d];
        memcpy((char *)*owned + (size_t)i * size, (const char *)in->data + from * (int64_t)size,
               (size_t)run * size);
        for (int d = outer - 1; d >= 0 && ++at[d] == in->dims[d]; d--)
            at[d] = 0;
    }
    *out = assay_buffer_view(*owned, in->dtype, in->n_dims, in->dims);
    return ASSAY_OK;
}

static assay_status drop(assay_capture *c, const char *path, int64_t bytes)
{
    c->dropped_bytes += bytes;
    if (c->n_dropped == MAX_DROPPED) {
        c->n_more_dropped++;
        return ASSAY_OK;
    }
    ASSAY_TRY(grow(&c->dropped, c->n_dropped + 1, sizeof *c->dropped));
    if (asprintf(&c->dropped[c->n_dropped], "%s: %lld bytes are over the budget of %lld", path,
                 (long long)bytes, (long long)c->budget) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "capture: no memory");
    c->n_dropped++;
    return ASSAY_OK;
}

static assay_status put_about(assay_h5_kit *kit, hid_t set, const char *path,
                              const assay_value_about *about, const assay_recorded *kept)
{
    const assay_stats *s = &kept->stats;
    const int32_t one = 1;
    const struct {
        const char *name;
        hid_t type;
        const void *values;
        int n; /* 0: left out */
    } numbers[] = {
        {"counts", H5T_NATIVE_INT64,
         (int64_t[]){s->n_nan, s->n_pos_inf, s->n_neg_inf, s->n_zero, s->n_poison}, 5},
        {"word_sum", H5T_NATIVE_UINT64, &s->checksum, !kept->rows},
        {"buffer", H5T_NATIVE_UINT64, about->buffer, about->has_buffer ? ASSAY_BUFFER_COLUMNS : 0},
        {"shard", H5T_NATIVE_INT32, about->shard, about->shard[0] >= 0 || about->partial ? 3 : 0},
        {"partial", H5T_NATIVE_INT32, &one, about->partial},
        {"rows", H5T_NATIVE_INT32, kept->rows, kept->rows ? (int)kept->dims[0] : 0},
        {"floor", H5T_NATIVE_DOUBLE, &about->floor, about->floor >= 0}};
    if (about->axes)
        ASSAY_TRY(assay_h5_add_text(kit, set, path, "axes", about->axes));
    ASSAY_TRY(assay_h5_add_text(kit, set, path, "origin", assay_dtype_name(about->origin)));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].n)
            ASSAY_TRY(assay_h5_add_numbers(kit, set, path, numbers[i].name, numbers[i].type,
                                           numbers[i].values, numbers[i].n));
    return ASSAY_OK;
}

/* Values go on their way to the file while the next ones are computed. */
static assay_status enqueue(assay_capture *c, const void *values, int64_t bytes, int64_t at)
{
    int fd;
    if (bytes == 0)
        return ASSAY_OK;
    if (!c->queue) {
        ASSAY_TRY(assay_h5_descriptor(&fd, c->file));
        ASSAY_TRY(assay_write_queue_new(&c->queue, fd, c->temporary));
    }
    return assay_write_queue_put(c->queue, values, (size_t)bytes, at);
}

/* Whether the budget still has room for so many bytes, which are then taken from it; else they are
 * listed. */
static assay_status take_room(bool *fits, assay_capture *c, const char *path, int64_t bytes)
{
    *fits = c->budget <= 0 || c->used + bytes <= c->budget;
    if (!*fits)
        return drop(c, path, bytes);
    c->used += bytes;
    return ASSAY_OK;
}

static assay_status put_value(assay_capture *c, const assay_value_about *about,
                              const assay_recorded *kept, assay_dtype dtype)
{
    char path[2 * ASSAY_CAPTURE_PATH];
    int64_t count = 1;
    bool fits = true;
    for (int i = 0; i < kept->n_dims; i++)
        count *= kept->dims[i];
    int64_t bytes = count * (int64_t)assay_dtype_bytes(dtype);
    snprintf(path, sizeof path, "%s/%s", c->group, about->name);
    if (H5Lexists(c->step_group, about->name, H5P_DEFAULT) > 0)
        return assay_fail(ASSAY_BAD_FILE, "'%s' was shown twice in one step", path);
    ASSAY_TRY(take_room(&fits, c, path, bytes));
    if (!fits)
        return ASSAY_OK;
    hid_t set;
    int64_t at;
    ASSAY_TRY(assay_h5_place_dataset(&set, &at, &c->kit, c->step_group, path, assay_h5_type(dtype),
                                     kept->n_dims, kept->dims));
    assay_status s = put_about(&c->kit, set, path, about, kept);
    assay_status closed = assay_h5_close_dataset(set, c->step_group, path);
    s = s == ASSAY_OK ? closed : s;
    return s == ASSAY_OK ? enqueue(c, kept->values, bytes, at) : s;
}

static assay_status budget_sketch(assay_capture *c, const char *name, assay_recorded *kept)
{
    char path[2 * ASSAY_CAPTURE_PATH];
    bool fits = true;
    if (kept->n_groups == 0)
        return ASSAY_OK;
    snprintf(path, sizeof path, "%s/%s, its sketch", c->group, name);
    ASSAY_TRY(
        take_room(&fits, c, path, kept->n_groups * ASSAY_SKETCH_N * (int64_t)sizeof *kept->sketch));
    if (!fits)
        kept->n_groups = 0;
    return ASSAY_OK;
}

assay_status assay_capture_write(assay_capture *c, const assay_value_about *about,
                                 const assay_buffer *values)
{
    assay_buffer dense;
    void *owned;
    ASSAY_TRY(dense_of(&dense, &owned, values));
    assay_recorded kept = {.n_dims = 0};
    assay_status s = assay_record(&kept, c->recorder, &dense);
    if (s == ASSAY_OK)
        s = budget_sketch(c, about->name, &kept);
    if (s == ASSAY_OK)
        s = add_row(c, about, &kept);
    if (s == ASSAY_OK && kept.values)
        s = put_value(c, about, &kept, dense.dtype);
    assay_recorded_clear(&kept);
    free(owned);
    return s;
}
