#include "probes/hdf5_header.h"

#include <string.h>

enum {
    NOTHING = 0x0,
    SPACE = 0x1,
    TYPE = 0x3,
    FILL = 0x5,
    LAYOUT = 0x8,
    ATTRIBUTE = 0xc,
    MORE = 0x10,
    CHANGED = 0x12 /* when it was changed: nobody asks */
};
enum { PREFIX = 16, MESSAGE_HEAD = 8, MOST_PIECES = 8 };

/* Bytes that are yet to be read. */
typedef struct piece {
    const uint8_t *at;
    uint64_t n;
} piece;

typedef struct file_bytes {
    const uint8_t *bytes;
    uint64_t n; /* as far as the superblock says that it goes */
} file_bytes;

static uint16_t u16_at(const uint8_t *at)
{
    uint16_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint32_t u32_at(const uint8_t *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint64_t u64_at(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint64_t filled_up(uint64_t n)
{
    return (n + 7) & ~(uint64_t)7;
}

/* The next n bytes; NULL: there are not so many. */
static const uint8_t *take(piece *from, uint64_t n)
{
    const uint8_t *at = from->at;
    if (n > from->n)
        return NULL;
    from->at += n;
    from->n -= n;
    return at;
}

static bool find_file(file_bytes *out, const uint8_t *bytes, uint64_t n)
{
    /* signature, versions, bytes of an offset and of a length; behind them sizes of tables, which
     * only groups need */
    static const uint8_t start[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n',
                                    0,    0,   0,   0,   0,    8,    8,    0};
    enum { BASE = 24, END = 40, SUPERBLOCK = 96 };
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || n < SUPERBLOCK ||
        memcmp(bytes, start, sizeof start) != 0 || u64_at(bytes + BASE) != 0)
        return false;
    uint64_t end = u64_at(bytes + END);
    *out = (file_bytes){.bytes = bytes, .n = end < n ? end : n};
    return true;
}

static bool find_piece(piece *out, const file_bytes *file, uint64_t address, uint64_t n)
{
    if (address > file->n || n > file->n - address)
        return false;
    *out = (piece){.at = file->bytes + address, .n = n};
    return true;
}

typedef struct extent {
    int n_dims;
    int64_t dims[ASSAY_H5_MAX_DIMS], count;
} extent;

static bool read_space(extent *out, piece p)
{
    const uint8_t *head = take(&p, 8);
    if (!head || head[0] != 1 || head[1] > ASSAY_H5_MAX_DIMS || head[2] > 1)
        return false;
    *out = (extent){.n_dims = head[1], .count = 1};
    for (int i = 0; i < out->n_dims; i++) {
        const uint8_t *at = take(&p, 8);
        uint64_t dim = at ? u64_at(at) : 0;
        if (dim < 1 || dim > INT64_MAX ||
            __builtin_mul_overflow(out->count, (int64_t)dim, &out->count))
            return false;
        out->dims[i] = (int64_t)dim;
    }
    return out->count <= INT64_MAX / 8 && (!head[2] || take(&p, 8 * (uint64_t)out->n_dims));
}

typedef struct number_type {
    size_t size; /* bytes of an element */
    uint8_t n, bytes[20];
} number_type;

/* As this machine has them, if it is one of little ends. */
static const number_type number_types[ASSAY_H5_FORMATS] = {
    [ASSAY_H5_I32] = {4, 12, {0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0}},
    [ASSAY_H5_I64] = {8, 12, {0x10, 8, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0}},
    [ASSAY_H5_U64] = {8, 12, {0x10, 0, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0}},
    [ASSAY_H5_U16] = {2, 12, {0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0}},
    [ASSAY_H5_F32] = {4, 20, {0x11, 0x20, 31, 0, 4, 0,  0,   0, 0, 0,
                              32,   0,    23, 8, 0, 23, 127, 0, 0, 0}},
    [ASSAY_H5_F64] = {8, 20, {0x11, 0x20, 63, 0,  8, 0,  0,   0, 0, 0,
                              64,   0,    52, 11, 0, 52, 255, 3, 0, 0}},
};

/* size: bytes of an element. */
static bool read_type(assay_h5_format *out, size_t *size, piece p)
{
    enum { TEXT_TYPE = 0x13, PADDINGS = 3, CHARACTER_SETS = 2 };
    for (assay_h5_format f = 0; f < ASSAY_H5_FORMATS; f++) {
        const number_type *type = &number_types[f];
        if (type->n && p.n >= type->n && u64_at(p.at) == u64_at(type->bytes) &&
            !memcmp(p.at, type->bytes, type->n)) {
            *out = f;
            *size = type->size;
            return true;
        }
    }
    const uint8_t *head = take(&p, 8);
    if (!head || head[0] != TEXT_TYPE || (head[1] & 15) >= PADDINGS ||
        head[1] >> 4 >= CHARACTER_SETS || head[2] || head[3])
        return false;
    *out = ASSAY_H5_TEXT;
    *size = u32_at(head + 4);
    return *size > 0;
}

static bool read_attribute(assay_h5_header *out, piece p)
{
    const uint8_t *head = take(&p, 8);
    if (!head || head[0] != 1 || head[1] || out->n_attrs == ASSAY_H5_HEADER_ATTRS)
        return false;
    const uint64_t n_name = u16_at(head + 2), n_type = u16_at(head + 4), n_space = u16_at(head + 6);
    const uint8_t *name = take(&p, filled_up(n_name)), *type = take(&p, filled_up(n_type)),
                  *space = take(&p, filled_up(n_space));
    assay_h5_attr attr;
    size_t size;
    extent shape;
    if (!name || !type || !space || n_name < 2 || memchr(name, 0, n_name) != name + n_name - 1 ||
        !read_type(&attr.format, &size, (piece){type, n_type}) ||
        !read_space(&shape, (piece){space, n_space}) || shape.n_dims > 1 ||
        (attr.format == ASSAY_H5_TEXT && shape.count != 1) || (uint64_t)shape.count > p.n ||
        size > p.n || !(attr.values = take(&p, (uint64_t)shape.count * size)))
        return false;
    attr.name = (const char *)name;
    attr.n = attr.format == ASSAY_H5_TEXT ? (int64_t)size : shape.count;
    out->attrs[out->n_attrs++] = attr;
    return true;
}

/* What a dataset says of its values. */
typedef struct found {
    bool space, type, fill, layout, changed;
    extent shape;
    assay_h5_format format;
    size_t size;
    uint64_t address, n_bytes;
} found;

/* No value is filled in, whatever is set: all are there. */
static bool read_fill(piece p)
{
    return p.n == 8 && p.at[0] == 2 && p.at[1] <= 3 && p.at[2] <= 2 && p.at[3] <= 2 &&
           u32_at(p.at + 4) == 0;
}

static bool read_layout(found *f, piece p)
{
    if (p.n < 18 || p.at[0] != 3 || p.at[1] != 1)
        return false;
    f->address = u64_at(p.at + 2);
    f->n_bytes = u64_at(p.at + 10);
    return true;
}

/* Whether it is the first of its kind. */
static bool first(bool *there)
{
    bool is_first = !*there;
    *there = true;
    return is_first;
}

static bool read_message(assay_h5_header *out, found *f, unsigned kind, piece p)
{
    switch (kind) {
    case SPACE:
        return first(&f->space) && read_space(&f->shape, p);
    case TYPE:
        return first(&f->type) && read_type(&f->format, &f->size, p);
    case FILL:
        return first(&f->fill) && read_fill(p);
    case LAYOUT:
        return first(&f->layout) && read_layout(f, p);
    case NOTHING:
        return true;
    case CHANGED:
        return first(&f->changed);
    case ATTRIBUTE:
        return read_attribute(out, p);
    default:
        return false;
    }
}

static bool read_messages(assay_h5_header *out, found *f, const file_bytes *file, piece p,
                          unsigned n_messages)
{
    piece pieces[MOST_PIECES] = {p};
    int n_pieces = 1;
    for (int i = 0; i < n_pieces; i++) {
        p = pieces[i];
        while (p.n) {
            const uint8_t *head = take(&p, MESSAGE_HEAD);
            unsigned n = head ? u16_at(head + 2) : 1;
            const uint8_t *content = take(&p, n);
            if (!content || n % 8 || head[4] > 1 || n_messages-- == 0)
                return false;
            const unsigned kind = u16_at(head);
            bool good = kind != MORE ? read_message(out, f, kind, (piece){content, n})
                                     : n >= 16 && n_pieces < MOST_PIECES &&
                                           find_piece(&pieces[n_pieces++], file, u64_at(content),
                                                      u64_at(content + 8));
            if (!good)
                return false;
        }
    }
    return n_messages == 0;
}

static bool settle(assay_h5_info *out, const found *f, const file_bytes *file)
{
    static const assay_dtype dtypes[ASSAY_H5_FORMATS] = {[ASSAY_H5_I32] = ASSAY_DTYPE_I32,
                                                         [ASSAY_H5_F64] = ASSAY_DTYPE_F64,
                                                         [ASSAY_H5_F32] = ASSAY_DTYPE_F32,
                                                         [ASSAY_H5_U16] = ASSAY_DTYPE_I32};
    piece data;
    uint64_t n_bytes;
    bool is_native = f->format == ASSAY_H5_I32 || f->format == ASSAY_H5_F64 ||
                     f->format == ASSAY_H5_F32 || f->format == ASSAY_H5_U16;
    if (!f->space || !f->type || !f->fill || !f->layout || !is_native ||
        __builtin_mul_overflow((uint64_t)f->shape.count, (uint64_t)f->size, &n_bytes) ||
        n_bytes != f->n_bytes || f->address % 2 || !find_piece(&data, file, f->address, n_bytes))
        return false;
    *out = (assay_h5_info){.n_dims = f->shape.n_dims,
                           .count = f->shape.count,
                           .element_bytes = f->size,
                           .dtype = dtypes[f->format],
                           .is_number = true,
                           .is_unsigned16 = f->format == ASSAY_H5_U16,
                           .is_native = true,
                           .offset = (int64_t)f->address};
    memcpy(out->dims, f->shape.dims, sizeof out->dims);
    return true;
}

bool assay_h5_header_read(assay_h5_header *out, const void *bytes, uint64_t n, uint64_t address)
{
    file_bytes file;
    piece prefix, messages;
    found f = {.space = false};
    out->n_attrs = 0;
    if (!find_file(&file, bytes, n) || !find_piece(&prefix, &file, address, PREFIX) ||
        prefix.at[0] != 1 || prefix.at[1] ||
        !find_piece(&messages, &file, address + PREFIX, u32_at(prefix.at + 8)))
        return false;
    return read_messages(out, &f, &file, messages, u16_at(prefix.at + 2)) &&
           settle(&out->info, &f, &file);
}

const assay_h5_attr *assay_h5_header_attr(const assay_h5_header *header, const char *name)
{
    for (int i = 0; i < header->n_attrs; i++)
        if (header->attrs[i].name[0] == name[0] && !strcmp(header->attrs[i].name, name))
            return &header->attrs[i];
    return NULL;
}
