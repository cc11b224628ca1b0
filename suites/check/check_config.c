#include "suites/check.h"

assay_status assay_check_config(assay_check_row *row, assay_check_context *context)
{
    assay_hparams h;
    assay_status s = assay_hparams_read(&h, context->file);
    if (s == ASSAY_UNSUPPORTED)
        return s;
    if (s != ASSAY_OK)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%s", assay_error_text());
    for (int i = 0; i < h.n_assumed; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "assumed %s = %s: %s", h.assumed[i].key,
                                    h.assumed[i].value, h.assumed[i].why));
    if (!h.n_assumed)
        return assay_check_say(row, ASSAY_VERDICT_PASS,
                               "%s: every key the architecture needs is there", h.architecture);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%s: %d value%s assumed, not in the file: %s = %s%s", h.architecture,
                           h.n_assumed, h.n_assumed == 1 ? "" : "s", h.assumed[0].key,
                           h.assumed[0].value, h.n_assumed == 1 ? "" : ", ...");
}
