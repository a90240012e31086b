/* Says that the GPU has finished all work.
 *
 * Mesa's shim throws submissions away, and answers the kernel's question how far a timeline of
 * submissions has come (DRM_IOCTL_SYNCOBJ_QUERY) without writing the answer. The driver passes on
 * what happens to be on the stack: 0 there means that the GPU does not answer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>

struct query {
    uint64_t handles, points;
    uint32_t count, flags;
};

enum { TYPE_AND_NUMBER = 0xffff, SYNCOBJ_QUERY = 'd' << 8 | 0xcb };

int ioctl(int file, unsigned long request, ...) {
    static int (*next)(int, unsigned long, void *);
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if ((request & TYPE_AND_NUMBER) == SYNCOBJ_QUERY) {
        struct query *query = argument;
        uint64_t *points = (uint64_t *)(uintptr_t)query->points;
        for (uint32_t at = 0; at < query->count; at++) {
            points[at] = UINT64_C(1) << 62;
        }
        return 0;
    }
    if (!next) {
        next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    }
    return next(file, request, argument);
}
