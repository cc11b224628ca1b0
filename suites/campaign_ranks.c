#include "suites/campaign_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/role.h"
#include "probes/capture.h"
#include "reports/diagnose.h"
#include "suites/campaign_private.h"
#include "suites/turn.h"

enum { N_TOKENS = 8, ANY = -1, LAST = -2, BUT_FIRST = -3, FIRST_TWO = -4, ALL = -5, EACH = -6 };

#define ROUNDING 1e-5 /* of logits, by another number of ranks or another order of sums */
#define REVERSED (-1e6)
#define SHARE_OF_EXPERTS (-2e6)

static const struct rank_fault {
    const char *about;
    struct {
        const char *kind;
        int rank;
        double value;
    } plants[2];
    const char *fault_class;
    int named;
    bool whole_experts;
} faults[] = {
#define X(about, a, rank_a, value_a, b, rank_b, value_b, fault_class, named, whole)                \
    {about, {{a, rank_a, value_a}, {b, rank_b, value_b}}, fault_class, named, whole},
#include "suites/rank_fault.def"
#undef X
};

#define N_FAULTS ((int)(sizeof faults / sizeof *faults))

struct assay_rank_campaign {
    struct {
        const char *path;
        assay_model *model;
        assay_oracle *oracle;
    } m;
    char folder[64];
    char paths[ASSAY_RANK_CAMPAIGN_MOST][128];
    /* the trial that runs */
    assay_seam_setting settings[2 * ASSAY_RANK_CAMPAIGN_MOST];
    assay_seams seams;
    bool whole_experts, is_captured;
    float *logits;     /* of rank 0 */
    float *healthy[2]; /* by whole_experts, at so many ranks */
    int healthy_ranks[2];
};

int assay_rank_fault_count(void)
{
    return N_FAULTS;
}

const char *assay_rank_fault_about(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= N_FAULTS);
    return faults[index].about;
}

assay_status assay_rank_campaign_new(assay_rank_campaign **out, const char *model)
{
    assay_rank_campaign *c;
    const char *tmp = getenv("TMPDIR");
    assay_status s;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "campaign of ranks"));
    c->m.path = model;
    snprintf(c->folder, sizeof c->folder, "%.40s/assay-ranks-XXXXXX", tmp ? tmp : P_tmpdir);
    if (!mkdtemp(c->folder)) {
        c->folder[0] = '\0';
        s = assay_fail(ASSAY_IO, "no scratch folder can be made in %s", tmp ? tmp : P_tmpdir);
        goto out;
    }
    ASSAY_GO(assay_model_open(&c->m.model, model, NULL));
    ASSAY_GO(assay_oracle_open(&c->m.oracle, assay_model_gguf(c->m.model), 0));
    size_t n = (size_t)N_TOKENS * (size_t)assay_model_hparams(c->m.model)->n_vocab;
    ASSAY_GO(assay_alloc(&c->logits, n, sizeof *c->logits, "logits"));
    for (int i = 0; i < 2; i++)
        ASSAY_GO(assay_alloc(&c->healthy[i], n, sizeof *c->logits, "logits"));
    *out = c;
    return ASSAY_OK;
out:
    assay_rank_campaign_free(c);
    return s;
}

void assay_rank_campaign_free(assay_rank_campaign *c)
{
    if (!c)
        return;
    for (int r = 0; r < ASSAY_RANK_CAMPAIGN_MOST; r++)
        if (c->paths[r][0])
            unlink(c->paths[r]);
    if (c->folder[0])
        rmdir(c->folder);
    assay_oracle_close(c->m.oracle);
    assay_model_close(c->m.model);
    free(c->logits);
    free(c->healthy[0]);
    free(c->healthy[1]);
    free(c);
}

static assay_status capture_rank(assay_capture **out, const assay_rank_campaign *c,
                                 const assay_comm *comm, const int32_t *tokens)
{
    const assay_capture_about about = {.producer = "assay",
                                       .producer_version = ASSAY_VERSION,
                                       .architecture =
                                           assay_model_hparams(c->m.model)->architecture,
                                       .dtype = "f32",
                                       .path = "expanded",
                                       .backend = "cpu",
                                       .mode = "eager",
                                       .n_ranks = comm->n_ranks,
                                       .rank = comm->rank};
    assay_turn_take();
    assay_status s = assay_capture_create(out, c->paths[comm->rank], &about, NULL);
    if (s == ASSAY_OK)
        s = assay_capture_prompt(*out, "default", NULL, tokens, N_TOKENS);
    assay_turn_give();
    return s;
}

static assay_status run_rank(void *user, assay_comm *comm)
{
    assay_rank_campaign *c = user;
    int32_t tokens[N_TOKENS], positions[N_TOKENS];
    size_t n = (size_t)N_TOKENS * (size_t)assay_model_hparams(c->m.model)->n_vocab;
    float *logits = NULL;
    assay_engine *engine = NULL;
    assay_capture *capture = NULL;
    assay_engine_options options = assay_engine_options_default();
    assay_status s;
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (5 + 113 * i) % 900;
        positions[i] = i;
    }
    if (c->is_captured)
        ASSAY_GO(capture_rank(&capture, c, comm, tokens));
    options.comm = comm;
    options.n_threads = 1;
    options.max_positions = N_TOKENS + 1;
    options.whole_experts = c->whole_experts;
    options.seams = c->seams.n ? &c->seams : NULL;
    options.tap = capture ? assay_turn_tap : NULL;
    options.tap_user = capture;
    ASSAY_GO(assay_engine_new(&engine, c->m.model, &options));
    assay_batch batch = {.n = N_TOKENS, .tokens = tokens, .positions = positions};
    ASSAY_GO(assay_alloc(&logits, n, sizeof *logits, "logits")); /* all ranks gather them */
    ASSAY_GO(assay_engine_forward(engine, &batch, logits));
    if (comm->rank == 0)
        memcpy(c->logits, logits, n * sizeof *logits);
out:
    assay_turn_take();
    if (s == ASSAY_OK && capture)
        s = assay_capture_finish(capture);
    else
        assay_capture_abandon(capture);
    assay_turn_give();
    assay_engine_free(engine);
    free(logits);
    return s;
}

/* Logits of healthy ranks, once for each count. */
static assay_status run_healthy(assay_rank_campaign *c, int n_ranks)
{
    size_t n = (size_t)N_TOKENS * (size_t)assay_model_hparams(c->m.model)->n_vocab;
    int n_seams = c->seams.n;
    if (c->healthy_ranks[c->whole_experts] == n_ranks)
        return ASSAY_OK;
    c->seams.n = 0;
    c->is_captured = false;
    assay_status s = assay_ranks_run(n_ranks, run_rank, c);
    c->seams.n = n_seams;
    memcpy(c->healthy[c->whole_experts], c->logits, n * sizeof *c->logits);
    c->healthy_ranks[c->whole_experts] = n_ranks;
    return s;
}

static bool is_visible(const assay_rank_campaign *c)
{
    int64_t n = (int64_t)N_TOKENS * assay_model_hparams(c->m.model)->n_vocab;
    const float *right = c->healthy[c->whole_experts];
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = (double)c->logits[i] - right[i];
        error += e * e;
        size += (double)right[i] * right[i];
    }
    return !(error <= ROUNDING * ROUNDING * size); /* NaN is visible */
}

static assay_status diagnose(assay_result *result, assay_rank_campaign *c, int n_ranks)
{
    const char *paths[ASSAY_RANK_CAMPAIGN_MOST];
    assay_run *run;
    for (int r = 0; r < n_ranks; r++) {
        snprintf(c->paths[r], sizeof c->paths[r], "%s/rank%d.h5", c->folder, r);
        paths[r] = c->paths[r];
    }
    ASSAY_TRY(run_healthy(c, n_ranks));
    c->is_captured = true;
    ASSAY_TRY(assay_ranks_run(n_ranks, run_rank, c));
    ASSAY_TRY(assay_run_open(&run, paths, n_ranks, NULL));
    assay_diagnose_options options = {.file = assay_model_gguf(c->m.model),
                                      .forced = {.last_layer = -1}};
    assay_status s = assay_diagnose(result, run, c->m.oracle, &options);
    assay_run_close(run);
    return s;
}

/* A layer in the middle of those that have the kind's home; -1: none has. */
static int layer_of(const assay_rank_campaign *c, const assay_fault_kind *kind)
{
    int found[ASSAY_MAX_LAYERS], n = 0;
    for (int layer = 0; layer < assay_model_hparams(c->m.model)->n_layer; layer++) {
        bool here = false;
        for (int p = 0; p < ASSAY_POINT_COUNT && !here; p++)
            here = assay_point_at((assay_point)p)->per_layer &&
                   assay_campaign_is_home(kind->home, (assay_point)p) &&
                   assay_oracle_has_point(c->m.oracle, (assay_point)p, layer, false);
        if (here)
            found[n++] = layer;
    }
    return n > 0 ? found[n / 2] : -1;
}

/* A fault in a bias needs a model that has it. */
static bool has_bias(const assay_rank_campaign *c, const assay_fault_kind *kind, int layer)
{
    return kind->seam != ASSAY_SEAM_RANK_BIAS ||
           assay_model_weight(c->m.model, ASSAY_ROLE_ATTN_OUTPUT_BIAS, layer);
}

/* Heads of all ranks must be distinct for one to have another's. */
static bool ranks_fit(const assay_rank_campaign *c, const assay_fault_kind *kind, int n_ranks,
                      bool whole_experts)
{
    const assay_hparams *hp = assay_model_hparams(c->m.model);
    bool of_key_heads = kind && kind->n_ints > 0 && kind->ints[0] == ASSAY_ROLE_ATTN_K;
    return n_ranks <= ASSAY_RANK_CAMPAIGN_MOST && (!of_key_heads || n_ranks > 1) &&
           assay_engine_ranks_fit(hp, whole_experts, n_ranks) == ASSAY_OK;
}

static assay_status add_plant(assay_rank_campaign *c, const char *kind, int layer, int rank,
                              double value, int n_ranks)
{
    const assay_hparams *hp = assay_model_hparams(c->m.model);
    assay_plant p = {.layer = layer, .head = -1, .step = -1, .sequence = -1, .value = value};
    snprintf(p.kind, sizeof p.kind, "%s", kind);
    p.rank = rank == LAST ? n_ranks - 1 : rank;
    if (value == SHARE_OF_EXPERTS)
        p.value = hp->n_expert / n_ranks;
    if (value == REVERSED)
        p.value = n_ranks - 1 - p.rank;
    return assay_plant_make(c->settings, &c->seams.n,
                            (int)(sizeof c->settings / sizeof *c->settings), &p, hp);
}

/* Settings of the fault; *fits false: the model has no such mechanism. */
static assay_status plant(bool *fits, assay_rank_campaign *c, const struct rank_fault *f,
                          int n_ranks)
{
    c->seams = (assay_seams){c->settings, 0};
    *fits = true;
    for (int i = 0; i < 2 && f->plants[i].kind; i++) {
        const assay_fault_kind *kind = assay_fault_kind_find(f->plants[i].kind, NULL);
        ASSAY_BUG_IF(!kind);
        int layer = layer_of(c, kind), rank = f->plants[i].rank;
        *fits = *fits && layer >= 0 &&
                assay_fault_kind_fits(kind, assay_model_hparams(c->m.model)) &&
                has_bias(c, kind, layer) && ranks_fit(c, kind, n_ranks, f->whole_experts);
        for (int r = 0; r < n_ranks && *fits; r++)
            if (rank == EACH || r == 0)
                ASSAY_TRY(add_plant(c, f->plants[i].kind, layer, rank == EACH ? r : rank,
                                    f->plants[i].value, n_ranks));
    }
    return ASSAY_OK;
}

static bool must_be_named(const struct rank_fault *f, int rank, int n_ranks)
{
    switch (f->named) {
    case ALL:
        return true;
    case LAST:
        return rank == n_ranks - 1;
    case BUT_FIRST:
        return rank > 0;
    case FIRST_TWO:
        return rank < 2;
    default:
        return rank == f->named;
    }
}

static bool names_exactly(const assay_finding *finding, const struct rank_fault *f, int n_ranks)
{
    int n = 0;
    for (int r = 0; r < n_ranks; r++)
        n += must_be_named(f, r, n_ranks);
    for (int i = 0; i < finding->ranks.n; i++)
        if (!must_be_named(f, (int)finding->ranks.items[i], n_ranks))
            return false;
    return finding->ranks.n == n;
}

static void say(assay_rank_outcome *out, const assay_result *result, const char *about,
                const char *wanted, int n_ranks)
{
    size_t n = (size_t)snprintf(out->text, sizeof out->text,
                                "%d ranks, %s: wanted %s, found %d finding%s", n_ranks, about,
                                wanted, result->n_findings, result->n_findings == 1 ? "" : "s");
    if (result->n_findings == 0)
        return;
    const assay_finding *f = &result->findings[0];
    n += (size_t)snprintf(out->text + n, sizeof out->text - n, ", first %s (%s) at %s, ranks",
                          f->fault_class, f->kind, f->point);
    for (int i = 0; i < f->ranks.n && n + 8 < sizeof out->text; i++)
        n += (size_t)snprintf(out->text + n, sizeof out->text - n, " %d", (int)f->ranks.items[i]);
}

assay_status assay_rank_campaign_try(assay_rank_outcome *out, assay_rank_campaign *c, int index,
                                     int n_ranks, bool whole_experts)
{
    ASSAY_BUG_IF(index < -1 || index >= N_FAULTS);
    const struct rank_fault *f = index < 0 ? NULL : &faults[index];
    assay_result result;
    bool fits = ranks_fit(c, NULL, n_ranks, whole_experts);
    *out = (assay_rank_outcome){0};
    c->whole_experts = f ? f->whole_experts : whole_experts;
    c->seams = (assay_seams){c->settings, 0};
    if (f)
        ASSAY_TRY(plant(&fits, c, f, n_ranks));
    out->is_tried = fits;
    if (!fits)
        return ASSAY_OK;
    ASSAY_TRY(assay_result_init(&result, "faults"));
    assay_status s = diagnose(&result, c, n_ranks);
    out->is_visible = s == ASSAY_OK && is_visible(c);
    const assay_finding *first = result.n_findings ? &result.findings[0] : NULL;
    if (s == ASSAY_OK && !f) {
        out->class_right = out->ranks_right = !first && result.n_judged > 0;
        say(out, &result, "healthy", "nothing", n_ranks);
    } else if (s == ASSAY_OK) {
        out->class_right = first && !strcmp(first->fault_class, f->fault_class);
        out->ranks_right = first && names_exactly(first, f, n_ranks);
        say(out, &result, f->about, f->fault_class, n_ranks);
    }
    assay_result_clear(&result);
    return s;
}

typedef struct tally {
    int tried, class_right, both_right, clean, alarms;
    json_t *misses;
} tally;

static void count(tally *t, const assay_rank_outcome *o, const char *model, bool healthy)
{
    bool right = o->class_right && o->ranks_right;
    if (!o->is_tried || (!healthy && !o->is_visible))
        return;
    if (healthy) {
        t->clean++;
        t->alarms += !right;
    } else {
        t->tried++;
        t->class_right += o->class_right;
        t->both_right += right;
    }
    if (!right)
        json_array_append_new(t->misses, json_pack("{s:s, s:s}", "model", model, "what", o->text));
}

static assay_status add_row(assay_result *result, const tally *t, const char *model, int n_ranks)
{
    assay_check_row *row;
    char name[64], *summary;
    snprintf(name, sizeof name, "%d ranks", n_ranks);
    ASSAY_TRY(assay_result_add_check(&row, result, name));
    row->verdict = 100 * t->both_right >= 95 * t->tried && t->alarms == 0
                       ? ASSAY_VERDICT_PASS
                       : ASSAY_VERDICT_INCONCLUSIVE;
    if (asprintf(&summary,
                 "%s: %d visible faults, %d of the right class, %d with exactly its ranks; %d of "
                 "%d healthy "
                 "runs clean",
                 model, t->tried, t->class_right, t->both_right, t->clean - t->alarms,
                 t->clean) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "out of memory for a row");
    free(row->summary);
    row->summary = summary;
    return ASSAY_OK;
}

/* One model at one rank count. */
static assay_status run_count(tally *all, assay_result *result, assay_rank_campaign *c, int n_ranks)
{
    tally t = {.misses = all->misses};
    assay_rank_outcome o;
    for (int i = 0; i < N_FAULTS; i++) {
        ASSAY_TRY(assay_rank_campaign_try(&o, c, i, n_ranks, false));
        count(&t, &o, c->m.path, false);
    }
    for (int whole = 0; whole < 2; whole++) {
        ASSAY_TRY(assay_rank_campaign_try(&o, c, -1, n_ranks, whole));
        count(&t, &o, c->m.path, true);
    }
    all->tried += t.tried;
    all->class_right += t.class_right;
    all->both_right += t.both_right;
    all->clean += t.clean;
    all->alarms += t.alarms;
    return t.tried + t.clean > 0 ? add_row(result, &t, c->m.path, n_ranks) : ASSAY_OK;
}

assay_status assay_rank_campaign_run(assay_result *result, const char *const *models, int n_models,
                                     const int *rank_counts, int n_counts,
                                     void (*progress)(void *user, int done, int total), void *user)
{
    tally t = {.misses = json_array()};
    assay_status s = ASSAY_OK;
    for (int m = 0; m < n_models && s == ASSAY_OK; m++) {
        assay_rank_campaign *c = NULL;
        s = assay_rank_campaign_new(&c, models[m]);
        for (int k = 0; k < n_counts && s == ASSAY_OK; k++) {
            s = run_count(&t, result, c, rank_counts[k]);
            if (progress)
                progress(user, m * n_counts + k + 1, n_models * n_counts);
        }
        assay_rank_campaign_free(c);
    }
    double tried = t.tried > 0 ? t.tried : 1;
    json_object_set_new(result->extra, "rates",
                        json_pack("{s:i, s:f, s:f, s:i, s:i}", "visible", t.tried, "class",
                                  t.class_right / tried, "class_and_ranks", t.both_right / tried,
                                  "clean_runs", t.clean, "false_alarms", t.alarms));
    json_object_set_new(result->extra, "misses", t.misses);
    result->n_points += t.tried + t.clean;
    result->n_judged += t.tried + t.clean;
    return s;
}
