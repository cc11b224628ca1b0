/*
 * The main commands on the shipped model, as suites run them under failing calls: what each writes
 * into a folder of its own, and what must be left of it.
 */
#ifndef ASSAY_SUITES_TESTS_MAIN_COMMANDS_H
#define ASSAY_SUITES_TESTS_MAIN_COMMANDS_H

#include "child.h"

typedef struct main_command {
    const char *name;
    const char *words[16]; /* MODEL, CANDIDATE, REFERENCE: shipped files; LIST, FAULTY, RESULT,
                              NAMES: made once; @...: in the folder */
    int healthy_exit;
    const char *whole; /* the file or folder that may be there after a failure; NULL: none */
} main_command;

/* Ends with a NULL name. */
extern const main_command main_commands[];
const main_command *main_command_find(const char *name);

/* What the environment asks for by hand, or the usual number. */
long main_command_number(const char *variable, long usual);

/* Runs it unharmed in a new folder and keeps what it shows; ck_asserts its exit status and that it
 * frees what it had. Returns the number that the shim counted; options: fail_at or fail_io_at. */
long main_command_count(const main_command *c, const child_options *options);

/* Runs it in a new folder while number n of what the options name fails, and ck_asserts: no signal;
 * what it had is freed; either it shows what it showed unharmed, or it ends with 128 or 125, says
 * why, and leaves nothing half-written. True: it failed. */
bool main_command_under(const main_command *c, long n, const child_options *options);

#endif
