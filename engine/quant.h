/*
 * Tensor types of GGUF files and their decoding to float32 (engine side; the oracle decodes with
 * its own code).
 *
 * One row in quant.def per type, one file in quant/ per decoder:
 *     X(id, GGUF number, name, elements per block, bytes per block, decoder or NULL, encoder or
 * NULL) A decoder turns n elements (a multiple of the block) of packed blocks into float32, one
 * rounding per operation, in the order of the format's formula, no contraction (-ffp-contract=off).
 * A NULL decoder: known to the reader, not decodable.
 *
 * An encoder is the way back, for forged files: simple, deterministic, and inside the type's step
 * (the reference's own searches for better scales are not repeated). Infinite or NaN input is a
 * caller's mistake.
 *
 * Source: ggml-common.h and ggml-quants.c of ggml; formulas restated in each file.
 */
#ifndef ASSAY_ENGINE_QUANT_H
#define ASSAY_ENGINE_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef void assay_dequant_fn(float *out, const void *blocks, int64_t n);

typedef void assay_encode_fn(void *blocks, const float *x, int64_t n);

/*
 * A row of a weight as integers, for products with 8-bit activations (ops/linear_integer.h):
 *     value[e] = scale[e / block] * code[e] - min_scale[e / block] * min[e / 16]
 * The integer scale of a run inside a block is part of its codes (at most 4,064 in size), so that
 * 256 of them times 8-bit activations stay far inside 32 bits.
 */
typedef struct assay_codes {
    int16_t *code;    /* [n] */
    int16_t *min;     /* [n / 16] */
    float *scale;     /* [n / block] */
    float *min_scale; /* [n / block] */
} assay_codes;

/* Returns whether the type has mins: without, `min` and `min_scale` are left alone. */
typedef bool assay_unpack_fn(const assay_codes *out, const void *blocks, int64_t n);

/* How a block's scale is stored; of a scalar type, the value itself. */
typedef enum {
    ASSAY_SCALE_NONE, /* cannot be NaN or infinite */
    ASSAY_SCALE_F16,
    ASSAY_SCALE_BF16,
    ASSAY_SCALE_F32,
    ASSAY_SCALE_F64,
    ASSAY_SCALE_E8M0,   /* an exponent; 0xFF is NaN */
    ASSAY_SCALE_NIBBLES /* an f16 in the top nibbles of four u16 (IQ1_M) */
} assay_scale;

typedef struct assay_quant {
    const char *name;
    int number; /* in the file */
    int block_elements;
    int block_bytes;
    assay_scale scale;
    int scale_at, second_at;  /* bytes in the block; second_at -1: no second one */
    assay_dequant_fn *decode; /* NULL: cannot be decoded here */
    assay_encode_fn *encode;  /* NULL: cannot be encoded here */
    assay_unpack_fn *unpack;  /* NULL: no integer product, the exact one is taken */
    bool streams; /* decoded in less time than float32 copies take to be read: none are kept */
} assay_quant;

int assay_quant_count(void);
const assay_quant *assay_quant_at(int index);
/* By the number in the file; NULL when no such type exists (removed numbers included). */
const assay_quant *assay_quant_find(int number);
const assay_quant *assay_quant_by_name(const char *name);

/* n elements = whole blocks. Fails: ASSAY_UNSUPPORTED (unknown or not decodable), ASSAY_BAD_SHAPE
 * (cut block). */
assay_status assay_quant_decode(float *out, int number, const void *blocks, int64_t n);
assay_status assay_quant_encode(void *blocks, int number, const float *x, int64_t n);

/* True: no scale of the block (no element, of a scalar type) is NaN or infinite. */
bool assay_quant_block_is_finite(const assay_quant *quant, const void *block);

/* Bytes of n elements, whole blocks. */
int64_t assay_quant_bytes(const assay_quant *quant, int64_t n);

#endif
