#include "suites/diagnose_rate.h"

#include <omp.h>
#include <time.h>

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

assay_status assay_diagnose_rate_measure(assay_diagnose_rate *out, const char *capture,
                                         const char *model)
{
    assay_gguf *file = NULL;
    assay_oracle *oracle = NULL;
    assay_run *run = NULL;
    assay_result result = {0};
    assay_run_options plain = assay_run_options_default();
    double began = omp_get_wtime(), cpu_began = cpu_s();
    assay_status s;
    *out = (assay_diagnose_rate){0};
    assay_diagnose_options how = {
        .is_own = true, .forced = {.last_layer = -1}, .passes = &out->passes, .cost = &out->cost};
    ASSAY_GO(assay_result_init(&result, "bench"));
    ASSAY_GO(assay_gguf_open(&file, model));
    ASSAY_GO(assay_oracle_open(&oracle, file, 0));
    ASSAY_GO(assay_run_open(&run, &capture, 1, &plain));
    how.file = file;
    ASSAY_GO(assay_diagnose(&result, run, oracle, &how));
    out->n_judged = result.n_judged;
    out->n_findings = result.n_findings;
    out->seconds = omp_get_wtime() - began;
    out->cpu_s = cpu_s() - cpu_began;
out:
    assay_run_close(run);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
    assay_result_clear(&result);
    return s;
}
