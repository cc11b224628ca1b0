/*
 * An engine as small as can be: the norm before the first attention, captured.
 *
 *     norm_engine CAPTURE ROWS WEIGHT WIDTH EPSILON ID...
 *
 * ROWS: the embeddings of the ids, WEIGHT: the norm's weight; files of float32 numbers. Its rows
 * lie WIDTH + 1 apart, as an engine with padded buffers has them.
 */
#include <assay.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float *numbers(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    float *x = malloc(n * sizeof *x);
    if (!f || !x || fread(x, sizeof *x, n, f) != n) {
        fprintf(stderr, "%s: expected %zu float32 numbers\n", path, n);
        exit(128);
    }
    fclose(f);
    return x;
}

static void norm(float *y, const float *x, const float *weight, int64_t width, double epsilon)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += (double)x[i] * x[i];
    float scale = (float)(1 / sqrt(sum / (double)width + epsilon));
    for (int64_t i = 0; i < width; i++)
        y[i] = x[i] * scale * weight[i];
}

static int check(int status)
{
    if (status)
        fprintf(stderr, "norm_engine: %s\n", assay_last_error());
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return fprintf(stderr, "norm_engine CAPTURE ROWS WEIGHT WIDTH EPSILON ID...\n"), 129;
    int64_t n = argc - 6, width = atoll(argv[4]), pitch = width + 1;
    double epsilon = atof(argv[5]);
    float *rows = numbers(argv[2], (size_t)(n * width)), *weight = numbers(argv[3], (size_t)width);
    float *out = calloc((size_t)(n * pitch), sizeof *out);
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    if (!out || !ids)
        return 128;
    for (int64_t t = 0; t < n; t++)
        ids[t] = atoi(argv[6 + t]);

    assay_session_options options = assay_session_options_default();
    options.producer = "norm_engine";
    options.backend = "cpu";
    assay_session *session;
    int status = check(assay_session_open(&session, argv[1], &options));
    if (status)
        return status;
    assay_tensor embed = assay_tensor_default(), normed = assay_tensor_default();
    embed.name = "embed";
    embed.data = rows;
    embed.type = normed.type = ASSAY_TYPE_F32;
    embed.n_dims = normed.n_dims = 2;
    embed.dims[0] = normed.dims[0] = n;
    embed.dims[1] = normed.dims[1] = width;
    normed.name = "blk.0.attn.in_norm";
    normed.data = out;
    normed.strides[0] = pitch;
    normed.strides[1] = 1;

    status = check(assay_session_step(session, ASSAY_PREFILL, 0, ids, n));
    if (!status)
        status = check(assay_session_show(session, &embed));
    for (int64_t t = 0; t < n; t++)
        norm(out + t * pitch, rows + t * width, weight, width, epsilon);
    if (!status)
        status = check(assay_session_show(session, &normed));
    if (status)
        assay_session_abandon(session);
    else
        status = check(assay_session_close(session));
    free(rows);
    free(weight);
    free(out);
    free(ids);
    return status;
}
