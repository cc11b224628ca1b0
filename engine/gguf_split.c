/*
 * Split sets: <prefix>-00001-of-00003.gguf and its followers.
 *
 * The first file leads: it has split.no 0, split.count and split.tensors.count, and the metadata
 * that counts. A follower needs only split.no. Every file has its own tensor records and data
 * section.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_file.h"

/* A u16 key of the set; *found says whether it is there. */
static assay_status split_u16(uint16_t *out, bool *found, const gguf_file *file, const char *name)
{
    const assay_gguf_key *key = gguf_file_find_key(file, name);
    *found = key != NULL;
    if (!key)
        return ASSAY_OK;
    if (key->type != ASSAY_GGUF_U16)
        return gguf_refuse(file, GGUF_RULE_SPLIT_TYPE, key->offset, "key '%s' is %s, expected u16",
                           name, gguf_type_name(key->type));
    *out = gguf_load_u16(key->value);
    return ASSAY_OK;
}

static assay_status check_position(const gguf_file *file, uint16_t position)
{
    uint16_t no = 0;
    bool found;
    ASSAY_TRY(split_u16(&no, &found, file, "split.no"));
    if (!found)
        return gguf_refuse(file, GGUF_RULE_SPLIT_NO, 0, "key 'split.no' is missing, expected %u",
                           position);
    if (no != position)
        return gguf_refuse(file, GGUF_RULE_SPLIT_NO, gguf_file_find_key(file, "split.no")->offset,
                           "key 'split.no' is %u, expected %u%s", no, position,
                           position == 0 ? ": open the set by its first file" : "");
    return ASSAY_OK;
}

/* A follower may give the count again; then it is the leader's. */
static assay_status check_count(const gguf_file *file, uint16_t count)
{
    uint16_t own = count;
    bool found;
    ASSAY_TRY(split_u16(&own, &found, file, "split.count"));
    if (own != count)
        return gguf_refuse(file, GGUF_RULE_SPLIT_COUNT,
                           gguf_file_find_key(file, "split.count")->offset,
                           "key 'split.count' is %u, expected %u as in the first file", own, count);
    return ASSAY_OK;
}

static assay_status check_tensor_sum(const assay_gguf *set)
{
    const gguf_file *first = &set->files[0];
    int64_t n = 0;
    for (int f = 0; f < set->n_files; f++)
        n += set->files[f].n_tensors;
    const assay_gguf_key *key = gguf_file_find_key(first, "split.tensors.count");
    if (!key)
        return gguf_refuse(first, GGUF_RULE_SPLIT_TENSORS, 0,
                           "key 'split.tensors.count' is missing, expected %lld", (long long)n);
    if (key->type != ASSAY_GGUF_I32)
        return gguf_refuse(first, GGUF_RULE_SPLIT_TYPE, key->offset,
                           "key 'split.tensors.count' is %s, expected i32",
                           gguf_type_name(key->type));
    int32_t given = (int32_t)gguf_load_u32(key->value);
    if (given != n)
        return gguf_refuse(first, GGUF_RULE_SPLIT_TENSORS, key->offset,
                           "key 'split.tensors.count' is %d, but the files hold %lld tensors",
                           given, (long long)n);
    return ASSAY_OK;
}

/* Length of <prefix> in "<prefix>-00001-of-NNNNN.gguf", or a refusal. */
static assay_status prefix_length(size_t *out, const gguf_file *first, uint16_t count)
{
    char tail[32];
    int n = snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", 1, count);
    size_t length = strlen(first->path);
    if (length < (size_t)n || strcmp(first->path + length - (size_t)n, tail) != 0)
        return gguf_refuse(first, GGUF_RULE_SPLIT_NAME, 0,
                           "the first file of a set of %u is named so, expected '<prefix>%s'",
                           count, tail);
    *out = length - (size_t)n;
    return ASSAY_OK;
}

static assay_status open_follower(assay_gguf *set, size_t prefix, uint16_t index, uint16_t count)
{
    const gguf_file *first = &set->files[0];
    char *path = NULL;
    if (asprintf(&path, "%.*s-%05d-of-%05d.gguf", (int)prefix, first->path, index + 1, count) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path of file %u of the set", index);
    assay_status s = gguf_file_open(&set->files[index], path, index);
    if (s == ASSAY_IO)
        s = gguf_refuse(first, GGUF_RULE_SPLIT_FILE,
                        gguf_file_find_key(first, "split.count")->offset,
                        "file %u of %u is not readable, expected '%s'", index + 1, count, path);
    free(path);
    ASSAY_TRY(s);
    set->n_files = index + 1;
    ASSAY_TRY(check_position(&set->files[index], index));
    return check_count(&set->files[index], count);
}

assay_status gguf_split_open(assay_gguf *set)
{
    uint16_t count = 0;
    bool found;
    ASSAY_TRY(split_u16(&count, &found, &set->files[0], "split.count"));
    if (count <= 1)
        return ASSAY_OK;
    size_t prefix = 0;
    ASSAY_TRY(check_position(&set->files[0], 0));
    ASSAY_TRY(prefix_length(&prefix, &set->files[0], count));
    gguf_file *files = NULL;
    ASSAY_TRY(assay_alloc(&files, count, sizeof *files, "files of the set"));
    files[0] = set->files[0];
    free(set->files);
    set->files = files;
    for (uint16_t i = 1; i < count; i++)
        ASSAY_TRY(open_follower(set, prefix, i, count));
    return check_tensor_sum(set);
}
