#include "suites/audit_shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"
#include "suites/audit_role.h"

#define MOST_COUNTS 16

/* Column borders of all parts, sorted and each once; between two of them ownership is constant. */
static int column_borders(int64_t *out, const assay_shard *shards, int n_shards, int64_t width)
{
    int n = 0;
    out[n++] = 0;
    out[n++] = width;
    for (int s = 0; s < n_shards; s++)
        for (int p = 0; p < shards[s].n_parts; p++) {
            out[n++] = shards[s].parts[p].first_col;
            out[n++] = shards[s].parts[p].first_col + shards[s].parts[p].n_cols;
        }
    for (int i = 1; i < n; i++) /* few: insertion */
        for (int k = i; k > 0 && out[k] < out[k - 1]; k--) {
            int64_t t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    int distinct = 1;
    for (int i = 1; i < n; i++)
        if (out[i] != out[distinct - 1])
            out[distinct++] = out[i];
    return distinct;
}

static assay_status check_part(const assay_shard_part *p, int64_t rows, int64_t width)
{
    bool empty = p->n_rows == 0 || p->repeat == 0;
    if (p->first < 0 || p->n_rows < 0 || p->repeat < 0 || p->stride < 0 || p->first_col < 0 ||
        p->n_cols < 0 || p->first_col + p->n_cols > width ||
        (!empty && p->first + (p->repeat - 1) * p->stride + p->n_rows > rows))
        return assay_fail(ASSAY_BAD_SHAPE, "rows from %lld, columns from %lld leave [%lld, %lld]",
                          (long long)p->first, (long long)p->first_col, (long long)rows,
                          (long long)width);
    return ASSAY_OK;
}

/* At this row so many more (fewer) shards own what follows. */
typedef struct edge {
    int64_t row;
    int change;
} edge;

static int by_row(const void *a, const void *b)
{
    int64_t x = ((const edge *)a)->row, y = ((const edge *)b)->row;
    return (x > y) - (x < y);
}

/* Edges of all parts that cover the column; out NULL: only counted. */
static int64_t edges_at(edge *out, const assay_shard *shards, int n_shards, int64_t column)
{
    int64_t n = 0;
    for (int s = 0; s < n_shards; s++)
        for (int k = 0; k < shards[s].n_parts; k++) {
            const assay_shard_part *p = &shards[s].parts[k];
            if (column < p->first_col || column >= p->first_col + p->n_cols || p->n_rows == 0)
                continue;
            for (int64_t i = 0; i < p->repeat; i++, n += 2)
                if (out) {
                    int64_t first = p->first + i * p->stride;
                    out[n] = (edge){first, 1};
                    out[n + 1] = (edge){first + p->n_rows, -1};
                }
        }
    return n;
}

typedef struct owners {
    int least, most, expected;
    int64_t first_wrong;
} owners;

static void see(owners *o, int count, int64_t row)
{
    o->least = count < o->least ? count : o->least;
    o->most = count > o->most ? count : o->most;
    if (count != o->expected && (o->first_wrong < 0 || row < o->first_wrong))
        o->first_wrong = row;
}

/* Rows in runs of equal count, from one edge to the next. */
static assay_status sweep(owners *o, const assay_shard *shards, int n_shards, int64_t column,
                          int64_t rows)
{
    edge *edges = NULL;
    int64_t n = edges_at(NULL, shards, n_shards, column), at = 0;
    int count = 0;
    ASSAY_TRY(assay_alloc(&edges, (size_t)n, sizeof *edges, "edges of shards"));
    edges_at(edges, shards, n_shards, column);
    qsort(edges, (size_t)n, sizeof *edges, by_row);
    for (int64_t i = 0; i < n; i++) {
        if (edges[i].row > at)
            see(o, count, at);
        at = edges[i].row;
        count += edges[i].change;
    }
    if (at < rows)
        see(o, count, at);
    free(edges);
    return ASSAY_OK;
}

assay_status assay_audit_ownership(int *least, int *most, int64_t *first_wrong_row,
                                   const assay_shard *shards, int n_shards, int64_t rows,
                                   int64_t width, int expected)
{
    owners o = {INT32_MAX, 0, expected, -1};
    int64_t *borders = NULL;
    assay_status s = ASSAY_OK;
    for (int k = 0; k < n_shards; k++)
        for (int p = 0; p < shards[k].n_parts; p++)
            ASSAY_TRY(check_part(&shards[k].parts[p], rows, width));
    ASSAY_TRY(assay_alloc(&borders, (size_t)n_shards * 6 + 2, sizeof *borders, "borders"));
    int n = column_borders(borders, shards, n_shards, width);
    for (int b = 0; b + 1 < n && s == ASSAY_OK; b++)
        s = sweep(&o, shards, n_shards, borders[b], rows);
    free(borders);
    *least = o.least;
    *most = o.most;
    *first_wrong_row = o.first_wrong;
    return s;
}

/* How many ranks should own an element: all of a copy, several of a key head that is shared. */
static int expected_owners(const assay_hparams *hp, assay_role role, int n_ranks)
{
    assay_shard_kind kind = assay_role_at(role)->kind;
    if (kind == ASSAY_SHARD_COPY)
        return n_ranks;
    if (kind == ASSAY_SHARD_KV_HEADS && n_ranks > hp->n_head_kv)
        return n_ranks / hp->n_head_kv;
    return 1;
}

typedef struct trial {
    bool divides, cuts;
    char text[256]; /* why not */
} trial;

static void say_cut(trial *out, const assay_gguf_tensor_info *t, const assay_quant *quant,
                    const assay_shard_part *part, int rank, int n_ranks)
{
    int64_t n_blocks = t->ne[0] / quant->block_elements, border = part->first_col;
    if (border % quant->block_elements == 0)
        border += part->n_cols;
    snprintf(
        out->text, sizeof out->text,
        "the border of rank %d at column %lld lies inside a block (a row is %lld block%s of %d, "
        "%s; whole blocks need a multiple of %d)",
        rank, (long long)border, (long long)n_blocks, n_blocks == 1 ? "" : "s",
        quant->block_elements, quant->name, n_ranks);
}

static assay_status try_ranks(trial *out, assay_audit *audit, const assay_gguf_tensor_info *t,
                              const assay_hparams *hp, assay_role role, bool whole_experts,
                              assay_shard *shards, int n_ranks)
{
    const assay_quant *quant = assay_quant_find(t->type);
    *out = (trial){.divides = true};
    for (int r = 0; r < n_ranks; r++) {
        assay_status s = assay_shard_of(&shards[r], hp, role, whole_experts, r, n_ranks);
        if (s != ASSAY_OK) {
            out->divides = false;
            snprintf(out->text, sizeof out->text, "%s", assay_error_text());
            return ASSAY_OK;
        }
        if (!out->cuts && assay_shard_cuts_block(&shards[r], quant->block_elements)) {
            out->cuts = true;
            say_cut(out, t, quant, &shards[r].parts[0], r, n_ranks);
        }
    }
    int64_t rows = t->ne[1] * t->ne[2] * t->ne[3], width = t->ne[0], wrong;
    int least, most, expected = expected_owners(hp, role, n_ranks);
    if (t->n_dims == 1) {
        rows = t->ne[0];
        width = 1;
    }
    if (assay_role_at(role)->kind == ASSAY_SHARD_QKV)
        return ASSAY_OK; /* its key heads may be shared while its query heads are not */
    ASSAY_TRY(assay_audit_ownership(&least, &most, &wrong, shards, n_ranks, rows, width, expected));
    if (least != expected || most != expected)
        return assay_audit_add(audit, ASSAY_AUDIT_OWNERSHIP, t->name, wrong, 1, 1,
                               "'%s': rows are owned by %d to %d of %d ranks, expected %d, first "
                               "at row %lld",
                               t->name, least, most, n_ranks, expected, (long long)wrong);
    return ASSAY_OK;
}

static assay_status judge(assay_audit *audit, const assay_gguf_tensor_info *t,
                          const assay_hparams *hp, assay_shard *shards, int n_ranks)
{
    assay_role role;
    int layer;
    trial inside, dealt = {0};
    if (!audit_resolve(&role, &layer, t->name) ||
        !audit_has_shape(t, hp, role)) /* the structure part names these */
        return ASSAY_OK;
    assay_shard_kind kind = assay_role_at(role)->kind;
    bool is_expert = kind == ASSAY_SHARD_EXPERT_COLUMN || kind == ASSAY_SHARD_EXPERT_ROW;
    ASSAY_TRY(try_ranks(&inside, audit, t, hp, role, false, shards, n_ranks));
    if (is_expert)
        ASSAY_TRY(try_ranks(&dealt, audit, t, hp, role, true, shards, n_ranks));
    bool good = inside.divides && !inside.cuts;
    if (good)
        return ASSAY_OK;
    if (is_expert && dealt.divides && !dealt.cuts)
        return assay_strings_add_once(
            &audit->notes,
            inside.divides ? "experts cannot be cut over these ranks without cutting blocks: deal "
                             "them out whole (expert parallel)"
                           : "experts do not divide inside over these ranks: deal them out whole "
                             "(expert parallel)");
    return assay_audit_add(audit, inside.divides ? ASSAY_AUDIT_CUT_BLOCK : ASSAY_AUDIT_NOT_DIVIDED,
                           t->name, -1, n_ranks, 1, "'%s' over %d ranks: %s", t->name, n_ranks,
                           inside.text);
}

static assay_status judge_all(assay_audit *audit, const assay_gguf *file, const assay_hparams *hp,
                              int n_ranks)
{
    assay_shard *shards = NULL;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&shards, (size_t)n_ranks, sizeof *shards, "shards"));
    for (int64_t i = 0; i < assay_gguf_n_tensors(file) && s == ASSAY_OK; i++)
        s = judge(audit, assay_gguf_tensor_at(file, i), hp, shards, n_ranks);
    free(shards);
    return s;
}

/* Which rank counts would do: what the reader asks next where one does not. */
static assay_status note_counts(assay_audit *audit, const assay_gguf *file, const assay_hparams *hp)
{
    char good[128] = "";
    for (int n = 1; n <= MOST_COUNTS; n++) {
        assay_audit attempt = {0};
        assay_status s = judge_all(&attempt, file, hp, n);
        size_t used = strlen(good);
        if (s == ASSAY_OK && attempt.n_findings == 0)
            snprintf(good + used, sizeof good - used, "%s%d", used ? ", " : "", n);
        assay_audit_clear(&attempt);
        ASSAY_TRY(s);
    }
    return assay_strings_add(&audit->notes,
                             "rank counts from 1 to %d that divide every tensor and cut no block: "
                             "%s",
                             MOST_COUNTS, good);
}

assay_status assay_audit_shards(assay_audit *audit, const assay_gguf *file, int n_ranks)
{
    assay_hparams hp;
    ASSAY_TRY(assay_hparams_read(&hp, file));
    ASSAY_TRY(judge_all(audit, file, &hp, n_ranks));
    return note_counts(audit, file, &hp);
}
