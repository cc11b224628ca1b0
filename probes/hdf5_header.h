/*
 * What the object header of a dataset says, out of the bytes of a file: libhdf5 takes some 30 us
 * for a dataset and its attributes, this less than one.
 *
 * Read is what this project writes, and libhdf5 by default: headers of version 1 in a file that
 * begins with its superblock (version 0, lengths and offsets of 8 bytes), with numbers of this
 * machine's own types in one piece. Nothing is taken for granted: wherever a byte is another one
 * than expected, of whatever kind (a damaged header among them), nothing is known and the library
 * has the word.
 *
 *   prefix       version 1 | 0 | messages u16 | links u32 | bytes of the messages u32 | 4 bytes
 *   message      kind u16 | bytes u16, a multiple of 8 | flags u8 | 3 bytes | content
 *     dataspace  1 | axes u8 | flags u8 | 5 bytes | axes x u64 | the same: largest, where flags & 1
 *     type       class and version u8 | 3 bytes of flags | bytes of an element u32 | bit layout
 *     fill       2 | 3 bytes | length u32 = 0
 *     layout     3 | 1 | address u64 | bytes u64
 *     attribute  1 | 0 | bytes u16: name, type, dataspace | these, each filled up to 8 | the values
 *     more       address u64 | bytes u64: further messages
 *
 * Source: HDF5 File Format Specification, version 3.0, sections II.A, IV.A.
 */
#ifndef ASSAY_PROBES_HDF5_HEADER_H
#define ASSAY_PROBES_HDF5_HEADER_H

#include "probes/hdf5.h"

typedef enum {
    ASSAY_H5_TEXT, /* one, of fixed length */
    ASSAY_H5_I32,
    ASSAY_H5_I64,
    ASSAY_H5_U64,
    ASSAY_H5_F64,
    ASSAY_H5_F32, /* these two of datasets alone */
    ASSAY_H5_U16,
    ASSAY_H5_FORMATS
} assay_h5_format;

typedef struct assay_h5_attr {
    const char *name;
    assay_h5_format format;
    int64_t n;          /* numbers; of a text its bytes */
    const void *values; /* in the file's bytes, aligned to nothing */
} assay_h5_attr;

#define ASSAY_H5_HEADER_ATTRS 16

typedef struct assay_h5_header {
    assay_h5_info info;
    int n_attrs;
    assay_h5_attr attrs[ASSAY_H5_HEADER_ATTRS]; /* in their order in the file */
} assay_h5_header;

/* The header at an address of a whole file of n bytes. false (*out holds anything): the library
 * must read it. What *out points to lies in `bytes`. */
bool assay_h5_header_read(assay_h5_header *out, const void *bytes, uint64_t n, uint64_t address);
/* NULL: there is none of this name. */
const assay_h5_attr *assay_h5_header_attr(const assay_h5_header *header, const char *name);

#endif
