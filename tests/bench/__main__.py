"""The benchmark runner: `python -m tests.bench [--write] [NAME-FILTER]`.

Prints the commit, the machine and versions, then tables of every case whose name contains the filter. Names begin with
the suite: "core: load: 7-dof arm", "dynamics: arm7, forward_dynamics", "first answer: ...", "huge tree: ...". `--write`
also stores pages and JSON in docs/benchmarks, of every suite of which something was measured. It installs nothing;
peers that are not installed are named and left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from robodyn.benchmark.compare import Settings, threads_from
from robodyn.tables import console
from tests.bench import core, dynamics, plots, shared

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
    if name_filter:
        about["filter"] = repr(name_filter)
    screen.print(shared.facts(about))
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


def _dump(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    typer.run(run)
