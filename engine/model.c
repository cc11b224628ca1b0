#include "engine/model.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"

#define KEEP_BYTES ((int64_t)4 << 30)

enum { EXACT, ROUNDED, N_FORMS };

struct assay_model {
    assay_gguf *file;
    assay_hparams hp;
    const assay_arch *arch;
    int first_layer, last_layer;
    int n_block;
    assay_weight *weights; /* [1 + n_block][ASSAY_ROLE_COUNT]; info NULL: absent */
    float **kept;          /* the same shape, times N_FORMS */
    float **kv_b;          /* [n_block][N_FORMS] */
    bool keeps;
    int n_aside;
    pthread_mutex_t lock;
};

assay_model_options assay_model_options_default(void)
{
    return (assay_model_options){0, -1, {NAN, NAN, NAN}, 0};
}

static size_t slot_of(assay_role role, int layer)
{
    return (size_t)(layer + 1) * ASSAY_ROLE_COUNT + role;
}

const assay_weight *assay_model_weight(const assay_model *model, assay_role role, int layer)
{
    ASSAY_BUG_IF(layer < -1 || layer >= model->n_block);
    const assay_weight *w = &model->weights[slot_of(role, layer)];
    return w->info ? w : NULL;
}

int assay_model_first_layer(const assay_model *model)
{
    return model->first_layer;
}

int assay_model_last_layer(const assay_model *model)
{
    return model->last_layer;
}

int assay_model_n_aside(const assay_model *model)
{
    return model->n_aside;
}

bool assay_model_keeps(const assay_model *model)
{
    return model->keeps;
}

const assay_hparams *assay_model_hparams(const assay_model *model)
{
    return &model->hp;
}

const assay_gguf *assay_model_gguf(const assay_model *model)
{
    return model->file;
}

/* Which role and layer a tensor's name stands for. */
static bool parse_name(assay_role *role, int *layer, const char *name)
{
    const char *rest = name;
    long n = -1;
    if (!strncmp(name, "blk.", 4)) {
        char *end;
        if (name[4] < '0' || name[4] > '9' || (name[4] == '0' && name[5] != '.'))
            return false;
        n = strtol(name + 4, &end, 10);
        if (*end != '.' || n > ASSAY_MAX_LAYERS)
            return false;
        rest = end + 1;
    }
    for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
        const assay_role_info *info = assay_role_at((assay_role)r);
        if (info->per_layer == (n >= 0) && !strcmp(info->name, rest)) {
            *role = (assay_role)r;
            *layer = (int)n;
            return true;
        }
    }
    return false;
}

static void print_dims(char *out, size_t bytes, const int64_t *dims, int n)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%lld", i ? ", " : "", (long long)dims[i]);
}

static assay_status bind(assay_weight *w, const assay_model *m, const assay_gguf_tensor_info *info,
                         assay_role role, int layer)
{
    const assay_quant *quant = assay_quant_find(info->type);
    int64_t expected[4], found[4];
    int n = assay_role_dims(expected, &m->hp, role), n_found = info->n_dims > n ? info->n_dims : n;
    bool same = true;
    for (int i = 0; i < n_found; i++) { /* missing dims are 1; ne is innermost first */
        found[i] = info->ne[n_found - 1 - i];
        same = same && found[i] == (i < n_found - n ? 1 : expected[i - (n_found - n)]);
    }
    if (!same) {
        char want[96], got[96];
        print_dims(want, sizeof want, expected, n);
        print_dims(got, sizeof got, found, n_found);
        return assay_fail(ASSAY_BAD_FILE,
                          "tensor '%s' has shape [%s], expected [%s] (rows first) by the metadata",
                          info->name, got, want);
    }
    if (!quant || !quant->decode)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "tensor '%s' is of type %d%s%s, which cannot be decoded", info->name,
                          info->type, quant ? " " : "", quant ? quant->name : "");
    *w = (assay_weight){info, role, layer, n, {1, 1, 1, 1}, 1, expected[n - 1]};
    memcpy(w->dims, expected, (size_t)n * sizeof *expected);
    for (int i = 0; i < n - 1; i++)
        w->n_rows *= expected[i];
    return ASSAY_OK;
}

static assay_status bind_all(assay_model *m)
{
    for (int64_t i = 0; i < assay_gguf_n_tensors(m->file); i++) {
        const assay_gguf_tensor_info *info = assay_gguf_tensor_at(m->file, i);
        assay_role role;
        int layer;
        if (!parse_name(&role, &layer, info->name))
            return assay_fail(ASSAY_BAD_FILE, "tensor '%s' is unknown to architecture '%s'",
                              info->name, m->hp.architecture);
        if (layer >= m->n_block)
            return assay_fail(ASSAY_BAD_FILE, "tensor '%s' is of layer %d, and there are %d",
                              info->name, layer, m->n_block);
        assay_use use = m->arch->use(&m->hp, role, layer);
        if (use == ASSAY_USE_NONE)
            return assay_fail(ASSAY_BAD_FILE,
                              "tensor '%s' has no place there in architecture '%s' with this "
                              "metadata",
                              info->name, m->hp.architecture);
        ASSAY_TRY(bind(&m->weights[slot_of(role, layer)], m, info, role, layer));
        m->n_aside += use == ASSAY_USE_ASIDE;
    }
    return ASSAY_OK;
}

static assay_status missing(assay_role role, int layer, const char *or_else)
{
    char name[64];
    return assay_fail(ASSAY_BAD_FILE, "tensor '%s' is missing%s%s",
                      assay_role_format(name, role, layer), or_else[0] ? ", and so is " : "",
                      or_else);
}

static bool has(const assay_model *m, assay_role role, int layer)
{
    return assay_model_weight(m, role, layer) != NULL;
}

/* Tensors of which a file has one or another. */
static assay_status check_alternatives(const assay_model *m, int layer)
{
    const assay_hparams *hp = &m->hp;
    if (hp->is_mla && !has(m, ASSAY_ROLE_ATTN_KV_B, layer)) {
        if (!has(m, ASSAY_ROLE_ATTN_K_B, layer))
            return missing(ASSAY_ROLE_ATTN_K_B, layer, "attn_kv_b.weight");
        if (!has(m, ASSAY_ROLE_ATTN_V_B, layer))
            return missing(ASSAY_ROLE_ATTN_V_B, layer, "attn_kv_b.weight");
    }
    if (!hp->is_mla && !has(m, ASSAY_ROLE_ATTN_QKV, layer)) {
        static const assay_role parts[] = {ASSAY_ROLE_ATTN_Q, ASSAY_ROLE_ATTN_K, ASSAY_ROLE_ATTN_V};
        for (int i = 0; i < 3; i++)
            if (!has(m, parts[i], layer))
                return missing(parts[i], layer, "attn_qkv.weight");
    }
    if (layer >= hp->n_layer_dense && !has(m, ASSAY_ROLE_GATE_UP_EXPS, layer)) {
        if (!has(m, ASSAY_ROLE_GATE_EXPS, layer))
            return missing(ASSAY_ROLE_GATE_EXPS, layer, "ffn_gate_up_exps.weight");
        if (!has(m, ASSAY_ROLE_UP_EXPS, layer))
            return missing(ASSAY_ROLE_UP_EXPS, layer, "ffn_gate_up_exps.weight");
    }
    return ASSAY_OK;
}

static assay_status check_needed(const assay_model *m)
{
    for (int layer = -1; layer < m->hp.n_layer; layer++) {
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++)
            if (assay_role_at((assay_role)r)->per_layer == (layer >= 0) &&
                m->arch->use(&m->hp, (assay_role)r, layer) == ASSAY_USE_NEEDED &&
                !has(m, (assay_role)r, layer))
                return missing((assay_role)r, layer, "");
        if (layer >= 0)
            ASSAY_TRY(check_alternatives(m, layer));
    }
    return ASSAY_OK;
}

/* A layer like the last of the trunk, without an indexer of its own, and what joins the halves. */
assay_status assay_model_check_nextn(const assay_model *m)
{
    static const assay_role own[] = {ASSAY_ROLE_NEXTN_EH_PROJ, ASSAY_ROLE_NEXTN_ENORM,
                                     ASSAY_ROLE_NEXTN_HNORM};
    for (int layer = m->hp.n_layer; layer < m->n_block; layer++) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (!has(m, own[i], layer))
                return missing(own[i], layer, "");
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
            bool index = r >= ASSAY_ROLE_INDEX_Q_B && r <= ASSAY_ROLE_INDEX_PROJ;
            if (assay_role_at((assay_role)r)->per_layer && !index &&
                m->arch->use(&m->hp, (assay_role)r, m->hp.n_layer - 1) == ASSAY_USE_NEEDED &&
                !has(m, (assay_role)r, layer))
                return missing((assay_role)r, layer, "");
        }
        ASSAY_TRY(check_alternatives(m, layer));
    }
    return ASSAY_OK;
}

static assay_status choose_layers(assay_model *m, const assay_model_options *options)
{
    int last = options->last_layer < 0 ? m->hp.n_layer - 1 : options->last_layer;
    if (options->first_layer < 0 || options->first_layer > last || last >= m->hp.n_layer)
        return assay_fail(ASSAY_USAGE, "layers %d-%d, and the model has 0-%d", options->first_layer,
                          last, m->hp.n_layer - 1);
    m->first_layer = options->first_layer;
    m->last_layer = last;
    return ASSAY_OK;
}

static void apply_conventions(assay_hparams *hp, const assay_conventions *c)
{
    if (!isnan(c->eps_q_a))
        hp->eps_q_a = c->eps_q_a;
    if (!isnan(c->eps_kv_a))
        hp->eps_kv_a = c->eps_kv_a;
    if (!isnan(c->eps_index))
        hp->eps_index = c->eps_index;
}

/* Whether float32 copies of the layers in use fit in the budget. */
static bool fits(const assay_model *m, int64_t keep_bytes)
{
    int64_t most = keep_bytes ? keep_bytes : KEEP_BYTES;
    int64_t bytes = 0;
    for (int layer = -1; layer < m->hp.n_layer; layer++)
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
            const assay_weight *w = &m->weights[slot_of((assay_role)r, layer)];
            if (w->info && (layer < 0 || (layer >= m->first_layer && layer <= m->last_layer)))
                bytes += w->n_rows * w->width * 4;
            if (bytes > most)
                return false;
        }
    return true;
}

assay_status assay_model_open(assay_model **out, const char *path,
                              const assay_model_options *options)
{
    assay_model_options defaults = assay_model_options_default();
    assay_model *m;
    assay_status s;
    if (!options)
        options = &defaults;
    ASSAY_TRY(assay_alloc(&m, 1, sizeof *m, "model"));
    pthread_mutex_init(&m->lock, NULL);
    ASSAY_GO(assay_gguf_open(&m->file, path));
    ASSAY_GO(assay_hparams_read(&m->hp, m->file));
    m->arch = assay_arch_find(m->hp.architecture);
    m->n_block = m->hp.n_layer + m->hp.n_layer_nextn;
    size_t n = (size_t)(m->n_block + 1) * ASSAY_ROLE_COUNT;
    ASSAY_GO(assay_alloc(&m->weights, n, sizeof *m->weights, "weights"));
    ASSAY_GO(assay_alloc(&m->kept, n * N_FORMS, sizeof *m->kept, "weights"));
    ASSAY_GO(assay_alloc(&m->kv_b, (size_t)m->n_block * N_FORMS, sizeof *m->kv_b, "weights"));
    ASSAY_GO(bind_all(m));
    ASSAY_GO(check_needed(m));
    ASSAY_GO(choose_layers(m, options));
    apply_conventions(&m->hp, &options->conventions);
    m->keeps = fits(m, options->keep_bytes);
    *out = m;
    return ASSAY_OK;
out:
    assay_model_close(m);
    return assay_within(s, "%s", path);
}

void assay_model_close(assay_model *model)
{
    if (!model)
        return;
    size_t n = (size_t)(model->n_block + 1) * ASSAY_ROLE_COUNT * N_FORMS;
    for (size_t i = 0; model->kept && i < n; i++)
        free(model->kept[i]);
    for (size_t i = 0; model->kv_b && i < (size_t)model->n_block * N_FORMS; i++)
        free(model->kv_b[i]);
    free(model->kept);
    free(model->kv_b);
    free(model->weights);
    assay_gguf_close(model->file);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

const float *assay_model_plain(const assay_weight *weight, assay_dtype dtype)
{
    const void *data = weight->info->data;
    bool plain = dtype == ASSAY_DTYPE_F32 && weight->info->type == 0 &&
                 (uintptr_t)data % _Alignof(float) == 0;
    return plain ? data : NULL;
}

assay_status assay_model_decode_rows(float *out, const assay_weight *weight, int64_t first,
                                     int64_t n, assay_dtype dtype)
{
    const assay_gguf_tensor_info *info = weight->info;
    ASSAY_BUG_IF(first < 0 || n < 0 || first + n > weight->n_rows);
    size_t row_bytes = (size_t)(info->n_bytes / (uint64_t)weight->n_rows);
    ASSAY_TRY(assay_quant_decode(
        out, info->type, (const char *)info->data + (size_t)first * row_bytes, n * weight->width));
    if (dtype == ASSAY_DTYPE_BF16 && weight->role != ASSAY_ROLE_ROUTER_BIAS)
        for (int64_t i = 0; i < n * weight->width; i++)
            out[i] = assay_bf16_to_f32(assay_f32_to_bf16(out[i]));
    return ASSAY_OK;
}

static assay_status decode_once(float **slot, const assay_weight *weight, assay_dtype dtype)
{
    float *values;
    ASSAY_TRY(assay_alloc(&values, (size_t)(weight->n_rows * weight->width), sizeof *values,
                          weight->info->name));
    assay_status s = assay_model_decode_rows(values, weight, 0, weight->n_rows, dtype);
    if (s != ASSAY_OK) {
        free(values);
        return assay_within(s, "tensor '%s'", weight->info->name);
    }
    *slot = values;
    return ASSAY_OK;
}

static int form_of(assay_dtype dtype)
{
    return dtype == ASSAY_DTYPE_BF16 ? ROUNDED : EXACT;
}

assay_status assay_model_decoded(const float **out, assay_model *model, const assay_weight *weight,
                                 assay_dtype dtype)
{
    float **slot =
        &model->kept[slot_of(weight->role, weight->layer) * N_FORMS + (size_t)form_of(dtype)];
    assay_status s = ASSAY_OK;
    pthread_mutex_lock(&model->lock);
    if (!*slot)
        s = decode_once(slot, weight, dtype);
    *out = *slot;
    pthread_mutex_unlock(&model->lock);
    return s;
}

/* k_b [H, L, N] to the key rows and v_b [H, V, L] to the value rows of kv_b [H, N + V, L]. */
static assay_status put_together(float *kv_b, assay_model *m, int layer, assay_dtype dtype,
                                 float *one_head)
{
    const assay_hparams *hp = &m->hp;
    const assay_weight *k_b = assay_model_weight(m, ASSAY_ROLE_ATTN_K_B, layer);
    const assay_weight *v_b = assay_model_weight(m, ASSAY_ROLE_ATTN_V_B, layer);
    int64_t rank = hp->n_rank_kv, nope = hp->d_nope, value = hp->d_value;
    for (int h = 0; h < hp->n_head; h++) {
        float *head = kv_b + h * (nope + value) * rank;
        ASSAY_TRY(assay_model_decode_rows(one_head, k_b, h * rank, rank, dtype));
        for (int64_t l = 0; l < rank; l++)
            for (int64_t n = 0; n < nope; n++)
                head[n * rank + l] = one_head[l * nope + n];
        ASSAY_TRY(assay_model_decode_rows(head + nope * rank, v_b, h * value, value, dtype));
    }
    return ASSAY_OK;
}

static assay_status put_together_once(float **slot, assay_model *m, int layer, assay_dtype dtype)
{
    const assay_hparams *hp = &m->hp;
    size_t n = (size_t)hp->n_head * (size_t)(hp->d_nope + hp->d_value) * (size_t)hp->n_rank_kv;
    size_t extra = (size_t)hp->d_nope * (size_t)hp->n_rank_kv;
    float *values;
    ASSAY_TRY(assay_alloc(&values, n + extra, sizeof *values, "kv_b"));
    assay_status s = put_together(values, m, layer, dtype, values + n);
    if (s != ASSAY_OK) {
        free(values);
        return assay_within(s, "layer %d: kv_b from k_b and v_b", layer);
    }
    *slot = values;
    return ASSAY_OK;
}

assay_status assay_model_kv_b(const float **out, assay_model *model, int layer, assay_dtype dtype,
                              float *scratch)
{
    const assay_hparams *hp = &model->hp;
    const assay_weight *kv_b = assay_model_weight(model, ASSAY_ROLE_ATTN_KV_B, layer);
    bool parts = assay_model_weight(model, ASSAY_ROLE_ATTN_K_B, layer) &&
                 assay_model_weight(model, ASSAY_ROLE_ATTN_V_B, layer);
    if (kv_b && !parts) {
        if (model->keeps)
            return assay_model_decoded(out, model, kv_b, dtype);
        *out = scratch;
        return assay_model_decode_rows(scratch, kv_b, 0, kv_b->n_rows, dtype);
    }
    if (!model->keeps) {
        size_t n = (size_t)hp->n_head * (size_t)(hp->d_nope + hp->d_value) * (size_t)hp->n_rank_kv;
        *out = scratch;
        return put_together(scratch, model, layer, dtype, scratch + n);
    }
    float **slot = &model->kv_b[(size_t)layer * N_FORMS + (size_t)form_of(dtype)];
    assay_status s = ASSAY_OK;
    pthread_mutex_lock(&model->lock);
    if (!*slot)
        s = put_together_once(slot, model, layer, dtype);
    *out = *slot;
    pthread_mutex_unlock(&model->lock);
    return s;
}
