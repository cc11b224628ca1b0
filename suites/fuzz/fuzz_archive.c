/* An .npz archive of a stranger, read as a dump. */
#include "references/npy.h"
#include "suites/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static unsigned sum;

static assay_status look(void *user, const char *name, const assay_npy *array)
{
    (void)user;
    sum += (unsigned)name[0];
    size_t n = (size_t)array->count * assay_dtype_bytes(array->dtype);
    for (size_t i = 0; i < n; i++)
        sum += ((const uint8_t *)array->data)[i];
    return ASSAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("dump.npz", bytes, n);
    if (!path)
        return 0;
    assay_npz_read(path, look, NULL);
    assay_npy_read(path, "x", look, NULL);
    return 0;
}
