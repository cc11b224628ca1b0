/*
 * The command line that commands share: options in groups, and how a command ends.
 *
 *     static const struct argp_option options[] = {{"reference", 'r', "REF", 0, "...", 0}, {0}};
 *
 *     int assay_cmd_check(int argc, char **argv)
 *     {
 *         struct own own = {0};
 *         assay_options common;
 *         assay_cli cli = {.groups = ASSAY_OPTIONS_ENGINE, .options = options, .option = parse,
 *                          .user = &own, .min_args = 1, .max_args = 1};
 *         int status;
 *         if (!assay_options_parse(&common, &status, &cli, argc, argv))
 *             return status;
 *         ...
 *         if (s != ASSAY_OK)
 *             return assay_end_failed(&common, s);
 *         return assay_end(&common, &result);
 *     }
 *
 * Help, the man page and shell completion are made from the same tables: assay_options_parse is the
 * first thing a command does, so that a describer (assay_options_describe) can look at its tables
 * without running it.
 */
#ifndef ASSAY_TOOLS_OPTIONS_H
#define ASSAY_TOOLS_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "references/run.h"
#include "reports/fault.h"
#include "reports/finding.h"
#include "tools/command.h"

#define ASSAY_EXIT_CANNOT_JUDGE 125
#define ASSAY_EXIT_BROKEN 128
#define ASSAY_EXIT_USAGE 129

/* Groups beside the ones that every command has (--json --quiet --verbose --threads). */
enum {
    ASSAY_OPTIONS_ENGINE = 1,  /* --backend --path --dtype --ranks --experts --chunk --cache ... */
    ASSAY_OPTIONS_PROMPT = 2,  /* -p --tokens */
    ASSAY_OPTIONS_CAPTURE = 4, /* --step --profile --names: how captures are read */
    ASSAY_OPTIONS_REPORT = 8,  /* --report DIR */
    ASSAY_OPTIONS_N = 4
};

#define ASSAY_MAX_PLANTS 16
#define ASSAY_MAX_ARGS 16

typedef struct assay_options {
    const assay_command *command;
    char line[4096];  /* the command as it was typed, quoted for a shell */
    char again[4096]; /* the same without options of the output: shows a finding again */
    int n_args;
    const char *args[ASSAY_MAX_ARGS];
    /* everywhere */
    bool json, quiet, verbose;
    int n_threads; /* 0: all cores */
    /* engine runs */
    assay_backend backend;
    assay_path path;
    assay_dtype dtype;
    assay_products products;
    bool path_given;
    bool whole_experts;
    bool graph;         /* decode steps replayed, on a device */
    int n_ranks, chunk; /* 1, 0 (at once) */
    assay_cache_type cache_type;
    int page_size, key_split, pad_to; /* 0: none */
    bool batch_invariant;
    int n_plants;
    assay_plant plants[ASSAY_MAX_PLANTS];
    int n_settings; /* filled by assay_options_engine */
    assay_seam_setting settings[ASSAY_MAX_PLANTS * 4];
    assay_seams seams;
    /* a prompt */
    const char *text, *tokens_path;
    /* captures */
    int step; /* -1: all */
    const char *profile, *names;
    const assay_run_sizes *sizes; /* set by a command that knows the model; NULL: none */
    /* reports */
    const char *report_dir;
    double started_s;
} assay_options;

typedef struct assay_cli {
    unsigned groups;
    const struct argp_option *options; /* the command's own; ends with {0}; NULL: none */
    argp_parser_t option;              /* state->input is user; NULL: none */
    void *user;
    int min_args, max_args;
    const char *about; /* paragraphs behind the options in --help; NULL: none */
} assay_cli;

/* false: return *exit_status (a describer has seen the tables). argp itself exits on --help and on
 * a wrong command line. */
bool assay_options_parse(assay_options *out, int *exit_status, const assay_cli *cli, int argc,
                         char **argv);

/* Calls the command with argv[0] = "assay NAME". */
int assay_command_call(const assay_command *command, int argc, char **argv);

#define ASSAY_OPTIONS_OWN "Options of this command"
#define ASSAY_OPTIONS_EVERYWHERE "Everywhere"

/* Shows the option tables of a command instead of running it: the callback sees each group. */
typedef void assay_describe_fn(void *user, const char *header, const struct argp_option *options);
void assay_options_describe(const assay_command *command, assay_describe_fn *fn, void *user);
/* Every group that commands share, once. */
void assay_options_describe_groups(assay_describe_fn *fn, void *user);
/* Prints the command's --help. */
void assay_options_help(const assay_command *command);

/* Option values; a wrong one ends the program with status 129 and a line that names the option. */
int assay_option_int(const struct argp_state *state, const char *option, const char *text, int low,
                     int high);
/* "512", "64K", "100M", "2G": bytes. */
int64_t assay_option_size(const struct argp_state *state, const char *option, const char *text);
/* "3" or "0-2". */
void assay_option_range(const struct argp_state *state, const char *option, const char *text,
                        int *first, int *last);

/* The word as a shell reads it back, quoted where it must be; cut when it does not fit. Returns its
 * length. */
size_t assay_option_word(char *out, size_t room, const char *word);

/* Engine options as asked for; plants become seams (borrowed from `options`). */
assay_status assay_options_engine(assay_engine_options *out, assay_options *options,
                                  const assay_hparams *hparams);

/* The prompt of -p or --tokens. *text: NULL for --tokens; borrowed. Fails: ASSAY_USAGE when neither
 * is given. */
assay_status assay_options_prompt(assay_ids *ids, const char **text, const assay_options *options,
                                  const assay_tokenizer *tokenizer, int64_t n_vocab);
/* Ids from a file: numbers with blanks or commas between them, "[1, 2]" as well as "1
 * 2"; or the prompt of a capture (FILE:PROMPT where it holds several). n_vocab: bound of the ids.
 */
assay_status assay_ids_read(assay_ids *ids, const char *path, int64_t n_vocab);

/* Opens captures with --step, --profile and --names applied. */
assay_status assay_options_run(assay_run **out, const assay_options *options,
                               const char *const *paths, int n_paths);

/* An empty result that knows the command and its line. */
assay_status assay_options_result(assay_result *out, const assay_options *options);

/* Commands that lead on from the findings, put into the result: the numbers at the first one
 * (captures n > 0) beside a reference or what the model gives, its class, a bundle where there can
 * be one. NULL: none. Nothing without findings. */
assay_status assay_next(assay_result *result, const assay_options *options,
                        const char *const *captures, int n, const char *reference,
                        const char *model);
/* The commands that run the prompt of a capture of sketches again, keep the values of a point's
 * layer and of the one before, and diagnose them. model NULL: not known. */
assay_status assay_next_full(assay_result *result, const char *model, const char *sketches,
                             const char *prompt, assay_point point, int layer);

/* The command's end: prints the result on stdout (text or JSON), writes --report, clears the
 * result, returns the exit status. */
int assay_end(const assay_options *options, assay_result *result);
/* The end by an error: its line on stderr (with --json also an object on stdout). */
int assay_end_failed(const assay_options *options, assay_status status);
/* For what a command has printed itself: 0, or 128 and a message when standard output is closed or
 * full. */
int assay_end_printed(const assay_options *options);

double assay_now_s(void);

#endif
