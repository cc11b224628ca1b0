/*
 * Shards: {"metadata": {...}, "weight_map": {"tensor": "model-00001-of-00002.safetensors", ...}}
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/safetensors_file.h"

assay_status safetensors_open_files(assay_safetensors *set, const char *const *paths, int n)
{
    ASSAY_TRY(assay_alloc(&set->files, (size_t)n, sizeof *set->files, "files of a checkpoint"));
    for (int f = 0; f < n; f++) {
        ASSAY_TRY(safetensors_file_open(&set->files[f], paths[f]));
        set->n_files = f + 1;
    }
    return ASSAY_OK;
}

static assay_status load(assay_safetensors *set, const char *path)
{
    json_error_t error;
    set->index_path = strdup(path);
    if (!set->index_path)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    set->index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!set->index)
        return safetensors_refuse(path, SAFETENSORS_RULE_INDEX, "line %d column %d: %s", error.line,
                                  error.column, error.text);
    const json_t *map = json_object_get(set->index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return safetensors_refuse(path, SAFETENSORS_RULE_INDEX,
                                  "no object 'weight_map' with tensors in it");
    return ASSAY_OK;
}

/* A plain name in the index's own folder. */
static bool is_plain(const char *name)
{
    return name[0] != '\0' && !strchr(name, '/') && strcmp(name, "..") != 0 &&
           strcmp(name, ".") != 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names of the index, sorted; *n of them. names: room for every entry. */
static assay_status list_files(const char **names, size_t *n, const assay_safetensors *set)
{
    const char *tensor;
    json_t *value;
    size_t all = 0;
    *n = 0;
    json_object_foreach(json_object_get(set->index, "weight_map"), tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name)
            return safetensors_refuse(set->index_path, SAFETENSORS_RULE_INDEX,
                                      "tensor '%s' is in no file, expected a file name", tensor);
        if (!is_plain(name))
            return safetensors_refuse(set->index_path, SAFETENSORS_RULE_INDEX_PATH,
                                      "tensor '%s' is in '%s', expected a name in this folder",
                                      tensor, name);
        names[all++] = name;
    }
    qsort(names, all, sizeof *names, by_text);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || strcmp(names[i], names[*n - 1]) != 0)
            names[(*n)++] = names[i];
    return ASSAY_OK;
}

static assay_status open_one(assay_safetensors *set, const char *name)
{
    const char *slash = strrchr(set->index_path, '/');
    char *path = NULL;
    int folder = slash ? (int)(slash - set->index_path + 1) : 0;
    if (asprintf(&path, "%.*s%s", folder, set->index_path, name) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path of '%s'", name);
    assay_status s = safetensors_file_open(&set->files[set->n_files], path);
    if (s == ASSAY_IO)
        s = safetensors_refuse(set->index_path, SAFETENSORS_RULE_INDEX_FILE,
                               "file '%s' is not readable", name);
    free(path);
    set->n_files += s == ASSAY_OK;
    return s;
}

assay_status safetensors_open_index(assay_safetensors *set, const char *path)
{
    const char **names = NULL;
    size_t n = 0;
    assay_status s;
    ASSAY_TRY(load(set, path));
    size_t entries = json_object_size(json_object_get(set->index, "weight_map"));
    ASSAY_TRY(assay_alloc(&names, entries, sizeof *names, "files of the index"));
    ASSAY_GO(list_files(names, &n, set));
    ASSAY_GO(assay_alloc(&set->files, n, sizeof *set->files, "files of the index"));
    for (size_t i = 0; i < n; i++)
        ASSAY_GO(open_one(set, names[i]));
out:
    free(names);
    return s;
}

assay_status safetensors_check_index(const assay_safetensors *set)
{
    const char *name;
    json_t *value;
    if (!set->index)
        return ASSAY_OK;
    json_object_foreach(json_object_get(set->index, "weight_map"), name, value)
    {
        const assay_safetensor *t = assay_safetensors_find(set, name);
        const char *file = json_string_value(value);
        const char *path = t ? set->files[t->file].path : "";
        const char *slash = strrchr(path, '/');
        if (!t || strcmp(slash ? slash + 1 : path, file) != 0)
            return safetensors_refuse(set->index_path, SAFETENSORS_RULE_INDEX_TENSOR,
                                      "tensor '%s' is not in '%s'", name, file);
    }
    return ASSAY_OK;
}
