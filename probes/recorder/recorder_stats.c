#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "probes/mix.h"
#include "probes/recorder.h"

uint64_t assay_mix(uint64_t z)
{
    ASSAY_MIX(z);
    return z;
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

/* Elements [first, end) as they count in the whole, two to a word; first is even. */
ASSAY_WIDEST_INT static uint64_t sum_uint8_t(const void *elements, int64_t first, int64_t end)
{
    const uint8_t *x = elements;
    uint64_t sum = end % 2 ? assay_sum_word(x[end - 1], end / 2) : 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first / 2; i < end / 2; i++)
        sum += assay_sum_word((uint64_t)x[2 * i] | (uint64_t)x[2 * i + 1] << 32, i);
    return sum;
}

/* The two halves of a 32-bit word are elements: into the halves of a 64-bit word. */
ASSAY_WIDEST_INT static uint64_t sum_uint16_t(const void *elements, int64_t first, int64_t end)
{
    const uint16_t *x = elements;
    assay_u64s sums = {0}, at, step;
    int64_t i = first;
    assay_sum_begin(&at, &step, first / 2);
    for (; i + 2 * ASSAY_LANES_F64 <= end; i += 2 * ASSAY_LANES_F64) {
        assay_u32s pairs;
        memcpy(&pairs, x + i, sizeof pairs);
        assay_u64s z = __builtin_convertvector(pairs, assay_u64s);
        z = ((z & 0xFFFF) | (z >> 16 << 32)) + at;
        at += step;
        sums += ASSAY_SUM_TERM(z);
    }
    uint64_t sum = assay_sum_total(&sums);
    for (; i < end; i += 2)
        sum += assay_sum_word(x[i] | (i + 1 < end ? (uint64_t)x[i + 1] << 32 : 0), i / 2);
    return sum;
}

/* Words [first, end) of eight bytes each. */
ASSAY_WIDEST_INT static uint64_t sum_words(const void *words, int64_t first, int64_t end)
{
    const char *bytes = words;
    assay_u64s sums[2] = {{0}, {0}}, at, step;
    int64_t i = first;
    assay_sum_begin(&at, &step, first);
    for (; i + 2 * ASSAY_LANES_F64 <= end; i += 2 * ASSAY_LANES_F64) {
        assay_u64s z[2];
        memcpy(z, bytes + 8 * i, sizeof z);
        z[0] += at;
        at += step;
        z[1] += at;
        at += step;
        sums[0] += ASSAY_SUM_TERM(z[0]);
        sums[1] += ASSAY_SUM_TERM(z[1]);
    }
    sums[0] += sums[1];
    uint64_t sum = assay_sum_total(&sums[0]), word;
    for (; i < end; i++) {
        memcpy(&word, bytes + 8 * i, sizeof word);
        sum += assay_sum_word(word, i);
    }
    return sum;
}

/* Little-endian: two elements as they lie are a word. */
static uint64_t sum_uint32_t(const void *elements, int64_t first, int64_t end)
{
    uint64_t sum = sum_words(elements, first / 2, end / 2);
    return end % 2 ? sum + assay_sum_word(((const uint32_t *)elements)[end - 1], end / 2) : sum;
}

static uint64_t bits_at(const void *elements, size_t size, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)elements + (size_t)i * size, size); /* little-endian host */
    return bits;
}

static int64_t elements_of_word(size_t size)
{
    return size > sizeof(uint32_t) ? 1 : 2;
}

/* The word that begins with element i. */
static uint64_t word_at(const void *elements, size_t size, int64_t i, int64_t end)
{
    uint64_t word = bits_at(elements, size, i);
    if (elements_of_word(size) == 2 && i + 1 < end)
        word |= bits_at(elements, size, i + 1) << 32;
    return word;
}

static uint64_t sum_any(const void *elements, size_t size, int64_t first, int64_t end)
{
    const int64_t per = elements_of_word(size);
    uint64_t sum = 0;
    for (int64_t i = first; i < end; i += per)
        sum += assay_sum_word(word_at(elements, size, i, end), i / per);
    return sum;
}

/* Words [first, end) of eight bytes each. */
ASSAY_WIDEST_INT static uint64_t mix_words(const char *words, int64_t first, int64_t end)
{
    uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; i++) {
        uint64_t z;
        memcpy(&z, words + 8 * i, sizeof z);
        z += (uint64_t)(i + 1) * ASSAY_MIX_G;
        ASSAY_MIX(z);
        sum += z;
    }
    return sum;
}

uint64_t assay_checksum_mixed(const void *elements, size_t size, int64_t n)
{
    enum { BLOCK = 1 << 15 };
    const int64_t per = elements_of_word(size), n_words = size == 4 || size == 8 ? n / per : 0;
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (n_words > 4 * BLOCK)
    for (int64_t first = 0; first < n_words; first += BLOCK)
        sum += mix_words(elements, first, n_words - first < BLOCK ? n_words : first + BLOCK);
    for (int64_t i = n_words * per; i < n; i += per)
        sum += assay_mix(word_at(elements, size, i, n) + (uint64_t)(i / per + 1) * ASSAY_MIX_G);
    return sum;
}

uint64_t assay_checksum_part(const void *elements, size_t size, int64_t first, int64_t end)
{
    switch (size) {
    case 1:
        return sum_uint8_t(elements, first, end);
    case 2:
        return sum_uint16_t(elements, first, end);
    case 4:
        return sum_uint32_t(elements, first, end);
    case 8:
        return sum_words(elements, first, end);
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
        sum += assay_checksum_part(elements, size, first, n - first < BLOCK ? n : first + BLOCK);
    return sum;
}

/* Sums of a stretch of elements. */
typedef struct part {
    assay_stats s; /* counts, min, max */
    double sum, squares;
    int64_t n_finite;
} part;

static void add_carefully(part *p, const assay_buffer *values, int64_t first, int64_t end)
{
    const size_t size = assay_dtype_bytes(values->dtype);
    for (int64_t i = first; i < end; i++) {
        double x = assay_element(values, i);
        p->s.n_zero += x == 0;
        if (isnan(x)) {
            p->s.n_nan++;
            p->s.n_poison += values->dtype == ASSAY_DTYPE_F32 &&
                             assay_is_poison_f32((uint32_t)bits_at(values->data, size, i), NULL);
        } else if (isinf(x)) {
            p->s.n_pos_inf += x > 0;
            p->s.n_neg_inf += x < 0;
        } else {
            p->s.min = p->n_finite == 0 || x < p->s.min ? x : p->s.min;
            p->s.max = p->n_finite == 0 || x > p->s.max ? x : p->s.max;
            p->n_finite++;
            p->sum += x;
            p->squares += x * x;
        }
    }
}

/* Bits of float32 numbers that stand beside each other: how many are not finite, and whether all
 * are minus infinity, as masks leave them. */
enum { BESIDE = 16 };
ASSAY_INSIDE int not_finite(bool *masked, const float *x)
{
    uint32_t w[BESIDE], same = UINT32_MAX;
    int n = 0;
    memcpy(w, x, sizeof w);
    for (int j = 0; j < BESIDE; j++) {
        n += (w[j] & 0x7F800000u) == 0x7F800000u;
        same &= w[j] == 0xFF800000u ? UINT32_MAX : 0;
    }
    *masked = same != 0;
    return n;
}

/* The same numbers as add_carefully, element by element where they count. */
ASSAY_WIDEST static void add_stretches(part *p, const assay_buffer *values, int64_t first,
                                       int64_t end)
{
    const float *x = values->data;
    int64_t i = first;
    for (; i + BESIDE <= end; i += BESIDE) {
        bool masked;
        int n = not_finite(&masked, x + i);
        if (masked) {
            p->s.n_neg_inf += BESIDE;
            continue;
        }
        if (n) {
            add_carefully(p, values, i, i + BESIDE);
            continue;
        }
        part q = *p;
        if (q.n_finite == 0)
            q.s.min = q.s.max = x[i];
        for (int64_t j = i; j < i + BESIDE; j++) {
            const double v = x[j];
            q.s.n_zero += v == 0;
            q.s.min = v < q.s.min ? v : q.s.min;
            q.s.max = v > q.s.max ? v : q.s.max;
            q.sum += v;
            q.squares += v * v;
        }
        q.n_finite += BESIDE;
        *p = q;
    }
    add_carefully(p, values, i, end);
}

typedef struct lanes {
    double sum[ASSAY_LANES_F64], squares[ASSAY_LANES_F64], low[ASSAY_LANES_F64],
        high[ASSAY_LANES_F64];
} lanes;

/* Loops over arrays: comparisons of vectors gcc breaks into single elements where they are wider
 * than the processor's. */
ASSAY_INSIDE void add_lanes(lanes *l, const float *x)
{
    double v[ASSAY_LANES_F64];
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        v[j] = x[j];
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        l->low[j] = v[j] < l->low[j] ? v[j] : l->low[j];
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        l->high[j] = v[j] > l->high[j] ? v[j] : l->high[j];
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        l->sum[j] += v[j];
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        l->squares[j] += v[j] * v[j];
}

ASSAY_INSIDE void count_zeros(int32_t *zeros, const float *x, int n)
{
    for (int j = 0; j < n; j++)
        zeros[j] += x[j] == 0;
}

/* Whole vectors of float32, all of them finite: else false, since squares of finite float32 numbers
 * cannot leave float64. */
ASSAY_WIDEST static bool add_vectors(part *p, const float *x, int64_t n)
{
    lanes l = {.sum = {0}};
    int32_t zeros[ASSAY_LANES_F32] = {0};
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        l.low[j] = l.high[j] = x[0];
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        add_lanes(&l, x + i);
        add_lanes(&l, x + i + ASSAY_LANES_F64);
        count_zeros(zeros, x + i, ASSAY_LANES_F32);
    }
    if (i < n) {
        add_lanes(&l, x + i);
        count_zeros(zeros, x + i, ASSAY_LANES_F64);
    }
    part all = {.s.min = x[0], .s.max = x[0], .n_finite = n};
    for (int j = 0; j < ASSAY_LANES_F32; j++)
        all.s.n_zero += zeros[j];
    for (int j = 0; j < ASSAY_LANES_F64; j++) {
        all.s.min = l.low[j] < all.s.min ? l.low[j] : all.s.min;
        all.s.max = l.high[j] > all.s.max ? l.high[j] : all.s.max;
        all.sum += l.sum[j];
        all.squares += l.squares[j];
    }
    *p = all;
    return isfinite(all.squares);
}

static part part_of(const assay_buffer *values, int64_t first, int64_t end)
{
    part p = {.n_finite = 0};
    int64_t whole = (end - first) / ASSAY_LANES_F64 * ASSAY_LANES_F64;
    if (values->dtype == ASSAY_DTYPE_F32 && whole &&
        add_vectors(&p, (const float *)values->data + first, whole))
        first += whole;
    else
        p = (part){.n_finite = 0};
    if (values->dtype == ASSAY_DTYPE_F32)
        add_stretches(&p, values, first, end);
    else
        add_carefully(&p, values, first, end);
    return p;
}

static void add_part(part *to, const part *p)
{
    to->s.n_nan += p->s.n_nan;
    to->s.n_pos_inf += p->s.n_pos_inf;
    to->s.n_neg_inf += p->s.n_neg_inf;
    to->s.n_zero += p->s.n_zero;
    to->s.n_poison += p->s.n_poison;
    to->s.checksum += p->s.checksum;
    if (p->n_finite) {
        to->s.min = !to->n_finite || p->s.min < to->s.min ? p->s.min : to->s.min;
        to->s.max = !to->n_finite || p->s.max > to->s.max ? p->s.max : to->s.max;
    }
    to->n_finite += p->n_finite;
    to->sum += p->sum;
    to->squares += p->squares;
}

/* Stretches of fixed length, added up in their order: the same bits with any number of threads. A
 * stretch is in the nearest cache when its checksum is taken. */
void assay_stats_of(assay_stats *out, const assay_buffer *values)
{
    enum { BLOCK = 1 << 16, AT_ONCE = 64 };
    part all = {.s.n = assay_buffer_count(values)}, parts[AT_ONCE];
    const int64_t n = all.s.n;
    const size_t size = assay_dtype_bytes(values->dtype);
    for (int64_t from = 0; from < n; from += (int64_t)BLOCK * AT_ONCE) {
        int64_t left = (n - from + BLOCK - 1) / BLOCK, n_parts = left < AT_ONCE ? left : AT_ONCE;
#pragma omp parallel for schedule(static) if (n_parts > 3)
        for (int64_t b = 0; b < n_parts; b++) {
            int64_t first = from + b * BLOCK, end = n - first < BLOCK ? n : first + BLOCK;
            parts[b] = part_of(values, first, end);
            parts[b].s.checksum = assay_checksum_part(values->data, size, first, end);
        }
        for (int64_t b = 0; b < n_parts; b++)
            add_part(&all, &parts[b]);
    }
    all.s.mean = all.n_finite ? all.sum / (double)all.n_finite : 0;
    all.s.l2 = sqrt(all.squares);
    *out = all.s;
}

assay_record_fn assay_record_stats;

assay_status assay_record_stats(assay_recorded *out, const assay_buffer *values)
{
    (void)out; /* statistics are there already */
    (void)values;
    return ASSAY_OK;
}
