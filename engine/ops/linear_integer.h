/*
 * Products of quantized weights with activations rounded to 8-bit blocks, in integers.
 *
 * Activations. A row of x is cut into blocks as long as the weight's; x' = d * q, q in -127 ...
 * 127: blocks of 32    d = largest |x| / 127, q = x / d to nearest, halves away from zero; d is
 * then rounded to float16 (Q8_0) blocks of 256   the first element of largest magnitude becomes
 * -127, q to nearest even, d in float32 (Q8_K) A block with a NaN or an infinity in it has the
 * scale NaN.
 *
 * Product. With codes and scales of the weight (assay_codes, engine/quant.h):
 *     y[t,n] = sum_b  (scale_b d_b) * sum_e code q  -  (min_scale_b d_b) * sum_r min_r sum_(e in r)
 * q The sums inside a block are of integers, exact in 32 bits in any order. Those over blocks are
 * in float32, from the first block to the last, one rounding per operation: the same bits whatever
 * the number of rows, of threads, and the processor.
 *
 * Source: ggml-quants.c of ggml (quantize_row_q8_0_ref, quantize_row_q8_K_ref, ggml_vec_dot_*).
 */
#ifndef ASSAY_ENGINE_OPS_LINEAR_INTEGER_H
#define ASSAY_ENGINE_OPS_LINEAR_INTEGER_H

#include "engine/ops/rows.h"
#include "engine/quant.h"

typedef struct assay_q8 {
    int64_t n, width; /* rows; a multiple of block */
    int block;        /* 32 or 256 */
    int16_t *code;    /* [n, width] */
    int16_t *sum;     /* [n, width / 16] of the codes of 16 elements */
    float *scale;     /* [n, width / block] */
} assay_q8;

/* Bytes of memory, which starts at a multiple of 4, for n rows; and for one row of a weight. */
size_t assay_op_q8_bytes(int64_t n, int64_t width, int block);
size_t assay_op_codes_bytes(int64_t width, int block);

/* The rows of x, rounded; kept in memory. */
assay_q8 assay_op_round_q8(void *memory, assay_rows x, int block);
/* What they stand for. */
void assay_op_q8_values(assay_rows y, const assay_q8 *x);

/* Rows of the weight from `blocks` on, row_bytes apart: y.width of them. memory: of one row. By the
 * calling thread alone. */
void assay_op_linear_integer(assay_rows y, const assay_q8 *x, const assay_quant *quant,
                             const void *blocks, int64_t row_bytes, void *memory, bool add);

#endif
