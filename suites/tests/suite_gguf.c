#include "engine/gguf.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "forge_gguf.h"

static const char *folder(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", data_scratch("forge"));
    mkdir(path, 0700);
    return path;
}

/* Opens the bytes as a file of their own. */
static assay_status open_forged(assay_gguf **out, const forge_file *file)
{
    char path[600];
    snprintf(path, sizeof path, "%s/one.gguf", folder());
    forge_gguf_write(file, path);
    return assay_gguf_open(out, path);
}

/* 1 and a line when the damage is not refused as its row says. */
static int misjudged(const forge_damage *d)
{
    char path[600], rule[64];
    assay_gguf *file = NULL;
    forge_gguf_damaged(path, sizeof path, d, folder());
    snprintf(rule, sizeof rule, "rule '%s'", d->rule);
    assay_status s = assay_gguf_open(&file, path);
    assay_gguf_close(file);
    const char *text = s == ASSAY_OK ? "opened" : assay_error_text();
    if (s == ASSAY_BAD_FILE && strstr(text, rule) && strstr(text, d->place) &&
        strstr(text, ".gguf'"))
        return 0;
    fprintf(stderr, "%s: %s; expected %s and \"%s\"\n", d->name, text, rule, d->place);
    return 1;
}

START_TEST(gguf_refuses_every_kind_of_damage_by_rule_and_place)
{
    int n = 0;
    ck_assert_int_ge(forge_gguf_n_damages(), 80);
    for (int i = 0; i < forge_gguf_n_damages(); i++)
        n += misjudged(forge_gguf_damage(i));
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(assay_status_exit(ASSAY_BAD_FILE), 128);
}
END_TEST

/* Rules of the file itself; those of asked-for keys have their own tests. */
START_TEST(gguf_has_a_damage_for_every_rule)
{
    static const char *const rules[] = {
#define X(id, name, holds) name,
#include "engine/gguf_rule.def"
#undef X
    };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        bool found = strncmp(rules[r], "key-", 4) == 0 || strcmp(rules[r], "regular-file") == 0;
        for (int i = 0; i < forge_gguf_n_damages(); i++)
            found = found || strcmp(forge_gguf_damage(i)->rule, rules[r]) == 0;
        ck_assert_msg(found, "no damage breaks rule '%s'", rules[r]);
    }
}
END_TEST

START_TEST(gguf_refuses_a_file_cut_at_any_byte)
{
    forge_file file;
    forge_gguf_build(&file, &(forge_options){0});
    size_t whole = forge_gguf_mark(&file, "blk.1.c:data") + 4;
    for (size_t n = 0; n < whole; n++) {
        assay_gguf *opened = NULL;
        file.n = n;
        ck_assert_msg(open_forged(&opened, &file) == ASSAY_BAD_FILE, "opens when cut at %zu", n);
    }
    assay_gguf *opened = NULL;
    file.n = whole;
    EXPECT_OK(open_forged(&opened, &file));
    assay_gguf_close(opened);
    forge_gguf_free(&file);
}
END_TEST

/* Whatever one byte of the header says, opening ends, and what opens can be read to its end. */
START_TEST(gguf_survives_any_changed_byte)
{
    static const uint8_t puts[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    forge_file file;
    forge_gguf_build(&file, &(forge_options){.alignment = 8});
    size_t header = forge_gguf_mark(&file, "header.end");
    int refused = 0;
    for (size_t at = 0; at < header; at++)
        for (size_t k = 0; k < sizeof puts; k++) {
            uint8_t old = file.bytes[at];
            file.bytes[at] = puts[k];
            assay_gguf *opened = NULL;
            refused += open_forged(&opened, &file) != ASSAY_OK;
            uint64_t sum = 0;
            for (int64_t i = 0; opened && i < assay_gguf_n_tensors(opened); i++) {
                const assay_gguf_tensor_info *t = assay_gguf_tensor_at(opened, i);
                for (uint64_t b = 0; b < t->n_bytes; b++)
                    sum += ((const uint8_t *)t->data)[b];
            }
            ck_assert_msg(!opened || !assay_gguf_n_tensors(opened) || sum > 0, "byte %zu", at);
            assay_gguf_close(opened);
            file.bytes[at] = old;
        }
    ck_assert_int_gt(refused, (int)header / 2);
    forge_gguf_free(&file);
}
END_TEST

static void expect_tensors(const assay_gguf *file, const forge_options *o)
{
    int n = o->count == 0 ? forge_gguf_n_tensors() : o->count < 0 ? 0 : o->count;
    ck_assert_int_eq(assay_gguf_n_tensors(file), n);
    for (int i = 0; i < n; i++) {
        const char *name = forge_gguf_tensor_name(o->first + (o->reversed ? n - 1 - i : i));
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        ck_assert_str_eq(t->name, name);
        ck_assert_ptr_eq(assay_gguf_find_tensor(file, name), t);
    }
    ck_assert_ptr_null(assay_gguf_find_tensor(file, "blk.9.a"));
}

START_TEST(gguf_opens_healthy_variants)
{
    static const forge_options healthy[] = {
        {0},
        {.version = 2},
        {.version = 3, .alignment = 1},
        {.alignment = 4096},
        {.reversed = true},
        {.no_tail = true},
        {.count = -1},
        {.no_keys = true},
        {.no_keys = true, .count = -1},
        {.first = 2, .count = 3},
        {.split_no = 0, .split_count = 1},
        {.split_no = 7}, /* without split.count there is no set */
    };
    for (size_t k = 0; k < sizeof healthy / sizeof *healthy; k++) {
        forge_file file;
        forge_gguf_build(&file, &healthy[k]);
        assay_gguf *opened = NULL;
        EXPECT_OK(open_forged(&opened, &file));
        ck_assert_uint_eq(assay_gguf_version(opened), healthy[k].version ? healthy[k].version : 3);
        ck_assert_uint_eq(assay_gguf_data_start(opened, 0), forge_gguf_mark(&file, "data.start"));
        expect_tensors(opened, &healthy[k]);
        for (int64_t i = 0; i < assay_gguf_n_tensors(opened); i++) {
            const assay_gguf_tensor_info *t = assay_gguf_tensor_at(opened, i);
            char mark[64];
            snprintf(mark, sizeof mark, "%s:data", t->name);
            ck_assert_uint_eq(t->offset, forge_gguf_mark(&file, mark));
            ck_assert_mem_eq(t->data, file.bytes + t->offset, t->n_bytes);
        }
        assay_gguf_close(opened);
        forge_gguf_free(&file);
    }
}
END_TEST

START_TEST(gguf_opens_split_sets_by_their_first_file)
{
    for (int empty_first = 0; empty_first < 2; empty_first++) {
        char path[600];
        forge_gguf_set(path, sizeof path, empty_first, folder());
        assay_gguf *file = NULL;
        EXPECT_OK(assay_gguf_open(&file, path));
        ck_assert_int_eq(assay_gguf_n_files(file), 3);
        expect_tensors(file, &(forge_options){0});
        ck_assert_int_eq(assay_gguf_find_tensor(file, "blk.0.a")->file, empty_first ? 1 : 0);
        ck_assert_int_eq(assay_gguf_find_tensor(file, "blk.1.c")->file, 2);
        ck_assert_ptr_nonnull(strstr(assay_gguf_file_path(file, 2), "set-00003-of-00003.gguf"));
        assay_gguf_close(file);
    }
}
END_TEST

START_TEST(gguf_gives_shapes_and_sizes)
{
    forge_file forged;
    forge_gguf_build(&forged, &(forge_options){0});
    assay_gguf *file = NULL;
    EXPECT_OK(open_forged(&file, &forged));
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, "blk.1.b");
    ck_assert_int_eq(t->n_dims, 3);
    ck_assert(t->ne[0] == 2 && t->ne[1] == 3 && t->ne[2] == 5 && t->ne[3] == 1);
    ck_assert_uint_eq(t->n_bytes, 60);
    t = assay_gguf_find_tensor(file, "blk.1.c");
    ck_assert(t->n_dims == 0 && t->ne[0] == 1 && t->n_bytes == 4);
    t = assay_gguf_find_tensor(file, "blk.1.a");
    ck_assert_uint_eq(t->n_bytes, 144);
    assay_gguf_release(file, t);
    ck_assert_uint_eq(*(const uint8_t *)t->data, forged.bytes[t->offset]);
    assay_gguf_close(file);
    forge_gguf_free(&forged);
}
END_TEST

static assay_gguf *plain(void)
{
    forge_file forged;
    assay_gguf *file = NULL;
    forge_gguf_build(&forged, &(forge_options){0});
    EXPECT_OK(open_forged(&file, &forged));
    forge_gguf_free(&forged);
    return file;
}

START_TEST(gguf_values_need_their_exact_type)
{
    assay_gguf *file = plain();
    uint32_t u = 77;
    float f = 77;
    bool b = false;
    assay_gguf_string s;
    EXPECT_OK(assay_gguf_u32(&u, file, "t.u32"));
    ck_assert_uint_eq(u, 8);
    EXPECT_OK(assay_gguf_f32(&f, file, "t.f32"));
    ck_assert(f == 1.0f);
    EXPECT_OK(assay_gguf_bool(&b, file, "t.bool"));
    ck_assert(b);
    EXPECT_OK(assay_gguf_str(&s, file, "general.architecture"));
    ck_assert(s.n == 9 && memcmp(s.bytes, "deepseek2", 9) == 0);
    u = 77;
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32(&u, file, "t.i32"));
    EXPECT_SAYS("rule 'key-type'");
    EXPECT_SAYS("key 't.i32' is i32, expected u32");
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32(&u, file, "t.heads"));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_f32(&f, file, "t.f64"));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_bool(&b, file, "t.u8"));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_str(&s, file, "t.words"));
    EXPECT_FAILS(ASSAY_MISSING, assay_gguf_u32(&u, file, "t.absent"));
    EXPECT_SAYS("'t.absent' is missing");
    ck_assert_uint_eq(u, 77);
    assay_gguf_close(file);
}
END_TEST

START_TEST(gguf_arrays_need_their_exact_length)
{
    assay_gguf *file = plain();
    uint32_t x[5] = {77, 77, 77, 77, 77};
    EXPECT_OK(assay_gguf_u32_or_array(x, file, "t.u32", 5));
    ck_assert(x[0] == 8 && x[4] == 8);
    EXPECT_OK(assay_gguf_u32_or_array(x, file, "t.heads", 3));
    ck_assert(x[0] == 8 && x[2] == 4);
    EXPECT_OK(assay_gguf_u32_or_array(x, file, "t.flags", 5));
    ck_assert(x[0] == 0 && x[2] == 1 && x[3] == 1);
    x[0] = 77;
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32_or_array(x, file, "t.heads", 2));
    EXPECT_SAYS("rule 'key-length'");
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32_or_array(x, file, "t.heads", 4));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32_or_array(x, file, "t.wide", 1));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32_or_array(x, file, "t.i32", 1));
    EXPECT_FAILS(ASSAY_MISSING, assay_gguf_u32_or_array(x, file, "t.absent", 1));
    ck_assert_uint_eq(x[0], 77);
    assay_gguf_close(file);
}
END_TEST

START_TEST(gguf_refuses_a_negative_element_of_an_asked_array)
{
    forge_file forged;
    forge_gguf_build(&forged, &(forge_options){0});
    uint32_t i32 = ASSAY_GGUF_I32, minus_1 = UINT32_MAX;
    memcpy(forged.bytes + forge_gguf_mark(&forged, "t.heads:element"), &i32, 4);
    memcpy(forged.bytes + forge_gguf_mark(&forged, "t.heads:value") + 4, &minus_1, 4);
    assay_gguf *file = NULL;
    EXPECT_OK(open_forged(&file, &forged));
    uint32_t x[3] = {77, 77, 77};
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_u32_or_array(x, file, "t.heads", 3));
    EXPECT_SAYS("rule 'key-value'");
    ck_assert_uint_eq(x[0], 77);
    assay_gguf_close(file);
    forge_gguf_free(&forged);
}
END_TEST

START_TEST(gguf_walks_string_arrays)
{
    assay_gguf *file = plain();
    const assay_gguf_key *words = assay_gguf_find_key(file, "t.words");
    assay_gguf_string all[3], one;
    EXPECT_OK(assay_gguf_str_array(all, words));
    ck_assert(all[0].n == 3 && all[1].n == 0 && all[2].n == 5);
    EXPECT_OK(assay_gguf_str_at(&one, words, 2));
    ck_assert(one.n == 5 && memcmp(one.bytes, "three", 5) == 0 && one.bytes == all[2].bytes);
    EXPECT_FAILS(ASSAY_MISSING, assay_gguf_str_at(&one, words, 3));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_str_at(&one, assay_gguf_find_key(file, "t.heads"), 0));
    assay_gguf_close(file);
}
END_TEST

START_TEST(gguf_hashes_the_whole_file)
{
    char hash[65];
    assay_gguf *file = NULL;
    EXPECT_OK(assay_gguf_open(&file, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    EXPECT_OK(assay_gguf_sha256(hash, file));
    ck_assert_str_eq(hash, "c21add52622d1a049cd98097aa3c287351de26c7160319168415fb8d4b19ede8");
    assay_gguf_close(file);
}
END_TEST

START_TEST(gguf_reads_the_shipped_model)
{
    assay_gguf *file = NULL;
    EXPECT_OK(assay_gguf_open(&file, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    ck_assert_int_eq(assay_gguf_n_keys(file), 46);
    ck_assert_int_eq(assay_gguf_n_tensors(file), 90);
    uint32_t layers = 0;
    EXPECT_OK(assay_gguf_u32(&layers, file, "glm-dsa.block_count"));
    ck_assert_uint_eq(layers, 4);
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, "blk.0.attn_k_b.weight");
    ck_assert(t && t->type == 6 && t->ne[0] == 64 && t->ne[1] == 256 && t->ne[2] == 8);
    assay_gguf_close(file);
}
END_TEST

START_TEST(gguf_refuses_what_is_no_regular_file)
{
    assay_gguf *file = NULL;
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_open(&file, folder()));
    EXPECT_SAYS("rule 'regular-file'");
    const char *fifo = data_scratch("fifo.gguf");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_open(&file, fifo)); /* and does not wait for a writer */
    EXPECT_FAILS(ASSAY_IO, assay_gguf_open(&file, data_scratch("absent.gguf")));
    EXPECT_SAYS("No such file");
    ck_assert_ptr_null(file);
}
END_TEST

/* RssAnon of this process in kB; -1 when the kernel does not say. */
static long anonymous_kb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kb = -1;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

/* A sparse file of 64 GB: the last tensor is huge, and nothing of it is read or allocated. */
START_TEST(gguf_opens_a_huge_file_in_little_memory)
{
    forge_file forged;
    forge_gguf_build(&forged, &(forge_options){.first = 0, .count = 1});
    int64_t elements = (int64_t)16 << 30;
    memcpy(forged.bytes + forge_gguf_mark(&forged, "blk.0.a:ne0"), &elements, 8);
    char path[600];
    snprintf(path, sizeof path, "%s/huge.gguf", folder());
    forge_gguf_write(&forged, path);
    off_t bytes = (off_t)forge_gguf_mark(&forged, "data.start") + 4 * elements;
    forge_gguf_free(&forged);
    if (truncate(path, bytes) != 0)
        return; /* a file system without files of this size */
    long before = anonymous_kb();
    assay_gguf *file = NULL;
    EXPECT_OK(assay_gguf_open(&file, path));
    ck_assert_uint_eq(assay_gguf_find_tensor(file, "blk.0.a")->n_bytes, 4u * (uint64_t)elements);
    ck_assert_int_lt(anonymous_kb() - before, 1024);
    assay_gguf_close(file);
    unlink(path);
}
END_TEST

/* Counts that the file could hold by its size alone are not allocated for. */
START_TEST(gguf_allocates_nothing_for_a_claimed_count)
{
    static const char *const marks[] = {"n_keys", "n_tensors"};
    for (int k = 0; k < 2; k++) {
        forge_file forged;
        forge_gguf_build(&forged, &(forge_options){0});
        uint64_t claim = 1ull << 30;
        memcpy(forged.bytes + forge_gguf_mark(&forged, marks[k]), &claim, 8);
        char path[600];
        snprintf(path, sizeof path, "%s/huge.gguf", folder());
        forge_gguf_write(&forged, path);
        forge_gguf_free(&forged);
        if (truncate(path, (off_t)64 << 30) != 0)
            return;
        long before = anonymous_kb();
        assay_gguf *file = NULL;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_gguf_open(&file, path));
        ck_assert_int_lt(anonymous_kb() - before, 1024);
        unlink(path);
    }
}
END_TEST

START_TEST(gguf_messages_hold_no_control_characters)
{
    forge_file forged;
    forge_gguf_build(&forged, &(forge_options){0});
    forged.bytes[forge_gguf_mark(&forged, "t.u8:name")] = 0x1b;
    forged.bytes[forge_gguf_mark(&forged, "t.u8:type")] = 99;
    assay_gguf *file = NULL;
    EXPECT_FAILS(ASSAY_BAD_FILE, open_forged(&file, &forged));
    EXPECT_SAYS("key '?.u8'");
    forge_gguf_free(&forged);
}
END_TEST

EXPECT_MAIN("gguf", gguf_refuses_every_kind_of_damage_by_rule_and_place,
            gguf_has_a_damage_for_every_rule, gguf_refuses_a_file_cut_at_any_byte,
            gguf_survives_any_changed_byte, gguf_opens_healthy_variants,
            gguf_opens_split_sets_by_their_first_file, gguf_gives_shapes_and_sizes,
            gguf_values_need_their_exact_type, gguf_arrays_need_their_exact_length,
            gguf_refuses_a_negative_element_of_an_asked_array, gguf_walks_string_arrays,
            gguf_hashes_the_whole_file, gguf_reads_the_shipped_model,
            gguf_refuses_what_is_no_regular_file, gguf_opens_a_huge_file_in_little_memory,
            gguf_allocates_nothing_for_a_claimed_count, gguf_messages_hold_no_control_characters)
