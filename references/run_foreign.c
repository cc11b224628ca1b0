/*
 * Dumps of other engines: one group per step, one dataset per tensor, named as the engine names it.
 *
 *   /<prompt>/step0000/<name>   several prompts, or
 *   /step0000/<name>            one prompt, called "default", or
 *   /prompts/<prompt>/steps/0000/<name>   a capture of ours whose attribute naming is "modules"
 *                                         (tools/python/assay_torch.py)
 *
 * Passes over a file: list all names; learn the sizes that shapes show; map every name by
 * names.def. Values stay where they are.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/run_foreign.h"

/* Rows of names.def that hold for a name; calls `use` for each. *known: some row has the name. */
typedef assay_status use_row(assay_dump *d, int step, const char *name, const assay_name_row *row,
                             int layer, const assay_h5_info *info);

static assay_status each_row(bool *known, assay_dump *d, int step, const char *name,
                             const assay_h5_info *info, use_row *use)
{
    *known = false;
    for (int i = 0; i < assay_name_map_count(d->map); i++) {
        int layer;
        const assay_name_row *row;
        ASSAY_TRY(assay_name_map_match(&row, &layer, d->map, i, name));
        if (!row)
            continue;
        *known = true;
        if (!row->reason && use)
            ASSAY_TRY(use(d, step, name, row, layer, info));
    }
    if (*known)
        return ASSAY_OK;
    for (int i = 0; i < assay_name_count(); i++) {
        const assay_name_row *row = assay_name_at(i);
        int layer;
        if (!assay_family_has(row->family, d->family) ||
            !assay_name_matches(row->name, name, &layer))
            continue;
        if (row->reason) {
            *known = true;
            continue;
        }
        if (!assay_dump_holds(d, row->when, layer))
            continue;
        *known = true;
        if (use)
            ASSAY_TRY(use(d, step, name, row, layer, info));
    }
    return ASSAY_OK;
}

static assay_status count_rows(assay_dump *d, int step, const char *path)
{
    assay_entry e;
    int64_t n_tokens = assay_dump_step(d, step)->about.n_tokens;
    ASSAY_TRY(assay_run_read_kept(&e, d->run, d->file, path));
    d->n_rows = e.n_kept > 0 && e.n_kept < n_tokens ? e.n_kept : n_tokens;
    return ASSAY_OK;
}

static assay_status learn(assay_dump *d, int step, const char *name, const assay_name_row *row,
                          int layer, const assay_h5_info *info)
{
    (void)name;
    (void)layer;
    const char *axes = row->layout.axes;
    if (!axes[0] || axes[0] == '>')
        axes = assay_point_at(row->point)->axes;
    (void)step;
    assay_sizes_learn(&d->sizes, axes, info->dims, info->n_dims, d->n_rows);
    return ASSAY_OK;
}

static void take_hints(assay_dump *d)
{
    const assay_run_sizes *s = d->options->sizes;
    if (!s)
        return;
    const struct {
        char letter;
        int size;
    } rows[] = {{'H', s->n_head},  {'G', s->n_head_kv}, {'N', s->d_nope},      {'R', s->d_rope},
                {'V', s->d_value}, {'L', s->n_rank_kv}, {'I', s->index_n_head}};
    d->sizes.routed_scale = s->routed_scale;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].size > 0 && !d->sizes.of[(int)rows[i].letter])
            d->sizes.of[(int)rows[i].letter] = rows[i].size;
}

static assay_status learn_sizes(assay_dump *d)
{
    for (int s = 0; s < d->n_steps; s++) {
        ASSAY_TRY(assay_dump_count_tokens(d, s, assay_dump_step(d, s)));
        for (int i = 0; i < d->steps[s].names.n; i++) {
            const char *name = d->steps[s].names.items[i];
            char path[1024];
            ASSAY_TRY(assay_dump_path(path, d, s, name));
            bool known;
            ASSAY_TRY(each_row(&known, d, s, name, NULL, NULL));
            if (!known || assay_h5_kind(d->file, path) != 'd')
                continue;
            assay_h5_info info;
            ASSAY_TRY(assay_dump_shape(&info, d, path));
            ASSAY_TRY(count_rows(d, s, path));
            ASSAY_TRY(each_row(&known, d, s, name, &info, learn));
        }
    }
    d->is_mla = d->is_mla || d->sizes.of['L'] || d->sizes.of['C'];
    assay_sizes_close(&d->sizes, d->is_mla);
    take_hints(d);
    assay_sizes_close(&d->sizes, d->is_mla);
    return ASSAY_OK;
}

/* 16-bit words are of the format that attribute origin names. */
static assay_status read_origin(assay_dump *d, assay_entry *e, const char *path)
{
    const char *origin;
    ASSAY_TRY(assay_run_attr(&origin, d->run, d->file, path, "origin", "f32"));
    assay_dtype type = assay_dtype_from_name(origin);
    if (type == ASSAY_DTYPE_COUNT)
        return assay_fail(ASSAY_BAD_FILE, "'%s': origin '%s' is not a known number format", path,
                          origin);
    bool half = type == ASSAY_DTYPE_F16 || type == ASSAY_DTYPE_BF16;
    if (e->source.info.is_unsigned16 != half)
        return assay_fail(ASSAY_BAD_FILE, "'%s': origin '%s' does not fit the stored type", path,
                          origin);
    if (half)
        e->source.packed = type;
    if (!assay_point_at(e->seen.point)->is_ids)
        e->seen.origin = type;
    return ASSAY_OK;
}

/* The tensor beside it that is added. */
static assay_status add_second(assay_dump *d, assay_entry *e)
{
    assay_source *second;
    const char *text;
    ASSAY_TRY(assay_alloc(&second, 1, sizeof *second, "source"));
    ASSAY_TRY(assay_run_keep(d->run, second));
    ASSAY_TRY(assay_run_text(&text, d->run, "%s.out1", e->source.path));
    second->path = (char *)text;
    second->file = e->source.file;
    second->packed = e->source.packed;
    ASSAY_TRY(assay_dump_shape(&second->info, d, text));
    if (second->info.count != e->source.info.count || !second->info.is_number)
        return assay_fail(ASSAY_BAD_FILE, "'%s' and '%s' do not have one shape", e->source.path,
                          text);
    e->second = second;
    return ASSAY_OK;
}

static int shard_axis(const assay_name_row *row)
{
    const char *axes = assay_point_at(row->point)->axes;
    const char *where = row->shard ? strchr(axes, row->shard) : NULL;
    if (row->shard == '-')
        return -1;
    return where ? (int)(where - axes) : ASSAY_SHARD_UNKNOWN;
}

static assay_status fill_entry(assay_dump *d, int step, const char *path, const assay_name_row *row,
                               int layer, const assay_h5_info *info, const assay_plan *plan)
{
    assay_step_data *data = assay_dump_step(d, step);
    assay_entry *e;
    ASSAY_TRY(assay_step_add(&e, data));
    e->seen = assay_seen_blank();
    e->seen.point = row->point;
    e->seen.layer = layer;
    e->seen.rank = d->run->info.n_ranks > 1 ? d->run->files[d->index].rank : -1;
    e->shard_axis = shard_axis(row);
    e->source.file = d->index;
    e->seen.hand_over = row->hand_over;
    e->seen.n_dims = plan->n_out;
    e->seen.origin = info->dtype >= ASSAY_DTYPE_I8 ? ASSAY_DTYPE_I32 : d->run->info.dtype;
    e->seen.has_values = true;
    e->seen.is_rescaled = plan->factor != 1;
    memcpy(e->seen.dims, plan->dims, sizeof plan->dims);
    e->plan = *plan;
    e->is_mapped = true;
    e->source.info = *info;
    e->source.packed = ASSAY_DTYPE_COUNT;
    ASSAY_TRY(assay_run_read_kept(e, d->run, d->file, path));
    if (d->is_capture)
        ASSAY_TRY(read_origin(d, e, path));
    const char *text;
    ASSAY_TRY(assay_run_text(&text, d->run, "%s", path));
    e->source.path = (char *)text;
    e->seen.source = strrchr(text, '/') + 1;
    return plan->adds_out1 ? add_second(d, e) : ASSAY_OK;
}

static assay_status map_row(assay_dump *d, int step, const char *name, const assay_name_row *row,
                            int layer, const assay_h5_info *info)
{
    char path[1024];
    ASSAY_TRY(assay_dump_path(path, d, step, name));
    const assay_point_info *point = assay_point_at(row->point);
    bool is_ids = info->dtype >= ASSAY_DTYPE_I8 && info->dtype < ASSAY_DTYPE_COUNT &&
                  !(d->is_capture && info->is_unsigned16);
    if (point->per_layer != (layer >= 0))
        return assay_run_add_unmapped(d->run, "%s: %s", path,
                                      layer < 0 ? "the name does not say the layer"
                                                : "the name says a layer, the point has none");
    if (!info->is_number || (point->is_ids && !is_ids))
        return assay_run_add_unmapped(d->run, "%s: not %s", path,
                                      point->is_ids ? "whole numbers" : "real numbers");
    assay_plan plan;
    assay_status s = assay_layout_plan(&plan, &row->layout, point->axes, info->dims, info->n_dims,
                                       &d->sizes, &d->run->profile);
    if (s == ASSAY_BAD_SHAPE)
        return assay_run_add_unmapped(d->run, "%s: %s", path, assay_error_text());
    ASSAY_TRY(s);
    return fill_entry(d, step, path, row, layer, info, &plan);
}

/* Greedy id of the last row of a step's logits; -1 when it kept none. */
static assay_status argmax_of(int32_t *out, const assay_dump *d, int step)
{
    const assay_step_data *data = &d->prompt->steps[step];
    *out = -1;
    for (int i = 0; i < data->n_entries; i++) {
        const assay_seen *seen = &data->entries[i].seen;
        if (seen->point != ASSAY_POINT_LOGITS || seen->hand_over)
            continue;
        int64_t rows = seen->dims[0], wide = seen->dims[1], best = 0;
        double *x;
        ASSAY_TRY(assay_alloc(&x, (size_t)(rows * wide), sizeof *x, "logits"));
        assay_status s = assay_run_read(x, d->run, seen);
        const double *last = x + (rows > 0 ? rows - 1 : 0) * wide;
        for (int64_t k = 1; s == ASSAY_OK && rows > 0 && k < wide; k++)
            if (last[k] > last[best] || isnan(last[best]))
                best = k;
        free(x);
        ASSAY_TRY(s);
        *out = (int32_t)best;
    }
    return ASSAY_OK;
}

/* Tokens of steps that do not say them: the prompt, then what greedy choice gives. */
static assay_status guess_tokens(assay_dump *d)
{
    assay_prompt_data *p = d->prompt;
    int32_t *greedy;
    bool is_greedy = true, is_told = true;
    for (int s = 0; s < p->n_steps; s++)
        is_told = is_told && p->steps[s].about.tokens;
    if (is_told)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&greedy, (size_t)p->n_steps, sizeof *greedy, "tokens"));
    ASSAY_TRY(assay_run_keep(d->run, greedy));
    for (int s = 0; s < p->n_steps; s++) {
        assay_run_step *about = &p->steps[s].about;
        if (!about->tokens && s == 0 && p->about.n_tokens == about->n_tokens)
            about->tokens = p->about.tokens;
        if (!about->tokens && s > 0 && about->n_tokens == 1 && greedy[s - 1] >= 0)
            about->tokens = &greedy[s - 1];
        if (!p->about.greedy)
            ASSAY_TRY(argmax_of(&greedy[s], d, s));
        is_greedy = is_greedy && greedy[s] >= 0;
        if (s > 0 && about->tokens && greedy[s - 1] >= 0)
            is_greedy = is_greedy && about->n_tokens == 1 && about->tokens[0] == greedy[s - 1];
    }
    if (!p->about.greedy && is_greedy) {
        p->about.greedy = greedy;
        p->about.n_greedy = p->n_steps;
    }
    return ASSAY_OK;
}

static assay_status read_prompt(assay_dump *d, const char *group)
{
    assay_run_prompt *about = &d->prompt->about;
    assay_run *run = d->run;
    const char *at = group[0] ? group : "/";
    ASSAY_TRY(assay_run_attr(&about->text, run, d->file, at, "text", NULL));
    ASSAY_TRY(assay_run_attr(&about->greedy_text, run, d->file, at, "greedy_text", NULL));
    ASSAY_TRY(assay_run_ids_attr(&about->greedy, &about->n_greedy, run, d->file, at, "greedy"));
    char path[1024];
    snprintf(path, sizeof path, "%.1000s/tokens", group);
    if (assay_h5_kind(d->file, path) == 'd') {
        int32_t *tokens;
        ASSAY_TRY(assay_h5_read_ids(&tokens, &about->n_tokens, d->file, path));
        about->tokens = tokens;
        return assay_run_keep(run, tokens);
    }
    return ASSAY_OK;
}

static assay_status map_step(assay_dump *d, int step, int64_t *position)
{
    assay_step_data *data = assay_dump_step(d, step);
    bool found;
    /* a later step of several tokens is a further chunk of the prompt */
    data->about.is_prefill = step == d->first_step || data->about.n_tokens > 1;
    ASSAY_TRY(assay_h5_attr_int(position, &found, d->file, d->steps[step].group,
                                d->is_capture ? "first_position" : "position"));
    if (*position < 0 || *position > INT32_MAX || data->about.n_tokens > INT32_MAX)
        return assay_fail(ASSAY_BAD_FILE, "'%s': position %lld is out of range",
                          d->steps[step].group, (long long)*position);
    data->about.first_position = *position;
    d->sizes.of['T'] = data->about.n_tokens;
    d->sizes.of['S'] = *position + data->about.n_tokens;
    *position += data->about.n_tokens;
    const assay_h5_names *names = &d->steps[step].names;
    for (int i = 0; i < names->n; i++) {
        const char *name = names->items[i];
        if (!strcmp(name, d->is_capture ? "tokens" : "input_tokens"))
            continue;
        char path[1024], kind;
        bool known;
        ASSAY_TRY(assay_dump_path(path, d, step, name));
        ASSAY_TRY(assay_h5_member(&kind, d->file, path));
        if (kind != 'd') {
            ASSAY_TRY(assay_run_add_unmapped(d->run, "%s: not a dataset", path));
            continue;
        }
        assay_h5_info info;
        ASSAY_TRY(assay_dump_shape(&info, d, path));
        ASSAY_TRY(count_rows(d, step, path));
        d->sizes.of['T'] = d->n_rows;
        ASSAY_TRY(each_row(&known, d, step, name, &info, map_row));
        if (!known)
            ASSAY_TRY(assay_run_add_unmapped(d->run, "%s: unknown name (nearest: %s)", path,
                                             assay_name_nearest(d->family, name)));
    }
    return ASSAY_OK;
}

static assay_status map_prompts(assay_dump *d)
{
    int at = 0;
    for (int p = 0; p < d->run->n_prompts; p++) {
        d->prompt = &d->run->prompts[p];
        d->first_step = at;
        char group[1024];
        snprintf(group, sizeof group, "%s", d->n_steps ? d->steps[at].group : "");
        *strrchr(group, '/') = '\0';
        if (d->is_capture)
            *strrchr(group, '/') = '\0';
        if (d->index == 0)
            ASSAY_TRY(read_prompt(d, group));
        int64_t position = 0;
        for (int s = 0; s < d->prompt->n_steps; s++)
            ASSAY_TRY(map_step(d, at + s, &position));
        at += d->prompt->n_steps;
        if (d->index > 0)
            continue;
        ASSAY_TRY(guess_tokens(d));
        if (!d->prompt->about.tokens && d->prompt->n_steps) {
            d->prompt->about.tokens = d->prompt->steps[0].about.tokens;
            d->prompt->about.n_tokens =
                d->prompt->about.tokens ? d->prompt->steps[0].about.n_tokens : 0;
        }
    }
    return ASSAY_OK;
}

static void clear(assay_dump *d)
{
    for (int i = 0; i < d->n_steps; i++)
        assay_h5_names_clear(&d->steps[i].names);
    free(d->steps);
    free(d->all);
}

static assay_status choose_profile(assay_dump *d, const char *name)
{
    assay_run *run = d->run;
    bool is_scaled =
        !strncmp(run->info.producer, "vllm", 4) && d->is_mla && run->info.dtype == ASSAY_DTYPE_F16;
    const assay_profile *profile =
        name        ? assay_profile_find(name)
        : is_scaled ? assay_profile_find("vllm-f16")
                    : assay_profile_for(run->info.producer, run->info.model_class);
    if (!profile)
        return assay_fail(ASSAY_USAGE, "unknown profile '%s'", name);
    run->profile = *profile;
    return ASSAY_OK;
}

assay_status assay_run_open_foreign(assay_run *run, int file, const assay_run_options *options)
{
    assay_dump d = {.run = run, .options = options, .file = run->files[file].id, .index = file};
    assay_status s;
    d.is_capture = assay_h5_kind(d.file, "/prompts") == 'g';
    assay_name_map *map = NULL;
    if (options->names)
        ASSAY_TRY(assay_name_map_open(&map, options->names));
    d.map = map;
    if (file == 0)
        ASSAY_GO(assay_dump_read_about(&d));
    ASSAY_GO(assay_dump_list(&d));
    if (d.n_listed != run->n_prompts) {
        s = assay_fail(ASSAY_BAD_FILE, "'%s' has %d prompts, '%s' has %d", run->files[file].path,
                       d.n_listed, run->files[0].path, run->n_prompts);
        goto out;
    }
    ASSAY_GO(assay_dump_unite_names(&d));
    assay_dump_recognise(&d);
    ASSAY_GO(choose_profile(&d, options->profile));
    ASSAY_GO(learn_sizes(&d));
    ASSAY_GO(map_prompts(&d));
out:
    clear(&d);
    assay_name_map_close(map);
    return s;
}
