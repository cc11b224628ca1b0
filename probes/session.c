/*
 * The public library: sessions of assay.h over captures.
 */
#include "probes/assay.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture_private.h"
#include "probes/session_copy.h"

struct assay_session {
    assay_capture *capture;
    char *patterns; /* own names: words with a NUL behind each, an empty one last; NULL: all */
    bool own_names;
    assay_copy_fn *copy;
    void *copy_user;
};

/* HDF5 is used by one thread at a time. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int end(assay_status s)
{
    pthread_mutex_unlock(&turn);
    return assay_status_exit(s);
}

int assay_api_version(void)
{
    return ASSAY_API_VERSION;
}

const char *assay_last_error(void)
{
    return assay_error_text();
}

/* A caller's struct of whatever version as ours: what it lacks is zero, what we do not know must
 * be. */
static assay_status take_struct(void *out, size_t size, const void *in, const char *what)
{
    size_t theirs;
    memcpy(&theirs, in, sizeof theirs);
    if (theirs < sizeof theirs || theirs > 4096)
        return assay_fail(ASSAY_USAGE, "%s: its size says %zu; begin with %s_default()", what,
                          theirs, what);
    for (size_t i = size; i < theirs; i++)
        if (((const unsigned char *)in)[i])
            return assay_fail(ASSAY_UNSUPPORTED,
                              "%s: a field is set that version %d of the library does not know",
                              what, ASSAY_API_VERSION);
    memset(out, 0, size);
    memcpy(out, in, theirs < size ? theirs : size);
    return ASSAY_OK;
}

static assay_status split_patterns(char **out, const char *text)
{
    *out = NULL;
    if (!text || !text[strspn(text, " ")])
        return ASSAY_OK;
    char *words;
    ASSAY_TRY(assay_alloc(&words, strlen(text) + 2, 1, "patterns"));
    size_t at = 0;
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        memcpy(words + at, p, n);
        at += n + 1; /* zeroed memory */
        p += n;
    }
    *out = words;
    return ASSAY_OK;
}

static assay_status open_session(assay_session **out, const char *path,
                                 const assay_session_options *o)
{
    assay_session *s;
    if (o->naming != ASSAY_NAMING_POINTS && o->naming != ASSAY_NAMING_OWN)
        return assay_fail(ASSAY_USAGE, "naming %d is unknown (known: 0, 1)", o->naming);
    if (o->dtype && assay_dtype_from_name(o->dtype) == ASSAY_DTYPE_COUNT)
        return assay_fail(ASSAY_USAGE, "dtype '%s' is not a known number format", o->dtype);
    if (o->n_ranks < 0 || o->rank < 0 || o->rank >= (o->n_ranks ? o->n_ranks : 1))
        return assay_fail(ASSAY_USAGE, "rank %d of %d", o->rank, o->n_ranks);
    bool own = o->naming == ASSAY_NAMING_OWN;
    const assay_capture_about about = {.producer = o->producer ? o->producer : "unknown",
                                       .producer_version = o->producer_version,
                                       .architecture = o->architecture,
                                       .model_class = o->model_class,
                                       .model_sha256 = o->model_sha256,
                                       .dtype = o->dtype ? o->dtype : "f32",
                                       .path = o->attention_path,
                                       .backend = o->backend,
                                       .mode = o->mode,
                                       .profile = o->profile,
                                       .n_ranks = o->n_ranks,
                                       .rank = o->rank,
                                       .naming = own ? "modules" : NULL};
    const assay_capture_options options = {
        .selector = own ? NULL : o->points, .tier = o->tier, .budget_bytes = o->budget_bytes};
    ASSAY_TRY(assay_alloc(&s, 1, sizeof *s, "session"));
    s->own_names = own;
    s->copy = o->copy;
    s->copy_user = o->copy_user;
    assay_status status = own ? split_patterns(&s->patterns, o->points) : ASSAY_OK;
    if (status == ASSAY_OK)
        status = assay_capture_create(&s->capture, path, &about, &options);
    if (status != ASSAY_OK) {
        free(s->patterns);
        free(s);
        return status;
    }
    *out = s;
    return ASSAY_OK;
}

int assay_session_open(assay_session **out, const char *path, const assay_session_options *options)
{
    pthread_mutex_lock(&turn);
    assay_session_options o = assay_session_options_default();
    assay_status s =
        options ? take_struct(&o, sizeof o, options, "assay_session_options") : ASSAY_OK;
    if (s == ASSAY_OK && !path)
        s = assay_fail(ASSAY_USAGE, "a session needs the path of its file");
    return end(s == ASSAY_OK ? open_session(out, path, &o) : s);
}

int assay_session_prompt(assay_session *session, const char *name, const char *text,
                         const int32_t *tokens, int64_t n_tokens)
{
    pthread_mutex_lock(&turn);
    if (n_tokens < 0 || (n_tokens && !tokens) || !name)
        return end(assay_fail(ASSAY_USAGE, "a prompt has a name and its tokens"));
    return end(assay_capture_prompt(session->capture, name, text, tokens, n_tokens));
}

int assay_session_step(assay_session *session, int phase, int64_t first_position,
                       const int32_t *tokens, int64_t n_tokens)
{
    pthread_mutex_lock(&turn);
    if (n_tokens < 1 || !tokens || first_position < 0)
        return end(assay_fail(ASSAY_USAGE, "a step has one token at least, and a position"));
    return end(assay_capture_step(session->capture, phase == ASSAY_PREFILL, first_position, tokens,
                                  n_tokens));
}

static bool matches(const assay_session *s, const char *name)
{
    bool any = !s->patterns;
    for (const char *p = s->patterns; p && *p && !any; p += strlen(p) + 1)
        any = fnmatch(p, name, 0) == 0;
    return any;
}

/* *axes: of the point; NULL under own names. */
static assay_status choose(bool *wanted, const char **axes, const assay_session *s,
                           const char *name)
{
    assay_point point;
    int layer, hand_over, rank;
    bool partial;
    *axes = NULL;
    if (!name || !name[0])
        return assay_fail(ASSAY_USAGE, "a value needs a name");
    if (s->own_names) {
        if (strlen(name) >= ASSAY_POINT_NAME_BYTES || strchr(name, '/'))
            return assay_fail(ASSAY_USAGE,
                              "'%.80s' cannot be a value's name: at most %d bytes, without '/'",
                              name, ASSAY_POINT_NAME_BYTES - 1);
        *wanted = matches(s, name);
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_capture_name_parse(&point, &layer, &partial, &hand_over, &rank, name));
    *axes = assay_point_at(point)->axes;
    *wanted = assay_selector_has(s->capture->selector, point, layer, s->capture->step);
    return ASSAY_OK;
}

int assay_session_wants(assay_session *session, const char *name)
{
    const char *axes;
    bool wanted = false;
    pthread_mutex_lock(&turn);
    assay_status s = choose(&wanted, &axes, session, name);
    pthread_mutex_unlock(&turn);
    return s == ASSAY_OK && wanted;
}

static assay_status type_of(assay_dtype *out, const assay_tensor *t)
{
    static const assay_dtype types[] = {
        [ASSAY_TYPE_F32] = ASSAY_DTYPE_F32,       [ASSAY_TYPE_F64] = ASSAY_DTYPE_F64,
        [ASSAY_TYPE_F16] = ASSAY_DTYPE_F16,       [ASSAY_TYPE_BF16] = ASSAY_DTYPE_BF16,
        [ASSAY_TYPE_F8E4M3] = ASSAY_DTYPE_F8E4M3, [ASSAY_TYPE_I8] = ASSAY_DTYPE_I8,
        [ASSAY_TYPE_I32] = ASSAY_DTYPE_I32,       [ASSAY_TYPE_I64] = ASSAY_DTYPE_I64};
    if (t->type < ASSAY_TYPE_F32 || t->type > ASSAY_TYPE_I64)
        return assay_fail(ASSAY_USAGE, "'%s': type %d is unknown", t->name, t->type);
    *out = types[t->type];
    return ASSAY_OK;
}

/* Shape and strides, and from where to where the elements lie: [*first, *last] around data. */
static assay_status view_of(assay_buffer *out, int64_t *first, int64_t *last, const assay_tensor *t)
{
    assay_dtype type = ASSAY_DTYPE_F32;
    ASSAY_TRY(type_of(&type, t));
    if (t->n_dims < 1 || t->n_dims > ASSAY_MAX_DIMS)
        return assay_fail(ASSAY_USAGE, "'%s' has %d axes, expected 1 to %d", t->name, t->n_dims,
                          ASSAY_MAX_DIMS);
    int64_t count = 1;
    bool strided = false, too_large = false;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 1)
            return assay_fail(ASSAY_USAGE, "'%s': axis %d has %lld entries", t->name, i,
                              (long long)t->dims[i]);
        too_large = too_large || __builtin_mul_overflow(count, t->dims[i], &count);
        strided = strided || t->strides[i];
    }
    if (too_large || count > INT64_MAX / 16)
        return assay_fail(ASSAY_USAGE, "'%s': its shape is too large", t->name);
    if (!t->data)
        return assay_fail(ASSAY_USAGE, "'%s' has no data", t->name);
    *out = assay_buffer_view((void *)(uintptr_t)t->data, type, t->n_dims, t->dims);
    *first = 0;
    *last = count - 1;
    if (!strided)
        return ASSAY_OK;
    *last = 0;
    for (int i = 0; i < t->n_dims; i++) {
        int64_t reach, *side = t->strides[i] < 0 ? first : last;
        out->strides[i] = t->strides[i];
        if (__builtin_mul_overflow(t->strides[i], t->dims[i] - 1, &reach) ||
            __builtin_add_overflow(*side, reach, side) || *side > INT64_MAX / 16 ||
            *side < INT64_MIN / 16)
            return assay_fail(ASSAY_USAGE, "'%s': its strides reach too far", t->name);
    }
    return ASSAY_OK;
}

/* Device memory from the first to the last element, on the host; *owned: to be freed. */
static assay_status fetch(assay_buffer *view, void **owned, const assay_session *s,
                          const assay_tensor *t, int64_t first, int64_t last)
{
    size_t each = assay_dtype_bytes(view->dtype), n = (size_t)(last - first + 1) * each;
    const char *from = (const char *)t->data + first * (int64_t)each;
    char *host;
    ASSAY_TRY(assay_alloc(&host, n, 1, "copy of device memory"));
    assay_status status = ASSAY_OK;
    if (!s->copy)
        status = assay_session_copy_cuda(host, from, n, t->stream);
    else if (s->copy(s->copy_user, host, from, n, t->stream))
        status = assay_fail(ASSAY_DEVICE, "'%s': the copy of %zu bytes from the device failed",
                            t->name, n);
    if (status != ASSAY_OK) {
        free(host);
        return status;
    }
    *owned = host;
    view->data = host - first * (int64_t)each;
    return ASSAY_OK;
}

/* 8-bit floats are kept as the float32 numbers that they are. */
static assay_status widen(assay_buffer *view, void **owned)
{
    int64_t n = assay_buffer_count(view), at[ASSAY_MAX_DIMS] = {0};
    float *wide;
    ASSAY_TRY(assay_alloc(&wide, (size_t)n, sizeof *wide, "8-bit values"));
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int d = 0; d < view->n_dims; d++)
            from += at[d] * view->strides[d];
        wide[i] = assay_f8e4m3_to_f32(((const uint8_t *)view->data)[from]);
        for (int d = view->n_dims - 1; d >= 0 && ++at[d] == view->dims[d]; d--)
            at[d] = 0;
    }
    *view = assay_buffer_view(wide, ASSAY_DTYPE_F32, view->n_dims, view->dims);
    *owned = wide;
    return ASSAY_OK;
}

static assay_status show(assay_session *session, const assay_tensor *t)
{
    const char *axes;
    bool wanted = false;
    assay_buffer view;
    int64_t first, last;
    void *fetched = NULL, *widened = NULL;
    assay_status s;
    ASSAY_TRY(choose(&wanted, &axes, session, t->name));
    ASSAY_TRY(view_of(&view, &first, &last, t));
    if (session->capture->step < 0)
        return assay_fail(ASSAY_USAGE, "'%s': a value comes after its step", t->name);
    if (t->shard_axis >= t->n_dims)
        return assay_fail(ASSAY_USAGE, "'%s': it is split along axis %d and has %d", t->name,
                          t->shard_axis, t->n_dims);
    if (!wanted)
        return ASSAY_OK;
    const assay_dtype origin = view.dtype;
    if (t->place == ASSAY_ON_DEVICE)
        ASSAY_TRY(fetch(&view, &fetched, session, t, first, last));
    if (origin == ASSAY_DTYPE_F8E4M3)
        ASSAY_GO(widen(&view, &widened));
    const void *read = t->read_from ? t->read_from : t->data;
    char name[ASSAY_POINT_NAME_BYTES + 16];
    bool add = t->is_partial && !session->own_names && !strstr(t->name, ".partial");
    snprintf(name, sizeof name, "%s%s", t->name, add ? ".partial" : "");
    assay_value_about about = {
        .name = name,
        .axes = axes,
        .origin = origin,
        .floor = -1,
        .shard = {t->shard_axis < 0 ? -1 : t->shard_axis, session->capture->rank,
                  session->capture->n_ranks},
        .partial = t->is_partial != 0,
        .has_buffer = true,
        .buffer = {(uint64_t)(uintptr_t)t->data, 0, 0, (uint64_t)(uintptr_t)read, 0, 0}};
    session->capture->engine_step = -1;
    s = assay_capture_write(session->capture, &about, &view);
    if (s != ASSAY_OK)
        s = assay_within(s, "%s", session->capture->path);
out:
    free(widened);
    free(fetched);
    return s;
}

int assay_session_show(assay_session *session, const assay_tensor *tensor)
{
    pthread_mutex_lock(&turn);
    assay_tensor t;
    assay_status s = take_struct(&t, sizeof t, tensor, "assay_tensor");
    return end(s == ASSAY_OK ? show(session, &t) : s);
}

int assay_session_show_dense(assay_session *session, const char *name, const void *data, int type,
                             int n_dims, const int64_t *dims)
{
    assay_tensor t = assay_tensor_default();
    t.name = name;
    t.data = data;
    t.type = type;
    t.n_dims = n_dims;
    for (int i = 0; i < n_dims && i < ASSAY_TENSOR_DIMS; i++)
        t.dims[i] = dims[i];
    return assay_session_show(session, &t);
}

int assay_session_close(assay_session *session)
{
    pthread_mutex_lock(&turn);
    assay_status s = assay_capture_finish(session->capture);
    free(session->patterns);
    free(session);
    return end(s);
}

void assay_session_abandon(assay_session *session)
{
    if (!session)
        return;
    pthread_mutex_lock(&turn);
    assay_capture_abandon(session->capture);
    free(session->patterns);
    free(session);
    pthread_mutex_unlock(&turn);
}
