/* Dumps of other engines, read through assay_run. Numbers were taken from the files with h5py. */
#include "references/run.h"

#include <dirent.h>
#include <stdio.h>

#include "data.h"
#include "expect.h"

static assay_run *open_run(const char *path)
{
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    return run;
}

/* One element of a value, by its canonical coordinates. */
static double element(const assay_run *run, const assay_seen *seen, const int64_t *at)
{
    ck_assert_ptr_nonnull(seen);
    int64_t n = 1, flat = 0;
    for (int d = 0; d < seen->n_dims; d++) {
        n *= seen->dims[d];
        flat = flat * seen->dims[d] + at[d];
    }
    double *x = malloc((size_t)n * sizeof *x);
    EXPECT_OK(assay_run_read(x, run, seen));
    double value = x[flat];
    free(x);
    return value;
}

static double *values(const assay_run *run, const assay_seen *seen)
{
    ck_assert_ptr_nonnull(seen);
    int64_t n = assay_seen_count(seen);
    double *x = malloc((size_t)n * sizeof *x);
    EXPECT_OK(assay_run_read(x, run, seen));
    return x;
}

typedef struct spot {
    const char *file, *prompt;
    int step;
    const char *point;
    int64_t at[4];
    double value;
} spot;

#define GLM "references/glm5-tiny-bf16.hf-fp32.h5"
#define LLAMA "references/llama-tiny-bf16.hf-fp32.h5"
#define GGML "foreign/glm5-tiny-Q4_K_M.llama_cpp.h5"

static const spot spots[] = {
    {GLM, "text", 0, "blk.2.attn.q_rope", {17, 3, 5}, 2.6255054473876953},
    {GLM, "text", 0, "blk.2.attn.q_rope", {17, 3, 4}, -0.6473313570022583},
    {GLM, "text", 0, "blk.2.attn.q", {17, 3, 63}, -0.7298990488052368},
    {GLM, "text", 0, "blk.2.attn.q", {17, 3, 70}, 0.6555447578430176},
    {GLM, "text", 0, "blk.2.attn.k", {39, 7, 95}, 1.7188026905059814},
    {GLM, "text", 0, "blk.2.attn.k", {39, 7, 93}, -0.48933786153793335},
    {GLM, "text", 0, "blk.2.attn.k_rope", {39, 30}, -0.9968875646591187},
    {GLM, "text", 0, "blk.2.attn.v", {20, 1, 10}, -0.2829945385456085},
    {GLM, "text", 0, "blk.2.attn.probs", {2, 30, 7}, 1.74930469415413e-11},
    {GLM, "text", 0, "blk.2.attn.kernel_out", {5, 6, 7}, 0.6047212481498718},
    {GLM, "text", 0, "blk.2.attn.kv_b", {11, 4, 100}, -1.2451454401016235},
    {GLM, "text", 0, "blk.2.attn.index.q_proj", {3, 2, 1}, -0.28657039999961853},
    {GLM, "text", 0, "blk.2.attn.index.topk", {39, 5}, 10},
    {GLM, "text", 0, "blk.2.moe.weights", {39, 1}, 0.5603039860725403},
    {GLM, "text", 0, "blk.2.moe.topk", {39, 1}, 6},
    {GLM, "text", 0, "logits", {39, 1023}, -8.4051513671875},
    {LLAMA, "count", 0, "blk.1.attn.q", {3, 5, 6}, 0.7089958190917969},
    {LLAMA, "count", 0, "blk.1.attn.q", {3, 5, 7}, 1.7775933742523193},
    {LLAMA, "count", 0, "blk.1.attn.k_rope", {7, 1, 31}, 0.09736235439777374},
    {LLAMA, "count", 0, "blk.1.attn.k_rope", {7, 1, 30}, -0.7559695839881897},
    {"references/dsv2lite-tiny-bf16.hf-fp32.h5",
     "count",
     0,
     "blk.1.attn.q_rope",
     {6, 2, 3},
     -0.5286141037940979},
    {GGML, "default", 2, "blk.3.attn.k_rope", {0, 9}, -2.093454599380493},
    {GGML, "default", 2, "blk.3.attn.q_latent", {0, 5, 100}, 0.30288827419281006},
    {GGML, "default", 2, "blk.3.attn.probs", {3, 0, 9}, 0.049277953803539276},
    {GGML, "default", 2, "blk.3.attn.o_latent", {0, 2, 77}, -0.4347843825817108},
    {GGML, "default", 2, "blk.3.moe.weights", {0, 1}, 1.209918737411499},
    {GGML, "default", 2, "blk.3.attn.index.scores", {0, 8}, -0.2832031},
};

START_TEST(run_finds_numbers_where_h5py_finds_them)
{
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        const spot *s = &spots[i];
        const char *path = data_large(s->file);
        if (!path)
            return;
        assay_run *run;
        assay_run_options options = assay_run_options_default();
        options.prompt = s->prompt;
        EXPECT_OK(assay_run_open(&run, &path, 1, &options));
        assay_point point;
        int layer;
        EXPECT_OK(assay_point_parse(&point, &layer, NULL, s->point));
        double got = element(run, assay_run_find(run, 0, s->step, point, layer), s->at);
        ck_assert_msg(fabs(got - s->value) <= 1e-7 * fabs(s->value), "%s %s: %.17g, expected %.17g",
                      s->file, s->point, got, s->value);
        assay_run_close(run);
    }
}
END_TEST

START_TEST(run_maps_every_dataset_of_every_dump)
{
    static const char *const folders[] = {"references", "candidates", "foreign", "ranks"};
    int n_files = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        const char *folder = data_large(folders[f]);
        if (!folder)
            return;
        char kept[4096];
        snprintf(kept, sizeof kept, "%s", folder);
        DIR *dir = opendir(kept);
        for (struct dirent *e; (e = readdir(dir));) {
            if (!strstr(e->d_name, ".h5"))
                continue;
            char path[8192];
            snprintf(path, sizeof path, "%s/%s", kept, e->d_name);
            assay_run *run = open_run(path);
            ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s: %s", path,
                          assay_run_unmapped_at(run, 0));
            assay_run_close(run);
            n_files++;
        }
        closedir(dir);
    }
    ck_assert_int_eq(n_files, 21);
}
END_TEST

/* Points (hand_over 0) of one layer. */
static int n_points(const assay_run *run, int step, int layer)
{
    int n = 0;
    for (int i = 0; i < assay_run_n_seen(run, 0, step); i++) {
        const assay_seen *s = assay_run_seen_at(run, 0, step, i);
        n += s->layer == layer && s->hand_over == 0;
    }
    return n;
}

START_TEST(run_maps_as_many_points_as_the_engines_show)
{
    const struct {
        const char *file, *prompt;
        int step, layer, n;
    } rows[] = {{GLM, "count", 0, 0, 24},
                {GLM, "count", 0, 1, 29},
                {GLM, "count", 1, 1, 3},
                {LLAMA, "count", 0, 2, 14},
                {"references/dsv3-tiny-bf16.hf-fp32.h5", "count", 0, 1, 24},
                {"references/dsv2lite-tiny-bf16.hf-fp32.h5", "count", 0, 1, 22},
                {"references/glm5-tiny-Q4_K_M.hf-fp32.h5", "long", 0, 0, 9},
                {GGML, "default", 0, 0, 28},
                {GGML, "default", 3, 1, 38}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = data_large(rows[i].file);
        if (!path)
            return;
        assay_run *run;
        assay_run_options options = assay_run_options_default();
        options.prompt = rows[i].prompt;
        EXPECT_OK(assay_run_open(&run, &path, 1, &options));
        int n = n_points(run, rows[i].step, rows[i].layer);
        ck_assert_msg(n == rows[i].n, "%s %s step %d layer %d: %d points, expected %d",
                      rows[i].file, rows[i].prompt, rows[i].step, rows[i].layer, n, rows[i].n);
        assay_run_close(run);
    }
}
END_TEST

START_TEST(run_knows_prompts_steps_tokens_and_greedy_ids)
{
    const char *path = data_large("candidates/none.h5");
    if (!path)
        return;
    assay_run *run = open_run(path);
    ck_assert_int_eq(assay_run_n_prompts(run), 2);
    const assay_run_prompt *p = assay_run_prompt_at(run, 0);
    ck_assert_str_eq(p->name, "count");
    ck_assert_str_eq(p->text, "Count from 6 to 10:");
    ck_assert_int_eq(p->n_tokens, 8);
    ck_assert_int_eq(p->tokens[0], 289);
    ck_assert_int_eq(p->n_greedy, 13);
    ck_assert_int_eq(p->n_steps, 13);
    for (int s = 1; s < p->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(run, 0, s);
        ck_assert(!step->is_prefill);
        ck_assert_int_eq(step->n_tokens, 1);
        ck_assert_int_eq(step->first_position, 7 + s);
        ck_assert_int_eq(step->tokens[0], p->greedy[s - 1]);
    }
    ck_assert_int_eq(assay_run_about(run)->dtype, ASSAY_DTYPE_BF16);
    ck_assert_str_eq(assay_run_about(run)->model_sha256, "");
    ck_assert_str_eq(assay_run_about(run)->architecture, "glm-dsa");
    assay_run_close(run);
    /* llama.cpp's dump says the prompt only: decode tokens are its own greedy choice. */
    path = data_large(GGML);
    run = open_run(path);
    p = assay_run_prompt_at(run, 0);
    ck_assert_int_eq(p->n_greedy, 4);
    static const int32_t greedy[] = {230, 31, 21, 230};
    for (int s = 0; s < 4; s++) {
        ck_assert_int_eq(p->greedy[s], greedy[s]);
        if (s > 0)
            ck_assert_int_eq(assay_run_step_at(run, 0, s)->tokens[0], greedy[s - 1]);
    }
    assay_run_close(run);
}
END_TEST

START_TEST(run_picks_one_prompt_by_name_behind_a_colon)
{
    const char *path = data_large(GLM);
    if (!path)
        return;
    char named[4200];
    const char *at = named;
    assay_run *run;
    snprintf(named, sizeof named, "%s:text", path);
    EXPECT_OK(assay_run_open(&run, &at, 1, NULL));
    ck_assert_int_eq(assay_run_n_prompts(run), 1);
    ck_assert_str_eq(assay_run_prompt_at(run, 0)->name, "text");
    assay_run_close(run);
    snprintf(named, sizeof named, "%s:nothing", path);
    EXPECT_FAILS(ASSAY_MISSING, assay_run_open(&run, &at, 1, NULL));
    EXPECT_SAYS("has no prompt 'nothing'");
    EXPECT_SAYS("count");
}
END_TEST

START_TEST(run_profiles_follow_producer_and_model_class)
{
    const struct {
        const char *file, *profile;
        bool half_split;
        double eps;
    } rows[] = {{GLM, "transformers", true, 1e-6},
                {"references/dsv2lite-tiny-bf16.hf-fp32.h5", "transformers-adjacent", false, 1e-6},
                {"references/dsv3-tiny-bf16.hf-fp32.h5", "transformers", true, 1e-6},
                {GGML, "llama.cpp", false, NAN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = data_large(rows[i].file);
        if (!path)
            return;
        assay_run *run = open_run(path);
        const assay_profile *p = assay_run_about(run)->profile;
        ck_assert_str_eq(p->name, rows[i].profile);
        ck_assert_int_eq(p->rope_half_split_after, rows[i].half_split);
        ck_assert(p->eps_q_a == rows[i].eps || (isnan(p->eps_q_a) && isnan(rows[i].eps)));
        assay_run_close(run);
    }
}
END_TEST

/* Rotation keeps the length of each pair up to one factor, so a wrong pair order cannot pass. */
static void expect_rotated(const assay_run *run, int layer, int n_head, int width, int n_rope)
{
    double *q = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_Q, layer));
    double *r = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_Q_ROPE, layer));
    int64_t n_tokens = assay_run_step_at(run, 0, 0)->n_tokens;
    double factor = 0;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int h = 0; h < n_head; h++)
            for (int i = 0; i < n_rope / 2; i++) {
                const double *a = q + (t * n_head + h) * width + width - n_rope + 2 * i;
                const double *b = r + (t * n_head + h) * n_rope + 2 * i;
                double ratio = hypot(b[0], b[1]) / hypot(a[0], a[1]);
                if (factor == 0)
                    factor = ratio;
                EXPECT_NEAR(ratio / factor, 1, 1e-4);
            }
    free(q);
    free(r);
}

START_TEST(run_brings_rotated_parts_into_adjacent_pairs)
{
    const struct {
        const char *file;
        int n_head, width, n_rope;
    } rows[] = {{GLM, 8, 96, 32},
                {LLAMA, 8, 32, 32},
                {"references/dsv2lite-tiny-bf16.hf-fp32.h5", 4, 96, 32},
                {"references/dsv3-tiny-bf16.hf-fp32.h5", 8, 96, 32},
                {GGML, 8, 96, 32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = data_large(rows[i].file);
        if (!path)
            return;
        assay_run *run = open_run(path);
        for (int layer = 0; layer < 2; layer++)
            expect_rotated(run, layer, rows[i].n_head, rows[i].width, rows[i].n_rope);
        assay_run_close(run);
    }
}
END_TEST

START_TEST(run_rotates_glm_by_its_base)
{
    const char *path = data_large(GLM);
    if (!path)
        return;
    assay_run *run = open_run(path);
    double *q = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_Q, 1));
    double *r = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_Q_ROPE, 1));
    for (int t = 0; t < 8; t++)
        for (int h = 0; h < 8; h++)
            for (int i = 0; i < 16; i++) {
                double angle = t * pow(1e6, -2.0 * i / 32);
                const double *a = q + (t * 8 + h) * 96 + 64 + 2 * i;
                const double *b = r + (t * 8 + h) * 32 + 2 * i;
                EXPECT_NEAR(b[0], a[0] * cos(angle) - a[1] * sin(angle), 2e-5);
                EXPECT_NEAR(b[1], a[0] * sin(angle) + a[1] * cos(angle), 2e-5);
            }
    free(q);
    free(r);
    assay_run_close(run);
}
END_TEST

static double distance(const double *a, const double *b, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(a[i]) || isfinite(b[i])) {
            d += (a[i] - b[i]) * (a[i] - b[i]);
            s += b[i] * b[i];
        }
    return sqrt(d / s);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over rows: a token whose experts differ does not count. */
static double median_distance(const double *a, const double *b, int64_t n_rows, int64_t n_cols)
{
    double rows[64];
    ck_assert_int_le(n_rows, 64);
    for (int64_t r = 0; r < n_rows; r++)
        rows[r] = distance(a + r * n_cols, b + r * n_cols, n_cols);
    qsort(rows, (size_t)n_rows, sizeof *rows, by_size);
    return rows[n_rows / 2];
}

/* llama.cpp (latent path, 8-bit activations) against transformers in float32: points in common are
 * mapped by different rows, through different layouts. */
START_TEST(run_of_two_engines_agrees_at_every_common_point)
{
    const char *a = data_large(GGML), *b = data_large("references/glm5-tiny-Q4_K_M.hf-fp32.h5");
    if (!a || !b)
        return;
    assay_run *x = open_run(a), *y;
    assay_run_options options = assay_run_options_default();
    options.prompt = "count";
    EXPECT_OK(assay_run_open(&y, &b, 1, &options));
    int n = 0;
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < assay_run_n_seen(x, 0, step); i++) {
            const assay_seen *s = assay_run_seen_at(x, 0, step, i);
            const assay_seen *t = assay_run_find(y, 0, step, s->point, s->layer);
            if (!t || assay_point_at(s->point)->is_ids)
                continue;
            ck_assert_int_eq(s->n_dims, t->n_dims);
            int64_t count = 1;
            for (int d = 0; d < s->n_dims; d++) {
                ck_assert_int_eq(s->dims[d], t->dims[d]);
                count *= s->dims[d];
            }
            double *p = values(x, s), *q = values(y, t);
            double rel = median_distance(p, q, s->dims[0], count / s->dims[0]);
            ck_assert_msg(rel < 0.08, "step %d %s (%s, %s): %g", step,
                          assay_point_at(s->point)->name, s->source, t->source, rel);
            free(p);
            free(q);
            n++;
        }
    ck_assert_int_ge(n, 120);
    assay_run_close(x);
    assay_run_close(y);
}
END_TEST

START_TEST(run_undoes_the_hadamard_matrix_of_the_indexer)
{
    const char *path = data_large(GGML);
    if (!path)
        return;
    assay_run *run = open_run(path);
    static const assay_point points[] = {ASSAY_POINT_INDEX_Q, ASSAY_POINT_INDEX_K};
    for (int i = 0; i < 2; i++) {
        const assay_seen *late = assay_run_find(run, 0, 0, points[i], 2);
        const assay_seen *early = assay_run_find_part(run, 0, 0, points[i], 2, -1, 1);
        double *a = values(run, late), *b = values(run, early);
        int64_t n = late->dims[0] * late->dims[1] * (late->n_dims > 2 ? late->dims[2] : 1);
        ck_assert_double_lt(distance(a, b, n), 1e-6);
        ck_assert_str_ne(late->source, early->source);
        free(a);
        free(b);
    }
    assay_run_close(run);
}
END_TEST

START_TEST(run_cuts_the_padding_of_the_cache)
{
    const char *path = data_large(GGML);
    if (!path)
        return;
    assay_run *run = open_run(path);
    for (int step = 0; step < 4; step++) {
        int64_t n_keys = step ? 8 + step : 8;
        const assay_seen *s = assay_run_find(run, 0, step, ASSAY_POINT_PROBS, 1);
        ck_assert_int_eq(s->dims[2], n_keys);
        s = assay_run_find(run, 0, step, ASSAY_POINT_INDEX_SCORES, 1);
        ck_assert_int_eq(s->dims[1], n_keys);
        s = assay_run_find(run, 0, step, ASSAY_POINT_INDEX_TOPK, 1);
        ck_assert_int_eq(s->dims[1], n_keys);
        double *ids = values(run, s);
        for (int64_t t = 0; t < s->dims[0]; t++) {
            int seen = 0;
            for (int64_t i = 0; i < n_keys; i++) {
                ck_assert(ids[t * n_keys + i] >= -1 && ids[t * n_keys + i] < (double)n_keys);
                seen += ids[t * n_keys + i] >= 0;
            }
            ck_assert_int_ge(seen, step ? n_keys : t + 1);
        }
        free(ids);
    }
    assay_run_close(run);
}
END_TEST

START_TEST(run_calls_the_later_module_the_point_and_keeps_the_earlier)
{
    const char *path = data_large("candidates/phantom_all.h5");
    if (!path)
        return;
    assay_run *run = open_run(path);
    const assay_seen *point = assay_run_find(run, 0, 0, ASSAY_POINT_PROJ, 1);
    const assay_seen *early = assay_run_find_part(run, 0, 0, ASSAY_POINT_PROJ, 1, -1, 1);
    ck_assert_str_eq(point->source, "model.layers.1.self_attn");
    ck_assert_str_eq(early->source, "model.layers.1.self_attn.o_proj");
    assay_run_close(run);
    path = data_large(GLM);
    run = open_run(path);
    point = assay_run_find(run, 0, 0, ASSAY_POINT_Q, 1);
    early = assay_run_find_part(run, 0, 0, ASSAY_POINT_Q, 1, -1, 1);
    ck_assert_str_eq(point->source, "model.layers.1.self_attn.query");
    ck_assert_str_eq(early->source, "model.layers.1.self_attn.q_b_proj");
    double *a = values(run, point), *b = values(run, early);
    ck_assert_mem_eq(a, b, 8 * 8 * 96 * sizeof *a);
    free(a);
    free(b);
    /* a decode step has the block alone: it is the point, and there is no earlier one */
    ck_assert_ptr_nonnull(assay_run_find(run, 0, 3, ASSAY_POINT_PROJ, 1));
    ck_assert_ptr_null(assay_run_find_part(run, 0, 3, ASSAY_POINT_PROJ, 1, -1, 1));
    assay_run_close(run);
}
END_TEST

START_TEST(run_keeps_the_nan_where_the_candidate_has_it)
{
    const char *path = data_large("candidates/nan.h5");
    if (!path)
        return;
    assay_run *run = open_run(path);
    double *x = values(run, assay_run_find(run, 0, 0, ASSAY_POINT_MOE_OUT, 2));
    for (int i = 0; i < 8 * 256; i++)
        ck_assert_int_eq(isnan(x[i]) != 0, i == 3 * 256 + 17);
    free(x);
    assay_run_close(run);
}
END_TEST

START_TEST(run_opens_the_shipped_dumps)
{
    static const char *const files[] = {"glm5-tiny-Q4_K_M.hf-fp32.h5",
                                        "glm5-tiny-Q4_K_M.hf-bf16.h5", "glm5-tiny-bf16.two.h5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assay_run *run = open_run(data_shipped(files[i]));
        ck_assert_int_eq(assay_run_about(run)->n_unmapped, 0);
        ck_assert_ptr_nonnull(assay_run_find(run, 0, 0, ASSAY_POINT_KERNEL_OUT, 1));
        assay_run_close(run);
    }
}
END_TEST

EXPECT_MAIN("run", run_finds_numbers_where_h5py_finds_them, run_maps_every_dataset_of_every_dump,
            run_maps_as_many_points_as_the_engines_show,
            run_knows_prompts_steps_tokens_and_greedy_ids,
            run_picks_one_prompt_by_name_behind_a_colon,
            run_profiles_follow_producer_and_model_class,
            run_brings_rotated_parts_into_adjacent_pairs, run_rotates_glm_by_its_base,
            run_of_two_engines_agrees_at_every_common_point,
            run_undoes_the_hadamard_matrix_of_the_indexer, run_cuts_the_padding_of_the_cache,
            run_calls_the_later_module_the_point_and_keeps_the_earlier,
            run_keeps_the_nan_where_the_candidate_has_it, run_opens_the_shipped_dumps)
