/*
 * Jobs of many small pieces: every piece is done once, whoever does it, and whoever calls.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/crew.h"
#include "expect.h"

enum { N = 300, ROUNDS = 400, MEMBERS = 4 };

typedef struct job {
    int done[N]; /* plain: a piece belongs to one member, and the caller reads behind the end */
    atomic_int members[MEMBERS];
} job;

static void mark(void *user, int64_t piece, int member)
{
    job *j = user;
    j->done[piece]++;
    atomic_fetch_add(&j->members[member], 1);
}

static void *run_many(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        static _Thread_local job j;
        int n = round % N, total = 0;
        memset(&j, 0, sizeof j);
        assay_crew_run(mark, &j, n, 1 + round % MEMBERS);
        for (int i = 0; i < N; i++)
            if (j.done[i] != (i < n))
                return "a piece was left out or done twice";
        for (int m = 0; m < MEMBERS; m++)
            total += j.members[m];
        for (int m = 1 + round % MEMBERS; m < MEMBERS; m++)
            if (j.members[m])
                return "a member too many took part";
        if (total != n)
            return "pieces were counted wrongly";
    }
    return unused;
}

START_TEST(crew_does_every_piece_once)
{
    const char *failure = run_many(NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

START_TEST(crew_serves_callers_that_come_at_once)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_many, NULL), 0);
    for (int i = 0; i < 3; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        ck_assert_msg(!failure, "%s", (const char *)failure);
    }
}
END_TEST

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_IN_A_CHILD
#endif
#endif

START_TEST(crew_of_a_child_is_its_own)
{
#ifdef NO_THREADS_IN_A_CHILD
    return; /* ThreadSanitizer ends a child of several threads that starts one */
#endif
    ck_assert(!run_many(NULL)); /* members exist, and sleep or look for work */
    pid_t child = fork();
    if (child == 0)
        _exit(run_many(NULL) != NULL);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

EXPECT_MAIN("crew", crew_does_every_piece_once, crew_serves_callers_that_come_at_once,
            crew_of_a_child_is_its_own)
