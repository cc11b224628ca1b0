/*
 * assay list TABLE: the rows of a table, as the program has them. A row of output is a few texts;
 * the first is the name.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch.h"
#include "engine/point.h"
#include "engine/quant.h"
#include "engine/seam.h"
#include "reports/render.h"
#include "suites/check.h"
#include "suites/checklist.h"
#include "tools/misspelt.h"
#include "tools/options.h"
#include "tools/progress.h"

#define MAX_COLUMNS 6
#define CELL_BYTES 512

/* Fills row `index`; false: there is no such row. */
typedef bool row_fn(char cells[MAX_COLUMNS][CELL_BYTES], int index);

static void put(char cell[CELL_BYTES], const char *text)
{
    snprintf(cell, CELL_BYTES, "%s", text ? text : "");
}

static bool commands_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    const assay_command *c = assay_command_at(index);
    if (!c)
        return false;
    put(cells[0], c->name);
    put(cells[1], c->synopsis);
    put(cells[2], c->help);
    return true;
}

static bool points_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= ASSAY_POINT_COUNT)
        return false;
    const assay_point_info *p = assay_point_at((assay_point)index);
    snprintf(cells[0], CELL_BYTES, "%s%s", p->per_layer ? "blk.N." : "", p->name);
    int n = snprintf(cells[1], CELL_BYTES, "[");
    for (const char *axis = p->axes; *axis; axis++)
        n += snprintf(cells[1] + n, (size_t)(CELL_BYTES - n), "%s%c", axis == p->axes ? "" : ",",
                      *axis);
    snprintf(cells[1] + n, (size_t)(CELL_BYTES - n), "]");
    put(cells[2], p->made_by);
    put(cells[3], p->read_by);
    return true;
}

static bool faults_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_fault_count())
        return false;
    const assay_fault *f = assay_fault_at(index);
    put(cells[0], f->name);
    put(cells[1], f->definition);
    cells[2][0] = '\0';
    int n = 0;
    for (const assay_fault_kind *k = f->kinds; k && k->name && n < CELL_BYTES; k++)
        n += snprintf(cells[2] + n, (size_t)(CELL_BYTES - n), "%s%s", n ? " " : "", k->name);
    return true;
}

static bool kinds_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    for (int i = 0; i < assay_fault_count(); i++) {
        const assay_fault *f = assay_fault_at(i);
        for (const assay_fault_kind *k = f->kinds; k && k->name; k++)
            if (!index--) {
                put(cells[0], k->name);
                put(cells[1], f->name);
                put(cells[2], k->about);
                return true;
            }
    }
    return false;
}

static bool quants_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_quant_count())
        return false;
    const assay_quant *q = assay_quant_at(index);
    put(cells[0], q->name);
    snprintf(cells[1], CELL_BYTES, "%d", q->number);
    snprintf(cells[2], CELL_BYTES, "%d", q->block_elements);
    snprintf(cells[3], CELL_BYTES, "%d", q->block_bytes);
    put(cells[4], q->decode ? "decoded" : "known, not decoded");
    return true;
}

static bool architectures_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_arch_count())
        return false;
    put(cells[0], assay_arch_name(index));
    put(cells[1], assay_arch_about(index));
    return true;
}

static bool checks_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_check_count())
        return false;
    const assay_check *c = assay_check_at(index);
    put(cells[0], c->name);
    put(cells[1], c->shows);
    put(cells[2], c->needs);
    return true;
}

static bool checklist_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_checklist_key_count())
        return false;
    const assay_checklist_key *k = assay_checklist_key_at(index);
    put(cells[0], k->name);
    put(cells[1], k->type);
    put(cells[2], k->meaning);
    return true;
}

static bool profiles_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_profile_count())
        return false;
    const assay_profile *p = assay_profile_at(index);
    put(cells[0], p->name);
    put(cells[1], p->about);
    return true;
}

static bool renderers_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= assay_renderer_count())
        return false;
    put(cells[0], assay_renderer_at(index)->name);
    put(cells[1], assay_renderer_at(index)->file_name);
    return true;
}

static bool seams_row(char cells[MAX_COLUMNS][CELL_BYTES], int index)
{
    if (index >= ASSAY_SEAM_COUNT)
        return false;
    put(cells[0], assay_seam_name((assay_seam)index));
    put(cells[1], assay_seam_where((assay_seam)index));
    put(cells[2], assay_seam_meaning((assay_seam)index));
    return true;
}

static const struct {
    const char *name, *about, *columns[MAX_COLUMNS];
    row_fn *row;
} tables[] = {
    {"commands", "what this program does", {"name", "arguments", "about"}, commands_row},
    {"checks", "rows of `assay check`", {"name", "shows", "needs"}, checks_row},
    {"checklist",
     "keys of a list for `assay check --list`",
     {"name", "type", "meaning"},
     checklist_row},
    {"points", "places of the forward pass", {"name", "axes", "made by", "read by"}, points_row},
    {"faults", "fault classes", {"name", "definition", "plants"}, faults_row},
    {"plants", "faults that --plant puts in", {"name", "class", "about"}, kinds_row},
    {"seams", "what the engine consults and a plant bends", {"name", "on", "meaning"}, seams_row},
    {"quants",
     "tensor types of GGUF files",
     {"name", "number", "elements", "bytes", "support"},
     quants_row},
    {"architectures", "model architectures", {"name", "about"}, architectures_row},
    {"profiles", "conventions of other engines", {"name", "about"}, profiles_row},
    {"renderers", "forms of a result", {"name", "file"}, renderers_row},
};

#define N_TABLES ((int)(sizeof tables / sizeof *tables))

static int n_columns(int table)
{
    int n = 0;
    while (n < MAX_COLUMNS && tables[table].columns[n])
        n++;
    return n;
}

static void print_text(int table)
{
    char cells[MAX_COLUMNS][CELL_BYTES];
    int n = n_columns(table), width[MAX_COLUMNS] = {0};
    for (int i = 0; tables[table].row(cells, i); i++)
        for (int c = 0; c < n; c++)
            if ((int)strlen(cells[c]) > width[c])
                width[c] = (int)strlen(cells[c]);
    for (int i = 0; tables[table].row(cells, i); i++)
        for (int c = 0; c < n; c++)
            printf("%-*s%s", c + 1 < n ? width[c] : 0, cells[c], c + 1 < n ? "  " : "\n");
}

static int print_json(int table)
{
    char cells[MAX_COLUMNS][CELL_BYTES];
    json_t *rows = json_array();
    for (int i = 0; rows && tables[table].row(cells, i); i++) {
        json_t *row = json_object();
        for (int c = 0; c < n_columns(table); c++)
            json_object_set_new(row, tables[table].columns[c], json_string(cells[c]));
        json_array_append_new(rows, row);
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o}", "assay", ASSAY_VERSION, "command", "list",
                            "table", tables[table].name, "rows", rows);
    int failed = !all || json_dumpf(all, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(all);
    return failed ? ASSAY_EXIT_BROKEN : 0;
}

static const char *table_name(int index)
{
    return index < N_TABLES ? tables[index].name : NULL;
}

int assay_cmd_list(int argc, char **argv)
{
    assay_options common;
    assay_cli cli = {.max_args = 1, .about = "Without TABLE, the tables are listed."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_progress_end();
    for (int t = 0; !common.n_args && t < N_TABLES; t++)
        printf("%-13s %s\n", tables[t].name, tables[t].about);
    if (!common.n_args)
        return 0;
    for (int t = 0; t < N_TABLES; t++)
        if (!strcmp(tables[t].name, common.args[0])) {
            if (common.json)
                return print_json(t);
            print_text(t);
            return 0;
        }
    const char *nearest = assay_nearest(common.args[0], table_name);
    return assay_end_failed(
        &common, assay_fail(ASSAY_USAGE, "'%s' is not a table; `assay list` lists them%s%s%s",
                            common.args[0], nearest ? "; did you mean '" : "",
                            nearest ? nearest : "", nearest ? "'?" : ""));
}
