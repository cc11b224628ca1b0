/* NCCL behind runtime.h: one communicator per rank, all-gather in the order of ranks. */
#include "engine/ops/kernel.cuh"

#include <string.h>

#include "engine/device/runtime.h"

#ifdef ASSAY_HAS_NCCL
#include <nccl.h>

static_assert(sizeof(ncclUniqueId) == ASSAY_CUDA_ID_BYTES, "an id is 128 bytes");

static assay_status check(ncclResult_t r, const char *what)
{
    return r == ncclSuccess ? ASSAY_OK
                            : assay_fail(ASSAY_PEER, "NCCL, %s: %s", what, ncclGetErrorString(r));
}

bool assay_cuda_has_ranks(void)
{
    return true;
}

assay_status assay_cuda_ranks_id(char id[ASSAY_CUDA_ID_BYTES])
{
    ncclUniqueId unique;
    ASSAY_TRY(check(ncclGetUniqueId(&unique), "id"));
    memcpy(id, &unique, sizeof unique);
    return ASSAY_OK;
}

assay_status assay_cuda_ranks_new(void **out, const char id[ASSAY_CUDA_ID_BYTES], int rank,
                                  int n_ranks)
{
    ncclUniqueId unique;
    ncclComm_t comm;
    memcpy(&unique, id, sizeof unique);
    ASSAY_TRY(check(ncclCommInitRank(&comm, n_ranks, unique, rank), "ranks"));
    *out = comm;
    return ASSAY_OK;
}

void assay_cuda_ranks_free(void *ranks)
{
    if (ranks)
        ncclCommDestroy(static_cast<ncclComm_t>(ranks));
}

assay_status assay_cuda_ranks_gather(void *ranks, void *stream, float *all, const float *mine,
                                     int64_t n)
{
    return check(ncclAllGather(mine, all, static_cast<size_t>(n), ncclFloat32,
                               static_cast<ncclComm_t>(ranks), kernel_stream(stream)),
                 "all-gather");
}
#else
bool assay_cuda_has_ranks(void)
{
    return false;
}

static assay_status absent()
{
    return assay_fail(ASSAY_UNSUPPORTED, "built without NCCL");
}

assay_status assay_cuda_ranks_id(char *)
{
    return absent();
}

assay_status assay_cuda_ranks_new(void **, const char *, int, int)
{
    return absent();
}

void assay_cuda_ranks_free(void *)
{
}

assay_status assay_cuda_ranks_gather(void *, void *, float *, const float *, int64_t)
{
    return absent();
}
#endif
