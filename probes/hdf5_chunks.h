/*
 * Packed values, at the speed of inflating their chunks on all threads. The library reads one chunk
 * after the other on one thread; here it hands over the chunks as they lie in the file, and zlib
 * and the byte shuffle are undone side by side.
 */
#ifndef ASSAY_PROBES_HDF5_CHUNKS_H
#define ASSAY_PROBES_HDF5_CHUNKS_H

#include "probes/hdf5.h"

/*
 * The elements as stored, dense: out has info->count * info->element_bytes bytes. *done false: not
 * of the kind that is known here (chunks through shuffle and deflate, one of them or none, all of
 * them written, numbers as this machine has them), and the library has to read it; out then holds
 * anything. info: of assay_h5_dataset. Fails: ASSAY_BAD_FILE (a chunk is damaged), ASSAY_NO_MEMORY.
 */
assay_status assay_h5_read_chunks(void *out, bool *done, hid_t file, const char *path,
                                  const assay_h5_info *info);

#endif
