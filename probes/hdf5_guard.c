#include "probes/hdf5_guard.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "probes/hdf5.h"

enum { N_FRAMES = 32 };

static struct {
    uintptr_t first, end;
} library, program;
static int guard_exit_status;

/* Where the object lies that holds the address. */
static void find(uintptr_t *first, uintptr_t *end, const void *address)
{
    Dl_info about;
    struct link_map *map = NULL;
    if (!dladdr1(address, &about, (void **)&map, RTLD_DL_LINKMAP))
        return;
    const ElfW(Ehdr) *header = about.dli_fbase;
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)((const char *)about.dli_fbase + header->e_phoff);
    *first = *end = (uintptr_t)about.dli_fbase;
    for (int i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && *first + part[i].p_vaddr + part[i].p_memsz > *end)
            *end = *first + part[i].p_vaddr + part[i].p_memsz;
}

static void say(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

/* Of the frames behind the handler's own, the first that is the library's or the program's says
 * whose fault it is; what both call (the C library) is passed over. */
static void fault(int number)
{
    void *frames[N_FRAMES];
    int n = backtrace(frames, N_FRAMES);
    for (int i = 1; i < n; i++) {
        uintptr_t at = (uintptr_t)frames[i];
        if (at >= library.first && at < library.end) {
            say("assay: '");
            say(assay_h5_opened());
            say("': damaged: the HDF5 library reads beyond its memory\n");
            _exit(guard_exit_status);
        }
        if (at >= program.first && at < program.end)
            break;
    }
    signal(number, SIG_DFL);
    raise(number);
}

void assay_h5_guard(int exit_status)
{
    struct sigaction action = {0};
    void *first[1];
    guard_exit_status = exit_status;
    find(&library.first, &library.end, (const void *)(uintptr_t)H5open);
    find(&program.first, &program.end, (const void *)(uintptr_t)fault);
    if (!library.end || library.first == program.first)
        return;          /* one and the same: nobody could tell */
    backtrace(first, 1); /* loads what it needs now, not in the handler */
    action.sa_handler = fault;
    action.sa_flags = SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
}
