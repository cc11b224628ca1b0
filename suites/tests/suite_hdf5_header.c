/* What the bytes of a header say is what the library says, or nothing. */
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "engine/base/mapping.h"
#include "expect.h"
#include "probes/capture.h"
#include "probes/hdf5_set.h"
#include "probes/hdf5_write.h"

static const char *const names[] = {"axes",   "origin", "counts", "checksum", "word_sum",
                                    "buffer", "shard",  "rows",   "floor",    "floor_bf16",
                                    "sha256", "no",     "odd"};

/* One answer as text, or the words of its failure. */
typedef struct answer {
    char text[1 << 12];
} answer;

static void say(answer *a, assay_status s, bool found, const char *text)
{
    snprintf(a->text, sizeof a->text, "%s", s ? assay_error_text() : found ? text : "absent");
}

static void ask_text(answer *a, assay_h5_set *set, const char *name)
{
    char *text = NULL;
    bool found = false;
    assay_status s = assay_h5_set_text(&text, &found, set, name);
    say(a, s, found, text);
    free(text);
}

static void ask_ints(answer *a, assay_h5_set *set, const char *name)
{
    char list[1 << 11] = "";
    int64_t *x = NULL, n = 0;
    bool found = false;
    assay_status s = assay_h5_set_ints(&x, &n, &found, set, name);
    for (int64_t i = 0, at = 0; !s && found && i < n && at < 2000; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%lld ", (long long)x[i]);
    say(a, s, found, list);
    free(x);
}

static void ask_double(answer *a, assay_h5_set *set, const char *name)
{
    char number[64] = "";
    double x = 0;
    bool found = false;
    assay_status s = assay_h5_set_double(&x, &found, set, name);
    snprintf(number, sizeof number, "%a", x);
    say(a, s, found, number);
}

static void ask_u64(answer *a, assay_h5_set *set, const char *name)
{
    char number[64] = "";
    uint64_t x = 0;
    bool found = false;
    assay_status s = assay_h5_set_u64(&x, &found, set, name);
    snprintf(number, sizeof number, "%llu", (unsigned long long)x);
    say(a, s, found, number);
}

static void ask_has(answer *a, assay_h5_set *set, const char *name)
{
    bool found = false;
    assay_status s = assay_h5_set_has(&found, set, name);
    say(a, s, found, "there");
}

static void ask_info(answer *a, assay_h5_set *set, const char *name)
{
    char text[512];
    assay_h5_info i = {.n_dims = 0};
    (void)name;
    assay_status s = assay_h5_set_info(&i, set);
    snprintf(text, sizeof text, "%d: %lld %lld %lld %lld, %lld of %zu, %d %d %d %d %d %d at %lld",
             i.n_dims, (long long)i.dims[0], (long long)i.dims[1], (long long)i.dims[2],
             (long long)i.dims[3], (long long)i.count, i.element_bytes, (int)i.dtype, i.is_number,
             i.is_unsigned16, i.is_virtual, i.has_sources, i.is_native, (long long)i.offset);
    say(a, s, true, text);
}

typedef void ask_fn(answer *, assay_h5_set *, const char *);
static ask_fn *const asks[] = {ask_info, ask_text, ask_ints, ask_double, ask_u64, ask_has};

/* Every question, answered from the bytes and by the library. Returns whether the bytes said it. */
static bool expect_same(hid_t group, const char *path, const assay_mapping *m, uint64_t address)
{
    static answer mine, theirs;
    assay_h5_set by_bytes, by_library;
    assay_h5_set_init(&by_bytes, group, path, m->bytes, m->n_bytes, address);
    assay_h5_set_init(&by_library, group, path, NULL, 0, address);
    bool is_read = by_bytes.is_read;
    ck_assert(!by_library.is_read);
    for (size_t k = 0; is_read && k < sizeof asks / sizeof *asks; k++)
        for (size_t i = 0; i < (k ? sizeof names / sizeof *names : 1); i++) {
            asks[k](&mine, &by_bytes, names[i]);
            asks[k](&theirs, &by_library, names[i]);
            ck_assert_msg(!strcmp(mine.text, theirs.text), "%s %s: '%s', the library: '%s'", path,
                          names[i], mine.text, theirs.text);
        }
    assay_h5_set_close(&by_bytes);
    assay_h5_set_close(&by_library);
    return is_read;
}

typedef struct count {
    int n, n_read;
} count;

static void look_into(count *c, hid_t file, const char *group, const assay_mapping *m)
{
    assay_h5_names members;
    hid_t g;
    EXPECT_OK(assay_h5_open_group(&g, file, group));
    EXPECT_OK(assay_h5_list(&members, g, group));
    for (int i = 0; i < members.n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", strcmp(group, "/") ? group : "", members.items[i]);
        char kind = assay_h5_kind(file, path);
        if (kind == 'g')
            look_into(c, file, path, m);
        if (kind != 'd')
            continue;
        c->n++;
        c->n_read += expect_same(g, path, m, members.addresses[i]);
    }
    assay_h5_names_clear(&members);
    assay_h5_close(g);
}

static count look_at(const char *path)
{
    count c = {0, 0};
    hid_t file;
    assay_mapping m;
    EXPECT_OK(assay_h5_open(&file, path));
    EXPECT_OK(assay_mapping_open(&m, path));
    look_into(&c, file, "/", &m);
    assay_mapping_close(&m);
    H5Fclose(file);
    return c;
}

static const int32_t tokens[] = {5, 6, 7};

static void put_value(assay_capture *c, const char *name, const char *axes, assay_dtype dtype,
                      int n_dims, const int64_t *dims, double floor)
{
    static double data[64] = {1, -2, 3, 0.5};
    assay_buffer b = assay_buffer_view(data, dtype, n_dims, dims);
    EXPECT_OK(assay_capture_value(c, name, axes, &b, dtype, floor));
}

/* Every kind of value that the writer writes. */
static void write_capture(const char *path, const char *tier, bool is_reference)
{
    const assay_capture_about about = {
        .producer = "assay", .dtype = "f32", .n_ranks = 1, .architecture = "glm-dsa"};
    const assay_capture_options options = {.tier = tier};
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, &options));
    EXPECT_OK(assay_capture_prompt(c, "count", "Count", tokens, 3));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 3));
    put_value(c, "embed", "TD", ASSAY_DTYPE_F32, 2, (int64_t[]){3, 4}, 1e-7);
    EXPECT_OK(assay_capture_floor_bf16(c, "embed", 1e-2));
    put_value(c, "blk.2.attn.q", "THK", ASSAY_DTYPE_BF16, 3, (int64_t[]){3, 2, 2}, -1);
    put_value(c, "blk.2.attn.k", "TGK", ASSAY_DTYPE_F16, 3, (int64_t[]){3, 1, 2}, 0);
    EXPECT_OK(assay_capture_rescaled(c, "blk.2.attn.k"));
    put_value(c, "blk.2.moe.topk", "TX", ASSAY_DTYPE_I32, 2, (int64_t[]){3, 2}, -1);
    put_value(c, "blk.3.moe.topk", "TX", ASSAY_DTYPE_I64, 2, (int64_t[]){3, 2}, -1);
    put_value(c, "blk.3.attn.q", "THK", ASSAY_DTYPE_F64, 3, (int64_t[]){3, 2, 2}, 1e-7);
    if (is_reference)
        EXPECT_OK(assay_capture_mark_reference(c, "oracle", "f64"));
    EXPECT_OK(assay_capture_finish(c));
}

START_TEST(headers_of_what_is_written_here_are_read_from_the_bytes)
{
    const char *path = data_scratch("capture.h5");
    for (int is_reference = 0; is_reference < 2; is_reference++) {
        write_capture(path, is_reference ? "full" : "rows", is_reference);
        count c = look_at(path);
        /* tables are chunked, whole numbers of 64 bits are converted */
        ck_assert_int_eq(c.n_read, 7);
    }
}
END_TEST

/* The file once more with one byte changed: whatever it is, the bytes say what the library says, or
 * nothing. */
static void damage(const char *path, uint64_t at, uint8_t byte, const char *set, uint64_t address)
{
    FILE *f = fopen(path, "r+b");
    ck_assert(f && !fseek(f, (long)at, SEEK_SET));
    ck_assert(fputc(byte, f) != EOF && !fclose(f));
    assay_mapping m;
    assay_h5_header header;
    EXPECT_OK(assay_mapping_open(&m, path));
    if (assay_h5_header_read(&header, m.bytes, m.n_bytes, address)) {
        hid_t file, group;
        char step[1024];
        snprintf(step, sizeof step, "%.*s", (int)(strrchr(set, '/') - set), set);
        EXPECT_OK(assay_h5_open(&file, path));
        EXPECT_OK(assay_h5_open_group(&group, file, step));
        expect_same(group, set, &m, address);
        assay_h5_close(group);
        H5Fclose(file);
    }
    assay_mapping_close(&m);
}

static uint64_t address_of(const char *path, const char *group, const char *name)
{
    hid_t file;
    assay_h5_names members;
    uint64_t address = 0;
    EXPECT_OK(assay_h5_open(&file, path));
    EXPECT_OK(assay_h5_list(&members, file, group));
    for (int i = 0; i < members.n; i++)
        if (!strcmp(members.items[i], name))
            address = members.addresses[i];
    assay_h5_names_clear(&members);
    H5Fclose(file);
    ck_assert_uint_gt(address, 0);
    return address;
}

/* Pieces of a header: prefix and messages, and where further messages lie. */
static int pieces_of(uint64_t (*out)[2], const uint8_t *bytes, uint64_t address)
{
    uint32_t n;
    memcpy(&n, bytes + address + 8, sizeof n);
    out[0][0] = address;
    out[0][1] = n + 16;
    for (uint64_t at = address + 16; at < address + 16 + n;) {
        uint16_t head[2];
        memcpy(head, bytes + at, sizeof head);
        if (head[0] == 0x10) {
            memcpy(out[1], bytes + at + 8, sizeof out[1]);
            return 2;
        }
        at += 8u + head[1];
    }
    return 1;
}

START_TEST(headers_with_any_byte_damaged_say_what_the_library_says_or_nothing)
{
    const char *step = "/prompts/count/steps/0000";
    const char *const sets[] = {"embed", "blk.2.moe.topk"};
    int n_pieces = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s", data_scratch("damaged.h5"));
    write_capture(path, "full", true);
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        uint64_t address = address_of(path, step, sets[s]), pieces[2][2];
        char set[256];
        assay_mapping m;
        snprintf(set, sizeof set, "%s/%s", step, sets[s]);
        EXPECT_OK(assay_mapping_open(&m, path));
        int n = pieces_of(pieces, m.bytes, address);
        n_pieces += n;
        for (int p = 0; p < n; p++)
            for (uint64_t i = 0; i < pieces[p][1]; i++) {
                uint64_t at = pieces[p][0] + i;
                uint8_t was = m.bytes[at];
                for (int bit = 0; bit < 8; bit++)
                    damage(path, at, was ^ (uint8_t)(1 << bit), set, address);
                damage(path, at, was, set, address);
            }
        assay_mapping_close(&m);
    }
    ck_assert_int_ge(n_pieces, 3); /* one at least is in two pieces */
}
END_TEST

static hid_t odd_file, odd_set;

static void chunked(hid_t plist)
{
    const hsize_t chunk = 3;
    H5Pset_chunk(plist, 1, &chunk);
}

static void compact(hid_t plist)
{
    H5Pset_layout(plist, H5D_COMPACT);
}

static void filled(hid_t plist)
{
    const float seven = 7;
    H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &seven);
}

static void in_another_file(hid_t plist)
{
    H5Pset_external(plist, "/etc/passwd", 0, 24);
}

static void make_odd(const char *path, hid_t type, void (*lay_out)(hid_t))
{
    const hsize_t dims = 6;
    const float x[12] = {1, 2, 3, 4, 5, 6};
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dims, NULL);
    assay_h5_quiet();
    odd_file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (lay_out)
        lay_out(plist);
    odd_set = H5Dcreate2(odd_file, "x", type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    ck_assert(odd_set >= 0);
    if (lay_out != in_another_file)
        H5Dwrite(odd_set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
    H5Pclose(plist);
    H5Sclose(space);
}

static void end_odd(const char *path, int n_read)
{
    H5Dclose(odd_set);
    H5Fclose(odd_file);
    count c = look_at(path);
    ck_assert_int_eq(c.n, 1);
    ck_assert_int_eq(c.n_read, n_read);
}

static void put_odd(hid_t type, hid_t space, const void *values)
{
    hid_t attr = H5Acreate2(odd_set, "odd", type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(attr >= 0 && H5Awrite(attr, type, values) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
}

START_TEST(headers_of_other_kinds_are_left_to_the_library)
{
    const char *path = data_scratch("odd.h5");
    void (*const layouts[])(hid_t) = {chunked, compact, filled, in_another_file};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        make_odd(path, H5T_NATIVE_FLOAT, layouts[i]);
        end_odd(path, 0);
    }
    const hid_t types[] = {H5T_IEEE_F32BE, H5T_STD_I64LE, H5T_STD_U8LE, H5T_STD_I16LE};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        make_odd(path, types[i], NULL);
        end_odd(path, 0);
    }
}
END_TEST

START_TEST(headers_with_attributes_of_any_kind_say_what_the_library_says)
{
    const char *path = data_scratch("odd.h5"), *word = "word";
    const hsize_t three[2] = {3, 1}, none = 0;
    const double d[3] = {0.1, -2, 3};
    const uint64_t u[3] = {UINT64_MAX, 1, 2};
    const int64_t i64[3] = {INT64_MIN, INT64_MAX, 2};
    const int32_t i32[3] = {INT32_MIN, INT32_MAX, 2};
    const hid_t types[] = {H5T_NATIVE_DOUBLE, H5T_NATIVE_UINT64, H5T_NATIVE_INT64,
                           H5T_NATIVE_INT32};
    const void *const values[] = {d, u, i64, i32};
    for (int k = 0; k < 4; k++)
        for (int one = 0; one < 2; one++) {
            make_odd(path, H5T_NATIVE_FLOAT, NULL);
            put_odd(types[k], one ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, three, NULL),
                    values[k]);
            end_odd(path, 1);
        }
    hid_t text = H5Tcopy(H5T_C_S1), pointer = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 5);
    H5Tset_size(pointer, H5T_VARIABLE);
    for (int padding = H5T_STR_NULLTERM; padding <= H5T_STR_SPACEPAD; padding++) {
        make_odd(path, H5T_NATIVE_FLOAT, NULL);
        H5Tset_strpad(text, (H5T_str_t)padding);
        put_odd(text, H5Screate(H5S_SCALAR), "word ");
        end_odd(path, 1);
    }
    make_odd(path, H5T_NATIVE_FLOAT, NULL);
    put_odd(pointer, H5Screate(H5S_SCALAR), &word);
    end_odd(path, 0);
    make_odd(path, H5T_NATIVE_FLOAT, NULL);
    put_odd(text, H5Screate_simple(1, three, NULL), "three of fives.");
    end_odd(path, 0);
    make_odd(path, H5T_NATIVE_FLOAT, NULL);
    put_odd(H5T_NATIVE_INT32, H5Screate_simple(2, three, NULL), i32);
    end_odd(path, 0);
    make_odd(path, H5T_NATIVE_FLOAT, NULL);
    put_odd(H5T_NATIVE_INT32, H5Screate_simple(1, &none, NULL), i32);
    end_odd(path, 0);
    make_odd(path, H5T_NATIVE_FLOAT, NULL);
    put_odd(H5T_NATIVE_FLOAT, H5Screate(H5S_SCALAR), i32);
    end_odd(path, 1);
    H5Tclose(text);
    H5Tclose(pointer);
}
END_TEST

static void create(const char *path, hid_t creation, hid_t access)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    const int64_t dim = 6;
    const float x[6] = {1, 2, 3, 4, 5, 6};
    ck_assert(file >= 0);
    EXPECT_OK(assay_h5_put_dataset(file, "/x", H5T_NATIVE_FLOAT, 1, &dim, x));
    H5Fclose(file);
    H5Pclose(creation);
    H5Pclose(access);
}

START_TEST(headers_in_files_of_other_kinds_are_left_to_the_library)
{
    const char *path = data_scratch("kinds.h5");
    for (int kind = 0; kind < 4; kind++) {
        hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
        if (kind == 1)
            H5Pset_userblock(creation, 512);
        if (kind == 2)
            H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
        if (kind == 3)
            H5Pset_sizes(creation, 4, 4);
        create(path, creation, access);
        count c = look_at(path);
        ck_assert_int_eq(c.n, 1);
        ck_assert_int_eq(c.n_read, kind == 0);
    }
}
END_TEST

EXPECT_MAIN("hdf5_header", headers_of_what_is_written_here_are_read_from_the_bytes,
            headers_with_any_byte_damaged_say_what_the_library_says_or_nothing,
            headers_of_other_kinds_are_left_to_the_library,
            headers_with_attributes_of_any_kind_say_what_the_library_says,
            headers_in_files_of_other_kinds_are_left_to_the_library)
