/*
 * Block formats of GGUF files, decoded a second time: the oracle shares no decoder with the engine.
 *
 * A decoder turns one block into float32, one rounding per operation in the order of the format's
 * formula (no contraction), so both decoders must agree bit for bit. Rows are whole blocks along
 * the innermost dimension.
 */
#ifndef ASSAY_REFERENCES_ORACLE_ORACLE_QUANT_H
#define ASSAY_REFERENCES_ORACLE_ORACLE_QUANT_H

#include <stdint.h>

#include "engine/base/status.h"
#include "references/oracle/knobs.h"

/* What ggml's CPU products round activations to before they meet a weight of some type. */
typedef enum {
    ORACLE_PARTNER_NONE,
    ORACLE_PARTNER_F16,
    ORACLE_PARTNER_BF16,
    ORACLE_PARTNER_Q8_0, /* 32 values, scale amax / 127 kept as f16 */
    ORACLE_PARTNER_Q8_1, /* the same numbers as Q8_0 */
    ORACLE_PARTNER_Q8_K  /* 256 values, the largest maps to -127, scale in f32 */
} oracle_partner;

typedef void oracle_decode_fn(float *out, const uint8_t *block);

typedef struct oracle_quant {
    int number;
    const char *name;
    int elements, bytes;       /* of a block */
    int scale_at, scale_bytes; /* block-wide scale field */
    int codes_at, code_bytes;  /* bytes of two 4-bit codes */
    oracle_partner partner;
    oracle_decode_fn *decode;
} oracle_quant;

/* By the number in the file; NULL: not decodable. */
const oracle_quant *assay_oracle_quant_find(int number);

/*
 * n elements (whole blocks) starting at block `first` of a slice of n_blocks blocks, under a view
 * of the bytes. Views that concern 4-bit codes or block scales leave other formats as they are. The
 * last block of the slice keeps its own scale under ASSAY_WEIGHT_NEIGHBOUR_SCALE.
 */
void assay_oracle_quant_decode(double *out, const oracle_quant *quant, const uint8_t *slice,
                               int64_t n_blocks, int64_t first, int64_t n, assay_weight_view view);

/* A row of activations as ggml's CPU product sees it, in place; a tail shorter than a block is left
 * as it is. */
void assay_oracle_round_activation(double *row, int64_t n, oracle_partner partner);

/* Stored blocks of the 8-bit partner formats, as ggml writes them (files of tests, golden hashes):
 * x[32], x[32], x[256]. */
void assay_oracle_encode_q8_0(uint8_t block[34], const float *x);
void assay_oracle_encode_q8_1(uint8_t block[36], const float *x);
void assay_oracle_encode_q8_k(uint8_t block[292], const float *x);

/* Shared by the decoder files. */
float assay_oracle_f16_at(const uint8_t *bytes);
uint16_t assay_oracle_u16_at(const uint8_t *bytes);
uint32_t assay_oracle_u32_at(const uint8_t *bytes);
extern const int8_t assay_oracle_nl[16]; /* values of the IQ4 codes */

/* Decoders of other files. */
oracle_decode_fn assay_oracle_decode_q2_k, assay_oracle_decode_q3_k, assay_oracle_decode_q4_k,
    assay_oracle_decode_q5_k, assay_oracle_decode_q6_k, assay_oracle_decode_q8_k,
    assay_oracle_decode_iq4_xs, assay_oracle_decode_tq1_0, assay_oracle_decode_tq2_0,
    assay_oracle_decode_iq1_s, assay_oracle_decode_iq1_m, assay_oracle_decode_iq2_xxs,
    assay_oracle_decode_iq2_xs, assay_oracle_decode_iq2_s, assay_oracle_decode_iq3_xxs,
    assay_oracle_decode_iq3_s;

#endif
