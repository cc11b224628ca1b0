/*
 * Which plants go into which runs. The list is fixed: no randomness but fixed strides, so that a
 * trial can be named and run again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites/campaign_private.h"

/* A sketch is of all rows of a step; those of other requests and of padding cannot be taken out. */
static bool is_sketched_alone(const assay_trial *t)
{
    bool alone = t->run.requests != ASSAY_REQUESTS_BATCH && t->run.pad_to == 0;
    for (int i = 0; i < t->n_plants; i++) {
        const assay_fault_kind *kind = assay_fault_kind_find(t->plants[i].kind, NULL);
        alone = alone && kind->run.requests != ASSAY_REQUESTS_BATCH && kind->run.pad_to == 0;
    }
    return alone;
}

static assay_status add(assay_campaign *c, const assay_trial *trial)
{
    if (c->options.tier && !is_sketched_alone(trial))
        return ASSAY_OK;
    if (c->n == c->room) {
        int room = c->room ? 2 * c->room : 256;
        assay_trial *list = realloc(c->trials, (size_t)room * sizeof *list);
        if (!list)
            return assay_fail(ASSAY_NO_MEMORY, "out of memory for %d trials", room);
        c->trials = list;
        c->room = room;
    }
    c->trials[c->n++] = *trial;
    return ASSAY_OK;
}

/* Layers in which the model has one of the kind's homes; -1 alone for global points. */
static int layers_of(int out[], int max, const assay_campaign_model *m,
                     const assay_fault_kind *kind, bool latent)
{
    const assay_hparams *hp = assay_model_hparams(m->model);
    int n = 0;
    int n_layers = hp->n_layer + (kind->run.draft ? hp->n_layer_nextn : 0);
    for (int layer = 0; layer < n_layers && n < max; layer++) {
        bool here = false;
        for (int p = 0; p < ASSAY_POINT_COUNT && !here; p++)
            here = assay_point_at((assay_point)p)->per_layer &&
                   assay_campaign_is_home(kind->home, (assay_point)p) &&
                   assay_oracle_has_point(m->oracle, (assay_point)p, layer, latent);
        /* these take something of layer 0: there it is the right one */
        bool from_zero =
            kind->seam == ASSAY_SEAM_WEIGHT_LAYER || kind->seam == ASSAY_SEAM_KV_READ_LAYER;
        if (here && kind->global) {
            out[0] = -1;
            return 1;
        }
        if (here && !(from_zero && layer == 0))
            out[n++] = layer;
    }
    for (int p = 0; p < ASSAY_POINT_COUNT && n == 0; p++)
        if (!assay_point_at((assay_point)p)->per_layer &&
            assay_campaign_is_home(kind->home, (assay_point)p))
            out[n++] = -1;
    return n;
}

static double strength(const assay_fault_kind *kind, int step)
{
    if (isnan(kind->weakest) || step % 3 == 0)
        return NAN;
    return step % 3 == 1 ? kind->weakest : kind->strongest;
}

static assay_plant plant_of(const assay_fault_kind *kind, int layer, double value)
{
    assay_plant p = {
        .layer = layer, .head = -1, .rank = -1, .step = -1, .sequence = -1, .value = value};
    snprintf(p.kind, sizeof p.kind, "%s", kind->name);
    if (kind->seam == ASSAY_SEAM_HEAD_GAIN)
        p.head = 1;
    return p;
}

static void vary(const assay_campaign *c, assay_trial *t, const assay_campaign_model *m, int step)
{
    t->path =
        assay_model_hparams(m->model)->is_mla && step % 2 ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED;
    t->dtype = step / 2 % 2 ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32;
    t->prompt = step % 3 == 2;
    t->chunk = 0;
    /* on a device: prefill, an eager step, one that is captured, two that are replayed */
    t->n_new = c->options.backend == ASSAY_BACKEND_CUDA ? 5 : 2;
}

/* The class is in the list of those asked for. */
static bool is_asked(const assay_campaign *c, int fault)
{
    const char *name = assay_fault_at(fault)->name, *list = c->options.classes;
    size_t n = strlen(name);
    for (const char *at = list; at && (at = strcasestr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return !list;
}

static assay_status plan_singles(assay_campaign *c, int model)
{
    assay_campaign_model *m = &c->models[model];
    const assay_hparams *hp = assay_model_hparams(m->model);
    int step = model;
    for (int f = 0; f < assay_fault_count(); f++)
        for (const assay_fault_kind *k = assay_fault_at(f)->kinds; k->name; k++) {
            int layers[ASSAY_MAX_LAYERS];
            bool on_device = c->options.backend == ASSAY_BACKEND_CUDA;
            if (!is_asked(c, f) || k->ranks || k->device != on_device ||
                !assay_fault_kind_fits(k, hp))
                continue;
            int per_layer = c->options.quick ? 1 : on_device ? 8 : 3;
            for (int i = 0; i < per_layer; i++) {
                assay_trial t = {.model = model, .n_plants = 1};
                vary(c, &t, m, step++);
                int n = layers_of(layers, ASSAY_MAX_LAYERS, m, k, t.path == ASSAY_PATH_LATENT);
                if (n == 0)
                    continue;
                int layer = layers[per_layer == 3 ? i * (n - 1) / 2 : step % n];
                t.plants[0] = plant_of(k, layer, strength(k, c->options.quick ? 0 : step));
                ASSAY_TRY(add(c, &t));
            }
        }
    return ASSAY_OK;
}

/* Two plants of different classes in different layers. */
static assay_status plan_pairs(assay_campaign *c, int model, int wanted)
{
    static const char *const kinds[] = {"phantom-output", "file-order",     "softmax-scale",
                                        "rope-base",      "shared-lost",    "routed-scale",
                                        "norm-eps",       "head-slices",    "kv-b-halves",
                                        "mask-shift",     "residual-twice", "rope-pairing"};
    enum { N = sizeof kinds / sizeof *kinds };
    assay_campaign_model *m = &c->models[model];
    const assay_hparams *hp = assay_model_hparams(m->model);
    for (int step = 0, made = 0; step < N * N && made < wanted; step++) {
        const assay_fault_kind *a = assay_fault_kind_find(kinds[step % N], NULL);
        const assay_fault_kind *b =
            assay_fault_kind_find(kinds[(step * 5 + step / N + 1) % N], NULL);
        int la[ASSAY_MAX_LAYERS], lb[ASSAY_MAX_LAYERS];
        assay_trial t = {.model = model, .n_plants = 2};
        vary(c, &t, m, step);
        if (a == b || !assay_fault_kind_fits(a, hp) || !assay_fault_kind_fits(b, hp))
            continue;
        int na = layers_of(la, ASSAY_MAX_LAYERS, m, a, t.path == ASSAY_PATH_LATENT);
        int nb = layers_of(lb, ASSAY_MAX_LAYERS, m, b, t.path == ASSAY_PATH_LATENT);
        if (na < 1 || nb < 1 || la[0] == lb[nb - 1])
            continue;
        t.plants[0] = plant_of(a, la[0], NAN);
        t.plants[1] = plant_of(b, lb[nb - 1], NAN);
        ASSAY_TRY(add(c, &t));
        made++;
    }
    return ASSAY_OK;
}

/* Healthy runs with the cache kept in every way, and requests beside and behind each other. */
static assay_status plan_served(assay_campaign *c, int model)
{
    static const assay_fault_run runs[] = {
        {.cache = ASSAY_CACHE_F16},
        {.pad_to = 16},
        {.page_size = 4, .requests = ASSAY_REQUESTS_PREFIX},
        {.requests = ASSAY_REQUESTS_BATCH},
        {.page_size = 16, .cache = ASSAY_CACHE_BF16, .key_split = 4},
        {.cache = ASSAY_CACHE_Q8_0, .pad_to = 8},
        {.page_size = 1, .cache = ASSAY_CACHE_F8E4M3, .key_split = 7},
        {.pad_to = 8, .page_size = 4, .requests = ASSAY_REQUESTS_BATCH},
        {.page_size = 8, .requests = ASSAY_REQUESTS_EVICTED},
        {.key_split = 3},
    };
    int n = (int)(sizeof runs / sizeof *runs), n_used = c->options.quick ? 4 : 2 * n;
    for (int i = 0; i < n_used; i++) {
        assay_trial t = {.model = model, .run = runs[i % n]};
        vary(c, &t, &c->models[model], i + model + (i >= n));
        t.chunk = i % 4 == 3 ? 5 : 0;
        ASSAY_TRY(add(c, &t));
    }
    return ASSAY_OK;
}

static assay_status plan_clean(assay_campaign *c, int model)
{
    static const int chunks[] = {0, 1, 3, 7};
    const assay_hparams *hp = assay_model_hparams(c->models[model].model);
    for (int path = 0; path < (hp->is_mla ? 2 : 1); path++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int prompt = 0; prompt < (c->options.quick ? 1 : 3); prompt++)
                for (int chunk = 0; chunk < (c->options.quick ? 2 : 4); chunk++) {
                    assay_trial t = {.model = model,
                                     .path = path ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                                     .dtype = dtype ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32,
                                     .prompt = prompt,
                                     .chunk = chunks[chunk * (c->options.quick ? 2 : 1)],
                                     .n_new = 2};
                    ASSAY_TRY(add(c, &t));
                    if (!c->options.quick && chunk == 0) { /* more decode steps */
                        t.n_new = 5;
                        ASSAY_TRY(add(c, &t));
                    }
                }
    return ASSAY_OK;
}

/* Forged models, one per block type: every path and format, chunks in turn. */
static assay_status plan_forged(assay_campaign *c, int model)
{
    static const int chunks[] = {0, 1, 3, 7, 2};
    for (int i = 0; i < 4; i++) {
        assay_trial t = {.model = model,
                         .path = i % 2 ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                         .dtype = i / 2 ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32,
                         .prompt = (model + i) % 2,
                         .chunk = chunks[(model + i) % 5],
                         .n_new = 2};
        if (t.path == ASSAY_PATH_LATENT && !assay_model_hparams(c->models[model].model)->is_mla)
            continue;
        ASSAY_TRY(add(c, &t));
    }
    return ASSAY_OK;
}

assay_status assay_campaign_plan(assay_campaign *campaign)
{
    for (int model = 0; model < campaign->options.n_models; model++) {
        ASSAY_TRY(plan_singles(campaign, model));
        if (campaign->options.backend != ASSAY_BACKEND_CUDA && !campaign->options.classes)
            ASSAY_TRY(plan_pairs(campaign, model, campaign->options.quick ? 6 : 24));
        if (!campaign->options.classes)
            ASSAY_TRY(plan_clean(campaign, model));
        ASSAY_TRY(plan_served(campaign, model));
    }
    for (int model = campaign->options.n_models;
         model < campaign->n_models && !campaign->options.classes; model++)
        ASSAY_TRY(plan_forged(campaign, model));
    return ASSAY_OK;
}
