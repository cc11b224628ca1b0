/* Where the program is built without CUDA: there is no device to record on. */
#include "probes/recorder_device.h"

static assay_status absent(void)
{
    return assay_fail(ASSAY_NO_DEVICE, "recorders on a device: this program was built without CUDA "
                                       "(configure with the preset 'cuda')");
}

assay_status assay_recorder_device_new(assay_recorder_device **out, assay_device_tier tier,
                                       int ring)
{
    (void)out;
    (void)tier;
    (void)ring;
    return absent();
}

void assay_recorder_device_free(assay_recorder_device *recorder)
{
    (void)recorder;
}

assay_status assay_recorder_device_tap(void *recorder, const assay_device_table *table)
{
    (void)recorder;
    (void)table;
    return absent();
}

assay_status assay_recorder_device_read(const assay_device_recorded **out, int *n,
                                        assay_recorder_device *recorder, int back)
{
    (void)out;
    (void)n;
    (void)recorder;
    (void)back;
    return absent();
}

assay_status assay_recorder_device_one(assay_device_recorded *out, assay_recorder_device *recorder,
                                       const float *values, int64_t n, void *stream)
{
    (void)out;
    (void)recorder;
    (void)values;
    (void)n;
    (void)stream;
    return absent();
}

assay_status assay_recorder_device_plain_sum(double *out, const float *values, int64_t n,
                                             void *stream, float *milliseconds)
{
    (void)out;
    (void)values;
    (void)n;
    (void)stream;
    (void)milliseconds;
    return absent();
}
