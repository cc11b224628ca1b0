#include "suites/check_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text.h"
#include "suites/check_capture.h"

#define PLAIN "sketches"
#define LED "led"
#define LOGITS "logits"

/* --- what the run takes --- */

static assay_status add_step(assay_check_stages *st, const assay_check_context *c,
                             assay_oracle *oracle, int64_t n_before, int64_t n_tokens)
{
    st->n_tokens += n_tokens;
    return assay_run_need_add_step(st->needs, oracle, c->engine.path == ASSAY_PATH_LATENT, n_before,
                                   n_tokens);
}

/* The steps that the engine runs (check_capture.c). */
static assay_status add_prompt(assay_check_stages *st, const assay_check_context *c,
                               assay_oracle *oracle, const assay_check_prompt *p)
{
    int64_t chunk = c->options->chunk > 0 ? c->options->chunk : p->n;
    if (p->reference_index >= 0) {
        const assay_run_prompt *r = assay_run_prompt_at(c->reference, p->reference_index);
        for (int s = 0; s < r->n_steps; s++) {
            const assay_run_step *at = assay_run_step_at(c->reference, p->reference_index, s);
            ASSAY_TRY(add_step(st, c, oracle, at->first_position, at->n_tokens));
        }
        return ASSAY_OK;
    }
    for (int64_t at = 0; at < p->n; at += chunk)
        ASSAY_TRY(add_step(st, c, oracle, at, p->n - at < chunk ? p->n - at : chunk));
    for (int i = 0; i < ASSAY_CHECK_DECODE_STEPS; i++)
        ASSAY_TRY(add_step(st, c, oracle, p->n + i, 1));
    return ASSAY_OK;
}

static assay_status plan(assay_check_stages *st, assay_check_context *c)
{
    assay_oracle *oracle;
    ASSAY_TRY(assay_check_oracle(&oracle, c));
    st->n_layers = assay_oracle_shape_of(oracle)->n_layer;
    ASSAY_TRY(
        assay_alloc(&st->needs, (size_t)st->n_layers + 1, sizeof *st->needs, "sizes of layers"));
    for (int i = 0; i < c->n_prompts; i++)
        ASSAY_TRY(add_prompt(st, c, oracle, &c->prompts[i]));
    st->need = assay_run_need_sum(st->needs, st->n_layers);
    /* what every rank has a copy of is kept by each */
    st->is_large = st->need.full_bytes > c->options->budget_bytes / c->options->n_ranks;
    return ASSAY_OK;
}

assay_status assay_check_plan(assay_check_stages **out, assay_check_context *context)
{
    if (!context->stages) {
        assay_check_stages *st;
        ASSAY_TRY(assay_alloc(&st, 1, sizeof *st, "stages"));
        assay_status s = plan(st, context);
        if (s != ASSAY_OK) {
            assay_check_stages_free(st);
            return s;
        }
        context->stages = st;
    }
    *out = context->stages;
    return ASSAY_OK;
}

void assay_check_stages_free(assay_check_stages *stages)
{
    if (!stages)
        return;
    assay_run_close(stages->logits);
    free(stages->needs);
    free(stages);
}

/* --- stage one --- */

static int prompt_of_reference(const assay_check_context *c, const assay_run *run, int prompt)
{
    const char *name = assay_run_prompt_at(run, prompt)->name;
    for (int i = 0; i < assay_run_n_prompts(c->reference); i++)
        if (!strcmp(assay_run_prompt_at(c->reference, i)->name, name))
            return i;
    return -1;
}

/* The led run, value by value. */
typedef struct acquittal {
    assay_check_stages *st;
    const assay_check_context *c;
    const assay_run *run;
    int prompt, step, layer; /* of the value before */
    bool is_tainted;         /* a value before it in this layer differs, or its input is not led */
    bool was_heard[ASSAY_MAX_LAYERS];
} acquittal;

static bool differs(const assay_sketched_value *v)
{
    return !(v->rel <= v->bound);
}

static bool is_head(const assay_sketched_value *v)
{
    return v->layer < 0 && v->point != ASSAY_POINT_EMBED;
}

/* Whether what comes before the value is the reference's. */
static void begin_layer(acquittal *a, const assay_sketched_value *v)
{
    bool same_step = v->prompt == a->prompt && v->step == a->step;
    if (same_step && v->layer == a->layer)
        return;
    int layer = is_head(v) ? a->st->n_layers : v->layer;
    int reference = prompt_of_reference(a->c, a->run, v->prompt);
    bool is_led =
        layer < 0 || (reference >= 0 && assay_check_has_input(a->c, reference, v->step, layer));
    a->is_tainted = !is_led && (a->is_tainted || !same_step);
    a->prompt = v->prompt;
    a->step = v->step;
    a->layer = v->layer;
}

static assay_status hear(bool *stop, void *user, const assay_sketched_value *v)
{
    acquittal *a = user;
    *stop = false;
    begin_layer(a, v);
    if (a->is_tainted)
        return ASSAY_OK;
    if (v->layer >= 0)
        a->was_heard[v->layer] = true;
    if (!differs(v)) {
        a->st->judged[v->layer >= 0 ? v->layer : 0]++;
        return ASSAY_OK;
    }
    a->is_tainted = true;
    if (is_head(v))
        a->st->head_suspected = true;
    else
        a->st->suspects[v->layer >= 0 ? v->layer : 0] = true;
    if (!a->st->has_bad && !assay_point_at(v->point)->is_ids) {
        a->st->has_bad = true;
        a->st->bad = *v;
    }
    return ASSAY_OK;
}

static void suspect(assay_check_stages *st, assay_point point, int layer)
{
    if (layer < 0 && point != ASSAY_POINT_EMBED)
        st->head_suspected = true;
    else
        st->suspects[layer >= 0 ? layer : 0] = true;
}

static assay_status look_led(assay_check_stages *st, assay_check_context *c)
{
    static const assay_check_keep keep = {.name = LED, .tier = "sketch"};
    assay_run *run = NULL;
    acquittal a = {.st = st, .c = c, .prompt = -1};
    assay_status s;
    ASSAY_GO(assay_check_capture_run(c, &keep, 1, true));
    ASSAY_GO(assay_check_capture_open(&run, c, LED));
    a.run = run;
    ASSAY_GO(assay_sketched_each(&st->n_sketches, run, c->reference, hear, &a));
    st->was_led = true;
    if (st->plain.has_bad)
        suspect(st, st->plain.point, st->plain.layer);
    if (st->plain.has_flip)
        suspect(st, st->plain.flip_point, st->plain.flip_layer);
    for (int i = 0; i < st->n_layers; i++) {
        st->suspects[i] = st->suspects[i] || !a.was_heard[i];
        st->n_suspects += st->suspects[i];
    }
out:
    assay_run_close(run);
    assay_check_capture_unlink(c, LED);
    return s;
}

static const bool no_layers[ASSAY_MAX_LAYERS];
static const assay_check_keep head_alone = {.name = LOGITS, .layers = no_layers, .head = true};

assay_status assay_check_capture_head(assay_run **out, assay_check_context *context)
{
    assay_status s = assay_check_capture_run(context, &head_alone, 1, false);
    if (s == ASSAY_OK)
        s = assay_check_capture_open(out, context, LOGITS);
    assay_check_capture_unlink(context, LOGITS); /* an open file stays readable */
    return s;
}

static assay_status look_plain(assay_check_stages *st, assay_check_context *c)
{
    const assay_check_keep keeps[] = {{.name = PLAIN, .tier = "sketch"}, head_alone};
    bool with_logits = st->needs[0].full_bytes <= c->options->budget_bytes;
    assay_run *run = NULL;
    assay_status s;
    ASSAY_GO(assay_check_capture_run(c, keeps, with_logits ? 2 : 1, false));
    if (with_logits)
        ASSAY_GO(assay_check_capture_open(&st->logits, c, LOGITS));
    ASSAY_GO(assay_check_capture_open(&run, c, PLAIN));
    s = assay_sketched_compare(&st->plain, run, c->reference);
    st->n_sketches = st->plain.n_sketches;
out:
    assay_run_close(run);
    assay_check_capture_unlink(c, PLAIN);
    assay_check_capture_unlink(c, LOGITS);
    return s;
}

char *assay_check_suspects_text(char *out, size_t room, const assay_check_stages *stages)
{
    assay_numbers layers = {0};
    for (int i = 0; i < stages->n_layers; i++)
        if (stages->suspects[i] && assay_numbers_add(&layers, i) != ASSAY_OK)
            break;
    snprintf(out, room, "%s", layers.n ? layers.n > 1 ? "layers " : "layer " : "");
    if (layers.n)
        assay_text_ranges(out + strlen(out), room - strlen(out), &layers);
    if (stages->head_suspected)
        snprintf(out + strlen(out), room - strlen(out), "%sthe head", layers.n ? " and " : "");
    assay_numbers_clear(&layers);
    return out;
}

static assay_status tell(const assay_check_stages *st, assay_check_context *c)
{
    char who[256], why[96];
    if (st->is_large)
        snprintf(why, sizeof why, "every value of this run would take %.3g MB, the budget is %.3g",
                 (double)st->need.full_bytes * 1e-6, (double)c->options->budget_bytes * 1e-6);
    else
        snprintf(why, sizeof why, "judging every layer of this model would take too long");
    if (!st->was_led)
        return assay_strings_add(&c->result->notes,
                                 "in two stages, as %s: a sketch of every point (%.3g MB) was "
                                 "held against the reference, and none called for values",
                                 why, (double)st->need.sketch_bytes * 1e-6);
    return assay_strings_add(&c->result->notes,
                             "in two stages, as %s: a sketch of every point (%.3g MB) was held "
                             "against the reference, once as the engine runs and once with every "
                             "layer's input led back to it; then values of %s were captured",
                             why, (double)st->need.sketch_bytes * 1e-6,
                             assay_check_suspects_text(who, sizeof who, st));
}

assay_status assay_check_look(assay_check_stages **out, assay_check_context *context)
{
    assay_check_stages *st;
    ASSAY_TRY(assay_check_plan(&st, context));
    if (!st->has_looked) {
        st->has_looked = true;
        st->looked = look_plain(st, context);
        if (st->looked == ASSAY_OK && (st->plain.has_bad || st->plain.has_flip))
            st->looked = look_led(st, context);
        if (st->looked == ASSAY_OK)
            ASSAY_TRY(tell(st, context));
        else
            snprintf(st->look_error, sizeof st->look_error, "%s", assay_error_text());
    }
    *out = st;
    return st->looked == ASSAY_OK ? ASSAY_OK : assay_fail(st->looked, "%s", st->look_error);
}
