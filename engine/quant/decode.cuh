/*
 * Device decoders: one struct per row of quant.def with
 *
 *     static float at(const uint8_t *block, int e)      element e of a packed block
 *
 * in the order of operations of the C decoder beside it (quant_<name>.c states the formula), so
 * that the bits are the same. Tables are copied to the device by assay_device_quant_tables().
 */
#ifndef ASSAY_ENGINE_QUANT_DECODE_CUH
#define ASSAY_ENGINE_QUANT_DECODE_CUH

#include <cuda_fp16.h>

#include "engine/ops/kernel.cuh"

struct decode_tables {
    uint16_t iq1[2048], iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512];
};

/* One for the file that includes this (engine/quant/quant_device.cu). */
static __device__ decode_tables decode_grids;

__device__ __forceinline__ int decode_u16(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}

__device__ __forceinline__ uint32_t decode_u32(const uint8_t *p)
{
    return static_cast<uint32_t>(decode_u16(p)) | static_cast<uint32_t>(decode_u16(p + 2)) << 16;
}

__device__ __forceinline__ float decode_half(int bits)
{
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

__device__ __forceinline__ float decode_f16(const uint8_t *p)
{
    return decode_half(decode_u16(p));
}

__device__ __forceinline__ int decode_nibble(uint8_t byte, int high)
{
    return byte >> 4 * high & 15;
}

__device__ __forceinline__ float decode_iq4(int code)
{
    const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
    return values[code];
}

/* Twice the E2M1 value. */
__device__ __forceinline__ float decode_e2m1(int code)
{
    const int8_t values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    float x = values[code & 7];
    return code & 8 ? 0.0f - x : x;
}

__device__ __forceinline__ void decode_scale_min(int *scale, int *min, const uint8_t *b, int j)
{
    *scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
    *min = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | (b[j] >> 6) << 4;
}

__device__ __forceinline__ float decode_sign(int signs, int k)
{
    return signs >> k & 1 ? -1.0f : 1.0f;
}

__device__ __forceinline__ int decode_signs_of_7(uint32_t i)
{
    i &= 127;
    return static_cast<int>(i | (__popc(i) & 1) << 7);
}

__device__ __forceinline__ float decode_iq1_value(int entry, int k, float step, float delta)
{
    return step * (static_cast<float>((entry >> 2 * k & 3) - 1) + delta);
}

__device__ __forceinline__ float decode_iq2_value(int entry, int k, float step, int signs)
{
    const float values[4] = {8.0f, 25.0f, 43.0f, 0.0f};
    return step * values[entry >> 2 * k & 3] * decode_sign(signs, k);
}

__device__ __forceinline__ int decode_iq3_code(int first, int second, int k)
{
    return (static_cast<uint32_t>(first) | static_cast<uint32_t>(second) << 12) >> 3 * k & 7;
}

struct decode_F32 {
    static __device__ float at(const uint8_t *b, int)
    {
        return *reinterpret_cast<const float *>(b);
    }
};

struct decode_F16 {
    static __device__ float at(const uint8_t *b, int)
    {
        return decode_f16(b);
    }
};

struct decode_BF16 {
    static __device__ float at(const uint8_t *b, int)
    {
        return __uint_as_float(static_cast<uint32_t>(decode_u16(b)) << 16);
    }
};

struct decode_F64 {
    static __device__ float at(const uint8_t *b, int)
    {
        return static_cast<float>(
            __hiloint2double(static_cast<int>(decode_u32(b + 4)), static_cast<int>(decode_u32(b))));
    }
};

struct decode_Q4_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        return static_cast<float>(decode_nibble(b[2 + e % 16], e / 16) - 8) * decode_f16(b);
    }
};

struct decode_Q4_1 {
    static __device__ float at(const uint8_t *b, int e)
    {
        return static_cast<float>(decode_nibble(b[4 + e % 16], e / 16)) * decode_f16(b) +
               decode_f16(b + 2);
    }
};

struct decode_Q5_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        int code = decode_nibble(b[6 + e % 16], e / 16) |
                   static_cast<int>(decode_u32(b + 2) >> e & 1) << 4;
        return static_cast<float>(code - 16) * decode_f16(b);
    }
};

struct decode_Q5_1 {
    static __device__ float at(const uint8_t *b, int e)
    {
        int code = decode_nibble(b[8 + e % 16], e / 16) |
                   static_cast<int>(decode_u32(b + 4) >> e & 1) << 4;
        return static_cast<float>(code) * decode_f16(b) + decode_f16(b + 2);
    }
};

struct decode_Q8_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        return static_cast<float>(static_cast<int8_t>(b[2 + e])) * decode_f16(b);
    }
};

struct decode_Q8_1 {
    static __device__ float at(const uint8_t *b, int e)
    {
        return static_cast<float>(static_cast<int8_t>(b[4 + e])) * decode_f16(b);
    }
};

struct decode_Q8_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        return __uint_as_float(decode_u32(b)) * static_cast<float>(static_cast<int8_t>(b[4 + e]));
    }
};

struct decode_Q2_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        int h = e / 128, j = e % 128 / 32, l = e % 32, scale = b[8 * h + 2 * j + l / 16];
        int q = b[16 + 32 * h + l] >> 2 * j & 3;
        float step = decode_f16(b + 80) * static_cast<float>(scale & 15);
        float min = decode_f16(b + 82) * static_cast<float>(scale >> 4);
        return step * static_cast<float>(q) - min;
    }
};

struct decode_Q3_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        int h = e / 128, j = e % 128 / 32, l = e % 32, k = 8 * h + 2 * j + l / 16;
        int low = k < 8 ? b[96 + k] & 15 : b[96 + k - 8] >> 4;
        int high = b[96 + 8 + k % 4] >> 2 * (k / 4) & 3;
        float step = decode_f16(b + 108) * static_cast<float>((low | high << 4) - 32);
        int q = (b[32 + 32 * h + l] >> 2 * j & 3) - (b[l] >> (4 * h + j) & 1 ? 0 : 4);
        return step * static_cast<float>(q);
    }
};

struct decode_Q4_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        int j = e / 32, l = e % 32, scale, min;
        decode_scale_min(&scale, &min, b + 4, j);
        float step = decode_f16(b) * static_cast<float>(scale);
        float below = decode_f16(b + 2) * static_cast<float>(min);
        return step * static_cast<float>(decode_nibble(b[16 + 32 * (j / 2) + l], j % 2)) - below;
    }
};

struct decode_Q5_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        int j = e / 32, l = e % 32, scale, min;
        decode_scale_min(&scale, &min, b + 4, j);
        float step = decode_f16(b) * static_cast<float>(scale);
        float below = decode_f16(b + 2) * static_cast<float>(min);
        int code = decode_nibble(b[48 + 32 * (j / 2) + l], j % 2) | (b[16 + l] >> j & 1) << 4;
        return step * static_cast<float>(code) - below;
    }
};

struct decode_Q6_K {
    static __device__ float at(const uint8_t *b, int e)
    {
        int h = e / 128, k = e % 128 / 32, l = e % 32;
        int low = decode_nibble(b[64 * h + 32 * (k & 1) + l], k >= 2);
        int high = b[128 + 32 * h + l] >> 2 * k & 3;
        float step = decode_f16(b + 208) *
                     static_cast<float>(static_cast<int8_t>(b[192 + 8 * h + 2 * k + l / 16]));
        return step * static_cast<float>((low | high << 4) - 32);
    }
};

struct decode_TQ1_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        const int powers[5] = {1, 3, 9, 27, 81};
        int k, byte;
        if (e < 160) {
            k = e / 32;
            byte = b[e % 32];
        } else if (e < 240) {
            k = (e - 160) / 16;
            byte = b[32 + (e - 160) % 16];
        } else {
            k = (e - 240) / 4;
            byte = b[48 + (e - 240) % 4];
        }
        int digit = (byte * powers[k] & 255) * 3 >> 8;
        return static_cast<float>(digit - 1) * decode_f16(b + 52);
    }
};

struct decode_TQ2_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        int q = b[32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3;
        return static_cast<float>(q - 1) * decode_f16(b + 64);
    }
};

struct decode_Q1_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        float d = decode_f16(b);
        return b[2 + e / 8] >> e % 8 & 1 ? d : -d;
    }
};

struct decode_Q2_0 {
    static __device__ float at(const uint8_t *b, int e)
    {
        return static_cast<float>((b[2 + e / 4] >> 2 * (e % 4) & 3) - 1) * decode_f16(b);
    }
};

struct decode_IQ4_NL {
    static __device__ float at(const uint8_t *b, int e)
    {
        return decode_f16(b) * decode_iq4(decode_nibble(b[2 + e % 16], e / 16));
    }
};

struct decode_IQ4_XS {
    static __device__ float at(const uint8_t *b, int e)
    {
        int r = e / 32, j = e % 32;
        int scale = decode_nibble(b[4 + r / 2], r % 2) | (decode_u16(b + 2) >> 2 * r & 3) << 4;
        float step = decode_f16(b) * static_cast<float>(scale - 32);
        return step * decode_iq4(decode_nibble(b[8 + 16 * r + j % 16], j / 16));
    }
};

struct decode_MXFP4 {
    static __device__ float at(const uint8_t *b, int e)
    {
        uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : static_cast<uint32_t>(b[0] - 1) << 23;
        return decode_e2m1(decode_nibble(b[1 + e % 16], e / 16)) * __uint_as_float(bits);
    }
};

struct decode_NVFP4 {
    static __device__ float at(const uint8_t *b, int e)
    {
        int k = e / 16, j = e % 16, x = b[k], exponent = x >> 3 & 15;
        float fraction = static_cast<float>(x & 7);
        float scale =
            exponent == 0 ? ldexpf(fraction, -9) : ldexpf(1.0f + fraction / 8.0f, exponent - 7);
        if (x == 0 || x == 0x7f)
            scale = 0.0f;
        return decode_e2m1(decode_nibble(b[4 + 8 * k + j % 8], j / 8)) * (0.5f * scale);
    }
};

struct decode_IQ1_S {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8, h = decode_u16(b + 34 + 2 * g);
        float step = decode_f16(b) * static_cast<float>(2 * (h >> 12 & 7) + 1);
        int entry = decode_grids.iq1[b[2 + 4 * g + l] | (h >> 3 * l & 7) << 8];
        return decode_iq1_value(entry, e % 8, step, h & 0x8000 ? -0.125f : 0.125f);
    }
};

struct decode_IQ1_M {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8, bits = 0;
        for (int i = 0; i < 4; i++)
            bits |= (decode_u16(b + 48 + 2 * i) >> 12) << 4 * i;
        int scales = decode_u16(b + 48 + 2 * (g / 2)) >> 6 * (g % 2);
        float step = decode_half(bits) * static_cast<float>(2 * (scales >> 3 * (l / 2) & 7) + 1);
        int h = b[32 + 2 * g + l / 2] >> 4 * (l % 2);
        int entry = decode_grids.iq1[b[4 * g + l] | (h & 7) << 8];
        return decode_iq1_value(entry, e % 8, step, h & 8 ? -0.125f : 0.125f);
    }
};

struct decode_IQ2_XXS {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8;
        const uint8_t *a = b + 2 + 8 * g;
        uint32_t s = decode_u32(a + 4);
        float step = decode_f16(b) * (0.5f + static_cast<float>(s >> 28)) * 0.25f;
        return decode_iq2_value(decode_grids.iq2_xxs[a[l]], e % 8, step,
                                decode_signs_of_7(s >> 7 * l));
    }
};

struct decode_IQ2_XS {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8, q = decode_u16(b + 2 + 2 * (4 * g + l));
        int scale = decode_nibble(b[66 + g], l >= 2);
        float step = decode_f16(b) * (0.5f + static_cast<float>(scale)) * 0.25f;
        return decode_iq2_value(decode_grids.iq2_xs[q & 511], e % 8, step,
                                decode_signs_of_7(static_cast<uint32_t>(q >> 9)));
    }
};

struct decode_IQ2_S {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8;
        int entry = b[2 + 4 * g + l] | (b[66 + g] >> 2 * l & 3) << 8;
        int scale = decode_nibble(b[74 + g], l >= 2);
        float step = decode_f16(b) * (0.5f + static_cast<float>(scale)) * 0.25f;
        return decode_iq2_value(decode_grids.iq2_s[entry], e % 8, step, b[34 + 4 * g + l]);
    }
};

struct decode_IQ3_XXS {
    static __device__ float at(const uint8_t *b, int e)
    {
        const float values[8] = {4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f};
        int g = e / 32, l = e % 32 / 8, k = e % 8;
        uint32_t a = decode_u32(b + 66 + 4 * g);
        float step = decode_f16(b) * (0.5f + static_cast<float>(a >> 28)) * 0.5f;
        const uint8_t *q = b + 2 + 8 * g + 2 * l;
        int code = decode_iq3_code(decode_grids.iq3_xxs[q[0]], decode_grids.iq3_xxs[q[1]], k);
        return step * values[code] * decode_sign(decode_signs_of_7(a >> 7 * l), k);
    }
};

struct decode_IQ3_S {
    static __device__ float at(const uint8_t *b, int e)
    {
        int g = e / 32, l = e % 32 / 8, k = e % 8, high = b[66 + g] >> 2 * l;
        float step =
            decode_f16(b) * static_cast<float>(1 + 2 * decode_nibble(b[106 + g / 2], g % 2));
        const uint8_t *q = b + 2 + 8 * g + 2 * l;
        int code = decode_iq3_code(decode_grids.iq3_s[q[0] | (high & 1) << 8],
                                   decode_grids.iq3_s[q[1] | (high & 2) << 7], k);
        return step * static_cast<float>(2 * code + 1) * decode_sign(b[74 + 4 * g + l], k);
    }
};

/* Types that hold no weights. */
struct decode_I8 {
    static __device__ float at(const uint8_t *, int)
    {
        return 0.0f;
    }
};
typedef decode_I8 decode_I16, decode_I32, decode_I64;

#endif
