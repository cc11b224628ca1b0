/*
 * Every tensor read once, block row by block row: non-finite values, rows of zeros, rows that occur
 * twice, and the size of a tensor against its namesakes in other layers.
 *
 * Vocabulary rows (embedding, output head) may be unused: zero or repeated ones are a detail there,
 * a failure elsewhere.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"
#include "suites/check.h"

#define MIN_COLUMNS 16    /* shorter rows may be equal by chance */
#define SCALE_RATIO 100.0 /* rms against the median of the same tensor in other layers */
#define MAX_DETAILS 20

typedef struct tensor_scan {
    int64_t n_nonfinite, first_nonfinite, n_zero_rows, first_zero_row, n_repeated, repeated_row;
    double rms;
    bool decoded;
} tensor_scan;

typedef struct keyed_row {
    uint64_t hash;
    int64_t row;
} keyed_row;

static int by_hash(const void *a, const void *b)
{
    const keyed_row *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static uint64_t hash_bytes(const unsigned char *bytes, size_t n)
{
    uint64_t h = 14695981039346656037ULL;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 1099511628211ULL;
        h ^= h >> 29;
    }
    for (; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211ULL;
    return h;
}

static void scan_row(tensor_scan *scan, const float *values, int64_t n, int64_t row, double *sum)
{
    bool zero = true;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) && !scan->n_nonfinite++)
            scan->first_nonfinite = row * n + i;
        zero &= values[i] == 0;
        *sum += (double)values[i] * values[i];
    }
    if (zero && !scan->n_zero_rows++)
        scan->first_zero_row = row;
}

static void count_repeats(tensor_scan *scan, keyed_row *rows, int64_t n, const unsigned char *data,
                          size_t row_bytes)
{
    qsort(rows, (size_t)n, sizeof *rows, by_hash);
    for (int64_t i = 1; i < n; i++)
        if (rows[i].hash == rows[i - 1].hash &&
            !memcmp(data + (size_t)rows[i].row * row_bytes,
                    data + (size_t)rows[i - 1].row * row_bytes, row_bytes))
            if (!scan->n_repeated++)
                scan->repeated_row = rows[i].row;
}

static assay_status scan_tensor(tensor_scan *scan, const assay_gguf_tensor_info *t)
{
    const assay_quant *quant = assay_quant_find(t->type);
    int64_t n_cols = t->ne[0], n_rows = t->ne[1] * t->ne[2] * t->ne[3];
    float *values = NULL;
    keyed_row *rows = NULL;
    double sum = 0;
    assay_status s = ASSAY_OK;
    *scan = (tensor_scan){.decoded = quant && quant->decode};
    if (!scan->decoded)
        return ASSAY_OK;
    size_t row_bytes = (size_t)(n_cols / quant->block_elements) * (size_t)quant->block_bytes;
    ASSAY_GO(assay_alloc(&values, (size_t)n_cols, sizeof *values, "a row of weights"));
    ASSAY_GO(assay_alloc(&rows, (size_t)n_rows, sizeof *rows, "hashes of rows"));
    for (int64_t r = 0; r < n_rows; r++) {
        const unsigned char *bytes = (const unsigned char *)t->data + (size_t)r * row_bytes;
        ASSAY_GO(assay_quant_decode(values, t->type, bytes, n_cols));
        scan_row(scan, values, n_cols, r, &sum);
        rows[r] = (keyed_row){hash_bytes(bytes, row_bytes), r};
    }
    if (n_rows > 1 && n_cols >= MIN_COLUMNS)
        count_repeats(scan, rows, n_rows, t->data, row_bytes);
    scan->rms = sqrt(sum / (double)(n_cols * n_rows));
out:
    free(values);
    free(rows);
    return s;
}

/* "blk.3.attn_q_a.weight" and "blk.5.attn_q_a.weight" are namesakes. */
static const char *role(const char *name)
{
    if (strncmp(name, "blk.", 4))
        return name;
    const char *dot = strchr(name + 4, '.');
    return dot ? dot + 1 : name;
}

static bool is_vocabulary(const char *name)
{
    return !strcmp(name, "token_embd.weight") || !strcmp(name, "output.weight");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median rms over the layers' tensors of this role; 0: fewer than three. */
static double median_rms(const assay_gguf *file, const tensor_scan *scans, double *room,
                         const char *wanted)
{
    int64_t n = 0;
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++)
        if (scans[i].decoded && isfinite(scans[i].rms) &&
            !strcmp(role(assay_gguf_tensor_at(file, i)->name), wanted))
            room[n++] = scans[i].rms;
    qsort(room, (size_t)n, sizeof *room, by_value);
    return n < 3 ? 0 : room[n / 2];
}

static void judge_tensor(char text[256], const assay_gguf_tensor_info *t, const tensor_scan *s,
                         double median)
{
    bool rows_matter = t->n_dims > 1 && t->ne[0] >= MIN_COLUMNS && !is_vocabulary(t->name);
    text[0] = '\0';
    if (s->n_nonfinite)
        snprintf(text, 256, "'%s': %lld NaN or Inf, first at element %lld", t->name,
                 (long long)s->n_nonfinite, (long long)s->first_nonfinite);
    else if (rows_matter && s->n_zero_rows)
        snprintf(text, 256, "'%s': %lld rows are zero, first row %lld", t->name,
                 (long long)s->n_zero_rows, (long long)s->first_zero_row);
    else if (rows_matter && s->n_repeated)
        snprintf(text, 256, "'%s': %lld rows repeat another one, first row %lld", t->name,
                 (long long)s->n_repeated, (long long)s->repeated_row);
    else if (median > 0 && strstr(t->name, ".weight") &&
             !(s->rms <= SCALE_RATIO * median && s->rms >= median / SCALE_RATIO))
        snprintf(text, 256, "'%s': rms %.3g, the same tensor of other layers has %.3g", t->name,
                 s->rms, median);
}

static assay_status judge(assay_check_row *row, const assay_gguf *file, const tensor_scan *scans,
                          double *room)
{
    int n_bad = 0, n_undecoded = 0;
    char first[256] = "", text[256];
    int64_t n = assay_gguf_n_tensors(file);
    for (int64_t i = 0; i < n; i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        n_undecoded += !scans[i].decoded;
        if (!scans[i].decoded)
            continue;
        judge_tensor(text, t, &scans[i], median_rms(file, scans, room, role(t->name)));
        if (is_vocabulary(t->name) && scans[i].n_repeated)
            ASSAY_TRY(assay_strings_add(&row->details,
                                        "'%s': %lld rows repeat another one (unused ids)", t->name,
                                        (long long)scans[i].n_repeated));
        if (!text[0])
            continue;
        if (!n_bad++)
            memcpy(first, text, sizeof first);
        if (n_bad <= MAX_DETAILS)
            ASSAY_TRY(assay_strings_add(&row->details, "%s", text));
    }
    if (n_bad)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%d of %lld tensors: %s", n_bad,
                               (long long)n, first);
    if (n_undecoded)
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE,
                               "%d of %lld tensors have a type that is not decoded", n_undecoded,
                               (long long)n);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld tensors: all there, none unknown, finite, no zero or repeated "
                           "rows, scales alike over layers",
                           (long long)n);
}

assay_status assay_check_weights(assay_check_row *row, assay_check_context *context)
{
    const assay_gguf *file = context->file;
    int64_t n = assay_gguf_n_tensors(file);
    tensor_scan *scans = NULL;
    double *room = NULL;
    assay_status s;
    if (!context->model)
        return assay_check_say(row,
                               assay_status_exit(context->model_status) == 125
                                   ? ASSAY_VERDICT_INCONCLUSIVE
                                   : ASSAY_VERDICT_FAIL,
                               "%s", context->model_error);
    ASSAY_GO(assay_alloc(&scans, (size_t)n, sizeof *scans, "scans of tensors"));
    ASSAY_GO(assay_alloc(&room, (size_t)n, sizeof *room, "scans of tensors"));
#pragma omp parallel for schedule(dynamic) shared(scans)
    for (int64_t i = 0; i < n; i++) {
        if (scan_tensor(&scans[i], assay_gguf_tensor_at(file, i)) != ASSAY_OK)
            scans[i].decoded = false;
        assay_gguf_release(file, assay_gguf_tensor_at(file, i));
    }
    s = judge(row, file, scans, room);
out:
    free(scans);
    free(room);
    return s;
}
