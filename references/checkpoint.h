/*
 * Checkpoints as model authors publish them: a folder with config.json and *.safetensors (or their
 * index), bf16, f16, f32, and float8 (e4m3) with a scale for each 128 x 128 block.
 *
 * It is shown as what the oracle knows: the header of a GGUF file of the same model (keys by
 * config.json, checkpoint_keys.def; tensors by role, checkpoint_source.def), whose data is a hole,
 * and rows that are decoded from the checkpoint when they are asked for. Experts that lie apart or
 * merged, kv_b, and llama's half-split rows come out in GGUF's order. Weights are mapped, never
 * read whole.
 */
#ifndef ASSAY_REFERENCES_CHECKPOINT_H
#define ASSAY_REFERENCES_CHECKPOINT_H

#include <stdbool.h>

#include "engine/gguf.h"
#include "engine/gguf_write.h"
#include "references/oracle/oracle.h"

typedef struct assay_checkpoint assay_checkpoint;

/* A folder, rather than a GGUF file. */
bool assay_checkpoint_is(const char *path);

/*
 * Fails: ASSAY_IO, ASSAY_BAD_FILE (config.json or safetensors, with place), ASSAY_MISSING (a tensor
 * that the model needs), ASSAY_BAD_SHAPE, ASSAY_UNSUPPORTED (model type, rotary scaling, number
 * format).
 */
assay_status assay_checkpoint_open(assay_checkpoint **out, const char *folder);
void assay_checkpoint_close(assay_checkpoint *checkpoint);

/* Keys, names and shapes; borrowed. Its data must not be read. */
const assay_gguf *assay_checkpoint_file(const assay_checkpoint *checkpoint);
/* An oracle over the checkpoint; closed before it. */
assay_status assay_checkpoint_oracle(assay_oracle **out, assay_checkpoint *checkpoint,
                                     int64_t weight_bytes_max);

/* What values are judged by: a GGUF file or the folder of a checkpoint, and its oracle. All zero:
 * closed. */
typedef struct assay_judge_model {
    assay_gguf *own;              /* NULL: a checkpoint, whose header has no hash to compare */
    assay_checkpoint *checkpoint; /* NULL: a GGUF file */
    const assay_gguf *file;       /* of either */
    assay_oracle *oracle;
} assay_judge_model;

assay_status assay_judge_model_open(assay_judge_model *out, const char *path,
                                    int64_t weight_bytes_max);
void assay_judge_model_close(assay_judge_model *model);

/* checkpoint_keys.c: the keys of config.json's text as those of a GGUF file. `path` for messages.
 */
assay_status assay_checkpoint_put_keys(assay_gguf_writer *writer, const char *path);

#endif
