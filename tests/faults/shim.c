/* A disk that fails: loaded before the C library, it counts what is done to files below a folder,
 * and lets the n-th of it fail, or ends the process there. shim.py builds and uses it.
 *
 * Counted are: creating a file or folder, write, fsync and rename, of paths below FAULT_FOLDER
 * that contain FAULT_MATCH. What is done at FAULT_AT fails with FAULT_ERRNO; 0 kills the process.
 * With FAULT_STAYS all that follows fails too, as on a disk that is full. Where the process dies
 * or the disk becomes full, half of what was to be written is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX], match[PATH_MAX];
static atomic_long count, at;
static atomic_int error_number, stays;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

void fault_arm(const char *where, const char *what, long when, int error, int for_good) {
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(match, sizeof match, "%s", what);
    count = 0;
    at = when;
    error_number = error;
    stays = for_good;
}

long fault_count(void) { return count; }

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("FAULT_FOLDER"), *what = getenv("FAULT_MATCH");
    const char *when = getenv("FAULT_AT"), *error = getenv("FAULT_ERRNO");
    if (where)
        fault_arm(where, what ? what : "", when ? atol(when) : 0, error ? atoi(error) : 0,
                  getenv("FAULT_STAYS") != NULL);
}

__attribute__((destructor)) static void tell(void) {
    const char *told = getenv("FAULT_COUNT");
    if (!told || !folder[0]) return;
    FILE *file = fopen(told, "w");
    if (file) fprintf(file, "%ld\n", (long)count), fclose(file);
}

/* 1 if what is about to be done must fail. */
static int fails(const char *path) {
    if (!folder[0] || strncmp(path, folder, strlen(folder)) || !strstr(path, match)) return 0;
    long now = ++count;
    if (!at || now < at || (now > at && !stays)) return 0;
    if (!error_number) return 1;
    errno = error_number;
    return 1;
}

static void kill_if_wanted(void) {
    if (!error_number) raise(SIGKILL);
}

static const char *path_of(int fd, char *path) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

static const char *below(int where, const char *name, char *path) {
    if (name[0] == '/') return name;
    char start[PATH_MAX];
    if (where == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) return name;
    } else
        path_of(where, start);
    snprintf(path, PATH_MAX, "%s/%s", start, name);
    return path;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    char path[PATH_MAX];
    if (folder[0] && fails(path_of(fd, path))) {
        int because = errno, half = count == at && size > 1 && (stays || !error_number);
        ssize_t done = half ? real(fd, data, size / 2) : -1;
        kill_if_wanted();
        errno = because;
        return done; /* of a disk that is full, what still fitted */
    }
    return real(fd, data, size);
}

int fsync(int fd) {
    REAL(fsync);
    char path[PATH_MAX];
    if (folder[0] && fails(path_of(fd, path))) return kill_if_wanted(), -1;
    return real(fd);
}

int rename(const char *old, const char *new) {
    REAL(rename);
    char path[PATH_MAX];
    if (folder[0] && fails(below(AT_FDCWD, old, path))) return kill_if_wanted(), -1;
    return real(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat);
    char path[PATH_MAX];
    if (folder[0] && fails(below(from, old, path))) return kill_if_wanted(), -1;
    return real(from, old, to, new);
}

int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    char path[PATH_MAX];
    if (folder[0] && fails(below(AT_FDCWD, name, path))) return kill_if_wanted(), -1;
    return real(name, mode);
}

int open64(const char *name, int flags, ...) {
    REAL(open64);
    char path[PATH_MAX];
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (folder[0] && (flags & O_CREAT) && fails(below(AT_FDCWD, name, path)))
        return kill_if_wanted(), -1;
    return real(name, flags, mode);
}
