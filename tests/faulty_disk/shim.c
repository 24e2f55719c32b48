// A disk that fails on demand: preloaded into the real program, it stands between it and the C library's calls that change
// files, so that the program under test is the one that is shipped. What SQLite, libgit2 and Rust do goes through here.
//
// FAULTY_DISK      rules, one a line: `op part first last action [gate [until]]`
//                  op      write fsync rename unlink open mkdir truncate thread fork, or any (of those on files)
//                  part    what the path contains; - for any
//                  first, last   which of the matching calls, from 1; last 0 for no end
//                  action  kill, or the number of an errno
//                  gate    the rule sleeps until this file exists; - for none
//                  until   the rule ends when the program removes a file whose path contains this
// FAULTY_DISK_LOG  every call that went well is appended here: `op path [path]`
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct rule {
    char op[16], part[256], action[16], gate[512], until[256];
    long first, last, seen;
    int over;
};

static struct rule rules[8];
static int count;
static int log_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("FAULTY_DISK_LOG");
    if (log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char text[4096] = "";
    if (getenv("FAULTY_DISK")) strncpy(text, getenv("FAULTY_DISK"), sizeof text - 1);
    for (char *line = strtok(text, "\n"); line && count < 8; line = strtok(NULL, "\n")) {
        struct rule *r = &rules[count];
        strcpy(r->gate, "-");
        strcpy(r->until, "-");
        if (sscanf(line, "%15s %255s %ld %ld %15s %511s %255s", r->op, r->part, &r->first, &r->last, r->action, r->gate,
                   r->until) >= 5)
            count++;
    }
}

static int on_files(const char *op) { return strcmp(op, "thread") && strcmp(op, "fork"); }

// 0 to go on, or the errno to fail with.
static int ask(const char *op, const char *path) {
    int answer = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !answer; i++) {
        struct rule *r = &rules[i];
        struct stat found;
        if (r->over || (strcmp(r->op, op) && (strcmp(r->op, "any") || !on_files(op)))) continue;
        if (strcmp(r->part, "-") && !strstr(path, r->part)) continue;
        if (strcmp(r->gate, "-") && syscall(SYS_newfstatat, AT_FDCWD, r->gate, &found, 0)) continue;
        r->seen++;
        if (r->seen < r->first || (r->last && r->seen > r->last)) continue;
        if (!strcmp(r->action, "kill")) {
            syscall(SYS_kill, getpid(), SIGKILL);
            for (;;) pause();
        }
        answer = atoi(r->action);
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

static void done(const char *op, const char *path, const char *other) {
    pthread_mutex_lock(&lock);
    if (!strcmp(op, "unlink"))
        for (int i = 0; i < count; i++)
            if (strcmp(rules[i].until, "-") && strstr(path, rules[i].until)) rules[i].over = 1;
    if (log_fd >= 0) {
        char line[9000];
        int n = snprintf(line, sizeof line, "%s %s%s%s\n", op, path, other ? " " : "", other ? other : "");
        syscall(SYS_write, log_fd, line, (size_t)n);
    }
    pthread_mutex_unlock(&lock);
}

static const char *path_of(int fd, char *buffer) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, name, buffer, 4095);
    buffer[n > 0 ? n : 0] = 0;
    // Pipes, sockets and terminals are no disk.
    return buffer[0] == '/' && strncmp(buffer, "/dev/", 5) ? buffer : NULL;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define ON_FD(op, fd, call) \
    char buffer[4096]; \
    const char *path = path_of(fd, buffer); \
    int fault = path ? ask(op, path) : 0; \
    if (fault) { errno = fault; return -1; } \
    __typeof__(call) result = call; \
    if (path && result >= 0) { int kept = errno; done(op, path, NULL); errno = kept; } \
    return result

#define ON_PATH(op, path, other, call) \
    int fault = ask(op, path); \
    if (fault) { errno = fault; return -1; } \
    __typeof__(call) result = call; \
    if (result >= 0) { int kept = errno; done(op, path, other); errno = kept; } \
    return result

ssize_t write(int fd, const void *from, size_t size) { REAL(write); ON_FD("write", fd, real(fd, from, size)); }
ssize_t writev(int fd, const struct iovec *v, int n) { REAL(writev); ON_FD("write", fd, real(fd, v, n)); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { REAL(pwrite); ON_FD("write", fd, real(fd, from, size, at)); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { REAL(pwrite64); ON_FD("write", fd, real(fd, from, size, at)); }
int fsync(int fd) { REAL(fsync); ON_FD("fsync", fd, real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); ON_FD("fsync", fd, real(fd)); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); ON_FD("truncate", fd, real(fd, size)); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); ON_FD("truncate", fd, real(fd, size)); }
int rename(const char *from, const char *to) { REAL(rename); ON_PATH("rename", from, to, real(from, to)); }
int unlink(const char *path) { REAL(unlink); ON_PATH("unlink", path, NULL, real(path)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); ON_PATH("mkdir", path, NULL, real(path, mode)); }

// Opening to read changes nothing and is never refused.
#define OPEN(name, call) \
    REAL(name); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    if (!(flags & (O_WRONLY | O_RDWR | O_CREAT))) return call; \
    ON_PATH("open", path, NULL, call)

int open(const char *path, int flags, ...) { OPEN(open, real(path, flags, mode)); }
int open64(const char *path, int flags, ...) { OPEN(open64, real(path, flags, mode)); }
int openat(int dir, const char *path, int flags, ...) { OPEN(openat, real(dir, path, flags, mode)); }
int openat64(int dir, const char *path, int flags, ...) { OPEN(openat64, real(dir, path, flags, mode)); }

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *with) {
    REAL(pthread_create);
    int fault = ask("thread", "");
    return fault ? fault : real(thread, attr, run, with);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *b,
                char *const args[], char *const env[]) {
    REAL(posix_spawn);
    int fault = ask("fork", path);
    return fault ? fault : real(pid, path, a, b, args, env);
}

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *b,
                 char *const args[], char *const env[]) {
    REAL(posix_spawnp);
    int fault = ask("fork", path);
    return fault ? fault : real(pid, path, a, b, args, env);
}

pid_t fork(void) {
    REAL(fork);
    int fault = ask("fork", "");
    if (fault) { errno = fault; return -1; }
    return real();
}
