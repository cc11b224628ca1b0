/*
 * How threads wait for each other. libgomp lets one that has nothing to do spin for milliseconds.
 * Between the many short loops of a step that is nearly all the time there is, and where other
 * programs want the cores, the one thread with work waits for those that spin.
 *
 * How long it spins it reads from the environment alone, before main, and nothing else says it. So
 * the program looks names up itself, as shells do for the libraries they call, and adds a short
 * time to spin where the user has set none: starting once more with another environment costs as
 * much as the start. A library that looks elsewhere spins as it always does.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *find(const char *name)
{
    const size_t n = strlen(name);
    for (char **at = environ; at && *at; at++)
        if (!strncmp(*at, name, n) && (*at)[n] == '=')
            return *at + n + 1;
    return NULL;
}

char *getenv(const char *name)
{
    static char briefly[] = "1000"; /* some microseconds, then sleep */
    char *found = find(name);
    if (!found && !strcmp(name, "GOMP_SPINCOUNT") && !find("OMP_WAIT_POLICY"))
        return briefly;
    return found;
}
