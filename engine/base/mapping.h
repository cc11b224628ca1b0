/*
 * Files of strangers as read-only memory.
 *
 * A file can be cut, or its disk can fail, after it was mapped; the kernel then raises SIGBUS at
 * the read. assay_mapping_guard makes that an ending like any other failed input: one line on
 * standard error that names the file and the byte, and the exit status that the caller gives.
 */
#ifndef ASSAY_ENGINE_BASE_MAPPING_H
#define ASSAY_ENGINE_BASE_MAPPING_H

#include <stdint.h>

#include "engine/base/status.h"

typedef struct assay_mapping {
    const uint8_t *bytes; /* NULL: nothing mapped (an empty file) */
    uint64_t n_bytes;
} assay_mapping;

/* ASSAY_IO: cannot be opened or mapped. ASSAY_BAD_FILE: not a regular file (a FIFO is refused, not
 * waited for). The path is named in the message. */
assay_status assay_mapping_open(assay_mapping *out, const char *path);
void assay_mapping_close(assay_mapping *mapping);

/* From here on, a read that the kernel cannot serve ends the process with this exit status. */
void assay_mapping_guard(int exit_status);

#endif
