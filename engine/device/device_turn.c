/*
 * Rotations on the device. Frequencies are computed on the host, in double, once per different
 * rotation; its cosines and sines once per step for all layers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

static bool same_angles(const assay_turn *t, const assay_rotary *how, const double *f)
{
    const assay_rotary *a = &t->how;
    return a->turned == how->turned && a->skip == how->skip && a->inverse == how->inverse &&
           a->magnitude == how->magnitude && a->position_offset == how->position_offset &&
           a->position_scale == how->position_scale &&
           !memcmp(t->f, f, (size_t)(how->turned / 2) * sizeof *f);
}

static assay_status add(assay_turn **out, assay_device *d, const assay_rotary *how, double *f)
{
    if (d->n_turns == ASSAY_DEVICE_TURNS)
        return assay_fail(ASSAY_UNSUPPORTED, "more than %d different rotations in one model",
                          ASSAY_DEVICE_TURNS);
    assay_turn *t = &d->turns[d->n_turns];
    size_t bytes = (size_t)(how->turned / 2) * sizeof *f;
    ASSAY_TRY(assay_cuda_alloc(&t->f_at, bytes, "frequencies"));
    ASSAY_TRY(assay_cuda_to_device(d->stream, t->f_at, f, bytes));
    ASSAY_TRY(assay_cuda_sync(d->stream));
    t->how = *how;
    t->f = f;
    d->n_turns++;
    d->has_moved = true; /* angles are made at the start of a step: go through it once more */
    *out = t;
    return ASSAY_OK;
}

static assay_status find(assay_turn **out, assay_device *d, const assay_rotary *how)
{
    double *f;
    ASSAY_TRY(assay_alloc(&f, (size_t)(how->turned / 2) + 1, sizeof *f, "frequencies"));
    assay_rotary_frequencies(f, how);
    for (int i = 0; i < d->n_turns; i++)
        if (same_angles(&d->turns[i], how, f)) {
            free(f);
            *out = &d->turns[i];
            return ASSAY_OK;
        }
    assay_status s = add(out, d, how, f);
    if (s != ASSAY_OK)
        free(f);
    return s;
}

assay_status assay_device_angles(assay_engine *e)
{
    assay_device *d = e->device;
    for (int i = 0; i < d->n_turns; i++)
        ASSAY_RUN(d, assay_device_rotary_table(d->at, d->turns[i].table, d->turns[i].f_at, &d->rows,
                                               &d->turns[i].how));
    return ASSAY_OK;
}

static assay_status room(assay_device *d, assay_turn *t)
{
    assay_cell cell = {t->table, (size_t)(t->rows * t->how.turned) * sizeof *t->table};
    if (t->rows >= d->n_bucket)
        return ASSAY_OK;
    ASSAY_TRY(assay_device_grow(d, &cell, (size_t)(d->n_bucket * t->how.turned) * sizeof *t->table,
                                "angles"));
    t->table = cell.memory;
    t->rows = d->n_bucket;
    return ASSAY_OK;
}

assay_status assay_device_turn(assay_engine *e, assay_point to, assay_rows x, int64_t head,
                               int n_head, const assay_rotary *how, int layer)
{
    assay_device *d = e->device;
    assay_turn *t = NULL;
    ASSAY_TRY(find(&t, d, how));
    ASSAY_TRY(room(d, t));
    ASSAY_TRY(assay_device_begin(e, to, layer));
    assay_rows y = assay_device_rows_of(e, to);
    y.width = x.width;
    ASSAY_RUN(d, assay_device_rotary(d->at, y, x.width, x, head, n_head, t->table, how));
    return assay_device_done(e, to, layer);
}
