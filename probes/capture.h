/*
 * Captures, format 1: an HDF5 file of what was seen in one run of one rank. Written here; read here
 * and by references/run.
 *
 *   /                      attributes
 *       assay_capture      i32 = 1
 *       complete           i32: 0 while it is written, 1 once everything is in the file and synced
 *       producer, producer_version, created (ISO 8601 UTC), architecture, model_class,
 *       model_sha256, dtype ("f32", "bf16"), path ("latent" | "expanded"), backend ("cpu" |
 *       "cuda"), mode ("eager" | "graph")                strings; absent: not known
 *       cache              string: stored type of the cache (f32 f16 bf16 q8_0 f8e4m3); absent: f32
 *       ranks, rank        i32
 *       profile            string, optional: row of references/profile.def
 *       naming             string, optional: "modules" when datasets bear the names that the engine
 *                          gives its modules, as tools/python/assay_torch.py writes; default
 *                          "points"
 *   /prompts/<name>        attributes text (optional), greedy (i32 [n], optional)
 *   /prompts/<name>/tokens i32 [n]            the prompt
 *   /prompts/<name>/steps/0000                attributes phase ("prefill" | "decode"),
 *                                             first_position i64, n_tokens i64
 *   /prompts/<name>/steps/0000/tokens         i32 [n_tokens]
 *   /prompts/<name>/steps/0000/sequences, /positions    i32 [n_tokens], where the rows belong to
 *                                             several requests
 *   /prompts/<name>/steps/0000/<point>        values: f32, f64, i32, i64, i8; f16 and bf16 as u16
 *                                             words, f8e4m3 as u8 words; attributes
 *       axes               letters of point.def
 *       origin             number format of the buffer
 *       counts             i64 [5]: nan, +inf, -inf, zero, poison
 *       word_sum           u64, checksum of the whole value (probes/recorder.h); a reader refuses
 *                          numbers that no longer have it. Captures of before carry another one,
 *                          `checksum`, which is proven as well
 *       buffer             u64 [6], from a tap: written address, generation, owner; read address,
 *                          generation, owner
 *       shard              i32 [3], of one rank: axis (-1: whole), index, count; fewer than ranks:
 *                          ranks / count neighbours hold the same shard
 *       partial            i32 = 1: before the reduction over ranks
 *       rows               i32 [n], tier `rows`: which rows were kept
 *       rescaled           i32 = 1: an importer multiplied it, so that its bits do not show origin
 *   <point> is a name of point.def ("blk.3.attn.q"), then ".partial" for one rank's value before
 *   the reduction, ".early1" for the same thing one hand-over earlier, ".rank2" for what rank 2
 *   alone saw (in a capture that holds several ranks), in this order.
 *   /prompts/<name>/stats, /sketch            the cheap tiers: one row per point and step
 *       stats/point        fixed-length strings [n]      stats/step   i32 [n]
 *       stats/values       f64 [n, 10]: n nan +inf -inf zero poison min max mean l2
 *       stats/word_sum     u64 [n]
 *       stats/buffer       u64 [n, 6], as the attribute `buffer`; zeros: not known
 *       sketch/row         i32 [m, 2]: row of stats, group of 32 rows
 *       sketch/values      f32 [m, 256]                  (probes/recorder.h)
 *   /dropped               strings: what a byte budget left out, and why; attribute totals, i64
 * [3]: how many values and sketches, their bytes, the budget
 *
 * A reference adds attributes reference (i32 1), computed_by, precision, and per dataset sha256 and
 * floor (f64: noise floor of the point in float32, relative L2) and
 * floor_bf16 (the same in bfloat16).
 *
 * The file is written under a temporary name beside the target, synced, and renamed when complete;
 * values by a thread of its own (probes/write_queue.h) that calls no HDF5. What it cannot write is
 * said by the next call that writes, or that ends the step;
 * a capture that was cut off has complete = 0 and keeps its temporary name (cut off between the
 * last sync and the new name, it is whole and says 1). Appending to a file of another run is
 * refused.
 */
#ifndef ASSAY_PROBES_CAPTURE_H
#define ASSAY_PROBES_CAPTURE_H

#include <stdint.h>

#include "engine/tap.h"

typedef struct assay_capture assay_capture;

typedef struct assay_capture_about {
    const char *producer, *producer_version, *architecture, *model_sha256, *dtype, *path, *backend,
        *mode, *profile, *cache;
    int n_ranks, rank;
    const char *model_class;
    const char *naming; /* "modules": names are the engine's own; NULL: points */
} assay_capture_about;

/* Name of a dataset and back: point, then what tells this value from the point's own. Fails:
 * ASSAY_MISSING. rank -1: whole. */
void assay_capture_name(char *out, size_t room, const char *point, bool partial, int hand_over,
                        int rank);
assay_status assay_capture_name_parse(assay_point *point, int *layer, bool *partial, int *hand_over,
                                      int *rank, const char *name);

typedef struct assay_capture_options {
    const char *selector; /* "layer=0-3 point=attn.*"; NULL: everything (probes/selector.h) */
    const char *tier;     /* "stats", "sketch", "rows", "full"; NULL: full */
    int64_t budget_bytes; /* of values and sketches, which are kept in order until it is used up; of
                             the others the statistics stay. 0: none */
} assay_capture_options;

assay_status assay_capture_create(assay_capture **out, const char *path,
                                  const assay_capture_about *about,
                                  const assay_capture_options *options);
/* Starts a prompt; steps that follow belong to it. text may be NULL. */
assay_status assay_capture_prompt(assay_capture *capture, const char *name, const char *text,
                                  const int32_t *tokens, int64_t n_tokens);
assay_status assay_capture_greedy(assay_capture *capture, const int32_t *ids, int64_t n);
/* The tap to give to the engine (user = the capture). Steps are recognised from event->step. */
assay_status assay_capture_tap(void *capture, const assay_tap_event *event);
/* A value without an engine behind it (the oracle, an importer): dense host memory, canonical axes.
 * floor < 0: none. */
assay_status assay_capture_step(assay_capture *capture, bool is_prefill, int64_t first_position,
                                const int32_t *tokens, int64_t n_tokens);
assay_status assay_capture_value(assay_capture *capture, const char *point_name, const char *axes,
                                 const assay_buffer *values, assay_dtype origin, double floor);
/* A second floor of the value written last, for runs in bfloat16. */
assay_status assay_capture_floor_bf16(assay_capture *capture, const char *point_name, double floor);
/* The value was multiplied after it was computed: its bits do not show the format of `origin`. */
assay_status assay_capture_rescaled(assay_capture *capture, const char *point_name);
/* Marks the file as a reference: who computed it and in what precision; hashes of every dataset are
 * added on finish. */
assay_status assay_capture_mark_reference(assay_capture *capture, const char *computed_by,
                                          const char *precision);
/* Writes what is pending, marks complete, syncs, renames. The capture is closed either way; on
 * failure nothing is left. */
assay_status assay_capture_finish(assay_capture *capture);
/* Closes without finishing and removes the temporary file. NULL is fine. */
void assay_capture_abandon(assay_capture *capture);

#endif
