#include "tools/waiting.h"

#include <stdlib.h>
#include <unistd.h>

void assay_wait_briefly(char **argv)
{
#ifdef __linux__
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (!setenv("GOMP_SPINCOUNT", "1000", 0)) /* some microseconds, then sleep */
        execv("/proc/self/exe", argv);
#else
    (void)argv;
#endif
}
