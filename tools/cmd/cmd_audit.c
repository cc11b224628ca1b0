/*
 * assay audit: what a model's weights say without running it.
 */
#include <stdio.h>
#include <string.h>

#include "suites/audit.h"
#include "suites/audit_against.h"
#include "suites/audit_loaded.h"
#include "suites/audit_shards.h"
#include "tools/options.h"
#include "tools/progress.h"

#define MAX_DETAILS 20
#define MAX_RANKS 1024

enum { KEY_AGAINST = 0x600, KEY_RANKS, KEY_LOADED };

static const struct argp_option options[] = {
    {"ranks", KEY_RANKS, "N", 0, "Shard borders for N ranks: no block cut, every row owned once",
     0},
    {"loaded", KEY_LOADED, "DIR", 0,
     "Weights as an engine holds them after loading: model-rank-R-part-P.safetensors, or one file",
     0},
    {"against", KEY_AGAINST, "DIR", 0,
     "Compare every tensor with this safetensors checkpoint (folder, file or index)", 0},
    {0}};

typedef struct own {
    int n_ranks;
    const char *against, *loaded;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_RANKS:
        o->n_ranks = assay_option_int(state, "ranks", arg, 1, MAX_RANKS);
        return 0;
    case KEY_LOADED:
        o->loaded = arg;
        return 0;
    case KEY_AGAINST:
        o->against = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show(void *user, const char *tensor, uint64_t done, uint64_t total)
{
    (void)tensor;
    assay_progress_step(user, (int)(done >> 20), (int)(total >> 20));
}

typedef struct job {
    const assay_options *common;
    const own *own;
    assay_gguf *file;
    assay_safetensors *source;
    assay_result *result;
} job;

static assay_status say(assay_check_row *row, assay_verdict verdict, const char *text)
{
    row->verdict = verdict;
    row->summary = strdup(text);
    return row->summary ? ASSAY_OK : assay_fail(ASSAY_NO_MEMORY, "no memory for a row");
}

/* A row of the result from the findings of one part; `good` is its summary without any. */
static assay_status conclude(const job *j, const char *name, const assay_audit *audit,
                             const char *good)
{
    assay_check_row *row = NULL;
    char text[512];
    ASSAY_TRY(assay_result_add_check(&row, j->result, name));
    row->seconds = audit->seconds;
    for (int i = 0; i < audit->n_findings && i < MAX_DETAILS; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", audit->findings[i].text));
    snprintf(text, sizeof text, "%s", good);
    if (audit->n_findings > 0)
        snprintf(text, sizeof text, "%d finding%s: %s", audit->n_findings,
                 audit->n_findings == 1 ? "" : "s", audit->findings[0].text);
    ASSAY_TRY(say(row, audit->n_findings > 0 ? ASSAY_VERDICT_FAIL : ASSAY_VERDICT_PASS, text));
    j->result->n_points += audit->n_tensors;
    j->result->n_judged += audit->n_tensors - audit->n_undecodable;
    return assay_audit_report(j->result, audit, j->common->again);
}

static assay_status structure(const job *j)
{
    assay_audit audit = {0};
    char good[128];
    assay_status s = assay_audit_structure(&audit, j->file);
    snprintf(good, sizeof good,
             "%lld tensors: all that are needed, none unknown, every shape right",
             (long long)audit.n_tensors);
    if (s == ASSAY_OK)
        s = conclude(j, "structure", &audit, good);
    assay_audit_clear(&audit);
    return s;
}

static assay_status contents(const job *j)
{
    assay_audit audit = {0};
    char good[256];
    assay_progress_begin("audit");
    assay_status s = assay_audit_contents(&audit, j->file, j->common->n_threads, show, "contents");
    assay_progress_end();
    double gb = (double)audit.bytes_read * 1e-9;
    snprintf(good, sizeof good,
             "finite, no zero or repeated rows, %s, no two tensors equal; %.2f GB read, %.2f GB/s",
             audit.n_alike ? "scales alike over layers"
                           : "scales not compared (that takes three layers)",
             gb, audit.seconds > 0 ? gb / audit.seconds : 0);
    if (s == ASSAY_OK)
        s = conclude(j, "contents", &audit, good);
    assay_audit_clear(&audit);
    return s;
}

static assay_status shards(const job *j)
{
    assay_audit audit = {0};
    char good[128];
    assay_status s = assay_audit_shards(&audit, j->file, j->own->n_ranks);
    snprintf(good, sizeof good, "%d ranks: no block cut, every row owned exactly once",
             j->own->n_ranks);
    if (s == ASSAY_OK)
        s = conclude(j, "shards", &audit, good);
    assay_audit_clear(&audit);
    return s;
}

static assay_status against(const job *j)
{
    assay_audit audit = {0};
    char good[256];
    assay_progress_begin("audit");
    assay_status s = assay_audit_against(&audit, j->file, j->source, j->common->n_threads, show,
                                         "against the checkpoint");
    assay_progress_end();
    audit.n_tensors = assay_gguf_n_tensors(j->file);
    snprintf(good, sizeof good,
             "%lld tensors equal those of the checkpoint (%lld) within their type's error",
             (long long)audit.n_tensors, (long long)assay_safetensors_n_tensors(j->source));
    if (s == ASSAY_OK)
        s = conclude(j, "against", &audit, good);
    assay_audit_clear(&audit);
    return s;
}

static assay_status loaded(const job *j)
{
    assay_audit audit = {0};
    char good[128];
    assay_status s = assay_audit_loaded(&audit, j->file, j->own->loaded);
    snprintf(good, sizeof good, "%lld loaded projections hold the rows that belong to their ranks",
             (long long)audit.n_tensors);
    if (s == ASSAY_OK)
        s = conclude(j, "loaded", &audit, good);
    assay_audit_clear(&audit);
    return s;
}

static assay_status audit(assay_result *result, const assay_options *common, const own *o)
{
    job j = {.common = common, .own = o, .result = result};
    assay_status s;
    ASSAY_GO(assay_gguf_open(&j.file, common->args[0]));
    if (o->against)
        ASSAY_GO(assay_safetensors_open(&j.source, o->against));
    ASSAY_GO(structure(&j));
    if (o->n_ranks > 1)
        ASSAY_GO(shards(&j));
    ASSAY_GO(contents(&j));
    if (o->against)
        ASSAY_GO(against(&j));
    if (o->loaded)
        ASSAY_GO(loaded(&j));
out:
    assay_safetensors_close(j.source);
    assay_gguf_close(j.file);
    return s;
}

int assay_cmd_audit(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = 1};
    assay_result result;
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_status s = assay_options_result(&result, &common);
    if (s == ASSAY_OK)
        s = audit(&result, &common, &o);
    assay_progress_end();
    if (s != ASSAY_OK) {
        assay_result_clear(&result);
        return assay_end_failed(&common, s);
    }
    return assay_end(&common, &result);
}
