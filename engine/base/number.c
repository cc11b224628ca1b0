#include "engine/base/number.h"

#include <string.h>

#include "engine/base/status.h"

#define POISON_BASE 0x7FE00000u
#define POISON_MASK 0xFFF00000u

static const struct {
    const char *name;
    size_t bytes;
    int mantissa;
} table[ASSAY_DTYPE_COUNT] = {
#define X(id, name, bytes, mantissa) {name, bytes, mantissa},
    ASSAY_DTYPE_TABLE(X)
#undef X
};

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

const char *assay_dtype_name(assay_dtype type)
{
    ASSAY_BUG_IF((unsigned)type >= ASSAY_DTYPE_COUNT);
    return table[type].name;
}

size_t assay_dtype_bytes(assay_dtype type)
{
    ASSAY_BUG_IF((unsigned)type >= ASSAY_DTYPE_COUNT);
    return table[type].bytes;
}

int assay_dtype_mantissa(assay_dtype type)
{
    ASSAY_BUG_IF((unsigned)type >= ASSAY_DTYPE_COUNT);
    return table[type].mantissa;
}

assay_dtype assay_dtype_from_name(const char *name)
{
    for (int i = 0; i < ASSAY_DTYPE_COUNT; i++)
        if (!strcmp(table[i].name, name))
            return (assay_dtype)i;
    return ASSAY_DTYPE_COUNT;
}

float assay_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
    uint32_t mantissa = bits & 0x3FFu;
    if (exponent == 31)
        return float_of(sign | 0x7F800000u | mantissa << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* subnormal: exact in float32 */
    return float_of(sign | bits_of(tiny));
}

uint16_t assay_f32_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7C00u | 0x200u | ((magnitude >> 13) & 0x3FFu));
    if (magnitude >= 0x477FF000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, one unit is 2^-24 */
        if (magnitude < 0x33000000u)
            return (uint16_t)sign;
        uint32_t full = (magnitude & 0x7FFFFFu) | 0x800000u, shift = 126 - (magnitude >> 23);
        uint32_t half = 1u << (shift - 1), kept = full >> shift, rest = full & ((1u << shift) - 1);
        kept += rest > half || (rest == half && (kept & 1));
        return (uint16_t)(sign | kept);
    }
    uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float assay_bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t assay_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((u >> 16) | 64u);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

float assay_f8e4m3_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24, exponent = (bits >> 3) & 15u;
    uint32_t mantissa = bits & 7u;
    if (exponent == 15 && mantissa == 7)
        return float_of(sign | 0x7FC00000u);
    if (exponent)
        return float_of(sign | (exponent + 120) << 23 | mantissa << 20);
    return float_of(sign | bits_of((float)mantissa * 0x1p-9f));
}

uint8_t assay_f32_to_f8e4m3(float x)
{
    uint32_t u = bits_of(x), sign = (u >> 24) & 0x80u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint8_t)(sign | 0x7Fu);
    if (magnitude >= 0x43E80000u) /* 464 and above lie beyond the largest finite value */
        return (uint8_t)(sign | (magnitude > 0x43E80000u ? 0x7Fu : 0x7Eu));
    if (magnitude < 0x3C800000u) { /* below 2^-6: subnormal, one unit is 2^-9 */
        float units = float_of(magnitude) * 0x1p9f;
        uint32_t kept = (uint32_t)units;
        float rest = units - (float)kept;
        kept += rest > 0.5f || (rest == 0.5f && (kept & 1u));
        return (uint8_t)(sign | kept);
    }
    uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((rounded - 0x3C000000u) >> 20));
}

uint32_t assay_poison_f32(uint32_t owner)
{
    ASSAY_BUG_IF(owner & POISON_MASK);
    return POISON_BASE | owner;
}

int assay_is_poison_f32(uint32_t bits, uint32_t *owner)
{
    if ((bits & POISON_MASK) != POISON_BASE)
        return 0;
    if (owner)
        *owner = bits & ~POISON_MASK;
    return 1;
}

int64_t assay_index_of(double x, int64_t n)
{
    if (!(x >= 0 && x < (double)n))
        return -1;
    int64_t index = (int64_t)x;
    return (double)index == x && index < n ? index : -1;
}
