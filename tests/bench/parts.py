"""One tree on several threads: `python -m tests.bench parts --write`.

Trees of many shapes, worked on in parts: wall time on one thread and on all of this machine, taken in turns, beside
what the engine's model of work and depth says; and that model for numbers of threads that this machine does not have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.aba import aba
from robodyn.algorithms.rnea import rnea
from robodyn.compile.llvm.target import host_target
from robodyn.engines.cpu.parts.plan import Plan, Planner
from robodyn.engines.cpu.threads.pool import default_threads
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.semigroups import AFFINE_FORCES, TWIST_PAIRS, Semigroup
from robodyn.engines.scan.systems.riccati import AFFINE, RICCATI
from robodyn.internals.arguments import Array
from robodyn.sweeps import Algorithm
from robodyn.tools.benchmark.tables import Cells
from tests.bench.shared import page_of

BODIES = 1_000_000
_THREADS = (2, 4, 8, 16, 32, 64)
_LEAST, _PATIENCE, _WAIT_S = 5, 4.0, 0.3
"""Rounds of a case; how many times longer than asked for they may take until as many are quiet; and how long one waits
for a quiet moment."""


def _random(i: Array) -> Array:
    return np.where(i > 0, (np.random.default_rng(0).random(i.size) * i).astype(int), -1)


SHAPES: dict[str, Callable[[Array], Array]] = {
    "binary": lambda i: (i + 1) // 2 - 1,
    "five children": lambda i: (i + 4) // 5 - 1,
    "random": _random,
    "star": lambda i: np.where(i > 0, 0, -1),
    "caterpillar, legs of 10": lambda i: np.maximum(np.where(i % 11, i - 1, i - 11), -1),
    "caterpillar, legs of 1": lambda i: np.maximum(np.where(i % 2, i - 1, i - 2), -1),
    "chain": lambda i: i - 1,
}
"""Parents of bodies 0, 1, ... . Random: each body's parent is any of those before it."""
DYNAMICS: dict[str, Algorithm] = {"inverse_dynamics": rnea(), "forward_dynamics": aba()}
"""Queries, and what answers them."""
OTHERS = ("forward_kinematics", "joint_reaction", "kinetic_energy", "center_of_mass", "subtree_center_of_mass")
"""More of them, asked on a binary tree."""


@dataclass
class Measured:
    """Seconds of a call for one state, best and median: on one thread, and on all.

    `cpu_s`: of all threads together, in the best of both; `model`: how many times as fast all should be, None where the
    engine takes one thread by its model; `same`: whether both gave the same bits; `quiet`: rounds that began when
    nothing else ran, of `rounds`.
    """

    shape: str
    query: str
    bodies: int
    threads: int
    one_s: tuple[float, float]
    all_s: tuple[float, float]
    cpu_s: tuple[float, float]
    model: float | None
    same: bool
    quiet: int
    rounds: int
    load: float


@dataclass
class Modelled:
    """How many times as fast as on one thread, by numbers of threads, None where one thread is taken; and of the last
    of these numbers parts, tasks, and the share of all work on the longest way through tasks."""

    shape: str
    query: str
    faster: dict[int, float | None]
    parts: int
    tasks: int
    longest: float


@dataclass
class Found:
    """What was measured, and what the model says."""

    measured: list[Measured]
    modelled: list[Modelled]


def tree(shape: str, bodies: int = BODIES) -> rd.Model:
    """A tree of revolute joints."""
    return replace(rd.auto_tree(bodies, branching=2, skew=0.3), parent=SHAPES[shape](np.arange(bodies)))


def measure(selected: Callable[[str], bool], seconds: float, bodies: int, announce: Callable[[str], object]) -> Found:
    """All cases whose names are selected."""
    found = Found([], [])
    for shape in SHAPES:
        model = None
        for query in (*DYNAMICS, *(OTHERS if shape == "binary" else ())):
            name = f"parts: {shape}, {query}"
            if not selected(name):
                continue
            announce(name)
            model = tree(shape, bodies) if model is None else model
            found.measured.append(_measured(shape, query, model, seconds))
            if query in DYNAMICS:
                found.modelled.append(_modelled(shape, query, model))
    return found


def _arguments(model: rd.Model, query: str) -> tuple[Array, ...]:
    q, qd, last = np.random.default_rng(1).uniform(-1.0, 1.0, (3, model.nv))
    few = {"kinetic_energy": 2, "forward_kinematics": 1, "center_of_mass": 1, "subtree_center_of_mass": 1}
    return (q, qd, last)[: few.get(query, 3)]


def _measured(shape: str, query: str, model: rd.Model, seconds: float) -> Measured:
    threads, arguments = default_threads(), _arguments(model, query)
    makers = [rd.Dynamics(model, engine="cpu", threads=count, check=False) for count in (1, threads)]
    answers = [np.asarray(getattr(dyn, query)(*arguments)) for dyn in makers]
    out = np.empty_like(answers[0])
    into = {"out": out} if out.ndim else {}
    wall: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    begin, quiet, rounds = time.perf_counter(), 0, 0
    while quiet < _LEAST or time.perf_counter() - begin < seconds:
        if time.perf_counter() - begin > _PATIENCE * seconds and rounds >= _LEAST:
            break
        until = time.perf_counter() + _WAIT_S
        while (busy := _others()) and time.perf_counter() < until:
            time.sleep(0.005)
        quiet += not busy
        rounds += 1
        for k, dyn in enumerate(makers):
            before, start = time.process_time(), time.perf_counter()
            getattr(dyn, query)(*arguments, **into)
            wall[k].append(time.perf_counter() - start)
            cpu[k].append(time.process_time() - before)
    plan = _plan(model, DYNAMICS[query], threads) if query in DYNAMICS else None
    return Measured(
        shape,
        query,
        model.n_bodies,
        threads,
        (min(wall[0]), median(wall[0])),
        (min(wall[1]), median(wall[1])),
        (cpu[0][int(np.argmin(wall[0]))], cpu[1][int(np.argmin(wall[1]))]),
        plan.gain if plan is not None and plan.pays() else None,
        answers[0].tobytes() == answers[1].tobytes(),
        quiet,
        rounds,
        os.getloadavg()[0],
    )


def _others() -> int:
    """Other threads of this machine that run or wait for a processor now; 0 where nobody tells."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1
    except OSError:
        return 0


def _plan(model: rd.Model, algorithm: Algorithm, threads: int) -> Plan | None:
    return Planner(model, np.dtype(np.float64), host_target(), threads).plan(algorithm, ())


def _modelled(shape: str, query: str, model: rd.Model) -> Modelled:
    plans = {threads: _plan(model, DYNAMICS[query], threads) for threads in _THREADS}
    last = plans[_THREADS[-1]]
    return Modelled(
        shape,
        query,
        {threads: plan.gain if plan is not None and plan.pays() else None for threads, plan in plans.items()},
        1 if last is None else len(last.parts),
        1 if last is None else len(last.tasks.after),
        1.0 if last is None else last.tasks.longest_ns / last.alone_ns,
    )


def scan_operations() -> dict[str, tuple[int, int]]:
    """Of each query: operations of the recursion on a body of a chain, and of the scan elements that a body is composed
    with on its way out and in, which come on top where a chain is cut into stretches."""
    model = rd.auto_tree(2000, skew=0.3)
    dyn = rd.Dynamics(model, engine="cpu", threads=1, code="rolled")
    elements: dict[str, Sequence[Semigroup]] = {
        "inverse_dynamics": (TWIST_PAIRS, AFFINE_FORCES),
        "forward_dynamics": (TWIST_PAIRS, RICCATI, AFFINE),
    }
    found = {}
    for query, each in elements.items():
        recursion = dyn.engine.generated(DYNAMICS[query]).operations // model.n_bodies  # type: ignore[attr-defined]
        found[query] = (recursion, sum(traced(one.step).operations for one in each))
    return found


def tables(found: Found) -> list[Cells]:
    """For the screen and the page."""
    made = []
    if found.measured:
        headings = (
            "tree",
            "query",
            "one thread, ns a body ",
            "all ",
            "times as fast ",
            "by medians ",
            "by the model ",
            "processor time, one ",
            "all ",
            "same bits",
            "quiet rounds ",
            "load ",
        )
        rows = [_measured_row(each) for each in found.measured]
        made.append(Cells(f"Measured on {found.measured[0].threads} threads", headings, rows))
    if found.modelled:
        headings = (
            "tree",
            "query",
            *(f"{threads} threads " for threads in _THREADS),
            "longest way ",
            "parts ",
            "tasks ",
        )
        rows = [
            (
                each.shape,
                each.query,
                *("one thread" if faster is None else f"{faster:.3g}" for faster in each.faster.values()),
                f"{each.longest:.2%}",
                f"{each.parts:,}",
                f"{each.tasks:,}",
            )
            for each in found.modelled
        ]
        made.append(Cells("By the model, times as fast as one thread", headings, rows))
    return made


def _measured_row(each: Measured) -> tuple[str, ...]:
    times = [1e9 * seconds / each.bodies for seconds in (each.one_s[0], each.all_s[0])]
    gains = [one / many for one, many in zip(each.one_s, each.all_s, strict=True)]
    model = "" if each.query not in DYNAMICS else "one thread" if each.model is None else f"{each.model:.2f}"
    return (
        each.shape,
        each.query,
        *(f"{ns:.1f}" for ns in times),
        *(f"{gain:.2f}" for gain in gains),
        model,
        *(f"{1e9 * seconds / each.bodies:.1f}" for seconds in each.cpu_s),
        "yes" if each.same else "NO",
        f"{each.quiet} of {each.rounds}",
        f"{each.load:.1f}",
    )


def notes(found: Found) -> list[str]:
    """What the tables say."""
    lines = []
    if found.measured and not any(each.quiet for each in found.measured):
        lines.append(
            "No round was quiet: other programs had the processors most of the time, so the first table says that "
            "results are the same, what processor time they take, and how long that took here, but not what parts are "
            "worth."
        )
    if not found.modelled:
        return lines
    lines.append(
        "The second table is computed by the model, not measured: list scheduling of the tasks that the engine would "
        "run, with estimates of steps that were fitted on one core. It knows nothing of memory that cores share."
    )
    for query, (recursion, more) in scan_operations().items():
        lines.append(
            f"A chain, {query}: the recursion takes {recursion:,} operations a body. Cut into stretches, one for each "
            f"thread, every body is composed with its stretch besides, by {more:,} more; so a scan could pay from "
            f"{int(1 + more / recursion) + 1} threads, if all else were free. There is none on these threads: chains "
            "take one."
        )
    return lines


def page(found: Found, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench parts --write`. One state of a tree of revolute joints, float64,",
        f"{found.measured[0].bodies:,} bodies, results written to the same array. Calls on one thread and on all take",
        "turns; best and median of all rounds. Where other programs want the processors, best times of several threads",
        "need a moment in which all processors are free, which is rarer than one in which one is: rounds are called",
        "quiet that began when nothing else ran. Processor time is that of all threads together in the best round:",
        "threads that slow each other down, by memory that they share, take more of it. See",
        "[one tree on all cores](../engines.md#one-tree-on-all-cores).",
    ]
    return page_of("One tree on several threads", text, about, notes(found), tables(found))


def document(found: Found, about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    return {**about, **asdict(found)}
