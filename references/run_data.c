/*
 * What a run keeps: memory and texts that live as long as it does, prompts, entries of steps and
 * their order.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/run_private.h"

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

assay_status assay_run_path(const char **out, assay_run *run, const char *group, const char *name)
{
    const size_t n_group = strlen(group), n_name = strlen(name) + 1;
    char *path = malloc(n_group + 1 + n_name);
    if (!path)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory for a text");
    memcpy(path, group, n_group);
    path[n_group] = '/';
    memcpy(path + n_group + 1, name, n_name);
    ASSAY_TRY(assay_run_keep(run, path));
    *out = path;
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

assay_status assay_run_keep_ids(const int32_t **out, int64_t *n, assay_run *run, int64_t *wide,
                                int64_t count)
{
    int32_t *ids = NULL;
    assay_status s = assay_alloc(&ids, (size_t)count, sizeof *ids, "ids");
    for (int64_t i = 0; s == ASSAY_OK && i < count; i++)
        ids[i] = (int32_t)wide[i];
    free(wide);
    ASSAY_TRY(s);
    *out = ids;
    *n = count;
    return assay_run_keep(run, ids);
}

assay_status assay_run_ids_attr(const int32_t **out, int64_t *n, assay_run *run, hid_t file,
                                const char *path, const char *name)
{
    int64_t *wide = NULL, count = 0;
    bool found;
    *out = NULL;
    *n = 0;
    ASSAY_TRY(assay_h5_attr_ints(&wide, &count, &found, file, path, name));
    return found ? assay_run_keep_ids(out, n, run, wide, count) : ASSAY_OK;
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

assay_status assay_step_room(assay_step_data *step, int room)
{
    if (room <= step->room)
        return ASSAY_OK;
    assay_entry *entries = realloc(step->entries, (size_t)room * sizeof *entries);
    if (!entries)
        return assay_fail(ASSAY_NO_MEMORY, "run: no memory for %d values", room);
    step->entries = entries;
    step->room = room;
    return ASSAY_OK;
}

assay_status assay_step_add(assay_entry **out, assay_step_data *step)
{
    if (step->n_entries == step->room)
        ASSAY_TRY(assay_step_room(step, step->room ? 2 * step->room : 64));
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

int assay_entry_by_place(const void *a, const void *b)
{
    int64_t x = key_of(a, true), y = key_of(b, true);
    return (x > y) - (x < y);
}

/* A search looks at these alone: entries lie far apart. */
static assay_status keep_keys(assay_step_data *step)
{
    ASSAY_TRY(assay_alloc(&step->keys, (size_t)step->n_entries, sizeof *step->keys, "places"));
    for (int i = 0; i < step->n_entries; i++)
        step->keys[i] = key_of(&step->entries[i].seen, true);
    return ASSAY_OK;
}

const assay_seen *assay_step_find(const assay_step_data *step, const assay_seen *place)
{
    const int64_t key = key_of(place, true);
    int first = 0, n = step->n_entries;
    while (n > 0) { /* it is among n from `first` on, if anywhere */
        int half = n / 2;
        if (step->keys[first + half] < key) {
            first += half + 1;
            n -= half + 1;
        } else
            n = half;
    }
    bool found = first < step->n_entries && step->keys[first] == key;
    return found ? &step->entries[first].seen : NULL;
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
        parts[i] =
            bsearch(&key, step->entries, (size_t)step->n_entries, sizeof key, assay_entry_by_place);
        whole->seen.has_values = whole->seen.has_values && parts[i];
    }
    whole->parts = parts;
    return ASSAY_OK;
}

assay_status assay_step_close(assay_run *run, assay_step_data *step)
{
    assay_entry *e = step->entries;
    if (step->n_entries)
        qsort(e, (size_t)step->n_entries, sizeof *e, assay_entry_by_place);
    drop_baseless(step);
    for (int i = 0, rank = 0; i < step->n_entries; i++) {
        rank = i && same_place(&e[i - 1].seen, &e[i].seen) ? rank + 1 : 0;
        e[i].seen.hand_over = rank;
        e[i].base = assay_plan_needs_base(&e[i].plan) ? &e[i + 1] : NULL;
        assay_entry_settle(&e[i]);
    }
    for (int i = 0; i < step->n_entries; i++)
        if (e[i].n_parts)
            ASSAY_TRY(link_parts(run, step, &e[i]));
    return keep_keys(step);
}
