/*
 * The manual page and the shell completion, made from the commands' own option tables.
 */
#ifndef ASSAY_TOOLS_DESCRIBE_H
#define ASSAY_TOOLS_DESCRIBE_H

#include <stdio.h>

/* assay(1) in man macros. */
void assay_describe_man(FILE *out);
/* A completion function for bash. */
void assay_describe_bash(FILE *out);

#endif
