/*
 * What a result says of its model: path, name, architecture, files, bytes, tensors, SHA-256.
 */
#ifndef ASSAY_SUITES_DESCRIBE_MODEL_H
#define ASSAY_SUITES_DESCRIBE_MODEL_H

#include "engine/gguf.h"
#include "reports/finding.h"

/* sha256: of the file set; NULL leaves it out (it costs reading every byte). */
assay_status assay_describe_model(assay_result *result, const assay_gguf *file, const char *sha256);

#endif
