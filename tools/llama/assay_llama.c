#include "tools/llama/assay_llama.h"

#include <ctype.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SLOTS 32768 /* names of one graph, open addressing */
#define NAME_BYTES 80

/* Nodes that have a point, and the names that rows ask for ("!kv_cmpr-{}#0 q-{}#2"). */
#define NODES_HF(...)
#define NODES_HF_MLA(...)
#define NODES_HF_PLAIN(...)
#define NODES_VLLM(...)
#define NODES_GGML(...) {__VA_ARGS__},
#define N(family, name, point, axes, take, order, hand_over, when) NODES_##family(name, when)
#define S(family, name, reason)
static const struct {
    const char *name, *when;
} kept[] = {
#include "references/names.def"
};
#undef N
#undef S

typedef struct use {
    char name[GGML_MAX_NAME];
    int n;
} use;

struct assay_llama {
    assay_session *session;
    use *uses; /* N_SLOTS: how often each name came in this step */
    int n_uses;
    const struct ggml_tensor *wanted; /* asked for, not shown yet */
    char name[NAME_BYTES];
    void *copy;
    size_t copy_bytes;
    int status;
};

int assay_llama_open(assay_llama **out, const char *path, const assay_session_options *options)
{
    assay_session_options o = options ? *options : assay_session_options_default();
    assay_llama *a = calloc(1, sizeof *a);
    use *uses = calloc(N_SLOTS, sizeof *uses);
    int status = 128;
    o.producer = o.producer ? o.producer : "llama.cpp";
    o.naming = ASSAY_NAMING_OWN;
    if (a && uses)
        status = assay_session_open(&a->session, path, &o);
    if (status) {
        free(a);
        free(uses);
        return status;
    }
    a->uses = uses;
    *out = a;
    return 0;
}

int assay_llama_begin(assay_llama *a, int phase, int64_t first_position, const int32_t *tokens,
                      int64_t n_tokens)
{
    memset(a->uses, 0, N_SLOTS * sizeof *a->uses);
    a->n_uses = 0;
    a->wanted = NULL;
    if (!a->status)
        a->status = assay_session_step(a->session, phase, first_position, tokens, n_tokens);
    return a->status;
}

/* How often the name came before in this step; -1: too many names. */
static int count(assay_llama *a, const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    for (;; h++) {
        use *u = &a->uses[h % N_SLOTS];
        if (!u->n && a->n_uses >= N_SLOTS / 2)
            return -1;
        if (!u->n) {
            snprintf(u->name, sizeof u->name, "%s", name);
            a->n_uses++;
        }
        if (!strcmp(u->name, name))
            return u->n++;
    }
}

/* {} in the pattern, of n bytes, stands for a layer's number. */
static bool matches(const char *pattern, size_t n, const char *name)
{
    size_t head = 0;
    while (head < n && strncmp(pattern + head, "{}", 2))
        head++;
    if (strncmp(pattern, name, head))
        return false;
    if (head == n)
        return !name[n];
    const char *rest = name + head + strspn(name + head, "0123456789");
    size_t tail = n - head - 2;
    return isdigit((unsigned char)name[head]) && strlen(rest) == tail &&
           !strncmp(rest, pattern + head + 2, tail);
}

static bool is_kept(const char *name)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (matches(kept[i].name, strlen(kept[i].name), name))
            return true;
        for (const char *p = kept[i].when; *p; p += strspn(p, " !")) {
            size_t n = strcspn(p, " ");
            bool negated = *p == '!';
            if (n > negated && matches(p + negated, n - negated, name))
                return true;
            p += n;
        }
    }
    return false;
}

/* 0: a format that captures do not have. */
static int type_of(const struct ggml_tensor *t)
{
    switch (t->type) {
    case GGML_TYPE_F32:
        return ASSAY_TYPE_F32;
    case GGML_TYPE_F16:
        return ASSAY_TYPE_F16;
    case GGML_TYPE_BF16:
        return ASSAY_TYPE_BF16;
    case GGML_TYPE_I32:
        return ASSAY_TYPE_I32;
    default:
        return 0;
    }
}

/* The node's memory on the host, strides as they are. */
static const void *on_host(assay_llama *a, struct ggml_tensor *t)
{
    size_t n = ggml_nbytes(t);
    if (!t->buffer || ggml_backend_buffer_is_host(t->buffer))
        return t->data;
    if (n > a->copy_bytes) {
        void *more = realloc(a->copy, n);
        if (!more)
            return NULL;
        a->copy = more;
        a->copy_bytes = n;
    }
    ggml_backend_tensor_get(t, a->copy, 0, n);
    return a->copy;
}

static int show(assay_llama *a, struct ggml_tensor *node)
{
    assay_tensor t = assay_tensor_default();
    size_t each = ggml_type_size(node->type);
    t.name = a->name;
    t.data = on_host(a, node);
    t.type = type_of(node);
    t.n_dims = GGML_MAX_DIMS;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        t.dims[d] = node->ne[GGML_MAX_DIMS - 1 - d];
        t.strides[d] = (int64_t)(node->nb[GGML_MAX_DIMS - 1 - d] / each);
        if (t.dims[d] < 1)
            return 0;
    }
    return assay_session_show(a->session, &t);
}

bool assay_llama_eval(struct ggml_tensor *node, bool ask, void *user)
{
    assay_llama *a = user;
    if (!ask) {
        if (node == a->wanted && !a->status)
            a->status = show(a, node);
        a->wanted = NULL;
        return true; /* false would end the evaluation */
    }
    int k = count(a, node->name);
    if (a->status || k < 0 || !type_of(node))
        return false;
    snprintf(a->name, sizeof a->name, "%s#%d", node->name, k);
    if (strlen(a->name) >= 64 || !is_kept(a->name) || !assay_session_wants(a->session, a->name))
        return false;
    a->wanted = node;
    return true;
}

static void release(assay_llama *a)
{
    free(a->uses);
    free(a->copy);
    free(a);
}

int assay_llama_close(assay_llama *a)
{
    int status = a->status;
    if (status)
        assay_session_abandon(a->session);
    else
        status = assay_session_close(a->session);
    release(a);
    return status;
}

void assay_llama_abandon(assay_llama *a)
{
    if (!a)
        return;
    assay_session_abandon(a->session);
    release(a);
}
