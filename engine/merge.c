#include "engine/merge.h"

#include "engine/string_table.h"

#include <stdlib.h>
#include <string.h>

void assay_merge_clear(assay_merge_space *space)
{
    free(space->symbols);
    free(space->heap);
    memset(space, 0, sizeof *space);
}

assay_status assay_merge_push(assay_merge_space *space, int32_t id, uint32_t at, uint32_t n)
{
    int64_t i = space->n_symbols;
    ASSAY_TRY(assay_grow(&space->symbols, &space->symbol_capacity, i + 1, sizeof *space->symbols,
                         "symbols"));
    space->symbols[i] =
        (assay_symbol){.id = id, .at = at, .n = n, .previous = (int32_t)i - 1, .next = -1};
    if (i > 0)
        space->symbols[i - 1].next = (int32_t)i;
    space->n_symbols = i + 1;
    return ASSAY_OK;
}

static bool before(const assay_merge_candidate *a, const assay_merge_candidate *b)
{
    return a->order < b->order || (a->order == b->order && a->left < b->left);
}

static assay_status heap_push(assay_merge_space *space, const assay_merge_candidate *candidate)
{
    ASSAY_TRY(assay_grow(&space->heap, &space->heap_capacity, space->n_heap + 1,
                         sizeof *space->heap, "merge candidates"));
    int64_t hole = space->n_heap++;
    while (hole > 0 && before(candidate, &space->heap[(hole - 1) / 2])) {
        space->heap[hole] = space->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    space->heap[hole] = *candidate;
    return ASSAY_OK;
}

static assay_merge_candidate heap_pop(assay_merge_space *space)
{
    assay_merge_candidate *heap = space->heap;
    assay_merge_candidate top = heap[0], last = heap[--space->n_heap];
    int64_t hole = 0;
    for (int64_t child = 1; child < space->n_heap; child = 2 * hole + 1) {
        if (child + 1 < space->n_heap && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = last;
    return top;
}

static assay_status consider(assay_merge_space *space, int32_t left, int32_t right,
                             assay_merge_rule rule, const void *context)
{
    if (left < 0 || right < 0)
        return ASSAY_OK;
    const assay_symbol *l = &space->symbols[left], *r = &space->symbols[right];
    assay_merge_candidate c = {.left = left, .right = right, .n_left = l->n, .n_right = r->n};
    if (!rule(&c.order, &c.id, context, l, r))
        return ASSAY_OK;
    return heap_push(space, &c);
}

assay_status assay_merge_run(assay_merge_space *space, assay_merge_rule rule, const void *context)
{
    space->n_heap = 0;
    for (int64_t i = 1; i < space->n_symbols; i++)
        ASSAY_TRY(consider(space, (int32_t)i - 1, (int32_t)i, rule, context));
    while (space->n_heap > 0) {
        assay_merge_candidate c = heap_pop(space);
        assay_symbol *l = &space->symbols[c.left], *r = &space->symbols[c.right];
        if (l->n != c.n_left || r->n != c.n_right)
            continue;
        l->id = c.id;
        l->n += r->n;
        l->next = r->next;
        if (r->next >= 0)
            space->symbols[r->next].previous = c.left;
        r->n = 0;
        ASSAY_TRY(consider(space, l->previous, c.left, rule, context));
        ASSAY_TRY(consider(space, c.left, l->next, rule, context));
    }
    return ASSAY_OK;
}
