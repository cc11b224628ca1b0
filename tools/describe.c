#include "tools/describe.h"

#include <ctype.h>
#include <string.h>

#include "tools/options.h"

/* Text for troff: dashes as they are typed, no line that begins with a control character. */
static void put_roff(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (c == text && (*c == '.' || *c == '\''))
            fputs("\\&", out);
        if (*c == '-')
            fputs("\\-", out);
        else if (*c == '\\')
            fputs("\\e", out);
        else
            fputc(*c, out);
    }
}

static void man_option(FILE *out, const struct argp_option *o)
{
    fputs(".TP\n", out);
    if (isprint(o->key))
        fprintf(out, "\\fB\\-%c\\fR%s", o->key, o->name ? ", " : "");
    if (o->name) {
        fputs("\\fB\\-\\-", out);
        put_roff(out, o->name);
        fputs("\\fR", out);
    }
    if (o->arg) {
        fputs("=\\fI", out);
        put_roff(out, o->arg);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put_roff(out, o->doc ? o->doc : "");
    fputc('\n', out);
}

/* The command's own options; groups that several commands have are described once, at the end. */
static void man_own(void *user, const char *header, const struct argp_option *options)
{
    if (!strcmp(header, ASSAY_OPTIONS_OWN))
        for (; options->name || options->key; options++)
            man_option(user, options);
}

static void man_shared(void *user, const char *header, const struct argp_option *options)
{
    (void)options;
    if (strcmp(header, ASSAY_OPTIONS_OWN) && strcmp(header, ASSAY_OPTIONS_EVERYWHERE))
        fprintf(user, ".PP\nAlso: %s, below.\n", header);
}

static void man_section(void *user, const char *header, const struct argp_option *options)
{
    fprintf(user, ".SS \"%s\"\n", header);
    for (; options->name || options->key; options++)
        man_option(user, options);
}

static void man_exit_statuses(FILE *out)
{
    static const char *const rows[][2] = {
        {"0", "judged, no finding"},
        {"1", "judged, at least one finding"},
        {"125", "cannot judge: nothing compared, another model or prompt, no such device"},
        {"128", "broken input, input or output failed, device failed"},
        {"129", "wrong command line"}};
    fputs(".SH \"EXIT STATUS\"\n", out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(out, ".TP\n\\fB%s\\fR\n%s\n", rows[i][0], rows[i][1]);
    fputs("\n`git bisect run` skips on 125 and stops on 128 and 129.\n", out);
}

void assay_describe_man(FILE *out)
{
    fprintf(out, ".TH ASSAY 1 \"\" \"assay %s\" \"User Commands\"\n", ASSAY_VERSION);
    fputs(".SH NAME\nassay \\- correctness verification and diagnosis of LLM inference\n"
          ".SH SYNOPSIS\n.B assay\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n"
          "Runs a model, watches every layer, compares what it sees with references and with other "
          "ways of computing the same thing, and says where the first wrong number is born and "
          "why, or that nothing is wrong.\n.SH COMMANDS\n",
          out);
    for (int i = 0; i < assay_command_count(); i++) {
        const assay_command *c = assay_command_at(i);
        fprintf(out, ".SS \"assay %s ", c->name);
        put_roff(out, c->synopsis);
        fputs("\"\n", out);
        put_roff(out, c->help);
        fputs(".\n", out);
        assay_options_describe(c, man_own, out);
        assay_options_describe(c, man_shared, out);
    }
    fputs(".SH \"SHARED OPTIONS\"\n", out);
    assay_options_describe_groups(man_section, out);
    man_exit_statuses(out);
}

static void bash_group(void *user, const char *header, const struct argp_option *options)
{
    (void)header;
    for (; options->name || options->key; options++) {
        if (isprint(options->key))
            fprintf(user, " -%c", options->key);
        if (options->name)
            fprintf(user, " --%s", options->name);
    }
}

void assay_describe_bash(FILE *out)
{
    fputs("# Completion of assay for bash; made by `assay help --bash`.\n_assay() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words\n"
          "    case ${COMP_CWORD}:${COMP_WORDS[1]} in\n    1:*) words=\"",
          out);
    for (int i = 0; i < assay_command_count(); i++)
        fprintf(out, "%s%s", i ? " " : "", assay_command_at(i)->name);
    fputs("\" ;;\n", out);
    for (int i = 0; i < assay_command_count(); i++) {
        fprintf(out, "    *:%s) words=\"--help", assay_command_at(i)->name);
        assay_options_describe(assay_command_at(i), bash_group, out);
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n    case $previous in\n"
          "    list) words=\"$(assay list 2>/dev/null | cut -d' ' -f1)\" ;;\n"
          "    explain) words=\"$(assay list faults 2>/dev/null | cut -d' ' -f1)\" ;;\n"
          "    help) words=\"$(assay list commands 2>/dev/null | cut -d' ' -f1)\" ;;\n"
          "    --plant) words=\"$(assay list plants 2>/dev/null | cut -d' ' -f1)\" ;;\n"
          "    --profile) words=\"$(assay list profiles 2>/dev/null | cut -d' ' -f1)\" ;;\n"
          "    --path) words=\"expanded latent\" ;;\n    --dtype) words=\"f32 bf16\" ;;\n"
          "    --backend) words=\"cpu cuda\" ;;\n    esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\n"
          "complete -o default -F _assay assay\n",
          out);
}
