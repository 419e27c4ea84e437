/* Shifts the wall clock of a process, and nothing else: preloaded, with CLOCK_SHIFT_SECONDS in the environment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t shift(void)
{
    const char *seconds = getenv("CLOCK_SHIFT_SECONDS");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*libc)(clockid_t, struct timespec *);
    if (!libc)
        libc = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = libc(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*libc)(struct timeval *, void *);
    if (!libc)
        libc = dlsym(RTLD_NEXT, "gettimeofday");
    int failed = libc(now, zone);
    if (!failed)
        now->tv_sec += shift();
    return failed;
}

time_t time(time_t *now)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now)
        *now = found.tv_sec;
    return found.tv_sec;
}
