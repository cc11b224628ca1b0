/* A checklist from YAML. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "suites/checklist.h"

typedef enum { PATH, WORD, COUNT, NUMBER, LIST } key_type;

typedef struct run_key {
    const char *name;
    key_type type;
    size_t offset;
} run_key;

static const run_key keys[] = {
#define X(name, type, member, meaning) {name, type, offsetof(assay_checklist_run, member)},
#include "suites/checklist.def"
#undef X
};

static const assay_checklist_key listed[] = {
#define X(name, type, member, meaning) {name, #type, meaning},
#include "suites/checklist.def"
#undef X
};

enum { N_KEYS = (int)(sizeof keys / sizeof *keys) };

int assay_checklist_key_count(void)
{
    return N_KEYS;
}

const assay_checklist_key *assay_checklist_key_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= N_KEYS);
    return &listed[index];
}

/* The document, and where it came from. */
typedef struct reader {
    yaml_document_t document;
    const char *file;
    assay_checklist *list;
} reader;

static assay_status wrong(const reader *r, const yaml_node_t *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static assay_status wrong(const reader *r, const yaml_node_t *node, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return assay_fail(ASSAY_BAD_FILE, "'%s': line %zu, column %zu: %s", r->file,
                      node->start_mark.line + 1, node->start_mark.column + 1, text);
}

static yaml_node_t *node_at(reader *r, int index)
{
    return yaml_document_get_node(&r->document, index);
}

static const char *kind_of(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE     ? "a single value"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
           : node->type == YAML_MAPPING_NODE  ? "a mapping"
                                              : "nothing";
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static assay_status get_text(char **out, const reader *r, const yaml_node_t *node, const char *key)
{
    if (node->type != YAML_SCALAR_NODE)
        return wrong(r, node, "'%s' must be a text, found %s", key, kind_of(node));
    if (strlen(text_of(node)) != node->data.scalar.length)
        return wrong(r, node, "'%s' holds a NUL character", key);
    if (!node->data.scalar.length)
        return wrong(r, node, "'%s' is empty", key);
    free(*out);
    *out = strdup(text_of(node));
    return *out ? ASSAY_OK : assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
}

static assay_status get_number(double *out, const reader *r, const yaml_node_t *node,
                               const char *key)
{
    char *end = NULL;
    if (node->type != YAML_SCALAR_NODE)
        return wrong(r, node, "'%s' must be a number, found %s", key, kind_of(node));
    errno = 0;
    double x = strtod(text_of(node), &end);
    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || end == text_of(node) || *end ||
        !isfinite(x) || x < 0)
        return wrong(r, node, "'%s' must be a number from 0, found '%.40s'", key, text_of(node));
    *out = x;
    return ASSAY_OK;
}

static assay_status get_count(int64_t *out, const reader *r, const yaml_node_t *node,
                              const char *key)
{
    double x = 0;
    ASSAY_TRY(get_number(&x, r, node, key));
    if (x != floor(x) || x > 1e6)
        return wrong(r, node, "'%s' must be a whole number from 0 to 1000000, found '%.40s'", key,
                     text_of(node));
    *out = (int64_t)x;
    return ASSAY_OK;
}

/* A file, looked for beside the checklist. */
static assay_status get_path(char **out, const reader *r, const yaml_node_t *node, const char *key)
{
    const char *slash = strrchr(r->file, '/');
    char *text = NULL, *path = NULL;
    ASSAY_TRY(get_text(&text, r, node, key));
    if (text[0] == '/' || !slash)
        path = strdup(text);
    else if (asprintf(&path, "%.*s/%s", (int)(slash - r->file), r->file, text) < 0)
        path = NULL;
    free(text);
    if (!path)
        return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
    char *colon = strrchr(path, ':'); /* FILE:PROMPT */
    bool there = !access(path, R_OK);
    if (!there && colon) {
        *colon = '\0';
        there = !access(path, R_OK);
        *colon = ':';
    }
    if (!there) {
        assay_status s = wrong(r, node, "'%s': file '%s' cannot be read", key, path);
        free(path);
        return s;
    }
    free(*out);
    *out = path;
    return ASSAY_OK;
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words))
            return true;
    return false;
}

static assay_status check_word(const reader *r, const yaml_node_t *node, const char *key)
{
    static const char *const backends[] = {"cpu", "cuda", NULL},
                             *const paths[] = {"latent", "expanded", NULL},
                             *const dtypes[] = {"f32", "bf16", NULL};
    const char *text = text_of(node);
    if (!strcmp(key, "backend") && !is_one_of(text, backends))
        return wrong(r, node, "'backend' is cpu or cuda, found '%.40s'", text);
    if (!strcmp(key, "path") && !is_one_of(text, paths))
        return wrong(r, node, "'path' is latent or expanded, found '%.40s'", text);
    if (!strcmp(key, "dtype") && !is_one_of(text, dtypes))
        return wrong(r, node, "'dtype' is f32 or bf16, found '%.40s'", text);
    if (!strcmp(key, "profile") && !assay_profile_find(text))
        return wrong(r, node, "there is no profile '%.40s' (`assay list profiles`)", text);
    return ASSAY_OK;
}

static bool is_row(const char *name)
{
    for (int i = 0; i < assay_check_count(); i++)
        if (!strcmp(assay_check_at(i)->name, name))
            return true;
    return false;
}

static assay_status get_list(assay_strings *out, reader *r, const yaml_node_t *node,
                             const char *key)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return wrong(r, node, "'%s' must be a list, found %s", key, kind_of(node));
    assay_strings_clear(out);
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top;
         i++) {
        const yaml_node_t *item = node_at(r, *i);
        char *text = NULL;
        ASSAY_TRY(get_text(&text, r, item, key));
        assay_status s = ASSAY_OK;
        if (strcmp(key, "prompts") != 0 && !is_row(text))
            s = wrong(r, item, "there is no row '%.40s' (`assay list checks`)", text);
        if (s == ASSAY_OK)
            s = assay_strings_add_once(out, text);
        free(text);
        ASSAY_TRY(s);
    }
    if (!out->n)
        return wrong(r, node, "'%s' is empty", key);
    return ASSAY_OK;
}

static assay_status set_key(assay_checklist_run *run, reader *r, const run_key *key,
                            const yaml_node_t *node)
{
    void *member = (char *)run + key->offset;
    switch (key->type) {
    case PATH:
        return get_path(member, r, node, key->name);
    case WORD:
        ASSAY_TRY(get_text(member, r, node, key->name));
        return check_word(r, node, key->name);
    case COUNT:
        return get_count(member, r, node, key->name);
    case NUMBER:
        return get_number(member, r, node, key->name);
    case LIST:
        return get_list(member, r, node, key->name);
    }
    return ASSAY_OK;
}

static const run_key *find_key(const char *name)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

/* Calls fn for each pair of a mapping; keys are texts and stand once. */
typedef assay_status pair_fn(void *user, reader *r, const yaml_node_t *key,
                             const yaml_node_t *value);

static assay_status each_pair(reader *r, const yaml_node_t *node, const char *what, pair_fn *fn,
                              void *user)
{
    if (node->type != YAML_MAPPING_NODE)
        return wrong(r, node, "%s must be a mapping, found %s", what, kind_of(node));
    yaml_node_pair_t *first = node->data.mapping.pairs.start, *end = node->data.mapping.pairs.top;
    for (yaml_node_pair_t *p = first; p < end; p++) {
        const yaml_node_t *key = node_at(r, p->key);
        if (key->type != YAML_SCALAR_NODE)
            return wrong(r, key, "a key must be a text, found %s", kind_of(key));
        for (yaml_node_pair_t *q = first; q < p; q++)
            if (!strcmp(text_of(node_at(r, q->key)), text_of(key)))
                return wrong(r, key, "key '%.40s' stands twice", text_of(key));
        ASSAY_TRY(fn(user, r, key, node_at(r, p->value)));
    }
    return ASSAY_OK;
}

static void run_clear(assay_checklist_run *run)
{
    for (int i = 0; i < N_KEYS; i++) {
        void *member = (char *)run + keys[i].offset;
        if (keys[i].type == PATH || keys[i].type == WORD)
            free(*(char **)member);
        else if (keys[i].type == LIST)
            assay_strings_clear(member);
    }
}

static void run_init(assay_checklist_run *run)
{
    *run = (assay_checklist_run){0};
    for (int i = 0; i < N_KEYS; i++) {
        void *member = (char *)run + keys[i].offset;
        if (keys[i].type == COUNT)
            *(int64_t *)member = -1;
        else if (keys[i].type == NUMBER)
            *(double *)member = NAN;
    }
}

/* Takes from the defaults what the run leaves out. */
static assay_status run_inherit(assay_checklist_run *run, const assay_checklist_run *defaults)
{
    for (int i = 0; i < N_KEYS; i++) {
        void *mine = (char *)run + keys[i].offset;
        const void *theirs = (const char *)defaults + keys[i].offset;
        const char *text = NULL;
        switch (keys[i].type) {
        case PATH:
        case WORD:
            text = *(char *const *)theirs;
            if (!*(char **)mine && text && !(*(char **)mine = strdup(text)))
                return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
            break;
        case COUNT:
            if (*(int64_t *)mine < 0)
                *(int64_t *)mine = *(const int64_t *)theirs;
            break;
        case NUMBER:
            if (isnan(*(double *)mine))
                *(double *)mine = *(const double *)theirs;
            break;
        case LIST:
            for (int k = 0; !((assay_strings *)mine)->n && k < ((const assay_strings *)theirs)->n;)
                for (; k < ((const assay_strings *)theirs)->n; k++)
                    ASSAY_TRY(
                        assay_strings_add(mine, "%s", ((const assay_strings *)theirs)->items[k]));
            break;
        }
    }
    return ASSAY_OK;
}

static assay_status run_pair(void *user, reader *r, const yaml_node_t *key,
                             const yaml_node_t *value)
{
    const run_key *known = find_key(text_of(key));
    if (!known)
        return wrong(r, key, "unknown key '%.40s' in an entry of 'models'", text_of(key));
    return set_key(user, r, known, value);
}

static assay_status expected_pair(void *user, reader *r, const yaml_node_t *key,
                                  const yaml_node_t *value)
{
    assay_check_expected *e = user;
    if (!strcmp(text_of(key), "prompt"))
        return get_text((char **)&e->prompt, r, value, "prompt");
    if (!strcmp(text_of(key), "text"))
        return get_text((char **)&e->text, r, value, "text");
    return wrong(r, key, "unknown key '%.40s' in an entry of 'expect' (prompt, text)",
                 text_of(key));
}

static bool is_date(const char *text)
{
    int year, month, day, n = 0;
    return sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &n) == 3 && n == 10 && !text[10] &&
           year > 1999 && month > 0 && month < 13 && day > 0 && day < 32;
}

static assay_status accept_pair(void *user, reader *r, const yaml_node_t *key,
                                const yaml_node_t *value)
{
    assay_acceptance *a = user;
    const struct {
        const char *name;
        char **member;
    } members[] = {{"check", &a->check},    {"class", &a->fault_class}, {"kind", &a->kind},
                   {"point", &a->point},    {"reason", &a->reason},     {"owner", &a->owner},
                   {"expires", &a->expires}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(text_of(key), members[i].name) != 0)
            continue;
        ASSAY_TRY(get_text(members[i].member, r, value, members[i].name));
        if (members[i].member == &a->check && !is_row(a->check))
            return wrong(r, value, "there is no row '%.40s' (`assay list checks`)", a->check);
        if (members[i].member == &a->fault_class && strcmp(a->fault_class, "UNKNOWN") != 0 &&
            !assay_fault_find(a->fault_class))
            return wrong(r, value, "there is no fault class '%.40s' (`assay list faults`)",
                         a->fault_class);
        if (members[i].member == &a->expires && !is_date(a->expires))
            return wrong(r, value, "'expires' must be a day as 2027-01-31, found '%.40s'",
                         a->expires);
        return ASSAY_OK;
    }
    return wrong(r, key,
                 "unknown key '%.40s' in an entry of 'accept' (check, class, kind, point, reason, "
                 "owner, expires)",
                 text_of(key));
}

static assay_status check_acceptance(const reader *r, const yaml_node_t *node,
                                     const assay_acceptance *a)
{
    if (!a->check == !a->fault_class)
        return wrong(r, node, "an entry of 'accept' needs either 'class' or 'check'");
    if (a->check && (a->kind || a->point))
        return wrong(r, node, "'kind' and 'point' belong to 'class', not to 'check'");
    if (!a->reason || !a->owner || !a->expires)
        return wrong(r, node, "an entry of 'accept' needs 'reason', 'owner' and 'expires'");
    return ASSAY_OK;
}

/* One more zeroed element behind a list. */
static assay_status grow(void *items, int *n, size_t size)
{
    char *old, *more;
    memcpy(&old, items, sizeof old);
    more = realloc(old, ((size_t)*n + 1) * size);
    if (!more)
        return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
    memset(more + (size_t)*n * size, 0, size);
    memcpy(items, &more, sizeof more);
    ++*n;
    return ASSAY_OK;
}

static assay_status add_entry(reader *r, const char *key, const yaml_node_t *node)
{
    assay_checklist *list = r->list;
    if (!strcmp(key, "models")) {
        ASSAY_TRY(grow(&list->runs, &list->n_runs, sizeof *list->runs));
        assay_checklist_run *run = &list->runs[list->n_runs - 1];
        run_init(run);
        return each_pair(r, node, "an entry of 'models'", run_pair, run);
    }
    if (!strcmp(key, "expect")) {
        ASSAY_TRY(grow(&list->expected, &list->n_expected, sizeof *list->expected));
        assay_check_expected *e = &list->expected[list->n_expected - 1];
        ASSAY_TRY(each_pair(r, node, "an entry of 'expect'", expected_pair, e));
        if (!e->prompt || !e->text)
            return wrong(r, node, "an entry of 'expect' needs 'prompt' and 'text'");
        return ASSAY_OK;
    }
    ASSAY_TRY(grow(&list->acceptances, &list->n_acceptances, sizeof *list->acceptances));
    assay_acceptance *a = &list->acceptances[list->n_acceptances - 1];
    a->line = (int)node->start_mark.line + 1;
    a->column = (int)node->start_mark.column + 1;
    ASSAY_TRY(each_pair(r, node, "an entry of 'accept'", accept_pair, a));
    return check_acceptance(r, node, a);
}

static assay_status top_pair(void *user, reader *r, const yaml_node_t *key,
                             const yaml_node_t *value)
{
    static const char *const lists[] = {"models", "expect", "accept", NULL};
    const char *name = text_of(key);
    const run_key *known = find_key(name);
    (void)user;
    if (!strcmp(name, "checklist"))
        return get_text(&r->list->name, r, value, name);
    if (!strcmp(name, "about"))
        return get_text(&r->list->about, r, value, name);
    if (known)
        return set_key(&r->list->defaults, r, known, value);
    if (!is_one_of(name, lists))
        return wrong(r, key, "unknown key '%.40s'", name);
    if (value->type != YAML_SEQUENCE_NODE)
        return wrong(r, value, "'%s' must be a list, found %s", name, kind_of(value));
    for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top;
         i++)
        ASSAY_TRY(add_entry(r, name, node_at(r, *i)));
    return ASSAY_OK;
}

static assay_status read_document(reader *r)
{
    yaml_node_t *root = yaml_document_get_root_node(&r->document);
    if (!root)
        return assay_fail(ASSAY_BAD_FILE, "'%s': line 1, column 1: the file is empty", r->file);
    ASSAY_TRY(each_pair(r, root, "a checklist", top_pair, NULL));
    if (!r->list->name)
        return wrong(r, root, "key 'checklist' (its name) is missing");
    for (int i = 0; i < r->list->n_runs; i++)
        ASSAY_TRY(run_inherit(&r->list->runs[i], &r->list->defaults));
    return ASSAY_OK;
}

/* libyaml has a text for every error but a lack of memory, for which it may lack the code, too. */
static assay_status not_yaml(const yaml_parser_t *parser, const char *path)
{
    if (!parser->problem)
        return assay_fail(ASSAY_NO_MEMORY, "'%s': no memory to read it", path);
    return assay_fail(ASSAY_BAD_FILE, "'%s': line %zu, column %zu: %s", path,
                      parser->problem_mark.line + 1, parser->problem_mark.column + 1,
                      parser->problem);
}

/* libyaml resolves aliases to the node they name; a list has no use for them, and cycles through
 * them would never end. */
static assay_status refuse_aliases(FILE *file, const char *path)
{
    yaml_parser_t parser;
    yaml_event_t event;
    assay_status s = ASSAY_OK;
    int documents = 0;
    bool end = false;
    if (!yaml_parser_initialize(&parser))
        return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
    yaml_parser_set_input_file(&parser, file);
    while (s == ASSAY_OK && !end) {
        if (!yaml_parser_parse(&parser, &event)) {
            s = not_yaml(&parser, path);
            break;
        }
        size_t line = event.start_mark.line + 1, column = event.start_mark.column + 1;
        if (event.type == YAML_ALIAS_EVENT)
            s = assay_fail(ASSAY_BAD_FILE, "'%s': line %zu, column %zu: aliases are not allowed",
                           path, line, column);
        else if (event.type == YAML_DOCUMENT_START_EVENT && documents++)
            s = assay_fail(ASSAY_BAD_FILE, "'%s': line %zu, column %zu: a second document", path,
                           line, column);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return s;
}

static assay_status read_file(assay_checklist *list, FILE *file, const char *path)
{
    reader r = {.file = path, .list = list};
    yaml_parser_t parser;
    ASSAY_TRY(refuse_aliases(file, path));
    rewind(file);
    if (!yaml_parser_initialize(&parser))
        return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
    yaml_parser_set_input_file(&parser, file);
    assay_status s = ASSAY_OK;
    if (yaml_parser_load(&parser, &r.document)) {
        s = read_document(&r);
        yaml_document_delete(&r.document);
    } else {
        s = not_yaml(&parser, path);
    }
    yaml_parser_delete(&parser);
    return s;
}

assay_status assay_checklist_read(assay_checklist **out, const char *path)
{
    assay_checklist *list;
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s': cannot be opened: %s", path, strerror(errno));
    assay_status s = assay_alloc(&list, 1, sizeof *list, "checklist");
    if (s == ASSAY_OK) {
        run_init(&list->defaults);
        list->file = strdup(path);
        s = list->file ? read_file(list, file, path)
                       : assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
        if (s == ASSAY_OK)
            *out = list;
        else
            assay_checklist_free(list);
    }
    fclose(file);
    return s;
}

void assay_checklist_free(assay_checklist *list)
{
    if (!list)
        return;
    run_clear(&list->defaults);
    for (int i = 0; i < list->n_runs; i++)
        run_clear(&list->runs[i]);
    for (int i = 0; i < list->n_expected; i++) {
        free((char *)list->expected[i].prompt);
        free((char *)list->expected[i].text);
    }
    for (int i = 0; i < list->n_acceptances; i++) {
        assay_acceptance *a = &list->acceptances[i];
        char *texts[] = {a->check,  a->fault_class, a->kind,   a->point,
                         a->reason, a->owner,       a->expires};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            free(texts[k]);
    }
    free(list->runs);
    free(list->expected);
    free(list->acceptances);
    free(list->file);
    free(list->name);
    free(list->about);
    free(list);
}
