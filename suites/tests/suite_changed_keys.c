/*
 * A model file with one key changed or taken away: the engine does what the file says, the
 * reference does not, and the class of the disagreement is named.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

#define HEADER_BYTES (1 << 20) /* the keys lie in the first part of these files */

/* Copies the file with the key's value replaced (4 bytes), or its name spoiled when value is NULL.
 */
static void change(const char *to, const char *from, const char *key, const void *value)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in != NULL && out != NULL);
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(in), length = strlen(key);
    char *bytes = malloc(n);
    rewind(in);
    ck_assert(bytes != NULL && fread(bytes, 1, n, in) == n);
    size_t room = n < HEADER_BYTES ? n : HEADER_BYTES;
    char *at = memmem(bytes, room, key, length);
    ck_assert_msg(at != NULL, "no key %s", key);
    if (value)
        memcpy(at + length + 4, value, 4); /* behind the name: the type, then the value */
    else
        *at = 'x';
    ck_assert(fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
    fclose(in);
    free(bytes);
}

static void expect_class(const char *model, const char *reference, const char *key,
                         const void *value, const char *classes, const char *point)
{
    char from[512], to[512], ref[512];
    assay_result result;
    snprintf(from, sizeof from, "%s", model);
    snprintf(to, sizeof to, "%s", data_scratch("changed.gguf"));
    snprintf(ref, sizeof ref, "%s", reference);
    change(to, from, key, value);
    EXPECT_OK(diagnosed(&result, ref, to));
    const assay_finding *f = diagnosed_find(&result, classes, point);
    ck_assert_msg(f != NULL, "%s: expected %s at %s, found %s", key, classes, point,
                  diagnosed_text(&result));
    assay_result_clear(&result);
}

static void expect_shipped(const char *key, const void *value, const char *classes,
                           const char *point)
{
    char reference[512];
    snprintf(reference, sizeof reference, "%s:text", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    expect_class(data_shipped("glm5-tiny-Q4_K_M.gguf"), reference, key, value, classes, point);
}

START_TEST(a_key_taken_away_is_named_by_class)
{
    expect_shipped("glm-dsa.expert_weights_norm", NULL, "ROUTE", "moe.weights");
    expect_shipped("glm-dsa.expert_weights_scale", NULL, "ROUTE", "moe.weights");
    expect_shipped("glm-dsa.rope.freq_base", NULL, "ROPE-PHASE", "attn.q_rope");
}
END_TEST

START_TEST(a_key_changed_is_named_by_class)
{
    float base = 5e5f, eps = 1e-3f;
    expect_shipped("glm-dsa.rope.freq_base", &base, "ROPE-PHASE", "attn.q_rope");
    expect_shipped("glm-dsa.attention.layer_norm_rms_epsilon", &eps, "CONST", "attn.in_norm");
}
END_TEST

START_TEST(another_number_of_selected_keys_is_named)
{
    uint32_t top_k = 64;
    char reference[512];
    if (!data_large("references/glm5-tiny-Q4_K_M.hf-fp32.h5"))
        return;
    snprintf(reference, sizeof reference, "%s:long",
             data_large("references/glm5-tiny-Q4_K_M.hf-fp32.h5"));
    expect_class(data_shipped("glm5-tiny-Q4_K_M.gguf"), reference,
                 "glm-dsa.attention.indexer.top_k", &top_k, "SELECT", "attn.index.topk");
}
END_TEST

START_TEST(another_gating_function_is_named)
{
    char model[512];
    if (!data_large("models/dsv3-tiny-bf16.gguf"))
        return;
    snprintf(model, sizeof model, "%s", data_large("models/dsv3-tiny-bf16.gguf"));
    expect_class(model, data_large("references/dsv3-tiny-bf16.hf-fp32.h5"),
                 "deepseek2.expert_gating_func", NULL, "ROUTE", "moe.topk");
}
END_TEST

EXPECT_MAIN("changed_keys", a_key_taken_away_is_named_by_class, a_key_changed_is_named_by_class,
            another_number_of_selected_keys_is_named, another_gating_function_is_named)
