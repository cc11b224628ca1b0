/*
 * assay run: greedy text from the engine; with --capture, what the engine computed on the way.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_CAPTURE = 0x400, KEY_POINTS, KEY_TIER, KEY_BUDGET };

static const struct argp_option options[] = {
    {"new", 'n', "N", 0, "Tokens to generate (default 16)", 0},
    {"capture", KEY_CAPTURE, "FILE", 0, "Write a capture (HDF5)", 0},
    {"points", KEY_POINTS, "SEL", 0, "Which points: \"layer=0-3 point=attn.*\" (default all)", 0},
    {"tier", KEY_TIER, "TIER", 0, "What to keep: stats or full (default)", 0},
    {"budget", KEY_BUDGET, "SIZE", 0, "Bytes the capture may have; the rest is listed", 0},
    {0}};

typedef struct own {
    int n_new;
    const char *capture;
    assay_capture_options keep;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case 'n':
        o->n_new = assay_option_int(state, "new", arg, 1, 1 << 20);
        return 0;
    case KEY_CAPTURE:
        o->capture = arg;
        return 0;
    case KEY_POINTS:
        o->keep.selector = arg;
        return 0;
    case KEY_TIER:
        o->keep.tier = arg;
        return 0;
    case KEY_BUDGET:
        o->keep.budget_bytes = assay_option_size(state, "budget", arg);
        return 0;
    case ARGP_KEY_END:
        if (!o->capture && (o->keep.selector || o->keep.tier || o->keep.budget_bytes))
            argp_error(state, "--points, --tier and --budget need --capture FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct job {
    assay_model *model;
    assay_tokenizer *tokenizer;
    assay_engine *engine;
    assay_capture *capture;
    assay_ids prompt;
    const char *text; /* NULL: ids were given */
    int32_t *ids;
    char *answer;
    size_t n_answer;
} job;

static assay_status open_capture(job *j, const own *o, const assay_options *common)
{
    char sha256[65];
    ASSAY_TRY(assay_gguf_sha256(sha256, assay_model_gguf(j->model)));
    assay_capture_about about = {
        .producer = "assay",
        .producer_version = ASSAY_VERSION,
        .architecture = assay_model_hparams(j->model)->architecture,
        .model_sha256 = sha256,
        .dtype = assay_dtype_name(common->dtype),
        .path = common->path == ASSAY_PATH_LATENT ? "latent" : "expanded",
        .backend = common->backend == ASSAY_BACKEND_CUDA ? "cuda" : "cpu",
        .mode = "eager",
        .n_ranks = 1,
    };
    ASSAY_TRY(assay_capture_create(&j->capture, o->capture, &about, &o->keep));
    return assay_capture_prompt(j->capture, "default", j->text, j->prompt.ids, j->prompt.n);
}

static assay_status generate(job *j, const own *o, assay_options *common)
{
    assay_engine_options e;
    ASSAY_TRY(assay_model_open(&j->model, common->args[0], NULL));
    const assay_hparams *hparams = assay_model_hparams(j->model);
    ASSAY_TRY(assay_options_engine(&e, common, hparams));
    ASSAY_TRY(assay_tokenizer_new(&j->tokenizer, assay_model_gguf(j->model), NULL));
    ASSAY_TRY(assay_options_prompt(&j->prompt, &j->text, common, j->tokenizer, hparams->n_vocab));
    if (o->capture) {
        ASSAY_TRY(open_capture(j, o, common));
        e.tap = assay_capture_tap;
        e.tap_user = j->capture;
    }
    e.max_positions = (int)(j->prompt.n + o->n_new);
    ASSAY_TRY(assay_engine_new(&j->engine, j->model, &e));
    ASSAY_TRY(assay_alloc(&j->ids, (size_t)o->n_new, sizeof *j->ids, "generated ids"));
    ASSAY_TRY(assay_engine_generate(j->ids, j->engine, j->prompt.ids, j->prompt.n, o->n_new,
                                    common->chunk, NULL, NULL));
    if (!j->capture)
        return ASSAY_OK;
    ASSAY_TRY(assay_capture_greedy(j->capture, j->ids, o->n_new));
    assay_capture *capture = j->capture;
    j->capture = NULL;
    return assay_capture_finish(capture);
}

/* The text up to the end token, which is not part of it. */
static assay_status decode(job *j, int *n_new)
{
    for (int i = 0; i < *n_new; i++)
        if (assay_tokenizer_is_end(j->tokenizer, j->ids[i]))
            *n_new = i;
    return assay_tokenizer_decode(&j->answer, &j->n_answer, j->tokenizer, j->ids, *n_new);
}

static json_t *id_list(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static int print(const job *j, int n_new, const own *o, const assay_options *common)
{
    if (!common->json) {
        fwrite(j->answer, 1, j->n_answer, stdout);
        putchar('\n');
    } else {
        json_t *text = json_stringn(j->answer, j->n_answer); /* NULL: not UTF-8 */
        json_t *all = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s?}", "assay", ASSAY_VERSION,
                                "command", "run", "prompt_ids", id_list(j->prompt.ids, j->prompt.n),
                                "ids", id_list(j->ids, n_new), "text", text ? text : json_null(),
                                "capture", o->capture);
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
    }
    return fflush(stdout) || ferror(stdout) ? ASSAY_EXIT_BROKEN : 0;
}

int assay_cmd_run(int argc, char **argv)
{
    own o = {.n_new = 16};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_ENGINE | ASSAY_OPTIONS_PROMPT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = 1};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    job j = {0};
    int n_new = o.n_new;
    assay_status s = generate(&j, &o, &common);
    if (s == ASSAY_OK)
        s = decode(&j, &n_new);
    assay_progress_end();
    status = s == ASSAY_OK ? print(&j, n_new, &o, &common) : assay_end_failed(&common, s);
    assay_capture_abandon(j.capture);
    assay_engine_free(j.engine);
    assay_ids_clear(&j.prompt);
    assay_tokenizer_free(j.tokenizer);
    assay_model_close(j.model);
    free(j.ids);
    free(j.answer);
    return status;
}
