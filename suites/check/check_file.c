#include <stdio.h>

#include "suites/check.h"

assay_status assay_check_file(assay_check_row *row, assay_check_context *context)
{
    const assay_gguf *file = context->file;
    uint64_t bytes = 0;
    if (!file)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%s", assay_error_text());
    for (int i = 0; i < assay_gguf_n_files(file); i++) {
        bytes += assay_gguf_file_bytes(file, i);
        ASSAY_TRY(assay_strings_add(&row->details, "%s: %llu bytes, data from byte %llu",
                                    assay_gguf_file_path(file, i),
                                    (unsigned long long)assay_gguf_file_bytes(file, i),
                                    (unsigned long long)assay_gguf_data_start(file, i)));
    }
    ASSAY_TRY(assay_strings_add(&row->details, "SHA-256 %s",
                                context->sha256[0] ? context->sha256
                                                   : "not taken: a large file and no reference"));
    return assay_check_say(
        row, ASSAY_VERDICT_PASS, "GGUF v%u, %d file%s, %.1f MB, %lld tensors, %lld keys%s%.12s",
        assay_gguf_version(file), assay_gguf_n_files(file),
        assay_gguf_n_files(file) == 1 ? "" : "s", (double)bytes * 1e-6,
        (long long)assay_gguf_n_tensors(file), (long long)assay_gguf_n_keys(file),
        context->sha256[0] ? ", sha256 " : "", context->sha256);
}
