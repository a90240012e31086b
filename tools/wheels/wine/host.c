// host.exe LIBRARY FUNCTION...: loads the plug-in's DLL as TensorFlow does, asks for the functions,
// and prints the plug-in's report, which opens and tests each device.

#include <stdio.h>
#include <windows.h>

typedef char *(*Report)(void);
typedef void (*Free)(char *);

int main(int count, char **arguments) {
    HMODULE library = count > 1 ? LoadLibraryA(arguments[1]) : NULL;
    if (!library) {
        fprintf(stderr, "host: LoadLibrary failed with error %lu\n", GetLastError());
        return 2;
    }
    for (int i = 2; i < count; i++) {
        if (!GetProcAddress(library, arguments[i])) {
            fprintf(stderr, "host: there is no %s\n", arguments[i]);
            return 3;
        }
    }
    Report report = (Report)(void *)GetProcAddress(library, "tensorflow_wgpu_report");
    Free release = (Free)(void *)GetProcAddress(library, "tensorflow_wgpu_free");
    if (!report || !release) {
        fprintf(stderr, "host: there is no report\n");
        return 3;
    }
    char *text = report();
    if (!text) {
        fprintf(stderr, "host: the report failed\n");
        return 4;
    }
    puts(text);
    release(text);
    return 0;
}
