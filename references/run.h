/*
 * A run as it was seen: prompts -> steps -> values at points, in canonical layout, whoever captured
 * it.
 *
 * assay_run_open recognises our captures (format 1, probes/capture.h), transformers-style HDF5
 * dumps and llama.cpp node dumps, applies the name map (names.def) and layout transforms of the
 * producer's profile (profile.def), and shows everything the same way: axes in the order of
 * point.def, no leading batch axis, rotated parts in adjacent-pair order, float64 when read.
 * Nothing is read before it is asked for. Sizes, depth and counts of a stranger's file are bounded
 * before they are trusted.
 */
#ifndef ASSAY_REFERENCES_RUN_H
#define ASSAY_REFERENCES_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/hparams.h"
#include "engine/point.h"

typedef struct assay_run assay_run;

/* What an engine does on purpose; rows in profile.def, one per engine and version. NaN: as the
 * model file says. */
typedef struct assay_profile {
    const char *name; /* "transformers", "llama.cpp", "vllm", "assay", ... */
    const char *about;
    double eps_q_a, eps_kv_a, eps_index;
    bool rope_half_split_after; /* rotated parts are stored even members first, then odd (undone on
                                   import) */
    bool index_hadamard; /* orthonormal Hadamard on the indexer's q and k after rotation (undone on
                            import) */
    bool activations_q8; /* products round activations to 8-bit blocks, as the weight's type asks */
    double residual_scale; /* the stream is kept times this (1: plain; NaN: times 1 / the scale of
                              routed experts; undone on import) */
    bool cache_rope_first; /* [rotary|latent] instead of [latent|rotary] */
} assay_profile;

/* How the values of a run came to be known. */
typedef enum {
    ASSAY_KNOWN_AS_KEPT,  /* they are in the file, or nothing is */
    ASSAY_KNOWN_ACCEPTED, /* the sketch is that of the right value: judged */
    ASSAY_KNOWN_FOUND,    /* it is not; these are what it is of */
    ASSAY_KNOWN_ESTIMATE  /* nothing says that they were these: they fit the sketch, as others would
                           */
} assay_known;

/* One value: a point of one step. */
typedef struct assay_seen {
    assay_point point;
    int layer;     /* -1: global */
    bool partial;  /* of one rank, before the reduction */
    int rank;      /* -1: whole (or put together from the ranks' shards) */
    int hand_over; /* 0: the point itself; 1 ...: the same thing earlier (o_proj's own output before
                      the block returned it) */
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];                          /* canonical axes */
    assay_dtype origin;                                    /* format in which it was computed */
    const char *source;                                    /* name in the file, borrowed */
    bool has_values;                                       /* false: only statistics were kept */
    int64_t n_nan, n_pos_inf, n_neg_inf, n_zero, n_poison; /* -1: not recorded */
    uint64_t written_address, read_address;                /* 0: not recorded */
    int64_t written_owner, read_owner;                     /* -1: not recorded */
    double floor;      /* of a reference: relative L2 that float32 rounding alone makes here; 0: not
                          recorded */
    double floor_bf16; /* the same for bfloat16 */
    bool has_sketch;   /* its sketch was kept (assay_run_sketch); dims[0] counts elements until
                          assay_run_show says the shape */
    assay_known known;
    double unsure;     /* of values known by their sketch: relative L2 by which they may be off; 0:
                          not so known */
    double l2;         /* of the statistics; 0: not recorded */
    uint64_t checksum; /* of the statistics; 0: not recorded */
    bool is_rescaled;  /* multiplied on import: its bits do not show the format it was made in */
} assay_seen;

/* Elements of a value: the product of its axes. */
static inline int64_t assay_seen_count(const assay_seen *seen)
{
    int64_t n = 1;
    for (int d = 0; d < seen->n_dims; d++)
        n *= seen->dims[d];
    return n;
}

typedef struct assay_run_step {
    bool is_prefill;
    int64_t first_position, n_tokens;
    const int32_t *tokens; /* [n_tokens] */
    bool is_found; /* its positions were found in the cache: not computed, values (of the request
                      that computed them) are shown where the run has them */
} assay_run_step;

typedef struct assay_run_prompt {
    const char *name;
    const char *text; /* NULL: not recorded */
    int64_t n_tokens; /* of the prompt */
    const int32_t *tokens;
    int64_t n_greedy; /* ids chosen after the prefill and after each decode step; 0: not recorded */
    const int32_t *greedy;
    const char *greedy_text; /* NULL: not recorded */
    int n_steps;
} assay_run_prompt;

typedef struct assay_run_info {
    const char *path;             /* first file */
    const char *producer;         /* "assay", "transformers", "llama.cpp" */
    const char *producer_version; /* "" unknown */
    const char *model_class;      /* "" unknown */
    const char *architecture;     /* "" unknown */
    const char *model_sha256;     /* "": the dump does not say; "same model" is then unproven */
    assay_dtype dtype;            /* number format of the computation */
    const char *attention_path;   /* "latent", "expanded", "" unknown */
    const char *cache;            /* stored type of the cache: "f16", "q8_0", ...; "" f32 */
    bool is_complete;             /* false: the capture was cut off */
    bool is_reference;            /* carries provenance and a noise floor */
    int n_ranks;
    const assay_profile *profile;
    int n_unmapped; /* datasets that no row of names.def maps */
} assay_run_info;

/* Sizes of a model, for dumps that do not show them; 0: unknown. */
typedef struct assay_run_sizes {
    int n_head, n_head_kv, d_nope, d_rope, d_value, n_rank_kv, index_n_head, n_layer_dense;
    bool is_mla, is_moe;
    double routed_scale; /* of the weights of experts (1: none) */
} assay_run_sizes;

assay_run_sizes assay_run_sizes_of(const assay_hparams *hparams);

typedef struct assay_run_options {
    const char *prompt;  /* only this one; NULL: all */
    const char *profile; /* by name; NULL: by producer */
    int step;            /* only this one shows values (others keep their tokens); -1: all */
    const char *names;   /* a user's YAML name map; NULL: none */
    const assay_run_sizes *sizes; /* of the model, where one is at hand; NULL: learnt from shapes */
} assay_run_options;

assay_run_options assay_run_options_default(void);

/*
 * paths: one file, or the files of N ranks. "FILE:PROMPT" picks a prompt. Fails: ASSAY_IO,
 * ASSAY_BAD_FILE (place named), ASSAY_MISSING (no such prompt; lists those there are).
 */
assay_status assay_run_open(assay_run **out, const char *const *paths, int n_paths,
                            const assay_run_options *options);
void assay_run_close(assay_run *run);

const assay_run_info *assay_run_about(const assay_run *run);
int assay_run_n_prompts(const assay_run *run);
const assay_run_prompt *assay_run_prompt_at(const assay_run *run, int prompt);
const assay_run_step *assay_run_step_at(const assay_run *run, int prompt, int step);
int assay_run_n_seen(const assay_run *run, int prompt, int step);
const assay_seen *assay_run_seen_at(const assay_run *run, int prompt, int step, int index);
/* The whole value (rank -1, hand_over 0) at a point; NULL: not captured. */
const assay_seen *assay_run_find(const assay_run *run, int prompt, int step, assay_point point,
                                 int layer);
/* An earlier or a rank's value; NULL: none. */
const assay_seen *assay_run_find_part(const assay_run *run, int prompt, int step, assay_point point,
                                      int layer, int rank, int hand_over);

/* From now on the whole of what every rank has a copy of is this rank's copy (at first: the lowest
 * rank's). Fails: ASSAY_MISSING: the rank is not in the run. */
assay_status assay_run_view(assay_run *run, int rank);

/* A rank's value before the reduction; NULL: none. */
const assay_seen *assay_run_find_partial(const assay_run *run, int prompt, int step,
                                         assay_point point, int layer, int rank);

/* Values in canonical layout, count = product of dims. Ids are read as exact doubles. Fails:
 * ASSAY_IO, ASSAY_BAD_FILE. */
assay_status assay_run_read(double *out, const assay_run *run, const assay_seen *seen);

/* Sketch of a value that has one: n_groups * ASSAY_SKETCH_N numbers (probes/recorder.h), borrowed.
 */
const float *assay_run_sketch(int64_t *n_groups, const assay_seen *seen);
/* From now on the run shows these values at the place (of a sketch, whose shape they say). Copied.
 * values NULL: the shape alone. */
assay_status assay_run_show(assay_run *run, const assay_seen *seen, int n_dims, const int64_t *dims,
                            const double *values, double unsure, assay_known how);

/* Marks: assay_run_read marks what it reads while that is on (*_mark_reads returns what it was);
 * values can also be marked by hand. A whole has the marks of its parts with it. */
bool assay_run_mark_reads(assay_run *run, bool on);
void assay_run_mark(const assay_run *run, const assay_seen *seen);
bool assay_run_is_marked(const assay_run *run, const assay_seen *seen);
void assay_run_unmark(assay_run *run);

/* A value as it lies, where that is canonical layout already. */
typedef struct assay_stored {
    const void *data;     /* dense, canonical axes; of the file's mapping unless owned */
    assay_dtype dtype;    /* F64, F32, F16, BF16 or I32 */
    void *owned;          /* taken from the run's shelf; without a run: of malloc */
    const assay_run *run; /* whose value it is */
    const assay_seen
        *unproven; /* its checksum is still to be proven; NULL: there is none, or it is */
} assay_stored;

/* The same values as assay_run_read gives, without a copy where the file holds them in one piece.
 * Alive as long as the run, until assay_stored_clear. A file that is cut short by somebody else
 * meanwhile ends the process as engine/base/mapping.h says. */
assay_status assay_run_look(assay_stored *out, const assay_run *run, const assay_seen *seen);
/* The same for a reader who goes through all of it anyway and proves the checksum on the way:
 * nothing may be concluded from the values before assay_stored_prove has passed them. */
assay_status assay_run_look_unproven(assay_stored *out, const assay_run *run,
                                     const assay_seen *seen);
/* checksum: of all elements (probes/recorder.h); NULL: it is taken here. Fails: ASSAY_BAD_FILE, the
 * values are not those that were written. */
assay_status assay_stored_prove(assay_stored *stored, const uint64_t *checksum);
/* Bytes of a value that is looked at as it lies, mapped or unpacked, which several threads may do
 * at once; infinite: it would be read and converted by way of HDF5, by one thread. */
double assay_run_bytes_stored(const assay_run *run, const assay_seen *seen);
bool assay_run_is_mapped(const assay_run *run, const assay_seen *seen);
void assay_stored_clear(assay_stored *stored);
/* Values [first, first + n) as float64; format F64: the pointer itself, else widened into room. */
const double *assay_stored_at(const assay_stored *stored, int64_t first, int64_t n, double *room);
/* As float32, which holds F32, F16 and BF16 exactly; others are rounded. */
const float *assay_stored_at_f32(const assay_stored *stored, int64_t first, int64_t n, float *room);

/* Calls `line` with a sentence for each pair of values that should differ and are bit-equal
 * (probes/selfcheck.h). Reads everything once. */
typedef assay_status assay_run_line_fn(void *user, const char *text);
assay_status assay_run_selfcheck(const assay_run *run, assay_run_line_fn *line, void *user);

/* Name in the file and nearest known names of dataset i that nothing maps. */
const char *assay_run_unmapped_at(const assay_run *run, int index);

/* What a reader should know: missing ranks, values known in part. */
int assay_run_n_notes(const assay_run *run);
const char *assay_run_note_at(const assay_run *run, int index);

/* By name; NULL: unknown. */
const assay_profile *assay_profile_find(const char *name);
/* Of captures of this engine's own runs: products of integers or exact ones (NULL, the default). */
const char *assay_profile_of_own(bool integer_products);
int assay_profile_count(void);
const assay_profile *assay_profile_at(int index);

#endif
