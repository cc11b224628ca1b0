/* Shared by the files of the campaign; nothing else includes it. */
#ifndef ASSAY_SUITES_CAMPAIGN_PRIVATE_H
#define ASSAY_SUITES_CAMPAIGN_PRIVATE_H

#include "references/oracle/oracle.h"
#include "suites/campaign.h"

typedef struct assay_campaign_model {
    char *name; /* its path, or what it was forged as */
    assay_model *model;
    assay_oracle *oracle;
} assay_campaign_model;

struct assay_campaign {
    assay_campaign_options options;
    assay_campaign_model *models; /* those of the options first, then forged ones */
    int n_models;
    assay_trial *trials;
    assay_outcome *outcomes;
    int n, room;
};

assay_status assay_campaign_open_models(assay_campaign *campaign);
void assay_campaign_close_models(assay_campaign *campaign);
assay_status assay_campaign_plan(assay_campaign *campaign);
/* True when the blank-separated list holds the point's name without its layer. */
bool assay_campaign_is_home(const char *home, assay_point point);

#endif
