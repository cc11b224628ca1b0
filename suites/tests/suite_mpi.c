/*
 * Ranks as processes under mpirun. The suite starts itself again under the launcher; a process that
 * finds itself there is a rank.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "engine/comm.h"
#include "engine/engine.h"
#include "expect.h"
#include "references/run.h"
#include "suites/forge_model.h"

#ifdef ASSAY_HAS_MPI

enum { N_TOKENS = 12 };

typedef struct answer {
    float *logits;
    int64_t n;
} answer;

/* The model's answer by this communicator's ranks; NULL: by this process alone. */
static assay_status answer_of(answer *out, assay_model *model_of, assay_comm *comm, assay_path path,
                              int differing)
{
    int32_t ids[N_TOKENS], positions[N_TOKENS];
    assay_engine *engine;
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = 5 + 61 * i + (comm && comm->rank == differing && i == 3);
        positions[i] = i;
    }
    assay_engine_options options = assay_engine_options_default();
    options.comm = comm;
    options.path = path;
    options.n_threads = 1;
    ASSAY_TRY(assay_engine_new(&engine, model_of, &options));
    out->n = (int64_t)N_TOKENS * assay_model_hparams(model_of)->n_vocab;
    out->logits = calloc((size_t)out->n, sizeof *out->logits);
    assay_batch batch = {N_TOKENS, ids, positions, NULL};
    assay_status s = assay_engine_forward(engine, &batch, out->logits);
    assay_engine_free(engine);
    return s;
}

static assay_status compare_path(assay_model *model_of, assay_comm *comm, assay_path path,
                                 int differing)
{
    answer one = {0}, mine = {0};
    double difference = 0, size = 0;
    assay_status s = answer_of(&one, model_of, NULL, path, -1);
    if (s == ASSAY_OK)
        s = answer_of(&mine, model_of, comm, path, differing);
    for (int64_t i = 0; s == ASSAY_OK && i < one.n; i++) {
        difference += (one.logits[i] - mine.logits[i]) * (double)(one.logits[i] - mine.logits[i]);
        size += one.logits[i] * (double)one.logits[i];
    }
    free(one.logits);
    free(mine.logits);
    if (s == ASSAY_OK && !(difference <= 1e-10 * size))
        return assay_fail(ASSAY_BAD_SHAPE, "logits differ by %g of their size",
                          sqrt(difference / size));
    return s;
}

/* Both paths of one model; where its heads do not divide, nothing. *n: comparisons. */
static assay_status compare_file(int *n, const char *path, assay_comm *comm, int differing)
{
    assay_model *opened;
    ASSAY_TRY(assay_model_open(&opened, path, NULL));
    const assay_hparams *hp = assay_model_hparams(opened);
    assay_status s = ASSAY_OK;
    for (int p = 0; p < (hp->is_mla ? 2 : 1) && s == ASSAY_OK; p++)
        if (assay_engine_ranks_fit(hp, false, comm->n_ranks) == ASSAY_OK) {
            s = compare_path(opened, comm, (assay_path)p, differing);
            ++*n;
        }
    assay_model_close(opened);
    return s == ASSAY_OK ? s : assay_within(s, "%s", path);
}

/* Exit status of one rank: 0 when its logits are those of one rank alone, in every model. */
static int be_a_rank(assay_comm *comm)
{
    static const char *const names[] = {"models/glm5-tiny-bf16.gguf", "models/dsv3-tiny-bf16.gguf",
                                        "models/dsv2lite-tiny-bf16.gguf",
                                        "models/llama-tiny-bf16.gguf"};
    const char *what = getenv("ASSAY_TEST_RANK");
    int differing = what && !strcmp(what, "differing") ? 1 : -1, n = 0;
    if (what && !strcmp(what, "killed") && comm->rank == 1)
        raise(SIGKILL);
    assay_status s = compare_file(&n, data_shipped("glm5-tiny-Q4_K_M.gguf"), comm, differing);
    for (size_t i = 0; i < sizeof names / sizeof *names && s == ASSAY_OK; i++)
        if (data_large(names[i]))
            s = compare_file(&n, data_large(names[i]), comm, differing);
    if (s != ASSAY_OK) {
        printf("rank %d: %s\n", comm->rank, assay_error_text());
        fflush(stdout);
        assay_comm_fail(comm, assay_error_text());
    }
    if (comm->rank == 0)
        printf("%d comparisons over %d ranks\n", n, comm->n_ranks);
    assay_mpi_close(comm);
    return n > 0 ? 0 : 1;
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
    for (int n = 1; n <= 8; n *= 2) {
        int status = launch(n, "right", output, sizeof output);
        ck_assert_msg(status == 0, "%d ranks: status %d: %s", n, status, output);
        /* two paths of each model with a latent; the heads of one do not divide over 8 */
        const char *all = !data_large("models/dsv3-tiny-bf16.gguf") ? "2 comparisons"
                          : n < 8                                   ? "9 comparisons"
                                                                    : "7 comparisons";
        ck_assert_msg(strstr(output, all) != NULL, "%s", output);
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

/* ---- the tool itself under the launcher ---- */

enum { N_RANKS = 4, N_NEW = 6 };

static char tool[4096], model[4096], folder[4096];

static void make_folder(const char *name)
{
    const char *build = getenv("ASSAY_BUILD_DIR");
    ck_assert_msg(build != NULL, "ASSAY_BUILD_DIR is not set");
    snprintf(tool, sizeof tool, "%.4000s/assay", build);
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
    ck_assert_int_eq(mkdir(folder, 0777), 0);
}

/*
 * Three ranks of a capturing run, and as the fourth the shell line `last`; $RUN there is the same
 * command as the others'. 30 seconds, or it counts as a hang. Returns the launcher's exit status.
 */
static int run_tool(const char *last, int n_new, char *output, size_t room)
{
    char command[3 * 4096];
    snprintf(
        command, sizeof command,
        "export OMP_NUM_THREADS=1 OTHER='%.900s'; A='%.900s' "
        "RUN=\"'%.900s' run '%.900s' -q -p Count -n %d --capture '%.900s/c.h5'\"; export A RUN; "
        "timeout -k 1 30 mpirun --allow-run-as-root --oversubscribe -n %d sh -c \"$RUN\" : -n 1 "
        "sh -c '%.900s' 2>&1",
        data_scratch("other.gguf"), tool, tool, model, n_new, folder, N_RANKS - 1, last);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t got = fread(output, 1, room - 1, pipe);
    output[got] = '\0';
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) != 124, "no end within 30 s (%d): %s",
                  status, output);
    return WEXITSTATUS(status);
}

/* What has a capture's name is whole; what was left half done is seen to be. *n: whole ones. */
static void check_left(int *n, int n_steps)
{
    char path[4200];
    *n = 0;
    for (int r = 0; r < N_RANKS; r++)
        for (int half = 0; half < 2; half++) {
            char name[64];
            const char *at = path;
            assay_run *run;
            snprintf(name, sizeof name, half ? "c.rank%dof4.h5.partial" : "c.rank%dof4.h5", r);
            snprintf(path, sizeof path, "%.4000s/%s", folder, name);
            if (access(path, F_OK) != 0)
                continue;
            assay_status s = assay_run_open(&run, &at, 1, NULL);
            if (s != ASSAY_OK) {
                ck_assert_msg(half, "%s: %s", path, assay_error_text());
                continue;
            }
            ck_assert_int_eq(assay_run_about(run)->is_complete, !half);
            if (!half)
                ck_assert_int_eq(assay_run_prompt_at(run, 0)->n_steps, n_steps);
            *n += !half;
            assay_run_close(run);
        }
}

START_TEST(mpi_four_ranks_leave_four_whole_captures)
{
    char output[8192];
    int n;
    make_folder("mpi.whole");
    ck_assert_int_eq(run_tool("eval \"$RUN\"", N_NEW, output, sizeof output), 0);
    check_left(&n, N_NEW);
    ck_assert_msg(n == N_RANKS, "%d whole captures: %s", n, output);
}
END_TEST

/* Killed before it has met the others, and in the middle of its work. */
START_TEST(mpi_rank_of_the_tool_that_is_killed_leaves_no_whole_run)
{
    static const char *const when[] = {"0.05", "1.5"};
    for (int i = 0; i < 2; i++) {
        char output[8192], last[128];
        int n;
        make_folder(i ? "mpi.killed.late" : "mpi.killed.early");
        snprintf(last, sizeof last, "eval \"timeout -s KILL %s $RUN\"", when[i]);
        ck_assert_int_ne(run_tool(last, 400, output, sizeof output), 0);
        check_left(&n, 400);
        ck_assert_msg(n < N_RANKS, "%d whole captures of a run with a killed rank: %s", n, output);
    }
}
END_TEST

START_TEST(mpi_rank_with_another_model_ends_the_run_by_name)
{
    char output[8192];
    int n;
    assay_forge_result made;
    assay_forge_options options = {.like = "glm5-tiny", .type = "q8_0"};
    make_folder("mpi.other");
    EXPECT_OK(assay_forge_model(&made, data_scratch("other.gguf"), &options, NULL, NULL));
    int status =
        run_tool("printf \"1 2 3\" >$OTHER.ids; exec $A run $OTHER -q --tokens $OTHER.ids -n 6",
                 N_NEW, output, sizeof output);
    ck_assert_int_ne(status, 0);
    ck_assert_msg(strstr(output, "do not agree about the model") != NULL, "%s", output);
    check_left(&n, N_NEW);
    ck_assert_msg(n == 0, "%d whole captures: %s", n, output);
}
END_TEST

/* Files of that rank may hold 4 KB: what a full disk does to it. */
START_TEST(mpi_rank_without_room_ends_the_run_by_name)
{
    char output[8192];
    int n;
    make_folder("mpi.full");
    ck_assert_int_ne(run_tool("ulimit -f 8; eval \"$RUN\"", 400, output, sizeof output), 0);
    ck_assert_msg(strstr(output, "c.rank3of4.h5") != NULL, "%s", output);
    check_left(&n, 400);
    ck_assert_msg(n < N_RANKS, "%d whole captures: %s", n, output);
}
END_TEST

/* What no rank can do is a wrong command line, said once. */
START_TEST(mpi_ranks_that_all_refuse_say_why_once)
{
    static const struct {
        int status;
        const char *options, *says;
    } rows[] = {{129, "-p Count", "8 heads do not divide over 3 ranks"},
                {129, "-p Count --ranks 2", "--ranks 2, and mpirun has started 3"},
                {129, "", "a prompt is missing"},
                {128, "--tokens /no/such/file", "/no/such/file"}};
    make_folder("mpi.refused");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char command[3 * 4096], output[8192];
        snprintf(command, sizeof command,
                 "OMP_NUM_THREADS=1 timeout -k 1 60 mpirun --allow-run-as-root --oversubscribe "
                 "-n 3 '%.4000s' run '%.4000s' -q %s 2>&1",
                 tool, model, rows[i].options);
        FILE *pipe = popen(command, "r");
        ck_assert_ptr_nonnull(pipe);
        output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
        int status = pclose(pipe);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == rows[i].status,
                      "status %d, expected %d: %s", WEXITSTATUS(status), rows[i].status, output);
        const char *first = strstr(output, rows[i].says);
        ck_assert_msg(first != NULL, "%s", output);
        ck_assert_msg(strstr(first + 1, rows[i].says) == NULL, "said more than once: %s", output);
    }
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
    tcase_add_test(tcase, mpi_four_ranks_leave_four_whole_captures);
    tcase_add_test(tcase, mpi_rank_of_the_tool_that_is_killed_leaves_no_whole_run);
    tcase_add_test(tcase, mpi_rank_with_another_model_ends_the_run_by_name);
    tcase_add_test(tcase, mpi_rank_without_room_ends_the_run_by_name);
    tcase_add_test(tcase, mpi_ranks_that_all_refuse_say_why_once);
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
