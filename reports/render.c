#include "reports/render.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/publish.h"

#define X(id, name, file_name, function) assay_render_fn function;
#include "reports/render.def"
#undef X

static const assay_renderer table[] = {
#define X(id, name, file_name, function) {name, file_name, function},
#include "reports/render.def"
#undef X
};

int assay_renderer_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_renderer *assay_renderer_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_renderer_count());
    return &table[index];
}

const assay_renderer *assay_renderer_find(const char *name)
{
    for (int i = 0; i < assay_renderer_count(); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

static assay_status failed(const char *what, const char *path)
{
    return assay_fail(ASSAY_IO, "'%s': cannot %s: %s", path, what, strerror(errno));
}

/* Everything in the file and on the disk, or a failure. Closes the file. */
static assay_status settle(FILE *file, const char *path)
{
    bool written = fflush(file) == 0 && !ferror(file);
    bool synced = written && fsync(fileno(file)) == 0;
    assay_status s = synced ? ASSAY_OK : failed(written ? "sync" : "write", path);
    if (fclose(file) != 0 && s == ASSAY_OK)
        s = failed("close", path);
    return s;
}

/* One form under its temporary name. */
typedef struct form {
    char *path, *temporary; /* temporary NULL: nothing is there */
} form;

static assay_status write_form(form *f, const char *folder, const assay_renderer *renderer,
                               const assay_result *result, const assay_render_options *options)
{
    if (asprintf(&f->path, "%s/%s", folder, renderer->file_name) < 0)
        f->path = NULL;
    if (!f->path || asprintf(&f->temporary, "%s/.%s.XXXXXX", folder, renderer->file_name) < 0) {
        f->temporary = NULL;
        return assay_fail(ASSAY_NO_MEMORY, "'%s': no memory for a path", folder);
    }
    int fd = mkstemp(f->temporary);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!file) {
        assay_status s = failed("write", f->temporary);
        if (fd >= 0) {
            close(fd);
            unlink(f->temporary);
        }
        free(f->temporary);
        f->temporary = NULL;
        return s;
    }
    assay_status s = renderer->render(file, result, options);
    if (s == ASSAY_OK)
        s = assay_lacked();
    if (s == ASSAY_OK)
        s = settle(file, f->path);
    else {
        fclose(file);
        s = assay_within(s, "'%s'", f->path);
    }
    if (s == ASSAY_OK && chmod(f->temporary, 0644) != 0)
        s = failed("set the mode of", f->path);
    return s;
}

assay_status assay_render_make_folder(const char *folder)
{
    char *path = strdup(folder);
    if (!path)
        return assay_fail(ASSAY_NO_MEMORY, "'%s': no memory for the path", folder);
    for (char *c = path + 1; *path && *c; c++)
        if (*c == '/') { /* those above; the last mkdir says what is wrong */
            *c = '\0';
            mkdir(path, 0777);
            *c = '/';
        }
    free(path);
    return mkdir(folder, 0777) != 0 && errno != EEXIST ? failed("make the folder", folder)
                                                       : ASSAY_OK;
}

/* All forms are whole on the disk before the first gets its name: a full disk leaves none, and what
 * an earlier run left there as it was. only NULL: every form. */
static assay_status write_forms(form *forms, const char *folder, const assay_renderer *only,
                                const assay_result *result, const assay_render_options *options)
{
    for (int i = 0; i < assay_renderer_count(); i++)
        if (!only || only == &table[i])
            ASSAY_TRY(write_form(&forms[i], folder, &table[i], result, options));
    for (int i = 0; i < assay_renderer_count(); i++) {
        if (!forms[i].temporary)
            continue;
        if (rename(forms[i].temporary, forms[i].path) != 0)
            return failed("rename", forms[i].path);
        free(forms[i].temporary);
        forms[i].temporary = NULL;
    }
    return assay_sync(folder);
}

assay_status assay_render_into(const char *folder, const assay_renderer *renderer,
                               const assay_result *result, const assay_render_options *options)
{
    assay_render_options plain = *options; /* files are read without a terminal */
    form forms[sizeof table / sizeof *table] = {{NULL, NULL}};
    plain.color = false;
    plain.quiet = false;
    ASSAY_TRY(assay_render_make_folder(folder));
    assay_status s = write_forms(forms, folder, renderer, result, &plain);
    for (int i = 0; i < assay_renderer_count(); i++) {
        if (forms[i].temporary)
            unlink(forms[i].temporary);
        free(forms[i].temporary);
        free(forms[i].path);
    }
    return s;
}

assay_status assay_render_folder(const char *folder, const assay_result *result,
                                 const assay_render_options *options)
{
    return assay_render_into(folder, NULL, result, options);
}
