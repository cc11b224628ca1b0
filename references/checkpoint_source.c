#include "references/checkpoint_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALE_BLOCK 128 /* float8 checkpoints: one scale for 128 x 128 values */

static const struct {
    bool is_known;
    const char *name;
    source_how how;
} table[ASSAY_ROLE_COUNT] = {
#define X(role, name, how) [ASSAY_ROLE_##role] = {true, name, SOURCE_##how},
#include "references/checkpoint_source.def"
#undef X
};

/* What stands before "embed_tokens.weight": "model." or a deeper place. */
static void model_prefix(char out[64], const assay_safetensors *set)
{
    static const char tail[] = "embed_tokens.weight";
    snprintf(out, 64, "model.");
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set); i++) {
        const char *name = assay_safetensors_at(set, i)->name;
        size_t n = strlen(name), cut = sizeof tail - 1;
        if (n >= cut && n - cut < 64 && strcmp(name + n - cut, tail) == 0 &&
            !strstr(name, "layers.")) {
            snprintf(out, 64, "%.*s", (int)(n - cut), name);
            return;
        }
    }
}

/* "<prefix>layers.3.<name>", "<prefix><name>", or for the head the name alone. */
static void full_name(char out[160], const assay_safetensors *set, assay_role role, int layer,
                      int expert)
{
    char prefix[64], pattern[128];
    model_prefix(prefix, set);
    snprintf(pattern, sizeof pattern, "%s", table[role].name);
    char *number = strstr(pattern, "%d");
    if (number) { /* the one place of the table that holds a number */
        char tail[128];
        snprintf(tail, sizeof tail, "%s", number + 2);
        snprintf(number, sizeof pattern - (size_t)(number - pattern), "%d%.96s", expert, tail);
    }
    if (layer >= 0)
        snprintf(out, 160, "%.40slayers.%d.%.100s", prefix, layer, pattern);
    else if (role == ASSAY_ROLE_OUTPUT && strlen(prefix) >= 6)
        snprintf(out, 160, "%.*s%s", (int)strlen(prefix) - 6, prefix, pattern);
    else
        snprintf(out, 160, "%.40s%.100s", prefix, pattern);
}

static bool find(source_matrix *out, const assay_safetensors *set, const char *name)
{
    char scale[192];
    out->tensor = assay_safetensors_find(set, name);
    out->first_row = 0;
    out->scale = NULL;
    if (!out->tensor)
        return false;
    if (out->tensor->dtype == ASSAY_SAFETENSORS_F8_E4M3) {
        snprintf(scale, sizeof scale, "%s_scale_inv", name);
        out->scale = assay_safetensors_find(set, scale);
    }
    return true;
}

/* The matrix has so many values; its last dimension is the row. */
static assay_status check_size(const source_plan *p, const source_matrix *m, int64_t rows,
                               int64_t width)
{
    const assay_safetensor *t = m->tensor;
    int64_t last = t->n_dims > 0 ? t->dims[t->n_dims - 1] : 1;
    bool is_vector = p->width == 1 || t->n_dims == 1;
    if (t->count == rows * width && (is_vector || last == width))
        return ASSAY_OK;
    return assay_fail(
        ASSAY_BAD_SHAPE, "'%s' has %lld values in rows of %lld, expected %lld in %lld", t->name,
        (long long)t->count, (long long)last, (long long)(rows * width), (long long)width);
}

/* All experts in one tensor: gate_up_proj [E, 2 Fe, D] or down_proj [E, D, Fe]. */
static assay_status plan_merged(source_plan *p, const assay_safetensors *set, int layer)
{
    char name[160];
    bool down = p->role == ASSAY_ROLE_DOWN_EXPS;
    full_name(name, set, p->role, layer, 0);
    char *tail = strstr(name, "experts.");
    if (!tail)
        return assay_fail(ASSAY_MISSING, "'%s' is missing", p->name);
    snprintf(tail, 40, "experts.%s", down ? "down_proj" : "gate_up_proj");
    source_matrix m;
    if (!find(&m, set, name))
        return assay_fail(ASSAY_MISSING, "'%s' is missing", p->name);
    snprintf(p->name, sizeof p->name, "%s", name);
    int64_t per = p->rows / p->n_matrices, all = down ? per : 2 * per;
    ASSAY_TRY(check_size(p, &m, all * p->n_matrices, p->width));
    for (int e = 0; e < p->n_matrices; e++) {
        p->matrices[e] = m;
        p->matrices[e].first_row = e * all + (p->role == ASSAY_ROLE_UP_EXPS ? per : 0);
    }
    return ASSAY_OK;
}

static assay_status plan_experts(source_plan *p, const assay_safetensors *set, int layer)
{
    char name[160];
    for (int e = 0; e < p->n_matrices; e++) {
        full_name(name, set, p->role, layer, e);
        if (!find(&p->matrices[e], set, name)) {
            if (e == 0)
                return plan_merged(p, set, layer);
            return assay_fail(ASSAY_MISSING, "'%s' is missing", name);
        }
        ASSAY_TRY(check_size(p, &p->matrices[e], p->rows / p->n_matrices, p->width));
    }
    return ASSAY_OK;
}

static assay_status matrix_row(float *out, const source_matrix *m, int64_t row, int64_t width)
{
    const assay_safetensor *t = m->tensor;
    row += m->first_row;
    ASSAY_TRY(assay_safetensors_decode(out, t, row * width, width));
    if (!m->scale)
        return ASSAY_OK;
    int64_t n = (width + SCALE_BLOCK - 1) / SCALE_BLOCK;
    for (int64_t b = 0; b < n; b++) {
        float scale;
        int64_t at = row / SCALE_BLOCK * n + b;
        if (at >= m->scale->count)
            return assay_fail(ASSAY_BAD_SHAPE, "'%s' has %lld scales, expected more than %lld",
                              m->scale->name, (long long)m->scale->count, (long long)at);
        ASSAY_TRY(assay_safetensors_decode(&scale, m->scale, at, 1));
        for (int64_t i = b * SCALE_BLOCK; i < (b + 1) * SCALE_BLOCK && i < width; i++)
            out[i] *= scale;
    }
    return ASSAY_OK;
}

/* kv_b whole, for its key rows are read across. */
static assay_status decode_kv_b(source_plan *p)
{
    int64_t rows = (int64_t)p->hp->n_head * (p->hp->d_nope + p->hp->d_value);
    int64_t width = p->hp->n_rank_kv;
    ASSAY_TRY(check_size(p, &p->matrices[0], rows, width));
    if (p->how != SOURCE_K_B)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&p->kv_b, (size_t)(rows * width), sizeof *p->kv_b, p->name));
    for (int64_t r = 0; r < rows; r++)
        ASSAY_TRY(matrix_row(p->kv_b + r * width, &p->matrices[0], r, width));
    return ASSAY_OK;
}

static assay_status fill(source_plan *p, const assay_safetensors *set, int layer)
{
    if (p->how == SOURCE_EXPERT)
        return plan_experts(p, set, layer);
    bool tied = false;
    if (!find(&p->matrices[0], set, p->name)) {
        if (p->role == ASSAY_ROLE_OUTPUT) { /* a tied head */
            full_name(p->name, set, ASSAY_ROLE_TOKEN_EMBD, -1, 0);
            tied = find(&p->matrices[0], set, p->name);
        }
        if (!tied)
            return assay_fail(ASSAY_MISSING, "'%s' is missing", p->name);
    }
    if (p->how == SOURCE_K_B || p->how == SOURCE_V_B)
        return decode_kv_b(p);
    return check_size(p, &p->matrices[0], p->rows, p->width);
}

assay_status source_plan_make(source_plan *out, const assay_safetensors *set,
                              const assay_hparams *hp, assay_role role, int layer)
{
    int64_t dims[4];
    int n = assay_role_dims(dims, hp, role);
    source_plan p = {.hp = hp, .role = role, .how = table[role].how, .rows = 1, .n_matrices = 1};
    *out = p;
    if (!table[role].is_known)
        return assay_fail(ASSAY_UNSUPPORTED, "%s has no place in a checkpoint that is known",
                          assay_role_at(role)->name);
    p.width = n == 1 ? 1 : dims[n - 1]; /* a vector: a column, so that its entries are rows */
    for (int d = 0; d < (n == 1 ? 1 : n - 1); d++)
        p.rows *= dims[d];
    if (hp->is_mla && p.how == SOURCE_ROPE)
        p.how = SOURCE_SAME;
    if (p.how == SOURCE_EXPERT)
        p.n_matrices = hp->n_expert;
    full_name(p.name, set, role, layer, 0);
    ASSAY_TRY(assay_alloc(&p.matrices, (size_t)p.n_matrices, sizeof *p.matrices, p.name));
    assay_status s = fill(&p, set, layer);
    if (s != ASSAY_OK) {
        memcpy(out->name, p.name, sizeof out->name);
        source_plan_clear(&p);
        return s;
    }
    *out = p;
    return ASSAY_OK;
}

void source_plan_clear(source_plan *p)
{
    free(p->matrices);
    free(p->kv_b);
    p->matrices = NULL;
    p->kv_b = NULL;
}

/* GGUF row 2j (2j + 1) of a head is row j (j + d/2) of the checkpoint. */
static int64_t half_split(const source_plan *p, int64_t row)
{
    int64_t d = p->hp->d_head, in_head = row % d;
    return row - in_head + in_head / 2 + in_head % 2 * (d / 2);
}

assay_status source_row(float *out, const source_plan *p, int64_t row)
{
    const assay_hparams *hp = p->hp;
    int64_t per = p->rows / p->n_matrices, both = hp->d_nope + hp->d_value;
    switch (p->how) {
    case SOURCE_SAME:
        return matrix_row(out, &p->matrices[0], row, p->width);
    case SOURCE_ROPE:
        return matrix_row(out, &p->matrices[0], half_split(p, row), p->width);
    case SOURCE_EXPERT:
        return matrix_row(out, &p->matrices[row / per], row % per, p->width);
    case SOURCE_V_B:
        return matrix_row(out, &p->matrices[0],
                          row / hp->d_value * both + hp->d_nope + row % hp->d_value, p->width);
    case SOURCE_K_B: { /* row (h, l), element n: key row n of head h at latent l */
        int64_t rank = hp->n_rank_kv, head = row / rank, l = row % rank;
        for (int64_t n = 0; n < hp->d_nope; n++)
            out[n] = p->kv_b[(head * both + n) * rank + l];
        return ASSAY_OK;
    }
    }
    ASSAY_BUG_IF(true);
}
