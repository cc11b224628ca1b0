/* Faults inside libhdf5 end with a message, others with their signal. */
#include "probes/hdf5_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/hdf5.h"

enum { GUARD_EXIT = 77, N = 1 << 16 };

/* Values are read to where nothing may be written: the library faults, in its own loops or in the C
 * library's. */
static void fault_in_library(const char *path, void *forbidden)
{
    hid_t file;
    if (assay_h5_open(&file, path) != ASSAY_OK)
        _exit(1);
    hid_t values = H5Dopen2(file, "/count/step0000/input_tokens", H5P_DEFAULT);
    H5Dread(values, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, forbidden);
    _exit(2);
}

static void fault_of_ours(const char *path, void *forbidden)
{
    (void)path;
    *(volatile char *)forbidden = 1;
    _exit(2);
}

static int status_of(void (*fault)(const char *, void *), const char *path, char errors[1024])
{
    int ends[2], status;
    void *forbidden = mmap(NULL, N, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(forbidden != MAP_FAILED && pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        assay_h5_guard(GUARD_EXIT);
        fault(path, forbidden);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t more; n < 1023 && (more = read(ends[0], errors + n, 1023 - n)) > 0;)
        n += (size_t)more;
    errors[n] = 0;
    close(ends[0]);
    munmap(forbidden, N);
    ck_assert(waitpid(child, &status, 0) == child);
    return status;
}

START_TEST(hdf5_guard_names_the_file_and_keeps_other_signals)
{
    char path[4096], errors[1024];
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    int status = status_of(fault_in_library, path, errors);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == GUARD_EXIT, "status %x: %s", status,
                  errors);
    ck_assert_msg(strstr(errors, "hf-fp32.h5': damaged") != NULL, "'%s'", errors);
    status = status_of(fault_of_ours, path, errors);
#ifndef __SANITIZE_ADDRESS__
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x: %s", status,
                  errors);
#endif
    ck_assert_msg(!strstr(errors, "damaged"), "'%s'", errors);
}
END_TEST

EXPECT_MAIN("hdf5_guard", hdf5_guard_names_the_file_and_keeps_other_signals)
