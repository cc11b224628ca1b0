#include "suites/audit.h"

#include <math.h>
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
    *f = (assay_audit_finding){.kind = kind,
                               .layer = layer_of(tensor),
                               .rank = -1,
                               .row = row,
                               .n = n,
                               .confidence = confidence};
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

/* "blk.3.attn_q_a.weight" and "blk.5.attn_q_a.weight" are namesakes: one cause, one finding. */
static const char *namesake(const char *tensor)
{
    int layer, n = 0;
    return sscanf(tensor, "blk.%d.%n", &layer, &n) == 1 && n > 0 ? tensor + n : tensor;
}

static bool belong_together(const assay_audit_finding *a, const assay_audit_finding *b)
{
    return a->kind == b->kind && strcmp(namesake(a->tensor), namesake(b->tensor)) == 0;
}

/* The first of a group as it is; the others add their place and count. */
static assay_status start(assay_finding *out, const assay_audit_finding *f, const char *reproduce)
{
    ASSAY_TRY(copy(&out->fault_class, kinds[f->kind].fault_class));
    ASSAY_TRY(copy(&out->kind, kinds[f->kind].kind));
    ASSAY_TRY(copy(&out->point, f->tensor));
    ASSAY_TRY(copy(&out->advice, kinds[f->kind].advice));
    ASSAY_TRY(copy(&out->reproduce, reproduce));
    if (f->row >= 0)
        json_object_set_new(out->fitted, "first_row", json_integer(f->row));
    out->confidence = f->confidence;
    out->explained = NAN; /* no error of an op */
    return ASSAY_OK;
}

static assay_status finish(assay_finding *out, const assay_audit_finding *f, int n_more,
                           int64_t count)
{
    char text[512];
    snprintf(text, sizeof text, "%s", f->text);
    if (n_more > 0)
        snprintf(text, sizeof text, "%s; the same in %d more %s%s", f->text, n_more,
                 f->rank >= 0 ? "place" : "layer", n_more == 1 ? "" : "s");
    json_object_set_new(out->fitted, "count", json_integer(count));
    return copy(&out->sentence, text);
}

/* Finding i and all later ones that belong to it; nothing where an earlier one has it. */
static assay_status gather(assay_finding *out, bool *is_first, const assay_audit *audit, int i,
                           const char *reproduce)
{
    const assay_audit_finding *f = &audit->findings[i];
    int64_t count = 0;
    int n = 0;
    *is_first = true;
    for (int k = 0; k < i && *is_first; k++)
        *is_first = !belong_together(&audit->findings[k], f);
    if (!*is_first)
        return ASSAY_OK;
    ASSAY_TRY(start(out, f, reproduce));
    for (int k = i; k < audit->n_findings; k++) {
        const assay_audit_finding *other = &audit->findings[k];
        if (!belong_together(other, f))
            continue;
        ASSAY_TRY(assay_strings_add(&out->points, "%s", other->tensor));
        if (other->layer >= 0)
            ASSAY_TRY(assay_numbers_add(&out->layers, other->layer));
        if (other->rank >= 0)
            ASSAY_TRY(assay_numbers_add(&out->ranks, other->rank));
        if (n++ > 0)
            ASSAY_TRY(assay_strings_add(&out->evidence, "%s", other->text));
        count += other->n;
    }
    return finish(out, f, n - 1, count);
}

assay_status assay_audit_report(assay_result *result, const assay_audit *audit,
                                const char *reproduce)
{
    for (int i = 0; i < audit->n_findings; i++) {
        assay_finding finding;
        bool is_first;
        assay_finding_init(&finding);
        assay_status s = gather(&finding, &is_first, audit, i, reproduce);
        if (s == ASSAY_OK && is_first)
            s = assay_result_add_finding(result, &finding);
        assay_finding_clear(&finding);
        ASSAY_TRY(s);
    }
    for (int i = 0; i < audit->notes.n; i++)
        ASSAY_TRY(assay_strings_add(&result->notes, "%s", audit->notes.items[i]));
    return ASSAY_OK;
}
