/* A CUDA driver without a device, for tests: memory of the process, streams that execute at once. Remembers which
   streams were recorded in and waited for. It has no compiler of kernels, so operations pass through host memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

static char log_text[1 << 16];
static size_t log_size;
static int ordinal;

const char *fake_cuda_log(void) { return log_text; }
void fake_cuda_clear(void) { log_text[log_size = 0] = 0; }
void fake_cuda_set_ordinal(int number) { ordinal = number; }

static int note(const char *call, uintptr_t stream) {
    log_size += snprintf(log_text + log_size, sizeof log_text - log_size, "%s %zu\n", call, (size_t)stream);
    if (log_size > sizeof log_text - 64) log_size = 0;
    return 0;
}

int cuInit(unsigned flags) { return 0; }
int cuGetErrorName(int code, const char **text) { *text = "FAKE"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "the test says so"; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "fake"); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 1 + device, 16); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 0; return 0; }
int cuDevicePrimaryCtxRetain(handle *context, int device) { *context = (handle)(uintptr_t)(1000 + device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(handle context) { return 0; }
int cuCtxPopCurrent_v2(handle *context) { return 0; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = *greatest = 0; return 0; }
int cuStreamCreateWithPriority(handle *stream, unsigned flags, int priority) { *stream = malloc(1); return 0; }
int cuStreamDestroy_v2(handle stream) { free(stream); return 0; }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) { return note("wait", (uintptr_t)stream); }
int cuStreamWriteValue32_v2(handle stream, uint64_t at, uint32_t value, unsigned flags) { return 1; }
int cuEventCreate(handle *event, unsigned flags) { *event = malloc(1); return 0; }
int cuEventDestroy_v2(handle event) { free(event); return 0; }
int cuEventRecord(handle event, handle stream) { return note("record", (uintptr_t)stream); }
int cuEventQuery(handle event) { return 0; }
int cuEventSynchronize(handle event) { return 0; }
#ifndef OLD
int cuCtxRecordEvent(handle context, handle event) { return note("record context", (uintptr_t)context); }
int cuCtxWaitEvent(handle context, handle event) { return note("wait context", (uintptr_t)context); }
#endif
int cuMemAlloc_v2(uint64_t *at, size_t size) { *at = (uint64_t)(uintptr_t)malloc(size); return 0; }
int cuMemFree_v2(uint64_t at) { free((void *)(uintptr_t)at); return 0; }
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t at) { *base = at; *size = 0; return 0; }
int cuPointerGetAttribute(void *value, int attribute, uint64_t at) {
    if (attribute == 9) *(int *)value = ordinal; else *(uint64_t *)value = at;
    return 0;
}
int cuIpcGetMemHandle(char *handle, uint64_t at) { return 1; }
struct ipc { char bytes[64]; };
int cuIpcOpenMemHandle_v2(uint64_t *at, struct ipc handle, unsigned flags) { return 1; }
int cuIpcCloseMemHandle(uint64_t at) { return 1; }
int cuMemHostAlloc(void **at, size_t size, unsigned flags) { *at = malloc(size); return 0; }
int cuMemFreeHost(void *at) { free(at); return 0; }
int cuMemHostRegister_v2(void *at, size_t size, unsigned flags) { return 0; }
int cuMemHostUnregister(void *at) { return 0; }
int cuMemHostGetDevicePointer_v2(uint64_t *device, void *at, unsigned flags) { *device = (uint64_t)(uintptr_t)at; return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, handle stream) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, handle stream) { memcpy((void *)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, handle stream) {
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return note("copy", (uintptr_t)stream);
}
int cuModuleLoadData(handle *module, const void *image) { return 1; }
int cuModuleGetFunction(handle *function, handle module, const char *name) { return 1; }
int cuLaunchKernel(handle f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   handle stream, void **arguments, void **extra) { return 1; }
