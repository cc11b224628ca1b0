/* Files as memory: cut while they are read, and things that are no files. */
#include "engine/base/mapping.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"

enum { FILE_BYTES = 3 * 4096, GUARD_EXIT = 77 };

static void make_file(char path[4096], const char *name, size_t n_bytes)
{
    static char bytes[FILE_BYTES];
    snprintf(path, 4096, "%s", data_scratch(name));
    FILE *file = fopen(path, "wb");
    ck_assert(file && fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0);
}

/* What the child did when the file was cut under it: its exit status, its words in errors. */
static int read_cut_file(const char *path, char errors[1024])
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        assay_mapping mapping;
        dup2(ends[1], STDERR_FILENO);
        assay_mapping_guard(GUARD_EXIT);
        if (assay_mapping_open(&mapping, path) || truncate(path, 4096))
            _exit(1);
        volatile uint8_t last = mapping.bytes[2 * 4096 + 5];
        _exit(last);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t more; n < 1023 && (more = read(ends[0], errors + n, 1023 - n)) > 0;)
        n += (size_t)more;
    errors[n] = 0;
    close(ends[0]);
    ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(mapping_of_a_cut_file_ends_with_its_name_and_place)
{
    char path[4096], errors[1024];
    make_file(path, "cut.bin", FILE_BYTES);
    int exit_status = read_cut_file(path, errors);
    ck_assert_msg(exit_status == GUARD_EXIT, "exit %d: %s", exit_status, errors);
    const char *name = strlen(path) < 256 ? path : path + strlen(path) - 255;
    ck_assert_msg(strstr(errors, name) != NULL, "'%s'", errors);
    ck_assert_msg(strstr(errors, "at byte 8197:") != NULL, "'%s'", errors);
}
END_TEST

START_TEST(mapping_of_an_empty_file_is_nothing)
{
    char path[4096];
    assay_mapping mapping;
    make_file(path, "empty.bin", 0);
    EXPECT_OK(assay_mapping_open(&mapping, path));
    ck_assert(!mapping.bytes && mapping.n_bytes == 0);
    assay_mapping_close(&mapping);
}
END_TEST

START_TEST(mapping_refuses_what_is_no_file)
{
    char path[4096];
    assay_mapping mapping;
    snprintf(path, sizeof path, "%s", data_scratch("pipe"));
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(assay_mapping_open(&mapping, path), ASSAY_BAD_FILE);
    ck_assert(strstr(assay_error_text(), path));
    ck_assert_int_eq(assay_mapping_open(&mapping, data_scratch("absent")), ASSAY_IO);
    ck_assert(strstr(assay_error_text(), "absent"));
}
END_TEST

/* More files than the table of names holds are mapped as well, and their places given back. */
START_TEST(mapping_takes_any_number_of_files)
{
    char path[4096];
    enum { MANY = 600 };
    static assay_mapping mappings[MANY];
    make_file(path, "many.bin", FILE_BYTES);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            EXPECT_OK(assay_mapping_open(&mappings[i], path));
            ck_assert(mappings[i].bytes && mappings[i].n_bytes == FILE_BYTES);
        }
        for (int i = 0; i < MANY; i++)
            assay_mapping_close(&mappings[i]);
    }
}
END_TEST

EXPECT_MAIN("mapping", mapping_of_a_cut_file_ends_with_its_name_and_place,
            mapping_of_an_empty_file_is_nothing, mapping_refuses_what_is_no_file,
            mapping_takes_any_number_of_files)
