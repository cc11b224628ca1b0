#include "forge_vocab.h"

#include "expect.h"

#define GAP "\xE2\x96\x81" /* U+2581 */

enum {
    UNK,
    START,
    END,
    NEWLINE,
    BYTE_C3,
    USER,
    GAP_,
    H,
    E,
    L,
    O,
    GAP_H,
    HE,
    LL,
    LO,
    HELL,
    GAP_HELL
};

static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>",  "[u]",
                                     GAP,     "h",   "e",    "l",      "o",       GAP "h",
                                     "he",    "ll",  "lo",   "hell",   GAP "hell"};
static const int32_t types[] = {2, 3, 3, 6, 6, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const float scores[] = {0,   0,   0,  0,  0,  0,     -10, -10, -10,
                               -10, -10, -3, -2, -1, -1.5f, -4,  -6};
static const forge_vocab good = {.model = "llama",
                                 .tokens = tokens,
                                 .n_tokens = 17,
                                 .types = types,
                                 .n_types = 17,
                                 .scores = scores,
                                 .n_scores = 17};

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((int32_t[]){__VA_ARGS__}) / 4

START_TEST(spm_merges_the_highest_score_first_and_ties_leftmost)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    /* ll (-1), he (-2), hell (-4), GAP hell (-6); GAP h (-3) and lo (-1.5) come too late. */
    forge_expect_ids(t, "hello", 5, false, false, IDS(GAP_HELL, O));
    forge_expect_ids(t, "lllo", 4, false, false, IDS(GAP_, LL, LO));
    forge_expect_ids(t, "lll", 3, false, false, IDS(GAP_, LL, L));
    forge_expect_ids(t, "h h", 3, false, false, IDS(GAP_H, GAP_H));
    forge_expect_ids(t, "", 0, false, false, NULL, 0);
    forge_expect_ids(t, "", 0, true, false, IDS(START));
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(spm_falls_back_to_bytes_and_then_to_unknown)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    forge_expect_ids(t, "\xC3\xA9\n", 3, false, false, IDS(GAP_, BYTE_C3, UNK, NEWLINE));
    forge_expect_ids(t, "\xC3", 1, false, false, IDS(GAP_, BYTE_C3));
    forge_expect_text(t, IDS(GAP_, BYTE_C3, NEWLINE), "\xC3\n", 2);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(spm_puts_a_space_in_front_at_the_start_and_after_special_tokens)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    forge_expect_ids(t, "h</s>h", 6, true, true, IDS(START, GAP_H, END, GAP_H));
    forge_expect_ids(t, "h[u]h", 5, false, false, IDS(GAP_H, USER, GAP_H));
    forge_expect_text(t, IDS(START, GAP_H, END, GAP_H), "<s>h</s>h", 9);
    forge_expect_text(t, IDS(GAP_, GAP_H, GAP_H), " h h", 4);
    EXPECT_OK(assay_tokenizer_round_trip(t, (const uint8_t *)" h  ll [u] o", 12, false));
    assay_tokenizer_free(t);

    forge_vocab bare = good;
    bare.flags[0].key = "add_space_prefix";
    bare.flags[1].key = "add_bos_token";
    EXPECT_OK(forge_vocab_tokenizer(&t, &bare, NULL));
    forge_expect_ids(t, "h h", 3, true, false, IDS(H, GAP_H));
    forge_expect_text(t, IDS(GAP_H), " h", 2);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(spm_ends_at_its_default_end_token)
{
    assay_tokenizer *t;
    EXPECT_OK(forge_vocab_tokenizer(&t, &good, NULL));
    for (int32_t id = -1; id < 20; id++)
        ck_assert_int_eq(assay_tokenizer_is_end(t, id), id == END);
    assay_tokenizer_free(t);
}
END_TEST

START_TEST(spm_refuses_what_it_cannot_use)
{
    assay_tokenizer *t = NULL;
    forge_vocab v = good;
    v.scores = NULL;
    EXPECT_FAILS(ASSAY_MISSING, forge_vocab_tokenizer(&t, &v, NULL));
    EXPECT_SAYS("tokenizer.ggml.scores");
    const float broken[17] = {[9] = NAN};
    v.scores = broken;
    EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, NULL));
    EXPECT_SAYS("token 9");
    v = good;
    v.n_scores = 16;
    EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, NULL));
    EXPECT_SAYS("16 elements, but there are 17 tokens");
    int32_t wrong[17];
    memcpy(wrong, types, sizeof wrong);
    wrong[7] = 6;
    v = good;
    v.types = wrong;
    EXPECT_FAILS(ASSAY_BAD_FILE, forge_vocab_tokenizer(&t, &v, NULL));
    EXPECT_SAYS("token 7 is of type byte but reads 'h'");
    EXPECT_FAILS(ASSAY_UNSUPPORTED, forge_vocab_tokenizer(&t, &good, "gpt-2"));
    ck_assert_ptr_null(t);
}
END_TEST

EXPECT_MAIN("tokenizer_spm", spm_merges_the_highest_score_first_and_ties_leftmost,
            spm_falls_back_to_bytes_and_then_to_unknown,
            spm_puts_a_space_in_front_at_the_start_and_after_special_tokens,
            spm_ends_at_its_default_end_token, spm_refuses_what_it_cannot_use)
