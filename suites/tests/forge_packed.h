/* Captures as a packer leaves them: the same values, stored another way. */
#ifndef ASSAY_SUITES_TESTS_FORGE_PACKED_H
#define ASSAY_SUITES_TESTS_FORGE_PACKED_H

#include <hdf5.h>

/*
 * Stores every float32 value of a capture's steps anew, in chunks of at most 64 along each axis
 * through shuffle and deflate, as numbers of `type`. A type that is not float32 as this machine has
 * it loses the values' checksums.
 */
void forge_packed(const char *path, hid_t type);

#endif
