/* How threads wait for each other. */
#ifndef ASSAY_TOOLS_WAITING_H
#define ASSAY_TOOLS_WAITING_H

/*
 * libgomp lets a thread that has nothing to do spin for milliseconds. Between the many short loops
 * of a step that is nearly all the time there is, and where other programs want the cores, the one
 * thread with work waits for those that spin. It reads the environment once, before main, so the
 * process starts itself again with a short time to spin, unless the user has set OMP_WAIT_POLICY or
 * GOMP_SPINCOUNT. Where that cannot be, everything goes on as it is.
 */
void assay_wait_briefly(char **argv);

#endif
