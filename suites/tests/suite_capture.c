#include <hdf5.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/capture.h"
#include "probes/hdf5.h"
#include "references/run.h"

/* HDF5 1.10.8 forgets a few bytes of its own when it refuses a file that was cut off. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

static const assay_capture_about about = {.producer = "assay",
                                          .producer_version = "0.1",
                                          .architecture = "glm-dsa",
                                          .model_sha256 = "00ff",
                                          .dtype = "f32",
                                          .path = "latent",
                                          .backend = "cpu",
                                          .mode = "eager",
                                          .n_ranks = 1};
static const int32_t tokens[] = {5, 6, 7, 8, 9, 10};
static const int32_t positions[] = {0, 1, 2, 3, 4, 5};
static const int32_t sequences[6] = {0};

/* A tap event of `n` rows from row `first` on; step 0 is the prefill. */
static assay_tap_event event_of(assay_point point, int layer, const assay_buffer *buffer,
                                int64_t first, int64_t n)
{
    return (assay_tap_event){.point = point,
                             .layer = layer,
                             .buffer = buffer,
                             .rows = {n, tokens + first, positions + first, sequences},
                             .step = first ? first - 4 : 0,
                             .is_prefill = first == 0,
                             .n_ranks = 1,
                             .shard_axis = -1,
                             .written_address = buffer->data,
                             .read_address = buffer->data,
                             .written_owner = 17,
                             .read_owner = 18,
                             .written_generation = 1,
                             .read_generation = 1};
}

static void show(assay_capture *c, assay_point point, int layer, assay_dtype type, int n_dims,
                 const int64_t *dims, void *data, int64_t first)
{
    assay_buffer b = assay_buffer_view(data, type, n_dims, dims);
    assay_tap_event e = event_of(point, layer, &b, first, dims[0]);
    EXPECT_OK(assay_capture_tap(c, &e));
}

static assay_run *open_run(const char *path)
{
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    return run;
}

static const float embed[5 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void write_small(const char *path, const assay_capture_options *options)
{
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, options));
    EXPECT_OK(assay_capture_prompt(c, "count", "Count", tokens, 5));
    show(c, ASSAY_POINT_EMBED, -1, ASSAY_DTYPE_F32, 2, (int64_t[]){5, 3}, (void *)embed, 0);
    uint16_t half[5 * 2 * 2];
    for (int i = 0; i < 20; i++)
        half[i] = assay_f32_to_bf16((float)i * 0.37f);
    show(c, ASSAY_POINT_Q, 2, ASSAY_DTYPE_BF16, 3, (int64_t[]){5, 2, 2}, half, 0);
    int32_t ids[5 * 2] = {0, 1, 2, 3, 4, 5, 6, 7, -1, 9};
    show(c, ASSAY_POINT_MOE_TOPK, 2, ASSAY_DTYPE_I32, 2, (int64_t[]){5, 2}, ids, 0);
    float late[3] = {-1, -2, -3};
    show(c, ASSAY_POINT_EMBED, -1, ASSAY_DTYPE_F32, 2, (int64_t[]){1, 3}, late, 5);
    EXPECT_OK(assay_capture_greedy(c, (int32_t[]){10, 11}, 2));
    EXPECT_OK(assay_capture_finish(c));
}

START_TEST(capture_gives_back_what_the_tap_showed)
{
    const char *path = data_scratch("round.h5");
    write_small(path, NULL);
    assay_run *run = open_run(path);
    const assay_run_info *info = assay_run_about(run);
    ck_assert_str_eq(info->producer, "assay");
    ck_assert_str_eq(info->attention_path, "latent");
    ck_assert_str_eq(info->model_sha256, "00ff");
    ck_assert(info->is_complete);
    ck_assert_int_eq(info->n_unmapped, 0);
    const assay_run_prompt *p = assay_run_prompt_at(run, 0);
    ck_assert_str_eq(p->name, "count");
    ck_assert_str_eq(p->text, "Count");
    ck_assert_int_eq(p->n_tokens, 5);
    ck_assert_int_eq(p->n_greedy, 2);
    ck_assert_int_eq(p->greedy[1], 11);
    ck_assert_int_eq(p->n_steps, 2);
    const assay_run_step *decode = assay_run_step_at(run, 0, 1);
    ck_assert(!decode->is_prefill);
    ck_assert_int_eq(decode->first_position, 5);
    ck_assert_int_eq(decode->tokens[0], 10);
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_EMBED, -1);
    ck_assert_ptr_nonnull(seen);
    ck_assert_int_eq(seen->dims[0] * 10 + seen->dims[1], 53);
    ck_assert_int_eq(seen->written_owner, 17);
    ck_assert_int_eq(seen->read_owner, 18);
    double x[20];
    EXPECT_OK(assay_run_read(x, run, seen));
    for (int i = 0; i < 15; i++)
        ck_assert_double_eq(x[i], embed[i]);
    seen = assay_run_find(run, 0, 0, ASSAY_POINT_Q, 2);
    ck_assert_int_eq(seen->origin, ASSAY_DTYPE_BF16);
    EXPECT_OK(assay_run_read(x, run, seen));
    for (int i = 0; i < 20; i++)
        ck_assert_double_eq(x[i], assay_bf16_to_f32(assay_f32_to_bf16((float)i * 0.37f)));
    seen = assay_run_find(run, 0, 0, ASSAY_POINT_MOE_TOPK, 2);
    EXPECT_OK(assay_run_read(x, run, seen));
    ck_assert_double_eq(x[8], -1);
    ck_assert_ptr_null(assay_run_find(run, 0, 1, ASSAY_POINT_Q, 2));
    ck_assert_ptr_null(assay_run_find(run, 0, 0, ASSAY_POINT_Q, 1));
    assay_run_close(run);
}
END_TEST

START_TEST(capture_keeps_every_bit_pattern_of_16_bit_formats)
{
    const char *path = data_scratch("bits.h5");
    uint16_t *words = malloc(65536 * sizeof *words);
    for (int i = 0; i < 65536; i++)
        words[i] = (uint16_t)i;
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 1));
    int64_t dims[] = {1, 65536};
    show(c, ASSAY_POINT_OUT, 0, ASSAY_DTYPE_F16, 2, dims, words, 0);
    show(c, ASSAY_POINT_OUT, 1, ASSAY_DTYPE_BF16, 2, dims, words, 0);
    EXPECT_OK(assay_capture_finish(c));
    assay_run *run = open_run(path);
    double *x = malloc(65536 * sizeof *x);
    for (int layer = 0; layer < 2; layer++) {
        const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_OUT, layer);
        EXPECT_OK(assay_run_read(x, run, seen));
        for (int i = 0; i < 65536; i++) {
            float want = layer ? assay_bf16_to_f32((uint16_t)i) : assay_f16_to_f32((uint16_t)i);
            ck_assert(x[i] == (double)want || (isnan(x[i]) && isnan(want)));
        }
        ck_assert_int_eq(seen->n_pos_inf, 1);
        ck_assert_int_eq(seen->n_zero, 2);
        ck_assert_int_eq(seen->n_nan, layer ? 254 : 2046);
    }
    free(x);
    free(words);
    assay_run_close(run);
}
END_TEST

START_TEST(capture_densifies_strided_buffers)
{
    const char *path = data_scratch("strided.h5");
    float wide[5][7];
    for (int i = 0; i < 35; i++)
        wide[i / 7][i % 7] = (float)i;
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 5));
    assay_buffer b = assay_buffer_view(&wide[0][4], ASSAY_DTYPE_F32, 2, (int64_t[]){5, 3});
    b.strides[0] = 7;
    assay_tap_event e = event_of(ASSAY_POINT_KV_A, 0, &b, 0, 5);
    EXPECT_OK(assay_capture_tap(c, &e));
    EXPECT_OK(assay_capture_finish(c));
    assay_run *run = open_run(path);
    double x[15];
    EXPECT_OK(assay_run_read(x, run, assay_run_find(run, 0, 0, ASSAY_POINT_KV_A, 0)));
    for (int i = 0; i < 15; i++)
        ck_assert_double_eq(x[i], i / 3 * 7 + 4 + i % 3);
    assay_run_close(run);
}
END_TEST

START_TEST(capture_counts_nan_infinities_zeros_and_poison)
{
    const char *path = data_scratch("counts.h5");
    float x[10] = {0, -0.0f, INFINITY, -INFINITY, -INFINITY, NAN, 1, 2, 3, 4};
    uint32_t poison = assay_poison_f32(99);
    memcpy(&x[9], &poison, 4);
    const assay_capture_options options[] = {{.tier = "full"}, {.tier = "stats"}};
    for (int i = 0; i < 2; i++) {
        assay_capture *c;
        EXPECT_OK(assay_capture_create(&c, path, &about, &options[i]));
        EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 1));
        show(c, ASSAY_POINT_OUT, 0, ASSAY_DTYPE_F32, 2, (int64_t[]){1, 10}, x, 0);
        EXPECT_OK(assay_capture_finish(c));
        assay_run *run = open_run(path);
        const assay_seen *s = assay_run_find(run, 0, 0, ASSAY_POINT_OUT, 0);
        ck_assert_ptr_nonnull(s);
        ck_assert_int_eq(s->has_values, i == 0);
        ck_assert_int_eq(s->n_nan, 2);
        ck_assert_int_eq(s->n_pos_inf, 1);
        ck_assert_int_eq(s->n_neg_inf, 2);
        ck_assert_int_eq(s->n_zero, 2);
        ck_assert_int_eq(s->n_poison, 1);
        double y[10];
        if (i == 1)
            EXPECT_FAILS(ASSAY_MISSING, assay_run_read(y, run, s));
        assay_run_close(run);
    }
}
END_TEST

START_TEST(capture_leaves_out_what_the_selector_does_not_name)
{
    const char *path = data_scratch("selected.h5");
    write_small(path, &(assay_capture_options){.selector = "layer=2 point=attn.*"});
    assay_run *run = open_run(path);
    ck_assert_int_eq(assay_run_n_seen(run, 0, 0), 1);
    ck_assert_int_eq(assay_run_n_seen(run, 0, 1), 0);
    ck_assert_ptr_nonnull(assay_run_find(run, 0, 0, ASSAY_POINT_Q, 2));
    assay_run_close(run);
}
END_TEST

START_TEST(capture_keeps_its_budget_and_says_what_it_dropped)
{
    const char *path = data_scratch("budget.h5");
    write_small(path, &(assay_capture_options){.budget_bytes = 100});
    assay_run *run = open_run(path);
    ck_assert(assay_run_find(run, 0, 0, ASSAY_POINT_EMBED, -1)->has_values);
    ck_assert(assay_run_find(run, 0, 0, ASSAY_POINT_Q, 2)->has_values);
    const assay_seen *over = assay_run_find(run, 0, 0, ASSAY_POINT_MOE_TOPK, 2);
    ck_assert_ptr_nonnull(over);
    ck_assert(!over->has_values);
    ck_assert_int_eq(assay_run_n_notes(run), 1);
    ck_assert_ptr_nonnull(strstr(assay_run_note_at(run, 0), "left out 2 values or sketches"));
    assay_run_close(run);
    hid_t file;
    EXPECT_OK(assay_h5_open(&file, path));
    ck_assert_int_eq(assay_h5_kind(file, "/dropped"), 'd');
    H5Fclose(file);
}
END_TEST

START_TEST(capture_of_sketches_keeps_its_budget_too)
{
    const char *path = data_scratch("budget.h5");
    write_small(path, &(assay_capture_options){.tier = "sketch", .budget_bytes = 2100});
    assay_run *run = open_run(path);
    ck_assert_int_eq(assay_run_n_notes(run), 1);
    ck_assert_ptr_nonnull(strstr(assay_run_note_at(run, 0), "left out 2 values or sketches"));
    assay_run_close(run);
    hid_t file;
    assay_h5_info sketches;
    EXPECT_OK(assay_h5_open(&file, path));
    EXPECT_OK(assay_h5_dataset(&sketches, file, "/prompts/count/sketch/values"));
    ck_assert_int_eq(sketches.dims[0], 2);
    H5Fclose(file);
}
END_TEST

START_TEST(capture_in_progress_has_another_name_and_says_incomplete)
{
    const char *path = data_scratch("cut.h5");
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 5));
    show(c, ASSAY_POINT_EMBED, -1, ASSAY_DTYPE_F32, 2, (int64_t[]){5, 3}, (void *)embed, 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    assay_capture_abandon(c);
    ck_assert_int_ne(access(path, F_OK), 0);
    char partial[4096];
    snprintf(partial, sizeof partial, "%s.partial", path);
    ck_assert_int_ne(access(partial, F_OK), 0);
}
END_TEST

enum { WIDE = 150000 }; /* 3 MB a value */

/* Writes until it is killed; reports how many steps were begun through the pipe. */
static void write_forever(const char *path, int pipe_end, bool is_wide)
{
    assay_capture *c;
    float *wide = malloc(5 * WIDE * sizeof *wide);
    for (int i = 0; wide && i < 5 * WIDE; i++)
        wide[i] = (float)i + 1;
    if (!wide || assay_capture_create(&c, path, &about, NULL) ||
        assay_capture_prompt(c, "p", NULL, tokens, 5))
        _exit(1);
    for (int64_t step = 0;; step++) {
        for (int layer = 0; layer < 8; layer++) {
            const bool large = is_wide && layer % 4 == 0;
            assay_buffer b = assay_buffer_view(large ? wide : (void *)embed, ASSAY_DTYPE_F32, 2,
                                               (int64_t[]){5, large ? WIDE : 3});
            assay_tap_event e = event_of(ASSAY_POINT_OUT, layer, &b, 0, 5);
            e.step = step;
            if (assay_capture_tap(c, &e))
                _exit(1);
        }
        if (write(pipe_end, "x", 1) != 1)
            _exit(1);
    }
}

/* Every value of every step that is there. */
static void check_values(assay_run *run, bool is_wide)
{
    static double x[5 * WIDE];
    for (int step = 0; step < assay_run_prompt_at(run, 0)->n_steps; step++)
        for (int layer = 0; layer < 8; layer++) {
            const int n = is_wide && layer % 4 == 0 ? 5 * WIDE : 15;
            const assay_seen *seen = assay_run_find(run, 0, step, ASSAY_POINT_OUT, layer);
            ck_assert_ptr_nonnull(seen);
            EXPECT_OK(assay_run_read(x, run, seen));
            const int step_by = n > 15 ? 997 : 1;
            for (int i = 0; i < n; i += step_by)
                ck_assert_double_eq(x[i], i + 1);
        }
}

static const char *round_path(int round)
{
    char name[32];
    snprintf(name, sizeof name, "killed%d.h5.partial", round);
    return data_scratch(name);
}

static void kill_one(const char *path, int round, bool is_wide)
{
    char x;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        write_forever(path, ends[1], is_wide);
    for (int i = 0; i < 3 + round; i++)
        ck_assert_int_eq(read(ends[0], &x, 1), 1);
    usleep((useconds_t)(round * 137));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    ck_assert_int_ne(access(path, F_OK), 0);
}

/* All are killed before one is read, in threads that do not survive a fork. */
static void check_killed(bool is_wide)
{
    enum { ROUNDS = 8 };
    int n_opened = 0;
    char path[4096], partial[4200];
    snprintf(path, sizeof path, "%s", data_scratch(is_wide ? "killed-wide.h5" : "killed.h5"));
    for (int round = 0; round < ROUNDS; round++) {
        kill_one(path, round, is_wide);
        snprintf(partial, sizeof partial, "%s.partial", path);
        ck_assert_int_eq(rename(partial, round_path(round)), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        assay_run *run;
        const char *at = round_path(round);
        if (assay_run_open(&run, &at, 1, NULL) == ASSAY_OK) {
            n_opened++;
            ck_assert(!assay_run_about(run)->is_complete);
            ck_assert_int_ge(assay_run_prompt_at(run, 0)->n_steps, 2);
            check_values(run, is_wide);
            assay_run_close(run);
        }
        unlink(round_path(round));
    }
    ck_assert_int_ge(n_opened, 4);
}

START_TEST(capture_cut_off_by_kill_never_passes_for_whole)
{
    check_killed(false);
}
END_TEST

START_TEST(capture_cut_off_by_kill_holds_the_large_values_of_its_steps)
{
    check_killed(true);
}
END_TEST

START_TEST(capture_refuses_wrong_use)
{
    const char *path = data_scratch("wrong.h5");
    assay_capture *c;
    EXPECT_FAILS(ASSAY_USAGE, assay_capture_create(&c, path, &about,
                                                   &(assay_capture_options){.tier = "everything"}));
    EXPECT_SAYS("known: stats, sketch, rows, full");
    EXPECT_FAILS(
        ASSAY_USAGE,
        assay_capture_create(&c, path, &about, &(assay_capture_options){.selector = "layer=x"}));
    EXPECT_FAILS(ASSAY_IO, assay_capture_create(&c, "/nowhere/at/all.h5", &about, NULL));
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_FAILS(ASSAY_USAGE, assay_capture_prompt(c, "a/b", NULL, tokens, 1));
    EXPECT_FAILS(ASSAY_USAGE, assay_capture_prompt(c, "", NULL, tokens, 1));
    EXPECT_OK(assay_capture_prompt(c, "a", NULL, tokens, 1));
    EXPECT_FAILS(ASSAY_USAGE, assay_capture_prompt(c, "a", NULL, tokens, 1));
    assay_buffer b = assay_buffer_view((void *)embed, ASSAY_DTYPE_F32, 2, (int64_t[]){5, 3});
    EXPECT_FAILS(ASSAY_USAGE, assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 5));
    EXPECT_FAILS(ASSAY_MISSING, assay_capture_value(c, "embd", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_OK(assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_SAYS("twice");
    assay_capture_abandon(c);
    assay_capture_abandon(NULL);
}
END_TEST

static void flip_byte_of(const char *path, float value)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    float x;
    for (long at = 0; fseek(f, at, SEEK_SET) == 0 && fread(&x, 4, 1, f) == 1; at++)
        if (x == value) {
            fseek(f, at, SEEK_SET);
            fputc(1, f);
            break;
        }
    fclose(f);
}

/* The value is read, one byte of it changed in the file, and refused with its name. */
static void check_changed_byte(const char *path, bool is_reference, const char *words)
{
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 5));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 5));
    float x[15];
    for (int i = 0; i < 15; i++)
        x[i] = 1234.5f + (float)i;
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){5, 3});
    EXPECT_OK(assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, 1e-7));
    if (is_reference)
        EXPECT_OK(assay_capture_mark_reference(c, "oracle", "f64"));
    EXPECT_OK(assay_capture_finish(c));
    double y[15];
    assay_run *run = open_run(path);
    ck_assert_int_eq(assay_run_about(run)->is_reference, is_reference);
    EXPECT_OK(assay_run_read(y, run, assay_run_find(run, 0, 0, ASSAY_POINT_EMBED, -1)));
    ck_assert_double_eq(y[3], 1237.5);
    assay_run_close(run);
    flip_byte_of(path, 1237.5f);
    run = open_run(path);
    EXPECT_FAILS(ASSAY_BAD_FILE,
                 assay_run_read(y, run, assay_run_find(run, 0, 0, ASSAY_POINT_EMBED, -1)));
    EXPECT_SAYS("was changed");
    EXPECT_SAYS(words);
    EXPECT_SAYS(path);
    assay_run_close(run);
}

START_TEST(capture_and_reference_notice_changed_bytes)
{
    check_changed_byte(data_scratch("reference.h5"), true, "SHA-256");
    check_changed_byte(data_scratch("capture.h5"), false, "checksum");
}
END_TEST

/* Reading embed of a capture whose checksum is put in place of its own, as older ones carry it. */
static assay_status read_with_older_checksum(const char *path, uint64_t checksum)
{
    write_small(path, NULL);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    hid_t set = H5Dopen2(file, "/prompts/count/steps/0000/embed", H5P_DEFAULT);
    ck_assert(H5Adelete(set, "word_sum") >= 0);
    hid_t attr = H5Acreate2(set, "checksum", H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Awrite(attr, H5T_NATIVE_UINT64, &checksum) >= 0);
    H5Aclose(attr);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(file);
    double room[64];
    assay_run *run = open_run(path);
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_EMBED, -1);
    ck_assert_int_le(assay_seen_count(seen), 64);
    assay_status s = assay_run_read(room, run, seen);
    assay_run_close(run);
    return s;
}

START_TEST(capture_with_the_older_checksum_is_proven_by_it)
{
    const uint64_t of_embed = 0x7B3F67D3FD822529u; /* by a program of its own */
    const char *path = data_scratch("older.h5");
    EXPECT_OK(read_with_older_checksum(path, of_embed));
    EXPECT_FAILS(ASSAY_BAD_FILE, read_with_older_checksum(path, of_embed + 1));
    EXPECT_SAYS("was changed");
}
END_TEST

START_TEST(capture_with_absurd_counts_is_refused)
{
    const double absurd[] = {2.2e307, -3, NAN, 1.5};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        char name[32];
        snprintf(name, sizeof name, "absurd%zu.h5", i);
        const char *path = data_scratch(name);
        write_small(path, &(assay_capture_options){.tier = "stats"});
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        hid_t set = H5Dopen2(file, "/prompts/count/stats/values", H5P_DEFAULT);
        double rows[16][10];
        ck_assert_int_le(H5Sget_simple_extent_npoints(H5Dget_space(set)), 160);
        ck_assert(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0);
        rows[0][1] = absurd[i];
        ck_assert(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0);
        H5Dclose(set);
        H5Fclose(file);
        assay_run *run;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &path, 1, NULL));
        EXPECT_SAYS("row 0 of the statistics");
    }
}
END_TEST

START_TEST(capture_rows_tier_keeps_both_ends)
{
    const char *path = data_scratch("rows.h5");
    float x[20];
    for (int i = 0; i < 20; i++)
        x[i] = (float)i;
    int32_t many[10] = {0};
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, &(assay_capture_options){.tier = "rows"}));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, many, 10));
    EXPECT_OK(assay_capture_step(c, true, 0, many, 10));
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){10, 2});
    EXPECT_OK(assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_OK(assay_capture_finish(c));
    hid_t file;
    assay_h5_info info;
    double y[8];
    EXPECT_OK(assay_h5_open(&file, path));
    EXPECT_OK(assay_h5_dataset(&info, file, "/prompts/p/steps/0000/embed"));
    ck_assert_int_eq(info.dims[0], 4);
    EXPECT_OK(assay_h5_read_f64(y, file, "/prompts/p/steps/0000/embed", &info));
    ck_assert_double_eq(y[2], 2);
    ck_assert_double_eq(y[4], 16);
    ck_assert_double_eq(y[7], 19);
    int64_t *rows, n;
    bool found;
    EXPECT_OK(assay_h5_attr_ints(&rows, &n, &found, file, "/prompts/p/steps/0000/embed", "rows"));
    ck_assert(found && n == 4 && rows[2] == 8);
    free(rows);
    H5Fclose(file);
}
END_TEST

EXPECT_MAIN("capture", capture_gives_back_what_the_tap_showed,
            capture_keeps_every_bit_pattern_of_16_bit_formats, capture_densifies_strided_buffers,
            capture_counts_nan_infinities_zeros_and_poison,
            capture_leaves_out_what_the_selector_does_not_name,
            capture_keeps_its_budget_and_says_what_it_dropped,
            capture_of_sketches_keeps_its_budget_too,
            capture_in_progress_has_another_name_and_says_incomplete,
            capture_cut_off_by_kill_never_passes_for_whole,
            capture_cut_off_by_kill_holds_the_large_values_of_its_steps, capture_refuses_wrong_use,
            capture_and_reference_notice_changed_bytes,
            capture_with_the_older_checksum_is_proven_by_it, capture_with_absurd_counts_is_refused,
            capture_rows_tier_keeps_both_ends)
