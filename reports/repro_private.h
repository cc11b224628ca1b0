/* Shared by the files that make and show bundles; nothing else includes it. */
#ifndef ASSAY_REPORTS_REPRO_PRIVATE_H
#define ASSAY_REPORTS_REPRO_PRIVATE_H

#include "probes/hdf5.h"
#include "reports/diagnose_private.h"
#include "reports/repro.h"

#define ASSAY_REPRO_MAX_PLACES 64

/* Bytes of one tensor. */
typedef struct assay_repro_range {
    const assay_gguf_tensor_info *tensor;
    uint64_t at, n_bytes;
} assay_repro_range;

typedef struct assay_repro_ranges {
    assay_repro_range *items;
    int n, room;
} assay_repro_ranges;

/* What goes into a bundle. */
typedef struct assay_repro_content {
    const assay_finding *finding;
    const assay_run *run;       /* values are marked */
    const assay_oracle *oracle; /* of the model; its weights are the bundle's */
    const assay_knobs *knobs;
    bool is_latent;
    const assay_forced_place *places;
    int n_places;
    const assay_repro_ranges *ranges; /* in order, apart from each other */
    int64_t rows, cols;
    const double *got, *expected; /* of the first place */
} assay_repro_content;

/* Sorts ranges and joins those that touch. */
void assay_repro_ranges_join(assay_repro_ranges *ranges);
/* Writes the file (no temporary name: the caller renames). Fails: ASSAY_IO. */
assay_status assay_repro_write(const char *path, const assay_repro_content *content);
/* Whether the finding is of this class, kind and place. */
bool assay_repro_is(const assay_finding *finding, const char *class, const char *kind,
                    const char *point);

#endif
