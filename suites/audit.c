#include "suites/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *kind, *fault_class, *advice;
} kinds[ASSAY_AUDIT_KIND_COUNT] = {
#define X(id, kind, fault_class, advice) {kind, fault_class, advice},
#include "suites/audit.def"
#undef X
};

const char *assay_audit_kind_name(assay_audit_kind kind)
{
    ASSAY_BUG_IF((unsigned)kind >= ASSAY_AUDIT_KIND_COUNT);
    return kinds[kind].kind;
}

void assay_audit_clear(assay_audit *audit)
{
    free(audit->findings);
    assay_strings_clear(&audit->notes);
    *audit = (assay_audit){0};
}

static int layer_of(const char *tensor)
{
    int layer = -1;
    return sscanf(tensor, "blk.%d.", &layer) == 1 ? layer : -1;
}

assay_status assay_audit_add(assay_audit *audit, assay_audit_kind kind, const char *tensor,
                             int64_t row, int64_t n, double confidence, const char *format, ...)
{
    if (audit->n_findings == audit->n_room) {
        int room = 2 * audit->n_room + 16;
        void *wider = reallocarray(audit->findings, (size_t)room, sizeof *audit->findings);
        if (!wider)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for %d findings", room);
        audit->findings = wider;
        audit->n_room = room;
    }
    assay_audit_finding *f = &audit->findings[audit->n_findings++];
    *f = (assay_audit_finding){
        .kind = kind, .layer = layer_of(tensor), .row = row, .n = n, .confidence = confidence};
    snprintf(f->tensor, sizeof f->tensor, "%s", tensor);
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return ASSAY_OK;
}

static assay_status copy(char **out, const char *text)
{
    free(*out);
    *out = text ? strdup(text) : NULL;
    return text && !*out ? assay_fail(ASSAY_NO_MEMORY, "no memory for a finding") : ASSAY_OK;
}

static assay_status fill(assay_finding *out, const assay_audit_finding *f, const char *reproduce)
{
    ASSAY_TRY(copy(&out->fault_class, kinds[f->kind].fault_class));
    ASSAY_TRY(copy(&out->kind, kinds[f->kind].kind));
    ASSAY_TRY(copy(&out->point, f->tensor));
    ASSAY_TRY(copy(&out->sentence, f->text));
    ASSAY_TRY(copy(&out->advice, kinds[f->kind].advice));
    ASSAY_TRY(copy(&out->reproduce, reproduce));
    ASSAY_TRY(assay_strings_add(&out->points, "%s", f->tensor));
    if (f->layer >= 0)
        ASSAY_TRY(assay_numbers_add(&out->layers, f->layer));
    if (f->row >= 0) {
        out->has_first_bad = true;
        out->first_bad[0] = f->row;
        out->n_first_bad = 1;
        json_object_set_new(out->fitted, "first_row", json_integer(f->row));
    }
    json_object_set_new(out->fitted, "count", json_integer(f->n));
    out->confidence = f->confidence;
    out->explained = 1;
    return ASSAY_OK;
}

assay_status assay_audit_report(assay_result *result, const assay_audit *audit,
                                const char *reproduce)
{
    for (int i = 0; i < audit->n_findings; i++) {
        assay_finding finding;
        assay_finding_init(&finding);
        assay_status s = fill(&finding, &audit->findings[i], reproduce);
        if (s == ASSAY_OK)
            s = assay_result_add_finding(result, &finding);
        assay_finding_clear(&finding);
        ASSAY_TRY(s);
    }
    for (int i = 0; i < audit->notes.n; i++)
        ASSAY_TRY(assay_strings_add(&result->notes, "%s", audit->notes.items[i]));
    return ASSAY_OK;
}
