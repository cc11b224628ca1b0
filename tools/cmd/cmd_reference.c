/*
 * assay reference: what the model computes, by the float64 oracle, as a capture with noise floors.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/checkpoint.h"
#include "references/reference.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_LAYERS = 0x400, KEY_POINTS, KEY_PATH, KEY_CONVENTIONS, KEY_NO_FLOOR, KEY_MEMORY };

static const struct argp_option options[] = {
    {"output", 'o', "REF.h5", 0, "Where the reference goes", 0},
    {"new", 'n', "N", 0, "Greedy ids to choose (default 0: the prompt alone)", 0},
    {"layers", KEY_LAYERS, "A-B", 0,
     "Keep these layers only; tensors behind B are never touched, and the model is not hashed", 0},
    {"points", KEY_POINTS, "SEL", 0,
     "Which points: \"layer=0-3 point=attn.*\" (default all but attn.probs and moe.expert.*)", 0},
    {"path", KEY_PATH, "latent|expanded", 0, "How attention is computed (default expanded)", 0},
    {"conventions", KEY_CONVENTIONS, "NAME", 0,
     "Follow an engine's conventions, a profile of `assay list profiles` (transformers: latent "
     "norms at 1e-6)",
     0},
    {"no-floor", KEY_NO_FLOOR, NULL, 0, "Leave the noise floors out (a third of the time)", 0},
    {"memory", KEY_MEMORY, "SIZE", 0, "Decoded weights kept at most (default 2G)", 0},
    {0}};

typedef struct own {
    const char *output, *conventions;
    int64_t memory;
    assay_reference_options make;
} own;

static void parse_path(own *o, const char *arg, struct argp_state *state)
{
    o->make.latent = !strcmp(arg, "latent");
    if (!o->make.latent && strcmp(arg, "expanded"))
        argp_error(state, "--path '%s': expected latent or expanded", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case 'o':
        o->output = arg;
        return 0;
    case 'n':
        o->make.n_new = assay_option_int(state, "new", arg, 0, 1 << 20);
        return 0;
    case KEY_LAYERS:
        assay_option_range(state, "layers", arg, &o->make.first_layer, &o->make.last_layer);
        return 0;
    case KEY_POINTS:
        o->make.selector = arg;
        return 0;
    case KEY_PATH:
        parse_path(o, arg, state);
        return 0;
    case KEY_CONVENTIONS:
        o->conventions = arg;
        return 0;
    case KEY_NO_FLOOR:
        o->make.no_floor = true;
        return 0;
    case KEY_MEMORY:
        o->memory = assay_option_size(state, "memory", arg);
        return 0;
    case ARGP_KEY_END:
        if (!o->output)
            argp_error(state, "-o REF.h5 is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct job {
    assay_judge_model model;
    assay_tokenizer *tokenizer;
    assay_ids ids;
    const char *text;
    char sha256[65];
    assay_knobs knobs;
    assay_reference_made made;
} job;

static void show_layer(void *user, int layer, int n_layers)
{
    (void)user;
    assay_progress_step("layer", layer, n_layers);
}

/* Right knobs, with the conventions asked for. */
static assay_status choose_knobs(job *j, own *o)
{
    j->knobs = *assay_oracle_knobs(j->model.oracle);
    o->make.knobs = &j->knobs;
    if (!o->conventions)
        return ASSAY_OK;
    const assay_profile *p = assay_profile_find(o->conventions);
    if (!p)
        return assay_fail(ASSAY_USAGE, "unknown profile '%s' (assay list profiles)",
                          o->conventions);
    if (!isnan(p->eps_q_a))
        j->knobs.eps[ASSAY_NORM_OF_Q_A] = p->eps_q_a;
    if (!isnan(p->eps_kv_a))
        j->knobs.eps[ASSAY_NORM_OF_KV_A] = p->eps_kv_a;
    if (!isnan(p->eps_index))
        j->knobs.eps[ASSAY_NORM_OF_INDEX_K] = p->eps_index;
    j->knobs.activations_q8 = p->activations_q8;
    return ASSAY_OK;
}

static assay_status make(job *j, own *o, const assay_options *common)
{
    ASSAY_TRY(assay_judge_model_open(&j->model, common->args[0], o->memory));
    if (j->model.checkpoint && !common->tokens_path)
        return assay_fail(ASSAY_USAGE,
                          "'%s': the tokenizer of a checkpoint's folder is not read; "
                          "the prompt is --tokens FILE",
                          common->args[0]);
    ASSAY_TRY(choose_knobs(j, o));
    if (!common->tokens_path)
        ASSAY_TRY(assay_tokenizer_new(&j->tokenizer, j->model.file, NULL));
    ASSAY_TRY(assay_options_prompt(&j->ids, &j->text, common, j->tokenizer,
                                   assay_oracle_shape_of(j->model.oracle)->n_vocab));
    o->make.text = j->text;
    o->make.profile = o->conventions;
    o->make.progress = show_layer;
    if (o->make.last_layer < 0 && j->model.own) {
        ASSAY_TRY(assay_gguf_sha256(j->sha256, j->model.own));
        o->make.sha256 = j->sha256;
    }
    return assay_reference_write(&j->made, o->output, j->model.oracle, j->ids.ids, j->ids.n,
                                 &o->make);
}

static json_t *id_list(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void print_json(const job *j, const own *o)
{
    const assay_reference_made *m = &j->made;
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:s?, s:I, s:i, s:o, s:o, s:{s:o, s:o}, s:I}", "assay", ASSAY_VERSION,
        "command", "reference", "capture", o->output, "model_sha256", o->make.sha256, "values",
        (json_int_t)m->n_values, "steps", m->n_steps, "prompt_ids", id_list(j->ids.ids, j->ids.n),
        "ids", id_list(m->greedy, m->n_greedy), "floor_logits", "f32", number(m->logits_f32),
        "bf16", number(m->logits_bf16), "ops", (json_int_t)m->n_ops);
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

static void print_text(const job *j, const own *o)
{
    const assay_reference_made *m = &j->made;
    printf("%s: %lld values of %d step%s, float64", o->output, (long long)m->n_values, m->n_steps,
           m->n_steps == 1 ? "" : "s");
    if (isfinite(m->logits_f32))
        printf("; rounding moves the logits by %.2g in float32, %.2g in bfloat16", m->logits_f32,
               m->logits_bf16);
    putchar('\n');
    char *answer;
    size_t n;
    if (m->n_greedy && j->tokenizer &&
        assay_tokenizer_decode(&answer, &n, j->tokenizer, m->greedy, m->n_greedy) == ASSAY_OK) {
        printf("greedy continuation: ");
        fwrite(answer, 1, n, stdout);
        putchar('\n');
        free(answer);
    }
}

int assay_cmd_reference(int argc, char **argv)
{
    own o = {.make = {.last_layer = -1}};
    assay_options common;
    assay_cli cli = {
        .groups = ASSAY_OPTIONS_PROMPT,
        .options = options,
        .option = parse,
        .user = &o,
        .min_args = 1,
        .max_args = 1,
        .about =
            "Every value is computed in float64 from exactly decoded weights. The floor of a "
            "point is what rounding to float32 and to bfloat16 makes of it. Without -n, memory "
            "does not grow with the number of layers. MODEL may be the folder of a checkpoint, "
            "with "
            "--tokens."};
    int status = 0;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    job j = {0};
    assay_progress_begin("reference");
    assay_status s = make(&j, &o, &common);
    assay_progress_end();
    if (s != ASSAY_OK)
        status = assay_end_failed(&common, s);
    else if (common.json)
        print_json(&j, &o);
    else if (!common.quiet)
        print_text(&j, &o);
    if (s == ASSAY_OK)
        status = assay_end_printed(&common);
    free(j.made.greedy);
    assay_ids_clear(&j.ids);
    assay_tokenizer_free(j.tokenizer);
    assay_judge_model_close(&j.model);
    return status;
}
