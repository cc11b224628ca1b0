/* Runs of several ranks: foreign rank files, rank files of ours, and master files over them. */
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/capture.h"
#include "probes/capture_master.h"
#include "references/run.h"

static double *values(const assay_run *run, const assay_seen *seen)
{
    ck_assert_ptr_nonnull(seen);
    int64_t n = assay_seen_count(seen);
    double *x = malloc((size_t)n * sizeof *x);
    EXPECT_OK(assay_run_read(x, run, seen));
    return x;
}

static bool says(const assay_run *run, const char *text)
{
    for (int i = 0; i < assay_run_n_notes(run); i++)
        if (strstr(assay_run_note_at(run, i), text))
            return true;
    return false;
}

/* Two copies, since data_large's buffers are few. */
static bool rank_paths(char paths[2][4096], const char *kind)
{
    for (int r = 0; r < 2; r++) {
        char name[64];
        snprintf(name, sizeof name, "ranks/tp_%s.rank%dof2.h5", kind, r);
        const char *path = data_large(name);
        if (!path)
            return false;
        snprintf(paths[r], 4096, "%s", path);
    }
    return true;
}

START_TEST(ranks_put_together_are_the_run_of_one_rank)
{
    char paths[2][4096];
    if (!rank_paths(paths, "none"))
        return;
    const char *both[] = {paths[1], paths[0]}; /* any order */
    const char *one = data_large("references/glm5-tiny-bf16.hf-fp32.h5");
    assay_run *run, *reference;
    assay_run_options options = assay_run_options_default();
    options.prompt = "count";
    EXPECT_OK(assay_run_open(&run, both, 2, NULL));
    EXPECT_OK(assay_run_open(&reference, &one, 1, &options));
    ck_assert_int_eq(assay_run_about(run)->n_ranks, 2);
    ck_assert_int_eq(assay_run_n_notes(run), 0);
    int n = 0;
    for (int i = 0; i < assay_run_n_seen(reference, 0, 0); i++) {
        const assay_seen *want = assay_run_seen_at(reference, 0, 0, i);
        const assay_seen *got =
            assay_run_find_part(run, 0, 0, want->point, want->layer, -1, want->hand_over);
        char name[ASSAY_POINT_NAME_BYTES];
        assay_point_format(name, want->point, want->layer);
        ck_assert_msg(got != NULL, "%s is missing", name);
        ck_assert_int_eq(got->n_dims, want->n_dims);
        double *x = values(run, got), *y = values(reference, want), d = 0, s = 0;
        int64_t count = 1;
        for (int k = 0; k < want->n_dims; k++) {
            ck_assert_msg(got->dims[k] == want->dims[k], "%s: axis %d", name, k);
            count *= want->dims[k];
        }
        for (int64_t k = 0; k < count; k++) {
            d += (x[k] - y[k]) * (x[k] - y[k]);
            s += y[k] * y[k];
        }
        ck_assert_msg(sqrt(d / s) < 1e-5, "%s: %g", name, sqrt(d / s));
        free(x);
        free(y);
        n++;
    }
    ck_assert_int_gt(n, 100);
    assay_run_close(run);
    assay_run_close(reference);
}
END_TEST

START_TEST(ranks_keep_what_each_saw)
{
    char paths[2][4096];
    if (!rank_paths(paths, "q_swap"))
        return;
    const char *both[] = {paths[0], paths[1]};
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, both, 2, NULL));
    const assay_seen *whole = assay_run_find(run, 0, 0, ASSAY_POINT_Q, 1);
    double *all = values(run, whole);
    for (int r = 0; r < 2; r++) {
        const assay_seen *part = assay_run_find_part(run, 0, 0, ASSAY_POINT_Q, 1, r, 0);
        ck_assert_int_eq(part->dims[1], 4);
        double *x = values(run, part);
        for (int t = 0; t < 8; t++)
            ck_assert_mem_eq(all + (t * 8 + 4 * r) * 96, x + t * 4 * 96, 4 * 96 * sizeof *x);
        free(x);
    }
    free(all);
    const assay_seen *probs = assay_run_find(run, 0, 0, ASSAY_POINT_PROBS, 1);
    ck_assert_int_eq(probs->dims[0], 8);
    assay_run_close(run);
}
END_TEST

START_TEST(ranks_that_are_missing_are_reported_not_filled)
{
    char paths[2][4096];
    if (!rank_paths(paths, "none"))
        return;
    const char *one = paths[1];
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &one, 1, NULL));
    ck_assert(says(run, "rank 0 of 2 is missing"));
    ck_assert(says(run, "known in part only"));
    ck_assert_ptr_null(assay_run_find(run, 0, 0, ASSAY_POINT_Q, 1));
    ck_assert_ptr_nonnull(assay_run_find_part(run, 0, 0, ASSAY_POINT_Q, 1, 1, 0));
    ck_assert_ptr_nonnull(assay_run_find(run, 0, 0, ASSAY_POINT_Q_A, 1));
    assay_run_close(run);
    const char *twice[] = {paths[1], paths[1]};
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, twice, 2, NULL));
    EXPECT_SAYS("rank 1 was given twice");
    const char *other = data_large("candidates/none.h5");
    const char *mixed[] = {paths[0], other};
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, mixed, 2, NULL));
}
END_TEST

static const int32_t tokens[2] = {1, 2}, positions[2] = {0, 1}, sequences[2] = {0, 0};

static void show(assay_capture *c, int rank, assay_point point, float *x, int n_dims,
                 const int64_t *dims, int axis, bool partial)
{
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, n_dims, dims);
    assay_tap_event e = {.point = point,
                         .buffer = &b,
                         .rows = {2, tokens, positions, sequences},
                         .is_prefill = true,
                         .rank = rank,
                         .n_ranks = 2,
                         .shard_axis = axis,
                         .partial = partial};
    EXPECT_OK(assay_capture_tap(c, &e));
}

/* attn.q [2, 4, 3] split over heads, attn.proj.partial, and attn.q_a [2, 5] replicated. */
static void write_rank(const char *path, int rank)
{
    const assay_capture_about about = {.producer = "assay",
                                       .architecture = "glm-dsa",
                                       .model_sha256 = "1234",
                                       .dtype = "f32",
                                       .n_ranks = 2,
                                       .rank = rank};
    float q[12], a[10], p[10];
    for (int i = 0; i < 12; i++)
        q[i] = (float)(100 * (i / 6) + 6 * rank + i % 6);
    for (int i = 0; i < 10; i++) {
        a[i] = (float)i;
        p[i] = (float)(i + 1000 * rank);
    }
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 2));
    show(c, rank, ASSAY_POINT_Q_A, a, 2, (int64_t[]){2, 5}, -1, false);
    show(c, rank, ASSAY_POINT_Q, q, 3, (int64_t[]){2, 2, 3}, 1, false);
    show(c, rank, ASSAY_POINT_PROJ, p, 2, (int64_t[]){2, 5}, -1, true);
    EXPECT_OK(assay_capture_finish(c));
}

static void expect_whole(const assay_run *run)
{
    const assay_seen *q = assay_run_find(run, 0, 0, ASSAY_POINT_Q, 0);
    ck_assert_ptr_nonnull(q);
    ck_assert_int_eq(q->dims[1], 4);
    double *x = values(run, q);
    for (int i = 0; i < 24; i++)
        ck_assert_double_eq(x[i], 100 * (i / 12) + i % 12);
    free(x);
    x = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_Q_A, 0));
    ck_assert_double_eq(x[7], 7);
    free(x);
    ck_assert_ptr_null(assay_run_find(run, 0, 0, ASSAY_POINT_PROJ, 0));
    for (int r = 0; r < 2; r++) {
        const assay_seen *p = assay_run_find_partial(run, 0, 0, ASSAY_POINT_PROJ, 0, r);
        ck_assert_ptr_nonnull(p);
        ck_assert(p->partial);
        x = values(run, p);
        ck_assert_double_eq(x[3], 3 + 1000 * r);
        free(x);
    }
}

START_TEST(ranks_of_our_own_captures_are_put_together)
{
    char paths[2][4096];
    for (int r = 0; r < 2; r++) {
        snprintf(paths[r], 4096, "%s", data_scratch(r ? "own.rank1.h5" : "own.rank0.h5"));
        write_rank(paths[r], r);
    }
    const char *both[] = {paths[0], paths[1]};
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, both, 2, NULL));
    expect_whole(run);
    ck_assert_int_eq(assay_run_n_notes(run), 0);
    assay_run_close(run);
}
END_TEST

START_TEST(ranks_master_file_shows_the_whole_without_copying)
{
    char paths[2][4096], master[4096];
    for (int r = 0; r < 2; r++) {
        snprintf(paths[r], 4096, "%s", data_scratch(r ? "m.rank1.h5" : "m.rank0.h5"));
        write_rank(paths[r], r);
    }
    snprintf(master, sizeof master, "%s", data_scratch("m.h5"));
    const char *both[] = {paths[1], paths[0]}, *at = master;
    EXPECT_OK(assay_capture_master(master, both, 2));
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &at, 1, NULL));
    ck_assert_str_eq(assay_run_about(run)->model_sha256, "1234");
    expect_whole(run);
    ck_assert_int_eq(assay_run_n_notes(run), 0);
    assay_run_close(run);
    /* HDF5 would show zeros now */
    ck_assert_int_eq(unlink(paths[1]), 0);
    EXPECT_OK(assay_run_open(&run, &at, 1, NULL));
    ck_assert(says(run, "a rank's file is missing"));
    const assay_seen *q = assay_run_find(run, 0, 0, ASSAY_POINT_Q, 0);
    ck_assert(!q->has_values);
    double x[24];
    EXPECT_FAILS(ASSAY_MISSING, assay_run_read(x, run, q));
    assay_run_close(run);
    EXPECT_FAILS(ASSAY_IO, assay_capture_master(master, both, 2));
    const char *same[] = {paths[0], paths[0]};
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_capture_master(master, same, 2));
}
END_TEST

EXPECT_MAIN("ranks", ranks_put_together_are_the_run_of_one_rank, ranks_keep_what_each_saw,
            ranks_that_are_missing_are_reported_not_filled,
            ranks_of_our_own_captures_are_put_together,
            ranks_master_file_shows_the_whole_without_copying)
