// Runs the threads of kernels on the host: see shim.h.
#include "shim.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <pthread.h>
#include <random>
#include <thread>
#include <ucontext.h>
#include <vector>

namespace shim {
enum Order { FORWARD, REVERSE, RANDOM };
constexpr size_t STACK = 1 << 20;

SHIM_OWN dim3 thread_idx, block_idx, block_dim, grid_dim;
uint64_t* slots;
static std::vector<uint64_t> all_slots;
static std::vector<char> pool;
static const char* failure = nullptr;

static void fail(const char* why) { if (!failure) failure = why; }
void* dynamic_shared() { return pool.data(); }

#ifdef SHIM_THREADS
static std::vector<pthread_barrier_t> barriers;  // one of each warp, then the block's
static std::mutex atomics;
void wait_block(int) { pthread_barrier_wait(&barriers.back()); }
void wait_warp(unsigned, int) { pthread_barrier_wait(&barriers[thread_idx.x / WARP]); }
Alone::Alone() { atomics.lock(); }
Alone::~Alone() { atomics.unlock(); }

static void run_block(const Launch& grid, std::mt19937&, const std::function<void()>& kernel) {
    barriers.resize((grid.threads + WARP - 1) / WARP + 1);
    for (size_t k = 0; k + 1 < barriers.size(); k++)
        pthread_barrier_init(&barriers[k], nullptr, std::min<unsigned>(WARP, grid.threads - k * WARP));
    pthread_barrier_init(&barriers.back(), nullptr, grid.threads);
    const dim3 block = block_idx, size = block_dim, blocks = grid_dim;
    std::vector<std::thread> running;
    for (unsigned t = 0; t < grid.threads; t++)
        running.emplace_back([=, &kernel] {
            thread_idx = {t, 0, 0}, block_idx = block, block_dim = size, grid_dim = blocks;
            kernel();
        });
    for (std::thread& each : running) each.join();
    for (pthread_barrier_t& each : barriers) pthread_barrier_destroy(&each);
}
#else
struct Fibre {
    ucontext_t context;
    char* stack = nullptr;
    bool done = false;
    int waits = 0, line = 0;
    unsigned mask = 0;
};
enum { RUNS, AT_BLOCK, AT_WARP };
static std::vector<Fibre> fibres;
static ucontext_t scheduler;
static unsigned current;
static const std::function<void()>* body;

static void wait(int how, unsigned mask, int line) {
    Fibre& me = fibres[current];
    me.waits = how, me.mask = mask, me.line = line;
    swapcontext(&me.context, &scheduler);
}
void wait_block(int line) { wait(AT_BLOCK, 0, line); }
void wait_warp(unsigned mask, int line) { wait(AT_WARP, mask, line); }
static void enter() { (*body)(); fibres[current].done = true; swapcontext(&fibres[current].context, &scheduler); }

// Let go of threads whose barrier is complete: whether there were any.
static bool release() {
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

static void run_block(const Launch& grid, std::mt19937& random, const std::function<void()>& kernel) {
    body = &kernel;
    while (fibres.size() < grid.threads) fibres.emplace_back();
    for (unsigned t = 0; t < grid.threads; t++) {
        Fibre& each = fibres[t];
        if (!each.stack) each.stack = static_cast<char*>(malloc(STACK));
        each.done = false, each.waits = RUNS;
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack, each.context.uc_stack.ss_size = STACK;
        each.context.uc_link = nullptr;
        makecontext(&each.context, enter, 0);
    }
    std::vector<unsigned> turn(grid.threads);
    for (unsigned t = 0; t < grid.threads; t++) turn[t] = grid.order == REVERSE ? grid.threads - 1 - t : t;
    for (unsigned left = grid.threads; left;) {
        if (grid.order == RANDOM) std::shuffle(turn.begin(), turn.end(), random);
        for (unsigned t : turn) {
            if (fibres[t].done || fibres[t].waits != RUNS) continue;
            current = t, thread_idx = {t, 0, 0};
            swapcontext(&scheduler, &fibres[t].context);
            left -= fibres[t].done;
        }
        if (left && !release()) { fail("threads wait at a barrier that others never reach"); break; }
    }
}
#endif

const char* launch(const Launch& grid, void** arrays, long long rows) {
    std::mt19937 random(grid.seed);
    failure = nullptr;
    pool = std::vector<char>(grid.dynamic);
#ifndef SHIM_THREADS
    for (Fibre& each : fibres) free(each.stack);
    fibres.clear();
#endif
    const std::function<void()> kernel = [&] { grid.kernel(arrays, rows); };
    std::vector<unsigned> turn(grid.blocks);
    for (unsigned b = 0; b < grid.blocks; b++) turn[b] = grid.order == REVERSE ? grid.blocks - 1 - b : b;
    if (grid.order == RANDOM) std::shuffle(turn.begin(), turn.end(), random);
    for (unsigned b : turn) {
        if (grid.shared) memset(grid.shared, 0xFF, grid.shared_end - grid.shared);
        std::fill(pool.begin(), pool.end(), char(0xFF));
        all_slots.assign(2 * grid.threads, ~0ull);
        slots = all_slots.data();
        block_idx = {b, 0, 0}, block_dim = {grid.threads, 1, 1}, grid_dim = {grid.blocks, 1, 1};
        run_block(grid, random, kernel);
        if (failure) break;
    }
    return failure;
}
}  // namespace shim

#ifdef SHIM_THREADS
// A process of its own: arrays come from one file and go to another.
extern "C" long long shim_numbers[];
extern "C" const char* shim_launch(void**, long long, unsigned, unsigned, size_t, int, unsigned);

int main(int, char** paths) {
    long long head[7];
    FILE* file = fopen(paths[1], "rb");
    auto get = [&](void* to, size_t size) { if (fread(to, 1, size, file) != size) exit(3); };
    get(head, sizeof head);
    std::vector<char*> arrays(head[0]);
    std::vector<long long> sizes(head[0]);
    get(sizes.data(), 8 * sizes.size());
    get(shim_numbers, 8 * head[6]);
    for (size_t k = 0; k < arrays.size(); k++) get(arrays[k] = new char[sizes[k]], sizes[k]);
    fclose(file);
    const char* wrong = shim_launch((void**)arrays.data(), head[1], head[2], head[3], head[4], head[5], 0);
    if (wrong) return fprintf(stderr, "%s\n", wrong), 2;
    file = fopen(paths[2], "wb");
    for (size_t k = 0; k < arrays.size(); k++) fwrite(arrays[k], 1, sizes[k], file);
    fclose(file);
    for (char* each : arrays) delete[] each;
    return 0;
}
#endif
