"""Loading beside Pinocchio's parser; imports, large robots, and the reference engine, for which nothing is compiled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median

import numpy as np

import robodyn as rd
from tests.bench.runner import Page, Run
from tests.bench.shared import COLLECTION, robot
from tests.bench.timing import Call, in_turns, least

TIMES = 25
WANTED = 3.0
"""Times Pinocchio's."""


@dataclass
class Loaded:
    """Seconds of work of a load, ours and Pinocchio's, and what the file is."""

    robot: str
    size: int
    links: int
    ours_s: float
    peer_s: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.peer_s

    @property
    def kib(self) -> float:
        return self.size / 1024


@dataclass
class Row:
    """Seconds of one case: median and fastest of several runs; `bound` is what the project promises, if anything."""

    name: str
    median_s: float
    fastest_s: float
    runs: int
    bound_s: float | None = None


@dataclass
class Results:
    """What was measured."""

    loads: list[Loaded]
    rows: list[Row]

    @property
    def by_ratio(self) -> list[Loaded]:
        return sorted(self.loads, key=lambda each: each.ratio)


def measure(run: Run) -> Results:
    """Run the cases whose names are selected; nothing of Pinocchio where it or the collection is not there."""
    found = Results([], [])
    for path in sorted(COLLECTION.glob("*.urdf")) if find_spec("pinocchio") else ():
        if run.chosen(f"load: beside Pinocchio, {path.stem}"):
            from pinocchio import buildModelFromUrdf

            calls = {"ours": partial(rd.load_urdf, path), "peer": partial(buildModelFromUrdf, str(path))}
            seconds = least(calls, 0.0, TIMES, clock=time.thread_time, warm=1)
            links = len(rd.load_urdf(path).link_names)
            found.loads.append(Loaded(path.stem, path.stat().st_size, links, seconds["ours"], seconds["peer"]))
    for name, prepared, runs, bound in _cases():
        if run.chosen(f"load: {name}"):
            (seconds_of,) = in_turns({name: prepared()}, 0.0, runs, warm=1).values()
            found.rows.append(Row(name, median(seconds_of), min(seconds_of), runs, bound))
    return found


def _cases() -> Iterator[tuple[str, Callable[[], Call], int, float | None]]:
    """What makes a call, how often that is timed, and what is promised."""

    def python(code: str) -> Callable[[], Call]:
        return lambda: lambda: subprocess.run([sys.executable, "-c", code], check=True)

    def tree(bodies: int, branching: int = 1) -> Callable[[], rd.Model]:
        return partial(rd.auto_tree, bodies, branching=branching)

    yield "import: python -c pass", python("pass"), 20, None
    yield "import: import robodyn", python("import robodyn"), 20, 0.3
    yield "import: all public names", python("from robodyn import *"), 20, None
    yield "load: 7-dof arm", lambda: partial(robot, "arm7"), 100, 0.005
    yield "load: 31-dof humanoid", lambda: partial(robot, "humanoid"), 50, None
    yield "load: chain of 10,000 joints", lambda: partial(rd.load_urdf, str(tree(10_000)().to_urdf())), 3, 5.0
    yield "load: binary tree of 20,000 links", lambda: partial(rd.load_urdf, str(tree(19_999, 2)().to_urdf())), 3, 5.0
    yield "auto_tree: 10,000,000 bodies, chain", lambda: tree(10_000_000), 1, None
    yield "auto_tree: 10,000,000 bodies, binary", lambda: tree(10_000_000, 2), 1, None
    tour = "tour: Euler tour of 1,000,000 bodies"
    yield tour, lambda: lambda: tree(1_000_000, 2)().tree.euler_tour, 3, None
    for name in ("arm7", "humanoid"):
        for batch in (1, 4096):
            for query in ("inverse_dynamics", "forward_dynamics", "mass_matrix"):
                yield f"reference, {name}, batch {batch}: {query}", partial(_reference, name, batch, query), 5, None


def _reference(name: str, batch: int, query: str) -> Call:
    dyn = rd.Dynamics(robot(name), engine="reference")
    q, v = dyn.model.random_configuration(0, (batch,)), np.ones((batch, dyn.model.nv))
    return partial(getattr(dyn, query), *((q,) if query == "mass_matrix" else (q, v, v)))


def notes(found: Results) -> list[str]:
    if not found.loads:
        return []
    ratios = [each.ratio for each in found.loads]
    large = sorted(found.loads, key=lambda each: -each.size)[:5]
    return [
        f"{len(ratios)} robots: {median(ratios):.1f} times Pinocchio's time in the middle (wanted: {WANTED:g}), "
        f"{min(ratios):.1f} to {max(ratios):.1f}; {sum(ratio <= WANTED for ratio in ratios)} within {WANTED:g}.",
        f"The five largest files: {', '.join(f'{each.robot} {each.ratio:.1f}' for each in large)}.",
    ]


PAGE = Page("load", Results, measure, notes=notes)
