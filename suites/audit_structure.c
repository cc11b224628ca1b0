/*
 * Names and shapes of all tensors against the architecture (roles of engine/role.def).
 */
#include <stdio.h>
#include <string.h>

#include "engine/arch.h"
#include "suites/audit.h"
#include "suites/audit_role.h"

static void shape_text(char out[96], const int64_t *dims, int n)
{
    size_t at = 0;
    at += (size_t)snprintf(out + at, 96 - at, "[");
    for (int d = 0; d < n; d++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%lld", d ? ", " : "", (long long)dims[d]);
    snprintf(out + at, 96 - at, "]");
}

static assay_status check_shape(assay_audit *audit, const assay_gguf_tensor_info *t,
                                const assay_hparams *hp, assay_role role)
{
    int64_t want[4], found[4];
    char want_text[96], found_text[96];
    int n = assay_role_dims(want, hp, role);
    if (audit_has_shape(t, hp, role))
        return ASSAY_OK;
    int n_found = t->n_dims > 0 ? t->n_dims : 1;
    for (int d = 0; d < n_found; d++)
        found[d] = t->ne[n_found - 1 - d];
    shape_text(want_text, want, n);
    shape_text(found_text, found, n_found);
    return assay_audit_add(audit, ASSAY_AUDIT_SHAPE, t->name, -1, 1, 1,
                           "'%s' has shape %s, expected %s (%s)", t->name, found_text, want_text,
                           assay_role_at(role)->shape);
}

static assay_status check_tensor(assay_audit *audit, const assay_gguf_tensor_info *t,
                                 const assay_hparams *hp, const assay_arch *arch)
{
    assay_role role;
    int layer;
    if (!audit_resolve(&role, &layer, t->name))
        return assay_audit_add(audit, ASSAY_AUDIT_UNKNOWN, t->name, -1, 1, 1,
                               "'%s' is a tensor that no architecture knows", t->name);
    if (layer >= hp->n_layer + hp->n_layer_nextn)
        return assay_audit_add(audit, ASSAY_AUDIT_UNKNOWN, t->name, -1, 1, 1,
                               "'%s' is of layer %d, and the file has %d layers", t->name, layer,
                               hp->n_layer + hp->n_layer_nextn);
    assay_use use = arch->use(hp, role, layer);
    if (use == ASSAY_USE_NONE)
        return assay_audit_add(audit, ASSAY_AUDIT_UNKNOWN, t->name, -1, 1, 1,
                               "'%s' has no place in this layer of architecture %s", t->name,
                               hp->architecture);
    audit->n_aside += use == ASSAY_USE_ASIDE;
    return check_shape(audit, t, hp, role);
}

static bool is_there(const assay_gguf *file, assay_role role, int layer)
{
    char name[64];
    return assay_gguf_find_tensor(file, assay_role_format(name, role, layer)) != NULL;
}

static assay_status missing(assay_audit *audit, assay_role role, int layer, const char *instead)
{
    char name[64];
    assay_role_format(name, role, layer);
    return assay_audit_add(audit, ASSAY_AUDIT_MISSING, name, -1, 1, 1, "'%s' is missing%s%s", name,
                           instead ? ", and so is " : "", instead ? instead : "");
}

/* Tensors that stand for each other: one, or both of the other pair. */
static assay_status check_choices(assay_audit *audit, const assay_gguf *file,
                                  const assay_hparams *hp, int layer)
{
    static const struct {
        assay_role whole;
        assay_role parts[3];
        int n_parts;
        const char *whole_name;
        bool is_mla, needs_experts;
    } choices[] = {
        {ASSAY_ROLE_ATTN_KV_B,
         {ASSAY_ROLE_ATTN_K_B, ASSAY_ROLE_ATTN_V_B},
         2,
         "attn_kv_b",
         true,
         false},
        {ASSAY_ROLE_GATE_UP_EXPS,
         {ASSAY_ROLE_GATE_EXPS, ASSAY_ROLE_UP_EXPS},
         2,
         "ffn_gate_up_exps",
         true,
         true},
        {ASSAY_ROLE_ATTN_QKV,
         {ASSAY_ROLE_ATTN_Q, ASSAY_ROLE_ATTN_K, ASSAY_ROLE_ATTN_V},
         3,
         "attn_qkv",
         false,
         false},
    };
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
        bool applies = choices[c].is_mla == hp->is_mla &&
                       (!choices[c].needs_experts || layer >= hp->n_layer_dense);
        if (!applies || is_there(file, choices[c].whole, layer))
            continue;
        for (int p = 0; p < choices[c].n_parts; p++)
            if (!is_there(file, choices[c].parts[p], layer))
                ASSAY_TRY(missing(audit, choices[c].parts[p], layer, choices[c].whole_name));
    }
    return ASSAY_OK;
}

static assay_status check_layer(assay_audit *audit, const assay_gguf *file, const assay_hparams *hp,
                                const assay_arch *arch, int layer)
{
    for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
        assay_role role = (assay_role)r;
        if (assay_role_at(role)->per_layer == (layer >= 0) &&
            arch->use(hp, role, layer) == ASSAY_USE_NEEDED && !is_there(file, role, layer))
            ASSAY_TRY(missing(audit, role, layer, NULL));
    }
    return layer < 0 ? ASSAY_OK : check_choices(audit, file, hp, layer);
}

static bool lies_before(const assay_gguf_tensor_info *a, const assay_gguf_tensor_info *b)
{
    return a->file < b->file || (a->file == b->file && a->offset < b->offset);
}

/*
 * Parts that engines merge into one projection, in their order. A file may hold them in any order
 * (sorted names put kv_a before q_a), and is right; a loader that merges in file order is not.
 */
static assay_status note_order(assay_audit *audit, const assay_gguf *file, const assay_hparams *hp)
{
    static const assay_role parts[][2] = {{ASSAY_ROLE_ATTN_Q_A, ASSAY_ROLE_ATTN_KV_A},
                                          {ASSAY_ROLE_FFN_GATE, ASSAY_ROLE_FFN_UP},
                                          {ASSAY_ROLE_GATE_SHEXP, ASSAY_ROLE_UP_SHEXP},
                                          {ASSAY_ROLE_INDEX_K, ASSAY_ROLE_INDEX_PROJ}};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        char first[64], second[64];
        int n = 0, example = -1;
        for (int layer = 0; layer < hp->n_layer + hp->n_layer_nextn; layer++) {
            const assay_gguf_tensor_info *a =
                assay_gguf_find_tensor(file, assay_role_format(first, parts[p][0], layer));
            const assay_gguf_tensor_info *b =
                assay_gguf_find_tensor(file, assay_role_format(second, parts[p][1], layer));
            if (a && b && lies_before(b, a) && n++ == 0)
                example = layer;
        }
        if (n > 0)
            ASSAY_TRY(assay_strings_add(
                &audit->notes,
                "'%s' lies before '%s' in %d layer%s from %d on: right, but an engine that merges "
                "them in file order exchanges them (FUSED-ORDER)",
                assay_role_at(parts[p][1])->name, assay_role_at(parts[p][0])->name, n,
                n == 1 ? "" : "s", example));
    }
    return ASSAY_OK;
}

assay_status assay_audit_structure(assay_audit *audit, const assay_gguf *file)
{
    assay_hparams hp;
    ASSAY_TRY(assay_hparams_read(&hp, file));
    const assay_arch *arch = assay_arch_find(hp.architecture);
    audit->n_tensors = assay_gguf_n_tensors(file);
    for (int64_t i = 0; i < audit->n_tensors; i++)
        ASSAY_TRY(check_tensor(audit, assay_gguf_tensor_at(file, i), &hp, arch));
    for (int layer = -1; layer < hp.n_layer; layer++)
        ASSAY_TRY(check_layer(audit, file, &hp, arch, layer));
    ASSAY_TRY(note_order(audit, file, &hp));
    if (audit->n_aside > 0)
        ASSAY_TRY(assay_strings_add(&audit->notes, "%lld tensors are known and set aside",
                                    (long long)audit->n_aside));
    if (!is_there(file, ASSAY_ROLE_OUTPUT, -1))
        ASSAY_TRY(assay_strings_add(&audit->notes,
                                    "output.weight is absent: the head is token_embd.weight"));
    return ASSAY_OK;
}
