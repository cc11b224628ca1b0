/*
 * Virtual ranks: one thread each. A collective has two meetings: at the first all have published
 * what they give, at the second all have read it.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"

typedef struct world {
    int n_ranks;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int n_waiting;
    uint64_t round;
    bool failed;
    char line[512];
    const void **given; /* [n_ranks] */
} world;

typedef struct member {
    assay_comm comm;
    world *world;
    assay_rank_fn *body;
    void *user;
    assay_status status;
    char line[1024];
    pthread_t thread;
} member;

static world *world_of(const assay_comm *comm)
{
    return comm->state;
}

/* Returns when all ranks have come, or one has failed. */
static assay_status meet(assay_comm *comm)
{
    world *w = world_of(comm);
    pthread_mutex_lock(&w->lock);
    uint64_t round = w->round;
    if (++w->n_waiting == w->n_ranks) {
        w->n_waiting = 0;
        w->round++;
        pthread_cond_broadcast(&w->turn);
    }
    while (w->round == round && !w->failed)
        pthread_cond_wait(&w->turn, &w->lock);
    bool failed = w->failed;
    pthread_mutex_unlock(&w->lock);
    return failed ? assay_fail(ASSAY_PEER, "%s", w->line) : ASSAY_OK;
}

static assay_status gather(assay_comm *comm, void *all, const void *mine, size_t bytes)
{
    world *w = world_of(comm);
    w->given[comm->rank] = mine;
    ASSAY_TRY(meet(comm));
    for (int r = 0; r < comm->n_ranks; r++)
        memcpy((char *)all + (size_t)r * bytes, w->given[r], bytes);
    return meet(comm);
}

static void fail(assay_comm *comm, const char *line)
{
    world *w = world_of(comm);
    pthread_mutex_lock(&w->lock);
    if (!w->failed) {
        w->failed = true;
        snprintf(w->line, sizeof w->line, "rank %d ended: %s", comm->rank, line);
        pthread_cond_broadcast(&w->turn);
    }
    pthread_mutex_unlock(&w->lock);
}

const assay_comm_ops assay_comm_ops_threads = {"threads", gather, fail};

static void *run_member(void *user)
{
    member *m = user;
    m->status = m->body(m->user, &m->comm);
    if (m->status != ASSAY_OK) {
        snprintf(m->line, sizeof m->line, "%s", assay_error_text());
        assay_comm_fail(&m->comm, m->line);
    }
    return NULL;
}

static assay_status first_failure(const member *members, int n)
{
    const member *found = NULL;
    for (int r = 0; r < n; r++)
        if (members[r].status != ASSAY_OK &&
            (!found || (found->status == ASSAY_PEER && members[r].status != ASSAY_PEER)))
            found = &members[r];
    if (!found)
        return ASSAY_OK;
    assay_error_set(found->line);
    return found->status == ASSAY_PEER ? found->status
                                       : assay_within(found->status, "rank %d", found->comm.rank);
}

assay_status assay_ranks_run(int n_ranks, assay_rank_fn *body, void *user)
{
    world w = {.n_ranks = n_ranks};
    member *members;
    ASSAY_BUG_IF(n_ranks < 1);
    ASSAY_TRY(assay_alloc(&members, (size_t)n_ranks, sizeof *members, "ranks"));
    assay_status s = assay_alloc(&w.given, (size_t)n_ranks, sizeof *w.given, "ranks");
    if (s != ASSAY_OK) {
        free(members);
        return s;
    }
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.turn, NULL);
    int n_started = 0;
    for (int r = 0; r < n_ranks; r++) {
        member *m = &members[r];
        m->comm = (assay_comm){&assay_comm_ops_threads, r, n_ranks, &w, NULL, 0};
        m->body = body;
        m->user = user;
        if (pthread_create(&m->thread, NULL, run_member, m)) {
            m->status = assay_fail(ASSAY_NO_MEMORY, "thread of rank %d could not be started", r);
            snprintf(m->line, sizeof m->line, "%s", assay_error_text());
            assay_comm_fail(&m->comm, m->line);
            break;
        }
        n_started++;
    }
    for (int r = 0; r < n_started; r++)
        pthread_join(members[r].thread, NULL);
    s = first_failure(members, n_ranks);
    for (int r = 0; r < n_ranks; r++)
        free(members[r].comm.memory);
    pthread_cond_destroy(&w.turn);
    pthread_mutex_destroy(&w.lock);
    free(w.given);
    free(members);
    return s;
}
