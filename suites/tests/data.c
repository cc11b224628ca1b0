#include "data.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_PATHS 8
#define PATH_BYTES 4096

static char *next_path(void)
{
    static char paths[N_PATHS][PATH_BYTES];
    static int n;
    return paths[n++ % N_PATHS];
}

static const char *source_dir(void)
{
    const char *dir = getenv("ASSAY_SOURCE_DIR");
    return dir ? dir : ".";
}

const char *data_shipped(const char *name)
{
    char *path = next_path();
    snprintf(path, PATH_BYTES, "%s/suites/data/%s", source_dir(), name);
    return path;
}

const char *data_large(const char *name)
{
    char *path = next_path();
    const char *dir = getenv("ASSAY_DATA");
    if (dir)
        snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    else
        snprintf(path, PATH_BYTES, "%s/../shared/data/%s", source_dir(), name);
    return access(path, R_OK) ? NULL : path;
}

static char scratch[256];
static pid_t owner;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void clean(void)
{
    if (scratch[0] && getpid() == owner)
        nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *data_scratch(const char *name)
{
    if (!scratch[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch, sizeof scratch, "%s/assay-test-XXXXXX", tmp ? tmp : P_tmpdir);
        if (!mkdtemp(scratch))
            abort();
        owner = getpid();
        atexit(clean);
    }
    char *path = next_path();
    snprintf(path, PATH_BYTES, "%s/%s", scratch, name);
    return path;
}
