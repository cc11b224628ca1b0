#include "engine/utf8.h"

#include <stdbool.h>

#include "expect.h"

START_TEST(utf8_round_trips_every_code_point_but_surrogates)
{
    int64_t bad = -1; /* one assertion per code point would take seconds */
    for (uint32_t c = 0; c <= 0x10FFFF && bad < 0; c++) {
        char text[4] = {0};
        int n = assay_utf8_put(text, c);
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        if (assay_utf8_length(text, 4) != (surrogate ? 0 : n) ||
            assay_utf8_length(text, (size_t)n - 1) != 0 ||
            (!surrogate && assay_utf8_get(text, n) != c))
            bad = c;
    }
    ck_assert_int_eq(bad, -1);
}
END_TEST

START_TEST(utf8_refuses_overlong_cut_and_too_large_forms)
{
    static const char *const broken[] = {"\x80",
                                         "\xC0\x80",
                                         "\xC1\xBF",
                                         "\xE0\x9F\xBF",
                                         "\xF0\x8F\xBF\xBF",
                                         "\xF4\x90\x80\x80",
                                         "\xF5\x80\x80\x80",
                                         "\xFF",
                                         "\xC3(",
                                         "\xE4\xB8(",
                                         "\xF0\x9F\x98("};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        ck_assert_int_eq(assay_utf8_length(broken[i], strlen(broken[i])), 0);
}
END_TEST

START_TEST(utf8_quotes_what_is_no_text)
{
    char out[ASSAY_QUOTE_BYTES], bytes[200];
    ck_assert_str_eq(assay_utf8_quote(out, "a\xC3\xA9\xFF\n\xC2\x85", 7),
                     "a\xC3\xA9\\xFF\\x0A\\xC2\\x85");
    ck_assert_str_eq(assay_utf8_quote(out, "", 0), "");
    memset(bytes, 0xFF, sizeof bytes);
    ck_assert_uint_eq(strlen(assay_utf8_quote(out, bytes, 80)), 4 * 80);
    ck_assert_uint_eq(strlen(assay_utf8_quote(out, bytes, 200)), 4 * 80 + 3);
    memcpy(bytes + 79, "\xF0\x9F\x98\x80", 4); /* the cut never divides a character */
    ck_assert_uint_eq(strlen(assay_utf8_quote(out, bytes, 200)), 4 * 79 + 4 + 3);
}
END_TEST

EXPECT_MAIN("utf8", utf8_round_trips_every_code_point_but_surrogates,
            utf8_refuses_overlong_cut_and_too_large_forms, utf8_quotes_what_is_no_text)
