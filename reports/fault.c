#include "reports/fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const assay_fault table[ASSAY_FAULT_COUNT] = {
#define X(id, name, file, definition, advice)                                                      \
    {name, definition, advice, assay_fault_kinds_##file, assay_fault_match_##file},
#include "reports/fault.def"
#undef X
};

int assay_fault_count(void)
{
    return ASSAY_FAULT_COUNT;
}

const assay_fault *assay_fault_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= ASSAY_FAULT_COUNT);
    return &table[index];
}

const assay_fault *assay_fault_find(const char *name)
{
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++)
        if (!strcasecmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const assay_fault_kind *assay_fault_kind_find(const char *name, int *fault)
{
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++)
        for (const assay_fault_kind *k = table[i].kinds; k->name; k++)
            if (!strcmp(k->name, name)) {
                if (fault)
                    *fault = i;
                return k;
            }
    return NULL;
}

/* Letters of `name` that stand in `kind` too, in their order, twice over the letters of both. */
static double likeness(const char *name, const char *kind)
{
    size_t n = strlen(name), k = strlen(kind), row[80] = {0};
    if (n + k == 0 || k >= sizeof row / sizeof *row)
        return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 1, corner = 0; j <= k; j++) {
            size_t above = row[j];
            row[j] = name[i] == kind[j - 1] ? corner + 1 : above > row[j - 1] ? above : row[j - 1];
            corner = above;
        }
    return 2.0 * (double)row[k] / (double)(n + k);
}

/* The three kinds whose names look most like it. */
static assay_status unknown_kind(const char *name)
{
    const char *best[3] = {NULL};
    double most[3] = {0};
    char list[200] = "";
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++)
        for (const assay_fault_kind *k = table[i].kinds; k->name; k++) {
            double x = likeness(name, k->name);
            int at = 3;
            while (at > 0 && x > most[at - 1])
                at--;
            for (int m = 2; m > at; m--) {
                best[m] = best[m - 1];
                most[m] = most[m - 1];
            }
            if (at < 3) {
                best[at] = k->name;
                most[at] = x;
            }
        }
    for (int i = 0; i < 3 && best[i] && most[i] > 0.5; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s %s",
                 i ? "," : "; nearest:", best[i]);
    return assay_fail(ASSAY_USAGE, "--plant: no kind '%.60s'%s; `assay list plants` has all", name,
                      list);
}

static assay_status set_option(assay_plant *plant, const char *key, size_t n_key, const char *value)
{
    static const char *const names[] = {"layer", "head", "rank", "step", "sequence"};
    int *const places[] = {&plant->layer, &plant->head, &plant->rank, &plant->step,
                           &plant->sequence};
    char *end;
    if (n_key == 5 && !strncmp(key, "value", 5)) {
        plant->value = strtod(value, &end);
        if (end == value || (*end && *end != ','))
            return assay_fail(ASSAY_USAGE, "--plant: value '%s' is no number", value);
        return ASSAY_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n_key && !strncmp(key, names[i], n_key)) {
            long number = strtol(value, &end, 10);
            if (end == value || (*end && *end != ',') || number < -1 || number > 1000000)
                return assay_fail(ASSAY_USAGE, "--plant: %s '%s' is no index", names[i], value);
            *places[i] = (int)number;
            return ASSAY_OK;
        }
    return assay_fail(
        ASSAY_USAGE, "--plant: unknown selector '%.*s'; known: layer head rank step sequence value",
        (int)n_key, key);
}

assay_status assay_plant_parse(assay_plant *out, const char *text)
{
    assay_plant plant = {"", -1, -1, -1, -1, -1, NAN};
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n == 0 || n >= sizeof plant.kind)
        return unknown_kind(text);
    memcpy(plant.kind, text, n);
    if (!assay_fault_kind_find(plant.kind, NULL))
        return unknown_kind(plant.kind);
    for (const char *at = colon ? colon + 1 : NULL; at && *at;) {
        const char *equals = strchr(at, '='), *comma = strchr(at, ',');
        if (!equals || (comma && comma < equals))
            return assay_fail(ASSAY_USAGE, "--plant: '%s' is no selector=value", at);
        ASSAY_TRY(set_option(&plant, at, (size_t)(equals - at), equals + 1));
        at = comma ? comma + 1 : NULL;
    }
    *out = plant;
    return ASSAY_OK;
}

bool assay_fault_kind_fits(const assay_fault_kind *kind, const assay_hparams *h)
{
    bool moe = h->n_expert > 0 && h->n_layer_dense < h->n_layer;
    switch (kind->needs) {
    case ASSAY_NEEDS_NOTHING:
        return true;
    case ASSAY_NEEDS_MLA:
        return h->is_mla;
    case ASSAY_NEEDS_RANK_Q:
        return h->is_mla && h->n_rank_q > 0;
    case ASSAY_NEEDS_MOE:
        return moe;
    case ASSAY_NEEDS_SHARED_EXPERT:
        return moe && h->n_expert_shared > 0;
    case ASSAY_NEEDS_GROUPS:
        return moe && h->n_group > 1;
    case ASSAY_NEEDS_ROUTER_BIAS:
        return moe && h->gating == ASSAY_GATING_SIGMOID;
    case ASSAY_NEEDS_SOFTMAX_GATE:
        return moe && h->gating == ASSAY_GATING_SOFTMAX;
    case ASSAY_NEEDS_WEIGHTS_NORM:
        return moe && h->weights_norm;
    case ASSAY_NEEDS_NEXTN:
        return h->n_layer_nextn > 0;
    case ASSAY_NEEDS_GQA:
        return !h->is_mla && h->n_head_kv < h->n_head;
    case ASSAY_NEEDS_INDEXER:
        return h->has_indexer;
    case ASSAY_NEEDS_DENSE:
        return !moe || h->n_layer_dense > 0;
    case ASSAY_NEEDS_EXTENSION:
        return h->rope_factor != 1;
    }
    return false;
}

assay_status assay_plant_on(const assay_plant *plant, bool is_device)
{
    const assay_fault_kind *kind = assay_fault_kind_find(plant->kind, NULL);
    if (!kind)
        return ASSAY_OK;
    if (kind->device && !is_device)
        return assay_fail(ASSAY_USAGE, "--plant %s: only a device has it (--backend cuda)",
                          plant->kind);
    assay_seam seam = assay_seam_is_on(kind->seam, is_device) && kind->also.is_there
                          ? kind->also.seam
                          : kind->seam;
    if (!assay_seam_is_on(seam, is_device))
        return assay_fail(ASSAY_USAGE, "--plant %s: a device has no seam %s (--backend cpu)",
                          plant->kind, assay_seam_name(seam));
    return ASSAY_OK;
}

assay_status assay_plant_make(assay_seam_setting *settings, int *n, int max,
                              const assay_plant *plant, const assay_hparams *hparams)
{
    const assay_fault_kind *kind = assay_fault_kind_find(plant->kind, NULL);
    if (!kind)
        return unknown_kind(plant->kind);
    if (!assay_fault_kind_fits(kind, hparams))
        return assay_fail(ASSAY_USAGE, "--plant %s: %s has no such op", plant->kind,
                          hparams->architecture);
    if (plant->layer >= hparams->n_layer + (kind->run.draft ? hparams->n_layer_nextn : 0))
        return assay_fail(ASSAY_USAGE, "--plant %s: layer %d, but the model has %d", plant->kind,
                          plant->layer, hparams->n_layer);
    if (plant->head >= hparams->n_head)
        return assay_fail(ASSAY_USAGE, "--plant %s: head %d, but the model has %d", plant->kind,
                          plant->head, hparams->n_head);
    bool also = kind->also.is_there;
    if (*n + also >= max)
        return assay_fail(ASSAY_USAGE, "--plant: more than %d settings", max);
    int layer = kind->global ? -1 : plant->layer;
    assay_seam_setting *s = &settings[*n];
    *s = (assay_seam_setting){.seam = kind->seam,
                              .layer = layer,
                              .head = plant->head,
                              .rank = plant->rank,
                              .step = plant->step,
                              .sequence = plant->sequence,
                              .value = isnan(plant->value) ? kind->value : plant->value,
                              .n_ints = kind->n_ints};
    memcpy(s->ints, kind->ints, (size_t)kind->n_ints * sizeof *s->ints);
    (*n)++;
    if (!also)
        return ASSAY_OK;
    settings[*n] = *s;
    s = &settings[(*n)++];
    s->seam = kind->also.seam;
    s->layer = kind->also.any_layer ? -1 : layer;
    s->value = kind->also.value;
    s->n_ints = kind->also.n_ints;
    memcpy(s->ints, kind->also.ints, sizeof kind->also.ints);
    return ASSAY_OK;
}

void assay_plant_shape(assay_engine_options *options, const assay_plant *plants, int n)
{
    for (int i = 0; i < n; i++) {
        const assay_fault_kind *kind = assay_fault_kind_find(plants[i].kind, NULL);
        if (!kind)
            continue;
        const assay_fault_run *run = &kind->run;
        options->page_size = options->page_size ? options->page_size : run->page_size;
        options->key_split = options->key_split ? options->key_split : run->key_split;
        options->pad_to = options->pad_to ? options->pad_to : run->pad_to;
        options->cache_type =
            options->cache_type != ASSAY_CACHE_F32 ? options->cache_type : run->cache;
        options->draft = options->draft || run->draft;
        options->reuse_prefixes = options->reuse_prefixes || run->requests != ASSAY_REQUESTS_ONE;
    }
}
