/*
 * Products with weights as they lie in the file: decoded a few rows at a time by the thread that
 * multiplies them, or multiplied as integers.
 */
#include <pthread.h>
#include <stdio.h>

#include "engine/base/crew.h"
#include "engine/forward.h"
#include "engine/ops/linear.h"
#include "engine/ops/linear_integer.h"
#include "engine/quant.h"

#define MANY (1 << 14) /* weights of a product from which on other threads pay */

enum {
    FEW = 4, /* rows of x */
    BLOCK_ROWS = 32,
    NEAR_FLOATS = 4 << 10, /* of a thread, decoded at once */
    BLOCK_FLOATS = 64 << 10,
    INTEGER_ROWS = 16
};

/* A failure of one member, for the caller. */
typedef struct failure {
    assay_status status;
    char text[512];
} failure;

static void keep_failure(failure *f, assay_status s)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (f->status == ASSAY_OK) {
        f->status = s;
        snprintf(f->text, sizeof f->text, "%s", assay_error_text());
    }
    pthread_mutex_unlock(&lock);
}

typedef struct streaming {
    const assay_weight *w;
    const assay_quant *quant;
    assay_slice slice;
    assay_dtype dtype;
    assay_rows y, x;
    const assay_q8 *q8; /* NULL: in float32 */
    bool add;
    float *memory; /* [member][n_floats] */
    int64_t n_floats;
    int64_t block; /* rows at once */
    failure failed;
} streaming;

/* A block of rows of the slice, multiplied by this thread. */
static void stream_block(void *user, int64_t piece, int member)
{
    streaming *s = user;
    int64_t first = piece * s->block, left = s->slice.n_rows - first;
    int64_t n = left < s->block ? left : s->block, row = s->slice.row + first;
    float *memory = s->memory + member * s->n_floats;
    assay_rows y = assay_rows_columns(s->y, first, n);
    if (s->q8) {
        int64_t row_bytes = assay_quant_bytes(s->quant, s->w->width);
        const char *blocks = (const char *)s->w->info->data + row * row_bytes +
                             assay_quant_bytes(s->quant, s->slice.column);
        assay_op_linear_integer(y, s->q8, s->quant, blocks, row_bytes, memory, s->add);
        return;
    }
    assay_status status = assay_model_decode_rows(memory, s->w, row, n, s->dtype);
    if (status == ASSAY_OK)
        assay_op_linear_alone(y, s->x, memory + s->slice.column, s->w->width, s->add);
    else
        keep_failure(&s->failed, status);
}

static assay_status stream(assay_engine *e, streaming *s)
{
    int64_t n_blocks = (s->slice.n_rows + s->block - 1) / s->block;
    int n_members = s->slice.n_rows * s->slice.n_columns > MANY ? e->options.n_threads : 1;
    ASSAY_TRY(assay_scratch(&s->memory, e, (size_t)(n_members * s->n_floats)));
    assay_crew_run(stream_block, s, n_blocks, n_members);
    if (s->failed.status != ASSAY_OK)
        assay_error_set(s->failed.text);
    return s->failed.status;
}

/* Under few rows of x, rows of a weight that are decoded at once stay in the nearest cache, so that
 * the weight passes through memory packed; under many they are worth a larger block. */
static int64_t rows_at_once(int64_t width, int64_t n_x)
{
    int64_t n = (n_x <= FEW ? NEAR_FLOATS : BLOCK_FLOATS) / width;
    n = n > BLOCK_ROWS ? BLOCK_ROWS : n;
    return n < 1 ? 1 : n > 4 ? n - n % 4 : n;
}

bool assay_streams(const assay_engine *e, const assay_weight *weight)
{
    return !e->options.seams && e->options.dtype == ASSAY_DTYPE_F32 &&
           assay_quant_find(weight->info->type)->streams;
}

assay_status assay_linear_streaming(assay_engine *e, assay_rows y, assay_rows x,
                                    const assay_weight *weight, assay_slice slice, bool add)
{
    streaming s = {.w = weight,
                   .slice = slice,
                   .dtype = e->options.dtype,
                   .y = y,
                   .x = x,
                   .add = add,
                   .block = rows_at_once(weight->width, x.n)};
    s.n_floats = s.block * weight->width;
    return stream(e, &s);
}

bool assay_is_integer(const assay_engine *e, const assay_weight *weight, assay_slice slice)
{
    if (e->options.products != ASSAY_PRODUCTS_INTEGER)
        return false;
    const assay_quant *quant = assay_quant_find(weight->info->type);
    int block = quant->block_elements;
    return quant->unpack && slice.column % block == 0 && slice.n_columns % block == 0;
}

static size_t floats_of(size_t bytes)
{
    return (bytes + sizeof(float) - 1) / sizeof(float);
}

assay_status assay_linear_integer(assay_engine *e, assay_rows y, assay_rows x,
                                  const assay_weight *weight, assay_slice slice, bool add)
{
    const assay_quant *quant = assay_quant_find(weight->info->type);
    int block = quant->block_elements;
    float *memory;
    ASSAY_TRY(assay_rounded(&memory, e, floats_of(assay_op_q8_bytes(x.n, x.width, block))));
    assay_q8 q8 = assay_op_round_q8(memory, x, block);
    streaming s = {.w = weight,
                   .quant = quant,
                   .slice = slice,
                   .y = y,
                   .q8 = &q8,
                   .add = add,
                   .block = INTEGER_ROWS,
                   .n_floats = (int64_t)floats_of(assay_op_codes_bytes(x.width, block))};
    return stream(e, &s);
}

assay_status assay_round_rows(assay_rows *x, assay_engine *e, const assay_weight *weight)
{
    int block = assay_quant_find(weight->info->type)->block_elements;
    size_t n_q8 = floats_of(assay_op_q8_bytes(x->n, x->width, block));
    float *memory;
    ASSAY_TRY(assay_rounded(&memory, e, n_q8 + (size_t)(x->n * x->width)));
    assay_q8 q8 = assay_op_round_q8(memory, *x, block);
    *x = assay_rows_of(memory + n_q8, x->n, x->width);
    assay_op_q8_values(*x, &q8);
    return ASSAY_OK;
}
