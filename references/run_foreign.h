/*
 * Inside of reading a foreign dump: its steps and names (run_foreign_list.c), which run_foreign.c
 * maps to points.
 */
#ifndef ASSAY_REFERENCES_RUN_FOREIGN_H
#define ASSAY_REFERENCES_RUN_FOREIGN_H

#include "references/name_map.h"
#include "references/run_private.h"

typedef struct assay_dump_names {
    const char *group; /* "/count/step0000" */
    int prompt, step;
    assay_h5_names names;
} assay_dump_names;

typedef struct assay_dump {
    assay_run *run;
    const assay_run_options *options;
    const assay_name_map *map; /* a user's; NULL: none */
    hid_t file;
    int index; /* of the file */
    assay_family family;
    bool is_ggml, is_vllm, is_mla;
    bool is_capture;         /* naming = modules */
    assay_dump_names *steps; /* of all prompts, in order */
    int n_steps;
    int n_listed; /* prompts */
    int n_prompt; /* the prompt that is being listed, and its steps so far */
    int n_new;
    char **all; /* every name of the file once, sorted */
    int n_all;
    assay_sizes sizes;
    int64_t n_rows; /* tokens that the dataset at work keeps: the step's, but for attribute rows */
    /* of the prompt at work */
    assay_prompt_data *prompt;
    int first_step;
} assay_dump;

/* Producer, model class, number format. */
assay_status assay_dump_read_about(assay_dump *d);
/* Prompts, their steps and the names in them. */
assay_status assay_dump_list(assay_dump *d);
/* Every name once, sorted. */
assay_status assay_dump_unite_names(assay_dump *d);
/* Who wrote it: by its word, else by how names look. */
void assay_dump_recognise(assay_dump *d);
/* Whether the file has the names that a row asks for. */
bool assay_dump_holds(const assay_dump *d, const char *when, int layer);
assay_status assay_dump_path(char out[1024], const assay_dump *d, int step, const char *name);
assay_step_data *assay_dump_step(const assay_dump *d, int step);
/* Shape as row-major, size-one axes kept where the dump says them. */
assay_status assay_dump_shape(assay_h5_info *info, const assay_dump *d, const char *path);
/* Rows of this step, and its tokens where it says them. */
assay_status assay_dump_count_tokens(assay_dump *d, int step, assay_step_data *data);

#endif
