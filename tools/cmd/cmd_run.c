/*
 * assay run: greedy text from the engine; with --capture, what the engine computed on the way.
 *
 * Ranks: --ranks N runs N virtual ranks in this process; under mpirun every process is a rank. Each
 * rank writes a capture of its own, FILE.rankRofN.h5 for FILE.h5.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/draft.h"
#include "probes/capture.h"
#include "suites/turn.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_CAPTURE = 0x400, KEY_POINTS, KEY_TIER, KEY_BUDGET, KEY_DRAFT };

static const struct argp_option options[] = {
    {"new", 'n', "N", 0, "Tokens to generate (default 16)", 0},
    {"capture", KEY_CAPTURE, "FILE", 0, "Write a capture (HDF5)", 0},
    {"points", KEY_POINTS, "SEL", 0, "Which points: \"layer=0-3 point=attn.*\" (default all)", 0},
    {"tier", KEY_TIER, "TIER", 0, "What to keep: stats, sketch or full (default)", 0},
    {"budget", KEY_BUDGET, "SIZE", 0, "Bytes the capture may have; the rest is listed", 0},
    {"draft", KEY_DRAFT, NULL, 0,
     "Draft with the model's own prediction layers, verified: the same text, and how many were "
     "right",
     0},
    {0}};

typedef struct own {
    int n_new;
    bool draft;
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
    case KEY_DRAFT:
        o->draft = true;
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
    const own *own;
    assay_options *common;
    assay_model *model;
    assay_tokenizer *tokenizer;
    assay_engine_options engine;
    char sha256[65];
    assay_ids prompt;
    const char *text; /* NULL: ids were given */
    int32_t *ids;     /* of rank 0 */
    assay_draft_report drafts;
    char *answer;
    size_t n_answer;
    assay_comm *world; /* of mpirun; NULL: none */
    bool all_refuse;   /* every rank ends for the same reason */
} job;

/* "a/b.h5" of rank 1 of 2: "a/b.rank1of2.h5". */
static void file_of_rank(char *out, size_t room, const char *path, const assay_comm *comm)
{
    const char *end = strrchr(path, '.');
    if (!end || strchr(end, '/'))
        end = path + strlen(path);
    if (comm)
        snprintf(out, room, "%.*s.rank%dof%d%s", (int)(end - path), path, comm->rank, comm->n_ranks,
                 end);
    else
        snprintf(out, room, "%s", path);
}

static assay_status open_capture(assay_capture **out, const job *j, const assay_comm *comm)
{
    char path[4096];
    assay_capture_about about = {
        .producer = "assay",
        .producer_version = ASSAY_VERSION,
        .architecture = assay_model_hparams(j->model)->architecture,
        .model_sha256 = j->sha256,
        .dtype = assay_dtype_name(j->common->dtype),
        .path = j->common->path == ASSAY_PATH_LATENT ? "latent" : "expanded",
        .backend = j->common->backend == ASSAY_BACKEND_CUDA ? "cuda" : "cpu",
        .mode = "eager",
        .cache = assay_cache_type_name(j->engine.cache_type),
        .profile = assay_profile_of_own(j->engine.products == ASSAY_PRODUCTS_INTEGER),
        .n_ranks = comm ? comm->n_ranks : 1,
        .rank = comm ? comm->rank : 0,
    };
    file_of_rank(path, sizeof path, j->own->capture, comm);
    assay_turn_take();
    assay_status s = assay_capture_create(out, path, &about, &j->own->keep);
    if (s == ASSAY_OK)
        s = assay_capture_prompt(*out, "default", j->text, j->prompt.ids, j->prompt.n);
    assay_turn_give();
    return s;
}

static assay_status close_capture(assay_capture *capture, assay_status s, const int32_t *ids,
                                  int64_t n)
{
    assay_turn_take();
    if (s == ASSAY_OK && capture)
        s = assay_capture_greedy(capture, ids, n);
    if (s == ASSAY_OK && capture)
        s = assay_capture_finish(capture);
    else
        assay_capture_abandon(capture);
    assay_turn_give();
    return s;
}

static assay_status run_rank(void *user, assay_comm *comm)
{
    job *j = user;
    assay_engine *engine = NULL;
    assay_capture *capture = NULL;
    assay_engine_options e = j->engine;
    int64_t n_new = j->own->n_new;
    int32_t *ids = NULL;
    assay_status s = ASSAY_OK;
    if (j->own->capture)
        ASSAY_GO(open_capture(&capture, j, comm));
    e.comm = comm;
    e.tap = capture ? assay_turn_tap : NULL;
    e.tap_user = capture;
    ASSAY_GO(assay_alloc(&ids, (size_t)n_new, sizeof *ids, "generated ids"));
    ASSAY_GO(assay_engine_new(&engine, j->model, &e));
    s = e.draft ? assay_engine_generate_drafted(ids, &j->drafts, engine, j->prompt.ids, j->prompt.n,
                                                n_new, j->common->chunk)
                : assay_engine_generate(ids, engine, j->prompt.ids, j->prompt.n, n_new,
                                        j->common->chunk, NULL, NULL);
out:
    s = close_capture(capture, s, ids, n_new);
    assay_engine_free(engine);
    if (!comm || comm->rank == 0 || comm == j->world)
        j->ids = ids;
    else
        free(ids);
    return s;
}

/* The model and what is asked of it, before the ranks meet in their work. */
static assay_status prepare(job *j)
{
    assay_options *common = j->common;
    ASSAY_TRY(assay_model_open(&j->model, common->args[0], NULL));
    const assay_hparams *hparams = assay_model_hparams(j->model);
    ASSAY_TRY(assay_options_engine(&j->engine, common, hparams));
    ASSAY_TRY(assay_tokenizer_new(&j->tokenizer, assay_model_gguf(j->model), NULL));
    ASSAY_TRY(assay_options_prompt(&j->prompt, &j->text, common, j->tokenizer, hparams->n_vocab));
    if (j->own->capture)
        ASSAY_TRY(assay_gguf_sha256(j->sha256, assay_model_gguf(j->model)));
    j->engine.draft = j->engine.draft || j->own->draft;
    j->engine.max_positions =
        (int)(j->prompt.n + j->own->n_new) + (j->engine.draft ? ASSAY_MAX_DRAFTS : 0);
    if (j->world && common->n_ranks > 1 && common->n_ranks != j->world->n_ranks)
        return assay_fail(ASSAY_USAGE, "--ranks %d, and mpirun has started %d", common->n_ranks,
                          j->world->n_ranks);
    return assay_engine_ranks_fit(hparams, j->engine.whole_experts,
                                  j->world ? j->world->n_ranks : common->n_ranks);
}

/*
 * Nobody begins before all have prepared. What all ranks refuse for one reason is said once, by
 * rank 0, and every process ends with its status; where some refuse, these say why and the launcher
 * ends the others.
 */
static assay_status prepare_ranks(job *j)
{
    int32_t mine = prepare(j), *all;
    bool same = true, any = false;
    if (!j->world)
        return (assay_status)mine;
    ASSAY_TRY(assay_alloc(&all, (size_t)j->world->n_ranks, sizeof *all, "statuses of the ranks"));
    char why[512];
    snprintf(why, sizeof why, "%s", mine == ASSAY_OK ? "" : assay_error_text());
    assay_status s = assay_comm_gather(j->world, all, &mine, sizeof mine);
    for (int r = 0; s == ASSAY_OK && r < j->world->n_ranks; r++) {
        same = same && all[r] == mine;
        any = any || all[r] != ASSAY_OK;
    }
    free(all);
    ASSAY_TRY(s);
    if (mine == ASSAY_OK)
        return any ? assay_fail(ASSAY_PEER, "rank %d does not begin: another one cannot",
                                j->world->rank)
                   : ASSAY_OK;
    j->all_refuse = same;
    return same ? assay_fail((assay_status)mine, "%s", why)
                : assay_fail((assay_status)mine, "rank %d: %s", j->world->rank, why);
}

static assay_status generate(job *j)
{
    const assay_options *common = j->common;
#ifdef ASSAY_HAS_MPI
    ASSAY_TRY(assay_mpi_open(&j->world));
#endif
    ASSAY_TRY(prepare_ranks(j));
    if (j->world) {
        assay_status s = run_rank(j, j->world);
        return s == ASSAY_OK ? s : assay_within(s, "rank %d", j->world->rank);
    }
    if (common->n_ranks > 1)
        return assay_ranks_run(common->n_ranks, run_rank, j);
    return run_rank(j, NULL);
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

/* By place in the draft. */
static json_t *draft_list(const assay_draft_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_positions; i++)
        json_array_append_new(list, json_pack("{s:I, s:I}", "drafted", (json_int_t)r->n_drafted[i],
                                              "accepted", (json_int_t)r->n_accepted[i]));
    return list;
}

static int print(const job *j, int n_new, const own *o, const assay_options *common)
{
    if (!common->json) {
        fwrite(j->answer, 1, j->n_answer, stdout);
        putchar('\n');
        for (int i = 0; i < j->drafts.n_positions; i++)
            fprintf(stderr, "draft %d: %lld of %lld accepted\n", i + 1,
                    (long long)j->drafts.n_accepted[i], (long long)j->drafts.n_drafted[i]);
    } else {
        json_t *text = json_stringn(j->answer, j->n_answer); /* NULL: not UTF-8 */
        json_t *all = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s?}", "assay", ASSAY_VERSION,
                                "command", "run", "prompt_ids", id_list(j->prompt.ids, j->prompt.n),
                                "ids", id_list(j->ids, n_new), "text", text ? text : json_null(),
                                "capture", o->capture);
        if (j->drafts.n_positions)
            json_object_set_new(all, "drafts", draft_list(&j->drafts));
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
    }
    return assay_end_printed(common);
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
    job j = {.own = &o, .common = &common};
    int n_new = o.n_new;
    assay_status s = generate(&j);
    if (s == ASSAY_OK)
        s = decode(&j, &n_new);
    assay_progress_end();
    if (s != ASSAY_OK && j.all_refuse && j.world->rank > 0)
        status = assay_status_exit(s); /* rank 0 says why */
    else if (s != ASSAY_OK)
        status = assay_end_failed(&common, s);
    else if (!j.world || j.world->rank == 0)
        status = print(&j, n_new, &o, &common);
    else
        status = 0;
#ifdef ASSAY_HAS_MPI
    if (j.world && s != ASSAY_OK && !j.all_refuse) { /* the others may be waiting in a collective */
        fflush(stderr);
        assay_comm_fail(j.world, "said above");
    }
    assay_mpi_close(j.world);
#endif
    assay_ids_clear(&j.prompt);
    assay_tokenizer_free(j.tokenizer);
    assay_model_close(j.model);
    free(j.ids);
    free(j.answer);
    return status;
}
