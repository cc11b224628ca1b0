#include "forge_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf.h"

/* Tensors of the healthy file: small, of several types and ranks, ends of odd length. */
static const struct {
    const char *name;
    int type;
    int n_dims;
    int64_t ne[4];
    size_t bytes;
} tensors[] = {
    {"blk.0.a", 0, 1, {5, 1, 1, 1}, 20},     /* f32 */
    {"blk.0.b", 8, 2, {64, 2, 1, 1}, 136},   /* q8_0 */
    {"blk.0.c", 1, 4, {3, 2, 2, 2}, 48},     /* f16 */
    {"blk.1.a", 12, 2, {256, 1, 1, 1}, 144}, /* q4_k */
    {"blk.1.b", 30, 3, {2, 3, 5, 1}, 60},    /* bf16 */
    {"blk.1.c", 0, 0, {1, 1, 1, 1}, 4},      /* one element without dimensions */
};
#define N_TENSORS ((int)(sizeof tensors / sizeof *tensors))

int forge_gguf_n_tensors(void)
{
    return N_TENSORS;
}

const char *forge_gguf_tensor_name(int index)
{
    return tensors[index].name;
}

static void put(forge_file *f, const void *bytes, size_t n)
{
    if (f->n + n > f->room) {
        f->room = 2 * (f->n + n) + 1024;
        f->bytes = realloc(f->bytes, f->room);
        if (!f->bytes)
            abort();
    }
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void put_u32(forge_file *f, uint32_t x)
{
    put(f, &x, sizeof x);
}

static void put_u64(forge_file *f, uint64_t x)
{
    put(f, &x, sizeof x);
}

static void mark(forge_file *f, const char *owner, const char *field)
{
    if (f->n_marks == (int)(sizeof f->marks / sizeof *f->marks))
        abort();
    forge_mark *m = &f->marks[f->n_marks++];
    snprintf(m->name, sizeof m->name, "%s%s", owner, field);
    m->at = f->n;
}

static void put_string(forge_file *f, const char *text)
{
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

static void put_name(forge_file *f, const char *name)
{
    mark(f, name, ":name.n");
    put_u64(f, strlen(name));
    mark(f, name, ":name");
    put(f, name, strlen(name));
    f->n--;
    mark(f, name, ":name.last");
    f->n++;
}

static uint64_t n_keys; /* written into the head at the end */

static void key_head(forge_file *f, const char *name, assay_gguf_type type)
{
    n_keys++;
    put_name(f, name);
    mark(f, name, ":type");
    put_u32(f, (uint32_t)type);
}

static void scalar(forge_file *f, const char *name, assay_gguf_type type, const void *value,
                   size_t n)
{
    key_head(f, name, type);
    mark(f, name, ":value");
    put(f, value, n);
}

static void array(forge_file *f, const char *name, assay_gguf_type element, uint64_t count,
                  const void *values, size_t n)
{
    key_head(f, name, ASSAY_GGUF_ARRAY);
    mark(f, name, ":element");
    put_u32(f, (uint32_t)element);
    mark(f, name, ":count");
    put_u64(f, count);
    mark(f, name, ":value");
    put(f, values, n);
}

static void put_keys(forge_file *f, const forge_options *o)
{
    static const uint8_t bytes[8] = {0, 0, 0x80, 0x3f,
                                     0, 0, 0xf0, 0x3f}; /* 1.0f at 0, 1.0 as f64 */
    static const uint32_t heads[3] = {8, 8, 4};
    key_head(f, "general.architecture", ASSAY_GGUF_STRING);
    mark(f, "general.architecture", ":value");
    put_string(f, "deepseek2");
    if (o->alignment)
        scalar(f, "general.alignment", ASSAY_GGUF_U32, &o->alignment, 4);
    scalar(f, "t.u8", ASSAY_GGUF_U8, bytes, 1);
    scalar(f, "t.i8", ASSAY_GGUF_I8, bytes, 1);
    scalar(f, "t.u16", ASSAY_GGUF_U16, bytes, 2);
    scalar(f, "t.i16", ASSAY_GGUF_I16, bytes, 2);
    scalar(f, "t.u32", ASSAY_GGUF_U32, heads, 4);
    scalar(f, "t.i32", ASSAY_GGUF_I32, heads, 4);
    scalar(f, "t.f32", ASSAY_GGUF_F32, bytes, 4);
    scalar(f, "t.bool", ASSAY_GGUF_BOOL, &bytes[2], 1); /* 0x80: anything but zero is true */
    scalar(f, "t.u64", ASSAY_GGUF_U64, bytes, 8);
    scalar(f, "t.i64", ASSAY_GGUF_I64, bytes, 8);
    scalar(f, "t.f64", ASSAY_GGUF_F64, bytes, 8);
    array(f, "t.heads", ASSAY_GGUF_U32, 3, heads, sizeof heads);
    array(f, "t.flags", ASSAY_GGUF_BOOL, 5, bytes, 5);
    array(f, "t.wide", ASSAY_GGUF_F64, 1, bytes, 8);
    array(f, "t.empty", ASSAY_GGUF_U64, 0, bytes, 0);
    array(f, "t.words", ASSAY_GGUF_STRING, 3, bytes, 0);
    put_string(f, "one");
    mark(f, "t.words", ":string.n");
    put_string(f, "");
    put_string(f, "three");
    if (o->split_count > 0) {
        uint16_t no = (uint16_t)o->split_no, count = (uint16_t)o->split_count;
        scalar(f, "split.no", ASSAY_GGUF_U16, &no, 2);
        scalar(f, "split.count", ASSAY_GGUF_U16, &count, 2);
    }
    if (o->split_tensors > 0) {
        int32_t n = o->split_tensors;
        scalar(f, "split.tensors.count", ASSAY_GGUF_I32, &n, 4);
    }
}

static void put_record(forge_file *f, int t, uint64_t offset)
{
    const char *name = tensors[t].name;
    put_name(f, name);
    mark(f, name, ":n_dims");
    put_u32(f, (uint32_t)tensors[t].n_dims);
    for (int d = 0; d < tensors[t].n_dims; d++) {
        char field[16];
        snprintf(field, sizeof field, ":ne%d", d);
        mark(f, name, field);
        put_u64(f, (uint64_t)tensors[t].ne[d]);
    }
    mark(f, name, ":type");
    put_u32(f, (uint32_t)tensors[t].type);
    mark(f, name, ":offset");
    put_u64(f, offset);
}

static void pad(forge_file *f, size_t alignment)
{
    while (f->n % alignment != 0)
        put(f, "", 1);
}

/* Byte i of tensor t: never constant, and the f16 scales stay finite. */
static void put_data(forge_file *f, int t)
{
    mark(f, tensors[t].name, ":data");
    for (size_t i = 0; i < tensors[t].bytes; i++) {
        uint8_t x = (uint8_t)((i * 31 + (size_t)t * 7 + 3) % 61);
        put(f, &x, 1);
    }
}

void forge_gguf_build(forge_file *out, const forge_options *o)
{
    memset(out, 0, sizeof *out);
    int count = o->count == 0 ? N_TENSORS : o->count < 0 ? 0 : o->count;
    size_t alignment = o->alignment ? o->alignment : 32;
    mark(out, "magic", "");
    put(out, "GGUF", 4);
    mark(out, "version", "");
    put_u32(out, o->version ? o->version : 3);
    mark(out, "n_tensors", "");
    put_u64(out, (uint64_t)count);
    mark(out, "n_keys", "");
    put_u64(out, 0);
    n_keys = 0;
    if (!o->no_keys)
        put_keys(out, o);
    memcpy(out->bytes + forge_gguf_mark(out, "n_keys"), &n_keys, sizeof n_keys);
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        int t = o->first + (o->reversed ? count - 1 - i : i);
        put_record(out, t, offset);
        offset += (tensors[t].bytes + alignment - 1) / alignment * alignment;
    }
    mark(out, "header.end", "");
    if (count > 0)
        pad(out, alignment);
    mark(out, "data.start", "");
    for (int i = 0; i < count; i++) {
        put_data(out, o->first + (o->reversed ? count - 1 - i : i));
        if (i + 1 < count || !o->no_tail)
            pad(out, alignment);
    }
    mark(out, "end", "");
}

void forge_gguf_free(forge_file *file)
{
    free(file->bytes);
    file->bytes = NULL;
}

size_t forge_gguf_mark(const forge_file *file, const char *name)
{
    for (int i = 0; i < file->n_marks; i++)
        if (strcmp(file->marks[i].name, name) == 0)
            return file->marks[i].at;
    fprintf(stderr, "no mark '%s'\n", name);
    abort();
}

void forge_gguf_write(const forge_file *file, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file->bytes, 1, file->n, f) != file->n || fclose(f) != 0) {
        fprintf(stderr, "cannot write '%s'\n", path);
        abort();
    }
}

#define SET_FILES 3

static void set_path(char *path, size_t room, const char *folder, int index)
{
    snprintf(path, room, "%s/set-%05d-of-%05d.gguf", folder, index + 1, SET_FILES);
}

/* File `index` of the set of three: two tensors each, or none, three and three. */
static void build_of_set(forge_file *out, int index, bool empty_first)
{
    forge_options o = {.split_no = index, .split_count = SET_FILES, .first = 2 * index, .count = 2};
    if (empty_first) {
        o.first = index == 2 ? 3 : 0;
        o.count = index == 0 ? -1 : 3;
    }
    if (index == 0)
        o.split_tensors = N_TENSORS;
    forge_gguf_build(out, &o);
}

void forge_gguf_set(char *path, size_t room, bool empty_first, const char *folder)
{
    for (int i = SET_FILES - 1; i >= 0; i--) {
        forge_file file;
        build_of_set(&file, i, empty_first);
        set_path(path, room, folder, i);
        forge_gguf_write(&file, path);
        forge_gguf_free(&file);
    }
}

/*
 * A file cut inside a record claims the records that begin before the cut, so that the cut itself
 * is what is wrong, and not a count that the shorter file could never hold.
 */
static void cut(forge_file *file, size_t n)
{
    uint64_t begun = 0, claimed[2]; /* tensors, keys */
    file->n = n;
    if (n < 24)
        return;
    for (int i = 0; i < file->n_marks; i++) {
        const char *field = strchr(file->marks[i].name, ':');
        if (field && strcmp(field, ":name.n") == 0 && file->marks[i].at <= n)
            begun++;
    }
    memcpy(claimed, file->bytes + 8, sizeof claimed);
    if (begun < claimed[1])
        claimed[1] = begun;
    if (begun - claimed[1] < claimed[0])
        claimed[0] = begun - claimed[1];
    memcpy(file->bytes + 8, claimed, sizeof claimed);
}

static void spoil(forge_file *file, const forge_damage *d)
{
    size_t at = forge_gguf_mark(file, d->mark);
    if (d->act == FORGE_CUT) {
        cut(file, at + d->value);
        return;
    }
    size_t n = d->act == FORGE_PUT8 ? 1 : d->act == FORGE_PUT16 ? 2 : d->act == FORGE_PUT32 ? 4 : 8;
    if (at + n > file->n)
        abort();
    memcpy(file->bytes + at, &d->value, n); /* little-endian host */
}

static void damage_set(char *path, size_t room, const forge_damage *d, const char *folder)
{
    forge_gguf_set(path, room, false, folder);
    char spoilt[512];
    set_path(spoilt, sizeof spoilt, folder, d->file);
    if (d->act == FORGE_REMOVE) {
        unlink(spoilt);
    } else if (d->act == FORGE_RENAME) {
        char other[512];
        snprintf(other, sizeof other, "%s/%s", folder, d->mark);
        if (rename(spoilt, other) != 0)
            abort();
        if (d->file == 0)
            snprintf(path, room, "%s", other);
    } else {
        forge_file file;
        build_of_set(&file, d->file, false);
        spoil(&file, d);
        forge_gguf_write(&file, spoilt);
        forge_gguf_free(&file);
    }
}

void forge_gguf_damaged(char *path, size_t room, const forge_damage *d, const char *folder)
{
    if (d->file >= 0) {
        damage_set(path, room, d, folder);
        return;
    }
    forge_file file;
    forge_gguf_build(&file, &(forge_options){.alignment = 64});
    spoil(&file, d);
    snprintf(path, room, "%s/single.gguf", folder);
    forge_gguf_write(&file, path);
    forge_gguf_free(&file);
}
