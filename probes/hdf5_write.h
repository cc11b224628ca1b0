/*
 * Writing HDF5: attributes, datasets and tables that grow. Paths are absolute; the groups on the
 * way must exist. As in reading, an open object will do for the file: of an attribute the object
 * that bears it, of a dataset the group that the path ends in.
 */
#ifndef ASSAY_PROBES_HDF5_WRITE_H
#define ASSAY_PROBES_HDF5_WRITE_H

#include "probes/hdf5.h"

assay_status assay_h5_make_group(hid_t file, const char *path);
assay_status assay_h5_put_text(hid_t file, const char *path, const char *name, const char *text);
/* type: of memory and file. n 1: a scalar. Replaces an attribute of the same name. */
assay_status assay_h5_put_numbers(hid_t file, const char *path, const char *name, hid_t type,
                                  const void *values, int n);
/* The HDF5 type in which a format is stored: 16-bit and 8-bit floats as unsigned words. */
hid_t assay_h5_type(assay_dtype dtype);
assay_status assay_h5_put_dataset(hid_t file, const char *path, hid_t type, int n_dims,
                                  const int64_t *dims, const void *values);
/* The same, left open for its attributes; assay_h5_close_dataset says whether all of it was
 * written.
 */
assay_status assay_h5_create_dataset(hid_t *out, hid_t group, const char *path, hid_t type,
                                     int n_dims, const int64_t *dims, const void *values);
assay_status assay_h5_close_dataset(hid_t set, hid_t group, const char *path);
/* Appends rows of `width` elements (0: the dataset is a list) to a dataset that grows; makes it
 * first. */
assay_status assay_h5_append(hid_t file, const char *path, hid_t type, int64_t width,
                             const void *rows, int64_t n_rows);

#endif
