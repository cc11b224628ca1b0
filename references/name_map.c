#define PCRE2_CODE_UNIT_WIDTH 8
#include "references/name_map.h"

#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_ROWS 10000
#define MATCH_LIMIT 100000 /* steps of the matcher for one name: a bound for hostile patterns */

typedef struct map_row {
    assay_name_row row;
    pcre2_code *code;
    char *texts[8]; /* what row points to */
    int n_texts;
} map_row;

struct assay_name_map {
    map_row *rows;
    int n;
    pcre2_match_context *limits;
    pcre2_match_data *match;
};

typedef struct parser {
    assay_name_map *map;
    yaml_document_t document;
    const char *path;
} parser;

static assay_status wrong(const parser *p, const yaml_node_t *node, const char *what,
                          const char *subject)
{
    return assay_fail(ASSAY_BAD_FILE, "'%s', line %zu, column %zu: %s '%.80s'", p->path,
                      node->start_mark.line + 1, node->start_mark.column + 1, what, subject);
}

static const char *scalar(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

typedef assay_status read_key(map_row *row, const parser *p, const yaml_node_t *value,
                              const char *text);

static assay_status keep(const char **out, map_row *row, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return assay_fail(ASSAY_NO_MEMORY, "name map: no memory");
    row->texts[row->n_texts++] = copy;
    *out = copy;
    return ASSAY_OK;
}

static assay_status read_name(map_row *row, const parser *p, const yaml_node_t *value,
                              const char *text)
{
    int error;
    PCRE2_SIZE at;
    row->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                              PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, NULL);
    if (!row->code) {
        char why[160];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return assay_fail(error == PCRE2_ERROR_HEAP_FAILED ? ASSAY_NO_MEMORY : ASSAY_BAD_FILE,
                          "'%s', line %zu, column %zu: regular expression '%.80s' at %zu: %s",
                          p->path, value->start_mark.line + 1, value->start_mark.column + 1, text,
                          at, why);
    }
    return keep(&row->row.name, row, text);
}

static assay_status read_point(map_row *row, const parser *p, const yaml_node_t *value,
                               const char *text)
{
    char full[ASSAY_POINT_NAME_BYTES + 8];
    int layer;
    snprintf(full, sizeof full, "%.60s", text);
    if (assay_point_parse(&row->row.point, &layer, NULL, full) == ASSAY_OK && layer < 0)
        return ASSAY_OK;
    snprintf(full, sizeof full, "blk.0.%.60s", text);
    if (assay_point_parse(&row->row.point, &layer, NULL, full) != ASSAY_OK)
        return wrong(p, value, assay_error_text(), text);
    return ASSAY_OK;
}

static assay_status read_axes(map_row *row, const parser *p, const yaml_node_t *value,
                              const char *text)
{
    (void)p;
    (void)value;
    return keep(&row->row.layout.axes, row, text);
}

static assay_status read_take(map_row *row, const parser *p, const yaml_node_t *value,
                              const char *text)
{
    (void)p;
    (void)value;
    return keep(&row->row.layout.take, row, text);
}

static assay_status read_order(map_row *row, const parser *p, const yaml_node_t *value,
                               const char *text)
{
    (void)p;
    (void)value;
    return keep(&row->row.layout.order, row, text);
}

static assay_status read_hand_over(map_row *row, const parser *p, const yaml_node_t *value,
                                   const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > 9)
        return wrong(p, value, "hand_over must be 0 ... 9, not", text);
    row->row.hand_over = (int)n;
    return ASSAY_OK;
}

static assay_status read_shard(map_row *row, const parser *p, const yaml_node_t *value,
                               const char *text)
{
    if (!strcmp(text, "none"))
        row->row.shard = '-';
    else if (strlen(text) == 1 && text[0] >= 'A' && text[0] <= 'Z')
        row->row.shard = text[0];
    else
        return wrong(p, value, "shard must be the letter of an axis or none, not", text);
    return ASSAY_OK;
}

static assay_status read_skip(map_row *row, const parser *p, const yaml_node_t *value,
                              const char *text)
{
    if (!text[0])
        return wrong(p, value, "skip needs a reason, not", text);
    return keep(&row->row.reason, row, text);
}

static const struct {
    const char *name;
    read_key *read;
} keys[] = {{"name", read_name},   {"point", read_point}, {"axes", read_axes},
            {"take", read_take},   {"order", read_order}, {"hand_over", read_hand_over},
            {"shard", read_shard}, {"skip", read_skip}};

#define N_KEYS (int)(sizeof keys / sizeof *keys)

static int key_of(const char *name)
{
    for (int i = 0; name && i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name))
            return i;
    return -1;
}

static assay_status check_row(const map_row *row, const parser *p, const yaml_node_t *node)
{
    bool skip = row->row.reason != NULL, mapped = row->row.point != ASSAY_POINT_COUNT;
    if (!row->code)
        return wrong(p, node, "a row lacks its key", "name");
    if (skip == mapped)
        return wrong(p, node, "a row needs either",
                     skip ? "point or skip, not both" : "point or skip");
    assay_status s = assay_layout_check(&row->row.layout);
    if (s != ASSAY_OK)
        return assay_fail(ASSAY_BAD_FILE, "'%s', line %zu, column %zu: %s", p->path,
                          node->start_mark.line + 1, node->start_mark.column + 1,
                          assay_error_text());
    return ASSAY_OK;
}

static assay_status read_row(parser *p, const yaml_node_t *node)
{
    if (node->type != YAML_MAPPING_NODE)
        return wrong(p, node, "expected a mapping with keys name and point, found",
                     scalar(node) ? scalar(node) : "a list");
    map_row *row = &p->map->rows[p->map->n++];
    row->row = (assay_name_row){
        .point = ASSAY_POINT_COUNT, .layout = {"", "", ""}, .when = "", .name = ""};
    bool seen[N_KEYS] = {false};
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(&p->document, pair->key);
        yaml_node_t *value = yaml_document_get_node(&p->document, pair->value);
        const char *name = scalar(key), *text = scalar(value);
        int k = key_of(name);
        if (k < 0)
            return wrong(p, key,
                         "unknown key (known: name point axes take order hand_over shard "
                         "skip)",
                         name ? name : "");
        if (seen[k])
            return wrong(p, key, "a second", name);
        seen[k] = true;
        if (!text)
            return wrong(p, value, "expected a text for", name);
        ASSAY_TRY(keys[k].read(row, p, value, text));
    }
    return check_row(row, p, node);
}

static assay_status read_rows(parser *p, const yaml_node_t *list)
{
    if (list->type != YAML_SEQUENCE_NODE)
        return wrong(p, list, "expected a list of rows under", "maps");
    long n = list->data.sequence.items.top - list->data.sequence.items.start;
    if (n > MAX_ROWS)
        return wrong(p, list, "too many rows under", "maps");
    ASSAY_TRY(assay_alloc(&p->map->rows, (size_t)n, sizeof *p->map->rows, "name map"));
    for (long i = 0; i < n; i++)
        ASSAY_TRY(
            read_row(p, yaml_document_get_node(&p->document, list->data.sequence.items.start[i])));
    return ASSAY_OK;
}

static assay_status read_root(parser *p)
{
    yaml_node_t *root = yaml_document_get_root_node(&p->document);
    if (!root)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is empty", p->path);
    if (root->type != YAML_MAPPING_NODE)
        return wrong(p, root, "expected the key", "maps");
    bool found = false;
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(&p->document, pair->key);
        const char *name = scalar(key);
        if (!name || strcmp(name, "maps") || found)
            return wrong(p, key, found ? "a second" : "unknown key (known: maps)",
                         name ? name : "");
        found = true;
        ASSAY_TRY(read_rows(p, yaml_document_get_node(&p->document, pair->value)));
    }
    return found ? ASSAY_OK : wrong(p, root, "missing key", "maps");
}

static assay_status parse(parser *p, FILE *file)
{
    yaml_parser_t yaml;
    if (!yaml_parser_initialize(&yaml))
        return assay_fail(ASSAY_NO_MEMORY, "name map: no memory");
    yaml_parser_set_input_file(&yaml, file);
    assay_status s;
    if (!yaml_parser_load(&yaml, &p->document)) {
        /* libyaml has a text for every error but a lack of memory. */
        s = !yaml.problem ? assay_fail(ASSAY_NO_MEMORY, "'%s': no memory to read it", p->path)
                          : assay_fail(ASSAY_BAD_FILE, "'%s', line %zu, column %zu: %s", p->path,
                                       yaml.problem_mark.line + 1, yaml.problem_mark.column + 1,
                                       yaml.problem);
    } else {
        s = read_root(p);
        yaml_document_delete(&p->document);
    }
    yaml_parser_delete(&yaml);
    return s;
}

assay_status assay_name_map_open(assay_name_map **out, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s' cannot be read: %s", path, strerror(errno));
    parser p = {.path = path};
    assay_status s = assay_alloc(&p.map, 1, sizeof *p.map, "name map");
    if (s == ASSAY_OK) {
        p.map->limits = pcre2_match_context_create(NULL);
        p.map->match = pcre2_match_data_create(4, NULL);
        if (!p.map->limits || !p.map->match)
            s = assay_fail(ASSAY_NO_MEMORY, "name map: no memory");
    }
    if (s == ASSAY_OK) {
        pcre2_set_match_limit(p.map->limits, MATCH_LIMIT);
        s = parse(&p, file);
    }
    fclose(file);
    if (s != ASSAY_OK) {
        assay_name_map_close(p.map);
        return s;
    }
    *out = p.map;
    return ASSAY_OK;
}

void assay_name_map_close(assay_name_map *map)
{
    if (!map)
        return;
    for (int i = 0; i < map->n; i++) {
        pcre2_code_free(map->rows[i].code);
        for (int k = 0; k < map->rows[i].n_texts; k++)
            free(map->rows[i].texts[k]);
    }
    free(map->rows);
    pcre2_match_data_free(map->match);
    pcre2_match_context_free(map->limits);
    free(map);
}

int assay_name_map_count(const assay_name_map *map)
{
    return map ? map->n : 0;
}

assay_status assay_name_map_match(const assay_name_row **out, int *layer, const assay_name_map *map,
                                  int index, const char *name)
{
    const map_row *row = &map->rows[index];
    int n = pcre2_match(row->code, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, map->match,
                        map->limits);
    if (n == PCRE2_ERROR_NOMEMORY)
        return assay_fail(ASSAY_NO_MEMORY, "name map: no memory for a match");
    *out = n < 0 ? NULL : &row->row;
    *layer = -1;
    if (n < 0)
        return ASSAY_OK;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(map->match);
    if (n >= 2 && at[2] != PCRE2_UNSET && at[3] > at[2] && at[3] - at[2] <= 5) {
        char digits[8] = "";
        memcpy(digits, name + at[2], at[3] - at[2]);
        char *end;
        long value = strtol(digits, &end, 10);
        if (*end == '\0' && value >= 0)
            *layer = (int)value;
    }
    return ASSAY_OK;
}
