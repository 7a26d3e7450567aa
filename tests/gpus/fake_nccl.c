/* libnccl.so.2 without GPUs, for tests of 'corro doctor'. FAKE_NCCL_FAULT: communicators cannot be made. */

#include <stdlib.h>

int ncclGetVersion(int *version) { *version = 22803; return 0; }
int ncclCommInitAll(void **communicator, int count, const int *devices) {
    if (getenv("FAKE_NCCL_FAULT") || count != 1 || devices[0] != 0) return 1;
    *communicator = malloc(1);
    return 0;
}
int ncclCommDestroy(void *communicator) { free(communicator); return 0; }
const char *ncclGetErrorString(int code) { return code == 1 ? "unhandled cuda error" : "unknown"; }
