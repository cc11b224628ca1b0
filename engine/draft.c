#include "engine/draft.h"

#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "engine/ops/pointwise.h"

typedef struct speech {
    assay_engine *engine;
    float *logits;       /* of the widest step */
    int64_t width, past; /* vocabulary; positions in the cache */
} speech;

/* One step of sequence 0: rows tokens[n], the last n_drafted of them drafts; `next` as it is known
 * behind the last one (-1: not). */
static assay_status run_rows(speech *s, const int32_t *tokens, int64_t n, int64_t n_drafted,
                             int32_t next)
{
    int32_t *positions;
    ASSAY_TRY(assay_alloc(&positions, (size_t)n, sizeof *positions, "positions"));
    for (int64_t i = 0; i < n; i++)
        positions[i] = (int32_t)(s->past + i);
    assay_batch batch = {n, tokens, positions, NULL};
    s->engine->n_drafted = n_drafted;
    s->engine->next_token = next;
    assay_status status = assay_engine_forward(s->engine, &batch, s->logits);
    s->engine->n_drafted = 0;
    s->engine->next_token = -1;
    free(positions);
    if (status == ASSAY_OK)
        s->past += n;
    return status;
}

static assay_status run_prompt(speech *s, const int32_t *prompt, int64_t n, int64_t chunk)
{
    for (int64_t first = 0, rows; first < n; first += rows) {
        rows = n - first < chunk ? n - first : chunk;
        s->engine->is_continuing = true;
        ASSAY_TRY(
            run_rows(s, prompt + first, rows, 0, first + rows < n ? prompt[first + rows] : -1));
    }
    s->engine->is_continuing = false;
    return ASSAY_OK;
}

/* The last token and its drafts in one step; appends what the logits say, as far as the drafts
 * hold. */
static assay_status run_drafts(int32_t *out_ids, int64_t *n_out, int64_t n_new, speech *s,
                               assay_draft_report *report)
{
    int32_t rows[ASSAY_MAX_DRAFTS + 1];
    int64_t n = report->n_positions, m = 0, past = s->past;
    n = n < n_new - *n_out - 1 ? n : n_new - *n_out - 1;
    rows[0] = out_ids[*n_out - 1];
    memcpy(rows + 1, s->engine->drafts, (size_t)n * sizeof *rows);
    ASSAY_TRY(run_rows(s, rows, n + 1, n, -1));
    report->n_steps++;
    for (int64_t i = 0; i < n; i++)
        report->n_drafted[i]++;
    for (;; m++) {
        int32_t id = assay_op_greedy(s->logits + m * s->width, s->width);
        out_ids[(*n_out)++] = id;
        if (m == n || id != rows[m + 1])
            break;
        report->n_accepted[m]++;
    }
    s->past = past + 1 + m;
    return assay_engine_truncate(s->engine, 0, s->past);
}

assay_status assay_engine_generate_drafted(int32_t *out_ids, assay_draft_report *report,
                                           assay_engine *engine, const int32_t *prompt,
                                           int64_t n_prompt, int64_t n_new, int64_t chunk)
{
    speech s = {engine, NULL, engine->hp->n_vocab, engine->n_past[0]};
    int64_t widest = ASSAY_MAX_DRAFTS + 1, n_out = 0;
    if (!engine->options.draft)
        return assay_fail(ASSAY_USAGE, "the engine was opened without drafts");
    if (n_prompt < 1 || n_new < 1)
        return assay_fail(ASSAY_USAGE,
                          "a prompt of %lld tokens and %lld new ones: expected one or more of each",
                          (long long)n_prompt, (long long)n_new);
    chunk = chunk <= 0 || chunk > n_prompt ? n_prompt : chunk;
    widest = chunk > widest ? chunk : widest;
    *report = (assay_draft_report){.n_positions = engine->hp->n_layer_nextn};
    ASSAY_TRY(assay_alloc(&s.logits, (size_t)(widest * s.width), sizeof *s.logits, "logits"));
    assay_status status = run_prompt(&s, prompt, n_prompt, chunk);
    int64_t last = (n_prompt - 1) % chunk;
    if (status == ASSAY_OK)
        out_ids[n_out++] = assay_op_greedy(s.logits + last * s.width, s.width);
    while (status == ASSAY_OK && n_out < n_new)
        status = run_drafts(out_ids, &n_out, n_new, &s, report);
    engine->is_continuing = false;
    free(s.logits);
    return status;
}
