#include "engine/pretokenizer.h"

#include <stdio.h>

#include "expect.h"

struct joined {
    char text[512];
    size_t n_bytes;
};

static assay_status join(void *context, const char *piece, size_t n)
{
    struct joined *joined = context;
    size_t used = strlen(joined->text);
    snprintf(joined->text + used, sizeof joined->text - used, "%s%.*s", used ? "#" : "", (int)n,
             piece);
    joined->n_bytes += n;
    return ASSAY_OK;
}

/* Pieces as they must come out, joined by '#'. All follow from the patterns by hand. */
static const struct {
    const char *pre, *text, *pieces;
} rows[] = {
    {"gpt-2", "it's  IT'S 12345 ok", "it#'s# # IT#'#S# 12345# ok"},
    {"gpt-2", "a \t\n b", "a# \t\n# b"},
    {"default", "a$b 12345 x", "a#$#b# #123#45# x"},
    {"llama-bpe", "it's IT'S 12345", "it#'s# IT#'S# #123#45"},
    {"glm4", "x=(y)\n\n  z", "x#=(#y#)\n\n# # z"},
    {"chatglm-bpe", "a\n \n  b", "a#\n \n# # b"},
    {"qwen2", "a 12", "a# #1#2"},
    {"deepseek-v3", "(a+b)\n 12345", "(a#+b#)\n# #123#45"},
    {"deepseek-v3", "e\xCC\x81 x", "e\xCC\x81# x"},
    {"deepseek-v3", "\xE4\xB8\xADx\xE3\x82\xAB", "\xE4\xB8\xAD#x#\xE3\x82\xAB"},
    {"glm4", "e\xCC\x81 x", "e#\xCC\x81# x"},
    {"deepseek-llm", "ab 12 c!\n\nx  ", "ab# #12# c#!#\n#\n#x#  "},
    {"deepseek-llm", "a  1", "a#  #1"},
    {"deepseek-coder", "f(1) 23", "f#(#1#)# #2#3"},
    {"kimi-k2", "getUserName's \xE4\xB8\xAD\xE6\x96\x87x",
     "getUserName's# #\xE4\xB8\xAD\xE6\x96\x87#x"},
    {"kimi-k2", "a\xE4\xB8\xAD'LL1234", "a#\xE4\xB8\xAD#'LL#123#4"},
    /* U+0085 and U+3000 are spaces, U+180E is not; U+017F is no s. */
    {"glm4", "1\xC2\x85\xC2\x85x", "1#\xC2\x85#\xC2\x85x"},
    {"glm4", "1 \xE1\xA0\x8E\xE1\xA0\x8E", "1# \xE1\xA0\x8E\xE1\xA0\x8E"},
    {"llama-bpe", "1'\xC5\xBF", "1#'\xC5\xBF"},
    {"llama-bpe",
     "1'\xC5\xBF"
     "a's",
     "1#'\xC5\xBF"
     "a#'s"},
    {"qwen2", "t'\xC5\xBFx", "t#'\xC5\xBFx"},
    {"kimi-k2", "t'\xC5\xBFx", "t#'\xC5\xBFx"},
    {"gpt-2",
     "1\xE3\x80\x80\xE3\x80\x80"
     "2",
     "1#\xE3\x80\x80#\xE3\x80\x80#2"},
    {"deepseek-llm", "\xE3\x80\x80\xE3\x80\x81\xE4\xB8\xAD",
     "\xE3\x80\x80#\xE3\x80\x81#\xE4\xB8\xAD"},
    {"deepseek-llm", "\xE4\xB8\xAD\xE3\x80\x80\xE4\xB8\xAD",
     "\xE4\xB8\xAD#\xE3\x80\x80#\xE4\xB8\xAD"},
    /* Bytes that are not UTF-8: a cut character, a surrogate, an overlong form. */
    {"glm4",
     "ab\xE4\xB8"
     "cd",
     "ab#\xE4\xB8#cd"},
    {"glm4", "\xED\xA0\x80x", "\xED\xA0\x80#x"},
    {"deepseek-v3",
     "1\xC0\x80\xFF"
     "2",
     "1#\xC0\x80\xFF#2"},
    {"glm4", "", ""},
};

START_TEST(pretokenizer_cuts_text_as_its_patterns_say)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_pretokenizer *pre;
        struct joined joined = {0};
        EXPECT_OK(assay_pretokenizer_new(&pre, rows[i].pre, strlen(rows[i].pre)));
        EXPECT_OK(assay_pretokenizer_split(pre, rows[i].text, strlen(rows[i].text), join, &joined));
        ck_assert_msg(strcmp(joined.text, rows[i].pieces) == 0, "row %zu: %s of '%s': '%s'", i,
                      rows[i].pre, rows[i].text, joined.text);
        ck_assert_uint_eq(joined.n_bytes, strlen(rows[i].text));
        assay_pretokenizer_free(pre);
    }
}
END_TEST

static assay_status refuse(void *context, const char *piece, size_t n)
{
    (void)piece;
    (void)n;
    return ++*(int *)context == 2 ? assay_fail(ASSAY_IO, "enough") : ASSAY_OK;
}

START_TEST(pretokenizer_stops_at_the_first_failure)
{
    assay_pretokenizer *pre;
    int calls = 0;
    EXPECT_OK(assay_pretokenizer_new(&pre, "glm4", 4));
    EXPECT_FAILS(ASSAY_IO, assay_pretokenizer_split(pre, "a b c d", 7, refuse, &calls));
    ck_assert_int_eq(calls, 2);
    assay_pretokenizer_free(pre);
}
END_TEST

START_TEST(pretokenizer_names_must_match_whole)
{
    static const char *const unknown[] = {"", "glm", "glm4 chatglm-bpe", "GLM4", "glm44", " "};
    for (int i = 0; i < 6; i++) {
        assay_pretokenizer *pre = NULL;
        EXPECT_FAILS(ASSAY_UNSUPPORTED,
                     assay_pretokenizer_new(&pre, unknown[i], strlen(unknown[i])));
        EXPECT_SAYS("kimi-k2");
        ck_assert_ptr_null(pre);
    }
}
END_TEST

EXPECT_MAIN("pretokenizer", pretokenizer_cuts_text_as_its_patterns_say,
            pretokenizer_stops_at_the_first_failure, pretokenizer_names_must_match_whole)
