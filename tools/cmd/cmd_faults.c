/*
 * assay faults: the campaign. Plants every fault that the engine can have, diagnoses each run, and
 * says how often the cause was named. Exit 0 when the rates hold, 1 when they do not.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites/campaign.h"
#include "suites/campaign_ranks.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_RANKS = 0x800, KEY_TIER };

static const struct argp_option options[] = {
    {"quick", 'Q', NULL, 0, "One place for each kind, few pairs and clean runs", 0},
    {"device", 'D', NULL, 0, "On a CUDA device: the faults that only a device has", 0},
    {"ranks", KEY_RANKS, "N", 0, "Faults of ranks instead, in runs of N ranks; may be repeated", 0},
    {"class", 'C', "NAME[,NAME]", 0,
     "Only plants of these classes, and healthy runs as a server has them", 0},
    {"tier", KEY_TIER, "TIER", 0,
     "What the captures keep: full (default), or sketch: sketches and no values", 0},
    {0}};

#define MOST_COUNTS 8

typedef struct own {
    bool quick, device;
    int rank_counts[MOST_COUNTS], n_counts;
    const char *classes, *tier;
} own;

/* Every name is one of fault.def. */
static error_t parse_classes(own *o, const char *list, struct argp_state *state)
{
    char name[64];
    for (const char *at = list; *at;
         at += at[strcspn(at, ",")] ? strcspn(at, ",") + 1 : strcspn(at, ",")) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (!assay_fault_find(name))
            argp_error(state, "--class '%s': `assay list faults` has the classes", name);
    }
    o->classes = list;
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    if (key == KEY_RANKS && o->n_counts < MOST_COUNTS) {
        o->rank_counts[o->n_counts++] =
            assay_option_int(state, "ranks", arg, 2, ASSAY_RANK_CAMPAIGN_MOST);
        return 0;
    }
    if (key == KEY_TIER) {
        if (strcmp(arg, "full") != 0 && strcmp(arg, "sketch") != 0)
            argp_error(state, "--tier '%s': full or sketch", arg);
        o->tier = strcmp(arg, "full") ? arg : NULL;
        return 0;
    }
    if (key != 'Q' && key != 'D' && key != 'C')
        return ARGP_ERR_UNKNOWN;
    if (key == 'C')
        return parse_classes(o, arg, state);
    o->quick = o->quick || key == 'Q';
    o->device = o->device || key == 'D';
    return 0;
}

static void show(void *user, int done, int total)
{
    (void)user;
    assay_progress_step("runs", done, total);
}

static int print_misses(const assay_result *result, bool verbose)
{
    size_t i;
    json_t *row, *misses = json_object_get(result->extra, "misses");
    if (!verbose && json_array_size(misses) > 0)
        printf("%zu misses; --verbose lists them\n", json_array_size(misses));
    json_array_foreach(misses, i, row)
    {
        if (!verbose)
            break;
        char *text = json_dumps(row, JSON_COMPACT);
        printf("miss: %s\n", text ? text : "");
        free(text);
    }
    return 0;
}

static bool rank_rates_hold(const assay_result *result)
{
    const json_t *rates = json_object_get(result->extra, "rates");
    return json_integer_value(json_object_get(rates, "visible")) > 0 &&
           json_real_value(json_object_get(rates, "class_and_ranks")) >= 0.95 &&
           json_integer_value(json_object_get(rates, "false_alarms")) == 0;
}

static int faults_of_ranks(const assay_options *common, const own *o)
{
    assay_result result = {0};
    assay_status s = assay_options_result(&result, common);
    if (s == ASSAY_OK)
        s = assay_rank_campaign_run(&result, common->args, common->n_args, o->rank_counts,
                                    o->n_counts, show, NULL);
    if (s != ASSAY_OK) {
        assay_result_clear(&result);
        return assay_end_failed(common, s);
    }
    bool hold = rank_rates_hold(&result);
    if (!common->json)
        print_misses(&result, common->verbose);
    assay_end(common, &result);
    return hold ? 0 : 1;
}

int assay_cmd_faults(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = ASSAY_MAX_ARGS,
                     .about =
                         "Several models may be given. Each trial is an engine run with one "
                         "or two plants (or none), captured and diagnosed. Healthy runs are also "
                         "made of small models forged in every type that can be encoded."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    if (o.n_counts > 0)
        return faults_of_ranks(&common, &o);
    assay_result result = {0};
    assay_campaign *campaign = NULL;
    assay_status s;
    assay_campaign_options how = {.models = common.args,
                                  .n_models = common.n_args,
                                  .quick = o.quick,
                                  .tier = o.tier,
                                  .classes = o.classes,
                                  .backend = o.device ? ASSAY_BACKEND_CUDA : ASSAY_BACKEND_CPU,
                                  .n_workers = common.n_threads,
                                  .progress = show};
    ASSAY_GO(assay_options_result(&result, &common));
    ASSAY_GO(assay_campaign_new(&campaign, &how));
    ASSAY_GO(assay_campaign_run(campaign));
    assay_progress_begin("faults");
    ASSAY_GO(assay_campaign_report(&result, campaign));
out:
    assay_campaign_free(campaign);
    if (s != ASSAY_OK) {
        assay_result_clear(&result);
        return assay_end_failed(&common, s);
    }
    if (!common.json)
        print_misses(&result, common.verbose);
    return assay_end(&common, &result);
}
