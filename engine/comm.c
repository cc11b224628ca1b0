#include "engine/comm.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *about;
} table[] = {
#define X(id, name, about) {name, about},
#include "engine/comm.def"
#undef X
};

int assay_comm_n_ways(void)
{
    return (int)(sizeof table / sizeof *table);
}

const char *assay_comm_way_name(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_comm_n_ways());
    return table[index].name;
}

const char *assay_comm_way_about(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_comm_n_ways());
    return table[index].about;
}

static assay_status memory_of(void **out, assay_comm *comm, size_t bytes)
{
    if (bytes > comm->n_memory) {
        void *grown;
        ASSAY_TRY(assay_alloc(&grown, bytes, 1, "collective"));
        free(comm->memory);
        comm->memory = grown;
        comm->n_memory = bytes;
    }
    *out = comm->memory;
    return ASSAY_OK;
}

assay_status assay_comm_gather(assay_comm *comm, void *all, const void *mine, size_t bytes)
{
    return comm->ops->gather(comm, all, mine, bytes);
}

assay_status assay_comm_sum(assay_comm *comm, float *values, int64_t n)
{
    void *memory;
    ASSAY_TRY(memory_of(&memory, comm, (size_t)comm->n_ranks * (size_t)n * sizeof *values));
    const float *all = memory;
    ASSAY_TRY(comm->ops->gather(comm, memory, values, (size_t)n * sizeof *values));
    for (int64_t i = 0; i < n; i++) {
        float sum = all[i];
        for (int r = 1; r < comm->n_ranks; r++)
            sum += all[r * n + i];
        values[i] = sum;
    }
    return ASSAY_OK;
}

assay_status assay_comm_same(assay_comm *comm, const void *mine, size_t bytes, const char *what)
{
    void *memory;
    ASSAY_TRY(memory_of(&memory, comm, (size_t)comm->n_ranks * bytes));
    ASSAY_TRY(comm->ops->gather(comm, memory, mine, bytes));
    for (int r = 1; r < comm->n_ranks; r++)
        if (memcmp(memory, (char *)memory + (size_t)r * bytes, bytes))
            return assay_fail(ASSAY_PEER, "ranks 0 and %d do not agree about the %s", r, what);
    return ASSAY_OK;
}

void assay_comm_fail(assay_comm *comm, const char *line)
{
    comm->ops->fail(comm, line);
}
