/*
 * The list: opens what the rows need, runs them in the order of check.def, times them.
 */
#include "suites/check.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/run_notes.h"
#include "suites/check_stages.h"
#include "suites/describe_model.h"

#define HASH_BYTES_MAX (8ull << 30)
#define SEED 0x61737361u
#define MIN_PROMPT 8 /* tokens; no time budget cuts a prompt to less */

#define X(id, name, shows, needs, function) assay_check_fn function;
#include "suites/check.def"
#undef X

static const assay_check checks[] = {
#define X(id, name, shows, needs, function) {name, shows, needs, function},
#include "suites/check.def"
#undef X
};

#define N_CHECKS ((int)(sizeof checks / sizeof *checks))

int assay_check_count(void)
{
    return N_CHECKS;
}

const assay_check *assay_check_at(int index)
{
    return &checks[index];
}

assay_check_options assay_check_options_default(void)
{
    return (assay_check_options){.engine = assay_engine_options_default(),
                                 .n_ranks = 1,
                                 .time_budget_s = 120,
                                 .budget_bytes = 1 << 30};
}

assay_status assay_check_say(assay_check_row *row, assay_verdict verdict, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    char *copy = strdup(text);
    if (!copy)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the summary of row '%s'", row->name);
    free(row->summary);
    row->summary = copy;
    row->verdict = verdict;
    return ASSAY_OK;
}

static assay_status open_reference(assay_run **out, assay_check_context *c, const char *path)
{
    assay_run_options r = assay_run_options_default();
    r.profile = c->options->profile;
    if (!path)
        return ASSAY_OK;
    ASSAY_TRY(assay_run_open(out, &path, 1, &r));
    return assay_result_add_run_notes(c->result, *out);
}

/* A model that does not open is a finding of row `weights` or `config`, not a broken check. */
static assay_status open_model(assay_check_context *c)
{
    assay_model_options m = assay_model_options_default();
    if (c->reference) {
        const assay_profile *profile = assay_run_about(c->reference)->profile;
        if (profile)
            m.conventions = (assay_conventions){.eps_q_a = profile->eps_q_a,
                                                .eps_kv_a = profile->eps_kv_a,
                                                .eps_index = profile->eps_index};
    }
    assay_status s = assay_model_open(&c->model, c->options->model_path, &m);
    c->model_status = s;
    if (s == ASSAY_NO_MEMORY || s == ASSAY_IO)
        return s;
    if (s != ASSAY_OK)
        snprintf(c->model_error, sizeof c->model_error, "%s", assay_error_text());
    return ASSAY_OK;
}

static assay_status make_plants(assay_check_context *c)
{
    const int max = (int)(sizeof c->settings / sizeof *c->settings);
    c->engine = c->options->engine;
    for (int i = 0; c->model && i < c->options->n_plants; i++) {
        ASSAY_TRY(assay_plant_on(&c->options->plants[i],
                                 c->options->engine.backend == ASSAY_BACKEND_CUDA));
        ASSAY_TRY(assay_plant_make(c->settings, &c->n_settings, max, &c->options->plants[i],
                                   assay_model_hparams(c->model)));
    }
    c->seams = (assay_seams){c->settings, c->n_settings};
    if (c->n_settings)
        c->engine.seams = &c->seams;
    return ASSAY_OK;
}

/* xorshift32: the same ids on every machine. */
static int32_t next_id(uint32_t *state, int n_vocab)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (int32_t)(*state % (uint32_t)n_vocab);
}

static assay_status add_seeded(assay_check_context *c, const int64_t *lengths, int n_lengths)
{
    int64_t total = 0;
    uint32_t state = SEED;
    for (int i = 0; i < n_lengths; i++)
        total += lengths[i];
    ASSAY_TRY(assay_alloc(&c->seeded, (size_t)total, sizeof *c->seeded, "seeded prompts"));
    for (int64_t i = 0; i < total; i++)
        c->seeded[i] = next_id(&state, assay_model_hparams(c->model)->n_vocab);
    int32_t *ids = c->seeded;
    for (int i = 0; i < n_lengths && c->n_prompts < ASSAY_CHECK_MAX_PROMPTS; i++) {
        assay_check_prompt *p = &c->prompts[c->n_prompts++];
        *p = (assay_check_prompt){.tokens = ids, .n = lengths[i], .reference_index = -1};
        snprintf(p->name, sizeof p->name, "seeded-%lld", (long long)lengths[i]);
        ids += lengths[i];
    }
    return ASSAY_OK;
}

/* An empty list wants everything. */
static bool is_wanted(const char *const *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return true;
    return n == 0;
}

static assay_status check_vocab(const assay_check_context *c, const assay_run_prompt *p)
{
    int n_vocab = assay_model_hparams(c->model)->n_vocab;
    for (int64_t i = 0; i < p->n_tokens; i++)
        if (p->tokens[i] < 0 || p->tokens[i] >= n_vocab)
            return assay_fail(ASSAY_CANNOT_JUDGE,
                              "reference '%s', prompt '%s': token %lld is %d, the model has %d ids",
                              c->options->reference_path, p->name, (long long)i, p->tokens[i],
                              n_vocab);
    return ASSAY_OK;
}

/* The reference's prompts; else seeded ids of length 8, 40 and, where keys are selected, top_k
 * + 32. What would take longer than the budget is cut later, by the rows that run it. */
static assay_status choose_prompts(assay_check_context *c)
{
    if (!c->model)
        return ASSAY_OK;
    const assay_hparams *h = assay_model_hparams(c->model);
    int n = c->reference ? assay_run_n_prompts(c->reference) : 0;
    for (int i = 0; i < n && c->n_prompts < ASSAY_CHECK_MAX_PROMPTS; i++) {
        const assay_run_prompt *r = assay_run_prompt_at(c->reference, i);
        ASSAY_TRY(check_vocab(c, r));
        if (!r->n_tokens ||
            !is_wanted(c->options->wanted_prompts, c->options->n_wanted_prompts, r->name))
            continue;
        assay_check_prompt *p = &c->prompts[c->n_prompts++];
        *p = (assay_check_prompt){.tokens = r->tokens, .n = r->n_tokens, .reference_index = i};
        snprintf(p->name, sizeof p->name, "%s", r->name);
    }
    if (n && !c->n_prompts)
        return assay_fail(ASSAY_CANNOT_JUDGE, "reference '%s' has none of the wanted prompts",
                          c->options->reference_path);
    if (n)
        return ASSAY_OK;
    int64_t lengths[] = {8, 40, h->index_top_k + 32};
    return add_seeded(c, lengths, h->has_indexer ? 3 : 2);
}

/* A hash reads everything once: of huge files only where a reference is to be of the same model. */
static assay_status hash_model(assay_check_context *c)
{
    uint64_t bytes = 0;
    for (int i = 0; i < assay_gguf_n_files(c->file); i++)
        bytes += assay_gguf_file_bytes(c->file, i);
    if (bytes > HASH_BYTES_MAX && !c->options->reference_path)
        return ASSAY_OK;
    return assay_gguf_sha256(c->sha256, c->file);
}

static assay_status open_all(assay_check_context *c)
{
    ASSAY_TRY(hash_model(c));
    ASSAY_TRY(assay_describe_model(c->result, c->file, c->sha256[0] ? c->sha256 : NULL));
    ASSAY_TRY(open_reference(&c->reference, c, c->options->reference_path));
    ASSAY_TRY(open_reference(&c->twin, c, c->options->twin_path));
    ASSAY_TRY(open_model(c));
    ASSAY_TRY(make_plants(c));
    return choose_prompts(c);
}

assay_status assay_check_oracle(assay_oracle **out, assay_check_context *context)
{
    if (!context->oracle)
        ASSAY_TRY(assay_oracle_open(&context->oracle, context->file, 0));
    *out = context->oracle;
    return ASSAY_OK;
}

int64_t assay_check_length(const assay_check_context *context, const assay_check_prompt *prompt)
{
    /* The rows run every prompt about a dozen times, most of them in a third of a prefill's time a
     * token or less, and hold the values of up to four runs at a time. */
    double n = (double)prompt->n, least = fmin(n, MIN_PROMPT);
    if (context->tokens_per_s > 0)
        n = fmin(n, context->tokens_per_s * context->options->time_budget_s /
                        (4.0 * context->n_prompts));
    if (context->token_bytes > 0)
        n = fmin(n, (double)context->options->budget_bytes / (4 * context->token_bytes));
    return (int64_t)fmax(n, least);
}

assay_status assay_check_engine(assay_engine **out, assay_check_context *context,
                                const assay_engine_options *options, int64_t positions)
{
    assay_engine_options e = *options;
    e.max_positions = (int)positions;
    return assay_engine_new(out, context->model, &e);
}

static void close_all(assay_check_context *c)
{
    assay_check_stages_free(c->stages);
    assay_check_drop_capture(c);
    assay_run_close(c->reference);
    assay_run_close(c->twin);
    assay_oracle_close(c->oracle);
    assay_model_close(c->model);
    assay_gguf_close(c->file);
    free(c->seeded);
}

/* A row whose code failed tells it in its own line: one broken row must not hide the others. */
static assay_status run_row(assay_check_context *c, int index)
{
    assay_check_row *row;
    double began = omp_get_wtime();
    int before = c->result->n_findings;
    ASSAY_TRY(assay_result_add_check(&row, c->result, checks[index].name));
    row->verdict = ASSAY_VERDICT_INCONCLUSIVE;
    bool needs_engine = strncmp(checks[index].needs, "GGUF", 4) != 0;
    assay_status s;
    if (!c->file && index > 0)
        s = assay_check_say(row, ASSAY_VERDICT_SKIP, "the file cannot be read");
    else if (!c->model && needs_engine)
        s = assay_check_say(row, ASSAY_VERDICT_SKIP, "the model cannot be opened");
    else
        s = checks[index].run(row, c);
    if (s == ASSAY_OK)
        s = assay_lacked();
    if (s == ASSAY_NO_MEMORY)
        return s;
    if (s != ASSAY_OK)
        ASSAY_TRY(assay_check_say(
            row, assay_status_exit(s) == 125 ? ASSAY_VERDICT_INCONCLUSIVE : ASSAY_VERDICT_FAIL,
            "%s", assay_error_text()));
    row->seconds = omp_get_wtime() - began;
    for (int i = before; i < c->result->n_findings; i++)
        ASSAY_TRY(assay_finding_set(&c->result->findings[i].check, "%s", checks[index].name));
    return ASSAY_OK;
}

/* What an op computed wrongly comes before what weights may do elsewhere: a reader sees the first
 * few. Otherwise findings stay in their order. */
static void put_ops_first(assay_result *result)
{
    int n_ops = 0;
    for (int i = 0; i < result->n_findings; i++) {
        const assay_finding finding = result->findings[i];
        if (!finding.op)
            continue;
        memmove(&result->findings[n_ops + 1], &result->findings[n_ops],
                (size_t)(i - n_ops) * sizeof finding);
        result->findings[n_ops++] = finding;
    }
}

assay_status assay_check_run(assay_result *result, const assay_check_options *options)
{
    assay_check_context c = {.options = options, .result = result, .n_ops_findings = -1};
    char file_error[512] = "";
    assay_status s = assay_gguf_open(&c.file, options->model_path), broken = s;
    if (s == ASSAY_OK)
        s = open_all(&c);
    else
        snprintf(file_error, sizeof file_error, "%s", assay_error_text());
    if (c.file && s != ASSAY_OK)
        goto out;
    for (int i = 0; i < N_CHECKS; i++) {
        if (!is_wanted(options->rows, options->n_rows, checks[i].name))
            continue;
        if (options->progress)
            options->progress(options->progress_user, checks[i].name, i, N_CHECKS);
        if (file_error[0])
            assay_error_set(file_error);
        ASSAY_GO(run_row(&c, i));
    }
    put_ops_first(result);
    s = broken;
    if (file_error[0])
        assay_error_set(file_error);
out:
    close_all(&c);
    return s;
}
