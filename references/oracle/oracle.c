/*
 * An open model, and the store of values of a pass.
 */
#include "references/oracle/oracle.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

assay_status assay_oracle_open(assay_oracle **out, const assay_gguf *file, int64_t weight_bytes_max)
{
    assay_oracle *o;
    ASSAY_TRY(assay_alloc(&o, 1, sizeof *o, "oracle"));
    o->file = file;
    o->weight_bytes_max = weight_bytes_max > 0 ? weight_bytes_max : (int64_t)2 << 30;
    assay_status s = assay_oracle_read_shape(o);
    if (s != ASSAY_OK) {
        free(o);
        return s;
    }
    *out = o;
    return ASSAY_OK;
}

void assay_oracle_close(assay_oracle *oracle)
{
    if (!oracle)
        return;
    assay_oracle_free_chunks(oracle);
    free(oracle);
}

void assay_oracle_take_rows(assay_oracle *oracle, assay_oracle_rows_fn *fn, void *user)
{
    oracle->rows = fn;
    oracle->rows_user = user;
}

const assay_gguf *assay_oracle_file(const assay_oracle *oracle)
{
    return oracle->file;
}

assay_status assay_oracle_open_again(assay_oracle **out, const assay_oracle *oracle)
{
    ASSAY_TRY(assay_oracle_open(out, oracle->file, oracle->weight_bytes_max));
    assay_oracle_take_rows(*out, oracle->rows, oracle->rows_user);
    return ASSAY_OK;
}

void assay_oracle_watch(assay_oracle *oracle, assay_oracle_watch_fn *fn, void *user)
{
    assay_oracle_free_chunks(oracle);
    oracle->watch = fn;
    oracle->watch_user = user;
}

const assay_oracle_shape *assay_oracle_shape_of(const assay_oracle *oracle)
{
    return &oracle->shape;
}

const assay_knobs *assay_oracle_knobs(const assay_oracle *oracle)
{
    return &oracle->right;
}

size_t assay_oracle_n_slots(const assay_oracle *o)
{
    return (size_t)(o->shape.n_layer + o->shape.n_layer_nextn + 1) * ASSAY_POINT_COUNT;
}

size_t assay_oracle_slot_of(assay_point point, int layer)
{
    return (size_t)(layer + 1) * ASSAY_POINT_COUNT + (size_t)point;
}

/* The slot's address; the step's row is made when needed. NULL: out of memory. */
double **assay_oracle_store_slot(oracle_store *store, const assay_oracle *o, int step,
                                 assay_point point, int layer)
{
    if (step >= store->n_steps) {
        double ***grown = realloc(store->steps, (size_t)(step + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + store->n_steps, 0, (size_t)(step + 1 - store->n_steps) * sizeof *grown);
        store->steps = grown;
        store->n_steps = step + 1;
    }
    if (!store->steps[step])
        store->steps[step] = calloc(assay_oracle_n_slots(o), sizeof(double *));
    return store->steps[step] ? &store->steps[step][assay_oracle_slot_of(point, layer)] : NULL;
}

double *assay_oracle_store_get(const oracle_store *store, int step, assay_point point, int layer)
{
    return step < store->n_steps && store->steps[step]
               ? store->steps[step][assay_oracle_slot_of(point, layer)]
               : NULL;
}

static void drop_range(double **slots, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        free(slots[i]);
        slots[i] = NULL;
    }
}

void assay_oracle_store_drop_after(oracle_store *store, const assay_oracle *o, int step,
                                   assay_point point, int layer)
{
    /* behind a global value other than the embedding: the prediction layers */
    size_t first = point == ASSAY_POINT_EMBED
                       ? 0
                       : assay_oracle_slot_of(0, layer < 0 ? o->shape.n_layer : layer);
    for (int s = step; s < store->n_steps; s++) {
        if (!store->steps[s])
            continue;
        drop_range(store->steps[s], first, assay_oracle_n_slots(o));
        drop_range(store->steps[s], assay_oracle_slot_of(ASSAY_POINT_EMBED + 1, -1),
                   assay_oracle_slot_of(0, 0));
    }
}

/* Frees values of layers below `layer` (all: INT_MAX), global ones with layer -1. */
void assay_oracle_store_drop(oracle_store *store, const assay_oracle *o, int layer)
{
    size_t n = layer == INT_MAX ? assay_oracle_n_slots(o) : assay_oracle_slot_of(0, layer);
    for (int s = 0; s < store->n_steps; s++)
        for (size_t i = 0; store->steps[s] && i < n && i < assay_oracle_n_slots(o); i++) {
            free(store->steps[s][i]);
            store->steps[s][i] = NULL;
        }
}

void assay_oracle_store_clear(oracle_store *store, const assay_oracle *o)
{
    assay_oracle_store_drop(store, o, INT_MAX);
    for (int s = 0; s < store->n_steps; s++)
        free(store->steps[s]);
    free(store->steps);
    *store = (oracle_store){0};
}
