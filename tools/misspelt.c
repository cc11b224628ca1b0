#include "tools/misspelt.h"

#include <stdio.h>
#include <string.h>

#include "tools/options.h"

enum { MAX_NAME = 63, MAX_NAMED = 3 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

int assay_name_edits(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    int rows[3][MAX_NAME + 1]; /* edits of the first i letters of a and j of b; row i % 3 */
    if (n_a > MAX_NAME || n_b > MAX_NAME)
        return (int)(n_a + n_b);
    for (size_t i = 0; i <= n_a; i++)
        for (size_t j = 0; j <= n_b; j++) {
            int *at = &rows[i % 3][j];
            if (!i || !j) {
                *at = (int)(i + j);
                continue;
            }
            const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
            *at = least(above[j], rows[i % 3][j - 1]) + 1;
            *at = least(*at, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                *at = least(*at, above2[j - 2] + 1);
        }
    return rows[n_a % 3][n_b];
}

/* More edits than these are no likeness: two, and of short names less than half. */
static int most_edits(const char *known)
{
    return least(2, ((int)strlen(known) - 1) / 2);
}

const char *assay_nearest(const char *name, assay_name_at_fn *name_at)
{
    const char *best = NULL, *known;
    int fewest = 0;
    for (int i = 0; (known = name_at(i)); i++) {
        int n = assay_name_edits(name, known);
        if (n <= most_edits(known) && (!best || n < fewest)) {
            fewest = n;
            best = known;
        }
    }
    return best;
}

/* Options that every parser of argp has. */
static const struct argp_option argp_own[] = {{"help", '?', NULL, 0, NULL, 0},
                                              {"usage", 0, NULL, 0, NULL, 0},
                                              {"version", 'V', NULL, 0, NULL, 0},
                                              {0}};

/* Tables by index, argp's own behind them; NULL behind the last. */
static const struct argp_option *table_at(const struct argp_option *const *tables, int n, int index)
{
    return index < n ? tables[index] : index == n ? argp_own : NULL;
}

static bool is_end(const struct argp_option *o)
{
    return !o->name && !o->key;
}

/* The option whose name begins with these letters, or is these. *n_meant: how many do. */
static const struct argp_option *find_long(int *n_meant, const struct argp_option *const *tables,
                                           int n_tables, const char *name, size_t n)
{
    const struct argp_option *o, *found = NULL;
    *n_meant = 0;
    for (int t = 0; (o = table_at(tables, n_tables, t)); t++)
        for (; !is_end(o); o++) {
            if (!o->name || strncmp(o->name, name, n) != 0)
                continue;
            found = o;
            ++*n_meant;
            if (strlen(o->name) == n) {
                *n_meant = 1;
                return o;
            }
        }
    return found;
}

/* Whether the value of the last of these short options is the next word. */
static bool short_takes_next(const struct argp_option *const *tables, int n_tables,
                             const char *letters)
{
    for (; *letters; letters++) {
        const struct argp_option *o;
        for (int t = 0; (o = table_at(tables, n_tables, t)); t++)
            for (; !is_end(o); o++)
                if (o->key == *letters && o->arg)
                    return !letters[1]; /* else the rest of the word is its value */
    }
    return false;
}

typedef struct search {
    const char *name;
    bool found;
} search;

static void look(void *user, const char *header, const struct argp_option *options)
{
    search *s = user;
    (void)header;
    for (; !is_end(options); options++)
        s->found = s->found || (options->name && !strcmp(options->name, s->name));
}

static assay_status refuse(const struct argp_option *const *tables, int n_tables, const char *name)
{
    const struct argp_option *o;
    char list[256] = "";
    size_t n = 0;
    int fewest = 3, named = 0;
    for (int t = 0; (o = table_at(tables, n_tables, t)); t++)
        for (; !is_end(o); o++)
            if (o->name && assay_name_edits(name, o->name) <= most_edits(o->name))
                fewest = least(fewest, assay_name_edits(name, o->name));
    for (int t = 0; (o = table_at(tables, n_tables, t)); t++)
        for (; !is_end(o) && named < MAX_NAMED; o++)
            if (o->name && fewest <= most_edits(o->name) &&
                assay_name_edits(name, o->name) == fewest)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s'--%.64s'",
                                      named++ ? " or " : "", o->name);
    if (named)
        return assay_fail(ASSAY_USAGE, "'--%s' is not an option; did you mean %s?", name, list);
    for (int i = 0; i < assay_command_count(); i++) {
        search s = {name, false};
        assay_options_describe(assay_command_at(i), look, &s);
        if (s.found)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", named++ ? ", " : "",
                                  assay_command_at(i)->name);
    }
    if (named)
        return assay_fail(ASSAY_USAGE, "'--%s' is not an option of this command, but of %s", name,
                          list);
    return assay_fail(ASSAY_USAGE, "'--%s' is not an option", name);
}

assay_status assay_option_words_check(const struct argp_option *const *tables, int n_tables,
                                      int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0) {
            if (*word == '-')
                i += short_takes_next(tables, n_tables, word + 1);
            continue;
        }
        size_t n = strcspn(word + 2, "=");
        int n_meant;
        const struct argp_option *o = find_long(&n_meant, tables, n_tables, word + 2, n);
        if (!n_meant) {
            char name[MAX_NAME + 1];
            snprintf(name, sizeof name, "%.*s", (int)n, word + 2);
            return refuse(tables, n_tables, name);
        }
        if (n_meant == 1 && o->arg && !word[2 + n])
            i++;
    }
    return ASSAY_OK;
}
