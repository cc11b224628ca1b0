/*
 * Status codes and the one line of text that goes with a failure.
 *
 * Every function that can fail returns assay_status; ASSAY_OK is 0. The function that notices the
 * failure records one line with assay_fail (what failed, the subject quoted, expected and found, no
 * full stop); callers that know more put it in front with assay_within. The line belongs to the
 * calling thread and lives until its next assay_fail.
 *
 *     if (n_dims > 4)
 *         return assay_fail(ASSAY_BAD_FILE, "tensor '%s' has %u dimensions, at most 4 are allowed",
 * name, n_dims);
 *
 *     s = assay_gguf_tensor(&t, file, name);
 *     if (s != ASSAY_OK)
 *         return assay_within(s, "layer %d", layer);          "layer 3: tensor
 * 'blk.3.attn_q.weight' is missing"
 */
#ifndef ASSAY_ENGINE_BASE_STATUS_H
#define ASSAY_ENGINE_BASE_STATUS_H

#include <stddef.h>

/* id, text, exit status of the command line (design: 125 cannot judge, 128 broken input, I/O or
 * device, 129 usage) */
#define ASSAY_STATUS_TABLE(X)                                                                      \
    X(OK, "ok", 0)                                                                                 \
    X(BAD_FILE, "broken input", 128)                                                               \
    X(BAD_SHAPE, "shapes disagree", 128)                                                           \
    X(IO, "input or output failed", 128)                                                           \
    X(NO_MEMORY, "out of memory", 128)                                                             \
    X(DEVICE, "device failed", 128)                                                                \
    X(PEER, "another rank failed", 128)                                                            \
    X(MISSING, "not found", 128)                                                                   \
    X(UNSUPPORTED, "not supported", 125)                                                           \
    X(NO_DEVICE, "no such device", 125)                                                            \
    X(CANNOT_JUDGE, "cannot judge", 125)                                                           \
    X(USAGE, "wrong command line", 129)

typedef enum {
#define X(id, text, exit_status) ASSAY_##id,
    ASSAY_STATUS_TABLE(X)
#undef X
        ASSAY_STATUS_COUNT
} assay_status;

/* Records one line for this thread and returns the code. */
assay_status assay_fail(assay_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "<text>: " in front of the recorded line and returns the code unchanged. */
assay_status assay_within(assay_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The recorded line; never NULL; valid until this thread's next assay_fail. */
const char *assay_error_text(void);

/* Takes over a line that another thread (a rank, a worker) recorded. */
void assay_error_set(const char *text);

const char *assay_status_text(assay_status code);
int assay_status_exit(assay_status code);

#define ASSAY_TRY(expr)                                                                            \
    do {                                                                                           \
        assay_status assay_try_status_ = (expr);                                                   \
        if (assay_try_status_ != ASSAY_OK)                                                         \
            return assay_try_status_;                                                              \
    } while (0)

/* For functions with one clean-up label: needs `assay_status s` and `out:`. */
#define ASSAY_GO(expr)                                                                             \
    do {                                                                                           \
        s = (expr);                                                                                \
        if (s != ASSAY_OK)                                                                         \
            goto out;                                                                              \
    } while (0)

/* A caller's mistake: aborts with file and line. Never for input. */
#define ASSAY_BUG_IF(cond)                                                                         \
    do {                                                                                           \
        if (cond)                                                                                  \
            assay_bug(__FILE__, __LINE__, #cond);                                                  \
    } while (0)

_Noreturn void assay_bug(const char *file, int line, const char *condition);

/*
 * calloc with overflow check and a recorded line on failure: *out = zeroed n * size bytes (at least
 * 1). Fails: ASSAY_NO_MEMORY, *out is NULL.
 */
assay_status assay_alloc(void *out, size_t n, size_t size, const char *what);

/*
 * Memory that was lacking is noted, so that no caller that tries to do without it gives another
 * verdict than with it. Whoever is about to give one, or to publish a file, asks assay_lacked:
 * ASSAY_NO_MEMORY when assay_fail or assay_lack was told of a lack, anywhere in the process, since
 * it was asked last.
 */
void assay_lack(const char *what); /* a constant text */
assay_status assay_lacked(void);
/* For functions that have no status to hand back: the memory of assay_alloc, or NULL. */
void *assay_alloc_or_lack(size_t n, size_t size, const char *what);

#endif
