"""Queries on four robots, beside every peer that is installed; the first answer; one huge tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.compare import Report, Result, compare, find_peers
from robodyn.tools.benchmark.contenders import USUAL, Peer, RefusedError
from robodyn.tools.benchmark.tables import HEADLINE, Cells, footnotes
from robodyn.tools.benchmark.tables import tables as tables_of
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.cold import First, first_answer
from tests.bench.drawing import finish, legend, panels
from tests.bench.experiments import Problem
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, ROBOTS, bullets, columns, failing_alone, markdown, picture, robot, titled

_SUMMARY_BATCH = 4096
_FIRST = (
    *(("arm7", query) for query in ("inverse_dynamics", "forward_dynamics")),
    *(("humanoid", query) for query in ("inverse_dynamics", "forward_dynamics", "forward_dynamics_gradient")),
)
_SHAPES = {"chain": 1, "binary": 2}
_DRAWN = ("inverse_dynamics", "forward_dynamics")
BODIES = 1_000_000
_CHECKED_BODIES, _TOLERANCE = 1000, 1e-9


@dataclass
class Huge:
    """Nanoseconds for each body, one thread; `problem` says why there are none.

    `off_by` is how far the engine is from the reference engine on a tree of the same shape and fewer bodies: forces
    relative to the largest, for forward dynamics those that its accelerations need.
    """

    shape: str
    query: str
    engine: str
    bodies: int = BODIES
    best_ns: float | None = None
    median_ns: float | None = None
    off_by: float | None = None
    problem: str = ""


@dataclass
class Results:
    """Everything that was measured."""

    reports: list[Report]
    huge: list[Huge]
    first: list[First]


def measure(run: Run) -> Results:
    """Run the cases whose names are selected: "dynamics: ROBOT, QUERY", "first answer: ...", "huge tree: ..."."""
    found, settings = Results([], [], []), run.settings
    for name, base in ROBOTS.items():
        queries = tuple(query for query in settings.queries if run.selected(f"dynamics: {name}, {query}"))
        if queries:
            model = robot(name)
            peers, reasons = _peers(model)
            asked = replace(settings, queries=queries)
            report = compare(model, asked, peers, robot=f"{name}, {base} base", announce=run.announce)
            report.notes += reasons
            found.reports.append(report)
    for name, query in _FIRST:
        if run.chosen(f"first answer: {name}, {query}"):
            found.first.append(first_answer(name, query, settings.engine))
    for shape in _SHAPES:
        for query in _DRAWN:
            if run.chosen(f"huge tree: {shape}, {query}"):
                found.huge.append(huge := Huge(shape, query, settings.engine, min(BODIES, run.largest)))
                with failing_alone(huge):
                    _fill(huge, run.seconds)
    return found


def _peers(model: rd.Model) -> tuple[list[Peer], list[str]]:
    """Every peer that takes this robot, and why others do not."""
    peers, reasons = find_peers(model)
    try:
        from tests.bench.jax_rnea import Jax

        peers.append(Jax(model))
    except ImportError:
        reasons.append("JAX is not installed")
    except RefusedError as refusal:
        reasons.append(str(refusal))
    return peers, reasons


def _fill(huge: Huge, seconds: float) -> None:
    """One state, after a smaller tree of which the answer is known."""
    small = Problem(rd.auto_tree(_CHECKED_BODIES, branching=_SHAPES[huge.shape]), judge="reference")
    dyn = small.dynamics(huge.engine)
    huge.engine, huge.off_by = dyn.engine.name, small.off_by(huge.query, getattr(dyn, huge.query)(*small.given))
    if not huge.off_by <= _TOLERANCE:
        raise RefusedError(f"WRONG: differs from the reference engine by {huge.off_by:.1g}")
    large = Problem(rd.auto_tree(huge.bodies, branching=_SHAPES[huge.shape]), judge=huge.engine)
    given, out = (each[0] for each in large.given), np.full(huge.bodies, np.nan)
    timing = timed(partial(getattr(large.judge, huge.query), *given, out=out), seconds)
    huge.best_ns, huge.median_ns = (s / huge.bodies * 1e9 for s in (timing.best_s, timing.median_s))


# What is shown.


def tables(found: Results) -> list[Cells]:
    return [each for report in found.reports for each in tables_of(report)]


def notes(found: Results) -> list[str]:
    """What to know about all of it, each note once."""
    of_first = (
        "First answers: a new process for each; `cold` with an empty cache of compiled code, `cached` with what "
        "that left, the best of three. Imports are not counted, in `process` they are."
    )
    said = dict.fromkeys(note for report in found.reports for note in report.notes)
    return [*said, *([of_first] if found.first else [])]


def _summary(reports: Sequence[Report]) -> Cells:
    """How many times faster than the best peer in a batch, on one thread in float64: robots down, queries across."""
    rows = []
    for report in reports:
        ratios = dict.fromkeys(USUAL, NOT_MEASURED)
        for each in report.results:
            peer = report.best_peer(each)
            asked = (each.ours, each.dtype, each.threads, each.batch) == (True, "float64", 1, _SUMMARY_BATCH)
            if asked and each.best_ns and peer is not None and peer.best_ns:
                ratios[each.query] = f"{peer.best_ns / each.best_ns:.3g} x, {peer.name}"
        rows.append((report.robot, *ratios.values()))
    return Cells("", columns("robot", *(f"#{query}" for query in USUAL)), rows)


def blocks(found: Results, pictures: Pictures) -> dict[str, str]:
    parts = [
        f"## {report.robot}, engine {report.engine}\n\n{titled(tables_of(report), end='')}\n\n"
        + bullets(footnotes(report)[: -len(report.notes) or None])
        for report in found.reports
    ]
    summary = (
        "How many times faster than the best peer in the same run, which is named: float64, one thread, "
        f"batches of {_SUMMARY_BATCH}.\n\n{markdown(_summary(found.reports))}"
    )
    return {
        "summary": summary if found.reports else "",
        "picture": picture("States per second against the batch, float64", pictures.get("rates")),
        "headline": HEADLINE,
        "tables": "\n\n".join(parts),
    }


# The picture: states per second against the batch.

_BLUE, _RED, _GREEN, _YELLOW, _, _PURPLE, *_ = COLORS
_FAMILIES = {
    "robodyn": ("robodyn", _BLUE),
    "pin C++": ("Pinocchio, C++ estimated", _YELLOW),
    "pin.": ("Pinocchio, call by call", _GREEN),
    "rneaInParallel": ("Pinocchio, in parallel", _GREEN),
    "abaInParallel": ("Pinocchio, in parallel", _GREEN),
    "mj_": ("MuJoCo, call by call", _RED),
    "mujoco.rollout": ("MuJoCo, rollout", _RED),
    "JAX": ("JAX", _PURPLE),
}
"""How the names of contenders begin -> label, colour."""


def draw(found: Results, folder: Path) -> Pictures:
    """Write cpu.svg: a panel for each robot and query, float64."""
    reports = found.reports
    if not reports:
        return {}
    size = (3.6 * len(reports), 6.4)
    with panels(folder / "cpu.svg", len(_DRAWN), len(reports), size, sharex=True) as (figure, axes):
        for row, query in zip(axes, _DRAWN, strict=True):
            for panel, report in zip(row, reports, strict=True):
                shown = [each for each in report.results if each.query == query and each.dtype == "float64"]
                for name, threads in dict.fromkeys((each.name, each.threads) for each in shown if each.best_ns):
                    _line(panel, [each for each in shown if (each.name, each.threads) == (name, threads)])
                title = f"{report.robot}\n{query}" if query == _DRAWN[0] else query
                finish(panel, title, "states per second" if report is reports[0] else "")
                panel.set_xlabel("states in a call" if query == _DRAWN[-1] else "")
        legend(figure, axes, 4)
    return {"rates": "cpu.svg"}


def _line(panel: Any, results: list[Result]) -> None:
    """A line over batches, dotted on several threads; a dashed level for what does one state a call."""
    first, several = results[0], results[0].threads > 1
    label, color = next(look for start, look in _FAMILIES.items() if first.name.startswith(start))
    rates = [(result.batch, 1e9 / result.best_ns) for result in results if result.best_ns]
    if first.batch is None:
        panel.axhline(rates[0][1], label=label, color=color, linestyle="--", linewidth=1.0)
        return
    label = f"{label}, {first.threads} thread{'s' if several else ''}"
    style = {"linestyle": ":" if several else "-", "linewidth": 2.5 if first.ours else 1.2}
    panel.plot(*zip(*rates, strict=True), label=label, color=color, marker="o", markersize=3, **style)


PAGE = Page("cpu", Results, measure, tables, notes, blocks, draw)
