/*
 * A finished file gets its name: what lies at `temporary` is on the disk before it is called
 * `path`, so that a reader finds the whole file or none.
 */
#ifndef ASSAY_ENGINE_BASE_PUBLISH_H
#define ASSAY_ENGINE_BASE_PUBLISH_H

#include "engine/base/status.h"

/* What the file (or folder) holds is on the disk. ASSAY_IO. */
assay_status assay_sync(const char *path);

/* Syncs, renames, and syncs the folder. ASSAY_IO: `path` is as it was and `temporary` is removed,
 * unless the message is about the folder: then `path` is whole, but may be gone after a power cut.
 */
assay_status assay_publish(const char *temporary, const char *path);

#endif
