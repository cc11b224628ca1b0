/*
 * assay repro: one finding of a saved result as a small file that needs no model, and such a file
 * shown again.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include "engine/base/publish.h"
#include "reports/repro.h"
#include "tools/options.h"
#include "tools/progress.h"

extern char **environ;

static const struct argp_option options[] = {
    {"output", 'o', "BUNDLE", 0, "Write the bundle here (HDF5)", 0}, {0}};

typedef struct own {
    const char *output;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    if (key != 'o')
        return ARGP_ERR_UNKNOWN;
    o->output = arg;
    return 0;
}

static int show(const assay_options *common)
{
    assay_result result;
    assay_status s = assay_options_result(&result, common);
    if (s != ASSAY_OK)
        return assay_end_failed(common, s);
    s = assay_repro_replay(&result, common->args[0]);
    if (s == ASSAY_OK)
        return assay_end(common, &result);
    assay_result_clear(&result);
    return assay_end_failed(common, s);
}

static assay_status pick(const assay_finding **out, const assay_result *result, const char *number,
                         const char *path)
{
    char *end;
    long n = strtol(number, &end, 10);
    if (end == number || *end || n < 1 || n > result->n_findings)
        return result->n_findings < 2
                   ? assay_fail(ASSAY_USAGE, "'%s' is no finding of '%s': it has %s", number, path,
                                result->n_findings ? "one, 1" : "none")
                   : assay_fail(ASSAY_USAGE, "'%s' is no finding of '%s': it has 1 ... %d", number,
                                path, result->n_findings);
    *out = &result->findings[n - 1];
    if (!(*out)->reproduce || strncmp((*out)->reproduce, "assay ", 6) != 0)
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "finding %ld of '%s' does not say which command "
                          "shows it again",
                          n, path);
    return ASSAY_OK;
}

/* Runs the command that found it once more, with --repro FOLDER. */
static assay_status find_again(const char *line, const char *folder)
{
    wordexp_t words = {.we_offs = 0};
    char option[] = "--repro";
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 0;
    if (wordexp(line, &words, WRDE_NOCMD | WRDE_UNDEF) != 0)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is no command line", line);
    char **argv = calloc(words.we_wordc + 3, sizeof *argv);
    if (!argv) {
        wordfree(&words);
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a command line");
    }
    memcpy(argv, words.we_wordv, words.we_wordc * sizeof *argv);
    argv[words.we_wordc] = option;
    argv[words.we_wordc + 1] = (char *)folder;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    wordfree(&words);
    if (failed || waitpid(child, &status, 0) < 0)
        return assay_fail(ASSAY_IO, "'%s' cannot be run: %s", line,
                          strerror(failed ? failed : errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        return assay_fail(ASSAY_CANNOT_JUDGE, "'%s' ended with status %d", line,
                          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return ASSAY_OK;
}

static int drop(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

/* The folder lies beside the output, so that one rename moves the bundle. */
static assay_status make(const assay_finding *f, const char *output)
{
    char *folder = NULL, *made = NULL;
    assay_status s;
    if (asprintf(&folder, "%s.XXXXXX", output) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    if (!mkdtemp(folder)) {
        s = assay_fail(ASSAY_IO, "'%s': cannot be written: %s", output, strerror(errno));
        free(folder);
        return s;
    }
    ASSAY_GO(find_again(f->reproduce, folder));
    if (asprintf(&made, "%s/%s_%s.h5", folder, f->fault_class, f->point) < 0)
        made = NULL;
    if (!made)
        s = assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    else if (access(made, F_OK) == 0)
        s = assay_publish(made, output);
    else
        s = assay_fail(ASSAY_CANNOT_JUDGE,
                       "%s at %s has no bundle: it is not found again, or no value of an op "
                       "shows it alone",
                       f->fault_class, f->point);
out:
    nftw(folder, drop, 4, FTW_DEPTH | FTW_PHYS); /* bundles of the other findings */
    free(made);
    free(folder);
    return s;
}

static int write_bundle(const own *o, const assay_options *common)
{
    assay_result result = {0};
    const assay_finding *finding = NULL;
    assay_status s;
    if (common->n_args == 2 && !o->output)
        return assay_end_failed(common,
                                assay_fail(ASSAY_USAGE, "-o BUNDLE.h5 is missing: where the "
                                                        "bundle is written"));
    if (common->n_args != 2)
        return assay_end_failed(common,
                                assay_fail(ASSAY_USAGE,
                                           "'%s' is no bundle: RESULT.json FINDING -o BUNDLE.h5 "
                                           "makes one, BUNDLE.h5 shows it",
                                           common->args[0]));
    assay_progress_begin("repro");
    ASSAY_GO(assay_result_from_json(&result, common->args[0]));
    ASSAY_GO(pick(&finding, &result, common->args[1], common->args[0]));
    s = make(finding, o->output);
    if (s == ASSAY_OK && !common->quiet) {
        assay_progress_end();
        printf("%s\n%s at %s, without the model; shown again by: assay repro %s\n", o->output,
               finding->fault_class, finding->point, o->output);
    }
out:
    assay_result_clear(&result);
    return s == ASSAY_OK ? 0 : assay_end_failed(common, s);
}

int assay_cmd_repro(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = 2,
                     .about =
                         "With RESULT.json (of check or diagnose) and the number of a finding: "
                         "runs its command again and keeps what the judge read, a few inputs, "
                         "the weights of one op and its output, in one HDF5 file. With such a "
                         "file: judges it again, on any machine. Its exit status is then that "
                         "of a diagnosis."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    return common.n_args == 1 && assay_repro_is_bundle(common.args[0]) ? show(&common)
                                                                       : write_bundle(&o, &common);
}
