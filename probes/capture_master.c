#include "probes/capture_master.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/publish.h"
#include "probes/capture.h"
#include "probes/hdf5_write.h"

#define PATH_BYTES 1024

typedef struct master {
    hid_t file;
    int n;
    hid_t *ranks;       /* by rank */
    const char **names; /* file names without folder, by rank */
} master;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_folder(const char *a, const char *b)
{
    size_t n = (size_t)(base_name(a) - a), m = (size_t)(base_name(b) - b);
    return n == m && !memcmp(a, b, n);
}

static assay_status open_rank(master *m, const char *path, const char *master_path)
{
    hid_t id;
    int64_t rank = 0, ranks = 0, complete = 0;
    bool found;
    if (!same_folder(path, master_path))
        return assay_fail(ASSAY_USAGE, "'%s' and the master '%s' must lie in one folder", path,
                          master_path);
    ASSAY_TRY(assay_h5_open(&id, path));
    assay_status s = assay_h5_attr_int(&rank, &found, id, "/", "rank");
    if (s == ASSAY_OK)
        s = assay_h5_attr_int(&ranks, &found, id, "/", "ranks");
    if (s == ASSAY_OK)
        s = assay_h5_attr_int(&complete, &found, id, "/", "complete");
    if (s == ASSAY_OK && (ranks != m->n || rank < 0 || rank >= m->n || m->ranks[rank] >= 0))
        s = assay_fail(ASSAY_BAD_FILE, "'%s' is rank %lld of %lld, expected a new one of %d", path,
                       (long long)rank, (long long)ranks, m->n);
    if (s == ASSAY_OK && complete != 1)
        s = assay_fail(ASSAY_BAD_FILE, "'%s' is incomplete", path);
    if (s != ASSAY_OK) {
        H5Fclose(id);
        return s;
    }
    m->ranks[rank] = id;
    m->names[rank] = base_name(path);
    return ASSAY_OK;
}

/* Copies an object's attributes, all but what holds for one rank alone. */
static herr_t copy_attr(hid_t from, const char *name, const H5A_info_t *info, void *to)
{
    (void)info;
    if (!strcmp(name, "shard") || !strcmp(name, "rank") || !strcmp(name, "checksum") ||
        !strcmp(name, "word_sum"))
        return 0;
    hid_t attr = H5Aopen(from, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    size_t bytes = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
    void *value = malloc(bytes + 1);
    hid_t copy = H5Acreate2(*(hid_t *)to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    herr_t e =
        !value || copy < 0 || H5Aread(attr, type, value) < 0 || H5Awrite(copy, type, value) < 0 ? -1
                                                                                                : 0;
    if (copy >= 0)
        H5Aclose(copy);
    free(value);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attr);
    return e;
}

static assay_status copy_attrs(hid_t to, hid_t from, const char *path)
{
    hid_t a = H5Oopen(from, path, H5P_DEFAULT), b = H5Oopen(to, path, H5P_DEFAULT);
    hsize_t at = 0;
    herr_t e =
        a < 0 || b < 0 ? -1 : H5Aiterate2(a, H5_INDEX_NAME, H5_ITER_NATIVE, &at, copy_attr, &b);
    if (a >= 0)
        H5Oclose(a);
    if (b >= 0)
        H5Oclose(b);
    return e < 0 ? assay_h5_fail(ASSAY_IO, "attributes of '%s' cannot be copied", path) : ASSAY_OK;
}

/* A virtual dataset `as` over `path` of ranks first ... last, every `step`-th, along `axis` (-1:
 * one rank). */
static assay_status put_virtual(const master *m, const char *path, const char *as, int first,
                                int last, int step, int axis)
{
    assay_h5_info info[2];
    hsize_t dims[ASSAY_H5_MAX_DIMS], start[ASSAY_H5_MAX_DIMS] = {0}, part[ASSAY_H5_MAX_DIMS];
    ASSAY_TRY(assay_h5_dataset(&info[0], m->ranks[first], path));
    int n_dims = info[0].n_dims;
    for (int d = 0; d < n_dims; d++)
        dims[d] = part[d] = (hsize_t)info[0].dims[d];
    if (axis >= n_dims)
        return assay_fail(ASSAY_BAD_FILE, "'%s': attribute shard names axis %d of %d", path, axis,
                          n_dims);
    for (int r = first + step; r <= last; r += step) {
        ASSAY_TRY(assay_h5_dataset(&info[1], m->ranks[r], path));
        for (int d = 0; d < n_dims; d++)
            if (info[1].n_dims != n_dims || (d != axis && info[1].dims[d] != info[0].dims[d]))
                return assay_fail(ASSAY_BAD_FILE, "'%s': shapes of ranks %d and %d disagree", path,
                                  first, r);
        dims[axis] += (hsize_t)info[1].dims[axis];
    }
    hid_t whole = H5Dopen2(m->ranks[first], path, H5P_DEFAULT), type = H5Dget_type(whole);
    H5Dclose(whole);
    hid_t space = H5Screate_simple(n_dims, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    herr_t e = 0;
    for (int r = first; r <= last && e >= 0; r += step) {
        if (r > first) {
            assay_h5_dataset(&info[1], m->ranks[r], path);
            part[axis] = (hsize_t)info[1].dims[axis];
        }
        hid_t source = H5Screate_simple(n_dims, part, NULL);
        e = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
        if (e >= 0)
            e = H5Pset_virtual(plist, space, m->names[r], path, source);
        H5Sclose(source);
        if (axis >= 0)
            start[axis] += part[axis];
    }
    H5Sselect_all(space);
    hid_t set = e < 0 ? -1 : H5Dcreate2(m->file, as, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (set >= 0)
        H5Dclose(set);
    H5Pclose(plist);
    H5Sclose(space);
    H5Tclose(type);
    return set < 0 ? assay_h5_fail(ASSAY_IO, "'%s' cannot be written", as) : ASSAY_OK;
}

static assay_status put_about(const master *m, const char *as, int rank, const char *path)
{
    char *text;
    bool found;
    static const char *const names[] = {"axes", "origin"};
    for (int i = 0; i < 2; i++) {
        ASSAY_TRY(assay_h5_attr_text(&text, &found, m->ranks[rank], path, names[i]));
        if (!found)
            continue;
        assay_status s = assay_h5_put_text(m->file, as, names[i], text);
        free(text);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

static assay_status put_value(const master *m, const char *path)
{
    int64_t *shard, n;
    bool found;
    int axis = -1, copies = 1;
    char as[PATH_BYTES + 32];
    ASSAY_TRY(assay_h5_attr_ints(&shard, &n, &found, m->ranks[0], path, "shard"));
    if (found) {
        axis = n == 3 ? (int)shard[0] : -1;
        copies = n == 3 && shard[2] > 0 && shard[2] < m->n ? m->n / (int)shard[2] : 1;
        free(shard);
    }
    size_t length = strlen(path);
    bool partial = length > 8 && !strcmp(path + length - 8, ".partial");
    if (!partial) {
        ASSAY_TRY(put_virtual(m, path, path, 0, axis < 0 ? 0 : m->n - 1, copies, axis));
        ASSAY_TRY(put_about(m, path, 0, path));
    }
    for (int r = 0; r < m->n && (partial || axis >= 0); r++) {
        snprintf(as, sizeof as, "%s.rank%d", path, r);
        ASSAY_TRY(put_virtual(m, path, as, r, r, 1, -1));
        ASSAY_TRY(put_about(m, as, r, path));
    }
    return ASSAY_OK;
}

static assay_status copy_whole(const master *m, const char *path)
{
    if (H5Ocopy(m->ranks[0], path, m->file, path, H5P_DEFAULT, H5P_DEFAULT) < 0)
        return assay_h5_fail(ASSAY_IO, "'%s' cannot be copied", path);
    return ASSAY_OK;
}

static assay_status put_step(const master *m, const char *group)
{
    static const char *const plain[] = {"tokens", "sequences", "positions"};
    assay_h5_names names;
    ASSAY_TRY(assay_h5_make_group(m->file, group));
    ASSAY_TRY(copy_attrs(m->file, m->ranks[0], group));
    ASSAY_TRY(assay_h5_list(&names, m->ranks[0], group));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < names.n && s == ASSAY_OK; i++) {
        char path[PATH_BYTES];
        bool is_plain = false;
        snprintf(path, sizeof path, "%.700s/%.300s", group, names.items[i]);
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
            is_plain = is_plain || !strcmp(names.items[i], plain[k]);
        s = is_plain ? copy_whole(m, path) : put_value(m, path);
    }
    assay_h5_names_clear(&names);
    return s;
}

static assay_status put_prompt(const master *m, const char *name)
{
    char group[PATH_BYTES], path[PATH_BYTES];
    assay_h5_names steps;
    snprintf(group, sizeof group, "/prompts/%.400s", name);
    ASSAY_TRY(assay_h5_make_group(m->file, group));
    ASSAY_TRY(copy_attrs(m->file, m->ranks[0], group));
    snprintf(path, sizeof path, "/prompts/%.400s/tokens", name);
    ASSAY_TRY(copy_whole(m, path));
    snprintf(path, sizeof path, "/prompts/%.400s/steps", name);
    ASSAY_TRY(assay_h5_make_group(m->file, path));
    ASSAY_TRY(assay_h5_list(&steps, m->ranks[0], path));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < steps.n && s == ASSAY_OK; i++) {
        char step[PATH_BYTES];
        snprintf(step, sizeof step, "/prompts/%.400s/steps/%.32s", name, steps.items[i]);
        s = put_step(m, step);
    }
    assay_h5_names_clear(&steps);
    return s;
}

static assay_status write_all(master *m)
{
    int32_t one = 1, zero = 0;
    assay_h5_names prompts;
    ASSAY_TRY(copy_attrs(m->file, m->ranks[0], "/"));
    ASSAY_TRY(assay_h5_put_numbers(m->file, "/", "master", H5T_NATIVE_INT32, &one, 1));
    ASSAY_TRY(assay_h5_put_numbers(m->file, "/", "rank", H5T_NATIVE_INT32, &zero, 1));
    ASSAY_TRY(assay_h5_make_group(m->file, "/prompts"));
    ASSAY_TRY(assay_h5_list(&prompts, m->ranks[0], "/prompts"));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < prompts.n && s == ASSAY_OK; i++)
        s = put_prompt(m, prompts.items[i]);
    assay_h5_names_clear(&prompts);
    return s;
}

assay_status assay_capture_master(const char *path, const char *const *ranks, int n)
{
    assay_h5_quiet();
    master m = {.file = -1, .n = n};
    char temporary[4200];
    assay_status s;
    bool is_there = false;
    snprintf(temporary, sizeof temporary, "%.4000s.partial", path);
    ASSAY_GO(assay_alloc(&m.ranks, (size_t)n, sizeof *m.ranks, "ranks"));
    ASSAY_GO(assay_alloc(&m.names, (size_t)n, sizeof *m.names, "ranks"));
    for (int r = 0; r < n; r++)
        m.ranks[r] = -1;
    for (int r = 0; r < n; r++)
        ASSAY_GO(open_rank(&m, ranks[r], path));
    bool was_there = access(temporary, F_OK) == 0; /* then somebody else may be writing it */
    m.file = H5Fcreate(temporary, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    is_there = m.file >= 0 || !was_there;
    if (m.file < 0) {
        s = assay_h5_fail(ASSAY_IO, "'%s' cannot be created", temporary);
        goto out;
    }
    ASSAY_GO(write_all(&m));
    herr_t e = H5Fclose(m.file);
    m.file = -1;
    if (e < 0)
        s = assay_h5_fail(ASSAY_IO, "'%s' cannot be written", temporary);
    else
        s = assay_publish(temporary, path);
out:
    if (m.file >= 0)
        H5Fclose(m.file);
    if (is_there && s != ASSAY_OK)
        unlink(temporary);
    for (int r = 0; m.ranks && r < n; r++)
        if (m.ranks[r] >= 0)
            H5Fclose(m.ranks[r]);
    free(m.ranks);
    free(m.names);
    return s == ASSAY_OK ? s : assay_within(s, "%s", path);
}
