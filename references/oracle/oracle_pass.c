#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

assay_status assay_pass_new(assay_pass **out, assay_oracle *oracle,
                            const assay_pass_options *options)
{
    assay_pass *p;
    ASSAY_TRY(assay_alloc(&p, 1, sizeof *p, "pass"));
    p->oracle = oracle;
    p->knobs = options && options->knobs ? *options->knobs : oracle->right;
    p->latent = options && options->latent && oracle->shape.is_mla;
    *out = p;
    return ASSAY_OK;
}

static void drop_variants(assay_pass *pass)
{
    for (int i = 0; i < ORACLE_N_VARIANTS; i++)
        if (pass->variants[i].used) {
            assay_oracle_store_clear(&pass->variants[i].store, pass->oracle);
            pass->variants[i].used = 0;
        }
}

/* Bytes that differ in padding only make a variant be computed again. */
static oracle_variant *variant_of(assay_pass *pass, const assay_knobs *knobs)
{
    oracle_variant *oldest = &pass->variants[0];
    for (int i = 0; i < ORACLE_N_VARIANTS; i++) {
        oracle_variant *v = &pass->variants[i];
        if (v->used && !memcmp(&v->knobs, knobs, sizeof *knobs))
            return v;
        if (v->used < oldest->used)
            oldest = v;
    }
    assay_oracle_store_clear(&oldest->store, pass->oracle);
    memcpy(&oldest->knobs, knobs, sizeof *knobs);
    return oldest;
}

oracle_eval assay_oracle_eval(assay_pass *pass, const assay_knobs *knobs)
{
    if (!knobs)
        return (oracle_eval){pass, pass->oracle, &pass->knobs, &pass->memo};
    oracle_variant *v = variant_of(pass, knobs);
    v->used = ++pass->tick;
    return (oracle_eval){pass, pass->oracle, &v->knobs, &v->store};
}

void assay_pass_free(assay_pass *pass)
{
    if (!pass)
        return;
    assay_oracle_store_clear(&pass->put, pass->oracle);
    assay_oracle_store_clear(&pass->memo, pass->oracle);
    drop_variants(pass);
    for (int i = 0; i < pass->n_steps; i++) {
        free(pass->steps[i].tokens);
        free(pass->steps[i].used);
    }
    free(pass->steps);
    free(pass);
}

assay_status assay_pass_add_step(int *step, assay_pass *pass, const int32_t *tokens,
                                 int64_t n_tokens, int64_t first_position)
{
    if (n_tokens <= 0)
        return assay_fail(ASSAY_BAD_SHAPE, "step %d has %lld tokens", pass->n_steps,
                          (long long)n_tokens);
    for (int64_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= pass->oracle->shape.n_vocab)
            return assay_fail(ASSAY_CANNOT_JUDGE, "token %lld of step %d is %d, vocabulary of %d",
                              (long long)i, pass->n_steps, tokens[i], pass->oracle->shape.n_vocab);
    oracle_step *grown = realloc(pass->steps, (size_t)(pass->n_steps + 1) * sizeof *grown);
    if (!grown)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the steps of a pass");
    pass->steps = grown;
    oracle_step *at = &grown[pass->n_steps];
    *at = (oracle_step){.n_tokens = n_tokens, .first_position = first_position};
    ASSAY_TRY(assay_alloc(&at->tokens, (size_t)n_tokens, sizeof *tokens, "tokens of a step"));
    assay_status s = assay_alloc(&at->used, assay_oracle_n_slots(pass->oracle), sizeof *at->used,
                                 "values of a step");
    if (s != ASSAY_OK) {
        free(at->tokens);
        return s;
    }
    memcpy(at->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    if (pass->n_steps)
        at->first_key = at[-1].first_key + at[-1].n_tokens;
    *step = pass->n_steps++;
    return ASSAY_OK;
}

void assay_pass_forget(assay_pass *pass, int layer)
{
    assay_oracle_store_drop(&pass->memo, pass->oracle, layer);
    drop_variants(pass);
}

int64_t assay_pass_n_ops(const assay_pass *pass)
{
    return pass->n_ops;
}

static int64_t axis_size(const assay_pass *pass, int step, char axis)
{
    const assay_oracle_shape *s = &pass->oracle->shape;
    const oracle_step *at = &pass->steps[step];
    int64_t n_keys = at->first_key + at->n_tokens;
    switch (axis) {
    case 'T':
        return at->n_tokens;
    case 'S':
        return n_keys;
    case 'X':
        return pass->knobs.index_top_k < n_keys ? pass->knobs.index_top_k : n_keys;
    case 'H':
        return s->n_head;
    case 'G':
        return s->n_head_kv;
    case 'D':
        return s->n_embd;
    case 'Q':
        return s->n_rank_q;
    case 'L':
        return s->n_rank_kv;
    case 'R':
        return s->d_rope;
    case 'K':
        return s->d_nope + s->d_rope;
    case 'N':
        return s->d_nope;
    case 'V':
        return s->d_value;
    case 'B':
        return s->d_nope + s->d_value;
    case 'C':
        return s->n_rank_kv + s->d_rope;
    case 'F':
        return s->n_ff;
    case 'M':
        return s->n_ff_expert;
    case 'Z':
        return s->n_ff_shared;
    case 'E':
        return s->n_expert;
    case 'U':
        return s->n_expert_used;
    case 'I':
        return s->index_n_head;
    case 'J':
        return s->index_d_head;
    default:
        return s->n_vocab;
    }
}

/* point.def is written for MLA; llama's keys and values have G heads. */
const char *assay_oracle_axes(const assay_oracle *o, assay_point point)
{
    if (!o->shape.is_mla && point == ASSAY_POINT_K)
        return "TGK";
    if (!o->shape.is_mla && point == ASSAY_POINT_V)
        return "TGV";
    if (!o->shape.is_mla && point == ASSAY_POINT_K_ROPE)
        return "TGR";
    return assay_point_at(point)->axes;
}

static oracle_place place_of(const assay_pass *pass, int step, int layer)
{
    return (oracle_place){
        .pass = pass, .oracle = pass->oracle, .step = step, .layer = layer, .latent = pass->latent};
}

assay_status assay_pass_dims(int *n_dims, int64_t dims[ASSAY_MAX_DIMS], assay_pass *pass, int step,
                             assay_point point, int layer)
{
    oracle_place place = place_of(pass, step, layer);
    char name[ASSAY_POINT_NAME_BYTES];
    ASSAY_BUG_IF(step < 0 || step >= pass->n_steps);
    if (!assay_oracle_op_at(&place, point))
        return assay_fail(ASSAY_MISSING, "%s: the model has no point '%s'",
                          assay_gguf_path(pass->oracle->file),
                          assay_point_format(name, point, layer));
    const char *axes = assay_oracle_axes(pass->oracle, point);
    *n_dims = (int)strlen(axes);
    for (int d = 0; d < *n_dims; d++)
        dims[d] = axis_size(pass, step, axes[d]);
    return ASSAY_OK;
}

int64_t assay_oracle_count(const assay_pass *pass, int step, assay_point point, int layer)
{
    (void)layer;
    int64_t n = 1;
    for (const char *axis = assay_oracle_axes(pass->oracle, point); *axis; axis++)
        n *= axis_size(pass, step, *axis);
    return n;
}

const double *assay_oracle_put_at(const assay_pass *pass, int step, assay_point point, int layer)
{
    return assay_oracle_store_get(&pass->put, step, point, layer);
}

/* The same for who goes on with it. */
static const double *use_put(const assay_pass *pass, int step, assay_point point, int layer)
{
    const double *put = assay_oracle_put_at(pass, step, point, layer);
    if (put)
        pass->steps[step].used[assay_oracle_slot_of(point, layer)] = true;
    return put;
}

bool assay_pass_was_used(const assay_pass *pass, int step, assay_point point, int layer)
{
    return pass->steps[step].used[assay_oracle_slot_of(point, layer)];
}

bool assay_pass_is_put(const assay_pass *pass, int step, assay_point point, int layer)
{
    return use_put(pass, step, point, layer) != NULL;
}

assay_status assay_pass_put(assay_pass *pass, int step, assay_point point, int layer,
                            const double *values, int64_t n)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], want = 1;
    char name[ASSAY_POINT_NAME_BYTES];
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, layer));
    for (int d = 0; d < n_dims; d++)
        want *= dims[d];
    if (n != want)
        return assay_fail(ASSAY_BAD_SHAPE, "point '%s' of step %d: %lld values, expected %lld",
                          assay_point_format(name, point, layer), step, (long long)n,
                          (long long)want);
    double **slot = assay_oracle_store_slot(&pass->put, pass->oracle, step, point, layer), *copy;
    if (!slot)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for captured values");
    ASSAY_TRY(assay_alloc(&copy, (size_t)n, sizeof *copy, "captured values"));
    memcpy(copy, values, (size_t)n * sizeof *copy);
    free(*slot);
    *slot = copy;
    assay_oracle_store_drop_after(&pass->memo, pass->oracle, step, point, layer);
    drop_variants(pass);
    return ASSAY_OK;
}

/* Whether a put value stands in for the op under these knobs. */
static const double *stand_in(const oracle_eval *e, int step, assay_point point, int layer)
{
    bool routing = point >= ASSAY_POINT_MOE_TOPK && point <= ASSAY_POINT_MOE_EXPERT_DOWN;
    if ((routing && !e->knobs->follow_routing) ||
        (point == ASSAY_POINT_INDEX_TOPK && !e->knobs->follow_selection))
        return NULL;
    return use_put(e->pass, step, point, layer);
}

/* Rows of all steps so far behind each other; *owned is the copy, if one was needed. */
static assay_status gather(const double **out, double **owned, oracle_eval *e, int step,
                           assay_point point, int layer)
{
    if (step == 0)
        return assay_oracle_value(out, e, 0, point, layer);
    int64_t total = 0;
    for (int s = 0; s <= step; s++)
        total += assay_oracle_count(e->pass, s, point, layer);
    ASSAY_TRY(assay_alloc(owned, (size_t)total, sizeof **owned, "keys of earlier steps"));
    double *at = *owned;
    for (int s = 0; s <= step; s++) {
        const double *rows;
        ASSAY_TRY(assay_oracle_value(&rows, e, s, point, layer));
        int64_t n = assay_oracle_count(e->pass, s, point, layer);
        memcpy(at, rows, (size_t)n * sizeof *at);
        at += n;
    }
    *out = *owned;
    return ASSAY_OK;
}

/* Where an input lies; FROM_NOWHERE when it is not needed. */
static oracle_input resolve(int *from_layer, const oracle_eval *e, int step, int layer,
                            oracle_input in)
{
    const assay_oracle *o = e->oracle;
    const oracle_step *at = &e->pass->steps[step];
    *from_layer = layer;
    switch (in.from) {
    case FROM_STREAM:
        if (e->knobs->residual_after_norm)
            return (oracle_input){FROM_HERE, ASSAY_POINT_IN_NORM};
        /* fall through */
    case FROM_BEFORE:
        if (layer >= o->shape.n_layer)
            return (oracle_input){FROM_HERE, ASSAY_POINT_NEXTN_IN};
        *from_layer = layer - 1;
        return (oracle_input){FROM_HERE, layer == 0 ? ASSAY_POINT_EMBED : ASSAY_POINT_OUT};
    case FROM_HIDDEN:
        *from_layer = layer - 1;
        if (e->knobs->nextn_hidden_raw)
            return (oracle_input){FROM_HERE, ASSAY_POINT_OUT};
        if (layer > o->shape.n_layer)
            return (oracle_input){FROM_HERE, ASSAY_POINT_NEXTN_NORM};
        *from_layer = -1;
        return (oracle_input){FROM_HERE, ASSAY_POINT_FINAL_NORM};
    case FROM_LAST:
        *from_layer = o->shape.n_layer - 1;
        return (oracle_input){FROM_HERE, in.point};
    case FROM_SOURCE:
        *from_layer = assay_oracle_source_layer(o, layer);
        return (oracle_input){FROM_HERE, in.point};
    case FROM_SELECTION:
        if (!o->shape.has_indexer || layer >= o->shape.n_layer || e->knobs->dense)
            return (oracle_input){FROM_NOWHERE, in.point};
        if (stand_in(e, step, ASSAY_POINT_INDEX_TOPK, layer))
            return (oracle_input){FROM_HERE, ASSAY_POINT_INDEX_TOPK};
        *from_layer = assay_oracle_source_layer(o, layer);
        if (stand_in(e, step, ASSAY_POINT_INDEX_TOPK, *from_layer))
            return (oracle_input){FROM_HERE, ASSAY_POINT_INDEX_TOPK};
        if (at->first_key + at->n_tokens <= e->knobs->index_top_k)
            return (oracle_input){FROM_NOWHERE, in.point};
        return (oracle_input){FROM_HERE, ASSAY_POINT_INDEX_SCORES};
    default:
        return in;
    }
}

/* The router and the scores of a selection stay in float32 in 16-bit engines. */
static assay_dtype output_format(assay_point point, const assay_knobs *knobs)
{
    switch (point) {
    case ASSAY_POINT_MOE_LOGITS:
    case ASSAY_POINT_MOE_PROBS:
    case ASSAY_POINT_MOE_WEIGHTS:
    case ASSAY_POINT_INDEX_SCORES:
    case ASSAY_POINT_LSE:
        return assay_oracle_at_least_f32(knobs->round_out);
    default:
        return assay_point_at(point)->is_ids ? ASSAY_DTYPE_F64 : knobs->round_out;
    }
}

/* out is zeroed memory: ops may add to it. */
static assay_status run_op(double *out, oracle_eval *e, int step, assay_point point, int layer)
{
    oracle_place place = place_of(e->pass, step, layer);
    const oracle_op *op = assay_oracle_op_at(&place, point);
    char name[ASSAY_POINT_NAME_BYTES];
    if (!op)
        return assay_fail(ASSAY_MISSING, "the model has no point '%s'",
                          assay_point_format(name, point, layer));
    const oracle_step *at = &e->pass->steps[step];
    oracle_call call = {.eval = e,
                        .point = point,
                        .step = step,
                        .layer = layer,
                        .at = at,
                        .n_tokens = at->n_tokens,
                        .n_keys = at->first_key + at->n_tokens};
    call.n = assay_oracle_count(e->pass, step, point, layer);
    call.width = call.n / at->n_tokens;
    double *owned[ORACLE_MAX_INPUTS] = {NULL};
    assay_status s = ASSAY_OK;
    for (int i = 0; i < ORACLE_MAX_INPUTS; i++) {
        int from;
        oracle_input in = resolve(&from, e, step, layer, op->inputs[i]);
        if (in.from == FROM_NOWHERE)
            continue;
        if (in.from == FROM_CACHE)
            ASSAY_GO(gather(&call.in[i], &owned[i], e, step, in.point, from));
        else
            ASSAY_GO(assay_oracle_value(&call.in[i], e, step, in.point, from));
        call.in_width[i] = assay_oracle_count(e->pass, step, in.point, from) / at->n_tokens;
        if (op->inputs[i].from == FROM_SELECTION) {
            call.selection_is_ids = in.point == ASSAY_POINT_INDEX_TOPK;
            call.n_selected = axis_size(e->pass, step, 'X');
        }
    }
    e->pass->n_ops++;
    s = op->compute(out, &call);
    if (s == ASSAY_OK)
        assay_oracle_round(out, call.n, output_format(point, e->knobs));
    else
        assay_within(s, "point '%s', step %d", assay_point_format(name, point, layer), step);
out:
    for (int i = 0; i < ORACLE_MAX_INPUTS; i++)
        free(owned[i]);
    return s;
}

assay_status assay_oracle_value(const double **out, oracle_eval *e, int step, assay_point point,
                                int layer)
{
    const double *known = stand_in(e, step, point, layer);
    if (!known)
        known = assay_oracle_store_get(e->memo, step, point, layer);
    if (known) {
        *out = known;
        return ASSAY_OK;
    }
    double *made;
    ASSAY_TRY(assay_alloc(&made, (size_t)assay_oracle_count(e->pass, step, point, layer),
                          sizeof *made, "values of a point"));
    assay_status s = run_op(made, e, step, point, layer);
    double **slot =
        s == ASSAY_OK ? assay_oracle_store_slot(e->memo, e->oracle, step, point, layer) : NULL;
    if (!slot) {
        free(made);
        return s != ASSAY_OK ? s
                             : assay_fail(ASSAY_NO_MEMORY, "no memory for the values of a point");
    }
    *slot = made;
    *out = made;
    return ASSAY_OK;
}

assay_status assay_pass_value(const double **out, assay_pass *pass, int step, assay_point point,
                              int layer)
{
    oracle_eval e = {
        .pass = pass, .oracle = pass->oracle, .knobs = &pass->knobs, .memo = &pass->memo};
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, layer));
    const double *put = use_put(pass, step, point, layer);
    if (put) {
        *out = put;
        return ASSAY_OK;
    }
    return assay_oracle_value(out, &e, step, point, layer);
}

assay_status assay_pass_expect(double *out, assay_pass *pass, int step, assay_point point,
                               int layer, const assay_knobs *knobs)
{
    oracle_eval e = assay_oracle_eval(pass, knobs);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, layer));
    if (!assay_oracle_put_at(pass, step, point, layer)) {
        const double *known;
        ASSAY_TRY(assay_oracle_value(&known, &e, step, point, layer));
        memcpy(out, known, (size_t)assay_oracle_count(pass, step, point, layer) * sizeof *out);
        return ASSAY_OK;
    }
    memset(out, 0, (size_t)assay_oracle_count(pass, step, point, layer) * sizeof *out);
    return run_op(out, &e, step, point, layer);
}

/* Breadth first through the rows of oracle_op.def. */
typedef struct walk {
    assay_point *points;
    int *layers, *steps;
    int n, max;
} walk;

static void visit(walk *w, const assay_pass *pass, int step, assay_point point, int layer)
{
    if (assay_oracle_put_at(pass, step, point, layer))
        return;
    for (int i = 0; i < w->n && i < w->max; i++)
        if (w->points[i] == point && w->layers[i] == layer && w->steps[i] == step)
            return;
    if (w->n < w->max) {
        w->points[w->n] = point;
        w->layers[w->n] = layer;
        w->steps[w->n] = step;
        w->n++;
    }
}

static void visit_inputs(walk *w, assay_pass *pass, int step, assay_point point, int layer)
{
    oracle_eval e = {.pass = pass, .oracle = pass->oracle, .knobs = &pass->knobs};
    oracle_place place = place_of(pass, step, layer);
    const oracle_op *op = assay_oracle_op_at(&place, point);
    for (int i = 0; op && i < ORACLE_MAX_INPUTS; i++) {
        int from;
        oracle_input in = resolve(&from, &e, step, layer, op->inputs[i]);
        for (int s = in.from == FROM_CACHE ? 0 : step; in.from != FROM_NOWHERE && s <= step; s++)
            visit(w, pass, s, in.point, from);
    }
}

int assay_pass_interval(assay_point *points, int *layers, int *steps, int max, assay_pass *pass,
                        int step, assay_point point, int layer)
{
    walk w = {.points = points, .layers = layers, .steps = steps, .max = max};
    visit_inputs(&w, pass, step, point, layer);
    for (int i = 0; i < w.n; i++)
        visit_inputs(&w, pass, w.steps[i], w.points[i], w.layers[i]);
    return w.n;
}
