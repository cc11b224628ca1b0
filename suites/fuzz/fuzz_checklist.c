/* A checklist somebody wrote by hand, and the acceptances in it on a result with findings. */
#include "suites/checklist.h"
#include "suites/fuzz/scratch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void accept_one(assay_checklist *list)
{
    assay_result result;
    if (assay_result_init(&result, "check") != ASSAY_OK)
        return;
    assay_finding f;
    assay_finding_init(&f);
    f.fault_class = strdup("BUFFER");
    f.kind = strdup("phantom output");
    f.point = strdup("blk.1.attn.proj");
    f.sentence = strdup("zero");
    assay_result_add_finding(&result, &f);
    assay_finding_clear(&f);
    assay_checklist_accept(&result, list, "2026-11-29");
    assay_result_clear(&result);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("list.yaml", bytes, n);
    assay_checklist *list;
    if (!path || assay_checklist_read(&list, path) != ASSAY_OK)
        return 0;
    accept_one(list);
    assay_checklist_free(list);
    return 0;
}
