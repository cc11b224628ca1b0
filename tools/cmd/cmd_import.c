/*
 * assay import: another engine's dump as a capture of ours.
 */
#include <stdio.h>

#include "references/import.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_POINTS = 0x400, KEY_TIER, KEY_BUDGET };

static const struct argp_option options[] = {
    {"output", 'o', "CAPTURE", 0, "Where the capture goes", 0},
    {"points", KEY_POINTS, "SEL", 0, "Only these points (\"layer=0-3 point=attn.*\")", 0},
    {"tier", KEY_TIER, "TIER", 0, "stats, sketch, rows or full (default)", 0},
    {"budget", KEY_BUDGET, "SIZE", 0, "Bytes of values at most (512M, 2G)", 0},
    {0}};

typedef struct own {
    const char *output;
    assay_capture_options capture;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case 'o':
        o->output = arg;
        return 0;
    case KEY_POINTS:
        o->capture.selector = arg;
        return 0;
    case KEY_TIER:
        o->capture.tier = arg;
        return 0;
    case KEY_BUDGET:
        o->capture.budget_bytes = assay_option_size(state, "budget", arg);
        return 0;
    case ARGP_KEY_END:
        if (!o->output)
            argp_error(state, "-o CAPTURE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_json(const assay_run *run, const assay_import_result *done, const char *output)
{
    const assay_run_info *info = assay_run_about(run);
    json_t *unmapped = json_array();
    for (int i = 0; i < info->n_unmapped; i++)
        json_array_append_new(unmapped, json_string(assay_run_unmapped_at(run, i)));
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:o}", "assay", ASSAY_VERSION, "command",
        "import", "capture", output, "producer", info->producer, "profile", info->profile->name,
        "dtype", assay_dtype_name(info->dtype), "values", (json_int_t)done->n_values, "steps",
        (json_int_t)done->n_steps, "prompts", done->n_prompts, "unmapped", unmapped);
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
}

static void print_text(const assay_run *run, const assay_import_result *done, const char *output)
{
    const assay_run_info *info = assay_run_about(run);
    printf("%s: %lld values of %lld step%s, %d prompt%s, from %s (%s, profile %s)\n", output,
           (long long)done->n_values, (long long)done->n_steps, done->n_steps == 1 ? "" : "s",
           done->n_prompts, done->n_prompts == 1 ? "" : "s", info->path, info->producer,
           info->profile->name);
    if (info->n_unmapped)
        printf("left out, because no name map knows them (%d):\n", info->n_unmapped);
    for (int i = 0; i < info->n_unmapped; i++)
        printf("  %s\n", assay_run_unmapped_at(run, i));
    printf("next: assay diagnose %s --model MODEL.gguf\n", output);
}

int assay_cmd_import(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = ASSAY_MAX_ARGS,
                     .about =
                         "Reads dumps of transformers, vLLM, SGLang and llama.cpp, and captures "
                         "of ours; several files are the ranks of one run. What no name map "
                         "knows is listed and left out (--names adds a map)."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_run *run = NULL;
    assay_import_result done;
    assay_progress_begin("import");
    assay_status s = assay_options_run(&run, &common, common.args, common.n_args);
    if (s == ASSAY_OK)
        s = assay_import_run(&done, run, o.output, &o.capture);
    assay_progress_end();
    if (s == ASSAY_OK && common.json)
        print_json(run, &done, o.output);
    else if (s == ASSAY_OK && !common.quiet)
        print_text(run, &done, o.output);
    assay_run_close(run);
    if (s != ASSAY_OK)
        return assay_end_failed(&common, s);
    return assay_end_printed(&common);
}
