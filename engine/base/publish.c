#include "engine/base/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

assay_status assay_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return assay_fail(ASSAY_IO, "'%s': %s", path, strerror(errno));
    int e = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return e ? assay_fail(ASSAY_IO, "'%s': cannot be synced: %s", path, strerror(e)) : ASSAY_OK;
}

assay_status assay_publish(const char *temporary, const char *path)
{
    assay_status s = assay_sync(temporary);
    char *copy = s == ASSAY_OK ? strdup(path) : NULL;
    if (s == ASSAY_OK && !copy)
        s = assay_fail(ASSAY_NO_MEMORY, "'%s': no memory for the path", path);
    if (s == ASSAY_OK && rename(temporary, path))
        s = assay_fail(ASSAY_IO, "'%s' cannot be renamed to '%s': %s", temporary, path,
                       strerror(errno));
    if (s != ASSAY_OK)
        unlink(temporary);
    else
        s = assay_sync(dirname(copy));
    free(copy);
    return s;
}
