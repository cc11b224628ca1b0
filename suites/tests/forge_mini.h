/*
 * The golden mini model: D 8, H 2, N 4, R 4, V 3, L 6, Dq 6, one dense layer, weights by formula,
 * with the numbers that double precision gives for four tokens. With an indexer of 2 heads of 8 and
 * top_k 2 it is glm-dsa; without, deepseek2 in the old form (kv_b) or the new one (k_b, v_b).
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_MINI_H
#define ASSAY_SUITES_TESTS_FORGE_MINI_H

#include "forge_plain.h"

typedef enum { MINI_GLM_DSA, MINI_DEEPSEEK2, MINI_DEEPSEEK2_OLD, MINI_DEEPSEEK32 } mini_kind;

/* Without forge_plain_write: more may be added. */
void forge_mini(forge_plain *m, mini_kind kind, int top_k);

/* The layer's input of token t, channel i. */
float mini_input(int t, int i);

#endif
