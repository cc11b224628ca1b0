#include "forge_packed.h"

#include <stdlib.h>

#include "expect.h"
#include "probes/hdf5.h"

enum { MOST_SETS = 4096, MOST_AXIS = 64 };

typedef struct list {
    char *names[MOST_SETS];
    int n;
} list;

static herr_t note_values(hid_t at, const char *name, const H5O_info_t *info, void *user)
{
    list *l = user;
    if (info->type != H5O_TYPE_DATASET || !strstr(name, "/steps/"))
        return 0;
    hid_t set = H5Dopen2(at, name, H5P_DEFAULT), type = H5Dget_type(set), space = H5Dget_space(set);
    bool is_value = H5Tequal(type, H5T_NATIVE_FLOAT) > 0 && H5Sget_simple_extent_ndims(space) > 0;
    ck_assert(l->n < MOST_SETS);
    if (is_value)
        l->names[l->n++] = strdup(name);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
    return 0;
}

static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info, void *user)
{
    hid_t to = *(hid_t *)user;
    hid_t attr = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(attr),
          space = H5Aget_space(attr);
    void *bytes = calloc(1, (size_t)info->data_size + 1);
    ck_assert(H5Aread(attr, type, bytes) >= 0);
    hid_t copy = H5Acreate2(to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Awrite(copy, type, bytes) >= 0);
    free(bytes);
    H5Aclose(copy);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attr);
    return 0;
}

static hid_t make_packed(hid_t file, hid_t type, hid_t space)
{
    hsize_t dims[ASSAY_H5_MAX_DIMS];
    int n = H5Sget_simple_extent_dims(space, dims, NULL);
    for (int d = 0; d < n; d++)
        dims[d] = dims[d] < MOST_AXIS ? dims[d] : MOST_AXIS;
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, n, dims);
    H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 1);
    hid_t set = H5Dcreate2(file, "packed", type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    ck_assert(set >= 0);
    H5Pclose(plist);
    return set;
}

static void pack(hid_t file, const char *name, hid_t type)
{
    hid_t old = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(old);
    hid_t set = make_packed(file, type, space);
    size_t n = (size_t)H5Sget_simple_extent_npoints(space);
    float *x = malloc(n * sizeof *x + 1);
    ck_assert(H5Dread(old, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    free(x);
    ck_assert(H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &set) >= 0);
    if (H5Tequal(type, H5T_NATIVE_FLOAT) <= 0 && H5Aexists(set, "word_sum") > 0)
        H5Adelete(set, "word_sum");
    H5Sclose(space);
    H5Dclose(old);
    H5Dclose(set);
    ck_assert(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    ck_assert(H5Lmove(file, "packed", file, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

void forge_packed(const char *path, hid_t type)
{
    static list l;
    l.n = 0;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_msg(file >= 0, "%s", path);
    ck_assert(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, note_values, &l, H5O_INFO_BASIC) >= 0);
    ck_assert(l.n > 0);
    for (int i = 0; i < l.n; i++) {
        pack(file, l.names[i], type);
        free(l.names[i]);
    }
    H5Fclose(file);
}
