"""The experiments of Yang, Wu and Pan (2016a: figures 1 to 3; 2016b: figures 2 and 3) with our engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from robodyn.engines.scan.methods import methods_of
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import finish, legend, panels, pyplot
from tests.bench.experiments import Case, Contender, Curves, Experiment, Measured, remarks_by
from tests.bench.gpu.machine import Machine, find_machine
from tests.bench.points import Point, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, bullets, markdown, picture, show, titled
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
_SAME = {"2016b figure 3": "2016a figure 3"}
"""Figures of which one picture is enough."""
GROUPS_SHOWN = tuple(dict.fromkeys(group for groups in FIGURES.values() for group in groups))


def measure(run: Run) -> Measured:
    """All points whose names, "papers: 2016a figure 2, inverse dynamics, 10 links, scan rnea", are selected."""
    machine, missing = find_machine()
    found = experiments.measure(plan(machine), _problem, run)
    found.missing = missing
    if machine is not None and found.points:
        found.machine = machine.facts
    return found


def plan(machine: Machine | None) -> list[Experiment]:
    """All experiments; each is measured once, whichever figures show it."""
    found = []
    for group in GROUPS_SHOWN:
        one = group.endswith("one robot")
        links = None if one else int(group.rpartition(", ")[2].split()[0])
        cases = [Case(links, batch=batch) for batch in GROUPS] if links else [Case(n) for n in LINKS]
        figures = ", ".join(name for name, groups in FIGURES.items() if group in groups)
        found.append(Experiment(group, f"papers: {figures},", contenders(_query(group), machine), cases))
    return found


def _query(group: str) -> str:
    return INVERSE if group.startswith(WORDS[INVERSE]) else FORWARD


def contenders(query: str, machine: Machine | None) -> list[Contender]:
    """Recursions, scans on NumPy arrays, and what runs on a GPU if there is one."""
    threads: dict[str, int | None] = {ONE: 1, SEVERAL: None}
    found = [on_cpu(SERIAL[query].replace(ONE, words), query, "cpu", n) for words, n in threads.items()]
    if query == FORWARD:
        found += [on_cpu(f"crba, {words}", query, "cpu", n, method="crba") for words, n in threads.items()]
    found += [on_cpu(f"scan {name}", query, "scan", method=name) for name in methods_of(query)]
    if machine is not None:
        found += [on_gpu(f"scan {name}, GPU", query, "scan", machine, method=name) for name in methods_of(query)]
        found.append(on_gpu("GPU engine", query, "gpu", machine))
    return found


def _problem(case: Case) -> Problem:
    return Problem(tree(case.n, case.branching, SKEW), case.batch)


# What came out.


def curves_of(points: Sequence[Point], group: str) -> Curves:
    """Over links or over groups."""
    mine = [point for point in points if point.group == group]
    return Curves(mine, "n", "links") if group.endswith("one robot") else Curves(mine, "batch", "groups")


def measured_groups(points: Sequence[Point], start: str = "") -> list[str]:
    """In the order of the figures."""
    there = {p.group for p in points}
    return [group for group in GROUPS_SHOWN if group in there and group.startswith(start)]


def times_of(points: Sequence[Point]) -> list[Cells]:
    """Times by group."""
    made = []
    for group in measured_groups(points):
        table = curves_of(points, group).table(group, 1.0, SERIAL[_query(group)])
        made.append(Cells(group, table.columns, table.rows))
    return made


# What the papers say of them.


def claims(points: Sequence[Point]) -> Cells:
    """Each with its place, and what our figures say."""
    rows = [(each.where, each.said, _answer(points, each)) for each in published.SCANS_2016]
    return Cells("Claims", ("where", "there", "here"), rows)


def _answer(points: Sequence[Point], claim: published.Claim) -> str:
    groups = measured_groups(points, claim.group)
    if claim.ask == "speed-up":
        return _speed_ups(points, groups) or NOT_MEASURED
    lines = [line for group in groups for line in _LOOKS[claim.ask](curves_of(points, group), group, claim.series)]
    return "; ".join(lines) or NOT_MEASURED


def _speed_ups(points: Sequence[Point], groups: Sequence[str]) -> str:
    """The largest over the recursion on one thread, of threads, of scans and of what runs on a GPU."""
    best: dict[str, tuple[float, str]] = {}
    for group in groups:
        curves, against = curves_of(points, group), SERIAL[_query(group)]
        others = [series for series in curves.series(group) if series.startswith("scan") or ONE not in series]
        for series in others:
            kind = "on a GPU" if "GPU" in series else "scans on NumPy arrays" if series.startswith("scan") else SEVERAL
            for size in curves.sizes(group):
                ratio = curves.ratio(group, 1.0, against, series, size)
                if ratio is not None and ratio > best.get(kind, (0.0, ""))[0]:
                    best[kind] = ratio, f"{series}, {group}, {curves.unit} = {size:,}"
    return "; ".join(f"{kind}: at most {ratio:.3g} x ({where})" for kind, (ratio, where) in best.items())


def _names(series: Sequence[str], there: Sequence[str]) -> list[list[str]]:
    """Names of points for names of a claim, on NumPy arrays and on a GPU."""
    usual = [name if name in there else f"scan {name}" for name in series]
    on_gpus = [f"{name}, GPU" if f"{name}, GPU" in there else name for name in usual]
    return [usual] if on_gpus == usual else [usual, on_gpus]


def _growth(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for name in dict.fromkeys(name for names in _names(series, curves.series(group)) for name in names):
        known = [(n, t) for n in curves.sizes(group) if (t := curves.seconds(group, 1.0, name, n))]
        if len(known) > 1:
            (first, start), (last, end) = known[0], known[-1]
            lines.append(f"{name}: {end / start:.3g} times as long at {last:,} {curves.unit} as at {first:,}")
    return lines


def _order(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for names in _names(series, curves.series(group)):
        shown = {n: {x: t for x in names if (t := curves.seconds(group, 1.0, x, n))} for n in curves.sizes(group)}
        compared = [n for n, found in shown.items() if len(found) > 1]
        for n in dict.fromkeys((compared[0], compared[-1])) if compared else ():
            ordered = sorted(shown[n].items(), key=lambda item: item[1])
            lines.append(f"{curves.unit} = {n:,}: " + ", ".join(f"{name} {show(seconds)}" for name, seconds in ordered))
    return lines


def _overtaking(curves: Curves, group: str, series: Sequence[str]) -> list[str]:
    lines = []
    for fast, *slower in _names(series, curves.series(group)):
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


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    exact, by_forces = ([p for p in found.points if ("cfa" in p.series) == cfa] for cfa in (False, True))
    ordered = [point for group in measured_groups(found.points) for point in found.points if point.group == group]
    drawn = [f"## {figure}\n\n{picture(figure, name)}" for figure, name in pictures.items()]
    return {
        "threads": str(found.threads),
        "gpu": _without_gpu(found) or "*GPU*: arrays on it; a call is waited for.",
        "difference": worst_difference(exact),
        "difference_cfa": worst_difference(by_forces),
        "claims": markdown(claims(found.points)),
        "pictures": "\n\n".join(drawn),
        "tables": titled(times_of(found.points)),
        "missing": bullets(remarks_by(ordered, "group", how=lambda group: f"{group}, ")),
    }


NO_GPU = "GPU: not measured on this machine; see the [same experiments on an H200](h200/papers.md)."


def _without_gpu(found: Measured) -> str:
    return f"{NO_GPU} {found.missing}" if found.missing else ""


def draw(found: Measured, folder: Path) -> Pictures:
    """Write papers-2016a-1.svg and so on, of the figures of which there are points."""
    points, made = [point for point in found.points if point.best_s], {}
    for figure, groups in FIGURES.items() if pyplot() is not None else ():
        there = [group for group in groups if group in measured_groups(points)]
        if there:
            made[figure] = f"papers-{_SAME.get(figure, figure).replace(' figure ', '-')}.svg"
            if figure not in _SAME:
                _draw(points, there, folder / made[figure])
    return made


def _draw(points: Sequence[Point], groups: Sequence[str], path: Path) -> None:
    with panels(path, 1, len(groups), (4.8 * len(groups), 4.6)) as (figure, axes):
        for panel, group in zip(axes[0], groups, strict=True):
            curves = curves_of(points, group)
            curves.draw(panel, group, 1.0)
            finish(panel, group, "seconds of a call", curves.unit)
        legend(figure, axes)


PAGE = Page(
    "papers",
    Measured,
    measure,
    tables=lambda found: [*times_of(found.points), claims(found.points)],
    notes=lambda found: filter(None, [_without_gpu(found)]),
    blocks=blocks,
    draw=draw,
    seconds=0.05,
    limit=3.0,
)
