#include "engine/cache_row.h"

#include <math.h>
#include <string.h>

#include "engine/base/number.h"

#define OWNER 0xCAC4Eu /* of the poison in rows never written */

enum { BLOCK = 32, BLOCK_BYTES = 2 + BLOCK };

size_t assay_cache_row_bytes(assay_cache_type type, int64_t width)
{
    size_t n = (size_t)width;
    switch (type) {
    case ASSAY_CACHE_F32:
        return 4 * n;
    case ASSAY_CACHE_F16:
    case ASSAY_CACHE_BF16:
        return 2 * n;
    case ASSAY_CACHE_Q8_0:
        return (n + BLOCK - 1) / BLOCK * BLOCK_BYTES;
    default:
        return 4 + n;
    }
}

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most)
            most = fabsf(x[i]);
    return most;
}

static void store_q8_0(uint8_t *to, const float *row, int64_t width)
{
    for (int64_t first = 0; first < width; first += BLOCK, to += BLOCK_BYTES) {
        int64_t n = width - first < BLOCK ? width - first : BLOCK;
        float d = largest(row + first, n) / 127;
        uint16_t half = assay_f32_to_f16(d);
        memset(to, 0, BLOCK_BYTES);
        memcpy(to, &half, sizeof half);
        for (int64_t i = 0; i < n; i++) {
            float code = d > 0 ? roundf(row[first + i] / d) : 0;
            to[2 + i] = (uint8_t)(int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
        }
        for (int64_t i = 0; i < n; i++)
            if (isnan(row[first + i])) { /* a NaN among them must not become a number */
                half = 0x7E00u;
                memcpy(to, &half, sizeof half);
            }
    }
}

/* The scale as the reader takes it. */
static float read_scale(float scale, assay_cache_scale how)
{
    int exponent;
    switch (how) {
    case ASSAY_CACHE_SCALE_ONE:
        return 1;
    case ASSAY_CACHE_SCALE_POWER_OF_2:
        frexpf(scale, &exponent);
        return isfinite(scale) && scale > 0 ? ldexpf(1, exponent - 1) : scale;
    case ASSAY_CACHE_SCALE_ZERO:
        return 0;
    default:
        return scale;
    }
}

static void load_q8_0(float *row, const uint8_t *from, int64_t width, assay_cache_scale how)
{
    for (int64_t i = 0; i < width; i++) {
        const uint8_t *block = from + i / BLOCK * BLOCK_BYTES;
        uint16_t half;
        memcpy(&half, block, sizeof half);
        row[i] = read_scale(assay_f16_to_f32(half), how) * (float)(int8_t)block[2 + i % BLOCK];
    }
}

static void store_f8(uint8_t *to, const float *row, int64_t width)
{
    float scale = largest(row, width) / 448;
    if (!(scale > 0))
        scale = 1;
    memcpy(to, &scale, sizeof scale);
    for (int64_t i = 0; i < width; i++)
        to[4 + i] = assay_f32_to_f8e4m3(row[i] / scale);
}

static void load_f8(float *row, const uint8_t *from, int64_t width, assay_cache_scale how)
{
    float scale;
    memcpy(&scale, from, sizeof scale);
    scale = read_scale(scale, how);
    for (int64_t i = 0; i < width; i++)
        row[i] = scale * assay_f8e4m3_to_f32(from[4 + i]);
}

void assay_cache_row_store(void *to, assay_cache_type type, const float *row, int64_t width)
{
    if (type == ASSAY_CACHE_F32)
        memcpy(to, row, (size_t)width * sizeof *row);
    else if (type == ASSAY_CACHE_Q8_0)
        store_q8_0(to, row, width);
    else if (type == ASSAY_CACHE_F8E4M3)
        store_f8(to, row, width);
    else
        for (int64_t i = 0; i < width; i++)
            ((uint16_t *)to)[i] =
                type == ASSAY_CACHE_F16 ? assay_f32_to_f16(row[i]) : assay_f32_to_bf16(row[i]);
}

void assay_cache_row_load(float *row, assay_cache_type type, const void *from, int64_t width,
                          assay_cache_scale scale)
{
    const uint16_t *halves = from;
    if (type == ASSAY_CACHE_F32)
        memcpy(row, from, (size_t)width * sizeof *row);
    else if (type == ASSAY_CACHE_Q8_0)
        load_q8_0(row, from, width, scale);
    else if (type == ASSAY_CACHE_F8E4M3)
        load_f8(row, from, width, scale);
    else
        for (int64_t i = 0; i < width; i++)
            row[i] = type == ASSAY_CACHE_F16 ? assay_f16_to_f32(halves[i])
                                             : assay_bf16_to_f32(halves[i]);
}

void assay_cache_row_poison(void *to, assay_cache_type type, int64_t width)
{
    uint32_t word = assay_poison_f32(OWNER);
    uint16_t half = 0x7FE5u; /* NaN in f16 and bf16 alike */
    size_t bytes = assay_cache_row_bytes(type, width);
    if (type == ASSAY_CACHE_F8E4M3) {
        memset(to, 0x7F, bytes);
        memcpy(to, &word, sizeof word);
        return;
    }
    if (type == ASSAY_CACHE_Q8_0)
        memset(to, 1, bytes);
    for (size_t at = 0; at < bytes; at += type == ASSAY_CACHE_F32    ? 4
                                          : type == ASSAY_CACHE_Q8_0 ? BLOCK_BYTES
                                                                     : 2)
        memcpy((uint8_t *)to + at, type == ASSAY_CACHE_F32 ? (void *)&word : (void *)&half,
               type == ASSAY_CACHE_F32 ? sizeof word : sizeof half);
}
