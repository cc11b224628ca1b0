/*
 * Device memory to the host by the CUDA runtime of the process, found by name when it is needed: no
 * build needs CUDA.
 */
#ifndef ASSAY_PROBES_SESSION_COPY_H
#define ASSAY_PROBES_SESSION_COPY_H

#include "engine/base/status.h"

/* Behind what the stream was given, and waited for. Fails: ASSAY_NO_DEVICE (no CUDA runtime in the
 * process or on the machine), ASSAY_DEVICE. */
assay_status assay_session_copy_cuda(void *host, const void *device, size_t n, void *stream);

#endif
