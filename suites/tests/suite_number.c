#include "engine/base/number.h"
#include "expect.h"

START_TEST(number_f16_round_trips_every_bit_pattern)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = assay_f16_to_f32((uint16_t)i);
        uint16_t back = assay_f32_to_f16(x);
        if (x != x)
            ck_assert_uint_eq(back & 0x7C00u, 0x7C00u);
        else
            ck_assert_uint_eq(back, i);
    }
}
END_TEST

START_TEST(number_bf16_and_fp8_round_trip_every_bit_pattern)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = assay_bf16_to_f32((uint16_t)i);
        if (x == x)
            ck_assert_uint_eq(assay_f32_to_bf16(x), i);
    }
    for (uint32_t i = 0; i < 256; i++) {
        float x = assay_f8e4m3_to_f32((uint8_t)i);
        if (x == x)
            ck_assert_uint_eq(assay_f32_to_f8e4m3(x), i);
    }
}
END_TEST

START_TEST(number_rounds_ties_to_even)
{
    ck_assert_uint_eq(assay_f32_to_f16(65519.0f), 0x7BFFu);
    ck_assert_uint_eq(assay_f32_to_f16(65520.0f), 0x7C00u);
    ck_assert_uint_eq(assay_f32_to_f16(0x1p-25f), 0u);
    ck_assert_uint_eq(assay_f32_to_f16(0x1.8p-24f), 2u);
    ck_assert_uint_eq(assay_f32_to_f16(2049.0f), assay_f32_to_f16(2048.0f));
    ck_assert_uint_eq(assay_f32_to_f8e4m3(448.0f), 0x7Eu);
    ck_assert_uint_eq(assay_f32_to_f8e4m3(464.0f), 0x7Eu);
    ck_assert_uint_eq(assay_f32_to_f8e4m3(465.0f), 0x7Fu);
    ck_assert_uint_eq(assay_f32_to_f8e4m3(0x1p-10f), 0u);
}
END_TEST

START_TEST(number_poison_carries_its_owner)
{
    uint32_t owner = 0;
    ck_assert_int_eq(assay_is_poison_f32(assay_poison_f32(12345), &owner), 1);
    ck_assert_uint_eq(owner, 12345u);
    ck_assert_int_eq(assay_is_poison_f32(0x7FC00000u, NULL), 0);
    ck_assert_int_eq(assay_is_poison_f32(0x3F800000u, NULL), 0);
}
END_TEST

START_TEST(number_index_is_whole_and_inside)
{
    ck_assert_int_eq(assay_index_of(0, 8), 0);
    ck_assert_int_eq(assay_index_of(7, 8), 7);
    const double wrong[] = {8, -1, 0.5, 6.999, NAN, INFINITY, -INFINITY, 1e300, -1e300, 9.3e18};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(assay_index_of(wrong[i], 8) == -1, "%g", wrong[i]);
    ck_assert_int_eq(assay_index_of(1e300, INT64_MAX), -1);
    ck_assert_int_eq(assay_index_of(9007199254740992.0, INT64_MAX), (int64_t)1 << 53);
}
END_TEST

EXPECT_MAIN("number", number_f16_round_trips_every_bit_pattern,
            number_bf16_and_fp8_round_trip_every_bit_pattern, number_rounds_ties_to_even,
            number_poison_carries_its_owner, number_index_is_whole_and_inside)
