#include "forge_plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, ALIGNMENT = 32 };

static void put(forge_bytes *b, const void *from, size_t n)
{
    if (b->n + n > b->room) {
        b->room = 2 * (b->n + n) + 256;
        b->at = realloc(b->at, b->room);
        if (!b->at)
            abort();
    }
    if (n)
        memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void put_u32(forge_bytes *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(forge_bytes *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_str(forge_bytes *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static void key(forge_plain *m, const char *name, uint32_t type)
{
    put_str(&m->keys, name);
    put_u32(&m->keys, type);
    m->n_keys++;
}

void forge_plain_u32(forge_plain *m, const char *name, uint32_t value)
{
    key(m, name, U32);
    put_u32(&m->keys, value);
}

void forge_plain_f32(forge_plain *m, const char *name, float value)
{
    key(m, name, F32);
    put(&m->keys, &value, sizeof value);
}

void forge_plain_bool(forge_plain *m, const char *name, bool value)
{
    uint8_t byte = value;
    key(m, name, BOOL);
    put(&m->keys, &byte, 1);
}

void forge_plain_str(forge_plain *m, const char *name, const char *value)
{
    key(m, name, STRING);
    put_str(&m->keys, value);
}

void forge_plain_bools(forge_plain *m, const char *name, const bool *values, int n)
{
    key(m, name, ARRAY);
    put_u32(&m->keys, BOOL);
    put_u64(&m->keys, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        uint8_t byte = values[i];
        put(&m->keys, &byte, 1);
    }
}

void forge_plain_tensor(forge_plain *m, const char *name, int n_dims, const int64_t *dims,
                        const float *values)
{
    static const uint8_t zeros[ALIGNMENT];
    float zero = 0;
    int64_t n = 1;
    put_str(&m->infos, name);
    put_u32(&m->infos, (uint32_t)n_dims);
    for (int d = n_dims - 1; d >= 0; d--) {
        put_u64(&m->infos, (uint64_t)dims[d]);
        n *= dims[d];
    }
    put_u32(&m->infos, 0);
    put_u64(&m->infos, m->data.n);
    for (int64_t i = 0; i < n; i++)
        put(&m->data, values ? &values[i] : &zero, sizeof zero);
    put(&m->data, zeros, (ALIGNMENT - m->data.n % ALIGNMENT) % ALIGNMENT);
    m->n_tensors++;
}

void forge_plain_pattern(forge_plain *m, const char *name, int n_dims, const int64_t *dims,
                         int seed, float divisor)
{
    int64_t cols = dims[n_dims - 1], rows = 1;
    for (int d = 0; d < n_dims - 1; d++)
        rows *= dims[d];
    float *values = malloc((size_t)(rows * cols) * sizeof *values);
    if (!values)
        abort();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            values[r * cols + c] = (float)((7 * r + 13 * c + 5 * seed) % 23 - 11) / divisor;
    forge_plain_tensor(m, name, n_dims, dims, values);
    free(values);
}

void forge_plain_clear(forge_plain *m)
{
    free(m->keys.at);
    free(m->infos.at);
    free(m->data.at);
    *m = (forge_plain){0};
}

void forge_plain_write(forge_plain *m, const char *path)
{
    static const uint8_t zeros[ALIGNMENT];
    forge_bytes head = {0};
    put(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, (uint64_t)m->n_tensors);
    put_u64(&head, (uint64_t)m->n_keys);
    put(&head, m->keys.at, m->keys.n);
    put(&head, m->infos.at, m->infos.n);
    put(&head, zeros, (ALIGNMENT - head.n % ALIGNMENT) % ALIGNMENT);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(head.at, 1, head.n, file) != head.n ||
        (m->data.n && fwrite(m->data.at, 1, m->data.n, file) != m->data.n) || fclose(file))
        abort();
    free(head.at);
    forge_plain_clear(m);
}
