/*
 * A run cut to some of its values, for a file that shows one fault and needs no other.
 *
 * assay_run_cut writes what is marked (assay_run_mark) into groups GROUP/0, GROUP/1, ... of an open
 * HDF5 file, one per file of the run; each is a capture of format 1 (probes/capture.h) with its
 * attributes as they were. A prompt without a mark is left out; of the others, steps up to the last
 * one with a mark. assay_run_uncut writes such a group as a capture of its own.
 */
#ifndef ASSAY_REFERENCES_RUN_CUT_H
#define ASSAY_REFERENCES_RUN_CUT_H

#include "probes/hdf5.h"
#include "references/run.h"

/* Whether its files are captures of ours, each with its own values; others are imported first. */
bool assay_run_can_be_cut(const assay_run *run);
/* GROUP exists and is empty. Fails: ASSAY_IO. */
assay_status assay_run_cut(hid_t file, const char *group, const assay_run *run);
/* Fails: ASSAY_IO, ASSAY_BAD_FILE (no such group). */
assay_status assay_run_uncut(const char *path, hid_t file, const char *group);

#endif
