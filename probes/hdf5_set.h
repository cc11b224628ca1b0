/*
 * A dataset and its attributes, for a reader of many small ones: out of the bytes of the file where
 * they say it (hdf5_header.h), by way of the library, which opens it then, where they do not.
 * Either way gives the same.
 */
#ifndef ASSAY_PROBES_HDF5_SET_H
#define ASSAY_PROBES_HDF5_SET_H

#include "probes/hdf5_header.h"

typedef struct assay_h5_set {
    hid_t group, id;  /* id < 0: the library has not opened it */
    const char *path; /* its last name is that in the group; borrowed */
    bool is_read;     /* the header, from the bytes */
    assay_h5_header header;
} assay_h5_set;

/* A member of an open group. bytes: the whole file of n bytes, alive as long as the set; NULL: not
 * in memory. address: from assay_h5_list. */
void assay_h5_set_init(assay_h5_set *out, hid_t group, const char *path, const void *bytes,
                       uint64_t n, uint64_t address);
void assay_h5_set_close(assay_h5_set *set);

/* As assay_h5_dataset and assay_h5_attr_*. */
assay_status assay_h5_set_info(assay_h5_info *out, assay_h5_set *set);
assay_status assay_h5_set_has(bool *out, assay_h5_set *set, const char *name);
assay_status assay_h5_set_text(char **out, bool *found, assay_h5_set *set, const char *name);
assay_status assay_h5_set_ints(int64_t **out, int64_t *n, bool *found, assay_h5_set *set,
                               const char *name);
assay_status assay_h5_set_double(double *out, bool *found, assay_h5_set *set, const char *name);
assay_status assay_h5_set_u64(uint64_t *out, bool *found, assay_h5_set *set, const char *name);

#endif
