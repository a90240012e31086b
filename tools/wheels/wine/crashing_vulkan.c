// vulkan-1.dll of a system whose driver crashes as soon as it is asked.

typedef void (*Function)(void);

__declspec(dllexport) Function vkGetInstanceProcAddr(void *instance, const char *name) {
    (void)instance, (void)name;
    *(volatile int *)8 = 0;
    return 0;
}
