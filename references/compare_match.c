/* Which tokens of two runs are the same. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/compare_private.h"

/* Token of each position that a run computed, -1 where it did not. *out is the caller's to free. */
static assay_status sequence_of(int32_t **out, int64_t *n, const assay_run *run, int prompt)
{
    const assay_run_prompt *about = assay_run_prompt_at(run, prompt);
    int64_t end = 0;
    for (int s = 0; s < about->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(run, prompt, s);
        if (step->first_position < 0 || step->n_tokens < 0)
            return assay_fail(ASSAY_BAD_FILE, "prompt '%s', step %d: negative position or count",
                              about->name, s);
        end = step->first_position + step->n_tokens > end ? step->first_position + step->n_tokens
                                                          : end;
    }
    int32_t *tokens;
    ASSAY_TRY(assay_alloc(&tokens, (size_t)end, sizeof *tokens, "tokens"));
    memset(tokens, 0xFF, (size_t)end * sizeof *tokens);
    for (int s = 0; s < about->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(run, prompt, s);
        for (int64_t t = 0; t < step->n_tokens && step->tokens; t++)
            tokens[step->first_position + t] = step->tokens[t];
    }
    *out = tokens;
    *n = end;
    return ASSAY_OK;
}

/* Positions from 0 on with equal, known tokens; *differs: a token differs behind them. */
static assay_status common_of(int64_t *n_common, bool *differs, const assay_run *a, int prompt_a,
                              const assay_run *b, int prompt_b)
{
    int32_t *x = NULL, *y = NULL;
    int64_t n_x = 0, n_y = 0, n = 0;
    assay_status s = sequence_of(&x, &n_x, a, prompt_a);
    if (s == ASSAY_OK)
        s = sequence_of(&y, &n_y, b, prompt_b);
    if (s == ASSAY_OK) {
        while (n < n_x && n < n_y && x[n] == y[n] && x[n] >= 0)
            n++;
        *n_common = n;
        *differs = n < n_x && n < n_y;
    }
    free(x);
    free(y);
    return s;
}

static int prompt_by_name(const assay_run *run, const char *name)
{
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        if (!strcmp(assay_run_prompt_at(run, p)->name, name))
            return p;
    return -1;
}

static bool same_prompt(const assay_run_prompt *a, const assay_run_prompt *b)
{
    return a->n_tokens > 0 && a->n_tokens == b->n_tokens &&
           !memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

/* By name; else one with the same tokens; else, when each side has but one prompt, that one. */
static int partner(const assay_run *run, const assay_run *other, int prompt)
{
    const assay_run_prompt *mine = assay_run_prompt_at(run, prompt);
    int found = prompt_by_name(other, mine->name);
    for (int p = 0; p < assay_run_n_prompts(other) && found < 0; p++)
        if (same_prompt(mine, assay_run_prompt_at(other, p)))
            found = p;
    if (found < 0 && assay_run_n_prompts(run) == 1 && assay_run_n_prompts(other) == 1)
        found = 0;
    return found;
}

static assay_status match_one(assay_match *match, assay_comparison *c, int prompt)
{
    const char *name = assay_run_prompt_at(c->run[CANDIDATE], prompt)->name;
    bool differs = false, twin_differs;
    int64_t n_twin = 0;
    match->prompt[CANDIDATE] = prompt;
    match->prompt[REFERENCE] = partner(c->run[CANDIDATE], c->run[REFERENCE], prompt);
    match->prompt[TWIN] = -1;
    if (match->prompt[REFERENCE] < 0)
        return assay_comparison_add_note(c, "prompt '%s' is not in the reference", name);
    ASSAY_TRY(common_of(&match->n_common, &differs, c->run[CANDIDATE], prompt, c->run[REFERENCE],
                        match->prompt[REFERENCE]));
    if (differs)
        ASSAY_TRY(assay_comparison_add_note(
            c, "prompt '%s': the token at position %" PRId64 " differs; compared up to there", name,
            match->n_common));
    if (c->run[TWIN] && c->use_twin) {
        int twin = partner(c->run[REFERENCE], c->run[TWIN], match->prompt[REFERENCE]);
        if (twin >= 0)
            ASSAY_TRY(common_of(&n_twin, &twin_differs, c->run[TWIN], twin, c->run[REFERENCE],
                                match->prompt[REFERENCE]));
        match->n_twin = n_twin < match->n_common ? n_twin : match->n_common;
        match->prompt[TWIN] = match->n_twin > 0 ? twin : -1;
    }
    ASSAY_TRY(assay_choices_new(&match->choices[CANDIDATE], c->run[CANDIDATE], prompt,
                                c->run[REFERENCE], match->prompt[REFERENCE], match->n_common,
                                c->n_layers));
    if (match->prompt[TWIN] < 0)
        return ASSAY_OK;
    return assay_choices_new(&match->choices[TWIN], c->run[TWIN], match->prompt[TWIN],
                             c->run[REFERENCE], match->prompt[REFERENCE], match->n_twin,
                             c->n_layers);
}

void assay_match_clear(assay_match *match)
{
    for (int side = 0; side < SIDES; side++)
        assay_choices_free(match->choices[side]);
    *match = (assay_match){0};
}

/* "1 of 8 in layer 1, 5 of 8 in layer 2" for one kind of choice. */
static assay_status note_flips_of(assay_comparison *c, const assay_match *match, int kind)
{
    static const char *const names[] = {"expert choice", "key choice"};
    const assay_choices *choices = match->choices[CANDIDATE];
    char list[512] = "";
    size_t n = 0;
    for (int layer = 0; layer < c->n_layers; layer++) {
        int64_t flips = assay_choices_n_flips(choices, layer, kind);
        if (flips && n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n,
                                  "%s%" PRId64 " of %" PRId64 " rows in layer %d", n ? ", " : "",
                                  flips, assay_choices_n_rows(choices, layer, kind), layer);
    }
    if (!n)
        return ASSAY_OK;
    if (n >= sizeof list)
        memcpy(list + sizeof list - 4, "...", 4);
    return assay_comparison_add_note(
        c, "prompt '%s': the %s differs in %s (`assay diagnose` judges the gap of the scores)",
        assay_run_prompt_at(c->run[CANDIDATE], match->prompt[CANDIDATE])->name, names[kind - 1],
        list);
}

static assay_status note_flips(assay_comparison *c, const assay_match *match)
{
    ASSAY_TRY(note_flips_of(c, match, ASSAY_CHOICE_EXPERTS));
    return note_flips_of(c, match, ASSAY_CHOICE_KEYS);
}

assay_status assay_match_prompts(assay_match **out, int *n, assay_comparison *c)
{
    int n_prompts = assay_run_n_prompts(c->run[CANDIDATE]), kept = 0;
    assay_match *list;
    ASSAY_TRY(assay_alloc(&list, (size_t)n_prompts, sizeof *list, "prompts"));
    assay_status s = ASSAY_OK;
    for (int p = 0; p < n_prompts && s == ASSAY_OK; p++) {
        assay_match match = {0};
        s = match_one(&match, c, p);
        if (s == ASSAY_OK && match.n_common > 0)
            s = note_flips(c, &match);
        if (s == ASSAY_OK && match.n_common > 0)
            list[kept++] = match;
        else
            assay_match_clear(&match);
    }
    for (int p = 0; p < assay_run_n_prompts(c->run[REFERENCE]) && s == ASSAY_OK; p++)
        if (partner(c->run[REFERENCE], c->run[CANDIDATE], p) < 0)
            s = assay_comparison_add_note(c, "prompt '%s' of the reference is not in the candidate",
                                          assay_run_prompt_at(c->run[REFERENCE], p)->name);
    if (s != ASSAY_OK) {
        for (int i = 0; i < kept; i++)
            assay_match_clear(&list[i]);
        free(list);
        return s;
    }
    *out = list;
    *n = kept;
    return ASSAY_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The step that holds all of [first, end), -1: none. */
static int step_holding(const assay_run *run, int prompt, int64_t first, int64_t end)
{
    int n = assay_run_prompt_at(run, prompt)->n_steps;
    for (int s = 0; s < n; s++) {
        const assay_run_step *step = assay_run_step_at(run, prompt, s);
        if (step->first_position <= first && end <= step->first_position + step->n_tokens)
            return s;
    }
    return -1;
}

assay_status assay_match_steps(assay_pair **out, int *n, const assay_comparison *c,
                               const assay_match *match, bool is_prefill)
{
    const assay_run *candidate = c->run[CANDIDATE], *reference = c->run[REFERENCE];
    int prompt = match->prompt[CANDIDATE], other = match->prompt[REFERENCE], kept = 0,
        n_steps = assay_run_prompt_at(candidate, prompt)->n_steps,
        n_others = assay_run_prompt_at(reference, other)->n_steps;
    assay_pair *pairs;
    ASSAY_TRY(assay_alloc(&pairs, (size_t)n_steps * (size_t)n_others, sizeof *pairs, "steps"));
    for (int s = 0; s < n_steps; s++) {
        const assay_run_step *mine = assay_run_step_at(candidate, prompt, s);
        for (int o = 0; o < n_others && mine->is_prefill == is_prefill; o++) {
            const assay_run_step *theirs = assay_run_step_at(reference, other, o);
            int64_t first = mine->first_position > theirs->first_position ? mine->first_position
                                                                          : theirs->first_position,
                    end = least(least(mine->first_position + mine->n_tokens,
                                      theirs->first_position + theirs->n_tokens),
                                match->n_common);
            if (first >= end)
                continue;
            bool twin = match->prompt[TWIN] >= 0 && end <= match->n_twin;
            pairs[kept++] = (assay_pair){
                .step = {s, o,
                         twin ? step_holding(c->run[TWIN], match->prompt[TWIN], first, end) : -1},
                .first = first,
                .end = end};
        }
    }
    *out = pairs;
    *n = kept;
    return ASSAY_OK;
}
