#include "references/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "probes/hdf5_write.h"
#include "references/npy.h"
#include "references/safetensors.h"

#define MAX_FILES 200000
#define MAX_DEPTH 3
#define MAX_BYTES ((int64_t)16 << 30)

typedef struct folder {
    hid_t file;
    int64_t n_bytes, n_files;
    int64_t by_format[ASSAY_DTYPE_COUNT]; /* bytes of each */
} folder;

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

bool assay_folder_is(const char *path)
{
    struct stat st;
    return (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) || ends_in(path, ".npz") ||
           ends_in(path, ".safetensors");
}

static bool has_step(const char *name)
{
    const char *step = strstr(name, "step");
    return step && (step == name || step[-1] == '/') && isdigit((unsigned char)step[4]) &&
           strchr(step, '/');
}

/* float16 and bfloat16 words as float32; everything else as it lies. */
static assay_status put(folder *f, const char *name, const assay_npy *array)
{
    char path[1024];
    int n = snprintf(path, sizeof path, "/%s%s", has_step(name) ? "" : "step0000/", name);
    if (n >= (int)sizeof path || strstr(name, "..") || name[0] == '/')
        return assay_fail(ASSAY_BAD_FILE, "'%.80s' cannot be the name of a tensor", name);
    int64_t bytes = array->count * (int64_t)assay_dtype_bytes(array->dtype);
    f->by_format[array->dtype] += bytes;
    f->n_bytes += bytes;
    if (f->n_bytes > MAX_BYTES)
        return assay_fail(ASSAY_UNSUPPORTED, "more than %lld bytes: write HDF5 instead",
                          (long long)MAX_BYTES);
    bool half = array->dtype == ASSAY_DTYPE_F16 || array->dtype == ASSAY_DTYPE_BF16;
    float *wide = NULL;
    if (half) {
        ASSAY_TRY(assay_alloc(&wide, (size_t)array->count, sizeof *wide, name));
        for (int64_t i = 0; i < array->count; i++) {
            uint16_t word;
            memcpy(&word, (const char *)array->data + 2 * i, 2);
            wide[i] =
                array->dtype == ASSAY_DTYPE_F16 ? assay_f16_to_f32(word) : assay_bf16_to_f32(word);
        }
    }
    hid_t plist = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(plist, 1);
    hsize_t dims[ASSAY_H5_MAX_DIMS] = {0};
    for (int d = 0; d < array->n_dims; d++)
        dims[d] = (hsize_t)array->dims[d];
    hid_t type = half ? H5T_NATIVE_FLOAT : assay_h5_type(array->dtype);
    hid_t space = H5Screate_simple(array->n_dims, dims, NULL);
    hid_t set = H5Dcreate2(f->file, path, type, space, plist, H5P_DEFAULT, H5P_DEFAULT);
    const void *data = half ? (const void *)wide : array->data;
    herr_t e = set < 0        ? -1
               : array->count ? H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data)
                              : 0;
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    H5Pclose(plist);
    free(wide);
    return e < 0 ? assay_h5_fail(ASSAY_BAD_FILE,
                                 "tensor '%s' is there twice or its name is also a "
                                 "folder's",
                                 name)
                 : ASSAY_OK;
}

static assay_status put_npy(void *user, const char *name, const assay_npy *array)
{
    return put(user, name, array);
}

static assay_status put_safetensors(folder *f, const char *path)
{
    static const struct {
        assay_safetensors_dtype from;
        assay_dtype to;
    } types[] = {
        {ASSAY_SAFETENSORS_F16, ASSAY_DTYPE_F16}, {ASSAY_SAFETENSORS_BF16, ASSAY_DTYPE_BF16},
        {ASSAY_SAFETENSORS_F32, ASSAY_DTYPE_F32}, {ASSAY_SAFETENSORS_F64, ASSAY_DTYPE_F64},
        {ASSAY_SAFETENSORS_I8, ASSAY_DTYPE_I8},   {ASSAY_SAFETENSORS_I32, ASSAY_DTYPE_I32},
        {ASSAY_SAFETENSORS_I64, ASSAY_DTYPE_I64}};
    assay_safetensors *set;
    ASSAY_TRY(assay_safetensors_open(&set, path));
    assay_status s = ASSAY_OK;
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set) && s == ASSAY_OK; i++) {
        const assay_safetensor *t = assay_safetensors_at(set, i);
        assay_npy array = {.dtype = ASSAY_DTYPE_COUNT, .n_dims = t->n_dims, .count = t->count};
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            if (types[k].from == t->dtype)
                array.dtype = types[k].to;
        if (array.dtype == ASSAY_DTYPE_COUNT || t->n_dims > ASSAY_H5_MAX_DIMS) {
            s = assay_fail(ASSAY_BAD_FILE, "tensor '%s': %s in %d dimensions is not read", t->name,
                           assay_safetensors_dtype_name(t->dtype), t->n_dims);
            break;
        }
        memcpy(array.dims, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        array.data = t->data;
        s = put(f, t->name, &array);
    }
    assay_safetensors_close(set);
    return s;
}

/* `name` is the path below the folder. */
static assay_status put_file(folder *f, const char *path, const char *name)
{
    if (++f->n_files > MAX_FILES)
        return assay_fail(ASSAY_BAD_FILE, "more than %d files", MAX_FILES);
    if (ends_in(path, ".safetensors"))
        return put_safetensors(f, path);
    if (ends_in(path, ".npz"))
        return assay_npz_read(path, put_npy, f);
    if (!ends_in(path, ".npy"))
        return ASSAY_OK;
    char stem[1024];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - 4), name);
    return assay_npy_read(path, stem, put_npy, f);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static assay_status put_folder(folder *f, const char *path, const char *name, int depth)
{
    struct dirent **list;
    int n = scandir(path, &list, NULL, by_name);
    if (n < 0)
        return assay_fail(ASSAY_IO, "'%s' cannot be read: %s", path, strerror(errno));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < n; i++) {
        char at[4096], below[1024];
        struct stat st;
        int m = snprintf(at, sizeof at, "%s/%s", path, list[i]->d_name);
        int k = snprintf(below, sizeof below, "%s%s%s", name, name[0] ? "/" : "", list[i]->d_name);
        if (s == ASSAY_OK && list[i]->d_name[0] != '.' && m < (int)sizeof at &&
            k < (int)sizeof below && lstat(at, &st) == 0) {
            if (S_ISREG(st.st_mode))
                s = put_file(f, at, below);
            else if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
                s = put_folder(f, at, below, depth + 1);
        }
        free(list[i]);
    }
    free(list);
    return s;
}

/* The number format that most bytes of floats have. */
static assay_status put_about(folder *f)
{
    static const assay_dtype floats[] = {ASSAY_DTYPE_F32, ASSAY_DTYPE_BF16, ASSAY_DTYPE_F16,
                                         ASSAY_DTYPE_F64};
    assay_dtype best = ASSAY_DTYPE_F32;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (f->by_format[floats[i]] > f->by_format[best])
            best = floats[i];
    return assay_h5_put_text(f->file, "/", "dtype", assay_dtype_name(best));
}

assay_status assay_folder_open(hid_t *out, const char *path)
{
    assay_h5_quiet();
    struct stat st;
    if (stat(path, &st))
        return assay_fail(ASSAY_IO, "'%s' cannot be read: %s", path, strerror(errno));
    folder f = {.file = -1};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, 1 << 20, 0); /* memory only */
    char name[64];                        /* of nothing on the disk */
    snprintf(name, sizeof name, "assay-memory-%p", (void *)&f);
    f.file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    if (f.file < 0)
        return assay_h5_fail(ASSAY_NO_MEMORY, "'%s': no HDF5 file in memory", path);
    const char *slash = strrchr(path, '/');
    assay_status s = S_ISDIR(st.st_mode) ? put_folder(&f, path, "", 0)
                                         : put_file(&f, path, slash ? slash + 1 : path);
    if (s == ASSAY_OK)
        s = put_about(&f);
    if (s != ASSAY_OK) {
        H5Fclose(f.file);
        return s;
    }
    *out = f.file;
    return ASSAY_OK;
}
