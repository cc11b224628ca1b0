#include "references/run_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/hdf5_write.h"
#include "references/run_private.h"

#define PATH_BYTES 1024

bool assay_run_can_be_cut(const assay_run *run)
{
    hid_t file = run->files[0].id;
    int64_t format = 0;
    char *naming = NULL;
    bool found, named = false;
    if (run->is_master || run->shows_parts ||
        assay_h5_attr_int(&format, &found, file, "/", "assay_capture") != ASSAY_OK || !found ||
        assay_h5_attr_text(&naming, &named, file, "/", "naming") != ASSAY_OK)
        return false;
    bool points = !named || !strcmp(naming, "points");
    free(naming);
    return points;
}

typedef struct attr_copy {
    hid_t to;
    bool failed;
} attr_copy;

/* Texts of variable length are pointers in memory, which HDF5 writes as it read them. */
static herr_t copy_attr(hid_t from, const char *name, const H5A_info_t *info, void *user)
{
    attr_copy *c = user;
    (void)info;
    hid_t attr = H5Aopen(from, name, H5P_DEFAULT), made = -1;
    hid_t type = attr < 0 ? -1 : H5Aget_type(attr), space = attr < 0 ? -1 : H5Aget_space(attr);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    size_t size = type < 0 ? 0 : H5Tget_size(type);
    void *values = n < 0 ? NULL : calloc((size_t)n + 1, size + 1);
    bool good = values && H5Aread(attr, type, values) >= 0;
    if (good) {
        made = H5Acreate2(c->to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        good = made >= 0 && H5Awrite(made, type, values) >= 0;
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, values);
    }
    free(values);
    if (made >= 0)
        H5Aclose(made);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (attr >= 0)
        H5Aclose(attr);
    c->failed = c->failed || !good;
    return good ? 0 : -1;
}

/* A group of its own with the attributes of another one. */
static assay_status copy_group(hid_t to, const char *to_path, hid_t from, const char *from_path)
{
    if (H5Lexists(to, to_path, H5P_DEFAULT) <= 0)
        ASSAY_TRY(assay_h5_make_group(to, to_path));
    attr_copy c = {.to = H5Gopen2(to, to_path, H5P_DEFAULT)};
    hid_t source = H5Gopen2(from, from_path, H5P_DEFAULT);
    bool good = c.to >= 0 && source >= 0 &&
                H5Aiterate2(source, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, copy_attr, &c) >= 0 &&
                !c.failed;
    if (source >= 0)
        H5Gclose(source);
    if (c.to >= 0)
        H5Gclose(c.to);
    return good ? ASSAY_OK
                : assay_h5_fail(ASSAY_IO, "attributes of '%s' cannot be copied", from_path);
}

static assay_status copy_member(hid_t to, const char *to_path, hid_t from, const char *from_path)
{
    if (H5Lexists(from, from_path, H5P_DEFAULT) <= 0)
        return ASSAY_OK;
    if (H5Ocopy(from, from_path, to, to_path, H5P_DEFAULT, H5P_DEFAULT) < 0)
        return assay_h5_fail(ASSAY_IO, "'%s' cannot be copied", from_path);
    return ASSAY_OK;
}

typedef struct cut {
    hid_t to, from;
    const char *group; /* of this file */
    const assay_run *run;
    int file;
} cut;

static bool step_is_marked(const assay_run *run, const assay_step_data *step)
{
    for (int i = 0; i < step->n_entries; i++)
        if (run->marks[step->entries[i].number])
            return true;
    return false;
}

/* Steps up to the last marked one. */
static int steps_of(const assay_run *run, const assay_prompt_data *prompt)
{
    int n = prompt->n_steps;
    while (n > 0 && !step_is_marked(run, &prompt->steps[n - 1]))
        n--;
    return n;
}

static assay_status copy_named(const cut *c, const char *group, const char *name)
{
    char from[PATH_BYTES], to[2 * PATH_BYTES];
    snprintf(from, sizeof from, "%.900s/%.100s", group, name);
    snprintf(to, sizeof to, "%.100s%s", c->group, from);
    return copy_member(c->to, to, c->from, from);
}

static assay_status cut_step(const cut *c, const assay_step_data *step, const char *group)
{
    char to[2 * PATH_BYTES];
    snprintf(to, sizeof to, "%.100s%s", c->group, group);
    ASSAY_TRY(copy_group(c->to, to, c->from, group));
    static const char *const lists[] = {"tokens", "sequences", "positions"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        ASSAY_TRY(copy_named(c, group, lists[i]));
    for (int i = 0; i < step->n_entries; i++) {
        const assay_entry *e = &step->entries[i];
        if (e->n_parts || e->source.file != c->file || !e->seen.has_values ||
            !c->run->marks[e->number])
            continue;
        snprintf(to, sizeof to, "%.100s%.1000s", c->group, e->source.path);
        ASSAY_TRY(copy_member(c->to, to, c->from, e->source.path));
    }
    return ASSAY_OK;
}

static assay_status cut_prompt(const cut *c, const assay_prompt_data *prompt)
{
    char from[PATH_BYTES], to[2 * PATH_BYTES];
    int n_steps = steps_of(c->run, prompt);
    if (n_steps == 0)
        return ASSAY_OK;
    snprintf(from, sizeof from, "/prompts/%.900s", prompt->about.name);
    snprintf(to, sizeof to, "%.100s%s", c->group, from);
    ASSAY_TRY(copy_group(c->to, to, c->from, from));
    ASSAY_TRY(copy_named(c, from, "tokens"));
    snprintf(to, sizeof to, "%.100s%s/steps", c->group, from);
    ASSAY_TRY(assay_h5_make_group(c->to, to));
    for (int i = 0; i < n_steps; i++) {
        char step[PATH_BYTES + 32];
        snprintf(step, sizeof step, "%s/steps/%04d", from, i);
        ASSAY_TRY(cut_step(c, &prompt->steps[i], step));
    }
    return ASSAY_OK;
}

assay_status assay_run_cut(hid_t file, const char *group, const assay_run *run)
{
    for (int f = 0; f < run->n_files; f++) {
        char at[64], prompts[96];
        snprintf(at, sizeof at, "%.40s/%d", group, f);
        snprintf(prompts, sizeof prompts, "%s/prompts", at);
        cut c = {.to = file, .from = run->files[f].id, .group = at, .run = run, .file = f};
        ASSAY_TRY(copy_group(file, at, c.from, "/"));
        ASSAY_TRY(assay_h5_make_group(file, prompts));
        for (int p = 0; p < run->n_prompts; p++)
            ASSAY_TRY(cut_prompt(&c, &run->prompts[p]));
    }
    return ASSAY_OK;
}

assay_status assay_run_uncut(const char *path, hid_t file, const char *group)
{
    char prompts[96];
    assay_h5_quiet();
    if (assay_h5_kind(file, group) != 'g')
        return assay_fail(ASSAY_BAD_FILE, "group '%s' is missing", group);
    hid_t to = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (to < 0)
        return assay_h5_fail(ASSAY_IO, "'%s': cannot be written", path);
    snprintf(prompts, sizeof prompts, "%.80s/prompts", group);
    assay_status s = copy_group(to, "/", file, group);
    if (s == ASSAY_OK)
        s = copy_member(to, "/prompts", file, prompts);
    if (H5Fclose(to) < 0 && s == ASSAY_OK)
        s = assay_h5_fail(ASSAY_IO, "'%s': cannot be written", path);
    return s;
}
