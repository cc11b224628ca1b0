/*
 * The inside of an engine on a device, shared by the files of this folder. Plain C: CUDA is behind
 * runtime.h and ops/device_ops.h.
 *
 *   use    what a slot is at the moment: address, shape, owner, generation, written, read
 *   cell   memory of one slot of one layer (or of all layers, where they share)
 *   plan   what a step of T rows does: which cells it fills with poison, which buffers it shows and
 *          reads; found by a dry pass that launches nothing, so that all memory is there before
 *          anything is queued or captured
 */
#ifndef ASSAY_ENGINE_DEVICE_DEVICE_INSIDE_H
#define ASSAY_ENGINE_DEVICE_DEVICE_INSIDE_H

#include "engine/device.h"
#include "engine/device/runtime.h"
#include "engine/forward.h"
#include "engine/ops/device_ops.h"

#define ASSAY_DEVICE_FEW 16   /* rows up to which products read packed blocks directly */
#define ASSAY_DEVICE_RING 64  /* steps whose inputs may be under way */
#define ASSAY_DEVICE_TURNS 16 /* different rotations */
#define ASSAY_DEVICE_PLANS 32

/* Growing memory that is no point. */
enum {
    ASSAY_SCRATCH_CAT,     /* q of both parts side by side */
    ASSAY_SCRATCH_PARTIAL, /* parts of attention */
    ASSAY_SCRATCH_WEIGHT,  /* decoded weights of a dense product */
    ASSAY_SCRATCH_X,       /* its input in bfloat16 */
    ASSAY_SCRATCH_IN,      /* rows of experts */
    ASSAY_SCRATCH_OUT,
    ASSAY_SCRATCH_INDEX,  /* which rows they are */
    ASSAY_SCRATCH_SCORES, /* of dense attention */
    ASSAY_SCRATCH_KEYS,   /* of one layer, decoded from the cache */
    ASSAY_SCRATCH_VALUES,
    ASSAY_SCRATCH_INDEX_KEYS,
    ASSAY_SCRATCH_SHARE,    /* this rank's logits */
    ASSAY_SCRATCH_GATHERED, /* of all ranks */
    ASSAY_SCRATCH_COUNT
};

#define ASSAY_DEVICE_PRIVATE ASSAY_SLOT_COUNT        /* cell of an output that nobody reads */
#define ASSAY_DEVICE_PART (ASSAY_SLOT_COUNT + 1)     /* this rank's part of a sum: attention ... */
#define ASSAY_DEVICE_PART_FFN (ASSAY_SLOT_COUNT + 2) /* ... and feed-forward */
#define ASSAY_DEVICE_CELLS (ASSAY_SLOT_COUNT + 3)

typedef struct assay_use_of_slot {
    assay_buffer buffer, written; /* what is read, what the op writes; the same when healthy */
    int layer;
    bool is_written, is_read, is_checked;
} assay_use_of_slot;

typedef struct assay_cell {
    void *memory;
    size_t bytes;
} assay_cell;

/* One filling with poison, or one reading that is looked through for it. */
typedef struct assay_span_words {
    uint32_t *at;
    int64_t n_rows, width, stride;
    uint32_t word;
} assay_span_words;

typedef struct assay_read {
    int slot, layer;
    uint32_t owner;
    assay_point reader;
} assay_read;

typedef struct assay_shown {
    assay_tap_event event; /* dims are set anew for each step */
    assay_buffer buffer;
} assay_shown;

typedef struct assay_plan {
    int64_t n_rows;
    bool with_logits, is_bucket;
    int64_t n_steps; /* that ran by it */
    assay_span_words *fills, *looks;
    assay_read *reads; /* one per look */
    int n_fills, n_looks, fills_room, looks_room;
    void *device_fills, *device_looks;
    assay_shown *shown;
    int n_shown, shown_room;
    void *graph;
    int64_t n_nodes, id;
    void *logits_at;
} assay_plan;

typedef struct assay_turn {
    assay_rotary how;
    double *f;    /* host: [half] */
    void *f_at;   /* device */
    float *table; /* device: [rows, half, 2] */
    int64_t rows;
} assay_turn;

struct assay_device {
    void *stream, *side; /* the step; shared experts beside it */
    void *at;            /* which of the two is queued on now */
    void *fork, *join;
    void *blas;
    int ordinal;
    void *ranks;  /* NCCL; NULL: one rank, or ranks that share a device */
    void *staged; /* pinned; parts of sums on their way over the host */
    size_t staged_bytes;
    assay_packed *weights; /* [1 + n_layer][ASSAY_ROLE_COUNT]; data NULL: absent */
    float **vectors;       /* the same shape: weights of one dimension, decoded */
    int64_t weight_bytes;
    void **caches[ASSAY_KV_COUNT]; /* host: [n_layer] device addresses */
    void **bases;                  /* device: [ASSAY_KV_COUNT][n_layer], what kernels read */
    int32_t *n_keys_at;            /* device: [max_sequences] of the step; cache not in float32 */
    int64_t cache_width[ASSAY_KV_COUNT];
    int32_t *pages_at, *pages;   /* block tables [max_sequences, n_pages]; device, host as sent */
    int n_pages;                 /* of a sequence; 0: contiguous */
    assay_device_rows rows;      /* device; [3][rows_room], then the numbers of rows and of keys */
    int32_t *n_rows_at;          /* device: those two numbers */
    int32_t *captured_positions; /* device: of the last step that was no replay */
    int64_t rows_room;
    int32_t *ring; /* pinned: [ASSAY_DEVICE_RING][3 rows_room + 2] */
    void *ring_done[ASSAY_DEVICE_RING];
    int64_t ring_at;
    bool owns_layers; /* every layer has cells of its own */
    bool must_share;  /* they need more */
    int64_t own_bytes, cell_bytes,
        n_ids;         /* as long as they need no more than this; plans made so far */
    assay_cell *cells; /* [1 + n_layer or 1][ASSAY_DEVICE_CELLS] */
    assay_use_of_slot uses[ASSAY_SLOT_COUNT];
    assay_cell scratch[ASSAY_SCRATCH_COUNT];
    assay_turn turns[ASSAY_DEVICE_TURNS];
    int n_turns;
    assay_plan plans[ASSAY_DEVICE_PLANS];
    int n_plans;
    assay_plan *plan; /* of the step that runs */
    bool is_dry, is_capturing, has_moved;
    int64_t n_bucket; /* rows of the step, those beyond it included */
    int n_split;
    void *counts_device; /* int32 [looks]: poison words found */
    int32_t *counts;     /* pinned */
    int counts_room;
    void *shown_memory; /* pinned; values of host taps */
    size_t shown_bytes;
    float *logits; /* pinned */
    int64_t logits_room;
    int32_t *greedy; /* device: [rows] the ids chosen by the last step */
    int64_t greedy_room;
    assay_device_counts counted;
    bool times_products;
    void *before, *after;
};

/* Launches, counted; a dry pass launches nothing. */
#define ASSAY_RUN(d, call)                                                                         \
    do {                                                                                           \
        if (!(d)->is_dry) {                                                                        \
            (d)->counted.n_launches++;                                                             \
            ASSAY_TRY(call);                                                                       \
        }                                                                                          \
    } while (0)

/* ---- device_weights.c ---- */
assay_status assay_device_upload(assay_engine *e);
void assay_device_drop_weights(assay_engine *e);
/* NULL: absent. */
const assay_packed *assay_device_weight(const assay_engine *e, assay_role role, int layer);
const float *assay_device_vector(const assay_engine *e, assay_role role, int layer);

/* ---- device_cache.c ---- */
assay_status assay_device_open_caches(assay_engine *e);
void assay_device_close_caches(assay_engine *e);
/* Block tables as they are now, to the device. */
assay_status assay_device_send_pages(assay_engine *e);
/* Rows of a, with those of b behind them (width 0: none), as the step's rows of the cache. */
assay_status assay_device_write_cache(assay_engine *e, assay_kv_kind kind, int layer, assay_rows a,
                                      assay_rows b);
/* At the start of a step: how many keys its sequences will have. */
assay_status assay_device_count_keys(assay_engine *e);
/* The layer's cache as float32 rows, this step's included; valid until the next layer's. */
assay_status assay_device_read_cache(assay_device_cache *out, assay_engine *e, assay_kv_kind kind,
                                     int layer);

/* ---- device_cells.c: points ---- */
assay_status assay_device_begin(assay_engine *e, int slot, int layer);
assay_status assay_device_begin_shape(assay_engine *e, int slot, int layer, int64_t width);
assay_status assay_device_share(assay_engine *e, assay_point point, int layer, int of,
                                int64_t first);
/* The op has written slot `slot`. */
void assay_device_mark(assay_engine *e, int slot);
void assay_device_no_reader(assay_engine *e, int slot);
/* Slot `slot` is given the memory of slot `of`. */
void assay_device_place_on(assay_engine *e, int slot, int of);
assay_status assay_device_end_step(assay_engine *e);
/* The op writes to a buffer of its own, and the caller keeps what it has. */
assay_status assay_device_divert(assay_engine *e, int slot, int layer);
assay_status assay_device_done(assay_engine *e, assay_point point, int layer);
assay_status assay_device_done_exact(assay_engine *e, assay_point point, int layer);
/* Memory for this rank's part of a sum, of the point's shape; data NULL: nobody wants it. */
assay_status assay_device_keep(assay_buffer *out, assay_engine *e, assay_point point, int layer);
assay_status assay_device_show_part(assay_engine *e, assay_point point, int layer,
                                    const assay_buffer *part, const assay_buffer *written);
assay_status assay_device_show(assay_engine *e, assay_point point, int layer,
                               const assay_buffer *shown, const assay_buffer *written,
                               const assay_buffer *read);
assay_status assay_device_read(assay_rows *rows, assay_engine *e, int slot, assay_point reader);
assay_rows assay_device_rows_of(const assay_engine *e, int slot);
int32_t *assay_device_ids(const assay_engine *e, int slot);
assay_status assay_device_scratch(void **out, assay_device *d, int which, size_t bytes);
assay_status assay_device_grow(assay_device *d, assay_cell *cell, size_t bytes, const char *what);
void assay_device_free_cells(assay_engine *e);

/* ---- device_ranks.c ---- */
/* Number of the device that this rank has. */
int assay_device_ordinal(const assay_engine *e);
assay_status assay_device_open_ranks(assay_engine *e);
void assay_device_close_ranks(assay_device *d);
/* *all: [n_ranks, n] scratch. */
assay_status assay_device_gather_ranks(float **all, assay_engine *e, const float *mine, int64_t n);
/* The op has written this rank's part of a sum. */
assay_status assay_device_done_reduced(assay_engine *e, assay_point point, int layer);
assay_status assay_device_gathered_logits(assay_engine *e, assay_rows y, assay_rows x,
                                          assay_role role);

/* ---- device_plan.c ---- */
assay_status assay_plan_find(assay_plan **out, assay_engine *e, bool with_logits, bool is_bucket);
assay_status assay_plan_add_fill(assay_plan *p, assay_span_words words);
assay_status assay_plan_add_look(assay_plan *p, assay_span_words words, assay_read read);
assay_status assay_plan_add_shown(assay_plan *p, const assay_shown *shown);
void assay_plan_drop_all(assay_device *d);
assay_status assay_plan_poison(assay_engine *e);
assay_status assay_plan_look(assay_engine *e);
assay_status assay_plan_judge(assay_engine *e);
assay_status assay_plan_deliver(assay_engine *e, int first, int last);

/* ---- device_linear.c ---- */
/* y = x w^T with this rank's slice of the role's weight, and its bias role if the file has one. */
assay_status assay_device_linear(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                 int layer, assay_role bias);
assay_status assay_device_linear_slice(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                       int layer, assay_slice slice);
assay_status assay_device_multiply(assay_engine *e, assay_packed_product *p);

/* ---- device_forward.c, device_attn.c, device_moe.c ---- */
/* Whether work may run beside the main stream in this step: few rows, nobody changes values. */
bool assay_device_has_side(const assay_engine *e);
/* What follows is queued on the side stream, behind what the main stream has so far ... */
assay_status assay_device_fork(assay_engine *e);
/* ... until here; the main stream goes on from the fork ... */
assay_status assay_device_unfork(assay_engine *e);
/* ... and waits for the side stream here. */
assay_status assay_device_join(assay_engine *e);
assay_status assay_device_run(assay_engine *e, bool with_logits);
assay_status assay_device_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                               int which, int layer);
assay_status assay_device_merged(assay_engine *e, int fused, const assay_point points[2],
                                 const assay_role roles[2], const assay_role biases[2],
                                 assay_rows x, int layer);
assay_status assay_device_gated(assay_engine *e, assay_point gate, assay_point act, int layer);
assay_status assay_device_attention_layer(assay_engine *e, int layer);
assay_status assay_device_index(assay_engine *e, int layer);
assay_status assay_device_moe(assay_engine *e, int layer);
assay_status assay_device_turn(assay_engine *e, assay_point to, assay_rows x, int64_t head,
                               int n_head, const assay_rotary *how, int layer);
/* Angles of the step for every rotation known so far. */
assay_status assay_device_angles(assay_engine *e);
assay_rows assay_device_bucket(const assay_engine *e, assay_rows rows);

/* ---- table.cu ---- */
#ifdef __cplusplus
extern "C" {
#endif
assay_status assay_device_table_fill(void *stream, const void *spans, int n);
/* counts[i]: words of span i that are its own poison, rows < *n_rows of them. */
assay_status assay_device_table_look(void *stream, int32_t *counts, const void *spans, int n,
                                     int64_t n_rows);
#ifdef __cplusplus
}
#endif

#endif
