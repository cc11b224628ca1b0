#include "expect.h"
#include "probes/selector.h"

static bool has(const char *text, assay_point point, int layer, int64_t step)
{
    assay_selector *s;
    EXPECT_OK(assay_selector_new(&s, text));
    bool is = assay_selector_has(s, point, layer, step);
    assay_selector_free(s);
    return is;
}

START_TEST(selector_without_text_selects_everything)
{
    for (int p = 0; p < ASSAY_POINT_COUNT; p++) {
        ck_assert(has(NULL, (assay_point)p, -1, 0));
        ck_assert(has("", (assay_point)p, 7, 100000));
        ck_assert(has("  ", (assay_point)p, 7, 0));
    }
}
END_TEST

START_TEST(selector_takes_ranges_and_lists_of_layers)
{
    const char *text = "layer=0-3,7";
    for (int layer = 0; layer < 12; layer++)
        ck_assert_int_eq(has(text, ASSAY_POINT_Q, layer, 0), layer <= 3 || layer == 7);
    ck_assert(!has(text, ASSAY_POINT_LOGITS, -1, 0));
    ck_assert(has("layer=0-3,global", ASSAY_POINT_LOGITS, -1, 0));
    ck_assert(has("layer=*", ASSAY_POINT_LOGITS, -1, 0));
}
END_TEST

START_TEST(selector_matches_points_with_stars)
{
    const char *text = "point=attn.q*,moe.topk";
    ck_assert(has(text, ASSAY_POINT_Q, 0, 0));
    ck_assert(has(text, ASSAY_POINT_Q_ROPE, 5, 0));
    ck_assert(has(text, ASSAY_POINT_MOE_TOPK, 1, 0));
    ck_assert(!has(text, ASSAY_POINT_K, 0, 0));
    ck_assert(!has(text, ASSAY_POINT_INDEX_Q, 0, 0));
    ck_assert(has("point=attn.*", ASSAY_POINT_INDEX_Q, 0, 0));
    ck_assert(!has("point=attn.*", ASSAY_POINT_ATTN_RESID, 0, 0));
}
END_TEST

START_TEST(selector_needs_all_clauses_to_hold)
{
    const char *text = "layer=0-3 point=attn.* step=0,2-";
    assay_selector *s;
    EXPECT_FAILS(ASSAY_USAGE, assay_selector_new(&s, text));
    text = "layer=0-3 point=attn.*  step=0,2-4";
    ck_assert(has(text, ASSAY_POINT_Q, 3, 2));
    ck_assert(!has(text, ASSAY_POINT_Q, 4, 2));
    ck_assert(!has(text, ASSAY_POINT_OUT, 3, 2));
    ck_assert(!has(text, ASSAY_POINT_Q, 3, 1));
}
END_TEST

static const struct {
    const char *text, *says;
} wrong[] = {
    {"layers=0", "column 1: expected layer="},
    {"layer=", "column 7: a value is missing"},
    {"layer=0,", "column 9: a value is missing"},
    {"layer=x", "column 7: 'x' is not a number"},
    {"layer=3-1", "column 7: '3-1' is not"},
    {"layer=-1", "column 7"},
    {"layer=99999999999999999999", "column 7"},
    {"layer=0 layer=1", "column 9: a second 'layer='"},
    {"layer=0 point=atn.q", "column 15: no point matches 'atn.q' (nearest: attn.q"},
    {"point=attn.q,nothing*", "column 14"},
    {"step=1-2-3", "column 6"},
    {"garbage", "column 1"},
};

START_TEST(selector_names_the_column_of_a_mistake)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assay_selector *s;
        EXPECT_FAILS(ASSAY_USAGE, assay_selector_new(&s, wrong[i].text));
        EXPECT_SAYS(wrong[i].says);
    }
}
END_TEST

START_TEST(selector_refuses_endless_lists)
{
    char text[2048] = "layer=0";
    for (int i = 0; i < 100; i++)
        strcat(text, ",1");
    assay_selector *s;
    EXPECT_FAILS(ASSAY_USAGE, assay_selector_new(&s, text));
    EXPECT_SAYS("more than 64 ranges");
}
END_TEST

EXPECT_MAIN("selector", selector_without_text_selects_everything,
            selector_takes_ranges_and_lists_of_layers, selector_matches_points_with_stars,
            selector_needs_all_clauses_to_hold, selector_names_the_column_of_a_mistake,
            selector_refuses_endless_lists)
