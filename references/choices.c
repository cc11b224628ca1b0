#include "references/choices.h"

#include <stdlib.h>
#include <string.h>

#include "references/slab.h"

struct assay_choices {
    int64_t n;
    int n_layers;
    uint8_t *flips; /* [n_layers, n], bits ASSAY_CHOICE_* */
    int64_t *first; /* [n_layers]: first position with a flip in this layer or before; n: none */
    int64_t (*rows)[2];  /* [n_layers]: rows compared, by kind */
    int64_t (*count)[2]; /* [n_layers]: flips, by kind */
};

static int compare_ids(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Keeps ids in [0, limit], sorted, each once; returns how many. NaN and fractions drop out. */
static int64_t as_set(double *ids, int64_t n, double limit)
{
    int64_t kept = 0, once = 0;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] <= limit)
            ids[kept++] = ids[i];
    qsort(ids, (size_t)kept, sizeof *ids, compare_ids);
    for (int64_t i = 0; i < kept; i++)
        if (!i || ids[i] != ids[once - 1])
            ids[once++] = ids[i];
    return once;
}

static bool same_set(double *a, int64_t n_a, double *b, int64_t n_b, double limit)
{
    if (n_a == n_b && !memcmp(a, b, (size_t)n_a * sizeof *a))
        return true; /* in the same order, as most are */
    int64_t kept_a = as_set(a, n_a, limit), kept_b = as_set(b, n_b, limit);
    return kept_a == kept_b && !memcmp(a, b, (size_t)kept_a * sizeof *a);
}

typedef struct side {
    const assay_run *run;
    int prompt;
} side;

/* Whether both have the same ids in the same order, as most rows do, where that shows without a
 * copy. */
static bool same_as_stored(const assay_rows_seen rows[2], int64_t t)
{
    const assay_rows_seen *a = &rows[0], *b = &rows[1];
    return a->values.dtype == ASSAY_DTYPE_I32 && b->values.dtype == ASSAY_DTYPE_I32 &&
           a->n_sub == 1 && b->n_sub == 1 && a->n_cols == b->n_cols &&
           !memcmp((const int32_t *)a->values.data + assay_rows_place(a, t, 0),
                   (const int32_t *)b->values.data + assay_rows_place(b, t, 0),
                   (size_t)a->n_cols * sizeof(int32_t));
}

/* room: of all ids of a row of both. */
static bool same_row(const assay_rows_seen rows[2], int64_t t, double limit, double *room)
{
    double *x[2] = {room, room + rows[0].n_sub * rows[0].n_cols};
    if (same_as_stored(rows, t))
        return true;
    for (int i = 0; i < 2; i++)
        for (int64_t sub = 0; sub < rows[i].n_sub; sub++)
            assay_rows_copy(x[i] + sub * rows[i].n_cols, &rows[i], t, sub);
    return same_set(x[0], rows[0].n_sub * rows[0].n_cols, x[1], rows[1].n_sub * rows[1].n_cols,
                    limit);
}

/* Choices of one layer in one pair of steps. */
static assay_status compare_steps(assay_choices *c, assay_point point, int layer, int bit,
                                  const side sides[2], const int steps[2])
{
    const assay_seen *seen[2];
    const assay_run_step *about[2];
    int64_t first = 0, end = c->n;
    for (int i = 0; i < 2; i++) {
        int64_t from, until;
        seen[i] = assay_run_find(sides[i].run, sides[i].prompt, steps[i], point, layer);
        about[i] = assay_run_step_at(sides[i].run, sides[i].prompt, steps[i]);
        if (!seen[i] || !seen[i]->has_values ||
            assay_slab_range(&from, &until, seen[i], about[i]) != ASSAY_OK)
            return ASSAY_OK;
        first = from > first ? from : first;
        end = until < end ? until : end;
    }
    if (first >= end)
        return ASSAY_OK;
    assay_rows_seen rows[2] = {{0}, {0}};
    double *room = NULL;
    assay_status s;
    for (int i = 0; i < 2; i++)
        ASSAY_GO(assay_rows_look(&rows[i], sides[i].run, seen[i], about[i], first, end, -1));
    ASSAY_GO(assay_alloc(&room,
                         (size_t)(rows[0].n_sub * rows[0].n_cols + rows[1].n_sub * rows[1].n_cols),
                         sizeof *room, "ids"));
    for (int64_t t = 0; t < end - first; t++) {
        double limit = bit == ASSAY_CHOICE_KEYS ? (double)(first + t) : 1e9;
        c->rows[layer][bit - 1]++;
        if (!same_row(rows, t, limit, room)) {
            c->flips[layer * c->n + first + t] |= (uint8_t)bit;
            c->count[layer][bit - 1]++;
        }
    }
out:
    free(room);
    assay_rows_clear(&rows[0]);
    assay_rows_clear(&rows[1]);
    return s;
}

static assay_status compare_layer(assay_choices *c, int layer, const side sides[2])
{
    int n_a = assay_run_prompt_at(sides[0].run, sides[0].prompt)->n_steps,
        n_b = assay_run_prompt_at(sides[1].run, sides[1].prompt)->n_steps;
    for (int a = 0; a < n_a; a++)
        for (int b = 0; b < n_b; b++) {
            const assay_run_step *x = assay_run_step_at(sides[0].run, sides[0].prompt, a),
                                 *y = assay_run_step_at(sides[1].run, sides[1].prompt, b);
            if (x->first_position >= y->first_position + y->n_tokens ||
                y->first_position >= x->first_position + x->n_tokens)
                continue;
            ASSAY_TRY(compare_steps(c, ASSAY_POINT_MOE_TOPK, layer, ASSAY_CHOICE_EXPERTS, sides,
                                    (const int[]){a, b}));
            ASSAY_TRY(compare_steps(c, ASSAY_POINT_INDEX_TOPK, layer, ASSAY_CHOICE_KEYS, sides,
                                    (const int[]){a, b}));
        }
    return ASSAY_OK;
}

assay_status assay_choices_new(assay_choices **out, const assay_run *run, int prompt,
                               const assay_run *reference, int reference_prompt, int64_t n,
                               int n_layers)
{
    assay_choices *c;
    const side sides[2] = {{run, prompt}, {reference, reference_prompt}};
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "choices"));
    c->n = n;
    c->n_layers = n_layers;
    size_t layers = (size_t)n_layers;
    assay_status s = assay_alloc(&c->flips, layers * (size_t)n, 1, "choices");
    if (s == ASSAY_OK)
        s = assay_alloc(&c->first, layers, sizeof *c->first, "choices");
    if (s == ASSAY_OK)
        s = assay_alloc(&c->rows, layers, sizeof *c->rows, "choices");
    if (s == ASSAY_OK)
        s = assay_alloc(&c->count, layers, sizeof *c->count, "choices");
    for (int layer = 0; layer < n_layers && s == ASSAY_OK; layer++)
        s = compare_layer(c, layer, sides);
    for (int layer = 0; layer < n_layers && s == ASSAY_OK; layer++) {
        int64_t first = layer ? c->first[layer - 1] : n;
        for (int64_t p = 0; p < first; p++)
            if (c->flips[layer * n + p])
                first = p;
        c->first[layer] = first;
    }
    if (s != ASSAY_OK) {
        assay_choices_free(c);
        return s;
    }
    *out = c;
    return ASSAY_OK;
}

void assay_choices_free(assay_choices *choices)
{
    if (!choices)
        return;
    free(choices->flips);
    free(choices->first);
    free(choices->rows);
    free(choices->count);
    free(choices);
}

int64_t assay_choices_n_flips(const assay_choices *choices, int layer, int kind)
{
    return choices->count[layer][kind - 1];
}

int64_t assay_choices_n_rows(const assay_choices *choices, int layer, int kind)
{
    return choices->rows[layer][kind - 1];
}

/* Values that depend on the keys that attention reads. The enum has the latent output among the
 * projections. */
static bool is_behind_keys(assay_point point)
{
    return point >= ASSAY_POINT_PROBS || point == ASSAY_POINT_O_LATENT;
}

/* Layers that lie wholly before the point. */
static int layers_before(const assay_choices *c, assay_point point, int layer)
{
    if (assay_point_at(point)->per_layer)
        return layer;
    return point == ASSAY_POINT_EMBED ? 0 : c->n_layers;
}

bool assay_choices_own(const assay_choices *choices, assay_point point, int layer, int64_t position)
{
    int before = layers_before(choices, point, layer);
    for (int l = 0; l < before; l++)
        if (choices->flips[l * choices->n + position])
            return true;
    if (before >= choices->n_layers || layer < 0)
        return false;
    uint8_t here = choices->flips[before * choices->n + position];
    return ((here & ASSAY_CHOICE_KEYS) && is_behind_keys(point)) ||
           ((here & ASSAY_CHOICE_EXPERTS) && point > ASSAY_POINT_MOE_TOPK);
}

bool assay_choices_context(const assay_choices *choices, assay_point point, int layer,
                           int64_t position)
{
    int before = layers_before(choices, point, layer);
    /* What another token's flip in layer l changes is seen by attention in layer l + 1. */
    int last = before - 1 - (layer >= 0 && !is_behind_keys(point));
    if (layer < 0)
        last = before - 2;
    return last >= 0 && choices->first[last] < position;
}
