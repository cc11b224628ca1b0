#include "suites/audit_shards.h"
#include "suites/check.h"

#define MAX_DETAILS 20

static assay_status judge(assay_check_row *row, const assay_audit *audit, int n_ranks)
{
    for (int i = 0; i < audit->notes.n; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", audit->notes.items[i]));
    for (int i = 0; i < audit->n_findings && i < MAX_DETAILS; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", audit->findings[i].text));
    if (audit->n_findings > 0)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%d finding%s: %s", audit->n_findings,
                               audit->n_findings == 1 ? "" : "s", audit->findings[0].text);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld tensors over %d ranks: no block cut, every row owned once",
                           (long long)audit->n_tensors, n_ranks);
}

assay_status assay_check_shards(assay_check_row *row, assay_check_context *context)
{
    int n_ranks = context->options->n_ranks;
    assay_audit audit = {0};
    if (n_ranks < 2)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "one rank (--ranks N)");
    assay_status s = assay_audit_shards(&audit, context->file, n_ranks);
    if (s == ASSAY_OK)
        s = assay_audit_report(context->result, &audit, context->options->reproduce);
    if (s == ASSAY_OK)
        s = judge(row, &audit, n_ranks);
    assay_audit_clear(&audit);
    return s;
}
