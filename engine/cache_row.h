/*
 * Rows of the cache in their stored types (see engine/kvcache.h): `width` float32 values to bytes
 * and back.
 *
 *   f32, f16, bf16   width elements
 *   q8_0             per 32 elements (the last block may be shorter): float16 scale d, then 32
 * int8; value = d * code f8e4m3           float32 scale, then width bytes; value = scale * code
 */
#ifndef ASSAY_ENGINE_CACHE_ROW_H
#define ASSAY_ENGINE_CACHE_ROW_H

#include <stddef.h>

#include "engine/kvcache.h"

size_t assay_cache_row_bytes(assay_cache_type type, int64_t width);
void assay_cache_row_store(void *to, assay_cache_type type, const float *row, int64_t width);
void assay_cache_row_load(float *row, assay_cache_type type, const void *from, int64_t width,
                          assay_cache_scale scale);
/* Every element loads as NaN. */
void assay_cache_row_poison(void *to, assay_cache_type type, int64_t width);

#endif
