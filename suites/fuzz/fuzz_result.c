/* A result of a stranger: read back and rendered in every form. */
#include "reports/render.h"
#include "suites/fuzz/scratch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("result.json", bytes, n);
    assay_result result;
    if (!path || assay_result_from_json(&result, path) != ASSAY_OK)
        return 0;
    for (int i = 0; i < assay_renderer_count(); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        if (!out)
            abort();
        assay_render_options options = {.width = (int)(n % 200)};
        assay_renderer_at(i)->render(out, &result, &options);
        fclose(out);
        if (!strcmp(assay_renderer_at(i)->name, "html") && strstr(text, "<script>alert"))
            __builtin_trap();
        free(text);
    }
    assay_result_clear(&result);
    return 0;
}
