#include "reports/render.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static assay_status write_one(const char *folder, const assay_renderer *renderer,
                              const assay_result *result, const assay_render_options *options)
{
    char *path = NULL, *temporary = NULL;
    assay_status s = ASSAY_OK;
    if (asprintf(&path, "%s/%s", folder, renderer->file_name) < 0 ||
        asprintf(&temporary, "%s/.%s.XXXXXX", folder, renderer->file_name) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "'%s': no memory for a path", folder);
    int fd = mkstemp(temporary);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!file) {
        s = failed("write", temporary);
        if (fd >= 0)
            close(fd);
        goto out;
    }
    s = renderer->render(file, result, options);
    if (s == ASSAY_OK) {
        s = settle(file, path);
    } else {
        fclose(file);
        s = assay_within(s, "'%s'", path);
    }
    if (s == ASSAY_OK && chmod(temporary, 0644) != 0)
        s = failed("set the mode of", path);
    if (s == ASSAY_OK && rename(temporary, path) != 0)
        s = failed("rename", path);
    if (s != ASSAY_OK)
        unlink(temporary);
out:
    free(path);
    free(temporary);
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

assay_status assay_render_folder(const char *folder, const assay_result *result,
                                 const assay_render_options *options)
{
    assay_render_options plain = *options; /* files are read without a terminal */
    plain.color = false;
    plain.quiet = false;
    ASSAY_TRY(assay_render_make_folder(folder));
    for (int i = 0; i < assay_renderer_count(); i++)
        ASSAY_TRY(write_one(folder, &table[i], result, &plain));
    return ASSAY_OK;
}
