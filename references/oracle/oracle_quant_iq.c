/*
 * IQ1, IQ2 and IQ3: codebook formats, 256 elements. Group g = 0 ... 7 of 32 elements, run l = 0 ...
 * 3 of 8 in it. Signs are eight bits, set means minus; seven stored bits get the eighth by parity,
 * so that the number of minus signs is even.
 */
#include "references/oracle/oracle_quant.h"

#include "engine/base/iq_grids.h"

static unsigned even_signs(unsigned seven)
{
    unsigned p = seven;
    p ^= p >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return seven | (p & 1) << 7;
}

static void run_iq2(float *out, uint16_t packed, unsigned signs, float scale)
{
    static const float magnitude[3] = {8, 25, 43};
    for (int k = 0; k < 8; k++)
        out[k] = scale * magnitude[packed >> 2 * k & 3] * (signs >> k & 1 ? -1.0f : 1.0f);
}

void assay_oracle_decode_iq2_xxs(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++) {
        uint32_t ids = assay_oracle_u32_at(b + 2 + 8 * g),
                 rest = assay_oracle_u32_at(b + 6 + 8 * g);
        float scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        for (int l = 0; l < 4; l++)
            run_iq2(out + 32 * g + 8 * l, assay_grid_iq2_xxs[ids >> 8 * l & 255],
                    even_signs(rest >> 7 * l & 127), scale);
    }
}

/* Scale of run l: low nibble for the first two, high nibble for the others. */
static float scale_iq2(float d, uint8_t byte, int l)
{
    return d * (0.5f + (float)(l < 2 ? byte & 15 : byte >> 4)) * 0.25f;
}

void assay_oracle_decode_iq2_xs(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++)
        for (int l = 0; l < 4; l++) {
            unsigned q = assay_oracle_u16_at(b + 2 + 2 * (4 * g + l));
            run_iq2(out + 32 * g + 8 * l, assay_grid_iq2_xs[q & 511], even_signs(q >> 9),
                    scale_iq2(d, b[66 + g], l));
        }
}

void assay_oracle_decode_iq2_s(float *out, const uint8_t *b)
{
    const uint8_t *qs = b + 2, *signs = b + 34, *qh = b + 66, *scales = b + 74;
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++)
        for (int l = 0; l < 4; l++) {
            unsigned id = qs[4 * g + l] | ((unsigned)qh[g] << (8 - 2 * l) & 0x300u);
            run_iq2(out + 32 * g + 8 * l, assay_grid_iq2_s[id], signs[4 * g + l],
                    scale_iq2(d, scales[g], l));
        }
}

static void half_iq3(float *out, uint16_t packed, const float magnitude[8], unsigned signs,
                     float scale)
{
    for (int k = 0; k < 4; k++)
        out[k] = scale * magnitude[packed >> 3 * k & 7] * (signs >> k & 1 ? -1.0f : 1.0f);
}

void assay_oracle_decode_iq3_xxs(float *out, const uint8_t *b)
{
    static const float magnitude[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint8_t *qs = b + 2;
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++) {
        uint32_t rest = assay_oracle_u32_at(b + 66 + 4 * g);
        float scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;
        for (int l = 0; l < 4; l++) {
            unsigned signs = even_signs(rest >> 7 * l & 127);
            float *y = out + 32 * g + 8 * l;
            half_iq3(y, assay_grid_iq3_xxs[qs[8 * g + 2 * l]], magnitude, signs, scale);
            half_iq3(y + 4, assay_grid_iq3_xxs[qs[8 * g + 2 * l + 1]], magnitude, signs >> 4,
                     scale);
        }
    }
}

void assay_oracle_decode_iq3_s(float *out, const uint8_t *b)
{
    static const float magnitude[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    const uint8_t *qs = b + 2, *qh = b + 66, *signs = b + 74, *scales = b + 106;
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++) {
        int n = g % 2 ? scales[g / 2] >> 4 : scales[g / 2] & 15;
        float scale = d * (float)(1 + 2 * n);
        for (int l = 0; l < 4; l++) {
            unsigned high = qh[g];
            unsigned first = qs[8 * g + 2 * l] | (high << (8 - 2 * l) & 256u);
            unsigned second = qs[8 * g + 2 * l + 1] | (high << (7 - 2 * l) & 256u);
            float *y = out + 32 * g + 8 * l;
            half_iq3(y, assay_grid_iq3_s[first], magnitude, signs[4 * g + l], scale);
            half_iq3(y + 4, assay_grid_iq3_s[second], magnitude, signs[4 * g + l] >> 4u, scale);
        }
    }
}

static void run_iq1(float *out, uint16_t packed, float scale, float delta)
{
    for (int k = 0; k < 8; k++)
        out[k] = scale * ((float)((packed >> 2 * k & 3) - 1) + delta);
}

void assay_oracle_decode_iq1_s(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int g = 0; g < 8; g++) {
        unsigned h = assay_oracle_u16_at(b + 34 + 2 * g);
        float scale = d * (float)(2 * (h >> 12 & 7) + 1), delta = h & 0x8000u ? -0.125f : 0.125f;
        for (int l = 0; l < 4; l++) {
            unsigned id = b[2 + 4 * g + l] | (h >> 3 * l & 7) << 8;
            run_iq1(out + 32 * g + 8 * l, assay_grid_iq1[id], scale, delta);
        }
    }
}

void assay_oracle_decode_iq1_m(float *out, const uint8_t *b)
{
    const uint8_t *qs = b, *qh = b + 32;
    unsigned sc[4];
    for (int i = 0; i < 4; i++)
        sc[i] = assay_oracle_u16_at(b + 48 + 2 * i);
    unsigned bits = sc[0] >> 12 | (sc[1] >> 8 & 0xF0u) | (sc[2] >> 4 & 0xF00u) | (sc[3] & 0xF000u);
    uint8_t d_bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
    float d = assay_oracle_f16_at(d_bytes);
    for (int g = 0; g < 8; g++)
        for (int l = 0; l < 4; l++) {
            unsigned s = sc[g / 2] >> 6 * (g % 2);
            float scale = d * (float)(2 * ((l < 2 ? s : s >> 3) & 7) + 1);
            unsigned h = (unsigned)qh[2 * g + l / 2] >> 4 * (l % 2);
            unsigned id = qs[4 * g + l] | (h & 7) << 8;
            run_iq1(out + 32 * g + 8 * l, assay_grid_iq1[id], scale, h & 8 ? -0.125f : 0.125f);
        }
}
