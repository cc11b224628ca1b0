/*
 * The campaign of ranks: every fault of rank_fault.def planted in runs of several ranks, captured
 * per rank, diagnosed, and the diagnosis compared with what was planted: class and exactly the
 * ranks. Only faults that show in the logits count. Healthy runs in between, experts cut inside and
 * dealt out whole.
 */
#ifndef ASSAY_SUITES_CAMPAIGN_RANKS_H
#define ASSAY_SUITES_CAMPAIGN_RANKS_H

#include "engine/base/status.h"
#include "reports/finding.h"

#define ASSAY_RANK_CAMPAIGN_MOST 8 /* ranks */

typedef struct assay_rank_outcome {
    bool is_tried;   /* the model has the mechanism, and the ranks divide it */
    bool is_visible; /* rank 0's logits are off those of healthy ranks by more than rounding */
    bool class_right, ranks_right;
    char text[256]; /* what was planted, wanted and found */
} assay_rank_outcome;

typedef struct assay_rank_campaign assay_rank_campaign;

int assay_rank_fault_count(void);
const char *assay_rank_fault_about(int index);

assay_status assay_rank_campaign_new(assay_rank_campaign **out, const char *model);
void assay_rank_campaign_free(assay_rank_campaign *campaign);
/* One fault at so many ranks. index -1: a healthy run (class_right: nothing was found). */
assay_status assay_rank_campaign_try(assay_rank_outcome *out, assay_rank_campaign *campaign,
                                     int index, int n_ranks, bool whole_experts);

/*
 * All faults and healthy runs at these rank counts, added to the result: rates {"visible", "class",
 * "class_and_ranks", "clean_runs", "false_alarms"}, misses, one row a rank count.
 */
assay_status assay_rank_campaign_run(assay_result *result, const char *const *models, int n_models,
                                     const int *rank_counts, int n_counts,
                                     void (*progress)(void *user, int done, int total), void *user);

#endif
