"""Hardware simulated cycle by cycle: Verilator compiles the module, a testbench streams states through it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass
from robodyn.tools.hardware.model import Words
from robodyn.tools.hardware.tools import called, tool

_LINES = 20_000
"""Of the generated C++ in a file: compilers take files one by one."""
_SAID = re.compile(r"states (\d+) cycles (-?\d+) latency (-?\d+) different (\d+) lost (\d+)")


@dataclass(frozen=True)
class SimulationReport:
    """What a simulation showed.

    Args:
        equal: whether every word that came out is the model's, in the model's order, with the model's flag.
        compared: words that were compared, one for each result of each state.
        different: how many of them differ from the model's, or whose flags do.
        states: how many went through.
        cycles: from the one in which the first state is taken to that in which the last result is given.
        latency: cycles from the one in which a state is first inside to its results.
        results: those of the simulated hardware, in the order of `Datapath.evaluate`'s.
        wrapped: which rows' flags were set.
    """

    equal: bool
    compared: int
    different: int
    states: int
    cycles: int
    latency: int
    results: tuple[Array, ...]
    wrapped: Array


class Streamed(NamedTuple):
    """What came out of a simulation."""

    words: Words
    cycles: int
    latency: int


def built(folder: Path, module: str, jobs: int | None = None) -> Path:
    """The simulator of the module in `folder`, compiled beside its testbench. Minutes for thousands of multipliers.

    Raises:
        UnavailableError: Verilator is not installed, or fails.
    """
    # What compiles fast runs fast enough: a compiler that optimises takes a quarter of an hour for an arm.
    command = [
        tool("verilator"), "--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "-O3", "--x-assign", "fast",
        "--x-initial", "fast", "--output-split", str(_LINES), "--output-split-cfuncs", "500", "-CFLAGS", "-O0",
        "-MAKEFLAGS", "OPT_FAST=-O0 OPT_SLOW=-O0", "-j", str(jobs or os.cpu_count() or 1), "--top-module", module,
        "--Mdir", "build", "-o", "simulator", f"{module}.v", "testbench.cpp",
    ]  # fmt: skip
    called(command, folder)
    return folder / "build" / "simulator"


def streamed(simulator: Path, words: Array, outputs: int, stalls: float, seed: int) -> Streamed:
    """The words (rows, inputs) sent through a simulator.

    Raises:
        UnavailableError: the simulator fails, or swallows states.
    """
    folder = simulator.parent
    given, found = folder / "inputs.txt", folder / "outputs.txt"
    given.write_text(table(words))
    said = called(
        [str(simulator), given.name, found.name, str(round(1000 * stalls)), str(seed)],
        folder,
    )
    match = _SAID.search(said)
    if match is None:
        raise UnavailableError(f"the simulator printed {said[:200]!r}; wanted a line of its counts")
    rows, cycles, latency, _, _ = map(int, match.groups())
    back = np.array(found.read_text().split(), np.int64).reshape(rows, outputs + 1)
    return Streamed(Words(back[:, :-1], back[:, -1]), cycles, latency)


def table(rows: Array | Sequence[Sequence[int]]) -> str:
    """Integers as lines."""
    return "".join(" ".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
