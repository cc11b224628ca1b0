#include "main_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"

const main_command main_commands[] = {
    {"inspect", {"inspect", "MODEL"}, 0, NULL},
    {"capture",
     {"run", "MODEL", "--prompt", "Count", "-n", "2", "--capture", "@/run.h5", "--quiet"},
     0,
     "run.h5"},
    {"reference",
     {"reference", "MODEL", "--prompt", "Count", "--layers", "0-1", "-o", "@/ref.h5", "--quiet"},
     0,
     "ref.h5"},
    {"forge",
     {"forge", "--like", "glm5-tiny", "--output", "@/forged.gguf", "--quiet"},
     0,
     "forged.gguf"},
    {"audit", {"audit", "MODEL", "--quiet"}, 0, NULL},
    {"compare", {"compare", "CANDIDATE", "REFERENCE", "--quiet"}, 0, NULL},
    {"diagnose", {"diagnose", "CANDIDATE", "--model", "MODEL", "--quiet"}, 0, NULL},
    {"findings", {"diagnose", "FAULTY", "--model", "MODEL", "--report", "@/report"}, 1, "report"},
    {"check",
     {"check", "MODEL", "--reference", "REFERENCE", "--list", "LIST", "--report", "@/report",
      "--quiet"},
     0,
     "report"},
    {"report", {"report", "RESULT", "--report", "@/report"}, 1, "report"},
    {"import", {"import", "REFERENCE", "--names", "NAMES", "-o", "@/import.h5"}, 0, "import.h5"},
    {0}};

const main_command *main_command_find(const char *name)
{
    const main_command *c = main_commands;
    while (c->name && strcmp(c->name, name) != 0)
        c++;
    ck_assert_msg(c->name != NULL, "no command '%s'", name);
    return c;
}

long main_command_number(const char *variable, long usual)
{
    const char *asked = getenv(variable);
    return asked && *asked ? atol(asked) : usual;
}

static char folder[4096], shown[sizeof((child_end *)0)->output];

/* One name every time: what a command shows may hold it. */
static void make_folder(const char *name)
{
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
    ck_assert_int_eq(mkdir(folder, 0777), 0);
}

static void write_once(char path[4096], const char *name, const char *text)
{
    if (*path)
        return;
    snprintf(path, 4096, "%s", data_scratch(name));
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A list of the cheapest rows: what a failing call does to the list, the rows and the reports. */
static const char *list_path(void)
{
    static char path[4096];
    write_once(path, "list.yaml", "checklist: quick\nchecks: [file, config, probe, smoke]\n");
    return path;
}

/* A match more or less is a value less or more. */
static const char *names_path(void)
{
    static char path[4096];
    write_once(path, "names.yaml",
               "maps:\n"
               "  - name: 'model\\.layers\\.(\\d+)\\.input_layernorm'\n    skip: read elsewhere\n"
               "  - name: 'logits'\n    point: logits\n");
    return path;
}

/* A short run with both founding faults. */
static const char *faulty_path(void)
{
    static char path[4096];
    static child_end end;
    if (!*path) {
        snprintf(path, sizeof path, "%s", data_scratch("faulty.h5"));
        char *model = strdup(data_shipped("glm5-tiny-Q4_K_M.gguf"));
        const char *const words[] = {"run",       model,
                                     "--prompt",  "Count",
                                     "-n",        "1",
                                     "--capture", path,
                                     "--plant",   "phantom-output:layer=1",
                                     "--plant",   "file-order:layer=3",
                                     "--quiet",   NULL};
        ck_assert(child_run(&end, words, &(child_options){0}));
        ck_assert_msg(end.exit == 0, "exit %d: %s", end.exit, end.errors);
        free(model);
    }
    return path;
}

/* What is found in it. */
static const char *result_path(void)
{
    static char folder_made[4096], path[4200];
    static child_end end;
    if (!*path) {
        snprintf(folder_made, sizeof folder_made, "%s", data_scratch("made"));
        char *model = strdup(data_shipped("glm5-tiny-Q4_K_M.gguf"));
        const char *const words[] = {"diagnose", faulty_path(), "--model", model,
                                     "--report", folder_made,   "--quiet", NULL};
        ck_assert(child_run(&end, words, &(child_options){0}));
        ck_assert_msg(end.exit == 1, "exit %d: %s", end.exit, end.errors);
        free(model);
        snprintf(path, sizeof path, "%s/result.json", folder_made);
    }
    return path;
}

static void put(char *out, size_t room, const char *word)
{
    static const char *const shipped[][2] = {{"MODEL", "glm5-tiny-Q4_K_M.gguf"},
                                             {"CANDIDATE", "glm5-tiny-Q4_K_M.hf-bf16.h5"},
                                             {"REFERENCE", "glm5-tiny-Q4_K_M.hf-fp32.h5"}};
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (!strcmp(word, shipped[i][0])) {
            snprintf(out, room, "%s", data_shipped(shipped[i][1]));
            return;
        }
    if (!strcmp(word, "LIST"))
        snprintf(out, room, "%s", list_path());
    else if (!strcmp(word, "NAMES"))
        snprintf(out, room, "%s", names_path());
    else if (!strcmp(word, "RESULT"))
        snprintf(out, room, "%s", result_path());
    else if (!strcmp(word, "FAULTY"))
        snprintf(out, room, "%s", faulty_path());
    else
        snprintf(out, room, "%s%s", *word == '@' ? folder : "", *word == '@' ? word + 1 : word);
}

static void run(child_end *end, const main_command *c, const child_options *options)
{
    static char paths[16][8192];
    const char *words[17] = {0};
    make_folder(c->name);
    for (int i = 0; i < 16 && c->words[i]; i++) {
        put(paths[i], sizeof paths[i], c->words[i]);
        words[i] = paths[i];
    }
    ck_assert(child_run(end, words, options));
}

static void clear_folder(void)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

long main_command_count(const main_command *c, const child_options *options)
{
    static child_end end;
    child_options counted = *options;
    *(options->fail_io_at ? &counted.fail_io_at : &counted.fail_at) = -1;
    run(&end, c, &counted);
    ck_assert_msg(end.exit == c->healthy_exit, "%s: exit %d: %s", c->name, end.exit, end.errors);
    ck_assert_msg(end.n_live == 0, "%s: %ld blocks not freed, %s", c->name, end.n_live,
                  end.live_from);
    snprintf(shown, sizeof shown, "%s", end.output);
    child_without_times(shown);
    clear_folder();
    return end.n_counted;
}

static void check_output(const main_command *c, long n, child_end *end)
{
    child_without_times(end->output);
    ck_assert_msg(!strcmp(end->output, shown), "%s, %ld shows: %.600s\nexpected: %.600s", c->name,
                  n, end->output, shown);
}

/* HDF5 does not tell zlib's lack of memory from a value that zlib cannot inflate. */
static bool says_memory(const char *errors)
{
    return strstr(errors, "memory") || strstr(errors, "cannot be read");
}

bool main_command_under(const main_command *c, long n, const child_options *options)
{
    static child_end kept;
    char path[4300];
    child_options failing = *options;
    child_end *end = &kept;
    *(options->fail_io_at ? &failing.fail_io_at : &failing.fail_at) = n;
    run(end, c, &failing);
    bool failed = end->exit != c->healthy_exit;
    ck_assert_msg(end->signal == 0, "%s, %ld: signal %d: %s", c->name, n, end->signal, end->errors);
    ck_assert_msg(end->n_live == 0, "%s, %ld: exit %d, %ld blocks not freed, %s: %s", c->name, n,
                  end->exit, end->n_live, end->live_from, end->errors);
    if (failed) {
        ck_assert_msg(end->exit == 128 || end->exit == 125, "%s, %ld: exit %d: %s", c->name, n,
                      end->exit, end->errors);
        ck_assert_msg(strlen(end->errors) > 20, "%s, %ld: '%s'", c->name, n, end->errors);
        ck_assert_msg(options->fail_io_at || says_memory(end->errors),
                      "%s, %ld, does not say memory: '%s'", c->name, n, end->errors);
        snprintf(path, sizeof path, "%s/%s", folder, c->whole ? c->whole : "-");
        int n_left = child_count_files(folder), is_whole = c->whole && access(path, F_OK) == 0;
        ck_assert_msg(n_left == is_whole, "%s, %ld: %d files left: %s", c->name, n, n_left,
                      end->errors);
    } else {
        check_output(c, n, end);
    }
    clear_folder();
    return failed;
}
