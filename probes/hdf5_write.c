#include "probes/hdf5_write.h"

#include <errno.h>
#include <string.h>

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
    herr_t e = attr < 0 ? -1 : H5Awrite(attr, type, values);
    if (attr >= 0 && H5Aclose(attr) < 0)
        e = -1;
    H5Sclose(space);
    return e < 0 ? unwritten(file, path, name) : ASSAY_OK;
}

assay_status assay_h5_put_text(hid_t file, const char *path, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    size_t n = strlen(text);
    H5Tset_size(type, n ? n : 1);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    assay_status s = put_attr(file, path, name, type, H5Screate(H5S_SCALAR), text);
    H5Tclose(type);
    return s;
}

assay_status assay_h5_put_numbers(hid_t file, const char *path, const char *name, hid_t type,
                                  const void *values, int n)
{
    hsize_t dims = (hsize_t)n;
    hid_t space = n == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dims, NULL);
    return put_attr(file, path, name, type, space, values);
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

assay_status assay_h5_create_dataset(hid_t *out, hid_t group, const char *path, hid_t type,
                                     int n_dims, const int64_t *dims, const void *values)
{
    const char *name = assay_h5_is_object(group) ? strrchr(path, '/') + 1 : path;
    hsize_t wide[ASSAY_H5_MAX_DIMS] = {0};
    int64_t count = 1;
    errno = 0;
    for (int i = 0; i < n_dims; i++) {
        wide[i] = (hsize_t)dims[i];
        count *= dims[i];
    }
    hid_t space = H5Screate_simple(n_dims, wide, NULL);
    hid_t set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    herr_t e = set < 0 ? -1 : 0;
    if (set >= 0 && count > 0)
        e = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Sclose(space);
    if (e >= 0) {
        *out = set;
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
    hid_t set;
    ASSAY_TRY(assay_h5_create_dataset(&set, file, path, type, n_dims, dims, values));
    return assay_h5_close_dataset(set, file, path);
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
