// The source of the libraries beside this file, which are compressed by `gzip -9n`. It is the least
// code that the checks of wheels accept as a plug-in. The libraries are built by
//
//   zig cc -shared -O2 -s -target x86_64-linux-gnu.2.28 -o linux-x86_64.so plugin.c
//   zig cc -shared -O2 -s -target aarch64-macos.12.0 -o macos-arm64.dylib plugin.c \
//     -Wl,-install_name,@rpath/libtensorflow_wgpu.dylib
//   x86_64-w64-mingw32-gcc -shared -O2 -s -static-libgcc -o windows-x86_64.dll plugin.c

#include <stdlib.h>

#ifdef _WIN32
#define API __declspec(dllexport)
#else
#define API
#endif

API void *SE_InitPlugin(void) { return malloc(1); }
API void *TF_InitKernel(void) { return malloc(2); }
API void *TF_InitGraph(void) { return malloc(3); }
API void *TF_InitProfiler(void) { return malloc(4); }
