/*
 * Tensor records of one GGUF file, and the place of their data.
 */
#include <string.h>

#include "engine/gguf_cursor.h"
#include "engine/quant.h"

#define TENSOR_NAME_MAX 63

static assay_status read_dims(assay_gguf_tensor_info *t, gguf_cursor *c)
{
    uint32_t n_dims = 0;
    uint64_t at = c->at;
    ASSAY_TRY(gguf_take_u32(&n_dims, c, "dimension count"));
    if (n_dims > 4)
        return gguf_refuse(c->file, GGUF_RULE_DIM_COUNT, at,
                           "tensor '%s' has %u dimensions, expected at most 4", t->name, n_dims);
    t->n_dims = (int)n_dims;
    int64_t elements = 1;
    for (int d = 0; d < 4; d++) {
        uint64_t n = 1;
        at = c->at;
        if (d < t->n_dims)
            ASSAY_TRY(gguf_take_u64(&n, c, "a dimension"));
        t->ne[d] = (int64_t)n;
        if (t->ne[d] < 0)
            return gguf_refuse(c->file, GGUF_RULE_DIM_NEGATIVE, at,
                               "tensor '%s' has dimension %d = %lld, expected at least 1", t->name,
                               d, (long long)t->ne[d]);
        if (t->ne[d] == 0)
            return gguf_refuse(c->file, GGUF_RULE_DIM_ZERO, at,
                               "tensor '%s' has dimension %d = 0, expected at least 1", t->name, d);
        if (d > 0 && INT64_MAX / t->ne[d] <= elements)
            return gguf_refuse(c->file, GGUF_RULE_ELEMENT_COUNT, at,
                               "tensor '%s' has %lld x %lld elements up to dimension %d, expected "
                               "less than 2^63",
                               t->name, (long long)elements, (long long)t->ne[d], d);
        elements *= t->ne[d];
    }
    return ASSAY_OK;
}

static assay_status read_type(assay_gguf_tensor_info *t, gguf_cursor *c)
{
    uint32_t type = 0;
    uint64_t at = c->at;
    ASSAY_TRY(gguf_take_u32(&type, c, "type"));
    t->type = (int)(int32_t)type;
    const assay_quant *quant = assay_quant_find(t->type);
    if (!quant)
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_TYPE, at,
                           "tensor '%s' has type %d, expected 0 ... 42 without the removed 4, 5, "
                           "31 ... 33 and 36 ... 38",
                           t->name, t->type);
    if (t->ne[0] % quant->block_elements != 0)
        return gguf_refuse(c->file, GGUF_RULE_BLOCK_CUT, at,
                           "tensor '%s' has rows of %lld elements, expected a multiple of %d (%s)",
                           t->name, (long long)t->ne[0], quant->block_elements, quant->name);
    uint64_t blocks = (uint64_t)(t->ne[0] / quant->block_elements) * (uint64_t)t->ne[1] *
                      (uint64_t)t->ne[2] * (uint64_t)t->ne[3];
    if (__builtin_mul_overflow(blocks, (uint64_t)quant->block_bytes, &t->n_bytes))
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_BYTES, at,
                           "tensor '%s' has %llu blocks of %d bytes, expected less than 2^64 bytes",
                           t->name, (unsigned long long)blocks, quant->block_bytes);
    return ASSAY_OK;
}

/* Reads the record of one tensor; *sum is the running sum of padded sizes, which its offset has to
 * be. */
static assay_status read_tensor(assay_gguf_tensor_info *t, gguf_cursor *c, uint64_t *sum)
{
    ASSAY_TRY(read_dims(t, c));
    ASSAY_TRY(read_type(t, c));
    uint64_t at = c->at;
    ASSAY_TRY(gguf_take_u64(&t->offset, c, "offset"));
    if (t->offset != *sum)
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_OFFSET, at,
                           "tensor '%s' has offset %llu, expected %llu", t->name,
                           (unsigned long long)t->offset, (unsigned long long)*sum);
    uint64_t align = c->file->alignment, end, padded;
    bool over = __builtin_add_overflow(*sum, t->n_bytes, &end) ||
                __builtin_add_overflow(end, align - 1, &padded);
    if (over)
        return gguf_refuse(c->file, GGUF_RULE_DATA_BYTES, at,
                           "tensor '%s' of %llu bytes at offset %llu, expected an end below 2^64",
                           t->name, (unsigned long long)t->n_bytes, (unsigned long long)*sum);
    *sum = padded & ~(align - 1);
    return ASSAY_OK;
}

assay_status gguf_read_tensors(gguf_file *file, gguf_cursor *c, int64_t n, int index)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        gguf_owner(c, "tensor %lld of %lld", (long long)i, (long long)n);
        uint64_t at = c->at;
        assay_gguf_string name = {0};
        ASSAY_TRY(gguf_take_string(&name, c, "name"));
        if (name.n > TENSOR_NAME_MAX || memchr(name.bytes, '\0', (size_t)name.n))
            return gguf_refuse(file, GGUF_RULE_TENSOR_NAME, at,
                               "%s has a name of %llu bytes%s, expected at most %d and no NUL",
                               c->owner, (unsigned long long)name.n,
                               name.n > TENSOR_NAME_MAX ? "" : " with a NUL", TENSOR_NAME_MAX);
        ASSAY_TRY(gguf_grow(&file->tensors, i, sizeof *file->tensors));
        assay_gguf_tensor_info *t = &file->tensors[i];
        ASSAY_TRY(gguf_copy_name(&t->name, name));
        t->file = index;
        file->n_tensors = i + 1;
        gguf_owner(c, "tensor '%s'", t->name);
        ASSAY_TRY(read_tensor(t, c, &sum));
    }
    return ASSAY_OK;
}

/* Turns offsets in the data section into addresses, which have to lie inside the file. */
assay_status gguf_place_data(gguf_file *file, const gguf_cursor *c)
{
    file->data_start = c->at;
    if (file->n_tensors == 0)
        return ASSAY_OK;
    uint64_t align = file->alignment;
    file->data_start = (c->at + align - 1) & ~(align - 1); /* both far below 2^63 */
    if (file->data_start > file->n_bytes)
        return gguf_refuse(
            file, GGUF_RULE_DATA_START, c->at,
            "the data section starts at %llu, expected at most %llu, the file's size",
            (unsigned long long)file->data_start, (unsigned long long)file->n_bytes);
    uint64_t room = file->n_bytes - file->data_start;
    for (int64_t i = 0; i < file->n_tensors; i++) {
        assay_gguf_tensor_info *t = &file->tensors[i];
        if (t->offset > room || t->n_bytes > room - t->offset)
            return gguf_refuse(
                file, GGUF_RULE_DATA_END, file->data_start,
                "tensor '%s' has %llu bytes at offset %llu of the data section, expected an end "
                "of at most %llu",
                t->name, (unsigned long long)t->n_bytes, (unsigned long long)t->offset,
                (unsigned long long)room);
        t->offset += file->data_start;
        t->data = file->bytes + t->offset;
    }
    return ASSAY_OK;
}
