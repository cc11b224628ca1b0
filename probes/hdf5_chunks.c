#include "probes/hdf5_chunks.h"

#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/unshuffle.h"

/* One chunk's bytes: a stranger's chunk may be larger than its dataset, within reason. */
#define MOST_CHUNK ((uint64_t)1 << 26)

enum { MOST_FILTERS = 2, NO_FILTER = -1 };

typedef struct layout {
    const assay_h5_info *info;
    const char *path;
    hid_t set;
    hsize_t chunk[ASSAY_H5_MAX_DIMS];
    int64_t grid[ASSAY_H5_MAX_DIMS]; /* chunks along each axis */
    int64_t n_chunks;
    uint64_t bytes;       /* of a chunk when it is unpacked */
    int shuffle, deflate; /* places in the list of filters; NO_FILTER: not there */
} layout;

/* A chunk and what a thread needs to unpack it; kept from one to the next. */
typedef struct packed {
    struct libdeflate_decompressor *inflater;
    uint8_t *room;                 /* of an unpacked chunk */
    int64_t at[ASSAY_H5_MAX_DIMS]; /* first element */
    uint8_t *bytes;
    hsize_t n_bytes, n_room; /* n_room: what bytes has room for */
    uint32_t left_out;       /* filters that were not applied */
} packed;

/* The first chunk, in their order, that cannot be unpacked here. */
typedef struct stop {
    int64_t at;
    assay_status status; /* ASSAY_OK: it was never written */
    char why[1024];
} stop;

static bool read_filters(layout *l, hid_t plist)
{
    l->shuffle = l->deflate = NO_FILTER;
    int n = H5Pget_nfilters(plist);
    for (int i = 0; i < n && i < MOST_FILTERS; i++) {
        unsigned flags, config, width = 0; /* shuffle's one number: bytes of an element */
        size_t n_values = 1;
        H5Z_filter_t id =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_values, &width, 0, NULL, &config);
        if (id == H5Z_FILTER_SHUFFLE && i == 0 && width == l->info->element_bytes)
            l->shuffle = i;
        else if (id == H5Z_FILTER_DEFLATE && l->deflate == NO_FILTER)
            l->deflate = i;
        else
            return false;
    }
    return n >= 0 && n <= MOST_FILTERS;
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

static bool read_layout(layout *l)
{
    hid_t plist = H5Dget_create_plist(l->set);
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

static assay_status no_memory(const layout *l)
{
    return assay_fail(ASSAY_NO_MEMORY, "no memory for the chunks of '%s'", l->path);
}

static assay_status make_room(packed *p, const layout *l)
{
    if (p->n_bytes > 2 * l->bytes + 4096) /* deflate adds less than that to what it cannot pack */
        return assay_fail(ASSAY_BAD_FILE, "'%s': a chunk of %llu bytes is packed in %llu", l->path,
                          (unsigned long long)l->bytes, (unsigned long long)p->n_bytes);
    if (!p->inflater)
        p->inflater = libdeflate_alloc_decompressor();
    if (!p->room)
        p->room = malloc(l->bytes);
    if (p->n_bytes > p->n_room) {
        free(p->bytes);
        p->bytes = malloc(p->n_bytes);
        p->n_room = p->bytes ? p->n_bytes : 0;
    }
    return p->inflater && p->room && p->bytes ? ASSAY_OK : no_memory(l);
}

static void free_room(packed *p)
{
    if (p->inflater)
        libdeflate_free_decompressor(p->inflater);
    free(p->room);
    free(p->bytes);
}

/* As it lies in the file. *there false: it was never written. */
static assay_status fetch(packed *p, bool *there, const layout *l)
{
    hsize_t at[ASSAY_H5_MAX_DIMS];
    for (int d = 0; d < l->info->n_dims; d++)
        at[d] = (hsize_t)p->at[d];
    *there = H5Dget_chunk_storage_size(l->set, at, &p->n_bytes) >= 0 && p->n_bytes > 0;
    if (!*there) {
        H5Eclear2(H5E_DEFAULT);
        return ASSAY_OK;
    }
    ASSAY_TRY(make_room(p, l));
    if (H5Dread_chunk(l->set, H5P_DEFAULT, at, &p->left_out, p->bytes) < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", l->path);
    return ASSAY_OK;
}

static bool was_applied(const packed *p, int filter)
{
    return filter != NO_FILTER && !(p->left_out >> filter & 1);
}

/* NULL: damaged. */
static const uint8_t *inflate(const packed *p, const layout *l)
{
    if (!was_applied(p, l->deflate))
        return p->n_bytes == l->bytes ? p->bytes : NULL;
    size_t n = 0;
    bool good = libdeflate_zlib_decompress(p->inflater, p->bytes, p->n_bytes, p->room, l->bytes,
                                           &n) == LIBDEFLATE_SUCCESS;
    return good && n == l->bytes ? p->room : NULL;
}

/* The part of the chunk that lies in the dataset, a run along the last axis at a time. */
static void place(uint8_t *out, const layout *l, const packed *p, const uint8_t *chunk)
{
    const assay_h5_info *info = l->info;
    const size_t size = info->element_bytes;
    int64_t kept[ASSAY_H5_MAX_DIMS], at[ASSAY_H5_MAX_DIMS] = {0}, n_runs = 1;
    const int last = info->n_dims - 1;
    const bool shuffled = was_applied(p, l->shuffle);
    const int64_t n = (int64_t)(l->bytes / size);
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
        if (shuffled)
            assay_unshuffle(out + (size_t)to * size, chunk + from, n, kept[last], size);
        else
            memcpy(out + (size_t)to * size, chunk + (size_t)from * size, (size_t)kept[last] * size);
        for (int d = last - 1; d >= 0 && ++at[d] == kept[d]; d--)
            at[d] = 0;
    }
}

static assay_status unpack(uint8_t *out, bool *there, packed *p, const layout *l, int64_t chunk)
{
    assay_status s;
    place_of(p->at, l, chunk);
#pragma omp critical(assay_hdf5)
    s = fetch(p, there, l);
    if (s != ASSAY_OK || !*there)
        return s;
    const uint8_t *bytes = inflate(p, l);
    if (!bytes)
        return assay_fail(ASSAY_BAD_FILE, "'%s': a chunk is damaged", l->path);
    place(out, l, p, bytes);
    return ASSAY_OK;
}

static void note_stop(stop *first, int64_t chunk, assay_status s)
{
#pragma omp critical(assay_chunk_stop)
    if (chunk < first->at) {
#pragma omp atomic write
        first->at = chunk;
        first->status = s;
        snprintf(first->why, sizeof first->why, "%s", assay_error_text()); /* of this thread */
    }
}

/* *there false: a chunk was never written, and out holds anything. */
static assay_status unpack_all(uint8_t *out, bool *there, const layout *l)
{
    stop first = {.at = l->n_chunks};
#pragma omp parallel if (l->n_chunks > 1)
    {
        packed p = {0};
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < l->n_chunks; i++) {
            int64_t end;
            bool is_there = true;
#pragma omp atomic read
            end = first.at;
            assay_status s = i < end ? unpack(out, &is_there, &p, l, i) : ASSAY_OK;
            if (s != ASSAY_OK || !is_there)
                note_stop(&first, i, s);
        }
        free_room(&p);
    }
    *there = first.at == l->n_chunks || first.status != ASSAY_OK;
    return first.status == ASSAY_OK ? ASSAY_OK : assay_fail(first.status, "%s", first.why);
}

/* *known false: the library has to read it. */
static assay_status open_set(layout *l, bool *known, hid_t file)
{
    l->set = H5Dopen2(file, l->path, H5P_DEFAULT);
    if (l->set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", l->path);
    *known = read_layout(l);
    return ASSAY_OK;
}

static assay_status read_by_library(void *out, const layout *l)
{
    hid_t type = H5Dget_type(l->set);
    herr_t e = H5Dread(l->set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
    H5Tclose(type);
    return e < 0 ? assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", l->path) : ASSAY_OK;
}

assay_status assay_h5_read_stored(void *out, hid_t file, const char *path,
                                  const assay_h5_info *info)
{
    ASSAY_BUG_IF(!info->is_native);
    layout l = {.info = info, .path = path};
    bool known = false;
    assay_status s;
#pragma omp critical(assay_hdf5)
    s = open_set(&l, &known, file);
    if (s != ASSAY_OK)
        return s;
    if (known)
        s = unpack_all(out, &known, &l);
#pragma omp critical(assay_hdf5)
    {
        if (!known)
            s = read_by_library(out, &l);
        H5Dclose(l.set);
    }
    return s;
}
