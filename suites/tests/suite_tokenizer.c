/*
 * The tokenizer as a whole: ids that llama.cpp gives (literals for the shipped vocabulary, all
 * vectors where the larger data set is at hand), prompts of the references, hostile bytes.
 */
#include "engine/tokenizer.h"

#include <dirent.h>
#include <hdf5.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "data.h"
#include "expect.h"
#include "forge_vocab.h"

#define N_PRE 8
static const char *const pres[N_PRE] = {"glm4",    "deepseek-v3", "deepseek-llm", "deepseek-coder",
                                        "kimi-k2", "llama-bpe",   "qwen2",        "gpt-2"};

static assay_tokenizer *open_tokenizer(const char *path, const char *pre)
{
    assay_gguf *file;
    assay_tokenizer *tokenizer;
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_tokenizer_new(&tokenizer, file, pre));
    assay_gguf_close(file);
    return tokenizer;
}

static assay_tokenizer *shipped(const char *pre)
{
    return open_tokenizer(data_shipped("glm5-tiny-Q4_K_M.gguf"), pre);
}

/* What llama.cpp gives with the shipped vocabulary and another tokenizer.ggml.pre. */
static const struct {
    const char *pre, *text;
    bool parse_special;
    int n;
    int32_t ids[40];
} vectors[] = {
    {"glm4", "\n", false, 1, {208}},
    {"glm4",
     "I'm you're WE'LL they'd don't",
     false,
     16,
     {50, 16, 86, 318, 16, 302, 374, 46, 16, 53, 53, 706, 408, 297, 321, 847}},
    {"glm4",
     "tabs\tand\r\nwindows lines\r\n",
     false,
     17,
     {93, 74, 75, 92, 207, 441, 211, 208, 96, 632, 304, 92, 309, 288, 271, 211, 208}},
    {"glm4",
     "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82\xE4\xBB\x8A\xE5\xA4"
     "\xA9\xE5\xA4\xA9\xE6\xB0\x94\xE5\xBE\x88\xE5\xA5\xBD",
     false,
     36,
     {170, 131, 264, 171, 108, 131, 181, 130, 244, 170, 126, 254, 173, 253, 244, 169, 232, 234,
      170, 129, 242, 171, 107, 112, 171, 107, 112, 172, 118, 252, 171, 132, 240, 171, 108, 131}},
    {"glm4",
     "\xD8\xA7\xD9\x84\xD8\xB9\xD8\xB1\xD8\xA8\xD9\x8A\xD8\xA9 \xD9\xA1\xD9\xA2\xD9\xA3",
     false,
     21,
     {158, 110, 159, 236, 158, 127, 158, 119, 158, 111, 159,
      242, 158, 112, 230, 159, 104, 159, 105, 159, 106}},
    {"glm4", "e\xCC\x81 combining", false, 7, {78, 146, 233, 293, 75, 288, 331}},
    {"glm4",
     "emoji "
     "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 "
     "flags \xF0\x9F\x87\xA9\xF0\x9F\x87\xAA",
     false,
     39,
     {783, 88,  83,  82,  230, 182, 263, 256, 232, 182, 263, 249, 112,
      168, 232, 245, 182, 263, 249, 112, 168, 232, 245, 182, 263, 249,
      110, 896, 891, 92,  230, 182, 263, 239, 112, 182, 263, 239, 113}},
    {"glm4",
     "<|user|>hello<|assistant|>",
     false,
     16,
     {37, 101, 527, 274, 101, 39, 270, 303, 88, 37, 101, 1009, 795, 622, 101, 39}},
    {"glm4", "<|user|>hello<|assistant|>", true, 5, {7, 270, 303, 88, 8}},
    {"glm4",
     "\xC2\xA0non-breaking\xC2\xA0space",
     false,
     15,
     {136, 264, 87, 321, 22, 75, 302, 759, 331, 136, 264, 92, 89, 74, 339}},
    {"glm4",
     "\xEF\xBC\xA6\xEF\xBC\xB5\xEF\xBC\xAC\xEF\xBC\xAC\xEF\xBC\xB7\xEF\xBC\xA9\xEF\xBC\xA4\xEF\xBC"
     "\xB4\xEF\xBC\xA8 \xEF\xBC\x91\xEF\xBC\x92\xEF\xBC\x93",
     false,
     37,
     {181, 130, 109, 181, 130, 123, 181, 130, 115, 181, 130, 115, 181, 130, 125, 181, 130, 112, 181,
      130, 107, 181, 130, 122, 181, 130, 111, 230, 181, 130, 249, 181, 130, 250, 181, 130, 251}},
    {"deepseek-v3", "3.14159 1234567 12 345 0x1F", false, 21, {28,  23,  26,  456, 480, 230, 437,
                                                               28,  458, 31,  32,  230, 437, 230,
                                                               430, 30,  230, 25,  97,  26,  47}},
    {"deepseek-v3",
     "(a+b)*c/d-e^f%g",
     false,
     15,
     {17, 74, 20, 75, 18, 19, 76, 24, 77, 22, 78, 71, 79, 14, 80}},
    {"deepseek-llm", "\n\n\n", false, 3, {208, 208, 208}},
    {"deepseek-llm", "3.14159 1234567 12 345 0x1F", false, 20, {28,  23,  26, 456, 480, 230, 437,
                                                                430, 473, 32, 230, 437, 230, 430,
                                                                30,  230, 25, 97,  26,  47}},
    {"deepseek-coder", "Count from 6 to 10:", false, 9, {289, 285, 230, 31, 275, 230, 26, 25, 35}},
    {"deepseek-coder",
     "mixed\xE4\xB8\xAD\xE6\x96\x87"
     "English\xE6\xB7\xB7\xE6\x8E\x92"
     "123abc",
     false,
     26,
     {86,  82,  97,  317, 170, 126, 265, 172, 254, 239, 46, 684, 85,
      743, 172, 125, 125, 172, 246, 250, 26,  27,  28,  74, 75,  76}},
    {"kimi-k2",
     "mixed\xE4\xB8\xAD\xE6\x96\x87"
     "English\xE6\xB7\xB7\xE6\x8E\x92"
     "123abc",
     false,
     25,
     {86,  82,  97,  317, 170, 126, 265, 172, 254, 239, 46, 684, 85,
      743, 172, 125, 125, 172, 246, 250, 437, 28,  74,  75, 76}},
    {"llama-bpe",
     "x=1;y=2\n\n\n  z",
     false,
     12,
     {97, 38, 26, 36, 98, 38, 27, 370, 208, 230, 230, 99}},
    {"qwen2",
     "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE3\x83\x86\xE3\x82\xAD\xE3\x82\xB9\xE3\x83"
     "\x88 123",
     false,
     28,
     {172, 255, 108, 172, 260, 115, 174, 113, 262, 169, 233, 116, 169, 235,
      238, 169, 234, 265, 169, 234, 127, 169, 235, 240, 230, 26,  27,  28}},
    {"gpt-2", "3.14159 1234567 12 345 0x1F", false, 20, {28,  23,  26, 456, 480, 230, 437,
                                                         430, 473, 32, 230, 437, 230, 430,
                                                         30,  230, 25, 97,  26,  47}},
    {"gpt-2",
     "\t\t\tindent\n\t\tless\n",
     false,
     11,
     {207, 207, 207, 632, 431, 208, 207, 207, 85, 467, 208}},
};

START_TEST(tokenizer_gives_the_ids_of_llama_cpp)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        assay_tokenizer *t = shipped(vectors[i].pre);
        const char *text = vectors[i].text;
        forge_expect_ids(t, text, strlen(text), false, vectors[i].parse_special, vectors[i].ids,
                         vectors[i].n);
        forge_expect_text(t, vectors[i].ids, vectors[i].n, text, strlen(text));
        assay_tokenizer_free(t);
    }
}
END_TEST

START_TEST(tokenizer_tokenizes_the_shipped_prompts_without_a_start_token)
{
    static const char text[] = "Count from 6 to 10:", greedy[] = " 6, 7, 8, 9, 10.\nCount from";
    static const int32_t ids[] = {289, 285, 230, 31, 275, 230, 434, 35};
    static const int32_t greedy_ids[] = {230, 31, 21, 230, 32,  21,  230, 33, 21,
                                         230, 34, 21, 230, 434, 267, 289, 285};
    assay_tokenizer *t = shipped(NULL);
    forge_expect_ids(t, text, sizeof text - 1, true, true, ids, 8);
    forge_expect_text(t, ids, 8, text, sizeof text - 1);
    forge_expect_text(t, greedy_ids, 17, greedy, sizeof greedy - 1);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(tokenizer_knows_where_generation_ends)
{
    assay_tokenizer *t = shipped(NULL);
    int n = 0;
    for (int32_t id = -2; id < 1100; id++)
        n += assay_tokenizer_is_end(t, id);
    /* <|endoftext|>, <|user|> and <|observation|>, each named by a key of the file */
    ck_assert(assay_tokenizer_is_end(t, 0) && assay_tokenizer_is_end(t, 7) &&
              assay_tokenizer_is_end(t, 9));
    ck_assert_int_eq(n, 3);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(tokenizer_puts_the_start_token_where_the_file_asks)
{
    const char *path = data_large("tokenizer/deepseek-llm-vocab.gguf");
    if (!path)
        return;
    assay_tokenizer *t = open_tokenizer(path, NULL);
    const int32_t start = 100000;
    forge_expect_ids(t, "", 0, true, true, &start, 1);
    forge_expect_ids(t, "", 0, false, true, NULL, 0);
    assay_tokenizer_free(t);
}
END_TEST

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

START_TEST(tokenizer_gives_back_any_bytes)
{
    /* Fragments that make special tokens, whitespace and UTF-8 likely, and break them. */
    static const char *const parts[] = {
        "<|user|>",     "<|us",         "[gMASK]",      " ",
        "\n",           "\r\n",         "\xC2\x85",     "\xE3\x80\x80",
        "\xE4\xB8\xAD", "\xF0\x9F\x98", "\xED\xA0\x80", "\xC0\x80",
        "'s",           "12345"};
    uint32_t state = 2463534242u;
    for (int p = 0; p < N_PRE; p++) {
        assay_tokenizer *t = shipped(pres[p]);
        for (int round = 0; round < 400; round++) {
            uint8_t bytes[512];
            size_t n = 0, wanted = next_random(&state) % 256;
            while (n < wanted) {
                const char *part = parts[next_random(&state) % 14];
                if (next_random(&state) % 2) {
                    memcpy(bytes + n, part, strlen(part));
                    n += strlen(part);
                } else {
                    bytes[n++] = (uint8_t)next_random(&state);
                }
            }
            EXPECT_OK(assay_tokenizer_round_trip(t, bytes, n, false));
            EXPECT_OK(assay_tokenizer_round_trip(t, bytes, n, true));
        }
        assay_tokenizer_free(t);
    }
}
END_TEST

START_TEST(tokenizer_takes_a_megabyte_of_one_character_in_seconds)
{
    /* Quadratic work would take minutes, even on the fastest machine. */
    enum { N = 1000000 };
    static const char *const repeated[] = {"a", " ", "\n", "-", "1", "\xFF", "<", "\xE4\xB8\xAD"};
    uint8_t *bytes = malloc(N);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < 8; i++) {
        size_t length = strlen(repeated[i]);
        for (size_t at = 0; at < N; at++)
            bytes[at] = (uint8_t)repeated[i][at % length];
        bytes[N - 1] = '1'; /* something after the spaces makes patterns look back */
        assay_tokenizer *t = shipped(pres[i]);
        clock_t before = clock();
        EXPECT_OK(assay_tokenizer_round_trip(t, bytes, N, true));
        double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
        ck_assert_msg(seconds < 30, "'%s' repeated: %.1f s", repeated[i], seconds);
        assay_tokenizer_free(t);
    }
    free(bytes);
}
END_TEST

static void check_vector(const assay_tokenizer *t, const json_t *text, const json_t *ids,
                         bool parse_special)
{
    int32_t want[512];
    size_t n = json_array_size(ids);
    ck_assert_uint_le(n, 512);
    for (size_t i = 0; i < n; i++)
        want[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    const char *bytes = json_string_value(text);
    size_t n_bytes = json_string_length(text);
    forge_expect_ids(t, bytes, n_bytes, false, parse_special, want, (int64_t)n);
    forge_expect_text(t, want, (int64_t)n, bytes, n_bytes);
}

/* Returns the number of vectors. */
static int check_file(const char *vocabulary, const char *vectors_path)
{
    json_error_t error;
    json_t *all = json_load_file(vectors_path, 0, &error);
    ck_assert_msg(all != NULL, "%s: %s", vectors_path, error.text);
    json_t *strings = json_object_get(all, "strings");
    int n = 0;
    for (int p = 0; p < N_PRE; p++) {
        json_t *want = json_object_get(json_object_get(all, "pre"), pres[p]);
        assay_tokenizer *t = open_tokenizer(vocabulary, pres[p]);
        for (int special = 0; special < 2; special++) {
            json_t *ids = json_object_get(want, special ? "special" : "plain");
            ck_assert_uint_eq(json_array_size(ids), json_array_size(strings));
            for (size_t i = 0; i < json_array_size(strings); i++, n++)
                check_vector(t, json_array_get(strings, i), json_array_get(ids, i), special);
        }
        assay_tokenizer_free(t);
    }
    json_decref(all);
    return n;
}

START_TEST(tokenizer_agrees_with_every_vector_of_two_vocabularies)
{
    if (!data_large("tokenizer/glm5-tiny.ids.json"))
        return;
    ck_assert_int_eq(check_file(data_large("models/glm5-tiny-bf16.gguf"),
                                data_large("tokenizer/glm5-tiny.ids.json")),
                     36 * 2 * N_PRE);
    ck_assert_int_eq(check_file(data_large("tokenizer/deepseek-llm-vocab.gguf"),
                                data_large("tokenizer/deepseek-llm.ids.json")),
                     36 * 2 * N_PRE);
}
END_TEST

static char *read_text(hid_t group, const char *name)
{
    hid_t attribute = H5Aopen(group, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    char *text = NULL;
    ck_assert_int_gt(H5Tis_variable_str(type), 0);
    ck_assert_int_ge(H5Aread(attribute, type, &text), 0);
    H5Tclose(type);
    H5Aclose(attribute);
    return text;
}

struct prompts {
    const assay_tokenizer *tokenizer;
    int n;
};

static herr_t check_prompt(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    struct prompts *prompts = context;
    (void)info;
    int32_t ids[256];
    hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
    hid_t set = H5Dopen2(group, "tokens", H5P_DEFAULT), space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);
    ck_assert(n > 0 && n <= 256);
    ck_assert_int_ge(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids), 0);
    char *text = read_text(group, "text");
    forge_expect_ids(prompts->tokenizer, text, strlen(text), true, true, ids, n);
    forge_expect_text(prompts->tokenizer, ids, n, text, strlen(text));
    H5free_memory(text);
    H5Sclose(space);
    H5Dclose(set);
    H5Gclose(group);
    prompts->n++;
    return 0;
}

START_TEST(tokenizer_gives_the_tokens_of_every_reference_prompt)
{
    const char *folder = data_large("references");
    DIR *dir = folder ? opendir(folder) : NULL;
    struct prompts prompts = {0};
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *end = strstr(entry->d_name, ".hf-");
        if (!end)
            continue;
        char name[512];
        snprintf(name, sizeof name, "models/%.*s.gguf", (int)(end - entry->d_name), entry->d_name);
        assay_tokenizer *t = open_tokenizer(data_large(name), NULL);
        prompts.tokenizer = t;
        snprintf(name, sizeof name, "references/%s", entry->d_name);
        hid_t file = H5Fopen(data_large(name), H5F_ACC_RDONLY, H5P_DEFAULT);
        ck_assert_int_ge(file, 0);
        ck_assert_int_ge(H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, check_prompt, &prompts),
                         0);
        H5Fclose(file);
        assay_tokenizer_free(t);
    }
    closedir(dir);
    ck_assert_int_eq(prompts.n, 16);
}
END_TEST

EXPECT_MAIN("tokenizer", tokenizer_gives_the_ids_of_llama_cpp,
            tokenizer_tokenizes_the_shipped_prompts_without_a_start_token,
            tokenizer_knows_where_generation_ends,
            tokenizer_puts_the_start_token_where_the_file_asks, tokenizer_gives_back_any_bytes,
            tokenizer_takes_a_megabyte_of_one_character_in_seconds,
            tokenizer_agrees_with_every_vector_of_two_vocabularies,
            tokenizer_gives_the_tokens_of_every_reference_prompt)
