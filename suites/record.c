#include "suites/record.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/publish.h"
#include "probes/hdf5.h"
#include "reports/text.h"

static void to_hex(char out[65], const unsigned char digest[32])
{
    for (int i = 0; i < 32; i++)
        sprintf(out + 2 * i, "%02x", digest[i]);
}

assay_status assay_record_sha256(char out[65], const char *path)
{
    unsigned char bytes[1 << 16], digest[EVP_MAX_MD_SIZE];
    FILE *file = fopen(path, "rb");
    if (!file)
        return assay_fail(ASSAY_IO, "'%s': cannot be opened: %s", path, strerror(errno));
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool good = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    for (size_t n; good && (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        good = EVP_DigestUpdate(hash, bytes, n) == 1;
    good = good && !ferror(file) && EVP_DigestFinal_ex(hash, digest, NULL) == 1;
    EVP_MD_CTX_free(hash);
    fclose(file);
    if (!good)
        return assay_fail(ASSAY_IO, "'%s': cannot be read", path);
    to_hex(out, digest);
    return ASSAY_OK;
}

static assay_status put_text(hid_t object, const char *name, const char *text)
{
    char *clean = assay_text_utf8(text ? text : "");
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), attribute = -1;
    bool good =
        clean && H5Tset_size(type, strlen(clean) + 1) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
        (attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
        H5Awrite(attribute, type, clean) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
    free(clean);
    return good ? ASSAY_OK : assay_h5_fail(ASSAY_IO, "record: attribute '%s'", name);
}

static assay_status put_int(hid_t object, const char *name, int value)
{
    hid_t space = H5Screate(H5S_SCALAR),
          attribute = H5Acreate2(object, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT, &value) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return good ? ASSAY_OK : assay_h5_fail(ASSAY_IO, "record: attribute '%s'", name);
}

/* "model name" of the first processor; "" unknown. */
static void processor_of(char *out, size_t room)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (value && !strncmp(line, "model name", 10)) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(out, room, "%s", value + 2);
        }
    }
    if (file)
        fclose(file);
}

static assay_status put_machine(hid_t file)
{
    struct utsname name;
    char processor[200], text[512];
    if (uname(&name) != 0)
        return assay_fail(ASSAY_IO, "record: uname: %s", strerror(errno));
    processor_of(processor, sizeof processor);
    snprintf(text, sizeof text, "%.60s %.100s %.60s", name.sysname, name.release, name.machine);
    ASSAY_TRY(put_text(file, "host", name.nodename));
    ASSAY_TRY(put_text(file, "system", text));
    return put_text(file, "processor", processor);
}

static assay_status put_input(hid_t file, int index, const assay_record_input *input)
{
    char name[40], sha256[65];
    if (input->sha256)
        snprintf(sha256, sizeof sha256, "%s", input->sha256);
    else
        ASSAY_TRY(assay_record_sha256(sha256, input->path));
    snprintf(name, sizeof name, "/inputs/%d", index);
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (group < 0)
        return assay_h5_fail(ASSAY_IO, "record: group '%s'", name);
    assay_status s = put_text(group, "role", input->role);
    if (s == ASSAY_OK)
        s = put_text(group, "path", input->path);
    if (s == ASSAY_OK)
        s = put_text(group, "sha256", sha256);
    H5Gclose(group);
    return s;
}

static assay_status put_inputs(hid_t file, const assay_record_input *inputs, int n)
{
    hid_t group = H5Gcreate2(file, "/inputs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (group < 0)
        return assay_h5_fail(ASSAY_IO, "record: group '/inputs'");
    H5Gclose(group);
    for (int i = 0, kept = 0; i < n; i++)
        if (inputs[i].path)
            ASSAY_TRY(put_input(file, kept++, &inputs[i]));
    return ASSAY_OK;
}

static assay_status put_result(hid_t file, const assay_result *result)
{
    json_t *json = assay_result_to_json(result);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12)), sha256[65];
    json_decref(json);
    if (!text)
        return assay_fail(ASSAY_NO_MEMORY, "record: no memory for the result");
    unsigned char digest[EVP_MAX_MD_SIZE];
    hsize_t n = strlen(text);
    hid_t space = H5Screate_simple(1, &n, NULL),
          set = H5Dcreate2(file, "/result", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT,
                           H5P_DEFAULT);
    bool good = set >= 0 &&
                H5Dwrite(set, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0 &&
                EVP_Digest(text, n, digest, NULL, EVP_sha256(), NULL) == 1;
    assay_status s = good ? ASSAY_OK : assay_h5_fail(ASSAY_IO, "record: dataset '/result'");
    if (good) {
        to_hex(sha256, digest);
        s = put_text(set, "sha256", sha256);
    }
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    free(text);
    return s;
}

static assay_status put_all(hid_t file, const assay_result *result, const char *signed_by,
                            const assay_record_input *inputs, int n_inputs)
{
    char now[32];
    time_t t = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    ASSAY_TRY(put_int(file, "assay_record", 1));
    ASSAY_TRY(put_text(file, "assay_version", ASSAY_VERSION));
    ASSAY_TRY(put_text(file, "signed_by", signed_by));
    ASSAY_TRY(put_text(file, "created", now));
    ASSAY_TRY(put_text(file, "verdict", assay_verdict_name(assay_result_verdict(result))));
    ASSAY_TRY(put_int(file, "exit", assay_result_exit(result)));
    ASSAY_TRY(put_text(file, "command_line", result->command_line));
    ASSAY_TRY(put_machine(file));
    ASSAY_TRY(put_inputs(file, inputs, n_inputs));
    return put_result(file, result);
}

assay_status assay_record_write(const char *path, const assay_result *result, const char *signed_by,
                                const assay_record_input *inputs, int n_inputs)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%ld", path, (long)getpid()) < 0)
        return assay_fail(ASSAY_NO_MEMORY, "record: no memory");
    assay_h5_quiet();
    hid_t file = H5Fcreate(temporary, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assay_status s = file >= 0 ? put_all(file, result, signed_by, inputs, n_inputs)
                               : assay_h5_fail(ASSAY_IO, "'%s': cannot be written", temporary);
    if (file >= 0 && H5Fclose(file) < 0 && s == ASSAY_OK)
        s = assay_h5_fail(ASSAY_IO, "'%s': cannot be written", temporary);
    if (s == ASSAY_OK)
        s = assay_publish(temporary, path);
    else
        unlink(temporary);
    free(temporary);
    return s;
}
