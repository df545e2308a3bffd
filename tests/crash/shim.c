/* Records what a process does to the files of a store, makes chosen calls fail, steps the wall clock.
 *
 * Loaded before libc (LD_PRELOAD). SHIM_FOLDER names the folder that is watched, SHIM_LOG the file
 * that the record goes to; without SHIM_LOG nothing is recorded. Of the files in the folder those are
 * watched that a power cut concerns: not the lock file nor SQLite's shared memory, and "ledger" files
 * are what a process has told the world. Each record is a struct head, then `size` bytes.
 *
 * What a process does and its place in the record are one step, also among processes: a lock on the
 * record is held meanwhile. A sync has two records, where it begins and where it ended well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 65536
#define NAME 64

enum kind { WRITE = 1, SYNC = 2, TRUNCATE = 4, OPEN = 8, UNLINK = 16, SYNCED = 32, APPEND = 64 };

struct head {
    uint32_t kind;
    uint32_t pid;
    uint32_t token; /* of a sync, to find its end */
    uint32_t size;
    uint64_t offset;
    char name[NAME];
};

static char names[FILES][NAME]; /* of open descriptors that are watched */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static pid_t record_of;
static uint32_t tokens;

/* ---- faults, armed from outside by ctypes or SHIM_FAIL */

static struct {
    char needle[NAME];
    int kinds;
    long skip; /* calls that go well before */
    long count; /* calls that fail then; -1: all */
    int error; /* errno; -1: the process is killed */
    int part; /* a write is half done first */
    long seen;
    int loaded;
} fault;

long long shim_wall_offset; /* microseconds */

void shim_fail(const char *needle, int kinds, long skip, long count, int error, int part) {
    snprintf(fault.needle, sizeof fault.needle, "%s", needle);
    fault.kinds = kinds;
    fault.skip = skip;
    fault.error = error;
    fault.part = part;
    fault.seen = 0;
    fault.loaded = 1;
    fault.count = count;
}

long shim_seen(void) { return fault.seen; }

static void load_fault(void) {
    const char *text = getenv("SHIM_FAIL"); /* needle,kinds,skip,count,error,part */
    char needle[NAME];
    int kinds, error, part;
    long skip, count;
    if (fault.loaded || !text || !*text) return;
    fault.loaded = 1;
    if (sscanf(text, "%63[^,],%d,%ld,%ld,%d,%d", needle, &kinds, &skip, &count, &error, &part) == 6)
        shim_fail(needle, kinds, skip, count, error, part);
}

/* Whether this call is to fail; the caller does half of a write first where it is to be torn. */
static int fails(int kind, const char *name) {
    load_fault();
    if (!(fault.kinds & kind) || !strstr(name, fault.needle)) return 0;
    long nth = __sync_add_and_fetch(&fault.seen, 1);
    if (nth <= fault.skip) return 0;
    return fault.count < 0 || nth <= fault.skip + fault.count;
}

static int failed(void) {
    if (fault.error == -1) {
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = fault.error;
    return -1;
}

/* ---- the record */

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static const char *watched(const char *path) {
    const char *folder = getenv("SHIM_FOLDER");
    if (!folder || !path) return NULL;
    size_t length = strlen(folder);
    if (strncmp(path, folder, length)) return NULL;
    path += length;
    if (!*path) return "."; /* the folder itself */
    if (*path != '/') return NULL;
    path++;
    size_t end = strlen(path);
    if (end >= NAME || (end > 4 && !strcmp(path + end - 4, "-shm"))) return NULL;
    if (end > 5 && !strcmp(path + end - 5, "-lock")) return NULL;
    return path;
}

static void begin(void) {
    const char *path = getenv("SHIM_LOG");
    pthread_mutex_lock(&mutex);
    if (path && *path && (record < 0 || record_of != getpid())) {
        REAL(int, "open64", const char *, int, ...);
        record = real(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        record_of = getpid();
    }
    if (record >= 0) flock(record, LOCK_EX);
}

static void end(void) {
    int error = errno;
    if (record >= 0) flock(record, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

static void note(uint32_t kind, const char *name, uint64_t offset, const void *data, size_t size,
                 uint32_t token) {
    if (record < 0) return;
    REAL(ssize_t, "write", int, const void *, size_t);
    struct head head = {kind, (uint32_t)getpid(), token, (uint32_t)size, offset, {0}};
    snprintf(head.name, sizeof head.name, "%s", name);
    if (real(record, &head, sizeof head) != sizeof head || real(record, data, size) != (ssize_t)size)
        abort();
}

static const char *name_of(int fd) {
    return fd >= 0 && fd < FILES && names[fd][0] ? names[fd] : NULL;
}

/* ---- the calls */

static int opened(const char *path, int fd, int flags, int existed) {
    const char *name = watched(path);
    if (fd < 0 || fd >= FILES) return fd;
    names[fd][0] = 0;
    if (!name) return fd;
    snprintf(names[fd], NAME, "%s", name);
    if ((flags & O_CREAT) && !existed) note(OPEN, name, 0, "", 0, 0);
    if (flags & O_TRUNC) note(TRUNCATE, name, 0, "", 0, 0);
    return fd;
}

static int open_it(const char *path, int flags, mode_t mode) {
    REAL(int, "open64", const char *, int, ...);
    const char *name = watched(path);
    if (!name) return opened(path, real(path, flags, mode), flags, 1);
    if (fails(OPEN, name)) return failed();
    begin();
    int existed = access(path, F_OK) == 0;
    int fd = opened(path, real(path, flags, mode), flags, existed);
    end();
    return fd;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return open_it(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return open_it(path, flags, mode); }

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, flags)
    REAL(int, "openat64", int, const char *, int, ...);
    if (*path == '/') return open_it(path, flags, mode);
    return real(folder, path, flags, mode);
}

int close(int fd) {
    REAL(int, "close", int);
    if (fd >= 0 && fd < FILES) names[fd][0] = 0;
    return real(fd);
}

static ssize_t write_it(int fd, const void *data, size_t size, off64_t offset, int at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    static ssize_t (*plain)(int, const void *, size_t);
    if (!plain) plain = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *name = name_of(fd);
    if (!name) return at ? real(fd, data, size, offset) : plain(fd, data, size);
    int appends = !at && fcntl(fd, F_GETFL) & O_APPEND;
    int bad = fails(appends ? WRITE | APPEND : WRITE, name);
    if (bad && !fault.part) return failed();
    if (bad) size /= 2;
    begin();
    if (!at) {
        struct stat64 now;
        offset = appends && !fstat64(fd, &now) ? now.st_size : lseek64(fd, 0, SEEK_CUR);
    }
    note(WRITE, name, (uint64_t)offset, data, size, 0);
    ssize_t done = at ? real(fd, data, size, offset) : plain(fd, data, size);
    end();
    return bad ? failed() : done;
}

ssize_t write(int fd, const void *data, size_t size) { return write_it(fd, data, size, 0, 0); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return write_it(fd, data, size, offset, 1);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return write_it(fd, data, size, offset, 1);
}

static int truncate_it(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    const char *name = name_of(fd);
    if (!name) return real(fd, size);
    if (fails(TRUNCATE, name)) return failed();
    begin();
    note(TRUNCATE, name, (uint64_t)size, "", 0, 0);
    int done = real(fd, size);
    end();
    return done;
}

int ftruncate(int fd, off_t size) { return truncate_it(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncate_it(fd, size); }

static int sync_it(int fd, int (*real)(int)) {
    const char *name = name_of(fd);
    if (!name) return real(fd);
    char kept[NAME];
    snprintf(kept, NAME, "%s", name);
    /* Not those of who gives the log room: nobody waits for them. */
    if (!(fcntl(fd, F_GETFL) & O_APPEND) && fails(SYNC, kept)) return failed();
    begin();
    uint32_t token = ++tokens;
    note(SYNC, kept, 0, "", 0, token);
    end();
    int done = real(fd);
    if (!done) {
        begin();
        note(SYNCED, kept, 0, "", 0, token);
        end();
    }
    return done;
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return sync_it(fd, real);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return sync_it(fd, real);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    const char *name = watched(path);
    if (!name) return real(path);
    if (fails(UNLINK, name)) return failed();
    begin();
    int done = real(path);
    if (!done) note(UNLINK, name, 0, "", 0, 0);
    end();
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int done = real(clock, at);
    if (!done && clock == CLOCK_REALTIME && shim_wall_offset) {
        long long micros = at->tv_nsec / 1000 + shim_wall_offset % 1000000;
        at->tv_sec += shim_wall_offset / 1000000 + (micros >= 1000000) - (micros < 0);
        micros += (micros < 0) * 1000000LL - (micros >= 1000000) * 1000000LL;
        at->tv_nsec = micros * 1000 + at->tv_nsec % 1000;
    }
    return done;
}
