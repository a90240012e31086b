// bcryptprimitives.dll for a Wine that has none (before 9.0): Rust's standard library asks it for
// random numbers. Windows has its own.

#include <windows.h>

// RtlGenRandom, as advapi32 calls it.
BOOLEAN NTAPI SystemFunction036(void *bytes, ULONG count);

__declspec(dllexport) BOOL WINAPI ProcessPrng(unsigned char *bytes, SIZE_T count) {
    while (count > 0) {
        ULONG part = count > 0x10000000 ? 0x10000000 : (ULONG)count;
        if (!SystemFunction036(bytes, part)) {
            return FALSE;
        }
        bytes += part;
        count -= part;
    }
    return TRUE;
}
