/*
 * Weights as a wrong loader would have them: another layer's, read with another stride, with blocks
 * decoded wrongly.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "engine/quant.h"

struct bent {
    struct bent *next;
    const assay_weight *weight; /* NULL: kv_b of `layer` */
    int layer;
    double view, scale, other_layer, rank_view, grouped;
    float *values;
};

enum {
    VIEW_RIGHT,
    VIEW_TRANSPOSED,
    VIEW_NIBBLES,
    VIEW_NEIGHBOUR_SCALE,
    VIEW_REVERSED,
    VIEW_ZERO,
    VIEW_ROW_LOW,
    VIEW_NOISE,
    VIEW_REPEATED
};

void assay_bent_free(assay_engine *e)
{
    while (e->bent) {
        struct bent *next = e->bent->next;
        free(e->bent->values);
        free(e->bent);
        e->bent = next;
    }
}

static assay_status keep(struct bent **out, assay_engine *e, struct bent what, size_t n)
{
    struct bent *b;
    ASSAY_TRY(assay_alloc(&b, 1, sizeof *b, "seam"));
    assay_status s = assay_alloc(&what.values, n, sizeof *what.values, "seam");
    if (s != ASSAY_OK) {
        free(b);
        return s;
    }
    *b = what;
    b->next = e->bent;
    e->bent = b;
    *out = b;
    return ASSAY_OK;
}

/* Where the codes of a block of packed 4-bit numbers lie; in front of (Q6_K, IQ4_XS: see the table)
 * are its scales. */
static const struct packing {
    const char *name;
    int codes, n_codes; /* bytes of low and high nibbles */
    int scale, n_scale; /* bytes of the scales */
} packings[] = {
    {"q4_0", 2, 16, 0, 2},    {"q4_1", 4, 16, 0, 4},    {"q5_0", 6, 16, 0, 2},
    {"q5_1", 8, 16, 0, 4},    {"q8_0", 0, 0, 0, 2},     {"q4_k", 16, 128, 0, 4},
    {"q5_k", 48, 128, 0, 4},  {"q6_k", 0, 128, 208, 2}, {"iq4_nl", 2, 16, 0, 2},
    {"iq4_xs", 8, 128, 0, 2}, {"mxfp4", 1, 16, 0, 1},
};

static const struct packing *packing_of(const assay_quant *quant)
{
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (!strcasecmp(packings[i].name, quant->name))
            return &packings[i];
    return NULL;
}

/* Decodes from bytes in which every block is bent; types without such parts stay right. */
static assay_status decode_bent_blocks(float *out, const assay_weight *w, int view,
                                       assay_dtype dtype)
{
    const assay_quant *quant = assay_quant_find(w->info->type);
    const struct packing *p = packing_of(quant);
    size_t size = (size_t)quant->block_bytes, n = (size_t)w->info->n_bytes / size;
    uint8_t *bytes;
    if (!p)
        return assay_model_decode_rows(out, w, 0, w->n_rows, dtype);
    ASSAY_TRY(assay_alloc(&bytes, n, size, "seam"));
    const uint8_t *right = w->info->data;
    memcpy(bytes, right, n * size);
    for (size_t b = 0; b < n; b++)
        if (view == VIEW_NEIGHBOUR_SCALE && b + 1 < n)
            memcpy(bytes + b * size + p->scale, right + (b + 1) * size + p->scale,
                   (size_t)p->n_scale);
        else if (view != VIEW_NEIGHBOUR_SCALE)
            for (int i = 0; i < p->n_codes; i++) {
                uint8_t *code = bytes + b * size + (size_t)(p->codes + i);
                *code = (uint8_t)(*code << 4 | *code >> 4);
            }
    assay_status s = assay_quant_decode(out, w->info->type, bytes, w->n_rows * w->width);
    free(bytes);
    if (s == ASSAY_OK && dtype == ASSAY_DTYPE_BF16)
        for (int64_t i = 0; i < w->n_rows * w->width; i++)
            out[i] = assay_bf16_to_f32(assay_f32_to_bf16(out[i]));
    return s;
}

/* Seeded numbers of the weight's own root mean square. */
static void fill_noise(float *v, int64_t n)
{
    double square = 0;
    uint32_t x = 2463534242u;
    for (int64_t i = 0; i < n; i++)
        square += (double)v[i] * v[i];
    double size = sqrt(3 * square / (double)n);
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        v[i] = (float)(size * (x * 0x1p-31 - 1));
    }
}

/* Rows of the last matrix: experts and heads are matrices of their own. */
static void rearrange(float *to, const float *from, int64_t rows, int64_t width, int view)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            int64_t at = r * width + c;
            if (view == VIEW_TRANSPOSED)
                at = c * rows + r;
            else if (view == VIEW_REVERSED)
                at = (rows - 1 - r) * width + c;
            else if (view == VIEW_ROW_LOW)
                at = (r + 1) % rows * width + c;
            else if (view == VIEW_REPEATED && rows > 1)
                at = r % (rows / 2) * width + c;
            to[r * width + c] = from[at];
        }
}

static assay_status make_view(float *out, const assay_weight *w, int view, assay_dtype dtype)
{
    int64_t rows = w->n_dims == 1 ? w->width : w->dims[w->n_dims - 2];
    int64_t width = w->n_dims == 1 ? 1 : w->width;
    int64_t n = w->n_rows * w->width;
    float *right;
    if (view == VIEW_NIBBLES || view == VIEW_NEIGHBOUR_SCALE)
        return decode_bent_blocks(out, w, view, dtype);
    ASSAY_TRY(assay_model_decode_rows(out, w, 0, w->n_rows, dtype));
    if (view == VIEW_ZERO)
        memset(out, 0, (size_t)n * sizeof *out);
    if (view == VIEW_NOISE)
        fill_noise(out, n);
    if (view == VIEW_RIGHT || view == VIEW_ZERO || view == VIEW_NOISE)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&right, (size_t)n, sizeof *right, "seam"));
    memcpy(right, out, (size_t)n * sizeof *right);
    for (int64_t first = 0; first < n; first += rows * width)
        rearrange(out + first, right + first, rows, width, view);
    free(right);
    return ASSAY_OK;
}

enum { RANK_VIEW_RIGHT, RANK_VIEW_OTHER_AXIS, RANK_VIEW_LATE, RANK_VIEW_SHARE };

/* This rank's columns are those of its rows' bytes: a cut along the other axis. */
static void cut_other_axis(float *out, const float *right, const assay_weight *w,
                           const assay_engine *e, assay_slice own)
{
    const float *from = right + w->n_rows * w->width / e->part.n_ranks * e->part.rank;
    for (int64_t r = 0; r < w->n_rows; r++)
        for (int64_t c = 0; c < own.n_columns; c++)
            out[r * w->width + own.column + c] = from[r * own.n_columns + c];
}

/* What a rank has of its slice or copy, in the place of the whole. */
static assay_status view_of_rank(float *values, const assay_engine *e, const assay_weight *w,
                                 int view)
{
    int64_t n = w->n_rows * w->width, share = n / e->part.n_ranks, late = e->hp->d_head / 2;
    assay_slice own = assay_slice_of(e, w);
    float *right;
    ASSAY_TRY(assay_alloc(&right, (size_t)n, sizeof *right, "seam"));
    memcpy(right, values, (size_t)n * sizeof *right);
    if (view == RANK_VIEW_OTHER_AXIS && own.n_columns < w->width)
        cut_other_axis(values, right, w, e, own);
    for (int64_t i = 0; i < n && w->n_dims == 1; i++)
        if (view == RANK_VIEW_LATE)
            values[i] = right[(i + late) % n];
        else if (view == RANK_VIEW_SHARE)
            values[i] = i < share ? right[e->part.rank * share + i] : 0;
    free(right);
    return ASSAY_OK;
}

/*
 * Rows of q, k and v lie by key head: its queries, its key, its value. A reader that takes all
 * queries for the first rows finds at head i of [q | k | v] the head i of that order.
 */
static assay_status fill_from_groups(float *out, const assay_engine *e, const assay_weight *w)
{
    static const assay_role roles[2][3] = {
        {ASSAY_ROLE_ATTN_Q, ASSAY_ROLE_ATTN_K, ASSAY_ROLE_ATTN_V},
        {ASSAY_ROLE_ATTN_Q_BIAS, ASSAY_ROLE_ATTN_K_BIAS, ASSAY_ROLE_ATTN_V_BIAS}};
    const assay_hparams *hp = e->hp;
    const assay_role *of = roles[w->n_dims == 1];
    int which = w->role == of[0] ? 0 : w->role == of[1] ? 1 : 2;
    int each = hp->n_head / hp->n_head_kv, n = which == 0 ? hp->n_head : hp->n_head_kv;
    int first = which == 0 ? 0 : hp->n_head + (which - 1) * hp->n_head_kv;
    int64_t d = hp->d_head, width = w->n_dims == 1 ? 1 : w->width;
    for (int i = 0; i < n; i++) {
        int group = (first + i) / (each + 2), at = (first + i) % (each + 2);
        int kind = at < each ? 0 : at - each + 1;
        int head = kind == 0 ? group * each + at : group;
        const assay_weight *from = assay_model_weight(e->model, of[kind], w->layer);
        const float *values;
        if (!from)
            return assay_fail(ASSAY_UNSUPPORTED, "seam qkv-grouped: q, k and v have no three %s",
                              w->n_dims == 1 ? "biases" : "weights");
        ASSAY_TRY(assay_model_decoded(&values, e->model, from, e->options.dtype));
        memcpy(out + i * d * width, values + head * d * width,
               (size_t)(d * width) * sizeof *values);
    }
    return ASSAY_OK;
}

/* Whether the seam has a meaning here: three weights of heads of one size. */
static bool is_grouped(const assay_engine *e, assay_role role, int layer)
{
    bool of_qkv = role == ASSAY_ROLE_ATTN_Q || role == ASSAY_ROLE_ATTN_K ||
                  role == ASSAY_ROLE_ATTN_V ||
                  (role >= ASSAY_ROLE_ATTN_Q_BIAS && role <= ASSAY_ROLE_ATTN_V_BIAS);
    return of_qkv && !e->hp->is_mla && e->hp->d_head == e->hp->d_value &&
           assay_bent(e, ASSAY_SEAM_QKV_GROUPED, layer, 0) != 0;
}

assay_status assay_bent_weight(bool *bent, const float **out, assay_engine *e,
                               const assay_weight *weight)
{
    *bent = false;
    if (!e->options.seams)
        return ASSAY_OK;
    int role = (int)weight->role, layer = weight->layer;
    struct bent want = {.weight = weight, .layer = layer};
    want.view = assay_bent_value_of(e, ASSAY_SEAM_WEIGHT_VIEW, layer, role, 0);
    want.scale = assay_bent_value_of(e, ASSAY_SEAM_WEIGHT_SCALE, layer, role, 1);
    want.other_layer = assay_bent_value_of(e, ASSAY_SEAM_WEIGHT_LAYER, layer, role, layer);
    want.rank_view = assay_bent_value_of(e, ASSAY_SEAM_RANK_VIEW, layer, role, 0);
    want.grouped = is_grouped(e, weight->role, layer);
    const assay_weight *source = weight;
    if (want.other_layer != layer && layer >= 0 && want.other_layer >= 0 &&
        want.other_layer < e->hp->n_layer)
        source = assay_model_weight(e->model, weight->role, (int)want.other_layer);
    if (!source || (source == weight && want.view == 0 && want.scale == 1 && want.rank_view == 0 &&
                    want.grouped == 0))
        return ASSAY_OK;
    *bent = true;
    for (struct bent *b = e->bent; b; b = b->next)
        if (b->weight == weight && b->view == want.view && b->scale == want.scale &&
            b->other_layer == want.other_layer && b->rank_view == want.rank_view &&
            b->grouped == want.grouped) {
            *out = b->values;
            return ASSAY_OK;
        }
    struct bent *made;
    ASSAY_TRY(keep(&made, e, want, (size_t)(source->n_rows * source->width)));
    *out = made->values;
    ASSAY_TRY(make_view(made->values, source, (int)want.view, e->options.dtype));
    if (want.rank_view != 0)
        ASSAY_TRY(view_of_rank(made->values, e, source, (int)want.rank_view));
    if (want.grouped != 0)
        ASSAY_TRY(fill_from_groups(made->values, e, source));
    for (int64_t i = 0; i < source->n_rows * source->width && want.scale != 1; i++)
        made->values[i] *= (float)want.scale;
    return ASSAY_OK;
}

assay_status assay_bent_kv_b_parts(bool *bent, const float **out, assay_engine *e, int layer,
                                   float *scratch)
{
    const assay_hparams *hp = e->hp;
    const assay_weight *whole = assay_model_weight(e->model, ASSAY_ROLE_ATTN_KV_B, layer);
    const assay_weight *k_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_K_B, layer);
    const assay_weight *v_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_V_B, layer);
    int64_t n = hp->d_nope, v = hp->d_value, rank = hp->n_rank_kv;
    bool bent_k, bent_v;
    const float *k, *values;
    *bent = false;
    if (!e->options.seams)
        return ASSAY_OK;
    if (whole && !(k_b && v_b))
        return assay_bent_weight(bent, out, e, whole);
    ASSAY_TRY(assay_bent_weight(&bent_k, &k, e, k_b));
    ASSAY_TRY(assay_bent_weight(&bent_v, &values, e, v_b));
    if (!bent_k && !bent_v)
        return ASSAY_OK;
    *bent = true;
    if (!bent_k)
        ASSAY_TRY(assay_model_decoded(&k, e->model, k_b, e->options.dtype));
    if (!bent_v)
        ASSAY_TRY(assay_model_decoded(&values, e->model, v_b, e->options.dtype));
    for (int h = 0; h < hp->n_head; h++) {
        float *head = scratch + h * (n + v) * rank;
        for (int64_t l = 0; l < rank; l++)
            for (int64_t i = 0; i < n; i++)
                head[i * rank + l] = k[(h * rank + l) * n + i];
        memcpy(head + n * rank, values + h * v * rank, (size_t)(v * rank) * sizeof *head);
    }
    *out = scratch;
    return ASSAY_OK;
}

enum {
    KV_B_RIGHT,
    KV_B_EXCHANGED,
    KV_B_KEY_TRANSPOSED,
    KV_B_VALUE_TRANSPOSED,
    KV_B_NEXT_HEAD,
    KV_B_FIRST_HEAD
};

/* One head [N + V, L] as another reader of kv_b sees it. */
static void view_head(float *to, const float *right, int h, const assay_hparams *hp, int view)
{
    int64_t n = hp->d_nope, v = hp->d_value, rank = hp->n_rank_kv, size = (n + v) * rank;
    const float *from = right + h * size;
    if (view == KV_B_NEXT_HEAD)
        from = right + (h + 1) % hp->n_head * size;
    if (view == KV_B_FIRST_HEAD)
        from = right;
    memcpy(to, from, (size_t)size * sizeof *to);
    if (view == KV_B_EXCHANGED) { /* the reader takes the first V rows for values */
        memcpy(to, from + v * rank, (size_t)(n * rank) * sizeof *to);
        memcpy(to + n * rank, from, (size_t)(v * rank) * sizeof *to);
    }
    if (view == KV_B_KEY_TRANSPOSED)
        rearrange(to, from, n, rank, VIEW_TRANSPOSED);
    if (view == KV_B_VALUE_TRANSPOSED)
        rearrange(to + n * rank, from + n * rank, v, rank, VIEW_TRANSPOSED);
}

assay_status assay_bent_kv_b(bool *bent, const float **out, assay_engine *e, int layer,
                             const float *right)
{
    const assay_hparams *hp = e->hp;
    double view = assay_bent(e, ASSAY_SEAM_KV_B_VIEW, layer, 0);
    int64_t size = (int64_t)(hp->d_nope + hp->d_value) * hp->n_rank_kv;
    *bent = view != KV_B_RIGHT;
    if (!*bent)
        return ASSAY_OK;
    for (struct bent *b = e->bent; b; b = b->next)
        if (!b->weight && b->layer == layer && b->view == view) {
            *out = b->values;
            return ASSAY_OK;
        }
    struct bent *made;
    ASSAY_TRY(
        keep(&made, e, (struct bent){.layer = layer, .view = view}, (size_t)(hp->n_head * size)));
    for (int h = 0; h < hp->n_head; h++)
        view_head(made->values + h * size, right, h, hp, (int)view);
    *out = made->values;
    return ASSAY_OK;
}
