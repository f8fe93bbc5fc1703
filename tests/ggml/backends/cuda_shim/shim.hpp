// Runs CUDA kernels on a processor, one block after the other: enough of the language for the
// sources in llmviz/ggml/backends/cuda/sources, and strict where a GPU is (alignment, barriers).
//
// The threads of a block are fibers that take turns. One runs until it has to wait for others
// (__syncthreads, a shuffle); where all wait and nothing moves on, the launch fails and says so.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmath>
#include <vector>

#define LLMVIZ_ON_CPU
#define DEVICE static inline
#define DEVICE_MEMBER static inline
#define KERNEL static void
#define __shared__ static
#define INFINITE INFINITY
#define ALIGNED(p, n) shim::aligned((p), (n))

struct dim3 {
    int x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

const int WARP_SIZE = 32;
const size_t STACK = 64 * 1024;

struct Fiber {
    ucontext_t first;  // how it begins; afterwards it comes back through `jump`
    jmp_buf jump;
    std::vector<char> stack;
    dim3 index;
    bool begun, done;
};

struct Barrier {
    int arrived, generation;
};

static std::vector<Fiber> fibers;
static std::vector<Barrier> warps;
static std::vector<uint32_t> slots;  // two for every thread, used in turn
static std::vector<int> turn;
static Barrier block;
static int n_threads, n_alive, current;
static std::vector<int> alive_in_warp;
static ucontext_t main_context;
static jmp_buf main_jump;
static bool moved;
static char error[200];
static void (*body)(const void *);
static const void * body_args;

static void fail(const char * text) {
    if (!error[0]) snprintf(error, sizeof error, "%s", text);
}

template <typename T> static T * aligned(T * p, int n) {
    if ((uintptr_t) p % n) fail("an address is not aligned to what is read there");
    return p;
}

static void yield() {
    if (_setjmp(fibers[current].jump) == 0) _longjmp(main_jump, 1);
}

// Wait until all of `expected` threads (fewer, as threads end) have come here.
static void arrive(Barrier & barrier, const int & expected) {
    int generation = barrier.generation;
    barrier.arrived++;
    moved = true;
    while (barrier.generation == generation) {
        if (barrier.arrived >= expected) {
            barrier.arrived = 0;
            barrier.generation++;
            moved = true;
            return;
        }
        yield();
        if (error[0]) return;
    }
}

static void run_current() {
    body(body_args);
    Fiber & fiber = fibers[current];
    fiber.done = true;
    n_alive--;
    alive_in_warp[current / WARP_SIZE]--;
    moved = true;
    _longjmp(main_jump, 1);
}

static void resume(int i) {
    current = i;
    Fiber & fiber = fibers[i];
    threadIdx = fiber.index;
    if (_setjmp(main_jump)) return;
    if (fiber.begun) _longjmp(fiber.jump, 1);
    fiber.begun = true;
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack.data();
    fiber.first.uc_stack.ss_size = STACK;
    fiber.first.uc_link = &main_context;
    makecontext(&fiber.first, run_current, 0);
    setcontext(&fiber.first);
}

static void run_block() {
    n_alive = n_threads;
    block = Barrier{0, 0};
    int n_warps = (n_threads + WARP_SIZE - 1) / WARP_SIZE;
    warps.assign(n_warps, Barrier{0, 0});
    alive_in_warp.assign(n_warps, 0);
    for (int i = 0; i < n_threads; ++i) {
        alive_in_warp[i / WARP_SIZE]++;
        fibers[i].begun = fibers[i].done = false;
        turn[i] = 0;
    }
    while (n_alive > 0 && !error[0]) {
        moved = false;
        for (int i = 0; i < n_threads && !error[0]; ++i) {
            if (!fibers[i].done) resume(i);
        }
        if (!moved) fail("all threads of a block wait for each other");
    }
}

static const char * launch(
    void (*kernel)(const void *), const int * grid, const int * threads, const void * args) {
    error[0] = 0;
    gridDim = dim3{grid[0], grid[1], grid[2]};
    blockDim = dim3{threads[0], threads[1], threads[2]};
    n_threads = threads[0] * threads[1] * threads[2];
    if (n_threads < 1 || n_threads > 1024) return "a block has 1 to 1024 threads";
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1) return "a grid is empty";
    if (grid[1] > 65535 || grid[2] > 65535) return "a grid is larger than a GPU allows";
    body = kernel;
    body_args = args;
    if ((int) fibers.size() < n_threads) fibers.resize(n_threads);
    slots.assign(2 * n_threads, 0);
    turn.assign(n_threads, 0);
    for (int i = 0; i < n_threads; ++i) {
        fibers[i].stack.resize(STACK);
        fibers[i].index = dim3{i % threads[0], i / threads[0] % threads[1],
                               i / (threads[0] * threads[1])};
    }
    for (int z = 0; z < grid[2]; ++z)
        for (int y = 0; y < grid[1]; ++y)
            for (int x = 0; x < grid[0]; ++x) {
                blockIdx = dim3{x, y, z};
                run_block();
                if (error[0]) return error;
            }
    return 0;
}

}  // namespace shim

// --- built-in functions ---------------------------------------------------------------------------

static inline void __syncthreads() {
    shim::arrive(shim::block, shim::n_alive);
}

template <typename T> static T __shfl_xor_sync(unsigned mask, T value, int step) {
    static_assert(sizeof(T) == 4, "shuffles move 32 bits");
    using namespace shim;
    int me = current, warp = me / WARP_SIZE, which = turn[me];
    if (mask != 0xFFFFFFFFu || alive_in_warp[warp] != WARP_SIZE) fail("a shuffle without all lanes");
    turn[me] ^= 1;  // two slots: the next shuffle's value does not overwrite one still to be read
    memcpy(&slots[2 * me + which], &value, 4);
    arrive(warps[warp], alive_in_warp[warp]);
    T other;
    memcpy(&other, &slots[2 * (me ^ step) + which], 4);
    return other;
}

static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; ++i) sum += (int8_t) (a >> 8 * i) * (int8_t) (b >> 8 * i);
    return sum;
}

static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    uint64_t bytes = (uint64_t) high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned s = selector >> 4 * i & 15;
        unsigned byte = (unsigned) (bytes >> 8 * (s & 7)) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;  // the sign, spread
        out |= byte << 8 * i;
    }
    return out;
}

static inline float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }

static inline float half_to_float(unsigned short h) {
    _Float16 f;
    memcpy(&f, &h, 2);
    return (float) f;
}

static inline unsigned short float_to_half(float f) {
    _Float16 half = (_Float16) f;
    unsigned short h;
    memcpy(&h, &half, 2);
    return h;
}

// What a test calls: launch_<kernel>(grid, threads, args) returns null, or what went wrong.
#define EXPORT(name, Args) \
    static void call_##name(const void * args) { name(*(const Args *) args); } \
    extern "C" const char * launch_##name(const int * grid, const int * threads, const void * args) { \
        return shim::launch(call_##name, grid, threads, args); \
    } \
    extern "C" int size_##name() { return (int) sizeof(Args); }
