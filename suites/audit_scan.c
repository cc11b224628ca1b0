#include "suites/audit_scan.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW_BYTES (8ll << 20)
#define SAMPLE_MAX 256 /* elements of a row that are decoded for its size */
#define EXPONENT_BIAS 160
#define PREFETCH_BYTES 4096

__extension__ typedef unsigned __int128 wide;

/* Both halves of the product, folded: every bit of a and b reaches every bit of the result. */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t word_at(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* Odd and random. */
#define KEY_A 0xa0761d6478bd642fu
#define KEY_B 0xe7037ed1a0b428dbu
#define KEY_C 0x8ebc6af09c88c6e3u
#define KEY_D 0x589965cc75374cc3u

typedef struct lanes {
    uint64_t a, b, c, d;
} lanes;

/* Whole runs of 64 bytes in four lanes that do not wait for each other. */
static inline lanes hash_runs(lanes h, const uint8_t *p, const uint8_t *end)
{
    for (; p < end; p += 64) {
        /* behind the end, too: the next row lies there, and an address that is none does no harm */
        __builtin_prefetch((const void *)((uintptr_t)p + PREFETCH_BYTES));
        h.a = fold(word_at(p) ^ KEY_A, word_at(p + 8) ^ h.a);
        h.b = fold(word_at(p + 16) ^ KEY_B, word_at(p + 24) ^ h.b);
        h.c = fold(word_at(p + 32) ^ KEY_C, word_at(p + 40) ^ h.c);
        h.d = fold(word_at(p + 48) ^ KEY_D, word_at(p + 56) ^ h.d);
    }
    return h;
}

static uint64_t hash_end(lanes h)
{
    uint64_t hash = fold(h.a ^ KEY_C, h.b ^ KEY_D) ^ fold(h.c ^ KEY_A, h.d ^ KEY_B);
    return hash ? hash : 1;
}

static const lanes hash_begin = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                                 0xd6e8feb86659fd93u};

/* Hash of a row's bytes; what does not fill a run is filled up with zeros. Never 0. */
static uint64_t hash_row(const uint8_t *p, int64_t n)
{
    int64_t whole = n / 64 * 64;
    lanes h = hash_runs(hash_begin, p, p + whole);
    if (n > whole) {
        uint8_t rest[64] = {0};
        memcpy(rest, p + whole, (size_t)(n - whole));
        h = hash_runs(h, rest, rest + 64);
    }
    return hash_end(h);
}

/* hash_row of n zeros: n may be larger than any buffer here. */
static uint64_t hash_zeros(int64_t n)
{
    static const uint8_t zeros[64];
    lanes h = hash_begin;
    for (int64_t i = 0; i < n; i += 64)
        h = hash_runs(h, zeros, zeros + 64);
    return hash_end(h);
}

static bool is_zero(const uint8_t *p, int64_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, (size_t)n - 1) == 0;
}

/* First block of the row with a scale that is not finite, and how many there are. */
static int64_t bad_blocks(int64_t *first, const assay_quant *quant, const uint8_t *row,
                          int64_t n_blocks)
{
    int64_t n = 0;
    for (int64_t b = 0; b < n_blocks; b++)
        if (!assay_quant_block_is_finite(quant, row + b * quant->block_bytes) && n++ == 0)
            *first = b;
    return n;
}

/*
 * Whether a row has any, in forms that need no call a block: 16-bit fields so far apart; `one` is
 * the lowest bit of the exponent, so that an exponent of ones runs over into the sign's place ...
 */
static bool any_bad_u16(const uint8_t *row, int64_t n, int64_t apart, uint16_t mask, uint16_t one)
{
    unsigned over = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, row + apart * i, 2);
        over |= (unsigned)(x & mask) + one;
    }
    return over & 0x8000;
}

/* ... or float32 back to back. */
static bool any_bad_u32(const uint8_t *row, int64_t n)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t x;
        memcpy(&x, row + 4 * i, 4);
        bad |= (x & 0x7F800000u) == 0x7F800000u;
    }
    return bad;
}

static bool may_be_bad(const assay_quant *quant, const uint8_t *row, int64_t n_blocks)
{
    int64_t apart = quant->block_bytes;
    if (quant->scale == ASSAY_SCALE_F16)
        return any_bad_u16(row + quant->scale_at, n_blocks, apart, 0x7C00, 0x400) ||
               (quant->second_at >= 0 &&
                any_bad_u16(row + quant->second_at, n_blocks, apart, 0x7C00, 0x400));
    if (quant->scale == ASSAY_SCALE_BF16)
        return any_bad_u16(row, n_blocks, 2, 0x7F80, 0x80);
    if (quant->scale == ASSAY_SCALE_F32 && quant->block_elements == 1)
        return any_bad_u32(row, n_blocks);
    return quant->scale != ASSAY_SCALE_NONE;
}

/* Elements [first, first + n) of the row, n a multiple of 4 or the whole row: their squares' sum;
 * 0 only where all of them are zero. */
static double square_sum(const assay_quant *quant, const uint8_t *row, int64_t first, int64_t n)
{
    float x[SAMPLE_MAX];
    double sum[4] = {0}; /* four that do not wait for each other */
    int64_t i = 0;
    quant->decode(x, row + first / quant->block_elements * quant->block_bytes, n);
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++)
        sum[0] += (double)x[i] * x[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Whether a row with bytes that are not all zero decodes to zeros (codes of zero with a scale). */
static bool decodes_to_zero(const assay_quant *quant, const uint8_t *row, int64_t n)
{
    int64_t step = quant->block_elements > 32 ? quant->block_elements : n < 32 ? n : 32;
    for (int64_t at = 0; at < n; at += step)
        if (square_sum(quant, row, at, n - at < step ? n - at : step) != 0)
            return false;
    return true;
}

/* Square sum of one run of blocks of the row, another place in each row. */
static double sample(int64_t *width, const assay_quant *quant, const uint8_t *row, int64_t n,
                     int64_t index)
{
    *width = quant->block_elements >= 32 ? quant->block_elements : 32;
    *width = *width > n ? n : *width;
    uint64_t n_places = (uint64_t)(n / *width);
    return square_sum(quant, row, (int64_t)((uint64_t)index * 7919u % n_places) * *width, *width);
}

/* Size of the row by its sample. */
static void take_sample(audit_scan *scan, double square, int64_t width, int64_t index)
{
    if (!isfinite(square))
        return; /* counted as not finite */
    double mean = square / (double)width;
    scan->square_sum += square;
    scan->n_sampled += width;
    if (mean > scan->largest_square || scan->largest_row_at < 0) {
        scan->largest_square = mean;
        scan->largest_row_at = index;
    }
    if (mean > 0) /* halves rounded down: the exponent of the root */
        scan->exponents[(ilogb(mean) + 2 * EXPONENT_BIAS) / 2]++;
}

static void scan_row(audit_scan *scan, uint64_t *hash, const assay_quant *quant, const uint8_t *row,
                     int64_t n, int64_t index, uint64_t hash_of_zeros)
{
    int64_t n_blocks = n / quant->block_elements, n_bytes = n_blocks * quant->block_bytes;
    int64_t first = 0, width = 0;
    *hash = hash_row(row, n_bytes); /* first: it brings the row in */
    double square = sample(&width, quant, row, n, index);
    if (square == 0 &&
        ((*hash == hash_of_zeros && is_zero(row, n_bytes)) || decodes_to_zero(quant, row, n))) {
        *hash = 0;
        if (scan->n_zero++ == 0)
            scan->first_zero_row = index;
        return;
    }
    int64_t n_bad = may_be_bad(quant, row, n_blocks) ? bad_blocks(&first, quant, row, n_blocks) : 0;
    if (n_bad > 0 && scan->n_bad == 0) {
        scan->first_bad_row = index;
        scan->first_bad_element = first * quant->block_elements;
    }
    scan->n_bad += n_bad;
    take_sample(scan, square, width, index);
}

static void merge(audit_scan *all, const audit_scan *part)
{
    if (part->n_bad > 0 && (all->n_bad == 0 || part->first_bad_row < all->first_bad_row)) {
        all->first_bad_row = part->first_bad_row;
        all->first_bad_element = part->first_bad_element;
    }
    if (part->n_zero > 0 && (all->n_zero == 0 || part->first_zero_row < all->first_zero_row))
        all->first_zero_row = part->first_zero_row;
    if (part->largest_row_at >= 0 &&
        (all->largest_row_at < 0 || part->largest_square > all->largest_square)) {
        all->largest_square = part->largest_square;
        all->largest_row_at = part->largest_row_at;
    }
    all->n_bad += part->n_bad;
    all->n_zero += part->n_zero;
    all->square_sum += part->square_sum;
    all->n_sampled += part->n_sampled;
    all->bytes_read += part->bytes_read;
    all->bytes_hole += part->bytes_hole;
    for (int e = 0; e < AUDIT_EXPONENTS; e++)
        all->exponents[e] += part->exponents[e];
}

/* Whole pages inside [p, p + n). */
static void advise(const uint8_t *p, int64_t n, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) / page * page, to = ((uintptr_t)p + (uintptr_t)n);
    to = to / page * page;
    if (from < to)
        (void)madvise((void *)from, to - from, advice); /* advice only: failure changes nothing */
}

static bool is_hole(int fd, uint64_t offset, int64_t n)
{
    if (fd < 0)
        return false;
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
    return data < 0 || (uint64_t)data >= offset + (uint64_t)n;
}

/* The whole tensor is zeros that need no reading. */
static void take_hole(audit_scan *all, const assay_gguf_tensor_info *t)
{
    all->n_zero = all->n_rows;
    all->first_zero_row = 0;
    all->bytes_hole = t->n_bytes;
}

static void scan_window(audit_scan *part, uint64_t *hashes, const assay_gguf_tensor_info *t,
                        const assay_quant *quant, int fd, uint64_t hash_of_zeros, int64_t first,
                        int64_t n_rows)
{
    int64_t row_bytes = assay_quant_bytes(quant, t->ne[0]), n = n_rows * row_bytes;
    const uint8_t *p = (const uint8_t *)t->data + first * row_bytes;
    if (is_hole(fd, t->offset + (uint64_t)(first * row_bytes), n)) {
        part->n_zero = n_rows;
        part->first_zero_row = first;
        part->bytes_hole = (uint64_t)n;
        return; /* hashes are zero from the start */
    }
    for (int64_t r = 0; r < n_rows; r++)
        scan_row(part, &hashes[first + r], quant, p + r * row_bytes, t->ne[0], first + r,
                 hash_of_zeros);
    advise(p, n, MADV_DONTNEED);
    part->bytes_read = (uint64_t)n;
}

/* Rows that repeat an earlier one, by hash, in an open table of row numbers. Zero rows are no
 * repeats. */
static assay_status count_repeats(audit_scan *scan, const uint64_t *hashes)
{
    uint64_t size = 64;
    uint32_t *table = NULL;
    while (size < 2 * (uint64_t)scan->n_rows)
        size *= 2;
    if (scan->n_zero == scan->n_rows || scan->n_rows > UINT32_MAX - 1)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&table, size, sizeof *table, "hashes of rows"));
    for (int64_t r = 0; r < scan->n_rows; r++) {
        uint64_t at = hashes[r] & (size - 1);
        if (hashes[r] == 0)
            continue;
        while (table[at] != 0 && hashes[table[at] - 1] != hashes[r])
            at = (at + 1) & (size - 1);
        if (table[at] == 0)
            table[at] = (uint32_t)(r + 1);
        else if (scan->n_repeated++ == 0) {
            scan->first_repeated_row = r;
            scan->repeats_row = (int64_t)table[at] - 1;
        }
    }
    free(table);
    return ASSAY_OK;
}

static uint64_t hash_all(const audit_scan *scan, const uint64_t *hashes)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    if (scan->n_zero == scan->n_rows)
        return 0;
    for (int64_t r = 0; r < scan->n_rows; r++) {
        hash = (hash ^ hashes[r]) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 31;
    }
    return hash ? hash : 1;
}

assay_status audit_scan_tensor(audit_scan *out, const assay_gguf_tensor_info *t, int fd,
                               int n_threads)
{
    const assay_quant *quant = assay_quant_find(t->type);
    uint64_t *hashes = NULL;
    audit_scan all = {.n_rows = t->ne[1] * t->ne[2] * t->ne[3], .largest_row_at = -1};
    int64_t row_bytes = assay_quant_bytes(quant, t->ne[0]), per = WINDOW_BYTES / row_bytes;
    per = per < 1 ? 1 : per;
    int64_t n_windows = (all.n_rows + per - 1) / per;
    ASSAY_TRY(assay_alloc(&hashes, (size_t)all.n_rows, sizeof *hashes, t->name));
    uint64_t hash_of_zeros = hash_zeros(row_bytes);
    if (is_hole(fd, t->offset, (int64_t)t->n_bytes)) {
        take_hole(&all, t);
        n_windows = 0;
    }
    /* small tensors are not worth a team of threads */
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_windows > 4)
    for (int64_t w = 0; w < n_windows; w++) {
        int64_t first = w * per;
        audit_scan part = {.largest_row_at = -1};
        scan_window(&part, hashes, t, quant, fd, hash_of_zeros, first,
                    all.n_rows - first < per ? all.n_rows - first : per);
#pragma omp critical(audit_merge)
        merge(&all, &part);
    }
    assay_status s = count_repeats(&all, hashes);
    all.hash = hash_all(&all, hashes);
    free(hashes);
    ASSAY_TRY(s);
    *out = all;
    return ASSAY_OK;
}

double audit_scan_size(const audit_scan *scan)
{
    return scan->n_sampled > 0 ? sqrt(scan->square_sum / (double)scan->n_sampled) : 0;
}

int audit_scan_median_exponent(const audit_scan *scan)
{
    int64_t n = 0, below = 0;
    for (int e = 0; e < AUDIT_EXPONENTS; e++)
        n += scan->exponents[e];
    for (int e = 0; e < AUDIT_EXPONENTS; e++) {
        below += scan->exponents[e];
        if (n > 0 && 2 * below >= n)
            return e - EXPONENT_BIAS;
    }
    return 0;
}
