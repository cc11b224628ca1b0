#include "references/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "references/folder.h"
#include "references/run_private.h"

assay_run_options assay_run_options_default(void)
{
    return (assay_run_options){.step = -1};
}

assay_run_sizes assay_run_sizes_of(const assay_hparams *h)
{
    return (assay_run_sizes){.n_head = h->n_head,
                             .n_head_kv = h->n_head_kv,
                             .d_nope = h->is_mla ? h->d_nope : 0,
                             .d_rope = h->d_rope,
                             .d_value = h->is_mla ? h->d_value : h->d_head,
                             .n_rank_kv = h->n_rank_kv,
                             .index_n_head = h->index_n_head,
                             .n_layer_dense = h->n_layer_dense,
                             .is_mla = h->is_mla,
                             .is_moe = h->n_expert > 0};
}

assay_status assay_run_keep(assay_run *run, void *memory)
{
    if (!memory)
        return ASSAY_OK;
    if (run->n_kept == run->kept_room) {
        size_t room = run->kept_room ? 2 * run->kept_room : 256;
        void **kept = realloc(run->kept, room * sizeof *kept);
        if (!kept) {
            free(memory);
            return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
        }
        run->kept = kept;
        run->kept_room = room;
    }
    run->kept[run->n_kept++] = memory;
    return ASSAY_OK;
}

static char *format_text(const char *format, va_list args)
{
    char *text;
    return vasprintf(&text, format, args) < 0 ? NULL : text;
}

assay_status assay_run_text(const char **out, assay_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory for a text");
    ASSAY_TRY(assay_run_keep(run, text));
    *out = text;
    return ASSAY_OK;
}

assay_status assay_run_attr(const char **out, assay_run *run, hid_t file, const char *path,
                            const char *name, const char *fallback)
{
    char *text = NULL;
    bool found;
    ASSAY_TRY(assay_h5_attr_text(&text, &found, file, path, name));
    *out = found ? text : fallback;
    return assay_run_keep(run, text);
}

assay_status assay_run_ids_attr(const int32_t **out, int64_t *n, assay_run *run, hid_t file,
                                const char *path, const char *name)
{
    int64_t *wide = NULL, count = 0;
    int32_t *ids = NULL;
    bool found;
    *out = NULL;
    *n = 0;
    ASSAY_TRY(assay_h5_attr_ints(&wide, &count, &found, file, path, name));
    if (!found)
        return ASSAY_OK;
    assay_status s = assay_alloc(&ids, (size_t)count, sizeof *ids, name);
    for (int64_t i = 0; s == ASSAY_OK && i < count; i++)
        ids[i] = (int32_t)wide[i];
    free(wide);
    ASSAY_TRY(s);
    *out = ids;
    *n = count;
    return assay_run_keep(run, ids);
}

assay_status assay_run_add_prompt(assay_prompt_data **out, assay_run *run, const char *name)
{
    assay_prompt_data *prompts =
        realloc(run->prompts, (size_t)(run->n_prompts + 1) * sizeof *prompts);
    if (!prompts)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    run->prompts = prompts;
    *out = memset(&prompts[run->n_prompts++], 0, sizeof **out);
    return assay_run_text(&(*out)->about.name, run, "%s", name);
}

assay_seen assay_seen_blank(void)
{
    return (assay_seen){.layer = -1,
                        .rank = -1,
                        .n_nan = -1,
                        .n_pos_inf = -1,
                        .n_neg_inf = -1,
                        .n_zero = -1,
                        .n_poison = -1,
                        .written_owner = -1,
                        .read_owner = -1};
}

static assay_status add_line(char ***list, int *n, const char *format, va_list args)
{
    char **more = realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    *list = more;
    char *text = format_text(format, args);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory for a text");
    more[(*n)++] = text;
    return ASSAY_OK;
}

assay_status assay_run_add_unmapped(assay_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    assay_status s = add_line(&run->unmapped, &run->n_unmapped, format, args);
    va_end(args);
    run->info.n_unmapped = run->n_unmapped;
    return s;
}

assay_status assay_run_add_note(assay_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    assay_status s = add_line(&run->notes, &run->n_notes, format, args);
    va_end(args);
    return s;
}

assay_prompt_data *assay_run_prompt_named(const assay_run *run, const char *name)
{
    for (int i = 0; i < run->n_prompts; i++)
        if (!strcmp(run->prompts[i].about.name, name))
            return &run->prompts[i];
    return NULL;
}

assay_status assay_run_read_ranks(assay_run *run, int file)
{
    int64_t rank = 0, ranks = 1;
    bool has_rank, has_ranks;
    hid_t id = run->files[file].id;
    ASSAY_TRY(assay_h5_attr_int(&rank, &has_rank, id, "/", "rank"));
    ASSAY_TRY(assay_h5_attr_int(&ranks, &has_ranks, id, "/", "ranks"));
    if (!has_ranks)
        ranks = run->n_files;
    if (!has_rank)
        rank = file;
    if (ranks < 1 || ranks > 4096 || rank < 0 || rank >= ranks)
        return assay_fail(ASSAY_BAD_FILE, "'%s' says rank %lld of %lld", run->files[file].path,
                          (long long)rank, (long long)ranks);
    if (file > 0 && ranks != run->info.n_ranks)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is of a run of %lld ranks, '%s' of one of %d",
                          run->files[file].path, (long long)ranks, run->files[0].path,
                          run->info.n_ranks);
    if (run->n_files > ranks)
        return assay_fail(ASSAY_BAD_FILE, "%d files were given, '%s' is of a run of %lld ranks",
                          run->n_files, run->files[file].path, (long long)ranks);
    run->files[file].rank = (int)rank;
    run->info.n_ranks = (int)ranks;
    return ASSAY_OK;
}

assay_status assay_step_add(assay_entry **out, assay_step_data *step)
{
    if (step->n_entries == step->room) {
        int room = step->room ? 2 * step->room : 64;
        assay_entry *entries = realloc(step->entries, (size_t)room * sizeof *entries);
        if (!entries)
            return assay_fail(ASSAY_NO_MEMORY, "run: no memory for %d values", room);
        step->entries = entries;
        step->room = room;
    }
    *out = memset(&step->entries[step->n_entries++], 0, sizeof **out);
    return ASSAY_OK;
}

/* Layer, then place in the layer; globals: embed first, the rest last. */
static int64_t key_of(const assay_seen *s, bool with_part)
{
    int64_t layer = s->layer >= 0 ? s->layer + 1 : s->point == ASSAY_POINT_EMBED ? 0 : 1 << 20;
    int64_t key = layer * ASSAY_POINT_COUNT + (int64_t)s->point;
    return with_part ? ((key * 8192 + s->rank + 1) * 2 + s->partial) * 64 + s->hand_over : key;
}

static int by_place(const void *a, const void *b)
{
    int64_t x = key_of(a, true), y = key_of(b, true);
    return (x > y) - (x < y);
}

static bool same_place(const assay_seen *a, const assay_seen *b)
{
    return a->rank == b->rank && a->partial == b->partial && key_of(a, false) == key_of(b, false);
}

/* Drops values that need the one below and have none of their shape. */
static void drop_baseless(assay_step_data *step)
{
    assay_entry *e = step->entries;
    int n = 0;
    for (int i = 0; i < step->n_entries; i++) {
        const assay_seen *s = &e[i].seen, *next = i + 1 < step->n_entries ? &e[i + 1].seen : NULL;
        bool fits = next && same_place(next, s) && next->n_dims == s->n_dims &&
                    !memcmp(next->dims, s->dims, sizeof s->dims);
        if (!assay_plan_needs_base(&e[i].plan) || fits)
            e[n++] = e[i];
    }
    step->n_entries = n;
}

static assay_status link_parts(assay_run *run, const assay_step_data *step, assay_entry *whole)
{
    const assay_entry **parts;
    ASSAY_TRY(assay_alloc(&parts, (size_t)whole->n_parts, sizeof *parts, "ranks"));
    ASSAY_TRY(assay_run_keep(run, parts));
    for (int i = 0; i < whole->n_parts; i++) {
        assay_entry key = {.seen = whole->seen};
        key.seen.rank = whole->part_ranks[i];
        parts[i] = bsearch(&key, step->entries, (size_t)step->n_entries, sizeof key, by_place);
        whole->seen.has_values = whole->seen.has_values && parts[i];
    }
    whole->parts = parts;
    return ASSAY_OK;
}

assay_status assay_step_close(assay_run *run, assay_step_data *step)
{
    assay_entry *e = step->entries;
    if (step->n_entries)
        qsort(e, (size_t)step->n_entries, sizeof *e, by_place);
    drop_baseless(step);
    for (int i = 0, rank = 0; i < step->n_entries; i++) {
        rank = i && same_place(&e[i - 1].seen, &e[i].seen) ? rank + 1 : 0;
        e[i].seen.hand_over = rank;
        e[i].base = assay_plan_needs_base(&e[i].plan) ? &e[i + 1] : NULL;
    }
    for (int i = 0; i < step->n_entries; i++)
        if (e[i].n_parts)
            ASSAY_TRY(link_parts(run, step, &e[i]));
    return ASSAY_OK;
}

void assay_run_close(assay_run *run)
{
    if (!run)
        return;
    for (int p = 0; p < run->n_prompts; p++) {
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            free(run->prompts[p].steps[s].entries);
        free(run->prompts[p].steps);
    }
    free(run->prompts);
    for (int i = 0; i < run->n_files; i++) {
        if (run->files[i].id >= 0)
            H5Fclose(run->files[i].id);
        free(run->files[i].path);
    }
    free(run->files);
    for (int i = 0; i < run->n_unmapped; i++)
        free(run->unmapped[i]);
    free(run->unmapped);
    for (int i = 0; i < run->n_notes; i++)
        free(run->notes[i]);
    free(run->notes);
    for (size_t i = 0; i < run->n_kept; i++)
        free(run->kept[i]);
    free(run->kept);
    free(run);
}

/* "FILE:PROMPT" when there is no file of the whole name. *prompt stays untouched without one. */
static assay_status split_prompt(assay_run *run, char **path, const char **prompt, const char *text)
{
    *path = strdup(text);
    if (!*path)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    char *colon = strrchr(*path, ':');
    if (access(text, F_OK) == 0 || !colon || strchr(colon, '/'))
        return ASSAY_OK;
    *colon = '\0';
    return assay_run_text(prompt, run, "%s", colon + 1);
}

static assay_status open_files(assay_run *run, assay_run_options *options, const char *const *paths,
                               int n)
{
    ASSAY_TRY(assay_alloc(&run->files, (size_t)n, sizeof *run->files, "files"));
    for (int i = 0; i < n; i++)
        run->files[i].id = -1;
    run->n_files = n;
    for (int i = 0; i < n; i++) {
        ASSAY_TRY(split_prompt(run, &run->files[i].path, &options->prompt, paths[i]));
        ASSAY_TRY(assay_folder_is(run->files[i].path)
                      ? assay_folder_open(&run->files[i].id, run->files[i].path)
                      : assay_h5_open(&run->files[i].id, run->files[i].path));
    }
    run->info.path = run->files[0].path;
    return ASSAY_OK;
}

static assay_status check_prompt(const assay_run *run, const char *prompt)
{
    if (run->n_prompts > 0)
        return ASSAY_OK;
    if (prompt)
        return assay_fail(ASSAY_MISSING, "'%s' has no prompt '%s' (there are:%s)", run->info.path,
                          prompt, run->others ? run->others : " none");
    return assay_fail(ASSAY_BAD_FILE, "'%s' holds no prompts", run->info.path);
}

/* Other steps keep their tokens (a cache is rebuilt from them), but show no values. */
static assay_status keep_step(assay_run *run, int step)
{
    bool any = false;
    for (int p = 0; step >= 0 && p < run->n_prompts; p++)
        for (int s = 0; s < run->prompts[p].n_steps; s++) {
            any = any || s == step;
            if (s != step)
                run->prompts[p].steps[s].n_entries = 0;
        }
    if (step >= 0 && !any)
        return assay_fail(ASSAY_MISSING, "'%s' has no step %d", run->info.path, step);
    return ASSAY_OK;
}

assay_status assay_run_pass_over(assay_run *run, const char *prompt)
{
    const char *before = run->others ? run->others : "";
    if (strlen(before) > 500) /* a line for people; a stranger's file may hold a million names */
        return ASSAY_OK;
    return assay_run_text(&run->others, run, "%s %.100s", before, prompt);
}

/* A capture of ours whose datasets bear the modules' names (attribute naming). */
static assay_status names_modules(bool *out, assay_run *run)
{
    const char *naming;
    ASSAY_TRY(assay_run_attr(&naming, run, run->files[0].id, "/", "naming", "points"));
    *out = !strcmp(naming, "modules");
    if (!*out && strcmp(naming, "points"))
        return assay_fail(ASSAY_BAD_FILE, "attribute naming '%s' is neither points nor modules",
                          naming);
    return ASSAY_OK;
}

assay_status assay_run_open(assay_run **out, const char *const *paths, int n_paths,
                            const assay_run_options *options)
{
    ASSAY_BUG_IF(n_paths < 1);
    assay_run *run;
    assay_run_options o = options ? *options : assay_run_options_default();
    ASSAY_TRY(assay_alloc(&run, 1, sizeof *run, "run"));
    run->info.producer = run->info.producer_version = run->info.model_class = "";
    run->info.architecture = run->info.model_sha256 = run->info.attention_path = "";
    run->info.is_complete = true;
    run->info.n_ranks = 1;
    run->info.profile = &run->profile;
    run->info.dtype = ASSAY_DTYPE_F32;
    assay_status s;
    int64_t format;
    bool found, modules;
    ASSAY_GO(open_files(run, &o, paths, n_paths));
    ASSAY_GO(assay_h5_attr_int(&format, &found, run->files[0].id, "/", "assay_capture"));
    if (found && format != 1) {
        s = assay_fail(ASSAY_BAD_FILE, "'%s' is a capture of format %lld, this version reads 1",
                       run->info.path, (long long)format);
        goto out;
    }
    ASSAY_GO(names_modules(&modules, run));
    for (int i = 0; i < n_paths; i++) {
        ASSAY_GO(assay_run_read_ranks(run, i));
        ASSAY_GO(found && !modules ? assay_run_open_capture(run, i, &o)
                                   : assay_run_open_foreign(run, i, &o));
    }
    if (run->info.n_ranks > 1 && !run->is_master)
        ASSAY_GO(assay_run_join_ranks(run));
    for (int p = 0; p < run->n_prompts; p++)
        for (int k = 0; k < run->prompts[p].n_steps; k++)
            ASSAY_GO(assay_step_close(run, &run->prompts[p].steps[k]));
    ASSAY_GO(check_prompt(run, o.prompt));
    ASSAY_GO(keep_step(run, o.step));
out:
    if (s != ASSAY_OK) {
        s = assay_within(s, "%s", paths[0]);
        assay_run_close(run);
        return s;
    }
    *out = run;
    return ASSAY_OK;
}

const assay_run_info *assay_run_about(const assay_run *run)
{
    return &run->info;
}

int assay_run_n_prompts(const assay_run *run)
{
    return run->n_prompts;
}

const assay_run_prompt *assay_run_prompt_at(const assay_run *run, int prompt)
{
    ASSAY_BUG_IF(prompt < 0 || prompt >= run->n_prompts);
    return &run->prompts[prompt].about;
}

static const assay_step_data *step_at(const assay_run *run, int prompt, int step)
{
    ASSAY_BUG_IF(prompt < 0 || prompt >= run->n_prompts);
    ASSAY_BUG_IF(step < 0 || step >= run->prompts[prompt].n_steps);
    return &run->prompts[prompt].steps[step];
}

const assay_run_step *assay_run_step_at(const assay_run *run, int prompt, int step)
{
    return &step_at(run, prompt, step)->about;
}

int assay_run_n_seen(const assay_run *run, int prompt, int step)
{
    return step_at(run, prompt, step)->n_entries;
}

const assay_seen *assay_run_seen_at(const assay_run *run, int prompt, int step, int index)
{
    const assay_step_data *data = step_at(run, prompt, step);
    ASSAY_BUG_IF(index < 0 || index >= data->n_entries);
    return &data->entries[index].seen;
}

static const assay_seen *find(const assay_step_data *step, const assay_seen *place)
{
    if (!step->n_entries)
        return NULL;
    const assay_entry key = {.seen = *place};
    const assay_entry *found =
        bsearch(&key, step->entries, (size_t)step->n_entries, sizeof key, by_place);
    return found ? &found->seen : NULL;
}

const assay_seen *assay_run_find_part(const assay_run *run, int prompt, int step, assay_point point,
                                      int layer, int rank, int hand_over)
{
    const assay_seen place = {.point = point, .layer = layer, .rank = rank, .hand_over = hand_over};
    return find(step_at(run, prompt, step), &place);
}

const assay_seen *assay_run_find_partial(const assay_run *run, int prompt, int step,
                                         assay_point point, int layer, int rank)
{
    const assay_seen place = {.point = point, .layer = layer, .rank = rank, .partial = true};
    return find(step_at(run, prompt, step), &place);
}

const assay_seen *assay_run_find(const assay_run *run, int prompt, int step, assay_point point,
                                 int layer)
{
    return assay_run_find_part(run, prompt, step, point, layer, -1, 0);
}

int assay_run_n_notes(const assay_run *run)
{
    return run->n_notes;
}

const char *assay_run_note_at(const assay_run *run, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= run->n_notes);
    return run->notes[index];
}

const char *assay_run_unmapped_at(const assay_run *run, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= run->n_unmapped);
    return run->unmapped[index];
}

static assay_status check_seal(hid_t file, const char *path)
{
    char *said = NULL, is[65];
    bool found;
    ASSAY_TRY(assay_h5_attr_text(&said, &found, file, path, "sha256"));
    assay_status s = assay_h5_sha256(is, file, path);
    if (s == ASSAY_OK && (!found || strcmp(said, is)))
        s = assay_fail(ASSAY_BAD_FILE,
                       "'%s' was changed after it was written: SHA-256 %s, recorded %s", path, is,
                       found ? said : "none");
    free(said);
    return s;
}

static assay_status read_source(double *out, const assay_run *run, const assay_source *source)
{
    hid_t file = run->files[source->file].id;
    if (source->is_sealed)
        ASSAY_TRY(check_seal(file, source->path));
    if (source->packed == ASSAY_DTYPE_COUNT)
        return assay_h5_read_f64(out, file, source->path, &source->info);
    /* The words are read into the far half of the output and widened from the front. */
    int64_t n = source->info.count;
    uint16_t *words = (uint16_t *)(void *)out + 3 * n;
    ASSAY_TRY(assay_h5_read_u16(words, file, source->path, &source->info));
    for (int64_t i = 0; i < n; i++) {
        uint16_t word = words[i];
        out[i] =
            source->packed == ASSAY_DTYPE_BF16 ? assay_bf16_to_f32(word) : assay_f16_to_f32(word);
    }
    return ASSAY_OK;
}

static assay_status add_source(double *in, const assay_run *run, const assay_source *second)
{
    double *more;
    ASSAY_TRY(assay_alloc(&more, (size_t)second->info.count, sizeof *more, second->path));
    assay_status s = read_source(more, run, second);
    for (int64_t i = 0; s == ASSAY_OK && i < second->info.count; i++)
        in[i] += more[i];
    free(more);
    return s;
}

/* Puts one rank's part at its place in the whole: blocks of the axes behind part_axis. */
static void place_part(double *out, const double *part, const assay_entry *whole,
                       const assay_seen *seen, int64_t first)
{
    int64_t n_before = 1, n_behind = 1;
    int axis = whole->part_axis;
    for (int d = 0; d < axis; d++)
        n_before *= seen->dims[d];
    for (int d = axis + 1; d < seen->n_dims; d++)
        n_behind *= seen->dims[d];
    int64_t run = seen->dims[axis] * n_behind, all = whole->seen.dims[axis] * n_behind;
    for (int64_t i = 0; i < n_before; i++)
        memcpy(out + i * all + first * n_behind, part + i * run, (size_t)run * sizeof *out);
}

static assay_status read_parts(double *out, const assay_run *run, const assay_entry *whole)
{
    if (whole->part_axis < 0)
        return assay_run_read(out, run, &whole->parts[0]->seen);
    int64_t first = 0;
    for (int i = 0; i < whole->n_parts; i++) {
        const assay_seen *seen = &whole->parts[i]->seen;
        double *part;
        ASSAY_TRY(assay_alloc(&part, (size_t)assay_plan_n_out(&whole->parts[i]->plan), sizeof *part,
                              seen->source));
        assay_status s = assay_run_read(part, run, seen);
        if (s == ASSAY_OK)
            place_part(out, part, whole, seen, first);
        free(part);
        ASSAY_TRY(s);
        first += seen->dims[whole->part_axis];
    }
    return ASSAY_OK;
}

assay_status assay_run_read(double *out, const assay_run *run, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    if (!seen->has_values)
        return assay_fail(ASSAY_MISSING, "'%s': only statistics were kept", seen->source);
    if (e->n_parts)
        return read_parts(out, run, e);
    double *in, *base = NULL;
    ASSAY_TRY(assay_alloc(&in, (size_t)assay_plan_n_in(&e->plan), sizeof *in, "values"));
    assay_status s = read_source(in, run, &e->source);
    if (s == ASSAY_OK && e->second)
        s = add_source(in, run, e->second);
    if (s == ASSAY_OK)
        assay_plan_apply(out, in, &e->plan);
    if (s == ASSAY_OK && e->base) {
        s = assay_alloc(&base, (size_t)assay_plan_n_out(&e->plan), sizeof *base, "values");
        if (s == ASSAY_OK)
            s = assay_run_read(base, run, &e->base->seen);
        if (s == ASSAY_OK)
            assay_plan_overlay(out, base, &e->plan);
        free(base);
    }
    free(in);
    return s;
}
