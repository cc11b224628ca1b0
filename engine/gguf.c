/*
 * The set of files as one object: opening, closing, and the look-ups.
 */
#include "engine/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/gguf_file.h"

static int by_tensor_name(const void *a, const void *b)
{
    const assay_gguf_tensor_info *x = *(const assay_gguf_tensor_info *const *)a;
    const assay_gguf_tensor_info *y = *(const assay_gguf_tensor_info *const *)b;
    int order = strcmp(x->name, y->name);
    if (order == 0) /* equal names: earlier file first, so the later one is the one refused */
        order = x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x > y) - (x < y);
    return order;
}

static assay_status index_tensors(assay_gguf *set)
{
    for (int f = 0; f < set->n_files; f++)
        set->n_tensors += set->files[f].n_tensors;
    ASSAY_TRY(assay_alloc(&set->tensors, (size_t)set->n_tensors, sizeof *set->tensors, "tensors"));
    ASSAY_TRY(assay_alloc(&set->tensors_by_name, (size_t)set->n_tensors,
                          sizeof *set->tensors_by_name, "tensor names"));
    int64_t n = 0;
    for (int f = 0; f < set->n_files; f++)
        for (int64_t i = 0; i < set->files[f].n_tensors; i++)
            set->tensors[n++] = &set->files[f].tensors[i];
    if (n > 0)
        memcpy(set->tensors_by_name, set->tensors, (size_t)n * sizeof *set->tensors);
    qsort(set->tensors_by_name, (size_t)n, sizeof *set->tensors_by_name, by_tensor_name);
    for (int64_t i = 1; i < n; i++) {
        const assay_gguf_tensor_info *a = set->tensors_by_name[i - 1];
        const assay_gguf_tensor_info *b = set->tensors_by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return gguf_refuse(&set->files[b->file], GGUF_RULE_TENSOR_DUPLICATE, b->offset,
                               "tensor '%s' is there a second time, first in '%s'; expected once",
                               b->name, set->files[a->file].path);
    }
    return ASSAY_OK;
}

assay_status assay_gguf_open(assay_gguf **out, const char *path)
{
    assay_gguf *set = NULL;
    assay_status s;
    ASSAY_TRY(assay_alloc(&set, 1, sizeof *set, path));
    ASSAY_GO(assay_alloc(&set->files, 1, sizeof *set->files, path));
    ASSAY_GO(gguf_file_open(&set->files[0], path, 0));
    set->n_files = 1;
    ASSAY_GO(gguf_split_open(set));
    ASSAY_GO(index_tensors(set));
    *out = set;
    return ASSAY_OK;
out:
    assay_gguf_close(set);
    return s;
}

void assay_gguf_close(assay_gguf *set)
{
    if (!set)
        return;
    for (int f = 0; f < set->n_files; f++)
        gguf_file_close(&set->files[f]);
    free(set->files);
    free(set->tensors);
    free(set->tensors_by_name);
    free(set);
}

assay_status assay_gguf_call(assay_gguf *set, const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    free(set->files[0].path);
    set->files[0].path = copy;
    return ASSAY_OK;
}

const char *assay_gguf_path(const assay_gguf *set)
{
    return set->files[0].path;
}

uint32_t assay_gguf_version(const assay_gguf *set)
{
    return set->files[0].version;
}

int assay_gguf_n_files(const assay_gguf *set)
{
    return set->n_files;
}

static const gguf_file *file_at(const assay_gguf *set, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= set->n_files);
    return &set->files[index];
}

const char *assay_gguf_file_path(const assay_gguf *set, int index)
{
    return file_at(set, index)->path;
}

uint64_t assay_gguf_file_bytes(const assay_gguf *set, int index)
{
    return file_at(set, index)->n_bytes;
}

uint64_t assay_gguf_data_start(const assay_gguf *set, int index)
{
    return file_at(set, index)->data_start;
}

int64_t assay_gguf_n_keys(const assay_gguf *set)
{
    return set->files[0].n_keys;
}

const assay_gguf_key *assay_gguf_key_at(const assay_gguf *set, int64_t index)
{
    ASSAY_BUG_IF(index < 0 || index >= set->files[0].n_keys);
    return &set->files[0].keys[index];
}

const assay_gguf_key *assay_gguf_find_key(const assay_gguf *set, const char *name)
{
    return gguf_file_find_key(&set->files[0], name);
}

int64_t assay_gguf_n_tensors(const assay_gguf *set)
{
    return set->n_tensors;
}

const assay_gguf_tensor_info *assay_gguf_tensor_at(const assay_gguf *set, int64_t index)
{
    ASSAY_BUG_IF(index < 0 || index >= set->n_tensors);
    return set->tensors[index];
}

const assay_gguf_tensor_info *assay_gguf_find_tensor(const assay_gguf *set, const char *name)
{
    int64_t low = 0, high = set->n_tensors;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        int order = strcmp(set->tensors_by_name[mid]->name, name);
        if (order == 0)
            return set->tensors_by_name[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

void assay_gguf_release(const assay_gguf *set, const assay_gguf_tensor_info *tensor)
{
    (void)set;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)tensor->data + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)tensor->data + tensor->n_bytes) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}
