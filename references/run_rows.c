/*
 * Values of which some rows were kept (tier `rows`: the first two and the last two tokens of a
 * step). Everything behind this file takes a value of fewer rows for the last ones of its step, so
 * a step with such values is shown in parts, as a prefill in chunks is: each part ends behind a row
 * that the next one kept does not follow. Rows 0, 1, 22, 23 of 24 make a part of tokens 0-1, whole,
 * and one of tokens 2-23 with the last two rows of each value.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/run_private.h"

assay_status assay_run_read_kept(assay_entry *e, assay_run *run, hid_t file, const char *path)
{
    return assay_run_ids_attr(&e->kept, &e->n_kept, run, file, path, "rows");
}

static int token_axis(const assay_entry *e)
{
    const char *axes = assay_point_at(e->seen.point)->axes, *t = strchr(axes, 'T');
    int axis = t ? (int)(t - axes) : -1;
    return axis < e->seen.n_dims ? axis : -1;
}

/* Whether the rows that were kept are tokens of the step, ascending. (Of probabilities, whose first
 * axis is heads, heads are kept.) */
static bool are_tokens(const assay_entry *e, int64_t n_tokens)
{
    int axis = token_axis(e);
    if (axis < 0 || e->n_kept >= n_tokens || e->seen.dims[axis] != e->n_kept)
        return false;
    for (int64_t i = 0; i < e->n_kept; i++)
        if (e->kept[i] < 0 || e->kept[i] >= n_tokens || (i && e->kept[i] <= e->kept[i - 1]))
            return false;
    return true;
}

/* Row i of the value as a token of the step. */
static int64_t token_of(const assay_entry *e, int64_t i, int64_t n_tokens)
{
    return e->kept ? e->kept[i] : n_tokens - e->seen.dims[token_axis(e)] + i;
}

/* ends[t]: a part ends behind token t. Returns how many parts there are. */
static int find_ends(bool *ends, const assay_step_data *step)
{
    int64_t n = step->about.n_tokens;
    int parts = 0;
    ends[n - 1] = true;
    for (int i = 0; i < step->n_entries; i++) {
        const assay_entry *e = &step->entries[i];
        for (int64_t k = 0; e->kept && k < e->n_kept; k++)
            if (k + 1 == e->n_kept || e->kept[k + 1] != e->kept[k] + 1)
                ends[e->kept[k]] = true;
    }
    for (int64_t t = 0; t < n; t++)
        parts += ends[t];
    return parts;
}

/* The entry's rows from token `first` on, before token `end`; not added where it has none. */
static assay_status take_rows(assay_run *run, assay_step_data *to, const assay_entry *e,
                              int64_t first, int64_t end, int64_t n_tokens)
{
    int axis = token_axis(e);
    int64_t n_all = e->seen.dims[axis], from = 0, until;
    int64_t *rows;
    assay_entry *part;
    while (from < n_all && token_of(e, from, n_tokens) < first)
        from++;
    for (until = from; until < n_all && token_of(e, until, n_tokens) < end;)
        until++;
    if (from == until)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&rows, (size_t)(until - from), sizeof *rows, "rows of a value"));
    ASSAY_TRY(assay_run_keep(run, rows));
    for (int64_t i = from; i < until; i++)
        rows[i - from] = e->rows ? e->rows[i] : i;
    ASSAY_TRY(assay_step_add(&part, to));
    *part = *e;
    if (!e->n_parts) {
        if (!e->rows)
            memcpy(part->full_dims, e->seen.dims, sizeof part->full_dims);
        part->rows = rows;
        part->rows_axis = axis;
    }
    part->kept = NULL;
    part->n_kept = 0;
    part->seen.dims[axis] = until - from;
    /* the counts are of all rows together */
    part->seen.n_nan = part->seen.n_pos_inf = part->seen.n_neg_inf = part->seen.n_zero =
        part->seen.n_poison = -1;
    return ASSAY_OK;
}

static assay_status take_part(assay_run *run, assay_step_data *to, const assay_step_data *from,
                              int64_t first, int64_t end)
{
    int64_t n = from->about.n_tokens;
    *to = (assay_step_data){.about = from->about, .tokens = from->tokens + first};
    to->about.tokens = to->tokens;
    to->about.first_position += first;
    to->about.n_tokens = end - first;
    for (int i = 0; i < from->n_entries; i++) {
        const assay_entry *e = &from->entries[i];
        assay_entry *whole;
        if (e->seen.has_values && token_axis(e) >= 0) {
            ASSAY_TRY(take_rows(run, to, e, first, end, n));
        } else if (end == n) { /* statistics are of the whole step */
            ASSAY_TRY(assay_step_add(&whole, to));
            *whole = *e;
        }
    }
    return ASSAY_OK;
}

/* Rows of several requests in one step, and values whose rows are no tokens: statistics alone. */
static bool has_parts(assay_step_data *step)
{
    bool any = false;
    for (int i = 0; i < step->n_entries; i++) {
        assay_entry *e = &step->entries[i];
        if (!e->kept)
            continue;
        if (step->sequences || step->positions || !step->tokens ||
            !are_tokens(e, step->about.n_tokens)) {
            e->seen.has_values = false;
            e->kept = NULL;
        }
        any = any || (e->kept && e->seen.has_values);
    }
    return any;
}

static assay_status note_parts(assay_run *run, const char *prompt, int step, int n_parts,
                               const assay_step_data *parts)
{
    char list[256] = "";
    size_t n = 0;
    for (int k = 0; k < n_parts && n < sizeof list - 48; k++) {
        const assay_run_step *s = &parts[k].about;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%lld-%lld", k ? ", " : "",
                              (long long)s->first_position,
                              (long long)(s->first_position + s->n_tokens - 1));
    }
    return assay_run_add_note(run,
                              "prompt '%s': some rows alone were kept of step %d, which is shown "
                              "as %d steps, of positions %s",
                              prompt, step, n_parts, list);
}

static assay_status split_prompt(assay_run *run, assay_prompt_data *p)
{
    int64_t most = 0;
    int n_steps = 0, n = 0;
    bool **ends = NULL, any = false;
    assay_step_data *steps = NULL;
    assay_status s;
    ASSAY_TRY(assay_alloc(&ends, (size_t)p->n_steps, sizeof *ends, "parts of steps"));
    for (int k = 0; k < p->n_steps; k++) {
        int parts = 1;
        if (has_parts(&p->steps[k])) {
            any = true;
            most = p->steps[k].about.n_tokens;
            ASSAY_GO(assay_alloc(&ends[k], (size_t)most, sizeof **ends, "parts of a step"));
            parts = find_ends(ends[k], &p->steps[k]);
        }
        n_steps += parts;
    }
    s = ASSAY_OK;
    if (!any)
        goto out;
    ASSAY_GO(assay_alloc(&steps, (size_t)n_steps, sizeof *steps, "steps"));
    for (int k = 0; k < p->n_steps; k++) {
        int first_part = n;
        int64_t first = 0;
        if (!ends[k]) {
            steps[n++] = p->steps[k];
            p->steps[k].entries = NULL;
            continue;
        }
        for (int64_t t = 0; t < p->steps[k].about.n_tokens; t++)
            if (ends[k][t]) {
                ASSAY_GO(take_part(run, &steps[n++], &p->steps[k], first, t + 1));
                first = t + 1;
            }
        ASSAY_GO(note_parts(run, p->about.name, k, n - first_part, steps + first_part));
    }
out:
    for (int k = 0; k < p->n_steps; k++) {
        free(ends[k]);
        if (steps)
            free(p->steps[k].entries);
    }
    free(ends);
    if (steps) {
        free(p->steps);
        p->steps = steps;
        p->n_steps = p->about.n_steps = n;
        run->shows_parts = true;
    }
    return s;
}

assay_status assay_run_split_rows(assay_run *run)
{
    for (int p = 0; p < run->n_prompts; p++)
        ASSAY_TRY(split_prompt(run, &run->prompts[p]));
    return ASSAY_OK;
}
