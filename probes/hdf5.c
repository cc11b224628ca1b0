#include "probes/hdf5.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void assay_h5_no_exit_handler(void)
{
    H5dont_atexit();
}

void assay_h5_quiet(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

typedef struct innermost {
    char text[256];
} innermost;

static herr_t keep_first(unsigned n, const H5E_error2_t *error, void *user)
{
    if (n == 0 && error->desc)
        snprintf(((innermost *)user)->text, sizeof(innermost), "%s", error->desc);
    return 0;
}

assay_status assay_h5_fail(assay_status code, const char *format, ...)
{
    innermost inner = {""};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &inner);
    H5Eclear2(H5E_DEFAULT);
    char text[1536];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (inner.text[0])
        return assay_fail(code, "%s (HDF5: %s)", text, inner.text);
    return assay_fail(code, "%s", text);
}

static bool is_gguf(const char *path)
{
    char magic[4];
    FILE *file = fopen(path, "rb");
    bool is = file && fread(magic, 1, 4, file) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (file)
        fclose(file);
    return is;
}

static char opened[1024];

const char *assay_h5_opened(void)
{
    return opened;
}

/* Values are read whole: a buffer for parts of them (sieve) would be zeroed and filled for each. */
static hid_t open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    if (access >= 0 && H5Pset_sieve_buf_size(access, 0) >= 0)
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (access >= 0)
        H5Pclose(access);
    return file;
}

assay_status assay_h5_open(hid_t *out, const char *path)
{
    assay_h5_quiet();
    if (access(path, R_OK))
        return assay_fail(ASSAY_IO, "'%s': cannot be read: %s", path, strerror(errno));
    size_t n = strlen(path), from = n < sizeof opened ? 0 : n - (sizeof opened - 1);
    memcpy(opened, path + from, n - from + 1);
    hid_t file = open_file(path);
    if (file < 0 && is_gguf(path)) {
        H5Eclear2(H5E_DEFAULT);
        return assay_fail(ASSAY_BAD_FILE,
                          "'%s' is a GGUF model, expected an HDF5 capture; models are judged by "
                          "`assay check MODEL.gguf`",
                          path);
    }
    if (file < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' is not a readable HDF5 file", path);
    *out = file;
    return ASSAY_OK;
}

void assay_h5_names_clear(assay_h5_names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    free(names->addresses);
    *names = (assay_h5_names){.n = 0};
}

typedef struct member {
    char *name;
    uint64_t address;
} member;

typedef struct walk {
    member *members;
    int n, room;
    const char *group;
    assay_status status;
} walk;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *link, void *user)
{
    (void)group;
    walk *w = user;
    if (link->type != H5L_TYPE_HARD) {
        w->status = assay_fail(ASSAY_BAD_FILE,
                               "'%s/%s' is a link of another kind (soft or external), which is "
                               "not followed",
                               w->group, name);
        return -1;
    }
    if (w->n == w->room) {
        w->status = assay_fail(ASSAY_BAD_FILE, "group '%s' changed while it was read", w->group);
        return -1;
    }
    w->members[w->n] = (member){strdup(name), link->u.address};
    if (!w->members[w->n].name) {
        w->status = assay_fail(ASSAY_NO_MEMORY, "no memory for the names of group '%s'", w->group);
        return -1;
    }
    w->n++;
    return 0;
}

bool assay_h5_is_object(hid_t at)
{
    return H5Iget_type(at) != H5I_FILE;
}

/* One more count of an object that is open, so that closing it here leaves it to its owner. */
static hid_t again(hid_t object)
{
    return H5Iinc_ref(object) < 0 ? -1 : object;
}

assay_status assay_h5_open_group(hid_t *out, hid_t file, const char *path)
{
    hid_t group = H5Gopen2(file, path, H5P_DEFAULT);
    if (group < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "group '%s' cannot be opened", path);
    *out = group;
    return ASSAY_OK;
}

static hid_t open_set(hid_t at, const char *path)
{
    return assay_h5_is_object(at) ? again(at) : H5Dopen2(at, path, H5P_DEFAULT);
}

assay_status assay_h5_open_dataset(hid_t *out, hid_t group, const char *path)
{
    hid_t set = H5Dopen2(group, strrchr(path, '/') + 1, H5P_DEFAULT);
    if (set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", path);
    *out = set;
    return ASSAY_OK;
}

void assay_h5_close(hid_t object)
{
    if (object >= 0)
        H5Oclose(object);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

/* The names are handed over. */
static assay_status sort_names(assay_h5_names *out, walk *w)
{
    bool sorted = true; /* as groups of the older kind keep them */
    for (int i = 1; i < w->n && sorted; i++)
        sorted = by_name(&w->members[i - 1], &w->members[i]) <= 0;
    if (!sorted)
        qsort(w->members, (size_t)w->n, sizeof *w->members, by_name);
    ASSAY_TRY(assay_alloc(&out->items, (size_t)w->n, sizeof *out->items, "names"));
    ASSAY_TRY(assay_alloc(&out->addresses, (size_t)w->n, sizeof *out->addresses, "names"));
    out->n = w->n;
    for (int i = 0; i < w->n; i++) {
        out->items[i] = w->members[i].name;
        out->addresses[i] = w->members[i].address;
    }
    w->n = 0;
    return ASSAY_OK;
}

assay_status assay_h5_list(assay_h5_names *out, hid_t file, const char *group)
{
    assay_status s = ASSAY_OK;
    assay_h5_names names = {.n = 0};
    walk w = {.group = group};
    hid_t g = assay_h5_is_object(file) ? again(file) : H5Gopen2(file, group, H5P_DEFAULT);
    if (g < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "group '%s' cannot be opened", group);
    H5G_info_t info;
    if (H5Gget_info(g, &info) < 0) {
        s = assay_h5_fail(ASSAY_BAD_FILE, "group '%s' is damaged", group);
        goto out;
    }
    if (info.nlinks > ASSAY_H5_MAX_LINKS) {
        s = assay_fail(ASSAY_BAD_FILE, "group '%s' has %llu members, at most %d are read", group,
                       (unsigned long long)info.nlinks, ASSAY_H5_MAX_LINKS);
        goto out;
    }
    w.room = (int)info.nlinks;
    ASSAY_GO(assay_alloc(&w.members, info.nlinks, sizeof *w.members, "names"));
    /* In any other order, libhdf5 1.10 makes a table of the members first, and frees entries that
     * it never set when it cannot read on. */
    if (H5Literate(g, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, add_name, &w) < 0) {
        s = w.status ? w.status : assay_h5_fail(ASSAY_BAD_FILE, "group '%s' is damaged", group);
        goto out;
    }
    ASSAY_GO(sort_names(&names, &w));
    *out = names;
    names = (assay_h5_names){.n = 0};
out:
    assay_h5_names_clear(&names);
    for (int i = 0; i < w.n; i++)
        free(w.members[i].name);
    free(w.members);
    H5Gclose(g);
    return s;
}

assay_status assay_h5_member(char *kind, hid_t file, const char *path)
{
    bool is_root = !strcmp(path, "/");
    htri_t exists = is_root ? 1 : H5Lexists(file, path, H5P_DEFAULT);
    H5L_info_t link = {.type = H5L_TYPE_HARD};
    H5O_info_t info;
    *kind = 0;
    if (exists == 0)
        return ASSAY_OK;
    *kind = '?';
    if (exists < 0 || (!is_root && H5Lget_info(file, path, &link, H5P_DEFAULT) < 0))
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' is damaged", path);
    if (link.type != H5L_TYPE_HARD)
        return ASSAY_OK;
    if (H5Oget_info_by_name(file, path, &info, H5P_DEFAULT) < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' is damaged", path);
    if (info.type == H5O_TYPE_GROUP || info.type == H5O_TYPE_DATASET)
        *kind = info.type == H5O_TYPE_GROUP ? 'g' : 'd';
    return ASSAY_OK;
}

char assay_h5_kind(hid_t file, const char *path)
{
    if (strcmp(path, "/") && H5Lexists(file, path, H5P_DEFAULT) <= 0) {
        H5Eclear2(H5E_DEFAULT);
        return 0; /* also where a group on the way is absent */
    }
    char kind;
    return assay_h5_member(&kind, file, path) ? '?' : kind;
}

/* Opens an attribute; *out < 0 with ASSAY_OK when it is absent. */
static assay_status open_attr(hid_t *out, hid_t file, const char *path, const char *name)
{
    *out = -1;
    bool is_open = assay_h5_is_object(file);
    htri_t exists =
        is_open ? H5Aexists(file, name) : H5Aexists_by_name(file, path, name, H5P_DEFAULT);
    if (exists < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s': attribute '%s' is damaged", path, name);
    if (!exists)
        return ASSAY_OK;
    *out = is_open ? H5Aopen(file, name, H5P_DEFAULT)
                   : H5Aopen_by_name(file, path, name, H5P_DEFAULT, H5P_DEFAULT);
    if (*out < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s': attribute '%s' cannot be opened", path, name);
    return ASSAY_OK;
}

static assay_status read_fixed(char **text, hid_t attr, hid_t type)
{
    size_t size = H5Tget_size(type);
    if (size == 0 || size > ASSAY_H5_MAX_TEXT)
        return assay_fail(ASSAY_BAD_FILE, "text of %zu bytes, at most %d are read", size,
                          ASSAY_H5_MAX_TEXT);
    ASSAY_TRY(assay_alloc(text, size + 1, 1, "text"));
    hid_t memory = H5Tcopy(type);
    herr_t e = H5Aread(attr, memory, *text);
    H5Tclose(memory);
    if (e < 0) {
        free(*text);
        return assay_h5_fail(ASSAY_BAD_FILE, "text cannot be read");
    }
    return ASSAY_OK;
}

static assay_status read_variable(char **text, hid_t attr, hid_t type)
{
    char *found = NULL;
    hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_size(memory, H5T_VARIABLE);
    H5Tset_cset(memory, H5Tget_cset(type));
    herr_t e = H5Aread(attr, memory, &found);
    H5Tclose(memory);
    if (e < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "text cannot be read");
    assay_status s = ASSAY_OK;
    size_t n = found ? strlen(found) : 0;
    if (n > ASSAY_H5_MAX_TEXT)
        s = assay_fail(ASSAY_BAD_FILE, "text of %zu bytes, at most %d are read", n,
                       ASSAY_H5_MAX_TEXT);
    else if ((s = assay_alloc(text, n + 1, 1, "text")) == ASSAY_OK && found)
        memcpy(*text, found, n);
    if (found)
        H5free_memory(found);
    return s;
}

assay_status assay_h5_attr_text(char **out, bool *found, hid_t file, const char *path,
                                const char *name)
{
    hid_t attr;
    *found = false;
    ASSAY_TRY(open_attr(&attr, file, path, name));
    if (attr < 0)
        return ASSAY_OK;
    assay_status s;
    char *text = NULL;
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1)
        s = assay_fail(ASSAY_BAD_FILE, "expected one text");
    else
        s = H5Tis_variable_str(type) > 0 ? read_variable(&text, attr, type)
                                         : read_fixed(&text, attr, type);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attr);
    if (s != ASSAY_OK)
        return assay_within(s, "'%s': attribute '%s'", path, name);
    *out = text;
    *found = true;
    return ASSAY_OK;
}

assay_status assay_h5_attr_ints(int64_t **out, int64_t *n, bool *found, hid_t file,
                                const char *path, const char *name)
{
    hid_t attr;
    *found = false;
    ASSAY_TRY(open_attr(&attr, file, path, name));
    if (attr < 0)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    int64_t *values = NULL;
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(type) != H5T_INTEGER || count < 0 || count > ASSAY_H5_MAX_TEXT)
        s = assay_fail(ASSAY_BAD_FILE, "expected whole numbers");
    else if ((s = assay_alloc(&values, (size_t)count, sizeof *values, "numbers")) == ASSAY_OK &&
             count > 0 && H5Aread(attr, H5T_NATIVE_INT64, values) < 0)
        s = assay_h5_fail(ASSAY_BAD_FILE, "numbers cannot be read");
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attr);
    if (s != ASSAY_OK) {
        free(values);
        return assay_within(s, "'%s': attribute '%s'", path, name);
    }
    *out = values;
    *n = count;
    *found = true;
    return ASSAY_OK;
}

assay_status assay_h5_attr_int(int64_t *out, bool *found, hid_t file, const char *path,
                               const char *name)
{
    int64_t *values, n;
    ASSAY_TRY(assay_h5_attr_ints(&values, &n, found, file, path, name));
    if (!*found)
        return ASSAY_OK;
    int64_t first = n > 0 ? values[0] : 0;
    free(values);
    if (n != 1)
        return assay_fail(ASSAY_BAD_FILE, "'%s': attribute '%s' has %lld numbers, expected 1", path,
                          name, (long long)n);
    *out = first;
    return ASSAY_OK;
}

/* One number of an attribute, as `type`; whole: fractions are no number here. */
static assay_status read_one(void *out, bool *found, hid_t file, const char *path, const char *name,
                             hid_t type, bool whole)
{
    hid_t attr;
    *found = false;
    ASSAY_TRY(open_attr(&attr, file, path, name));
    if (attr < 0)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    hid_t stored = H5Aget_type(attr), space = H5Aget_space(attr);
    H5T_class_t kind = H5Tget_class(stored);
    if ((kind != H5T_INTEGER && (whole || kind != H5T_FLOAT)) ||
        H5Sget_simple_extent_npoints(space) != 1)
        s = assay_fail(ASSAY_BAD_FILE, "'%s': attribute '%s': expected one %snumber", path, name,
                       whole ? "whole " : "");
    else if (H5Aread(attr, type, out) < 0)
        s = assay_h5_fail(ASSAY_BAD_FILE, "'%s': attribute '%s' cannot be read", path, name);
    else
        *found = true;
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attr);
    return s;
}

assay_status assay_h5_attr_double(double *out, bool *found, hid_t file, const char *path,
                                  const char *name)
{
    return read_one(out, found, file, path, name, H5T_NATIVE_DOUBLE, false);
}

assay_status assay_h5_attr_u64(uint64_t *out, bool *found, hid_t file, const char *path,
                               const char *name)
{
    return read_one(out, found, file, path, name, H5T_NATIVE_UINT64, true);
}

/* What is stored; is_number false for anything that is not a plain real number. */
static void type_of(assay_h5_info *info, hid_t type)
{
    size_t size = H5Tget_size(type);
    H5T_class_t kind = H5Tget_class(type);
    info->dtype = ASSAY_DTYPE_COUNT;
    if (kind == H5T_FLOAT) {
        info->is_number = size == 2 || size == 4 || size == 8;
        info->dtype = size == 2   ? ASSAY_DTYPE_F16
                      : size == 4 ? ASSAY_DTYPE_F32
                      : size == 8 ? ASSAY_DTYPE_F64
                                  : ASSAY_DTYPE_COUNT;
    } else if (kind == H5T_INTEGER) {
        info->is_number = size == 1 || size == 2 || size == 4 || size == 8;
        info->is_unsigned16 = size == 2 && H5Tget_sign(type) == H5T_SGN_NONE;
        info->dtype = size == 1 ? ASSAY_DTYPE_I8 : size == 8 ? ASSAY_DTYPE_I64 : ASSAY_DTYPE_I32;
    }
}

/* Deflate cannot do better than 1032 : 1 (RFC 1951 run lengths), so stored bytes bound the size. */
#define MAX_RATIO 1032

/* HDF5 reads zeros where a source file of a virtual dataset is missing, so somebody must look. Only
 * plain names are taken: files of the same folder. */
static bool has_sources(hid_t plist, hid_t file)
{
    size_t n = 0;
    char own[4096], name[256];
    if (H5Pget_virtual_count(plist, &n) < 0 || n == 0 || n > 4096 ||
        H5Fget_name(file, own, sizeof own - sizeof name) < 0)
        return false;
    char *slash = strrchr(own, '/');
    char *at = slash ? slash + 1 : own;
    for (size_t i = 0; i < n; i++) {
        ssize_t length = H5Pget_virtual_filename(plist, i, name, sizeof name);
        if (length <= 0 || length >= (ssize_t)sizeof name || strchr(name, '/'))
            return false;
        strcpy(at, name);
        if (access(own, R_OK))
            return false;
    }
    return true;
}

/* Where the data lie in one piece in this file: HADDR_UNDEF for every other layout, and for data in
 * other files. With a block in front of the file the library (1.10) adds that block's size to
 * HADDR_UNDEF, which gives an odd number: such a place is not believed. */
static haddr_t place_of(hid_t set)
{
    haddr_t at = H5Dget_offset(set);
    return at == HADDR_UNDEF || at > INT64_MAX || at % 2 ? HADDR_UNDEF : at;
}

static assay_status check_size(const assay_h5_info *info, hid_t set, const char *path, size_t size)
{
    hsize_t stored = H5Dget_storage_size(set);
    if ((double)info->count * (double)size > (double)stored * MAX_RATIO)
        return assay_fail(ASSAY_BAD_FILE,
                          "'%s' claims %lld elements of %zu bytes, but %llu bytes are stored", path,
                          (long long)info->count, size, (unsigned long long)stored);
    return ASSAY_OK;
}

/* The library takes memory for as many bytes as a chunk's entry claims before it reads any. */
static assay_status check_chunks(hid_t set, const char *path)
{
    hsize_t stored = H5Dget_storage_size(set), whole = 0;
    hid_t file = H5Iget_file_id(set);
    herr_t e = file < 0 ? -1 : H5Fget_filesize(file, &whole);
    if (file >= 0)
        H5Fclose(file);
    if (e < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s': the size of the file cannot be told", path);
    if (stored > whole)
        return assay_fail(ASSAY_BAD_FILE,
                          "'%s' claims %llu stored bytes, and the whole file has %llu", path,
                          (unsigned long long)stored, (unsigned long long)whole);
    return ASSAY_OK;
}

static assay_status check_storage(assay_h5_info *info, hid_t file, hid_t set, const char *path,
                                  size_t size)
{
    if (place_of(set) != HADDR_UNDEF) /* its own, in one piece: neither filters nor other files */
        return info->count ? check_size(info, set, path, size) : ASSAY_OK;
    hid_t plist = H5Dget_create_plist(set);
    assay_status s = ASSAY_OK;
    if (plist < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s' is damaged", path);
    if (H5Pget_external_count(plist) > 0)
        s = assay_fail(ASSAY_BAD_FILE, "'%s' keeps its data in another file, which is refused",
                       path);
    info->is_virtual = H5Pget_layout(plist) == H5D_VIRTUAL;
    info->has_sources = info->is_virtual && has_sources(plist, file);
    int n = s == ASSAY_OK ? H5Pget_nfilters(plist) : 0;
    for (int i = 0; i < n && s == ASSAY_OK; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        char name[64] = "";
        H5Z_filter_t id =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_values, NULL, sizeof name, name, &config);
        if (id < 0 || H5Zfilter_avail(id) <= 0)
            s = assay_h5_fail(ASSAY_BAD_FILE,
                              "'%s' is packed with filter %d '%.60s', which is not "
                              "at hand",
                              path, (int)id, name);
    }
    H5Pclose(plist);
    if (s != ASSAY_OK || info->is_virtual || info->count == 0)
        return s;
    ASSAY_TRY(check_chunks(set, path));
    return check_size(info, set, path, size);
}

/* Whether the numbers lie as this machine has them: the one type of their kind and size. */
static bool is_native(const assay_h5_info *info, hid_t type)
{
    const hid_t native = info->dtype == ASSAY_DTYPE_F32   ? H5T_NATIVE_FLOAT
                         : info->dtype == ASSAY_DTYPE_F64 ? H5T_NATIVE_DOUBLE
                         : info->is_unsigned16            ? H5T_NATIVE_UINT16
                                                          : H5T_NATIVE_INT32;
    return H5Tequal(type, native) > 0;
}

assay_status assay_h5_dataset(assay_h5_info *out, hid_t file, const char *path)
{
    assay_h5_info info = {.count = 1};
    assay_status s = ASSAY_OK;
    hid_t space = -1, type = -1, set = open_set(file, path);
    if (set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", path);
    space = H5Dget_space(set);
    type = H5Dget_type(set);
    int rank = H5Sget_simple_extent_ndims(space);
    if (space < 0 || type < 0 || rank < 0) {
        s = assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' is damaged", path);
        goto out;
    }
    if (rank > ASSAY_H5_MAX_DIMS) {
        s = assay_fail(ASSAY_BAD_FILE, "'%s' has %d dimensions, at most %d are read", path, rank,
                       ASSAY_H5_MAX_DIMS);
        goto out;
    }
    hsize_t dims[ASSAY_H5_MAX_DIMS];
    H5Sget_simple_extent_dims(space, dims, NULL);
    info.n_dims = rank;
    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        info.count = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] > INT64_MAX ||
            __builtin_mul_overflow(info.count, (int64_t)dims[i], &info.count) ||
            info.count > INT64_MAX / 8) {
            s = assay_fail(ASSAY_BAD_FILE, "'%s': the shape overflows", path);
            goto out;
        }
        info.dims[i] = (int64_t)dims[i];
    }
    type_of(&info, type);
    info.element_bytes = H5Tget_size(type);
    ASSAY_GO(check_storage(&info, file, set, path, H5Tget_size(type)));
    info.is_native = is_native(&info, type) && !info.is_virtual && info.count > 0;
    haddr_t at = info.is_native ? place_of(set) : HADDR_UNDEF;
    info.offset = at == HADDR_UNDEF ? -1 : (int64_t)at;
    *out = info;
out:
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    H5Dclose(set);
    return s;
}

static assay_status read_as(void *out, hid_t type, hid_t file, const char *path,
                            const assay_h5_info *info)
{
    if (info->count == 0)
        return ASSAY_OK;
    hid_t set = open_set(file, path);
    if (set < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "dataset '%s' cannot be opened", path);
    herr_t e = H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
    H5Dclose(set);
    return e < 0 ? assay_h5_fail(ASSAY_BAD_FILE, "'%s' cannot be read", path) : ASSAY_OK;
}

assay_status assay_h5_read_f64(double *out, hid_t file, const char *path, const assay_h5_info *info)
{
    if (!info->is_number)
        return assay_fail(ASSAY_BAD_FILE, "'%s' does not hold real numbers", path);
    return read_as(out, H5T_NATIVE_DOUBLE, file, path, info);
}

assay_status assay_h5_read_u16(uint16_t *out, hid_t file, const char *path,
                               const assay_h5_info *info)
{
    if (!info->is_unsigned16)
        return assay_fail(ASSAY_BAD_FILE, "'%s' does not hold 16-bit words", path);
    return read_as(out, H5T_NATIVE_UINT16, file, path, info);
}

assay_status assay_h5_read_u64(uint64_t *out, hid_t file, const char *path,
                               const assay_h5_info *info)
{
    if (!info->is_number)
        return assay_fail(ASSAY_BAD_FILE, "'%s' does not hold numbers", path);
    return read_as(out, H5T_NATIVE_UINT64, file, path, info);
}

/* Of any kind of whole number: each is looked at. */
static assay_status read_wide_ids(int32_t *ids, hid_t file, const char *path,
                                  const assay_h5_info *info)
{
    int64_t *wide;
    ASSAY_TRY(assay_alloc(&wide, (size_t)info->count, sizeof *wide, "ids"));
    assay_status s = read_as(wide, H5T_NATIVE_INT64, file, path, info);
    for (int64_t i = 0; i < info->count && s == ASSAY_OK; i++) {
        if (wide[i] < INT32_MIN || wide[i] > INT32_MAX)
            s = assay_fail(ASSAY_BAD_FILE, "'%s': id %lld at %lld is out of range", path,
                           (long long)wide[i], (long long)i);
        ids[i] = (int32_t)wide[i];
    }
    free(wide);
    return s;
}

assay_status assay_h5_read_ids(int32_t **out, int64_t *n, hid_t file, const char *path)
{
    assay_h5_info info;
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    if (info.n_dims > 2 || !info.is_number || info.dtype < ASSAY_DTYPE_I8)
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected a list of whole numbers", path);
    int32_t *ids;
    ASSAY_TRY(assay_alloc(&ids, (size_t)info.count, sizeof *ids, "ids"));
    /* to convert a few numbers the library zeroes a megabyte */
    assay_status s = info.is_native && !info.is_unsigned16
                         ? read_as(ids, H5T_NATIVE_INT32, file, path, &info)
                         : read_wide_ids(ids, file, path, &info);
    if (s != ASSAY_OK) {
        free(ids);
        return s;
    }
    *out = ids;
    *n = info.count;
    return ASSAY_OK;
}

assay_status assay_h5_read_texts(char *out, size_t size, int64_t n, hid_t file, const char *path)
{
    assay_h5_info info;
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    hid_t type = H5Dget_type(set);
    bool ok = info.count == n && H5Tget_class(type) == H5T_STRING && !H5Tis_variable_str(type);
    H5Tclose(type);
    H5Dclose(set);
    if (!ok)
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected %lld texts of fixed length", path,
                          (long long)n);
    hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_size(memory, size);
    assay_status s = read_as(out, memory, file, path, &info);
    H5Tclose(memory);
    for (int64_t i = 0; i < n; i++)
        out[(size_t)(i + 1) * size - 1] = '\0';
    return s;
}
