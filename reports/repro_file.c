/*
 * The bundle as a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf_write.h"
#include "probes/hdf5_write.h"
#include "references/run_cut.h"
#include "reports/repro_private.h"

static int by_place(const void *a, const void *b)
{
    const assay_repro_range *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

void assay_repro_ranges_join(assay_repro_ranges *ranges)
{
    int kept = 0;
    if (ranges->n)
        qsort(ranges->items, (size_t)ranges->n, sizeof *ranges->items, by_place);
    for (int i = 0; i < ranges->n; i++) {
        const assay_repro_range *next = &ranges->items[i];
        assay_repro_range *last = kept ? &ranges->items[kept - 1] : NULL;
        if (last && last->tensor == next->tensor && next->at <= last->at + last->n_bytes) {
            uint64_t end = next->at + next->n_bytes;
            if (end > last->at + last->n_bytes)
                last->n_bytes = end - last->at;
        } else {
            ranges->items[kept++] = *next;
        }
    }
    ranges->n = kept;
}

/* Keys that an oracle reads: no tokenizer, no lists of texts, nothing about the file itself. */
static bool is_wanted(const assay_gguf_key *key)
{
    bool texts = key->type == ASSAY_GGUF_ARRAY && key->element == ASSAY_GGUF_STRING;
    return !texts && strncmp(key->name, "tokenizer.", 10) != 0 &&
           strncmp(key->name, "split.", 6) != 0 && strcmp(key->name, "general.alignment") != 0;
}

/* A file of the model's shape without data, opened. */
static assay_status open_skeleton(assay_gguf **out, const char *path, const assay_gguf *file)
{
    assay_gguf_writer *w = NULL;
    assay_status s;
    ASSAY_GO(assay_gguf_writer_new(&w));
    for (int64_t i = 0; i < assay_gguf_n_keys(file); i++)
        if (is_wanted(assay_gguf_key_at(file, i)))
            ASSAY_GO(assay_gguf_put_key(w, assay_gguf_key_at(file, i)));
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        ASSAY_GO(assay_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne));
    }
    ASSAY_GO(assay_gguf_writer_start(w, path, 1));
    s = assay_gguf_writer_close(w);
    w = NULL;
    if (s == ASSAY_OK)
        s = assay_gguf_open(out, path);
out:
    assay_gguf_writer_free(w);
    return s;
}

static assay_status put_bytes(hid_t to, const char *name, const void *bytes, uint64_t n)
{
    int64_t dims[] = {(int64_t)n};
    return assay_h5_put_dataset(to, name, H5T_NATIVE_UINT8, 1, dims, bytes);
}

static assay_status put_header(hid_t to, const assay_gguf *skeleton)
{
    uint64_t n = assay_gguf_data_start(skeleton, 0);
    uint8_t *bytes;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&bytes, n, 1, "a GGUF header"));
    FILE *f = fopen(assay_gguf_path(skeleton), "rb");
    if (!f || fread(bytes, 1, n, f) != n)
        s = assay_fail(ASSAY_IO, "'%s': cannot be read: %s", assay_gguf_path(skeleton),
                       strerror(errno));
    if (f)
        fclose(f);
    if (s == ASSAY_OK)
        s = put_bytes(to, "/model/header", bytes, n);
    free(bytes);
    return s;
}

static assay_status put_weights(hid_t to, const assay_gguf *skeleton, const assay_repro_content *c)
{
    const assay_repro_ranges *ranges = c->ranges;
    uint64_t n = 0, size = assay_gguf_file_bytes(skeleton, 0);
    uint8_t *bytes = NULL;
    int64_t *places = NULL;
    assay_status s;
    for (int i = 0; i < ranges->n; i++)
        n += ranges->items[i].n_bytes;
    ASSAY_GO(assay_alloc(&bytes, n, 1, "weights of a bundle"));
    ASSAY_GO(assay_alloc(&places, (size_t)ranges->n, 2 * sizeof *places, "weights of a bundle"));
    n = 0;
    for (int i = 0; i < ranges->n; i++) {
        const assay_repro_range *r = &ranges->items[i];
        const assay_gguf_tensor_info *t = assay_gguf_find_tensor(skeleton, r->tensor->name);
        ASSAY_BUG_IF(!t);
        ASSAY_GO(assay_oracle_bytes(bytes + n, c->oracle, r->tensor, r->at, r->n_bytes));
        places[2 * i] = (int64_t)(t->offset + r->at);
        places[2 * i + 1] = (int64_t)r->n_bytes;
        n += r->n_bytes;
    }
    int64_t dims[] = {ranges->n, 2};
    ASSAY_GO(assay_h5_put_dataset(to, "/model/ranges", H5T_NATIVE_INT64, 2, dims, places));
    ASSAY_GO(put_bytes(to, "/model/bytes", bytes, n));
    s = assay_h5_put_numbers(to, "/model", "size", H5T_NATIVE_UINT64, &size, 1);
out:
    free(bytes);
    free(places);
    return s;
}

static assay_status put_model(hid_t to, const char *path, const assay_repro_content *c)
{
    assay_gguf *skeleton = NULL;
    char *scratch;
    if (asprintf(&scratch, "%s.gguf", path) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a path");
    assay_status s = open_skeleton(&skeleton, scratch, assay_oracle_file(c->oracle));
    if (s == ASSAY_OK)
        s = assay_h5_make_group(to, "/model");
    if (s == ASSAY_OK)
        s = put_header(to, skeleton);
    if (s == ASSAY_OK)
        s = put_weights(to, skeleton, c);
    assay_gguf_close(skeleton);
    unlink(scratch);
    free(scratch);
    return s;
}

static assay_status put_place(hid_t to, const char *path, const assay_forced_place *place)
{
    char name[ASSAY_POINT_NAME_BYTES];
    ASSAY_TRY(assay_h5_put_text(to, path, "prompt", place->prompt));
    ASSAY_TRY(assay_h5_put_numbers(to, path, "step", H5T_NATIVE_INT, &place->step, 1));
    return assay_h5_put_text(to, path, "point",
                             assay_point_format(name, place->point, place->layer));
}

static assay_status put_places(hid_t to, const assay_repro_content *c)
{
    ASSAY_TRY(assay_h5_make_group(to, "/only"));
    for (int i = 0; i < c->n_places; i++) {
        char path[32];
        snprintf(path, sizeof path, "/only/%d", i);
        ASSAY_TRY(assay_h5_make_group(to, path));
        ASSAY_TRY(put_place(to, path, &c->places[i]));
    }
    return ASSAY_OK;
}

static assay_status put_finding(hid_t to, const assay_finding *finding)
{
    json_t *json = assay_finding_to_json(finding);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(json);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a finding");
    assay_status s = put_bytes(to, "/finding", text, strlen(text));
    if (s == ASSAY_OK)
        s = assay_h5_put_text(to, "/", "class", finding->fault_class);
    if (s == ASSAY_OK)
        s = assay_h5_put_text(to, "/", "kind", finding->kind);
    if (s == ASSAY_OK)
        s = assay_h5_put_text(to, "/", "point", finding->point);
    free(text);
    return s;
}

static assay_status put_run(hid_t to, const assay_repro_content *c)
{
    ASSAY_TRY(assay_h5_make_group(to, "/files"));
    ASSAY_TRY(assay_run_cut(to, "/files", c->run));
    /* the value that told the path may not be among those that are kept */
    return assay_h5_put_text(to, "/files/0", "path", c->is_latent ? "latent" : "expanded");
}

/* Values for people and scripts; the judge reads the captures. */
static assay_status put_values(hid_t to, const char *name, const double *values,
                               const assay_repro_content *c)
{
    int64_t dims[] = {c->rows, c->cols};
    float *narrow;
    ASSAY_TRY(assay_alloc(&narrow, (size_t)(c->rows * c->cols), sizeof *narrow, name));
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        narrow[i] = (float)values[i];
    assay_status s = assay_h5_put_dataset(to, name, H5T_NATIVE_FLOAT, 2, dims, narrow);
    free(narrow);
    return s;
}

static assay_status put_all(hid_t to, const char *path, const assay_repro_content *c)
{
    int format = 1;
    ASSAY_TRY(assay_h5_put_numbers(to, "/", "assay_repro", H5T_NATIVE_INT, &format, 1));
    ASSAY_TRY(assay_h5_put_text(to, "/", "assay_version", ASSAY_VERSION));
    ASSAY_TRY(put_finding(to, c->finding));
    ASSAY_TRY(
        assay_h5_put_numbers(to, "/", "eps", H5T_NATIVE_DOUBLE, c->knobs->eps, ASSAY_N_NORMS));
    ASSAY_TRY(put_places(to, c));
    ASSAY_TRY(put_run(to, c));
    ASSAY_TRY(put_model(to, path, c));
    ASSAY_TRY(put_values(to, "/expected", c->expected, c));
    return put_values(to, "/actual", c->got, c);
}

assay_status assay_repro_write(const char *path, const assay_repro_content *content)
{
    assay_h5_quiet();
    hid_t to = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (to < 0)
        return assay_h5_fail(ASSAY_IO, "'%s': cannot be written", path);
    assay_status s = put_all(to, path, content);
    if (H5Fclose(to) < 0 && s == ASSAY_OK)
        s = assay_h5_fail(ASSAY_IO, "'%s': cannot be written", path);
    return s;
}
