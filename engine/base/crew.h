/*
 * Threads for jobs of a few microseconds.
 *
 * A team of OpenMP ends when every member has arrived, those too that the system has yet to wake:
 * on a busy machine a product of 10 us then takes a time slice. Here the caller takes pieces until
 * none is left, members that are awake take some as well, and only pieces under way are waited for.
 * A member without work looks for some for about 15 us, then sleeps.
 */
#ifndef ASSAY_ENGINE_BASE_CREW_H
#define ASSAY_ENGINE_BASE_CREW_H

#include <stdint.h>

typedef void assay_crew_fn(void *user, int64_t piece, int member);

/* fn for pieces 0 ... n - 1, each once, by the caller (member 0) and up to n_members - 1 others (1
 * ... n_members - 1). Returns when all are done. Of callers that come at once one has the crew, the
 * others do their pieces alone, as where no thread can be started. */
void assay_crew_run(assay_crew_fn *fn, void *user, int64_t n, int n_members);

#endif
