/*
 * assay bench: how fast the engine, the probes, the comparison and the audit are on this machine,
 * on a seeded prompt. Every figure is the best of a few repeats, since a machine is never faster
 * than it is; the audit is judged beside a plain loop by the median of single turns.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "probes/capture.h"
#include "suites/audit_rate.h"
#include "suites/compare_rate.h"
#include "suites/diagnose_rate.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_REPEATS = 0x400, KEY_WEIGHTS, KEY_ONLY, N_DECODE = 16 };

static const struct argp_option options[] = {
    {"length", 'n', "N", 0, "Tokens of the prompt (default 64)", 0},
    {"only", KEY_ONLY, "PART", 0, "engine, capture, compare, weights or diagnose (default: all)",
     0},
    {"repeats", KEY_REPEATS, "N", 0, "Repeats of each measurement (default 3)", 0},
    {"weights", KEY_WEIGHTS, NULL, 0,
     "The same as --only weights: the audit, beside a plain sum over a fresh mapping", 0},
    {0}};

enum { ENGINE = 1, CAPTURE = 2, COMPARE = 4, WEIGHTS = 8, DIAGNOSE = 16, ALL = 31 };

typedef struct own {
    int length, repeats;
    unsigned parts;
} own;

static unsigned part_of(struct argp_state *state, const char *name)
{
    static const char *const names[] = {"engine", "capture", "compare", "weights", "diagnose"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return 1U << i;
    argp_error(state, "--only %s: expected engine, capture, compare, weights or diagnose", name);
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    if (key == 'n')
        o->length = assay_option_int(state, "length", arg, 1, 1 << 20);
    else if (key == KEY_ONLY)
        o->parts = part_of(state, arg);
    else if (key == KEY_REPEATS)
        o->repeats = assay_option_int(state, "repeats", arg, 1, ASSAY_AUDIT_RATE_MOST_TURNS);
    else if (key == KEY_WEIGHTS)
        o->parts = WEIGHTS;
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

typedef struct job {
    const own *own;
    assay_model *model;
    assay_engine_options engine;
    char folder[64], path[96];
    int32_t *tokens, *positions;
    int n_decode; /* steps after the prefill */
    json_t *figures;
} job;

typedef struct times {
    double prefill_s, decode_s;
    double prefill_cpu_s, decode_cpu_s; /* of all threads together */
} times;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One prefill and the decode steps; tap NULL: nobody looks. */
static assay_status run_once(times *out, const job *j, assay_tap_fn *tap, void *tap_user)
{
    assay_engine *engine;
    assay_engine_options e = j->engine;
    int n = j->own->length;
    e.tap = tap;
    e.tap_user = tap_user;
    e.max_positions = n + N_DECODE;
    ASSAY_TRY(assay_engine_new(&engine, j->model, &e));
    assay_batch prompt = {.n = n, .tokens = j->tokens, .positions = j->positions};
    double began = assay_now_s(), cpu_began = cpu_s();
    assay_status s = assay_engine_forward(engine, &prompt, NULL);
    double middle = assay_now_s(), cpu_middle = cpu_s();
    for (int i = 0; s == ASSAY_OK && i < j->n_decode; i++) {
        assay_batch one = {.n = 1, .tokens = j->tokens + n + i, .positions = j->positions + n + i};
        s = assay_engine_forward(engine, &one, NULL);
    }
    *out = (times){middle - began, assay_now_s() - middle, cpu_middle - cpu_began,
                   cpu_s() - cpu_middle};
    assay_engine_free(engine);
    return s;
}

static assay_status capture_once(times *out, const job *j, const char *tier)
{
    assay_capture *capture;
    assay_capture_about about = {
        .producer = "assay",
        .producer_version = ASSAY_VERSION,
        .architecture = assay_model_hparams(j->model)->architecture,
        .model_sha256 = "",
        .dtype = assay_dtype_name(j->engine.dtype),
        .path = j->engine.path == ASSAY_PATH_LATENT ? "latent" : "expanded",
        .backend = "cpu",
        .profile = assay_profile_of_own(j->engine.products == ASSAY_PRODUCTS_INTEGER),
        .mode = "eager",
        .n_ranks = 1};
    assay_capture_options keep = {.tier = tier};
    ASSAY_TRY(assay_capture_create(&capture, j->path, &about, &keep));
    double began = assay_now_s();
    assay_status s = assay_capture_prompt(capture, "default", NULL, j->tokens, j->own->length);
    if (s == ASSAY_OK)
        s = run_once(out, j, assay_capture_tap, capture);
    if (s != ASSAY_OK) {
        assay_capture_abandon(capture);
        return s;
    }
    s = assay_capture_finish(capture);
    out->decode_s = assay_now_s() - began; /* with everything written and synced */
    return s;
}

static assay_status add(job *j, const char *name, double value, const char *unit)
{
    json_t *row = json_pack("{s:s, s:f, s:s}", "name", name, "value", value, "unit", unit);
    if (!row || json_array_append_new(j->figures, row))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a figure");
    return ASSAY_OK;
}

static void keep_less(double *best, double one)
{
    *best = *best == 0 || one < *best ? one : *best;
}

static void keep_best(times *best, times one)
{
    keep_less(&best->prefill_s, one.prefill_s);
    keep_less(&best->decode_s, one.decode_s);
    keep_less(&best->prefill_cpu_s, one.prefill_cpu_s);
    keep_less(&best->decode_cpu_s, one.decode_cpu_s);
}

static assay_status bench_engine(job *j, times *plain)
{
    times best = {0}, one;
    for (int i = 0; i < j->own->repeats; i++) {
        ASSAY_TRY(run_once(&one, j, NULL, NULL));
        keep_best(&best, one);
    }
    *plain = best;
    ASSAY_TRY(add(j, "prefill", j->own->length / best.prefill_s, "tokens/s"));
    ASSAY_TRY(
        add(j, "prefill, processor", j->own->length / best.prefill_cpu_s, "tokens/s of its time"));
    ASSAY_TRY(add(j, "decode", N_DECODE / best.decode_s, "tokens/s"));
    return add(j, "decode, processor", N_DECODE / best.decode_cpu_s, "tokens/s of its time");
}

static assay_status bench_capture(job *j, const char *tier, const times *plain)
{
    times best = {0}, one;
    struct stat st = {0};
    char name[64];
    for (int i = 0; i < j->own->repeats; i++) {
        ASSAY_TRY(capture_once(&one, j, tier));
        keep_best(&best, one);
    }
    if (stat(j->path, &st))
        return assay_fail(ASSAY_IO, "'%s': cannot be looked at", j->path);
    snprintf(name, sizeof name, "capture '%s', time", tier);
    ASSAY_TRY(
        add(j, name, best.decode_s / (plain->prefill_s + plain->decode_s), "x a run without"));
    snprintf(name, sizeof name, "capture '%s', prefill", tier);
    ASSAY_TRY(add(j, name, best.prefill_cpu_s / plain->prefill_cpu_s,
                  "x a prefill without, processor time"));
    snprintf(name, sizeof name, "capture '%s', size", tier);
    return add(j, name, (double)st.st_size * 1e-6, "MB");
}

/* What inflating alone costs by one library. */
static assay_status add_inflated(job *j, const assay_compare_rate *rate, const assay_inflated *by,
                                 const char *library)
{
    char name[64];
    snprintf(name, sizeof name, "packed, %s alone", library);
    ASSAY_TRY(
        add(j, name, (double)rate->n_inflated * 1e-9 / by->seconds, "GB/s of what comes out"));
    snprintf(name, sizeof name, "packed, %s share", library);
    ASSAY_TRY(add(j, name, by->ratio, "its time / comparing's, median of turns"));
    snprintf(name, sizeof name, "packed, %s cpu", library);
    return add(j, name, by->cpu_ratio, "the same in processor time");
}

static assay_status add_compare(job *j, const assay_compare_rate *rate)
{
    double gb = (double)rate->n_bytes * 1e-9;
    ASSAY_TRY(add(j, "compare", gb / rate->compare_s, "GB/s, both sides read"));
    ASSAY_TRY(add(j, "compare, time", 1e3 * rate->compare_s, "ms"));
    ASSAY_TRY(add(j, "compare, plain loop", gb / rate->plain_s, "GB/s over a fresh mapping"));
    ASSAY_TRY(add(j, "compare / plain loop", rate->ratio, "median of turns"));
    ASSAY_TRY(add(j, "compare / loop, processor", rate->cpu_ratio, "median of turns, in its time"));
    ASSAY_TRY(add(j, "compare, lowest", rate->lowest, "compare / loop in one turn"));
    ASSAY_TRY(add(j, "compare, highest", rate->highest, "compare / loop in one turn"));
    if (!rate->n_inflated)
        return ASSAY_OK;
    ASSAY_TRY(add_inflated(j, rate, &rate->zlib, "zlib"));
    return add_inflated(j, rate, &rate->libdeflate, "libdeflate");
}

/* Captures that are there already. */
static assay_status bench_captures(job *j, const char *const *paths)
{
    assay_compare_rate rate;
    ASSAY_TRY(assay_compare_rate_measure(&rate, paths[0], paths[1], j->own->repeats));
    return add_compare(j, &rate);
}

/* Noise of a millionth in the embedding: no value behind it is bit-equal, none is off. */
static assay_status capture_off(times *out, job *j)
{
    assay_seam_setting noise = {.seam = ASSAY_SEAM_ROW_NOISE,
                                .layer = -1,
                                .head = -1,
                                .rank = -1,
                                .step = -1,
                                .sequence = -1,
                                .value = 1e-6,
                                .n_ints = 3,
                                .ints = {ASSAY_POINT_EMBED, -1, 1}};
    const assay_seams seams = {&noise, 1};
    assay_engine_options kept = j->engine;
    j->engine.seams = &seams;
    assay_status s = capture_once(out, j, "full");
    j->engine = kept;
    return s;
}

/* Two captures of a prefill, tier full: both are read and every metric is taken. */
static assay_status bench_compare(job *j)
{
    assay_compare_rate rate;
    times one;
    char kept[sizeof j->path];
    memcpy(kept, j->path, sizeof kept);
    j->n_decode = 0; /* many small values: that would be the time to open them */
    ASSAY_TRY(capture_once(&one, j, "full"));
    snprintf(j->path, sizeof j->path, "%s/twice.h5", j->folder);
    assay_status s = capture_off(&one, j);
    if (s == ASSAY_OK)
        s = assay_compare_rate_measure(&rate, kept, j->path, j->own->repeats);
    unlink(j->path);
    memcpy(j->path, kept, sizeof kept);
    ASSAY_TRY(s);
    return add_compare(j, &rate);
}

/* A prefill with every value kept; --plant shows what a search for a cause costs. */
static assay_status bench_diagnose(job *j, const char *model)
{
    assay_diagnose_rate rate;
    times one;
    j->n_decode = 0;
    ASSAY_TRY(capture_once(&one, j, "full"));
    ASSAY_TRY(assay_diagnose_rate_measure(&rate, j->path, model));
    const assay_diagnose_cost *c = &rate.cost;
    double all = c->n_hypotheses > 0 ? (double)c->n_hypotheses : 1;
    ASSAY_TRY(add(j, "diagnosis, values judged", (double)rate.n_judged, "values"));
    ASSAY_TRY(add(j, "diagnosis", 1e3 * rate.seconds / (double)rate.n_judged, "ms a value"));
    ASSAY_TRY(add(j, "diagnosis, processor", 1e3 * rate.cpu_s / (double)rate.n_judged,
                  "ms of its time a value"));
    ASSAY_TRY(add(j, "diagnosis, cost", rate.passes, "oracle passes"));
    ASSAY_TRY(add(j, "homes", c->n_homes, "values at which an error is born"));
    ASSAY_TRY(add(j, "findings", rate.n_findings, "of these"));
    ASSAY_TRY(add(j, "hypotheses", (double)c->n_hypotheses, "classes x homes"));
    ASSAY_TRY(add(j, "hypotheses tried", (double)c->n_asked / all, "of them"));
    ASSAY_TRY(add(j, "skipped, answered", (double)c->n_answered / all,
                  "the class of a like home explains this one"));
    ASSAY_TRY(
        add(j, "skipped, belongs", (double)c->n_belongs / all, "the home belongs to another one"));
    return add(j, "skipped, unaffordable", (double)c->n_unaffordable / all,
               "the oracle's passes were spent");
}

static assay_status bench_weights(job *j, const assay_options *common)
{
    assay_audit_rate rate;
    ASSAY_TRY(assay_audit_rate_measure(&rate, common->args[0], common->n_threads, j->own->repeats));
    double gb = (double)rate.n_bytes * 1e-9;
    ASSAY_TRY(add(j, "weights", gb, "GB a reading"));
    ASSAY_TRY(add(j, "weights, plain sum", gb / rate.plain_s, "GB/s over a fresh mapping"));
    ASSAY_TRY(add(j, "weights, audit", gb / rate.scan_s, "GB/s over a fresh mapping"));
    ASSAY_TRY(add(j, "weights, audit / sum", rate.ratio, "median of turns"));
    ASSAY_TRY(add(j, "weights, lowest", rate.lowest, "audit / sum in one turn"));
    return add(j, "weights, highest", rate.highest, "audit / sum in one turn");
}

static assay_status bench_engine_and_probes(job *j, assay_options *common)
{
    times plain;
    int n = j->own->length + N_DECODE;
    ASSAY_TRY(assay_model_open(&j->model, common->args[0], NULL));
    const assay_hparams *hparams = assay_model_hparams(j->model);
    ASSAY_TRY(assay_options_engine(&j->engine, common, hparams));
    ASSAY_TRY(assay_alloc(&j->tokens, (size_t)n, sizeof *j->tokens, "a prompt"));
    ASSAY_TRY(assay_alloc(&j->positions, (size_t)n, sizeof *j->positions, "a prompt"));
    for (int i = 0; i < n; i++) {
        j->tokens[i] = (int32_t)((i * 7919LL + 13) % hparams->n_vocab);
        j->positions[i] = i;
    }
    const char *tmp = getenv("TMPDIR");
    snprintf(j->folder, sizeof j->folder, "%s/assay-bench-XXXXXX", tmp ? tmp : P_tmpdir);
    if (!mkdtemp(j->folder))
        return assay_fail(ASSAY_IO, "no scratch folder can be made in /tmp");
    snprintf(j->path, sizeof j->path, "%s/bench.h5", j->folder);
    j->n_decode = N_DECODE;
    if (j->own->parts & (ENGINE | CAPTURE))
        ASSAY_TRY(bench_engine(j, &plain));
    if (j->own->parts & CAPTURE)
        ASSAY_TRY(bench_capture(j, "stats", &plain));
    if (j->own->parts & CAPTURE)
        ASSAY_TRY(bench_capture(j, "sketch", &plain));
    if (j->own->parts & CAPTURE)
        ASSAY_TRY(bench_capture(j, "full", &plain));
    if (j->own->parts & COMPARE)
        ASSAY_TRY(bench_compare(j));
    return j->own->parts & DIAGNOSE ? bench_diagnose(j, common->args[0]) : ASSAY_OK;
}

static assay_status bench(job *j, assay_options *common)
{
    if (common->n_args == 2)
        return bench_captures(j, common->args);
    if (common->n_ranks > 1)
        return assay_fail(ASSAY_UNSUPPORTED, "--ranks %d: one rank is measured", common->n_ranks);
    if (j->own->parts & (ENGINE | CAPTURE | COMPARE | DIAGNOSE))
        ASSAY_TRY(bench_engine_and_probes(j, common));
    return j->own->parts & WEIGHTS ? bench_weights(j, common) : ASSAY_OK;
}

static void print(const job *j, bool json)
{
    const json_t *row;
    size_t i;
    if (json) {
        json_t *all = json_pack("{s:s, s:s, s:O}", "assay", ASSAY_VERSION, "command", "bench",
                                "figures", j->figures);
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(all);
        return;
    }
    json_array_foreach(j->figures, i, row)
    {
        printf("%-24s %10.4g %s\n", json_string_value(json_object_get(row, "name")),
               json_real_value(json_object_get(row, "value")),
               json_string_value(json_object_get(row, "unit")));
    }
}

int assay_cmd_bench(int argc, char **argv)
{
    own o = {.length = 64, .repeats = 3, .parts = ALL};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_ENGINE,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = 2};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    job j = {.own = &o, .figures = json_array()};
    assay_status s = bench(&j, &common);
    assay_progress_end();
    if (s == ASSAY_OK)
        print(&j, common.json);
    if (j.folder[0]) {
        unlink(j.path);
        rmdir(j.folder);
    }
    json_decref(j.figures);
    free(j.tokens);
    free(j.positions);
    assay_model_close(j.model);
    return s == ASSAY_OK ? 0 : assay_end_failed(&common, s);
}
