/* Makes a folder's disk slow: preloaded, with SLOW_DISK_FOLDER and SLOW_DISK_MICROSECONDS in the environment.
 * At its end a process appends how often it was made to wait to SLOW_DISK_COUNTS. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long waited;

static void wait_for(const char *path)
{
    const char *folder = getenv("SLOW_DISK_FOLDER");
    if (!folder || !path || !strstr(path, folder))
        return;
    atomic_fetch_add(&waited, 1);
    usleep(atoi(getenv("SLOW_DISK_MICROSECONDS")));
}

__attribute__((destructor)) static void tell(void)
{
    const char *counts = getenv("SLOW_DISK_COUNTS");
    FILE *file = counts && waited ? fopen(counts, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", (long)waited);
    fclose(file);
}

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name)                                     \
    int name(const char *path, int flags, ...)          \
    {                                                   \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode_t mode = va_arg(rest, mode_t);             \
        va_end(rest);                                   \
        wait_for(path);                                 \
        return NEXT(name)(path, flags, mode);           \
    }

#define STATS(name, kind)                               \
    int name(const char *path, struct kind *found)      \
    {                                                   \
        wait_for(path);                                 \
        return NEXT(name)(path, found);                 \
    }

OPENS(open)
OPENS(open64)
STATS(stat, stat)
STATS(stat64, stat64)
STATS(lstat, stat)
STATS(lstat64, stat64)

int access(const char *path, int mode)
{
    wait_for(path);
    return NEXT(access)(path, mode);
}

DIR *opendir(const char *path)
{
    wait_for(path);
    return NEXT(opendir)(path);
}
