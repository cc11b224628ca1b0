/*
 * The models of a campaign: those that were given, and for healthy runs one forged model of the
 * same kind in every type that can be encoded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/quant.h"
#include "suites/campaign_private.h"
#include "suites/forge_model.h"

static assay_status open_model(assay_campaign *c, const char *path, const char *name)
{
    assay_campaign_model *m = &c->models[c->n_models++];
    m->name = strdup(name);
    if (!m->name)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the name of a model");
    ASSAY_TRY(assay_model_open(&m->model, path, NULL));
    return assay_oracle_open(&m->oracle, assay_model_gguf(m->model), 0);
}

/* The small known model that has the given one's kind of layers; NULL: none. */
static const assay_forge_shape *like(const assay_hparams *hp)
{
    for (int i = 0; i < assay_forge_shape_count(); i++) {
        const assay_forge_shape *s = assay_forge_shape_at(i);
        if (strstr(s->name, "-tiny") && !strcmp(s->architecture, hp->architecture) &&
            (s->n_rank_q > 0) == (hp->n_rank_q > 0))
            return s;
    }
    return NULL;
}

/* The file is mapped, and gone as soon as it is open: nothing is left behind. */
static assay_status open_forged(assay_campaign *c, const assay_forge_shape *shape,
                                const assay_quant *type)
{
    const char *folder = getenv("TMPDIR");
    char path[256], name[96];
    assay_forge_result made;
    assay_forge_options options = {
        .like = shape->name, .type = type->name, .n_layer = 2, .n_vocab = 512};
    snprintf(path, sizeof path, "%s/assay-campaign-%ld.gguf", folder ? folder : "/tmp",
             (long)getpid());
    snprintf(name, sizeof name, "%s forged in %s", shape->name, type->name);
    assay_status s = assay_forge_model(&made, path, &options, NULL, NULL);
    if (s == ASSAY_OK)
        s = open_model(c, path, name);
    unlink(path);
    return s;
}

assay_status assay_campaign_open_models(assay_campaign *campaign)
{
    assay_campaign *c = campaign;
    const assay_campaign_options *o = &c->options;
    int n_types = o->quick || o->classes ? 0 : assay_quant_count();
    ASSAY_TRY(assay_alloc(&c->models, (size_t)(o->n_models * (1 + n_types)), sizeof *c->models,
                          "models"));
    for (int i = 0; i < o->n_models; i++)
        ASSAY_TRY(open_model(c, o->models[i], o->models[i]));
    for (int i = 0; i < o->n_models; i++) {
        const assay_forge_shape *shape = like(assay_model_hparams(c->models[i].model));
        for (int type = 0; shape && type < n_types; type++)
            if (assay_quant_at(type)->encode)
                ASSAY_TRY(open_forged(c, shape, assay_quant_at(type)));
    }
    return ASSAY_OK;
}

void assay_campaign_close_models(assay_campaign *campaign)
{
    for (int i = 0; i < campaign->n_models; i++) {
        assay_oracle_close(campaign->models[i].oracle);
        assay_model_close(campaign->models[i].model);
        free(campaign->models[i].name);
    }
    free(campaign->models);
}
