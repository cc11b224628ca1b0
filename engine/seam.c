#include "engine/seam.h"

enum { ON_HOST = 1, ON_DEVICE = 2, ON_BOTH = ON_HOST | ON_DEVICE };

#define MOST_DEVICE_OUT_BUFFER 2 /* modes of attn-out-buffer that a device has */

static const struct {
    const char *name, *meaning;
    int where;
} table[ASSAY_SEAM_COUNT] = {
#define X(id, name, where, meaning) {name, meaning, ON_##where},
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

bool assay_seam_is_on(assay_seam seam, bool device)
{
    ASSAY_BUG_IF((unsigned)seam >= ASSAY_SEAM_COUNT);
    return table[seam].where & (device ? ON_DEVICE : ON_HOST);
}

const char *assay_seam_where(assay_seam seam)
{
    static const char *const names[] = {
        [ON_HOST] = "host", [ON_DEVICE] = "device", [ON_BOTH] = "host and device"};
    ASSAY_BUG_IF((unsigned)seam >= ASSAY_SEAM_COUNT);
    return names[table[seam].where];
}

/* A step of a device is planned once, and captured: heads, sequences and steps are not told apart
 * in it. */
static assay_status check_on_device(const assay_seam_setting *s)
{
    if (s->head >= 0 || s->sequence >= 0 || s->step >= 0)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "seam %s of one %s: on a device a seam picks layers and ranks alone",
                          table[s->seam].name,
                          s->head >= 0       ? "head"
                          : s->sequence >= 0 ? "sequence"
                                             : "step");
    if (s->seam == ASSAY_SEAM_ATTN_OUT_BUFFER && s->value > MOST_DEVICE_OUT_BUFFER)
        return assay_fail(ASSAY_UNSUPPORTED, "seam %s, mode %g: a device has modes 1 to %d",
                          table[s->seam].name, s->value, MOST_DEVICE_OUT_BUFFER);
    return ASSAY_OK;
}

assay_status assay_seams_check(const assay_seams *seams, bool device)
{
    for (int i = 0; seams && i < seams->n; i++) {
        const assay_seam_setting *s = &seams->settings[i];
        if (!assay_seam_is_on(s->seam, device))
            return assay_fail(ASSAY_UNSUPPORTED, "seam %s: ops of the %s consult it, not the %s's",
                              table[s->seam].name, assay_seam_where(s->seam),
                              device ? "device" : "host");
        if (device)
            ASSAY_TRY(check_on_device(s));
    }
    return ASSAY_OK;
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
