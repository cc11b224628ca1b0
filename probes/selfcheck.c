#include "probes/selfcheck.h"

#include <stdlib.h>
#include <string.h>

#include "probes/recorder.h"

void assay_print_of(assay_print *out, const double *values, int64_t n)
{
    assay_buffer b = assay_buffer_view((void *)values, ASSAY_DTYPE_F64, 1, &n);
    assay_stats stats;
    assay_stats_of(&stats, &b);
    out->n = n;
    out->checksum = stats.checksum;
    int64_t n_finite = n - stats.n_nan - stats.n_pos_inf - stats.n_neg_inf;
    out->is_constant = n_finite == 0 || (n_finite == n && stats.min == stats.max);
}

static int by_checksum(const void *a, const void *b)
{
    const assay_print *x = a, *y = b;
    if (x->checksum != y->checksum)
        return x->checksum < y->checksum ? -1 : 1;
    if (x->prompt != y->prompt)
        return x->prompt - y->prompt;
    return x->step - y->step;
}

bool assay_points_equal_at_start(assay_point a, assay_point b)
{
    static const assay_point pairs[][2] = {{ASSAY_POINT_KERNEL_OUT, ASSAY_POINT_OUT_ATTN},
                                           {ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE},
                                           {ASSAY_POINT_K, ASSAY_POINT_K_ROPE},
                                           {ASSAY_POINT_INDEX_Q_PROJ, ASSAY_POINT_INDEX_Q},
                                           {ASSAY_POINT_INDEX_K_NORM, ASSAY_POINT_INDEX_K},
                                           /* one token: the only key has weight 1 */
                                           {ASSAY_POINT_V, ASSAY_POINT_KERNEL_OUT},
                                           {ASSAY_POINT_V, ASSAY_POINT_OUT_ATTN},
                                           {ASSAY_POINT_KV_LATENT, ASSAY_POINT_O_LATENT}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((pairs[i][0] == a && pairs[i][1] == b) || (pairs[i][0] == b && pairs[i][1] == a))
            return true;
    return false;
}

static bool should_differ(const assay_print *a, const assay_print *b)
{
    if (a->n != b->n || a->n < 2 || a->is_constant || b->is_constant || a->prompt != b->prompt)
        return false;
    if (assay_point_at(a->point)->is_ids || assay_point_at(b->point)->is_ids)
        return false;
    bool same_place = a->point == b->point && a->layer == b->layer;
    if (a->step != b->step)
        return same_place && a->rank == b->rank && a->hand_over == b->hand_over &&
               a->tokens != b->tokens;
    if (same_place) /* ranks hold replicated values; hand-overs are the same thing */
        return false;
    return a->layer != b->layer || !assay_points_equal_at_start(a->point, b->point);
}

assay_status assay_selfcheck(assay_print *prints, int n, assay_suspect_fn *suspect, void *user)
{
    if (n > 0)
        qsort(prints, (size_t)n, sizeof *prints, by_checksum);
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n && prints[k].checksum == prints[i].checksum; k++)
            if (should_differ(&prints[i], &prints[k])) {
                ASSAY_TRY(suspect(user, &prints[i], &prints[k]));
                break; /* one partner is enough */
            }
    return ASSAY_OK;
}
