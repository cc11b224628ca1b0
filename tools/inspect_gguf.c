#include <stdio.h>
#include <string.h>

#include "engine/quant.h"
#include "tools/inspect.h"

#define SHOWN_ELEMENTS 8 /* of an array */
#define SHOWN_BYTES 100  /* of a string */

static const char *const type_names[ASSAY_GGUF_TYPE_COUNT] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

static const size_t type_bytes[ASSAY_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static json_t *number(assay_gguf_type type, const unsigned char *p)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } v;
    memcpy(&v, p, type_bytes[type]);
    switch (type) {
    case ASSAY_GGUF_U8:
        return json_integer(v.u8);
    case ASSAY_GGUF_I8:
        return json_integer(v.i8);
    case ASSAY_GGUF_U16:
        return json_integer(v.u16);
    case ASSAY_GGUF_I16:
        return json_integer(v.i16);
    case ASSAY_GGUF_U32:
        return json_integer(v.u32);
    case ASSAY_GGUF_I32:
        return json_integer(v.i32);
    case ASSAY_GGUF_U64:
        return json_integer((json_int_t)v.u64);
    case ASSAY_GGUF_I64:
        return json_integer(v.i64);
    case ASSAY_GGUF_BOOL:
        return json_boolean(v.u8 != 0);
    case ASSAY_GGUF_F32:
        return json_real(v.f32); /* NULL: not finite */
    default:
        return json_real(v.f64);
    }
}

static json_t *text(assay_gguf_string s)
{
    size_t n = s.n < SHOWN_BYTES ? (size_t)s.n : SHOWN_BYTES;
    for (size_t cut = 0; cut < 4 && cut <= n; cut++) { /* not through a UTF-8 sequence */
        json_t *value = json_stringn(s.bytes, n - cut);
        if (value)
            return value;
    }
    return json_string("(not UTF-8)");
}

static json_t *value_of(const assay_gguf *file, const assay_gguf_key *key)
{
    const unsigned char *p = key->value;
    assay_gguf_string s;
    if (key->type == ASSAY_GGUF_STRING)
        return assay_gguf_str(&s, file, key->name) == ASSAY_OK ? text(s) : json_null();
    if (key->type != ASSAY_GGUF_ARRAY)
        return number(key->type, p);
    json_t *list = json_array();
    for (uint64_t i = 0; i < key->count && i < SHOWN_ELEMENTS; i++) {
        json_t *one = NULL;
        if (key->element != ASSAY_GGUF_STRING)
            one = number(key->element, p + i * type_bytes[key->element]);
        else if (assay_gguf_str_at(&s, key, i) == ASSAY_OK)
            one = text(s);
        json_array_append_new(list, one ? one : json_null());
    }
    return list;
}

static json_t *keys_of(const assay_gguf *file)
{
    json_t *keys = json_array();
    for (int64_t i = 0; i < assay_gguf_n_keys(file); i++) {
        const assay_gguf_key *key = assay_gguf_key_at(file, i);
        json_t *value = value_of(file, key);
        json_t *row = json_pack("{s:s, s:s, s:o}", "name", key->name, "type", type_names[key->type],
                                "value", value ? value : json_null());
        if (key->type == ASSAY_GGUF_ARRAY) {
            json_object_set_new(row, "element", json_string(type_names[key->element]));
            json_object_set_new(row, "count", json_integer((json_int_t)key->count));
        }
        json_array_append_new(keys, row);
    }
    return keys;
}

static json_t *tensors_of(const assay_gguf *file)
{
    json_t *tensors = json_array();
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        const assay_quant *quant = assay_quant_find(t->type);
        json_t *ne = json_array();
        for (int d = 0; d < t->n_dims; d++)
            json_array_append_new(ne, json_integer(t->ne[d]));
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:I, s:i, s:I}", "name", t->name,
                                                 "type", quant ? quant->name : "?", "ne", ne,
                                                 "bytes", (json_int_t)t->n_bytes, "file", t->file,
                                                 "offset", (json_int_t)t->offset));
    }
    return tensors;
}

static json_t *types_of(const json_t *tensors)
{
    json_t *types = json_object();
    const json_t *t;
    size_t i;
    json_array_foreach(tensors, i, t)
    {
        const char *name = json_string_value(json_object_get(t, "type"));
        json_t *sum = json_object_get(types, name);
        if (!sum) {
            sum = json_pack("{s:i, s:i}", "tensors", 0, "bytes", 0);
            json_object_set_new(types, name, sum);
        }
        json_integer_set(json_object_get(sum, "tensors"),
                         json_integer_value(json_object_get(sum, "tensors")) + 1);
        json_integer_set(json_object_get(sum, "bytes"),
                         json_integer_value(json_object_get(sum, "bytes")) +
                             json_integer_value(json_object_get(t, "bytes")));
    }
    return types;
}

assay_status assay_inspect_gguf(json_t **out, const char *path)
{
    assay_gguf *file;
    ASSAY_TRY(assay_gguf_open(&file, path));
    json_t *files = json_array(), *tensors = tensors_of(file);
    for (int i = 0; i < assay_gguf_n_files(file); i++)
        json_array_append_new(files,
                              json_pack("{s:s, s:I, s:I}", "path", assay_gguf_file_path(file, i),
                                        "bytes", (json_int_t)assay_gguf_file_bytes(file, i),
                                        "data_start", (json_int_t)assay_gguf_data_start(file, i)));
    *out = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "assay", ASSAY_VERSION, "command",
                     "inspect", "kind", "gguf", "version", (int)assay_gguf_version(file), "files",
                     files, "keys", keys_of(file), "types", types_of(tensors), "tensors", tensors);
    assay_gguf_close(file);
    return *out ? ASSAY_OK : assay_fail(ASSAY_NO_MEMORY, "'%s': no memory to list it", path);
}
