/* HDF5's byte shuffle undone. */
#ifndef ASSAY_PROBES_UNSHUFFLE_H
#define ASSAY_PROBES_UNSHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/*
 * n elements of `size` bytes (2, 4 or 8) that begin at the first byte of one: byte b of an element
 * lies b * stride behind its first. out: n * size bytes, aligned to elements.
 */
void assay_unshuffle(void *out, const uint8_t *in, int64_t stride, int64_t n, size_t size);

#endif
