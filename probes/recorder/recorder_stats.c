#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/wide.h"
#include "probes/recorder.h"

#define GOLDEN 0x9E3779B97F4A7C15u

uint64_t assay_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t bits_of(const assay_buffer *b, int64_t i)
{
    uint64_t bits = 0;
    size_t size = assay_dtype_bytes(b->dtype);
    memcpy(&bits, (const char *)b->data + (size_t)i * size, size); /* little-endian machines */
    return bits;
}

static uint64_t checksum_of(const assay_buffer *b, int64_t n)
{
    bool wide = assay_dtype_bytes(b->dtype) == 8;
    uint64_t sum = 0;
    for (int64_t i = 0, word = 1; i < n; i += wide ? 1 : 2, word++) {
        uint64_t bits = bits_of(b, i);
        if (!wide && i + 1 < n)
            bits |= bits_of(b, i + 1) << 32;
        sum += assay_mix(bits + (uint64_t)word * GOLDEN);
    }
    return sum;
}

double assay_element(const assay_buffer *values, int64_t i)
{
    const void *data = values->data;
    switch (values->dtype) {
    case ASSAY_DTYPE_F32:
        return ((const float *)data)[i];
    case ASSAY_DTYPE_F64:
        return ((const double *)data)[i];
    case ASSAY_DTYPE_F16:
        return assay_f16_to_f32(((const uint16_t *)data)[i]);
    case ASSAY_DTYPE_BF16:
        return assay_bf16_to_f32(((const uint16_t *)data)[i]);
    case ASSAY_DTYPE_F8E4M3:
        return assay_f8e4m3_to_f32(((const uint8_t *)data)[i]);
    case ASSAY_DTYPE_I8:
        return ((const int8_t *)data)[i];
    case ASSAY_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case ASSAY_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case ASSAY_DTYPE_COUNT:
        break;
    }
    ASSAY_BUG_IF("a buffer without a format");
    return 0;
}

static inline uint64_t mixed(uint64_t bits, int64_t i)
{
    uint64_t z = bits + (uint64_t)(i + 1) * GOLDEN;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Elements [first, end) as they count in the whole. */
#define X(type)                                                                                    \
    ASSAY_WIDEST_INT static uint64_t sum_##type(const void *elements, int64_t first, int64_t end)  \
    {                                                                                              \
        const type *x = elements;                                                                  \
        uint64_t sum = 0;                                                                          \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = first; i < end; i++) sum +=        \
            mixed(x[i], i);                                                                        \
        return sum;                                                                                \
    }
X(uint8_t)
X(uint16_t)
X(uint32_t)
X(uint64_t)
#undef X

static uint64_t sum_any(const void *elements, size_t size, int64_t first, int64_t end)
{
    uint64_t sum = 0;
    for (int64_t i = first; i < end; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)elements + (size_t)i * size, size); /* little-endian host */
        sum += mixed(bits, i);
    }
    return sum;
}

static uint64_t sum_range(const void *elements, size_t size, int64_t first, int64_t end)
{
    switch (size) {
    case 1:
        return sum_uint8_t(elements, first, end);
    case 2:
        return sum_uint16_t(elements, first, end);
    case 4:
        return sum_uint32_t(elements, first, end);
    case 8:
        return sum_uint64_t(elements, first, end);
    default:
        return sum_any(elements, size, first, end);
    }
}

uint64_t assay_checksum_of(const void *elements, size_t size, int64_t n)
{
    enum { BLOCK = 1 << 16 };
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (n > 4 * BLOCK)
    for (int64_t first = 0; first < n; first += BLOCK)
        sum += sum_range(elements, size, first, n - first < BLOCK ? n : first + BLOCK);
    return sum;
}

void assay_stats_of(assay_stats *out, const assay_buffer *values)
{
    assay_stats s = {.n = assay_buffer_count(values)};
    s.checksum = checksum_of(values, s.n);
    double sum = 0, squares = 0;
    int64_t n_finite = 0;
    for (int64_t i = 0; i < s.n; i++) {
        double x = assay_element(values, i);
        s.n_zero += x == 0;
        if (isnan(x)) {
            s.n_nan++;
            s.n_poison += values->dtype == ASSAY_DTYPE_F32 &&
                          assay_is_poison_f32((uint32_t)bits_of(values, i), NULL);
        } else if (isinf(x)) {
            s.n_pos_inf += x > 0;
            s.n_neg_inf += x < 0;
        } else {
            if (n_finite == 0 || x < s.min)
                s.min = x;
            if (n_finite == 0 || x > s.max)
                s.max = x;
            n_finite++;
            sum += x;
            squares += x * x;
        }
    }
    s.mean = n_finite ? sum / (double)n_finite : 0;
    s.l2 = sqrt(squares);
    *out = s;
}

assay_record_fn assay_record_stats;

assay_status assay_record_stats(assay_recorded *out, const assay_buffer *values)
{
    (void)out; /* statistics are there already */
    (void)values;
    return ASSAY_OK;
}
