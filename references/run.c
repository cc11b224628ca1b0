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
                             .is_moe = h->n_expert > 0,
                             .routed_scale = h->weights_scale};
}

void assay_run_close(assay_run *run)
{
    if (!run)
        return;
    for (int p = 0; p < run->n_prompts; p++) {
        for (int s = 0; s < run->prompts[p].n_steps; s++) {
            free(run->prompts[p].steps[s].entries);
            free(run->prompts[p].steps[s].keys);
        }
        free(run->prompts[p].steps);
    }
    free(run->prompts);
    for (int i = 0; i < run->n_files; i++) {
        if (run->files[i].id >= 0)
            H5Fclose(run->files[i].id);
        assay_run_unmap(&run->files[i]);
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
    free(run->marks);
    assay_shelf_free(run->shelf);
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
        bool is_folder = assay_folder_is(run->files[i].path);
        ASSAY_TRY(is_folder ? assay_folder_open(&run->files[i].id, run->files[i].path)
                            : assay_h5_open(&run->files[i].id, run->files[i].path));
        if (!is_folder) /* a folder's or an archive's values are in memory */
            assay_run_map(&run->files[i]);
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

static assay_status number_entries(assay_run *run)
{
    for (int p = 0; p < run->n_prompts; p++)
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            for (int i = 0; i < run->prompts[p].steps[s].n_entries; i++)
                run->prompts[p].steps[s].entries[i].number = run->n_marks++;
    return assay_alloc(&run->marks, run->n_marks, sizeof *run->marks, "marks of values");
}

bool assay_run_mark_reads(assay_run *run, bool on)
{
    bool was = run->marks_reads;
    run->marks_reads = on;
    return was;
}

void assay_run_mark(const assay_run *run, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    if (run->marks)
        run->marks[e->number] = true;
    for (int i = 0; i < e->n_parts; i++)
        assay_run_mark(run, &e->parts[i]->seen);
}

bool assay_run_is_marked(const assay_run *run, const assay_seen *seen)
{
    return run->marks[((const assay_entry *)(const void *)seen)->number];
}

void assay_run_unmark(assay_run *run)
{
    memset(run->marks, 0, run->n_marks * sizeof *run->marks);
}

assay_status assay_run_open(assay_run **out, const char *const *paths, int n_paths,
                            const assay_run_options *options)
{
    ASSAY_BUG_IF(n_paths < 1);
    assay_run *run;
    assay_run_options o = options ? *options : assay_run_options_default();
    ASSAY_TRY(assay_alloc(&run, 1, sizeof *run, "run"));
    run->info.producer = run->info.producer_version = run->info.model_class = "";
    run->info.architecture = run->info.model_sha256 = run->info.attention_path = run->info.cache =
        "";
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
    ASSAY_GO(assay_shelf_new(&run->shelf));
    for (int i = 0; i < n_paths; i++) {
        ASSAY_GO(assay_run_read_ranks(run, i));
        ASSAY_GO(found && !modules ? assay_run_open_capture(run, i, &o)
                                   : assay_run_open_foreign(run, i, &o));
    }
    if (!found || modules)
        ASSAY_GO(assay_run_settle_steps(run));
    if (run->info.n_ranks > 1 && !run->is_master)
        ASSAY_GO(assay_run_join_ranks(run));
    if (found && !modules)
        ASSAY_GO(assay_run_split(run));
    ASSAY_GO(check_prompt(run, o.prompt));
    ASSAY_GO(keep_step(run, o.step));
    ASSAY_GO(assay_run_split_rows(run));
    for (int p = 0; p < run->n_prompts; p++)
        for (int k = 0; k < run->prompts[p].n_steps; k++)
            ASSAY_GO(assay_step_close(run, &run->prompts[p].steps[k]));
    ASSAY_GO(number_entries(run));
out:
    if (s != ASSAY_OK) {
        if (!strstr(assay_error_text(), paths[0]))
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
    const assay_seen place = {.point = point, .layer = layer, .rank = rank, .hand_over = hand_over};
    return assay_step_find(step_at(run, prompt, step), &place);
}

const assay_seen *assay_run_find_partial(const assay_run *run, int prompt, int step,
                                         assay_point point, int layer, int rank)
{
    const assay_seen place = {.point = point, .layer = layer, .rank = rank, .partial = true};
    return assay_step_find(step_at(run, prompt, step), &place);
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
