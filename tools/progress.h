/*
 * Progress on stderr: one line that is drawn again and again by a thread of its own, so that no
 * library below has to know of it. Shown only when stderr is a terminal and the work has taken
 * longer than a second; wiped before anything else is printed.
 */
#ifndef ASSAY_TOOLS_PROGRESS_H
#define ASSAY_TOOLS_PROGRESS_H

/* Nothing happens when stderr is no terminal. A second begin only changes the label. */
void assay_progress_begin(const char *label);
/* Part `done` of `total` has begun; total 0: unknown, only the time is shown. */
void assay_progress_step(const char *what, int done, int total);
/* Wipes the line and ends the thread. Safe without a begin. */
void assay_progress_end(void);

#endif
