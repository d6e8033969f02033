"""Simulates the hardware cycle by cycle: Verilator compiles the module, and a testbench streams states through it."""

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
"""Lines of generated C++ per file; several files compile in parallel."""
_SAID = re.compile(r"states (\d+) cycles (-?\d+) latency (-?\d+) different (\d+) lost (\d+)")


@dataclass(frozen=True)
class SimulationReport:
    """The result of a simulation.

    Args:
        equal: True if all words and flags equal those of the bit-exact model, in the same order.
        compared: number of compared words, one for each result of each state.
        different: number of words that differ from the model's, or whose flags differ.
        states: number of states that were computed.
        cycles: cycles from the input of the first state to the last result.
        latency: cycles from the first cycle of a state in the circuit to its results.
        results: results of the simulated hardware, as from `Datapath.evaluate`.
        wrapped: which rows have the overflow flag set.
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
    """Outputs of a simulation."""

    words: Words
    cycles: int
    latency: int


def built(folder: Path, module: str, jobs: int | None = None) -> Path:
    """Compile the simulator of the module in `folder`, with its testbench. It takes minutes for thousands of
    multipliers.

    Raises:
        UnavailableError: Verilator is not installed, or fails.
    """
    # -O0, because optimised compilation takes a quarter of an hour for an arm, and -O0 code is fast enough.
    command = [
        tool("verilator"), "--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "-O3", "--x-assign", "fast",
        "--x-initial", "fast", "--output-split", str(_LINES), "--output-split-cfuncs", "500", "-CFLAGS", "-O0",
        "-MAKEFLAGS", "OPT_FAST=-O0 OPT_SLOW=-O0", "-j", str(jobs or os.cpu_count() or 1), "--top-module", module,
        "--Mdir", "build", "-o", "simulator", f"{module}.v", "testbench.cpp",
    ]  # fmt: skip
    called(command, folder)
    return folder / "build" / "simulator"


def streamed(simulator: Path, words: Array, outputs: int, stalls: float, seed: int) -> Streamed:
    """Stream words (rows, inputs) through a simulator.

    Raises:
        UnavailableError: the simulator fails.
    """
    folder = simulator.parent
    inputs, results = folder / "inputs.txt", folder / "outputs.txt"
    inputs.write_text(table(words))
    printed = called(
        [str(simulator), inputs.name, results.name, str(round(1000 * stalls)), str(seed)],
        folder,
    )
    match = _SAID.search(printed)
    if match is None:
        raise UnavailableError(f"the simulator printed {printed[:200]!r}; wanted a line of its counts")
    rows, cycles, latency, _, _ = map(int, match.groups())
    table_read = np.array(results.read_text().split(), np.int64).reshape(rows, outputs + 1)
    return Streamed(Words(table_read[:, :-1], table_read[:, -1]), cycles, latency)


def table(rows: Array | Sequence[Sequence[int]]) -> str:
    """Integers as text, one line for each row."""
    return "".join(" ".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
