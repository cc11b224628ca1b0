#include "probes/hdf5_write.h"

#include <errno.h>
#include <string.h>

/* Room for objects and small values is taken from the file in stretches of so many bytes. */
#define STRETCH (1 << 16)
/* Bytes of objects that wait in memory for a flush: those of 30,000 values. Were they to be written
 * one by one as room is needed, a file that is cut off would hold half of what changed. */
#define MOST_WAITING (32 << 20)
#define LEAST_WAITING 1024 /* the least that HDF5 takes */

static void limit_waiting(H5AC_cache_config_t *cache, size_t bytes)
{
    cache->set_initial_size = true;
    cache->initial_size = cache->min_size = cache->max_size = bytes;
    cache->incr_mode = H5C_incr__off;
    cache->flash_incr_mode = H5C_flash_incr__off;
    cache->decr_mode = H5C_decr__off;
}

/* A value is written whole, so a buffer for parts of it (sieve) would only copy. */
static bool lay_out(hid_t access)
{
    H5AC_cache_config_t cache = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(access, &cache) < 0)
        return false;
    limit_waiting(&cache, MOST_WAITING);
    return H5Pset_mdc_config(access, &cache) >= 0 && H5Pset_meta_block_size(access, STRETCH) >= 0 &&
           H5Pset_small_data_block_size(access, STRETCH) >= 0 &&
           H5Pset_sieve_buf_size(access, 0) >= 0;
}

hid_t assay_h5_create(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    if (access >= 0 && lay_out(access))
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (access >= 0)
        H5Pclose(access);
    return file;
}

/* What is written stays in memory, and each flush looks at everything there: it is forgotten at the
 * next access under a limit that has room for nothing. */
bool assay_h5_flush(hid_t file)
{
    H5AC_cache_config_t cache = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Fflush(file, H5F_SCOPE_LOCAL) < 0 || H5Fget_mdc_config(file, &cache) < 0)
        return false;
    limit_waiting(&cache, LEAST_WAITING);
    if (H5Fset_mdc_config(file, &cache) < 0 || H5Aexists(file, "complete") < 0)
        return false;
    limit_waiting(&cache, MOST_WAITING);
    return H5Fset_mdc_config(file, &cache) >= 0;
}

void assay_h5_kit_clear(assay_h5_kit *kit)
{
    for (size_t i = 0; i < sizeof kit->spaces / sizeof *kit->spaces; i++)
        if (kit->spaces[i] > 0)
            H5Sclose(kit->spaces[i]);
    for (size_t i = 0; i < sizeof kit->texts / sizeof *kit->texts; i++)
        if (kit->texts[i] > 0)
            H5Tclose(kit->texts[i]);
    if (kit->early > 0)
        H5Pclose(kit->early);
    *kit = (assay_h5_kit){.spaces = {0}};
}

/* HDF5 tells neither the file nor the system's reason ("No space left on device"); what it does to
 * clean up also wipes its own message. Set errno to 0 before the calls that write. */
static assay_status unwritten(hid_t file, const char *path, const char *what)
{
    int reason = errno;
    char name[1024] = "";
    if (H5Fget_name(file, name, sizeof name) < 0)
        name[0] = 0;
    const char *why = reason ? strerror(reason) : "";
    return assay_h5_fail(ASSAY_IO, "'%s': %s%s'%s' cannot be written%s%s", name, what,
                         *what ? " of " : "", path, *why ? ": " : "", why);
}

assay_status assay_h5_make_group(hid_t file, const char *path)
{
    errno = 0;
    hid_t g = H5Gcreate2(file, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (g < 0)
        return unwritten(file, path, "group");
    H5Gclose(g);
    return ASSAY_OK;
}

assay_status assay_h5_make_hidden_group(hid_t *out, hid_t file, const char *path)
{
    errno = 0;
    hid_t group = H5Gcreate_anon(file, H5P_DEFAULT, H5P_DEFAULT);
    if (group < 0)
        return unwritten(file, path, "group");
    *out = group;
    return ASSAY_OK;
}

assay_status assay_h5_show_group(hid_t group, hid_t file, const char *path)
{
    errno = 0;
    return H5Olink(group, file, path, H5P_DEFAULT, H5P_DEFAULT) < 0 ? unwritten(file, path, "group")
                                                                    : ASSAY_OK;
}

static assay_status write_attr(hid_t attr, hid_t file, const char *path, const char *name,
                               hid_t type, const void *values)
{
    herr_t e = attr < 0 ? -1 : H5Awrite(attr, type, values);
    if (attr >= 0 && H5Aclose(attr) < 0)
        e = -1;
    return e < 0 ? unwritten(file, path, name) : ASSAY_OK;
}

static assay_status put_attr(hid_t file, const char *path, const char *name, hid_t type,
                             hid_t space, const void *values)
{
    errno = 0;
    hid_t attr;
    if (assay_h5_is_object(file)) {
        if (H5Aexists(file, name) > 0)
            H5Adelete(file, name);
        attr = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    } else {
        if (H5Aexists_by_name(file, path, name, H5P_DEFAULT) > 0)
            H5Adelete_by_name(file, path, name, H5P_DEFAULT);
        attr =
            H5Acreate_by_name(file, path, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    }
    return write_attr(attr, file, path, name, type, values);
}

static hid_t text_type(size_t n)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, n ? n : 1);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

static hid_t space_of(int n)
{
    hsize_t dims = (hsize_t)n;
    return n == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dims, NULL);
}

assay_status assay_h5_put_text(hid_t file, const char *path, const char *name, const char *text)
{
    hid_t type = text_type(strlen(text)), space = space_of(1);
    assay_status s = put_attr(file, path, name, type, space, text);
    H5Sclose(space);
    H5Tclose(type);
    return s;
}

assay_status assay_h5_put_numbers(hid_t file, const char *path, const char *name, hid_t type,
                                  const void *values, int n)
{
    hid_t space = space_of(n);
    assay_status s = put_attr(file, path, name, type, space, values);
    H5Sclose(space);
    return s;
}

assay_status assay_h5_add_text(assay_h5_kit *kit, hid_t object, const char *path, const char *name,
                               const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof kit->texts / sizeof *kit->texts)
        return assay_h5_put_text(object, path, name, text);
    if (kit->texts[n] <= 0)
        kit->texts[n] = text_type(n);
    if (kit->spaces[1] <= 0)
        kit->spaces[1] = space_of(1);
    errno = 0;
    hid_t attr = H5Acreate2(object, name, kit->texts[n], kit->spaces[1], H5P_DEFAULT, H5P_DEFAULT);
    return write_attr(attr, object, path, name, kit->texts[n], text);
}

assay_status assay_h5_add_numbers(assay_h5_kit *kit, hid_t object, const char *path,
                                  const char *name, hid_t type, const void *values, int n)
{
    if ((size_t)n >= sizeof kit->spaces / sizeof *kit->spaces)
        return assay_h5_put_numbers(object, path, name, type, values, n);
    if (kit->spaces[n] <= 0)
        kit->spaces[n] = space_of(n);
    errno = 0;
    hid_t attr = H5Acreate2(object, name, type, kit->spaces[n], H5P_DEFAULT, H5P_DEFAULT);
    return write_attr(attr, object, path, name, type, values);
}

hid_t assay_h5_type(assay_dtype dtype)
{
    switch (dtype) {
    case ASSAY_DTYPE_F32:
        return H5T_NATIVE_FLOAT;
    case ASSAY_DTYPE_F64:
        return H5T_NATIVE_DOUBLE;
    case ASSAY_DTYPE_F16:
    case ASSAY_DTYPE_BF16:
        return H5T_NATIVE_UINT16;
    case ASSAY_DTYPE_F8E4M3:
        return H5T_NATIVE_UINT8;
    case ASSAY_DTYPE_I8:
        return H5T_NATIVE_INT8;
    case ASSAY_DTYPE_I32:
        return H5T_NATIVE_INT32;
    case ASSAY_DTYPE_I64:
        return H5T_NATIVE_INT64;
    case ASSAY_DTYPE_COUNT:
        break;
    }
    ASSAY_BUG_IF("no such format");
    return -1;
}

static hid_t make_dataset(hid_t group, const char *path, hid_t type, int n_dims,
                          const int64_t *dims, hid_t plist)
{
    const char *name = assay_h5_is_object(group) ? strrchr(path, '/') + 1 : path;
    hsize_t wide[ASSAY_H5_MAX_DIMS] = {0};
    for (int i = 0; i < n_dims; i++)
        wide[i] = (hsize_t)dims[i];
    hid_t space = H5Screate_simple(n_dims, wide, NULL);
    hid_t set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Sclose(space);
    return set;
}

static int64_t count_of(int n_dims, const int64_t *dims)
{
    int64_t count = 1;
    for (int i = 0; i < n_dims; i++)
        count *= dims[i];
    return count;
}

static hid_t early_plist(void)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    return plist;
}

assay_status assay_h5_place_dataset(hid_t *out, int64_t *at, assay_h5_kit *kit, hid_t group,
                                    const char *path, hid_t type, int n_dims, const int64_t *dims)
{
    if (kit->early <= 0)
        kit->early = early_plist();
    errno = 0;
    hid_t set = make_dataset(group, path, type, n_dims, dims, kit->early);
    haddr_t place = set < 0 ? HADDR_UNDEF : H5Dget_offset(set);
    if (set >= 0 && (place != HADDR_UNDEF || count_of(n_dims, dims) == 0)) {
        *out = set;
        *at = place == HADDR_UNDEF ? -1 : (int64_t)place;
        return ASSAY_OK;
    }
    if (set >= 0)
        H5Dclose(set);
    return unwritten(group, path, "");
}

assay_status assay_h5_close_dataset(hid_t set, hid_t group, const char *path)
{
    errno = 0;
    return H5Dclose(set) < 0 ? unwritten(group, path, "") : ASSAY_OK;
}

assay_status assay_h5_put_dataset(hid_t file, const char *path, hid_t type, int n_dims,
                                  const int64_t *dims, const void *values)
{
    errno = 0;
    hid_t set = make_dataset(file, path, type, n_dims, dims, H5P_DEFAULT);
    herr_t e = set < 0 ? -1 : 0;
    if (set >= 0 && count_of(n_dims, dims) > 0)
        e = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (set >= 0 && H5Dclose(set) < 0)
        e = -1;
    return e < 0 ? unwritten(file, path, "") : ASSAY_OK;
}

static hid_t make_table(hid_t file, const char *path, hid_t type, int rank, int64_t width)
{
    hsize_t none[2] = {0, (hsize_t)width}, most[2] = {H5S_UNLIMITED, (hsize_t)width};
    hsize_t chunk[2] = {width > 64 ? 64 : 1024, (hsize_t)width};
    hid_t space = H5Screate_simple(rank, none, most);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, rank, chunk);
    hid_t set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Pclose(plist);
    H5Sclose(space);
    return set;
}

assay_status assay_h5_append(hid_t file, const char *path, hid_t type, int64_t width,
                             const void *rows, int64_t n_rows)
{
    int rank = width ? 2 : 1;
    errno = 0;
    hid_t set = H5Lexists(file, path, H5P_DEFAULT) > 0 ? H5Dopen2(file, path, H5P_DEFAULT)
                                                       : make_table(file, path, type, rank, width);
    herr_t e = set < 0 ? -1 : 0;
    if (e == 0) {
        hsize_t dims[2] = {0, 0}, count[2] = {(hsize_t)n_rows, (hsize_t)width}, start[2] = {0, 0};
        hid_t space = H5Dget_space(set);
        H5Sget_simple_extent_dims(space, dims, NULL);
        H5Sclose(space);
        start[0] = dims[0];
        dims[0] += count[0];
        e = H5Dset_extent(set, dims);
        space = H5Dget_space(set);
        hid_t memory = H5Screate_simple(rank, count, NULL);
        if (e >= 0)
            e = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        if (e >= 0 && n_rows > 0)
            e = H5Dwrite(set, type, memory, space, H5P_DEFAULT, rows);
        H5Sclose(memory);
        H5Sclose(space);
    }
    if (set >= 0 && H5Dclose(set) < 0)
        e = -1;
    return e < 0 ? unwritten(file, path, "") : ASSAY_OK;
}

assay_status assay_h5_descriptor(int *out, hid_t file)
{
    void *handle;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0)
        return assay_h5_fail(ASSAY_IO, "the open file cannot be told");
    *out = *(int *)handle;
    return ASSAY_OK;
}
