#include "reports/pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/picture_data.h"
#include "reports/plot.h"
#include "reports/text.h"

enum { TABLE_ROWS = 2500, TABLE_COLUMNS = 64, SCATTER_ROWS = 200 };
/* Pictures of a finding stand beside each other: one size. */
enum { CARD_WIDTH = 500, CARD_HEIGHT = 420 };

static void put(FILE *html, const char *text)
{
    assay_text_put(html, ASSAY_TEXT_XML, text);
}

/* A script that grows in memory. */
typedef struct script {
    FILE *file;
    char *text;
    size_t n;
} script;

static bool script_open(script *s)
{
    *s = (script){0};
    if (!assay_plot_available())
        return false;
    s->file = open_memstream(&s->text, &s->n);
    if (!s->file)
        assay_lack("a picture");
    return s->file != NULL;
}

/* Draws it; the reason when that fails, for the page. NULL: there is a picture. */
static const char *script_draw(script *s, FILE *html, const char *alt)
{
    char *svg = NULL;
    if (fclose(s->file) != 0 || !s->text)
        assay_lack("a picture");
    assay_status status = s->text ? assay_plot_svg(&svg, s->text) : ASSAY_NO_MEMORY;
    if (status == ASSAY_OK)
        assay_plot_put_image(html, svg, alt);
    free(svg);
    free(s->text);
    return status == ASSAY_OK ? NULL : assay_error_text();
}

/* wide: as broad as the page; others stand side by side. The picture scrolls where it is broader
 * than the screen. */
static void figure_begin(FILE *html, bool wide)
{
    fprintf(html,
            "<figure%s>\n<div class=\"picture\" tabindex=\"0\" role=\"group\" "
            "aria-label=\"Picture\">\n",
            wide ? " class=\"wide\"" : "");
}

/* Caption, and the fold-out that the table goes into; open where there is no picture. */
static void figure_caption(FILE *html, const char *caption, const char *why_no_picture)
{
    fputs("</div>\n<figcaption>", html);
    put(html, caption);
    if (why_no_picture) {
        fputs(" <em>No picture: ", html);
        put(html, why_no_picture);
        fputs(". The numbers:</em>", html);
    }
    fprintf(html,
            "</figcaption>\n<details%s><summary>Numbers</summary><div class=\"scroll\" "
            "tabindex=\"0\" role=\"region\" aria-label=\"Numbers of the picture\">\n",
            why_no_picture ? " open" : "");
}

static void figure_end(FILE *html)
{
    fputs("</div></details>\n</figure>\n", html);
}

static const char no_gnuplot[] = "gnuplot is not installed";

static void cell(FILE *html, double x)
{
    char text[32];
    fputs("<td>", html);
    put(html, assay_text_number(text, x));
    fputs("</td>", html);
}

/* --- error along the depth --- */

/* The prompt and step that most entries have: one curve, not several on top of each other. */
static const json_t *main_group(const json_t *depth)
{
    const json_t *entry, *best = NULL;
    size_t i, most = 0, n = 0;
    const json_t *previous = NULL;
    json_array_foreach(depth, i, entry)
    {
        bool same =
            previous &&
            json_equal(json_object_get(entry, "prompt"), json_object_get(previous, "prompt")) &&
            json_equal(json_object_get(entry, "step"), json_object_get(previous, "step"));
        n = same ? n + 1 : 1;
        if (n > most) {
            most = n;
            best = entry;
        }
        previous = entry;
    }
    return best;
}

static bool in_group(const json_t *entry, const json_t *group)
{
    return json_equal(json_object_get(entry, "prompt"), json_object_get(group, "prompt")) &&
           json_equal(json_object_get(entry, "step"), json_object_get(group, "step"));
}

static bool is_home(const json_t *entry)
{
    return json_is_true(json_object_get(entry, "home"));
}

/* A third of the smallest error or floor that is not zero: where zeros are drawn. */
static double lowest(const json_t *depth, const json_t *group)
{
    const json_t *entry;
    size_t i;
    double low = 1;
    json_array_foreach(depth, i, entry)
    {
        double added = assay_picture_number(json_object_get(entry, "added")),
               ground = assay_picture_number(json_object_get(entry, "floor"));
        if (!in_group(entry, group))
            continue;
        low = added > 1e-12 && added < low ? added : low;
        low = ground > 1e-12 && ground < low ? ground : low;
    }
    return low / 3;
}

static double clipped(double x, double low)
{
    return isnan(x) ? 1e3 : fmax(fmin(x, 1e3), low);
}

static void depth_script(FILE *out, const json_t *depth, const json_t *group)
{
    const json_t *entry;
    size_t i;
    int at = 0;
    json_int_t layer = -2;
    bool any_inherited = false;
    double low = lowest(depth, group);
    assay_plot_begin(out, 1100, 380);
    fputs("set logscale y\nset format y '%.0e'\nset ylabel 'relative L2'\nset key above\n"
          "set xtics rotate by 0 (",
          out);
    json_array_foreach(depth, i, entry)
    {
        json_int_t here = json_integer_value(json_object_get(entry, "layer"));
        if (!in_group(entry, group))
            continue;
        if (here != layer && here >= 0)
            fprintf(out, "%s'blk.%lld' %d", layer >= 0 ? ", " : "", (long long)here, at);
        layer = here >= 0 ? here : layer;
        at++;
    }
    fputs(")\nset offsets 0.5, 0.5, 0, 0\n$d << END\n", out);
    at = 0;
    json_array_foreach(depth, i, entry)
    {
        if (!in_group(entry, group))
            continue;
        double added = assay_picture_number(json_object_get(entry, "added")),
               inherited = assay_picture_number(json_object_get(entry, "inherited")),
               ground = assay_picture_number(json_object_get(entry, "floor"));
        any_inherited = any_inherited || !isnan(inherited);
        fprintf(out, "%d", at++);
        assay_plot_number(out, clipped(added, low), 1e3);
        assay_plot_number(out, isnan(ground) ? NAN : fmax(ground, low), 1e3);
        assay_plot_number(out, is_home(entry) ? clipped(added, low) : NAN, 1e3);
        assay_plot_number(out, isnan(inherited) ? NAN : clipped(inherited, low), 1e3);
        fputc('\n', out);
    }
    fputs("END\n"
          "plot $d using 1:3 with lines lw 2 lc rgb '#d9a441' title 'bound or floor', ",
          out);
    if (any_inherited)
        fputs("$d using 1:5 with lines lw 1 dt 2 lc rgb '#8f7ab8' title 'inherited', ", out);
    fputs("$d using 1:2 with linespoints pt 7 ps 0.35 lw 1.5 lc rgb '#3d8fc4' title 'error', "
          "$d using 1:4 with points pt 7 ps 1 lc rgb '#d1495b' title 'out of bounds'\n",
          out);
}

static void depth_table(FILE *html, const json_t *depth)
{
    const json_t *entry;
    size_t i;
    fputs("<table><caption class=\"hidden\">Error of every judged point</caption><thead><tr>"
          "<th scope=\"col\">prompt</th><th scope=\"col\">step</th><th scope=\"col\">layer</th>"
          "<th scope=\"col\">point</th><th scope=\"col\">error</th><th scope=\"col\">inherited</th>"
          "<th scope=\"col\">floor or bound</th></tr></thead><tbody>\n",
          html);
    json_array_foreach(depth, i, entry)
    {
        json_int_t layer = json_integer_value(json_object_get(entry, "layer"));
        if (i >= TABLE_ROWS)
            break;
        fprintf(html, "<tr%s><td>", is_home(entry) ? " class=\"bad\"" : "");
        put(html, assay_picture_text(entry, "prompt", ""));
        fprintf(html, "</td><td>%lld</td><td>",
                (long long)json_integer_value(json_object_get(entry, "step")));
        if (layer >= 0)
            fprintf(html, "%lld", (long long)layer);
        fputs("</td><th scope=\"row\">", html);
        put(html, assay_picture_text(entry, "point", ""));
        fputs("</th>", html);
        cell(html, assay_picture_number(json_object_get(entry, "added")));
        if (json_is_null(json_object_get(entry, "inherited")))
            fputs("<td></td>", html);
        else
            cell(html, assay_picture_number(json_object_get(entry, "inherited")));
        cell(html, assay_picture_number(json_object_get(entry, "floor")));
        fputs("</tr>\n", html);
    }
    fputs("</tbody></table>\n", html);
    if (json_array_size(depth) > TABLE_ROWS)
        fprintf(html, "<p>%zu more are in the JSON result.</p>\n",
                json_array_size(depth) - TABLE_ROWS);
}

static void depth_figure(FILE *html, const json_t *depth)
{
    const json_t *group = main_group(depth), *entry;
    char alt[512], caption[512];
    size_t i, n = 0, homes = 0;
    const char *first = NULL, *why = no_gnuplot;
    json_int_t layer = -1;
    json_array_foreach(depth, i, entry)
    {
        if (!in_group(entry, group))
            continue;
        n++;
        if (is_home(entry) && !homes++) {
            first = assay_picture_text(entry, "point", "");
            layer = json_integer_value(json_object_get(entry, "layer"));
        }
    }
    snprintf(caption, sizeof caption, "Error along the depth, prompt %s, step %lld.",
             assay_picture_text(group, "prompt", ""),
             (long long)json_integer_value(json_object_get(group, "step")));
    snprintf(alt, sizeof alt, "Curve: error of %zu points in the order of the forward pass. %zu %s",
             n, homes, homes == 1 ? "is out of bounds" : "are out of bounds");
    if (first)
        snprintf(alt + strlen(alt), sizeof alt - strlen(alt), ", the first at %s of layer %lld.",
                 first, (long long)layer);
    figure_begin(html, true);
    script s;
    if (script_open(&s)) {
        depth_script(s.file, depth, group);
        why = script_draw(&s, html, alt);
    }
    figure_caption(html, caption, why);
    depth_table(html, depth);
    figure_end(html);
}

/* --- heat maps --- */

static void label(FILE *out, char *const *labels, int i)
{
    char number[24];
    snprintf(number, sizeof number, "%d", i);
    assay_plot_quote(out, labels ? labels[i] : number, 32);
}

static void tics(FILE *out, const char *axis, char *const *labels, int n, int most, bool rotate)
{
    int stride = (n + most - 1) / most;
    fprintf(out, "set %stics %s (", axis, rotate ? "rotate by -45" : "");
    for (int i = 0; i < n; i += stride) {
        fputs(i ? ", " : "", out);
        label(out, labels, i);
        fprintf(out, " %d", i);
    }
    fputs(")\n", out);
}

static int within(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* signed_range: a logarithm, of which everything up to a hundred times the bound has one scale, so
 * that a healthy run looks healthy. */
static void grid_script(FILE *out, const assay_grid *g, const char *x, const char *y,
                        const char *unit, bool signed_range, bool card)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < g->n_x * g->n_y; i++)
        if (isfinite(g->values[i])) {
            low = fmin(low, g->values[i]);
            high = fmax(high, g->values[i]);
        }
    if (!(low < high)) { /* one value, or none */
        low = isfinite(low) ? fmin(low, 0) : 0;
        high = isfinite(high) && high > low ? high : low + 1;
    }
    if (card)
        assay_plot_begin(out, CARD_WIDTH, CARD_HEIGHT);
    else
        assay_plot_begin(out, within(300 + 24 * g->n_x, 460, 1100),
                         within(140 + 18 * g->n_y, 240, 900));
    fputs("unset key\nunset grid\n"
          "set palette defined (0 '#26456e', 1 '#3d8fc4', 2 '#b8d9a8', 3 '#f2c14e', 4 '#d1495b')\n"
          "set xlabel ",
          out);
    assay_plot_quote(out, x, 60);
    fputs("\nset ylabel ", out);
    assay_plot_quote(out, y, 60);
    fputs("\nset cblabel ", out);
    assay_plot_quote(out, unit, 60);
    fprintf(out,
            "\nset xrange [-0.5:%d.5]\nset yrange [%d.5:-0.5]\nset cbrange [%.6g:%.6g]\n"
            "set tics scale 0\nset format cb '%%.3g'\n",
            g->n_x - 1, g->n_y - 1, signed_range ? -1 : low, signed_range ? fmax(high, 2) : high);
    bool rotate = false;
    for (int i = 0; g->x_labels && i < g->n_x; i++)
        rotate |= strlen(g->x_labels[i]) > 3;
    tics(out, "x", g->x_labels, g->n_x, card ? 12 : rotate ? 40 : 32, rotate);
    tics(out, "y", g->y_labels, g->n_y, card ? 20 : 48, false);
    fputs("$d << END\n", out);
    for (int j = 0; j < g->n_y; j++)
        for (int i = 0; i < g->n_x; i++) { /* the picture needs every cell; NaN leaves it empty */
            fprintf(out, "%d %d", i, j);
            assay_plot_number(out, g->values[j * g->n_x + i], high);
            fputc('\n', out);
        }
    fputs("END\nplot $d using 1:2:3 with image pixels\n", out);
}

static void heading(FILE *html, char *const *labels, int i)
{
    if (labels)
        put(html, labels[i]);
    else
        fprintf(html, "%d", i);
}

static void grid_table(FILE *html, const assay_grid *g, const char *title, const char *corner)
{
    int n_x = g->n_x < TABLE_COLUMNS ? g->n_x : TABLE_COLUMNS,
        n_y = g->n_y < TABLE_ROWS / n_x ? g->n_y : TABLE_ROWS / n_x;
    fputs("<table><caption class=\"hidden\">", html);
    put(html, title);
    fputs("</caption><thead><tr><th scope=\"col\">", html);
    put(html, corner);
    fputs("</th>", html);
    for (int i = 0; i < n_x; i++) {
        fputs("<th scope=\"col\">", html);
        heading(html, g->x_labels, i);
        fputs("</th>", html);
    }
    fputs("</tr></thead><tbody>\n", html);
    for (int j = 0; j < n_y; j++) {
        fputs("<tr><th scope=\"row\">", html);
        heading(html, g->y_labels, j);
        fputs("</th>", html);
        for (int i = 0; i < n_x; i++)
            if (isnan(g->values[j * g->n_x + i]))
                fputs("<td></td>", html);
            else
                cell(html, g->values[j * g->n_x + i]);
        fputs("</tr>\n", html);
    }
    fputs("</tbody></table>\n", html);
    if (n_x < g->n_x || n_y < g->n_y)
        fprintf(html, "<p>The first %d x %d of %d x %d values; all are in the JSON result.</p>\n",
                n_x, n_y, g->n_x, g->n_y);
}

static void grid_figure(FILE *html, const assay_grid *g, const char *title, const char *x,
                        const char *y, const char *unit, bool signed_range, bool card)
{
    char alt[512], corner[160], number[32], x_name[64] = "", y_name[64] = "";
    const char *why = no_gnuplot;
    int best = assay_grid_largest(g);
    snprintf(corner, sizeof corner, "%.60s / %.60s", y, x);
    snprintf(alt, sizeof alt, "Heat map: %.200s, %d by %d values", title, g->n_x, g->n_y);
    if (best >= 0) {
        int i = best % g->n_x, j = best / g->n_x;
        snprintf(x_name, sizeof x_name, "%d", i);
        snprintf(y_name, sizeof y_name, "%d", j);
        snprintf(alt + strlen(alt), sizeof alt - strlen(alt),
                 ". Largest %s at %.40s %.40s, %.40s %.40s.",
                 assay_text_number(number, g->values[best]), y,
                 g->y_labels ? g->y_labels[j] : y_name, x, g->x_labels ? g->x_labels[i] : x_name);
    }
    figure_begin(html, !card && g->n_x > 10);
    script s;
    if (best >= 0 && script_open(&s)) {
        grid_script(s.file, g, x, y, unit, signed_range, card);
        why = script_draw(&s, html, alt);
    }
    figure_caption(html, title, why);
    grid_table(html, g, title, corner);
    figure_end(html);
}

/* --- scatters and bars --- */

static void scatter_script(FILE *out, const json_t *expected, const json_t *got)
{
    const json_t *value;
    size_t i;
    assay_plot_begin(out, CARD_WIDTH, CARD_HEIGHT);
    fputs("set xlabel 'expected'\nset ylabel 'candidate'\nset size ratio 1\nset key top left\n"
          "$d << END\n",
          out);
    json_array_foreach(expected, i, value)
    {
        assay_plot_number(out, assay_picture_number(value), NAN);
        assay_plot_number(out, assay_picture_number(json_array_get(got, i)), NAN);
        fputc('\n', out);
    }
    fputs("END\n"
          "plot x with lines lw 1 lc rgb '#d9a441' title 'equal', "
          "$d using 1:2 with points pt 7 ps 0.3 lc rgb '#803d8fc4' title 'elements'\n",
          out);
}

static void scatter_figure(FILE *html, const json_t *entry)
{
    const json_t *expected = json_object_get(entry, "expected"),
                 *got = json_object_get(entry, "got");
    const char *title = assay_picture_text(entry, "title", "candidate against expected"),
               *why = no_gnuplot;
    size_t n = json_array_size(expected);
    char alt[512];
    if (!n || json_array_size(got) != n)
        return;
    snprintf(alt, sizeof alt, "Scatter: %.200s, %zu elements, expected across, candidate up.",
             title, n);
    figure_begin(html, false);
    script s;
    if (script_open(&s)) {
        scatter_script(s.file, expected, got);
        why = script_draw(&s, html, alt);
    }
    figure_caption(html, title, why);
    fputs("<table><caption class=\"hidden\">", html);
    put(html, title);
    fputs("</caption><thead><tr><th scope=\"col\">element</th><th scope=\"col\">expected</th>"
          "<th scope=\"col\">candidate</th></tr></thead><tbody>\n",
          html);
    for (size_t i = 0; i < n && i < SCATTER_ROWS; i++) {
        fprintf(html, "<tr><th scope=\"row\">%zu</th>", i);
        cell(html, assay_picture_number(json_array_get(expected, i)));
        cell(html, assay_picture_number(json_array_get(got, i)));
        fputs("</tr>\n", html);
    }
    fputs("</tbody></table>\n", html);
    if (n > SCATTER_ROWS)
        fprintf(html, "<p>The first %d of %zu; all are in the JSON result.</p>\n", SCATTER_ROWS, n);
    figure_end(html);
}

static void bars_script(FILE *out, const json_t *entry, const json_t *values, char *const *labels)
{
    const json_t *value;
    size_t i;
    int n = (int)json_array_size(values);
    assay_plot_begin(out, within(260 + 24 * n, 460, 1100), 320);
    fputs("unset key\nset style fill solid 0.85 noborder\nset boxwidth 0.8\nset yrange [0:*]\n"
          "set xlabel ",
          out);
    assay_plot_quote(out, assay_picture_text(entry, "x", ""), 60);
    fputs("\nset ylabel ", out);
    assay_plot_quote(out, assay_picture_text(entry, "y", ""), 60);
    fputc('\n', out);
    tics(out, "x", labels, n, 40, labels != NULL);
    fputs("$d << END\n", out);
    json_array_foreach(values, i, value)
    {
        fprintf(out, "%zu", i);
        assay_plot_number(out, assay_picture_number(value), NAN);
        fputc('\n', out);
    }
    fputs("END\nplot $d using 1:2 with boxes lc rgb '#3d8fc4'\n", out);
}

static void bars_figure(FILE *html, const json_t *entry)
{
    const json_t *values = json_object_get(entry, "values");
    const char *title = assay_picture_text(entry, "title", "bars"), *why = no_gnuplot;
    json_t *as_map = json_pack("{s:[O]}", "values", values);
    assay_grid g = {0};
    char alt[300];
    if (as_map && json_object_get(entry, "labels"))
        json_object_set(as_map, "x_labels", json_object_get(entry, "labels"));
    if (as_map && assay_grid_from(&g, as_map) == ASSAY_OK) {
        snprintf(alt, sizeof alt, "Bars: %.200s, %d values.", title, g.n_x);
        figure_begin(html, false);
        script s;
        if (script_open(&s)) {
            bars_script(s.file, entry, values, g.x_labels);
            why = script_draw(&s, html, alt);
        }
        figure_caption(html, title, why);
        grid_table(html, &g, title, assay_picture_text(entry, "x", ""));
        figure_end(html);
        assay_grid_clear(&g);
    }
    json_decref(as_map);
}

/* --- all of them --- */

bool assay_pictures_any(const assay_result *result)
{
    return assay_picture_list(result, "depth") || assay_picture_list(result, "maps") ||
           assay_picture_list(result, "scatters") || assay_picture_list(result, "bars") ||
           json_object_size(json_object_get(result->extra, "confusion")) > 0;
}

void assay_pictures_depth(FILE *html, const assay_result *result)
{
    const json_t *depth = assay_picture_list(result, "depth");
    assay_grid g = {0};
    if (!depth)
        return;
    depth_figure(html, depth);
    if (assay_grid_of_depth(&g, result) == ASSAY_OK && g.n_x > 1) {
        grid_figure(html, &g,
                    "Error against floor or bound, by layer and point (log10 of the ratio)",
                    "layer", "point", "log10(error / floor)", true, false);
    }
    assay_grid_clear(&g);
}

void assay_pictures_confusion(FILE *html, const assay_result *result)
{
    assay_grid g = {0};
    if (assay_grid_of_confusion(&g, result) != ASSAY_OK)
        return;
    grid_figure(html, &g, "Confusion matrix: planted classes against the classes that were named",
                "named class", "planted class", "plants", false, false);
    assay_grid_clear(&g);
}

static int finding_of(const json_t *entry)
{
    const json_t *finding = json_object_get(entry, "finding");
    return json_is_integer(finding) ? (int)json_integer_value(finding) : -1;
}

void assay_pictures_of(FILE *html, const assay_result *result, int finding)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(assay_picture_list(result, "maps"), i, entry)
    {
        assay_grid g = {0};
        if (finding_of(entry) != finding || assay_grid_from(&g, entry) != ASSAY_OK)
            continue;
        grid_figure(html, &g, assay_picture_text(entry, "title", "map"),
                    assay_picture_text(entry, "x", ""), assay_picture_text(entry, "y", ""),
                    assay_picture_text(entry, "unit", ""), false, finding >= 0);
        assay_grid_clear(&g);
    }
    json_array_foreach(assay_picture_list(result, "scatters"), i, entry)
    {
        if (finding_of(entry) == finding)
            scatter_figure(html, entry);
    }
    json_array_foreach(assay_picture_list(result, "bars"), i, entry)
    {
        if (finding == -1)
            bars_figure(html, entry);
    }
}
