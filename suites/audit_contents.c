/*
 * Contents of all tensors: scans, and what they mean.
 *
 * Bounds. A tensor's size is the root mean square of its sample. Trained tensors of one role differ
 * over layers by less than 30 in the models that were looked at, and rows of one tensor by less
 * than 100; a factor that was applied twice or lost (a block scale of 1/127, a float8 scale of
 * 1/448, a routed factor squared) is beyond.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "suites/audit.h"
#include "suites/audit_scan.h"

#define LAYER_RATIO 100.0     /* size against the median of the same tensor in other layers */
#define ROW_EXPONENTS 10      /* binary orders of a row above the median row */
#define ABSURD_SIZE 1000.0    /* with no other layers to compare with */
#define MIN_COLUMNS 16        /* shorter rows may be equal or zero by chance */
#define MIN_EQUAL_ELEMENTS 64 /* shorter tensors may be equal by chance */

typedef struct judged {
    const assay_gguf_tensor_info *info;
    audit_scan scan;
    bool is_scanned;
    double size;
} judged;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "blk.3.attn_q_a.weight" and "blk.5.attn_q_a.weight" are namesakes. */
static const char *namesake(const char *name)
{
    int n = 0, layer;
    return sscanf(name, "blk.%d.%n", &layer, &n) == 1 && n > 0 ? name + n : name;
}

static bool is_vocabulary(const char *name)
{
    return strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0 ||
           strstr(name, "nextn.embed_tokens") || strstr(name, "nextn.shared_head_head");
}

static bool is_bias(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".bias") == 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median size over the layers that have this tensor; 0: fewer than three. */
static double median_size(const judged *list, int64_t n, const char *name, double *room)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        if (list[i].is_scanned && list[i].size > 0 &&
            strcmp(namesake(list[i].info->name), name) == 0)
            room[found++] = list[i].size;
    qsort(room, (size_t)found, sizeof *room, by_value);
    return found < 3 ? 0 : room[found / 2];
}

static assay_status judge_rows(assay_audit *audit, const judged *j)
{
    const audit_scan *s = &j->scan;
    const assay_gguf_tensor_info *t = j->info;
    bool vocabulary = is_vocabulary(t->name);
    bool rows_matter = (t->n_dims > 1 && t->ne[0] >= MIN_COLUMNS) || s->n_rows == 1;
    if (s->n_zero > 0 && vocabulary && s->n_zero < s->n_rows)
        ASSAY_TRY(assay_strings_add(&audit->notes, "'%s': %lld of %lld rows are zero (unused ids)",
                                    t->name, (long long)s->n_zero, (long long)s->n_rows));
    else if (s->n_zero > 0 && rows_matter && !is_bias(t->name))
        ASSAY_TRY(assay_audit_add(audit, ASSAY_AUDIT_ZERO_ROWS, t->name, s->first_zero_row,
                                  s->n_zero, 1,
                                  "'%s': %s%lld of %lld rows are zero, first row %lld", t->name,
                                  s->n_zero == s->n_rows ? "all " : "", (long long)s->n_zero,
                                  (long long)s->n_rows, (long long)s->first_zero_row));
    if (s->n_repeated > 0 && vocabulary)
        return assay_strings_add(&audit->notes, "'%s': %lld rows repeat another one (unused ids)",
                                 t->name, (long long)s->n_repeated);
    if (s->n_repeated > 0 && t->n_dims > 1 && t->ne[0] >= MIN_COLUMNS)
        return assay_audit_add(audit, ASSAY_AUDIT_REPEATED_ROWS, t->name, s->first_repeated_row,
                               s->n_repeated, 1,
                               "'%s': %lld of %lld rows repeat another one, first row %lld (equal "
                               "to row %lld)",
                               t->name, (long long)s->n_repeated, (long long)s->n_rows,
                               (long long)s->first_repeated_row, (long long)s->repeats_row);
    return ASSAY_OK;
}

static assay_status judge_size(assay_audit *audit, const judged *j, double median)
{
    const audit_scan *s = &j->scan;
    const char *name = j->info->name;
    double largest = sqrt(s->largest_square);
    int row_exponent = largest > 0 ? ilogb(largest) : 0;
    int usual = audit_scan_median_exponent(s);
    if (is_bias(name) || s->n_sampled == 0 || j->size == 0)
        return ASSAY_OK;
    audit->n_alike += median > 0;
    if (median > 0 && (j->size > LAYER_RATIO * median || j->size < median / LAYER_RATIO))
        return assay_audit_add(audit, ASSAY_AUDIT_SCALE, name, -1, s->n_rows, 0.95,
                               "'%s': values of size %.3g, the same tensor of other layers has "
                               "%.3g",
                               name, j->size, median);
    if (median == 0 && j->size > ABSURD_SIZE)
        return assay_audit_add(audit, ASSAY_AUDIT_SCALE, name, -1, s->n_rows, 0.8,
                               "'%s': values of size %.3g, expected at most %g", name, j->size,
                               ABSURD_SIZE);
    if (s->n_rows >= 8 && row_exponent > usual + ROW_EXPONENTS)
        return assay_audit_add(audit, ASSAY_AUDIT_SCALE, name, s->largest_row_at, 1, 0.9,
                               "'%s': row %lld has values of size %.3g, the median row about %.3g",
                               name, (long long)s->largest_row_at, largest, 1.5 * exp2(usual));
    return ASSAY_OK;
}

static assay_status judge(assay_audit *audit, const judged *j, double median)
{
    const audit_scan *s = &j->scan;
    const char *unit = assay_quant_find(j->info->type)->block_elements > 1 ? "block" : "element";
    if (s->n_bad > 0)
        ASSAY_TRY(assay_audit_add(
            audit, ASSAY_AUDIT_NONFINITE, j->info->name, s->first_bad_row, s->n_bad, 1,
            "'%s': %lld %s%s NaN or infinite, first in row %lld at element "
            "%lld",
            j->info->name, (long long)s->n_bad, unit, s->n_bad == 1 ? " is" : "s are",
            (long long)s->first_bad_row, (long long)s->first_bad_element));
    ASSAY_TRY(judge_rows(audit, j));
    return judge_size(audit, j, median);
}

static int by_hash(const void *a, const void *b)
{
    const judged *x = *(const judged *const *)a, *y = *(const judged *const *)b;
    if (x->scan.hash != y->scan.hash)
        return x->scan.hash < y->scan.hash ? -1 : 1;
    return (x > y) - (x < y);
}

static bool comparable(const judged *j)
{
    const assay_gguf_tensor_info *t = j->info;
    return j->is_scanned && j->scan.hash != 0 &&
           t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] >= MIN_EQUAL_ELEMENTS;
}

/* Tensors with the same bytes. Two vocabulary tensors may be tied. */
static assay_status judge_equal(assay_audit *audit, const judged *list, int64_t n)
{
    const judged **order = NULL;
    int64_t m = 0;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&order, (size_t)n, sizeof *order, "tensors"));
    for (int64_t i = 0; i < n; i++)
        if (comparable(&list[i]))
            order[m++] = &list[i];
    qsort(order, (size_t)m, sizeof *order, by_hash);
    for (int64_t i = 1; i < m && s == ASSAY_OK; i++) {
        const assay_gguf_tensor_info *a = order[i - 1]->info, *b = order[i]->info;
        if (order[i]->scan.hash != order[i - 1]->scan.hash || a->n_bytes != b->n_bytes ||
            a->type != b->type || memcmp(a->data, b->data, a->n_bytes) != 0)
            continue;
        if (is_vocabulary(a->name) && is_vocabulary(b->name))
            s = assay_strings_add(&audit->notes, "'%s' and '%s' are equal (tied)", a->name,
                                  b->name);
        else
            s = assay_audit_add(audit, ASSAY_AUDIT_EQUAL, b->name, -1, order[i]->scan.n_rows, 1,
                                "'%s' and '%s' have equal content", a->name, b->name);
    }
    free(order);
    return s;
}

/* Descriptors of the set's files, to look for holes; -1 where that fails. */
static int *open_files(const assay_gguf *file)
{
    int n = assay_gguf_n_files(file);
    int *fds = malloc((size_t)n * sizeof *fds);
    for (int f = 0; fds && f < n; f++)
        fds[f] = open(assay_gguf_file_path(file, f), O_RDONLY | O_CLOEXEC);
    return fds;
}

static void close_files(int *fds, int n)
{
    for (int f = 0; fds && f < n; f++)
        if (fds[f] >= 0)
            close(fds[f]);
    free(fds);
}

static assay_status scan_all(assay_audit *audit, judged *list, const assay_gguf *file,
                             int n_threads, assay_audit_progress_fn *progress, void *user)
{
    int64_t n = assay_gguf_n_tensors(file);
    uint64_t done = 0, total = 0;
    int *fds = open_files(file);
    assay_status s = fds ? ASSAY_OK : assay_fail(ASSAY_NO_MEMORY, "no memory for descriptors");
    for (int64_t i = 0; i < n; i++)
        total += assay_gguf_tensor_at(file, i)->n_bytes;
    for (int64_t i = 0; i < n && s == ASSAY_OK; i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        list[i].info = t;
        done += t->n_bytes;
        if (!assay_quant_find(t->type)->decode) {
            audit->n_undecodable++;
            continue;
        }
        s = audit_scan_tensor(&list[i].scan, t, fds[t->file], n_threads);
        list[i].is_scanned = s == ASSAY_OK;
        list[i].size = audit_scan_size(&list[i].scan);
        audit->bytes_read += list[i].scan.bytes_read;
        audit->bytes_hole += list[i].scan.bytes_hole;
        if (progress)
            progress(user, t->name, done, total);
    }
    close_files(fds, assay_gguf_n_files(file));
    return s;
}

assay_status assay_audit_contents(assay_audit *audit, const assay_gguf *file, int n_threads,
                                  assay_audit_progress_fn *progress, void *user)
{
    int64_t n = assay_gguf_n_tensors(file);
    judged *list = NULL;
    double *room = NULL, started = now_s();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    assay_status s;
    audit->n_tensors = n;
    ASSAY_GO(assay_alloc(&list, (size_t)n, sizeof *list, "scans of tensors"));
    ASSAY_GO(assay_alloc(&room, (size_t)n, sizeof *room, "scans of tensors"));
    ASSAY_GO(scan_all(audit, list, file, n_threads > 0 ? n_threads : (int)cores, progress, user));
    for (int64_t i = 0; i < n; i++)
        if (list[i].is_scanned)
            ASSAY_GO(
                judge(audit, &list[i], median_size(list, n, namesake(list[i].info->name), room)));
    ASSAY_GO(judge_equal(audit, list, n));
    audit->seconds = now_s() - started;
out:
    free(list);
    free(room);
    return s;
}
