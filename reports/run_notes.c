#include "reports/run_notes.h"

assay_status assay_result_add_run_notes(assay_result *result, const assay_run *run)
{
    for (int i = 0; i < assay_run_n_notes(run); i++)
        ASSAY_TRY(assay_strings_add_once(&result->notes, assay_run_note_at(run, i)));
    return ASSAY_OK;
}
