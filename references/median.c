#include "references/median.h"

#include <math.h>
#include <stdbool.h>

/* Brings the values of x[low .. high - 1] that are smaller than the pivot (equal ones too, if they
 * are asked for) to the front; returns where they end. Without a branch on a value: of random ones
 * half would be predicted wrong. */
static int64_t gather(double *x, int64_t low, int64_t high, double pivot, bool with_equal)
{
    int64_t end = low;
    for (int64_t i = low; i < high; i++) {
        double value = x[i];
        x[i] = x[end];
        x[end] = value;
        end += with_equal ? value <= pivot : value < pivot;
    }
    return end;
}

static double middle_of(double a, double b, double c)
{
    double low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Puts the k-th smallest value at k, smaller ones before it. */
static void select_kth(double *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        double pivot = middle_of(x[low], x[low + (high - low) / 2], x[high - 1]);
        int64_t smaller = gather(x, low, high, pivot, false);
        if (k < smaller) {
            high = smaller;
            continue;
        }
        if (smaller > low) { /* fewer are left, the pivot among them */
            low = smaller;
            continue;
        }
        low = gather(x, smaller, high, pivot, true);
        if (k < low)
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
