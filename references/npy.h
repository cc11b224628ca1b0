/*
 * NumPy's files.
 *
 *   .npy   "\x93NUMPY", u8 major, u8 minor, u16 (major 1) or u32 length of the header, the header:
 * a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (8, 256), }, data .npz   a
 * zip archive of .npy files. Read: stored entries (np.savez); packed ones (np.savez_compressed) are
 * refused with this remedy. No zip64.
 *
 * Sources: numpy.lib.format; PKWARE APPNOTE 6.3 sections 4.3.7, 4.3.12, 4.3.16.
 */
#ifndef ASSAY_REFERENCES_NPY_H
#define ASSAY_REFERENCES_NPY_H

#include <stdint.h>

#include "engine/base/number.h"
#include "engine/base/status.h"

#define ASSAY_NPY_MAX_DIMS 6

typedef struct assay_npy {
    assay_dtype dtype;
    int n_dims;
    int64_t dims[ASSAY_NPY_MAX_DIMS];
    int64_t count;
    const void *data; /* borrowed during the call, perhaps unaligned */
} assay_npy;

typedef assay_status assay_npy_fn(void *user, const char *name, const assay_npy *array);

/* Calls `use` with the array under `name`. Fails: ASSAY_IO, ASSAY_BAD_FILE. */
assay_status assay_npy_read(const char *path, const char *name, assay_npy_fn *use, void *user);
/* ... for each array of an archive, under its own name without ".npy". */
assay_status assay_npz_read(const char *path, assay_npy_fn *use, void *user);

#endif
