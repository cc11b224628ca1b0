#include "suites/forge_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch.h"
#include "engine/quant.h"
#include "suites/forge_keys.h"
#include "suites/forge_weights.h"

#define MIN_VOCAB 512 /* 256 bytes, the end, one merge, and room */

static const char *const order_names[ASSAY_FORGE_ORDER_COUNT] = {"by-layer", "sorted", "reversed",
                                                                 "shuffled"};

const char *assay_forge_order_name(assay_forge_order order)
{
    ASSAY_BUG_IF((unsigned)order >= ASSAY_FORGE_ORDER_COUNT);
    return order_names[order];
}

static assay_status unknown_shape(const char *name)
{
    char known[512] = "";
    for (int i = 0; i < assay_forge_shape_count(); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 assay_forge_shape_at(i)->name);
    return assay_fail(ASSAY_USAGE, "no model '%s' (known: %s)", name, known);
}

static void set_layers(assay_hparams *hp, const assay_forge_shape *shape,
                       const assay_forge_options *o)
{
    bool all = o->n_layer <= 0 || o->n_layer == shape->n_layer;
    hp->n_layer = all ? shape->n_layer : o->n_layer;
    hp->n_layer_nextn = o->n_nextn >= 0 ? o->n_nextn : all ? shape->n_nextn : 0;
    hp->n_layer_dense = shape->n_layer_dense;
    if (shape->n_expert == 0)
        hp->n_layer_dense = hp->n_layer;
    else if (hp->n_layer_dense >= hp->n_layer) /* at least one layer has experts */
        hp->n_layer_dense = hp->n_layer - 1;
    for (int i = 0; i < hp->n_layer; i++)
        hp->index_full[i] = !shape->index_shared || i < 3 || (i - 2) % 4 == 0;
}

static void set_widths(assay_hparams *hp, const assay_forge_shape *shape)
{
    hp->n_embd = shape->n_embd;
    hp->n_ff = shape->n_ff;
    hp->n_context = shape->n_context;
    hp->n_head = shape->n_head;
    hp->n_head_kv = hp->is_mla ? 1 : shape->n_head_kv;
    hp->d_nope = shape->d_nope;
    hp->d_rope = shape->d_rope;
    hp->d_value = hp->is_mla ? shape->d_value : shape->d_rope;
    hp->d_head = hp->is_mla ? shape->d_nope + shape->d_rope : shape->d_rope;
    hp->n_rank_q = shape->n_rank_q;
    hp->n_rank_kv = shape->n_rank_kv;
    hp->n_ff_expert = shape->n_ff_expert;
    hp->n_expert = shape->n_expert;
    hp->n_expert_used = shape->n_expert_used;
    hp->n_expert_shared = shape->n_expert_shared;
    hp->n_group = shape->n_group;
    hp->n_group_used = shape->n_group_used;
    hp->index_n_head = shape->index_n_head;
    hp->index_d_head = shape->index_d_head;
    hp->index_top_k = shape->index_top_k;
}

assay_status assay_forge_hparams(assay_hparams *out, const assay_forge_options *o)
{
    const assay_forge_shape *shape = assay_forge_shape_find(o->like);
    assay_hparams hp = {.weights_scale = 1, .rope_factor = 1};
    if (!shape)
        return unknown_shape(o->like);
    if (o->n_layer > ASSAY_MAX_LAYERS - 8 || o->n_nextn > 8)
        return assay_fail(ASSAY_USAGE, "%d layers and %d nextn blocks, expected at most %d and 8",
                          o->n_layer, o->n_nextn, ASSAY_MAX_LAYERS - 8);
    if (o->n_vocab != 0 && o->n_vocab < MIN_VOCAB)
        return assay_fail(ASSAY_USAGE, "vocabulary of %d, expected at least %d", o->n_vocab,
                          MIN_VOCAB);
    snprintf(hp.architecture, sizeof hp.architecture, "%s", shape->architecture);
    hp.is_mla = shape->n_rank_kv > 0;
    hp.has_indexer = shape->index_n_head > 0;
    if (o->kv_b && (!hp.is_mla || hp.has_indexer))
        return assay_fail(ASSAY_USAGE, "no %s file holds attn_kv_b in one piece", shape->name);
    set_layers(&hp, shape, o);
    set_widths(&hp, shape);
    if (o->kv_b)
        hp.n_head_kv = hp.n_head;
    hp.n_vocab = o->n_vocab ? o->n_vocab : shape->n_vocab;
    hp.eps_norm = hp.eps_q_a = hp.eps_kv_a = shape->eps;
    hp.eps_index = 1e-6;
    hp.gating = shape->gating == 2 ? ASSAY_GATING_SIGMOID : ASSAY_GATING_SOFTMAX;
    hp.group_rule = shape->gating == 2 ? ASSAY_GROUP_TOP2_SUM : ASSAY_GROUP_MAX;
    hp.weights_norm = shape->weights_norm;
    hp.weights_scale = shape->weights_scale > 0 ? shape->weights_scale : 1;
    hp.rope_base = shape->rope_base;
    *out = hp;
    return ASSAY_OK;
}

/* Whether the file has this role in this layer (-1: global); optional ones as converters write
 * them. */
static bool has_role(const assay_hparams *hp, const assay_forge_options *o, assay_role role,
                     int layer)
{
    const assay_arch *arch = assay_arch_find(hp->architecture);
    bool nextn = layer >= hp->n_layer;
    if (assay_role_at(role)->per_layer != (layer >= 0))
        return false;
    switch (role) {
    case ASSAY_ROLE_NEXTN_EH_PROJ:
    case ASSAY_ROLE_NEXTN_ENORM:
    case ASSAY_ROLE_NEXTN_HNORM:
    case ASSAY_ROLE_NEXTN_HEAD_NORM:
        return nextn;
    case ASSAY_ROLE_OUTPUT:
        return true;
    case ASSAY_ROLE_ATTN_KV_B:
        return hp->is_mla && o->kv_b;
    case ASSAY_ROLE_ATTN_K_B:
    case ASSAY_ROLE_ATTN_V_B:
        return hp->is_mla && !o->kv_b;
    case ASSAY_ROLE_ROUTER_BIAS:
        return hp->gating == ASSAY_GATING_SIGMOID && layer >= hp->n_layer_dense && hp->n_expert;
    case ASSAY_ROLE_GATE_EXPS:
    case ASSAY_ROLE_UP_EXPS:
        return layer >= hp->n_layer_dense && hp->n_expert;
    case ASSAY_ROLE_ATTN_K:
    case ASSAY_ROLE_ATTN_V:
        return !hp->is_mla;
    case ASSAY_ROLE_ATTN_Q_BIAS:
    case ASSAY_ROLE_ATTN_K_BIAS:
    case ASSAY_ROLE_ATTN_V_BIAS:
    case ASSAY_ROLE_ATTN_OUTPUT_BIAS:
    case ASSAY_ROLE_FFN_GATE_BIAS:
    case ASSAY_ROLE_FFN_UP_BIAS:
    case ASSAY_ROLE_FFN_DOWN_BIAS:
        return !hp->is_mla && o->biases;
    case ASSAY_ROLE_ATTN_Q:
        return !hp->is_mla || !hp->n_rank_q;
    default: /* a nextn block is a layer like the last one, with an indexer of its own */
        if (nextn && hp->has_indexer && role >= ASSAY_ROLE_INDEX_Q_B &&
            role <= ASSAY_ROLE_INDEX_PROJ)
            return true;
        return arch->use(hp, role, nextn ? hp->n_layer - 1 : layer) == ASSAY_USE_NEEDED;
    }
}

/* The wanted type, or what the reference's quantizer takes where a row is no multiple of a block.
 */
static int fit_type(int wanted, int64_t row)
{
    static const struct {
        const char *wanted, *otherwise;
    } fallbacks[] = {
        {"q4_k", "q5_0"},    {"q5_k", "q5_1"},      {"q6_k", "q8_0"},      {"q2_k", "q4_0"},
        {"q3_k", "q4_0"},    {"tq1_0", "q4_0"},     {"tq2_0", "q4_0"},     {"q2_0", "q4_0"},
        {"iq1_s", "iq4_nl"}, {"iq1_m", "iq4_nl"},   {"iq2_xxs", "iq4_nl"}, {"iq2_xs", "iq4_nl"},
        {"iq2_s", "iq4_nl"}, {"iq3_xxs", "iq4_nl"}, {"iq3_s", "iq4_nl"},   {"iq4_xs", "iq4_nl"}};
    const assay_quant *quant = assay_quant_find(wanted);
    if (row % quant->block_elements == 0)
        return wanted;
    for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks && row % 32 == 0; i++)
        if (strcmp(fallbacks[i].wanted, quant->name) == 0)
            return assay_quant_by_name(fallbacks[i].otherwise)->number;
    return assay_quant_by_name("f16")->number;
}

static int type_of(const forge_tensor *t, int wanted)
{
    bool full = t->n_dims == 1 || t->role == ASSAY_ROLE_ROUTER || t->role == ASSAY_ROLE_INDEX_PROJ;
    return full ? assay_quant_by_name("f32")->number : fit_type(wanted, t->ne[0]);
}

static void make_tensor(forge_tensor *t, const assay_hparams *hp, assay_role role, int layer,
                        int type)
{
    int64_t dims[4];
    *t = (forge_tensor){
        .role = role, .layer = layer, .ne = {1, 1, 1, 1}, .wrong = FORGE_RIGHT, .of = NULL};
    assay_role_format(t->name, role, layer);
    t->n_dims = assay_role_dims(dims, hp, role);
    for (int d = 0; d < t->n_dims; d++)
        t->ne[d] = dims[t->n_dims - 1 - d];
    t->type = type_of(t, type);
    forge_set_scale(t, hp);
}

/* All tensors: globals that come first, layers, globals that come last. */
static int64_t list_tensors(forge_tensor *out, const assay_hparams *hp,
                            const assay_forge_options *o, int type)
{
    int64_t n = 0;
    for (int layer = -1; layer <= hp->n_layer + hp->n_layer_nextn; layer++) {
        bool last = layer == hp->n_layer + hp->n_layer_nextn;
        int at = last ? -1 : layer;
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
            assay_role role = (assay_role)r;
            bool is_first = role == ASSAY_ROLE_TOKEN_EMBD;
            if (at < 0 && is_first == last)
                continue;
            if (has_role(hp, o, role, at)) {
                if (out)
                    make_tensor(&out[n], hp, role, at, type);
                n++;
            }
        }
    }
    return n;
}

static int by_layer_and_name(const void *a, const void *b)
{
    const forge_tensor *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void exchange(forge_tensor *list, int64_t a, int64_t b)
{
    forge_tensor t = list[a];
    list[a] = list[b];
    list[b] = t;
}

static void arrange(forge_tensor *list, int64_t n, const assay_forge_options *o)
{
    uint64_t random = o->seed * 2862933555777941757u + 3037000493u;
    if (o->order == ASSAY_FORGE_SORTED)
        qsort(list, (size_t)n, sizeof *list, by_layer_and_name);
    else if (o->order == ASSAY_FORGE_REVERSED)
        for (int64_t i = 0; i < n / 2; i++)
            exchange(list, i, n - 1 - i);
    else if (o->order == ASSAY_FORGE_SHUFFLED)
        for (int64_t i = n - 1; i > 0; i--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            exchange(list, i, (int64_t)((random >> 33) % (uint64_t)(i + 1)));
        }
}

static forge_tensor *find_tensor(forge_tensor *list, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

/* The content that a copied tensor gets: its twin of the next layer, or of the layer before. */
static const char *twin_of(forge_tensor *list, int64_t n, const forge_tensor *t)
{
    char name[64];
    for (int step = 1; t->layer >= 0 && step >= -1; step -= 2) {
        forge_tensor *twin =
            find_tensor(list, n, assay_role_format(name, t->role, t->layer + step));
        if (twin && twin->type == t->type)
            return twin->name;
    }
    return NULL;
}

/* The file name is lost with a missing tensor; an unknown one only changes it. */
static assay_status spoil(forge_tensor *list, int64_t *n, char at[64], const assay_forge_options *o)
{
    forge_wrong wrong = forge_wrong_find(o->wrong);
    const char *name = o->wrong_at ? o->wrong_at : "blk.1.attn_output.weight";
    forge_tensor *t = find_tensor(list, *n, name);
    if (wrong == FORGE_RIGHT)
        return assay_fail(ASSAY_USAGE,
                          "no kind of wrong tensor is called '%s' (`assay help forge` has them)",
                          o->wrong);
    if (!t && !o->wrong_at)
        t = find_tensor(list, *n, "blk.0.attn_output.weight");
    if (!t)
        return assay_fail(ASSAY_USAGE, "the forged file has no tensor '%s'", name);
    t->wrong = wrong;
    snprintf(at, 64, "%s", t->name);
    if (wrong == FORGE_WRONG_COPIED) {
        t->of = twin_of(list, *n, t);
        if (!t->of)
            return assay_fail(ASSAY_USAGE, "tensor '%s' has no twin to be a copy of", t->name);
    } else if (wrong == FORGE_WRONG_MISSING) {
        memmove(t, t + 1, (size_t)(list + *n - t - 1) * sizeof *t);
        --*n;
    } else if (wrong == FORGE_WRONG_UNKNOWN) {
        snprintf(strrchr(t->name, '.'), 8, ".ghost");
        snprintf(at, 64, "%s", t->name);
    } else if (wrong == FORGE_WRONG_SHAPE) {
        t->ne[t->n_dims - 1]--;
    }
    return ASSAY_OK;
}

static assay_status check_type(int *number, const assay_forge_options *o)
{
    const assay_quant *quant = assay_quant_by_name(o->type ? o->type : "q8_0");
    if (!quant || !quant->decode)
        return assay_fail(ASSAY_USAGE,
                          "no type of weights is called '%s' (`assay list quants` has them)",
                          o->type);
    if (!quant->encode && !o->skeleton)
        return assay_fail(ASSAY_USAGE,
                          "type '%s' can be read and not written (a skeleton can have it)",
                          quant->name);
    *number = quant->number;
    return ASSAY_OK;
}

static assay_status write_all(assay_gguf_writer *w, const forge_tensor *list, int64_t n,
                              const assay_forge_options *o, assay_forge_progress_fn *done,
                              void *user)
{
    for (int64_t i = 0; i < n && !o->skeleton; i++) {
        ASSAY_TRY(forge_write_tensor(w, i, &list[i], o->seed));
        if (done)
            done(user, i + 1, n);
    }
    return ASSAY_OK;
}

/* The tensors as they come into the file. */
static assay_status plan(forge_tensor **out, int64_t *n, char wrong_at[64], const assay_hparams *hp,
                         const assay_forge_options *o)
{
    int type = 0;
    forge_tensor *list = NULL;
    ASSAY_TRY(check_type(&type, o));
    *n = list_tensors(NULL, hp, o, type);
    ASSAY_TRY(assay_alloc(&list, (size_t)*n, sizeof *list, "forged tensors"));
    list_tensors(list, hp, o, type);
    arrange(list, *n, o);
    assay_status s = o->wrong ? spoil(list, n, wrong_at, o) : ASSAY_OK;
    for (int64_t i = 0; i < *n; i++)
        if (!list[i].of)
            list[i].of = list[i].name;
    if (s == ASSAY_OK)
        *out = list;
    else
        free(list);
    return s;
}

assay_status assay_forge_model(assay_forge_result *out, const char *path,
                               const assay_forge_options *o, assay_forge_progress_fn *done,
                               void *user)
{
    assay_hparams hp;
    assay_gguf_writer *w = NULL;
    forge_tensor *list = NULL;
    assay_forge_result result = {0};
    assay_status s;
    ASSAY_TRY(assay_forge_hparams(&hp, o));
    ASSAY_TRY(plan(&list, &result.n_tensors, result.wrong_at, &hp, o));
    ASSAY_GO(assay_gguf_writer_new(&w));
    ASSAY_GO(forge_put_keys(w, assay_forge_shape_find(o->like), &hp, o->kv_b));
    for (int64_t i = 0; i < result.n_tensors; i++)
        ASSAY_GO(assay_gguf_put_tensor(w, list[i].name, list[i].type, list[i].n_dims, list[i].ne));
    ASSAY_GO(assay_gguf_writer_start(w, path, o->n_files > 1 ? o->n_files : 1));
    ASSAY_GO(write_all(w, list, result.n_tensors, o, done, user));
    snprintf(result.path, sizeof result.path, "%s", assay_gguf_writer_path(w));
    result.n_bytes = assay_gguf_writer_bytes(w);
    s = assay_gguf_writer_close(w);
    w = NULL;
    if (s == ASSAY_OK)
        *out = result;
out:
    assay_gguf_writer_free(w);
    free(list);
    return s;
}
