"""Loading, imports and the reference engine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.tables import Cells
from tests.bench.shared import MODELS, facts, show


@dataclass
class Row:
    """Seconds of one case: median and fastest of several runs; `bound` is what the project promises, if anything."""

    name: str
    median_s: float
    fastest_s: float
    runs: int
    bound_s: float | None = None

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (self.name, show(self.median_s), show(self.fastest_s), str(self.runs), show(self.bound_s))


@dataclass
class Case:
    """A named thing to time; `call` does it once."""

    name: str
    call: Callable[[], object]
    runs: int = 20
    bound_s: float | None = None

    def measure(self) -> Row:
        """Run once to warm up, then `runs` times."""
        self.call()
        times = []
        for _ in range(self.runs):
            start = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - start)
        return Row(self.name, median(times), min(times), self.runs, self.bound_s)


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


def cases() -> list[Case]:
    """Everything there is to time."""
    python = [sys.executable, "-c"]
    chain, tree = urdf_text(10_001, lambda i: i - 1), urdf_text(20_000, lambda i: (i - 1) // 2)
    found = [
        Case("import: python -c pass", lambda: subprocess.run([*python, "pass"], check=True)),
        Case("import: import robodyn", lambda: subprocess.run([*python, "import robodyn"], check=True), bound_s=0.3),
        Case(
            "import: all public names",
            lambda: subprocess.run([*python, "from robodyn import *"], check=True),
            bound_s=None,
        ),
        Case("load: 7-dof arm", lambda: rd.load_urdf(MODELS / "arm7.urdf"), 100, 0.005),
        Case("load: 31-dof humanoid", lambda: rd.load_urdf(MODELS / "humanoid.urdf", base="floating"), 50),
        Case("load: chain of 10,000 joints", lambda: rd.load_urdf(chain), 3, 5.0),
        Case("load: binary tree of 20,000 links", lambda: rd.load_urdf(tree), 3, 5.0),
        Case("auto_tree: 10,000,000 bodies, chain", lambda: rd.auto_tree(10_000_000), 1),
        Case("auto_tree: 10,000,000 bodies, binary", lambda: rd.auto_tree(10_000_000, branching=2), 1),
        Case("tour: Euler tour of 1,000,000 bodies", lambda: rd.auto_tree(1_000_000, branching=2).tree.euler_tour, 3),
    ]
    for name, base in (("arm7", "fixed"), ("humanoid", "floating")):
        model = rd.load_urdf(MODELS / f"{name}.urdf", base=base)
        dyn = rd.Dynamics(model, engine="reference")
        for batch in (1, 4096):
            q = model.random_configuration(0, (batch,))
            v = np.ones((batch, model.nv))
            at = f"reference, {name}, batch {batch}"
            found += [
                Case(f"{at}: inverse_dynamics", lambda d=dyn, q=q, v=v: d.inverse_dynamics(q, v, v), 5),
                Case(f"{at}: forward_dynamics", lambda d=dyn, q=q, v=v: d.forward_dynamics(q, v, v), 5),
                Case(f"{at}: mass_matrix", lambda d=dyn, q=q, v=v: d.mass_matrix(q), 5),
            ]
    return found


_HEADINGS = ("case", "median", "fastest", "runs", "bound")


def table(rows: list[Row]) -> Cells:
    """For the screen."""
    return Cells("core", _HEADINGS, [row.cells() for row in rows])


def page(rows: list[Row], about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# Loading, imports and the reference engine",
        "",
        "Printed by `python -m tests.bench --write`. Shared machines drift: compare within one run.",
        "",
        f"Measured on: {facts(about)}.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        "|---|---:|---:|---:|---:|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"
