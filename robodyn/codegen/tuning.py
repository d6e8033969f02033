"""What code generation and the engines are tuned by: sizes, times and limits that trade one speed for another.

None of them changes what is computed but by roundings. Formats, limits of hardware and of safety stand where they are
used.
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
