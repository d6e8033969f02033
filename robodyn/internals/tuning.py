"""Tuning constants of code generation and engines: sizes, times and limits that affect speed.

They change results by rounding errors only. Formats, and limits of hardware and of safety, are defined where they are
used. So are tuning constants of GPU kernels, and of the order of scans on GPUs.
"""

from __future__ import annotations

# The CPU engine chooses one program, kernels of parts, or loops (`robodyn.engines.cpu.route`).

_OWN = {
    "query": 80_000,
    "chain": 80_000,
    "stage": 64_000,
    "contracted query": 130_000,
    "contracted chain": 130_000,
    "contracted stage": 100_000,
    "step": 64_000,
    "part of a step": 24_000,
    "gradient": 300_000,
    "iterations": 130_000,
}
MAX_OPERATIONS = {
    "x86": _OWN,
    "neon": _OWN,
    "llvm": {
        "query": 64_000,
        "chain": 24_000,
        "stage": 64_000,
        "step": 24_000,
        "part of a step": 24_000,
        "gradient": 64_000,
        "iterations": 100_000,
    },
}
"""Most operations of one program, by backend and use. A program runs two to three times as fast as loops. But making it
takes 11 microseconds per operation (in gradients 5, with LLVM some 60), and a first answer should take a second or two
at most."""
STRAIGHT_DISTANCES = {
    "min_distance": 3_000,
    "min_distance_gradient": 2_500,
    "min_distance_with_gradient": 2_500,
    "distances": 20_000,
    "distances_gradient": 20_000,
    "witness_points": 20_000,
}
"""Most operations of one program of a query about distances; larger ones are loops over pairs. These take 20 to 40 ns a
state more from the start, but skip pairs for the least distance: with 690 pairs of spheres they take half of the time
of a program, with their gradient a third. Programs of all distances are faster as long as they compile soon."""
TESTED_OPERATIONS, BLOCK_ENTRIES = 20, 16
"""Operations of the pairs of two links from which the spheres around these are compared first; and entries of results
that loops over pairs collect before they store them to rows."""
MAX_TRACED_BODIES, MAX_TRACED_STEPS = 250, 4096
"""Most bodies, and bodies times lanes, of tasks that are traced: larger models are faster in loops."""
MAX_BODIES_OF_PARTS = 100
"""Most bodies for parts of steps, and for tasks without sweeps, all of which are compiled before the first step."""
MANY_STEPS, ROLLED_SHARE, STAGES_SHARE = 1000, 2, 1.5
"""Bodies times lanes from which the operations of loops are counted before a trace, to avoid one in vain of up to two
seconds; and their ratio to those of a program: for an algorithm, and for the stages and solves of a chain."""
MAX_ENTRIES = {
    "x86": {"query": 1 << 15, "stage": 1 << 14},
    "neon": {"query": 1 << 15, "stage": 1 << 14},
    "llvm": {"query": 1 << 13, "stage": 1 << 13},
}
"""Most entries of a result of one program; loops compute larger ones. Most are zeros, which LLVM's code stores
singly."""
MAX_TENSOR_ENTRIES = 1 << 13
"""Most entries of all results of one program for all unit vectors; above it the algorithm runs at one after another."""
TRIPLES_OF_A_PAIR = 5.0
"""Ratio of coupled triples to coupled pairs of degrees of freedom from which an algorithm at every unit vector runs on
a SIMD vector of these vectors for one state: in 0.7 of the time for an arm of seven joints, 0.95 for one of six."""
FLUSHED_ENTRIES = 256
"""Scalars of results from which LLVM's code leaves results as vectors, and another kernel writes complete rows. That is
twice as fast as scattered stores if a batch is larger than the caches."""
FLUSHED_BYTES = {"avx512": 60_000, "crowded": 120_000, "computed": 12_000, "pairs": 28_000, "others": 40_000}
"""The same for our own backend, in bytes of the results of a vector of states. Vectors with AVX-512 are twice as large.
With AVX2 it depends on the results: many rows at one offset of their pages ("crowded"); results of many operations;
matrices over pairs of joints; others. Below the limit the program itself writes rows, up to a fifth faster in
caches."""
MAX_WIDE_WORKSPACE = 1 << 30
"""Most bytes of a workspace for vectors of states; with more, batches run state by state."""
MAX_WIDE_RESULTS = 1 << 20
"""Most bytes of results in vectors of states from loops; with more, batches run state by state, before the vectors
leave the L2 cache. This takes two thirds of the time for the mass matrix of 150 bodies."""

# Threads, and estimates of work for them.

OPERATION_NS, LOOP_OPERATION_NS, STEP_NS, FLUSH_NS = 1.0 / 7.0, 1.0 / 25.0, 60.0, 0.3
"""Nanoseconds per state: an operation of a program; an operation of a solve or product in loops; a step of a body in
loops; a scalar that is copied from vectors to rows."""
TILE_COLUMNS = 1.5
"""Cost of a tile of a solve besides its columns, in columns: its entries of the factor are loaded."""
ROW_BYTES_A_NS = 50.0
"""Bytes of rows that a program reads and writes per nanosecond."""
SHARE_NS, PIECE_NS = 12_000.0, 4_000.0
"""Nanoseconds of work from which threads share a batch, and of a piece of it. Spinning threads start within a
microsecond or two; sleeping ones start too late for so little work."""
PAUSE_SECONDS, YIELDS = 5e-6, 100
"""Time that a waiting thread spins, and how often it then yields and checks again before it sleeps: some tens of
microseconds in all, longer than the gap between the calls of a busy loop."""
RELEASE_NS, RELEASE_ROWS = 10_000.0, 64
"""Nanoseconds of work, and rows, from which a quick call lets other Python threads run."""
REPEATED_ROWS = 128
"""States whose iterations begin together (`robodyn.engines.cpu.repeated`): some tens of vectors, of whose arrays the
second-level cache has room for a few."""
KEPT_WORKSPACES, MAX_SCRATCH = 2, 1 << 26
"""Workspaces of each size that an engine keeps, and most bytes of scratch memory that quick calls keep, all threads."""
LARGE_MATRIX, FEW_STATES, FEW_PAIRS = 512, 1 / 4, 1 / 16
"""Rows from which a matrix over pairs of joints is computed state by state: in batches of up to this share of a vector,
or in all if the share of coupled pairs is below this. In vectors, zeros cost as much as other entries."""
LEAST_BODIES, HAND_OUT_NS, LEAST_GAIN = 500, 150_000.0, 1.15
"""Bodies from which threads share a tree in parts, nanoseconds to wake the threads, and the least estimated gain. The
estimate does not include the threads' shared memory traffic."""
GRAINS, LEAST_GRAIN, MOST_GRAIN = 16, 64, 2048
"""Parts of a tree per thread, and least and most bodies of a part, so that its fields stay in a core's own cache."""
ROLLED_OPERATION_NS, NUMBER_NS, GATHER_NS, COPY_NS = 0.1, 0.25, 3.0, 0.8
"""Nanoseconds in such a part: an operation, a number loaded or stored, an entry of a result gathered, an entry copied
or set to zero."""
TASK_NS, PIECES_OF_A_THREAD, MAX_VISITS = 250.0, 4, 4096
"""Overhead of a task of a part (ns); pieces per thread of work that is divisible; most bodies and sums of an inward
task."""

# How results go to memory.

STREAMED_BYTES, CROWD = 1 << 23, 3
"""Bytes of a batch's results from which they are written with streaming stores (seven sixteenths of it with AVX-512),
and the factor by which bytes of new arrays count, because results of earlier calls fill the caches."""
MOVED_BYTES = 1 << 25
"""Bytes of arguments and results from which results are also streamed: the arguments have evicted them anyway."""
BUFFER_BYTES, MAX_BUFFER_BYTES = 1 << 14, 1 << 18
"""Bytes of a buffer for results, half of a small L1 cache; and most bytes of a vector of states that is buffered, as
more would leave the L2 cache."""
MAX_LINED_BYTES = 1 << 20
"""Most bytes of results as vectors whose rows the program writes while it computes. L2 caches hold twice as much."""
CACHE_SHARE = 9
"""Divisor of the last cache's size: larger results of a batch are streamed, because other cores share the cache."""
LIGHT_OPERATIONS = 1.5
"""Operations per scalar of results below which rows should not be streamed while computing."""
CACHED_BYTES, NARROW_BYTES = 1 << 20, {32: 1 << 16, 64: 1 << 17}
"""Bytes of a batch's results up to which vectors are copied to rows after the program, not while it computes. And, by
bytes of a register, bytes of the results of a vector of states above which that holds for every batch that is not
streamed, because two copies of them leave the L1 cache."""
WIDE_BYTES = 1 << 18
"""Bytes of the results of a vector of states above which it no longer holds: one copy leaves the L1 cache, too."""
MAX_FETCHED_ROW, MAX_FETCHED_ROWS = 1 << 11, 1 << 14
"""Most bytes of an input's row, and of its next rows together, that are prefetched."""
DOUBLE_ROWS, DOUBLE_BYTES = 64, 1 << 18
"""Rows that are computed in double precision at a time for single precision, and their bytes: they stay in the L2
cache."""
KEPT_FROM_BYTES, HUGE_FROM_BYTES = 1 << 14, 1 << 22
"""Bytes of results from which their memory is pooled, because the C library returns such blocks to the system at once;
and from which it is made of huge pages, with one page fault instead of 512."""
MARKED_FROM_BYTES, MARKED_AFTER = 1 << 26, 4
"""Bytes of blocks that the system may reclaim as soon as they return to the pool, and how many later returns make
smaller ones reclaimable. Marking pages as free interrupts all processors that run the process."""

# Code of programs.

MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS = 3, 6
"""Most products of a sum that is merged into another one, and of a sum to which others are added: each product waits
for the one before. With 6 and 6 single calls are 1 % slower."""
ORDERED_OPERATIONS = 8000
"""Most operations for which an order by the operations of each result is tried, which takes less than a second."""
C_PART_OPERATIONS, LLVM_PART_OPERATIONS = 1500, 2500
"""Most operations of one function. Compile time is quadratic in it, and functions of this length are as fast: gcc -O2
takes 300 s for a humanoid's gradient in one function and 13 s in parts."""
PAIRED_ROWS = 16
"""Rows of a vector from which two of their offsets are stored at once."""
ANGLES_TOGETHER = 3
"""Sines and cosines that are computed together: more are not faster and need more registers."""
FETCHED_AHEAD = 3584
"""Distance in bytes by which rows are prefetched, or a vector's rows if these have more bytes."""
FEWEST_ZEROS = 3
"""Adjacent zeros from which they are stored together."""
FEW_SPILLED_BYTES = 3600
"""Bytes of spilled scalars up to which VEX encodings are shorter than EVEX: 1 to 4 % of a program's bytes."""
HURRY_CHARACTERS, HURRY_PAUSE_S = 60_000, 0.2
"""Characters of a module, 20 milliseconds' work, above which LLVM first compiles it quickly; and seconds without new
modules before it compiles them with full optimization."""

# Other engines.

CHUNK_SCALARS, MATRICES_FOR_SCALARS = 1 << 15, 8
"""Bodies x lanes x batch in a piece of the reference engine's work, so that arrays stay in a core's cache. Matrices of
solves may be this many times larger, as they are processed as a whole."""
DENSE_CHUNK_SCALARS = 1 << 18
"""Scalars in a piece of dense factorisations."""
MAX_KEPT_BODIES = 4096
"""Most bodies for which the reference engine keeps constants between runs, which take 2 kB per body."""
EVALUATED_ROWS = 256
"""States in a piece where programs are interpreted, which keeps all intermediate numbers."""
STATES_PIECE, ELEMENTS_PIECE, PAIRS_PIECE, TILES_PIECE, DEVICE_PIECE = 1 << 16, 4096, 1 << 16, 1 << 20, 1 << 22
"""Sizes of pieces in scans: bodies x batch for states and for elements; entries x batch for pairs, for tiles of pairs,
and for pairs on a device."""
ONE_THREAD, SHORTEST_TILE = 1 << 18, 16
"""Most multiplications in a product of tiles that BLAS runs in one thread, as thin ones gain little from more; and the
least side of a tile."""
FEW_ROWS, FEWER_ENTRIES = 64, 16
"""Nonzero entries of a matrix are computed one by one if it has more rows than this, and this many times fewer entries
than places; else the matrix is filled tile by tile."""
SMALL_MATRIX, BRANCHES_FOR_DENSE = 2000, 75.0
"""Most degrees of freedom for which the memory of a mass matrix is not checked; and the ratio of an operation's time
along branches to a dense one's."""
FEWER_OPERATIONS = 16
"""Ratio of dense operations to those along branches from which a device factorises along branches."""
DENSE_FLOP, DENSE_ENTRY, BRANCH_FLOP, BRANCH_STEP = 4e-11, 1e-8, 3e-9, 2e-5
"""Seconds on one core: an operation of Cholesky's method, and an entry of H; an operation along branches, and a pair of
levels there."""
ONE_BY_ONE, SMALL_STATES_MATRIX, SEVERAL_STATES = 64, 24, 8
"""Most rows of a matrix that is not factorised along branches; most rows, and least states, of matrices that are
factorised vectorised over states."""
CASADI_OPERATIONS = {"auto": 500, "sx": 50_000, "compiled": 400_000}
"""Functions of CasADi: operations up to which `way="auto"` prints a query as SX expressions, and most operations of SX
expressions and of one compiled function. Second derivatives that CasADi makes of SX have several times the operations
of the analytical ones, and are interpreted: a reach of an arm takes IPOPT six times as long."""
CASADI_OPTIMISED = 15_000
"""Most operations of a compiled function that gcc optimises: 0.15 ms an operation, without it 0.04."""
