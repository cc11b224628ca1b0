#include "suites/audit_loaded.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/quant.h"
#include "engine/shard.h"
#include "references/safetensors.h"

#define MOST_PARTS 3
#define N_SKETCH 4       /* projections on random signs */
#define SAME_ROW 6e-3    /* rounding to bfloat16, with room */
#define SAME_SKETCH 0.03 /* the same of a projection: four deviations */
#define MOST_RUNS 4      /* that are told */

enum { NONE = ASSAY_ROLE_COUNT };

static const struct {
    const char *name;
    int parts[MOST_PARTS];
} rows_of_table[] = {
#define X(name, a, b, c) {name, {ASSAY_ROLE_##a, ASSAY_ROLE_##b, ASSAY_ROLE_##c}},
#define ASSAY_ROLE_NONE NONE
#include "suites/loaded.def"
#undef ASSAY_ROLE_NONE
#undef X
};

#define N_TABLE ((int)(sizeof rows_of_table / sizeof *rows_of_table))

typedef struct source { /* all rows of all parts, one after another */
    int n_parts;
    const assay_gguf_tensor_info *tensors[MOST_PARTS];
    assay_role roles[MOST_PARTS];
    int64_t first[MOST_PARTS + 1]; /* of each part */
    int64_t width;
    double (*sketch)[N_SKETCH]; /* NULL until a row is looked for */
} source;

typedef struct loaded { /* one projection of one rank */
    assay_audit *audit;
    const assay_safetensor *tensor;
    int rank, n_ranks, layer;
    source from;
    int64_t n_rows;
    int64_t *expected, *found; /* [n_rows]: rows of the source; -1: none */
    float *row, *other;        /* [width] */
} loaded;

static void source_row(float *out, const source *s, int64_t row)
{
    int part = 0;
    while (row >= s->first[part + 1])
        part++;
    const assay_gguf_tensor_info *t = s->tensors[part];
    const assay_quant *quant = assay_quant_find(t->type);
    quant->decode(
        out, (const uint8_t *)t->data + (row - s->first[part]) * assay_quant_bytes(quant, s->width),
        s->width);
}

static void take_sketch(double out[N_SKETCH], const float *row, int64_t n)
{
    uint64_t bits = 0x9e3779b97f4a7c15u;
    memset(out, 0, N_SKETCH * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        for (int k = 0; k < N_SKETCH; k++)
            out[k] += bits >> (10 * k + 5) & 1 ? row[i] : -row[i];
    }
}

static double size_of(const float *row, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += (double)row[i] * row[i];
    return sqrt(square);
}

/* Whether x->row is this row of the source. */
static bool is_row(const loaded *x, int64_t at)
{
    double error = 0, size = 0;
    source_row(x->other, &x->from, at);
    for (int64_t i = 0; i < x->from.width; i++) {
        double d = (double)x->row[i] - x->other[i];
        error += d * d;
        size += (double)x->other[i] * x->other[i];
    }
    return error <= SAME_ROW * SAME_ROW * size;
}

static assay_status make_sketches(loaded *x)
{
    source *s = &x->from;
    int64_t n = s->first[s->n_parts];
    if (s->sketch)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&s->sketch, (size_t)n, sizeof *s->sketch, "sketches of rows"));
    for (int64_t r = 0; r < n; r++) {
        source_row(x->other, s, r);
        take_sketch(s->sketch[r], x->other, s->width);
    }
    return ASSAY_OK;
}

/* The row of the source that x->row is; first the one behind the last that was found. */
static assay_status look_for(int64_t *out, loaded *x, int64_t last)
{
    double sketch[N_SKETCH], near = SAME_SKETCH * size_of(x->row, x->from.width);
    int64_t n = x->from.first[x->from.n_parts];
    *out = -1;
    if (last >= 0 && last + 1 < n && is_row(x, last + 1)) {
        *out = last + 1;
        return ASSAY_OK;
    }
    ASSAY_TRY(make_sketches(x));
    take_sketch(sketch, x->row, x->from.width);
    for (int64_t r = 0; r < n && *out < 0; r++) {
        bool alike = true;
        for (int k = 0; k < N_SKETCH && alike; k++)
            alike = fabs(sketch[k] - x->from.sketch[r][k]) <= near;
        if (alike && is_row(x, r))
            *out = r;
    }
    return ASSAY_OK;
}

static int part_of(const source *s, int64_t row)
{
    int part = 0;
    while (row >= s->first[part + 1])
        part++;
    return part;
}

/* "q_a 0-255" for "attn_q_a.weight". */
static void say_run(char *text, size_t room, const source *s, int64_t row, int64_t n)
{
    char name[64];
    int part = row < 0 ? 0 : part_of(s, row);
    const char *full = assay_role_at(s->roles[part])->name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(full, "."), full);
    if (row < 0)
        snprintf(text, room, "%lld rows of no part", (long long)n);
    else
        snprintf(text, room, "%s rows %lld-%lld", name, (long long)(row - s->first[part]),
                 (long long)(row - s->first[part] + n - 1));
}

/* Runs of rows that follow each other in one part. *parts: how many of them. */
static int say_runs(char *text, size_t room, const loaded *x, const int64_t *map, int order[],
                    int most)
{
    int n_runs = 0;
    text[0] = '\0';
    for (int64_t i = 0, last; i < x->n_rows; i = last, n_runs++) {
        last = i + 1;
        while (last < x->n_rows &&
               (map[i] < 0 ? map[last] < 0
                           : map[last] == map[last - 1] + 1 &&
                                 part_of(&x->from, map[last]) == part_of(&x->from, map[i])))
            last++;
        if (n_runs < most)
            order[n_runs] = map[i] < 0 ? -1 : part_of(&x->from, map[i]);
        size_t used = strlen(text);
        if (n_runs < MOST_RUNS && used + 64 < room) {
            snprintf(text + used, room - used, "%s", used ? ", " : "");
            used = strlen(text);
            say_run(text + used, room - used, &x->from, map[i], last - i);
        }
    }
    if (n_runs > MOST_RUNS)
        strncat(text, ", ...", room - strlen(text) - 1);
    return n_runs;
}

static int by_row(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The right rows, in another order. */
static assay_status same_rows(bool *out, const loaded *x)
{
    int64_t *sorted[2] = {NULL};
    assay_status s = ASSAY_OK;
    *out = false;
    for (int i = 0; i < 2 && s == ASSAY_OK; i++) {
        s = assay_alloc(&sorted[i], (size_t)x->n_rows, sizeof **sorted, "rows");
        if (s == ASSAY_OK) {
            memcpy(sorted[i], i ? x->found : x->expected, (size_t)x->n_rows * sizeof **sorted);
            qsort(sorted[i], (size_t)x->n_rows, sizeof **sorted, by_row);
        }
    }
    if (s == ASSAY_OK)
        *out = memcmp(sorted[0], sorted[1], (size_t)x->n_rows * sizeof **sorted) == 0;
    free(sorted[0]);
    free(sorted[1]);
    return s;
}

/* The rank whose slices these are; -1: none. */
static int whose(const loaded *x)
{
    for (int r = 0; r < x->n_ranks; r++) {
        bool all = true;
        int64_t i = 0;
        for (int p = 0; p < x->from.n_parts && all; p++) {
            int64_t n = 0, at = x->from.first[p];
            while (i + n < x->n_rows && part_of(&x->from, x->expected[i + n]) == p)
                n++;
            int64_t mine = x->expected[i] - at; /* slices are equally wide */
            int64_t want = at + mine + (r - x->rank) * n;
            all = n > 0 && x->found[i] == want && x->found[i + n - 1] == want + n - 1;
            i += n;
        }
        if (all)
            return r;
    }
    return -1;
}

static assay_status judge(loaded *x)
{
    char found[256], expected[256];
    int order[MOST_PARTS], right[MOST_PARTS], other = whose(x);
    int n = say_runs(found, sizeof found, x, x->found, order, MOST_PARTS);
    int n_right = say_runs(expected, sizeof expected, x, x->expected, right, MOST_PARTS);
    const char *name = x->from.tensors[0]->name;
    bool same;
    if (memcmp(x->found, x->expected, (size_t)x->n_rows * sizeof *x->found) == 0)
        return ASSAY_OK;
    ASSAY_TRY(same_rows(&same, x));
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < x->n_rows; i++)
        if (x->found[i] != x->expected[i] && wrong++ == 0)
            first = i;
    if (same && n == n_right && n > 1 && n <= MOST_PARTS)
        return assay_audit_add(
            x->audit, ASSAY_AUDIT_PART_ORDER, name, first, wrong, 1,
            "rank %d: '%s' holds its parts in the order [%d, %d%s%s]: %s; expected %s", x->rank,
            x->tensor->name, order[0], order[1], n > 2 ? ", " : "",
            n > 2 ? (order[2] == 0   ? "0"
                     : order[2] == 1 ? "1"
                                     : "2")
                  : "",
            found, expected);
    if (other >= 0)
        return assay_audit_add(x->audit, ASSAY_AUDIT_OTHER_SLICE, name, first, wrong, 1,
                               "rank %d: '%s' holds rank %d's slice: %s; expected %s", x->rank,
                               x->tensor->name, other, found, expected);
    return assay_audit_add(x->audit, ASSAY_AUDIT_OTHER_SLICE, name, first, wrong, 0.95,
                           "rank %d: '%s' holds %s; expected %s", x->rank, x->tensor->name, found,
                           expected);
}

/* This rank's rows of every part, in canonical order. */
static assay_status expect_rows(loaded *x, const assay_hparams *hp)
{
    int64_t n = 0;
    for (int p = 0; p < x->from.n_parts; p++) {
        assay_shard shard;
        ASSAY_TRY(assay_shard_of(&shard, hp, x->from.roles[p], false, x->rank, x->n_ranks));
        for (int64_t r = 0; r < shard.parts[0].n_rows; r++)
            if (n < x->n_rows)
                x->expected[n++] = x->from.first[p] + shard.parts[0].first + r;
            else
                n++;
    }
    if (n == x->n_rows)
        return ASSAY_OK;
    return assay_fail(ASSAY_BAD_SHAPE, "'%s' has %lld rows, expected %lld of rank %d of %d",
                      x->tensor->name, (long long)x->n_rows, (long long)n, x->rank, x->n_ranks);
}

static assay_status compare(loaded *x)
{
    int64_t width = x->from.width, last = -1;
    for (int64_t i = 0; i < x->n_rows; i++) {
        ASSAY_TRY(assay_safetensors_decode(x->row, x->tensor, i * width, width));
        x->found[i] = x->expected[i];
        if (!is_row(x, x->expected[i]))
            ASSAY_TRY(look_for(&x->found[i], x, last));
        last = x->found[i];
    }
    return judge(x);
}

static assay_status audit_projection(loaded *x, const assay_hparams *hp)
{
    const assay_safetensor *t = x->tensor;
    assay_status s = ASSAY_OK;
    x->n_rows = t->n_dims == 2 ? t->dims[0] : 0;
    if (t->n_dims != 2 || t->dims[1] != x->from.width)
        return assay_audit_add(x->audit, ASSAY_AUDIT_SHAPE, x->from.tensors[0]->name, -1, 1, 1,
                               "rank %d: '%s' has %lld columns, expected %lld (a cut along the "
                               "other axis?)",
                               x->rank, t->name,
                               (long long)(t->n_dims == 2 ? t->dims[1] : t->count),
                               (long long)x->from.width);
    ASSAY_GO(assay_alloc(&x->expected, (size_t)x->n_rows, sizeof *x->expected, "rows"));
    ASSAY_GO(assay_alloc(&x->found, (size_t)x->n_rows, sizeof *x->found, "rows"));
    ASSAY_GO(assay_alloc(&x->row, (size_t)x->from.width, sizeof *x->row, "a row"));
    ASSAY_GO(assay_alloc(&x->other, (size_t)x->from.width, sizeof *x->other, "a row"));
    s = expect_rows(x, hp);
    if (s == ASSAY_BAD_SHAPE)
        s = assay_audit_add(x->audit, ASSAY_AUDIT_SHAPE, x->from.tensors[0]->name, -1, 1, 1,
                            "rank %d: %s", x->rank, assay_error_text());
    else if (s == ASSAY_OK)
        s = compare(x);
out:
    free(x->expected);
    free(x->found);
    free(x->row);
    free(x->other);
    free(x->from.sketch);
    return s;
}

/* The row of the table that a name belongs to, and its layer; -1: none. */
static int row_of(int *layer, const char *name)
{
    const char *at = strstr(name, "layers.");
    int n = 0;
    if (!at || sscanf(at, "layers.%d.%n", layer, &n) != 1 || n == 0)
        return -1;
    for (int i = 0; i < N_TABLE; i++)
        if (strcmp(at + n, rows_of_table[i].name) == 0)
            return i;
    return -1;
}

/* False: the file lacks a part. */
static bool find_parts(source *s, const assay_gguf *file, int row, int layer)
{
    char name[64];
    *s = (source){0};
    for (int p = 0; p < MOST_PARTS && rows_of_table[row].parts[p] != NONE; p++) {
        s->roles[p] = (assay_role)rows_of_table[row].parts[p];
        s->tensors[p] = assay_gguf_find_tensor(file, assay_role_format(name, s->roles[p], layer));
        if (!s->tensors[p] || !assay_quant_find(s->tensors[p]->type)->decode)
            return false;
        s->width = s->tensors[p]->ne[0];
        s->first[p + 1] = s->first[p] + s->tensors[p]->ne[1];
        s->n_parts++;
    }
    return true;
}

static assay_status audit_rank(assay_audit *audit, int64_t *n_aside, const assay_gguf *file,
                               const assay_hparams *hp, const char *path, int rank, int n_ranks)
{
    assay_safetensors *set;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_safetensors_open(&set, path));
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set) && s == ASSAY_OK; i++) {
        loaded x = {.audit = audit,
                    .tensor = assay_safetensors_at(set, i),
                    .rank = rank,
                    .n_ranks = n_ranks};
        int row = row_of(&x.layer, x.tensor->name);
        if (row < 0 || !find_parts(&x.from, file, row, x.layer)) {
            ++*n_aside;
            continue;
        }
        audit->n_tensors++;
        audit->bytes_read += x.tensor->n_bytes;
        int n = audit->n_findings;
        s = audit_projection(&x, hp);
        for (; n < audit->n_findings; n++)
            audit->findings[n].rank = rank;
    }
    assay_safetensors_close(set);
    return s;
}

/* Ranks and parts of a folder by the names of its files. */
static assay_status count_files(int *n_ranks, int *n_parts, const char *folder)
{
    DIR *dir = opendir(folder);
    int rank, part, end, n = 0;
    *n_ranks = *n_parts = 0;
    if (!dir)
        return assay_fail(ASSAY_IO, "'%s': cannot be read", folder);
    for (const struct dirent *e; (e = readdir(dir));) {
        end = 0;
        if (sscanf(e->d_name, "model-rank-%4d-part-%4d.safetensors%n", &rank, &part, &end) != 2 ||
            end == 0 || e->d_name[end] || rank < 0 || part < 0)
            continue;
        n++;
        *n_ranks = rank + 1 > *n_ranks ? rank + 1 : *n_ranks;
        *n_parts = part + 1 > *n_parts ? part + 1 : *n_parts;
    }
    closedir(dir);
    if (n == 0)
        return assay_fail(ASSAY_MISSING,
                          "'%s': no model-rank-R-part-P.safetensors, as engines save the state of "
                          "their ranks",
                          folder);
    return ASSAY_OK;
}

static assay_status audit_folder(assay_audit *audit, int64_t *n_aside, const assay_gguf *file,
                                 const assay_hparams *hp, const char *folder)
{
    int n_ranks, n_parts;
    ASSAY_TRY(count_files(&n_ranks, &n_parts, folder));
    for (int r = 0; r < n_ranks; r++)
        for (int p = 0; p < n_parts; p++) {
            char path[4200];
            struct stat st;
            snprintf(path, sizeof path, "%.4000s/model-rank-%d-part-%d.safetensors", folder, r, p);
            if (p > 0 && stat(path, &st))
                continue; /* ranks may have fewer parts */
            if (p == 0 && stat(path, &st))
                return assay_fail(ASSAY_MISSING, "'%s': rank %d of %d is missing", path, r,
                                  n_ranks);
            ASSAY_TRY(audit_rank(audit, n_aside, file, hp, path, r, n_ranks));
        }
    return ASSAY_OK;
}

assay_status assay_audit_loaded(assay_audit *audit, const assay_gguf *file, const char *path)
{
    assay_hparams hp;
    struct stat st;
    int64_t n_aside = 0;
    ASSAY_TRY(assay_hparams_read(&hp, file));
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        ASSAY_TRY(audit_folder(audit, &n_aside, file, &hp, path));
    else
        ASSAY_TRY(audit_rank(audit, &n_aside, file, &hp, path, 0, 1));
    if (audit->n_tensors == 0)
        return assay_fail(ASSAY_CANNOT_JUDGE, "'%s' has none of the projections that are judged",
                          path);
    return n_aside == 0 ? ASSAY_OK
                        : assay_strings_add(&audit->notes,
                                            "%lld loaded tensors are not judged: no projection "
                                            "that is split along its rows",
                                            (long long)n_aside);
}
