/*
 * assay diagnose: the forced pass over a capture; every fault with its place and cause.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hparams.h"
#include "references/checkpoint.h"
#include "reports/diagnose.h"
#include "suites/describe_model.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_MODEL = 0x400, KEY_LAYERS, KEY_REPRO };

static const struct argp_option options[] = {
    {"model", KEY_MODEL, "MODEL", 0,
     "The model that was run: a GGUF file, or the folder of a checkpoint (config.json, "
     "safetensors)",
     0},
    {"layers", KEY_LAYERS, "A-B", 0, "Judge only these layers", 0},
    {"repro", KEY_REPRO, "DIR", 0,
     "Write a bundle into this folder for each finding: it shows the fault without the model", 0},
    {0}};

typedef struct own {
    const char *model, *repro;
    int first_layer, last_layer;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_MODEL:
        o->model = arg;
        return 0;
    case KEY_LAYERS:
        assay_option_range(state, "layers", arg, &o->first_layer, &o->last_layer);
        return 0;
    case KEY_REPRO:
        o->repro = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "diagnose needs --model MODEL: each op is computed again from its "
                              "captured inputs");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The candidate's side of the result, for the report. */
static assay_status describe_candidate(assay_result *result, const assay_run *run)
{
    const assay_run_info *info = assay_run_about(run);
    json_t *candidate =
        json_pack("{s:s, s:s, s:s, s:s, s:i}", "path", info->path, "producer", info->producer,
                  "dtype", assay_dtype_name(info->dtype), "profile",
                  info->profile ? info->profile->name : "", "prompts", assay_run_n_prompts(run));
    if (!candidate || json_object_set_new(result->extra, "candidate", candidate))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the description of the candidate");
    return ASSAY_OK;
}

/* For dumps whose shapes do not show them; NULL where the engine's reader does not take the file.
 */
static const assay_run_sizes *sizes_of(assay_run_sizes *out, const assay_gguf *file)
{
    assay_hparams hp;
    if (assay_hparams_read(&hp, file) != ASSAY_OK)
        return NULL;
    *out = assay_run_sizes_of(&hp);
    return out;
}

int assay_cmd_diagnose(int argc, char **argv)
{
    own o = {.last_layer = -1};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE | ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = ASSAY_MAX_ARGS,
                     .about =
                         "Puts every captured value into the float64 pass in place of its own, "
                         "so that each op is judged on the inputs it really had; names the "
                         "class of each fault. Several files are the ranks of one run."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;

    assay_result result = {0};
    char sha256[65] = "";
    assay_run *run = NULL;
    assay_judge_model m = {0};
    assay_run_sizes sizes;
    assay_status s;
    assay_progress_begin("diagnose");
    ASSAY_GO(assay_options_result(&result, &common));
    ASSAY_GO(assay_judge_model_open(&m, o.model, 0));
    int n_layers = assay_oracle_shape_of(m.oracle)->n_layer;
    if (o.first_layer >= n_layers) {
        s = assay_fail(ASSAY_USAGE, "--layers begins at %d, and the model has layers 0-%d",
                       o.first_layer, n_layers - 1);
        goto out;
    }
    common.sizes = sizes_of(&sizes, m.file);
    ASSAY_GO(assay_options_run(&run, &common, common.args, common.n_args));
    if (m.own && o.last_layer < 0) /* what is asked of some layers must not read all of them */
        ASSAY_GO(assay_gguf_sha256(sha256, m.own));
    ASSAY_GO(assay_describe_model(&result, m.file, *sha256 ? sha256 : NULL));
    ASSAY_GO(describe_candidate(&result, run));
    assay_diagnose_options how = {
        .reproduce = common.again,
        .bundles = o.repro,
        .file = m.own, /* a checkpoint's header has no hash to compare */
        .sha256 = sha256,
        .forced = {.first_layer = o.first_layer, .last_layer = o.last_layer}};
    ASSAY_GO(assay_diagnose(&result, run, m.oracle, &how));
    s = assay_next(&result, &common, common.args, common.n_args, NULL, o.model);
out:
    assay_run_close(run);
    assay_judge_model_close(&m);
    if (s == ASSAY_OK)
        return assay_end(&common, &result);
    assay_result_clear(&result);
    return assay_end_failed(&common, s);
}
