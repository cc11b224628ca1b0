/*
 * Products whose blocks of inputs carry factors: got[t, n] = sum_b r y_b[t, n], where y_b is what
 * block b of the inputs adds. The factors are fitted by least squares, of every token (activations
 * quantized in blocks) or of every channel (weights quantized in blocks), and compared with the
 * ratio of the neighbours' sizes.
 */
#ifndef ASSAY_REPORTS_HOME_BLOCKS_H
#define ASSAY_REPORTS_HOME_BLOCKS_H

#include "reports/home.h"

/* Offers such factors for the class that is being asked; nothing where the home is no product of a
 * known input with one weight. */
assay_status assay_home_try_block_factors(assay_home *home);

/* Name of the tensor that the home's product reads, for findings at all readers of it; NULL: the
 * home is no such product. */
const char *assay_home_input_name(const assay_home *home);

/* The same where the factors are 0 and 1: blocks of the inputs that some rows leave out. */
assay_status assay_home_try_left_out(assay_home *home);

#endif
