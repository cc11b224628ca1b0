#include "references/oracle/oracle_quant.h"

#include "expect.h"
#include "quant_vectors.h"

static assay_status decode(float *out, int number, const void *blocks, int64_t n)
{
    const oracle_quant *q = assay_oracle_quant_find(number);
    if (!q)
        return assay_fail(ASSAY_UNSUPPORTED, "type %d", number);
    for (int64_t i = 0; i < n / q->elements; i++)
        q->decode(out + i * q->elements, (const uint8_t *)blocks + i * q->bytes);
    return ASSAY_OK;
}

START_TEST(oracle_decodes_the_golden_blocks_of_every_type)
{
    expect_golden_blocks(decode);
}
END_TEST

START_TEST(oracle_decodes_the_vector_file_to_the_same_bits)
{
    if (!expect_vector_file(decode))
        fprintf(stderr, "quant-vectors.h5 is not here: not compared\n");
}
END_TEST

START_TEST(oracle_decodes_only_types_that_exist)
{
    static const int removed[] = {-1, 4, 5, 31, 32, 33, 36, 37, 38, 43};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        ck_assert_ptr_null(assay_oracle_quant_find(removed[i]));
}
END_TEST

/* Two Q4_0 blocks with scales 1 and 2; codes 0 ... 15 in the low nibbles, 15 ... 0 in the high. */
static void two_blocks(uint8_t b[36])
{
    memset(b, 0, 36);
    b[1] = 0x3C;
    b[19] = 0x40;
    for (int i = 0; i < 16; i++)
        b[2 + i] = b[20 + i] = (uint8_t)(i | (15 - i) << 4);
}

static void view(double out[64], assay_weight_view how)
{
    uint8_t b[36];
    two_blocks(b);
    assay_oracle_quant_decode(out, assay_oracle_quant_find(2), b, 2, 0, 64, how);
}

START_TEST(oracle_views_bend_scales_and_nibbles_of_quantized_blocks)
{
    double right[64], bent[64];
    view(right, ASSAY_WEIGHT_RIGHT);
    ck_assert(right[0] == -8 && right[15] == 7 && right[16] == 7 && right[32] == -16);
    view(bent, ASSAY_WEIGHT_NEIGHBOUR_SCALE);
    for (int i = 0; i < 32; i++)
        ck_assert(bent[i] == 2 * right[i] && bent[32 + i] == right[32 + i]);
    view(bent, ASSAY_WEIGHT_NIBBLES_EXCHANGED);
    for (int i = 0; i < 16; i++)
        ck_assert(bent[i] == right[i + 16] && bent[i + 16] == right[i]);
    view(bent, ASSAY_WEIGHT_NEIGHBOURS_EXCHANGED);
    for (int i = 0; i < 64; i++)
        ck_assert(bent[i] == right[i ^ 1]);
}
END_TEST

START_TEST(oracle_views_leave_scalars_alone_and_exchange_16_bit_formats)
{
    const uint8_t f16[2] = {0x00, 0x3C}; /* 1.0 as f16, 2^-7 as bf16 */
    double y;
    assay_oracle_quant_decode(&y, assay_oracle_quant_find(1), f16, 1, 0, 1,
                              ASSAY_WEIGHT_NIBBLES_EXCHANGED);
    ck_assert(y == 1.0);
    assay_oracle_quant_decode(&y, assay_oracle_quant_find(1), f16, 1, 0, 1,
                              ASSAY_WEIGHT_OTHER_16_BIT);
    ck_assert(y == 0x1p-7);
}
END_TEST

/* x[i] = (((37 i + 11) mod 101) - 50) / 16; hashes are those of ggml's own quantizers. */
static void ramp(float x[256])
{
    for (int i = 0; i < 256; i++)
        x[i] = (float)((i * 37 + 11) % 101 - 50) / 16.0f;
}

START_TEST(oracle_rounds_activations_as_ggml_does)
{
    float x[256];
    uint8_t q8_0[8 * 34], q8_1[8 * 36], q8_k[292];
    ramp(x);
    for (int b = 0; b < 8; b++) {
        assay_oracle_encode_q8_0(q8_0 + 34 * b, x + 32 * b);
        assay_oracle_encode_q8_1(q8_1 + 36 * b, x + 32 * b);
    }
    assay_oracle_encode_q8_k(q8_k, x);
    ck_assert_uint_eq(fnv1a(q8_0, sizeof q8_0), 0xf8e49b9f63cf75d3u);
    ck_assert_uint_eq(fnv1a(q8_1, sizeof q8_1), 0x05b3f051c4ac782fu);
    ck_assert_uint_eq(fnv1a(q8_k, sizeof q8_k), 0x373aaae8f9df6bacu);
}
END_TEST

START_TEST(oracle_rounded_activations_are_the_decoded_blocks)
{
    float x[256], want[256];
    double row[256];
    uint8_t block[292];
    ramp(x);
    for (int i = 0; i < 256; i++)
        row[i] = x[i];
    assay_oracle_encode_q8_k(block, x);
    EXPECT_OK(decode(want, 15, block, 256));
    assay_oracle_round_activation(row, 256, ORACLE_PARTNER_Q8_K);
    for (int i = 0; i < 256; i++)
        EXPECT_NEAR(row[i], want[i], 1e-7 * fabs(want[i]));
}
END_TEST

/* A block without a scale, and a tail that is no block, stay as they are. */
START_TEST(oracle_leaves_unroundable_activations_alone)
{
    double row[40];
    for (int i = 0; i < 40; i++)
        row[i] = 0.1 * i;
    row[3] = HUGE_VAL;
    assay_oracle_round_activation(row, 40, ORACLE_PARTNER_Q8_0);
    for (int i = 0; i < 40; i++)
        ck_assert(i == 3 ? isinf(row[i]) : row[i] == 0.1 * i);
}
END_TEST

EXPECT_MAIN("oracle_quant", oracle_decodes_the_golden_blocks_of_every_type,
            oracle_decodes_the_vector_file_to_the_same_bits, oracle_decodes_only_types_that_exist,
            oracle_views_bend_scales_and_nibbles_of_quantized_blocks,
            oracle_views_leave_scalars_alone_and_exchange_16_bit_formats,
            oracle_rounds_activations_as_ggml_does,
            oracle_rounded_activations_are_the_decoded_blocks,
            oracle_leaves_unroundable_activations_alone)
