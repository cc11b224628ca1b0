#include "reports/series.h"

#include <math.h>

#include "reports/text.h"

static json_t *number(double x)
{
    if (isnan(x))
        return json_string("NaN");
    if (isinf(x))
        return json_string(x > 0 ? "Infinity" : "-Infinity");
    return json_real(x);
}

static json_t *numbers(const double *values, int64_t n)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(array, number(values[i]));
    return array;
}

static json_t *texts(const char *const *labels, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, assay_text_json(labels[i]));
    return array;
}

/* Puts an entry behind extra.series.<member>; takes the entry over. */
static assay_status append(assay_result *result, const char *member, json_t *entry)
{
    json_t *series = json_object_get(result->extra, "series");
    if (!series) {
        series = json_object();
        json_object_set_new(result->extra, "series", series);
    }
    json_t *list = json_object_get(series, member);
    if (!list) {
        list = json_array();
        json_object_set_new(series, member, list);
    }
    if (json_array_append_new(list, entry))
        return assay_fail(ASSAY_NO_MEMORY, "series '%s': no memory", member);
    return ASSAY_OK;
}

assay_status assay_series_depth(assay_result *result, const char *prompt, int step,
                                const char *point, int layer, double added, double inherited,
                                double floor, bool is_home)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "prompt", assay_text_json(prompt));
    json_object_set_new(entry, "step", json_integer(step));
    json_object_set_new(entry, "point", assay_text_json(point));
    json_object_set_new(entry, "layer", json_integer(layer));
    json_object_set_new(entry, "added", number(added));
    json_object_set_new(entry, "inherited", isnan(inherited) ? json_null() : number(inherited));
    json_object_set_new(entry, "floor", number(floor));
    json_object_set_new(entry, "home", json_boolean(is_home));
    return append(result, "depth", entry);
}

assay_status assay_series_add_map(assay_result *result, const assay_series_map *map)
{
    json_t *entry = json_object(), *rows = json_array();
    json_object_set_new(entry, "title", assay_text_json(map->title));
    if (map->finding >= 0)
        json_object_set_new(entry, "finding", json_integer(map->finding));
    json_object_set_new(entry, "x", assay_text_json(map->x));
    json_object_set_new(entry, "y", assay_text_json(map->y));
    if (map->unit)
        json_object_set_new(entry, "unit", assay_text_json(map->unit));
    if (map->x_labels)
        json_object_set_new(entry, "x_labels", texts(map->x_labels, map->n_x));
    if (map->y_labels)
        json_object_set_new(entry, "y_labels", texts(map->y_labels, map->n_y));
    for (int y = 0; y < map->n_y; y++)
        json_array_append_new(rows, numbers(map->values + (int64_t)y * map->n_x, map->n_x));
    json_object_set_new(entry, "values", rows);
    return append(result, "maps", entry);
}

assay_status assay_series_scatter(assay_result *result, const char *title, int finding,
                                  const double *expected, const double *got, int64_t n)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "title", assay_text_json(title));
    if (finding >= 0)
        json_object_set_new(entry, "finding", json_integer(finding));
    json_object_set_new(entry, "expected", numbers(expected, n));
    json_object_set_new(entry, "got", numbers(got, n));
    return append(result, "scatters", entry);
}

assay_status assay_series_bars(assay_result *result, const char *title, const char *x,
                               const char *y, const char *const *labels, const double *values,
                               int n)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "title", assay_text_json(title));
    json_object_set_new(entry, "x", assay_text_json(x));
    json_object_set_new(entry, "y", assay_text_json(y));
    if (labels)
        json_object_set_new(entry, "labels", texts(labels, n));
    json_object_set_new(entry, "values", numbers(values, n));
    return append(result, "bars", entry);
}
