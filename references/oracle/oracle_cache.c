/*
 * What the cache hands back for rows that were written to it: their stored format, and what wrong
 * readers make of its bytes. The formats are engine/cache_row.h's, computed in float32 as there, so
 * that a stored row is the same number here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

enum { BLOCK = 32 };

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

static float scale_as_read(float scale, assay_misread misread)
{
    int exponent;
    if (misread == ASSAY_MISREAD_SCALE_ONE)
        return 1;
    if (misread == ASSAY_MISREAD_SCALE_ZERO)
        return 0;
    if (misread != ASSAY_MISREAD_SCALE_POWER_OF_2 || !isfinite(scale) || !(scale > 0))
        return scale;
    frexpf(scale, &exponent);
    return ldexpf(1, exponent - 1);
}

static void through_q8_0(double *x, int64_t n, assay_misread misread)
{
    float d = (float)largest(x, n) / 127;
    float read = scale_as_read(assay_f16_to_f32(assay_f32_to_f16(d)), misread);
    for (int64_t i = 0; i < n; i++) {
        float code = d > 0 ? roundf((float)x[i] / d) : 0;
        x[i] = isnan(x[i]) ? NAN : read * fminf(fmaxf(code, -127), 127);
    }
}

static void through_f8(double *x, int64_t n, assay_misread misread)
{
    float scale = (float)largest(x, n) / 448;
    if (!(scale > 0))
        scale = 1;
    float read = scale_as_read(scale, misread);
    for (int64_t i = 0; i < n; i++)
        x[i] = read * assay_f8e4m3_to_f32(assay_f32_to_f8e4m3((float)x[i] / scale));
}

void assay_oracle_through_codec(double *rows, int64_t n, int64_t width, const assay_knobs *k)
{
    assay_oracle_round(rows, n * width, k->round_cache);
    for (int64_t r = 0; r < n; r++) {
        double *row = rows + r * width;
        for (int64_t i = 0; k->codec == ASSAY_STORED_Q8_0 && i < width; i += BLOCK)
            through_q8_0(row + i, width - i < BLOCK ? width - i : BLOCK, k->misread);
        if (k->codec == ASSAY_STORED_F8E4M3)
            through_f8(row, width, k->misread);
        for (int64_t i = 0; i < width; i++) {
            if (k->misread == ASSAY_MISREAD_BF16_AS_F16)
                row[i] = assay_f16_to_f32(assay_f32_to_bf16((float)row[i]));
            else if (k->misread == ASSAY_MISREAD_F16_AS_BF16)
                row[i] = assay_bf16_to_f32(assay_f32_to_f16((float)row[i]));
        }
    }
}

assay_status assay_oracle_from_slots(double *rows, int64_t n, int64_t width, int shift, int wrap,
                                     double scale)
{
    double *copy;
    if (shift || wrap > 0) {
        ASSAY_TRY(assay_alloc(&copy, (size_t)(n * width), sizeof *copy, "rows of other slots"));
        for (int64_t j = 0; j < n; j++) {
            int64_t from = (wrap > 0 ? j % wrap : j) - shift;
            if (from >= 0 && from < n)
                memcpy(copy + j * width, rows + from * width, (size_t)width * sizeof *copy);
        }
        memcpy(rows, copy, (size_t)(n * width) * sizeof *rows);
        free(copy);
    }
    for (int64_t i = 0; i < n * width; i++)
        rows[i] *= scale;
    return ASSAY_OK;
}
