/*
 * Making bundles: the diagnosis runs again on one value of the finding, and what it reads is what
 * the bundle holds. When one value alone does not give the finding back, all of its values in the
 * step are tried, then those in the prompt, then all of them.
 */
#include "reports/repro.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/publish.h"
#include "references/import.h"
#include "references/run_cut.h"
#include "reports/render.h"
#include "reports/repro_private.h"

typedef struct maker {
    const assay_finding *finding;
    assay_run *run;
    assay_oracle *judge; /* the diagnosis' own */
    assay_knobs knobs;
    assay_forced_place places[ASSAY_REPRO_MAX_PLACES];
    int n_places, n_in_step,
        n_in_prompt; /* those of the first one's step come first, then prompt */
} maker;

static assay_status watch(void *user, const assay_gguf_tensor_info *tensor, uint64_t at,
                          uint64_t n_bytes)
{
    assay_repro_ranges *r = user;
    for (int i = 0; i < r->n; i++)
        if (r->items[i].tensor == tensor && r->items[i].at == at && r->items[i].n_bytes >= n_bytes)
            return ASSAY_OK;
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 64;
        assay_repro_range *wider = reallocarray(r->items, (size_t)room, sizeof *wider);
        if (!wider)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for the weights of a bundle");
        r->items = wider;
        r->room = room;
    }
    r->items[r->n++] = (assay_repro_range){tensor, at, n_bytes};
    return ASSAY_OK;
}

static bool is_place(const maker *m, int n, const char *prompt, int step, const assay_seen *seen)
{
    for (int i = 0; i < n; i++)
        if (m->places[i].point == seen->point && m->places[i].layer == seen->layer &&
            m->places[i].step == step && !strcmp(m->places[i].prompt, prompt))
            return true;
    return false;
}

/* The judged values themselves, and the put values that ops asked for. */
static void mark_inputs(const maker *m, int n, const assay_forced *forced)
{
    const assay_run *run = m->run;
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        const assay_run_prompt *prompt = assay_run_prompt_at(run, p);
        for (int step = 0; step < prompt->n_steps; step++)
            for (int i = 0; i < assay_run_n_seen(run, p, step); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, step, i);
                bool used = seen->rank < 0 && !seen->partial && seen->hand_over == 0 &&
                            assay_pass_was_used(assay_forced_pass(forced, p), step, seen->point,
                                                seen->layer);
                if (used || is_place(m, n, prompt->name, step, seen))
                    assay_run_mark(run, seen);
            }
    }
}

bool assay_repro_is(const assay_finding *f, const char *class, const char *kind, const char *point)
{
    return !strcmp(f->fault_class, class) && !strcmp(f->kind, kind) && !strcmp(f->point, point);
}

static assay_status write_bundle(const char *path, const maker *m, int n, const assay_diagnosis *d,
                                 const assay_repro_ranges *ranges)
{
    const assay_forced_place *place = &m->places[0];
    assay_repro_content c = {.finding = m->finding,
                             .run = m->run,
                             .oracle = m->judge,
                             .knobs = &m->knobs,
                             .places = m->places,
                             .n_places = n,
                             .ranges = ranges};
    int prompt = 0;
    while (strcmp(assay_run_prompt_at(m->run, prompt)->name, place->prompt))
        prompt++;
    int index = assay_forced_find(d->forced, prompt, place->step, place->point, place->layer);
    if (index < 0)
        return assay_fail(ASSAY_CANNOT_JUDGE, "the value cannot be judged on its own");
    c.is_latent = assay_forced_is_latent(d->forced, prompt);
    c.rows = assay_forced_at(d->forced, index)->n_rows;
    c.cols = assay_forced_at(d->forced, index)->n_cols;
    ASSAY_TRY(assay_forced_values(&c.got, &c.expected, d->forced, index));
    return assay_repro_write(path, &c);
}

/* *same: the bundle at path, of the first n places, gives the finding back. */
static assay_status attempt(bool *same, const char *path, maker *m, int n)
{
    assay_repro_ranges ranges = {0};
    assay_oracle *oracle = NULL;
    assay_diagnosis d = {0};
    assay_result scratch = {0}, replayed = {0};
    assay_forced_options how = {
        .knobs = &m->knobs, .last_layer = -1, .only = m->places, .n_only = n};
    assay_status s;
    *same = false;
    ASSAY_GO(assay_result_init(&scratch, "repro"));
    ASSAY_GO(assay_result_init(&replayed, "repro"));
    ASSAY_GO(assay_oracle_open_again(&oracle, m->judge));
    assay_oracle_watch(oracle, watch, &ranges);
    assay_run_unmark(m->run);
    if (assay_run_about(m->run)->n_ranks > 1)
        (void)assay_run_view(m->run, 0); /* a run without rank 0 keeps the view it has */
    assay_run_mark_reads(m->run, true);
    ASSAY_GO(assay_diagnosis_explain(&d, &scratch, m->run, oracle, &how));
    ASSAY_GO(assay_diagnosis_findings(&scratch, &d, NULL));
    assay_run_mark_reads(m->run, false);
    mark_inputs(m, n, d.forced);
    assay_repro_ranges_join(&ranges);
    ASSAY_GO(write_bundle(path, m, n, &d, &ranges));
    ASSAY_GO(assay_repro_replay(&replayed, path));
    for (int i = 0; i < replayed.n_findings; i++)
        *same = *same || assay_repro_is(&replayed.findings[i], m->finding->fault_class,
                                        m->finding->kind, m->finding->point);
out:
    assay_run_mark_reads(m->run, false);
    assay_diagnosis_clear(&d);
    assay_oracle_close(oracle);
    assay_result_clear(&scratch);
    assay_result_clear(&replayed);
    free(ranges.items);
    return s;
}

/* *made: a bundle is at path. Reasons that are no failure of the machine leave none. */
static assay_status make(bool *made, const char *path, maker *m)
{
    char *temporary;
    const int tries[] = {1, m->n_in_step, m->n_in_prompt, m->n_places};
    int before = 0;
    assay_status s = ASSAY_OK;
    *made = false;
    if (asprintf(&temporary, "%s.part", path) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    for (int i = 0; i < 4 && !*made; i++) {
        if (tries[i] <= before)
            continue;
        before = tries[i];
        s = attempt(made, temporary, m, tries[i]);
        if (s == ASSAY_IO || s == ASSAY_NO_MEMORY)
            break;
        *made = *made && s == ASSAY_OK;
        s = ASSAY_OK;
    }
    if (s == ASSAY_OK && *made)
        s = assay_publish(temporary, path);
    unlink(temporary);
    free(temporary);
    return s;
}

static bool is_of(const assay_finding *f, const assay_located *l, const assay_judged *j)
{
    char name[ASSAY_POINT_NAME_BYTES];
    const char *class =
        l->fault == ASSAY_FAULT_UNKNOWN ? "UNKNOWN" : assay_fault_at(l->fault)->name;
    if (l->merged >= 0 || l->convention || strcmp(class, f->fault_class) ||
        strcmp(l->kind, f->kind))
        return false;
    assay_point_format(name, j->point, j->layer);
    for (int i = 0; i < f->points.n; i++)
        if (!strcmp(f->points.items[i], name))
            return true;
    return false;
}

/* Homes of the finding: those of the first one's step, of its prompt, the others. */
static void find_places(maker *m, const assay_diagnosis *d)
{
    const assay_run *run = assay_forced_run(d->forced);
    const assay_judged *first = NULL;
    m->n_places = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < d->n && m->n_places < ASSAY_REPRO_MAX_PLACES; i++) {
            const assay_judged *j = assay_forced_at(d->forced, d->homes[i].index);
            if (!is_of(m->finding, &d->homes[i], j))
                continue;
            first = first ? first : j;
            int distance = j->prompt != first->prompt ? 2 : j->step != first->step ? 1 : 0;
            if (distance == round)
                m->places[m->n_places++] = (assay_forced_place){
                    assay_run_prompt_at(run, j->prompt)->name, j->step, j->layer, j->point};
        }
        if (round == 0)
            m->n_in_step = m->n_places;
        if (round == 1)
            m->n_in_prompt = m->n_places;
    }
}

static assay_status name_file(char **out, const char *folder, const assay_finding *f)
{
    if (asprintf(out, "%s/%s_%s.h5", folder, f->fault_class, f->point) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    return ASSAY_OK;
}

static assay_status bundle(assay_result *result, int index, const assay_diagnosis *d,
                           const assay_diagnose_options *options, maker *m)
{
    assay_finding *f = &result->findings[index];
    char *path;
    bool made = false;
    m->finding = f;
    find_places(m, d);
    ASSAY_TRY(name_file(&path, options->bundles, f));
    assay_status s = m->n_places ? make(&made, path, m) : ASSAY_OK;
    if (s == ASSAY_OK && made) {
        f->bundle = path;
        return ASSAY_OK;
    }
    free(path);
    if (s != ASSAY_OK)
        return assay_within(s, "bundle of %s at %s", f->fault_class, f->point);
    return assay_strings_add(&result->notes, "no bundle for %s at %s: %s", f->fault_class, f->point,
                             m->n_places ? "its values alone do not show it"
                                         : "no value of an op shows it");
}

/* The run as captures of ours: another engine's is imported into the folder first. */
static assay_status plain_run(assay_run **out, char **imported, assay_run *run, const char *folder)
{
    assay_import_result counts;
    assay_run_options how = assay_run_options_default();
    *out = run;
    *imported = NULL;
    if (assay_run_can_be_cut(run))
        return ASSAY_OK;
    if (asprintf(imported, "%s/.imported.h5", folder) < 0) {
        *imported = NULL;
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    }
    ASSAY_TRY(assay_import_run(&counts, run, *imported, NULL));
    return assay_run_open(out, (const char *const *)imported, 1, &how);
}

assay_status assay_diagnosis_bundles(assay_result *result, int first, const assay_diagnosis *d,
                                     const assay_diagnose_options *options)
{
    assay_run *run = assay_forced_run(d->forced), *plain = run;
    char *imported = NULL;
    assay_status s = ASSAY_OK;
    if (first == result->n_findings)
        return ASSAY_OK;
    ASSAY_TRY(assay_render_make_folder(options->bundles));
    ASSAY_GO(plain_run(&plain, &imported, run, options->bundles));
    maker m = {.run = plain,
               .judge = assay_forced_oracle(d->forced),
               .knobs = *assay_oracle_knobs(assay_forced_oracle(d->forced))};
    memcpy(m.knobs.eps, assay_forced_knobs(d->forced)->eps, sizeof m.knobs.eps);
    for (int i = first; i < result->n_findings; i++)
        ASSAY_GO(bundle(result, i, d, options, &m));
out:
    if (plain != run)
        assay_run_close(plain);
    if (imported)
        unlink(imported);
    free(imported);
    return s;
}
