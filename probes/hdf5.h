/*
 * HDF5, as far as this project needs it: the one place that opens, walks and reads such files.
 *
 * Files may come from strangers. Only hard links are followed (soft and external links are refused
 * by name), nothing is walked recursively, counts are bounded before they are used, data in other
 * files is refused unless the caller allows it, and filters must be at hand. HDF5's own printing is
 * switched off; its innermost message is put behind our line.
 *
 * The serial HDF5 library is not safe for threads: all calls of one process come from one thread at
 * a time. assay_h5_read_stored (hdf5_chunks.h) alone sees to that itself, among its own calls.
 */
#ifndef ASSAY_PROBES_HDF5_H
#define ASSAY_PROBES_HDF5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/number.h"
#include "engine/base/status.h"

#define ASSAY_H5_MAX_DIMS 6
#define ASSAY_H5_MAX_LINKS 200000
#define ASSAY_H5_MAX_TEXT (1 << 20)

/*
 * Before anything else in a program that writes: HDF5 1.10 clears up at exit and crashes there when
 * closing a file had failed (no room on the disk). All files here are closed one by one.
 */
void assay_h5_no_exit_handler(void);

/* Switches HDF5's own error output off; called by every function here that needs it. */
void assay_h5_quiet(void);

/* assay_fail with HDF5's innermost message behind the line. */
assay_status assay_h5_fail(assay_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Read-only. Fails: ASSAY_IO (cannot be read), ASSAY_BAD_FILE (not HDF5, or damaged). */
assay_status assay_h5_open(hid_t *out, const char *path);
/* Path of the file that was opened last (of a long one its end); "": none. */
const char *assay_h5_opened(void);

typedef struct assay_h5_names {
    char **items;
    uint64_t *addresses; /* of the members' object headers, as the file says */
    int n;
} assay_h5_names;

/*
 * A path costs a look at every group on the way. Wherever a `file` and a `path` are asked for
 * below, an object that is open will do for the file: the path then only names it in messages.
 */
assay_status assay_h5_open_group(hid_t *out, hid_t file, const char *path);
/* The member of an open group that is the last name of the path. */
assay_status assay_h5_open_dataset(hid_t *out, hid_t group, const char *path);
void assay_h5_close(hid_t object); /* < 0 is fine */
bool assay_h5_is_object(hid_t at); /* not a file */

/* Names of the members of a group, sorted. place: for the error line. Refuses links that are not
 * hard. */
assay_status assay_h5_list(assay_h5_names *out, hid_t file, const char *group);
void assay_h5_names_clear(assay_h5_names *names);

/* 'g' group, 'd' dataset, '?' something else, 0: no such member. path is absolute. */
char assay_h5_kind(hid_t file, const char *path); /* of a file only */
/* The same for a reader who must not take a damaged member for an absent one: ASSAY_BAD_FILE. */
assay_status assay_h5_member(char *kind, hid_t file, const char *path);

/*
 * Attributes of the object at path. Absent: *found = false, *out untouched. Of another type:
 * ASSAY_BAD_FILE. Strings and arrays are the caller's to free.
 */
assay_status assay_h5_attr_text(char **out, bool *found, hid_t file, const char *path,
                                const char *name);
assay_status assay_h5_attr_ints(int64_t **out, int64_t *n, bool *found, hid_t file,
                                const char *path, const char *name);
assay_status assay_h5_attr_int(int64_t *out, bool *found, hid_t file, const char *path,
                               const char *name);
assay_status assay_h5_attr_double(double *out, bool *found, hid_t file, const char *path,
                                  const char *name);

typedef struct assay_h5_info {
    int n_dims;
    int64_t dims[ASSAY_H5_MAX_DIMS];
    int64_t count;
    size_t element_bytes; /* as stored */
    assay_dtype dtype;    /* of the stored numbers; 16-bit unsigned integers read as F16's carrier:
                             ASSAY_DTYPE_COUNT */
    bool is_number;       /* real float or integer; false: compound, string, ... */
    bool is_unsigned16;   /* bits of a 16-bit format */
    bool is_virtual;      /* put together from other files */
    bool has_sources;     /* virtual: all of them are there, in the same folder */
    bool is_native;       /* float32, float64, int32 or 16-bit words as this machine has them, in
                             this file */
    int64_t offset; /* in the file, where the numbers lie in one piece and as this machine has them;
                       -1: they do not */
} assay_h5_info;

/* Shape and type, checked: rank, overflow, a size that the stored bytes can back, filters. */
assay_status assay_h5_dataset(assay_h5_info *out, hid_t file, const char *path);

/* All values as float64 (integers exactly up to 2^53). out: info.count. */
assay_status assay_h5_read_f64(double *out, hid_t file, const char *path,
                               const assay_h5_info *info);
assay_status assay_h5_read_u16(uint16_t *out, hid_t file, const char *path,
                               const assay_h5_info *info);
/* A list of int32 (tokens). Values outside int32 are refused. */
assay_status assay_h5_read_u64(uint64_t *out, hid_t file, const char *path,
                               const assay_h5_info *info);
assay_status assay_h5_read_ids(int32_t **out, int64_t *n, hid_t file, const char *path);

/* n texts of at most `size` bytes with NUL each, from a list of fixed-length texts. */
assay_status assay_h5_read_texts(char *out, size_t size, int64_t n, hid_t file, const char *path);

/* SHA-256 of n bytes: lower-case hex with NUL. */
assay_status assay_sha256_hex(char out[65], const void *bytes, size_t n);
/* SHA-256 over the bytes of a dataset as stored (row-major, its own number type): lower-case hex
 * with NUL. */
assay_status assay_h5_sha256(char out[65], hid_t file, const char *path);

/* A checksum of probes/recorder.h over the elements of a dataset as stored. */
typedef uint64_t assay_checksum_fn(const void *elements, size_t size, int64_t n);
assay_status assay_h5_checksum(uint64_t *out, hid_t file, const char *path, assay_checksum_fn *sum);
/* *found: whether there is an attribute of this name with one unsigned number. */
assay_status assay_h5_attr_u64(uint64_t *out, bool *found, hid_t file, const char *path,
                               const char *name);

#endif
