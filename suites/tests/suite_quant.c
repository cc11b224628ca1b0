#include "engine/quant.h"

#include "expect.h"
#include "quant_vectors.h"

START_TEST(quant_decodes_the_golden_blocks_of_every_type)
{
    expect_golden_blocks(assay_quant_decode);
}
END_TEST

START_TEST(quant_has_a_golden_line_for_every_block_type_of_files)
{
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *quant = assay_quant_at(i);
        if (!quant->decode || quant->block_elements == 1 || strcmp(quant->name, "q8_1") == 0)
            continue; /* scalars and q8_1 have their own tests */
        bool found = false;
        for (size_t g = 0; g < sizeof golden_blocks / sizeof *golden_blocks; g++)
            if (golden_blocks[g].number == quant->number) {
                found = true;
                ck_assert_str_eq(golden_blocks[g].name, quant->name);
                ck_assert_int_eq(golden_blocks[g].elements, quant->block_elements);
                ck_assert_int_eq(golden_blocks[g].bytes, quant->block_bytes);
            }
        ck_assert_msg(found, "no golden line for %s", quant->name);
    }
}
END_TEST

START_TEST(quant_agrees_bit_for_bit_with_the_vector_file)
{
    if (!expect_vector_file(assay_quant_decode))
        fprintf(stderr, "quant-vectors.h5 is not here: not compared\n");
}
END_TEST

START_TEST(quant_decodes_scalars)
{
    float y[4];
    const float f32[4] = {1.0f, -0.0f, INFINITY, 0x1p-149f};
    EXPECT_OK(assay_quant_decode(y, 0, f32, 4));
    ck_assert_mem_eq(y, f32, sizeof f32);
    const double f64[2] = {0.1, -1e-300};
    EXPECT_OK(assay_quant_decode(y, 28, f64, 2));
    ck_assert(y[0] == 0.1f && y[1] == 0.0f && signbit(y[1]));
    const uint16_t f16[4] = {0x3C00, 0x0001, 0xFC00, 0x7E00};
    EXPECT_OK(assay_quant_decode(y, 1, f16, 4));
    ck_assert(y[0] == 1.0f && y[1] == 0x1p-24f && y[2] == -INFINITY && isnan(y[3]));
    const uint16_t bf16[4] = {0x3F80, 0x0001, 0xFF80, 0x7FC1};
    EXPECT_OK(assay_quant_decode(y, 30, bf16, 4));
    ck_assert(y[0] == 1.0f && y[1] == 0x1p-133f && y[2] == -INFINITY && isnan(y[3]));
}
END_TEST

/* Activation format: the second f16 is the sum and takes no part in the values. */
START_TEST(quant_q8_1_ignores_its_sum)
{
    uint8_t block[36] = {0x00, 0x38, 0xff, 0x7f}; /* d = 0.5, s = NaN */
    for (int e = 0; e < 32; e++)
        block[4 + e] = (uint8_t)(e - 16);
    float y[32];
    EXPECT_OK(assay_quant_decode(y, 9, block, 32));
    for (int e = 0; e < 32; e++)
        ck_assert(y[e] == 0.5f * (float)(e - 16));
}
END_TEST

/* The E8M0 exponents around the step from subnormal to normal float32. */
START_TEST(quant_mxfp4_reaches_subnormal_scales)
{
    const float want[4] = {0x1p-128f, 0x1p-127f, 0x1p-126f, 0x1p-125f};
    for (int e = 0; e < 4; e++) {
        uint8_t block[17] = {(uint8_t)e, 0x01};
        float y[32];
        EXPECT_OK(assay_quant_decode(y, 39, block, 32));
        ck_assert(y[0] == want[e] && y[16] == 0.0f);
    }
}
END_TEST

START_TEST(quant_refuses_cut_blocks_and_unknown_types)
{
    float y[256];
    uint8_t zeros[256] = {0};
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_quant_decode(y, 8, zeros, 33));
    EXPECT_SAYS("multiple of 32");
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_quant_decode(y, 8, zeros, -32));
    const int removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, -1};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        ck_assert_ptr_null(assay_quant_find(removed[i]));
        EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_quant_decode(y, removed[i], zeros, 32));
    }
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_quant_decode(y, 26, zeros, 4));
    ck_assert_ptr_null(assay_quant_by_name("q9_9"));
    ck_assert_int_eq(assay_quant_by_name("Q4_K")->number, 12);
}
END_TEST

/* A scale that is NaN or infinite is seen in every type, and makes values that are not finite. */
START_TEST(quant_sees_scales_that_are_not_finite)
{
    static const uint16_t f16[] = {0x7C00, 0xFC00, 0x7E00, 0x7C01};
    for (size_t g = 0; g < sizeof golden_blocks / sizeof *golden_blocks; g++) {
        const assay_quant *quant = assay_quant_find(golden_blocks[g].number);
        uint8_t *pair = golden_pair(&golden_blocks[g]);
        ck_assert_msg(assay_quant_block_is_finite(quant, pair), "%s", quant->name);
        for (int k = 0; k < 8 && quant->scale == ASSAY_SCALE_F16; k++) {
            int at = k < 4 ? quant->scale_at : quant->second_at;
            if (at < 0)
                continue;
            uint8_t old[2] = {pair[at], pair[at + 1]};
            float y[256];
            put_u16(pair + at, f16[k % 4]);
            ck_assert_msg(!assay_quant_block_is_finite(quant, pair), "%s", quant->name);
            EXPECT_OK(assay_quant_decode(y, quant->number, pair, quant->block_elements));
            ck_assert_msg(!isfinite(y[0]), "%s: scale %04x gives %g", quant->name, f16[k % 4],
                          (double)y[0]);
            memcpy(pair + at, old, 2);
        }
        free(pair);
    }
    uint8_t iq1_m[56] = {0}, mxfp4[17] = {0xFF}, q8_k[292] = {0, 0, 0x80, 0x7F};
    iq1_m[55] = 0x70;
    ck_assert(assay_quant_block_is_finite(assay_quant_by_name("iq1_m"), iq1_m));
    iq1_m[53] = 0xC0;
    ck_assert(!assay_quant_block_is_finite(assay_quant_by_name("iq1_m"), iq1_m));
    ck_assert(!assay_quant_block_is_finite(assay_quant_by_name("mxfp4"), mxfp4));
    ck_assert(!assay_quant_block_is_finite(assay_quant_by_name("q8_k"), q8_k));
}
END_TEST

START_TEST(quant_numbers_and_names_are_unique)
{
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *quant = assay_quant_at(i);
        ck_assert_ptr_eq(assay_quant_find(quant->number), quant);
        ck_assert_ptr_eq(assay_quant_by_name(quant->name), quant);
    }
}
END_TEST

/* 256 inputs of few digits; golden hashes of the reference's own encoders. */
START_TEST(quant_encodes_as_the_reference_does)
{
    static const struct {
        const char *name;
        uint64_t fnv;
    } golden[] = {{"q8_0", 0xf8e49b9f63cf75d3u},
                  {"q8_1", 0x05b3f051c4ac782fu},
                  {"q8_k", 0x373aaae8f9df6bacu},
                  {"q4_0", 0x04021b59e5268734u}};
    float x[256];
    uint8_t blocks[320];
    for (int i = 0; i < 256; i++)
        x[i] = (float)((i * 37 + 11) % 101 - 50) / 16.0f;
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        const assay_quant *quant = assay_quant_by_name(golden[g].name);
        EXPECT_OK(assay_quant_encode(blocks, quant->number, x, 256));
        uint64_t fnv = fnv1a(blocks, (size_t)assay_quant_bytes(quant, 256));
        ck_assert_msg(fnv == golden[g].fnv, "%s: %016" PRIx64, quant->name, fnv);
    }
}
END_TEST

/* The error of a value is at most the step of its run, whose size follows from the formula. */
START_TEST(quant_encoders_stay_inside_their_step)
{
    static const struct {
        const char *name;
        double of_range; /* bound as a share of the block's largest |x| */
    } bounds[] = {{"f32", 0},          {"f16", 0x1p-11},      {"bf16", 0x1p-8},
                  {"q8_0", 0.6 / 127}, {"q8_1", 0.6 / 127},   {"q8_k", 0.6 / 127},
                  {"q6_k", 1.2 / 32},  {"q5_k", 1.3 / 31},    {"q4_k", 1.3 / 15},
                  {"q5_0", 1.1 / 16},  {"q5_1", 1.2 / 31},    {"q4_0", 1.1 / 8},
                  {"q4_1", 1.2 / 15},  {"iq4_nl", 12.5 / 113}};
    float x[512], y[512];
    uint8_t blocks[2048];
    uint32_t random = 12345;
    for (int i = 0; i < 512; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = ((float)(random >> 8) * 0x1p-24f - 0.5f) * (i < 256 ? 1.0f : 0.01f);
    }
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        const assay_quant *quant = assay_quant_by_name(bounds[b].name);
        EXPECT_OK(assay_quant_encode(blocks, quant->number, x, 512));
        EXPECT_OK(assay_quant_decode(y, quant->number, blocks, 512));
        for (int i = 0; i < 512; i++)
            ck_assert_msg(fabs((double)y[i] - x[i]) <= bounds[b].of_range * (i < 256 ? 0.5 : 0.005),
                          "%s: element %d is %g, was %g", quant->name, i, (double)y[i],
                          (double)x[i]);
    }
}
END_TEST

START_TEST(quant_encoders_keep_zero_rows_zero)
{
    const float x[256] = {0};
    float y[256];
    uint8_t blocks[1024];
    int n = 0;
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *quant = assay_quant_at(i);
        if (!quant->encode)
            continue;
        memset(blocks, 0xff, sizeof blocks);
        EXPECT_OK(assay_quant_encode(blocks, quant->number, x, 256));
        EXPECT_OK(assay_quant_decode(y, quant->number, blocks, 256));
        for (int e = 0; e < 256; e++)
            ck_assert_msg(y[e] == 0.0f, "%s: element %d is %g", quant->name, e, (double)y[e]);
        n++;
    }
    ck_assert_int_ge(n, 14);
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_quant_encode(blocks, 19, x, 256));
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_quant_encode(blocks, 8, x, 255));
}
END_TEST

EXPECT_MAIN("quant", quant_sees_scales_that_are_not_finite, quant_encodes_as_the_reference_does,
            quant_encoders_stay_inside_their_step, quant_encoders_keep_zero_rows_zero,
            quant_decodes_the_golden_blocks_of_every_type,
            quant_has_a_golden_line_for_every_block_type_of_files,
            quant_agrees_bit_for_bit_with_the_vector_file, quant_decodes_scalars,
            quant_q8_1_ignores_its_sum, quant_mxfp4_reaches_subnormal_scales,
            quant_refuses_cut_blocks_and_unknown_types, quant_numbers_and_names_are_unique)
