/*
 * Products whose blocks of inputs carry factors: got[t, n] = sum_b r y_b[t, n], where y_b is what
 * block b of the inputs adds. The factors are fitted by least squares, of every token (activations
 * quantized in blocks) or of every channel (weights quantized in blocks), and compared with the
 * ratio of the neighbours' sizes.
 */
#ifndef ASSAY_REPORTS_HOME_BLOCKS_H
#define ASSAY_REPORTS_HOME_BLOCKS_H

#include "reports/home.h"

typedef struct assay_home_product { /* the home's value as inputs times weights */
    double *x;                      /* [rows, width], yours to free */
    const double *w; /* [cols, width], the oracle's until it decodes another weight */
    int64_t rows, cols, width;
    assay_point input;
} assay_home_product;

/* x is NULL: the home is no product with one matrix of its layer, or its input is not known. */
assay_status assay_home_find_product(assay_home_product *out, assay_home *home);

/* Offers such factors for the class that is being asked; nothing where the home is no product of a
 * known input with one weight. */
assay_status assay_home_try_block_factors(assay_home *home);

/* Name of the tensor that the home's product reads, for findings at all readers of it; NULL: the
 * home is no such product. */
const char *assay_home_input_name(const assay_home *home);

/* The same where the factors are 0 and 1: blocks of the inputs that some rows leave out. */
assay_status assay_home_try_left_out(assay_home *home);

/* Columns of the weight in another order within every row: pairs, or halves of blocks, exchanged,
 * and the orders in which 4-bit codes are packed. */
assay_status assay_home_try_columns(assay_home *home);

/*
 * The weight in blocks with a scale each, where the scale is the block's largest number over that
 * of the format, as who quantizes at load time has it: blocks that carry a neighbour's scale, and
 * blocks whose scale has lost its mantissa. Needs no scales in the file.
 */
assay_status assay_home_try_neighbour_scales(assay_home *home);
assay_status assay_home_try_scale_exponents(assay_home *home);

#endif
