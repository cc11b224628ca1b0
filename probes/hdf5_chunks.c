#include "probes/hdf5_chunks.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "engine/base/wide.h"

/* One chunk's bytes: a stranger's chunk may be larger than its dataset, within reason. */
#define MOST_CHUNK ((uint64_t)1 << 26)
/* Chunks on their way at once: what they take is bounded by this many bytes, or it is one chunk. */
#define MOST_AT_ONCE ((uint64_t)1 << 26)

enum { MOST_FILTERS = 2, NO_FILTER = -1 };

typedef struct layout {
    const assay_h5_info *info;
    const char *path;
    hsize_t chunk[ASSAY_H5_MAX_DIMS];
    int64_t grid[ASSAY_H5_MAX_DIMS]; /* chunks along each axis */
    int64_t n_chunks;
    uint64_t bytes;       /* of a chunk when it is unpacked */
    int shuffle, deflate; /* places in the list of filters; NO_FILTER: not there */
} layout;

typedef struct packed {
    int64_t at[ASSAY_H5_MAX_DIMS]; /* first element */
    void *bytes;
    hsize_t n_bytes;
    uint32_t left_out; /* filters that were not applied */
} packed;

static bool read_filters(layout *l, hid_t plist)
{
    l->shuffle = l->deflate = NO_FILTER;
    int n = H5Pget_nfilters(plist);
    for (int i = 0; i < n && i < MOST_FILTERS; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        H5Z_filter_t id =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_values, NULL, 0, NULL, &config);
        if (id == H5Z_FILTER_SHUFFLE && i == 0)
            l->shuffle = i;
        else if (id == H5Z_FILTER_DEFLATE && l->deflate == NO_FILTER)
            l->deflate = i;
        else
            return false;
    }
    return n >= 0 && n <= MOST_FILTERS;
}

static bool is_native(hid_t type)
{
    const hid_t plain[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_UINT16,
                           H5T_NATIVE_INT32};
    bool is = false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        is = is || H5Tequal(type, plain[i]) > 0;
    return is;
}

static bool read_grid(layout *l, hid_t plist)
{
    const assay_h5_info *info = l->info;
    if (info->n_dims < 1 || H5Pget_layout(plist) != H5D_CHUNKED ||
        H5Pget_chunk(plist, ASSAY_H5_MAX_DIMS, l->chunk) != info->n_dims)
        return false;
    l->bytes = info->element_bytes;
    l->n_chunks = 1;
    for (int d = 0; d < info->n_dims; d++) {
        if (l->chunk[d] < 1 || l->chunk[d] > MOST_CHUNK || info->dims[d] < 1)
            return false;
        l->bytes *= l->chunk[d];
        if (l->bytes > MOST_CHUNK)
            return false;
        l->grid[d] = (info->dims[d] - 1) / (int64_t)l->chunk[d] + 1;
        l->n_chunks *= l->grid[d]; /* at most info->count */
    }
    return true;
}

static bool read_layout(layout *l, hid_t set)
{
    hid_t plist = H5Dget_create_plist(set);
    bool known = plist >= 0 && read_grid(l, plist) && read_filters(l, plist);
    if (plist >= 0)
        H5Pclose(plist);
    return known;
}

static void place_of(int64_t at[ASSAY_H5_MAX_DIMS], const layout *l, int64_t chunk)
{
    for (int d = l->info->n_dims - 1; d >= 0; d--) {
        at[d] = chunk % l->grid[d] * (int64_t)l->chunk[d];
        chunk /= l->grid[d];
    }
}

/* As it lies in the file. *there false: it was never written. */
static assay_status fetch(packed *p, bool *there, const layout *l, hid_t set, int64_t chunk)
{
    hsize_t at[ASSAY_H5_MAX_DIMS];
    place_of(p->at, l, chunk);
    for (int d = 0; d < l->info->n_dims; d++)
        at[d] = (hsize_t)p->at[d];
    *there = H5Dget_chunk_storage_size(set, at, &p->n_bytes) >= 0 && p->n_bytes > 0;
    if (!*there) {
        H5Eclear2(H5E_DEFAULT);
        return ASSAY_OK;
    }
    if (p->n_bytes > 2 * l->bytes + 4096) /* deflate adds less than that to what it cannot pack */
        return assay_fail(ASSAY_BAD_FILE, "'%s': a chunk of %llu bytes is packed in %llu", l->path,
                          (unsigned long long)l->bytes, (unsigned long long)p->n_bytes);
    ASSAY_TRY(assay_alloc(&p->bytes, p->n_bytes, 1, l->path));
    if (H5Dread_chunk(set, H5P_DEFAULT, at, &p->left_out, p->bytes) < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", l->path);
    return ASSAY_OK;
}

/* Byte b of all elements lies together. */
ASSAY_WIDEST static void unshuffle_four(uint32_t *out, const uint8_t *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint32_t)in[i] | (uint32_t)in[n + i] << 8 | (uint32_t)in[2 * n + i] << 16 |
                 (uint32_t)in[3 * n + i] << 24;
}

static void unshuffle(void *out, const uint8_t *in, int64_t n, size_t size)
{
    uint8_t *bytes = out;
    if (size == sizeof(uint32_t)) {
        unshuffle_four(out, in, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (size_t b = 0; b < size; b++)
            bytes[(size_t)i * size + b] = in[(int64_t)b * n + i];
}

static bool was_applied(const packed *p, int filter)
{
    return filter != NO_FILTER && !(p->left_out >> filter & 1);
}

/* room: two chunks. NULL: damaged. */
static const uint8_t *unpack(uint8_t *room, const layout *l, const packed *p)
{
    const uint8_t *bytes = p->bytes;
    uLongf n = l->bytes;
    if (was_applied(p, l->deflate)) {
        if (uncompress(room, &n, bytes, p->n_bytes) != Z_OK || n != l->bytes)
            return NULL;
        bytes = room;
    } else if (p->n_bytes != l->bytes) {
        return NULL;
    }
    const size_t size = l->info->element_bytes;
    if (!was_applied(p, l->shuffle) || size == 1)
        return bytes;
    unshuffle(room + l->bytes, bytes, (int64_t)(l->bytes / size), size);
    return room + l->bytes;
}

/* The part of the chunk that lies in the dataset, a run along the last axis at a time. */
static void place(uint8_t *out, const layout *l, const packed *p, const uint8_t *chunk)
{
    const assay_h5_info *info = l->info;
    const size_t size = info->element_bytes;
    int64_t kept[ASSAY_H5_MAX_DIMS], at[ASSAY_H5_MAX_DIMS] = {0}, n_runs = 1;
    const int last = info->n_dims - 1;
    for (int d = 0; d <= last; d++) {
        int64_t left = info->dims[d] - p->at[d];
        kept[d] = left < (int64_t)l->chunk[d] ? left : (int64_t)l->chunk[d];
        n_runs *= d < last ? kept[d] : 1;
    }
    for (int64_t i = 0; i < n_runs; i++) {
        int64_t from = 0, to = 0;
        for (int d = 0; d <= last; d++) {
            from = from * (int64_t)l->chunk[d] + at[d];
            to = to * info->dims[d] + p->at[d] + at[d];
        }
        memcpy(out + (size_t)to * size, chunk + (size_t)from * size, (size_t)kept[last] * size);
        for (int d = last - 1; d >= 0 && ++at[d] == kept[d]; d--)
            at[d] = 0;
    }
}

static assay_status unpack_all(uint8_t *out, const layout *l, const packed *list, int64_t n)
{
    bool damaged = false, no_memory = false;
#pragma omp parallel reduction(|| : damaged, no_memory) if (n > 1)
    {
        uint8_t *room = malloc(2 * l->bytes);
        no_memory = !room;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *chunk = room ? unpack(room, l, &list[i]) : NULL;
            if (chunk)
                place(out, l, &list[i], chunk);
            damaged = damaged || !chunk;
        }
        free(room);
    }
    if (no_memory)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the chunks of '%s'", l->path);
    return damaged ? assay_fail(ASSAY_BAD_FILE, "'%s': a chunk is damaged", l->path) : ASSAY_OK;
}

static assay_status read_all(uint8_t *out, bool *there, const layout *l, hid_t set)
{
    uint64_t most = MOST_AT_ONCE / l->bytes + 1;
    int64_t at_once = most < (uint64_t)l->n_chunks ? (int64_t)most : l->n_chunks;
    packed *list;
    ASSAY_TRY(assay_alloc(&list, (size_t)at_once, sizeof *list, "chunks"));
    assay_status s = ASSAY_OK;
    for (int64_t first = 0; first < l->n_chunks && *there && s == ASSAY_OK; first += at_once) {
        int64_t n = l->n_chunks - first < at_once ? l->n_chunks - first : at_once;
        memset(list, 0, (size_t)at_once * sizeof *list);
        for (int64_t i = 0; i < n && *there && s == ASSAY_OK; i++)
            s = fetch(&list[i], there, l, set, first + i);
        if (s == ASSAY_OK && *there)
            s = unpack_all(out, l, list, n);
        for (int64_t i = 0; i < n; i++)
            free(list[i].bytes);
    }
    free(list);
    return s;
}

static assay_status read_set(void *out, hid_t set, hid_t type, const char *path,
                             const assay_h5_info *info)
{
    layout l = {.info = info, .path = path};
    bool there = read_layout(&l, set);
    if (there)
        ASSAY_TRY(read_all(out, &there, &l, set));
    if (!there && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", path);
    return ASSAY_OK;
}

assay_status assay_h5_read_stored(void *out, bool *done, hid_t file, const char *path,
                                  const assay_h5_info *info)
{
    *done = false;
    if (info->is_virtual || info->count < 1)
        return ASSAY_OK;
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    if (set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", path);
    hid_t type = H5Dget_type(set);
    *done = is_native(type);
    assay_status s = *done ? read_set(out, set, type, path, info) : ASSAY_OK;
    H5Tclose(type);
    H5Dclose(set);
    return s;
}
