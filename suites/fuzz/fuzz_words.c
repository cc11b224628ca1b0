/* What stands on the command line and in the names of a dump: selectors, plants, names of points.
 */
#include "probes/capture.h"
#include "probes/selector.h"
#include "references/names.h"
#include "reports/fault.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void names_of_points(const char *text)
{
    assay_point point;
    int layer, hand_over, rank;
    bool partial;
    if (assay_capture_name_parse(&point, &layer, &partial, &hand_over, &rank, text) == ASSAY_OK) {
        char base[ASSAY_POINT_NAME_BYTES], again[256];
        assay_point_format(base, point, layer);
        assay_capture_name(again, sizeof again, base, partial, hand_over, rank);
    }
    if (assay_point_parse(&point, &layer, &partial, text) == ASSAY_OK &&
        (point < 0 || point >= ASSAY_POINT_COUNT))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1);
    if (!text)
        return 0;
    memcpy(text, bytes, n);
    text[n] = 0;
    assay_selector *selector;
    if (assay_selector_new(&selector, text) == ASSAY_OK) {
        for (int p = 0; p < ASSAY_POINT_COUNT; p++)
            assay_selector_has(selector, (assay_point)p, p % 5 - 1, p % 3);
        assay_selector_free(selector);
    }
    assay_plant plant;
    if (assay_plant_parse(&plant, text) == ASSAY_OK && !assay_fault_kind_find(plant.kind, NULL))
        __builtin_trap();
    names_of_points(text);
    free(text);
    return 0;
}
