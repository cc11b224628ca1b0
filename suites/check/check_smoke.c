/*
 * Greedy continuation of the reference's prompts: the text a user would see. It finds about half of
 * what goes wrong, so it is one row among many.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer.h"
#include "suites/check.h"

typedef struct smoke {
    assay_check_context *c;
    assay_tokenizer *tokenizer;
    int n_run, n_wrong;
    char text[400]; /* of the first prompt, or of the first wrong one */
} smoke;

/* One line, printable. */
static void clean(char *out, size_t room, const char *text, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n && used + 4 < room; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            out[used++] = '\\';
            out[used++] = 'n';
        } else {
            out[used++] = c < 32 || c == 127 ? '?' : (char)c;
        }
    }
    out[used] = '\0';
}

static assay_status tell(smoke *s, assay_check_row *row, const assay_run_prompt *p,
                         const int32_t *ids, int64_t n_equal)
{
    char *got, prompt[96], continuation[200];
    size_t n_got;
    ASSAY_TRY(assay_tokenizer_decode(&got, &n_got, s->tokenizer, ids, p->n_greedy));
    clean(prompt, sizeof prompt, p->text ? p->text : p->name, strlen(p->text ? p->text : p->name));
    clean(continuation, sizeof continuation, got, n_got);
    free(got);
    bool wrong = n_equal < p->n_greedy;
    if (!s->n_run || (wrong && !s->n_wrong))
        snprintf(s->text, sizeof s->text, "\"%s\" -> \"%s\"", prompt, continuation);
    s->n_run++;
    s->n_wrong += wrong;
    if (wrong && p->greedy_text) {
        clean(continuation, sizeof continuation, p->greedy_text, strlen(p->greedy_text));
        return assay_strings_add(&row->details, "'%s': expected \"%s\", first other id at %lld",
                                 p->name, continuation, (long long)n_equal);
    }
    return assay_strings_add(&row->details, "'%s': %lld of %lld ids as the reference has them",
                             p->name, (long long)n_equal, (long long)p->n_greedy);
}

static assay_status run_prompt(smoke *s, assay_check_row *row, const assay_run_prompt *p)
{
    assay_engine *engine = NULL;
    int32_t *ids = NULL;
    int64_t n_equal = 0;
    assay_status status =
        assay_check_engine(&engine, s->c, &s->c->engine, p->n_tokens + p->n_greedy);
    if (status == ASSAY_OK)
        status = assay_alloc(&ids, (size_t)p->n_greedy, sizeof *ids, "generated ids");
    if (status == ASSAY_OK)
        status = assay_engine_generate(ids, engine, p->tokens, p->n_tokens, p->n_greedy,
                                       s->c->options->chunk, NULL, NULL);
    while (status == ASSAY_OK && n_equal < p->n_greedy && ids[n_equal] == p->greedy[n_equal])
        n_equal++;
    if (status == ASSAY_OK)
        status = tell(s, row, p, ids, n_equal);
    assay_engine_free(engine);
    free(ids);
    return status;
}

/* How many ids the expected text is worth, with a few to spare: another split of the same text must
 * not cut the comparison short. */
static assay_status ids_of(assay_ids *prompt, int64_t *n_wanted, smoke *s,
                           const assay_check_expected *e)
{
    assay_ids text = {0};
    ASSAY_TRY(
        assay_tokenizer_encode(prompt, s->tokenizer, e->prompt, strlen(e->prompt), true, true));
    ASSAY_TRY(assay_tokenizer_encode(&text, s->tokenizer, e->text, strlen(e->text), false, true));
    *n_wanted = text.n + 4;
    assay_ids_clear(&text);
    return ASSAY_OK;
}

/* A continuation that a checklist expects: the generated text begins with it. */
static assay_status run_expected(smoke *s, assay_check_row *row, const assay_check_expected *e)
{
    assay_engine *engine = NULL;
    assay_ids prompt = {0};
    int32_t *ids = NULL;
    int64_t n = 0;
    size_t n_got = 0;
    char *got = NULL, cleaned[200], asked[96];
    assay_status status = ids_of(&prompt, &n, s, e);
    if (status == ASSAY_OK)
        status = assay_check_engine(&engine, s->c, &s->c->engine, prompt.n + n);
    if (status == ASSAY_OK)
        status = assay_alloc(&ids, (size_t)n, sizeof *ids, "generated ids");
    if (status == ASSAY_OK)
        status = assay_engine_generate(ids, engine, prompt.ids, prompt.n, n, s->c->options->chunk,
                                       NULL, NULL);
    if (status == ASSAY_OK)
        status = assay_tokenizer_decode(&got, &n_got, s->tokenizer, ids, n);
    if (status == ASSAY_OK) {
        size_t length = strlen(e->text);
        bool wrong = n_got < length || memcmp(got, e->text, length) != 0;
        clean(cleaned, sizeof cleaned, got, n_got < length + 8 ? n_got : length + 8);
        clean(asked, sizeof asked, e->prompt, strlen(e->prompt));
        if (!s->n_run || (wrong && !s->n_wrong))
            snprintf(s->text, sizeof s->text, "\"%s\" -> \"%s\"", asked, cleaned);
        s->n_run++;
        s->n_wrong += wrong;
        clean(asked, sizeof asked, e->text, length);
        status = assay_strings_add(&row->details, "expected \"%s\", %s \"%s\"", asked,
                                   wrong ? "the engine wrote" : "found in", cleaned);
    }
    assay_engine_free(engine);
    assay_ids_clear(&prompt);
    free(ids);
    free(got);
    return status;
}

static bool is_chosen(const assay_check_context *c, int reference_index)
{
    for (int i = 0; i < c->n_prompts; i++)
        if (c->prompts[i].reference_index == reference_index)
            return true;
    return false;
}

static assay_status run_all(smoke *s, assay_check_row *row)
{
    const assay_check_options *o = s->c->options;
    int n = s->c->reference ? assay_run_n_prompts(s->c->reference) : 0;
    ASSAY_TRY(assay_tokenizer_new(&s->tokenizer, s->c->file, NULL));
    for (int i = 0; i < n; i++) {
        const assay_run_prompt *p = assay_run_prompt_at(s->c->reference, i);
        if (p->n_greedy > 0 && is_chosen(s->c, i))
            ASSAY_TRY(run_prompt(s, row, p));
    }
    for (int i = 0; i < o->n_expected; i++)
        ASSAY_TRY(run_expected(s, row, &o->expected[i]));
    if (!s->n_run)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "the reference holds no greedy text");
    return assay_check_say(row, s->n_wrong ? ASSAY_VERDICT_FAIL : ASSAY_VERDICT_PASS, "%s",
                           s->text);
}

assay_status assay_check_smoke(assay_check_row *row, assay_check_context *context)
{
    if (!context->reference && !context->options->n_expected)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "no expected text (--reference REF)");
    smoke s = {.c = context};
    assay_status status = run_all(&s, row);
    assay_tokenizer_free(s.tokenizer);
    return status;
}
