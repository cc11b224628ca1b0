#include "engine/ops/rotary.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

void assay_rotary_yarn_range(double raw[2], double bound[2], const assay_rotary *how)
{
    double betas[2] = {how->beta_fast, how->beta_slow};
    for (int i = 0; i < 2; i++)
        raw[i] = how->frequency_width * log(how->orig_context / (2 * pi * betas[i])) /
                 (2 * log(how->base));
    bound[0] = fmax(0, floor(raw[0]));
    bound[1] = fmin(how->frequency_width - 1, ceil(raw[1]));
}

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

void assay_rotary_frequencies(double *f, const assay_rotary *how)
{
    double raw[2], bound[2] = {0, 0};
    if (how->yarn)
        assay_rotary_yarn_range(raw, bound, how);
    for (int i = 0; i < how->turned / 2; i++) {
        double theta = pow(how->base, -2.0 * i / how->frequency_width);
        double keep = 0;
        if (how->yarn)
            keep = 1 - clamp01((i - bound[0]) / fmax(0.001, bound[1] - bound[0]));
        f[i] = keep * theta + (1 - keep) * theta / how->factor;
        if (how->freqs)
            f[i] /= how->freqs[i];
    }
}

/* One vector: in and out may be the same, so pairs are read before they are written. */
static void turn(float *out, const float *in, int64_t width, const float *cosine, const float *sine,
                 const assay_rotary *how)
{
    int half = how->turned / 2;
    for (int i = 0; i < half; i++) {
        int a = how->half_split ? i : 2 * i, b = how->half_split ? i + half : 2 * i + 1;
        float re = in[a], im = in[b];
        out[a] = re * cosine[i] - im * sine[i];
        out[b] = re * sine[i] + im * cosine[i];
    }
    if (out != in && width > how->turned)
        memcpy(out + how->turned, in + how->turned, (size_t)(width - how->turned) * sizeof *out);
}

void assay_op_rotary(assay_rows y, int64_t y_head, assay_rows x, int64_t x_head, int n_head,
                     const int32_t *positions, const assay_rotary *how)
{
    int half = how->turned / 2;
    double f[half > 0 ? half : 1];
    float cosine[half > 0 ? half : 1], sine[half > 0 ? half : 1];
    ASSAY_BUG_IF(y.n != x.n || y.width != x.width || how->turned > x.width);
    ASSAY_BUG_IF(half > ASSAY_ROTARY_MAX_PAIRS);
    assay_rotary_frequencies(f, how);
    for (int64_t t = 0; t < x.n; t++) {
        bool still = how->skip || positions[t] < 0;
        for (int i = 0; i < half; i++) {
            double angle = (positions[t] * how->position_scale + how->position_offset) * f[i];
            cosine[i] = still ? 1 : (float)(cos(angle) * how->magnitude);
            sine[i] = still ? 0 : (float)(sin(how->inverse ? -angle : angle) * how->magnitude);
        }
        for (int h = 0; h < n_head; h++)
            turn(y.at + t * y.stride + h * y_head, x.at + t * x.stride + h * x_head, x.width,
                 cosine, sine, how);
    }
}
