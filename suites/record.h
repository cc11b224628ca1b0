/*
 * The record of a check: who let which model pass, judged by what, with which tool on which
 * machine. One small HDF5 file, to be filed with the build:
 *
 *   /            attributes  assay_record i32 = 1, assay_version, signed_by, created (ISO 8601
 * UTC), verdict, exit i32, command_line, host, system, processor /inputs/<n>  attributes  role
 * ("model", "reference", "twin", "checklist"), path, sha256 /result      the result as JSON (u8
 * [n]); attribute sha256 of these bytes
 *
 * It names its signer, it is no cryptographic signature: whoever needs one signs the file.
 */
#ifndef ASSAY_SUITES_RECORD_H
#define ASSAY_SUITES_RECORD_H

#include "reports/finding.h"

typedef struct assay_record_input {
    const char *role, *path; /* path NULL: left out */
    const char *sha256;      /* NULL: of the file at path, which is read */
} assay_record_input;

/* Written under another name, synced and renamed. Fails: ASSAY_IO (an input cannot be read, the
 * record cannot be written); nothing is left then. */
assay_status assay_record_write(const char *path, const assay_result *result, const char *signed_by,
                                const assay_record_input *inputs, int n_inputs);

/* SHA-256 of a file in hex. */
assay_status assay_record_sha256(char out[65], const char *path);

#endif
