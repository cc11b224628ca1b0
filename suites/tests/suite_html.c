#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "forge_result.h"
#include "reports/plot.h"
#include "reports/render.h"
#include "reports/series.h"

/* What a shell would make, were one ever given a name out of a file. */
#define CANARY P_tmpdir "/assay-owned"

/* The hostile result, with every kind of picture. */
static void forge_with_pictures(assay_result *result, int n_layers)
{
    static const char bad[] = "it's `touch " CANARY "` $(x) @y 'z\"\n!system 'touch'";
    static const char *const names[] = {"attn.in_norm", "attn.q_a", "attn.proj", "out"};
    double map[6] = {0, 1, NAN, INFINITY, -2, 3}, x[3] = {1, 2, NAN}, y[3] = {1, INFINITY, 3};
    const char *labels[3] = {bad, "b", "c"};
    forge_result_hostile(result);
    for (int layer = 0; layer < n_layers; layer++)
        for (int i = 0; i < 4; i++)
            EXPECT_OK(assay_series_depth(result, bad, 0, names[i], layer,
                                         layer == 1 && i == 2 ? NAN : 1e-3, i ? NAN : 2e-3, 5e-3,
                                         layer == 1 && i == 2));
    assay_series_map entry = {.title = bad,
                              .x = bad,
                              .y = bad,
                              .unit = bad,
                              .finding = 0,
                              .n_x = 3,
                              .n_y = 2,
                              .x_labels = labels,
                              .values = map};
    EXPECT_OK(assay_series_add_map(result, &entry));
    EXPECT_OK(assay_series_scatter(result, bad, 0, x, y, 3));
    EXPECT_OK(assay_series_bars(result, bad, bad, bad, labels, y, 3));
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

START_TEST(page_asks_the_network_for_nothing_and_runs_nothing)
{
    assay_result result;
    forge_with_pictures(&result, 4);
    char *page = forge_rendered("html", &result, 0);
    ck_assert_int_eq(count(page, "http:") + count(page, "https:"), 0);
    ck_assert_int_eq(count(page, "<script") + count(page, "onload=") + count(page, "url("), 0);
    ck_assert_int_eq(count(page, "Content-Security-Policy"), 1);
    for (const char *p = page; (p = strstr(p, "src=\"")); p++)
        ck_assert(!strncmp(p, "src=\"data:image/svg+xml;base64,", 31));
    free(page);
    assay_result_clear(&result);
}
END_TEST

START_TEST(page_gives_every_picture_a_name_and_every_column_a_header)
{
    assay_result result;
    forge_with_pictures(&result, 4);
    char *page = forge_rendered("html", &result, 0);
    ck_assert_int_eq(count(page, "<figure"), 5);
    if (assay_plot_available())
        ck_assert_int_eq(count(page, "<img alt=\""), 5);
    else
        ck_assert_int_eq(count(page, "No picture:"), 5);
    ck_assert_int_eq(count(page, "alt=\"\""), 0);
    ck_assert_int_eq(count(page, "<table>"), count(page, "<thead>"));
    ck_assert_int_eq(count(page, "<table>"), count(page, "<caption"));
    ck_assert_int_eq(count(page, "<th>"), 0); /* all have a scope */
    free(page);
    assay_result_clear(&result);
}
END_TEST

START_TEST(page_carries_out_no_text_of_a_stranger)
{
    assay_result result;
    unlink(CANARY);
    forge_with_pictures(&result, 2);
    char *page = forge_rendered("html", &result, 0);
    ck_assert_int_ne(access(CANARY, F_OK), 0);
    ck_assert_ptr_null(strstr(page, "a<b>"));
    ck_assert_ptr_nonnull(strstr(page, "a&lt;b&gt;&amp;"));
    free(page);
    assay_result_clear(&result);
}
END_TEST

START_TEST(page_without_gnuplot_says_so_and_holds_the_numbers)
{
    assay_result result;
    setenv("PATH", "/nowhere", 1);
    forge_with_pictures(&result, 2);
    ck_assert(!assay_plot_available());
    char *page = forge_rendered("html", &result, 0);
    ck_assert_ptr_nonnull(strstr(page, "gnuplot, which draws the pictures, is not installed"));
    ck_assert_int_eq(count(page, "<details open>"), 5);
    ck_assert_int_eq(count(page, "<img"), 0);
    ck_assert_ptr_nonnull(strstr(page, "<th scope=\"row\">attn.proj</th><td>NaN</td>"));
    free(page);
    assay_result_clear(&result);
}
END_TEST

START_TEST(page_of_two_thousand_points_is_made_quickly)
{
    assay_result result;
    forge_with_pictures(&result, 500);
    char *page = forge_rendered("html", &result, 0);
    ck_assert_uint_lt(strlen(page), 6u << 20);
    free(page);
    assay_result_clear(&result);
}
END_TEST

START_TEST(page_draws_the_confusion_matrix_of_a_campaign)
{
    assay_result result;
    forge_result_clean(&result);
    json_object_set_new(result.extra, "confusion",
                        json_pack("{s:{s:i, s:i}, s:{s:i}}", "BUFFER", "BUFFER", 9, "UNKNOWN", 1,
                                  "LEAK", "LEAK", 4));
    char *page = forge_rendered("html", &result, 0);
    ck_assert_int_eq(count(page, "<figure"), 1);
    ck_assert_ptr_nonnull(
        strstr(page, "<th scope=\"row\">BUFFER</th><td>9</td><td>0</td><td>1</td>"));
    ck_assert(!assay_plot_available() ||
              strstr(page, "Largest 9 at planted class BUFFER, named class BUFFER."));
    free(page);
    assay_result_clear(&result);
}
END_TEST

/* Every tag that is opened is closed; <img>, <meta> and the doctype stand alone. */
START_TEST(page_is_well_formed)
{
    static const char checker[] =
        "import sys\n"
        "from html.parser import HTMLParser\n"
        "class P(HTMLParser):\n"
        "    stack = []\n"
        "    def handle_starttag(self, tag, attrs):\n"
        "        if tag not in ('meta', 'img'): self.stack.append(tag)\n"
        "    def handle_endtag(self, tag):\n"
        "        if not self.stack or self.stack.pop() != tag: sys.exit('wrong end of ' + tag)\n"
        "p = P(); p.feed(open(sys.argv[1], encoding='utf-8').read()); p.close()\n"
        "sys.exit(1 if p.stack else 0)\n";
    assay_result result;
    forge_with_pictures(&result, 2);
    EXPECT_OK(assay_render_folder(data_scratch("page"), &result, &(assay_render_options){0}));
    char path[1024];
    snprintf(path, sizeof path, "%s/index.html", data_scratch("page"));
    pid_t pid = fork();
    if (!pid) {
        execlp("python3", "python3", "-c", checker, path, (char *)NULL);
        _exit(0); /* no Python here */
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ck_assert_int_eq(status, 0);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("html", page_asks_the_network_for_nothing_and_runs_nothing,
            page_gives_every_picture_a_name_and_every_column_a_header,
            page_carries_out_no_text_of_a_stranger,
            page_without_gnuplot_says_so_and_holds_the_numbers,
            page_of_two_thousand_points_is_made_quickly,
            page_draws_the_confusion_matrix_of_a_campaign, page_is_well_formed)
