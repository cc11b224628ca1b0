#include "suites/campaign.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reports/diagnose.h"
#include "suites/campaign_private.h"
#include "suites/requests.h"

#define DEVICE_BUCKET 4  /* rows of a step of one: the others are padding */
#define DEVICE_WORKERS 4 /* each has a context on the device */

assay_status assay_campaign_new(assay_campaign **out, const assay_campaign_options *options)
{
    assay_campaign *c;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "campaign"));
    c->options = *options;
    ASSAY_GO(assay_campaign_open_models(c));
    ASSAY_GO(assay_campaign_plan(c));
    ASSAY_GO(assay_alloc(&c->outcomes, (size_t)c->n, sizeof *c->outcomes, "outcomes"));
    *out = c;
    return ASSAY_OK;
out:
    assay_campaign_free(c);
    return s;
}

void assay_campaign_free(assay_campaign *campaign)
{
    if (!campaign)
        return;
    assay_campaign_close_models(campaign);
    free(campaign->trials);
    free(campaign->outcomes);
    free(campaign);
}

int assay_campaign_n(const assay_campaign *campaign)
{
    return campaign->n;
}

const assay_trial *assay_campaign_trial(const assay_campaign *campaign, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= campaign->n);
    return &campaign->trials[index];
}

const assay_outcome *assay_campaign_outcome(const assay_campaign *campaign, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= campaign->n);
    return &campaign->outcomes[index];
}

bool assay_campaign_is_home(const char *home, assay_point point)
{
    const char *name = assay_point_at(point)->name;
    size_t n = strlen(name);
    for (const char *at = home; (at = strstr(at, name)) != NULL; at += n)
        if ((at == home || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ids of a prompt: fixed by a seed, spread over the vocabulary, without the first few (control
 * tokens). */
static int fill_prompt(int32_t ids[], int which, int seed, int n_vocab)
{
    static const int lengths[] = {9, 24, 48};
    uint32_t state = 12345u + (uint32_t)seed * 977u;
    int n = lengths[which];
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = 8 + (int32_t)((state >> 8) % (uint32_t)(n_vocab - 8));
    }
    return n;
}

static assay_status capture_trial(const char *path, assay_campaign_model *m,
                                  const assay_trial *trial, assay_backend backend, const char *tier)
{
    const bool on_device = backend == ASSAY_BACKEND_CUDA;
    const assay_hparams *hp = assay_model_hparams(m->model);
    int32_t first[64], second[64];
    int n_settings = 0;
    assay_seam_setting settings[8];
    for (int i = 0; i < trial->n_plants; i++)
        ASSAY_TRY(assay_plant_make(settings, &n_settings, 8, &trial->plants[i], hp));
    assay_seams seams = {settings, n_settings};
    assay_requests r = {.engine = assay_engine_options_default(),
                        .run = trial->run,
                        .first = first,
                        .second = second,
                        .n = fill_prompt(first, trial->prompt, trial->prompt, hp->n_vocab),
                        .chunk = trial->chunk,
                        .n_new = trial->n_new,
                        .tier = tier};
    fill_prompt(second, trial->prompt, 3 + trial->prompt, hp->n_vocab);
    r.engine.path = trial->path;
    r.engine.dtype = trial->dtype;
    r.engine.n_threads = 1;
    r.engine.backend = backend;
    r.engine.use_graph = on_device;
    r.engine.least_bucket = on_device ? DEVICE_BUCKET : 0;
    r.engine.seams = &seams;
    r.engine.page_size = trial->run.page_size;
    r.engine.key_split = trial->run.key_split;
    r.engine.pad_to = trial->run.pad_to;
    r.engine.cache_type = trial->run.cache;
    assay_plant_shape(&r.engine, trial->plants, trial->n_plants);
    for (int i = 0; i < trial->n_plants; i++) {
        const assay_fault_kind *kind = assay_fault_kind_find(trial->plants[i].kind, NULL);
        if (kind->run.requests != ASSAY_REQUESTS_ONE)
            r.run.requests = kind->run.requests;
    }
    r.engine.reuse_prefixes =
        r.run.requests == ASSAY_REQUESTS_PREFIX || r.run.requests == ASSAY_REQUESTS_EVICTED;
    if (r.run.requests == ASSAY_REQUESTS_PREFIX && trial->n_plants == 0)
        memcpy(second, first, sizeof *second * (size_t)(r.n * 3 / 4)); /* a beginning in common */
    return assay_requests_capture(path, m->model, &r);
}

typedef struct watch { /* sees every judged value of a trial's diagnosis */
    const assay_trial *trial;
    assay_outcome *out;
} watch;

static double size_of(const assay_judged *j)
{
    if (j->n_nonfinite_added > 0 || (j->is_ids && j->n_flips_outside > 0))
        return INFINITY;
    if (j->is_ids)
        return 0;
    double whole = j->floor_rel > 0 ? j->rel / j->floor_rel : j->rel > 0 ? INFINITY : 0;
    double row = j->floor_row_max > 0 ? j->row_rel_max / j->floor_row_max : 0;
    return fmax(whole, row);
}

static void see(void *user, const assay_judged *j)
{
    watch *w = user;
    for (int i = 0; i < w->trial->n_plants; i++) {
        const assay_plant *p = &w->trial->plants[i];
        const assay_fault_kind *kind = assay_fault_kind_find(p->kind, NULL);
        if ((p->layer >= 0 && j->layer != p->layer && j->layer >= 0) ||
            !assay_campaign_is_home(kind->home, j->point))
            continue;
        w->out->size[i] = fmax(w->out->size[i], size_of(j));
        w->out->visible[i] = w->out->size[i] >= 3;
    }
}

static bool names_layer(const assay_finding *f, int layer)
{
    if (layer < 0 || f->layers.n == 0)
        return true;
    for (int i = 0; i < f->layers.n; i++)
        if (f->layers.items[i] == layer)
            return true;
    return false;
}

static bool names_home(const assay_finding *f, const char *home, int layer)
{
    for (int i = 0; i < f->points.n; i++) {
        assay_point point;
        int at;
        if (assay_point_parse(&point, &at, NULL, f->points.items[i]) == ASSAY_OK &&
            (at < 0 || layer < 0 || at == layer) && assay_campaign_is_home(home, point))
            return true;
    }
    return false;
}

/* Compares findings with plants. A finding of the right class is preferred for a plant. */
static void compare(assay_outcome *out, const assay_trial *trial, const assay_result *result)
{
    out->n_findings = result->n_findings;
    for (int k = 0; k < result->n_findings; k++) {
        const assay_finding *f = &result->findings[k];
        bool owned = false;
        for (int i = 0; i < trial->n_plants; i++) {
            int fault;
            const assay_fault_kind *kind = assay_fault_kind_find(trial->plants[i].kind, &fault);
            if (!names_layer(f, trial->plants[i].layer) ||
                !names_home(f, kind->home, trial->plants[i].layer))
                continue;
            bool right = !strcmp(f->fault_class, assay_fault_at(fault)->name);
            owned = true;
            if (!out->detected[i] || (right && !out->class_right[i]))
                snprintf(out->found_class[i], sizeof out->found_class[i], "%s", f->fault_class);
            out->detected[i] = true;
            out->class_right[i] = out->class_right[i] || right;
        }
        out->n_elsewhere += !owned;
        if (k == 0 || (!owned && out->n_elsewhere == 1 && trial->n_plants > 0))
            snprintf(out->first, sizeof out->first, "%s at %s: %s (%.120s)", f->fault_class,
                     f->point, f->kind, f->evidence.n > 1 ? f->evidence.items[0] : "");
    }
    for (int i = 0; i < trial->n_plants; i++)
        if (!out->detected[i])
            snprintf(out->found_class[i], sizeof out->found_class[i], "%s",
                     result->n_findings ? result->findings[0].fault_class : "nothing");
}

/* What a full capture says about the size of the plants. */
static assay_status look_in_full(watch *w, const char *path, assay_campaign *c,
                                 assay_campaign_model *m)
{
    assay_run *run = NULL;
    assay_forced *forced = NULL;
    assay_status s;
    const assay_run_options how = assay_run_options_default();
    ASSAY_GO(capture_trial(path, m, w->trial, c->options.backend, NULL));
    ASSAY_GO(assay_run_open(&run, &path, 1, &how));
    ASSAY_GO(assay_forced_new(&forced, run, m->oracle, &(assay_forced_options){.last_layer = -1}));
    for (int i = 0; i < assay_forced_n(forced); i++)
        see(w, assay_forced_at(forced, i));
out:
    assay_forced_free(forced);
    assay_run_close(run);
    unlink(path);
    return s;
}

assay_status assay_campaign_run_one(assay_outcome *out, assay_campaign *campaign,
                                    const assay_trial *trial)
{
    assay_campaign_model *m = &campaign->models[trial->model];
    const char *folder = getenv("TMPDIR");
    char path[256];
    assay_result result = {0};
    assay_run *run = NULL;
    assay_status s;
    double start = now_s();
    memset(out, 0, sizeof *out);
    snprintf(path, sizeof path, "%s/assay-campaign-%ld.h5", folder ? folder : "/tmp",
             (long)getpid());
    watch w = {trial, out};
    const char *tier = campaign->options.tier;
    if (tier && trial->n_plants > 0)
        ASSAY_GO(look_in_full(&w, path, campaign, m));
    ASSAY_GO(capture_trial(path, m, trial, campaign->options.backend, tier));
    const char *paths[] = {path};
    assay_run_options how = assay_run_options_default();
    ASSAY_GO(assay_run_open(&run, paths, 1, &how));
    ASSAY_GO(assay_result_init(&result, "faults"));
    assay_diagnose_options diagnose = {.forced = {.last_layer = -1},
                                       .on_judged = tier ? NULL : see,
                                       .on_judged_user = &w,
                                       .passes = &out->passes};
    ASSAY_GO(assay_diagnose(&result, run, m->oracle, &diagnose));
    compare(out, trial, &result);
out:
    out->status = (int)s;
    out->seconds = now_s() - start;
    if (s != ASSAY_OK)
        snprintf(out->first, sizeof out->first, "%.*s", ASSAY_CAMPAIGN_TEXT - 1,
                 assay_error_text());
    assay_result_clear(&result);
    assay_run_close(run);
    unlink(path);
    return s;
}

typedef struct message {
    int index;
    assay_outcome outcome;
} message;

/* A worker takes every n-th trial and writes what came out to the pipe. */
static void work(assay_campaign *c, int worker, int n_workers, int pipe_out)
{
    omp_set_num_threads(1);
    for (int i = worker; i < c->n; i += n_workers) {
        message m = {.index = i};
        assay_campaign_run_one(&m.outcome, c, &c->trials[i]);
        if (write(pipe_out, &m, sizeof m) != (ssize_t)sizeof m)
            _exit(1);
    }
    _exit(0);
}

static assay_status collect(assay_campaign *c, int pipe_in)
{
    message m;
    int done = 0;
    for (;;) {
        size_t got = 0;
        while (got < sizeof m) {
            ssize_t n = read(pipe_in, (char *)&m + got, sizeof m - got);
            if (n <= 0)
                break;
            got += (size_t)n;
        }
        if (got < sizeof m)
            break;
        c->outcomes[m.index] = m.outcome;
        done++;
        if (c->options.progress)
            c->options.progress(c->options.user, done, c->n);
    }
    if (done < c->n)
        return assay_fail(ASSAY_IO, "campaign: %d of %d trials came back; a worker ended early",
                          done, c->n);
    return ASSAY_OK;
}

assay_status assay_campaign_run(assay_campaign *campaign)
{
    assay_campaign *c = campaign;
    int ends[2], n = c->options.n_workers > 0 ? c->options.n_workers : omp_get_num_procs();
    if (c->options.backend == ASSAY_BACKEND_CUDA && n > DEVICE_WORKERS)
        n = DEVICE_WORKERS;
    if (pipe(ends))
        return assay_fail(ASSAY_IO, "campaign: no pipe to the workers");
    int started = 0;
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            work(c, i, n, ends[1]);
        }
        started += child > 0;
    }
    close(ends[1]);
    assay_status s =
        started == n ? collect(c, ends[0])
                     : assay_fail(ASSAY_IO, "campaign: only %d of %d workers started", started, n);
    close(ends[0]);
    while (wait(NULL) > 0) {
    }
    return s;
}
