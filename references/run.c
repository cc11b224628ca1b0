#include "references/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "references/run_private.h"

assay_run_options assay_run_options_default(void)
{
    return (assay_run_options){.step = -1};
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

assay_status assay_run_add_unmapped(assay_run *run, const char *format, ...)
{
    char **list = realloc(run->unmapped, (size_t)(run->n_unmapped + 1) * sizeof *list);
    if (!list)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory");
    run->unmapped = list;
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory for a text");
    run->unmapped[run->n_unmapped++] = text;
    run->info.n_unmapped = run->n_unmapped;
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

assay_status assay_step_close(assay_run *run, assay_step_data *step)
{
    assay_entry *e = step->entries;
    if (step->n_entries)
        qsort(e, (size_t)step->n_entries, sizeof *e, by_place);
    int n = 0;
    for (int i = 0; i < step->n_entries; i++) {
        const assay_seen *s = &e[i].seen;
        bool has_next = i + 1 < step->n_entries && e[i + 1].seen.rank == s->rank &&
                        e[i + 1].seen.partial == s->partial &&
                        key_of(&e[i + 1].seen, false) == key_of(s, false);
        bool fits = has_next && e[i + 1].seen.n_dims == s->n_dims &&
                    !memcmp(e[i + 1].seen.dims, s->dims, sizeof s->dims);
        if (assay_plan_needs_base(&e[i].plan) && !fits)
            continue;
        e[n++] = e[i];
    }
    step->n_entries = n;
    for (int i = 0, rank = 0; i < n; i++) {
        const assay_seen *before = i ? &e[i - 1].seen : NULL;
        bool same = before && before->rank == e[i].seen.rank &&
                    before->partial == e[i].seen.partial &&
                    key_of(before, false) == key_of(&e[i].seen, false);
        rank = same ? rank + 1 : 0;
        e[i].seen.hand_over = rank;
        e[i].base = assay_plan_needs_base(&e[i].plan) ? &e[i + 1] : NULL;
    }
    (void)run;
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
        ASSAY_TRY(assay_h5_open(&run->files[i].id, run->files[i].path));
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
    bool found;
    ASSAY_GO(open_files(run, &o, paths, n_paths));
    ASSAY_GO(assay_h5_attr_int(&format, &found, run->files[0].id, "/", "assay_capture"));
    if (found && format != 1) {
        s = assay_fail(ASSAY_BAD_FILE, "'%s' is a capture of format %lld, this version reads 1",
                       run->info.path, (long long)format);
        goto out;
    }
    ASSAY_GO(found ? assay_run_open_capture(run, &o) : assay_run_open_foreign(run, &o));
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

const assay_seen *assay_run_find_part(const assay_run *run, int prompt, int step, assay_point point,
                                      int layer, int rank, int hand_over)
{
    const assay_step_data *data = step_at(run, prompt, step);
    if (!data->n_entries)
        return NULL;
    assay_entry key = {
        .seen = {.point = point, .layer = layer, .rank = rank, .hand_over = hand_over}};
    const assay_entry *found =
        bsearch(&key, data->entries, (size_t)data->n_entries, sizeof key, by_place);
    return found ? &found->seen : NULL;
}

const assay_seen *assay_run_find(const assay_run *run, int prompt, int step, assay_point point,
                                 int layer)
{
    return assay_run_find_part(run, prompt, step, point, layer, -1, 0);
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

assay_status assay_run_read(double *out, const assay_run *run, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    if (!seen->has_values)
        return assay_fail(ASSAY_MISSING, "'%s': only statistics were kept", seen->source);
    double *in, *base = NULL;
    ASSAY_TRY(assay_alloc(&in, (size_t)assay_plan_n_in(&e->plan), sizeof *in, "values"));
    assay_status s = read_source(in, run, &e->source);
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
