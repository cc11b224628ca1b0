#include "engine/base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 2048

static _Thread_local char line[LINE_BYTES];

static _Atomic(const char *) lacked;

void assay_lack(const char *what)
{
    lacked = what;
}

assay_status assay_lacked(void)
{
    char text[LINE_BYTES];
    const char *what = atomic_exchange(&lacked, NULL);
    if (!what)
        return ASSAY_OK;
    snprintf(text, sizeof text, "%s: no memory", what);
    assay_error_set(text);
    return ASSAY_NO_MEMORY;
}

assay_status assay_fail(assay_status code, const char *format, ...)
{
    char text[LINE_BYTES]; /* an argument may be the recorded line itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assay_error_set(text);
    if (code == ASSAY_NO_MEMORY)
        assay_lack("a part of the work");
    return code;
}

assay_status assay_within(assay_status code, const char *format, ...)
{
    char text[2 * LINE_BYTES]; /* both lines fit; assay_error_set cuts */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, LINE_BYTES, format, args);
    va_end(args);
    if (n < 0)
        n = 0;
    if (n >= LINE_BYTES)
        n = LINE_BYTES - 1;
    snprintf(text + n, sizeof text - (size_t)n, ": %s", line);
    assay_error_set(text);
    return code;
}

const char *assay_error_text(void)
{
    return line;
}

void assay_error_set(const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof line)
        n = sizeof line - 1;
    memmove(line, text, n);
    line[n] = '\0';
}

static const struct {
    const char *text;
    int exit_status;
} table[ASSAY_STATUS_COUNT] = {
#define X(id, text, exit_status) {text, exit_status},
    ASSAY_STATUS_TABLE(X)
#undef X
};

const char *assay_status_text(assay_status code)
{
    ASSAY_BUG_IF((unsigned)code >= ASSAY_STATUS_COUNT);
    return table[code].text;
}

int assay_status_exit(assay_status code)
{
    ASSAY_BUG_IF((unsigned)code >= ASSAY_STATUS_COUNT);
    return table[code].exit_status;
}

void assay_bug(const char *file, int where, const char *condition)
{
    fprintf(stderr, "assay: bug at %s:%d: %s\n", file, where, condition);
    abort();
}

assay_status assay_alloc(void *out, size_t n, size_t size, const char *what)
{
    bool fits = size == 0 || n <= SIZE_MAX / size;
    size_t bytes = fits ? n * size : 0;
    void *p = fits ? calloc(bytes ? bytes : 1, 1) : NULL;
    memcpy(out, &p, sizeof p);
    if (!fits)
        return assay_fail(ASSAY_NO_MEMORY, "%s: %zu x %zu bytes overflow", what, n, size);
    if (!p)
        return assay_fail(ASSAY_NO_MEMORY, "%s: no memory for %zu bytes", what, bytes);
    return ASSAY_OK;
}

void *assay_alloc_or_lack(size_t n, size_t size, const char *what)
{
    void *p = NULL;
    if (assay_alloc(&p, n, size, what) != ASSAY_OK)
        assay_lack(what);
    return p;
}
