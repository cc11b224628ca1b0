/*
 * Audit of weights: what a GGUF file's tensors say without running the model.
 *
 *     structure   every tensor that the architecture needs, none unknown, every shape; nothing is
 * read contents    every byte read once, in windows: values that are not finite, rows of zeros,
 * rows that occur twice, scales far from the same tensor of other layers or from the tensor's own
 * rows, two tensors with equal content
 *
 * Exact over all bytes: scales and elements that are not finite (model-spec check 34), rows of
 * zeros, repeated rows (by 64-bit hash), equal tensors (by hash and then by bytes). Sampled: the
 * size of values, from one block of every row. Holes of a sparse file are zeros that are not read.
 *
 * Memory: 8 bytes a row of the largest tensor and a window for each thread; the file's pages are
 * given back window by window. Vocabulary tensors may have unused rows: zero or repeated rows are a
 * note there.
 */
#ifndef ASSAY_SUITES_AUDIT_H
#define ASSAY_SUITES_AUDIT_H

#include "engine/gguf.h"
#include "reports/finding.h"

typedef enum {
#define X(id, kind, fault_class, advice) ASSAY_AUDIT_##id,
#include "suites/audit.def"
#undef X
    ASSAY_AUDIT_KIND_COUNT
} assay_audit_kind;

const char *assay_audit_kind_name(assay_audit_kind kind);

typedef struct assay_audit_finding {
    assay_audit_kind kind;
    char tensor[64];
    int layer;         /* -1: global */
    int rank;          /* whose weights they are; -1: of no rank */
    int64_t row;       /* first one; -1: the whole tensor */
    int64_t n;         /* how many rows or elements */
    double confidence; /* 0 ... 1: 1 for exact facts */
    char text[384];
} assay_audit_finding;

typedef struct assay_audit {
    assay_audit_finding *findings;
    int n_findings, n_room;
    assay_strings notes;
    int64_t n_tensors, n_aside; /* seen; known and not used by the architecture's trunk */
    int64_t n_alike;            /* judged against the same tensor of other layers */
    int64_t n_undecodable;      /* types that hold no weights */
    uint64_t bytes_read, bytes_hole;
    double seconds; /* of contents */
} assay_audit;

void assay_audit_clear(assay_audit *audit);

/* Fails where the hyperparameters cannot be read (the file is broken or the architecture unknown).
 */
assay_status assay_audit_structure(assay_audit *audit, const assay_gguf *file);

/* Called with the bytes that are done; may be NULL. */
typedef void assay_audit_progress_fn(void *user, const char *tensor, uint64_t done, uint64_t total);
assay_status assay_audit_contents(assay_audit *audit, const assay_gguf *file, int n_threads,
                                  assay_audit_progress_fn *progress, void *user);

/*
 * Adds the findings to a result with class, advice and `reproduce` (may be NULL); the same kind in
 * the same tensor of several layers is one finding with all its places.
 */
assay_status assay_audit_report(assay_result *result, const assay_audit *audit,
                                const char *reproduce);

/* For the parts of the audit: one more finding, the text by format. */
assay_status assay_audit_add(assay_audit *audit, assay_audit_kind kind, const char *tensor,
                             int64_t row, int64_t n, double confidence, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

#endif
