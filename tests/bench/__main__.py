"""The benchmark runner: `python -m tests.bench [--write] [NAME-FILTER]`.

Prints the commit, the machine and versions, then tables of every case whose name contains the filter. Names begin with
the suite: "core: load: 7-dof arm", "dynamics: arm7, forward_dynamics", "first answer: ...", "huge tree: ...". `--write`
also stores pages and JSON in docs/benchmarks, of every suite of which something was measured. It installs nothing;
peers that are not installed are named and left out.

Two suites take long and run only where the filter begins with their name: "thesis" (`tests.bench.thesis`) and "scan"
(`tests.bench.scan_map`). `--quick` stops them at 10,000 bodies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from robodyn.benchmark.compare import Settings, threads_from
from robodyn.tables import console
from tests.bench import core, dynamics, plots, scan_map, shared, thesis, thesis_plots
from tests.bench.points import Budget

_WIDTH = 150
_BATCHES = "1,16,32,64,128,4096,65536"


def run(
    name_filter: Annotated[str, typer.Argument(help="Run cases whose name contains this.")] = "",
    write: Annotated[bool, typer.Option(help="Store pages in docs/benchmarks.")] = False,
    engine: Annotated[str, typer.Option(help="Our engine.")] = "auto",
    batch: Annotated[str, typer.Option(help="States in a call.")] = _BATCHES,
    dtype: Annotated[str, typer.Option(help="Precisions.")] = "float64,float32",
    threads: Annotated[str, typer.Option(help="Numbers of threads.")] = "1,all",
    seconds: Annotated[float, typer.Option(help="Time for each case.")] = 0.3,
    huge: Annotated[bool, typer.Option(help="Huge trees under the reference engine too.")] = False,
    quick: Annotated[bool, typer.Option(help="thesis, scan: stop at 10,000 bodies.")] = False,
    largest: Annotated[int, typer.Option(help="thesis, scan: most bodies.")] = 4_000_000,
    limit: Annotated[float, typer.Option(help="thesis, scan: longest call that is asked for, in seconds.")] = 20.0,
    folder: Annotated[Path, typer.Option(help="Where --write stores.")] = shared.FOLDER,
) -> None:
    """Measure and print; store with --write."""
    settings = Settings(
        engine=engine,  # type: ignore[arg-type]
        dtypes=tuple(dtype.split(",")),
        threads=threads_from(threads.split(",")),
        batches=tuple(sorted(int(word) for word in batch.split(","))),
        seconds=seconds,
    )
    screen, about = console(), shared.header() | {"load": shared.load()}
    screen.width = max(screen.width, _WIDTH)
    if name_filter and name_filter not in _LONG:
        about["filter"] = repr(name_filter)
    screen.print(shared.facts(about))
    if name_filter.startswith(tuple(_LONG)):
        budget = Budget(seconds, min(limit, _QUICK_LIMIT) if quick else limit)
        most = min(largest, thesis.QUICK) if quick else largest
        store = folder if write else None
        _LONG[name_filter.split(":")[0]](lambda name: name_filter in name, budget, most, about, screen, store)
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


def _thesis(
    selected: Callable[[str], bool],
    budget: Budget,
    most: int,
    about: dict[str, str],
    screen: Console,
    store: Path | None,
) -> None:
    points = thesis.measure(selected, budget, most, console(stderr=True).print)
    for cells in thesis.tables(points).values():
        for table in cells:
            screen.print(table.rich())
    if store is not None and points:
        store.mkdir(parents=True, exist_ok=True)
        drawn = thesis_plots.draw(points, store)
        (store / "thesis.md").write_text(thesis.page(points, about, drawn))
        _dump(store / "thesis.json", thesis.document(points, about, budget))


def _scan(
    selected: Callable[[str], bool],
    budget: Budget,
    most: int,
    about: dict[str, str],
    screen: Console,
    store: Path | None,
) -> None:
    points = scan_map.measure(selected, budget, most, console(stderr=True).print)
    for grid in scan_map.grids(points):
        screen.print(grid.table().rich())
    if store is not None and points:
        store.mkdir(parents=True, exist_ok=True)
        drawn = scan_map.draw(points, store / "scan.svg")
        (store / "scan.md").write_text(scan_map.page(points, about, "scan.svg" if drawn else None))
        _dump(store / "scan.json", scan_map.document(points, about, budget))


_LONG = {"thesis": _thesis, "scan": _scan}
"""Suites that run only where the filter begins with their name."""
_QUICK_LIMIT = 5.0


def _dump(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    typer.run(run)
