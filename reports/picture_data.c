#include "reports/picture_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/point.h"

enum { LARGEST_SIDE = 4096 };

double assay_picture_number(const json_t *json)
{
    const char *text = json_string_value(json);
    if (json_is_number(json))
        return json_number_value(json);
    if (text && !strcmp(text, "Infinity"))
        return INFINITY;
    if (text && !strcmp(text, "-Infinity"))
        return -INFINITY;
    return NAN;
}

const char *assay_picture_text(const json_t *object, const char *member, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text ? text : otherwise;
}

const json_t *assay_picture_list(const assay_result *result, const char *member)
{
    const json_t *list = json_object_get(json_object_get(result->extra, "series"), member);
    return json_is_array(list) && json_array_size(list) ? list : NULL;
}

assay_status assay_grid_new(assay_grid *grid, int n_x, int n_y)
{
    *grid = (assay_grid){.n_x = n_x, .n_y = n_y};
    if (n_x < 1 || n_y < 1 || n_x > LARGEST_SIDE || n_y > LARGEST_SIDE)
        return assay_fail(ASSAY_BAD_FILE, "a map of %d x %d values", n_x, n_y);
    ASSAY_TRY(assay_alloc(&grid->values, (size_t)n_x * (size_t)n_y, sizeof *grid->values, "map"));
    for (int i = 0; i < n_x * n_y; i++)
        grid->values[i] = NAN;
    return ASSAY_OK;
}

static void free_labels(char **labels, int n)
{
    for (int i = 0; labels && i < n; i++)
        free(labels[i]);
    free(labels);
}

void assay_grid_clear(assay_grid *grid)
{
    free(grid->values);
    free_labels(grid->x_labels, grid->n_x);
    free_labels(grid->y_labels, grid->n_y);
    *grid = (assay_grid){0};
}

static assay_status read_labels(char ***out, const json_t *array, int n)
{
    if (!json_is_array(array) || (int)json_array_size(array) != n)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(out, (size_t)n, sizeof **out, "labels"));
    for (int i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(array, (size_t)i));
        (*out)[i] = strdup(text ? text : "");
        if (!(*out)[i])
            return assay_fail(ASSAY_NO_MEMORY, "labels: no memory");
    }
    return ASSAY_OK;
}

assay_status assay_grid_from(assay_grid *grid, const json_t *entry)
{
    const json_t *rows = json_object_get(entry, "values"), *row;
    size_t y, n_x = json_array_size(json_array_get(rows, 0)), n_y = json_array_size(rows);
    if (n_x > LARGEST_SIDE || n_y > LARGEST_SIDE)
        return assay_fail(ASSAY_BAD_FILE, "a map of %zu x %zu values", n_x, n_y);
    assay_status s = assay_grid_new(grid, (int)n_x, (int)n_y);
    json_array_foreach(rows, y, row)
    {
        if (s == ASSAY_OK && json_array_size(row) != n_x)
            s = assay_fail(ASSAY_BAD_FILE, "a map with rows of unequal length");
        for (size_t x = 0; s == ASSAY_OK && x < n_x; x++)
            grid->values[y * n_x + x] = assay_picture_number(json_array_get(row, x));
    }
    if (s == ASSAY_OK)
        s = read_labels(&grid->x_labels, json_object_get(entry, "x_labels"), grid->n_x);
    if (s == ASSAY_OK)
        s = read_labels(&grid->y_labels, json_object_get(entry, "y_labels"), grid->n_y);
    if (s != ASSAY_OK)
        assay_grid_clear(grid);
    return s;
}

static int row_of(char **names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

/* Place of a point of a layer in the forward pass; a name that is none comes last. */
static int place_of(const char *name)
{
    for (int p = 0; p < ASSAY_POINT_COUNT; p++)
        if (assay_point_at((assay_point)p)->per_layer &&
            !strcmp(assay_point_at((assay_point)p)->name, name))
            return p;
    return ASSAY_POINT_COUNT;
}

static int compare_places(const void *a, const void *b)
{
    int x = place_of(*(char *const *)a), y = place_of(*(char *const *)b);
    return x != y ? (x > y) - (x < y) : strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the points of layers in the order of the forward pass; the number of layers. */
static assay_status depth_rows(char ***names, int *n_names, int *n_layers, const json_t *depth)
{
    const json_t *entry;
    size_t i;
    *n_names = *n_layers = 0;
    ASSAY_TRY(assay_alloc(names, json_array_size(depth), sizeof **names, "points"));
    json_array_foreach(depth, i, entry)
    {
        json_int_t layer = json_integer_value(json_object_get(entry, "layer"));
        const char *name = assay_picture_text(entry, "point", "");
        if (layer < 0 || layer >= LARGEST_SIDE)
            continue;
        *n_layers = layer >= *n_layers ? (int)layer + 1 : *n_layers;
        if (row_of(*names, *n_names, name) < 0) {
            (*names)[*n_names] = strdup(name);
            if (!(*names)[(*n_names)++])
                return assay_fail(ASSAY_NO_MEMORY, "points: no memory");
        }
    }
    qsort(*names, (size_t)*n_names, sizeof **names, compare_places);
    return ASSAY_OK;
}

assay_status assay_grid_of_depth(assay_grid *grid, const assay_result *result)
{
    const json_t *depth = assay_picture_list(result, "depth"), *entry;
    char **names = NULL;
    int n_names = 0, n_layers = 0;
    size_t i;
    assay_status s = depth_rows(&names, &n_names, &n_layers, depth);
    if (s == ASSAY_OK)
        s = assay_grid_new(grid, n_layers, n_names);
    if (s != ASSAY_OK) {
        free_labels(names, n_names);
        return s;
    }
    grid->y_labels = names;
    json_array_foreach(depth, i, entry)
    {
        json_int_t layer = json_integer_value(json_object_get(entry, "layer"));
        int y = row_of(names, n_names, assay_picture_text(entry, "point", ""));
        double added = assay_picture_number(json_object_get(entry, "added")),
               floor_here = assay_picture_number(json_object_get(entry, "floor"));
        if (layer < 0 || layer >= n_layers || y < 0)
            continue;
        double *cell = &grid->values[y * n_layers + layer];
        double ratio = isnan(added) ? INFINITY : added / fmax(floor_here, 1e-12);
        double value = log10(fmax(ratio, 1e-3));
        *cell = isnan(*cell) || value > *cell ? value : *cell;
    }
    return ASSAY_OK;
}

/* Adds a name that is not yet there. */
static assay_status add_name(char **names, int *n, const char *name)
{
    if (row_of(names, *n, name) >= 0)
        return ASSAY_OK;
    names[*n] = strdup(name);
    if (!names[*n])
        return assay_fail(ASSAY_NO_MEMORY, "classes: no memory");
    ++*n;
    return ASSAY_OK;
}

/* Planted classes first, in their order, so that the diagonal is what was found right; then what
 * was found but never planted. */
static assay_status confusion_names(char **rows, int *n_rows, char **columns, int *n_columns,
                                    json_t *confusion)
{
    const char *planted, *found;
    json_t *counts, *count;
    json_object_foreach(confusion, planted, counts)
    {
        ASSAY_TRY(add_name(rows, n_rows, planted));
        ASSAY_TRY(add_name(columns, n_columns, planted));
    }
    json_object_foreach(confusion, planted, counts)
    {
        json_object_foreach(counts, found, count)
        {
            if (*n_columns < LARGEST_SIDE)
                ASSAY_TRY(add_name(columns, n_columns, found));
        }
    }
    return ASSAY_OK;
}

assay_status assay_grid_of_confusion(assay_grid *grid, const assay_result *result)
{
    json_t *confusion = json_object_get(result->extra, "confusion");
    char **rows = NULL, **columns = NULL;
    int n_rows = 0, n_columns = 0;
    if (!json_object_size(confusion) || json_object_size(confusion) > LARGEST_SIDE)
        return assay_fail(ASSAY_MISSING, "the result has no confusion matrix");
    assay_status s = assay_alloc(&rows, LARGEST_SIDE, sizeof *rows, "classes");
    if (s == ASSAY_OK)
        s = assay_alloc(&columns, LARGEST_SIDE, sizeof *columns, "classes");
    if (s == ASSAY_OK)
        s = confusion_names(rows, &n_rows, columns, &n_columns, confusion);
    if (s == ASSAY_OK)
        s = assay_grid_new(grid, n_columns, n_rows);
    if (s != ASSAY_OK) {
        free_labels(rows, n_rows);
        free_labels(columns, n_columns);
        return s;
    }
    grid->x_labels = columns;
    grid->y_labels = rows;
    for (int y = 0; y < n_rows; y++)
        for (int x = 0; x < n_columns; x++)
            grid->values[y * n_columns + x] = (double)json_integer_value(
                json_object_get(json_object_get(confusion, rows[y]), columns[x]));
    return ASSAY_OK;
}

int assay_grid_largest(const assay_grid *grid)
{
    int best = -1;
    for (int i = 0; i < grid->n_x * grid->n_y; i++)
        if (!isnan(grid->values[i]) && (best < 0 || grid->values[i] > grid->values[best]))
            best = i;
    return best;
}
