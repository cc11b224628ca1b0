/*
 * The HDF5 library is not made for threads: virtual ranks, which are threads of one process, take
 * turns at their captures.
 */
#ifndef ASSAY_SUITES_TURN_H
#define ASSAY_SUITES_TURN_H

#include "engine/tap.h"

void assay_turn_take(void);
void assay_turn_give(void);
/* assay_capture_tap in turn; user = the capture. */
assay_status assay_turn_tap(void *capture, const assay_tap_event *event);

#endif
