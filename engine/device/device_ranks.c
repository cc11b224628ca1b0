/*
 * Ranks on devices: which device a rank has, and sums over ranks.
 *
 * All ranks' parts are gathered, in the order of ranks, and every rank adds them up in that order:
 * all hold the same bits, as on the host. Where every rank has a device of its own, NCCL gathers on
 * the stream (and under graph capture); where ranks share a device, the parts go over the host, a
 * step waits for each sum, and nothing is captured.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/device/device_inside.h"

/* The launcher's number of this process on its host; else the rank. */
static int local_rank(const assay_comm *comm)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; comm->ops != &assay_comm_ops_threads && i < sizeof names / sizeof *names;
         i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return comm->rank;
}

int assay_device_ordinal(const assay_engine *e)
{
    int n = assay_cuda_count(NULL);
    return e->options.comm && n > 0 ? local_rank(e->options.comm) % n : 0;
}

/* Every rank says whether it has a device to itself; rank 0's id goes round. */
assay_status assay_device_open_ranks(assay_engine *e)
{
    assay_device *d = e->device;
    assay_comm *comm = e->options.comm;
    struct said {
        int alone;
        char id[ASSAY_CUDA_ID_BYTES];
    } mine = {0}, *all;
    if (e->part.n_ranks == 1)
        return ASSAY_OK;
    mine.alone = assay_cuda_has_ranks() && assay_cuda_count(NULL) >= e->part.n_ranks;
    if (mine.alone && e->part.rank == 0)
        ASSAY_TRY(assay_cuda_ranks_id(mine.id));
    ASSAY_TRY(assay_alloc(&all, (size_t)e->part.n_ranks, sizeof *all, "ranks"));
    assay_status s = assay_comm_gather(comm, all, &mine, sizeof mine);
    bool alone = true;
    for (int r = 0; r < e->part.n_ranks && s == ASSAY_OK; r++)
        alone = alone && all[r].alone;
    if (s == ASSAY_OK && alone)
        s = assay_cuda_ranks_new(&d->ranks, all[0].id, e->part.rank, e->part.n_ranks);
    free(all);
    return s;
}

void assay_device_close_ranks(assay_device *d)
{
    assay_cuda_ranks_free(d->ranks);
    assay_cuda_pinned_free(d->staged);
}

static assay_status room_to_stage(assay_device *d, size_t bytes)
{
    if (bytes <= d->staged_bytes)
        return ASSAY_OK;
    assay_cuda_pinned_free(d->staged);
    d->staged = NULL;
    d->staged_bytes = 0;
    ASSAY_TRY(assay_cuda_pinned(&d->staged, bytes));
    d->staged_bytes = bytes;
    return ASSAY_OK;
}

/* Over the host: [mine | all]. */
static assay_status gather_staged(assay_engine *e, float *all, const float *mine, int64_t n)
{
    assay_device *d = e->device;
    size_t bytes = (size_t)n * sizeof *mine;
    char *here = d->staged;
    ASSAY_TRY(assay_cuda_to_host(d->at, here, mine, bytes));
    ASSAY_TRY(assay_cuda_sync(d->at));
    ASSAY_TRY(assay_comm_gather(e->options.comm, here + bytes, here, bytes));
    ASSAY_TRY(assay_cuda_to_device(d->at, all, here + bytes, bytes * (size_t)e->part.n_ranks));
    return assay_cuda_sync(d->at); /* the next gather takes the same memory */
}

assay_status assay_device_gather_ranks(float **all, assay_engine *e, const float *mine, int64_t n)
{
    assay_device *d = e->device;
    size_t bytes = (size_t)n * sizeof *mine;
    void *memory;
    ASSAY_TRY(
        assay_device_scratch(&memory, d, ASSAY_SCRATCH_GATHERED, bytes * (size_t)e->part.n_ranks));
    *all = memory;
    if (!d->ranks)
        ASSAY_TRY(room_to_stage(d, bytes * (size_t)(e->part.n_ranks + 1)));
    if (d->ranks)
        ASSAY_RUN(d, assay_cuda_ranks_gather(d->ranks, d->at, *all, mine, n));
    else
        ASSAY_RUN(d, gather_staged(e, *all, mine, n));
    return ASSAY_OK;
}

/* What this rank gave, kept beside the sum for those who watch. */
static assay_status show_part(assay_engine *e, assay_point point, int layer)
{
    assay_device *d = e->device;
    const assay_use_of_slot *at = &d->uses[point];
    assay_buffer kept;
    ASSAY_TRY(assay_device_keep(&kept, e, point, layer));
    if (!kept.data)
        return ASSAY_OK;
    assay_rows from = assay_device_rows_of(e, point), to = from;
    to.at = kept.data;
    ASSAY_RUN(d, assay_device_copy(d->at, to, from));
    return assay_device_show_part(e, point, layer, &kept, &at->written);
}

/* Sum over ranks in place, as often as the seam says (once). */
static assay_status sum(assay_engine *e, assay_point point, int layer)
{
    assay_device *d = e->device;
    const assay_seam_setting *late = assay_bent_of(e, ASSAY_SEAM_REDUCE_LATE, layer, (int)point);
    double times = assay_bent_value_of(e, ASSAY_SEAM_REDUCE_TIMES, layer, (int)point, 1);
    assay_rows y = assay_device_rows_of(e, point);
    int64_t n = y.n * y.width, kept = times < 1                  ? y.n
                                      : late && late->n_ints > 1 ? late->ints[1]
                                                                 : 0;
    float *all, factor = 1;
    ASSAY_BUG_IF(y.stride != y.width);
    ASSAY_TRY(assay_device_gather_ranks(&all, e, y.at, n));
    for (double again = 1; again < times; again++)
        factor *= (float)e->part.n_ranks;
    if (kept < y.n)
        ASSAY_RUN(d, assay_device_sum_ranks(d->at, y.at, all, e->part.n_ranks, n, kept * y.width,
                                            factor));
    return ASSAY_OK;
}

assay_status assay_device_done_reduced(assay_engine *e, assay_point point, int layer)
{
    assay_device *d = e->device;
    if (e->part.n_ranks > 1) {
        if (e->options.dtype == ASSAY_DTYPE_BF16)
            ASSAY_RUN(d, assay_device_round_bf16(d->at, assay_device_rows_of(e, point)));
        ASSAY_TRY(show_part(e, point, layer));
        ASSAY_TRY(sum(e, point, layer));
    }
    return assay_device_done(e, point, layer);
}

/* Each rank multiplies its rows of the head; equal shares (the last one padded) are put side by
 * side. */
assay_status assay_device_gathered_logits(assay_engine *e, assay_rows y, assay_rows x,
                                          assay_role role)
{
    assay_device *d = e->device;
    int64_t each = (y.width + e->part.n_ranks - 1) / e->part.n_ranks;
    void *mine;
    float *all;
    ASSAY_TRY(
        assay_device_scratch(&mine, d, ASSAY_SCRATCH_SHARE, (size_t)(y.n * each) * sizeof *all));
    ASSAY_TRY(assay_device_linear(e, (assay_rows){mine, y.n, e->part.n_vocab, each}, x, role, -1,
                                  ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_device_gather_ranks(&all, e, mine, y.n * each));
    ASSAY_RUN(d, assay_device_side_by_side_ranks(d->at, y, all, each));
    return ASSAY_OK;
}
