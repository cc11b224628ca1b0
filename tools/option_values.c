/*
 * Values of options: numbers, sizes, ranges, prompts.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"

int assay_option_int(const struct argp_state *state, const char *option, const char *text, int low,
                     int high)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        argp_error(state, "--%s '%s': a number from %d to %d is expected", option, text, low, high);
    return (int)value;
}

int64_t assay_option_size(const struct argp_state *state, const char *option, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (errno || end == text || value < 0 || (*end && (!unit || end[1])) ||
        value > INT64_MAX >> shift)
        argp_error(state, "--%s '%s': bytes are expected, such as 512, 64K, 100M, 2G", option,
                   text);
    return (int64_t)value << shift;
}

void assay_option_range(const struct argp_state *state, const char *option, const char *text,
                        int *first, int *last)
{
    int a, b, n = 0, m = 0;
    if (sscanf(text, "%6d%n-%6d%n", &a, &n, &b, &m) == 2 && !text[m] && a >= 0 && b >= a) {
        *first = a;
        *last = b;
    } else if (n && !text[n] && a >= 0) {
        *first = *last = a;
    } else {
        argp_error(state, "--%s '%s': a number or a range such as 0-3 is expected", option, text);
    }
}

static assay_status read_all(char **out, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s': cannot be opened: %s", path, strerror(errno));
    size_t n = 0, room = 1 << 16, got;
    char *text = malloc(room + 1);
    while (text && (got = fread(text + n, 1, room - n, file)) > 0) {
        n += got;
        if (n == room) {
            room *= 2;
            char *more = realloc(text, room + 1);
            if (!more)
                free(text);
            text = more;
        }
    }
    bool broken = ferror(file);
    fclose(file);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "'%s': no memory for its text", path);
    if (broken) {
        free(text);
        return assay_fail(ASSAY_IO, "'%s': cannot be read: %s", path, strerror(errno));
    }
    text[n] = '\0';
    *out = text;
    return ASSAY_OK;
}

static assay_status parse_ids(assay_ids *ids, const char *text, const char *path, int64_t n_vocab)
{
    int64_t n = 0, room = 0;
    for (const char *c = text; *c; c++)
        room += isdigit((unsigned char)*c) && (c == text || !isdigit((unsigned char)c[-1]));
    ASSAY_TRY(assay_alloc(&ids->ids, (size_t)room + 1, sizeof *ids->ids, "token ids"));
    for (const char *c = text; *c;) {
        if (isspace((unsigned char)*c) || strchr(",[]", *c)) {
            c++;
            continue;
        }
        char *end;
        errno = 0;
        long long id = strtoll(c, &end, 10);
        if (end == c || errno || id < 0 || id >= n_vocab) {
            assay_ids_clear(ids);
            return assay_fail(ASSAY_BAD_FILE,
                              "'%s': byte %lld, id %lld: '%.12s' is not an id from 0 to %lld", path,
                              (long long)(c - text), (long long)n, c, (long long)n_vocab - 1);
        }
        ids->ids[n++] = (int32_t)id;
        c = end;
    }
    ids->n = n;
    if (!n) {
        assay_ids_clear(ids);
        return assay_fail(ASSAY_BAD_FILE, "'%s': holds no token ids", path);
    }
    return ASSAY_OK;
}

/* FILE or FILE:PROMPT, by the first bytes of HDF5. */
static bool is_capture(const char *path)
{
    static const char magic[8] = "\x89HDF\r\n\x1a\n";
    char name[4096], head[sizeof magic];
    const char *colon = strrchr(path, ':');
    FILE *file = fopen(path, "rb");
    if (!file && colon) {
        snprintf(name, sizeof name, "%.*s", (int)(colon - path), path);
        file = fopen(name, "rb");
    }
    bool found =
        file && fread(head, 1, sizeof head, file) == sizeof head && !memcmp(head, magic, 8);
    if (file)
        fclose(file);
    return found;
}

static assay_status take_prompt(assay_ids *ids, const char *path, int64_t n_vocab)
{
    assay_run_options r = assay_run_options_default();
    assay_run *run = NULL;
    assay_status s;
    ASSAY_GO(assay_run_open(&run, &path, 1, &r));
    if (assay_run_n_prompts(run) != 1) {
        s = assay_fail(ASSAY_USAGE, "'%s' holds %d prompts: name one, FILE:PROMPT", path,
                       assay_run_n_prompts(run));
        goto out;
    }
    const assay_run_prompt *p = assay_run_prompt_at(run, 0);
    for (int64_t i = 0; i < p->n_tokens; i++)
        if (p->tokens[i] < 0 || p->tokens[i] >= n_vocab)
            ASSAY_GO(assay_fail(ASSAY_BAD_FILE,
                                "'%s': token %lld is %d, the model has ids 0 to %lld", path,
                                (long long)i, p->tokens[i], (long long)n_vocab - 1));
    if (!p->n_tokens)
        ASSAY_GO(assay_fail(ASSAY_BAD_FILE, "'%s': holds no token ids", path));
    ASSAY_GO(assay_alloc(&ids->ids, (size_t)p->n_tokens, sizeof *ids->ids, "token ids"));
    memcpy(ids->ids, p->tokens, (size_t)p->n_tokens * sizeof *ids->ids);
    ids->n = p->n_tokens;
out:
    assay_run_close(run);
    return s;
}

assay_status assay_ids_read(assay_ids *ids, const char *path, int64_t n_vocab)
{
    char *text = NULL;
    if (is_capture(path))
        return take_prompt(ids, path, n_vocab);
    ASSAY_TRY(read_all(&text, path));
    assay_status s = parse_ids(ids, text, path, n_vocab);
    free(text);
    return s;
}

assay_status assay_options_prompt(assay_ids *ids, const char **text, const assay_options *options,
                                  const assay_tokenizer *tokenizer, int64_t n_vocab)
{
    *text = options->text;
    if (options->tokens_path)
        return assay_ids_read(ids, options->tokens_path, n_vocab);
    if (!options->text)
        return assay_fail(ASSAY_USAGE, "a prompt is missing: -p TEXT or --tokens FILE");
    ASSAY_TRY(
        assay_tokenizer_encode(ids, tokenizer, options->text, strlen(options->text), true, false));
    if (!ids->n) {
        assay_ids_clear(ids);
        return assay_fail(ASSAY_USAGE, "the prompt '%s' has no tokens", options->text);
    }
    return ASSAY_OK;
}
