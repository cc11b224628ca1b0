#include "suites/turn.h"

#include <pthread.h>

#include "probes/capture.h"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void assay_turn_take(void)
{
    pthread_mutex_lock(&turn);
}

void assay_turn_give(void)
{
    pthread_mutex_unlock(&turn);
}

assay_status assay_turn_tap(void *capture, const assay_tap_event *event)
{
    assay_turn_take();
    assay_status s = assay_capture_tap(capture, event);
    assay_turn_give();
    return s;
}
