#include "engine/engine.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/device.h"
#include "engine/forward.h"
#include "engine/ops/linear.h"
#include "engine/ops/pointwise.h"

assay_engine_options assay_engine_options_default(void)
{
    return (assay_engine_options){.backend = ASSAY_BACKEND_CPU,
                                  .path = ASSAY_PATH_EXPANDED,
                                  .dtype = ASSAY_DTYPE_F32,
                                  .max_positions = 4096,
                                  .max_sequences = 1};
}

/* A running hash of what all ranks must have alike (FNV-1a). */
static void mix(uint64_t *hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *hash = (*hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
}

static assay_status same_model(assay_engine *e)
{
    const assay_gguf *file = assay_model_gguf(e->model);
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        mix(&hash, t->name, strlen(t->name));
        mix(&hash, &t->type, sizeof t->type);
        mix(&hash, t->ne, sizeof t->ne);
        mix(&hash, &t->offset, sizeof t->offset);
        size_t n =
            t->n_bytes < 256 ? (size_t)t->n_bytes : 256; /* content too: the first bytes of each */
        mix(&hash, t->data, n);
    }
    int options[] = {e->options.path,          e->options.dtype,         (int)e->options.products,
                     e->options.whole_experts, e->options.max_positions, e->options.max_sequences};
    ASSAY_TRY(assay_comm_same(e->options.comm, &hash, sizeof hash, "model"));
    return assay_comm_same(e->options.comm, options, sizeof options, "options of the run");
}

/* Whether this step's logits are made: nobody may want them. */
static bool makes_logits(const assay_engine *e, const float *logits)
{
    return logits || e->options.draft || assay_point_wanted(e, ASSAY_POINT_LOGITS, -1);
}

/* Ranks that make the logits wait for each other there: all have to, or none. */
static assay_status same_step(assay_engine *e, const float *logits)
{
    bool with_logits = makes_logits(e, logits);
    uint64_t hash = 0xCBF29CE484222325u;
    size_t n = (size_t)e->batch.n * sizeof(int32_t);
    mix(&hash, &e->step, sizeof e->step);
    mix(&hash, e->batch.tokens, n);
    mix(&hash, e->positions, n);
    mix(&hash, e->sequences, n);
    mix(&hash, &with_logits, sizeof with_logits);
    return assay_comm_same(e->options.comm, &hash, sizeof hash,
                           "rows of the step, or whether it makes logits");
}

static assay_status check_options(const assay_engine_options *o)
{
    if (o->dtype != ASSAY_DTYPE_F32 && o->dtype != ASSAY_DTYPE_BF16)
        return assay_fail(ASSAY_USAGE, "the engine computes in f32 or bf16, not in %s",
                          assay_dtype_name(o->dtype));
    if ((unsigned)o->cache_type >= ASSAY_CACHE_TYPE_COUNT || o->page_size < 0 || o->n_pages < 0)
        return assay_fail(ASSAY_USAGE, "a cache of type %d in %d pages of %d positions",
                          o->cache_type, o->n_pages, o->page_size);
    if (o->products == ASSAY_PRODUCTS_INTEGER &&
        (o->backend != ASSAY_BACKEND_CPU || o->dtype != ASSAY_DTYPE_F32))
        return assay_fail(ASSAY_UNSUPPORTED, "products of integers run on the host, in f32");
    ASSAY_TRY(assay_seams_check(o->seams, o->backend == ASSAY_BACKEND_CUDA));
    if (o->max_positions < 1 || o->max_sequences < 1)
        return assay_fail(ASSAY_USAGE,
                          "%d sequences of %d positions: expected at least one of each",
                          o->max_sequences, o->max_positions);
    return ASSAY_OK;
}

static assay_status check_drafts(const assay_engine *e)
{
    const assay_hparams *hp = e->hp;
    if (hp->n_layer_nextn < 1 || hp->n_layer_nextn > ASSAY_MAX_DRAFTS)
        return assay_fail(ASSAY_USAGE, "the model has %d layers that predict further tokens",
                          hp->n_layer_nextn);
    if (e->options.backend != ASSAY_BACKEND_CPU || e->part.n_ranks > 1)
        return assay_fail(ASSAY_UNSUPPORTED, "drafts are made on the host, by one rank");
    if (assay_model_last_layer(e->model) != hp->n_layer - 1)
        return assay_fail(ASSAY_USAGE, "drafts need the last layer of the trunk");
    return assay_model_check_nextn(e->model);
}

static assay_status open_prefixes(assay_engine *e)
{
    assay_prefix_options how = {.hash_bits = (int)assay_bent(e, ASSAY_SEAM_PREFIX_HASH_BITS, -1, 0),
                                .unchecked = assay_bent(e, ASSAY_SEAM_PREFIX_UNCHECKED, -1, 0) != 0,
                                .keeps_evicted =
                                    assay_bent(e, ASSAY_SEAM_PREFIX_EVICTED, -1, 0) != 0};
    if (e->options.page_size < 1)
        return assay_fail(ASSAY_USAGE, "prefixes are reused in pages: expected a page size");
    ASSAY_TRY(
        assay_alloc(&e->history, (size_t)e->options.max_sequences, sizeof *e->history, "prefixes"));
    for (int i = 0; i < e->options.max_sequences; i++)
        ASSAY_TRY(assay_alloc(&e->history[i], (size_t)e->options.max_positions, sizeof **e->history,
                              "prefixes"));
    return assay_prefix_new(&e->prefixes, e->cache, &how);
}

assay_status assay_engine_new(assay_engine **out, assay_model *model,
                              const assay_engine_options *options)
{
    assay_engine *e;
    assay_status s;
    assay_engine_options defaults = assay_engine_options_default();
    if (!options)
        options = &defaults;
    ASSAY_TRY(check_options(options));
    ASSAY_TRY(assay_alloc(&e, 1, sizeof *e, "engine"));
    const assay_hparams *hp = assay_model_hparams(model);
    e->model = model;
    e->hp = hp;
    e->options = *options;
    assay_comm *comm = options->comm;
    ASSAY_GO(assay_part_of(&e->part, hp, options->whole_experts, comm ? comm->rank : 0,
                           comm ? comm->n_ranks : 1));
    if (e->options.n_threads <= 0) /* ranks of one machine share its cores */
        e->options.n_threads = e->part.n_ranks > 1 ? 1 : omp_get_num_procs();
    assay_kvcache_options cache = {
        .n_layer = hp->n_layer + (options->draft ? hp->n_layer_nextn : 0),
        .n_sequences = options->max_sequences,
        .n_positions = options->max_positions,
        .width = {[ASSAY_KV_K] = (int64_t)e->part.n_head_kv * hp->d_head,
                  [ASSAY_KV_V] = (int64_t)e->part.n_head_kv * hp->d_value,
                  [ASSAY_KV_LATENT] = hp->n_rank_kv + hp->d_rope,
                  [ASSAY_KV_INDEX] = hp->index_d_head},
        .type = options->cache_type,
        .page_size = options->page_size,
        .n_pages = options->n_pages,
        .is_blank = assay_bent(e, ASSAY_SEAM_KV_BLANK, -1, 0) != 0,
    };
    ASSAY_GO(assay_kvcache_new(&e->cache, &cache));
    ASSAY_GO(assay_alloc(&e->n_past, (size_t)options->max_sequences, sizeof *e->n_past, "engine"));
    if (options->reuse_prefixes)
        ASSAY_GO(open_prefixes(e));
    if (e->part.n_ranks > 1)
        ASSAY_GO(same_model(e));
    if (options->draft)
        ASSAY_GO(check_drafts(e));
    e->next_token = -1;
    if (options->backend == ASSAY_BACKEND_CUDA)
        ASSAY_GO(assay_device_open(e));
    *out = e;
    return ASSAY_OK;
out:
    assay_engine_free(e);
    return s;
}

void assay_engine_free(assay_engine *engine)
{
    if (!engine)
        return;
    assay_device_close(engine);
    assay_prefix_free(engine->prefixes);
    for (int i = 0; engine->history && i < engine->options.max_sequences; i++)
        free(engine->history[i]);
    free(engine->history);
    assay_kvcache_free(engine->cache);
    assay_slots_clear(&engine->slots);
    free(engine->n_past);
    free(engine->zero_sequences);
    free(engine->positions);
    free(engine->row_order);
    free(engine->spans);
    free(engine->scratch);
    free(engine->kv_b_scratch);
    free(engine->cat);
    free(engine->rounded);
    assay_bent_free(engine);
    free(engine);
}

assay_status assay_engine_reuse(int64_t *n_reused, assay_engine *engine, int sequence,
                                const int32_t *tokens, int64_t n)
{
    assay_engine *e = engine;
    *n_reused = 0;
    if (sequence < 0 || sequence >= e->options.max_sequences || e->n_past[sequence])
        return assay_fail(ASSAY_USAGE, "sequence %d is not an empty one of %d", sequence,
                          e->options.max_sequences);
    if (!e->prefixes || n < 2)
        return ASSAY_OK;
    ASSAY_TRY(assay_prefix_find(n_reused, e->prefixes, sequence, tokens, n - 1));
    memcpy(e->history[sequence], tokens, (size_t)*n_reused * sizeof *tokens);
    e->n_past[sequence] = *n_reused;
    return ASSAY_OK;
}

int64_t assay_engine_n_collisions(const assay_engine *engine)
{
    return engine->prefixes ? assay_prefix_n_collisions(engine->prefixes) : 0;
}

/* What the sequences leave is kept for others; when memory for that is short, it is just not kept.
 */
static void keep_prefixes(assay_engine *e, int sequence)
{
    for (int i = 0; e->prefixes && i < e->options.max_sequences; i++)
        if (sequence < 0 || i == sequence)
            (void)assay_prefix_keep(e->prefixes, i, e->history[i], e->n_past[i]);
}

void assay_engine_reset(assay_engine *engine, int sequence)
{
    keep_prefixes(engine, sequence);
    assay_kvcache_reset(engine->cache, sequence);
    for (int i = 0; i < engine->options.max_sequences; i++)
        if (sequence < 0 || i == sequence)
            engine->n_past[i] = 0;
    if (sequence < 0)
        engine->step = engine->slots.step = 0;
    if (engine->device)
        assay_device_reset(engine, sequence);
}

assay_status assay_engine_truncate(assay_engine *engine, int sequence, int64_t n)
{
    if (sequence < 0 || sequence >= engine->options.max_sequences || n < 0 ||
        n > engine->n_past[sequence])
        return assay_fail(ASSAY_USAGE, "sequence %d cannot be cut to %lld positions", sequence,
                          (long long)n);
    if (n < engine->n_past[sequence])
        assay_kvcache_truncate(engine->cache, sequence, n);
    engine->n_past[sequence] = n;
    return ASSAY_OK;
}

static assay_status make_room(assay_engine *e, int64_t n)
{
    if (n <= e->n_room)
        return ASSAY_OK;
    free(e->zero_sequences);
    free(e->positions);
    free(e->row_order);
    free(e->spans);
    e->zero_sequences = e->positions = NULL;
    e->row_order = NULL;
    e->spans = NULL;
    e->n_room = 0;
    ASSAY_TRY(assay_alloc(&e->zero_sequences, (size_t)n, sizeof *e->zero_sequences, "batch"));
    ASSAY_TRY(assay_alloc(&e->positions, (size_t)n, sizeof *e->positions, "batch"));
    ASSAY_TRY(assay_alloc(&e->row_order, (size_t)n, sizeof *e->row_order, "batch"));
    ASSAY_TRY(assay_alloc(&e->spans, (size_t)n, sizeof *e->spans, "batch"));
    e->n_room = n;
    return ASSAY_OK;
}

static assay_status check_row(const assay_engine *e, int64_t t)
{
    const assay_batch *b = &e->batch;
    int32_t sequence = e->sequences[t];
    if (sequence < -1 || sequence >= e->options.max_sequences)
        return assay_fail(ASSAY_USAGE, "row %lld is of sequence %d, and there is room for %d",
                          (long long)t, sequence, e->options.max_sequences);
    if (sequence >= 0 && (b->tokens[t] < 0 || b->tokens[t] >= e->hp->n_vocab))
        return assay_fail(ASSAY_USAGE, "row %lld: token %d is outside the vocabulary of %d",
                          (long long)t, b->tokens[t], e->hp->n_vocab);
    return ASSAY_OK;
}

/* Tokens by position, and pages for them: kept prefixes give way. */
static void remember(assay_engine *e, const assay_span *s)
{
    int64_t size = e->options.page_size;
    for (int64_t r = 0; r < s->n_rows; r++)
        e->history[s->sequence][s->first + r] = e->batch.tokens[s->rows[r]];
    assay_prefix_make_room(e->prefixes,
                           (s->n_keys + size - 1) / size - (s->first + size - 1) / size);
}

/* Rows by sequence, in the order in which sequences first appear; positions must continue each
 * cache. */
static assay_status make_spans(assay_engine *e)
{
    int64_t at = 0;
    e->n_spans = 0;
    e->n_keys_most = 0;
    for (int64_t t = 0; t < e->batch.n; t++) {
        ASSAY_TRY(check_row(e, t));
        e->positions[t] = e->sequences[t] < 0 ? -1 : e->batch.positions[t];
        bool known = e->sequences[t] < 0;
        for (int i = 0; i < e->n_spans; i++)
            known = known || e->spans[i].sequence == e->sequences[t];
        if (known)
            continue;
        assay_span *s = &e->spans[e->n_spans++];
        *s = (assay_span){e->sequences[t], 0, e->row_order + at, e->n_past[e->sequences[t]], 0};
        for (int64_t u = t; u < e->batch.n; u++) {
            if (e->sequences[u] != s->sequence)
                continue;
            int64_t expected = s->first + s->n_rows;
            if (e->batch.positions[u] != expected)
                return assay_fail(
                    ASSAY_USAGE, "row %lld: position %d, and sequence %d continues at %lld",
                    (long long)u, e->batch.positions[u], s->sequence, (long long)expected);
            e->row_order[at++] = u;
            s->n_rows++;
        }
        s->n_keys = s->first + s->n_rows;
        if (s->n_keys > e->options.max_positions)
            return assay_fail(ASSAY_USAGE,
                              "sequence %d grows to %lld positions, and there is room for %d",
                              s->sequence, (long long)s->n_keys, e->options.max_positions);
        if (s->n_keys > e->n_keys_most)
            e->n_keys_most = s->n_keys;
        if (e->prefixes)
            remember(e, s);
        ASSAY_TRY(assay_kvcache_extend(e->cache, s->sequence, s->n_keys));
    }
    return ASSAY_OK;
}

static assay_status begin_step(assay_engine *e, const assay_batch *batch)
{
    if (batch->n < 1 || batch->n > INT32_MAX)
        return assay_fail(ASSAY_USAGE, "a step of %lld rows", (long long)batch->n);
    ASSAY_TRY(make_room(e, batch->n));
    e->batch = *batch;
    e->sequences = batch->sequences ? batch->sequences : e->zero_sequences;
    ASSAY_TRY(make_spans(e));
    e->is_prefill = e->is_continuing;
    for (int i = 0; i < e->n_spans; i++)
        e->is_prefill = e->is_prefill || e->spans[i].n_rows > 1 || e->spans[i].first == 0;
    return ASSAY_OK;
}

/* The id that is looked up: the row's token. */
static int32_t token_of(const assay_engine *e, int64_t t)
{
    const assay_seam_setting *s =
        assay_seam_at(e->options.seams, ASSAY_SEAM_TOKEN_SHIFT, assay_place_of(e, -1));
    if (!s || (s->n_ints > 0 && s->ints[0] != t))
        return e->batch.tokens[t];
    int64_t shifted = (e->batch.tokens[t] + (int64_t)s->value) % e->hp->n_vocab;
    return (int32_t)(shifted < 0 ? shifted + e->hp->n_vocab : shifted);
}

/* What padding rows hold, where it is not zero. */
static void fill_padding(const assay_engine *e, assay_rows y)
{
    double fill = assay_bent(e, ASSAY_SEAM_PADDING_FILL, -1, 0);
    for (int64_t t = 0; fill != 0 && t < y.n; t++)
        for (int64_t i = 0; e->sequences[t] < 0 && i < y.width; i++)
            y.at[t * y.stride + i] = (float)fill;
}

/* Rows of the table; padding rows, and ids of another rank's share of the vocabulary, are zero. */
static assay_status embed(assay_engine *e)
{
    const assay_weight *table = assay_model_weight(e->model, ASSAY_ROLE_TOKEN_EMBD, -1);
    const assay_part part = assay_part_of_weight(e, ASSAY_ROLE_TOKEN_EMBD, -1);
    const float *values;
    bool bent;
    ASSAY_TRY(assay_bent_weight(&bent, &values, e, table));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_EMBED, -1));
    assay_rows y = assay_slots_written(&e->slots, ASSAY_POINT_EMBED);
    for (int64_t t = 0; t < y.n; t++) {
        int64_t token = e->sequences[t] < 0 ? -1 : token_of(e, t);
        if (token < part.vocab || token >= part.vocab + part.n_vocab)
            memset(y.at + t * y.stride, 0, (size_t)y.width * sizeof *y.at);
        else if (bent)
            memcpy(y.at + t * y.stride, values + token * y.width, (size_t)y.width * sizeof *y.at);
        else
            ASSAY_TRY(
                assay_model_decode_rows(y.at + t * y.stride, table, token, 1, e->options.dtype));
    }
    assay_op_scale(y, assay_bent(e, ASSAY_SEAM_EMBED_SCALE, -1, 1));
    fill_padding(e, y);
    return assay_point_done_reduced(e, ASSAY_POINT_EMBED, -1);
}

/* Each rank multiplies its rows of the head; equal shares (the last one padded) are put side by
 * side. */
static assay_status gathered_logits(assay_engine *e, assay_rows y, assay_rows x, assay_role role)
{
    int64_t each = (y.width + e->part.n_ranks - 1) / e->part.n_ranks, n = y.n * each;
    float *mine, *all = NULL;
    ASSAY_TRY(assay_alloc(&mine, (size_t)n, sizeof *mine, "logits"));
    assay_status s = assay_alloc(&all, (size_t)(n * e->part.n_ranks), sizeof *all, "logits");
    if (s == ASSAY_OK)
        s = assay_linear_role(e, (assay_rows){mine, y.n, e->part.n_vocab, each}, x, role, -1,
                              ASSAY_ROLE_COUNT);
    if (s == ASSAY_OK)
        s = assay_comm_gather(e->options.comm, all, mine, (size_t)n * sizeof *mine);
    for (int64_t t = 0; t < y.n && s == ASSAY_OK; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] = all[i / each * n + t * each + i % each];
    free(all);
    free(mine);
    return s;
}

static assay_status head(assay_engine *e, float *logits)
{
    assay_rows x;
    bool tied = !assay_model_weight(e->model, ASSAY_ROLE_OUTPUT, -1) ||
                assay_bent(e, ASSAY_SEAM_HEAD_TIED, -1, 0) != 0;
    assay_role role = tied ? ASSAY_ROLE_TOKEN_EMBD : ASSAY_ROLE_OUTPUT;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_OUT, ASSAY_POINT_FINAL_NORM));
    ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_FINAL_NORM, x, ASSAY_ROLE_OUTPUT_NORM,
                                 ASSAY_NORM_FINAL, -1));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FINAL_NORM, ASSAY_POINT_LOGITS));
    if (!makes_logits(e, logits))
        return ASSAY_OK;
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_LOGITS, -1));
    assay_rows y = assay_slots_written(&e->slots, ASSAY_POINT_LOGITS);
    if (e->part.n_ranks > 1)
        ASSAY_TRY(gathered_logits(e, y, x, role));
    else
        ASSAY_TRY(assay_linear_role(e, y, x, role, -1, ASSAY_ROLE_COUNT));
    assay_op_scale(y, assay_bent(e, ASSAY_SEAM_LOGITS_SCALE, -1, 1));
    assay_op_cap(y, assay_bent(e, ASSAY_SEAM_LOGITS_CAP, -1, 0));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_LOGITS, -1));
    assay_slots_no_reader(&e->slots, ASSAY_POINT_LOGITS);
    if (logits)
        memcpy(logits, assay_slots_rows(&e->slots, ASSAY_POINT_LOGITS).at,
               (size_t)(y.n * y.width) * sizeof *logits);
    return ASSAY_OK;
}

static assay_status run_step(assay_engine *e, float *logits)
{
    int last = assay_model_last_layer(e->model);
    ASSAY_TRY(embed(e));
    for (int layer = assay_model_first_layer(e->model); layer <= last; layer++) {
        assay_status s = assay_forward_layer(e, layer);
        if (s != ASSAY_OK)
            return assay_within(s, "layer %d", layer);
    }
    if (last == e->hp->n_layer - 1) {
        ASSAY_TRY(head(e, logits));
        return e->options.draft ? assay_forward_drafts(e) : ASSAY_OK;
    }
    assay_slots_no_reader(&e->slots, ASSAY_POINT_OUT);
    return logits
               ? assay_fail(ASSAY_USAGE, "logits need the last layer, and layers end at %d", last)
               : ASSAY_OK;
}

assay_status assay_engine_forward(assay_engine *engine, const assay_batch *batch, float *logits)
{
    assay_engine *e = engine;
    omp_set_num_threads(e->options.n_threads);
    ASSAY_TRY(begin_step(e, batch));
    if (e->part.n_ranks > 1)
        ASSAY_TRY(same_step(e, logits));
    ASSAY_TRY(e->device ? assay_device_step(e, logits) : run_step(e, logits));
    ASSAY_TRY(assay_slots_end_step(&e->slots));
    for (int i = 0; i < e->n_spans; i++)
        e->n_past[e->spans[i].sequence] = e->spans[i].n_keys;
    e->step++;
    return ASSAY_OK;
}

/* Rows of a step with its padding. */
static int64_t padded(const assay_engine *e, int64_t n)
{
    int64_t to = e->options.pad_to > 1 ? e->options.pad_to : 1;
    return (n + to - 1) / to * to;
}

/* One call of generate: rows first ... first + n - 1 of sequence 0. */
static assay_status generate_step(assay_engine *e, float *logits, const int32_t *tokens,
                                  int64_t first, int64_t n, assay_logits_fn *on_logits, void *user)
{
    int64_t all = padded(e, n);
    int32_t *rows;
    ASSAY_TRY(assay_alloc(&rows, (size_t)all, 3 * sizeof *rows, "rows of a step"));
    int32_t *positions = rows + all, *sequences = positions + all;
    for (int64_t i = 0; i < all; i++) {
        rows[i] = i < n ? tokens[i] : 0;
        positions[i] = i < n ? (int32_t)(first + i) : 0;
        sequences[i] = i < n ? 0 : -1;
    }
    assay_batch batch = {all, rows, positions, sequences};
    assay_status s = assay_engine_forward(e, &batch, logits);
    free(rows);
    if (s == ASSAY_OK && on_logits)
        s = on_logits(user, first, n, logits);
    return s;
}

static assay_status generate_all(assay_engine *e, int32_t *out_ids, float *logits,
                                 const int32_t *prompt, int64_t n_prompt, int64_t n_new,
                                 int64_t chunk, assay_logits_fn *on_logits, void *user)
{
    int64_t width = e->hp->n_vocab, past = e->n_past[0], n = 0;
    for (int64_t first = 0; first < n_prompt; first += n) {
        n = n_prompt - first < chunk ? n_prompt - first : chunk;
        e->is_continuing = true;
        ASSAY_TRY(generate_step(e, logits, prompt + first, past + first, n, on_logits, user));
    }
    e->is_continuing = false;
    for (int64_t i = 0; i < n_new; i++) {
        out_ids[i] = assay_op_greedy(logits + (n - 1) * width, width);
        n = 1;
        if (i + 1 < n_new)
            ASSAY_TRY(
                generate_step(e, logits, &out_ids[i], past + n_prompt + i, 1, on_logits, user));
    }
    return ASSAY_OK;
}

assay_status assay_engine_generate(int32_t *out_ids, assay_engine *engine, const int32_t *prompt,
                                   int64_t n_prompt, int64_t n_new, int64_t chunk,
                                   assay_logits_fn *on_logits, void *user)
{
    float *logits;
    if (n_prompt < 1 || n_new < 0)
        return assay_fail(ASSAY_USAGE,
                          "a prompt of %lld tokens and %lld new ones: expected at least one token",
                          (long long)n_prompt, (long long)n_new);
    if (chunk <= 0 || chunk > n_prompt)
        chunk = n_prompt;
    ASSAY_TRY(assay_alloc(&logits, (size_t)padded(engine, chunk) * (size_t)engine->hp->n_vocab,
                          sizeof *logits, "logits"));
    assay_status s =
        generate_all(engine, out_ids, logits, prompt, n_prompt, n_new, chunk, on_logits, user);
    engine->is_continuing = false;
    free(logits);
    return s;
}

int assay_engine_n_buffer_faults(const assay_engine *engine)
{
    return engine->slots.n_faults;
}

const assay_buffer_fault *assay_engine_buffer_fault_at(const assay_engine *engine, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= engine->slots.n_faults);
    return &engine->slots.faults[index];
}
