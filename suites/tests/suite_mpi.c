/*
 * Ranks as processes under mpirun. The suite starts itself again under the launcher; a process that
 * finds itself there is a rank.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "engine/comm.h"
#include "engine/engine.h"
#include "expect.h"

#ifdef ASSAY_HAS_MPI

enum { N_TOKENS = 12 };

static assay_status logits_of(float **out, assay_comm *comm, int differing)
{
    int32_t ids[N_TOKENS], positions[N_TOKENS];
    assay_model *model;
    assay_engine *engine;
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = 5 + 61 * i + (comm && comm->rank == differing && i == 3);
        positions[i] = i;
    }
    ASSAY_TRY(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    assay_engine_options options = assay_engine_options_default();
    options.comm = comm;
    options.n_threads = 1;
    ASSAY_TRY(assay_engine_new(&engine, model, &options));
    *out = calloc(N_TOKENS, (size_t)assay_model_hparams(model)->n_vocab * sizeof **out);
    assay_batch batch = {N_TOKENS, ids, positions, NULL};
    assay_status s = assay_engine_forward(engine, &batch, *out);
    assay_engine_free(engine);
    assay_model_close(model);
    return s;
}

/* Exit status of one rank: 0 when its logits are those of one rank alone. */
static int be_a_rank(assay_comm *comm)
{
    const char *what = getenv("ASSAY_TEST_RANK");
    float *one, *mine;
    if (what && !strcmp(what, "killed") && comm->rank == 1)
        raise(SIGKILL);
    assay_status s = logits_of(&one, NULL, -1);
    if (s == ASSAY_OK)
        s = logits_of(&mine, comm, what && !strcmp(what, "differing") ? 1 : -1);
    if (s != ASSAY_OK) {
        printf("rank %d: %s\n", comm->rank, assay_error_text());
        fflush(stdout);
        assay_comm_fail(comm, assay_error_text());
    }
    double difference = 0, size = 0;
    for (int i = 0; i < N_TOKENS * 1024; i++) {
        difference += (one[i] - mine[i]) * (double)(one[i] - mine[i]);
        size += one[i] * (double)one[i];
    }
    assay_mpi_close(comm);
    free(one);
    free(mine);
    return difference <= 1e-10 * size ? 0 : 1;
}

static int launch(int n, const char *what, char *output, size_t room)
{
    char self[512], command[1024];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(length, 0);
    self[length] = '\0';
    snprintf(
        command, sizeof command,
        "ASSAY_TEST_RANK=%s timeout 60 mpirun --allow-run-as-root --oversubscribe -n %d %s 2>&1",
        what, n, self);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t got = fread(output, 1, room - 1, pipe);
    output[got] = '\0';
    return pclose(pipe);
}

START_TEST(mpi_ranks_give_the_logits_of_one)
{
    char output[4096];
    for (int n = 2; n <= 4; n *= 2) {
        int status = launch(n, "right", output, sizeof output);
        ck_assert_msg(status == 0, "%d ranks: status %d: %s", n, status, output);
    }
}
END_TEST

START_TEST(mpi_rank_with_another_prompt_ends_the_run_by_name)
{
    char output[8192];
    ck_assert_int_ne(launch(2, "differing", output, sizeof output), 0);
    ck_assert_msg(strstr(output, "do not agree about the rows of the step") != NULL, "%s", output);
}
END_TEST

START_TEST(mpi_rank_that_is_killed_ends_the_run)
{
    char output[8192];
    int status = launch(3, "killed", output, sizeof output);
    ck_assert(WIFEXITED(status));
    ck_assert_int_ne(WEXITSTATUS(status), 0);
    ck_assert_int_ne(WEXITSTATUS(status), 124); /* not by the time limit */
}
END_TEST

int main(void)
{
    assay_comm *comm = NULL;
    if (assay_mpi_open(&comm) == ASSAY_OK && comm)
        return be_a_rank(comm);
    if (system("mpirun --version >/dev/null 2>&1"))
        return 125;
    Suite *suite = suite_create("mpi");
    TCase *tcase = tcase_create("mpi");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, mpi_ranks_give_the_logits_of_one);
    tcase_add_test(tcase, mpi_rank_with_another_prompt_ends_the_run_by_name);
    tcase_add_test(tcase, mpi_rank_that_is_killed_ends_the_run);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#else
int main(void)
{
    return 125;
}
#endif
