"""The benchmark runner: `python -m tests.bench [--write] [NAME-FILTER]`.

Prints the commit, the machine and versions, then tables of every case whose name contains the filter. Names begin with
the suite: "core: load: 7-dof arm", "dynamics: arm7, forward_dynamics", "first answer: ...", "huge tree: ...". `--write`
also stores pages and JSON in docs/benchmarks, of every suite of which something was measured. It installs nothing;
peers that are not installed are named and left out.

Three suites take long and run only where the filter begins with their name: "thesis" (`tests.bench.thesis`), "scan"
(`tests.bench.scan_map`), which `--quick` stops at 10,000 bodies, and "gpu" (`tests.bench.gpu`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from robodyn.benchmark.compare import Settings, threads_from
from robodyn.tables import console
from tests.bench import core, dynamics, plots, scan_map, shared, thesis, thesis_plots
from tests.bench.gpu import suite as gpu
from tests.bench.gpu.fit import verdict
from tests.bench.gpu.work import BATCHES
from tests.bench.points import Budget

_WIDTH = 170
_BATCHES = {"": (1, 16, 32, 64, 128, 4096, 65_536), "gpu": BATCHES}
_SECONDS = {"": 0.3, "gpu": 0.02}
"""Of suites that have their own."""


def run(
    name_filter: Annotated[str, typer.Argument(help="Run cases whose name contains this.")] = "",
    write: Annotated[bool, typer.Option(help="Store pages in docs/benchmarks.")] = False,
    engine: Annotated[str, typer.Option(help="Our engine.")] = "auto",
    batch: Annotated[str, typer.Option("--batch", "--batches", help="States in a call; those of the suite.")] = "",
    dtype: Annotated[str, typer.Option(help="Precisions.")] = "float64,float32",
    threads: Annotated[str, typer.Option(help="Numbers of threads.")] = "1,all",
    seconds: Annotated[float | None, typer.Option(help="Time for each case; that of the suite.")] = None,
    huge: Annotated[bool, typer.Option(help="Huge trees under the reference engine too.")] = False,
    quick: Annotated[bool, typer.Option(help="thesis, scan: stop at 10,000 bodies.")] = False,
    largest: Annotated[int, typer.Option(help="thesis, scan: most bodies.")] = 4_000_000,
    limit: Annotated[float, typer.Option(help="thesis, scan: longest call that is asked for, in seconds.")] = 20.0,
    fit: Annotated[bool, typer.Option(help="gpu: measure every kernel, and choose by that from now on.")] = False,
    folder: Annotated[Path, typer.Option(help="Where --write stores.")] = shared.FOLDER,
) -> None:
    """Measure and print; store with --write."""
    suite = next((name for name in _LONG if name_filter.startswith(name)), "")
    settings = Settings(
        engine=engine,  # type: ignore[arg-type]
        dtypes=tuple(dtype.split(",")),
        threads=threads_from(threads.split(",")),
        batches=tuple(sorted(map(int, batch.split(",")))) if batch else _BATCHES.get(suite, _BATCHES[""]),
        seconds=_SECONDS.get(suite, _SECONDS[""]) if seconds is None else seconds,
    )
    screen, about = console(), shared.header() | {"load": shared.load()}
    screen.width = max(screen.width, _WIDTH)
    if name_filter and name_filter not in _LONG:
        about["filter"] = repr(name_filter)
    screen.print(shared.facts(about))
    if suite:
        budget = Budget(settings.seconds, min(limit, _QUICK_LIMIT) if quick else limit)
        most = min(largest, thesis.QUICK) if quick else largest
        store = folder if write else None
        asked = Asked(lambda name: name_filter in name, budget, most, settings, fit, about, screen, store)
        _LONG[suite](asked)
        return
    rows = [case.measure() for case in core.cases() if name_filter in f"core: {case.name}"]
    if rows:
        screen.print(core.table(rows))
    measured = dynamics.measure(lambda name: name_filter in name, settings, huge, console(stderr=True).print)
    for table in dynamics.cells(measured):
        screen.print(table.rich())
    if measured.reports:
        for note in dynamics.notes(measured):
            screen.print(f"- {note}")
    if write:
        folder.mkdir(parents=True, exist_ok=True)
        if rows:
            (folder / "core.md").write_text(core.page(rows, about))
            _dump(folder / "core.json", {**about, "rows": [asdict(row) for row in rows]})
        if measured:
            drawn = bool(measured.reports) and plots.draw(measured.reports, folder / "cpu.svg")
            (folder / "cpu.md").write_text(dynamics.page(measured, about, "cpu.svg" if drawn else None))
            _dump(folder / "cpu.json", dynamics.document(measured, about))


@dataclass(frozen=True)
class Asked:
    """What a long suite is told: which of its cases, how long and how far, and where results go.

    `settings`: the time for each case, precisions and batches; `fit`: whether the GPU engine is to choose by what is
    measured; `store`: None to store nothing.
    """

    selected: Callable[[str], bool]
    budget: Budget
    most: int
    settings: Settings
    fit: bool
    about: dict[str, str]
    screen: Console
    store: Path | None

    @property
    def announce(self) -> Callable[[str], object]:
        """Told what is measured now."""
        return console(stderr=True).print


def _thesis(asked: Asked) -> None:
    points = thesis.measure(asked.selected, asked.budget, asked.most, asked.announce)
    for cells in thesis.tables(points).values():
        for table in cells:
            asked.screen.print(table.rich())
    if asked.store is not None and points:
        asked.store.mkdir(parents=True, exist_ok=True)
        drawn = thesis_plots.draw(points, asked.store)
        (asked.store / "thesis.md").write_text(thesis.page(points, asked.about, drawn))
        _dump(asked.store / "thesis.json", thesis.document(points, asked.about, asked.budget))


def _scan(asked: Asked) -> None:
    points = scan_map.measure(asked.selected, asked.budget, asked.most, asked.announce)
    for grid in scan_map.grids(points):
        asked.screen.print(grid.table().rich())
    if asked.store is not None and points:
        asked.store.mkdir(parents=True, exist_ok=True)
        drawn = scan_map.draw(points, asked.store / "scan.svg")
        (asked.store / "scan.md").write_text(scan_map.page(points, asked.about, "scan.svg" if drawn else None))
        _dump(asked.store / "scan.json", scan_map.document(points, asked.about, asked.budget))


def _gpu(asked: Asked) -> None:
    plan = gpu.plan(asked.selected, asked.settings)

    def store(found: gpu.Measured) -> None:
        if asked.store is not None:
            asked.store.mkdir(parents=True, exist_ok=True)
            (asked.store / "gpu.md").write_text(gpu.page(found, asked.about))
            _dump(asked.store / "gpu.json", gpu.document(found, asked.about, plan))

    machine, missing = gpu.find_machine()
    if machine is None:
        store(found := replace(gpu.asked(plan), missing=missing))
    else:
        found = gpu.measure(plan, machine, asked.announce, fitted=asked.fit, store=store)
    for tables in gpu.cells(found).values():
        for table in tables:
            asked.screen.print(table.rich())
    for line in (*verdict(found.trials), *gpu.remarks(found)):
        asked.screen.print(f"- {line}")
    if missing:
        asked.screen.print(f"GPU: not measured. {missing}")


_LONG = {"thesis": _thesis, "scan": _scan, "gpu": _gpu}
"""Suites that run only where the filter begins with their name."""
_QUICK_LIMIT = 5.0


def _dump(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    typer.run(run)
