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

static const assay_seam_setting *find(const assay_seams *seams, assay_seam seam,
                                      assay_seam_place place, bool any, int which)
{
    for (int i = 0; seams && i < seams->n; i++) {
        const assay_seam_setting *s = &seams->settings[i];
        if (s->seam == seam && (any || s->n_ints == 0 || s->ints[0] == which) &&
            fits(s->layer, place.layer) && fits(s->head, place.head) && fits(s->rank, place.rank) &&
            fits(s->step, place.step) && fits(s->sequence, place.sequence))
            return s;
    }
    return NULL;
}

const assay_seam_setting *assay_seam_at(const assay_seams *seams, assay_seam seam,
                                        assay_seam_place place)
{
    return find(seams, seam, place, true, 0);
}

const assay_seam_setting *assay_seam_of(const assay_seams *seams, assay_seam seam,
                                        assay_seam_place place, int which)
{
    return find(seams, seam, place, false, which);
}

double assay_seam_value(const assay_seams *seams, assay_seam seam, assay_seam_place place,
                        double right)
{
    const assay_seam_setting *s = assay_seam_at(seams, seam, place);
    return s ? s->value : right;
}
