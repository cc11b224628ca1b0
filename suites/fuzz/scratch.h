/* The bytes of one input as a file: the readers under test take paths and map what they open. */
#ifndef ASSAY_SUITES_FUZZ_SCRATCH_H
#define ASSAY_SUITES_FUZZ_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* Path of this process's file with that name, holding these bytes; NULL: it cannot be written. The
 * same static buffer each time; the file is removed at exit. */
const char *fuzz_file(const char *name, const uint8_t *bytes, size_t n);

#endif
