#include "references/safetensors.h"

#include <stdio.h>
#include <sys/stat.h>

#include "data.h"
#include "expect.h"

/* A file with this header (its length in front, or `claimed` when not 0) and n bytes of data. */
static void put_file(const char *path, const char *header, uint64_t claimed, size_t n)
{
    FILE *f = fopen(path, "wb");
    uint64_t length = claimed ? claimed : strlen(header);
    ck_assert_ptr_nonnull(f);
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, strlen(header), f);
    for (size_t i = 0; i < n; i++)
        fputc((int)(i % 60), f);
    ck_assert_int_eq(fclose(f), 0);
}

static void put_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

#define T(dtype, shape, a, b)                                                                      \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" a "," b "]}"

START_TEST(safetensors_opens_a_file_and_decodes_it)
{
    char path[256];
    assay_safetensors *set = NULL;
    float x[6];
    snprintf(path, sizeof path, "%s", data_scratch("a.safetensors"));
    put_file(
        path,
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":" T("BF16", "[2,3]", "0", "12") ",\"b\":" T(
            "F32", "[1]", "12",
            "16") ",\"s\":" T("F16", "[]", "16",
                              "18") ",\"z\":" T("F32", "[0,4]", "18",
                                                "18") ",\"q\":" T("F8_E4M3", "[2]", "18",
                                                                  "20") ",\"i\":" T("I64", "[1]",
                                                                                    "20",
                                                                                    "28") "}  ",
        0, 28);
    EXPECT_OK(assay_safetensors_open(&set, path));
    ck_assert_int_eq(assay_safetensors_n_tensors(set), 6);
    const assay_safetensor *w = assay_safetensors_find(set, "w");
    ck_assert(w && w->n_dims == 2 && w->dims[0] == 2 && w->dims[1] == 3 && w->count == 6);
    EXPECT_OK(assay_safetensors_decode(x, w, 0, 6));
    uint32_t bits;
    memcpy(&bits, &x[5], sizeof bits);
    ck_assert_uint_eq(bits, 0x0b0a0000u);
    EXPECT_OK(assay_safetensors_decode(x, w, 4, 1));
    memcpy(&bits, &x[0], sizeof bits);
    ck_assert_uint_eq(bits, 0x09080000u);
    EXPECT_OK(assay_safetensors_decode(x, assay_safetensors_find(set, "q"), 1, 1));
    ck_assert(x[0] == 0.04296875f); /* 0x13: 1.375 x 2^-5 */
    EXPECT_FAILS(ASSAY_UNSUPPORTED,
                 assay_safetensors_decode(x, assay_safetensors_find(set, "i"), 0, 1));
    ck_assert_ptr_null(assay_safetensors_find(set, "x"));
    assay_safetensors_close(set);
}
END_TEST

static const struct {
    const char *name, *header;
    uint64_t claimed;
    size_t n_data;
    const char *rule, *place;
} damages[] = {
    {"empty_header", "", 0, 0, "header-size", "0 bytes"},
    {"header_past_end", "{}", 100, 0, "header-size", "100 bytes"},
    {"header_2_64", "{}", UINT64_MAX, 8, "header-size", "18446744073709551615"},
    {"header_of_1", "{}", 1, 0, "header-size", "1 bytes"},
    {"no_json", "{\"a\":", 0, 0, "json", "column"},
    {"json_list", "[1, 2]", 0, 0, "json", "no JSON object"},
    {"bytes_behind_json", "{} x", 0, 0, "json", "column"},
    {"name_twice", "{\"a\":" T("U8", "[1]", "0", "1") ",\"a\":" T("U8", "[1]", "0", "1") "}", 0, 1,
     "json", "duplicate"},
    {"entry_is_number", "{\"a\":1}", 0, 0, "entry", "'a' is no object"},
    {"no_dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, "entry", "dtype"},
    {"dtype_number", "{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, "entry",
     "dtype"},
    {"no_shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, 4, "entry", "shape"},
    {"no_offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4, "entry", "data_offsets"},
    {"one_offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 0, 4, "entry",
     "data_offsets"},
    {"real_offset", "{\"a\":" T("F32", "[1]", "0.0", "4") "}", 0, 4, "entry", "data_offsets"},
    {"unknown_dtype", "{\"a\":" T("F4", "[1]", "0", "4") "}", 0, 4, "dtype", "'F4'"},
    {"negative_dim", "{\"a\":" T("F32", "[-1]", "0", "4") "}", 0, 4, "shape", "-1"},
    {"text_dim", "{\"a\":" T("F32", "[\"1\"]", "0", "4") "}", 0, 4, "shape", "'a'"},
    {"nine_dims", "{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 0, 4, "shape",
     "9 dimensions"},
    {"product_overflows", "{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 0, 4,
     "shape", "dimension 1"},
    {"bytes_overflow", "{\"a\":" T("F64", "[4611686018427387904]", "0", "0") "}", 0, 0, "size",
     "'a'"},
    {"end_before_begin", "{\"a\":" T("F32", "[1]", "4", "0") "}", 0, 4, "offsets", "4 ... 0"},
    {"negative_begin", "{\"a\":" T("F32", "[1]", "-4", "0") "}", 0, 4, "offsets", "-4"},
    {"end_past_file", "{\"a\":" T("F32", "[1]", "0", "4") "}", 0, 3, "offsets", "0 ... 3"},
    {"size_too_small", "{\"a\":" T("F32", "[2]", "0", "4") "}", 0, 4, "size", "4 bytes"},
    {"size_too_large", "{\"a\":" T("F32", "[1]", "0", "8") "}", 0, 8, "size", "8 bytes"},
    {"overlap", "{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[1]", "4", "8") "}", 0, 8,
     "overlap", "'b' overlap"},
    {"same_place", "{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", 0,
     4, "overlap", "4 bytes"},
    {"gap", "{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", 0, 12,
     "gap", "between 'a' and 'b'"},
    {"gap_in_front", "{\"a\":" T("F32", "[1]", "4", "8") "}", 0, 8, "gap", "the header"},
    {"bytes_behind_data", "{\"a\":" T("F32", "[1]", "0", "4") "}", 0, 5, "gap", "1 bytes behind"},
};

START_TEST(safetensors_refuses_every_kind_of_damage_by_rule_and_place)
{
    char path[256], rule[64];
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        assay_safetensors *set = NULL;
        snprintf(path, sizeof path, "%s", data_scratch("bad.safetensors"));
        put_file(path, damages[i].header, damages[i].claimed, damages[i].n_data);
        snprintf(rule, sizeof rule, "rule '%s'", damages[i].rule);
        assay_status s = assay_safetensors_open(&set, path);
        ck_assert_msg(s == ASSAY_BAD_FILE, "%s: status %d", damages[i].name, (int)s);
        ck_assert_msg(strstr(assay_error_text(), rule) &&
                          strstr(assay_error_text(), damages[i].place),
                      "%s: '%s' lacks %s or '%s'", damages[i].name, assay_error_text(), rule,
                      damages[i].place);
    }
}
END_TEST

START_TEST(safetensors_refuses_a_file_cut_at_any_byte)
{
    const char *header =
        "{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F16", "[2]", "8", "12") "}";
    char path[256];
    snprintf(path, sizeof path, "%s", data_scratch("cut.safetensors"));
    put_file(path, header, 0, 12);
    FILE *f = fopen(path, "rb");
    static char bytes[512];
    size_t whole = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t n = 0; n <= whole; n++) {
        assay_safetensors *set = NULL;
        f = fopen(path, "wb");
        fwrite(bytes, 1, n, f);
        fclose(f);
        assay_status s = assay_safetensors_open(&set, path);
        ck_assert_msg(s == (n < whole ? ASSAY_BAD_FILE : ASSAY_OK), "cut at %zu: status %d", n,
                      (int)s);
        assay_safetensors_close(set);
    }
}
END_TEST

/* A folder with two shards and this index. */
static void put_shards(char folder[256], const char *index)
{
    char path[512];
    snprintf(folder, 256, "%s", data_scratch("shards"));
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/one.safetensors", folder);
    put_file(path, "{\"a\":" T("F32", "[1]", "0", "4") "}", 0, 4);
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    put_file(path, "{\"b\":" T("F32", "[1]", "0", "4") "}", 0, 4);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    put_text(path, index);
}

START_TEST(safetensors_opens_shards_by_their_index)
{
    char folder[256];
    assay_safetensors *set = NULL;
    put_shards(folder, "{\"metadata\":{},\"weight_map\":{\"b\":\"two.safetensors\","
                       "\"a\":\"one.safetensors\"}}");
    EXPECT_OK(assay_safetensors_open(&set, folder));
    ck_assert_int_eq(assay_safetensors_n_files(set), 2);
    ck_assert_int_eq(assay_safetensors_n_tensors(set), 2);
    const assay_safetensor *b = assay_safetensors_find(set, "b");
    ck_assert(b && strstr(assay_safetensors_file_path(set, b->file), "two.safetensors"));
    ck_assert_str_eq(assay_safetensors_at(set, 0)->name, "a");
    assay_safetensors_close(set);
}
END_TEST

START_TEST(safetensors_refuses_a_wrong_index)
{
    static const struct {
        const char *index, *rule, *place;
    } rows[] = {
        {"{\"weight_map\":", "index", "column"},
        {"[]", "index", "weight_map"},
        {"{\"weight_map\":{}}", "index", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "index", "'a'"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", "index", "dup"},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}", "index-path", "'../one.safetensors'"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "index-path", "/etc/passwd"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "index-path", "'..'"},
        {"{\"weight_map\":{\"a\":\"three.safetensors\"}}", "index-file", "three.safetensors"},
        {"{\"weight_map\":{\"a\":\"two.safetensors\"}}", "index-tensor", "'a' is not in 'two"},
        {"{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", "index-tensor",
         "is not in"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char folder[256], rule[64];
        assay_safetensors *set = NULL;
        put_shards(folder, rows[i].index);
        snprintf(rule, sizeof rule, "rule '%s'", rows[i].rule);
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_safetensors_open(&set, folder));
        EXPECT_SAYS(rule);
        EXPECT_SAYS(rows[i].place);
    }
}
END_TEST

START_TEST(safetensors_refuses_a_tensor_in_two_shards)
{
    char folder[256], path[512];
    assay_safetensors *set = NULL;
    put_shards(folder, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    put_file(path, "{\"b\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}", 0,
             8);
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_safetensors_open(&set, folder));
    EXPECT_SAYS("rule 'duplicate'");
    EXPECT_FAILS(ASSAY_IO, assay_safetensors_open(&set, data_scratch("absent")));
    mkdir(data_scratch("empty"), 0700);
    EXPECT_FAILS(ASSAY_MISSING, assay_safetensors_open(&set, data_scratch("empty")));
    EXPECT_SAYS("model.safetensors.index.json");
}
END_TEST

EXPECT_MAIN("safetensors", safetensors_opens_a_file_and_decodes_it,
            safetensors_refuses_every_kind_of_damage_by_rule_and_place,
            safetensors_refuses_a_file_cut_at_any_byte, safetensors_opens_shards_by_their_index,
            safetensors_refuses_a_wrong_index, safetensors_refuses_a_tensor_in_two_shards)
