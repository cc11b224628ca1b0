#include "suites/fuzz/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[160];

static void clean(void)
{
    if (path[0])
        unlink(path);
    rmdir(folder);
}

const char *fuzz_file(const char *name, const uint8_t *bytes, size_t n)
{
    if (!folder[0]) {
        strcpy(folder, access("/dev/shm", W_OK) ? P_tmpdir "/fuzz-XXXXXX" : "/dev/shm/fuzz-XXXXXX");
        if (!mkdtemp(folder))
            abort();
        atexit(clean);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file)
        return NULL;
    size_t written = fwrite(bytes, 1, n, file);
    return fclose(file) == 0 && written == n ? path : NULL;
}
