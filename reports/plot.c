#include "reports/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reports/text.h"

enum { LONGEST_SVG = 1 << 24, NO_PROGRAM = 127 };

/* In the child: gnuplot with the script as input and the picture as output. */
static _Noreturn void become_gnuplot(int script, int picture)
{
    struct rlimit seconds = {20, 20};
    int nowhere = open("/dev/null", O_WRONLY);
    setrlimit(RLIMIT_CPU, &seconds);
    alarm(20);
    if (dup2(script, STDIN_FILENO) >= 0 && dup2(picture, STDOUT_FILENO) >= 0 && nowhere >= 0 &&
        dup2(nowhere, STDERR_FILENO) >= 0)
        execlp("gnuplot", "gnuplot", "-d", "-", (char *)NULL);
    _exit(NO_PROGRAM);
}

/* Exit status of gnuplot; -1: it could not be started or was killed. */
static int run(FILE *script, FILE *picture)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        become_gnuplot(fileno(script), fileno(picture));
    if (pid < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static assay_status read_svg(char **svg, FILE *picture)
{
    char *text;
    if (fseek(picture, 0, SEEK_END) != 0)
        return assay_fail(ASSAY_IO, "gnuplot: the picture cannot be read");
    long n = ftell(picture);
    if (n <= 0 || n > LONGEST_SVG)
        return assay_fail(ASSAY_IO, "gnuplot: a picture of %ld bytes", n);
    rewind(picture);
    ASSAY_TRY(assay_alloc(&text, (size_t)n + 1, 1, "picture"));
    size_t got = fread(text, 1, (size_t)n, picture);
    char *start = got == (size_t)n ? strstr(text, "<svg") : NULL;
    if (!start || !strstr(start, "</svg>")) {
        free(text);
        return assay_fail(ASSAY_IO, "gnuplot: no picture came out");
    }
    memmove(text, start, strlen(start) + 1);
    *svg = text;
    return ASSAY_OK;
}

assay_status assay_plot_svg(char **svg, const char *script)
{
    FILE *in = tmpfile(), *out = tmpfile();
    assay_status s = ASSAY_OK;
    if (!in || !out || fputs(script, in) == EOF || fflush(in) || fseek(in, 0, SEEK_SET))
        s = assay_fail(ASSAY_IO, "gnuplot: no temporary file: %s", strerror(errno));
    if (s == ASSAY_OK) {
        lseek(fileno(in), 0, SEEK_SET);
        int status = run(in, out);
        if (status == NO_PROGRAM)
            s = assay_fail(ASSAY_MISSING, "gnuplot is not installed");
        else if (status != 0)
            s = assay_fail(ASSAY_IO, "gnuplot: exit status %d", status);
    }
    if (s == ASSAY_OK)
        s = read_svg(svg, out);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return s;
}

bool assay_plot_available(void)
{
    static int known = -1;
    char *svg = NULL;
    if (known < 0) {
        known = assay_plot_svg(&svg, "set terminal svg size 40,40\nplot [0:1] x\n") == ASSAY_OK;
        free(svg);
    }
    return known;
}

void assay_plot_quote(FILE *script, const char *text, int longest)
{
    fputc('\'', script);
    for (uint32_t code; longest > 0 && (code = assay_text_next(&text)); longest--) {
        char one[8] = {0};
        if (code < 0x20 || (code >= 0x7F && code < 0xA0))
            code = ' ';
        if (code == '\'') {
            fputs("''", script);
            continue;
        }
        assay_text_encode(one, code);
        fputs(one, script);
    }
    fputc('\'', script);
}

void assay_plot_number(FILE *script, double x, double beyond)
{
    if (isnan(x))
        fputs(" NaN", script);
    else
        fprintf(script, " %.9g", isinf(x) ? (x > 0 ? beyond : -beyond) : x);
}

void assay_plot_begin(FILE *script, int width, int height)
{
    fprintf(script,
            "set terminal svg size %d,%d fixed noenhanced font 'sans-serif,13'\n"
            "set border lc rgb '#7a7a7a'\n"
            "set tics textcolor rgb '#7a7a7a'\n"
            "set key textcolor rgb '#7a7a7a' top left horizontal\n"
            "set xlabel textcolor rgb '#7a7a7a'\n"
            "set ylabel textcolor rgb '#7a7a7a'\n"
            "set cblabel textcolor rgb '#7a7a7a'\n"
            "set cbtics textcolor rgb '#7a7a7a'\n"
            "set grid lc rgb '#c07a7a7a'\n",
            width, height);
}

/* Grey of lines and letters: what assay_plot_begin asks for becomes a darker or a lighter one, as
 * the reader's screen is light or dark. */
#define GREY(shade)                                                                                \
    "[fill=\"rgb(122,122,122)\"]{fill:" shade "}[stroke=\"rgb(122, 122, 122)\"]{stroke:" shade "}"
static const char shades[] =
    "<style>" GREY("#4d5661") "@media(prefers-color-scheme:dark){" GREY("#b6bfc9") "}</style>";

/* The picture with the style behind its first tag; NULL: no memory. */
static char *with_shades(const char *svg)
{
    const char *end = strchr(svg, '>');
    size_t head = end ? (size_t)(end - svg) + 1 : 0, n = strlen(svg);
    char *text = assay_alloc_or_lack(n + sizeof shades, 1, "a picture");
    if (!text)
        return NULL;
    memcpy(text, svg, head);
    memcpy(text + head, shades, sizeof shades - 1);
    memcpy(text + head + sizeof shades - 1, svg + head, n - head + 1);
    return text;
}

void assay_plot_put_image(FILE *html, const char *svg, const char *alt)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *shaded = with_shades(svg);
    const unsigned char *p = (const unsigned char *)(shaded ? shaded : svg);
    size_t n = strlen((const char *)p);
    fputs("<img alt=\"", html);
    assay_text_put(html, ASSAY_TEXT_XML, alt);
    fputs("\" src=\"data:image/svg+xml;base64,", html);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                        (i + 2 < n ? p[i + 2] : 0);
        fputc(digits[word >> 18], html);
        fputc(digits[word >> 12 & 63], html);
        fputc(i + 1 < n ? digits[word >> 6 & 63] : '=', html);
        fputc(i + 2 < n ? digits[word & 63] : '=', html);
    }
    fputs("\">\n", html);
    free(shaded);
}
