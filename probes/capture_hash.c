/*
 * SHA-256 of every value of a reference, over the bytes as they are stored (row-major, the
 * dataset's own number type), in the attribute sha256 of the dataset.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture_private.h"

assay_status assay_sha256_hex(char out[65], const void *bytes, size_t n)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_Digest(bytes, n, digest, &length, EVP_sha256(), NULL) != 1 || length != 32)
        return assay_fail(ASSAY_NO_MEMORY, "SHA-256 failed");
    for (unsigned i = 0; i < length; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return ASSAY_OK;
}

/* The bytes of a dataset as they are stored; *size: of an element. Free *out. */
static assay_status read_bytes(void **out, size_t *n, size_t *size, hid_t file, const char *path)
{
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    if (set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", path);
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    *size = H5Tget_size(type);
    *n = (size_t)H5Sget_simple_extent_npoints(space);
    assay_status s = assay_alloc(out, *n, *size, path);
    if (s == ASSAY_OK && *n > 0 && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) < 0)
        s = assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", path);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
    return s;
}

assay_status assay_h5_sha256(char out[65], hid_t file, const char *path)
{
    void *bytes = NULL;
    size_t n, size;
    assay_status s = read_bytes(&bytes, &n, &size, file, path);
    if (s == ASSAY_OK)
        s = assay_sha256_hex(out, bytes, n * size);
    free(bytes);
    return s;
}

assay_status assay_h5_checksum(uint64_t *out, hid_t file, const char *path, assay_checksum_fn *sum)
{
    void *bytes = NULL;
    size_t n, size;
    assay_status s = read_bytes(&bytes, &n, &size, file, path);
    if (s == ASSAY_OK && size > sizeof(uint64_t))
        s = assay_fail(ASSAY_BAD_FILE, "'%s': elements of %zu bytes have no checksum", path, size);
    if (s == ASSAY_OK)
        *out = sum(bytes, size, (int64_t)n);
    free(bytes);
    return s;
}

static assay_status hash_step(hid_t file, const char *group)
{
    assay_h5_names names;
    ASSAY_TRY(assay_h5_list(&names, file, group));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < names.n && s == ASSAY_OK; i++) {
        char path[2 * ASSAY_CAPTURE_PATH], text[65];
        snprintf(path, sizeof path, "%.500s/%.500s", group, names.items[i]);
        s = assay_h5_sha256(text, file, path);
        if (s == ASSAY_OK)
            s = assay_h5_put_text(file, path, "sha256", text);
    }
    assay_h5_names_clear(&names);
    return s;
}

assay_status assay_capture_hash_all(hid_t file)
{
    assay_h5_names prompts, steps;
    ASSAY_TRY(assay_h5_list(&prompts, file, "/prompts"));
    assay_status s = ASSAY_OK;
    for (int p = 0; p < prompts.n && s == ASSAY_OK; p++) {
        char group[ASSAY_CAPTURE_PATH], step[ASSAY_CAPTURE_PATH + 64];
        snprintf(group, sizeof group, "/prompts/%.400s/steps", prompts.items[p]);
        s = assay_h5_list(&steps, file, group);
        if (s != ASSAY_OK)
            break;
        for (int i = 0; i < steps.n && s == ASSAY_OK; i++) {
            snprintf(step, sizeof step, "%s/%.32s", group, steps.items[i]);
            s = hash_step(file, step);
        }
        assay_h5_names_clear(&steps);
    }
    assay_h5_names_clear(&prompts);
    return s;
}
