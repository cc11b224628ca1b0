#include "forge_result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "reports/render.h"

static void phantom(assay_result *result)
{
    assay_finding f;
    assay_finding_init(&f);
    f.fault_class = strdup("BUFFER");
    f.kind = strdup("phantom output");
    f.point = strdup("blk.1.attn.proj");
    f.last_good = strdup("blk.1.attn.kernel_out");
    f.op = strdup("output projection");
    f.sentence = strdup("the output projection reads a buffer that the attention kernel never "
                        "wrote: every element is zero");
    f.advice = strdup("hand the kernel's own output to its reader");
    f.reproduce = strdup("assay diagnose two.h5 --model glm5-tiny-bf16.gguf");
    EXPECT_OK(assay_strings_add(&f.points, "blk.1.attn.proj"));
    EXPECT_OK(assay_numbers_add(&f.layers, 1));
    for (int step = 12; step >= 0; step--)
        EXPECT_OK(assay_numbers_add(&f.steps, step));
    EXPECT_OK(assay_strings_add(&f.prompts, "count"));
    EXPECT_OK(assay_strings_add(&f.evidence, "3072 of 3072 elements are exactly zero"));
    EXPECT_OK(assay_strings_add(&f.evidence, "blk.1.attn.kernel_out is right"));
    f.confidence = 0.99;
    f.explained = 1;
    f.error_rel = 1;
    f.error_gain = 0;
    f.floor = 0.004;
    f.has_first_bad = true;
    f.n_first_bad = 2;
    f.first_bad_got = 0;
    f.first_bad_expected = 0.125;
    EXPECT_OK(assay_result_add_finding(result, &f));
    assay_finding_clear(&f);
}

static void swapped(assay_result *result)
{
    assay_finding f;
    assay_finding_init(&f);
    f.fault_class = strdup("FUSED-ORDER");
    f.kind = strdup("parts exchanged");
    f.point = strdup("blk.3.attn.q_a");
    f.last_good = strdup("blk.3.attn.in_norm");
    f.op = strdup("q_a projection (part 0 of the fused q_a + kv_a)");
    f.sentence = strdup("the two parts of the fused projection stand in the wrong order");
    f.advice = strdup("concatenate q_a before kv_a");
    f.reproduce = strdup("assay diagnose two.h5 --model glm5-tiny-bf16.gguf");
    EXPECT_OK(assay_strings_add(&f.points, "blk.3.attn.q_a"));
    EXPECT_OK(assay_strings_add(&f.points, "blk.3.attn.kv_a"));
    EXPECT_OK(assay_numbers_add(&f.layers, 3));
    EXPECT_OK(assay_numbers_add(&f.steps, 0));
    EXPECT_OK(assay_strings_add(&f.prompts, "count"));
    EXPECT_OK(assay_strings_add(&f.prompts, "text"));
    json_object_set_new(f.fitted, "permutation", json_pack("[i, i]", 1, 0));
    f.confidence = 0.98;
    f.explained = 0.9998;
    f.error_rel = 1.41;
    f.error_cos = -0.02;
    f.error_gain = -0.03;
    f.floor = 0.004;
    EXPECT_OK(assay_result_add_finding(result, &f));
    assay_finding_clear(&f);
}

static assay_check_row *row(assay_result *result, const char *name, assay_verdict verdict,
                            const char *summary)
{
    assay_check_row *out;
    EXPECT_OK(assay_result_add_check(&out, result, name));
    out->verdict = verdict;
    out->summary = strdup(summary);
    out->seconds = 0.25;
    return out;
}

void forge_result_two(assay_result *result)
{
    EXPECT_OK(assay_result_init(result, "diagnose"));
    result->command_line = strdup("assay diagnose two.h5 --model glm5-tiny-bf16.gguf");
    json_object_set_new(result->model, "path", json_string("models/glm5-tiny-bf16.gguf"));
    json_object_set_new(result->model, "architecture", json_string("glm-dsa"));
    json_object_set_new(result->extra, "candidate", json_pack("{s:s}", "path", "runs/two.h5"));
    result->n_points = 212;
    result->n_judged = 209;
    result->seconds = 1.5;
    phantom(result);
    swapped(result);
    EXPECT_OK(assay_strings_add(&result->notes, "same model: unproven, the dump has no hash"));
}

void forge_result_clean(assay_result *result)
{
    EXPECT_OK(assay_result_init(result, "check"));
    json_object_set_new(result->model, "path", json_string("glm5-tiny-Q4_K_M.gguf"));
    result->n_points = result->n_judged = 212;
    result->seconds = 18.25;
    assay_check_row *path =
        row(result, "path", ASSAY_VERDICT_PASS, "latent = expanded, worst 3.1e-6");
    EXPECT_OK(assay_strings_add(&path->details, "worst at blk.2.attn.out"));
    row(result, "graph", ASSAY_VERDICT_SKIP, "no GPU was asked for");
}

void forge_result_hostile(assay_result *result)
{
    static const char bad[] = "a<b>&\"'\x1b[31m\x01\x7f \xff\xc0\xaf\xed\xa0\x80 \xe2\x80\xae"
                              "]]> `x` |y| \xf0\x9f\x98\x80\r\n  end ";
    assay_finding f;
    EXPECT_OK(assay_result_init(result, bad));
    assay_finding_init(&f);
    result->command_line = strdup(bad);
    result->seconds = NAN;
    f.fault_class = strdup(bad);
    f.kind = strdup(bad);
    f.point = strdup(bad);
    f.last_good = strdup(bad);
    f.sentence = strdup(bad);
    f.advice = strdup(bad);
    f.reproduce = strdup(bad);
    EXPECT_OK(assay_strings_add(&f.points, "%s", bad));
    EXPECT_OK(assay_strings_add(&f.prompts, "%s", bad));
    EXPECT_OK(assay_strings_add(&f.evidence, "%s", bad));
    f.confidence = INFINITY;
    f.has_first_bad = true;
    f.n_first_bad = 4;
    f.first_bad_got = NAN;
    f.first_bad_expected = -INFINITY;
    EXPECT_OK(assay_result_add_finding(result, &f));
    assay_finding_clear(&f);
    EXPECT_OK(assay_strings_add(&row(result, bad, ASSAY_VERDICT_FAIL, bad)->details, "%s", bad));
    row(result, "", ASSAY_VERDICT_INCONCLUSIVE, "");
    row(result, bad, ASSAY_VERDICT_SKIP, bad);
    EXPECT_OK(assay_strings_add(&result->notes, "%s", bad));
}

char *forge_rendered(const char *renderer, const assay_result *result, int width)
{
    char *text = NULL;
    size_t n = 0;
    const assay_renderer *r = assay_renderer_find(renderer);
    assay_render_options options = {.width = width};
    ck_assert_msg(r != NULL, "no renderer '%s'", renderer);
    FILE *memory = open_memstream(&text, &n);
    EXPECT_OK(r->render(memory, result, &options));
    fclose(memory);
    return text;
}
