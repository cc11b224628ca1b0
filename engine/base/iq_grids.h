/*
 * Codebook grids of the IQ block formats: facts of the file format (found by search when it was
 * designed, no formula), so engine and oracle share them; how they are used is each side's own.
 *
 * Entry i is packed: 8 values of 2 bits (IQ1, IQ2) or 4 values of 3 bits (IQ3), value 0 in the
 * lowest bits, as indices into the format's few magnitudes:
 *   iq1  -1, 0, 1     iq2  8, 25, 43     iq3_xxs  4, 12 ... 62     iq3_s  1, 3 ... 15
 * Source: ggml-common.h of ggml.
 */
#ifndef ASSAY_ENGINE_BASE_IQ_GRIDS_H
#define ASSAY_ENGINE_BASE_IQ_GRIDS_H

#include <stdint.h>

extern const uint16_t assay_grid_iq1[2048];
extern const uint16_t assay_grid_iq2_xxs[256], assay_grid_iq2_xs[512], assay_grid_iq2_s[1024];
extern const uint16_t assay_grid_iq3_xxs[256], assay_grid_iq3_s[512];

#endif
