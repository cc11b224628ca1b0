/*
 * What is in a file, as a JSON object, and the same as text.
 */
#ifndef ASSAY_TOOLS_INSPECT_H
#define ASSAY_TOOLS_INSPECT_H

#include <jansson.h>

#include "tools/options.h"

/* kind "gguf": files, keys, tensors, bytes per type. New reference. */
assay_status assay_inspect_gguf(json_t **out, const char *path);
/* kind "capture": who made it, prompts, steps, points. New reference. */
assay_status assay_inspect_capture(json_t **out, const assay_options *options);
void assay_inspect_print(const json_t *found, bool verbose);

#endif
