#include "probes/recorder.h"

#include <stdlib.h>
#include <string.h>

#define X(id, name, fn, about) assay_record_fn fn;
#include "probes/recorder.def"
#undef X

static const assay_recorder table[] = {
#define X(id, name, fn, about) {name, about, fn},
#include "probes/recorder.def"
#undef X
};

int assay_recorder_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_recorder *assay_recorder_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_recorder_count());
    return &table[index];
}

const assay_recorder *assay_recorder_find(const char *name)
{
    for (int i = 0; i < assay_recorder_count(); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

assay_status assay_record(assay_recorded *out, const assay_recorder *recorder,
                          const assay_buffer *values)
{
    ASSAY_BUG_IF(values->place != ASSAY_PLACE_HOST || !assay_buffer_is_dense(values));
    assay_recorded kept = {.n_dims = values->n_dims};
    memcpy(kept.dims, values->dims, sizeof kept.dims);
    assay_stats_of(&kept.stats, values);
    assay_status s = recorder->record(&kept, values);
    if (s != ASSAY_OK) {
        assay_recorded_clear(&kept);
        return s;
    }
    *out = kept;
    return ASSAY_OK;
}

void assay_recorded_clear(assay_recorded *recorded)
{
    free(recorded->rows);
    free(recorded->owned);
    free(recorded->sketch);
    *recorded = (assay_recorded){.n_dims = 0};
}
