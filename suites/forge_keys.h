/*
 * Metadata of a forged model, with the keys and types that converters write (private to
 * suites/forge_*.c).
 */
#ifndef ASSAY_SUITES_FORGE_KEYS_H
#define ASSAY_SUITES_FORGE_KEYS_H

#include "engine/gguf_write.h"
#include "suites/forge_model.h"

/* hp: the hyperparameters that the file shall give. */
assay_status forge_put_keys(assay_gguf_writer *writer, const assay_forge_shape *shape,
                            const assay_hparams *hp, bool kv_b);

#endif
