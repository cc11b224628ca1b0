/*
 * Writing HDF5: attributes, datasets and tables that grow. Paths are absolute; the groups on the
 * way must exist. As in reading, an open object will do for the file: of an attribute the object
 * that bears it, of a dataset the group that the path ends in.
 */
#ifndef ASSAY_PROBES_HDF5_WRITE_H
#define ASSAY_PROBES_HDF5_WRITE_H

#include "probes/hdf5.h"

/* A new file, laid out for many small values with attributes. -1: failed. */
hid_t assay_h5_create(const char *path);
/* Everything goes to the file, which between two flushes stays what it was but for values. false:
 * failed. */
bool assay_h5_flush(hid_t file);

/*
 * What HDF5 needs for each attribute, made once for all of them. Zeroed at first; filled as it is
 * used.
 */
typedef struct assay_h5_kit {
    hid_t spaces[9]; /* by the number of elements; of one: a scalar */
    hid_t texts[17]; /* by length */
    hid_t early;     /* how a dataset is made that has its place before its values */
} assay_h5_kit;
void assay_h5_kit_clear(assay_h5_kit *kit);

assay_status assay_h5_make_group(hid_t file, const char *path);
/* An open group that no path leads to yet, and is gone when it is closed before one does. path: for
 * messages. */
assay_status assay_h5_make_hidden_group(hid_t *out, hid_t file, const char *path);
assay_status assay_h5_show_group(hid_t group, hid_t file, const char *path);
assay_status assay_h5_put_text(hid_t file, const char *path, const char *name, const char *text);
/* type: of memory and file. n 1: a scalar. Replaces an attribute of the same name. */
assay_status assay_h5_put_numbers(hid_t file, const char *path, const char *name, hid_t type,
                                  const void *values, int n);
/* The same for an open object that has no attribute of this name yet. */
assay_status assay_h5_add_text(assay_h5_kit *kit, hid_t object, const char *path, const char *name,
                               const char *text);
assay_status assay_h5_add_numbers(assay_h5_kit *kit, hid_t object, const char *path,
                                  const char *name, hid_t type, const void *values, int n);
/* The HDF5 type in which a format is stored: 16-bit and 8-bit floats as unsigned words. */
hid_t assay_h5_type(assay_dtype dtype);
assay_status assay_h5_put_dataset(hid_t file, const char *path, hid_t type, int n_dims,
                                  const int64_t *dims, const void *values);
/*
 * A dataset whose values somebody else writes, row-major and of this type, at byte *at of the file
 * (-1: it has none), before the file is flushed next. Left open for its attributes;
 * assay_h5_close_dataset says whether all of that was written.
 */
assay_status assay_h5_place_dataset(hid_t *out, int64_t *at, assay_h5_kit *kit, hid_t group,
                                    const char *path, hid_t type, int n_dims, const int64_t *dims);
assay_status assay_h5_close_dataset(hid_t set, hid_t group, const char *path);
/* Appends rows of `width` elements (0: the dataset is a list) to a dataset that grows; makes it
 * first. */
assay_status assay_h5_append(hid_t file, const char *path, hid_t type, int64_t width,
                             const void *rows, int64_t n_rows);

/* The descriptor of an open file, which stays HDF5's. ASSAY_IO. */
assay_status assay_h5_descriptor(int *out, hid_t file);

#endif
