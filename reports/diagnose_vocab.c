/*
 * The token side: do the ids of a prompt say what its text says? The cheapest check of all, and the
 * only one that sees it: every op is right on the ids it gets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer.h"
#include "reports/diagnose_private.h"

typedef struct readings { /* of one text: with and without the start token, special tokens whole or
                             in pieces */
    assay_ids whole, bare, pieces;
} readings;

static void readings_clear(readings *r)
{
    assay_ids_clear(&r->whole);
    assay_ids_clear(&r->bare);
    assay_ids_clear(&r->pieces);
}

static assay_status read_text(readings *r, const assay_tokenizer *tokenizer, const char *text)
{
    size_t n = strlen(text);
    ASSAY_TRY(assay_tokenizer_encode(&r->whole, tokenizer, text, n, true, true));
    ASSAY_TRY(assay_tokenizer_encode(&r->bare, tokenizer, text, n, false, true));
    return assay_tokenizer_encode(&r->pieces, tokenizer, text, n, true, false);
}

static bool same(const int32_t *a, int64_t na, const int32_t *b, int64_t nb)
{
    return na == nb && (na == 0 || !memcmp(a, b, (size_t)na * sizeof *a));
}

/* A candidate may hold the first ids of a longer text (a dump that was cut). */
static bool begins(const assay_ids *ids, const int32_t *tokens, int64_t n)
{
    return n <= ids->n && n > 0 && same(tokens, n, ids->ids, n);
}

static const char *name_kind(const readings *r, const int32_t *tokens, int64_t n)
{
    if (n > 1 && r->whole.n == n - 1 && tokens[0] == tokens[1] &&
        same(tokens + 1, n - 1, r->whole.ids, r->whole.n))
        return "start token doubled";
    if (r->whole.n == n + 1 && same(tokens, n, r->whole.ids + 1, n))
        return "start token missing";
    if (same(tokens, n, r->pieces.ids, r->pieces.n))
        return "special tokens split";
    return "other ids than the text gives";
}

static assay_status add(assay_result *result, const assay_run_prompt *p, const readings *r,
                        const char *reproduce)
{
    const char *kind = name_kind(r, p->tokens, p->n_tokens);
    assay_finding f;
    int64_t at = 0;
    char sentence[256];
    assay_status s;
    assay_finding_init(&f);
    while (at < p->n_tokens && at < r->whole.n && p->tokens[at] == r->whole.ids[at])
        at++;
    snprintf(sentence, sizeof sentence, "prompt '%s': %s", p->name, kind);
    f.has_first_bad = true;
    f.n_first_bad = 1;
    f.first_bad[0] = at;
    f.first_bad_got = at < p->n_tokens ? p->tokens[at] : -1;
    f.first_bad_expected = at < r->whole.n ? r->whole.ids[at] : -1;
    ASSAY_GO(assay_diagnosis_fact(&f, ASSAY_FAULT_VOCAB, kind, "tokenizer", sentence,
                                  assay_fault_at(ASSAY_FAULT_VOCAB)->advice, reproduce));
    ASSAY_GO(assay_finding_set(&f.point, "tokens"));
    ASSAY_GO(assay_strings_add(&f.points, "tokens"));
    ASSAY_GO(assay_strings_add(&f.prompts, "%s", p->name));
    ASSAY_GO(assay_strings_add(
        &f.evidence, "the run has %lld ids, the text gives %lld; first difference at %lld",
        (long long)p->n_tokens, (long long)r->whole.n, (long long)at));
    s = assay_result_add_finding(result, &f);
out:
    assay_finding_clear(&f);
    return s;
}

assay_status assay_diagnosis_vocab(assay_result *result, const assay_run *run,
                                   const assay_gguf *file, const char *reproduce)
{
    assay_tokenizer *tokenizer = NULL;
    bool any = false;
    for (int i = 0; i < assay_run_n_prompts(run); i++)
        any = any || assay_run_prompt_at(run, i)->text;
    if (!any || !file)
        return ASSAY_OK;
    if (assay_tokenizer_new(&tokenizer, file, NULL) != ASSAY_OK)
        return assay_strings_add(&result->notes, "ids not compared with the text: %s",
                                 assay_error_text());
    assay_status s = ASSAY_OK;
    for (int i = 0; i < assay_run_n_prompts(run) && s == ASSAY_OK; i++) {
        const assay_run_prompt *p = assay_run_prompt_at(run, i);
        readings r = {0};
        if (!p->text)
            continue;
        s = read_text(&r, tokenizer, p->text);
        if (s == ASSAY_OK && !begins(&r.whole, p->tokens, p->n_tokens) &&
            !begins(&r.bare, p->tokens, p->n_tokens))
            s = add(result, p, &r, reproduce);
        readings_clear(&r);
    }
    assay_tokenizer_free(tokenizer);
    return s;
}
