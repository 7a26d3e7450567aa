/* libnvrtc.so.13 without a compiler, for tests of 'corro doctor'. */

#include <stdlib.h>
#include <string.h>

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    if (!strstr(source, "__global__") || strcmp(name, "add.cu") || count || headers || names) return 3;
    *program = malloc(1);
    return 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) { return !program || count || options ? 6 : 0; }
int nvrtcDestroyProgram(void **program) { free(*program); *program = NULL; return 0; }
const char *nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INVALID_INPUT"; }
