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
#define PREFETCH_BYTES 1024

__extension__ typedef unsigned __int128 wide;

/* Both halves of the product, folded: every bit of a and b reaches every bit of the result. */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/*
 * A row's bytes: hash of all, and whether any is not zero. 64 bytes a turn in four lanes that do
 * not wait for each other; what is left over is filled up with zeros. The constants are odd and
 * random.
 */
static uint64_t hash_row(const uint8_t *p, int64_t n, bool *any)
{
    static const uint64_t key[8] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                                    0xd6e8feb86659fd93u, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu,
                                    0x8ebc6af09c88c6e3u, 0x589965cc75374cc3u};
    uint64_t a = key[0], b = key[1], c = key[2], d = key[3], seen = 0, w[8];
    for (int64_t i = 0; i < n; i += 64) {
        __builtin_prefetch(
            (const void *)((uintptr_t)p + (uintptr_t)i +
                           PREFETCH_BYTES)); /* pages come one by one from anywhere */
        if (n - i >= 64) {
            memcpy(w, p + i, 64);
        } else {
            memset(w, 0, 64);
            memcpy(w, p + i, (size_t)(n - i));
        }
        seen |= w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7];
        a = fold(w[0] ^ key[4], w[1] ^ a);
        b = fold(w[2] ^ key[5], w[3] ^ b);
        c = fold(w[4] ^ key[6], w[5] ^ c);
        d = fold(w[6] ^ key[7], w[7] ^ d);
    }
    uint64_t hash = fold(a ^ key[0], b ^ key[1]) ^ fold(c ^ key[2], d ^ key[3]);
    *any = seen != 0;
    return hash ? hash : 1;
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

/* Whether a row has any, in forms that need no call a block: 16-bit fields so far apart ... */
static bool any_bad_u16(const uint8_t *row, int64_t n, int64_t apart, uint16_t mask)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, row + apart * i, 2);
        bad |= (x & mask) == mask;
    }
    return bad;
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
        return any_bad_u16(row + quant->scale_at, n_blocks, apart, 0x7C00) ||
               (quant->second_at >= 0 &&
                any_bad_u16(row + quant->second_at, n_blocks, apart, 0x7C00));
    if (quant->scale == ASSAY_SCALE_BF16)
        return any_bad_u16(row, n_blocks, 2, 0x7F80);
    if (quant->scale == ASSAY_SCALE_F32 && quant->block_elements == 1)
        return any_bad_u32(row, n_blocks);
    return quant->scale != ASSAY_SCALE_NONE;
}

/* Elements [first, first + n) of the row in x; true when all are zero. */
static bool decode_part(float *x, const assay_quant *quant, const uint8_t *row, int64_t first,
                        int64_t n)
{
    bool zero = true;
    quant->decode(x, row + first / quant->block_elements * quant->block_bytes, n);
    for (int64_t i = 0; i < n; i++)
        zero = zero && x[i] == 0;
    return zero;
}

/* Whether a row with bytes that are not all zero decodes to zeros (codes of zero with a scale). */
static bool decodes_to_zero(const assay_quant *quant, const uint8_t *row, int64_t n)
{
    float x[SAMPLE_MAX];
    int64_t step = quant->block_elements > 32 ? quant->block_elements : n < 32 ? n : 32;
    for (int64_t at = 0; at < n; at += step)
        if (!decode_part(x, quant, row, at, n - at < step ? n - at : step))
            return false;
    return true;
}

/* Size of the row from one run of blocks, another place in each row. */
static void sample_row(audit_scan *scan, const assay_quant *quant, const uint8_t *row, int64_t n,
                       int64_t index)
{
    float x[SAMPLE_MAX];
    int64_t width = quant->block_elements >= 32 ? quant->block_elements : 32;
    width = width > n ? n : width;
    int64_t n_places = n / width;
    decode_part(x, quant, row, (int64_t)((uint64_t)index * 7919u % (uint64_t)n_places) * width,
                width);
    double square = 0;
    for (int64_t i = 0; i < width; i++)
        square += (double)x[i] * x[i];
    if (!isfinite(square))
        return; /* counted as not finite */
    double size = sqrt(square / (double)width);
    scan->square_sum += square;
    scan->n_sampled += width;
    if (size > scan->largest_row || scan->largest_row_at < 0) {
        scan->largest_row = size;
        scan->largest_row_at = index;
    }
    if (size > 0)
        scan->exponents[ilogb(size) + EXPONENT_BIAS]++;
}

static void scan_row(audit_scan *scan, uint64_t *hash, const assay_quant *quant, const uint8_t *row,
                     int64_t n, int64_t index)
{
    bool any;
    int64_t n_blocks = n / quant->block_elements, first = 0;
    *hash = hash_row(row, n_blocks * quant->block_bytes, &any);
    if (!any || decodes_to_zero(quant, row, n)) {
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
    sample_row(scan, quant, row, n, index);
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
        (all->largest_row_at < 0 || part->largest_row > all->largest_row)) {
        all->largest_row = part->largest_row;
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
                        const assay_quant *quant, int fd, int64_t first, int64_t n_rows)
{
    int64_t row_bytes = assay_quant_bytes(quant, t->ne[0]), n = n_rows * row_bytes;
    const uint8_t *p = (const uint8_t *)t->data + first * row_bytes;
    if (is_hole(fd, t->offset + (uint64_t)(first * row_bytes), n)) {
        part->n_zero = n_rows;
        part->first_zero_row = first;
        part->bytes_hole = (uint64_t)n;
        return; /* hashes are zero from the start */
    }
#ifdef MADV_POPULATE_READ
    advise(p, n, MADV_POPULATE_READ);
#endif
    for (int64_t r = 0; r < n_rows; r++)
        scan_row(part, &hashes[first + r], quant, p + r * row_bytes, t->ne[0], first + r);
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
    int64_t per = WINDOW_BYTES / assay_quant_bytes(quant, t->ne[0]);
    per = per < 1 ? 1 : per;
    int64_t n_windows = (all.n_rows + per - 1) / per;
    ASSAY_TRY(assay_alloc(&hashes, (size_t)all.n_rows, sizeof *hashes, t->name));
    if (is_hole(fd, t->offset, (int64_t)t->n_bytes)) {
        take_hole(&all, t);
        n_windows = 0;
    }
    /* small tensors are not worth a team of threads */
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_windows > 4)
    for (int64_t w = 0; w < n_windows; w++) {
        int64_t first = w * per;
        audit_scan part = {.largest_row_at = -1};
        scan_window(&part, hashes, t, quant, fd, first,
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
