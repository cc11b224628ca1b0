/*
 * Bytes on their way to a file while the caller goes on: they are copied, and one thread writes
 * them and has the system begin to bring them to the disk. The file stays the caller's, who may
 * write other parts of it meanwhile.
 *
 * Memory: chunks as they are needed, at most ASSAY_WRITE_QUEUE_BYTES, then whoever puts waits. A
 * queue that never filled a chunk between two drains has no thread; where none can be started the
 * caller writes. One caller at a time.
 */
#ifndef ASSAY_PROBES_WRITE_QUEUE_H
#define ASSAY_PROBES_WRITE_QUEUE_H

#include <stdint.h>

#include "engine/base/status.h"

#define ASSAY_WRITE_QUEUE_BYTES ((int64_t)64 << 20)

typedef struct assay_write_queue assay_write_queue;

/* path: for messages. ASSAY_NO_MEMORY. */
assay_status assay_write_queue_new(assay_write_queue **out, int fd, const char *path);
/* n bytes for offset `at` of the file. ASSAY_IO: this or something put earlier cannot be written;
 * ASSAY_NO_MEMORY. */
assay_status assay_write_queue_put(assay_write_queue *queue, const void *bytes, size_t n,
                                   int64_t at);
/* Everything is in the file (not yet on the disk), or ASSAY_IO. */
assay_status assay_write_queue_drain(assay_write_queue *queue);
/* What is not written yet is not written any more. NULL is fine. */
void assay_write_queue_free(assay_write_queue *queue);

#endif
