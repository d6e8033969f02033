"""`datapath`: a robot's gradient as a fixed-point circuit, to be evaluated, simulated and written as Verilog."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.compile.c.code import identifier
from robodyn.compile.tracing.expression import CONSTANT, MUL
from robodyn.compile.tracing.program import Program
from robodyn.core.model import Model
from robodyn.internals.arguments import (
    Array,
    broadcast_leading,
    count,
    finite_number,
    one_of,
    real_array,
    require_finite,
)
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import path_text, whole_file
from robodyn.internals.messages import brief, quoted
from robodyn.internals.strict_types import is_a
from robodyn.internals.version import __version__
from robodyn.tools.hardware import formats as fixed
from robodyn.tools.hardware import model as exact
from robodyn.tools.hardware.passes import prepared
from robodyn.tools.hardware.program import FORMULATIONS, QUERIES, input_nodes, output_scalars, traced, triangle
from robodyn.tools.hardware.ranges import Box, host_inputs, input_intervals, intervals
from robodyn.tools.hardware.schedule import Schedule, products, scheduled
from robodyn.tools.hardware.simulate import SimulationReport, built, streamed, table
from robodyn.tools.hardware.synthesis import Resources, resources
from robodyn.tools.hardware.testbench import testbench
from robodyn.tools.hardware.verilog import verilog

RANGES = ("sampled", "intervals")
_MOST = 1 << 20
_ASYMMETRY = 1e-6
"""Tolerated asymmetry of M^-1 relative to its largest entry: rounding in single precision."""
_VECTORS = 64
"""Number of test states that `write` adds to the testbench."""


def datapath(
    model: Model,
    query: str = "forward_dynamics_gradient",
    formulation: str = "idsva",
    width: int = 18,
    multipliers: int | None = None,
    interval: int | None = None,
    box: Box | None = None,
    *,
    fraction: int | None = None,
    ranges: str = "sampled",
    guard: int = 1,
) -> Datapath:
    """A fixed-point datapath of a gradient: its formats, its schedule, its Verilog and a bit-exact model.

    Source: Plancher, Neuman, Bourgeat, Kuindersma, Devadas, Reddi, Accelerating Robot Dynamics Gradients on a CPU, GPU,
    and FPGA (2021), algorithm 5, with the sine and cosine of q and M^-1 as inputs from the host.

    Args:
        model: a fixed-base robot whose joints have one coordinate each, without mimic joints.
        query: "forward_dynamics_gradient" (dqdd/dq, dqdd/dqd from q, qd, qdd, Minv) or "inverse_dynamics_gradient"
            (dtau/dq, dtau/dqd from q, qd, qdd).
        formulation: "idsva" (composites of subtrees: half the multipliers) or "algorithm 2" (the paper's recursion of
            columns: smaller errors, and ranges that intervals can bound).
        width: bits of every word, 4 to 32.
        multipliers: number of multipliers. None: one for each product, or as many as `interval` needs.
        interval: cycles between consecutive states, which overlap in the pipeline. None: one state at a time if
            `multipliers` is given, else a state each cycle.
        box: the states for which the datapath is designed.
        fraction: bits behind the binary point, the same for all values. None: a binary point for each value.
        ranges: how ranges of values are determined: "sampled" (at samples of the box; a flag shows which results
            overflowed) or "intervals" (proved: nothing overflows inside the box). Ignored if `fraction` is given.
        guard: additional bits before the binary point of results, beyond the largest sample.

    Raises:
        ArgumentError: an argument is wrong, or the robot has unsupported joints or too many joints.
        SingularError: M^-1 has to be sampled, and the mass matrix is singular.
    """
    one_of("query", query, tuple(QUERIES))
    one_of("formulation", formulation, tuple(FORMULATIONS))
    one_of("ranges", ranges, RANGES)
    count("width", width, fixed.NARROWEST, fixed.WIDEST)
    count("guard", guard, 0, 16)
    for name, value, most in (("multipliers", multipliers, _MOST), ("interval", interval, _MOST)):
        if value is not None:
            count(name, value, 1, most)
    if fraction is not None:
        count("fraction", fraction, 0, width - 1)
    if box is not None and not is_a(box, Box):
        raise ArgumentError(f"box: got {brief(box)}; wanted a robodyn.hardware.Box")
    if not is_a(model, Model):
        raise ArgumentError(f"model: got {brief(model)}; wanted a robodyn.Model")
    box = box or Box()
    box.limits(model)
    program = traced(model, query, formulation)
    _require_something(program, model)
    ports = host_inputs(program, box.samples(model, QUERIES[query].inputs))
    program, vanishing = prepared(program, ports)
    _require_something(program, model)
    ports = {port.name: ports[port.name] for port in program.inputs}
    if fraction is not None:
        formats = fixed.uniform(program, width, fraction)
    elif ranges == "intervals":
        known_intervals = intervals(program, input_intervals(program, model, box, ports))
        formats = fixed.proved(program, width, known_intervals)
    else:
        formats = fixed.scaled(program, width, ports, guard)
    schedule = _schedule(program, multipliers, interval)
    return Datapath(model, query, box, program, formats, schedule, ports, vanishing)


def _require_something(program: Program, model: Model) -> None:
    if not any(isinstance(scalar, int) for scalar in output_scalars(program)):
        raise ArgumentError(f"datapath: {program.name} of {quoted(model.name)} is constant: nothing is computed")


def _schedule(program: Program, multipliers: int | None, interval: int | None) -> Schedule:
    n = products(program)
    if multipliers is None:
        every = 1 if interval is None else interval
        return scheduled(program, max(1, -(-n // every)), every)
    if interval is not None and multipliers * interval < n:
        raise ArgumentError(
            f"multipliers: {multipliers} in intervals of {interval} cycles compute at most {multipliers * interval} "
            f"products; wanted room for {n}, such as multipliers={-(-n // interval)} or interval={-(-n // multipliers)}"
        )
    return scheduled(program, min(multipliers, max(1, n)), interval)


class Datapath:
    """A fixed-point circuit, made by `datapath`.

    Attributes:
        model, query, box: arguments of `datapath`.
        program: its operations (`robodyn.compile.tracing.program.Program`). `vanishing` sums that are zero at all
            samples were removed, on numerical evidence without proof.
        formats: the binary point of every value; `formats.proved` is True if nothing can overflow inside the box.
        schedule: start cycles of operations.
        wrapped: (...) bools: which rows of the last `evaluate` or `simulate` have an operation that overflowed its
            word. Results of such rows are meaningless.
        outside: (...) bools: which rows of the last call are outside of the box.
    """

    def __init__(
        self,
        model: Model,
        query: str,
        box: Box,
        program: Program,
        formats: fixed.Formats,
        schedule: Schedule,
        samples: Mapping[str, Array],
        vanishing: int,
    ) -> None:
        self.model, self.query, self.box = model, query, box
        self.program, self.formats, self.schedule, self.vanishing = program, formats, schedule, vanishing
        self.wrapped = self.outside = np.zeros(0, bool)
        self._samples = samples
        self._asked = QUERIES[query]
        self._limits = box.limits(model)
        self._simulator: Path | None = None

    def __repr__(self) -> str:
        return (
            f"<Datapath {self.query} of {self.model.name!r}: {self.formats.width} bits, {self.multipliers} "
            f"multipliers, latency {self.latency}, interval {self.interval}>"
        )

    @property
    def latency(self) -> int:
        """Cycles from the input of a state to its results."""
        return self.schedule.latency

    @property
    def interval(self) -> int:
        """Cycles between consecutive states."""
        return self.schedule.interval

    @property
    def multipliers(self) -> int:
        """Number of multipliers."""
        return self.schedule.multipliers

    @cached_property
    def counts(self) -> dict[str, int]:
        """Counts: "mul" (products), of which "mul_constant" are by constants; "add" (sums and negations); "registers"
        (words)."""
        nodes = self.program.nodes
        live = [(index, *nodes[index]) for index in self.program.live]
        constant = sum(op == MUL and CONSTANT in (nodes[a][0], nodes[b][0]) for _, op, a, b in live)
        registers = sum(self.schedule.copies[index] for index, operation, _, _ in live if operation != CONSTANT)
        adds = len(self.schedule.start) - products(self.program)
        return {"mul": products(self.program), "mul_constant": constant, "add": adds, "registers": registers}

    def evaluate(self, q: Any, qd: Any, qdd: Any, Minv: Any = None) -> tuple[Array, Array]:
        """The hardware's results, computed by the bit-exact model; sets `wrapped` and `outside`.

        Args:
            q, qd, qdd: (..., nv) coordinates, velocities and accelerations. Leading axes broadcast.
            Minv: (..., nv, nv) the inverse of the mass matrix, if the query takes it.

        Returns:
            Derivatives with respect to q and qd, (..., nv, nv) each.

        Raises:
            ArgumentError: wrong shapes, M^-1 missing, superfluous or not symmetric.
            NumericalError: NaN or infinity.
        """
        leading, ports = self._taken(q, qd, qdd, Minv)
        done = exact.run(self.program, self.formats, exact.quantized(self.program, self.formats, ports))
        self.wrapped = (done.wrapped > 0).reshape(leading)
        return self._results(done.words, leading)

    def error_bounds(self, q: Any, qd: Any, qdd: Any, Minv: Any = None) -> tuple[Array, Array]:
        """Error bounds (..., nv, nv) of the results of `evaluate` compared with exact arithmetic. They hold for rows
        without overflow. Arguments and errors are those of `evaluate`."""
        leading, ports = self._taken(q, qd, qdd, Minv)
        words = exact.quantized(self.program, self.formats, ports)
        bounds = exact.bounds(self.program, self.formats, ports, words)
        return self._shaped(bounds, leading)

    def simulate(
        self, q: Any, qd: Any, qdd: Any, Minv: Any = None, *, stalls: float = 0.0, seed: int = 0
    ) -> SimulationReport:
        """Simulate the hardware and compare it with the bit-exact model.

        Verilator compiles the Verilog at the first call, which takes seconds for dozens of multipliers and minutes for
        thousands.

        Args:
            q, qd, qdd, Minv: as in `evaluate`.
            stalls: fraction of cycles in which no input is offered, and in which no result is accepted.
            seed: seed of the stalls.

        Raises:
            UnavailableError: Verilator is not installed, or fails.
            ArgumentError, NumericalError: as in `evaluate`.
        """
        share = finite_number("stalls", stalls)
        if not 0.0 <= share <= 0.95:
            raise ArgumentError(f"stalls: got {brief(stalls)}; wanted a share from 0 to 0.95")
        count("seed", seed, 0, 2**31 - 1)
        leading, ports = self._taken(q, qd, qdd, Minv)
        words = exact.quantized(self.program, self.formats, ports)
        expected = exact.run(self.program, self.formats, words)
        if self._simulator is None:
            folder = Path(tempfile.mkdtemp(prefix="robodyn-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._write_sources(folder)
            self._simulator = built(folder, self.name)
        simulated = streamed(self._simulator, words, expected.words.shape[1], share, seed)
        rows = min(len(simulated.words.words), len(expected.words))
        flags = (expected.wrapped > 0) & (not self.formats.proved)
        unequal = simulated.words.words[:rows] != expected.words[:rows]
        unequal |= (simulated.words.wrapped[:rows] != flags[:rows])[:, None]
        different = int(unequal.sum()) + expected.words.size - unequal.size
        self.wrapped = flags.reshape(leading)
        return SimulationReport(
            equal=different == 0,
            compared=expected.words.size,
            different=different,
            states=rows,
            cycles=simulated.cycles,
            latency=simulated.latency,
            results=self._results(simulated.words.words, leading) if rows == len(words) else (),
            wrapped=(simulated.words.wrapped[:rows] > 0).reshape(leading) if rows == len(words) else np.zeros(0, bool),
        )

    def resources(self, seconds: float = 600.0) -> Resources:
        """Resources on an UltraScale+ device, by yosys: of the whole circuit if synthesis finishes within `seconds`,
        else of one multiplier, times their number.

        Raises:
            UnavailableError: yosys is not installed, or fails.
        """
        limit = finite_number("seconds", seconds)
        if limit <= 0.0:
            raise ArgumentError(f"seconds: got {brief(seconds)}; wanted more than 0")
        return resources(self.verilog(), self.name, self.formats.width, self.multipliers, limit)

    # Source texts.

    @cached_property
    def name(self) -> str:
        """Name of the Verilog module."""
        return f"{identifier(self.model.name)}_{self.query}".lower()

    def verilog(self) -> str:
        """The module as Verilog-2005. Equal robots, arguments and versions give equal text."""
        return self._verilog

    @cached_property
    def _verilog(self) -> str:
        inputs, outputs = len(input_nodes(self.program)), len(output_scalars(self.program))
        W = self.formats.width
        about = [
            f"{self.query} of {self.model.name!r} in words of {W} bits.".encode("unicode_escape").decode("ascii"),
            f"Made by robodyn {__version__} from the model {self.model.digest}.",
            f"{self.multipliers} multipliers, a state every {self.interval} cycles, latency {self.latency} cycles.",
            f"in_data: {inputs} words, out_data: {outputs} words, the first in the lowest bits;",
            "formats.json says what they are. rst is synchronous.",
        ]
        return verilog(self.program, self.formats, self.schedule, self.name, about)

    def ports(self) -> dict[str, Any]:
        """Formats and order of all input and output words, as `write` stores them in JSON.

        The value of a word is its integer times 2^-fraction. Constant results have a word of 0 and an entry "value".
        """
        inputs = [
            {"name": self._input_name(name, k), "fraction": self.formats.fraction[node]}
            for name, k, node in input_nodes(self.program)
        ]
        outputs: list[dict[str, Any]] = []
        nv = self.model.nv
        for port in self.program.outputs:
            for k, scalar in enumerate(port.scalars):
                entry: dict[str, Any] = {"name": f"{port.name}[{k // nv}][{k % nv}]"}
                if isinstance(scalar, int):
                    outputs.append({**entry, "fraction": self.formats.fraction[scalar]})
                else:
                    outputs.append({**entry, "fraction": 0, "value": scalar})
        return {
            "module": self.name,
            "model": self.model.digest,
            "query": self.query,
            "width": self.formats.width,
            "proved": self.formats.proved,
            "latency": self.latency,
            "interval": self.interval,
            "multipliers": self.multipliers,
            "inputs": inputs,
            "outputs": outputs,
        }

    def _input_name(self, name: str, k: int) -> str:
        if name != "minus_Minv":
            return f"{name}[{k}]"
        r, c = triangle(self.model.nv)[k]
        return f"minus_Minv[{r}][{c}]"

    def write(self, folder: str | Path) -> list[Path]:
        """Write a project: the Verilog, formats.json, a C++ testbench with some states and their expected words, and a
        README with instructions. The folder is made if missing; files with these names are replaced.

        Raises:
            ArgumentError: `folder` is no folder name, or is a file.
            OSError: a file cannot be written.
        """
        text = path_text(folder)
        if not text:
            raise ArgumentError(f"folder: got {brief(folder)}; wanted the name of a folder")
        place = Path(text)
        if place.exists() and not place.is_dir():
            raise ArgumentError(f"folder: {brief(str(place))} is there and no folder")
        place.mkdir(parents=True, exist_ok=True)
        files = self._write_sources(place)
        words = exact.quantized(self.program, self.formats, {n: a[:_VECTORS] for n, a in self._samples.items()})
        done = exact.run(self.program, self.formats, words)
        flags = (done.wrapped > 0) & (not self.formats.proved)
        texts = {
            "formats.json": json.dumps(self.ports(), indent=1) + "\n",
            "inputs.txt": table(words),
            "expected.txt": table(np.column_stack([done.words, flags.astype(np.int64)])),
            "README.md": _README.replace("@NAME@", self.name),
        }
        return files + [_written(place / name, text) for name, text in texts.items()]

    def _write_sources(self, folder: Path) -> list[Path]:
        inputs, outputs = len(input_nodes(self.program)), len(output_scalars(self.program))
        bench = testbench(self.name, self.formats.width, inputs, outputs, not self.formats.proved)
        texts = {f"{self.name}.v": self.verilog(), "testbench.cpp": bench}
        return [_written(folder / name, text) for name, text in texts.items()]

    # Arguments.

    def _taken(self, q: Any, qd: Any, qdd: Any, Minv: Any) -> tuple[tuple[int, ...], dict[str, Array]]:
        """Leading axes, and the hardware's inputs (rows, size) by port; sets `outside`."""
        nv = self.model.nv
        wants = "Minv" in self._asked.inputs
        if (Minv is None) == wants:
            raise ArgumentError(
                f"Minv: {self.query} takes {'the inverse of the mass matrix' if wants else 'none'}; got "
                f"{'nothing' if wants else brief(Minv)}"
            )
        arguments: dict[str, tuple[Any, tuple[int, ...]]] = {
            "q": (q, (self.model.nq,)),
            "qd": (qd, (nv,)),
            "qdd": (qdd, (nv,)),
        }
        if wants:
            arguments["Minv"] = (Minv, (nv, nv))
        arrays = {name: real_array(name, value, shape, np.float64) for name, (value, shape) in arguments.items()}
        for name, array in arrays.items():
            require_finite(name, array, len(arguments[name][1]))
        leading = broadcast_leading({name: (array, len(arguments[name][1])) for name, array in arrays.items()})
        rows = {
            name: np.broadcast_to(array, (*leading, *arguments[name][1])).reshape((-1, *arguments[name][1]))
            for name, array in arrays.items()
        }
        if wants:
            _require_symmetric(rows["Minv"])
        ports = host_inputs(self.program, rows)
        self.outside = self._is_outside(rows, ports).reshape(leading)
        return leading, ports

    def _is_outside(self, rows: Mapping[str, Array], ports: Mapping[str, Array]) -> Array:
        outside = np.zeros(len(rows["q"]), bool)
        for name, (lower, upper) in self._limits.items():
            axes = tuple(range(1, 1 + lower.ndim))
            outside |= np.any((rows[name] < lower) | (rows[name] > upper), axis=axes)
        if "minus_Minv" in ports and "Minv" not in self._limits:
            largest = np.abs(self._samples["minus_Minv"]).max(axis=0)
            outside |= np.any(np.abs(ports["minus_Minv"]) > largest, axis=1)
        return outside

    def _results(self, words: Array, leading: tuple[int, ...]) -> tuple[Array, Array]:
        return self._shaped(exact.numbers(self.program, self.formats, words), leading)

    def _shaped(self, found: Mapping[str, Array], leading: tuple[int, ...]) -> tuple[Array, Array]:
        nv = self.model.nv
        by_q, by_qd = (found[name].reshape((*leading, nv, nv)) for name in self._asked.results)
        return by_q, by_qd


def _require_symmetric(Minv: Array) -> None:
    largest = np.abs(Minv).max(axis=(-2, -1), initial=0.0)
    bad = np.abs(Minv - np.swapaxes(Minv, -1, -2)).max(axis=(-2, -1), initial=0.0) > _ASYMMETRY * largest
    if bad.any():
        raise ArgumentError(f"Minv: not symmetric in row {int(np.argmax(bad))}; wanted the inverse of a mass matrix")


def _written(path: Path, text: str) -> Path:
    with whole_file(path, "folder") as file:
        file.write(text.encode("utf-8"))
    return path


_README = """\
# @NAME@

`@NAME@.v` is the datapath, `formats.json` the order and binary points of its words, `inputs.txt` and `expected.txt`
words of some states and what is to come out (the last number of a line: whether it wrapped). To simulate it:

```sh
verilator --cc --exe --build -Wno-fatal -Wno-lint --top-module @NAME@ --Mdir build -o simulator @NAME@.v testbench.cpp
build/simulator inputs.txt outputs.txt 250 1 expected.txt
```

Either side stalls in 250 of 1,000 cycles, as seed 1 has it. It prints counts, and ends with 0 where nothing differs.
"""
