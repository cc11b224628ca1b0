/*
 * assay inspect: what is in a GGUF file or in a capture. The kind is told by the file's first
 * bytes.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/inspect.h"
#include "tools/options.h"
#include "tools/progress.h"

static const unsigned char hdf5_magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

static assay_status first_bytes(unsigned char out[8], size_t *n, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s': cannot be opened: %s", path, strerror(errno));
    *n = fread(out, 1, 8, file);
    bool broken = ferror(file);
    fclose(file);
    return broken ? assay_fail(ASSAY_IO, "'%s': cannot be read", path) : ASSAY_OK;
}

static assay_status inspect(json_t **out, const assay_options *common)
{
    unsigned char magic[8] = {0};
    size_t n = 0;
    const char *path = common->args[0];
    ASSAY_TRY(first_bytes(magic, &n, path));
    if (n >= 4 && !memcmp(magic, "GGUF", 4))
        return assay_inspect_gguf(out, path);
    if (n == 8 && !memcmp(magic, hdf5_magic, 8))
        return assay_inspect_capture(out, common);
    return assay_fail(
        ASSAY_BAD_FILE,
        "'%s': byte 0: neither GGUF (\"GGUF\") nor HDF5 (\"\\x89HDF\\r\\n\\x1a\\n\"), "
        "found %02x %02x %02x %02x",
        path, magic[0], magic[1], magic[2], magic[3]);
}

int assay_cmd_inspect(int argc, char **argv)
{
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE, .min_args = 1, .max_args = 1};
    json_t *found = NULL;
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_status s = inspect(&found, &common);
    assay_progress_end();
    if (s != ASSAY_OK)
        return assay_end_failed(&common, s);
    if (common.json) {
        json_dumpf(found, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        assay_inspect_print(found, common.verbose);
    }
    json_decref(found);
    return assay_end_printed(&common);
}
