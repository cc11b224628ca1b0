#include "references/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/arch.h"
#include "engine/hparams.h"
#include "references/checkpoint_source.h"

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_BF16 = 30 }; /* numbers of GGUF tensor types */

typedef struct entry {
    assay_role role;
    int layer;
    source_plan plan;
    const assay_gguf_tensor_info *info;
} entry;

struct assay_checkpoint {
    char *folder, *config;
    assay_safetensors *set;
    assay_hparams hp;
    assay_gguf *file;
    entry *entries; /* in the order of the file's tensors, then by address of their info */
    int n, room;
};

bool assay_checkpoint_is(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether the queries' projection is one matrix: what the reader of keys looks at the tensors for.
 */
static bool has_plain_q(const assay_safetensors *set)
{
    static const char tail[] = "layers.0.self_attn.q_proj.weight";
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set); i++) {
        const char *name = assay_safetensors_at(set, i)->name;
        size_t n = strlen(name);
        if (n >= sizeof tail - 1 && !strcmp(name + n - (sizeof tail - 1), tail))
            return true;
    }
    return false;
}

/* The format that holds the decoded rows exactly: float8 times its scale, and parts in several
 * formats, are float32. */
static int type_of(const source_plan *p)
{
    assay_safetensors_dtype dtype = p->matrices[0].tensor->dtype;
    for (int i = 0; i < p->n_matrices; i++)
        if (p->matrices[i].scale || p->matrices[i].tensor->dtype != dtype)
            return TYPE_F32;
    return dtype == ASSAY_SAFETENSORS_BF16  ? TYPE_BF16
           : dtype == ASSAY_SAFETENSORS_F16 ? TYPE_F16
                                            : TYPE_F32;
}

/* A GGUF header in a file of no name: keys, and the entries' tensors. */
static assay_status make_header(assay_gguf **out, const assay_checkpoint *c)
{
    static const char name[] = "/model.gguf";
    const char *tmp = getenv("TMPDIR");
    char folder[4096], path[4096 + sizeof name];
    assay_gguf_writer *w = NULL;
    assay_gguf *file = NULL;
    assay_status s;
    if (snprintf(folder, sizeof folder, "%s/assay-header-XXXXXX", tmp ? tmp : P_tmpdir) >=
            (int)sizeof folder ||
        !mkdtemp(folder))
        return assay_fail(ASSAY_IO, "no folder in '%s' for the header of '%s': %s",
                          tmp ? tmp : P_tmpdir, c->folder, strerror(errno));
    snprintf(path, sizeof path, "%s%s", folder, name);
    ASSAY_GO(assay_gguf_writer_new(&w));
    ASSAY_GO(assay_checkpoint_put_keys(w, c->config));
    if (c->n == 0 && has_plain_q(c->set)) /* not laid out yet */
        ASSAY_GO(assay_gguf_put_tensor(w, "blk.0.attn_q.weight", TYPE_F32, 1, (int64_t[]){1}));
    for (int i = 0; i < c->n; i++) {
        const entry *e = &c->entries[i];
        int64_t dims[4], ne[4] = {1, 1, 1, 1};
        char full[64];
        int n = assay_role_dims(dims, &c->hp, e->role);
        for (int d = 0; d < n; d++)
            ne[d] = dims[n - 1 - d];
        ASSAY_GO(assay_gguf_put_tensor(w, assay_role_format(full, e->role, e->layer),
                                       type_of(&e->plan), n, ne));
    }
    ASSAY_GO(assay_gguf_writer_start(w, path, 1));
    s = assay_gguf_writer_close(w);
    w = NULL;
    if (s == ASSAY_OK)
        s = assay_gguf_open(&file, path);
    if (s == ASSAY_OK)
        s = assay_gguf_call(file, c->folder);
out:
    assay_gguf_writer_free(w);
    unlink(path); /* stays mapped */
    rmdir(folder);
    if (s == ASSAY_OK)
        *out = file;
    else
        assay_gguf_close(file);
    return s;
}

/* kv_b is taken as it lies, not in halves; experts apart, not merged. */
static bool is_taken(assay_use use, assay_role role)
{
    if (role == ASSAY_ROLE_ATTN_K_B || role == ASSAY_ROLE_ATTN_V_B ||
        role == ASSAY_ROLE_GATE_UP_EXPS || role == ASSAY_ROLE_ATTN_QKV ||
        role == ASSAY_ROLE_ROPE_FREQS || role == ASSAY_ROLE_ATTN_QKV_BIAS)
        return false;
    return use == ASSAY_USE_NEEDED || use == ASSAY_USE_OPTIONAL;
}

static bool is_optional(assay_use use, assay_role role)
{
    return use == ASSAY_USE_OPTIONAL && role != ASSAY_ROLE_ATTN_KV_B &&
           role != ASSAY_ROLE_GATE_EXPS && role != ASSAY_ROLE_UP_EXPS &&
           role != ASSAY_ROLE_ATTN_Q && role != ASSAY_ROLE_ATTN_K && role != ASSAY_ROLE_ATTN_V;
}

static assay_status add(assay_checkpoint *c, const assay_arch *arch, assay_role role, int layer)
{
    assay_use use = arch->use(&c->hp, role, layer);
    if (!is_taken(use, role) ||
        (role == ASSAY_ROLE_OUTPUT && !assay_safetensors_find(c->set, "lm_head.weight")))
        return ASSAY_OK;
    if (c->n == c->room) {
        c->room = 2 * c->room + 64;
        entry *more = realloc(c->entries, (size_t)c->room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for %d tensors", c->room);
        c->entries = more;
    }
    entry *e = &c->entries[c->n];
    *e = (entry){.role = role, .layer = layer};
    assay_status s = source_plan_make(&e->plan, c->set, &c->hp, role, layer);
    if (s == ASSAY_MISSING && is_optional(use, role))
        return ASSAY_OK;
    if (s != ASSAY_OK)
        return assay_within(s, "'%s'", c->folder);
    c->n++;
    return ASSAY_OK;
}

static assay_status add_all(assay_checkpoint *c)
{
    const assay_arch *arch = assay_arch_find(c->hp.architecture);
    for (int layer = -1; layer < c->hp.n_layer; layer++)
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++)
            if (assay_role_at((assay_role)r)->per_layer == (layer >= 0))
                ASSAY_TRY(add(c, arch, (assay_role)r, layer));
    return ASSAY_OK;
}

static int by_info(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return ((uintptr_t)x->info > (uintptr_t)y->info) - ((uintptr_t)x->info < (uintptr_t)y->info);
}

static assay_status open_parts(assay_checkpoint *c)
{
    assay_gguf *keys;
    ASSAY_TRY(assay_safetensors_open(&c->set, c->folder));
    ASSAY_TRY(make_header(&keys, c)); /* no tensors yet: their shapes are the keys' */
    assay_status s = assay_hparams_read(&c->hp, keys);
    assay_gguf_close(keys);
    if (s != ASSAY_OK)
        return assay_within(s, "'%s'", c->config);
    ASSAY_TRY(add_all(c));
    ASSAY_TRY(make_header(&c->file, c));
    for (int i = 0; i < c->n; i++)
        c->entries[i].info = assay_gguf_tensor_at(c->file, i);
    qsort(c->entries, (size_t)c->n, sizeof *c->entries, by_info);
    return ASSAY_OK;
}

assay_status assay_checkpoint_open(assay_checkpoint **out, const char *folder)
{
    assay_checkpoint *c;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "checkpoint"));
    c->folder = strdup(folder);
    if (!c->folder || asprintf(&c->config, "%s/config.json", folder) < 0) {
        c->config = NULL;
        assay_checkpoint_close(c);
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", folder);
    }
    assay_status s = open_parts(c);
    if (s != ASSAY_OK) {
        assay_checkpoint_close(c);
        return s;
    }
    *out = c;
    return ASSAY_OK;
}

void assay_checkpoint_close(assay_checkpoint *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        source_plan_clear(&c->entries[i].plan);
    assay_gguf_close(c->file);
    assay_safetensors_close(c->set);
    free(c->entries);
    free(c->config);
    free(c->folder);
    free(c);
}

const assay_gguf *assay_checkpoint_file(const assay_checkpoint *c)
{
    return c->file;
}

static assay_status fetch(float *out, void *user, const assay_gguf_tensor_info *tensor, int64_t row,
                          int64_t n)
{
    const assay_checkpoint *c = user;
    entry key = {.info = tensor};
    const entry *e = bsearch(&key, c->entries, (size_t)c->n, sizeof key, by_info);
    ASSAY_BUG_IF(!e);
    const source_plan *p = &e->plan;
    bool is_vector = tensor->n_dims == 1; /* its entries are the plan's rows */
    int64_t count = is_vector ? tensor->ne[0] : n, first = is_vector ? 0 : row;
    ASSAY_BUG_IF(first + count > p->rows);
    for (int64_t i = 0; i < count; i++)
        ASSAY_TRY(source_row(out + i * p->width, p, first + i));
    return ASSAY_OK;
}

assay_status assay_checkpoint_oracle(assay_oracle **out, assay_checkpoint *c,
                                     int64_t weight_bytes_max)
{
    ASSAY_TRY(assay_oracle_open(out, c->file, weight_bytes_max));
    assay_oracle_take_rows(*out, fetch, c);
    return ASSAY_OK;
}

assay_status assay_judge_model_open(assay_judge_model *out, const char *path,
                                    int64_t weight_bytes_max)
{
    assay_judge_model m = {0};
    assay_status s;
    if (assay_checkpoint_is(path)) {
        ASSAY_GO(assay_checkpoint_open(&m.checkpoint, path));
        m.file = assay_checkpoint_file(m.checkpoint);
        s = assay_checkpoint_oracle(&m.oracle, m.checkpoint, weight_bytes_max);
    } else {
        ASSAY_GO(assay_gguf_open(&m.own, path));
        m.file = m.own;
        s = assay_oracle_open(&m.oracle, m.own, weight_bytes_max);
    }
out:
    if (s == ASSAY_OK)
        *out = m;
    else
        assay_judge_model_close(&m);
    return s;
}

void assay_judge_model_close(assay_judge_model *m)
{
    assay_oracle_close(m->oracle);
    assay_checkpoint_close(m->checkpoint);
    assay_gguf_close(m->own);
    *m = (assay_judge_model){0};
}
