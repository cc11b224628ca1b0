/*
 * Reading of one architecture's metadata keys, for engine/hparams.c and arch/.
 *
 * Keys are given without the architecture's prefix. A value outside its range is ASSAY_BAD_FILE
 * with the key, the value and the range; so whatever is computed from several of them (all are at
 * most 2^24) cannot overflow 64 bits.
 */
#ifndef ASSAY_ENGINE_KEY_H
#define ASSAY_ENGINE_KEY_H

#include "engine/hparams.h"

/* "<architecture>.<key>"; one of a few buffers of this thread. */
const char *assay_key_name(const assay_hparams *hp, const char *key);
bool assay_key_is_there(const assay_hparams *hp, const assay_gguf *file, const char *key);

/* The key must be there. */
assay_status assay_key_need(int *out, const assay_hparams *hp, const assay_gguf *file,
                            const char *key, int least, int most);
assay_status assay_key_need_real(double *out, const assay_hparams *hp, const assay_gguf *file,
                                 const char *key, double least, double most);

/* Absent: `otherwise` is taken, and recorded as an assumption unless why is NULL. */
assay_status assay_key_take(int *out, assay_hparams *hp, const assay_gguf *file, const char *key,
                            int otherwise, int least, int most, const char *why);
assay_status assay_key_take_real(double *out, assay_hparams *hp, const assay_gguf *file,
                                 const char *key, double otherwise, double least, double most,
                                 const char *why);
assay_status assay_key_take_flag(bool *out, assay_hparams *hp, const assay_gguf *file,
                                 const char *key, bool otherwise, const char *why);

/* "Scalar or array" keys that must be the same in all layers. Absent: *out untouched, *there false.
 */
assay_status assay_key_uniform(int *out, bool *there, const assay_hparams *hp,
                               const assay_gguf *file, const char *key, int n_block, int least,
                               int most);

/* A row of hp->assumed. key is the full name. */
void assay_assume(assay_hparams *hp, const char *key, const char *why, const char *value_format,
                  ...) __attribute__((format(printf, 4, 5)));

#endif
