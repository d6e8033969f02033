"""What code generation and the engines are tuned by: sizes, times and limits that trade one speed for another.

None of them changes what is computed but by roundings. Formats, limits of hardware and of safety stand where they are
used, and so does what kernels for GPUs, and the order of scans on them, are tuned by.
"""

from __future__ import annotations

# The CPU engine: one program, kernels of parts, or loops (`robodyn.engines.cpu.route`).

MAX_OPERATIONS = {
    "x86": {
        "query": 80_000,
        "chain": 80_000,
        "stage": 64_000,
        "contracted query": 130_000,
        "contracted chain": 130_000,
        "contracted stage": 100_000,
        "step": 64_000,
        "part of a step": 24_000,
        "gradient": 300_000,
    },
    "llvm": {
        "query": 64_000,
        "chain": 24_000,
        "stage": 64_000,
        "step": 24_000,
        "part of a step": 24_000,
        "gradient": 64_000,
    },
}
"""Operations of one program at most, by what makes its code and by what it is for. A program runs two to three times as
fast as loops; but an operation takes 11 microseconds to make, in gradients 5 and with LLVM some 60, and a first answer
is wanted within a second or two."""
MAX_TRACED_BODIES, MAX_TRACED_STEPS = 250, 4096
"""Bodies, and bodies times lanes, beyond which nothing is traced: states of hundreds of bodies are quicker in loops."""
MAX_BODIES_OF_PARTS = 100
"""The same of parts of steps and of what visits no bodies, all of which are compiled before the first step."""
MANY_STEPS, ROLLED_SHARE, STAGES_SHARE = 1000, 2, 1.5
"""Bodies times lanes from which operations of loops are counted before a trace, and how many times as many they are as
a program's: an algorithm's, and those of the stages and solves of a chain. A trace in vain takes up to two seconds."""
MAX_ENTRIES = {"x86": {"query": 1 << 15, "stage": 1 << 14}, "llvm": {"query": 1 << 13, "stage": 1 << 13}}
"""Entries of a result beyond which it is made by loops. Most are zeros, which LLVM's code stores one by one."""
MAX_TENSOR_ENTRIES = 1 << 13
"""Entries of all results beyond which an algorithm at every unit vector runs at one after another."""
TRIPLES_OF_A_PAIR = 5.0
"""Triples of coupled degrees of freedom for each pair, from which an algorithm at every unit vector runs on a vector of
these for one state: 0.7 of the time for an arm of seven joints, 0.95 for one of six."""
FLUSHED_ENTRIES = 256
"""Scalars of results from which LLVM's code leaves vectors, whose rows are written from end to end afterwards: twice as
fast as here and there once a batch is larger than the caches."""
FLUSHED_BYTES = {"avx512": 60_000, "crowded": 120_000, "computed": 12_000, "pairs": 28_000, "others": 40_000}
"""The same of our own code, in bytes of a vector of states. With AVX-512 twice as much leaves the nearest cache. With
AVX2 by what results are: rows of which many begin at one place of their pages; what takes many operations; matrices
over pairs of joints; others. Below, rows that the program writes itself are up to a fifth quicker in the caches."""
MAX_WIDE_WORKSPACE = 1 << 30
"""Bytes of a workspace beyond which batches run state by state instead of in vectors."""
MAX_WIDE_RESULTS = 1 << 20
"""Bytes of results as vectors beyond which loops run state by state, before vectors leave the second cache: the mass
matrix of 150 bodies takes two thirds of the time so."""

# Threads, and estimates of work that only they need.

OPERATION_NS, LOOP_OPERATION_NS, STEP_NS, FLUSH_NS = 1.0 / 7.0, 1.0 / 25.0, 60.0, 0.3
"""Nanoseconds of one state alone: an operation of a program, and of a solve or product in loops; a step of a body in
loops; a scalar that is brought to rows."""
TILE_COLUMNS = 1.5
"""What a tile of a solve costs besides its columns, in columns: entries of the factor are loaded."""
ROW_BYTES_A_NS = 50.0
"""Bytes of rows that a program reads and writes in a nanosecond."""
SHARE_NS, PIECE_NS = 12_000.0, 4_000.0
"""Work from which a batch is shared between threads, and that of a piece: threads that look out for work begin within a
microsecond or two, those that sleep too late for so little."""
PAUSE_SECONDS, YIELDS = 5e-6, 100
"""How long a waiting thread only looks, and how often it then gives way and looks again before it sleeps: some tens of
microseconds in all, longer than the gap between the calls of a busy loop."""
RELEASE_NS, RELEASE_ROWS = 10_000.0, 64
"""Work, and rows, from which other Python threads run during a quick call."""
KEPT_WORKSPACES, MAX_SCRATCH = 2, 1 << 26
"""Workspaces that an engine keeps of each size, and bytes of scratch memory that quick calls keep, of all threads."""
LARGE_MATRIX, FEW_STATES, FEW_PAIRS = 512, 1 / 4, 1 / 16
"""Rows from which a matrix over pairs of joints is computed state by state: in batches of up to this share of a vector,
and in all where coupled pairs are fewer than this share. In vectors zeros cost as much as what is not zero."""
LEAST_BODIES, HAND_OUT_NS, LEAST_GAIN = 500, 150_000.0, 1.15
"""A tree is shared between threads in parts from so many bodies on, where that gains so much by the model: a call takes
this much longer to wake threads, and the model knows nothing of memory that they share."""
GRAINS, LEAST_GRAIN, MOST_GRAIN = 16, 64, 2048
"""Parts of a tree for each thread, and bodies of one: their fields stay in a processor's own cache."""
ROLLED_OPERATION_NS, NUMBER_NS, GATHER_NS, COPY_NS = 0.1, 0.25, 3.0, 0.8
"""Of such a part: an operation, a number loaded or stored, an entry of a result gathered, one copied or made zero."""
TASK_NS, PIECES_OF_A_THREAD, MAX_VISITS = 250.0, 4, 4096
"""What a task of a part costs besides its work; pieces of what comes in pieces; bodies and sums of a task inward."""

# How results go to memory.

STREAMED_BYTES, CROWD = 1 << 23, 3
"""Results of a batch from which they are written past the caches, with AVX-512 seven sixteenths of that; and how many
times as many bytes new arrays count, as results of calls before fill the caches."""
MOVED_BYTES = 1 << 25
"""Arguments and results from which these are written past the caches as well: arguments have cleared them anyway."""
BUFFER_BYTES, MAX_BUFFER_BYTES = 1 << 14, 1 << 18
"""Of results that wait in a buffer, half of a small nearest cache; of a vector of states that leaves the second one."""
MAX_LINED_BYTES = 1 << 20
"""Of results left as vectors whose rows are written on the way: a second cache holds twice as much."""
CACHE_SHARE = 9
"""Of the last cache, the part that results of a batch may take before their lines go past it: other cores share it."""
LIGHT_OPERATIONS = 1.5
"""Operations for each scalar of results below which rows are better not written on the way past the caches."""
CACHED_BYTES, NARROW_BYTES = 1 << 20, {32: 1 << 16, 64: 1 << 17}
"""Results of a batch up to which vectors are brought to rows at once; and by bytes of a register those of a vector of
states beyond which they are, as long as lines do not go past the caches: two places for them leave the nearest one."""
MAX_FETCHED_ROW, MAX_FETCHED_ROWS = 1 << 11, 1 << 14
"""Bytes of an input's row, and of its next rows in all, that are fetched ahead."""
DOUBLE_ROWS, DOUBLE_BYTES = 64, 1 << 18
"""Rows at a time that are computed in double precision for single, and bytes of them: they stay in the second cache."""
KEPT_FROM_BYTES, HUGE_FROM_BYTES = 1 << 17, 1 << 22
"""Results from which memory is kept, as the C library gives larger blocks back to the system at once; and from which it
is made of huge pages, one fault instead of 512."""
MARKED_FROM_BYTES, MARKED_AFTER = 1 << 26, 4
"""Blocks that the system may have at once when they come back, and how many more come back before it may have smaller
ones: to mark pages as free stops all processors that run the process."""

# Code of programs.

MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS = 3, 6
"""Products of a sum that becomes part of another one, and of one that others are added to: each waits for the one
before. Six and six made single calls 1 % slower."""
ORDERED_OPERATIONS = 8000
"""Operations up to which it takes less than a second to ask what every result needs."""
C_PART_OPERATIONS, LLVM_PART_OPERATIONS = 1500, 2500
"""Operations of one function. Compilers take time with the square of its length, and functions this long lose nothing:
gcc -O2 takes 300 s for a humanoid's gradient in one piece and 13 s in parts."""
PAIRED_ROWS = 16
"""Rows of a vector from which two of their offsets are stored at one time."""
ANGLES_TOGETHER = 3
"""Sines and cosines side by side: more of them ran no faster, and need more registers."""
FETCHED_AHEAD = 3584
"""Bytes that rows are fetched ahead of those that are read, or W rows where these are more."""
FEWEST_ZEROS = 3
"""Zeros side by side from which they are written together."""
FEW_SPILLED_BYTES = 3600
"""Scalars that registers give up, in bytes, up to which VEX is shorter than EVEX: 1 to 4 % of a program's bytes."""
HURRY_CHARACTERS, HURRY_PAUSE_S = 60_000, 0.2
"""Characters of a module that LLVM compiles in a hurry first, 20 milliseconds' work; and the time without new work
before it is compiled with care."""

# Other engines.

CHUNK_SCALARS, MATRICES_FOR_SCALARS = 1 << 15, 8
"""Bodies x lanes x batch in one piece of the reference engine's work, whose arrays stay in a core's cache; matrices of
solves may be this many times larger, as they are worked on as a whole."""
DENSE_CHUNK_SCALARS = 1 << 18
"""The same of dense factorisations."""
MAX_KEPT_BODIES = 4096
"""Bodies up to which the reference engine keeps constants between runs, which take 2 kB each."""
EVALUATED_ROWS = 256
"""States of a piece of work where programs are evaluated without code: every number is kept."""
STATES_PIECE, ELEMENTS_PIECE, PAIRS_PIECE, TILES_PIECE, DEVICE_PIECE = 1 << 16, 4096, 1 << 16, 1 << 20, 1 << 22
"""What scans work on at a time: bodies x batch of states and of elements of a scan; entries x batch of pairs, of tiles
of them, and of either on a device."""
ONE_THREAD, SHORTEST_TILE = 1 << 18, 16
"""Multiplications in a product of tiles up to which BLAS stays in one thread, as thin ones gain little from more; and
the side of a tile."""
FEW_ROWS, FEWER_ENTRIES = 64, 16
"""A matrix is filled tile by tile, unless it is larger and has this many times fewer entries than places."""
SMALL_MATRIX, BRANCHES_FOR_DENSE = 2000, 75.0
"""Degrees of freedom up to which nobody asks whether a mass matrix has room; and how much longer an operation along
branches takes than a dense one."""
FEWER_OPERATIONS = 16
"""How many times fewer operations along branches a device wants before it goes that way."""
DENSE_FLOP, DENSE_ENTRY, BRANCH_FLOP, BRANCH_STEP = 4e-11, 1e-8, 3e-9, 2e-5
"""Seconds on one core: an operation of Cholesky's method and an entry of H; an operation along branches and a step
there."""
ONE_BY_ONE, SMALL_STATES_MATRIX, SEVERAL_STATES = 64, 24, 8
"""Trees not worth steps of their own for every pair of levels; matrices, and states, eliminated side by side."""
