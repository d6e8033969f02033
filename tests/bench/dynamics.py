"""Queries on four robots, beside every peer that is installed; one huge tree; the first answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import robodyn as rd
from robodyn.tools.benchmark.compare import Report, Settings, compare
from robodyn.tools.benchmark.contenders import USUAL
from robodyn.tools.benchmark.tables import HEADLINE, Cells, footnotes, tables
from tests.bench import first_answer, huge
from tests.bench.peers import all_peers
from tests.bench.shared import MODELS, facts

ROBOTS = {"arm6": "fixed", "arm7": "fixed", "quadruped": "floating", "humanoid": "floating"}
_SUMMARY_BATCH = 4096


@dataclass
class Measured:
    """Everything that a run of this suite measured."""

    reports: list[Report] = field(default_factory=list)
    huge: list[huge.Huge] = field(default_factory=list)
    first: list[first_answer.First] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reports or self.huge or self.first)


def measure(
    selected: Callable[[str], bool], settings: Settings, ask_huge: bool, announce: Callable[[str], object]
) -> Measured:
    """Run the cases whose names are selected: "dynamics: ROBOT, QUERY", "first answer: ...", "huge tree: ..."."""
    measured = Measured()
    for robot, base in ROBOTS.items():
        queries = tuple(query for query in settings.queries if selected(f"dynamics: {robot}, {query}"))
        if queries:
            model = rd.load_urdf(MODELS / f"{robot}.urdf", base=base)
            peers, reasons = all_peers(model)
            asked = replace(settings, queries=queries)
            report = compare(model, asked, peers, robot=f"{robot}, {base} base", announce=announce)
            report.notes += reasons
            measured.reports.append(report)
    for name in filter(selected, first_answer.names()):
        announce(name)
        measured.first.append(first_answer.measure(name, settings.engine))
    for name in filter(selected, huge.names()):
        announce(name)
        measured.huge.append(huge.measure(name, settings.engine, settings.seconds, ask_huge))
    return measured


def cells(measured: Measured) -> list[Cells]:
    """All tables."""
    found = [table for report in measured.reports for table in tables(report)]
    if measured.first:
        title = "From load_urdf to the first answer of a process"
        rows = [each.cells() for each in measured.first]
        found.append(Cells(title, first_answer.HEADINGS, rows).filled())
    if measured.huge:
        rows = [each.cells() for each in measured.huge]
        found.append(Cells("One state of a huge tree, one thread", huge.HEADINGS, rows).filled())
    return found


def notes(measured: Measured) -> list[str]:
    """What to know about all of it, each note once."""
    return list(dict.fromkeys(note for report in measured.reports for note in report.notes))


def _summary(reports: Sequence[Report]) -> list[str]:
    """How many times faster than the best peer in a batch, on one thread in float64: robots down, queries across."""
    columns = ("robot", *(f"{query} " for query in USUAL))
    rows = []
    for report in reports:
        ratios = {
            each.query: f"{peer.best_ns / each.best_ns:.3g} x, {peer.name}"
            for each in report.results
            if (each.ours, each.dtype, each.threads, each.batch) == (True, "float64", 1, _SUMMARY_BATCH)
            and each.best_ns
            and (peer := report.best_peer(each)) is not None
            and peer.best_ns
        }
        rows.append((report.robot, *(ratios.get(query, "not measured") for query in USUAL)))
    return Cells("", columns, rows).markdown()


def page(measured: Measured, about: dict[str, str], plot: str | None) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# Queries beside Pinocchio, MuJoCo and JAX",
        "",
        "Printed by `python -m tests.bench --write`; `robodyn bench FILE` measures a robot of yours. Shared machines",
        "drift: compare within one run.",
        "",
        f"Measured on: {facts(about)}.",
    ]
    if measured.reports:
        lines += [
            "",
            "How many times faster than the best peer in the same run, which is named: float64, one thread, "
            f"batches of {_SUMMARY_BATCH}.",
            "",
            *_summary(measured.reports),
        ]
    if plot is not None:
        lines += ["", f"![States per second against the batch, float64]({plot})"]
    lines += ["", "## How it was measured", "", HEADLINE, "", *(f"- {note}" for note in notes(measured))]
    if measured.first:
        lines += [
            "- First answers: a new process for each; `cold` with an empty cache of compiled code, `cached` with what "
            "that left, the best of three. Imports are not counted, in `process` they are.",
        ]
    for report in measured.reports:
        numbered = footnotes(report)[: -len(report.notes) or None]
        lines += ["", f"## {report.robot}, engine {report.engine}"]
        for table in tables(report):
            lines += ["", table.title, "", *table.markdown()]
        lines += ["", *(f"- {note}" for note in numbered)] if numbered else []
    for table in cells(replace(measured, reports=[])):
        lines += ["", f"## {table.title}", "", *table.markdown()]
    return "\n".join(lines) + "\n"


def document(measured: Measured, about: dict[str, str]) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {**about, **asdict(measured)}
