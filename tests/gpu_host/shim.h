// What CUDA C++ kernels need to run on the host: a fibre (or an OS thread) for each CUDA thread of a block.
//
// Fibres run one at a time, in an order that the caller chooses, and hand over at barriers: a kernel with a barrier too
// few gives other results in some order. With SHIM_THREADS they are OS threads instead, for sanitizers to watch.
// Blocks run one after another. Shared memory is full of NaN when a block begins.
//
// What runs them is compiled once (shim.cpp): every kernel is compiled with this header, so it is short.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef SHIM_THREADS
#define SHIM_OWN thread_local
#else
#define SHIM_OWN
#endif

struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace shim {
constexpr int WARP = 32;

extern SHIM_OWN dim3 thread_idx, block_idx, block_dim, grid_dim;
extern uint64_t* slots;  // two of each thread, by which threads of a warp exchange values
void* dynamic_shared();
void wait_block(int line);
void wait_warp(unsigned mask, int line);
#ifdef SHIM_THREADS
struct Alone { Alone(); ~Alone(); };  // while it lives, other threads' atomic operations wait
#else
struct Alone {};
#endif

// A grid, the bounds of the kernel's static shared memory, and the kernel behind a table of its arrays.
struct Launch {
    unsigned blocks, threads;
    size_t dynamic;
    int order;
    unsigned seed;
    char *shared, *shared_end;
    void (*kernel)(void** arrays, long long rows);
};
const char* launch(const Launch& grid, void** arrays, long long rows);  // null, or what went wrong

// Every thread of the mask puts a value up and takes that of lane `from`; a lane outside the mask has none.
template <class V> V exchange(unsigned mask, V value, int from, int line) {
    static_assert(sizeof(V) <= 8);
    const unsigned lane = thread_idx.x % WARP, first = thread_idx.x - lane;
    memcpy(&slots[2 * thread_idx.x], &value, sizeof(V));
    wait_warp(mask, line);
    V found;
    memset(&found, 0xFF, sizeof(V));
    if (mask >> from & 1 && first + from < block_dim.x) memcpy(&found, &slots[2 * (first + from)], sizeof(V));
    wait_warp(mask, line);
    return found;
}
template <class V> V shuffle(unsigned mask, V value, int from, bool inside, int line) {
    const int lane = thread_idx.x % WARP;
    return exchange(mask, value, inside ? from : lane, line);
}
inline unsigned ballot(unsigned mask, bool vote, int line) {
    unsigned found = 0;
    for (int k = 0; k < WARP; k++)
        if (mask >> k & 1 && thread_idx.x / WARP * WARP + k < block_dim.x)
            found |= unsigned(exchange(mask, int(vote), k, line) != 0) << k;
    return found;
}
template <class V> V add(V* at, std::type_identity_t<V> value) {
    Alone now;
    V before = *at;
    *at = before + value;
    return before;
}
}  // namespace shim

#define threadIdx shim::thread_idx
#define blockIdx shim::block_idx
#define blockDim shim::block_dim
#define gridDim shim::grid_dim
#define warpSize 32
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#ifdef SHIM_THREADS
#define __shared__ static
#else
#define __shared__ static __attribute__((section("shim_shared")))
#endif
#define __syncthreads() shim::wait_block(__LINE__)
#define SHIM_MASK(mask, ...) mask
#define __syncwarp(...) shim::wait_warp(SHIM_MASK(__VA_ARGS__ __VA_OPT__(,) 0xffffffffu), __LINE__)
#define SHIM_LANE (int(threadIdx.x) % 32)
#define SHIM_BASE(width) (SHIM_LANE / (width) * (width))
#define SHIM_WIDTH(a, ...) (0 __VA_OPT__(+) __VA_ARGS__ __VA_OPT__(-32) + 32)
#define __shfl_sync(m, v, from, ...) \
    shim::shuffle(m, v, SHIM_BASE(SHIM_WIDTH(0, __VA_ARGS__)) + (from) % SHIM_WIDTH(0, __VA_ARGS__), true, __LINE__)
#define __shfl_up_sync(m, v, by, ...) \
    shim::shuffle(m, v, SHIM_LANE - int(by), SHIM_LANE - int(by) >= SHIM_BASE(SHIM_WIDTH(0, __VA_ARGS__)), __LINE__)
#define __shfl_down_sync(m, v, by, ...)      \
    shim::shuffle(m, v, SHIM_LANE + int(by), \
                  SHIM_LANE + int(by) < SHIM_BASE(SHIM_WIDTH(0, __VA_ARGS__)) + SHIM_WIDTH(0, __VA_ARGS__), __LINE__)
#define __shfl_xor_sync(m, v, with, ...) shim::shuffle(m, v, SHIM_LANE ^ (with), true, __LINE__)
#define __ballot_sync(m, vote) shim::ballot(m, vote, __LINE__)
#define __any_sync(m, vote) (__ballot_sync(m, vote) != 0)
#define __all_sync(m, vote) (__ballot_sync(m, !(vote)) == 0)
#define atomicAdd shim::add
#define __ldg(pointer) (*(pointer))
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
template <class A, class B> std::common_type_t<A, B> min(A a, B b) { return a < b ? a : b; }
template <class A, class B> std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
