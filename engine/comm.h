/*
 * Ranks that work on one model together, and their collectives.
 *
 * A communicator is one rank's handle. All ranks call the same collectives in the same order. Sums
 * are taken in rank order on every rank, so all ranks hold the same bits. A rank that fails says so
 * (assay_comm_fail); the others then get ASSAY_PEER with its line from whatever collective they
 * wait in, so nobody waits for ever.
 */
#ifndef ASSAY_ENGINE_COMM_H
#define ASSAY_ENGINE_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct assay_comm assay_comm;

typedef struct assay_comm_ops {
    const char *name;
    /* all[r * bytes ...] = what rank r gave */
    assay_status (*gather)(assay_comm *comm, void *all, const void *mine, size_t bytes);
    void (*fail)(assay_comm *comm, const char *line);
} assay_comm_ops;

struct assay_comm {
    const assay_comm_ops *ops;
    int rank, n_ranks;
    void *state;
    void *memory; /* of the last sum; growing */
    size_t n_memory;
};

#define X(id, name, about) extern const assay_comm_ops assay_comm_ops_##id;
#include "engine/comm.def"
#undef X

int assay_comm_n_ways(void);
const char *assay_comm_way_name(int index);
const char *assay_comm_way_about(int index);

/* values[i] = sum over ranks, in rank order, in float32 */
assay_status assay_comm_sum(assay_comm *comm, float *values, int64_t n);
assay_status assay_comm_gather(assay_comm *comm, void *all, const void *mine, size_t bytes);
/* All ranks must have given the same bytes. Fails: ASSAY_PEER, naming the first rank that differs
 * from rank 0. */
assay_status assay_comm_same(assay_comm *comm, const void *mine, size_t bytes, const char *what);
/* This rank ends: the others learn why. */
void assay_comm_fail(assay_comm *comm, const char *line);

/*
 * Runs `body` on n virtual ranks at once. Returns the first failure by rank number, its line with
 * "rank N: " in front; a rank that failed only because another did is not the first.
 */
typedef assay_status assay_rank_fn(void *user, assay_comm *comm);
assay_status assay_ranks_run(int n_ranks, assay_rank_fn *body, void *user);

#ifdef ASSAY_HAS_MPI
/* The world of mpirun. *out NULL: this process was not started by it. assay_mpi_close ends MPI. */
assay_status assay_mpi_open(assay_comm **out);
void assay_mpi_close(assay_comm *comm);
#endif

#endif
