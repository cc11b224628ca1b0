#include "child.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data.h"

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void redirect(int to, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, to) < 0)
        _exit(127);
    close(file);
}

static void slurp(char *out, size_t room, const char *path, bool from_end)
{
    FILE *file = fopen(path, "rb");
    out[0] = 0;
    if (!file)
        return;
    if (from_end && fseek(file, -(long)(room - 1), SEEK_END))
        rewind(file);
    out[fread(out, 1, room - 1, file)] = 0;
    fclose(file);
}

/* RssAnon of a process; 0 when the kernel does not say. */
static long anonymous_kb(pid_t process)
{
    char path[64], line[256];
    long kb = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)process);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* What the shim wrote at the end of the process; zeros when it did not come to that. */
static void read_counts(child_end *end, const char *path)
{
    FILE *file = fopen(path, "rb");
    end->n_counted = end->n_live = 0;
    end->live_from[0] = 0;
    if (!file)
        return;
    if (fscanf(file, "%ld %ld %127[^\n]", &end->n_counted, &end->n_live, end->live_from) < 1)
        end->n_counted = 0;
    fclose(file);
    unlink(path);
}

_Noreturn static void become(int tool, const char *const *words, const child_options *options,
                             const char *counts)
{
    const char *shim = getenv(options->fail_io_at ? "ASSAY_FAIL_IO" : "ASSAY_FAIL_ALLOC");
    char number[32];
    char *argv[64] = {(char *)"assay"};
    for (int i = 0; words[i] && i < 62; i++)
        argv[i + 1] = (char *)words[i];
    struct rlimit no_core = {0, 0},
                  files = {(rlim_t)options->file_bytes, (rlim_t)options->file_bytes};
    setrlimit(RLIMIT_CORE, &no_core);
    if (options->file_bytes)
        setrlimit(RLIMIT_FSIZE, &files);
    setenv("OMP_NUM_THREADS", "1", 1);
    snprintf(number, sizeof number, "%ld",
             options->fail_io_at ? options->fail_io_at : options->fail_at);
    if ((options->fail_at || options->fail_io_at) &&
        (!shim || setenv(options->fail_io_at ? "ASSAY_FAIL_IO_AT" : "ASSAY_FAIL_AT", number, 1) ||
         setenv("ASSAY_FAIL_COUNT", counts, 1) || setenv("LD_PRELOAD", shim, 1)))
        _exit(127);
    if (options->fail_from && setenv("ASSAY_FAIL_FROM", options->fail_from, 1))
        _exit(127);
    if (options->kills_at_io && setenv("ASSAY_FAIL_IO_KILLS", "1", 1))
        _exit(127);
    if (options->as_nobody && getuid() == 0 && (setgid(65534) || setuid(65534)))
        _exit(127);
    extern char **environ;
    fexecve(tool, argv, environ);
    _exit(127);
}

bool child_run(child_end *end, const char *const *words, const child_options *options)
{
    char path[4096], out[4096], err[4096], counts[4096];
    snprintf(path, sizeof path, "%s/assay",
             getenv("ASSAY_BUILD_DIR") ? getenv("ASSAY_BUILD_DIR") : ".");
    snprintf(out, sizeof out, "%s", data_scratch("stdout"));
    snprintf(err, sizeof err, "%s", data_scratch("stderr"));
    snprintf(counts, sizeof counts, "%s", data_scratch("counts"));
    int tool = open(path, O_RDONLY);
    if (tool < 0 || (options->fail_at && !getenv("ASSAY_FAIL_ALLOC")))
        return false;
    double from = now_ms();
    pid_t child = fork();
    if (child == 0) {
        redirect(1, out);
        redirect(2, err);
        become(tool, words, options, counts);
    }
    int status = 0;
    end->anon_kb = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (options->kill_after_ms > 0 && now_ms() - from >= options->kill_after_ms)
            kill(child, SIGKILL);
        long kb = options->watch_memory ? anonymous_kb(child) : 0;
        end->anon_kb = kb > end->anon_kb ? kb : end->anon_kb;
        usleep(200);
    }
    close(tool);
    end->ms = now_ms() - from;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end->was_killed =
        end->signal == SIGKILL && (options->kill_after_ms > 0 || options->kills_at_io);
    read_counts(end, counts);
    slurp(end->errors, sizeof end->errors, err, true);
    slurp(end->output, sizeof end->output, out, false);
    return end->exit != 127;
}

long child_next_call(long n, long n_calls, long step)
{
    const long last = n_calls - 12;
    return n < 8 || n >= last ? n + 1 : n + step < last ? n + step : last;
}

void child_without_times(char *text)
{
    for (char *at = text; (at = strstr(at, " s\n"));) {
        char *from = at;
        while (from > text && strchr("0123456789.", from[-1]))
            from--;
        memmove(from, at, strlen(at) + 1);
        at = from + 1;
    }
}

int child_count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (dir)
        closedir(dir);
    return n;
}
