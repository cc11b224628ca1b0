/* A capture or dump of a stranger: opened, every small value read, the self-check run. */
#include "references/run.h"
#include "suites/fuzz/scratch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void read_step(const assay_run *run, int prompt, int step)
{
    for (int i = 0; i < assay_run_n_seen(run, prompt, step); i++) {
        const assay_seen *seen = assay_run_seen_at(run, prompt, step, i);
        int64_t n = assay_seen_count(seen);
        if (n > 1 << 16)
            continue;
        double *x = calloc((size_t)n + 1, sizeof *x);
        if (x)
            assay_run_read(x, run, seen);
        free(x);
    }
}

static assay_status no_line(void *user, const char *text)
{
    (void)user, (void)text;
    return ASSAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("run.h5", bytes, n);
    assay_run *run;
    if (!path || assay_run_open(&run, &path, 1, NULL) != ASSAY_OK)
        return 0;
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int s = 0; s < assay_run_prompt_at(run, p)->n_steps; s++)
            read_step(run, p, s);
    assay_run_selfcheck(run, no_line, NULL);
    assay_run_close(run);
    return 0;
}

/* libhdf5 1.10.8 forgets a few bytes when it refuses a damaged file, and copies a few bytes from
 * behind damaged object headers (probes/README.md): findings of its own, told apart from ours. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

const char *__asan_default_suppressions(void);
const char *__asan_default_suppressions(void)
{
    return "interceptor_via_lib:libhdf5";
}
