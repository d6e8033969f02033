"""Errors of the scan engine by the number of bodies: every method, both layouts, every kernel, both precisions.

python tests/scan_accuracy.py             prints the tables of docs/benchmarks/scan-accuracy.md
python tests/scan_accuracy.py --write     writes them, and a plot, there
                              --large     up to 1,000,000 bodies
                              --largest=N stops at N bodies
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import robodyn as rd
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.methods import methods_of
from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.tables import Cells
from tests.bench.drawing import pyplot, save
from tests.bench.points import Budget, Point, bounded_memory, difference, remarks
from tests.bench.shared import FOLDER, facts, header

SIZES = (10, 100, 1_000, 10_000, 100_000)
LARGE = (*SIZES, 1_000_000)
MATRIX_SIZES = (10, 100, 1_000)
CFA_SIZES = (5, 10, 20, 50, 100, 200, 500, 1_000)
DTYPES = ("float64", "float32")
SHAPES = ("chain", "branching 1.5", "branching 2", "star", "caterpillar")
SKEW = 0.3
LIMIT = 60.0
"""Seconds that a call may take."""
_SEVERAL, _STATES = 1_000, 3
"""Up to n bodies, the worst of n states."""

INVERSE: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{method}, paths": (method, {}) for method in methods_of("inverse_dynamics")},
    **{f"{method}, tour": (method, {"layout": "euler"}) for method in methods_of("inverse_dynamics")},
}
"""Heavy paths and Euler tour, blocks of 64: method and options by what a column is called."""
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnea, paths, hillis_steele": ("rnea", {"kernel": "hillis_steele"}),
    "rnea, paths, blelloch": ("rnea", {"kernel": "blelloch"}),
    "rnea, tour, hillis_steele": ("rnea", {"layout": "euler", "kernel": "hillis_steele"}),
    "rnea, tour, blelloch": ("rnea", {"layout": "euler", "kernel": "blelloch"}),
    "rnea_world, tour, mapped": ("rnea_world", {"layout": "euler", "kernel": "mapped"}),
    "rnea_world, tour, native": ("rnea_world", {"layout": "euler", "kernel": "native"}),
}
MATRIX: dict[str, dict[str, Any]] = {"paths": {}, "tour": {"layout": "euler"}}
FORWARD = tuple(method for method in methods_of("forward_dynamics") if method != "cfa")
CFA: dict[str, dict[str, Any]] = {
    f"{basis}, {solver}": {"constraint_basis": basis, "constraint_solver": solver}
    for basis in ("unit", "balanced")
    for solver in ("odd_even", "direct")
}
RECURSION = "cpu"


def tree(shape: str, n: int) -> rd.Model:
    """A tree of n bodies of Featherstone's autoTree, all alike, that is not planar."""
    if shape == "star":
        return rd.auto_tree(n, branching=float(n), skew=SKEW)
    if shape == "caterpillar":  # even bodies are the back, each odd one hangs on the body before it
        back = np.arange(n)
        return replace(rd.auto_tree(n, skew=SKEW), parent=np.where(back % 2 == 1, back - 1, np.maximum(back - 2, -1)))
    return rd.auto_tree(n, branching=float(shape.split()[-1]) if " " in shape else 1.0, skew=SKEW)


class Judge:
    """States of a tree that single precision holds exactly, and what is right by the CPU engine in double precision."""

    def __init__(self, shape: str, n: int) -> None:
        self.model, self.shape = tree(shape, n), shape
        self.dyn = self.engine("float64", None)
        states = np.random.default_rng(n).uniform(-1.0, 1.0, (3, _STATES if n <= _SEVERAL else 1, n))
        states[0] *= np.pi
        self.q, self.qd, self.qdd = states.astype(np.float32).astype(np.float64)
        self.torques = self.dyn.inverse_dynamics(self.q, self.qd, self.qdd)
        self.tau = self.torques.astype(np.float32).astype(np.float64)

    def engine(self, dtype: str, options: dict[str, Any] | None) -> rd.Dynamics:
        """The scan engine with options; the CPU engine for None."""
        if options is None:
            return rd.Dynamics(self.model, engine="cpu", threads=1, code="rolled", dtype=dtype, check=False)
        return rd.Dynamics(self.model, engine="scan", scan=ScanOptions(**options), dtype=dtype, check=False)

    def given(self, dtype: str, *names: str) -> list[np.ndarray]:
        """Inputs in a precision."""
        return [getattr(self, name).astype(dtype) for name in names]

    def residual(self, qdd: np.ndarray) -> float:
        """Of forward dynamics: torques that the accelerations need, less those given."""
        needed = self.dyn.inverse_dynamics(self.q, self.qd, qdd.astype(np.float64))
        return float(np.abs(needed - self.tau).max() / np.abs(self.tau).max())


class Run:
    """Measures errors: points whose `off_by` is the error."""

    def __init__(self, sizes: Sequence[int], largest: int, announce: Callable[[str], object]) -> None:
        self.sizes, self.largest, self.announce = sizes, largest, announce
        self.budget, self.points = Budget(limit=LIMIT), list[Point]()

    def add(self, what: str, judge: Judge, series: str, dtype: str, call: Any, check: Any) -> None:
        """One error."""
        point = Point(f"{what}, {judge.shape}", series, judge.model.n_bodies, dtype=dtype)
        self.points.append(self.budget.measure(point, point.n, lambda: call, check, wrong=float("inf"), once=True))

    def everything(self) -> list[Point]:
        """Inverse and forward dynamics, mass matrices, the constraint force algorithm."""
        with bounded_memory():
            for shape in SHAPES:
                for n in (n for n in self.sizes if n <= self.largest):
                    self.announce(f"{shape}, n = {n:,}")
                    judge = Judge(shape, n)
                    for dtype in DTYPES:
                        self._inverse(judge, dtype)
                        self._forward(judge, dtype)
                        if n in MATRIX_SIZES:
                            self._matrix(judge, dtype)
            for n in (n for n in CFA_SIZES if n <= self.largest):
                self.announce(f"constraint forces, n = {n:,}")
                self._constraint_forces(Judge("chain", n))
        return self.points

    def _inverse(self, judge: Judge, dtype: str) -> None:
        check = partial(difference, wanted=judge.torques)
        given = judge.given(dtype, "q", "qd", "qdd")
        for series, (method, options) in (INVERSE | KERNELS).items():
            call = partial(judge.engine(dtype, options).inverse_dynamics, *given, method=method)
            self.add("ID", judge, series, dtype, call, check)
        self.add("ID", judge, RECURSION, dtype, partial(judge.engine(dtype, None).inverse_dynamics, *given), check)

    def _forward(self, judge: Judge, dtype: str) -> None:
        given = judge.given(dtype, "q", "qd", "tau")
        for method in (RECURSION, *FORWARD):
            dyn = judge.engine(dtype, None if method == RECURSION else {})
            call = partial(dyn.forward_dynamics, *given, method="auto" if method == RECURSION else method)
            self.add("FD", judge, method, dtype, call, judge.residual)

    def _matrix(self, judge: Judge, dtype: str) -> None:
        check = partial(difference, wanted=judge.dyn.mass_matrix(judge.q))
        for series, options in (MATRIX | {RECURSION: None}).items():
            call = partial(judge.engine(dtype, options).mass_matrix, *judge.given(dtype, "q"))
            self.add("H", judge, series, dtype, call, check)

    def _constraint_forces(self, judge: Judge) -> None:
        for dtype in DTYPES:
            for series, options in CFA.items():
                dyn = judge.engine(dtype, options)
                call = partial(dyn.forward_dynamics, *judge.given(dtype, "q", "qd", "tau"), method="cfa")
                self.add("CFA", judge, series, dtype, call, judge.residual)


# What came out.


def table(points: Sequence[Point], what: str, columns: Sequence[str], dtype: str) -> Cells:
    """A row for each shape and size; "-" where there is none."""
    found = {(p.group, p.n, p.series): p for p in points if p.dtype == dtype}
    if what in ("ID", "H") and dtype == DTYPES[0]:  # what they are compared with
        columns = [column for column in columns if column != RECURSION]
    rows = []
    for group, n in dict.fromkeys((p.group, p.n) for p in points if p.group.startswith(f"{what}, ")):
        errors = [found.get((group, n, series)) for series in columns]
        cells = ["-" if p is None or p.off_by is None else f"{p.off_by:.0e}" for p in errors]
        rows.append((group.split(", ")[1], f"{n:,}", *cells))
    return Cells(f"{what}, {dtype}", ("tree", "bodies ", *(f"{column} " for column in columns)), rows)


SECTIONS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "Inverse dynamics",
        "ID",
        "Largest difference from the CPU engine in double precision, relative to the largest torque. *paths*: heavy "
        "paths; *tour*: the Euler tour; blocks of 64. *cpu*: the CPU engine in single precision.",
        (*INVERSE, RECURSION),
    ),
    ("Inverse dynamics by kernels", "ID", "Likewise, by the other kernels.", tuple(KERNELS)),
    (
        "Mass matrix",
        "H",
        "Largest difference from the CPU engine in double precision, relative to the largest entry.",
        (*MATRIX, RECURSION),
    ),
    (
        "Forward dynamics",
        "FD",
        "The torques that the accelerations need, by the CPU engine in double precision, less those given, relative to "
        "the largest of those. *cpu*: the recursion of the CPU engine.",
        (RECURSION, *FORWARD),
    ),
    (
        "Forward dynamics by constraint forces",
        "CFA",
        "Likewise, of method `cfa` on chains, by the basis of constraint forces and the solver.",
        tuple(CFA),
    ),
)
"""Heading, what, text, columns."""


def page(points: Sequence[Point], about: dict[str, str], plot: str | None) -> str:
    """docs/benchmarks/scan-accuracy.md."""
    lines = [
        "# Scans on trees: accuracy",
        "",
        f"Written by `python tests/scan_accuracy.py --write`. Trees of Featherstone's autoTree, skew {SKEW}, random",
        f"states that single precision holds exactly; the worst of {_STATES} up to {_SEVERAL:,} bodies, one beyond.",
        f"A dash: not measured, for want of memory or because a call would take more than {LIMIT:g} s.",
        "",
        f"Measured on: {facts(about)}.",
    ]
    if plot is not None:
        lines += ["", f"![Errors by the number of bodies, double precision]({plot})"]
    for heading, what, text, columns in SECTIONS:
        lines += ["", f"## {heading}", "", text]
        for dtype in DTYPES:
            lines += ["", f"{dtype}:", "", *table(points, what, columns, dtype).markdown()]
    why = [
        f"- {group}, {dtype}: {remark}"
        for group, dtype in dict.fromkeys((p.group, p.dtype) for p in points)
        for remark in remarks([p for p in points if (p.group, p.dtype) == (group, dtype)])
    ]
    lines += ["", "## What was not measured, or is no number", "", *why] if why else []
    return "\n".join(lines) + "\n"


_PANELS = (
    ("ID, chain", tuple(INVERSE)),
    ("ID, branching 2", tuple(INVERSE)),
    ("ID, caterpillar", tuple(INVERSE)),
    ("FD, chain", (RECURSION, *FORWARD)),
    ("FD, branching 2", (RECURSION, *FORWARD)),
    ("CFA, chain", tuple(CFA)),
)


def draw(points: Sequence[Point], path: Path) -> bool:
    """Errors against bodies in double precision. False where matplotlib is not installed."""
    plt = pyplot()
    if plt is None:
        return False
    figure, axes = plt.subplots(2, 3, figsize=(12.0, 8.0), layout="constrained")
    for panel, (group, columns) in zip(axes.flat, _PANELS, strict=True):
        for k, series in enumerate(columns):
            mine = [p for p in points if (p.group, p.series, p.dtype) == (group, series, "float64") and p.off_by]
            style = {"linestyle": "--" if series.endswith("tour") else "-", "marker": "o", "markersize": 3}
            color = COLORS[k % 3 if group.startswith("ID") else k]
            panel.plot([p.n for p in mine], [p.off_by for p in mine], label=series, color=color, **style)
        panel.set(xscale="log", yscale="log", title=group, xlabel="bodies", ylabel="error")
        panel.grid()
        panel.legend()
    save(plt, figure, path)
    return True


def main(arguments: Sequence[str], folder: Path = FOLDER) -> None:
    """Measure everything; print it or write it."""
    sizes = LARGE if "--large" in arguments else SIZES
    largest = next((int(a.split("=")[1]) for a in arguments if a.startswith("--largest=")), max(sizes))
    points = Run(sizes, largest, partial(print, file=sys.stderr)).everything()
    if "--write" not in arguments:
        print(page(points, header(), None))
        return
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(points, folder / "scan-accuracy.svg")
    (folder / "scan-accuracy.md").write_text(page(points, header(), "scan-accuracy.svg" if drawn else None))


if __name__ == "__main__":
    main(sys.argv[1:])
