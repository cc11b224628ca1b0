/* A stream that is kept times 1 / the scale of routed experts: vLLM in float16. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/base/number.h"
#include "expect.h"
#include "references/import.h"

#define SCALE 2.5 /* of the shipped model */

/* What vLLM's modules put out; factor: of the point's own values. */
static const struct {
    const char *name;
    assay_point point;
    double factor;
} rows[] = {{"model.embed_tokens", ASSAY_POINT_EMBED, 1},
            {"model.norm", ASSAY_POINT_FINAL_NORM, 1},
            {"logits", ASSAY_POINT_LOGITS, 1},
            {"model.layers.%d.input_layernorm", ASSAY_POINT_IN_NORM, 1},
            {"model.layers.%d.self_attn", ASSAY_POINT_PROJ, 1},
            {"model.layers.%d.post_attention_layernorm", ASSAY_POINT_FFN_NORM, 1},
            {"model.layers.%d.post_attention_layernorm.out1", ASSAY_POINT_ATTN_RESID, 1 / SCALE},
            {"model.layers.%d.mlp", ASSAY_POINT_FFN_OUT, 1},
            {"model.layers.%d.mlp", ASSAY_POINT_MOE_OUT, 1 / SCALE},
            {"model.layers.%d.mlp.gate", ASSAY_POINT_MOE_LOGITS, 1},
            {"model.layers.%d.mlp.experts", ASSAY_POINT_SHARED, 1},
            {"model.layers.%d.mlp.experts.out1", ASSAY_POINT_MOE_ROUTED, 1 / SCALE},
            /* the layer hands on its feed-forward part and the stream before it */
            {"model.layers.%d", ASSAY_POINT_FFN_OUT, 1 / SCALE},
            {"model.layers.%d", ASSAY_POINT_MOE_OUT, 1 / SCALE},
            {"model.layers.%d.out1", ASSAY_POINT_ATTN_RESID, 1 / SCALE}};

static void put_text(hid_t file, const char *name, const char *value)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(value) + 1);
    hid_t a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Awrite(a, type, value) >= 0);
    H5Aclose(a);
    H5Tclose(type);
    H5Sclose(space);
}

static void put_ids(hid_t group, const char *name, const int32_t *ids, int64_t n)
{
    hsize_t dims[] = {(hsize_t)n};
    hid_t space = H5Screate_simple(1, dims, NULL);
    hid_t set =
        H5Dcreate2(group, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* As a float16 engine holds it. */
static void put_value(hid_t group, const char *name, const assay_run *run, const assay_seen *seen,
                      double factor)
{
    hsize_t dims[] = {(hsize_t)seen->dims[0], (hsize_t)seen->dims[1]}, n = dims[0] * dims[1];
    double *x = malloc(n * sizeof *x);
    EXPECT_OK(assay_run_read(x, run, seen));
    for (hsize_t i = 0; i < n; i++)
        x[i] = assay_f16_to_f32(assay_f32_to_f16((float)(factor * x[i])));
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t set =
        H5Dcreate2(group, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    free(x);
}

static void put_step(hid_t file, const assay_run *run, int step)
{
    const assay_run_step *about = assay_run_step_at(run, 0, step);
    char name[128];
    snprintf(name, sizeof name, "/count/step%04d", step);
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    put_ids(group, "input_tokens", about->tokens, about->n_tokens);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool per_layer = strchr(rows[i].name, '%') != NULL;
        for (int layer = 0; layer < (per_layer ? 4 : 1); layer++) {
            const assay_seen *seen =
                assay_run_find(run, 0, step, rows[i].point, per_layer ? layer : -1);
            if (!seen)
                continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(name, sizeof name, rows[i].name, layer);
#pragma GCC diagnostic pop
            put_value(group, name, run, seen, rows[i].factor);
        }
    }
    H5Gclose(group);
}

/* A run of this engine as vLLM would show it. */
static void make_dump(const char *dump, const char *model)
{
    static const int32_t tokens[] = {289, 285, 230, 31, 275, 230, 434, 35};
    char capture[600];
    const char *path = capture;
    assay_run *run;
    snprintf(capture, sizeof capture, "%s", data_scratch("plain.h5"));
    EXPECT_OK(capture_planted(capture, model, tokens, 8, 2, ASSAY_DTYPE_F32, NULL, 0));
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    hid_t file = H5Fcreate(dump, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_text(file, "producer", "vllm 0.11.0");
    put_text(file, "model_class", "GlmMoeDsaForCausalLM");
    put_text(file, "dtype", "float16");
    hid_t group = H5Gcreate2(file, "/count", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    put_ids(group, "tokens", tokens, 8);
    for (int s = 0; s < assay_run_prompt_at(run, 0)->n_steps; s++)
        put_step(file, run, s);
    H5Gclose(group);
    H5Fclose(file);
    assay_run_close(run);
}

static assay_result result;
static char dump[600], model[600];

static void make_files(void)
{
    snprintf(dump, sizeof dump, "%s", data_scratch("vllm.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    make_dump(dump, model);
}

START_TEST(a_scaled_stream_is_undone_where_the_profile_says_so)
{
    assay_run *run;
    const char *path = dump;
    make_files();
    EXPECT_OK(diagnosed(&result, dump, model));
    ck_assert_int_gt(result.n_judged, 60);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
    /* without the model nobody knows the scale: left out in words, nothing else is */
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    ck_assert_str_eq(assay_run_about(run)->profile->name, "vllm-f16");
    ck_assert_ptr_nonnull(assay_run_find(run, 0, 0, ASSAY_POINT_FFN_NORM, 1));
    ck_assert_ptr_null(assay_run_find(run, 0, 0, ASSAY_POINT_ATTN_RESID, 1));
    ck_assert_int_gt(assay_run_about(run)->n_unmapped, 0);
    ck_assert_ptr_nonnull(strstr(assay_run_unmapped_at(run, 0), "scale of routed experts"));
    assay_run_close(run);
}
END_TEST

/* From attn_resid of layer 0 on, and what experts add to it: 1 / 2.5. */
START_TEST(a_scaled_stream_is_found_with_its_factor_where_it_is_not)
{
    make_files();
    EXPECT_OK(diagnosed_as(&result, dump, model, "vllm"));
    const assay_finding *f = diagnosed_find(&result, "CONST", "attn_resid");
    ck_assert_msg(f != NULL, "%s", diagnosed_text(&result));
    ck_assert_double_eq_tol(json_number_value(json_object_get(f->fitted, "factor")), 1 / SCALE,
                            1e-3);
    ck_assert_msg(diagnosed_find(&result, "ROUTE", "moe.routed") != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

/* Values that were multiplied are no float16 numbers any more, and a capture says which they are.
 */
START_TEST(a_scaled_stream_is_judged_alike_from_its_import)
{
    char copy[600];
    const char *path = copy, *from = dump;
    assay_import_result counts;
    assay_run_options how = assay_run_options_default();
    assay_run_sizes sizes;
    assay_hparams hp;
    assay_gguf *file;
    assay_run *run;
    make_files();
    snprintf(copy, sizeof copy, "%s", data_scratch("imported.h5"));
    EXPECT_OK(assay_gguf_open(&file, model));
    EXPECT_OK(assay_hparams_read(&hp, file));
    sizes = assay_run_sizes_of(&hp);
    how.sizes = &sizes;
    EXPECT_OK(assay_run_open(&run, &from, 1, &how));
    EXPECT_OK(assay_import_run(&counts, run, copy, NULL));
    assay_run_close(run);
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    ck_assert(assay_run_find(run, 0, 0, ASSAY_POINT_ATTN_RESID, 1)->is_rescaled);
    ck_assert(assay_run_find(run, 0, 0, ASSAY_POINT_MOE_ROUTED, 1)->is_rescaled);
    ck_assert(!assay_run_find(run, 0, 0, ASSAY_POINT_FFN_NORM, 1)->is_rescaled);
    assay_run_close(run);
    EXPECT_OK(diagnosed(&result, copy, model));
    ck_assert_int_gt(result.n_judged, 60);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
    assay_gguf_close(file);
}
END_TEST

EXPECT_MAIN("scaled_stream", a_scaled_stream_is_judged_alike_from_its_import,
            a_scaled_stream_is_undone_where_the_profile_says_so,
            a_scaled_stream_is_found_with_its_factor_where_it_is_not)
