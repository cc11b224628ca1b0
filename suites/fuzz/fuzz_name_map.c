/* A user's name map, and its rows on a few names. */
#include "references/name_map.h"
#include "suites/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char *const names[] = {"", "decoder.3.attn.query", "decoder.99999999999.attn.query",
                                    "model.layers.0.mlp", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("map.yaml", bytes, n);
    assay_name_map *map;
    if (!path || assay_name_map_open(&map, path) != ASSAY_OK)
        return 0;
    for (int i = 0; i < assay_name_map_count(map); i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            int layer = -2;
            const assay_name_row *row;
            if (assay_name_map_match(&row, &layer, map, i, names[k]) != ASSAY_OK || layer < -1)
                __builtin_trap();
        }
    assay_name_map_close(map);
    return 0;
}
