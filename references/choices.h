/*
 * Discrete choices of a run held against the reference's: which experts, which keys, token by token
 * and layer by layer; and which rows stand behind a choice that differs.
 */
#ifndef ASSAY_REFERENCES_CHOICES_H
#define ASSAY_REFERENCES_CHOICES_H

#include "references/run.h"

typedef struct assay_choices assay_choices;

enum { ASSAY_CHOICE_EXPERTS = 1, ASSAY_CHOICE_KEYS = 2 };

/*
 * Positions 0 ... n - 1 of one prompt of both runs. Ids are compared as sets; keys that a row
 * cannot see (later positions, padding) do not count. Where one side has no ids, the choices are
 * taken as equal.
 */
assay_status assay_choices_new(assay_choices **out, const assay_run *run, int prompt,
                               const assay_run *reference, int reference_prompt, int64_t n,
                               int n_layers);
void assay_choices_free(assay_choices *choices);

/* Rows of a layer whose choice of this kind differs, and rows compared. */
int64_t assay_choices_n_flips(const assay_choices *choices, int layer, int kind);
int64_t assay_choices_n_rows(const assay_choices *choices, int layer, int kind);

/* A choice of this token differs before the point is made. layer: -1 for global points. */
bool assay_choices_own(const assay_choices *choices, assay_point point, int layer,
                       int64_t position);
/* A choice of an earlier token differs, and this value can see its consequence. */
bool assay_choices_context(const assay_choices *choices, assay_point point, int layer,
                           int64_t position);

#endif
