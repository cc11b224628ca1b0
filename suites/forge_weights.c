#include "suites/forge_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"
#include "engine/quant.h"

#define HUGE_FACTOR 4096.0f
#define BATCH_BYTES (1 << 20) /* encoded rows that are written at once */
#define HEAD_GAIN 3.0         /* of the output head: greedy choices are clear */
#define ROUTER_GAIN 2.0

static const char *const wrong_names[] = {
#define X(id, name, about) name,
#include "suites/forge_wrong.def"
#undef X
};

forge_wrong forge_wrong_find(const char *name)
{
    for (int i = 0; i < FORGE_RIGHT; i++)
        if (strcmp(wrong_names[i], name) == 0)
            return (forge_wrong)i;
    return FORGE_RIGHT;
}

const char *forge_wrong_name(int index)
{
    return index >= 0 && index < FORGE_RIGHT ? wrong_names[index] : NULL;
}

static uint64_t mix(uint64_t x) /* splitmix64's finaliser */
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t name_key(const char *name, uint64_t seed)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return mix(hash ^ mix(seed + 0x9e3779b97f4a7c15u));
}

/* Value i of a tensor: four uniform numbers added, mean 0 and deviation 1, within +-3.5. */
static float value_at(uint64_t key, uint64_t i)
{
    uint64_t x = mix(key + i * 0x9e3779b97f4a7c15u);
    int32_t sum = (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

void forge_set_scale(forge_tensor *t, const assay_hparams *hp)
{
    double inputs = (double)t->ne[0], branch = 1 / sqrt(2.0 * hp->n_layer);
    t->mean = 0;
    t->deviation = 1 / sqrt(inputs);
    switch (t->role) {
    case ASSAY_ROLE_TOKEN_EMBD:
    case ASSAY_ROLE_NEXTN_EMBED:
        t->deviation = 1;
        return;
    case ASSAY_ROLE_ATTN_K_B: /* stored transposed: its inputs are the latent's, ne[1] */
        t->deviation = 1 / sqrt((double)t->ne[1]);
        return;
    case ASSAY_ROLE_ATTN_OUTPUT:
    case ASSAY_ROLE_FFN_DOWN:
    case ASSAY_ROLE_DOWN_EXPS:
    case ASSAY_ROLE_DOWN_SHEXP:
        t->deviation *= branch;
        return;
    case ASSAY_ROLE_OUTPUT:
    case ASSAY_ROLE_NEXTN_HEAD:
        t->deviation *= HEAD_GAIN;
        return;
    case ASSAY_ROLE_ROUTER:
        t->deviation *= ROUTER_GAIN;
        return;
    default:
        break;
    }
    if (t->n_dims == 1) {
        t->deviation = 0.1;
        t->mean = strstr(t->name, ".bias") ? 0 : 1;
    }
}

static void fill_row(float *out, const forge_tensor *t, uint64_t key, int64_t row)
{
    int64_t n = t->ne[0], n_rows = t->ne[1] * t->ne[2] * t->ne[3];
    int64_t from = t->wrong == FORGE_WRONG_REPEATED_ROW && row == n_rows - 1 ? row - 1 : row;
    float deviation = (float)t->deviation, mean = (float)t->mean;
    float factor = t->wrong == FORGE_WRONG_HUGE ? HUGE_FACTOR : 1.0f;
    if (t->wrong == FORGE_WRONG_ZERO_ROW && row == n_rows / 2)
        factor = 0;
    for (int64_t i = 0; i < n; i++)
        out[i] =
            factor * (mean + deviation * value_at(key, (uint64_t)from * (uint64_t)n + (uint64_t)i));
}

/* Spoils the scale of the middle block of a row (a scalar type's block is its element). */
static void spoil_row(uint8_t *row, const forge_tensor *t, const assay_quant *quant)
{
    uint8_t *block = row + t->ne[0] / quant->block_elements / 2 * quant->block_bytes;
    uint8_t *p = block + quant->scale_at;
    float value = t->wrong == FORGE_WRONG_INF ? INFINITY : NAN;
    uint16_t bits =
        quant->scale == ASSAY_SCALE_BF16 ? assay_f32_to_bf16(value) : assay_f32_to_f16(value);
    if (quant->scale == ASSAY_SCALE_F32)
        memcpy(p, &value, sizeof value);
    else if (quant->scale == ASSAY_SCALE_F16 || quant->scale == ASSAY_SCALE_BF16)
        memcpy(p, &bits, sizeof bits);
}

/* Rows [first, first + n) encoded one behind the other. */
static assay_status encode_rows(uint8_t *out, float *row, const forge_tensor *t,
                                const assay_quant *quant, uint64_t key, int64_t first, int64_t n)
{
    int64_t middle = t->ne[1] * t->ne[2] * t->ne[3] / 2;
    int64_t row_bytes = assay_quant_bytes(quant, t->ne[0]);
    bool spoils = t->wrong == FORGE_WRONG_NAN || t->wrong == FORGE_WRONG_INF;
    for (int64_t r = first; r < first + n; r++, out += row_bytes) {
        fill_row(row, t, key, r);
        ASSAY_TRY(assay_quant_encode(out, t->type, row, t->ne[0]));
        if (spoils && r == middle)
            spoil_row(out, t, quant);
    }
    return ASSAY_OK;
}

static assay_status write_rows(assay_gguf_writer *w, int64_t index, const forge_tensor *t,
                               const assay_quant *quant, uint64_t key, int64_t first, int64_t n)
{
    int64_t row_bytes = assay_quant_bytes(quant, t->ne[0]);
    uint8_t *encoded = NULL;
    float *row = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&row, (size_t)t->ne[0], sizeof *row, t->name));
    ASSAY_GO(assay_alloc(&encoded, (size_t)n, (size_t)row_bytes, t->name));
    ASSAY_GO(encode_rows(encoded, row, t, quant, key, first, n));
    s = assay_gguf_writer_data(w, index, (uint64_t)(first * row_bytes), encoded,
                               (uint64_t)(n * row_bytes));
out:
    free(row);
    free(encoded);
    return s;
}

assay_status forge_write_tensor(assay_gguf_writer *w, int64_t index, const forge_tensor *t,
                                uint64_t seed)
{
    const assay_quant *quant = assay_quant_find(t->type);
    uint64_t key = name_key(t->of, seed);
    int64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3];
    int64_t batch = BATCH_BYTES / assay_quant_bytes(quant, t->ne[0]);
    batch = batch < 1 ? 1 : batch;
    int64_t n_batches = (n_rows + batch - 1) / batch;
    assay_status failed = ASSAY_OK;
    char line[512] = "";
#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < n_batches; b++) {
        int64_t first = b * batch, n = n_rows - first < batch ? n_rows - first : batch;
        assay_status s = write_rows(w, index, t, quant, key, first, n);
        if (s == ASSAY_OK)
            continue;
#pragma omp critical(forge_failure)
        if (failed == ASSAY_OK) {
            failed = s;
            strncpy(line, assay_error_text(), sizeof line - 1);
        }
    }
    if (failed != ASSAY_OK)
        assay_error_set(line);
    return failed;
}
