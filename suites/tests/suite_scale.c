/*
 * Models of many layers: what is asked of the first ones costs what these layers cost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "references/reference.h"
#include "suites/check.h"
#include "suites/forge_model.h"

#define LAST_LAYER 3
#define FEW_LAYERS 8
#define MANY_LAYERS 40
#define MAX_TOUCHED 1024

static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};

/* Tensors whose bytes were decoded. */
typedef struct touched {
    const assay_gguf_tensor_info *tensors[MAX_TOUCHED];
    int n, n_beyond; /* of layers behind the last one asked for, or of the output */
} touched;

static assay_status see(void *user, const assay_gguf_tensor_info *tensor, uint64_t at,
                        uint64_t n_bytes)
{
    touched *t = user;
    (void)at, (void)n_bytes;
    for (int i = 0; i < t->n; i++)
        if (t->tensors[i] == tensor)
            return ASSAY_OK;
    ck_assert_int_lt(t->n, MAX_TOUCHED);
    t->tensors[t->n++] = tensor;
    bool of_layer = !strncmp(tensor->name, "blk.", 4);
    bool right = of_layer ? atoi(tensor->name + 4) <= LAST_LAYER
                          : !strcmp(tensor->name, "token_embd.weight");
    t->n_beyond += !right;
    return ASSAY_OK;
}

/* The data of a skeleton is a hole: a file of any size costs its header. */
static void forge(char path[600], int n_layer, bool skeleton)
{
    assay_forge_result made;
    assay_forge_options options = {
        .like = "glm5-tiny", .n_layer = n_layer, .n_nextn = 0, .skeleton = skeleton};
    snprintf(path, 600, "%s", data_scratch(skeleton ? "hole.gguf" : "model.gguf"));
    EXPECT_OK(assay_forge_model(&made, path, &options, NULL, NULL));
}

/* Reference of the first layers and diagnosis against it: tensors touched by each. */
static void count_touched(int *by_reference, int *by_diagnosis, int n_layer)
{
    static touched seen;
    char path[600], capture[600];
    const char *paths = capture;
    assay_run_options plain = assay_run_options_default();
    assay_gguf *file = NULL;
    assay_oracle *oracle = NULL;
    assay_run *run = NULL;
    assay_result result = {0};
    assay_reference_made made = {0};
    assay_reference_options layers = {.last_layer = LAST_LAYER, .no_floor = true};
    assay_diagnose_options how = {.forced = {.last_layer = LAST_LAYER}};
    forge(path, n_layer, false);
    snprintf(capture, sizeof capture, "%s", data_scratch("first.h5"));
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    seen = (touched){0};
    assay_oracle_watch(oracle, see, &seen);
    EXPECT_OK(assay_reference_write(&made, capture, oracle, tokens, sizeof tokens / sizeof *tokens,
                                    &layers));
    *by_reference = seen.n;
    ck_assert_int_eq(seen.n_beyond, 0);
    seen = (touched){0};
    assay_oracle_watch(oracle, see, &seen);
    EXPECT_OK(assay_run_open(&run, &paths, 1, &plain));
    EXPECT_OK(assay_result_init(&result, "diagnose"));
    EXPECT_OK(assay_diagnose(&result, run, oracle, &how));
    ck_assert_int_gt(result.n_judged, 50);
    ck_assert_int_eq(result.n_findings, 0);
    *by_diagnosis = seen.n;
    ck_assert_int_eq(seen.n_beyond, 0);
    assay_result_clear(&result);
    assay_run_close(run);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}

START_TEST(scale_first_layers_touch_their_own_tensors_only)
{
    int reference[2], diagnosis[2];
    count_touched(&reference[0], &diagnosis[0], FEW_LAYERS);
    count_touched(&reference[1], &diagnosis[1], 2 * FEW_LAYERS);
    ck_assert_int_gt(reference[0], 60);
    ck_assert_int_eq(reference[0], reference[1]);
    ck_assert_int_eq(diagnosis[0], diagnosis[1]);
}
END_TEST

static long memory_of(const char *const *words)
{
    static child_end end;
    ck_assert(child_run(&end, words, &(child_options){.watch_memory = true}));
    ck_assert_msg(end.exit == 0, "exit %d: %s", end.exit, end.errors);
    return end.anon_kb;
}

static void take_memory(long *reference, long *diagnosis, int n_layer)
{
    char path[600], ids[600], capture[600];
    forge(path, n_layer, true);
    snprintf(ids, sizeof ids, "%s", data_scratch("ids.txt"));
    snprintf(capture, sizeof capture, "%s", data_scratch("holes.h5"));
    FILE *file = fopen(ids, "w");
    ck_assert_ptr_nonnull(file);
    fputs("1,2,3,4,5,6,7,8", file);
    fclose(file);
    *reference = memory_of((const char *const[]){"reference", path, "--tokens", ids, "--layers",
                                                 "0-3", "--no-floor", "-o", capture, NULL});
    *diagnosis = memory_of((const char *const[]){"diagnose", capture, "--model", path, "--layers",
                                                 "0-3", "--quiet", NULL});
}

/* What a layer's table of tensors takes, and no more. */
static void expect_alike(long few, long many, const char *what)
{
    long bound = few / 20 + 64 * (MANY_LAYERS - FEW_LAYERS);
    ck_assert_int_gt(few, 1000);
    ck_assert_msg(labs(many - few) <= bound, "%s: %ld kB with %d layers, %ld kB with %d", what, few,
                  FEW_LAYERS, many, MANY_LAYERS);
}

START_TEST(scale_memory_does_not_grow_with_the_layers_of_the_model)
{
    long reference[2], diagnosis[2];
    take_memory(&reference[0], &diagnosis[0], FEW_LAYERS);
    if (!reference[0])
        return; /* the kernel does not say */
    take_memory(&reference[1], &diagnosis[1], MANY_LAYERS);
    expect_alike(reference[0], reference[1], "reference");
    expect_alike(diagnosis[0], diagnosis[1], "diagnose");
}
END_TEST

/* Deep behind, in one layer of many: its sketches stand out, and the values of that layer alone are
 * captured. */
START_TEST(scale_a_fault_in_the_last_third_is_named_in_two_stages)
{
    char path[600], reference[600];
    const char *rows[] = {"ops"};
    assay_gguf *file;
    assay_oracle *oracle;
    assay_plant plant;
    assay_result result;
    assay_reference_made made = {0};
    assay_reference_options whole = {.last_layer = -1, .no_floor = true};
    assay_check_options o = assay_check_options_default();
    forge(path, MANY_LAYERS, false);
    snprintf(reference, sizeof reference, "%s", data_scratch("reference.h5"));
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    EXPECT_OK(assay_reference_write(&made, reference, oracle, tokens,
                                    sizeof tokens / sizeof *tokens, &whole));
    assay_oracle_close(oracle);
    assay_gguf_close(file);
    EXPECT_OK(assay_plant_parse(&plant, "file-order:layer=32"));
    o.model_path = path;
    o.reference_path = reference;
    o.plants = &plant;
    o.n_plants = 1;
    o.rows = rows;
    o.n_rows = 1;
    o.budget_bytes = 1 << 20;
    EXPECT_OK(assay_result_init(&result, "check"));
    EXPECT_OK(assay_check_run(&result, &o));
    ck_assert_int_eq(result.n_findings, 1);
    ck_assert_str_eq(result.findings[0].fault_class, "FUSED-ORDER");
    ck_assert_str_eq(result.findings[0].point, "blk.32.attn.q_a");
    ck_assert_ptr_nonnull(strstr(result.notes.items[0], "values of layer 32 were captured"));
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("scale", scale_first_layers_touch_their_own_tensors_only,
            scale_memory_does_not_grow_with_the_layers_of_the_model,
            scale_a_fault_in_the_last_third_is_named_in_two_stages)
