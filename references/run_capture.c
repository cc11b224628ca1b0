#include "references/run_private.h"

assay_status assay_run_open_capture(assay_run *run, const assay_run_options *options)
{
    (void)options;
    return assay_fail(ASSAY_UNSUPPORTED, "'%s': captures of format 1 cannot be read yet",
                      run->info.path);
}
