/*
 * Number formats of buffers and captures, and their conversions to and from float32.
 *
 * Conversions round to nearest, ties to even, and keep NaN as NaN. fp8 e4m3 is the "fn" flavour (no
 * infinities, largest finite 448, 0x7f/0xff are NaN). Source: IEEE 754-2019; bfloat16 and OCP 8-bit
 * floating point specification 1.0.
 */
#ifndef ASSAY_ENGINE_BASE_NUMBER_H
#define ASSAY_ENGINE_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* id, name, bytes, bits of mantissa counted with the hidden one (0: integer) */
#define ASSAY_DTYPE_TABLE(X)                                                                       \
    X(F32, "f32", 4, 24)                                                                           \
    X(F64, "f64", 8, 53)                                                                           \
    X(F16, "f16", 2, 11)                                                                           \
    X(BF16, "bf16", 2, 8)                                                                          \
    X(F8E4M3, "f8e4m3", 1, 4)                                                                      \
    X(I8, "i8", 1, 0)                                                                              \
    X(I32, "i32", 4, 0)                                                                            \
    X(I64, "i64", 8, 0)

typedef enum {
#define X(id, name, bytes, mantissa) ASSAY_DTYPE_##id,
    ASSAY_DTYPE_TABLE(X)
#undef X
        ASSAY_DTYPE_COUNT
} assay_dtype;

const char *assay_dtype_name(assay_dtype type);
size_t assay_dtype_bytes(assay_dtype type);
/* Bits of mantissa with the hidden one; 0 for integers. */
int assay_dtype_mantissa(assay_dtype type);
/* ASSAY_DTYPE_COUNT when no format has this name. */
assay_dtype assay_dtype_from_name(const char *name);

float assay_f16_to_f32(uint16_t bits);
uint16_t assay_f32_to_f16(float x);
float assay_bf16_to_f32(uint16_t bits);
uint16_t assay_f32_to_bf16(float x);
float assay_f8e4m3_to_f32(uint8_t bits);
uint8_t assay_f32_to_f8e4m3(float x);

/* An index that a file holds as a number: x if it is a whole number in [0, n), else -1 (NaN too). A
 * cast alone is undefined for what does not fit. */
int64_t assay_index_of(double x, int64_t n);

/*
 * The quiet NaN that fills every float32 buffer before its op runs: 0x7FC00000 | (1 << 21) | owner,
 * owner in 0 ... 2^20-1. An element that still has it was never written, and the owner says which
 * buffer it belongs to.
 */
uint32_t assay_poison_f32(uint32_t owner);
/* True for any poison word; *owner (may be NULL) then holds the buffer number. */
int assay_is_poison_f32(uint32_t bits, uint32_t *owner);

#endif
