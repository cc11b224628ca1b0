/*
 * Many places at once: a small one is the work of one thread, so that threads meet once a group and
 * not once a place; a large one is shared by all threads. What comes of them is put together in the
 * order of the list.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "references/compare_private.h"

typedef struct work {
    assay_comparison *c;
    assay_compare_place *places;
    int n;
    const assay_match *match;
    const assay_pair *pairs;
    int n_pairs;
    /* of the first place in the list that failed */
    int failed_at;
    assay_status status;
    char why[1024];
} work;

static void note_failure(work *w, int place, assay_status s)
{
#pragma omp critical(compare_failure)
    if (w->failed_at < 0 || place < w->failed_at) {
        w->failed_at = place;
        w->status = s;
        snprintf(w->why, sizeof w->why, "%s", assay_error_text()); /* the text is this thread's */
    }
}

static void run_place(work *w, int i, assay_contrast_room *room)
{
    assay_compare_place *place = &w->places[i];
    assay_status s = assay_gain_new(&place->gain[CANDIDATE]);
    if (s == ASSAY_OK)
        s = assay_gain_new(&place->gain[TWIN]);
    if (s == ASSAY_OK)
        s = assay_compare_point(place, room, w->c, w->match, w->pairs, w->n_pairs);
    if (s != ASSAY_OK)
        note_failure(w, i, s);
}

/* What one thread unpacks by itself, so that memory is bounded by so much a thread. */
#define MOST_UNPACKED (1 << 25)

/* HDF5 is one thread's, and memory for values that are converted should not grow with the number of
 * threads; logits cost many times their bytes. */
static bool is_for_one_thread(const assay_compare_place *place, double most)
{
    return place->bytes <= most && place->unpacked <= MOST_UNPACKED &&
           place->point != ASSAY_POINT_LOGITS;
}

static void run_places(work *w)
{
    double all = 0;
    for (int i = 0; i < w->n; i++)
        all += w->places[i].bytes < INFINITY ? w->places[i].bytes : 0;
    const double most = all / (4 * omp_get_max_threads());
    assay_contrast_room room = {NULL, 0};
    for (int i = 0; i < w->n; i++)
        if (!is_for_one_thread(&w->places[i], most))
            run_place(w, i, &room);
#pragma omp parallel firstprivate(room) if (all > 1 << 20)
    {
        if (omp_get_thread_num() > 0)
            room = (assay_contrast_room){NULL, 0};
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < w->n; i++)
            if (is_for_one_thread(&w->places[i], most))
                run_place(w, i, &room);
        free(room.numbers);
    }
}

static assay_status add_item(assay_comparison *c, const assay_compared *item)
{
    if (c->n == c->room) {
        int room = c->room ? 2 * c->room : 256;
        assay_compared *items = realloc(c->items, (size_t)room * sizeof *items);
        if (!items)
            return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory");
        c->items = items;
        c->room = room;
    }
    c->items[c->n++] = *item;
    return ASSAY_OK;
}

static assay_status add_place(assay_comparison *c, const assay_compare_place *place)
{
    ASSAY_TRY(assay_gain_merge(c->gain[CANDIDATE], place->gain[CANDIDATE]));
    ASSAY_TRY(assay_gain_merge(c->gain[TWIN], place->gain[TWIN]));
    return place->has_item ? add_item(c, &place->item) : ASSAY_OK;
}

assay_status assay_compare_places(assay_comparison *c, assay_compare_place *places, int n,
                                  const assay_match *match, const assay_pair *pairs, int n_pairs)
{
    work w = {.c = c,
              .places = places,
              .n = n,
              .match = match,
              .pairs = pairs,
              .n_pairs = n_pairs,
              .failed_at = -1};
    run_places(&w);
    assay_status s = w.status == ASSAY_OK ? ASSAY_OK : assay_fail(w.status, "%s", w.why);
    for (int i = 0; i < n; i++) {
        if (s == ASSAY_OK)
            s = add_place(c, &places[i]);
        for (int side = 0; side < SIDES; side++)
            assay_gain_free(places[i].gain[side]);
    }
    return s;
}
