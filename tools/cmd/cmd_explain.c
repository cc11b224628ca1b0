/*
 * assay explain: one fault class: what it is, what to do, how it can be planted.
 */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "reports/fault.h"
#include "reports/text.h"
#include "tools/misspelt.h"
#include "tools/options.h"

enum { WIDTH = 100 };

/* What findings carry when no class fits; not a row of the table, since nothing can be planted. */
static const assay_fault unknown = {
    .name = "UNKNOWN",
    .definition =
        "A value is wrong, and no class of the table explains how. `assay compare` always "
        "says so, because it has only values; `assay diagnose` says so when no "
        "explanation removes the error.",
    .advice =
        "After compare: `assay diagnose CANDIDATE --model MODEL`. After diagnose: look at the "
        "shape of the error (rows, heads, channels) and at the elements (`assay show`). When "
        "most points are wrong, ask first whether MODEL is what was run."};

static json_t *to_json(const assay_fault *fault)
{
    json_t *kinds = json_array();
    for (const assay_fault_kind *k = fault->kinds; k && k->name; k++) {
        json_t *row = json_pack("{s:s, s:s, s:s}", "kind", k->name, "about", k->about, "home",
                                k->home ? k->home : "");
        json_array_append_new(kinds, row);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "assay", ASSAY_VERSION, "class", fault->name,
                     "definition", fault->definition, "advice", fault->advice, "kinds", kinds);
}

static void print(const assay_fault *fault)
{
    printf("%s\n\n", fault->name);
    assay_text_wrap(stdout, fault->definition, 0, 0, WIDTH);
    printf("\nWhat to do: ");
    assay_text_wrap(stdout, fault->advice, 12, 0, WIDTH);
    if (fault == &unknown)
        return;
    if (!fault->kinds || !fault->kinds[0].name) {
        printf("\nCannot be planted in this engine yet.\n");
        return;
    }
    printf("\nTo plant it (--plant KIND[:layer=A,head=B,step=S,value=V]):\n");
    for (const assay_fault_kind *k = fault->kinds; k->name; k++) {
        printf("  %-24s %s", k->name, k->about);
        if (!isnan(k->weakest))
            printf(" (value %g ... %g)", k->weakest, k->strongest);
        printf(" [%s]\n", k->home ? k->home : "");
    }
}

static const char *class_name(int index)
{
    return index < assay_fault_count() ? assay_fault_at(index)->name : NULL;
}

/* The class that is meant, in whatever case it was written; else all of them. */
static assay_status refuse(const char *word)
{
    char upper[64] = "", list[1024] = "";
    size_t n = 0;
    for (size_t i = 0; word[i] && i + 1 < sizeof upper; i++)
        upper[i] = (char)toupper((unsigned char)word[i]);
    const char *nearest = assay_nearest(upper, class_name);
    if (nearest)
        return assay_fail(ASSAY_USAGE,
                          "no class '%s'; did you mean '%s'? `assay list faults` lists "
                          "them",
                          word, nearest);
    for (int i = 0; i < assay_fault_count() && n < sizeof list - 32; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, " %s", assay_fault_at(i)->name);
    return assay_fail(ASSAY_USAGE, "no class '%s'; there are:%s", word, list);
}

int assay_cmd_explain(int argc, char **argv)
{
    assay_options common;
    assay_cli cli = {.min_args = 1, .max_args = 1};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    const assay_fault *fault = assay_fault_find(common.args[0]);
    int of_kind;
    if (!fault && assay_fault_kind_find(common.args[0], &of_kind)) /* a plant: its class */
        fault = assay_fault_at(of_kind);
    if (!fault && !strcasecmp(common.args[0], unknown.name))
        fault = &unknown;
    if (!fault)
        return assay_end_failed(&common, refuse(common.args[0]));
    if (common.json) {
        json_t *json = to_json(fault);
        json_dumpf(json, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(json);
    } else {
        print(fault);
    }
    return 0;
}
