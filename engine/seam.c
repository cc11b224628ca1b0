#include "engine/seam.h"

static const struct {
    const char *name, *meaning;
} table[ASSAY_SEAM_COUNT] = {
#define X(id, name, meaning) {name, meaning},
#include "engine/seam.def"
#undef X
};

const char *assay_seam_name(assay_seam seam)
{
    ASSAY_BUG_IF((unsigned)seam >= ASSAY_SEAM_COUNT);
    return table[seam].name;
}

const char *assay_seam_meaning(assay_seam seam)
{
    ASSAY_BUG_IF((unsigned)seam >= ASSAY_SEAM_COUNT);
    return table[seam].meaning;
}

static bool fits(int selector, int place)
{
    return selector < 0 || selector == place;
}

const assay_seam_setting *assay_seam_at(const assay_seams *seams, assay_seam seam,
                                        assay_seam_place place)
{
    for (int i = 0; seams && i < seams->n; i++) {
        const assay_seam_setting *s = &seams->settings[i];
        if (s->seam == seam && fits(s->layer, place.layer) && fits(s->head, place.head) &&
            fits(s->rank, place.rank) && fits(s->step, place.step) &&
            fits(s->sequence, place.sequence))
            return s;
    }
    return NULL;
}

double assay_seam_value(const assay_seams *seams, assay_seam seam, assay_seam_place place,
                        double right)
{
    const assay_seam_setting *s = assay_seam_at(seams, seam, place);
    return s ? s->value : right;
}
