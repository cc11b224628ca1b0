#include "reports/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT 0xFFFDu

uint32_t assay_text_next(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    if (!*p)
        return 0;
    ++*text;
    if (*p < 0x80)
        return *p;
    int more = *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : *p >= 0xC2 ? 1 : 0;
    if (!more || *p > 0xF4)
        return REPLACEMENT;
    uint32_t code = *p & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xC0u) != 0x80u)
            return REPLACEMENT;
        code = code << 6 | (p[i] & 0x3Fu);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return REPLACEMENT;
    *text += more;
    return code;
}

int assay_text_encode(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

static void put_code(FILE *out, uint32_t code)
{
    char bytes[4];
    fwrite(bytes, 1, (size_t)assay_text_encode(bytes, code), out);
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

/* Marks that reorder what a reader sees: a name must not be able to disguise itself. */
static bool is_direction_mark(uint32_t code)
{
    return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

static void put_terminal(FILE *out, uint32_t code)
{
    if (code == '\n' || code == '\t' || code == '\r')
        fputc(' ', out);
    else
        put_code(out, is_control(code) || is_direction_mark(code) ? REPLACEMENT : code);
}

/* XML 1.0 production 2 (Char); C1 controls are allowed but mean nothing to a reader. */
static void put_xml(FILE *out, uint32_t code)
{
    switch (code) {
    case '<':
        fputs("&lt;", out);
        return;
    case '>':
        fputs("&gt;", out);
        return;
    case '&':
        fputs("&amp;", out);
        return;
    case '"':
        fputs("&quot;", out);
        return;
    case '\'':
        fputs("&#39;", out);
        return;
    case '\n':
    case '\t':
        fputc((int)code, out);
        return;
    case '\r': /* a parser would turn it into a line end */
        fputc('\n', out);
        return;
    default:
        put_code(out, is_control(code) || is_direction_mark(code) || (code & 0xFFFE) == 0xFFFE
                          ? REPLACEMENT
                          : code);
    }
}

static void put_markdown(FILE *out, uint32_t code)
{
    if (code == '<' || code == '>' || code == '&') {
        put_xml(out, code);
        return;
    }
    if (code < 0x80 && strchr("\\`*_{}[]()#|!~@", (int)code) && code)
        fputc('\\', out);
    put_terminal(out, code);
}

void assay_text_put(FILE *out, assay_text_kind kind, const char *text)
{
    if (!text)
        return;
    for (uint32_t code; (code = assay_text_next(&text));)
        switch (kind) {
        case ASSAY_TEXT_TERMINAL:
            put_terminal(out, code);
            break;
        case ASSAY_TEXT_XML:
            put_xml(out, code);
            break;
        case ASSAY_TEXT_MARKDOWN:
            put_markdown(out, code);
            break;
        }
}

char *assay_text_utf8(const char *text)
{
    char *out = malloc(3 * strlen(text) + 1); /* a bad byte grows to three */
    size_t n = 0;
    if (!out) {
        assay_lack("a text");
        return NULL;
    }
    for (uint32_t code; (code = assay_text_next(&text));)
        n += (size_t)assay_text_encode(out + n, code);
    out[n] = '\0';
    return out;
}

json_t *assay_text_json(const char *text)
{
    if (!text)
        return json_null();
    char *clean = assay_text_utf8(text);
    json_t *json = clean ? json_string(clean) : NULL;
    free(clean);
    return json;
}

int assay_text_width(const char *text)
{
    int n = 0;
    while (assay_text_next(&text))
        n++;
    return n;
}

void assay_text_wrap(FILE *out, const char *text, int column, int indent, int width)
{
    const char *p = text ? text : "";
    bool first = true;
    while (*p) {
        size_t blank = strspn(p, " \t\r\n"), length = strcspn(p + blank, " \t\r\n");
        p += blank;
        if (!length)
            break;
        char *word = strndup(p, length);
        if (!word)
            assay_lack("a word");
        int columns = word ? assay_text_width(word) : 0;
        if (!first && column + 1 + columns > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        assay_text_put(out, ASSAY_TEXT_TERMINAL, word);
        column += columns;
        first = false;
        free(word);
        p += length;
    }
    fputc('\n', out);
}

char *assay_text_ranges(char *out, size_t room, const assay_numbers *list)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < list->n && n < room; i++) {
        int last = i;
        while (last + 1 < list->n && list->items[last + 1] == list->items[last] + 1)
            last++;
        n += (size_t)snprintf(out + n, room - n, "%s%" PRId64, i ? ", " : "", list->items[i]);
        if (last > i && n < room)
            n += (size_t)snprintf(out + n, room - n, "%s%" PRId64, last == i + 1 ? ", " : "-",
                                  list->items[last]);
        i = last;
    }
    if (n >= room && room > 4)
        memcpy(out + room - 4, "...", 4);
    return out;
}

char *assay_text_number(char out[32], double x)
{
    if (isnan(x))
        snprintf(out, 32, "NaN");
    else if (isinf(x))
        snprintf(out, 32, x > 0 ? "Inf" : "-Inf");
    else
        snprintf(out, 32, "%.4g", x);
    return out;
}

bool assay_text_has(double x)
{
    return !isnan(x);
}
