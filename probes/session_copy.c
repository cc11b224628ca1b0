#include "probes/session_copy.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

typedef int memcpy_async(void *to, const void *from, size_t n, int kind, void *stream);
typedef int synchronize(void *stream);
typedef const char *error_text(int error);

typedef struct runtime {
    memcpy_async *copy;
    synchronize *wait;
    error_text *text;
} runtime;

#define DEVICE_TO_HOST 2 /* cudaMemcpyDeviceToHost */

/* A function pointer from an object pointer, as POSIX has it. */
static void function(void *out, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
}

static bool take(runtime *r, void *library)
{
    function(&r->copy, library, "cudaMemcpyAsync");
    function(&r->wait, library, "cudaStreamSynchronize");
    function(&r->text, library, "cudaGetErrorString");
    return r->copy && r->wait;
}

/* The one that the engine has loaded, else one that can be loaded; kept open. */
static bool find(runtime *r)
{
    static const char *const names[] = {"libcudart.so", "libcudart.so.13", "libcudart.so.12",
                                        "libcudart.so.11.0"};
    if (take(r, RTLD_DEFAULT))
        return true;
    for (int loaded = 1; loaded >= 0; loaded--)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            void *library = dlopen(names[i], RTLD_NOW | (loaded ? RTLD_NOLOAD : 0));
            if (library && take(r, library))
                return true;
        }
    return false;
}

assay_status assay_session_copy_cuda(void *host, const void *device, size_t n, void *stream)
{
    static runtime cuda; /* the callers take turns */
    if (!cuda.copy && !find(&cuda))
        return assay_fail(ASSAY_NO_DEVICE, "device memory was shown, and no CUDA runtime is in the "
                                           "process; set `copy` in the session's options");
    int error = cuda.copy(host, device, n, DEVICE_TO_HOST, stream);
    if (!error)
        error = cuda.wait(stream);
    if (error)
        return assay_fail(ASSAY_DEVICE, "copy of %zu bytes from the device: %s", n,
                          cuda.text ? cuda.text(error) : "failed");
    return ASSAY_OK;
}
