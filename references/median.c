#include "references/median.h"

#include <math.h>

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b;
    *b = t;
}

/* Puts the k-th smallest value at k, smaller ones before it (Hoare's selection, middle pivot). */
static void select_kth(double *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j)
                swap(&x[i++], &x[j--]);
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

double assay_median(double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(values[i]))
            return NAN;
    if (n <= 0)
        return NAN;
    select_kth(values, n, n / 2);
    double upper = values[n / 2];
    if (n % 2)
        return upper;
    double lower = values[0];
    for (int64_t i = 1; i < n / 2; i++)
        lower = values[i] > lower ? values[i] : lower;
    return lower == upper ? lower : lower + (upper - lower) / 2;
}

double assay_median_spread(double *values, int64_t n, double center)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = fabs(values[i] - center);
    return 1.4826 * assay_median(values, n);
}
