#include "expect.h"
#include "probes/unshuffle.h"

/* Any width, run and place in a chunk, also those that fill no vector. */
START_TEST(unshuffle_puts_each_byte_where_it_was)
{
    enum { STRIDE = 200 };
    unsigned char in[8 * STRIDE];
    for (int i = 0; i < 8 * STRIDE; i++)
        in[i] = (unsigned char)(i * 89 % 251);
    for (size_t size = 2; size <= 8; size *= 2)
        for (int64_t from = 0; from < 3; from++)
            for (int64_t n = 0; n < 150; n += n < 70 ? 1 : 13) {
                uint64_t room[152];
                unsigned char *out = (unsigned char *)room;
                memset(room, 0xee, sizeof room);
                assay_unshuffle(out, in + from, STRIDE, n, size);
                for (int64_t i = 0; i < n; i++)
                    for (size_t b = 0; b < size; b++)
                        ck_assert_uint_eq(out[(size_t)i * size + b],
                                          in[from + i + (int64_t)b * STRIDE]);
                ck_assert_uint_eq(out[(size_t)n * size], 0xee);
            }
}
END_TEST

EXPECT_MAIN("unshuffle", unshuffle_puts_each_byte_where_it_was)
