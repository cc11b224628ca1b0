/* Sessions of assay.h: what an engine shows, and what it may not. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data.h"
#include "engine/base/number.h"
#include "expect.h"
#include "probes/assay.h"
#include "references/run.h"

static const int32_t ids[3] = {5, 6, 7};

#define SESSION_OK(expr) ck_assert_msg((expr) == 0, "%s: %s", #expr, assay_last_error())
#define SESSION_FAILS(code, text, expr)                                                            \
    do {                                                                                           \
        ck_assert_int_eq((expr), (code));                                                          \
        ck_assert_msg(strstr(assay_last_error(), (text)) != NULL, "%s", assay_last_error());       \
    } while (0)

static assay_session *opened(const char *path, const assay_session_options *options)
{
    assay_session *s;
    SESSION_OK(assay_session_open(&s, path, options));
    SESSION_OK(assay_session_step(s, ASSAY_PREFILL, 0, ids, 3));
    return s;
}

/* Value i of the point as the reader of captures sees it. */
static void expect_values(const char *path, const char *name, const double *want, int64_t n)
{
    assay_run *run;
    double x[64];
    assay_point point;
    int layer;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    EXPECT_OK(assay_point_parse(&point, &layer, NULL, name));
    const assay_seen *seen = assay_run_find(run, 0, 0, point, layer);
    ck_assert_msg(seen != NULL, "%s", name);
    EXPECT_OK(assay_run_read(x, run, seen));
    for (int64_t i = 0; i < n; i++)
        ck_assert_double_eq(x[i], want[i]);
    assay_run_close(run);
}

START_TEST(session_takes_every_format_and_strides)
{
    const char *path = data_scratch("formats.h5");
    assay_session *s = opened(path, NULL);
    float wide[3][4] = {{1, 2, -9, -9}, {3, 4, -9, -9}, {5, 6, -9, -9}};
    uint16_t half[6], brain[6];
    uint8_t tiny[6];
    double f64[6];
    int32_t experts[6] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < 6; i++) {
        half[i] = assay_f32_to_f16((float)i + 1);
        brain[i] = assay_f32_to_bf16((float)i + 1);
        tiny[i] = assay_f32_to_f8e4m3((float)i + 1);
        f64[i] = i + 1;
    }
    assay_tensor t = assay_tensor_default();
    t.name = "embed";
    t.data = wide;
    t.type = ASSAY_TYPE_F32;
    t.n_dims = 2;
    t.dims[0] = 3;
    t.dims[1] = 2;
    t.strides[0] = 4;
    t.strides[1] = 1;
    SESSION_OK(assay_session_show(s, &t));
    t.name = "blk.0.ffn.in_norm"; /* the same, rows from last to first */
    t.data = wide[2];
    t.strides[0] = -4;
    SESSION_OK(assay_session_show(s, &t));
    const int64_t dims[] = {3, 2};
    SESSION_OK(assay_session_show_dense(s, "blk.0.attn.in_norm", half, ASSAY_TYPE_F16, 2, dims));
    SESSION_OK(assay_session_show_dense(s, "blk.1.attn.in_norm", brain, ASSAY_TYPE_BF16, 2, dims));
    SESSION_OK(assay_session_show_dense(s, "blk.2.attn.in_norm", f64, ASSAY_TYPE_F64, 2, dims));
    SESSION_OK(assay_session_show_dense(s, "blk.3.attn.in_norm", tiny, ASSAY_TYPE_F8E4M3, 2, dims));
    SESSION_OK(assay_session_show_dense(s, "blk.1.moe.topk", experts, ASSAY_TYPE_I32, 2, dims));
    SESSION_OK(assay_session_close(s));
    const double want[] = {1, 2, 3, 4, 5, 6}, turned[] = {5, 6, 3, 4, 1, 2};
    static const char *const names[] = {"embed",
                                        "blk.0.attn.in_norm",
                                        "blk.1.attn.in_norm",
                                        "blk.2.attn.in_norm",
                                        "blk.3.attn.in_norm",
                                        "blk.1.moe.topk"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_values(path, names[i], want, 6);
    expect_values(path, "blk.0.ffn.in_norm", turned, 6);
}
END_TEST

START_TEST(session_says_where_a_value_was_written_and_read)
{
    const char *path = data_scratch("addresses.h5");
    assay_session *s = opened(path, NULL);
    float x[3] = {1, 2, 3}, elsewhere[3] = {0, 0, 0};
    assay_tensor t = assay_tensor_default();
    t.name = "blk.0.attn.out";
    t.data = x;
    t.type = ASSAY_TYPE_F32;
    t.n_dims = 3;
    t.dims[0] = 3;
    t.dims[1] = t.dims[2] = 1;
    t.read_from = elsewhere;
    SESSION_OK(assay_session_show(s, &t));
    SESSION_OK(assay_session_close(s));
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_OUT_ATTN, 0);
    ck_assert(seen && seen->written_address == (uint64_t)(uintptr_t)x);
    ck_assert(seen->read_address == (uint64_t)(uintptr_t)elsewhere);
    assay_run_close(run);
}
END_TEST

START_TEST(session_keeps_names_of_the_engine)
{
    const char *path = data_scratch("own.h5");
    assay_session_options o = assay_session_options_default();
    o.producer = "llama.cpp";
    o.naming = ASSAY_NAMING_OWN;
    o.points = "l_out-* embd#0";
    assay_session *s = opened(path, &o);
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {1, 1, 3, 2};
    ck_assert_int_eq(assay_session_wants(s, "l_out-3#0"), 1);
    ck_assert_int_eq(assay_session_wants(s, "ffn_inp-3#0"), 0);
    SESSION_OK(assay_session_show_dense(s, "embd#0", x, ASSAY_TYPE_F32, 4, dims));
    SESSION_OK(assay_session_show_dense(s, "l_out-0#0", x, ASSAY_TYPE_F32, 4, dims));
    SESSION_OK(assay_session_show_dense(s, "ffn_inp-0#0", x, ASSAY_TYPE_F32, 4, dims));
    SESSION_FAILS(129, "without '/'",
                  assay_session_show_dense(s, "a/b", x, ASSAY_TYPE_F32, 4, dims));
    SESSION_OK(assay_session_close(s));
    const double want[] = {1, 2, 3, 4, 5, 6};
    expect_values(path, "embed", want, 6);
    expect_values(path, "blk.0.out", want, 6);
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    ck_assert_str_eq(assay_run_about(run)->profile->name, "llama.cpp");
    ck_assert_ptr_null(assay_run_find(run, 0, 0, ASSAY_POINT_ATTN_RESID, 0));
    assay_run_close(run);
}
END_TEST

static int copies;

/* Device memory of the test: every byte is its complement. */
static int copy_inverted(void *user, void *host, const void *device, size_t n, void *stream)
{
    copies++;
    ck_assert_ptr_eq(stream, &copies);
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)host)[i] = (unsigned char)~((const unsigned char *)device)[i];
    return *(int *)user;
}

START_TEST(session_copies_from_the_device_by_the_callers_function)
{
    const char *path = data_scratch("device.h5");
    int fails = 0;
    assay_session_options o = assay_session_options_default();
    o.copy = copy_inverted;
    o.copy_user = &fails;
    assay_session *s = opened(path, &o);
    float rows[3][3] = {{1, 2, -1}, {3, 4, -1}, {5, 6, -1}};
    for (size_t i = 0; i < sizeof rows; i++)
        ((unsigned char *)rows)[i] = (unsigned char)~((unsigned char *)rows)[i];
    assay_tensor t = assay_tensor_default();
    t.name = "embed";
    t.data = rows;
    t.type = ASSAY_TYPE_F32;
    t.n_dims = 2;
    t.dims[0] = 3;
    t.dims[1] = 2;
    t.strides[0] = 3;
    t.strides[1] = 1;
    t.place = ASSAY_ON_DEVICE;
    t.stream = &copies;
    SESSION_OK(assay_session_show(s, &t));
    ck_assert_int_eq(copies, 1);
    fails = 7;
    t.name = "blk.0.attn.in_norm";
    SESSION_FAILS(128, "from the device failed", assay_session_show(s, &t));
    SESSION_OK(assay_session_close(s));
    expect_values(path, "embed", (const double[]){1, 2, 3, 4, 5, 6}, 6);
}
END_TEST

START_TEST(session_without_a_cuda_runtime_says_so)
{
    assay_session *s = opened(data_scratch("nocuda.h5"), NULL);
    float x[3] = {1, 2, 3};
    assay_tensor t = assay_tensor_default();
    t.name = "embed";
    t.data = x;
    t.type = ASSAY_TYPE_F32;
    t.n_dims = 2;
    t.dims[0] = 3;
    t.dims[1] = 1;
    t.place = ASSAY_ON_DEVICE;
    int status = assay_session_show(s, &t); /* a machine may have the runtime and no device */
    ck_assert_msg(status == 125 || status == 128, "%d", status);
    ck_assert_msg(strstr(assay_last_error(), "CUDA runtime") ||
                      strstr(assay_last_error(), "from the device"),
                  "%s", assay_last_error());
    assay_session_abandon(s);
}
END_TEST

START_TEST(session_refuses_in_words)
{
    const char *path = data_scratch("refused.h5");
    assay_session *s, *other;
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {3, 2}, five[] = {1, 1, 1, 3, 2}, empty[] = {3, 0},
                  huge[] = {INT64_MAX / 2, INT64_MAX / 2};
    assay_session_options o = assay_session_options_default();
    o.tier = "everything";
    SESSION_FAILS(129, "unknown tier", assay_session_open(&other, path, &o));
    o = assay_session_options_default();
    o.dtype = "f33";
    SESSION_FAILS(129, "f33", assay_session_open(&other, path, &o));
    o = assay_session_options_default();
    o.rank = 2;
    o.n_ranks = 2;
    SESSION_FAILS(129, "rank 2 of 2", assay_session_open(&other, path, &o));
    SESSION_FAILS(128, "cannot be created", assay_session_open(&other, "/nowhere/at/all.h5", NULL));
    SESSION_OK(assay_session_open(&s, path, NULL));
    SESSION_FAILS(129, "after its step",
                  assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 2, dims));
    SESSION_FAILS(129, "one token at least", assay_session_step(s, ASSAY_DECODE, 0, ids, 0));
    SESSION_OK(assay_session_step(s, ASSAY_PREFILL, 0, ids, 3));
    SESSION_FAILS(128, "nearest: attn.q_a",
                  assay_session_show_dense(s, "blk.0.attn.qa", x, ASSAY_TYPE_F32, 2, dims));
    SESSION_FAILS(129, "type 99", assay_session_show_dense(s, "embed", x, 99, 2, dims));
    SESSION_FAILS(129, "5 axes", assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 5, five));
    SESSION_FAILS(129, "axis 1 has 0",
                  assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 2, empty));
    SESSION_FAILS(129, "too large",
                  assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 2, huge));
    SESSION_FAILS(129, "no data",
                  assay_session_show_dense(s, "embed", NULL, ASSAY_TYPE_F32, 2, dims));
    SESSION_OK(assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 2, dims));
    SESSION_FAILS(128, "twice", assay_session_show_dense(s, "embed", x, ASSAY_TYPE_F32, 2, dims));
    SESSION_OK(assay_session_close(s)); /* what was right is in the file */
    expect_values(path, "embed", (const double[]){1, 2, 3, 4, 5, 6}, 6);
}
END_TEST

/* A caller built against a later header, and one against an earlier one. */
START_TEST(session_knows_how_long_the_callers_structs_are)
{
    struct {
        assay_session_options known;
        const char *later;
    } o;
    assay_session *s;
    memset(&o, 0, sizeof o);
    o.known = assay_session_options_default();
    o.known.size = sizeof o;
    SESSION_OK(assay_session_open(&s, data_scratch("later.h5"), &o.known));
    assay_session_abandon(s);
    o.later = "something new";
    SESSION_FAILS(125, "does not know", assay_session_open(&s, data_scratch("later.h5"), &o.known));
    o.known.size = 0;
    SESSION_FAILS(129, "assay_session_options_default",
                  assay_session_open(&s, data_scratch("later.h5"), &o.known));
    o.known = assay_session_options_default();
    o.known.tier = "everything";
    o.known.size = offsetof(assay_session_options, tier); /* the field is not the caller's */
    SESSION_OK(assay_session_open(&s, data_scratch("earlier.h5"), &o.known));
    assay_session_abandon(s);
    ck_assert_int_eq(assay_api_version(), ASSAY_API_VERSION);
}
END_TEST

START_TEST(session_that_is_abandoned_leaves_no_file)
{
    char path[4096], partial[4110];
    snprintf(path, sizeof path, "%s", data_scratch("abandoned.h5"));
    snprintf(partial, sizeof partial, "%s.partial", path);
    assay_session *s = opened(path, NULL);
    ck_assert_int_eq(access(partial, F_OK), 0);
    assay_session_abandon(s);
    assay_session_abandon(NULL);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_ne(access(partial, F_OK), 0);
}
END_TEST

EXPECT_MAIN("session", session_takes_every_format_and_strides,
            session_says_where_a_value_was_written_and_read, session_keeps_names_of_the_engine,
            session_copies_from_the_device_by_the_callers_function,
            session_without_a_cuda_runtime_says_so, session_refuses_in_words,
            session_knows_how_long_the_callers_structs_are,
            session_that_is_abandoned_leaves_no_file)
