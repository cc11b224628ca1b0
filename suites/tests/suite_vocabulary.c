#include "forge_vocab.h"

#include "expect.h"

static const char *const tokens[] = {"a", "b", "ab", "<|im_end|>", "<x>", "<y>"};
static const int32_t types[] = {1, 1, 1, 1, 3, 3};
static const char *const merges[] = {"a b"};
static const forge_vocab good = {.model = "gpt2",
                                 .pre = "qwen2",
                                 .tokens = tokens,
                                 .n_tokens = 6,
                                 .types = types,
                                 .n_types = 6,
                                 .merges = merges,
                                 .n_merges = 1,
                                 .numbers = {{"eos_token_id", 4}, {"eot_token_id", 5}}};

static void refuses(const forge_vocab *v, assay_status code, const char *words)
{
    assay_tokenizer *t = NULL;
    EXPECT_FAILS(code, forge_vocab_tokenizer(&t, v, NULL));
    EXPECT_SAYS(words);
    EXPECT_SAYS("vocab.gguf");
    ck_assert_ptr_null(t);
}

START_TEST(vocabulary_refuses_missing_and_unknown_keys)
{
    forge_vocab v = good;
    v.model = NULL;
    refuses(&v, ASSAY_MISSING, "tokenizer.ggml.model");
    v.model = "t5";
    refuses(&v, ASSAY_UNSUPPORTED, "known: gpt2");
    v = good;
    v.tokens = NULL;
    refuses(&v, ASSAY_MISSING, "tokenizer.ggml.tokens");
    v = good;
    v.n_tokens = 0;
    refuses(&v, ASSAY_BAD_FILE, "has 0 elements");
    v = good;
    v.pre = "qwen";
    refuses(&v, ASSAY_UNSUPPORTED, "known: default gpt-2");
    EXPECT_SAYS("deepseek-v3");
}
END_TEST

START_TEST(vocabulary_refuses_arrays_that_disagree)
{
    static const int32_t wrong[] = {1, 1, 1, 1, 7, 1};
    static const char *const twice[] = {"a", "b", "ab", "<|im_end|>", "b", "<y>"};
    forge_vocab v = good;
    v.n_types = 5;
    refuses(&v, ASSAY_BAD_FILE, "has 5 elements, but there are 6 tokens");
    v = good;
    v.types = wrong;
    refuses(&v, ASSAY_BAD_FILE, "token 4 has type 7");
    v = good;
    v.tokens = twice;
    refuses(&v, ASSAY_BAD_FILE, "tokens 1 and 4 are both 'b'");
    v = good;
    v.n_tokens = 5;
    refuses(&v, ASSAY_BAD_FILE, "has 6 elements, but there are 5 tokens");
}
END_TEST

START_TEST(vocabulary_refuses_special_ids_out_of_range)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "eot_token_id",
                                       "eom_token_id", "unknown_token_id"};
    for (int i = 0; i < 5; i++) {
        forge_vocab v = good;
        v.numbers[0].key = keys[i];
        v.numbers[1].key = NULL;
        v.numbers[0].value = 6;
        refuses(&v, ASSAY_BAD_FILE, "is 6, but there are 6 tokens");
        v.numbers[0].value = UINT32_MAX;
        refuses(&v, ASSAY_BAD_FILE, keys[i]);
    }
}
END_TEST

START_TEST(vocabulary_knows_ends_by_key_and_by_text)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    for (int32_t id = -1; id < 8; id++)
        ck_assert_int_eq(assay_tokenizer_is_end(t, id), id == 3 || id == 4 || id == 5);
    /* The text is a control token, although the file calls it normal. */
    const int32_t want[] = {0, 3};
    forge_expect_ids(t, "a<|im_end|>", 11, false, true, want, 2);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(vocabulary_without_types_is_all_normal)
{
    assay_tokenizer *t;
    forge_vocab v = good;
    v.types = NULL;
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, NULL));
    const int32_t want[] = {0, 1};
    forge_expect_ids(t, "a<x>b", 5, false, true, want, 2);
    assay_tokenizer_free(t);
}
END_TEST

EXPECT_MAIN("vocabulary", vocabulary_refuses_missing_and_unknown_keys,
            vocabulary_refuses_arrays_that_disagree, vocabulary_refuses_special_ids_out_of_range,
            vocabulary_knows_ends_by_key_and_by_text, vocabulary_without_types_is_all_normal)
