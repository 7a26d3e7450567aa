// Kernels of the engine, compiled by NVRTC for one element type and one operation. Defined by the compiler's options: ELEMENT, ACCUMULATOR,
// LOAD(x) and STORE(a) that convert between them, COMBINE(a, b), SCALE(a, factor), MAX_POINTERS, CHUNK_BYTES.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

__device__ inline float from_half(u16 x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x)); return f; }
__device__ inline u16 to_half(float f) { u16 x; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f)); return x; }
__device__ inline float from_bfloat(u16 x) { return __uint_as_float((u32)x << 16); }
__device__ inline u16 to_bfloat(float f) {
    u32 bits = __float_as_uint(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40u);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// NaN if either is, as on the CPU.
template <typename T> __device__ inline T minimum(T a, T b) { return a != a ? a : b != b ? b : b < a ? b : a; }
template <typename T> __device__ inline T maximum(T a, T b) { return a != a ? a : b != b ? b : b > a ? b : a; }
// Truncated toward zero and saturated, as on the CPU.
template <typename T> __device__ inline T scaled_integer(T x, double factor, double lowest, double highest) {
    double product = trunc((double)x * factor);
    return product != product ? (T)0 : product <= lowest ? (T)lowest : product >= highest ? (T)highest : (T)product;
}

union Vector {
    uint4 bits;
    ELEMENT elements[16 / sizeof(ELEMENT)];
};

// N: number of sources, 0 if it differs between tasks.
template <int N> __device__ inline void run_task(const u64 *table, u32 first_chunk, double prescale, double postscale) {
    __shared__ u64 task[2 + MAX_POINTERS];
    const u64 *chunk = table + first_chunk + 2 * (u64)blockIdx.x;
    u64 entry = chunk[0], first = chunk[1];
    u32 n_words = (u32)(entry >> 32);
    if (threadIdx.x < n_words) task[threadIdx.x] = table[(u32)entry + threadIdx.x];
    __syncthreads();
    const u64 n_elements = task[0];
    const u32 n_sources = N ? N : (u32)(task[1] & 0xffff), n_destinations = (u32)(task[1] >> 16 & 0xffff);
    const u64 *sources = task + 2, *destinations = sources + n_sources;
    const u64 per_chunk = CHUNK_BYTES / sizeof(ELEMENT);
    const u64 end = first + per_chunk < n_elements ? first + per_chunk : n_elements;
    const bool scales_before = prescale != 1.0, scales_after = postscale != 1.0;
    u64 done = first;
    if (task[1] >> 32 & 1) {
        const u32 per_vector = 16 / sizeof(ELEMENT);
        const u64 first_vector = first / per_vector, n_vectors = end / per_vector;
        done = n_vectors * per_vector > first ? n_vectors * per_vector : first;
#pragma unroll 4
        for (u64 at = first_vector + threadIdx.x; at < n_vectors; at += blockDim.x) {
            Vector in[N ? N : 1];
            ACCUMULATOR sum[16 / sizeof(ELEMENT)];
            if (N) {
#pragma unroll
                for (u32 s = 0; s < N; s++)
                    in[s].bits = sources[s] ? ((const uint4 *)sources[s])[at] : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (u32 s = 0; s < n_sources; s++) {
                if (!N) in[0].bits = sources[s] ? ((const uint4 *)sources[s])[at] : make_uint4(0, 0, 0, 0);
#pragma unroll
                for (u32 e = 0; e < per_vector; e++) {
                    ACCUMULATOR x = LOAD(in[N ? s : 0].elements[e]);
                    if (scales_before) x = SCALE(x, prescale);
                    sum[e] = s ? COMBINE(sum[e], x) : x;
                }
            }
            Vector out;
#pragma unroll
            for (u32 e = 0; e < per_vector; e++) {
                ACCUMULATOR x = sum[e];
                if (scales_after) x = SCALE(x, postscale);
                out.elements[e] = STORE(x);
            }
            for (u32 d = 0; d < n_destinations; d++) ((uint4 *)destinations[d])[at] = out.bits;
        }
    }
    for (u64 at = done + threadIdx.x; at < end; at += blockDim.x) {
        ACCUMULATOR sum = 0;
        for (u32 s = 0; s < n_sources; s++) {
            ELEMENT given = sources[s] ? ((const ELEMENT *)sources[s])[at] : (ELEMENT)0;
            ACCUMULATOR x = LOAD(given);
            if (scales_before) x = SCALE(x, prescale);
            sum = s ? COMBINE(sum, x) : x;
        }
        if (scales_after) sum = SCALE(sum, postscale);
        ELEMENT out = STORE(sum);
        for (u32 d = 0; d < n_destinations; d++) ((ELEMENT *)destinations[d])[at] = out;
    }
}

#define KERNEL(name, n)                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(512)                                                                                       \
        name(const u64 *table, u32 first_chunk, double prescale, double postscale) {                                                        \
        run_task<n>(table, first_chunk, prescale, postscale);                                                                               \
    }
KERNEL(combine_any, 0)
KERNEL(combine_1, 1)
KERNEL(combine_2, 2)
KERNEL(combine_3, 3)
KERNEL(combine_4, 4)

#ifdef ADASUM
// Sum over the block, in an order that does not depend on timing. The result is valid in thread 0.
__device__ inline double block_sum(double x, double *shared) {
    shared[threadIdx.x] = x;
    __syncthreads();
    for (u32 half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    double sum = shared[0];
    __syncthreads();
    return sum;
}

// Partial dot products a·a, b·b and a·b of each block.
extern "C" __global__ void __launch_bounds__(256) adasum_dots(const ELEMENT *a, const ELEMENT *b, u64 n, double *partials) {
    __shared__ double shared[256];
    double aa = 0, bb = 0, ab = 0;
    for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < n; at += gridDim.x * (u64)blockDim.x) {
        double x = LOAD(a[at]), y = LOAD(b[at]);
        aa += x * x;
        bb += y * y;
        ab += x * y;
    }
    aa = block_sum(aa, shared);
    bb = block_sum(bb, shared);
    ab = block_sum(ab, shared);
    if (threadIdx.x == 0) {
        partials[3 * blockIdx.x] = aa;
        partials[3 * blockIdx.x + 1] = bb;
        partials[3 * blockIdx.x + 2] = ab;
    }
}

// Replaces both vectors by their adaptive sum.
extern "C" __global__ void __launch_bounds__(256) adasum_combine(ELEMENT *a, ELEMENT *b, u64 n, const double *partials, u32 n_partials) {
    __shared__ double dots[3];
    if (threadIdx.x < 3) {
        double sum = 0;
        for (u32 at = 0; at < n_partials; at++) sum += partials[3 * at + threadIdx.x];
        dots[threadIdx.x] = sum;
    }
    __syncthreads();
    // The root of the smallest normal number, as on the CPU: too small to divide by.
    const double tiny = 1.4916681462400413e-154;
    double of_a = dots[0] < tiny ? 1 : 1 - dots[2] / (2 * dots[0]);
    double of_b = dots[1] < tiny ? 1 : 1 - dots[2] / (2 * dots[1]);
    for (u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x; at < n; at += gridDim.x * (u64)blockDim.x) {
        double x = LOAD(a[at]), y = LOAD(b[at]);
        ELEMENT out = STORE((ACCUMULATOR)(of_a * x + of_b * y));
        a[at] = out;
        b[at] = out;
    }
}
#endif
