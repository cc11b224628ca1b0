/* The result as one JSON object, then a line end. */
#include "reports/render.h"

assay_render_fn assay_render_json;

assay_status assay_render_json(FILE *out, const assay_result *result,
                               const assay_render_options *options)
{
    (void)options;
    json_t *json = assay_result_to_json(result);
    int bad = json_dumpf(json, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(json);
    if (bad || fputc('\n', out) == EOF)
        return assay_fail(ASSAY_IO, "cannot write the result as JSON");
    return ASSAY_OK;
}
