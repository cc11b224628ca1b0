/*
 * Where test data lies. The shipped files are in suites/data; the larger set is in the folder that
 * ASSAY_DATA names, or
 * ../shared/data beside the repository.
 */
#ifndef ASSAY_SUITES_TESTS_DATA_H
#define ASSAY_SUITES_TESTS_DATA_H

#include <stdbool.h>

/* Path of a shipped file ("glm5-tiny-Q4_K_M.gguf"); one of a few static buffers, not for long. */
const char *data_shipped(const char *name);
/* Path of a file of the larger set ("models/llama-tiny-bf16.gguf"); NULL when the set is not here.
 */
const char *data_large(const char *name);
/* An empty folder of this process, removed at exit; path of `name` in it. */
const char *data_scratch(const char *name);

#endif
