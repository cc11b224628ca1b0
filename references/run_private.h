/*
 * Inside of a run: what run.c, the openers (run_foreign.c, run_capture.c) and run_read.c share.
 */
#ifndef ASSAY_REFERENCES_RUN_PRIVATE_H
#define ASSAY_REFERENCES_RUN_PRIVATE_H

#include "engine/base/mapping.h"
#include "probes/hdf5.h"
#include "references/layout.h"
#include "references/names.h"
#include "references/run.h"
#include "references/shelf.h"

/* Where stored numbers lie. */
typedef struct assay_source {
    int file;   /* index into assay_run.files */
    char *path; /* dataset; owned by the run */
    assay_h5_info info;
    bool is_sealed; /* carries a SHA-256 of its bytes, checked when it is read */
    const char *sha256;
    bool is_summed; /* carries the checksum of its elements, checked when it is read */
    bool is_mixed;  /* the one of before (assay_checksum_mixed) */
    uint64_t checksum;
    assay_dtype packed; /* 16-bit words hold this format; ASSAY_DTYPE_COUNT: numbers as they are */
} assay_source;

typedef struct assay_entry {
    assay_seen seen; /* first: an assay_seen of the outside is one of these */
    assay_source source;
    enum { PLAIN_UNTOLD, PLAIN_YES, PLAIN_NO } plain; /* assay_entry_is_plain, once it is settled */
    const double *known;  /* values that stand in for the file's; NULL: none */
    assay_source *second; /* added to the source, of the same shape; NULL: none */
    assay_plan plan;
    bool is_mapped;                 /* a name map says how it lies */
    const struct assay_entry *base; /* value that is laid under (order nope-over); NULL: none */
    size_t number;                  /* of its mark */
    const float *sketch;            /* n_groups * ASSAY_SKETCH_N; NULL: none */
    int64_t n_groups;
    /* of one rank: the axis that is split, -1 whole, ASSAY_SHARD_UNKNOWN */
    int shard_axis;
    int n_copies; /* so many neighbouring ranks hold the same shard; 0: one */
    /* a whole that is put together: the same place of these ranks, along part_axis (-1: one part)
     */
    int n_parts, part_axis;
    const int32_t *part_ranks;
    const struct assay_entry *const *parts;
    /* rows of one request of a batch: these of the stored value, whose shape is full_dims; NULL:
     * all
     */
    const int64_t *rows;
    int rows_axis;
    int64_t full_dims[ASSAY_MAX_DIMS];
    /* which rows were kept (attribute rows), until the step is shown in parts; NULL: all, or the
     * last ones */
    const int32_t *kept;
    int64_t n_kept;
} assay_entry;

#define ASSAY_SHARD_UNKNOWN (-2)

typedef struct assay_step_data {
    assay_run_step about;
    int32_t *tokens;
    const int32_t *sequences, *positions; /* where rows are of several requests, or padding; NULL */
    assay_entry *entries;
    int n_entries, room;
    int64_t *keys; /* of their places, once the step is closed */
} assay_step_data;

typedef struct assay_prompt_data {
    assay_run_prompt about;
    assay_step_data *steps;
    int n_steps;
} assay_prompt_data;

typedef struct assay_run_file {
    char *path;
    hid_t id;
    int rank;
    assay_mapping mapping; /* the whole file; no bytes: it could not be mapped */
} assay_run_file;

struct assay_run {
    assay_run_info info;
    assay_profile profile;
    assay_run_file *files;
    int n_files;
    bool shows_parts; /* its steps are not those of the file (run_rows.c) */
    bool is_master;   /* shards are put together in the file already */
    assay_prompt_data *prompts;
    int n_prompts;
    char **unmapped, **notes;
    int n_unmapped, n_notes;
    const char *others; /* names of prompts that were not asked for; NULL: none */
    bool *marks;        /* by entry; NULL: none yet */
    size_t n_marks;
    bool marks_reads;
    void **kept; /* memory that lives as long as the run */
    size_t n_kept, kept_room;
    assay_shelf *shelf; /* memory of the values that are looked at */
};

/* Hands memory over to the run; NULL is passed on. Fails: ASSAY_NO_MEMORY (memory is freed). */
assay_status assay_run_keep(assay_run *run, void *memory);
/* Formatted text owned by the run. */
assay_status assay_run_text(const char **out, assay_run *run, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "group/name", of many values. */
assay_status assay_run_path(const char **out, assay_run *run, const char *group, const char *name);
assay_status assay_run_add_unmapped(assay_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Text attribute owned by the run; `fallback` where it is absent. */
assay_status assay_run_attr(const char **out, assay_run *run, hid_t file, const char *path,
                            const char *name, const char *fallback);
/* int32 attribute owned by the run; absent: *out NULL, *n 0. */
assay_status assay_run_ids_attr(const int32_t **out, int64_t *n, assay_run *run, hid_t file,
                                const char *path, const char *name);
/* `wide`, which is freed, as ids owned by the run. */
assay_status assay_run_keep_ids(const int32_t **out, int64_t *n, assay_run *run, int64_t *wide,
                                int64_t count);
/* A zeroed prompt at the end of the run (invalidates earlier pointers). */
assay_status assay_run_add_prompt(assay_prompt_data **out, assay_run *run, const char *name);
/* Notes the name of a prompt that was not asked for. */
assay_status assay_run_pass_over(assay_run *run, const char *prompt);
/* Nothing recorded yet: counts -1, owners -1. */
assay_seen assay_seen_blank(void);
assay_status assay_run_add_note(assay_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Room for so many entries in all, so that they need not move while they are added. */
assay_status assay_step_room(assay_step_data *step, int room);
/* A new zeroed entry at the end of the step (invalidates earlier pointers). */
assay_status assay_step_add(assay_entry **out, assay_step_data *step);
/* Order of entries in a step: layer, point, rank, partial, hand-over. */
int assay_entry_by_place(const void *a, const void *b);
/* Sorts entries, renumbers hand-overs from 0 and links bases. Drops entries without their base. */
assay_status assay_step_close(assay_run *run, assay_step_data *step);
/* The value at a place of a step that is closed; NULL: none. */
const assay_seen *assay_step_find(const assay_step_data *step, const assay_seen *place);

/* Adds what file `file` shows; the first file makes prompts and steps, further ones (ranks) must
 * have the same. */
assay_status assay_run_open_capture(assay_run *run, int file, const assay_run_options *options);
assay_status assay_run_open_foreign(assay_run *run, int file, const assay_run_options *options);
/* Of the prompt's tables what is not there as values: statistics, and sketches. */
assay_status assay_run_read_stats(assay_run *run, assay_prompt_data *prompt, int file,
                                  const char *group);
/* Sketches of a prompt's statistics: steps[row], entries[row] (of that step; -1: none) say whose.
 */
assay_status assay_run_read_sketches(assay_run *run, assay_prompt_data *prompt, hid_t file,
                                     const char *group, const int32_t *steps, const int *entries,
                                     int64_t n_rows);

/* Before steps are closed: entries of ranks -> wholes beside them. */
assay_status assay_run_join_ranks(assay_run *run);
/* Before steps are closed: each sequence of a batch as a prompt of its own. */
assay_status assay_run_split(assay_run *run);
/* Behind these: steps with values of which some rows were kept, in parts. */
assay_status assay_run_split_rows(assay_run *run);
/* Attribute rows of a value. */
assay_status assay_run_read_kept(assay_entry *entry, assay_run *run, hid_t file, const char *path);
/* Before the ranks are joined, of a foreign dump: leaves out steps that do not follow the ones
 * before. */
assay_status assay_run_settle_steps(assay_run *run);
/* The prompt of this name; NULL: none. */
assay_prompt_data *assay_run_prompt_named(const assay_run *run, const char *name);
/* Attributes rank and ranks of a file; checks that all files say the same number. */
assay_status assay_run_read_ranks(assay_run *run, int file);

/* Whether the stored numbers are the value, in canonical layout, unless others are `known`. */
bool assay_entry_is_plain(const assay_entry *entry);
/* Keeps the answer: of a closed step, and after each change of an entry's plan. */
void assay_entry_settle(assay_entry *entry);
/* The file's mapping, where that can be had. */
void assay_run_map(assay_run_file *file);
void assay_run_unmap(assay_run_file *file);
/* A value by way of HDF5 and the plan. */
assay_status assay_run_read_converted(double *out, const assay_run *run, const assay_seen *seen);
/* Whether the stored bytes are those that were written, where the file can tell. bytes: where they
 * lie in memory; NULL: they are read for it. */
assay_status assay_run_check(const assay_run *run, const assay_source *source, const void *bytes);
/* The same where the checksum of all elements has been taken already. */
assay_status assay_run_check_sum(const assay_run *run, const assay_source *source, uint64_t is);

/* Profile of a producer; model_class refines it. */
const assay_profile *assay_profile_for(const char *producer, const char *model_class);

#endif
