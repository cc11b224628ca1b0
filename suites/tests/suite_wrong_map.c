/*
 * Name maps that are wrong about how values lie, in shapes that fit, and engines that really
 * compute with values in such an order: the first is a note, the second a fault. One run of this
 * engine, shown as an engine of no known name would show it.
 */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "references/checkpoint.h"
#include "references/layout.h"

enum { N = 8, MAX_ROWS = 128 }; /* as many tokens as heads and experts, so that shapes fit */

static const struct kind {
    const char *name; /* of the reading that is right */
    assay_point point;
    const char *wrong;    /* what the map says of the point; "": its own axes */
    bool is_flat;         /* the dump has all axes behind the first in one */
    assay_relay stored;   /* the dump lies so; NONE: canonical, and the map is wrong alone */
    assay_relay computed; /* what an engine does that has it as a fault */
} kinds[] = {
    {"transposed (tokens innermost)", ASSAY_POINT_MOE_LOGITS, "    axes: ET\n", false,
     ASSAY_RELAY_NONE, ASSAY_RELAY_TRANSPOSED},
    {"head-major", ASSAY_POINT_Q, "    axes: HTK\n", false, ASSAY_RELAY_NONE,
     ASSAY_RELAY_HEAD_MAJOR},
    {"heads outermost", ASSAY_POINT_KV_B, "    axes: TBH\n", true, ASSAY_RELAY_NONE,
     ASSAY_RELAY_HEADS_INNER},
    {"heads innermost", ASSAY_POINT_KV_B, "", true, ASSAY_RELAY_HEADS_OUTER,
     ASSAY_RELAY_HEADS_OUTER},
    {"adjacent rotary pairs", ASSAY_POINT_Q_ROPE, "    order: pairs-all\n", false, ASSAY_RELAY_NONE,
     ASSAY_RELAY_HALF_SPLIT},
    {"half-split rotary pairs", ASSAY_POINT_Q_ROPE, "", false, ASSAY_RELAY_ADJACENT,
     ASSAY_RELAY_ADJACENT},
    {"halves exchanged", ASSAY_POINT_Q_ROPE, "", false, ASSAY_RELAY_HALVES, ASSAY_RELAY_HALVES}};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static char model[600], dump[600], names[600];
static assay_result result;

/* What the engine makes at the kind's point, in the other order, in every layer. */
static assay_status reorder(void *user, const assay_tap_event *event)
{
    const struct kind *k = user;
    const assay_buffer *b = event->buffer;
    int64_t n = assay_buffer_count(b);
    if (event->point != k->point)
        return ASSAY_OK;
    double *x = malloc(2 * (size_t)n * sizeof *x), *y = x + n;
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float *)b->data)[i];
    ck_assert(assay_relay_apply(y, x, b->dims, b->n_dims, k->computed));
    for (int64_t i = 0; i < n; i++)
        ((float *)b->data)[i] = (float)y[i];
    free(x);
    return ASSAY_OK;
}

static void put_dataset(hid_t group, const char *name, int n_dims, const hsize_t *dims, hid_t type,
                        const void *values, hid_t memory)
{
    hid_t space = H5Screate_simple(n_dims, dims, NULL);
    hid_t set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* stored: how the kind's point lies in the file; k NULL: everything canonical. */
static void put_value(hid_t group, const assay_run *run, const assay_seen *seen,
                      const struct kind *k, assay_relay stored)
{
    hsize_t dims[ASSAY_MAX_DIMS];
    char name[ASSAY_POINT_NAME_BYTES];
    int n_dims = seen->n_dims;
    size_t n = 1;
    for (int d = 0; d < n_dims; d++)
        n *= dims[d] = (hsize_t)seen->dims[d];
    double *x = malloc(2 * n * sizeof *x), *y = x + n;
    EXPECT_OK(assay_run_read(x, run, seen));
    bool is_it = k && seen->point == k->point;
    if (is_it && stored != ASSAY_RELAY_NONE)
        ck_assert(assay_relay_apply(y, x, seen->dims, n_dims, stored));
    else
        memcpy(y, x, n * sizeof *x);
    if (is_it && k->is_flat) {
        dims[1] *= dims[2];
        n_dims = 2;
    }
    hid_t type = assay_point_at(seen->point)->is_ids ? H5T_STD_I32LE : H5T_IEEE_F32LE;
    put_dataset(group, assay_point_format(name, seen->point, seen->layer), n_dims, dims, type, y,
                H5T_NATIVE_DOUBLE);
    free(x);
}

/* One row for each point: its own axes; of the kind's point what `wrong` says. */
static void put_map(const struct kind *k, const char *wrong)
{
    FILE *f = fopen(names, "w");
    ck_assert_ptr_nonnull(f);
    fputs("maps:\n", f);
    for (int p = 0; p < ASSAY_POINT_COUNT; p++) {
        const assay_point_info *info = assay_point_at((assay_point)p);
        fprintf(f, "  - name: '%s", info->per_layer ? "blk\\.(\\d+)\\." : "");
        for (const char *c = info->name; *c; c++)
            fprintf(f, *c == '.' ? "\\." : "%c", *c);
        fprintf(f, "'\n    point: %s\n%s", info->name, k->point == (assay_point)p ? wrong : "");
    }
    ck_assert(fclose(f) == 0);
}

/* The run of an engine (with the fault, or right) as a dump with these readings. */
static void make_dump(const struct kind *k, bool is_fault)
{
    static const int32_t tokens[N] = {289, 285, 230, 31, 275, 230, 434, 35};
    static const hsize_t n_tokens = N;
    char capture[600];
    const char *path = capture;
    assay_run *run;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(dump, sizeof dump, "%s", data_scratch("dump.h5"));
    snprintf(names, sizeof names, "%s", data_scratch("names.yaml"));
    snprintf(capture, sizeof capture, "%s", data_scratch("plain.h5"));
    EXPECT_OK(capture_injected(capture, model, tokens, N, 1, ASSAY_DTYPE_F32, NULL, 0,
                               is_fault ? reorder : NULL, (void *)(uintptr_t)k));
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    hid_t file = H5Fcreate(dump, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t prompt = H5Gcreate2(file, "/count", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t step = H5Gcreate2(prompt, "step0000", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    put_dataset(prompt, "tokens", 1, &n_tokens, H5T_STD_I32LE, tokens, H5T_NATIVE_INT32);
    put_dataset(step, "input_tokens", 1, &n_tokens, H5T_STD_I32LE, tokens, H5T_NATIVE_INT32);
    for (int i = 0; i < assay_run_n_seen(run, 0, 0); i++) {
        const assay_seen *seen = assay_run_seen_at(run, 0, 0, i);
        if (!seen->hand_over)
            put_value(step, run, seen, is_fault ? NULL : k,
                      is_fault ? ASSAY_RELAY_NONE : k->stored);
    }
    H5Gclose(step);
    H5Gclose(prompt);
    H5Fclose(file);
    assay_run_close(run);
    put_map(k, is_fault ? "" : k->wrong);
}

static void diagnose(void)
{
    const char *path = dump;
    assay_judge_model m;
    assay_hparams hp;
    assay_run *run;
    assay_run_options how = assay_run_options_default();
    EXPECT_OK(assay_result_init(&result, "diagnose"));
    EXPECT_OK(assay_judge_model_open(&m, model, 0));
    EXPECT_OK(assay_hparams_read(&hp, m.file));
    assay_run_sizes sizes = assay_run_sizes_of(&hp);
    how.names = names;
    how.sizes = &sizes;
    EXPECT_OK(assay_run_open(&run, &path, 1, &how));
    ck_assert_int_eq(assay_run_about(run)->n_unmapped, 0);
    EXPECT_OK(
        assay_diagnose(&result, run, m.oracle,
                       &(assay_diagnose_options){.file = m.own, .forced = {.last_layer = -1}}));
    assay_run_close(run);
    assay_judge_model_close(&m);
}

static const char *layout_note(void)
{
    for (int i = 0; i < result.notes.n; i++)
        if (strstr(result.notes.items[i], "the layout of "))
            return result.notes.items[i];
    return NULL;
}

START_TEST(a_map_that_is_wrong_about_a_layout_is_named_as_that)
{
    for (int i = 0; i < N_KINDS; i++) {
        char says[128];
        make_dump(&kinds[i], false);
        diagnose();
        ck_assert_msg(result.n_findings == 0, "%s: %s", kinds[i].name, diagnosed_text(&result));
        snprintf(says, sizeof says, "the layout of %s is %s, not as the name map says",
                 assay_point_at(kinds[i].point)->name, kinds[i].name);
        ck_assert_msg(layout_note() && strstr(layout_note(), says), "%s: '%s'", says,
                      layout_note() ? layout_note() : "no note");
        assay_result_clear(&result);
    }
}
END_TEST

START_TEST(an_engine_that_computes_in_another_order_has_a_fault)
{
    for (int i = 0; i < N_KINDS; i++) {
        char at[64];
        make_dump(&kinds[i], true);
        diagnose();
        ck_assert_msg(!layout_note(), "%s: %s", kinds[i].name, layout_note());
        ck_assert_msg(result.n_findings > 0, "%s: nothing found", kinds[i].name);
        snprintf(at, sizeof at, "%s", assay_point_at(kinds[i].point)->name);
        for (int f = 0; f < result.n_findings; f++)
            ck_assert_msg(strstr(result.findings[f].point, at) != NULL, "%s: %s", kinds[i].name,
                          diagnosed_text(&result));
        assay_result_clear(&result);
    }
}
END_TEST

EXPECT_MAIN("wrong_map", a_map_that_is_wrong_about_a_layout_is_named_as_that,
            an_engine_that_computes_in_another_order_has_a_fault)
