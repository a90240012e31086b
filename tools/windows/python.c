// python.exe: the interpreter of python3X.dll, like the one in CPython.

#include <wchar.h>

__declspec(dllimport) int Py_Main(int count, wchar_t **arguments);

int wmain(int count, wchar_t **arguments) { return Py_Main(count, arguments); }
