"""The experiments of Yang, Wu and Pan (2016a: figures 1 to 3; 2016b: figures 2 and 3) with our engines.

`python -m tests.bench papers 2016 --write`; without "2016" those of the thesis too (`tests.bench.thesis`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robodyn.engines.scan.methods import methods_of
from robodyn.tools.benchmark.contenders import available_threads
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import curve, finish, legend, look, pyplot, save
from tests.bench.experiments import Case, Contender, Curves, Experiment
from tests.bench.gpu.machine import Machine
from tests.bench.points import NOT_MEASURED, Budget, Point, remarks, worst_difference
from tests.bench.shared import facts, show
from tests.bench.trees import FORWARD, INVERSE, Problem, on_cpu, on_gpu, tree

LINKS = (10, 20, 50, 100, 200, 500, 1000)
GROUPS = (1, 3, 10, 30, 100, 300, 1000)
SKEW = 0.3
"""Of joints against their parents': the papers draw twists at random."""
ONE, SEVERAL = "one thread", "all threads"
SERIAL = {INVERSE: f"rnea, {ONE}", FORWARD: f"aba, {ONE}"}
"""What others are compared with: our compiled recursion."""
WORDS = {INVERSE: "inverse dynamics", FORWARD: "forward dynamics"}

FIGURES: dict[str, tuple[str, ...]] = {
    "2016a figure 1": (f"{WORDS[INVERSE]}, one robot", f"{WORDS[FORWARD]}, one robot"),
    "2016a figure 2": (f"{WORDS[INVERSE]}, 10 links", f"{WORDS[INVERSE]}, 100 links"),
    "2016a figure 3": (f"{WORDS[FORWARD]}, 10 links", f"{WORDS[FORWARD]}, 200 links"),
    "2016b figure 2": (f"{WORDS[FORWARD]}, one robot",),
    "2016b figure 3": (f"{WORDS[FORWARD]}, 10 links", f"{WORDS[FORWARD]}, 200 links"),
}
"""Groups of points that a figure shows, (a) before (b)."""


def plan(machine: Machine | None) -> list[Experiment]:
    """All experiments; each is measured once, whichever figures show it."""
    chains = [Case(n) for n in LINKS]
    found = []
    for group in dict.fromkeys(group for groups in FIGURES.values() for group in groups):
        query = INVERSE if group.startswith(WORDS[INVERSE]) else FORWARD
        one = group.endswith("one robot")
        cases = chains if one else [Case(links_of(group), batch=batch) for batch in GROUPS]
        figures = ", ".join(name for name, groups in FIGURES.items() if group in groups)
        found.append(Experiment(group, f"papers: {figures},", contenders(query, machine), cases))
    return found


def links_of(group: str) -> int:
    """Of the robots whose number grows."""
    return int(group.rpartition(", ")[2].split()[0])


def contenders(query: str, machine: Machine | None) -> list[Contender]:
    """Recursions, scans on NumPy arrays, and what runs on a GPU if there is one."""
    found = [on_cpu(SERIAL[query], query, "cpu")]
    found.append(on_cpu(SERIAL[query].replace(ONE, SEVERAL), query, "cpu", None))
    if query == FORWARD:
        found.append(on_cpu(f"crba, {ONE}", query, "cpu", method="crba"))
        found.append(on_cpu(f"crba, {SEVERAL}", query, "cpu", None, method="crba"))
    found += [on_cpu(f"scan {name}", query, "scan", method=name) for name in methods_of(query)]
    if machine is not None:
        there = methods_of(query)
        found += [on_gpu(f"scan {name}, GPU", query, "scan", machine, method=name) for name in there]
        found.append(on_gpu("GPU engine", query, "gpu", machine))
    return found


def measure(
    machine: Machine | None,
    selected: Callable[[str], bool],
    budget: Budget,
    largest: int,
    announce: Callable[[str], object],
) -> list[Point]:
    """All points whose names, "papers: 2016a figure 2, inverse dynamics, 10 links, scan rnea", are selected."""
    return experiments.measure(plan(machine), _problem, selected, budget, largest, announce)


def _problem(case: Case) -> Problem:
    return Problem(tree(case.n, case.branching, SKEW), case.batch)


# What came out.


def curves_of(points: Sequence[Point], group: str) -> Curves:
    """Over links or over groups."""
    mine = [point for point in points if point.group == group]
    return Curves(mine, "n", "links") if group.endswith("one robot") else Curves(mine, "batch", "groups")


def serial_of(group: str) -> str:
    """The series that others of the group are compared with."""
    return SERIAL[INVERSE if group.startswith(WORDS[INVERSE]) else FORWARD]


def measured_groups(points: Sequence[Point]) -> list[str]:
    """In the order of the figures."""
    there = {p.group for p in points}
    return [group for group in dict.fromkeys(g for groups in FIGURES.values() for g in groups) if group in there]


def tables(points: Sequence[Point]) -> list[Cells]:
    """Times by group."""
    found = []
    for group in measured_groups(points):
        times = curves_of(points, group).times(group, 1.0, serial_of(group))
        found.append(Cells(group, times.columns, times.rows))
    return found


# What the papers say of them.


def claims(points: Sequence[Point]) -> Cells:
    """Each with its place, and what our figures say."""
    rows = [(each.where, each.said, _found(points, each)) for each in published.SCANS_2016]
    return Cells("Claims", ("where", "there", "here"), rows)


def _found(points: Sequence[Point], claim: published.Claim) -> str:
    groups = [group for group in measured_groups(points) if group.startswith(claim.group)]
    if claim.ask == "speed-up":
        return _speed_ups(points, groups) or NOT_MEASURED
    lines = [line for group in groups for line in _LOOKS[claim.ask](curves_of(points, group), group, claim.series)]
    return "; ".join(lines) or NOT_MEASURED


def _speed_ups(points: Sequence[Point], groups: Sequence[str]) -> str:
    """The largest over the recursion on one thread, of threads, of scans and of what runs on a GPU."""
    best: dict[str, tuple[float, str]] = {}
    for group in groups:
        curves, against = curves_of(points, group), serial_of(group)
        others = [series for series in curves.series(group) if series.startswith("scan") or ONE not in series]
        for series in others:
            kind = "on a GPU" if "GPU" in series else "scans on NumPy arrays" if series.startswith("scan") else SEVERAL
            for size in curves.sizes(group):
                ratio = curves.ratio(group, 1.0, against, series, size)
                if ratio is not None and ratio > best.get(kind, (0.0, ""))[0]:
                    best[kind] = ratio, f"{series}, {group}, {curves.unit} = {size:,}"
    return "; ".join(f"{kind}: at most {ratio:.3g} x ({where})" for kind, (ratio, where) in best.items())


def _places(series: Sequence[str], there: Sequence[str]) -> list[list[str]]:
    """Names of points for names of a claim, on NumPy arrays and on a GPU."""
    usual = [name if name in there else f"scan {name}" for name in series]
    on_gpus = [f"{name}, GPU" if f"{name}, GPU" in there else name for name in usual]
    return [usual] if on_gpus == usual else [usual, on_gpus]


def _growth(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for name in dict.fromkeys(name for names in _places(series, curves.series(group)) for name in names):
        known = [(n, t) for n in curves.sizes(group) if (t := curves.seconds(group, 1.0, name, n))]
        if len(known) > 1:
            (first, start), (last, end) = known[0], known[-1]
            lines.append(f"{name}: {end / start:.3g} times as long at {last:,} {curves.unit} as at {first:,}")
    return lines


def _order(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for names in _places(series, curves.series(group)):
        shown = {n: {x: t for x in names if (t := curves.seconds(group, 1.0, x, n))} for n in curves.sizes(group)}
        compared = [n for n, found in shown.items() if len(found) > 1]
        for n in dict.fromkeys((compared[0], compared[-1])) if compared else ():
            ordered = sorted(shown[n].items(), key=lambda item: item[1])
            lines.append(f"{curves.unit} = {n:,}: " + ", ".join(f"{name} {show(seconds)}" for name, seconds in ordered))
    return lines


def _overtaking(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for fast, *slower in _places(series, curves.series(group)):
        for slow in slower:
            ratios = [(n, r) for n in curves.sizes(group) if (r := curves.ratio(group, 1.0, slow, fast, n))]
            if not ratios:
                continue
            (first, _), (last, at_last) = ratios[0], ratios[-1]
            behind = max((n for n, ratio in ratios if ratio <= 1.0), default=0)
            ahead = [n for n, _ in ratios if n > behind]
            if not ahead:
                lines.append(f"{fast} is not faster than {slow} up to {last:,} {curves.unit} ({at_last:.3g} x)")
            else:
                begin = f"from {ahead[0]:,} on" if ahead[0] > first else "everywhere"
                lines.append(f"{fast} is faster than {slow} {begin} ({at_last:.3g} x at {last:,} {curves.unit})")
    return lines


_LOOKS: dict[str, Callable[[Curves, str, Sequence[str]], list[str]]] = {
    "growth": _growth,
    "order": _order,
    "overtaking": _overtaking,
}


# The page.


def document(points: Sequence[Point], about: dict[str, str], budget: Budget) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {
        **about,
        "seconds": budget.seconds,
        "limit_s": budget.limit,
        "skew": SKEW,
        "points": [point.record() for point in points],
        "published": {
            "source": published.SCANS_SOURCE,
            "hardware": published.SCANS_HARDWARE,
            "claims": [asdict(claim) for claim in published.SCANS_2016],
        },
    }


NO_GPU = "GPU: not measured on this machine; see the [same experiments on an H200](h200/papers.md)."


def page(points: Sequence[Point], about: dict[str, str], missing: str, plots: dict[str, str]) -> str:
    """The page of docs/benchmarks; `missing`: why nothing was measured on a GPU; `plots`: files by figure."""
    lines = [
        "# Scans on chains: the experiments of Yang, Wu and Pan",
        "",
        "Printed by `python -m tests.bench papers 2016 --write`: figures 1 to 3 of 2016a and 2 and 3 of 2016b",
        "([references](../references.md)) with our engines. `python -m tests.bench papers --write` draws those of the",
        "[thesis](thesis.md) too. Shared machines drift: compare within one run.",
        "",
        f"Measured on: {facts(about)}, {available_threads()} threads; float64; the best of several calls.",
        "",
        f"Chains of Featherstone's autoTree (skew {SKEW}), random states. A *group* is one state of a robot: a call",
        "answers all groups. *rnea*, *aba* and *crba* are our compiled recursions, on one thread or on all; *crba*",
        "makes the mass matrix and factorises it, where the papers' serial JSIIA inverts what inverse dynamics of",
        'every column make. *scan*: the methods of `engine="scan"` on NumPy arrays, which run on one core but for',
        "LAPACK's factorisations. In parentheses: how many times faster than the recursion on one thread.",
        "",
    ]
    lines += [f"{NO_GPU} {missing}", ""] if missing else ["*GPU*: arrays on it; a call is waited for.", ""]
    lines += [
        f"Largest difference of an answer: {worst_difference([p for p in points if 'cfa' not in p.series])}, of `cfa` "
        f"{worst_difference([p for p in points if 'cfa' in p.series])}: of torques relative to the largest, of "
        "accelerations by the torques that they need, relative to the largest bias force.",
        "",
        f"## {claims(points).title}",
        "",
        published.SCANS_NOTE,
        "",
        *claims(points).markdown(),
    ]
    for figure, name in plots.items():
        lines += ["", f"## {figure}", "", f"![{figure}]({name})"]
    lines += ["", "## Times"]
    for table in tables(points):
        lines += ["", f"{table.title}:", "", *table.markdown()]
    why = [f"- {group}, {each}" for group in measured_groups(points) for each in _remarks(points, group)]
    lines += ["", "## What was not measured", "", *why] if why else []
    return "\n".join(lines) + "\n"


def _remarks(points: Sequence[Point], group: str) -> list[str]:
    return remarks([point for point in points if point.group == group])


def draw(points: Sequence[Point], folder: Path) -> dict[str, str]:
    """Write papers-2016a-1.svg and so on, of the figures of which there are points: names of files by figure."""
    plt, found = pyplot(), {}
    points = [point for point in points if point.best_s]
    for figure, groups in FIGURES.items() if plt is not None else ():
        there = [group for group in groups if group in measured_groups(points)]
        if there:
            name = f"papers-{figure.replace(' figure ', '-')}.svg"
            save(plt, _drawn(plt, points, there), folder / name)
            found[figure] = name
    return found


def _drawn(plt: Any, points: Sequence[Point], groups: Sequence[str]) -> Any:
    figure, axes = plt.subplots(1, len(groups), figsize=(4.8 * len(groups), 4.6), squeeze=False, layout="constrained")
    for panel, group in zip(axes[0], groups, strict=True):
        curves = curves_of(points, group)
        for k, series in enumerate(curves.series(group)):
            curve(
                panel, curves.sizes(group), lambda n, c=curves, g=group, s=series: c.seconds(g, 1.0, s, n),
                label=series, **look(k),
            )  # fmt: skip
        finish(panel, group, "seconds of a call", curves.unit)
    legend(figure, axes[0][0])
    return figure
