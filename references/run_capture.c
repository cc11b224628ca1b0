/*
 * Our own captures, format 1 (probes/capture.h): values are in canonical layout already.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture.h"
#include "probes/hdf5_set.h"
#include "references/run_private.h"

typedef struct reader {
    assay_run *run;
    const assay_run_options *options;
    int file;
    hid_t id;
} reader;

static assay_status read_about(reader *r)
{
    assay_run *run = r->run;
    assay_run_info *info = &run->info;
    const char *dtype, *profile;
    ASSAY_TRY(assay_run_attr(&info->producer, run, r->id, "/", "producer", ""));
    ASSAY_TRY(assay_run_attr(&info->producer_version, run, r->id, "/", "producer_version", ""));
    ASSAY_TRY(assay_run_attr(&info->model_class, run, r->id, "/", "model_class", ""));
    ASSAY_TRY(assay_run_attr(&info->model_sha256, run, r->id, "/", "model_sha256", ""));
    ASSAY_TRY(assay_run_attr(&info->architecture, run, r->id, "/", "architecture", ""));
    ASSAY_TRY(assay_run_attr(&info->attention_path, run, r->id, "/", "path", ""));
    ASSAY_TRY(assay_run_attr(&info->cache, run, r->id, "/", "cache", ""));
    ASSAY_TRY(assay_run_attr(&dtype, run, r->id, "/", "dtype", "f32"));
    info->dtype = assay_dtype_from_name(dtype);
    if (info->dtype == ASSAY_DTYPE_COUNT)
        return assay_fail(ASSAY_BAD_FILE, "attribute dtype '%s' is not a known number format",
                          dtype);
    int64_t complete = 0, reference = 0, master = 0;
    bool found;
    ASSAY_TRY(assay_h5_attr_int(&complete, &found, r->id, "/", "complete"));
    ASSAY_TRY(assay_h5_attr_int(&reference, &found, r->id, "/", "reference"));
    ASSAY_TRY(assay_h5_attr_int(&master, &found, r->id, "/", "master"));
    run->is_master = master == 1;
    info->is_complete = complete == 1;
    info->is_reference = reference == 1;
    ASSAY_TRY(assay_run_attr(&profile, run, r->id, "/", "profile", NULL));
    if (r->options->profile)
        profile = r->options->profile;
    const assay_profile *p = profile ? assay_profile_find(profile)
                                     : assay_profile_for(info->producer, info->model_class);
    if (!p)
        return assay_fail(r->options->profile ? ASSAY_USAGE : ASSAY_BAD_FILE,
                          "unknown profile '%s'", profile);
    run->profile = *p;
    return ASSAY_OK;
}

/* A further rank must be of the same run. */
static assay_status check_about(reader *r)
{
    int64_t format = 0, complete = 0;
    bool found;
    const char *model;
    ASSAY_TRY(assay_h5_attr_int(&format, &found, r->id, "/", "assay_capture"));
    ASSAY_TRY(assay_h5_attr_int(&complete, &found, r->id, "/", "complete"));
    ASSAY_TRY(assay_run_attr(&model, r->run, r->id, "/", "model_sha256", ""));
    if (format != 1 || strcmp(model, r->run->info.model_sha256))
        return assay_fail(ASSAY_BAD_FILE, "'%s' is not a rank of the run of '%s'",
                          r->run->files[r->file].path, r->run->files[0].path);
    r->run->info.is_complete = r->run->info.is_complete && complete == 1;
    return ASSAY_OK;
}

static assay_status read_counts(assay_seen *seen, assay_h5_set *set)
{
    int64_t *counts = NULL, n = 0;
    bool found;
    ASSAY_TRY(assay_h5_set_ints(&counts, &n, &found, set, "counts"));
    if (found && n == 5) {
        seen->n_nan = counts[0];
        seen->n_pos_inf = counts[1];
        seen->n_neg_inf = counts[2];
        seen->n_zero = counts[3];
        seen->n_poison = counts[4];
    }
    if (found)
        free(counts);
    ASSAY_TRY(assay_h5_set_ints(&counts, &n, &found, set, "buffer"));
    if (found && n == 6) {
        seen->written_address = (uint64_t)counts[0];
        seen->written_owner = counts[2];
        seen->read_address = (uint64_t)counts[3];
        seen->read_owner = counts[5];
    }
    if (found)
        free(counts);
    return ASSAY_OK;
}

static assay_status read_floors(assay_seen *seen, assay_h5_set *set)
{
    double f32, bf16;
    bool has_f32, has_bf16;
    ASSAY_TRY(assay_h5_set_double(&f32, &has_f32, set, "floor"));
    ASSAY_TRY(assay_h5_set_double(&bf16, &has_bf16, set, "floor_bf16"));
    if (has_f32 && f32 >= 0)
        seen->floor = f32;
    if (has_bf16 && bf16 >= 0)
        seen->floor_bf16 = bf16;
    return ASSAY_OK;
}

static assay_status read_shard(assay_entry *e, const reader *r, assay_h5_set *set)
{
    int64_t *shard = NULL, n = 0;
    bool found;
    ASSAY_TRY(assay_h5_set_ints(&shard, &n, &found, set, "shard"));
    e->shard_axis = -1;
    if (found && n == 3 && shard[0] >= 0 && shard[0] < ASSAY_MAX_DIMS)
        e->shard_axis = (int)shard[0];
    int64_t ranks = r->run->info.n_ranks;
    if (e->shard_axis >= 0 && (shard[2] < 1 || shard[2] > ranks || ranks % shard[2] != 0)) {
        assay_status s = assay_fail(ASSAY_BAD_FILE, "'%s': %lld shards of %lld ranks", set->path,
                                    (long long)shard[2], (long long)ranks);
        free(shard);
        return s;
    }
    if (e->shard_axis >= 0)
        e->n_copies = (int)(ranks / shard[2]);
    if (found)
        free(shard);
    return ASSAY_OK;
}

/* absent: f32 */
static assay_status read_origin(assay_dtype *out, assay_h5_set *set)
{
    char *origin = NULL;
    bool found;
    ASSAY_TRY(assay_h5_set_text(&origin, &found, set, "origin"));
    *out = found ? assay_dtype_from_name(origin) : ASSAY_DTYPE_F32;
    assay_status s =
        *out != ASSAY_DTYPE_COUNT
            ? ASSAY_OK
            : assay_fail(ASSAY_BAD_FILE, "'%s': origin '%s' is not a known number format",
                         set->path, origin);
    free(origin);
    return s;
}

/* 16-bit words are numbers of the format that `origin` names. */
static assay_status read_numbers(assay_entry *e, const reader *r, assay_h5_set *set)
{
    assay_source *source = &e->source;
    source->file = r->file;
    ASSAY_TRY(assay_h5_set_info(&source->info, set));
    ASSAY_TRY(read_origin(&e->seen.origin, set));
    source->packed = source->info.is_unsigned16 ? e->seen.origin : ASSAY_DTYPE_COUNT;
    if (source->info.is_unsigned16 && source->packed != ASSAY_DTYPE_F16 &&
        source->packed != ASSAY_DTYPE_BF16)
        return assay_fail(ASSAY_BAD_FILE, "'%s': 16-bit words of format '%s'", set->path,
                          assay_dtype_name(source->packed));
    if (!source->info.is_number || source->info.n_dims > ASSAY_MAX_DIMS)
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected real numbers in at most %d dimensions",
                          set->path, ASSAY_MAX_DIMS);
    if (source->info.is_virtual && !r->run->is_master)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is a virtual dataset, which only master files have",
                          set->path);
    return ASSAY_OK;
}

/* What proves the numbers: a hash, or else the checksum of a whole. */
static assay_status read_proof(assay_source *source, reader *r, assay_h5_set *set)
{
    char *sha256 = NULL;
    bool has_rows;
    ASSAY_TRY(assay_h5_set_text(&sha256, &source->is_sealed, set, "sha256"));
    if (source->is_sealed) {
        source->sha256 = sha256;
        return assay_run_keep(r->run, sha256);
    }
    ASSAY_TRY(assay_h5_set_has(&has_rows, set, "rows"));
    if (has_rows || source->info.is_virtual)
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_set_u64(&source->checksum, &source->is_summed, set, "word_sum"));
    if (source->is_summed)
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_set_u64(&source->checksum, &source->is_mixed, set, "checksum"));
    source->is_summed = source->is_mixed;
    return ASSAY_OK;
}

static assay_status read_kept(assay_entry *e, reader *r, assay_h5_set *set)
{
    int64_t *rows = NULL, n = 0;
    bool found;
    ASSAY_TRY(assay_h5_set_ints(&rows, &n, &found, set, "rows"));
    return found ? assay_run_keep_ids(&e->kept, &e->n_kept, r->run, rows, n) : ASSAY_OK;
}

/* What the dataset says of the value beside its place. */
static assay_status describe(assay_entry *e, reader *r, assay_h5_set *set)
{
    const char *path = set->path;
    ASSAY_TRY(read_shard(e, r, set));
    ASSAY_TRY(read_numbers(e, r, set));
    ASSAY_TRY(read_proof(&e->source, r, set));
    ASSAY_TRY(read_counts(&e->seen, set));
    ASSAY_TRY(read_floors(&e->seen, set));
    ASSAY_TRY(read_kept(e, r, set));
    ASSAY_TRY(assay_h5_set_has(&e->seen.is_rescaled, set, "rescaled"));
    e->seen.has_values = !e->source.info.is_virtual || e->source.info.has_sources;
    if (e->source.info.is_virtual && !e->source.info.has_sources)
        ASSAY_TRY(assay_run_add_note(r->run, "%s: a rank's file is missing", path));
    e->source.path = (char *)path;
    e->seen.source = strrchr(path, '/') + 1;
    e->seen.n_dims = e->source.info.n_dims;
    memcpy(e->seen.dims, e->source.info.dims, sizeof e->seen.dims);
    assay_plan_identity(&e->plan, e->source.info.dims, e->source.info.n_dims);
    return ASSAY_OK;
}

static assay_status read_value(reader *r, assay_step_data *step, hid_t group, const char *at,
                               const char *name, uint64_t address)
{
    const char *path;
    assay_point point;
    int layer, hand_over, rank;
    bool partial;
    assay_h5_set set;
    const assay_mapping *mapping = &r->run->files[r->file].mapping;
    ASSAY_TRY(assay_run_path(&path, r->run, at, name));
    if (assay_capture_name_parse(&point, &layer, &partial, &hand_over, &rank, name) != ASSAY_OK)
        return assay_run_add_unmapped(r->run, "%s: %s", path, assay_error_text());
    assay_entry *e;
    ASSAY_TRY(assay_step_add(&e, step));
    e->seen = assay_seen_blank();
    e->seen.point = point;
    e->seen.layer = layer;
    e->seen.partial = partial;
    e->seen.hand_over = hand_over;
    e->seen.rank = rank >= 0                  ? rank
                   : r->run->is_master        ? -1
                   : r->run->info.n_ranks > 1 ? r->run->files[r->file].rank
                                              : -1;
    assay_h5_set_init(&set, group, path, mapping->bytes, mapping->n_bytes, address);
    assay_status s = describe(e, r, &set);
    assay_h5_set_close(&set);
    return s;
}

/* i32 [n] of a step that not every step has. */
static assay_status read_rows(const int32_t **out, reader *r, hid_t group, const char *at,
                              const char *name, int64_t n, int32_t most)
{
    char path[1024];
    int64_t n_read;
    int32_t *rows;
    hid_t set;
    snprintf(path, sizeof path, "%.1000s/%s", at, name);
    if (assay_h5_kind(r->id, path) != 'd')
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_open_dataset(&set, group, path));
    assay_status s = assay_h5_read_ids(&rows, &n_read, set, path);
    assay_h5_close(set);
    ASSAY_TRY(s);
    ASSAY_TRY(assay_run_keep(r->run, rows));
    if (n_read != n)
        return assay_fail(ASSAY_BAD_FILE, "'%s' has %lld rows, expected %lld", path,
                          (long long)n_read, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < -1 || rows[i] >= most)
            return assay_fail(ASSAY_BAD_FILE, "'%s': row %lld is %d, expected -1 ... %d", path,
                              (long long)i, rows[i], most - 1);
    *out = rows;
    return ASSAY_OK;
}

static assay_status read_tokens(assay_step_data *step, reader *r, hid_t group, const char *at)
{
    char path[1024];
    int32_t *tokens;
    int64_t n;
    hid_t set;
    snprintf(path, sizeof path, "%.1000s/tokens", at);
    ASSAY_TRY(assay_h5_open_dataset(&set, group, path));
    assay_status s = assay_h5_read_ids(&tokens, &n, set, path);
    assay_h5_close(set);
    ASSAY_TRY(s);
    ASSAY_TRY(assay_run_keep(r->run, tokens));
    if (step->tokens &&
        (n != step->about.n_tokens || memcmp(tokens, step->tokens, (size_t)n * sizeof *tokens)))
        return assay_fail(ASSAY_BAD_FILE, "'%s' has other tokens in '%s' than in '%s'", path,
                          r->run->files[r->file].path, r->run->files[0].path);
    step->tokens = tokens;
    step->about.tokens = tokens;
    step->about.n_tokens = n;
    return ASSAY_OK;
}

static assay_status read_members(assay_step_data *step, reader *r, hid_t group, const char *at)
{
    const int64_t n = step->about.n_tokens;
    assay_h5_names names;
    ASSAY_TRY(assay_h5_list(&names, group, at));
    assay_status s = assay_step_room(step, step->n_entries + names.n);
    for (int i = 0; i < names.n && s == ASSAY_OK; i++) {
        const char *name = names.items[i];
        if (!strcmp(name, "sequences"))
            s = read_rows(&step->sequences, r, group, at, name, n, 4096);
        else if (!strcmp(name, "positions"))
            s = read_rows(&step->positions, r, group, at, name, n, INT32_MAX);
        else if (strcmp(name, "tokens") != 0)
            s = read_value(r, step, group, at, name, names.addresses[i]);
    }
    assay_h5_names_clear(&names);
    return s;
}

static assay_status read_open_step(assay_step_data *step, reader *r, hid_t group, const char *at)
{
    const char *phase;
    bool found;
    ASSAY_TRY(assay_run_attr(&phase, r->run, group, at, "phase", "prefill"));
    step->about.is_prefill = !strcmp(phase, "prefill");
    ASSAY_TRY(assay_h5_attr_int(&step->about.first_position, &found, group, at, "first_position"));
    ASSAY_TRY(read_tokens(step, r, group, at));
    if (step->about.first_position < 0 || step->about.first_position > INT32_MAX)
        return assay_fail(ASSAY_BAD_FILE, "'%s': first_position %lld is out of range", at,
                          (long long)step->about.first_position);
    return read_members(step, r, group, at);
}

static assay_status read_step(reader *r, assay_step_data *step, const char *at)
{
    hid_t group;
    ASSAY_TRY(assay_h5_open_group(&group, r->id, at));
    assay_status s = read_open_step(step, r, group, at);
    assay_h5_close(group);
    return s;
}

/* The values of a further rank; prompts and steps are there. */
static assay_status read_rank(reader *r, const char *name, const char *at)
{
    assay_prompt_data *p = assay_run_prompt_named(r->run, name);
    for (int i = 0; p && i < p->n_steps; i++) {
        const char *group;
        ASSAY_TRY(assay_run_text(&group, r->run, "%s/steps/%04d", at, i));
        if (assay_h5_kind(r->id, group) != 'g')
            return assay_fail(ASSAY_BAD_FILE, "'%s' lacks '%s', which '%s' has",
                              r->run->files[r->file].path, group, r->run->files[0].path);
        ASSAY_TRY(read_step(r, &p->steps[i], group));
    }
    return p ? assay_run_read_stats(r->run, p, r->file, at)
             : assay_fail(ASSAY_BAD_FILE, "'%s' has a prompt '%s' that '%s' lacks",
                          r->run->files[r->file].path, name, r->run->files[0].path);
}

static assay_status read_prompt(reader *r, const char *name)
{
    assay_prompt_data *p;
    const char *group, *at;
    char path[1024];
    ASSAY_TRY(assay_run_text(&at, r->run, "/prompts/%s", name));
    if (r->file > 0)
        return read_rank(r, name, at);
    ASSAY_TRY(assay_run_add_prompt(&p, r->run, name));
    ASSAY_TRY(assay_run_attr(&p->about.text, r->run, r->id, at, "text", NULL));
    ASSAY_TRY(assay_run_attr(&p->about.greedy_text, r->run, r->id, at, "greedy_text", NULL));
    ASSAY_TRY(
        assay_run_ids_attr(&p->about.greedy, &p->about.n_greedy, r->run, r->id, at, "greedy"));
    int32_t *tokens;
    snprintf(path, sizeof path, "%.1000s/tokens", at);
    ASSAY_TRY(assay_h5_read_ids(&tokens, &p->about.n_tokens, r->id, path));
    p->about.tokens = tokens;
    ASSAY_TRY(assay_run_keep(r->run, tokens));
    assay_h5_names steps;
    snprintf(path, sizeof path, "%.1000s/steps", at);
    ASSAY_TRY(assay_h5_list(&steps, r->id, path));
    assay_status s = assay_alloc(&p->steps, (size_t)steps.n, sizeof *p->steps, "steps");
    if (s == ASSAY_OK)
        p->n_steps = p->about.n_steps = steps.n;
    for (int i = 0; i < steps.n && s == ASSAY_OK; i++) {
        s = assay_run_text(&group, r->run, "%s/steps/%s", at, steps.items[i]);
        if (s == ASSAY_OK)
            s = read_step(r, &p->steps[i], group);
    }
    assay_h5_names_clear(&steps);
    if (s == ASSAY_OK)
        s = assay_run_read_stats(r->run, p, r->file, at);
    return s;
}

/* What a byte budget left out. */
static assay_status note_dropped(reader *r)
{
    int64_t *totals = NULL, n = 0;
    bool found = false;
    if (assay_h5_kind(r->id, "/dropped") != 'd')
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_attr_ints(&totals, &n, &found, r->id, "/dropped", "totals"));
    assay_status s =
        found && n == 3
            ? assay_run_add_note(r->run,
                                 "%s: its budget of %.4g MB left out %lld values or sketches of "
                                 "%.4g MB: of these it has the statistics alone",
                                 r->run->files[r->file].path, (double)totals[2] * 1e-6,
                                 (long long)totals[0], (double)totals[1] * 1e-6)
            : assay_run_add_note(r->run, "%s: its budget left values out",
                                 r->run->files[r->file].path);
    free(totals);
    return s;
}

assay_status assay_run_open_capture(assay_run *run, int file, const assay_run_options *options)
{
    reader r = {run, options, file, run->files[file].id};
    ASSAY_TRY(file == 0 ? read_about(&r) : check_about(&r));
    ASSAY_TRY(note_dropped(&r));
    assay_h5_names prompts;
    ASSAY_TRY(assay_h5_list(&prompts, r.id, "/prompts"));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < prompts.n && s == ASSAY_OK; i++)
        s = !options->prompt || !strcmp(options->prompt, prompts.items[i])
                ? read_prompt(&r, prompts.items[i])
                : assay_run_pass_over(run, prompts.items[i]);
    assay_h5_names_clear(&prompts);
    return s;
}
