/*
 * Golden vectors of the block types, for any decoder: a function that turns n elements of blocks
 * into float32 and returns ASSAY_OK, given the type's number in the file.
 *
 *     expect_golden_blocks(decode)     two blocks a type with fixed bytes; shipped numbers
 *     expect_vector_file(decode)       random rows of quant-vectors.h5; false when it is not here
 *
 * The two blocks: byte i of the pair is (73 i + 29) mod 256, then the f16 scale is 0x2E66 and the
 * f16 min 0x2A66, so that all values are finite. A line holds the float32 bits of elements 0, 1,
 * B/2-1, B/2, B-1, B, B+1, 2B-1 (B elements a block) and FNV-1a-64 of all 2B values after adding
 * +0.0f. Source: values of ggml's own decoders (IQ types: of gguf-py's).
 */
#ifndef ASSAY_SUITES_TESTS_QUANT_VECTORS_H
#define ASSAY_SUITES_TESTS_QUANT_VECTORS_H

#include <hdf5.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "data.h"
#include "expect.h"

typedef assay_status decode_fn(float *out, int number, const void *blocks, int64_t n);

typedef struct golden_block {
    const char *name;
    int number, elements, bytes;
    int scale, min; /* offset of the f16 fields; -1: none, or not f16 */
    uint32_t shown[8];
    uint64_t fnv;
} golden_block;

static const golden_block golden_blocks[] = {
    {"q4_0",
     2,
     32,
     18,
     0,
     -1,
     {0x3f332800, 0x00000000, 0xbe4cc000, 0x3e4cc000, 0x3f332800, 0xbf332800, 0x3e4cc000,
      0xbf332800},
     0x53eaea1eecf142fd},
    {"q4_1",
     3,
     32,
     20,
     0,
     2,
     {0x3e199000, 0x3f865e00, 0x3f598c00, 0x3ee65800, 0x3f598c00, 0x3f0cc400, 0x3fb98e00,
      0x3eb32800},
     0xe553bd18db630557},
    {"q5_0",
     6,
     32,
     22,
     0,
     -1,
     {0x3e999000, 0x3f999000, 0x3f7ff000, 0x3fa65c00, 0x3dccc000, 0x3f665800, 0xbfb32800,
      0x3f199000},
     0x63de65fb82cccedf},
    {"q5_1",
     7,
     32,
     24,
     0,
     2,
     {0x40099100, 0x3fb98e00, 0x40365b00, 0x400ff700, 0x3f865e00, 0x403cc100, 0x3f265c00,
      0x401cc300},
     0x5f8d797f92d1038e},
    {"q8_0",
     8,
     32,
     34,
     0,
     -1,
     {0xc1019180, 0xbf4cc000, 0xbf7ff000, 0x40c98d00, 0xc1432700, 0x411b2980, 0xc1099100,
      0x40b32800},
     0xa6b2d2044d005932},
    {"q2_k",
     10,
     256,
     84,
     80,
     82,
     {0x3f9ff600, 0x40232900, 0x40165d00, 0x3e4cc000, 0x3efff000, 0x3d4cc000, 0x3e199000,
      0x3facc200},
     0x1fc3d8f812a34ed7},
    {"q3_k",
     11,
     256,
     110,
     108,
     -1,
     {0xbe999000, 0x3f199000, 0x40fff000, 0xc01ff600, 0x00000000, 0x41019180, 0xc12cc200,
      0xc0b98e00},
     0x32d20422a006c4e6},
    {"q4_k",
     12,
     256,
     144,
     0,
     2,
     {0xbf0cc400, 0xbf9ff600, 0x41dff200, 0x41fa56c0, 0x408ff700, 0x419b8fe0, 0x40f18a80,
      0x409b2980},
     0x59a3622efc674d39},
    {"q5_k",
     13,
     256,
     176,
     0,
     2,
     {0x3f865e00, 0xbf9ff600, 0x42065e00, 0x41fa56c0, 0x40a98f00, 0x430d03fc, 0x41e2bea0,
      0x4212f6d0},
     0x24ecd8dbff880c3b},
    {"q6_k",
     14,
     256,
     210,
     208,
     -1,
     {0x4127f580, 0xc1a7f580, 0x4257f280, 0xc1318e80, 0x418ff700, 0xc3497368, 0x431bf640,
      0xc0f98a00},
     0x1dd63d8a5b66b85e},
    {"q8_k",
     15,
     256,
     292,
     -1,
     -1,
     {0x41020000, 0xc16c0000, 0x41700000, 0xc0fc0000, 0xbf800000, 0xc1760000, 0xc0c80000,
      0x40f00000},
     0x2749a41b3283638d},
    {"iq4_nl",
     20,
     32,
     18,
     0,
     -1,
     {0x4134c180, 0x3dccc000, 0xc00cc400, 0x401ff600, 0x4134c180, 0xc1265c00, 0x401ff600,
      0xc1265c00},
     0x363d6bdac1c2c4d1},
    {"iq4_xs",
     23,
     256,
     136,
     0,
     -1,
     {0xc26df120, 0x43174358, 0xc1dff200, 0x42caf350, 0x41b0c1c0, 0x432c7538, 0xc25bf240,
      0xc283f7c0},
     0xe763e35050374248},
    {"mxfp4",
     39,
     32,
     17,
     -1,
     -1,
     {0x3e800000, 0xbec00000, 0xbe400000, 0x3e800000, 0xbd800000, 0xc1400000, 0x00000000,
      0x00000000},
     0x1510f7c3833cf5dc},
    {"nvfp4",
     40,
     64,
     36,
     -1,
     -1,
     {0x3e800000, 0xbf000000, 0x00000000, 0x3fc00000, 0x3a800000, 0x3fc00000, 0xc0000000,
      0x3bc00000},
     0x8658a5bf64820a53},
    {"tq1_0",
     34,
     256,
     54,
     52,
     -1,
     {0xbdccc000, 0x00000000, 0x3dccc000, 0xbdccc000, 0x3dccc000, 0x00000000, 0x3dccc000,
      0x00000000},
     0x5302dad46052458a},
    {"tq2_0",
     35,
     256,
     66,
     64,
     -1,
     {0x00000000, 0x3dccc000, 0x3e4cc000, 0x00000000, 0xbdccc000, 0x3e4cc000, 0xbdccc000,
      0x3e4cc000},
     0x8a194480029bc0cf},
    {"q1_0",
     41,
     128,
     18,
     0,
     -1,
     {0x3dccc000, 0x3dccc000, 0x3dccc000, 0x3dccc000, 0x3dccc000, 0x3dccc000, 0xbdccc000,
      0xbdccc000},
     0x765bb0544e16fda5},
    {"q2_0",
     42,
     64,
     18,
     0,
     -1,
     {0x3e4cc000, 0x3e4cc000, 0x3dccc000, 0x3e4cc000, 0x3e4cc000, 0x00000000, 0xbdccc000,
      0xbdccc000},
     0xe587f889a1b47ec7},
    {"iq1_s",
     19,
     256,
     50,
     0,
     -1,
     {0x3eacc200, 0xbe865e00, 0x3f498d00, 0x3e265c00, 0x3d199000, 0x3e0cc400, 0x3f9e5c80,
      0x3e0cc400},
     0xf8b7930eb74293a6},
    {"iq1_m",
     29,
     256,
     56,
     -1,
     -1,
     {0xbf9e5c80, 0xbe0cc400, 0x3de65800, 0x3d199000, 0xbfbb2780, 0x3e0cc400, 0x3f9e5c80,
      0x3f0ff700},
     0x7b52af26adc4536c},
    {"iq2_xxs",
     16,
     256,
     66,
     0,
     -1,
     {0xc0065e00, 0xc1348e50, 0xbfd98c00, 0xc156f290, 0xc0065e00, 0xbfd98c00, 0x3fd98c00,
      0x3fbff400},
     0xbd36dc77b6560e6f},
    {"iq2_xs",
     17,
     256,
     74,
     0,
     -1,
     {0x411af650, 0x411af650, 0xc01ff600, 0x400bf740, 0x40398e00, 0xc0bdf420, 0x40bdf420,
      0x3dccc000},
     0xb7bfeffc4d33452b},
    {"iq2_s",
     22,
     256,
     82,
     0,
     -1,
     {0xbfbff400, 0xbfbff400, 0x3fce5980, 0xc145c070, 0xc070bdc0, 0xbff32400, 0x3ff32400,
      0x40bdf420},
     0x90cb6cc6248edf6f},
    {"iq3_xxs",
     18,
     256,
     98,
     0,
     -1,
     {0xc21af650, 0xc0eff100, 0xc05ff200, 0xc0aff500, 0x418bf740, 0xc180c4c0, 0x4180c4c0,
      0xc180c4c0},
     0x9634217d5d4f6d72},
    {"iq3_s",
     21,
     256,
     110,
     0,
     -1,
     {0xc183f7c0, 0xc19bf640, 0x419729c0, 0xc188c440, 0x40f65700, 0xbf8cc400, 0x3f8cc400,
      0x3ff32400},
     0x7e0e775fbf38d639},
};

static inline uint64_t fnv1a(const void *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static inline void put_u16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

/* The two blocks of a line: 2 * bytes, freed by the caller. */
static inline uint8_t *golden_pair(const golden_block *g)
{
    static const uint8_t nvfp4_scales[4] = {0x30, 0x38, 0x44, 0x01};
    static const float one_eighth = 0.125f;
    uint8_t *pair = malloc(2 * (size_t)g->bytes);
    ck_assert_ptr_nonnull(pair);
    for (int i = 0; i < 2 * g->bytes; i++)
        pair[i] = (uint8_t)(i * 73 + 29);
    for (int k = 0; k < 2; k++) {
        uint8_t *b = pair + k * g->bytes;
        if (g->scale >= 0)
            put_u16(b + g->scale, 0x2E66);
        if (g->min >= 0)
            put_u16(b + g->min, 0x2A66);
        if (strcmp(g->name, "mxfp4") == 0)
            b[0] = k == 0 ? 0x7B : 0x80;
        if (strcmp(g->name, "nvfp4") == 0)
            memcpy(b, nvfp4_scales, sizeof nvfp4_scales);
        if (strcmp(g->name, "q8_k") == 0)
            memcpy(b, &one_eighth, sizeof one_eighth);
        for (int i = 0; i < 4 && strcmp(g->name, "iq1_m") == 0; i++)
            b[48 + 2 * i + 1] = (uint8_t)((b[48 + 2 * i + 1] & 15) | ((0x2E66 >> 4 * i & 15) << 4));
    }
    return pair;
}

static inline void expect_golden_blocks(decode_fn *decode)
{
    for (size_t t = 0; t < sizeof golden_blocks / sizeof *golden_blocks; t++) {
        const golden_block *g = &golden_blocks[t];
        int n = 2 * g->elements, half = g->elements / 2;
        uint8_t *pair = golden_pair(g);
        float *y = malloc((size_t)n * sizeof *y);
        ck_assert_ptr_nonnull(y);
        memset(y, 0xff, (size_t)n * sizeof *y);
        EXPECT_OK(decode(y, g->number, pair, n));
        for (int i = 0; i < n; i++)
            y[i] += 0.0f;
        int at[8] = {0, 1, half - 1, half, 2 * half - 1, 2 * half, 2 * half + 1, 4 * half - 1};
        for (int i = 0; i < 8; i++) {
            uint32_t bits;
            memcpy(&bits, &y[at[i]], sizeof bits);
            ck_assert_msg(bits == g->shown[i],
                          "%s: element %d is %08" PRIx32 ", expected %08" PRIx32, g->name, at[i],
                          bits, g->shown[i]);
        }
        uint64_t fnv = fnv1a(y, (size_t)n * sizeof *y);
        ck_assert_msg(fnv == g->fnv, "%s: hash %016" PRIx64 ", expected %016" PRIx64, g->name, fnv,
                      g->fnv);
        free(y);
        free(pair);
    }
}

/* A whole 2-D dataset of the group; freed by the caller. */
static inline void *read_rows(hid_t group, const char *name, hid_t type, size_t size,
                              hsize_t dims[2])
{
    hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    hid_t space = H5Dget_space(set);
    ck_assert_int_eq(H5Sget_simple_extent_ndims(space), 2);
    H5Sget_simple_extent_dims(space, dims, NULL);
    void *rows = malloc(dims[0] * dims[1] * size);
    ck_assert_ptr_nonnull(rows);
    ck_assert_int_ge(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows), 0);
    H5Sclose(space);
    H5Dclose(set);
    return rows;
}

static inline void expect_group(decode_fn *decode, hid_t group, const char *name)
{
    int64_t number = -1;
    hid_t attribute = H5Aopen(group, "ggml_type", H5P_DEFAULT);
    ck_assert_int_ge(H5Aread(attribute, H5T_NATIVE_INT64, &number), 0);
    H5Aclose(attribute);
    hsize_t bytes[2], values[2];
    uint8_t *raw = read_rows(group, "raw", H5T_NATIVE_UINT8, 1, bytes);
    float *want = read_rows(group, "values", H5T_NATIVE_FLOAT, sizeof *want, values);
    ck_assert_uint_eq(bytes[0], values[0]);
    float *got = malloc(values[1] * sizeof *got);
    ck_assert_ptr_nonnull(got);
    for (hsize_t r = 0; r < values[0]; r++) {
        memset(got, 0xff, values[1] * sizeof *got);
        EXPECT_OK(decode(got, (int)number, raw + r * bytes[1], (int64_t)values[1]));
        for (hsize_t i = 0; i < values[1]; i++)
            ck_assert_msg(memcmp(&got[i], &want[r * values[1] + i], sizeof *got) == 0,
                          "%s: row %d element %d is %.9g, expected %.9g", name, (int)r, (int)i,
                          (double)got[i], (double)want[r * values[1] + i]);
    }
    free(got);
    free(want);
    free(raw);
}

/* Bit equality with every group of the file; false when the file is not here. */
static inline bool expect_vector_file(decode_fn *decode)
{
    const char *path = data_large("quant-vectors.h5");
    if (!path)
        return false;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    H5G_info_t info;
    ck_assert_int_ge(H5Gget_info(file, &info), 0);
    ck_assert_uint_gt(info.nlinks, 0);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[64];
        H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                           H5P_DEFAULT);
        hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
        expect_group(decode, group, name);
        H5Gclose(group);
    }
    H5Fclose(file);
    return true;
}

#endif
