/*
 * The engine: a model opened from GGUF, and sequences run through it. One assay_engine is one rank.
 *
 * Paths: expanded (keys and values per head) or latent (kv_b absorbed; one shared latent head).
 * dtype F32 computes in float32 from exactly decoded weights; BF16 rounds every op's output (and
 * weights) to bfloat16 and accumulates in float32.
 */
#ifndef ASSAY_ENGINE_ENGINE_H
#define ASSAY_ENGINE_ENGINE_H

#include <stdint.h>

#include "engine/gguf.h"
#include "engine/hparams.h"
#include "engine/kvcache.h"
#include "engine/seam.h"
#include "engine/tap.h"

typedef struct assay_model assay_model;
typedef struct assay_engine assay_engine;
struct assay_comm;

typedef enum { ASSAY_PATH_EXPANDED, ASSAY_PATH_LATENT } assay_path;
/* Of quantized weights: with exactly decoded values in float32, or of integers with activations
 * rounded to 8-bit blocks, as llama.cpp does (engine/ops/linear_integer.h; host, float32). */
typedef enum { ASSAY_PRODUCTS_EXACT, ASSAY_PRODUCTS_INTEGER } assay_products;
typedef enum { ASSAY_BACKEND_CPU, ASSAY_BACKEND_CUDA } assay_backend;

/* Conventions that engines differ in; NaN / 0 keeps what the file says. See references/profile.def
 * for who does what. */
typedef struct assay_conventions {
    double eps_q_a, eps_kv_a, eps_index; /* NaN: as the file */
} assay_conventions;

typedef struct assay_model_options {
    int first_layer, last_layer; /* only these layers' tensors are touched; 0, -1: all */
    assay_conventions conventions;
    /* Decoded weights that products do not take from their blocks (engine/README.md) are kept in
     * memory while all of the model's fit in so many bytes, else decoded at each use. 0: 4 GiB; -1:
     * never kept. */
    int64_t keep_bytes;
} assay_model_options;

assay_model_options assay_model_options_default(void);

/* Checks every tensor the architecture needs (name, shape, type); unknown tensors are refused by
 * name. */
assay_status assay_model_open(assay_model **out, const char *path,
                              const assay_model_options *options);
void assay_model_close(assay_model *model);
const assay_hparams *assay_model_hparams(const assay_model *model);
const assay_gguf *assay_model_gguf(const assay_model *model);

/* Whether a tap wants to see a point; what nobody wants need not be made for show. NULL: all. */
typedef bool assay_wants_fn(void *user, assay_point point, int layer);

/*
 * What a device tap sees of a step: all its buffers in device memory, after the step is queued and
 * before anything waits for it. It queues its own work on `stream` and does not wait; under graph
 * capture its work becomes part of the graph. The same id: the same buffers at the same addresses.
 */
typedef struct assay_device_table {
    const assay_tap_event *events; /* buffer->place is ASSAY_PLACE_DEVICE; S and X axes and T as
                                      large as they can become */
    int n;
    int64_t id;
    const int32_t *n_rows; /* device: rows of this step, then keys so far */
    bool is_capturing;     /* nothing may be allocated or copied from the host */
    void *stream;
} assay_device_table;

typedef assay_status assay_device_tap_fn(void *user, const assay_device_table *table);

typedef struct assay_engine_options {
    assay_backend backend;
    assay_path path;
    assay_dtype dtype; /* F32 or BF16 */
    assay_products products;
    int n_threads;     /* 0: all cores */
    int max_positions; /* capacity of the cache, per sequence */
    int max_sequences;
    assay_cache_type cache_type;
    int page_size;       /* positions a page of the cache; 0: contiguous */
    int n_pages;         /* 0: enough for all sequences */
    int key_split;       /* keys a part of split-key attention, merged by log-sum-exp; 0: whole */
    bool reuse_prefixes; /* pages of ended sequences are kept and found again (needs pages) */
    int pad_to; /* assay_engine_generate fills each step with padding rows to a multiple of it; 0 */
    /* Every product of a row has one order of summation, whatever the rows beside it: a request's
     * numbers are the same bits alone, in any batch, chunk and phase (host; slower than BLAS). */
    bool batch_invariant;
    bool draft; /* the prediction layers behind the trunk run, too (host, one rank; engine/draft.h)
                 */
    const assay_seams *seams; /* borrowed; NULL: healthy */
    assay_tap_fn *tap;
    void *tap_user; /* also of wants */
    assay_wants_fn *wants;
    assay_tap_fn *inject; /* see tap.h */
    void *inject_user;
    struct assay_comm *comm; /* this rank's handle (engine/comm.h); NULL: one rank */
    bool whole_experts;      /* experts are dealt out whole over ranks instead of cut inside */
    bool use_graph;          /* device: decode steps are captured once per bucket and replayed */
    int least_bucket;        /* rows of the smallest bucket; 0: 1 */
    assay_device_tap_fn *device_tap;
    void *device_tap_user;
} assay_engine_options;

assay_engine_options assay_engine_options_default(void);

/* Whether so many ranks can share the model out. Fails: ASSAY_USAGE, with what does not divide. */
assay_status assay_engine_ranks_fit(const assay_hparams *hparams, bool whole_experts, int n_ranks);

assay_status assay_engine_new(assay_engine **out, assay_model *model,
                              const assay_engine_options *options);
void assay_engine_free(assay_engine *engine);

/* Rows of one forward call; rows of a sequence must continue its cache (positions are checked). */
typedef struct assay_batch {
    int64_t n;
    const int32_t *tokens;
    const int32_t *positions;
    const int32_t *sequences; /* NULL: all 0 */
} assay_batch;

/* logits: [n, n_vocab] float32 of the caller, or NULL (of several ranks: on all or on none). */
assay_status assay_engine_forward(assay_engine *engine, const assay_batch *batch, float *logits);

/* Forgets the cache of one sequence (-1: of all) and starts steps again at 0 when all are
 * forgotten. */
void assay_engine_reset(assay_engine *engine, int sequence);

/* Forgets positions n and behind of a sequence: what a rejected draft has left. */
assay_status assay_engine_truncate(assay_engine *engine, int sequence, int64_t n);

/*
 * Reuses what ended sequences left in the cache: attaches the longest known prefix of tokens[n] to
 * an empty sequence. *n_reused: positions that need not be run (a multiple of the page size, less
 * than n, so that the last row is computed).
 */
assay_status assay_engine_reuse(int64_t *n_reused, assay_engine *engine, int sequence,
                                const int32_t *tokens, int64_t n);
/* Prefix lookups that met other tokens under the same hash, so far. */
int64_t assay_engine_n_collisions(const assay_engine *engine);

/*
 * Runs the prompt in chunks of `chunk` rows (0: at once), then decodes greedily n_new - 1 further
 * steps. out_ids: [n_new], the greedy id after the prompt and after each decode step. on_logits
 * (may be NULL) sees each step's rows.
 */
typedef assay_status assay_logits_fn(void *user, int64_t first_position, int64_t n,
                                     const float *logits);
assay_status assay_engine_generate(int32_t *out_ids, assay_engine *engine, const int32_t *prompt,
                                   int64_t n_prompt, int64_t n_new, int64_t chunk,
                                   assay_logits_fn *on_logits, void *user);

/* Ledger of buffers: reads of what nobody wrote and writes that nobody read, found so far. */
typedef struct assay_buffer_fault {
    assay_point point;
    int layer;
    int64_t step;
    bool unread; /* true: written and never read; false: read and never (fully) written */
    uint32_t written_owner, read_owner;
    int64_t n_poison; /* elements that still hold poison */
    char text[256];
} assay_buffer_fault;
int assay_engine_n_buffer_faults(const assay_engine *engine);
const assay_buffer_fault *assay_engine_buffer_fault_at(const assay_engine *engine, int index);

#endif
