// What all kernels share: short type names, half floats, sums over a warp and a block, tensors.
// ↔ ggml/src/ggml-cuda/common.cuh
//
// No header of the toolkit is included, so that the run-time compiler needs no files. Where
// LLMVIZ_ON_CPU is defined, a header of the tests stands in for the compiler's built-in functions.
//
// A kernel takes one argument, a struct; the Python side reads the structs' fields from here.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef signed char i8;
typedef short i16;
typedef long long i64;

#define WARP 32
#define ALL_LANES 0xFFFFFFFFu

#ifndef LLMVIZ_ON_CPU
#define DEVICE static __device__ __forceinline__ __attribute__((unused))
#define DEVICE_MEMBER static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define ALIGNED(p, n) (p)
#define INFINITE __int_as_float(0x7f800000)

DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

DEVICE u16 float_to_half(float f) {  // to nearest, ties to even
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#endif

DEVICE float round_half(float f) { return half_to_float(float_to_half(f)); }

DEVICE float bf16_to_float(u16 h) { return __uint_as_float((u32) h << 16); }

DEVICE u16 float_to_bf16(float f) {  // to nearest, ties to even; a NaN stays one
    u32 bits = __float_as_uint(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16) ((bits >> 16) | 64);
    return (u16) ((bits + (0x7fffu + ((bits >> 16) & 1u))) >> 16);
}

DEVICE float half_at(const u8 * p) { return half_to_float(*(const u16 *) ALIGNED(p, 2)); }

// Four bytes of memory that is aligned to 1, 2 or 4: blocks of many types have an odd size.

DEVICE int load1(const u8 * p) {
    return (int) ((u32) p[0] | (u32) p[1] << 8 | (u32) p[2] << 16 | (u32) p[3] << 24);
}

DEVICE int load2(const u8 * p) {
    const u16 * h = (const u16 *) ALIGNED(p, 2);
    return (int) ((u32) h[0] | (u32) h[1] << 16);
}

DEVICE int load4(const u8 * p) { return *(const int *) ALIGNED(p, 4); }

// Every lane gets the result.

DEVICE float warp_sum(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

DEVICE float warp_max(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    }
    return x;
}

// Blocks of up to 1024 threads, whole warps; `scratch` is shared memory of 32 floats. Every thread
// gets the result.

DEVICE float block_sum(float x, float * scratch) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (n_warps == 1) return x;
    __syncthreads();  // an earlier call's values may still be read
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_sum(lane < n_warps ? scratch[lane] : 0.0f);
}

DEVICE float block_max(float x, float * scratch) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    x = warp_max(x);
    if (n_warps == 1) return x;
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_max(lane < n_warps ? scratch[lane] : -INFINITE);
}

// A tensor of up to four dimensions, the fastest first: values per dimension, bytes per step.
struct Strided {
    i64 nb[4];
    int ne[4];
};

// i / n, and what is left; 32 bits where they are enough: 64 take a GPU several times as long.
DEVICE i64 divide(i64 i, int n, int & rest) {
    if (i <= 0x7fffffff) {
        u32 quotient = (u32) i / (u32) n;
        rest = (int) ((u32) i - quotient * (u32) n);
        return quotient;
    }
    i64 quotient = i / n;
    rest = (int) (i - quotient * n);
    return quotient;
}

// Bytes from the tensor's beginning to value i, counted through all dimensions; one that has fewer
// values along a dimension than `shape` is repeated there.
DEVICE i64 offset_of(const Strided & t, const int * shape, i64 i) {
    i64 offset = 0;
    for (int d = 0; d < 4; ++d) {
        int x;
        i = divide(i, shape[d], x);
        offset += (i64) (t.ne[d] == shape[d] ? x : x % t.ne[d]) * t.nb[d];
    }
    return offset;
}

// Bytes to row r, counted through dimensions 1 to 3.
DEVICE i64 row_offset(const Strided & t, i64 r) {
    i64 offset = 0;
    for (int d = 1; d < 4; ++d) {
        int x;
        r = divide(r, t.ne[d], x);
        offset += x * t.nb[d];
    }
    return offset;
}

DEVICE float float_at(const void * p, i64 offset) { return *(const float *) ((const char *) p + offset); }

// All of n values, whatever the number of threads.
#define EACH(i, n) \
    for (i64 i = (i64) blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (i64) gridDim.x * blockDim.x)
