/*
 * Folders of .npy files, .npz archives (np.savez: stored, not compressed) and .safetensors files as
 * dumps: read into an HDF5 file in memory, so that the reader of dumps sees one kind of source.
 *
 * Names: "<prompt>/step0000/<name>", "step0000/<name>", or "<name>" (step0000). In a folder they
 * are paths without ".npy", in archives the names of the tensors. Token ids are called
 * input_tokens. float16 and bfloat16 (numpy's V2) become float32; the dump's number format is the
 * one that most bytes have. Refused: objects, Fortran order, big-endian numbers, sizes that do not
 * fit the file, more than 16 GiB.
 */
#ifndef ASSAY_REFERENCES_FOLDER_H
#define ASSAY_REFERENCES_FOLDER_H

#include <hdf5.h>
#include <stdbool.h>

#include "engine/base/status.h"

/* A folder, or a file whose name ends in .npz or .safetensors. */
bool assay_folder_is(const char *path);
/* The file in memory is the caller's to close. */
assay_status assay_folder_open(hid_t *out, const char *path);

#endif
