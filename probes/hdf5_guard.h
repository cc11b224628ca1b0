/*
 * libhdf5 1.10 believes the sizes in some damaged object headers and reads beyond its memory.
 * Mostly that does no harm, since what it read is refused; where it ends in a fault (SIGSEGV), a
 * program that asked for the guard ends with one line that names the file that was opened last, and
 * exit_status. A fault of the program itself keeps its signal.
 */
#ifndef ASSAY_PROBES_HDF5_GUARD_H
#define ASSAY_PROBES_HDF5_GUARD_H

/* For programs, not for libraries: it takes the handler of SIGSEGV. */
void assay_h5_guard(int exit_status);

#endif
