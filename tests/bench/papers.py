"""The experiments of Yang, Wu and Pan (2016a: figures 1 to 3; 2016b: figures 2 and 3) with our engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from robodyn.engines.scan.methods import methods_of
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import finish, legend, panels
from tests.bench.experiments import FORWARD, INVERSE, Case, Contender, Curves, Experiment, Measured
from tests.bench.gpu.machine import Machine, find_machine
from tests.bench.points import Point, remarks, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, bullets, columns, markdown, picture, show, titled

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
    found = experiments.measure(plan(machine), SKEW, run)
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
    found = [Contender(SERIAL[query].replace(ONE, words), query, "cpu", n) for words, n in threads.items()]
    if query == FORWARD:
        crba = {"method": "crba"}
        found += [Contender(f"crba, {words}", query, "cpu", n, options=crba) for words, n in threads.items()]
    for on, where in (("", None), (", GPU", machine))[: 1 if machine is None else 2]:
        found += [
            Contender(f"scan {method}{on}", query, "scan", machine=where, options={"method": method})
            for method in methods_of(query)
        ]
    return found if machine is None else [*found, Contender("GPU engine", query, "gpu", machine=machine)]


# What came out.


def curves_of(points: Sequence[Point], start: str = "") -> list[Curves]:
    """Over links or over groups, in the order of the figures."""
    units = {group: "links" if group.endswith("one robot") else "groups" for group in GROUPS_SHOWN}
    found = [Curves(points, group, unit=unit) for group, unit in units.items() if group.startswith(start)]
    return [curves for curves in found if curves.points]


def times_of(points: Sequence[Point]) -> list[Cells]:
    return [curves.table(curves.group, SERIAL[_query(curves.group)]) for curves in curves_of(points)]


# What the papers say of them.


def claims(points: Sequence[Point]) -> Cells:
    """Each with its place, and what our figures say."""
    rows = [(each.where, each.said, _answer(points, each)) for each in published.SCANS_2016]
    return Cells("Claims", columns("where|there|here"), rows)


def _answer(points: Sequence[Point], claim: Any) -> str:
    there = curves_of(points, claim.group)
    if claim.ask == "speed-up":
        return _speed_ups(there) or NOT_MEASURED
    look = {"growth": _growth, "order": _order, "overtaking": _overtaking}[claim.ask]
    lines = []
    for curves in there:
        usual = [name if name in curves.series else f"scan {name}" for name in claim.series]
        on_gpus = [f"{name}, GPU" if f"{name}, GPU" in curves.series else name for name in usual]
        lines += [line for names in ([usual] if on_gpus == usual else [usual, on_gpus]) for line in look(curves, names)]
    return "; ".join(dict.fromkeys(lines)) or NOT_MEASURED


def _speed_ups(there: Sequence[Curves]) -> str:
    """The largest over the recursion on one thread, of threads, of scans and of what runs on a GPU."""
    best: dict[str, tuple[float, str]] = {}
    for curves in there:
        for series in (series for series in curves.series if series.startswith("scan") or ONE not in series):
            kind = "on a GPU" if "GPU" in series else "scans on NumPy arrays" if series.startswith("scan") else SEVERAL
            for n, ratio in curves.known(series, over=SERIAL[_query(curves.group)]):
                if ratio > best.get(kind, (0.0, ""))[0]:
                    best[kind] = ratio, f"{series}, {curves.group}, {curves.unit} = {n:,}"
    return "; ".join(f"{kind}: at most {ratio:.3g} x ({where})" for kind, (ratio, where) in best.items())


def _growth(curves: Curves, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        known = curves.known(name)
        if len(known) > 1:
            (first, start), (last, end) = known[0], known[-1]
            yield f"{name}: {end / start:.3g} times as long at {last:,} {curves.unit} as at {first:,}"


def _order(curves: Curves, names: Sequence[str]) -> Iterator[str]:
    known = {name: dict(curves.known(name)) for name in names}
    shown = [n for n in map(curves.shown, curves.sizes) if sum(n in each for each in known.values()) > 1]
    for n in shown[:: max(1, len(shown) - 1)]:
        ordered = sorted((each[n], name) for name, each in known.items() if n in each)
        yield f"{curves.unit} = {n:,}: " + ", ".join(f"{name} {show(seconds)}" for seconds, name in ordered)


def _overtaking(curves: Curves, names: Sequence[str]) -> Iterator[str]:
    fast, *slower = names
    for slow, ratios in ((slow, curves.known(fast, over=slow)) for slow in slower):
        if not ratios:
            continue
        (first, _), (last, at_last) = ratios[0], ratios[-1]
        behind = max((n for n, ratio in ratios if ratio <= 1.0), default=0)
        ahead = [n for n, _ in ratios if n > behind]
        if not ahead:
            yield f"{fast} is not faster than {slow} up to {last:,} {curves.unit} ({at_last:.3g} x)"
        else:
            begin = f"from {ahead[0]:,} on" if ahead[0] > first else "everywhere"
            yield f"{fast} is faster than {slow} {begin} ({at_last:.3g} x at {last:,} {curves.unit})"


# The page.


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    exact, by_forces = ([p for p in found.points if ("cfa" in p.series) == cfa] for cfa in (False, True))
    ordered = [point for curves in curves_of(found.points) for point in curves.points]
    drawn = [f"## {figure}\n\n{picture(figure, name)}" for figure, name in pictures.items()]
    return {
        "threads": str(found.threads),
        "gpu": _without_gpu(found) or "*GPU*: arrays on it; a call is waited for.",
        "difference": worst_difference(exact),
        "difference_cfa": worst_difference(by_forces),
        "claims": markdown(claims(found.points)),
        "pictures": "\n\n".join(drawn),
        "tables": titled(times_of(found.points)),
        "missing": bullets(remarks(ordered, grouped=True)),
    }


NO_GPU = "GPU: not measured on this machine; see the [same experiments on an H200](h200/papers.md)."


def _without_gpu(found: Measured) -> str:
    return f"{NO_GPU} {found.missing}" if found.missing else ""


def draw(found: Measured, folder: Path) -> Pictures:
    """Write papers-2016a-1.svg and so on, of the figures of which there are points."""
    points, made = [point for point in found.points if point.best_s], {}
    for figure, groups in FIGURES.items():
        there = sorted((c for c in curves_of(points) if c.group in groups), key=lambda c: groups.index(c.group))
        if there:
            made[figure] = f"papers-{_SAME.get(figure, figure).replace(' figure ', '-')}.svg"
        if there and figure not in _SAME:
            with panels(folder / made[figure], 1, len(there), (4.8 * len(there), 4.6)) as (drawn, axes):
                for panel, curves in zip(axes[0], there, strict=True):
                    curves.draw(panel)
                    finish(panel, curves.group, "seconds of a call", curves.unit)
                legend(drawn, axes)
    return made


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
