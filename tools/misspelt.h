/*
 * Names that are not known: the known ones that look like them, and options of a command line
 * before argp, which would name the unknown word alone.
 */
#ifndef ASSAY_TOOLS_MISSPELT_H
#define ASSAY_TOOLS_MISSPELT_H

#include <argp.h>
#include <stdbool.h>

#include "engine/base/status.h"

/*
 * Letters to put in, leave out, change or exchange with their neighbour until a is b, each letter
 * once (optimal string alignment).
 * Source: Damerau 1964, Commun. ACM 7(3), names these four as most of what goes wrong in typing.
 */
int assay_name_edits(const char *a, const char *b);

/* Names by index, NULL behind the last. */
typedef const char *assay_name_at_fn(int index);
/* The known name that looks most like this one; NULL when none does. */
const char *assay_nearest(const char *name, assay_name_at_fn *name_at);

/*
 * Reads the words as getopt_long does (abbreviations, values in words of their own, "--") and fails
 * with ASSAY_USAGE at the first long option that is in none of the tables: its nearest names among
 * them, or else the commands that have it. Abbreviations of several are left to argp, and so are
 * short options.
 */
assay_status assay_option_words_check(const struct argp_option *const *tables, int n_tables,
                                      int argc, char **argv);

#endif
