#include "probes/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/publish.h"
#include "probes/capture_private.h"

static assay_status within_file(const assay_capture *c, assay_status s)
{
    return s == ASSAY_OK ? s : assay_within(s, "%s", c->path);
}

static assay_status put_about_file(assay_capture *c, const assay_capture_about *about)
{
    char created[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const struct {
        const char *name, *text;
    } texts[] = {{"producer", about->producer},
                 {"producer_version", about->producer_version},
                 {"created", created},
                 {"architecture", about->architecture},
                 {"model_class", about->model_class},
                 {"model_sha256", about->model_sha256},
                 {"dtype", about->dtype},
                 {"path", about->path},
                 {"backend", about->backend},
                 {"mode", about->mode},
                 {"profile", about->profile},
                 {"naming", about->naming},
                 {"cache", about->cache}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text)
            ASSAY_TRY(assay_h5_put_text(c->file, "/", texts[i].name, texts[i].text));
    int32_t format = 1, complete = 0, ranks = about->n_ranks > 0 ? about->n_ranks : 1;
    int32_t rank = about->rank;
    c->n_ranks = ranks;
    c->rank = rank;
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "assay_capture", H5T_NATIVE_INT32, &format, 1));
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "complete", H5T_NATIVE_INT32, &complete, 1));
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "ranks", H5T_NATIVE_INT32, &ranks, 1));
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "rank", H5T_NATIVE_INT32, &rank, 1));
    return assay_h5_make_group(c->file, "/prompts");
}

/* A file that is closed stays open as long as one of its groups is. */
static void leave_step(assay_capture *c)
{
    assay_h5_close(c->step_group);
    c->step_group = -1;
}

static void release(assay_capture *c)
{
    assay_write_queue_free(c->queue);
    leave_step(c);
    assay_h5_kit_clear(&c->kit);
    if (c->file >= 0)
        H5Fclose(c->file);
    assay_selector_free(c->selector);
    assay_table_clear(&c->table);
    for (int i = 0; i < c->n_dropped; i++)
        free(c->dropped[i]);
    free(c->dropped);
    free(c->path);
    free(c->temporary);
    free(c);
}

static assay_status flush(assay_capture *c)
{
    return assay_h5_flush(c->file)
               ? ASSAY_OK
               : assay_h5_fail(ASSAY_IO, "'%s' cannot be written", c->temporary);
}

assay_status assay_capture_create(assay_capture **out, const char *path,
                                  const assay_capture_about *about,
                                  const assay_capture_options *options)
{
    assay_h5_quiet();
    (void)assay_lacked(); /* what earlier work lacked is no matter here */
    assay_capture *c;
    assay_status s;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "capture"));
    c->file = -1;
    c->step_group = -1;
    c->step = -1;
    c->engine_step = -1;
    const char *tier = options && options->tier ? options->tier : "full";
    ASSAY_GO(assay_selector_new(&c->selector, options ? options->selector : NULL));
    c->recorder = assay_recorder_find(tier);
    if (!c->recorder) {
        s = assay_fail(ASSAY_USAGE, "unknown tier '%s' (known: stats, sketch, rows, full)", tier);
        goto out;
    }
    c->budget = options ? options->budget_bytes : 0;
    c->path = strdup(path);
    if (!c->path || asprintf(&c->temporary, "%s.partial", path) < 0) {
        s = assay_fail(ASSAY_NO_MEMORY, "capture: no memory");
        goto out;
    }
    bool was_there = access(c->temporary, F_OK) == 0; /* then somebody else may be writing it */
    c->file = assay_h5_create(c->temporary);
    c->is_there = c->file >= 0 || !was_there;
    if (c->file < 0) {
        s = assay_h5_fail(ASSAY_IO, "'%s' cannot be created", c->temporary);
        goto out;
    }
    ASSAY_GO(put_about_file(c, about));
    *out = c;
    return ASSAY_OK;
out:
    assay_capture_abandon(c);
    return s;
}

/*
 * The step at work is over: its values, then its rows of the cheap tiers, on their way to the disk.
 * Until everything in it has been flushed no path leads to its group, so that a kill meanwhile
 * leaves the steps before it; what remains are a few bytes of the group that holds the steps.
 */
static assay_status end_step(assay_capture *c)
{
    if (c->step_group < 0)
        return ASSAY_OK;
    if (c->queue)
        ASSAY_TRY(assay_write_queue_drain(c->queue));
    ASSAY_TRY(flush(c));
    ASSAY_TRY(assay_capture_flush_table(c));
    ASSAY_TRY(assay_h5_show_group(c->step_group, c->file, c->group));
    leave_step(c);
    return flush(c);
}

assay_status assay_capture_prompt(assay_capture *c, const char *name, const char *text,
                                  const int32_t *tokens, int64_t n_tokens)
{
    ASSAY_TRY(end_step(c));
    if (!name[0] || strchr(name, '/') || name[0] == '.' || strlen(name) > 200)
        return assay_fail(ASSAY_USAGE, "'%s' cannot be the name of a prompt", name);
    char path[ASSAY_CAPTURE_PATH + 16];
    snprintf(c->prompt, sizeof c->prompt, "/prompts/%s", name);
    c->step = -1;
    c->engine_step = -1;
    c->n_table = 0;
    if (assay_h5_kind(c->file, c->prompt))
        return assay_fail(ASSAY_USAGE, "prompt '%s' is in '%s' already", name, c->path);
    ASSAY_TRY(assay_h5_make_group(c->file, c->prompt));
    if (text)
        ASSAY_TRY(assay_h5_put_text(c->file, c->prompt, "text", text));
    snprintf(path, sizeof path, "%s/tokens", c->prompt);
    ASSAY_TRY(assay_h5_put_dataset(c->file, path, H5T_NATIVE_INT32, 1, &n_tokens, tokens));
    snprintf(path, sizeof path, "%s/steps", c->prompt);
    ASSAY_TRY(assay_h5_make_group(c->file, path));
    return flush(c); /* from now on the file can be opened and says that it is incomplete */
}

assay_status assay_capture_greedy(assay_capture *c, const int32_t *ids, int64_t n)
{
    if (!c->prompt[0])
        return assay_fail(ASSAY_USAGE, "greedy ids come after their prompt");
    return n > 0 ? assay_h5_put_numbers(c->file, c->prompt, "greedy", H5T_NATIVE_INT32, ids, (int)n)
                 : ASSAY_OK;
}

assay_status assay_capture_step(assay_capture *c, bool is_prefill, int64_t first_position,
                                const int32_t *tokens, int64_t n_tokens)
{
    ASSAY_TRY(end_step(c));
    if (!c->prompt[0])
        ASSAY_TRY(assay_capture_prompt(c, "default", NULL, tokens, n_tokens));
    char path[ASSAY_CAPTURE_PATH + 16];
    c->step++;
    snprintf(c->group, sizeof c->group, "%.400s/steps/%04d", c->prompt, c->step);
    ASSAY_TRY(assay_h5_make_hidden_group(&c->step_group, c->file, c->group));
    hid_t group = c->step_group;
    ASSAY_TRY(assay_h5_put_text(group, c->group, "phase", is_prefill ? "prefill" : "decode"));
    ASSAY_TRY(assay_h5_put_numbers(group, c->group, "first_position", H5T_NATIVE_INT64,
                                   &first_position, 1));
    ASSAY_TRY(assay_h5_put_numbers(group, c->group, "n_tokens", H5T_NATIVE_INT64, &n_tokens, 1));
    snprintf(path, sizeof path, "%s/tokens", c->group);
    return assay_h5_put_dataset(group, path, H5T_NATIVE_INT32, 1, &n_tokens, tokens);
}

static assay_status begin_step(assay_capture *c, const assay_tap_event *e)
{
    int64_t first = INT64_MAX;
    bool several = false; /* requests, or padding */
    for (int64_t i = 0; i < e->rows.n; i++) {
        int32_t sequence = e->rows.sequences ? e->rows.sequences[i] : 0;
        if (sequence >= 0 && e->rows.positions[i] < first)
            first = e->rows.positions[i];
        several = several || sequence != 0;
    }
    if (first == INT64_MAX)
        first = 0;
    ASSAY_TRY(assay_capture_step(c, e->is_prefill, first, e->rows.tokens, e->rows.n));
    c->engine_step = e->step;
    char path[ASSAY_CAPTURE_PATH + 16];
    if (several) {
        snprintf(path, sizeof path, "%s/sequences", c->group);
        ASSAY_TRY(assay_h5_put_dataset(c->step_group, path, H5T_NATIVE_INT32, 1, &e->rows.n,
                                       e->rows.sequences));
        snprintf(path, sizeof path, "%s/positions", c->group);
        ASSAY_TRY(assay_h5_put_dataset(c->step_group, path, H5T_NATIVE_INT32, 1, &e->rows.n,
                                       e->rows.positions));
    }
    return ASSAY_OK;
}

assay_status assay_capture_tap(void *capture, const assay_tap_event *e)
{
    assay_capture *c = capture;
    if (e->step != c->engine_step)
        ASSAY_TRY(begin_step(c, e));
    if (!assay_selector_has(c->selector, e->point, e->layer, c->step))
        return ASSAY_OK;
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, e->point, e->layer);
    if (e->partial)
        strncat(name, ".partial", sizeof name - strlen(name) - 1);
    const int copies = e->n_copies > 1 ? e->n_copies : 1;
    assay_value_about about = {
        .name = name,
        .axes = assay_point_at(e->point)->axes,
        .origin = e->buffer->dtype,
        .floor = -1,
        .shard = {e->shard_axis, e->rank / copies, e->n_ranks / copies},
        .partial = e->partial,
        .has_buffer = true,
        .buffer = {(uint64_t)(uintptr_t)e->written_address, e->written_generation, e->written_owner,
                   (uint64_t)(uintptr_t)e->read_address, e->read_generation, e->read_owner}};
    return within_file(c, assay_capture_write(c, &about, e->buffer));
}

assay_status assay_capture_value(assay_capture *c, const char *point_name, const char *axes,
                                 const assay_buffer *values, assay_dtype origin, double floor)
{
    assay_point point;
    int layer, hand_over, rank;
    bool partial;
    ASSAY_TRY(assay_capture_name_parse(&point, &layer, &partial, &hand_over, &rank, point_name));
    if (c->step < 0)
        return assay_fail(ASSAY_USAGE, "'%s': a value comes after its step", point_name);
    if (!assay_selector_has(c->selector, point, layer, c->step))
        return ASSAY_OK;
    assay_value_about about = {.name = point_name,
                               .axes = axes ? axes : assay_point_at(point)->axes,
                               .origin = origin,
                               .floor = floor,
                               .shard = {-1, c->rank, c->n_ranks},
                               .partial = partial};
    return within_file(c, assay_capture_write(c, &about, values));
}

/* One number more about a value; nothing where it was not selected, or only its statistics kept. */
static assay_status put_more(assay_capture *c, const char *point_name, const char *attribute,
                             hid_t type, const void *number)
{
    char path[2 * ASSAY_CAPTURE_PATH];
    hid_t set;
    if (c->step_group < 0 || H5Lexists(c->step_group, point_name, H5P_DEFAULT) <= 0)
        return ASSAY_OK;
    snprintf(path, sizeof path, "%s/%s", c->group, point_name);
    ASSAY_TRY(assay_h5_open_dataset(&set, c->step_group, path));
    assay_status s = assay_h5_put_numbers(set, path, attribute, type, number, 1);
    assay_h5_close(set);
    return within_file(c, s);
}

assay_status assay_capture_floor_bf16(assay_capture *c, const char *point_name, double floor)
{
    return put_more(c, point_name, "floor_bf16", H5T_NATIVE_DOUBLE, &floor);
}

assay_status assay_capture_rescaled(assay_capture *c, const char *point_name)
{
    int32_t one = 1;
    return put_more(c, point_name, "rescaled", H5T_NATIVE_INT32, &one);
}

assay_status assay_capture_mark_reference(assay_capture *c, const char *computed_by,
                                          const char *precision)
{
    int32_t one = 1;
    c->is_reference = true;
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "reference", H5T_NATIVE_INT32, &one, 1));
    ASSAY_TRY(assay_h5_put_text(c->file, "/", "computed_by", computed_by));
    return assay_h5_put_text(c->file, "/", "precision", precision);
}

static assay_status put_dropped(assay_capture *c)
{
    int64_t totals[3] = {c->n_dropped + c->n_more_dropped, c->dropped_bytes, c->budget};
    if (!c->n_dropped)
        return ASSAY_OK;
    if (c->n_more_dropped) {
        free(c->dropped[c->n_dropped - 1]);
        c->dropped[c->n_dropped - 1] = NULL;
        if (asprintf(&c->dropped[c->n_dropped - 1], "and %lld more",
                     (long long)c->n_more_dropped + 1) < 0)
            return assay_fail(ASSAY_NO_MEMORY, "capture: no memory");
    }
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    int64_t n = c->n_dropped;
    assay_status s = assay_h5_put_dataset(c->file, "/dropped", type, 1, &n, c->dropped);
    H5Tclose(type);
    return s == ASSAY_OK
               ? assay_h5_put_numbers(c->file, "/dropped", "totals", H5T_NATIVE_INT64, totals, 3)
               : s;
}

static assay_status close_file(assay_capture *c)
{
    hid_t file = c->file;
    assay_write_queue_free(c->queue); /* drained at the end of the step */
    c->queue = NULL;
    leave_step(c);
    c->file = -1;
    if (H5Fclose(file) < 0)
        return assay_h5_fail(ASSAY_IO, "'%s' cannot be closed", c->temporary);
    return assay_sync(c->temporary);
}

/* Everything is on the disk before `complete` says so, and that before the name says so. */
static assay_status seal(assay_capture *c)
{
    int32_t complete = 1;
    ASSAY_TRY(close_file(c));
    c->file = H5Fopen(c->temporary, H5F_ACC_RDWR, H5P_DEFAULT);
    if (c->file < 0)
        return assay_h5_fail(ASSAY_IO, "'%s' cannot be opened again", c->temporary);
    ASSAY_TRY(assay_h5_put_numbers(c->file, "/", "complete", H5T_NATIVE_INT32, &complete, 1));
    ASSAY_TRY(close_file(c));
    c->is_there = false;
    return assay_publish(c->temporary, c->path);
}

assay_status assay_capture_finish(assay_capture *c)
{
    assay_status s;
    ASSAY_GO(assay_lacked());
    ASSAY_GO(end_step(c));
    ASSAY_GO(put_dropped(c));
    if (c->is_reference)
        ASSAY_GO(assay_capture_hash_all(c->file));
    ASSAY_GO(seal(c));
    release(c);
    return ASSAY_OK;
out:
    assay_capture_abandon(c);
    return s;
}

void assay_capture_abandon(assay_capture *c)
{
    if (!c)
        return;
    assay_write_queue_free(c->queue);
    c->queue = NULL;
    leave_step(c);
    if (c->file >= 0)
        H5Fclose(c->file);
    c->file = -1;
    if (c->is_there)
        unlink(c->temporary);
    release(c);
}
