/*
 * Packed weights read in units: a unit is what one lane of a warp takes in one step, 16 or 32
 * elements in one or two runs of 16, with loads as wide as the format's alignment allows.
 *
 *     RUNS                    runs of 16 elements in a unit
 *     load(w, row, u)         values of unit u of a row: w[16 * run + i]
 *     fetch, code, scale      the same in parts: a value is step * code - below, step and below of
 * a run; codes and scales as suits the format start(run, u)           element at which run `run` of
 * unit u begins
 *
 * Values are those of the C decoders, bit for bit: integer codes become floats exactly (a code
 * below 2^23 is placed into the mantissa of 2^23), then the format's own multiplications.
 */
#ifndef ASSAY_ENGINE_OPS_UNITS_CUH
#define ASSAY_ENGINE_OPS_UNITS_CUH

#include <cuda_fp16.h>

#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

/* Byte i of a word as a float, less a small whole number; exact. */
__device__ __forceinline__ float unit_byte(uint32_t word, int i, float less = 0.0f)
{
    return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u + static_cast<unsigned>(i))) -
           (8388608.0f + less);
}

/* Byte i of a word of signed bytes as a float; the word comes with its sign bits flipped. */
__device__ __forceinline__ float unit_signed(uint32_t flipped, int i)
{
    return __uint_as_float(__byte_perm(flipped, 0x4B000000u, 0x7440u + static_cast<unsigned>(i))) -
           8388736.0f;
}

__device__ __forceinline__ float unit_half(uint32_t bits)
{
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/* Four bytes at an address that is even. */
__device__ __forceinline__ uint32_t unit_word(const uint8_t *p)
{
    const uint16_t *h = reinterpret_cast<const uint16_t *>(p);
    return static_cast<uint32_t>(__ldg(h)) | static_cast<uint32_t>(__ldg(h + 1)) << 16;
}

struct unit_Q8_0 {
    static constexpr int RUNS = 1, ELEMENTS = 16;
    static constexpr bool HAS_MIN = false;
    struct raw {
        uint32_t words[4];
        float d;
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const int8_t *codes = static_cast<const int8_t *>(m.data) + row * m.width + column;
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(codes) + u);
        r->words[0] = q.x ^ 0x80808080u;
        r->words[1] = q.y ^ 0x80808080u;
        r->words[2] = q.z ^ 0x80808080u;
        r->words[3] = q.w ^ 0x80808080u;
        r->d = unit_half(
            __ldg(static_cast<const uint16_t *>(m.scales) + (row * m.width + column) / 32 + u / 2));
    }
    static __device__ float code(const raw &r, int, int i)
    {
        return unit_signed(r.words[i / 4], i % 4);
    }
    static __device__ void scale(float *step, float *, const raw &r, int, int)
    {
        *step = r.d;
    }
    static __device__ int start(int, int u)
    {
        return 16 * u;
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const int8_t *codes = static_cast<const int8_t *>(m.data) + row * m.width + column;
        const uint16_t *scales =
            static_cast<const uint16_t *>(m.scales) + (row * m.width + column) / 32;
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(codes) + u);
        float d = unit_half(__ldg(scales + u / 2));
        uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 16; i++)
            w[i] = unit_signed(words[i / 4] ^ 0x80808080u, i % 4) * d;
    }
};

/* Elements 16 * (u % 2) ... of runs 2p and 2p + 1 of a block, p = u % 8 / 2. */
__device__ __forceinline__ int unit_start_k(int run, int u)
{
    return 256 * (u / 8) + 64 * (u % 8 / 2) + 16 * (u % 2) + 32 * run;
}

/* Pair j of the (scale, min) pairs in 12 bytes (engine/quant/block.h). */
__device__ __forceinline__ void unit_scale_min(float *scale, float *min, uint4 header, int j)
{
    uint32_t words[3] = {header.y, header.z, header.w};
    uint32_t low = words[0] >> 8 * (j & 3) & 255, mid = words[1] >> 8 * (j & 3) & 255;
    uint32_t high = words[2] >> 8 * (j & 3) & 255;
    uint32_t s = j < 4 ? low & 63 : (high & 15) | (low >> 6) << 4;
    uint32_t m = j < 4 ? mid & 63 : high >> 4 | (mid >> 6) << 4;
    *scale = unit_half(header.x & 0xFFFF) * unit_byte(s, 0);
    *min = unit_half(header.x >> 16) * unit_byte(m, 0);
}

struct unit_Q4_K {
    static constexpr int RUNS = 2, ELEMENTS = 32;
    static constexpr bool HAS_MIN = true;
    struct raw {
        uint4 header;
        uint32_t words[4];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 144;
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(b + 16) + u % 8);
        r->header = __ldg(reinterpret_cast<const uint4 *>(b));
        r->words[0] = q.x;
        r->words[1] = q.y;
        r->words[2] = q.z;
        r->words[3] = q.w;
    }
    /* Codes from their middle, and the minimum with them: the two sums then do not cancel. */
    static __device__ float code(const raw &r, int run, int i)
    {
        return unit_byte(r.words[i / 4] >> 4 * run & 0x0F0F0F0Fu, i % 4, 8.0f);
    }
    static __device__ void scale(float *step, float *below, const raw &r, int run, int u)
    {
        unit_scale_min(step, below, r.header, u % 8 / 2 * 2 + run);
        *below = fmaf(-8.0f, *step, *below);
    }
    static __device__ int start(int run, int u)
    {
        return unit_start_k(run, u);
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 144;
        uint4 header = __ldg(reinterpret_cast<const uint4 *>(b));
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(b + 16) + u % 8);
        uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int run = 0; run < 2; run++) {
            float step, below;
            unit_scale_min(&step, &below, header, u % 8 / 2 * 2 + run);
#pragma unroll
            for (int i = 0; i < 16; i++)
                w[16 * run + i] =
                    step * unit_byte(words[i / 4] >> 4 * run & 0x0F0F0F0Fu, i % 4) - below;
        }
    }
};

struct unit_Q5_K {
    static constexpr int RUNS = 2, ELEMENTS = 32;
    static constexpr bool HAS_MIN = true;
    struct raw {
        uint4 header;
        uint32_t words[4], fifth[4];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 176;
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(b + 48) + u % 8);
        uint4 h = __ldg(reinterpret_cast<const uint4 *>(b + 16) + u % 2);
        r->header = __ldg(reinterpret_cast<const uint4 *>(b));
        r->words[0] = q.x;
        r->words[1] = q.y;
        r->words[2] = q.z;
        r->words[3] = q.w;
        int j = u % 8 / 2 * 2; /* bit of the first run */
        r->fifth[0] = h.x >> j;
        r->fifth[1] = h.y >> j;
        r->fifth[2] = h.z >> j;
        r->fifth[3] = h.w >> j;
    }
    static __device__ float code(const raw &r, int run, int i)
    {
        return unit_byte((r.words[i / 4] >> 4 * run & 0x0F0F0F0Fu) |
                             (r.fifth[i / 4] >> run & 0x01010101u) << 4,
                         i % 4, 16.0f);
    }
    static __device__ void scale(float *step, float *below, const raw &r, int run, int u)
    {
        unit_scale_min(step, below, r.header, u % 8 / 2 * 2 + run);
        *below = fmaf(-16.0f, *step, *below);
    }
    static __device__ int start(int run, int u)
    {
        return unit_start_k(run, u);
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 176;
        uint4 header = __ldg(reinterpret_cast<const uint4 *>(b));
        uint4 h = __ldg(reinterpret_cast<const uint4 *>(b + 16) + u % 2);
        uint4 q = __ldg(reinterpret_cast<const uint4 *>(b + 48) + u % 8);
        uint32_t words[4] = {q.x, q.y, q.z, q.w}, fifth[4] = {h.x, h.y, h.z, h.w};
#pragma unroll
        for (int run = 0; run < 2; run++) {
            int j = u % 8 / 2 * 2 + run;
            float step, below;
            unit_scale_min(&step, &below, header, j);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                uint32_t codes = (words[i / 4] >> 4 * run & 0x0F0F0F0Fu) |
                                 (fifth[i / 4] >> j & 0x01010101u) << 4;
                w[16 * run + i] = step * unit_byte(codes, i % 4) - below;
            }
        }
    }
};

/* Bytes 16c ... of ql, c = u % 8: half h = c / 4, k & 1 = c % 4 / 2, and from l = 16 * (c % 2) on.
 */
struct unit_Q6_K {
    static constexpr int RUNS = 2, ELEMENTS = 32;
    static constexpr bool HAS_MIN = false;
    struct raw {
        uint32_t low[4], high[4];
        float step[2];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 210;
        int c = u % 8, half = c / 4, k = c % 4 / 2, l = 16 * (c % 2);
        float d = unit_half(__ldg(reinterpret_cast<const uint16_t *>(b + 208)));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            r->low[i] = unit_word(b + 16 * c + 4 * i);
            r->high[i] = unit_word(b + 128 + 32 * half + l + 4 * i) >> 2 * k;
        }
#pragma unroll
        for (int run = 0; run < 2; run++)
            r->step[run] = d * static_cast<float>(static_cast<int8_t>(
                                   __ldg(b + 192 + 8 * half + 2 * (k + 2 * run) + l / 16)));
    }
    static __device__ float code(const raw &r, int run, int i)
    {
        return unit_byte((r.low[i / 4] >> 4 * run & 0x0F0F0F0Fu) |
                             (r.high[i / 4] >> 4 * run & 0x03030303u) << 4,
                         i % 4) -
               32.0f;
    }
    static __device__ void scale(float *step, float *, const raw &r, int run, int)
    {
        *step = r.step[run];
    }
    static __device__ int start(int run, int u)
    {
        int c = u % 8;
        return 256 * (u / 8) + 128 * (c / 4) + 32 * (c % 4 / 2 + 2 * run) + 16 * (c % 2);
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 256 + u / 8) * 210;
        int c = u % 8, half = c / 4, k = c % 4 / 2, l = 16 * (c % 2);
        float d = unit_half(__ldg(reinterpret_cast<const uint16_t *>(b + 208)));
#pragma unroll
        for (int run = 0; run < 2; run++) {
            int at = 192 + 8 * half + 2 * (k + 2 * run) + l / 16;
            float step = d * static_cast<float>(static_cast<int8_t>(__ldg(b + at)));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t low = unit_word(b + 16 * c + 4 * i);
                uint32_t high = unit_word(b + 128 + 32 * half + l + 4 * i);
                uint32_t codes =
                    (low >> 4 * run & 0x0F0F0F0Fu) | (high >> 2 * (k + 2 * run) & 0x03030303u) << 4;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    w[16 * run + 4 * i + j] = step * (unit_byte(codes, j) - 32.0f);
            }
        }
    }
};

struct unit_Q5_0 {
    static constexpr int RUNS = 2, ELEMENTS = 32;
    static constexpr bool HAS_MIN = false;
    struct raw {
        float values[16 * RUNS];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        load(r->values, m, row, column, u);
    }
    static __device__ float code(const raw &r, int run, int i)
    {
        return r.values[16 * run + i];
    }
    static __device__ void scale(float *step, float *, const raw &, int, int)
    {
        *step = 1.0f;
    }
    static __device__ int start(int run, int u)
    {
        return 32 * u + 16 * run;
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint8_t *b =
            static_cast<const uint8_t *>(m.data) + row * m.row_bytes + (column / 32 + u) * 22;
        float d = unit_half(__ldg(reinterpret_cast<const uint16_t *>(b)));
        uint32_t h = unit_word(b + 2);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t byte = unit_word(b + 6 + i / 4 * 4) >> 8 * (i % 4) & 255;
            int low = static_cast<int>((byte & 15) | (h >> i & 1) << 4);
            int high = static_cast<int>(byte >> 4 | (h >> (i + 16) & 1) << 4);
            w[i] = static_cast<float>(low - 16) * d;
            w[16 + i] = static_cast<float>(high - 16) * d;
        }
    }
};

struct unit_F32 {
    static constexpr int RUNS = 1, ELEMENTS = 16;
    static constexpr bool HAS_MIN = false;
    struct raw {
        float values[16 * RUNS];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        load(r->values, m, row, column, u);
    }
    static __device__ float code(const raw &r, int run, int i)
    {
        return r.values[16 * run + i];
    }
    static __device__ void scale(float *step, float *, const raw &, int, int)
    {
        *step = 1.0f;
    }
    static __device__ int start(int, int u)
    {
        return 16 * u;
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const float4 *p = reinterpret_cast<const float4 *>(static_cast<const float *>(m.data) +
                                                           row * m.width + column) +
                          4 * u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 v = __ldg(p + i);
            w[4 * i] = v.x;
            w[4 * i + 1] = v.y;
            w[4 * i + 2] = v.z;
            w[4 * i + 3] = v.w;
        }
    }
};

/* F16 and BF16: two loads of eight. */
template <bool IS_HALF> struct unit_16 {
    static constexpr int RUNS = 1, ELEMENTS = 16;
    static constexpr bool HAS_MIN = false;
    struct raw {
        float values[16 * RUNS];
    };
    static __device__ void fetch(raw *r, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        load(r->values, m, row, column, u);
    }
    static __device__ float code(const raw &r, int run, int i)
    {
        return r.values[16 * run + i];
    }
    static __device__ void scale(float *step, float *, const raw &, int, int)
    {
        *step = 1.0f;
    }
    static __device__ int start(int, int u)
    {
        return 16 * u;
    }
    static __device__ float value(uint32_t bits)
    {
        return IS_HALF ? unit_half(bits) : __uint_as_float(bits << 16);
    }
    static __device__ void load(float *w, const assay_packed &m, int64_t row, int64_t column, int u)
    {
        const uint4 *p = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(m.data) +
                                                         row * m.width + column) +
                         2 * u;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v = __ldg(p + i);
            uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 8; j++)
                w[8 * i + j] = value(words[j / 2] >> 16 * (j % 2) & 0xFFFF);
        }
    }
};
typedef unit_16<true> unit_F16;
typedef unit_16<false> unit_BF16;

#endif
