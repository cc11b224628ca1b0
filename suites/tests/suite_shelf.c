#include "references/shelf.h"

#include <stdint.h>

#include "expect.h"

static void *take(assay_shelf *shelf, size_t n)
{
    void *piece = NULL;
    EXPECT_OK(assay_shelf_take(&piece, shelf, n, "test"));
    ck_assert_uint_eq((uintptr_t)piece % 64, 0);
    memset(piece, 1, n);
    return piece;
}

START_TEST(shelf_hands_out_the_smallest_piece_that_fits)
{
    assay_shelf *shelf;
    EXPECT_OK(assay_shelf_new(&shelf));
    void *small = take(shelf, 1000), *large = take(shelf, 5000), *middle = take(shelf, 3000);
    assay_shelf_give(shelf, large);
    assay_shelf_give(shelf, small);
    assay_shelf_give(shelf, middle);
    assay_shelf_give(shelf, NULL);
    ck_assert_ptr_eq(take(shelf, 2000), middle);
    ck_assert_ptr_eq(take(shelf, 0), small);
    ck_assert_ptr_eq(take(shelf, 5000), large);
    assay_shelf_give(shelf, small);
    assay_shelf_give(shelf, middle);
    assay_shelf_give(shelf, large);
    assay_shelf_free(shelf);
    assay_shelf_free(NULL);
}
END_TEST

/* One at a time: there is never a second piece, however sizes grow and shrink. */
START_TEST(shelf_grows_in_place_of_its_smallest_piece)
{
    assay_shelf *shelf;
    EXPECT_OK(assay_shelf_new(&shelf));
    for (size_t n = 1; n < 100000; n = 3 * n + 1)
        assay_shelf_give(shelf, take(shelf, n));
    void *piece = take(shelf, 10), *other = take(shelf, 10);
    assay_shelf_give(shelf, other);
    assay_shelf_give(shelf, piece);
    ck_assert_ptr_eq(take(shelf, 88572), piece); /* the largest of the sizes above */
    ck_assert_ptr_eq(take(shelf, 10), other);
    assay_shelf_give(shelf, piece);
    assay_shelf_give(shelf, other);
    assay_shelf_free(shelf);
}
END_TEST

START_TEST(shelf_says_what_memory_was_lacking_for)
{
    assay_shelf *shelf;
    void *piece = NULL;
    EXPECT_OK(assay_shelf_new(&shelf));
    EXPECT_FAILS(ASSAY_NO_MEMORY, assay_shelf_take(&piece, shelf, SIZE_MAX - 5, "values"));
    EXPECT_SAYS("of values");
    ck_assert_ptr_null(piece);
    assay_shelf_free(shelf);
}
END_TEST

START_TEST(shelf_serves_several_threads)
{
    assay_shelf *shelf;
    int n_wrong = 0;
    EXPECT_OK(assay_shelf_new(&shelf));
#pragma omp parallel for num_threads(4) reduction(+ : n_wrong) schedule(dynamic, 1)
    for (int i = 0; i < 4000; i++) {
        void *piece;
        size_t n = (size_t)(i * 7919 % 3000) + 1;
        if (assay_shelf_take(&piece, shelf, n, "test") != ASSAY_OK)
            continue;
        memset(piece, i % 251, n);
        const unsigned char *bytes = piece;
        for (size_t k = 0; k < n; k++)
            n_wrong += bytes[k] != i % 251;
        assay_shelf_give(shelf, piece);
    }
    ck_assert_int_eq(n_wrong, 0);
    assay_shelf_free(shelf);
}
END_TEST

EXPECT_MAIN("shelf", shelf_hands_out_the_smallest_piece_that_fits,
            shelf_grows_in_place_of_its_smallest_piece, shelf_says_what_memory_was_lacking_for,
            shelf_serves_several_threads)
