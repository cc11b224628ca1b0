/*
 * Seams: the things a real op consults and a fault can bend: a list of parts, a pointer, a stride,
 * an index, a constant, a count.
 *
 * The engine asks for each of them at run time with the right value as default, so a healthy run
 * and a planted run execute the same code. A plant is a list of settings; a setting applies where
 * all of its selectors (-1: any) match. The fault classes in reports/fault/ translate "--plant
 * kind:layer=1" to settings; the engine knows seams, not faults.
 */
#ifndef ASSAY_ENGINE_SEAM_H
#define ASSAY_ENGINE_SEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
#define X(id, name, where, meaning) ASSAY_SEAM_##id,
#include "engine/seam.def"
#undef X
    ASSAY_SEAM_COUNT
} assay_seam;

#define ASSAY_SEAM_MAX_INTS 16

/* Modes of the seam `epilogue`. */
enum { ASSAY_EPILOGUE_BIAS = 1, ASSAY_EPILOGUE_CHANNEL_SCALE, ASSAY_EPILOGUE_ROW_SCALE };

typedef struct assay_seam_setting {
    assay_seam seam;
    int layer, head, rank, step, sequence; /* -1: any */
    double value;
    int n_ints;
    int ints[ASSAY_SEAM_MAX_INTS];
} assay_seam_setting;

typedef struct assay_seams {
    const assay_seam_setting *settings;
    int n;
} assay_seams;

/* Where in the run the op stands. */
typedef struct assay_seam_place {
    int layer, head, rank, step,
        sequence; /* -1: the op does not know; then only settings with -1 there match */
} assay_seam_place;

const char *assay_seam_name(assay_seam seam);
const char *assay_seam_meaning(assay_seam seam);
/* Whether ops of the host (device: of a device) consult it. */
bool assay_seam_is_on(assay_seam seam, bool device);
/* "host", "device" or "host and device" */
const char *assay_seam_where(assay_seam seam);

/* Whether ops of that backend consult every setting as it is. Fails: ASSAY_UNSUPPORTED, with the
 * first that would bend nothing there. */
assay_status assay_seams_check(const assay_seams *seams, bool device);

/* The first setting that applies, or NULL. seams may be NULL. */
const assay_seam_setting *assay_seam_at(const assay_seams *seams, assay_seam seam,
                                        assay_seam_place place);

/* The same, of settings whose ints[0] is `which` or that have no ints. */
const assay_seam_setting *assay_seam_of(const assay_seams *seams, assay_seam seam,
                                        assay_seam_place place, int which);

/* `right` unless a setting applies. */
double assay_seam_value(const assay_seams *seams, assay_seam seam, assay_seam_place place,
                        double right);

#endif
