// What CUDA C++ kernels need to run on the host: a fibre (or an OS thread) for each CUDA thread of a block.
//
// Fibres run one at a time, in an order that the caller chooses, and hand over at barriers: a kernel with a barrier too
// few gives other results in some order. With SHIM_THREADS they are OS threads instead, for sanitizers to watch.
// Blocks run one after another. Shared memory is full of NaN when a block begins.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <pthread.h>
#include <random>
#include <thread>
#include <type_traits>
#include <ucontext.h>
#include <vector>

struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace shim {
enum Order { FORWARD, REVERSE, RANDOM };
constexpr int WARP = 32;
constexpr size_t STACK = 1 << 20;

#ifdef SHIM_THREADS
#define SHIM_OWN thread_local
#else
#define SHIM_OWN
#endif
inline SHIM_OWN dim3 thread_idx, block_idx, block_dim, grid_dim;
inline std::vector<char> pool;
inline std::vector<uint64_t> slots;
inline const char* failure = nullptr;

inline void fail(const char* why) { if (!failure) failure = why; }
inline void* dynamic_shared() { return pool.data(); }

#ifdef SHIM_THREADS
inline std::vector<pthread_barrier_t> barriers;  // one of each warp, then the block's
inline std::mutex atomics;
inline void wait_block(int) { pthread_barrier_wait(&barriers.back()); }
inline void wait_warp(unsigned, int) { pthread_barrier_wait(&barriers[thread_idx.x / WARP]); }
#else
struct Fibre {
    ucontext_t context;
    char* stack = nullptr;
    bool done = false;
    int waits = 0, line = 0;
    unsigned mask = 0;
};
enum { RUNS, AT_BLOCK, AT_WARP };
inline std::vector<Fibre> fibres;
inline ucontext_t scheduler;
inline unsigned current;
inline const std::function<void()>* body;
inline void wait(int how, unsigned mask, int line) {
    Fibre& me = fibres[current];
    me.waits = how, me.mask = mask, me.line = line;
    swapcontext(&me.context, &scheduler);
}
inline void wait_block(int line) { wait(AT_BLOCK, 0, line); }
inline void wait_warp(unsigned mask, int line) { wait(AT_WARP, mask, line); }
inline void enter() { (*body)(); fibres[current].done = true; swapcontext(&fibres[current].context, &scheduler); }

// Let go of threads whose barrier is complete: whether there were any.
inline bool release() {
    bool any = false, all = true;
    const int line = fibres[0].line;
    for (Fibre& each : fibres) all = all && !each.done && each.waits == AT_BLOCK;
    for (Fibre& each : fibres) {
        if (all && each.line != line) fail("threads of a block wait at different barriers");
        if (all) each.waits = RUNS, any = true;
    }
    for (size_t first = 0; first < fibres.size(); first += WARP) {
        const unsigned size = std::min<size_t>(WARP, fibres.size() - first);
        for (unsigned lane = 0; lane < size; lane++) {
            const Fibre& me = fibres[first + lane];
            if (me.done || me.waits != AT_WARP) continue;
            bool complete = me.mask >> lane & 1;
            if (!complete) fail("a thread is not in its own mask");
            for (unsigned k = 0; k < WARP; k++)
                if (me.mask >> k & 1 && k < size) {
                    const Fibre& other = fibres[first + k];
                    complete = complete && !other.done && other.waits == AT_WARP && other.mask == me.mask;
                    if (complete && other.line != me.line) fail("threads of a warp wait at different barriers");
                }
            if (!complete) continue;
            const unsigned mask = me.mask;
            for (unsigned k = 0; k < size; k++) if (mask >> k & 1) fibres[first + k].waits = RUNS;
            any = true;
        }
    }
    return any;
}
#endif

inline void run_block(unsigned threads, Order order, std::mt19937& random, const std::function<void()>& kernel) {
    std::fill(pool.begin(), pool.end(), char(0xFF));
    slots.assign(2 * threads, ~0ull);
#ifdef SHIM_THREADS
    barriers.resize((threads + WARP - 1) / WARP + 1);
    for (size_t k = 0; k + 1 < barriers.size(); k++)
        pthread_barrier_init(&barriers[k], nullptr, std::min<unsigned>(WARP, threads - k * WARP));
    pthread_barrier_init(&barriers.back(), nullptr, threads);
    const dim3 block = block_idx, size = block_dim, grid = grid_dim;
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; t++)
        running.emplace_back([=, &kernel] {
            thread_idx = {t, 0, 0}, block_idx = block, block_dim = size, grid_dim = grid;
            kernel();
        });
    for (std::thread& each : running) each.join();
    for (pthread_barrier_t& each : barriers) pthread_barrier_destroy(&each);
#else
    body = &kernel;
    while (fibres.size() < threads) fibres.emplace_back();
    for (unsigned t = 0; t < threads; t++) {
        Fibre& each = fibres[t];
        if (!each.stack) each.stack = static_cast<char*>(malloc(STACK));
        each.done = false, each.waits = RUNS;
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack, each.context.uc_stack.ss_size = STACK;
        each.context.uc_link = nullptr;
        makecontext(&each.context, enter, 0);
    }
    std::vector<unsigned> turn(threads);
    for (unsigned t = 0; t < threads; t++) turn[t] = order == REVERSE ? threads - 1 - t : t;
    for (unsigned left = threads; left;) {
        if (order == RANDOM) std::shuffle(turn.begin(), turn.end(), random);
        for (unsigned t : turn) {
            if (fibres[t].done || fibres[t].waits != RUNS) continue;
            current = t, thread_idx = {t, 0, 0};
            swapcontext(&scheduler, &fibres[t].context);
            left -= fibres[t].done;
        }
        if (left && !release()) { fail("threads wait at a barrier that others never reach"); break; }
    }
#endif
}

extern "C" __attribute__((weak)) char __start_shim_shared[], __stop_shim_shared[];

// Run a kernel on a grid: null, or what went wrong.
inline const char* launch(unsigned blocks, unsigned threads, size_t shared, int order, unsigned seed,
                          const std::function<void()>& kernel) {
    std::mt19937 random(seed);
    failure = nullptr;
    pool = std::vector<char>(shared);
#ifndef SHIM_THREADS
    for (Fibre& each : fibres) free(each.stack);
    fibres.clear();
#endif
    std::vector<unsigned> turn(blocks);
    for (unsigned b = 0; b < blocks; b++) turn[b] = order == REVERSE ? blocks - 1 - b : b;
    if (order == RANDOM) std::shuffle(turn.begin(), turn.end(), random);
    for (unsigned b : turn) {
        if (__start_shim_shared) memset(__start_shim_shared, 0xFF, __stop_shim_shared - __start_shim_shared);
        block_idx = {b, 0, 0}, block_dim = {threads, 1, 1}, grid_dim = {blocks, 1, 1};
        run_block(threads, Order(order), random, kernel);
        if (failure) break;
    }
    return failure;
}

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
#ifdef SHIM_THREADS
    std::lock_guard<std::mutex> held(atomics);
#endif
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
