/*
 * assay forge: a model file with the shapes of a known model and seeded weights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites/forge_model.h"
#include "tools/options.h"
#include "tools/progress.h"

enum {
    KEY_LIKE = 0x500,
    KEY_LAYERS,
    KEY_TYPE,
    KEY_SKELETON,
    KEY_SEED,
    KEY_SPLIT,
    KEY_ORDER,
    KEY_NEXTN,
    KEY_VOCAB,
    KEY_KV_B,
    KEY_BIASES,
    KEY_WRONG,
    KEY_AT
};

static const struct argp_option options[] = {
    {"like", KEY_LIKE, "MODEL", 0, "Shapes and constants of this model (see below)", 0},
    {"layers", KEY_LAYERS, "N", 0, "Layers (default: all that the model has)", 0},
    {"type", KEY_TYPE, "TYPE", 0, "Type of the matrices, q8_0 by default (assay list quants)", 0},
    {"output", 'o', "FILE", 0, "The file to write", 0},
    {"skeleton", KEY_SKELETON, NULL, 0, "Header and size only: the data is a hole", 0},
    {"seed", KEY_SEED, "S", 0, "Seed of the weights (default 0)", 0},
    {"split", KEY_SPLIT, "N", 0, "Split set of N files", 0},
    {"order", KEY_ORDER, "ORDER", 0,
     "Order in the file: by-layer (default), sorted, reversed, shuffled", 0},
    {"nextn", KEY_NEXTN, "N", 0,
     "Blocks that predict further tokens (default: the model's with all layers, else 0)", 0},
    {"vocab", KEY_VOCAB, "N", 0, "Size of the vocabulary (default: the model's)", 0},
    {"biases", KEY_BIASES, NULL, 0, "Projections with biases (llama)", 0},
    {"kv-b", KEY_KV_B, NULL, 0, "attn_kv_b in one piece, as old deepseek2 files have it", 0},
    {"wrong", KEY_WRONG, "KIND", 0, "One tensor is wrong in this way (see below)", 0},
    {"at", KEY_AT, "TENSOR", 0, "Which one (default blk.1.attn_output.weight)", 0},
    {0}};

typedef struct own {
    assay_forge_options forge;
    const char *path;
} own;

static assay_forge_order order_option(const struct argp_state *state, const char *text)
{
    for (int i = 0; i < ASSAY_FORGE_ORDER_COUNT; i++)
        if (strcmp(assay_forge_order_name((assay_forge_order)i), text) == 0)
            return (assay_forge_order)i;
    argp_error(state, "--order %s: expected by-layer, sorted, reversed or shuffled", text);
    return ASSAY_FORGE_BY_LAYER;
}

static uint64_t seed_option(const struct argp_state *state, const char *text)
{
    char *end = NULL;
    unsigned long long seed = strtoull(text, &end, 0);
    if (!*text || *end || *text == '-')
        argp_error(state, "--seed %s: expected a number of at least 0", text);
    return seed;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_LIKE:
        o->forge.like = arg;
        return 0;
    case KEY_LAYERS:
        o->forge.n_layer = assay_option_int(state, "layers", arg, 1, ASSAY_MAX_LAYERS - 8);
        return 0;
    case KEY_TYPE:
        o->forge.type = arg;
        return 0;
    case 'o':
        o->path = arg;
        return 0;
    case KEY_SKELETON:
        o->forge.skeleton = true;
        return 0;
    case KEY_SEED:
        o->forge.seed = seed_option(state, arg);
        return 0;
    case KEY_SPLIT:
        o->forge.n_files = assay_option_int(state, "split", arg, 1, 65535);
        return 0;
    case KEY_ORDER:
        o->forge.order = order_option(state, arg);
        return 0;
    case KEY_NEXTN:
        o->forge.n_nextn = assay_option_int(state, "nextn", arg, 0, 8);
        return 0;
    case KEY_VOCAB:
        o->forge.n_vocab = assay_option_int(state, "vocab", arg, 512, 1 << 24);
        return 0;
    case KEY_BIASES:
        o->forge.biases = true;
        return 0;
    case KEY_KV_B:
        o->forge.kv_b = true;
        return 0;
    case KEY_WRONG:
        o->forge.wrong = arg;
        return 0;
    case KEY_AT:
        o->forge.wrong_at = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->forge.like || !o->path)
            argp_error(state, "--like MODEL and -o FILE are needed");
        if (o->forge.wrong_at && !o->forge.wrong)
            argp_error(state, "--at needs --wrong");
        if (o->forge.wrong && o->forge.skeleton)
            argp_error(state, "a skeleton has no contents to be wrong");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show(void *user, int64_t done, int64_t total)
{
    (void)user;
    assay_progress_step("tensors", (int)done, (int)total);
}

/* The tables behind --like and --wrong, as text for --help. */
static const char *about(void)
{
    static char text[4096];
    size_t n = 0;
    n += (size_t)snprintf(text, sizeof text, "Models:");
    for (int i = 0; i < assay_forge_shape_count(); i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %s", assay_forge_shape_at(i)->name);
    n += (size_t)snprintf(text + n, sizeof text - n, "\n\nWrong in one way:");
#define X(id, name, what)                                                                          \
    n += (size_t)snprintf(text + n, sizeof text - n, "\n  %-14s %s", name, what);
#include "suites/forge_wrong.def"
#undef X
    return text;
}

static int print(const assay_options *common, const own *o, const assay_forge_result *made)
{
    if (common->json) {
        json_t *object =
            json_pack("{s:s, s:s, s:I, s:I}", "path", made->path, "like", o->forge.like, "bytes",
                      (json_int_t)made->n_bytes, "tensors", (json_int_t)made->n_tensors);
        if (made->wrong_at[0])
            json_object_set_new(object, o->forge.wrong, json_string(made->wrong_at));
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(object);
    } else if (!common->quiet) {
        printf("%s: %s, %lld tensors, %.1f MB%s\n", made->path, o->forge.like,
               (long long)made->n_tensors, (double)made->n_bytes * 1e-6,
               o->forge.skeleton ? " (skeleton)" : "");
        if (made->wrong_at[0])
            printf("wrong (%s): %s\n", o->forge.wrong, made->wrong_at);
    }
    return assay_end_printed(common);
}

int assay_cmd_forge(int argc, char **argv)
{
    own o = {.forge = {.n_nextn = -1}};
    assay_options common;
    assay_cli cli = {.options = options, .option = parse, .user = &o, .about = about()};
    assay_forge_result made = {0};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_progress_begin("forge");
    assay_status s = assay_forge_model(&made, o.path, &o.forge, show, NULL);
    assay_progress_end();
    if (s != ASSAY_OK)
        return assay_end_failed(&common, s);
    return print(&common, &o, &made);
}
