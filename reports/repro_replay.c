/*
 * Showing a bundle again: its files are put into a scratch folder as captures and as a model with
 * holes, and diagnosed like any others. A weight that the bundle does not hold is refused, never
 * taken as zero.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "references/run_cut.h"
#include "reports/repro_private.h"

#define MAX_FILES 256
#define PATH_BYTES 160
#define MAX_MODEL_BYTES ((int64_t)1 << 44)

typedef struct replay {
    const char *path;
    hid_t file;
    char folder[96];
    char names[MAX_FILES][PATH_BYTES];
    int n_files;
    int64_t *ranges; /* [n_ranges, 2] */
    int64_t n_ranges;
    char *prompts[ASSAY_REPRO_MAX_PLACES];
    assay_forced_place places[ASSAY_REPRO_MAX_PLACES];
    int n_places;
} replay;

bool assay_repro_is_bundle(const char *path)
{
    hid_t file;
    int64_t format = 0;
    bool found = false;
    assay_h5_quiet();
    if (access(path, R_OK) != 0 || H5Fis_hdf5(path) <= 0)
        return false;
    if (assay_h5_open(&file, path) != ASSAY_OK ||
        assay_h5_attr_int(&format, &found, file, "/", "assay_repro") != ASSAY_OK)
        found = false;
    else
        H5Fclose(file);
    return found && format == 1;
}

static assay_status make_folder(replay *r)
{
    const char *dir = getenv("TMPDIR");
    int n =
        snprintf(r->folder, sizeof r->folder, "%s/assay-repro-XXXXXX", dir && *dir ? dir : "/tmp");
    if (n >= (int)sizeof r->folder || !mkdtemp(r->folder)) {
        r->folder[0] = '\0';
        return assay_fail(ASSAY_IO, "no scratch folder can be made in '%s'",
                          dir && *dir ? dir : "/tmp");
    }
    return ASSAY_OK;
}

static char *model_path(char out[PATH_BYTES], const replay *r)
{
    snprintf(out, PATH_BYTES, "%s/model.gguf", r->folder);
    return out;
}

static void drop_folder(replay *r)
{
    char path[PATH_BYTES];
    if (!r->folder[0])
        return;
    for (int i = 0; i < r->n_files; i++)
        unlink(r->names[i]);
    unlink(model_path(path, r));
    rmdir(r->folder);
}

/* A list of bytes; *out is the caller's. */
static assay_status read_bytes(uint8_t **out, int64_t *n, const replay *r, const char *name)
{
    assay_h5_info info;
    ASSAY_TRY(assay_h5_dataset(&info, r->file, name));
    if (info.n_dims != 1)
        return assay_fail(ASSAY_BAD_FILE, "'%s' is no list of bytes", name);
    ASSAY_TRY(assay_alloc(out, (size_t)info.count, 1, name));
    hid_t set = H5Dopen2(r->file, name, H5P_DEFAULT);
    bool good =
        set >= 0 && H5Dread(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) >= 0;
    if (set >= 0)
        H5Dclose(set);
    if (!good) {
        free(*out);
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", name);
    }
    *n = info.count;
    return ASSAY_OK;
}

static assay_status read_ranges(replay *r)
{
    assay_h5_info info;
    ASSAY_TRY(assay_h5_dataset(&info, r->file, "/model/ranges"));
    if (info.n_dims != 2 || info.dims[1] != 2)
        return assay_fail(ASSAY_BAD_FILE, "'/model/ranges' is not [k, 2]");
    ASSAY_TRY(assay_alloc(&r->ranges, (size_t)info.count, sizeof *r->ranges, "ranges"));
    hid_t set = H5Dopen2(r->file, "/model/ranges", H5P_DEFAULT);
    bool good =
        set >= 0 && H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, r->ranges) >= 0;
    if (set >= 0)
        H5Dclose(set);
    r->n_ranges = info.dims[0];
    return good ? ASSAY_OK : assay_h5_fail(ASSAY_BAD_FILE, "'/model/ranges' cannot be read");
}

static bool put(int fd, const uint8_t *bytes, int64_t n, int64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, (size_t)n, (off_t)at);
        if (done <= 0)
            return false;
        bytes += done;
        n -= done;
        at += done;
    }
    return true;
}

static assay_status check_ranges(const replay *r, int64_t n_header, int64_t n_bytes, int64_t size)
{
    int64_t sum = 0;
    if (size < n_header || size > MAX_MODEL_BYTES)
        return assay_fail(ASSAY_BAD_FILE, "'/model' says a size of %" PRId64 " bytes", size);
    for (int64_t i = 0; i < r->n_ranges; i++) {
        int64_t at = r->ranges[2 * i], n = r->ranges[2 * i + 1];
        if (at < n_header || n < 0 || at > size || n > size - at || n > n_bytes - sum)
            return assay_fail(ASSAY_BAD_FILE,
                              "'/model/ranges' row %" PRId64 " (%" PRId64 ", %" PRId64
                              ") does not fit into the model or '/model/bytes'",
                              i, at, n);
        sum += n;
    }
    return ASSAY_OK;
}

/* Header and ranges put into place, holes between them. */
static assay_status write_model(replay *r)
{
    char path[PATH_BYTES];
    uint8_t *header = NULL, *bytes = NULL;
    int64_t n_header = 0, n_bytes = 0, size = 0, done = 0;
    bool found, good;
    int fd = -1;
    assay_status s;
    ASSAY_GO(read_bytes(&header, &n_header, r, "/model/header"));
    ASSAY_GO(read_bytes(&bytes, &n_bytes, r, "/model/bytes"));
    ASSAY_GO(read_ranges(r));
    ASSAY_GO(assay_h5_attr_int(&size, &found, r->file, "/model", "size"));
    ASSAY_GO(check_ranges(r, n_header, n_bytes, size));
    fd = open(model_path(path, r), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    good = fd >= 0 && ftruncate(fd, (off_t)size) == 0 && put(fd, header, n_header, 0);
    for (int64_t i = 0; good && i < r->n_ranges; i++) {
        good = put(fd, bytes + done, r->ranges[2 * i + 1], r->ranges[2 * i]);
        done += r->ranges[2 * i + 1];
    }
    if (!good)
        s = assay_fail(ASSAY_IO, "'%s': cannot be written: %s", path, strerror(errno));
out:
    if (fd >= 0)
        close(fd);
    free(header);
    free(bytes);
    return s;
}

static assay_status write_files(replay *r)
{
    assay_h5_names list;
    ASSAY_TRY(assay_h5_list(&list, r->file, "/files"));
    assay_status s = list.n >= 1 && list.n <= MAX_FILES
                         ? ASSAY_OK
                         : assay_fail(ASSAY_BAD_FILE, "'/files' has %d files", list.n);
    int n = list.n;
    assay_h5_names_clear(&list);
    for (int i = 0; i < n && s == ASSAY_OK; i++) {
        char group[32];
        snprintf(group, sizeof group, "/files/%d", i);
        snprintf(r->names[i], PATH_BYTES, "%s/%d.h5", r->folder, i);
        r->n_files = i + 1;
        s = assay_run_uncut(r->names[i], r->file, group);
    }
    return s;
}

static assay_status read_place(replay *r, int i)
{
    char path[32], *point = NULL;
    int64_t step = 0;
    bool prompt, found, known, partial;
    assay_forced_place *place = &r->places[i];
    snprintf(path, sizeof path, "/only/%d", i);
    ASSAY_TRY(assay_h5_attr_text(&r->prompts[i], &prompt, r->file, path, "prompt"));
    ASSAY_TRY(assay_h5_attr_int(&step, &found, r->file, path, "step"));
    ASSAY_TRY(assay_h5_attr_text(&point, &known, r->file, path, "point"));
    if (!prompt || !found || !known || step < 0 || step > INT32_MAX) {
        free(known ? point : NULL);
        return assay_fail(ASSAY_BAD_FILE, "'%s' names no place", path);
    }
    place->prompt = r->prompts[i];
    place->step = (int)step;
    assay_status s = assay_point_parse(&place->point, &place->layer, &partial, point);
    free(point);
    return s == ASSAY_OK ? s : assay_within(ASSAY_BAD_FILE, "'%s'", path);
}

static assay_status read_places(replay *r)
{
    assay_h5_names list;
    ASSAY_TRY(assay_h5_list(&list, r->file, "/only"));
    int n = list.n;
    assay_h5_names_clear(&list);
    if (n < 1 || n > ASSAY_REPRO_MAX_PLACES)
        return assay_fail(ASSAY_BAD_FILE, "'/only' has %d places", n);
    for (int i = 0; i < n; i++)
        ASSAY_TRY(read_place(r, i));
    r->n_places = n;
    return ASSAY_OK;
}

static assay_status read_eps(assay_knobs *knobs, const replay *r)
{
    hid_t attr = H5Aopen_by_name(r->file, "/", "eps", H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = attr < 0 ? -1 : H5Aget_space(attr);
    bool good = space >= 0 && H5Sget_simple_extent_npoints(space) == ASSAY_N_NORMS &&
                H5Aread(attr, H5T_NATIVE_DOUBLE, knobs->eps) >= 0;
    if (space >= 0)
        H5Sclose(space);
    if (attr >= 0)
        H5Aclose(attr);
    return good ? ASSAY_OK
                : assay_h5_fail(ASSAY_BAD_FILE, "attribute 'eps' is not %d numbers", ASSAY_N_NORMS);
}

/* Only what the bundle holds. */
static assay_status watch(void *user, const assay_gguf_tensor_info *tensor, uint64_t at,
                          uint64_t n_bytes)
{
    const replay *r = user;
    int64_t first = (int64_t)(tensor->offset + at), end = first + (int64_t)n_bytes;
    for (int64_t i = 0; i < r->n_ranges; i++)
        if (first >= r->ranges[2 * i] && end <= r->ranges[2 * i] + r->ranges[2 * i + 1])
            return ASSAY_OK;
    return assay_fail(ASSAY_MISSING,
                      "%" PRIu64 " bytes from %" PRIu64 " of tensor '%s' are not in the bundle",
                      n_bytes, at, tensor->name);
}

/* Coverage, and whether it is what the bundle was made for. */
static assay_status describe(assay_result *result, const assay_diagnosis *d, const replay *r)
{
    static const char *const names[] = {"class", "kind", "point"};
    char *was[3] = {NULL};
    bool found = true, same = false;
    assay_status s = ASSAY_OK;
    result->n_judged += assay_forced_n(d->forced);
    result->n_points += assay_forced_n(d->forced);
    for (int i = 0; i < 3 && found; i++)
        ASSAY_GO(assay_h5_attr_text(&was[i], &found, r->file, "/", names[i]));
    if (!found)
        ASSAY_GO(assay_fail(ASSAY_BAD_FILE, "attributes class, kind and point are not all there"));
    for (int i = 0; i < result->n_findings; i++)
        same = same || assay_repro_is(&result->findings[i], was[0], was[1], was[2]);
    s = assay_strings_add(&result->notes, "the bundle was made for %s at %s (%s): %s", was[0],
                          was[2], was[1], same ? "found again" : "NOT what is found now");
out:
    for (int i = 0; i < 3; i++)
        free(was[i]);
    return s;
}

static assay_status judge(assay_result *result, replay *r)
{
    char path[PATH_BYTES], *again = NULL;
    const char *names[MAX_FILES];
    assay_gguf *model = NULL;
    assay_oracle *oracle = NULL;
    assay_run *run = NULL;
    assay_diagnosis d = {0};
    assay_knobs knobs;
    assay_forced_options how = {.last_layer = -1, .only = r->places, .n_only = r->n_places};
    assay_run_options options = assay_run_options_default();
    assay_status s;
    for (int i = 0; i < r->n_files; i++)
        names[i] = r->names[i];
    ASSAY_GO(assay_gguf_open(&model, model_path(path, r)));
    ASSAY_GO(assay_oracle_open(&oracle, model, 0));
    knobs = *assay_oracle_knobs(oracle);
    ASSAY_GO(read_eps(&knobs, r));
    how.knobs = &knobs;
    assay_oracle_watch(oracle, watch, r);
    ASSAY_GO(assay_run_open(&run, names, r->n_files, &options));
    ASSAY_GO(assay_diagnosis_explain(&d, result, run, oracle, &how));
    if (asprintf(&again, "assay repro %s", r->path) < 0)
        again = NULL;
    ASSAY_GO(assay_diagnosis_findings(result, &d, again));
    s = describe(result, &d, r);
out:
    free(again);
    assay_diagnosis_clear(&d);
    assay_run_close(run);
    assay_oracle_close(oracle);
    assay_gguf_close(model);
    return s;
}

assay_status assay_repro_replay(assay_result *result, const char *path)
{
    replay *r;
    assay_status s;
    ASSAY_TRY(assay_alloc(&r, 1, sizeof *r, "a bundle"));
    r->path = path;
    r->file = -1;
    ASSAY_GO(assay_h5_open(&r->file, path));
    ASSAY_GO(read_places(r));
    ASSAY_GO(make_folder(r));
    ASSAY_GO(write_model(r));
    ASSAY_GO(write_files(r));
    s = judge(result, r);
out:
    drop_folder(r);
    if (r->file >= 0)
        H5Fclose(r->file);
    for (int i = 0; i < ASSAY_REPRO_MAX_PLACES; i++)
        free(r->prompts[i]);
    free(r->ranges);
    free(r);
    return s == ASSAY_OK || strstr(assay_error_text(), path) ? s : assay_within(s, "%s", path);
}
