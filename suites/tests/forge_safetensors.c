#include "forge_safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/number.h"
#include "engine/quant.h"

static void die(const char *what)
{
    fprintf(stderr, "forge_safetensors: %s\n", what);
    abort();
}

/* A new matrix of the checkpoint, zeroed. */
static forge_matrix *add(forge_checkpoint *c, const char *name, int n_dims, int64_t a, int64_t b,
                         int64_t d)
{
    if (c->n == c->room) {
        c->room = 2 * c->room + 64;
        c->list = realloc(c->list, (size_t)c->room * sizeof *c->list);
        if (!c->list)
            die("no memory");
    }
    forge_matrix *m = &c->list[c->n++];
    *m = (forge_matrix){.n_dims = n_dims, .dims = {a, b, d}};
    snprintf(m->name, sizeof m->name, "%s", name);
    m->values = calloc((size_t)(a * b * d), sizeof *m->values);
    if (!m->values)
        die("no memory");
    return m;
}

/* All values of a GGUF tensor; NULL: the file has none of this name. */
static float *decoded(const assay_gguf *file, const char *name, int64_t ne[4])
{
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, name);
    if (!t)
        return NULL;
    int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    float *x = malloc((size_t)n * sizeof *x);
    if (!x || assay_quant_decode(x, t->type, t->data, n) != ASSAY_OK)
        die(name);
    memcpy(ne, t->ne, 4 * sizeof *ne);
    return x;
}

static void copy_as_is(forge_checkpoint *c, const assay_gguf *file, const char *gguf,
                       const char *name)
{
    int64_t ne[4];
    float *x = decoded(file, gguf, ne);
    if (!x)
        return;
    bool vector = ne[1] == 1 && ne[2] == 1;
    forge_matrix *m = vector ? add(c, name, 1, ne[0], 1, 1) : add(c, name, 2, ne[1], ne[0], 1);
    memcpy(m->values, x, (size_t)(ne[0] * ne[1]) * sizeof *x);
    free(x);
}

/* kv_b [H (N + V), L]: per head N key rows, then V value rows. */
static void put_kv_b(forge_checkpoint *c, const assay_gguf *file, const assay_hparams *hp,
                     int layer)
{
    char k_name[64], v_name[64], name[128];
    int64_t ne[4], N = hp->d_nope, V = hp->d_value, L = hp->n_rank_kv;
    snprintf(k_name, sizeof k_name, "blk.%d.attn_k_b.weight", layer);
    snprintf(v_name, sizeof v_name, "blk.%d.attn_v_b.weight", layer);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.kv_b_proj.weight", layer);
    float *k = decoded(file, k_name, ne), *v = decoded(file, v_name, ne);
    if (!k || !v)
        die("no k_b or v_b");
    forge_matrix *m = add(c, name, 2, hp->n_head * (N + V), L, 1);
    for (int64_t h = 0; h < hp->n_head; h++)
        for (int64_t l = 0; l < L; l++) {
            for (int64_t n = 0; n < N; n++) /* k_b[h][l][n] = B[h (N + V) + n][l] */
                m->values[(h * (N + V) + n) * L + l] = k[(h * L + l) * N + n];
            for (int64_t r = 0; r < V; r++)
                m->values[(h * (N + V) + N + r) * L + l] = v[(h * V + r) * L + l];
        }
    free(k);
    free(v);
}

static void put_experts(forge_checkpoint *c, const assay_gguf *file, const assay_hparams *hp,
                        int layer, bool merged)
{
    static const char *const parts[3] = {"gate", "up", "down"};
    char gguf[64], name[128];
    int64_t ne[4];
    forge_matrix *both = NULL;
    for (int p = 0; p < 3; p++) {
        snprintf(gguf, sizeof gguf, "blk.%d.ffn_%s_exps.weight", layer, parts[p]);
        float *x = decoded(file, gguf, ne);
        int64_t rows = 0, cols = 0;
        if (!x)
            return;
        rows = ne[1];
        cols = ne[0];
        if (merged && p == 0) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", layer);
            both = add(c, name, 3, hp->n_expert, 2 * rows, cols);
        } else if (merged && p == 2) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", layer);
            both = add(c, name, 3, hp->n_expert, rows, cols);
        }
        for (int64_t e = 0; e < hp->n_expert; e++) {
            const float *from = x + e * rows * cols;
            float *to;
            if (merged) {
                to = both->values + (p == 2 ? e : 2 * e + p) * rows * cols;
            } else {
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer,
                         (int)e, parts[p]);
                to = add(c, name, 2, rows, cols, 1)->values;
            }
            memcpy(to, from, (size_t)(rows * cols) * sizeof *to);
        }
        free(x);
    }
}

/* llama: GGUF row 2j of a head is row j of the checkpoint, row 2j + 1 is row j + d/2. */
static void put_rotary(forge_checkpoint *c, const assay_gguf *file, const assay_hparams *hp,
                       int layer, char which)
{
    char gguf[64], name[128];
    int64_t ne[4], d = hp->d_head;
    snprintf(gguf, sizeof gguf, "blk.%d.attn_%c.weight", layer, which);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_proj.weight", layer, which);
    float *x = decoded(file, gguf, ne);
    if (!x)
        die(gguf);
    forge_matrix *m = add(c, name, 2, ne[1], ne[0], 1);
    for (int64_t h = 0; h < ne[1] / d; h++)
        for (int64_t j = 0; j < d / 2; j++)
            for (int s = 0; s < 2; s++)
                memcpy(m->values + (h * d + j + s * d / 2) * ne[0], x + (h * d + 2 * j + s) * ne[0],
                       (size_t)ne[0] * sizeof *x);
    free(x);
}

static const char *const as_is[][2] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight"},
    {"indexer.attn_k.weight", "self_attn.indexer.wk.weight"},
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight"},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias"},
    {"indexer.proj.weight", "self_attn.indexer.weights_proj.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    {"nextn.eh_proj.weight", "eh_proj.weight"},
    {"nextn.enorm.weight", "enorm.weight"},
    {"nextn.hnorm.weight", "hnorm.weight"},
    {"nextn.shared_head_norm.weight", "shared_head.norm.weight"},
};

void forge_checkpoint_of(forge_checkpoint *c, const assay_gguf *file, const assay_hparams *hp,
                         bool merged)
{
    *c = (forge_checkpoint){0};
    copy_as_is(c, file, "token_embd.weight", "model.embed_tokens.weight");
    copy_as_is(c, file, "output_norm.weight", "model.norm.weight");
    copy_as_is(c, file, "output.weight", "lm_head.weight");
    for (int layer = 0; layer < hp->n_layer + hp->n_layer_nextn; layer++) {
        for (size_t i = 0; i < sizeof as_is / sizeof *as_is; i++) {
            char gguf[64], name[128];
            snprintf(gguf, sizeof gguf, "blk.%d.%s", layer, as_is[i][0]);
            snprintf(name, sizeof name, "model.layers.%d.%s", layer, as_is[i][1]);
            copy_as_is(c, file, gguf, name);
        }
        if (!hp->is_mla) {
            put_rotary(c, file, hp, layer, 'q');
            put_rotary(c, file, hp, layer, 'k');
            continue;
        }
        char gguf[64], name[128];
        snprintf(gguf, sizeof gguf, "blk.%d.attn_q.weight", layer);
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", layer);
        copy_as_is(c, file, gguf, name);
        put_kv_b(c, file, hp, layer);
        put_experts(c, file, hp, layer, merged);
    }
}

void forge_checkpoint_free(forge_checkpoint *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->list[i].values);
    free(c->list);
}

forge_matrix *forge_checkpoint_find(const forge_checkpoint *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    die(name);
    return NULL;
}

void forge_checkpoint_drop(forge_checkpoint *c, const char *name)
{
    forge_matrix *m = forge_checkpoint_find(c, name);
    free(m->values);
    *m = c->list[--c->n];
}

/* A header and a data section that grow together. */
typedef struct shard {
    char *header, *data;
    size_t n_header, n_data;
    FILE *header_file, *data_file;
} shard;

static void put_entry(shard *s, const char *name, const char *dtype, const forge_matrix *m,
                      const int64_t *dims, const void *bytes, size_t n)
{
    fprintf(s->header_file, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
            ftell(s->data_file) ? "," : "", name, dtype);
    for (int d = 0; d < m->n_dims; d++)
        fprintf(s->header_file, "%s%lld", d ? "," : "", (long long)dims[d]);
    long at = ftell(s->data_file);
    fprintf(s->header_file, "],\"data_offsets\":[%ld,%ld]}", at, at + (long)n);
    fwrite(bytes, 1, n, s->data_file);
}

/* F8_E4M3 with the largest value of each block at 448. */
static void put_fp8(shard *s, const forge_matrix *m)
{
    int64_t rows = m->dims[0], cols = m->dims[1], nr = (rows + 127) / 128, nc = (cols + 127) / 128;
    float *scales = calloc((size_t)(nr * nc), sizeof *scales);
    uint8_t *codes = malloc((size_t)(rows * cols));
    char name[160];
    if (!scales || !codes)
        die("no memory");
    for (int64_t i = 0; i < rows * cols; i++) {
        float *scale = &scales[i / cols / 128 * nc + i % cols / 128];
        *scale = fmaxf(*scale, fabsf(m->values[i]) / 448.0f);
    }
    for (int64_t i = 0; i < rows * cols; i++) {
        float scale = scales[i / cols / 128 * nc + i % cols / 128];
        codes[i] = assay_f32_to_f8e4m3(scale > 0 ? m->values[i] / scale : 0);
    }
    put_entry(s, m->name, "F8_E4M3", m, m->dims, codes, (size_t)(rows * cols));
    snprintf(name, sizeof name, "%s_scale_inv", m->name);
    put_entry(s, name, "F32", m, (const int64_t[]){nr, nc}, scales,
              (size_t)(nr * nc) * sizeof *scales);
    free(codes);
    free(scales);
}

static void put_half(shard *s, const forge_matrix *m, size_t n)
{
    bool bf16 = m->format == FORGE_BF16;
    uint16_t *words = malloc(n * sizeof *words);
    if (!words)
        die("no memory");
    for (size_t i = 0; i < n; i++)
        words[i] = bf16 ? assay_f32_to_bf16(m->values[i]) : assay_f32_to_f16(m->values[i]);
    put_entry(s, m->name, bf16 ? "BF16" : "F16", m, m->dims, words, n * sizeof *words);
    free(words);
}

static void put_matrix(shard *s, const forge_matrix *m, bool fp8)
{
    size_t n = (size_t)(m->dims[0] * m->dims[1] * m->dims[2]);
    if (m->format == FORGE_F8 || (fp8 && m->n_dims == 2 && strstr(m->name, "_proj.")))
        put_fp8(s, m);
    else if (m->format != FORGE_F32)
        put_half(s, m, n);
    else
        put_entry(s, m->name, "F32", m, m->dims, m->values, n * sizeof *m->values);
}

static void write_shard(const forge_checkpoint *c, const char *path, int file, int n_files,
                        bool fp8)
{
    shard s = {0};
    s.header_file = open_memstream(&s.header, &s.n_header);
    s.data_file = open_memstream(&s.data, &s.n_data);
    fputs("{", s.header_file);
    for (int i = 0; i < c->n; i++)
        if (i % n_files == file)
            put_matrix(&s, &c->list[i], fp8);
    fputs("}", s.header_file);
    fclose(s.header_file);
    fclose(s.data_file);
    FILE *f = fopen(path, "wb");
    uint64_t n = s.n_header;
    if (!f || fwrite(&n, sizeof n, 1, f) != 1 || fwrite(s.header, 1, n, f) != n ||
        fwrite(s.data, 1, s.n_data, f) != s.n_data || fclose(f) != 0)
        die(path);
    free(s.header);
    free(s.data);
}

void forge_checkpoint_write(const forge_checkpoint *c, const char *folder, int n_files, bool fp8)
{
    char path[512];
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    remove(path);
    if (n_files == 1) {
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        write_shard(c, path, 0, 1, fp8);
        return;
    }
    FILE *index = fopen(path, "w");
    if (!index)
        die(path);
    fputs("{\"metadata\":{},\"weight_map\":{", index);
    for (int i = 0; i < c->n; i++)
        fprintf(index, "%s\"%s\":\"model-%05d.safetensors\"", i ? "," : "", c->list[i].name,
                i % n_files);
    fputs("}}", index);
    fclose(index);
    for (int f = 0; f < n_files; f++) {
        snprintf(path, sizeof path, "%s/model-%05d.safetensors", folder, f);
        write_shard(c, path, f, n_files, fp8);
    }
}
