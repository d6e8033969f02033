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
from robodyn.tools.benchmark.tables import Cells
from tests.bench.runner import Page, Run
from tests.bench.shared import COLLECTION, robot, table
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
    for name, call, runs, bound in _cases():
        if run.chosen(f"load: {name}"):
            (seconds_of,) = in_turns({name: call}, 0.0, runs, warm=1).values()
            found.rows.append(Row(name, median(seconds_of), min(seconds_of), runs, bound))
    return found


def _cases() -> Iterator[tuple[str, Call, int, float | None]]:
    """What is called, how often, and what is promised."""

    def python(code: str) -> Call:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    yield "import: python -c pass", python("pass"), 20, None
    yield "import: import robodyn", python("import robodyn"), 20, 0.3
    yield "import: all public names", python("from robodyn import *"), 20, None
    yield "load: 7-dof arm", lambda: robot("arm7"), 100, 0.005
    yield "load: 31-dof humanoid", lambda: robot("humanoid"), 50, None
    chain, tree = urdf_text(10_001, lambda i: i - 1), urdf_text(20_000, lambda i: (i - 1) // 2)
    yield "load: chain of 10,000 joints", lambda: rd.load_urdf(chain), 3, 5.0
    yield "load: binary tree of 20,000 links", lambda: rd.load_urdf(tree), 3, 5.0
    yield "auto_tree: 10,000,000 bodies, chain", lambda: rd.auto_tree(10_000_000), 1, None
    yield "auto_tree: 10,000,000 bodies, binary", lambda: rd.auto_tree(10_000_000, branching=2), 1, None
    tour = "tour: Euler tour of 1,000,000 bodies"
    yield tour, lambda: rd.auto_tree(1_000_000, branching=2).tree.euler_tour, 3, None
    for name in ("arm7", "humanoid"):
        dyn = rd.Dynamics(robot(name), engine="reference")
        for batch in (1, 4096):
            q = dyn.model.random_configuration(0, (batch,))
            v, at = np.ones((batch, dyn.model.nv)), f"reference, {name}, batch {batch}"
            yield f"{at}: inverse_dynamics", lambda d=dyn, q=q, v=v: d.inverse_dynamics(q, v, v), 5, None
            yield f"{at}: forward_dynamics", lambda d=dyn, q=q, v=v: d.forward_dynamics(q, v, v), 5, None
            yield f"{at}: mass_matrix", lambda d=dyn, q=q: d.mass_matrix(q), 5, None


def urdf_text(links: int, parent: Callable[[int], int]) -> str:
    """A robot of that many links on revolute joints."""
    joints = "".join(
        f'<joint name="j{i}" type="revolute"><parent link="l{parent(i)}"/><child link="l{i}"/><axis xyz="0 0 1"/>'
        '<origin xyz="0 0 0.1"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
        for i in range(1, links)
    )
    inertial = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    bodies = "".join(f'<link name="l{i}">{inertial}</link>' for i in range(links))
    return f'<robot name="r">{bodies}{joints}</robot>'


def tables(found: Results) -> list[Cells]:
    loads = sorted(found.loads, key=lambda each: each.ratio)
    sizes = "#KiB | {0.kib:.0f}", "#links | {0.links}"
    seconds = "#median | {0.median_s:time}", "#fastest | {0.fastest_s:time}", "#runs | {0.runs}"
    made = [
        table("loads", loads, "robot | {0.robot}", *sizes, "#ours | {0.ours_s:time}", "#Pinocchio | {0.peer_s:time}",
              "#times | {0.ratio:.1f}"),
        table("Imports, large robots and the reference engine", found.rows, "case | {0.name}", *seconds,
              "#bound | {0.bound_s:time}"),
    ]  # fmt: skip
    return [table for table in made if table.rows]


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


PAGE = Page("load", Results, measure, tables, notes)
