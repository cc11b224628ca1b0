/*
 * assay.h: captures from any engine written in C or C++.
 *
 *     assay_session *s;
 *     assay_session_options o = assay_session_options_default();
 *     o.producer = "my-engine";
 *     assay_session_open(&s, "run.h5", &o);
 *     assay_session_step(s, ASSAY_PREFILL, 0, ids, n);                      one forward call
 *     assay_session_show_dense(s, "blk.0.attn.in_norm", x, ASSAY_TYPE_F32, 2, (int64_t[]){n,
 * width}); assay_session_close(s);             then: assay diagnose run.h5 --model MODEL.gguf
 *
 * A step is one forward call; its tokens are those of this call. What is shown afterwards belongs
 * to it. Names are those of `assay list points` (ASSAY_NAMING_POINTS, values in the axes listed
 * there) or the engine's own (ASSAY_NAMING_OWN: module paths of transformers, vLLM and SGLang and
 * node names of llama.cpp are known to assay; others need a map, `--names`). Values are copied
 * before a function returns.
 *
 * Every function returns 0, or the exit status with which assay's own tools would end: 125 cannot,
 * 128 broken (input, output, memory, device), 129 misuse. assay_last_error() says what happened,
 * for the calling thread, until its next call. Functions of all sessions take turns (HDF5 is used
 * by one thread at a time).
 *
 * Stable: structs begin with their size and grow at the end only; a library that is older than the
 * header refuses fields that it does not know, unless they are zero. Numbers keep their meaning.
 * No type of CUDA appears here: a stream is a pointer.
 */
#ifndef ASSAY_H
#define ASSAY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define ASSAY_API __attribute__((visibility("default")))
#else
#define ASSAY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_API_VERSION 1

typedef struct assay_session assay_session;

/* Number formats. */
enum {
    ASSAY_TYPE_F32 = 1,
    ASSAY_TYPE_F64 = 2,
    ASSAY_TYPE_F16 = 3,
    ASSAY_TYPE_BF16 = 4,
    ASSAY_TYPE_F8E4M3 = 5, /* no infinities, largest 448 */
    ASSAY_TYPE_I8 = 6,
    ASSAY_TYPE_I32 = 7,
    ASSAY_TYPE_I64 = 8
};

enum { ASSAY_NAMING_POINTS = 0, ASSAY_NAMING_OWN = 1 };
enum { ASSAY_DECODE = 0, ASSAY_PREFILL = 1 };
enum { ASSAY_ON_HOST = 0, ASSAY_ON_DEVICE = 1 };

/* Copies n bytes of device memory behind what the stream has been given, and waits for it; not 0:
 * it failed. */
typedef int assay_copy_fn(void *user, void *host, const void *device, size_t n, void *stream);

typedef struct assay_session_options {
    size_t size;
    const char *producer; /* name of the engine; chooses its conventions (`assay list profiles`) */
    const char *producer_version, *architecture, *model_class, *model_sha256;
    const char *dtype;          /* format of the computation: "f32" (NULL), "bf16", "f16" */
    const char *attention_path; /* "latent" or "expanded" */
    const char *backend, *mode; /* "cuda"; "eager" or "graph" */
    const char *profile;        /* conventions by name */
    const char *points;         /* NULL: all. Points: "layer=0-3 point=attn.*"; own names: shell
                                   patterns, separated by spaces */
    const char *tier;           /* "full" (NULL), "rows", "sketch", "stats" */
    int64_t budget_bytes;       /* of values; 0: no bound */
    int32_t rank, n_ranks;      /* one file each; n_ranks 0: one */
    int32_t naming;
    int32_t reserved;
    assay_copy_fn *copy; /* NULL: cudaMemcpyAsync of the CUDA runtime, found when it is needed */
    void *copy_user;
} assay_session_options;

#define ASSAY_TENSOR_DIMS 8

/* A buffer: `data` in the memory that `place` says, outermost axis first. */
typedef struct assay_tensor {
    size_t size;
    const char *name;
    const void *data;
    int32_t type, n_dims; /* at most 4 axes */
    int64_t dims[ASSAY_TENSOR_DIMS];
    int64_t strides[ASSAY_TENSOR_DIMS]; /* in elements; all 0: dense, row-major */
    int32_t place;
    int32_t is_partial; /* of one rank, before the sum over ranks */
    int32_t shard_axis; /* the axis of which this rank has a part; -1: whole */
    int32_t reserved;
    void *stream;          /* of the device; NULL: the default one */
    const void *read_from; /* address that the reader of this value is given; NULL: data */
} assay_tensor;

static inline assay_session_options assay_session_options_default(void)
{
    assay_session_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

static inline assay_tensor assay_tensor_default(void)
{
    assay_tensor t;
    memset(&t, 0, sizeof t);
    t.size = sizeof t;
    t.shard_axis = -1;
    return t;
}

/* ASSAY_API_VERSION of the library. */
ASSAY_API int assay_api_version(void);
ASSAY_API const char *assay_last_error(void);

/* The file gets its name when the session is closed; until then it is "<path>.partial". options
 * NULL: the default. */
ASSAY_API int assay_session_open(assay_session **out, const char *path,
                                 const assay_session_options *options);
/* Starts a prompt; steps that follow belong to it. Without a call, the first step's tokens are the
 * prompt "default". text may be NULL. */
ASSAY_API int assay_session_prompt(assay_session *session, const char *name, const char *text,
                                   const int32_t *tokens, int64_t n_tokens);
ASSAY_API int assay_session_step(assay_session *session, int phase, int64_t first_position,
                                 const int32_t *tokens, int64_t n_tokens);
/* 1: a value of this name would be kept; 0: it would not. Engines that must not be slowed ask
 * first. */
ASSAY_API int assay_session_wants(assay_session *session, const char *name);
ASSAY_API int assay_session_show(assay_session *session, const assay_tensor *tensor);
/* Host memory, dense, row-major. */
ASSAY_API int assay_session_show_dense(assay_session *session, const char *name, const void *data,
                                       int type, int n_dims, const int64_t *dims);
/* Finishes the file: complete, synced, renamed. The session is gone either way. */
ASSAY_API int assay_session_close(assay_session *session);
/* Leaves no file. NULL is fine. */
ASSAY_API void assay_session_abandon(assay_session *session);

#ifdef __cplusplus
}
#endif

#endif
