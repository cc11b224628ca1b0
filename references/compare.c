#include "references/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/agreement.h"
#include "references/compare_private.h"

const char *assay_bound_source_name(assay_bound_source source)
{
    static const char *const names[] = {"twin", "floor of the reference", "analytic bound"};
    ASSAY_BUG_IF((unsigned)source >= sizeof names / sizeof *names);
    return names[source];
}

static assay_status keep_note(assay_comparison *c, char *text)
{
    char **notes = text ? realloc(c->notes, (size_t)(c->n_notes + 1) * sizeof *notes) : NULL;
    if (!notes) {
        free(text);
        return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory for a note");
    }
    c->notes = notes;
    c->notes[c->n_notes++] = text;
    return ASSAY_OK;
}

assay_status assay_comparison_add_note(assay_comparison *c, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return keep_note(c, text);
}

assay_status assay_comparison_leave_open(assay_comparison *c, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    if (c->open_reason || !text)
        return keep_note(c, text);
    c->open_reason = text;
    return ASSAY_OK;
}

/* --- before any number --- */

static assay_status same_model(assay_comparison *c)
{
    const assay_run_info *mine = assay_run_about(c->run[CANDIDATE]),
                         *theirs = assay_run_about(c->run[REFERENCE]);
    if (*mine->architecture && *theirs->architecture &&
        strcmp(mine->architecture, theirs->architecture) != 0)
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "other model: the candidate is '%s', the reference '%s'",
                          mine->architecture, theirs->architecture);
    if (!*mine->model_sha256 || !*theirs->model_sha256)
        return assay_comparison_add_note(c, "same model: unproven, %s gives the hash of its file",
                                         *mine->model_sha256     ? "only the candidate"
                                         : *theirs->model_sha256 ? "only the reference"
                                                                 : "neither side");
    if (strcmp(mine->model_sha256, theirs->model_sha256) != 0)
        return assay_fail(
            ASSAY_CANNOT_JUDGE,
            "other model: SHA-256 %.12s... of the candidate, %.12s... of the reference",
            mine->model_sha256, theirs->model_sha256);
    return ASSAY_OK;
}

static bool rounds_activations(const assay_run_info *about)
{
    return about->profile && about->profile->activations_q8;
}

/* A twin measures the candidate's noise only if it makes the same roundings. */
static assay_status choose_twin(assay_comparison *c)
{
    if (!c->run[TWIN])
        return ASSAY_OK;
    const assay_run_info *mine = assay_run_about(c->run[CANDIDATE]),
                         *twin = assay_run_about(c->run[TWIN]);
    c->use_twin =
        mine->dtype == twin->dtype && rounds_activations(mine) == rounds_activations(twin);
    if (c->use_twin)
        return ASSAY_OK;
    return assay_comparison_add_note(
        c, "the twin (%s%s) does not round as the candidate (%s%s) does: it sets no bound",
        assay_dtype_name(twin->dtype), rounds_activations(twin) ? ", 8-bit activations" : "",
        assay_dtype_name(mine->dtype), rounds_activations(mine) ? ", 8-bit activations" : "");
}

static int count_layers(const assay_run *run)
{
    int layers = 0;
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int s = 0; s < assay_run_prompt_at(run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(run, p, s); i++) {
                int layer = assay_run_seen_at(run, p, s, i)->layer;
                layers = layer >= layers ? layer + 1 : layers;
            }
    return layers;
}

/* --- which points --- */

/* Kinds of points that a run shows in any layer of a phase. */
static void kinds_of(bool kinds[ASSAY_POINT_COUNT], const assay_run *run, bool is_prefill)
{
    memset(kinds, 0, ASSAY_POINT_COUNT * sizeof *kinds);
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int s = 0; s < assay_run_prompt_at(run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(run, p, s); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, s, i);
                if (assay_run_step_at(run, p, s)->is_prefill == is_prefill && seen->has_values &&
                    seen->rank < 0 && !seen->partial && !seen->hand_over)
                    kinds[seen->point] = true;
            }
}

static assay_status note_kinds(assay_comparison *c)
{
    static const char *const who[] = {"candidate", "reference"};
    bool kinds[2][ASSAY_POINT_COUNT];
    for (int side = 0; side < 2; side++) {
        bool decode[ASSAY_POINT_COUNT];
        kinds_of(kinds[side], c->run[side], true);
        kinds_of(decode, c->run[side], false);
        for (int p = 0; p < ASSAY_POINT_COUNT; p++)
            kinds[side][p] |= decode[p];
    }
    for (int side = 0; side < 2; side++) {
        char list[1024] = "";
        size_t n = 0;
        for (int p = 0; p < ASSAY_POINT_COUNT; p++)
            if (kinds[!side][p] && !kinds[side][p] && n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "",
                                      assay_point_at((assay_point)p)->name);
        if (n)
            ASSAY_TRY(assay_comparison_add_note(c, "not captured by the %s: %s", who[side], list));
    }
    return ASSAY_OK;
}

static bool step_has(const assay_run *run, int prompt, int step, assay_point point, int layer)
{
    const assay_seen *seen = assay_run_find(run, prompt, step, point, layer);
    return seen && seen->has_values;
}

/* A value that the reference has in this step and the candidate has elsewhere but not here: the
 * candidate's dump has a hole. Without logits, which end a pass, it may have been cut off. */
static assay_status look_for_hole(assay_comparison *c, const assay_match *match,
                                  const assay_pair *pair, const bool *kinds, assay_point point,
                                  int layer)
{
    char name[ASSAY_POINT_NAME_BYTES];
    if ((!kinds[point] && point != ASSAY_POINT_LOGITS) ||
        !step_has(c->run[REFERENCE], match->prompt[REFERENCE], pair->step[REFERENCE], point,
                  layer) ||
        step_has(c->run[CANDIDATE], match->prompt[CANDIDATE], pair->step[CANDIDATE], point, layer))
        return ASSAY_OK;
    const assay_run_info *about = assay_run_about(c->run[CANDIDATE]);
    bool is_ours = !strcmp(about->producer, "assay") && about->is_complete;
    assay_point_format(name, point, layer);
    const char *prompt = assay_run_prompt_at(c->run[CANDIDATE], match->prompt[CANDIDATE])->name;
    if (is_ours) /* a complete capture says what it was asked to keep */
        return assay_comparison_add_note(c, "prompt '%s', step %d: %s was not captured", prompt,
                                         pair->step[CANDIDATE], name);
    return assay_comparison_leave_open(c, "prompt '%s', step %d: %s is missing from the candidate",
                                       prompt, pair->step[CANDIDATE], name);
}

/* Of one point on all sides, over all pairs. */
static void add_bytes(assay_compare_place *place, const assay_comparison *c,
                      const assay_match *match, const assay_pair *pairs, int n_pairs,
                      assay_point point)
{
    for (int i = 0; i < n_pairs; i++)
        for (int side = 0; side < SIDES; side++) {
            const assay_seen *seen = pairs[i].step[side] < 0
                                         ? NULL
                                         : assay_run_find(c->run[side], match->prompt[side],
                                                          pairs[i].step[side], point, place->layer);
            if (!seen || !seen->has_values)
                continue;
            double bytes = assay_run_bytes_stored(c->run[side], seen);
            place->bytes += bytes;
            place->unpacked += assay_run_is_mapped(c->run[side], seen) ? 0 : bytes;
        }
}

static assay_status list_place(assay_compare_place *place, assay_comparison *c,
                               const assay_match *match, const assay_pair *pairs, int n_pairs,
                               const bool *kinds, assay_point point, int layer)
{
    for (int i = 0; i < n_pairs; i++)
        ASSAY_TRY(look_for_hole(c, match, &pairs[i], kinds, point, layer));
    *place = (assay_compare_place){.point = point, .layer = layer};
    add_bytes(place, c, match, pairs, n_pairs, point);
    if (assay_compare_by_expert(point))
        add_bytes(place, c, match, pairs, n_pairs, ASSAY_POINT_MOE_TOPK);
    return ASSAY_OK;
}

/* In the order of the forward pass. */
static assay_status list_places(assay_compare_place *list, int *n, assay_comparison *c,
                                const assay_match *match, const assay_pair *pairs, int n_pairs,
                                const bool *kinds)
{
    static const assay_point last[] = {ASSAY_POINT_FINAL_NORM, ASSAY_POINT_LOGITS};
    ASSAY_TRY(list_place(&list[(*n)++], c, match, pairs, n_pairs, kinds, ASSAY_POINT_EMBED, -1));
    for (int layer = 0; layer < c->n_layers; layer++)
        for (int p = 0; p < ASSAY_POINT_COUNT; p++)
            if (assay_point_at((assay_point)p)->per_layer)
                ASSAY_TRY(list_place(&list[(*n)++], c, match, pairs, n_pairs, kinds, (assay_point)p,
                                     layer));
    for (int i = 0; i < 2; i++)
        ASSAY_TRY(list_place(&list[(*n)++], c, match, pairs, n_pairs, kinds, last[i], -1));
    return ASSAY_OK;
}

static assay_status compare_group(assay_comparison *c, const assay_match *match, bool is_prefill)
{
    assay_pair *pairs = NULL;
    assay_compare_place *places = NULL;
    int n_pairs = 0, n_places = 0;
    bool kinds[ASSAY_POINT_COUNT];
    ASSAY_TRY(assay_match_steps(&pairs, &n_pairs, c, match, is_prefill));
    kinds_of(kinds, c->run[CANDIDATE], false);
    if (is_prefill) { /* decode steps may keep fewer points than the prefill, not more */
        bool more[ASSAY_POINT_COUNT];
        kinds_of(more, c->run[CANDIDATE], true);
        for (int p = 0; p < ASSAY_POINT_COUNT; p++)
            kinds[p] |= more[p];
    }
    assay_status s = ASSAY_OK;
    if (!n_pairs)
        goto out;
    ASSAY_GO(assay_alloc(&places, (size_t)c->n_layers * ASSAY_POINT_COUNT + 3, sizeof *places,
                         "places"));
    ASSAY_GO(list_places(places, &n_places, c, match, pairs, n_pairs, kinds));
    ASSAY_GO(assay_compare_places(c, places, n_places, match, pairs, n_pairs));
out:
    free(places);
    free(pairs);
    return s;
}

/* --- after the numbers --- */

/* Place in the forward pass. */
static int64_t order_of(const assay_comparison *c, assay_point point, int layer)
{
    int64_t before = layer >= 0 ? layer : point == ASSAY_POINT_EMBED ? -1 : c->n_layers;
    return before * ASSAY_POINT_COUNT + point;
}

/* Behind the first failure gains say nothing new. */
static void drop_inherited_gains(assay_comparison *c)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < c->n; i++) {
        int64_t order = order_of(c, c->items[i].point, c->items[i].layer);
        first = !c->items[i].passed && order < first ? order : first;
    }
    for (int i = 0; i < c->n; i++)
        if (order_of(c, c->items[i].point, c->items[i].layer) >= first)
            for (int side = 0; side < SIDES; side += TWIN)
                assay_gain_drop(c->gain[side], c->items[i].point, c->items[i].layer);
}

/* A pooled gain that is off fails the first layer's item of the point. */
static assay_status judge_gains(assay_comparison *c)
{
    assay_dtype dtype = assay_run_about(c->run[CANDIDATE])->dtype;
    drop_inherited_gains(c);
    for (int i = 0; i < c->n; i++) {
        assay_compared *item = &c->items[i];
        assay_gain_verdict mine, twin;
        bool is_first = true;
        for (int k = 0; k < i; k++)
            is_first &= c->items[k].point != item->point;
        if (!is_first || assay_point_at(item->point)->is_ids)
            continue;
        ASSAY_TRY(
            assay_gain_worst(&mine, c->gain[CANDIDATE], item->point, ASSAY_GAIN_ALL_LAYERS, dtype));
        ASSAY_TRY(assay_gain_judge(&twin, c->gain[TWIN], item->point, ASSAY_GAIN_ALL_LAYERS,
                                   mine.kind, dtype));
        bool as_twin = twin.n && fabs(mine.value - 1) <= 3 * fabs(twin.value - 1);
        if (!mine.deviates || as_twin || !item->passed)
            continue;
        item->judged = true;
        item->passed = false;
        snprintf(item->why, sizeof item->why,
                 "median %s gain %.6f over all layers, spread %.2g, %.0f standard errors from 1",
                 assay_gain_kind_name(mine.kind), mine.value, mine.spread, fabs(mine.z));
    }
    return ASSAY_OK;
}

/* Points of a prompt and layer, whichever group of rows judged them. */
static assay_status count_points(assay_comparison *c)
{
    int unjudged = 0;
    char first[ASSAY_POINT_NAME_BYTES] = "";
    for (int i = 0; i < c->n; i++) {
        const assay_compared *item = &c->items[i];
        bool is_first = true, judged = false;
        for (int k = 0; k < c->n; k++) {
            const assay_compared *other = &c->items[k];
            if (other->prompt != item->prompt || other->layer != item->layer ||
                other->point != item->point)
                continue;
            is_first &= k >= i;
            judged |= other->judged;
        }
        if (!is_first)
            continue;
        c->n_points++;
        c->n_judged += judged;
        if (!judged && !unjudged++)
            assay_point_format(first, item->point, item->layer);
    }
    if (unjudged)
        return assay_comparison_leave_open(
            c, "%d points have no row that stands behind equal expert and key choices (first: %s)",
            unjudged, first);
    return ASSAY_OK;
}

static assay_status compare_all(assay_comparison *c)
{
    assay_match *matches = NULL;
    int n_matches = 0;
    ASSAY_TRY(same_model(c));
    ASSAY_TRY(choose_twin(c));
    for (int side = 0; side < SIDES; side++)
        if (c->run[side] && !assay_run_about(c->run[side])->is_complete)
            ASSAY_TRY(assay_comparison_leave_open(c, "'%s' was cut off while it was written",
                                                  assay_run_about(c->run[side])->path));
    ASSAY_TRY(note_kinds(c));
    ASSAY_TRY(assay_match_prompts(&matches, &n_matches, c));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < n_matches && s == ASSAY_OK; i++) {
        s = compare_group(c, &matches[i], true);
        if (s == ASSAY_OK)
            s = compare_group(c, &matches[i], false);
    }
    for (int i = 0; i < n_matches; i++)
        assay_match_clear(&matches[i]);
    free(matches);
    ASSAY_TRY(s);
    if (!n_matches)
        return assay_fail(
            ASSAY_CANNOT_JUDGE,
            "nothing to compare: no prompt of the candidate begins with the tokens of "
            "a prompt of the reference");
    ASSAY_TRY(judge_gains(c));
    ASSAY_TRY(count_points(c));
    if (!c->n_judged)
        return assay_fail(ASSAY_CANNOT_JUDGE, "nothing to compare: %s",
                          c->open_reason ? c->open_reason
                                         : "candidate and reference have no point in common");
    assay_agreement_finish(&c->agreement);
    return ASSAY_OK;
}

assay_status assay_compare_runs(assay_comparison **out, const assay_run *candidate,
                                const assay_run *reference, const assay_run *twin)
{
    assay_comparison *c;
    (void)assay_lacked(); /* what earlier work lacked is no matter here */
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "comparison"));
    c->run[CANDIDATE] = candidate;
    c->run[REFERENCE] = reference;
    c->run[TWIN] = twin;
    assay_agreement_init(&c->agreement);
    c->n_layers = count_layers(candidate);
    int theirs = count_layers(reference);
    c->n_layers = theirs > c->n_layers ? theirs : c->n_layers;
    assay_status s = assay_gain_new(&c->gain[CANDIDATE]);
    if (s == ASSAY_OK)
        s = assay_gain_new(&c->gain[TWIN]);
    if (s == ASSAY_OK)
        s = compare_all(c);
    if (s == ASSAY_OK)
        s = assay_lacked();
    if (s == ASSAY_OK)
        *out = c;
    else
        assay_comparison_free(c);
    return s;
}

void assay_comparison_free(assay_comparison *comparison)
{
    if (!comparison)
        return;
    for (int i = 0; i < comparison->n_notes; i++)
        free(comparison->notes[i]);
    for (int side = 0; side < SIDES; side++)
        assay_gain_free(comparison->gain[side]);
    free(comparison->notes);
    free(comparison->open_reason);
    free(comparison->items);
    free(comparison);
}

int assay_comparison_n(const assay_comparison *comparison)
{
    return comparison->n;
}

const assay_compared *assay_comparison_at(const assay_comparison *comparison, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= comparison->n);
    return &comparison->items[index];
}

const assay_agreement *assay_comparison_agreement(const assay_comparison *comparison)
{
    return &comparison->agreement;
}

int64_t assay_comparison_n_points(const assay_comparison *comparison)
{
    return comparison->n_points;
}

int64_t assay_comparison_n_judged(const assay_comparison *comparison)
{
    return comparison->n_judged;
}

const char *assay_comparison_open_reason(const assay_comparison *comparison)
{
    return comparison->open_reason;
}

int assay_comparison_n_notes(const assay_comparison *comparison)
{
    return comparison->n_notes;
}

const char *assay_comparison_note_at(const assay_comparison *comparison, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= comparison->n_notes);
    return comparison->notes[index];
}
