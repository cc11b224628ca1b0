/*
 * Ranks that are processes under mpirun. Without MPI at build time this file is empty.
 */
#include "engine/comm.h"

#ifdef ASSAY_HAS_MPI

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>

static assay_status gather(assay_comm *comm, void *all, const void *mine, size_t bytes)
{
    if (bytes > INT_MAX)
        return assay_fail(ASSAY_UNSUPPORTED, "a collective of %zu bytes, at most %d", bytes,
                          INT_MAX);
    int code = MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS)
        return assay_fail(ASSAY_PEER, "rank %d: MPI_Allgather failed with code %d", comm->rank,
                          code);
    return ASSAY_OK;
}

/* The launcher ends the other processes and names this rank; the caller has said why. */
static void fail(assay_comm *comm, const char *line)
{
    (void)comm;
    (void)line;
    MPI_Abort(MPI_COMM_WORLD, assay_status_exit(ASSAY_PEER));
}

const assay_comm_ops assay_comm_ops_mpi = {"mpi", gather, fail};

static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                        "MPI_LOCALNRANKS"};

assay_status assay_mpi_open(assay_comm **out)
{
    bool launched = false;
    int provided;
    assay_comm *comm;
    *out = NULL;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        launched = launched || getenv(launchers[i]);
    if (!launched)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&comm, 1, sizeof *comm, "rank"));
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        free(comm);
        return assay_fail(ASSAY_PEER, "MPI could not be started");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    comm->ops = &assay_comm_ops_mpi;
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->n_ranks);
    *out = comm;
    return ASSAY_OK;
}

void assay_mpi_close(assay_comm *comm)
{
    if (!comm)
        return;
    MPI_Finalize();
    free(comm->memory);
    free(comm);
}

#else
typedef int assay_comm_mpi_is_not_built;
#endif
