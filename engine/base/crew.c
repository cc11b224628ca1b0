#include "engine/base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { MOST_MEMBERS = 64, SPINS = 600, SPINS_OF_CALLER = 4000 };

/*
 * The job's state is one word: pieces, the next piece, members. Who exchanges the word for one with
 * the next piece has claimed that piece of the job that the word is of, however long ago it was
 * read; until that piece is done the caller waits, so fn and user are valid.
 */
static struct {
    _Atomic uint64_t word;
    _Atomic int64_t n_done;
    assay_crew_fn *fn;
    void *user;
    atomic_flag busy;
    int n_members; /* with the caller; 0: nothing set up in this process */
    atomic_int n_asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} crew = {
    .busy = ATOMIC_FLAG_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

#define MOST_PIECES ((int64_t)1 << 28)

static uint64_t word_of(int64_t n, int64_t next, int n_members)
{
    return (uint64_t)n << 36 | (uint64_t)next << 8 | (uint64_t)n_members;
}

/* The next piece for this member; -1: none. */
static int64_t claim(int member)
{
    uint64_t word = atomic_load(&crew.word);
    for (;;) {
        int64_t n = (int64_t)(word >> 36), next = (int64_t)(word >> 8) & (MOST_PIECES - 1);
        if (next >= n || member >= (int)(word & 255))
            return -1;
        if (atomic_compare_exchange_weak(&crew.word, &word,
                                         word_of(n, next + 1, (int)(word & 255))))
            return next;
    }
}

static void rest(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The piece that ends the sleep, or -1 after waking in vain. */
static int64_t sleep_for(int member)
{
    pthread_mutex_lock(&crew.lock);
    atomic_fetch_add(&crew.n_asleep, 1);
    int64_t piece = claim(member);
    if (piece < 0)
        pthread_cond_wait(&crew.wake, &crew.lock);
    atomic_fetch_sub(&crew.n_asleep, 1);
    pthread_mutex_unlock(&crew.lock);
    return piece;
}

static void *serve(void *number)
{
    int member = (int)(intptr_t)number, spins = 0;
    for (;;) {
        int64_t piece = claim(member);
        if (piece < 0 && ++spins > SPINS) {
            piece = sleep_for(member);
            spins = 0;
        }
        if (piece < 0) {
            rest();
            continue;
        }
        spins = 0;
        crew.fn(crew.user, piece, member);
        atomic_fetch_add(&crew.n_done, 1);
    }
    return NULL;
}

/* A child has the caller alone. */
static void forget(void)
{
    crew.n_members = 0;
    atomic_store(&crew.n_asleep, 0);
    atomic_flag_clear(&crew.busy);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.wake, NULL);
}

static void start(int n_members)
{
    static bool prepared;
    pthread_attr_t detached;
    if (!prepared)
        prepared = pthread_atfork(NULL, NULL, forget) == 0;
    if (crew.n_members == 0)
        crew.n_members = 1;
    if (!prepared || pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (; crew.n_members < n_members; crew.n_members++) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, serve, (void *)(intptr_t)crew.n_members) != 0)
            break;
    }
    pthread_attr_destroy(&detached);
}

static void run_alone(assay_crew_fn *fn, void *user, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        fn(user, i, 0);
}

void assay_crew_run(assay_crew_fn *fn, void *user, int64_t n, int n_members)
{
    n_members = n_members > MOST_MEMBERS ? MOST_MEMBERS : n_members;
    if (n < 2 || n >= MOST_PIECES || n_members < 2 || atomic_flag_test_and_set(&crew.busy)) {
        run_alone(fn, user, n);
        return;
    }
    if (crew.n_members < n_members)
        start(n_members);
    crew.fn = fn;
    crew.user = user;
    atomic_store(&crew.n_done, 0);
    atomic_store(&crew.word, word_of(n, 0, n_members));
    if (atomic_load(&crew.n_asleep) > 0) {
        pthread_mutex_lock(&crew.lock);
        pthread_cond_broadcast(&crew.wake);
        pthread_mutex_unlock(&crew.lock);
    }
    int64_t mine = 0;
    for (int64_t piece; (piece = claim(0)) >= 0; mine++)
        fn(user, piece, 0);
    atomic_fetch_add(&crew.n_done, mine);
    for (int spins = 0; atomic_load(&crew.n_done) < n; spins++)
        if (spins > SPINS_OF_CALLER)
            sched_yield();
        else
            rest();
    atomic_flag_clear(&crew.busy);
}
