#include "references/npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mapping.h"

typedef struct bytes {
    const unsigned char *at;
    size_t n;
} bytes;

static bytes bytes_of(const assay_mapping *mapping)
{
    return (bytes){mapping->bytes, (size_t)mapping->n_bytes};
}

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

/* Text behind 'key': in the header; NULL: absent. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at++ != ':')
        return NULL;
    return at + strspn(at, " ");
}

static bool read_descr(assay_npy *out, const char *at)
{
    static const struct {
        const char *descr;
        assay_dtype dtype;
    } rows[] = {{"'<f2'", ASSAY_DTYPE_F16},  {"'<f4'", ASSAY_DTYPE_F32},
                {"'<f8'", ASSAY_DTYPE_F64},  {"'<V2'", ASSAY_DTYPE_BF16},
                {"'|V2'", ASSAY_DTYPE_BF16}, {"'|i1'", ASSAY_DTYPE_I8},
                {"'<i4'", ASSAY_DTYPE_I32},  {"'<i8'", ASSAY_DTYPE_I64}};
    for (size_t i = 0; at && i < sizeof rows / sizeof *rows; i++)
        if (!strncmp(at, rows[i].descr, strlen(rows[i].descr))) {
            out->dtype = rows[i].dtype;
            return true;
        }
    return false;
}

static bool read_shape(assay_npy *out, const char *at)
{
    if (!at || *at++ != '(')
        return false;
    out->count = 1;
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')')
            return true;
        if (!isdigit((unsigned char)*at) || out->n_dims == ASSAY_NPY_MAX_DIMS)
            return false;
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (errno || __builtin_mul_overflow(out->count, (int64_t)size, &out->count))
            return false;
        out->dims[out->n_dims++] = size;
        at = end;
    }
}

static assay_status parse(assay_npy *out, bytes b, const char *name)
{
    if (b.n < 12 || memcmp(b.at, "\x93NUMPY", 6) || b.at[6] < 1 || b.at[6] > 3)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is not a .npy file of version 1 to 3", name);
    size_t start = b.at[6] == 1 ? 10 : 12;
    size_t length = (size_t)little(b.at + 8, b.at[6] == 1 ? 2 : 4);
    if (length > 65536 || start + length > b.n)
        return assay_fail(ASSAY_BAD_FILE, "'%s': a header of %zu bytes, the file has %zu", name,
                          length, b.n);
    char *header;
    ASSAY_TRY(assay_alloc(&header, length + 1, 1, "header"));
    memcpy(header, b.at + start, length);
    assay_npy a = {.dtype = ASSAY_DTYPE_COUNT};
    const char *order = value_of(header, "'fortran_order'");
    assay_status s = ASSAY_OK;
    if (!read_descr(&a, value_of(header, "'descr'")))
        s = assay_fail(ASSAY_BAD_FILE,
                       "'%s': number format in '%.60s' is not read (f2 f4 f8 V2 i1 "
                       "i4 i8, little-endian)",
                       name, header);
    else if (!order || strncmp(order, "False", 5))
        s = assay_fail(ASSAY_BAD_FILE, "'%s': Fortran order is not read", name);
    else if (!read_shape(&a, value_of(header, "'shape'")))
        s = assay_fail(ASSAY_BAD_FILE, "'%s': shape in '%.80s' cannot be read", name, header);
    free(header);
    ASSAY_TRY(s);
    size_t have = b.n - start - length, size = assay_dtype_bytes(a.dtype);
    if ((uint64_t)a.count > have / size || (size_t)a.count * size != have)
        return assay_fail(ASSAY_BAD_FILE, "'%s': %lld elements of %zu bytes, %zu bytes are there",
                          name, (long long)a.count, size, have);
    a.data = b.at + start + length;
    *out = a;
    return ASSAY_OK;
}

assay_status assay_npy_read(const char *path, const char *name, assay_npy_fn *use, void *user)
{
    assay_mapping file;
    assay_npy array;
    ASSAY_TRY(assay_mapping_open(&file, path));
    bytes b = bytes_of(&file);
    assay_status s = parse(&array, b, path);
    if (s == ASSAY_OK)
        s = use(user, name, &array);
    assay_mapping_close(&file);
    return s;
}

/* Where the list of files starts, from the record at the archive's end. */
static assay_status find_list(size_t *at, size_t *n, bytes b, const char *path)
{
    for (size_t back = 22; back <= b.n && back < 22 + 65536; back++) {
        const unsigned char *p = b.at + b.n - back;
        if (memcmp(p, "PK\5\6", 4))
            continue;
        *n = (size_t)little(p + 10, 2);
        *at = (size_t)little(p + 16, 4);
        if (*n == 0xFFFF || *at == 0xFFFFFFFF || *at > b.n)
            return assay_fail(ASSAY_BAD_FILE, "'%s': zip64 or a damaged end", path);
        return ASSAY_OK;
    }
    return assay_fail(ASSAY_BAD_FILE, "'%s' is not a zip archive", path);
}

static assay_status read_entry(bytes b, const unsigned char *p, const char *path, assay_npy_fn *use,
                               void *user)
{
    size_t method = little(p + 10, 2), packed = little(p + 20, 4), length = little(p + 28, 2);
    size_t local = little(p + 42, 4);
    char name[1024], full[2048];
    if (length < 5 || length >= sizeof name)
        return assay_fail(ASSAY_BAD_FILE, "'%s': a name of %zu bytes", path, length);
    memcpy(name, p + 46, length);
    name[length] = '\0';
    snprintf(full, sizeof full, "%.900s, %s", path, name);
    if (method != 0)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is compressed: write it with np.savez", full);
    if (strcmp(name + length - 4, ".npy"))
        return ASSAY_OK;
    if (local + 30 > b.n || memcmp(b.at + local, "PK\3\4", 4))
        return assay_fail(ASSAY_BAD_FILE, "'%s': the archive is damaged", full);
    size_t start = local + 30 + little(b.at + local + 26, 2) + little(b.at + local + 28, 2);
    if (start > b.n || packed > b.n - start)
        return assay_fail(ASSAY_BAD_FILE, "'%s': %zu bytes at %zu, the file has %zu", full, packed,
                          start, b.n);
    assay_npy array;
    ASSAY_TRY(parse(&array, (bytes){b.at + start, packed}, full));
    name[length - 4] = '\0';
    return use(user, name, &array);
}

assay_status assay_npz_read(const char *path, assay_npy_fn *use, void *user)
{
    assay_mapping file;
    size_t at = 0, n = 0;
    ASSAY_TRY(assay_mapping_open(&file, path));
    bytes b = bytes_of(&file);
    assay_status s = find_list(&at, &n, b, path);
    for (size_t i = 0; i < n && s == ASSAY_OK; i++) {
        if (at + 46 > b.n || memcmp(b.at + at, "PK\1\2", 4)) {
            s = assay_fail(ASSAY_BAD_FILE, "'%s': entry %zu of the list is damaged", path, i);
            break;
        }
        const unsigned char *p = b.at + at;
        size_t size = 46 + little(p + 28, 2) + little(p + 30, 2) + little(p + 32, 2);
        if (at + size > b.n)
            s = assay_fail(ASSAY_BAD_FILE, "'%s': entry %zu of the list is damaged", path, i);
        else
            s = read_entry(b, p, path, use, user);
        at += size;
    }
    assay_mapping_close(&file);
    return s;
}
