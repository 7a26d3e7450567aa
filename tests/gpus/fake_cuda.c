/* A CUDA driver without GPUs, for tests of 'corro doctor': libcuda.so.1 in main memory. Memory is a file in FAKE_CUDA_DIR that is
   mapped, so that another process can open it by its handle. FAKE_CUDA_DEVICES is the number of GPUs; FAKE_CUDA_FAULT one of
   "hang" (cuInit), "hang-ipc", "crash", "memory" (reads are wrong), "ipc" (not supported), "peer" (wrong copies), "island" (no access). */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (1 << 20)
#define EXPORT __attribute__((visibility("default")))

typedef unsigned long long Ptr;
typedef struct { char path[64]; } Handle;

static struct { void *address; char path[64]; } allocations[64];
static int n_allocations;
static long current;

static int fault(const char *name) {
    const char *given = getenv("FAKE_CUDA_FAULT");
    return given && !strcmp(given, name);
}

static int n_devices(void) {
    const char *given = getenv("FAKE_CUDA_DEVICES");
    return given ? atoi(given) : 1;
}

static void *map(const char *path, int flags) {
    int file = open(path, O_RDWR | flags, 0600);
    if (file < 0 || ftruncate(file, SIZE)) return NULL;
    void *address = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return address == MAP_FAILED ? NULL : address;
}

EXPORT int cuInit(unsigned flags) {
    if (fault("hang")) for (;;) pause();
    if (fault("crash")) *(volatile int *)8 = 1;
    return flags ? 1 : 0;
}
EXPORT int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
EXPORT int cuDeviceGetCount(int *count) { *count = n_devices(); return 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 100; return ordinal < n_devices() ? 0 : 101; }
EXPORT int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Fake %d", device < 0); return 0; }
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(long)device; return 0; }
EXPORT int cuCtxSetCurrent(void *context) { current = (long)context; return current >= 100 ? 0 : 201; }
EXPORT int cuMemAlloc_v2(Ptr *address, size_t size) {
    if (size != SIZE || n_allocations == 64 || !current) return 2;
    char *path = allocations[n_allocations].path;
    snprintf(path, 64, "%s/%d.%d", getenv("FAKE_CUDA_DIR"), getpid(), n_allocations);
    allocations[n_allocations].address = map(path, O_CREAT);
    *address = (Ptr)allocations[n_allocations].address;
    return *address ? (n_allocations++, 0) : 2;
}
EXPORT int cuMemFree_v2(Ptr address) {
    for (int i = 0; i < n_allocations; i++)
        if ((Ptr)allocations[i].address == address) {
            allocations[i].address = NULL;
            unlink(allocations[i].path);
            return munmap((void *)address, SIZE);
        }
    return 1;
}
EXPORT int cuMemcpyHtoD_v2(Ptr to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
EXPORT int cuMemcpyDtoH_v2(void *to, Ptr from, size_t size) {
    memcpy(to, (void *)from, size);
    if (fault("memory")) ((char *)to)[size / 2] ^= 1;
    return 0;
}
EXPORT int cuMemcpyPeer(Ptr to, void *to_context, Ptr from, void *from_context, size_t size) {
    if (to_context == from_context) return 1;
    memcpy((void *)to, (void *)from, fault("peer") ? size / 2 : size);
    return 0;
}
EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer && !(fault("island") && (device == 102 || peer == 102));
    return 0;
}
EXPORT int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
    static int n_calls;
    return flags || !peer ? 1 : n_calls++ ? 704 : 0;
}
EXPORT int cuIpcGetMemHandle(Handle *handle, Ptr address) {
    if (fault("ipc")) return 801;
    for (int i = 0; i < n_allocations; i++)
        if ((Ptr)allocations[i].address == address) { memcpy(handle->path, allocations[i].path, 64); return 0; }
    return 1;
}
EXPORT int cuIpcOpenMemHandle_v2(Ptr *address, Handle handle, unsigned flags) {
    if (fault("hang-ipc")) for (;;) pause();
    *address = (Ptr)map(handle.path, 0);
    return *address && flags == 1 ? 0 : 201;
}
EXPORT int cuIpcCloseMemHandle(Ptr address) { return munmap((void *)address, SIZE); }
EXPORT int cuGetErrorName(int code, const char **name) {
    *name = code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
