/*
 * What a server captures: rows of several requests in one step, padding between them, rows of
 * drafts that were rejected later, requests whose beginning was found in the cache. Everything
 * behind this file judges one sequence at a time, so here
 *
 *   - each sequence becomes a prompt of its own, NAME#0, NAME#1, ... (NAME where there is one
 * only), with the rows of its own in each step; steps without any are left out, padding is dropped;
 *   - rows at positions that a later step computes again were rolled back: they are left out;
 *   - positions before the first one that was computed are a step of their own in front, from the
 *     prompt's tokens, with the values of a prompt of the same tokens where the run has one.
 */
#include <stdlib.h>
#include <string.h>

#include "references/run_private.h"

#define MOST_SEQUENCES 4096

static int32_t sequence_of(const assay_step_data *s, int64_t row)
{
    return s->sequences ? s->sequences[row] : 0;
}

static int64_t position_of(const assay_step_data *s, int64_t row)
{
    return s->positions ? s->positions[row] : s->about.first_position + row;
}

/* Which sequences there are, ascending; returns how many. */
static int list_sequences(int32_t out[MOST_SEQUENCES], const assay_prompt_data *p)
{
    bool here[MOST_SEQUENCES] = {false};
    int n = 0;
    for (int k = 0; k < p->n_steps; k++)
        for (int64_t t = 0; t < p->steps[k].about.n_tokens; t++) {
            int32_t q = sequence_of(&p->steps[k], t);
            if (q >= 0 && q < MOST_SEQUENCES)
                here[q] = true;
        }
    for (int32_t q = 0; q < MOST_SEQUENCES; q++)
        if (here[q])
            out[n++] = q;
    return n;
}

/* ends[step]: the least position of the sequence in the steps behind, where it lies inside this
 * one: what came from there on was rolled back. */
static void find_ends(int64_t *ends, const assay_prompt_data *p, int32_t sequence)
{
    int64_t least = INT64_MAX;
    for (int k = p->n_steps - 1; k >= 0; k--) {
        int64_t first = INT64_MAX;
        for (int64_t t = 0; t < p->steps[k].about.n_tokens; t++)
            if (sequence_of(&p->steps[k], t) == sequence && position_of(&p->steps[k], t) < first)
                first = position_of(&p->steps[k], t);
        ends[k] = least > first ? least : INT64_MAX;
        least = first < least ? first : least;
    }
}

static bool is_plain(const assay_prompt_data *p)
{
    int64_t least = INT64_MAX;
    if (p->n_steps && p->steps[0].about.first_position > 0 &&
        p->about.n_tokens >= p->steps[0].about.first_position)
        return false;
    for (int k = p->n_steps - 1; k >= 0; k--) {
        const assay_run_step *s = &p->steps[k].about;
        if (p->steps[k].sequences ||
            (least > s->first_position && least < s->first_position + s->n_tokens))
            return false;
        least = s->first_position < least ? s->first_position : least;
    }
    return true;
}

/* Only rows[n] of the value's token axis. */
static void select_rows(assay_entry *e, const int64_t *rows, int64_t n, int64_t n_all)
{
    const char *axes = assay_point_at(e->seen.point)->axes;
    const char *t = strchr(axes, 'T');
    int axis = t ? (int)(t - axes) : -1;
    e->seen.has_sketch = false; /* it is of all rows */
    if (!e->seen.has_values || (e->n_parts && e->part_axis < 0 && axis < 0))
        return;
    if (axis < 0 || axis >= e->seen.n_dims || e->seen.dims[axis] != n_all) {
        e->seen.has_values = false; /* kept in part: which rows they are is not said */
        return;
    }
    if (!e->n_parts) {
        memcpy(e->full_dims, e->seen.dims, sizeof e->full_dims);
        e->rows = rows;
        e->rows_axis = axis;
    }
    e->seen.dims[axis] = n;
}

/* The rows of one sequence in one step, as a step of its prompt. */
static assay_status take_step(assay_prompt_data *to, assay_run *run, const assay_step_data *from,
                              int32_t sequence, int64_t end)
{
    int64_t *rows, n = 0, n_all = from->about.n_tokens;
    int32_t *tokens;
    ASSAY_TRY(assay_alloc(&rows, (size_t)n_all, sizeof *rows, "rows of a step"));
    ASSAY_TRY(assay_run_keep(run, rows));
    ASSAY_TRY(assay_alloc(&tokens, (size_t)n_all, sizeof *tokens, "rows of a step"));
    ASSAY_TRY(assay_run_keep(run, tokens));
    for (int64_t t = 0; t < n_all; t++)
        if (sequence_of(from, t) == sequence && position_of(from, t) < end) {
            tokens[n] = from->tokens[t];
            rows[n++] = t;
        }
    if (n == 0)
        return ASSAY_OK;
    assay_step_data *s = &to->steps[to->n_steps++];
    *s = (assay_step_data){.about = from->about, .tokens = tokens};
    s->about.tokens = tokens;
    s->about.n_tokens = n;
    s->about.first_position = position_of(from, rows[0]);
    for (int64_t i = 0; i < n; i++)
        if (position_of(from, rows[i]) != s->about.first_position + i)
            return assay_fail(
                ASSAY_BAD_FILE, "prompt '%s': row %lld is of position %lld, expected %lld",
                to->about.name, (long long)rows[i], (long long)position_of(from, rows[i]),
                (long long)(s->about.first_position + i));
    for (int i = 0; i < from->n_entries; i++) {
        assay_entry *e;
        ASSAY_TRY(assay_step_add(&e, s));
        *e = from->entries[i];
        if (n < n_all)
            select_rows(e, rows, n, n_all);
    }
    return ASSAY_OK;
}

/* Positions found in the cache: a step that shows nothing, in front. */
static assay_status add_beginning(assay_prompt_data *to, const assay_prompt_data *from)
{
    int64_t n = to->n_steps ? to->steps[0].about.first_position : 0;
    if (n == 0)
        return ASSAY_OK;
    if (!from->about.tokens || from->about.n_tokens < n)
        return assay_fail(
            ASSAY_BAD_FILE,
            "prompt '%s' starts at position %lld, and %lld tokens before it are known",
            to->about.name, (long long)n, (long long)from->about.n_tokens);
    memmove(to->steps + 1, to->steps, (size_t)to->n_steps * sizeof *to->steps);
    to->steps[0] = (assay_step_data){.about = {.is_prefill = true,
                                               .is_found = true,
                                               .n_tokens = n,
                                               .tokens = from->about.tokens},
                                     .tokens = (int32_t *)from->about.tokens};
    to->n_steps++;
    return ASSAY_OK;
}

static assay_status add_sequence(assay_run *run, const assay_prompt_data *from, int32_t sequence,
                                 bool alone)
{
    assay_prompt_data *to;
    const char *name = from->about.name;
    if (!alone)
        ASSAY_TRY(assay_run_text(&name, run, "%s#%d", name, sequence));
    ASSAY_TRY(assay_run_add_prompt(&to, run, name));
    to->about.text = alone ? from->about.text : NULL;
    ASSAY_TRY(assay_alloc(&to->steps, (size_t)from->n_steps + 1, sizeof *to->steps, "steps"));
    int64_t *ends;
    assay_status s;
    ASSAY_TRY(assay_alloc(&ends, (size_t)from->n_steps, sizeof *ends, "steps"));
    find_ends(ends, from, sequence);
    for (int k = 0; k < from->n_steps; k++)
        ASSAY_GO(take_step(to, run, &from->steps[k], sequence, ends[k]));
    if (alone)
        ASSAY_GO(add_beginning(to, from));
    to->about.n_steps = to->n_steps;
    to->about.tokens = alone ? from->about.tokens : to->n_steps ? to->steps[0].tokens : NULL;
    to->about.n_tokens = alone         ? from->about.n_tokens
                         : to->n_steps ? to->steps[0].about.n_tokens
                                       : 0;
    if (alone) {
        to->about.greedy = from->about.greedy;
        to->about.n_greedy = from->about.n_greedy;
        to->about.greedy_text = from->about.greedy_text;
    }
out:
    free(ends);
    return s;
}

/* The first n rows of a value that another prompt computed. */
static void take_first(assay_entry *e, const int64_t *rows, int64_t n, int64_t n_all)
{
    const int64_t *had = e->rows;
    if (n == n_all)
        return;
    if (!had) {
        select_rows(e, rows, n, n_all);
        return;
    }
    e->seen.dims[e->rows_axis] = n; /* the first of those it has */
}

/* Values for the beginning of `to` from the prompt that computed the same tokens in one step. */
static assay_status link_beginning(assay_run *run, assay_step_data *to)
{
    int64_t n = to->about.n_tokens;
    const assay_step_data *from = NULL;
    int64_t *rows;
    for (int p = 0; p < run->n_prompts && !from; p++) {
        const assay_step_data *s = run->prompts[p].steps;
        if (run->prompts[p].n_steps && !s->about.is_found && s->about.first_position == 0 &&
            s->about.n_tokens >= n &&
            !memcmp(s->about.tokens, to->about.tokens, (size_t)n * sizeof *to->about.tokens))
            from = s;
    }
    if (!from)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&rows, (size_t)n, sizeof *rows, "rows of a step"));
    ASSAY_TRY(assay_run_keep(run, rows));
    for (int64_t i = 0; i < n; i++)
        rows[i] = i;
    for (int i = 0; i < from->n_entries; i++) {
        assay_entry *e;
        ASSAY_TRY(assay_step_add(&e, to));
        *e = from->entries[i];
        take_first(e, rows, n, from->about.n_tokens);
    }
    return ASSAY_OK;
}

static void clear_steps(assay_prompt_data *p)
{
    for (int k = 0; k < p->n_steps; k++)
        free(p->steps[k].entries);
    free(p->steps);
}

assay_status assay_run_split(assay_run *run)
{
    assay_prompt_data *old = run->prompts;
    int n_old = run->n_prompts, i = 0;
    assay_status s = ASSAY_OK;
    int32_t *sequences = NULL;
    bool plain = true;
    for (int p = 0; p < n_old; p++)
        plain = plain && is_plain(&old[p]);
    if (plain)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&sequences, MOST_SEQUENCES, sizeof *sequences, "sequences"));
    run->prompts = NULL;
    run->n_prompts = 0;
    for (; i < n_old; i++) {
        if (is_plain(&old[i])) {
            assay_prompt_data *same;
            ASSAY_GO(assay_run_add_prompt(&same, run, old[i].about.name));
            *same = old[i];
            old[i] = (assay_prompt_data){0};
            continue;
        }
        int n = list_sequences(sequences, &old[i]);
        for (int q = 0; q < n; q++)
            ASSAY_GO(add_sequence(run, &old[i], sequences[q], n == 1));
    }
    for (int p = 0; p < run->n_prompts; p++)
        if (run->prompts[p].n_steps && run->prompts[p].steps[0].about.is_found)
            ASSAY_GO(link_beginning(run, &run->prompts[p].steps[0]));
out:
    for (int p = 0; p < n_old; p++)
        clear_steps(&old[p]);
    free(old);
    free(sequences);
    return s;
}
