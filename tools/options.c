#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reports/render.h"
#include "tools/misspelt.h"
#include "tools/progress.h"

enum {
    KEY_JSON = 0x200,
    KEY_THREADS,
    KEY_BACKEND,
    KEY_PATH,
    KEY_DTYPE,
    KEY_PRODUCTS,
    KEY_RANKS,
    KEY_EXPERTS,
    KEY_GRAPH,
    KEY_CHUNK,
    KEY_CACHE,
    KEY_PAGES,
    KEY_SPLIT,
    KEY_PAD,
    KEY_STEADY,
    KEY_PLANT,
    KEY_TOKENS,
    KEY_STEP,
    KEY_PROFILE,
    KEY_NAMES,
    KEY_REPORT
};

static const struct argp_option everywhere_options[] = {
    {"json", KEY_JSON, NULL, 0, "Print one JSON object (schema in reports/README.md)", 0},
    {"quiet", 'q', NULL, 0, "Print the verdict only, no progress", 0},
    {"verbose", 'v', NULL, 0, "Print every row and detail", 0},
    {"threads", KEY_THREADS, "N", 0, "Threads to use (default: all cores)", 0},
    {0}};

static const struct argp_option engine_options[] = {
    {"backend", KEY_BACKEND, "NAME", 0, "cpu (default) or cuda", 0},
    {"path", KEY_PATH, "NAME", 0, "Attention: latent or expanded (default)", 0},
    {"dtype", KEY_DTYPE, "NAME", 0, "Format of the computation: f32 (default) or bf16", 0},
    {"products", KEY_PRODUCTS, "HOW", 0,
     "Quantized weights: exact (default), or integer, with activations rounded to 8-bit blocks", 0},
    {"ranks", KEY_RANKS, "N", 0, "Tensor-parallel ranks (default 1)", 0},
    {"experts", KEY_EXPERTS, "HOW", 0,
     "Experts over ranks: cut inside (default) or whole, each on one rank", 0},
    {"graph", KEY_GRAPH, NULL, 0, "On a device: decode steps are captured in graphs and replayed",
     0},
    {"chunk", KEY_CHUNK, "N", 0, "Prefill in chunks of N tokens (default: at once)", 0},
    {"cache", KEY_CACHE, "TYPE", 0,
     "Stored type of the cache: f32 (default), f16, bf16, q8_0, f8e4m3", 0},
    {"pages", KEY_PAGES, "N", 0, "Cache in pages of N positions (default: contiguous)", 0},
    {"key-split", KEY_SPLIT, "N", 0, "Attention in parts of N keys, merged (default: whole)", 0},
    {"pad", KEY_PAD, "N", 0, "Padding rows up to a multiple of N in every step", 0},
    {"batch-invariant", KEY_STEADY, NULL, 0,
     "Products in one order of summation: the same bits in any batch and chunk", 0},
    {"plant", KEY_PLANT, "KIND[:layer=A,head=B,rank=R,step=S,value=V]", 0,
     "Plant a fault in the engine (`assay list plants` has the kinds); may be repeated", 0},
    {0}};

static const struct argp_option prompt_options[] = {
    {"prompt", 'p', "TEXT", 0, "The prompt", 0},
    {"tokens", KEY_TOKENS, "FILE", 0,
     "The prompt as token ids: numbers, a JSON list, or a capture whose prompt is taken", 0},
    {0}};

static const struct argp_option capture_options[] = {
    {"step", KEY_STEP, "N", 0, "Only this step of each prompt", 0},
    {"profile", KEY_PROFILE, "NAME", 0,
     "Conventions of the engine that made the capture (`assay list profiles`)", 0},
    {"names", KEY_NAMES, "FILE.yaml", 0, "A name map for a dump of an unknown engine", 0},
    {0}};

static const struct argp_option report_options[] = {
    {"report", KEY_REPORT, "DIR", 0, "Also write the result in every format into this folder", 0},
    {0}};

/* The describer that is asking, instead of a run. */
static assay_describe_fn *describe;
static void *describe_user;
static bool help_wanted;
static const assay_command *current;

double assay_now_s(void)
{
    return omp_get_wtime();
}

static int one_of(const struct argp_state *state, const char *option, const char *text,
                  const char *first, const char *second)
{
    if (!strcmp(text, first))
        return 0;
    if (!strcmp(text, second))
        return 1;
    argp_error(state, "--%s '%s': %s or %s is expected", option, text, first, second);
    return 0;
}

static error_t parse_everywhere(int key, char *arg, struct argp_state *state)
{
    assay_options *o = state->input;
    switch (key) {
    case KEY_JSON:
        o->json = true;
        return 0;
    case 'q':
        o->quiet = true;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    case KEY_THREADS:
        o->n_threads = assay_option_int(state, "threads", arg, 1, 4096);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void add_plant(assay_options *o, const char *arg, const struct argp_state *state)
{
    if (o->n_plants == ASSAY_MAX_PLANTS)
        argp_error(state, "--plant may be given %d times at most", ASSAY_MAX_PLANTS);
    else if (assay_plant_parse(&o->plants[o->n_plants], arg) != ASSAY_OK)
        argp_error(state, "%s", assay_error_text());
    else
        o->n_plants++;
}

static error_t parse_engine(int key, char *arg, struct argp_state *state)
{
    assay_options *o = state->input;
    switch (key) {
    case KEY_BACKEND:
        o->backend =
            one_of(state, "backend", arg, "cpu", "cuda") ? ASSAY_BACKEND_CUDA : ASSAY_BACKEND_CPU;
        return 0;
    case KEY_PATH:
        o->path = one_of(state, "path", arg, "expanded", "latent") ? ASSAY_PATH_LATENT
                                                                   : ASSAY_PATH_EXPANDED;
        o->path_given = true;
        return 0;
    case KEY_DTYPE:
        o->dtype = one_of(state, "dtype", arg, "f32", "bf16") ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32;
        return 0;
    case KEY_PRODUCTS:
        o->products = one_of(state, "products", arg, "exact", "integer") ? ASSAY_PRODUCTS_INTEGER
                                                                         : ASSAY_PRODUCTS_EXACT;
        return 0;
    case KEY_RANKS:
        o->n_ranks = assay_option_int(state, "ranks", arg, 1, 1024);
        return 0;
    case KEY_EXPERTS:
        o->whole_experts = one_of(state, "experts", arg, "cut", "whole");
        return 0;
    case KEY_GRAPH:
        o->graph = true;
        return 0;
    case KEY_CHUNK:
        o->chunk = assay_option_int(state, "chunk", arg, 1, 1 << 20);
        return 0;
    case KEY_CACHE:
        o->cache_type = assay_cache_type_find(arg);
        if (o->cache_type == ASSAY_CACHE_TYPE_COUNT)
            argp_error(state, "--cache '%s': expected f32, f16, bf16, q8_0 or f8e4m3", arg);
        return 0;
    case KEY_PAGES:
        o->page_size = assay_option_int(state, "pages", arg, 1, 1 << 20);
        return 0;
    case KEY_SPLIT:
        o->key_split = assay_option_int(state, "key-split", arg, 1, 1 << 20);
        return 0;
    case KEY_PAD:
        o->pad_to = assay_option_int(state, "pad", arg, 1, 1 << 20);
        return 0;
    case KEY_STEADY:
        o->batch_invariant = true;
        return 0;
    case KEY_PLANT:
        add_plant(o, arg, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_prompt(int key, char *arg, struct argp_state *state)
{
    assay_options *o = state->input;
    if (key == 'p')
        o->text = arg;
    else if (key == KEY_TOKENS)
        o->tokens_path = arg;
    else
        return ARGP_ERR_UNKNOWN;
    if (o->text && o->tokens_path)
        argp_error(state, "-p and --tokens exclude each other");
    return 0;
}

static error_t parse_capture(int key, char *arg, struct argp_state *state)
{
    assay_options *o = state->input;
    switch (key) {
    case KEY_STEP:
        o->step = assay_option_int(state, "step", arg, 0, 1 << 30);
        return 0;
    case KEY_PROFILE:
        if (!assay_profile_find(arg)) {
            argp_error(state, "--profile '%s' is not known; `assay list profiles` lists them", arg);
            return 0;
        }
        o->profile = arg;
        return 0;
    case KEY_NAMES:
        o->names = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_report(int key, char *arg, struct argp_state *state)
{
    if (key != KEY_REPORT)
        return ARGP_ERR_UNKNOWN;
    ((assay_options *)state->input)->report_dir = arg;
    return 0;
}

typedef struct root {
    assay_options *out;
    const assay_cli *cli;
    int n_groups;
} root;

static error_t parse_root(int key, char *arg, struct argp_state *state)
{
    root *r = state->input;
    assay_options *o = r->out;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = r->cli->user;
        for (int i = 1; i < r->n_groups; i++)
            state->child_inputs[i] = o;
        return 0;
    case ARGP_KEY_ARG:
        if (o->n_args >= r->cli->max_args || o->n_args >= ASSAY_MAX_ARGS)
            argp_error(state, "'%s' is one argument too many", arg);
        else
            o->args[o->n_args++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->n_args < r->cli->min_args)
            argp_error(state, "an argument is missing: %s", o->command->synopsis);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option no_options[] = {{0}};

static const struct {
    unsigned bit; /* 0: every command has it */
    const char *header;
    struct argp argp;
} groups[] = {
    {ASSAY_OPTIONS_PROMPT, "The prompt", {prompt_options, parse_prompt, 0, 0, 0, 0, 0}},
    {ASSAY_OPTIONS_ENGINE, "The engine's run", {engine_options, parse_engine, 0, 0, 0, 0, 0}},
    {ASSAY_OPTIONS_CAPTURE, "Reading captures", {capture_options, parse_capture, 0, 0, 0, 0, 0}},
    {ASSAY_OPTIONS_REPORT, "Reports", {report_options, parse_report, 0, 0, 0, 0, 0}},
    {0, ASSAY_OPTIONS_EVERYWHERE, {everywhere_options, parse_everywhere, 0, 0, 0, 0, 0}}};

#define N_GROUPS ((int)(sizeof groups / sizeof *groups))

static void show_tables(const assay_cli *cli)
{
    if (cli->options)
        describe(describe_user, ASSAY_OPTIONS_OWN, cli->options);
    for (int i = 0; i < N_GROUPS; i++)
        if (!groups[i].bit || (cli->groups & groups[i].bit))
            describe(describe_user, groups[i].header, groups[i].argp.options);
}

static bool is_plain(const char *word)
{
    if (!*word)
        return false;
    for (; *word; word++)
        if (!isalnum((unsigned char)*word) && !strchr("-_./:=,+@%", *word))
            return false;
    return true;
}

size_t assay_option_word(char *out, size_t room, const char *word)
{
    const char *quote = is_plain(word) ? "" : "'";
    size_t n = (size_t)snprintf(out, room, "%s", quote);
    for (const char *c = word; *c && n + 8 < room; c++) {
        if (*c == '\'')
            n += (size_t)sprintf(out + n, "'\\'");
        out[n++] = *c;
    }
    return n + (size_t)snprintf(out + n, room - n, "%s", quote);
}

/* Says nothing about what is judged: left out of the command that shows a finding again. 2: has a
 * value. */
static int is_about_output(const char *word)
{
    static const char *const alone[] = {"--json", "--quiet", "-q", "--verbose", "-v"};
    static const char *const valued[] = {"--report", "--repro", "--sign"};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (!strcmp(word, alone[i]))
            return 1;
    for (size_t i = 0; i < sizeof valued / sizeof *valued; i++) {
        size_t n = strlen(valued[i]);
        if (!strncmp(word, valued[i], n) && (!word[n] || word[n] == '='))
            return word[n] ? 1 : 2;
    }
    return 0;
}

/* The command line, quoted so that a shell reads the same words again; cut when it is too long. */
static void write_line(char *out, size_t room, const assay_command *command, int argc, char **argv,
                       bool whole)
{
    size_t n = (size_t)snprintf(out, room, "assay %s", command->name);
    for (int i = 1; i < argc && n + 8 < room; i++) {
        int skip = whole ? 0 : is_about_output(argv[i]);
        if (skip) {
            i += skip - 1;
            continue;
        }
        out[n++] = ' ';
        n += assay_option_word(out + n, room - n, argv[i]);
    }
    out[n] = '\0';
}

static void set_defaults(assay_options *o)
{
    *o = (assay_options){.command = current,
                         .backend = ASSAY_BACKEND_CPU,
                         .path = ASSAY_PATH_EXPANDED,
                         .dtype = ASSAY_DTYPE_F32,
                         .n_ranks = 1,
                         .step = -1,
                         .started_s = assay_now_s()};
}

/* Whether the reports can be written, asked before the work; leaves no folder that was not there.
 */
static assay_status try_report_folder(const char *folder)
{
    bool was_there = access(folder, F_OK) == 0;
    ASSAY_TRY(assay_render_make_folder(folder));
    int failed = access(folder, W_OK | X_OK) ? errno : 0;
    if (!was_there)
        rmdir(folder);
    return failed ? assay_fail(ASSAY_IO, "--report: '%s' cannot be written to: %s", folder,
                               strerror(failed))
                  : ASSAY_OK;
}

bool assay_options_parse(assay_options *out, int *exit_status, const assay_cli *cli, int argc,
                         char **argv)
{
    if (describe) {
        show_tables(cli);
        *exit_status = 0;
        return false;
    }
    struct argp own = {cli->options ? cli->options : no_options, cli->option, 0, 0, 0, 0, 0};
    struct argp_child children[N_GROUPS + 2] = {
        {&own, 0, cli->options ? ASSAY_OPTIONS_OWN : NULL, 1}};
    const struct argp_option *tables[N_GROUPS + 1] = {own.options};
    root r = {out, cli, 1};
    for (int i = 0; i < N_GROUPS; i++)
        if (!groups[i].bit || (cli->groups & groups[i].bit)) {
            children[r.n_groups] =
                (struct argp_child){&groups[i].argp, 0, groups[i].header, r.n_groups + 1};
            tables[r.n_groups] = groups[i].argp.options;
            r.n_groups++;
        }
    set_defaults(out);
    char doc[4096];
    snprintf(doc, sizeof doc, "%s%s%s", out->command->help, cli->about ? "\v" : "",
             cli->about ? cli->about : "");
    struct argp argp = {no_options, parse_root, out->command->synopsis, doc, children, 0, 0};
    if (help_wanted) {
        argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK, argv[0]);
        *exit_status = 0;
        return false;
    }
    write_line(out->line, sizeof out->line, out->command, argc, argv, true);
    write_line(out->again, sizeof out->again, out->command, argc, argv, false);
    if (assay_option_words_check(tables, r.n_groups, argc, argv) != ASSAY_OK) {
        *exit_status = assay_end_failed(out, ASSAY_USAGE);
        return false;
    }
    error_t failed = argp_parse(&argp, argc, argv, 0, NULL, &r);
    if (failed == ENOMEM) {
        fprintf(stderr, "%s: out of memory for the command line\n", argv[0]);
        *exit_status = assay_status_exit(ASSAY_NO_MEMORY);
        return false;
    }
    if (failed) {
        *exit_status = ASSAY_EXIT_USAGE;
        return false;
    }
    if (out->report_dir) {
        assay_status s = try_report_folder(out->report_dir);
        if (s != ASSAY_OK) {
            *exit_status = assay_end_failed(out, s);
            return false;
        }
    }
    if (out->n_threads)
        omp_set_num_threads(out->n_threads);
    if (!out->quiet)
        assay_progress_begin(out->command->name);
    return true;
}

int assay_command_call(const assay_command *command, int argc, char **argv)
{
    char name[64];
    char *words[argc + 1];
    snprintf(name, sizeof name, "assay %s", command->name);
    words[0] = name;
    for (int i = 1; i <= argc; i++)
        words[i] = i < argc ? argv[i] : NULL;
    const assay_command *outer = current;
    current = command;
    int status = command->run(argc, words);
    current = outer;
    return status;
}

void assay_options_describe(const assay_command *command, assay_describe_fn *fn, void *user)
{
    char *argv[] = {(char *)command->name, NULL};
    describe = fn;
    describe_user = user;
    assay_command_call(command, 1, argv);
    describe = NULL;
}

void assay_options_describe_groups(assay_describe_fn *fn, void *user)
{
    for (int i = 0; i < N_GROUPS; i++)
        fn(user, groups[i].header, groups[i].argp.options);
}

void assay_options_help(const assay_command *command)
{
    char *argv[] = {(char *)command->name, NULL};
    help_wanted = true;
    assay_command_call(command, 1, argv);
    help_wanted = false;
}

assay_status assay_options_engine(assay_engine_options *out, assay_options *options,
                                  const assay_hparams *hparams)
{
    const int max = (int)(sizeof options->settings / sizeof *options->settings);
    options->n_settings = 0;
    if (options->graph && options->backend != ASSAY_BACKEND_CUDA)
        return assay_fail(ASSAY_USAGE, "--graph: graphs are of devices (--backend cuda)");
    for (int i = 0; i < options->n_plants; i++) {
        ASSAY_TRY(assay_plant_on(&options->plants[i], options->backend == ASSAY_BACKEND_CUDA));
        ASSAY_TRY(assay_plant_make(options->settings, &options->n_settings, max,
                                   &options->plants[i], hparams));
    }
    *out = assay_engine_options_default();
    out->backend = options->backend;
    out->path = options->path;
    out->dtype = options->dtype;
    out->products = options->products;
    out->n_threads = options->n_threads;
    out->whole_experts = options->whole_experts;
    out->use_graph = options->graph;
    out->cache_type = options->cache_type;
    out->page_size = options->page_size;
    out->key_split = options->key_split;
    out->pad_to = options->pad_to;
    out->batch_invariant = options->batch_invariant;
    assay_plant_shape(out, options->plants, options->n_plants);
    options->seams = (assay_seams){options->settings, options->n_settings};
    if (options->n_settings)
        out->seams = &options->seams;
    return ASSAY_OK;
}

assay_status assay_options_run(assay_run **out, const assay_options *options,
                               const char *const *paths, int n_paths)
{
    assay_run_options r = assay_run_options_default();
    r.step = options->step;
    r.profile = options->profile;
    r.names = options->names;
    r.sizes = options->sizes;
    return assay_run_open(out, paths, n_paths, &r);
}
