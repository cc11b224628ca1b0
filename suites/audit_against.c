#include "suites/audit_against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/quant.h"
#include "references/checkpoint_source.h"
#include "references/relation.h"
#include "suites/audit_role.h"

#define BATCH_ROWS 64
#define SAMPLE_COLUMNS 16 /* columns that a differing tensor is explained by */
#define SAMPLE_ROWS 4096
#define OTHER_ROWS 32 /* rows that are compared with other layers */

static const struct {
    double row, gain;
} bounds[] = {
#define X(type, row, gain) {row, gain},
#include "suites/audit_error.def"
#undef X
};

static const char *const bound_types[] = {
#define X(type, row, gain) #type,
#include "suites/audit_error.def"
#undef X
};

static bool bound_of(double *row, double *gain, const assay_quant *quant)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (assay_quant_by_name(bound_types[i]) == quant) {
            *row = bounds[i].row;
            *gain = bounds[i].gain;
            return true;
        }
    return false;
}

/* Sums over rows of one tensor. */
typedef struct tally {
    int64_t n_bad, first_bad, worst_row;
    double worst;         /* relative L2 of a row */
    double cross, square; /* <file, source>, <source, source> */
    assay_status status;
    char line[512];
} tally;

static void merge(tally *all, const tally *part)
{
    if (part->n_bad > 0 && (all->n_bad == 0 || part->first_bad < all->first_bad))
        all->first_bad = part->first_bad;
    all->n_bad += part->n_bad;
    if (!(part->worst <= all->worst)) {
        all->worst = part->worst;
        all->worst_row = part->worst_row;
    }
    all->cross += part->cross;
    all->square += part->square;
    if (part->status != ASSAY_OK && all->status == ASSAY_OK) {
        all->status = part->status;
        memcpy(all->line, part->line, sizeof all->line);
    }
}

/* One tensor under comparison. A vector is a column: its rows have one element. */
typedef struct subject {
    const assay_gguf_tensor_info *info;
    const assay_quant *quant;
    source_plan plan;
    int layer;
    double row_bound, gain_bound;
} subject;

/* Rows [first, first + n) as the file has them. */
static void file_rows(float *out, const subject *x, int64_t first, int64_t n)
{
    int64_t width = x->info->ne[0];
    if (x->plan.width == 1 && x->info->n_dims <= 1) {
        const uint8_t *p = x->info->data;
        x->quant->decode(out, p + assay_quant_bytes(x->quant, first), n);
        return;
    }
    const uint8_t *p = (const uint8_t *)x->info->data + first * assay_quant_bytes(x->quant, width);
    x->quant->decode(out, p, n * width);
}

/* Relative L2 of a on b; 0 for two zero rows, infinite where only b is zero or a is not finite. */
static double row_error(const float *a, const float *b, int64_t n, tally *t)
{
    double error = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        error += d * d;
        square += (double)b[i] * b[i];
        t->cross += (double)a[i] * b[i];
    }
    t->square += square;
    if (error == 0)
        return 0;
    double rel = square > 0 ? sqrt(error / square) : HUGE_VAL;
    return isnan(rel) ? HUGE_VAL : rel;
}

static assay_status compare_rows(tally *t, const subject *x, int64_t first, int64_t n)
{
    int64_t width = x->plan.width;
    float *file = NULL, *source = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&file, (size_t)(n * width), sizeof *file, "rows of the file"));
    ASSAY_GO(assay_alloc(&source, (size_t)(n * width), sizeof *source, "rows of the source"));
    file_rows(file, x, first, n);
    for (int64_t r = 0; r < n; r++)
        ASSAY_GO(source_row(source + r * width, &x->plan, first + r));
    int64_t group = width == 1 ? n : 1; /* entries of a vector are judged together */
    for (int64_t r = 0; r < n; r += group) {
        double rel = row_error(file + r * width, source + r * width, group * width, t);
        if (rel > t->worst) {
            t->worst = rel;
            t->worst_row = first + r;
        }
        if (!(rel <= x->row_bound) && t->n_bad++ == 0)
            t->first_bad = first + r;
    }
out:
    t->status = s;
    free(file);
    free(source);
    return s;
}

static void compare(tally *all, const subject *x, int n_threads)
{
    int64_t rows = x->plan.rows;
    int64_t batch = x->plan.width == 1 ? rows : BATCH_ROWS, n = (rows + batch - 1) / batch;
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n > 16)
    for (int64_t b = 0; b < n; b++) {
        tally part = {0};
        int64_t first = b * batch;
        if (compare_rows(&part, x, first, rows - first < batch ? rows - first : batch) != ASSAY_OK)
            snprintf(part.line, sizeof part.line, "%s", assay_error_text());
#pragma omp critical(audit_against)
        merge(all, &part);
    }
}

/* ---- what a differing tensor is ---- */

/* A sample as [columns, rows], so that relations between columns are relations between rows. */
static assay_status sample(double *got, double *want, const subject *x, int64_t rows, int columns)
{
    float *a = NULL, *b = NULL;
    int64_t width = x->plan.width;
    assay_status s;
    ASSAY_GO(assay_alloc(&a, (size_t)width, sizeof *a, "a row"));
    ASSAY_GO(assay_alloc(&b, (size_t)width, sizeof *b, "a row"));
    for (int64_t r = 0; r < rows; r++) {
        file_rows(a, x, r, 1);
        ASSAY_GO(source_row(b, &x->plan, r));
        for (int c = 0; c < columns; c++) {
            int64_t at = width * c / columns;
            got[c * rows + r] = a[at];
            want[c * rows + r] = b[at];
        }
    }
out:
    free(a);
    free(b);
    return s;
}

/* The maps that converters and loaders are known to get wrong; the first that fits is told. */
static void try_maps(char out[192], const subject *x, const assay_relation_pair *pair, double *room)
{
    const assay_hparams *hp = x->plan.hp;
    int heads = x->plan.role == ASSAY_ROLE_ATTN_K || x->plan.role == ASSAY_ROLE_ATTN_V
                    ? hp->n_head_kv
                    : hp->n_head;
    bool by_head = heads > 1 && pair->cols % heads == 0 && pair->cols == x->plan.rows &&
                   heads <= ASSAY_RELATION_BLOCKS;
    assay_relation rel = {0};
    double bound = 1.5 * x->row_bound;
    assay_relation_scale(&rel, room, pair);
    if (rel.residual <= bound) {
        snprintf(out, 192, "; it is the source times %.3g", rel.value);
        return;
    }
    if (by_head) {
        assay_relation_blocks(&rel, room, pair, heads);
        if (rel.residual <= bound) {
            snprintf(out, 192,
                     "; its %d heads are in another order (head 0 is head %d of the source)", heads,
                     rel.map[0]);
            return;
        }
        assay_relation_inside(&rel, room, pair, heads);
        if (rel.residual <= bound) {
            snprintf(out, 192, "; rows inside every head are in another order (rotary pairs)");
            return;
        }
    }
    if (pair->cols % 2 == 0) {
        assay_relation_blocks(&rel, room, pair, 2);
        if (rel.residual <= bound)
            snprintf(out, 192, "; its halves are exchanged");
    }
}

/* Whether the first rows are those of the same tensor of another layer. */
static assay_status try_layers(char out[192], const subject *x, const assay_safetensors *set)
{
    const assay_hparams *hp = x->plan.hp;
    for (int layer = 0; x->layer >= 0 && layer < hp->n_layer + hp->n_layer_nextn; layer++) {
        subject other = *x;
        tally t = {0};
        if (layer == x->layer || source_plan_make(&other.plan, set, hp, x->plan.role, layer))
            continue;
        int64_t n = other.plan.rows < OTHER_ROWS ? other.plan.rows : OTHER_ROWS;
        assay_status status = compare_rows(&t, &other, 0, n);
        source_plan_clear(&other.plan);
        ASSAY_TRY(status);
        if (t.n_bad == 0) {
            snprintf(out, 192, "; it is the tensor of layer %d", layer);
            return ASSAY_OK;
        }
    }
    return ASSAY_OK;
}

static assay_status explain(char out[192], const subject *x, const assay_safetensors *set)
{
    int64_t rows = x->plan.rows < SAMPLE_ROWS ? x->plan.rows : SAMPLE_ROWS;
    int columns = x->plan.width < SAMPLE_COLUMNS ? (int)x->plan.width : SAMPLE_COLUMNS;
    double *got = NULL, *want = NULL, *room = NULL;
    assay_status s;
    out[0] = '\0';
    ASSAY_GO(assay_alloc(&got, (size_t)(rows * columns), sizeof *got, "sample"));
    ASSAY_GO(assay_alloc(&want, (size_t)(rows * columns), sizeof *want, "sample"));
    ASSAY_GO(assay_alloc(&room, (size_t)(rows * columns), sizeof *room, "sample"));
    ASSAY_GO(sample(got, want, x, rows, columns));
    assay_relation_pair pair = {.got = got, .expected = want, .rows = columns, .cols = rows};
    if (rows > 1)
        try_maps(out, x, &pair, room);
    if (!out[0])
        s = try_layers(out, x, set);
out:
    free(got);
    free(want);
    free(room);
    return s;
}

static assay_status judge(assay_audit *audit, const subject *x, const tally *t,
                          const assay_safetensors *set)
{
    char what[192];
    double gain = t->square > 0 ? t->cross / t->square : 1;
    const char *name = x->info->name;
    if (t->n_bad == 0 && fabs(gain - 1) <= x->gain_bound)
        return ASSAY_OK;
    ASSAY_TRY(explain(what, x, set));
    if (t->n_bad == 0)
        return assay_audit_add(audit, ASSAY_AUDIT_DIFFERS, name, -1, x->plan.rows, 0.9,
                               "'%s' is '%s' times %.6g, expected 1 within %g", name, x->plan.name,
                               gain, x->gain_bound);
    return assay_audit_add(
        audit, ASSAY_AUDIT_DIFFERS, name, t->first_bad, t->n_bad, 0.95,
        "'%s': %lld of %lld rows differ from '%s', first row %lld, worst row %lld "
        "by %.3g (relative L2, at most %g for %s)%s",
        name, (long long)t->n_bad, (long long)x->plan.rows, x->plan.name, (long long)t->first_bad,
        (long long)t->worst_row, t->worst, x->row_bound, x->quant->name, what);
}

static assay_status audit_tensor(assay_audit *audit, const assay_gguf_tensor_info *info,
                                 const assay_hparams *hp, const assay_safetensors *set,
                                 int n_threads)
{
    assay_role role;
    subject x = {.info = info, .quant = assay_quant_find(info->type)};
    tally t = {.worst_row = -1};
    if (!audit_resolve(&role, &x.layer, info->name) || !audit_has_shape(info, hp, role) ||
        !bound_of(&x.row_bound, &x.gain_bound, x.quant))
        return ASSAY_OK; /* the structure part names these */
    assay_status status = source_plan_make(&x.plan, set, hp, role, x.layer);
    if (status == ASSAY_MISSING || status == ASSAY_BAD_SHAPE)
        return assay_audit_add(audit, ASSAY_AUDIT_NO_SOURCE, info->name, -1, 1, 1, "'%s': %s",
                               info->name, assay_error_text());
    if (status == ASSAY_UNSUPPORTED)
        return assay_strings_add(&audit->notes, "'%s' is not compared: %s", info->name,
                                 assay_error_text());
    ASSAY_TRY(status);
    compare(&t, &x, n_threads);
    status = t.status;
    if (status != ASSAY_OK)
        assay_error_set(t.line);
    else
        status = judge(audit, &x, &t, set);
    audit->bytes_read += info->n_bytes;
    source_plan_clear(&x.plan);
    return status;
}

/* Layers of the checkpoint that the file has not: "<prefix>layers.<n>." with n beyond. */
static assay_status check_rest(assay_audit *audit, const assay_hparams *hp,
                               const assay_safetensors *set)
{
    int last = -1;
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set); i++) {
        const char *at = strstr(assay_safetensors_at(set, i)->name, "layers.");
        int layer;
        if (at && sscanf(at, "layers.%d.", &layer) == 1 && layer > last)
            last = layer;
    }
    if (last + 1 > hp->n_layer + hp->n_layer_nextn)
        return assay_strings_add(&audit->notes,
                                 "the checkpoint has %d layers, the file %d: blocks that predict "
                                 "further tokens may be left out, others may not",
                                 last + 1, hp->n_layer + hp->n_layer_nextn);
    return ASSAY_OK;
}

assay_status assay_audit_against(assay_audit *audit, const assay_gguf *file,
                                 const assay_safetensors *set, int n_threads,
                                 assay_audit_progress_fn *progress, void *user)
{
    assay_hparams hp;
    uint64_t done = 0, total = 0;
    int64_t n = assay_gguf_n_tensors(file);
    if (n_threads <= 0)
        n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    ASSAY_TRY(assay_hparams_read(&hp, file));
    for (int64_t i = 0; i < n; i++)
        total += assay_gguf_tensor_at(file, i)->n_bytes;
    for (int64_t i = 0; i < n; i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        ASSAY_TRY(audit_tensor(audit, t, &hp, set, n_threads));
        assay_gguf_release(file, t);
        done += t->n_bytes;
        if (progress)
            progress(user, t->name, done, total);
    }
    return check_rest(audit, &hp, set);
}
