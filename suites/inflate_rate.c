#include "suites/inflate_rate.h"

#include <hdf5.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <zlib.h>

#include "engine/base/mapping.h"
#include "probes/hdf5.h"

typedef struct chunk {
    const uint8_t *bytes;
    uint64_t n_bytes, n_unpacked;
} chunk;

struct assay_inflate {
    assay_mapping file[2];
    chunk *chunks;
    int64_t n, room;
    uint64_t bytes, largest;
};

typedef struct walk {
    assay_inflate *inflate;
    const assay_mapping *file;
    assay_status status;
} walk;

static assay_status add_chunk(assay_inflate *f, const assay_mapping *file, haddr_t at, hsize_t n,
                              uint64_t n_unpacked)
{
    if (at > file->n_bytes || n > file->n_bytes - at)
        return assay_fail(ASSAY_BAD_FILE, "a chunk lies outside its file");
    if (f->n == f->room) {
        int64_t room = f->room ? 2 * f->room : 1024;
        chunk *more = realloc(f->chunks, (size_t)room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for a list of chunks");
        f->chunks = more;
        f->room = room;
    }
    f->chunks[f->n++] = (chunk){file->bytes + at, n, n_unpacked};
    f->bytes += n_unpacked;
    f->largest = n_unpacked > f->largest ? n_unpacked : f->largest;
    return ASSAY_OK;
}

/* Every chunk goes through all filters in captures that are measured. */
static assay_status add_dataset(walk *w, hid_t set, size_t size)
{
    hid_t plist = H5Dget_create_plist(set), space = H5Dget_space(set);
    hsize_t dims[ASSAY_H5_MAX_DIMS], n_chunks = 0;
    uint64_t bytes = size;
    int n_dims = H5Pget_layout(plist) == H5D_CHUNKED && H5Pget_nfilters(plist) > 0
                     ? H5Pget_chunk(plist, ASSAY_H5_MAX_DIMS, dims)
                     : 0;
    for (int d = 0; d < n_dims; d++)
        bytes *= dims[d];
    if (n_dims > 0)
        H5Dget_num_chunks(set, space, &n_chunks);
    assay_status s = ASSAY_OK;
    for (hsize_t i = 0; i < n_chunks && s == ASSAY_OK; i++) {
        hsize_t at[ASSAY_H5_MAX_DIMS], n = 0;
        unsigned left_out = 0;
        haddr_t address = HADDR_UNDEF;
        if (H5Dget_chunk_info(set, space, i, at, &left_out, &address, &n) < 0 || left_out)
            continue;
        s = add_chunk(w->inflate, w->file, address, n, bytes);
    }
    H5Sclose(space);
    H5Pclose(plist);
    return s;
}

static herr_t visit(hid_t file, const char *name, const H5O_info_t *info, void *user)
{
    walk *w = user;
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), type = H5Dget_type(set);
    w->status = add_dataset(w, set, H5Tget_size(type));
    H5Tclose(type);
    H5Dclose(set);
    return w->status == ASSAY_OK ? 0 : -1;
}

static assay_status add_file(assay_inflate *f, assay_mapping *mapping, const char *path)
{
    hid_t file;
    ASSAY_TRY(assay_mapping_open(mapping, path));
    ASSAY_TRY(assay_h5_open(&file, path));
    walk w = {f, mapping, ASSAY_OK};
    if (H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &w, H5O_INFO_BASIC) < 0 &&
        w.status == ASSAY_OK)
        w.status = assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be walked through", path);
    H5Fclose(file);
    return w.status;
}

assay_status assay_inflate_open(assay_inflate **out, const char *a, const char *b)
{
    assay_inflate *f;
    ASSAY_TRY(assay_alloc(&f, 1, sizeof *f, "chunks"));
    assay_status s = add_file(f, &f->file[0], a);
    if (s == ASSAY_OK)
        s = add_file(f, &f->file[1], b);
    if (s == ASSAY_OK)
        *out = f;
    else
        assay_inflate_close(f);
    return s;
}

void assay_inflate_close(assay_inflate *inflate)
{
    if (!inflate)
        return;
    for (int i = 0; i < 2; i++)
        assay_mapping_close(&inflate->file[i]);
    free(inflate->chunks);
    free(inflate);
}

uint64_t assay_inflate_bytes(const assay_inflate *inflate)
{
    return inflate->bytes;
}

static assay_status say_bad(int64_t n_bad)
{
    return n_bad ? assay_fail(ASSAY_BAD_FILE, "%lld chunks cannot be inflated", (long long)n_bad)
                 : ASSAY_OK;
}

assay_status assay_inflate_by_zlib(const assay_inflate *inflate)
{
    int64_t n_bad = 0;
#pragma omp parallel reduction(+ : n_bad)
    {
        uint8_t *room = malloc(inflate->largest + 1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < inflate->n; i++) {
            const chunk *c = &inflate->chunks[i];
            uLongf n = c->n_unpacked;
            n_bad += !room || uncompress(room, &n, c->bytes, c->n_bytes) != Z_OK;
        }
        free(room);
    }
    return say_bad(n_bad);
}

assay_status assay_inflate_by_libdeflate(const assay_inflate *inflate)
{
    int64_t n_bad = 0;
#pragma omp parallel reduction(+ : n_bad)
    {
        uint8_t *room = malloc(inflate->largest + 1);
        struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < inflate->n; i++) {
            const chunk *c = &inflate->chunks[i];
            n_bad += !room || !d ||
                     libdeflate_zlib_decompress(d, c->bytes, c->n_bytes, room, c->n_unpacked,
                                                NULL) != LIBDEFLATE_SUCCESS;
        }
        if (d)
            libdeflate_free_decompressor(d);
        free(room);
    }
    return say_bad(n_bad);
}
