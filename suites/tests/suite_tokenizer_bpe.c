#include "forge_vocab.h"

#include "expect.h"

enum { A, B, C, BC, AA, ABC, X, Y, CONTROL, USER, UNKNOWN, SPACE_A, EMPTY };

static const char *const tokens[] = {"a",
                                     "b",
                                     "c",
                                     "bc",
                                     "aa",
                                     "abc",
                                     "x",
                                     "y",
                                     "<c>",
                                     "<c><u",
                                     "<n>",
                                     "\xC4\xA0"
                                     "a",
                                     ""};
static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 3, 4, 2, 1, 1};
/* "xy" is the result of a merge but no token; rank 0 beats rank 1 although it stands later. */
static const char *const merges[] = {"b c", "a b", "a a", "x y", "\xC4\xA0 a", "b c"};
static const forge_vocab good = {.model = "gpt2",
                                 .pre = "gpt-2",
                                 .tokens = tokens,
                                 .n_tokens = 13,
                                 .types = types,
                                 .n_types = 13,
                                 .merges = merges,
                                 .n_merges = 6};

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((int32_t[]){__VA_ARGS__}) / 4

START_TEST(bpe_merges_the_lowest_rank_first_and_ties_leftmost)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    forge_expect_ids(t, "abc", 3, false, false, IDS(A, BC));
    forge_expect_ids(t, "aaa", 3, false, false, IDS(AA, A));
    forge_expect_ids(t, "aaaa", 4, false, false, IDS(AA, AA));
    forge_expect_ids(t, "a a", 3, false, false, IDS(A, SPACE_A));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_takes_a_whole_piece_only_where_the_pre_tokenizer_ignores_merges)
{
    assay_tokenizer *t = NULL;
    forge_vocab v = good;
    v.numbers[0].key = "bos_token_id";
    v.numbers[0].value = CONTROL;
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, "llama-bpe"));
    forge_expect_ids(t, "abc", 3, true, false, IDS(CONTROL, ABC));
    assay_tokenizer_free(t);
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, NULL));
    forge_expect_ids(t, "abc", 3, true, false, IDS(A, BC));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_starts_with_token_11_where_the_family_asks_and_the_file_is_silent)
{
    assay_tokenizer *t = NULL;
    forge_vocab v = good;
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, "llama-bpe"));
    forge_expect_ids(t, "x", 1, true, false, IDS(SPACE_A, X));
    ck_assert(assay_tokenizer_is_end(t, 11));
    assay_tokenizer_free(t);
    v.n_tokens = v.n_types = 11;
    EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, "llama-bpe"));
    EXPECT_SAYS("bos_token_id");
    v.flags[0].key = "add_bos_token";
    v.flags[0].value = true;
    EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, "glm4"));
    v.flags[0].value = false;
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, "llama-bpe"));
    forge_expect_ids(t, "x", 1, true, false, IDS(X));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_falls_apart_into_one_byte_tokens_and_drops_what_is_missing)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    forge_expect_ids(t, "xy", 2, false, false, IDS(X, Y));
    forge_expect_ids(t, "xqy\xFF", 4, false, false, IDS(X, Y));
    EXPECT_FAILS(ASSAY_CANNOT_JUDGE,
                 assay_tokenizer_round_trip(t, (const uint8_t *)"xqy", 3, false));
    EXPECT_SAYS("from byte 1");
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_finds_the_longest_special_token_first)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    /* "<c>" stands first, but the longer "<c><u" overlaps it; user-defined tokens always count. */
    forge_expect_ids(t, "a<c><uy", 7, false, true, IDS(A, USER, Y));
    forge_expect_ids(t, "a<c><uy", 7, false, false, IDS(A, USER, Y));
    forge_expect_ids(t, "a<c>y<n>", 8, false, true, IDS(A, CONTROL, Y, UNKNOWN));
    forge_expect_ids(t, "a<c>y<n>", 8, false, false, IDS(A, C, Y));
    forge_expect_ids(t, "<c><c>", 6, false, true, IDS(CONTROL, CONTROL));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_decodes_the_byte_alphabet_and_plain_special_text)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    forge_expect_text(t, IDS(CONTROL, SPACE_A, EMPTY, USER), "<c> a<c><u", 10);
    forge_expect_text(t, NULL, 0, "", 0);
    char *text = NULL;
    size_t n;
    EXPECT_FAILS(ASSAY_MISSING, assay_tokenizer_decode(&text, &n, t, IDS(A, 13)));
    EXPECT_SAYS("token id 13 at 1");
    EXPECT_FAILS(ASSAY_MISSING, assay_tokenizer_decode(&text, &n, t, IDS(-1)));
    ck_assert_ptr_null(text);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_may_come_without_merges_only_as_kimi)
{
    assay_tokenizer *t = NULL;
    forge_vocab v = good;
    v.merges = NULL;
    EXPECT_FAILS(ASSAY_MISSING, forge_vocab_tokenizer(&t, &v, NULL));
    EXPECT_SAYS("tokenizer.ggml.merges");
    EXPECT_OK(forge_vocab_tokenizer(&t, &v, "kimi-k2"));
    forge_expect_ids(t, "abc", 3, false, false, IDS(A, B, C));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(bpe_refuses_a_merge_without_two_parts)
{
    static const char *const broken[] = {"ab", "ab ", " ab", "", " "};
    for (int i = 0; i < 5; i++) {
        assay_tokenizer *t = NULL;
        const char *list[] = {"b c", broken[i]};
        forge_vocab v = good;
        v.merges = list;
        v.n_merges = 2;
        EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, NULL));
        EXPECT_SAYS("element 1 is '");
    }
}
END_TEST

EXPECT_MAIN("tokenizer_bpe", bpe_merges_the_lowest_rank_first_and_ties_leftmost,
            bpe_takes_a_whole_piece_only_where_the_pre_tokenizer_ignores_merges,
            bpe_starts_with_token_11_where_the_family_asks_and_the_file_is_silent,
            bpe_falls_apart_into_one_byte_tokens_and_drops_what_is_missing,
            bpe_finds_the_longest_special_token_first,
            bpe_decodes_the_byte_alphabet_and_plain_special_text,
            bpe_may_come_without_merges_only_as_kimi, bpe_refuses_a_merge_without_two_parts)
