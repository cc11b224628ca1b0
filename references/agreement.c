#include "references/agreement.h"

#include "references/logits_row.h"

enum { BLOCK = 64 };

void assay_agreement_init(assay_agreement *agreement)
{
    *agreement = (assay_agreement){.worst_position = -1, .prompt = -1, .step = -1};
}

static void add_block(assay_agreement *a, int prompt, int step, int64_t position,
                      const assay_rows_seen *got, const assay_rows_seen *ref, int64_t first,
                      int64_t n_rows)
{
    assay_logits_row rows[BLOCK];
#pragma omp parallel for schedule(dynamic, 1) if (n_rows * ref->n_cols > 1 << 14)
    for (int64_t r = 0; r < n_rows; r++)
        rows[r] =
            assay_logits_row_of(&got->values, assay_rows_place(got, first + r, 0), &ref->values,
                                assay_rows_place(ref, first + r, 0), ref->n_cols);
    for (int64_t r = 0; r < n_rows; r++) {
        a->n_rows++;
        a->n_top1_equal += rows[r].same_top;
        a->top5_overlap += rows[r].overlap;
        a->kl_mean += rows[r].kl;
        if (a->worst_position < 0 || rows[r].kl > a->kl_max) {
            a->kl_max = rows[r].kl;
            a->worst_position = position + r;
            a->prompt = prompt;
            a->step = step;
        }
    }
}

void assay_agreement_add(assay_agreement *agreement, int prompt, int step, int64_t position,
                         const assay_rows_seen *got, const assay_rows_seen *ref)
{
    const int64_t n = ref->n_cols > 0 ? ref->n_tokens : 0;
    for (int64_t first = 0; first < n; first += BLOCK)
        add_block(agreement, prompt, step, position + first, got, ref, first,
                  n - first < BLOCK ? n - first : BLOCK);
}

void assay_agreement_finish(assay_agreement *agreement)
{
    if (!agreement->n_rows)
        return;
    agreement->kl_mean /= (double)agreement->n_rows;
    agreement->top5_overlap /= (double)agreement->n_rows;
}
