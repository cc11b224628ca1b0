/* Shared by the files of the diagnosis; nothing else includes it. */
#ifndef ASSAY_REPORTS_DIAGNOSE_PRIVATE_H
#define ASSAY_REPORTS_DIAGNOSE_PRIVATE_H

#include "references/forced_sketched.h"
#include "references/sketched.h"
#include "reports/diagnose.h"
#include "reports/home.h"

#define ASSAY_FAULT_UNKNOWN (-1)

typedef struct assay_located { /* a home and what was made of it */
    int index;                 /* of the judged value */
    int fault;                 /* ASSAY_FAULT_UNKNOWN: nothing explains it */
    int merged;                /* position of the home it belongs to; -1: itself */
    bool convention;
    bool cached_right; /* later steps read the right value from the cache */
    char kind[80], family[80], evidence[320], second[160];
    json_t *fitted; /* owned */
    assay_numbers ranks;
    double confidence, explained;
    char shape[800]; /* unknown: which rows, heads, channels */
} assay_located;

/* Lists that the merge works on, in the order of the flow. */
typedef struct assay_diagnosis {
    assay_forced *forced;
    assay_located *homes;
    int n;
    int n_explained; /* searches for a home's cause */
    assay_diagnose_cost cost;
} assay_diagnosis;

/* The pass, its homes and what explains them: a diagnosis before it is put in words. *d is zeroed
 * or left from an earlier call that failed; clear it either way. */
assay_status assay_diagnosis_explain(assay_diagnosis *d, assay_result *result, assay_run *run,
                                     assay_oracle *oracle, const assay_forced_options *options);
void assay_diagnosis_clear(assay_diagnosis *d);
/* Where a convention that the profile does not list explains most homes at once, the pass is made
 * again with it, and a note names it. */
assay_status assay_diagnosis_conventions(assay_result *result, assay_diagnosis *d, assay_run *run,
                                         assay_oracle *oracle, const assay_forced_options *options);
/*
 * Where all values of a point are right when they are read in another layout than the name map
 * says, and what reads them is right then too, the pass is made again with that layout, and a note
 * names it. An engine that really computes with such values has consumers that are right on them
 * as they are: they stay findings.
 */
assay_status assay_diagnosis_layouts(assay_result *result, assay_diagnosis *d, assay_run *run,
                                     assay_oracle *oracle, const assay_forced_options *options);
/* Homes of the indexer's queries and keys that hold the expected ones times a Hadamard matrix. */
assay_status assay_diagnosis_hadamard(assay_diagnosis *d);
/* A bundle for every finding from `first` on (reports/repro.h). */
assay_status assay_diagnosis_bundles(assay_result *result, int first, const assay_diagnosis *d,
                                     const assay_diagnose_options *options);
/* Points out the homes that belong to a more precise one of another step or prompt. */
void assay_diagnosis_merge(assay_diagnosis *d);
/* Asks the classes about one home; likely: the class that is asked first, or -1. */
assay_status assay_diagnosis_explain_home(assay_diagnosis *d, int position, int likely);
/* Where nearly all products disagree and nothing else does, their homes become one. */
assay_status assay_diagnosis_other_weights(assay_diagnosis *d);
/* What a fact of the captured ids says in words; reproduce may be NULL. No arithmetic was needed,
 * so nothing about it is uncertain. */
assay_status assay_diagnosis_fact(assay_finding *f, int fault, const char *kind, const char *op,
                                  const char *sentence, const char *advice, const char *reproduce);
/* Places where lists of ids [tokens, n] are wider than `right` (or_narrower: or narrower); *width:
 * the last such n. The first place becomes the finding's point. */
assay_status assay_diagnosis_list_widths(assay_finding *f, int *width, const assay_run *run,
                                         assay_point point, int right, bool or_narrower);
/* A run that chooses another number of experts than the file says: a fact, no arithmetic. */
assay_status assay_diagnosis_expert_count(bool *differs, assay_result *result, const assay_run *run,
                                          const assay_oracle *oracle, const char *reproduce);
/* A run of which only sketches were kept gets its values (references/forced_sketched.h), with a
 * note; another is left as it is. */
assay_status assay_diagnosis_walk(assay_result *result, assay_run *run, assay_oracle *oracle,
                                  const assay_forced_options *options);
/* Homes whose values are an estimate belong to one of their point and layer that was explained. */
void assay_diagnosis_merge_estimates(assay_diagnosis *d);
/* Joins homes that are one fault seen twice; after the classes were told. */
assay_status assay_diagnosis_join(assay_diagnosis *d);
/* One finding per class, kind and family; conventions become notes. */
assay_status assay_diagnosis_findings(assay_result *result, assay_diagnosis *d,
                                      const char *reproduce);
/*
 * The pass over a run; where ranks' copies part ways at a value that is right on rank 0, over the
 * view of the rank that differs. part_ways: first judged value of the prompt where a rank's copy is
 * not the one that the pass reads; -1: none. drop_behind: leaves out the homes behind it, with a
 * note.
 */
assay_status assay_diagnosis_view(assay_forced **forced, assay_run *run, assay_oracle *oracle,
                                  const assay_forced_options *options);
assay_status assay_diagnosis_part_ways(int *index, int *rank, const assay_forced *forced,
                                       int prompt);
assay_status assay_diagnosis_drop_behind(assay_result *result, assay_diagnosis *d);
/* Ids against text, where a prompt has both. file NULL: nothing is compared. */
assay_status assay_diagnosis_vocab(assay_result *result, const assay_run *run,
                                   const assay_gguf *file, const char *reproduce);
/* A run that keeps another number of keys than the model file says: a fact, no arithmetic. */
assay_status assay_diagnosis_selection(assay_result *result, const assay_diagnosis *d,
                                       const char *reproduce);
/* Which rows, heads and channels carry the error, and how got relates to expected. */
void assay_shape_describe(char *out, size_t room, const assay_home *home);

#endif
