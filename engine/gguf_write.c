#include "engine/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/publish.h"
#include "engine/quant.h"

#define ALIGNMENT 32
#define VERSION 3

/* Bytes that grow at the end. */
typedef struct bytes {
    uint8_t *p;
    uint64_t n, room;
} bytes;

typedef struct tensor {
    char *name;
    int type, n_dims, file;
    int64_t ne[4];
    uint64_t n_bytes;
    uint64_t offset; /* in its file's data section until start() adds where that begins */
} tensor;

typedef struct output {
    char *path, *temporary;
    int fd;
    uint64_t n_bytes;
} output;

struct assay_gguf_writer {
    bytes keys;
    uint64_t n_keys;
    tensor *tensors;
    int64_t n_tensors, room;
    output *outputs;
    int n_outputs;
};

static assay_status add(bytes *b, const void *p, uint64_t n)
{
    if (b->n + n > b->room) {
        uint64_t room = 2 * (b->n + n) + 256;
        uint8_t *wider = realloc(b->p, room);
        if (!wider)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for %llu bytes of a GGUF header",
                              (unsigned long long)room);
        b->p = wider;
        b->room = room;
    }
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return ASSAY_OK;
}

static assay_status add_u32(bytes *b, uint32_t x)
{
    return add(b, &x, sizeof x);
}

static assay_status add_u64(bytes *b, uint64_t x)
{
    return add(b, &x, sizeof x);
}

static assay_status add_string(bytes *b, const char *text, uint64_t n)
{
    ASSAY_TRY(add_u64(b, n));
    return add(b, text, n);
}

static assay_status add_scalar(bytes *b, const char *key, assay_gguf_type type, const void *value,
                               uint64_t n)
{
    ASSAY_TRY(add_string(b, key, strlen(key)));
    ASSAY_TRY(add_u32(b, (uint32_t)type));
    return add(b, value, n);
}

static assay_status put(assay_gguf_writer *w, const char *key, assay_gguf_type type,
                        const void *value, uint64_t n)
{
    w->n_keys++;
    return add_scalar(&w->keys, key, type, value, n);
}

assay_status assay_gguf_put_u16(assay_gguf_writer *w, const char *key, uint16_t value)
{
    return put(w, key, ASSAY_GGUF_U16, &value, sizeof value);
}

assay_status assay_gguf_put_u32(assay_gguf_writer *w, const char *key, uint32_t value)
{
    return put(w, key, ASSAY_GGUF_U32, &value, sizeof value);
}

assay_status assay_gguf_put_i32(assay_gguf_writer *w, const char *key, int32_t value)
{
    return put(w, key, ASSAY_GGUF_I32, &value, sizeof value);
}

assay_status assay_gguf_put_f32(assay_gguf_writer *w, const char *key, float value)
{
    return put(w, key, ASSAY_GGUF_F32, &value, sizeof value);
}

assay_status assay_gguf_put_bool(assay_gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    return put(w, key, ASSAY_GGUF_BOOL, &byte, 1);
}

assay_status assay_gguf_put_str(assay_gguf_writer *w, const char *key, const char *value)
{
    ASSAY_TRY(put(w, key, ASSAY_GGUF_STRING, NULL, 0));
    return add_string(&w->keys, value, strlen(value));
}

static size_t element_bytes(assay_gguf_type type)
{
    static const size_t sizes[ASSAY_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    ASSAY_BUG_IF((unsigned)type >= ASSAY_GGUF_TYPE_COUNT || sizes[type] == 0);
    return sizes[type];
}

assay_status assay_gguf_put_array(assay_gguf_writer *w, const char *key, assay_gguf_type element,
                                  uint64_t n, const void *values)
{
    ASSAY_TRY(put(w, key, ASSAY_GGUF_ARRAY, NULL, 0));
    ASSAY_TRY(add_u32(&w->keys, (uint32_t)element));
    ASSAY_TRY(add_u64(&w->keys, n));
    return add(&w->keys, values, n * element_bytes(element));
}

assay_status assay_gguf_put_str_array(assay_gguf_writer *w, const char *key, uint64_t n)
{
    ASSAY_TRY(put(w, key, ASSAY_GGUF_ARRAY, NULL, 0));
    ASSAY_TRY(add_u32(&w->keys, ASSAY_GGUF_STRING));
    return add_u64(&w->keys, n);
}

assay_status assay_gguf_put_element(assay_gguf_writer *w, const char *text, uint64_t n)
{
    return add_string(&w->keys, text, n);
}

assay_status assay_gguf_put_key(assay_gguf_writer *w, const assay_gguf_key *key)
{
    uint64_t n;
    ASSAY_BUG_IF(key->type == ASSAY_GGUF_ARRAY && key->element == ASSAY_GGUF_STRING);
    if (key->type == ASSAY_GGUF_ARRAY)
        return assay_gguf_put_array(w, key->name, key->element, key->count, key->value);
    if (key->type != ASSAY_GGUF_STRING)
        return put(w, key->name, key->type, key->value, element_bytes(key->type));
    memcpy(&n, key->value, sizeof n);
    ASSAY_TRY(put(w, key->name, ASSAY_GGUF_STRING, NULL, 0));
    return add_string(&w->keys, (const char *)key->value + sizeof n, n);
}

assay_status assay_gguf_put_tensor(assay_gguf_writer *w, const char *name, int type, int n_dims,
                                   const int64_t *ne)
{
    const assay_quant *quant = assay_quant_find(type);
    ASSAY_BUG_IF(n_dims < 0 || n_dims > 4);
    if (!quant)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor '%s': type %d is not known", name, type);
    tensor t = {.type = type, .n_dims = n_dims, .ne = {1, 1, 1, 1}};
    for (int d = 0; d < n_dims; d++) {
        if (ne[d] < 1)
            return assay_fail(ASSAY_BAD_SHAPE, "tensor '%s': dimension %d is %lld", name, d,
                              (long long)ne[d]);
        t.ne[d] = ne[d];
    }
    if (t.ne[0] % quant->block_elements)
        return assay_fail(ASSAY_BAD_SHAPE, "tensor '%s': rows of %lld are no multiple of %d (%s)",
                          name, (long long)t.ne[0], quant->block_elements, quant->name);
    t.n_bytes =
        (uint64_t)assay_quant_bytes(quant, t.ne[0]) * (uint64_t)(t.ne[1] * t.ne[2] * t.ne[3]);
    if (w->n_tensors == w->room) {
        int64_t room = 2 * w->room + 64;
        tensor *wider = reallocarray(w->tensors, (size_t)room, sizeof *wider);
        if (!wider)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for %lld tensors", (long long)room);
        w->tensors = wider;
        w->room = room;
    }
    t.name = strdup(name);
    if (!t.name)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the name '%s'", name);
    w->tensors[w->n_tensors++] = t;
    return ASSAY_OK;
}

static uint64_t padded(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Gives every tensor its file: in order, each file about the same number of bytes and at least one
 * tensor. */
static void deal(assay_gguf_writer *w, int n_files)
{
    uint64_t total = 0, before = 0;
    int file = 0;
    for (int64_t i = 0; i < w->n_tensors; i++)
        total += padded(w->tensors[i].n_bytes);
    for (int64_t i = 0; i < w->n_tensors; i++) {
        int64_t left = w->n_tensors - i;
        bool is_new = i > 0 && w->tensors[i - 1].file == file;
        uint64_t share = total / (uint64_t)n_files * (uint64_t)(file + 1);
        if (is_new && file + 1 < n_files && (before >= share || left <= n_files - 1 - file))
            file++;
        w->tensors[i].file = file;
        before += padded(w->tensors[i].n_bytes);
    }
}

static assay_status add_record(bytes *b, const tensor *t)
{
    ASSAY_TRY(add_string(b, t->name, strlen(t->name)));
    ASSAY_TRY(add_u32(b, (uint32_t)t->n_dims));
    ASSAY_TRY(add(b, t->ne, (uint64_t)t->n_dims * sizeof *t->ne));
    ASSAY_TRY(add_u32(b, (uint32_t)t->type));
    return add_u64(b, t->offset);
}

static assay_status add_split_keys(bytes *b, const assay_gguf_writer *w, int file)
{
    uint16_t no = (uint16_t)file, count = (uint16_t)w->n_outputs;
    int32_t tensors = (int32_t)w->n_tensors;
    ASSAY_TRY(add_scalar(b, "split.no", ASSAY_GGUF_U16, &no, sizeof no));
    ASSAY_TRY(add_scalar(b, "split.count", ASSAY_GGUF_U16, &count, sizeof count));
    return add_scalar(b, "split.tensors.count", ASSAY_GGUF_I32, &tensors, sizeof tensors);
}

/* The header of one file up to its data section; *data: size of that section. */
static assay_status make_header(bytes *b, uint64_t *data, assay_gguf_writer *w, int file)
{
    uint64_t n_tensors = 0, offset = 0;
    uint64_t n_keys = (file == 0 ? w->n_keys : 0) + (w->n_outputs > 1 ? 3 : 0);
    for (int64_t i = 0; i < w->n_tensors; i++)
        n_tensors += w->tensors[i].file == file;
    ASSAY_TRY(add(b, "GGUF", 4));
    ASSAY_TRY(add_u32(b, VERSION));
    ASSAY_TRY(add_u64(b, n_tensors));
    ASSAY_TRY(add_u64(b, n_keys));
    if (file == 0)
        ASSAY_TRY(add(b, w->keys.p, w->keys.n));
    if (w->n_outputs > 1)
        ASSAY_TRY(add_split_keys(b, w, file));
    for (int64_t i = 0; i < w->n_tensors; i++) {
        tensor *t = &w->tensors[i];
        if (t->file != file)
            continue;
        t->offset = offset;
        offset += padded(t->n_bytes);
        ASSAY_TRY(add_record(b, t));
    }
    while (n_tensors > 0 && b->n % ALIGNMENT)
        ASSAY_TRY(add(b, "", 1));
    for (int64_t i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].file == file)
            w->tensors[i].offset += b->n;
    *data = offset;
    return ASSAY_OK;
}

static assay_status write_at(const output *o, uint64_t at, const void *p, uint64_t n)
{
    const uint8_t *from = p;
    while (n > 0) {
        ssize_t done = pwrite(o->fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return assay_fail(ASSAY_IO, "cannot write '%s' at byte %llu: %s", o->path,
                              (unsigned long long)at, done < 0 ? strerror(errno) : "disk full");
        from += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return ASSAY_OK;
}

static assay_status start_file(assay_gguf_writer *w, int file)
{
    output *o = &w->outputs[file];
    bytes header = {0};
    uint64_t data = 0;
    assay_status s;
    ASSAY_GO(make_header(&header, &data, w, file));
    o->n_bytes = header.n + data;
    o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0 || ftruncate(o->fd, (off_t)o->n_bytes) != 0) {
        s = assay_fail(ASSAY_IO, "cannot make '%s' of %llu bytes: %s", o->path,
                       (unsigned long long)o->n_bytes, strerror(errno));
        goto out;
    }
    s = write_at(o, 0, header.p, header.n);
out:
    free(header.p);
    return s;
}

static assay_status name_files(assay_gguf_writer *w, const char *path)
{
    size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
        n -= 5;
    for (int f = 0; f < w->n_outputs; f++) {
        output *o = &w->outputs[f];
        o->fd = -1;
        int made = w->n_outputs == 1 ? asprintf(&o->path, "%s", path)
                                     : asprintf(&o->path, "%.*s-%05d-of-%05d.gguf", (int)n, path,
                                                f + 1, w->n_outputs);
        if (made < 0)
            o->path = NULL;
        else if (asprintf(&o->temporary, "%s.partial", o->path) < 0)
            o->temporary = NULL;
        if (!o->path || !o->temporary)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    }
    return ASSAY_OK;
}

assay_status assay_gguf_writer_start(assay_gguf_writer *w, const char *path, int n_files)
{
    if (n_files < 1 || n_files > 65535 || (n_files > 1 && n_files > w->n_tensors))
        return assay_fail(ASSAY_USAGE, "%d files for %lld tensors, expected 1 ... %lld", n_files,
                          (long long)w->n_tensors, (long long)w->n_tensors);
    ASSAY_TRY(assay_alloc(&w->outputs, (size_t)n_files, sizeof *w->outputs, "files of a set"));
    w->n_outputs = n_files;
    for (int f = 0; f < n_files; f++)
        w->outputs[f].fd = -1;
    ASSAY_TRY(name_files(w, path));
    deal(w, n_files);
    for (int f = 0; f < n_files; f++)
        ASSAY_TRY(start_file(w, f));
    return ASSAY_OK;
}

const char *assay_gguf_writer_path(const assay_gguf_writer *w)
{
    ASSAY_BUG_IF(w->n_outputs == 0);
    return w->outputs[0].path;
}

uint64_t assay_gguf_writer_bytes(const assay_gguf_writer *w)
{
    uint64_t n = 0;
    for (int f = 0; f < w->n_outputs; f++)
        n += w->outputs[f].n_bytes;
    return n;
}

uint64_t assay_gguf_writer_tensor_bytes(const assay_gguf_writer *w, int64_t t)
{
    ASSAY_BUG_IF(t < 0 || t >= w->n_tensors);
    return w->tensors[t].n_bytes;
}

assay_status assay_gguf_writer_data(assay_gguf_writer *w, int64_t index, uint64_t at, const void *p,
                                    uint64_t n)
{
    ASSAY_BUG_IF(index < 0 || index >= w->n_tensors || w->n_outputs == 0);
    const tensor *t = &w->tensors[index];
    ASSAY_BUG_IF(at > t->n_bytes || n > t->n_bytes - at);
    return write_at(&w->outputs[t->file], t->offset + at, p, n);
}

assay_status assay_gguf_writer_new(assay_gguf_writer **out)
{
    return assay_alloc(out, 1, sizeof **out, "GGUF writer");
}

void assay_gguf_writer_free(assay_gguf_writer *w)
{
    if (!w)
        return;
    for (int f = 0; f < w->n_outputs; f++) {
        if (w->outputs[f].fd >= 0) {
            close(w->outputs[f].fd);
            unlink(w->outputs[f].temporary);
        }
        free(w->outputs[f].temporary);
        free(w->outputs[f].path);
    }
    for (int64_t i = 0; i < w->n_tensors; i++)
        free(w->tensors[i].name);
    free(w->outputs);
    free(w->tensors);
    free(w->keys.p);
    free(w);
}

/* A set is named from its end: whoever finds the first file finds all of them. */
assay_status assay_gguf_writer_close(assay_gguf_writer *w)
{
    assay_status s = ASSAY_OK;
    for (int f = w->n_outputs - 1; f >= 0 && s == ASSAY_OK; f--) {
        output *o = &w->outputs[f];
        if (o->fd < 0)
            continue;
        s = assay_publish(o->temporary, o->path);
        if (close(o->fd) != 0 && s == ASSAY_OK)
            s = assay_fail(ASSAY_IO, "cannot close '%s': %s", o->path, strerror(errno));
        o->fd = -1;
    }
    assay_gguf_writer_free(w);
    return s;
}
