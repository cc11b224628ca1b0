/* Where the program is built without CUDA: every way in says so. */
#include <stdio.h>

#include "engine/device.h"

static const char reason[] =
    "backend cuda: this program was built without it (configure with the preset 'cuda')";

int assay_device_count(const char **why)
{
    if (why)
        *why = reason;
    return 0;
}

const char *assay_device_name(char out[128])
{
    snprintf(out, 128, "none");
    return out;
}

assay_status assay_device_open(assay_engine *engine)
{
    (void)engine;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

void assay_device_close(assay_engine *engine)
{
    (void)engine;
}

assay_status assay_device_reset(assay_engine *engine, int sequence)
{
    (void)engine;
    (void)sequence;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

assay_status assay_device_step(assay_engine *engine, float *logits)
{
    (void)engine;
    (void)logits;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

assay_status assay_device_move_cache(assay_engine *engine)
{
    (void)engine;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

assay_status assay_device_decode(int32_t *ids, assay_engine *engine, const int32_t *first,
                                 int n_sequences, int64_t n)
{
    (void)ids;
    (void)engine;
    (void)first;
    (void)n_sequences;
    (void)n;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

assay_status assay_device_run_as(assay_engine *engine, bool use_graph, assay_device_tap_fn *tap,
                                 void *tap_user)
{
    (void)engine;
    (void)use_graph;
    (void)tap;
    (void)tap_user;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

assay_status assay_device_counts_of(assay_device_counts *out, assay_engine *engine)
{
    (void)out;
    (void)engine;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}

void assay_device_time_products(assay_engine *engine, bool on)
{
    (void)engine;
    (void)on;
}

assay_status assay_device_wait(assay_engine *engine)
{
    (void)engine;
    return assay_fail(ASSAY_NO_DEVICE, "%s", reason);
}
