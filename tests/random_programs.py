"""Random programs, and random steps for allocators."""

from __future__ import annotations

import ctypes
import math
import random

import numpy as np

from robodyn.compile.tracing.expression import Graph
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86.allocation import BINARY, FUSED, UNARY, Block
from robodyn.core.spatial import select


def random_steps(seed, count, staging=None, inputs=12, constants=9):
    """Steps of every kind on random values, some needed for long; homes, places of results, and blocks of rows."""
    rng = random.Random(seed)
    homes = {k: I.ARRAYS + k for k in range(inputs)}
    homes |= {inputs + k: I.POOL + k for k in range(constants)}
    known, steps, stored, blocks = list(homes), [], {}, []
    kinds = [*BINARY, *FUSED, *FUSED, *UNARY, "copy"]
    reach = rng.choice((5, 40, 10_000))
    result = len(homes)
    while len(steps) < count:
        if staging is not None and rng.random() < 0.1:
            rows, start = I.HEADER + (1 + staging.width) * len(blocks), rng.choice((0, 1, staging.width))
            size = rng.randint(1, staging.width)
            if rng.random() < 0.5:
                values = tuple(rng.choice((-1, result + k)) for k in range(size))
                result += size
                steps.append(("load", len(blocks), ()))
                known += [value for value in values if value >= 0]
            else:
                few = [*known[-reach:], *known[inputs : inputs + 2] * rng.choice((0, reach))]
                values = tuple(rng.choice(few) for _ in range(size))
                if rng.random() < 0.2:
                    values = (inputs,) * size
                steps.append(("store", len(blocks), values))
            blocks.append(Block(rows, start, values, more=start == 0))
            continue
        kind = rng.choice(kinds)
        arity = 2 if kind in BINARY else 3 if kind in FUSED else 1
        operands = tuple(rng.choice(known[-reach:] if rng.random() < 0.8 else known) for _ in range(arity))
        steps.append((kind, result, operands))
        if kind == "copy" or rng.random() < 0.1:
            stored[result] = [I.ARRAYS + inputs + 2 * len(stored) + k for k in range(rng.choice((1, 2)))]
        if kind != "copy":
            known.append(result)
        result += 1
    return homes, stored, steps, blocks


class Vectors:
    """Gives places to masks and vectors of constants, and says what is there."""

    def __init__(self, width):
        self.memory, self.width = {}, width

    def mask(self, count):
        self.memory[I.VECTORS + count] = (("mask", count),) * self.width
        return I.VECTORS + count

    def constants(self, values):
        place = I.VECTORS + 100 + len(self.memory)
        self.memory[place] = tuple((value, -1) for value in values)
        return place


MADE = (
    lambda x, y, z: x + y * z,
    lambda x, y, z: x - y * z,
    lambda x, y, z: x * y - z,
    lambda x, y, z: 0.5 * x - y,
    lambda x, y, z: np.sin(x) + 0.25 * y,
    lambda x, y, z: np.cos(y),
    lambda x, y, z: np.sqrt(x * x + 1.5) - y,
    lambda x, y, z: y / (2.0 + x * x) - 0.125,
    lambda x, y, z: np.minimum(x, y),
    lambda x, y, z: np.maximum(x - z, 0.25 * y),
    lambda x, y, z: np.minimum(np.maximum(x, -0.75), 0.5) + y,
    lambda x, y, z: select(x - y, z, x * y),
    lambda x, y, z: select(z, y, 1.5),
)


def random_program(seed, count):
    """A program of all operations on random expressions, whose results are of ordinary size."""
    rng = random.Random(seed)
    graph = Graph()
    sizes = {name: rng.choice((1, 2, 3, 7, 8, 9, 17)) for name in ("a", "b", "c")}
    inputs = {name: ((size,), graph.inputs(size)) for name, size in sizes.items()}
    known = [each for _, scalars in inputs.values() for each in scalars]
    for _ in range(count):
        x, y, z = (rng.choice(known[-30:]) for _ in range(3))
        made = rng.choice(MADE)(x, y, z)
        made = made * 0.5 if rng.random() < 0.7 else made
        if not isinstance(made, float):
            known.append(made)
    results = [rng.choice(known) for _ in range(rng.choice((1, 5, 8, 13)))]
    results += [known[0], 0.0, rng.choice((1.25, -0.0, math.pi)), -known[1]]
    rng.shuffle(results)
    outputs = {
        "x": ((len(results),), results),
        "y": ((2,), [known[-1], 3.0]),
        "z": ((3,), [known[-1], known[0], results[0]]),
    }
    return Program.of(f"random {seed}", graph, inputs, outputs)


def run(address, arrays, rows=None):
    """Call a kernel on rows of arrays, inputs first."""
    rows = len(arrays[0]) if rows is None else rows
    words = [word for array in arrays for word in (array.ctypes.data, array.strides[0])]
    table = (ctypes.c_int64 * len(words))(*words)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(address)(ctypes.addressof(table), 0, rows, 0)
