"""The benchmark runner: `python -m tests.bench [--write] [WORD ...]`.

Prints the commit, the machine and versions, then tables of every case whose name contains all words. Names begin with
the suite: "core: load: 7-dof arm", "dynamics: arm7, forward_dynamics", "first answer: ...", "huge tree: ...". `--write`
also stores pages and JSON in docs/benchmarks, of every suite of which something was measured. It installs nothing;
peers that are not installed are named and left out.

Some suites take long and run only where the first word begins with their name:

- "papers" (`tests.bench.papers`): the figures of the papers that the scan engine is made from. "papers 2016a",
  "papers 2016b" and "papers thesis" are parts of it; the last is "thesis" (`tests.bench.thesis`) too.
- "scan" (`tests.bench.scan_map`): which method of the scan engine is the fastest where.
- "scan-gpu" (`tests.bench.scan_gpu`): scans on a GPU; what is not asked for stays as stored.
- "gpu" (`tests.bench.gpu`): the GPU engine; parts of which nothing is asked ("gpu: queries" is one) stay as stored.
- "cold" (`tests.bench.cold`): first answers with an empty cache; `--whole` asks every query of every robot.
- "load" (`tests.bench.load`): loading beside Pinocchio's parser.
- "batches" (`tests.bench.batches`): batches of up to a million states, beside what their bytes take.
- "calls" (`tests.bench.calls`): one call for one state, with every argument, beside Pinocchio's.
- "compare" (`tests.bench.compare`): the same work by other libraries, each in a process of its own; minutes.
- "constraints" (`tests.bench.constraints`): feet and closed loops, beside Pinocchio's; loops of large trees.
- "parts" (`tests.bench.parts`): one tree of a million bodies on several threads, and the model of that.
- "ik" (`tests.bench.ik`): inverse kinematics of arms, beside what else is installed.
- "steps" (`tests.bench.steps`): what rollouts of damped robots come to, and integrators, beside MuJoCo's.
- "step_gradients" (`tests.bench.step_gradients`): derivatives of steps and of rollouts, beside Pinocchio's.
- "backend" (`tests.bench.backend`): our machine code beside LLVM's, first answers and run times.
- "hardware" (`tests.bench.hardware`): the paper's studies of fixed-point hardware; Verilator takes minutes.
- "scheduler" (`tests.bench.scheduler`): whether `engine="auto"` picks the fastest engine.

`--quick` stops "thesis" and "scan" at 10,000 bodies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from rich.console import Console

from robodyn.core.tables import console
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.tools.benchmark.compare import Settings, threads_from
from robodyn.tools.benchmark.tables import Cells
from tests.bench import (
    backend,
    batches,
    calls,
    cold,
    constraints,
    core,
    dynamics,
    hardware,
    ik,
    large_loops,
    load,
    papers,
    parts,
    plots,
    scan_gpu,
    scan_map,
    scheduler,
    shared,
    step_gradients,
    steps,
    thesis,
    thesis_plots,
)
from tests.bench.compare import suite as compare
from tests.bench.drawing import pyplot
from tests.bench.gpu import goals
from tests.bench.gpu import suite as gpu
from tests.bench.gpu.fit import verdict
from tests.bench.gpu.machine import find_machine
from tests.bench.gpu.work import BATCHES
from tests.bench.points import Budget

_WIDTH = 170
Selected = Callable[[str], bool]
_BATCHES = {"": (1, 16, 32, 64, 128, 4096, 65_536), "gpu": BATCHES, "scheduler": scheduler.BATCHES}
_SECONDS = {
    "": 0.3,
    "backend": 0.1,
    "calls": 0.03,
    "compare": 0.05,
    "constraints": 0.2,
    "gpu": 0.02,
    "papers": 0.05,
    "parts": 8.0,
    "scan-gpu": 0.1,
    "scheduler": 0.01,
}
_LIMITS = {"": 20.0, "compare": 12.0, "papers": 3.0}
"""Of suites that have their own."""


def run(
    words: Annotated[list[str] | None, typer.Argument(help="Run cases whose names contain all of these.")] = None,
    write: Annotated[bool, typer.Option(help="Store pages in docs/benchmarks.")] = False,
    engine: Annotated[str, typer.Option(help="Our engine.")] = "auto",
    batch: Annotated[str, typer.Option("--batch", "--batches", help="States in a call; those of the suite.")] = "",
    dtype: Annotated[str, typer.Option(help="Precisions.")] = "float64,float32",
    threads: Annotated[str, typer.Option(help="Numbers of threads.")] = "1,all",
    seconds: Annotated[float | None, typer.Option(help="Time for each case; that of the suite.")] = None,
    huge: Annotated[bool, typer.Option(help="Huge trees under the reference engine too.")] = False,
    quick: Annotated[bool, typer.Option(help="thesis, scan: stop at 10,000 bodies.")] = False,
    largest: Annotated[int, typer.Option(help="Suites of scans: most bodies of a tree.")] = 4_000_000,
    limit: Annotated[float | None, typer.Option(help="Suites of scans: the longest call, in seconds.")] = None,
    whole: Annotated[bool, typer.Option(help="cold: every query of every robot (an hour).")] = False,
    fit: Annotated[bool, typer.Option(help="gpu: measure every kernel, and choose by that from now on.")] = False,
    folder: Annotated[Path, typer.Option(help="Where --write stores.")] = shared.FOLDER,
) -> None:
    """Measure and print; store with --write."""
    words = words or []
    if write:
        _require_folder(folder)
    suite = max((name for name in _LONG if words and words[0].startswith(name)), key=len, default="")
    if limit is not None and not limit >= 0.0:
        raise typer.BadParameter(f"--limit: got {limit}; wanted a number of seconds from 0")
    try:
        settings = Settings(
            engine=engine,  # type: ignore[arg-type]
            dtypes=tuple(dtype.split(",")),
            threads=threads_from(threads.split(",")),
            batches=_numbers(batch) if batch else _usual(_BATCHES, suite),
            seconds=_usual(_SECONDS, suite) if seconds is None else seconds,
        )
    except ArgumentError as error:
        raise typer.BadParameter(str(error)) from None
    screen, about = console(), shared.header() | {"load": shared.load()}
    screen.width = max(screen.width, _WIDTH)
    if words and words != [suite]:
        about["filter"] = repr(" ".join(words))
    screen.print(shared.facts(about))

    def budget(name: str) -> Budget:
        longest = _usual(_LIMITS, name) if limit is None else limit
        each = _usual(_SECONDS, name) if seconds is None else seconds
        return Budget(each, min(longest, _QUICK_LIMIT) if quick else longest)

    asked = QueryVariant(
        selected=lambda name: all(word in name for word in words),
        budget=budget,
        most=min(largest, thesis.QUICK) if quick else largest,
        settings=settings,
        huge=huge,
        whole=whole,
        fit=fit,
        about=about,
        screen=screen,
        store=folder if write else None,
    )
    if not _LONG.get(suite, _short)(asked):
        given = " and ".join(map(repr, words)) or "nothing"
        raise typer.BadParameter(f"nothing was measured: no case that is small enough has {given} in its name")


def _numbers(words: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(map(int, words.split(","))))
    except ValueError:
        raise ArgumentError(f"batches: got {brief(words)}; wanted numbers with commas between them") from None


def _require_folder(folder: Path) -> None:
    """What is measured for half an hour shall have a place to go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise typer.BadParameter(f"--folder: got {folder}, where nothing can be stored ({error.strerror})") from None
    if pyplot() is None:
        console(stderr=True).print('pages are stored without pictures: no matplotlib; pip install "robodyn[bench]"')


def _usual(values: dict[str, Any], suite: str) -> Any:
    return values.get(suite, values[""])


@dataclass(frozen=True)
class QueryVariant:
    """What a long suite is told: which of its cases, how long and how far, and where results go.

    `budget`: by the name of the suite; `settings`: the time for each case, precisions and batches; `huge`: whether
    huge trees are asked of the reference engine; `whole`: whether all is asked that there is; `fit`: whether the GPU
    engine is to choose by what is measured; `store`: None to store nothing.
    """

    selected: Selected
    budget: Callable[[str], Budget]
    most: int
    settings: Settings
    huge: bool
    whole: bool
    fit: bool
    about: dict[str, str]
    screen: Console
    store: Path | None

    @property
    def announce(self) -> Callable[[str], object]:
        """Told what is measured now."""
        return console(stderr=True).print

    def show(self, tables: Iterable[Cells], lines: Iterable[str] = ()) -> None:
        """Print what was found."""
        for table in tables:
            self.screen.print(table.rich())
        for line in lines:
            self.screen.print(line)

    def write(self, name: str, page: Callable[[Path], str], document: dict[str, Any] | None) -> None:
        """Store a page, which may draw into its folder, and a document if there is one."""
        if self.store is not None:
            self.store.mkdir(parents=True, exist_ok=True)
            (self.store / f"{name}.md").write_text(_linked(page(self.store), self.store))
            if document is not None:
                _dump(self.store / f"{name}.json", document)


def _linked(page: str, folder: Path) -> str:
    """A page with links that hold in a folder below that of all pages as well; to pages that are not beside it, too."""
    below = folder.resolve()
    if not below.is_relative_to(shared.FOLDER) or below == shared.FOLDER.resolve():
        return page
    up = "../" * len(below.relative_to(shared.FOLDER).parts)
    page = page.replace("](../", f"]({up}../")
    beside = {found for found in re.findall(r"\]\(([\w-]+\.md)\)", page) if not (below / found).exists()}
    for found in beside:
        page = page.replace(f"]({found})", f"]({up}{found})")
    return page


def _short(asked: QueryVariant) -> bool:
    """The suites that run without being named. Like the others: whether there was something to measure."""
    rows = [case.measure() for case in core.cases() if asked.selected(f"core: {case.name}")]
    measured = dynamics.measure(asked.selected, asked.settings, asked.huge, asked.announce)
    asked.show([core.table(rows)] if rows else [])
    asked.show(dynamics.cells(measured), (f"- {n}" for n in (dynamics.notes(measured) if measured.reports else ())))
    if rows:
        document = {**asked.about, "rows": [asdict(row) for row in rows]}
        asked.write("core", lambda folder: core.page(rows, asked.about), document)
    if measured:
        asked.write(
            "cpu",
            lambda folder: dynamics.page(measured, asked.about, plots.draw(measured.reports, folder / "cpu.svg")),
            dynamics.document(measured, asked.about),
        )
    return bool(rows or measured)


def _papers(asked: QueryVariant) -> bool:
    machine, missing = find_machine()
    budget = asked.budget("papers")
    points = papers.measure(machine, asked.selected, budget, asked.most, asked.announce)
    if points:
        about = asked.about if machine is None else asked.about | machine.facts
        asked.show(
            [*papers.tables(points), papers.claims(points)], [f"GPU: not measured. {missing}"] if missing else []
        )
        asked.write(
            "papers",
            lambda folder: papers.page(points, about, missing, papers.draw(points, folder)),
            papers.document(points, about, budget),
        )
    return _thesis(replace(asked, selected=lambda name: asked.selected(f"papers: {name}"))) or bool(points)


def _thesis(asked: QueryVariant) -> bool:
    budget = asked.budget("thesis")
    points = thesis.measure(asked.selected, budget, asked.most, asked.announce)
    asked.show(table for cells in thesis.tables(points).values() for table in cells)
    if points:
        asked.write(
            "thesis",
            lambda folder: thesis.page(points, asked.about, thesis_plots.draw(points, folder)),
            thesis.document(points, asked.about, budget),
        )
    return bool(points)


def _scan(asked: QueryVariant) -> bool:
    budget = asked.budget("scan")
    points = scan_map.measure(asked.selected, budget, asked.most, asked.announce)
    asked.show(grid.table() for grid in scan_map.grids(points))
    if points:
        asked.write(
            "scan",
            lambda folder: scan_map.page(points, asked.about, scan_map.draw(points, folder / "scan.svg")),
            scan_map.document(points, asked.about, budget),
        )
    return bool(points)


def _scan_gpu(asked: QueryVariant) -> bool:
    machine, missing = find_machine()
    if machine is None:
        _unmeasured(asked, "scan-gpu", missing, scan_gpu.goals_of([]), scan_gpu.unmeasured(missing))
        return True
    about = asked.about | machine.facts
    budget = asked.budget("scan-gpu")
    points = scan_gpu.measure(machine, asked.selected, budget, asked.most, asked.announce)
    path = None if asked.store is None else asked.store / "scan-gpu.json"
    if points and path is not None and path.exists():
        points = scan_gpu.with_stored(points, json.loads(path.read_text()), machine.facts)
    asked.show([goals.table(scan_gpu.goals_of(points)), *scan_gpu.tables(points)])
    if points:
        asked.write(
            "scan-gpu",
            lambda folder: scan_gpu.page(points, about, scan_gpu.draw(points, folder)),
            scan_gpu.document(points, about, budget),
        )
    return bool(points)


def _gpu(asked: QueryVariant) -> bool:
    plan = gpu.plan(asked.selected, asked.settings)
    machine, missing = find_machine()
    if machine is None:
        _unmeasured(asked, "gpu", missing, goals.goals([], None, [], []), gpu.unmeasured(plan, missing))
        return True

    path = None if asked.store is None else asked.store / "gpu.json"
    stored = json.loads(path.read_text()) if path is not None and path.exists() else {}

    def store(found: gpu.Measured) -> None:
        whole = found.with_stored(stored)
        asked.write("gpu", lambda folder: gpu.page(whole, asked.about), gpu.document(whole, asked.about, plan))

    found = gpu.measure(plan, machine, asked.announce, fitted=asked.fit, store=store)
    lines = (*verdict(found.trials), *gpu.remarks(found))
    asked.show((table for tables in gpu.cells(found).values() for table in tables), (f"- {line}" for line in lines))
    return True


def _unmeasured(asked: QueryVariant, name: str, missing: str, wanted: Sequence[goals.Goal], page: str) -> None:
    """Nothing was measured: a page that has figures is left as it is."""
    asked.show([goals.table(wanted)], [f"GPU: not measured. {missing}"])
    if asked.store is not None and not (asked.store / f"{name}.json").exists():
        asked.write(name, lambda folder: page, None)


def _scheduler(asked: QueryVariant) -> bool:
    found = scheduler.measure(asked.selected, asked.settings, asked.most, asked.announce)
    asked.show(scheduler.tables(found), scheduler.verdict(found))
    if found.rows:
        asked.write(
            "scheduler",
            lambda folder: scheduler.page(found, asked.about),
            scheduler.document(found, asked.about, asked.settings),
        )
    return bool(found.rows)


def _backend(asked: QueryVariant) -> bool:
    found = backend.measure(asked.selected, asked.budget("backend").seconds, asked.announce)
    asked.show(backend.tables(found), backend.notes(found))
    if found.first or found.runs or found.large:
        asked.write("backend", lambda _: backend.page(found, asked.about), backend.document(found, asked.about))
    return bool(found.first or found.runs or found.large)


def _cold(asked: QueryVariant) -> bool:
    found = cold.measure(asked.selected, asked.whole, asked.announce)
    asked.show(cold.tables(found), cold.notes(found))
    if found.answers:
        asked.write("cold", lambda _: cold.page(found, asked.about), cold.document(found, asked.about))
    return bool(found.answers)


def _load(asked: QueryVariant) -> bool:
    found = load.measure(asked.selected, asked.announce)
    asked.show(load.tables(found), load.notes(found))
    if found:
        asked.write("load", lambda _: load.page(found, asked.about), load.document(found, asked.about))
    return bool(found)


def _batches(asked: QueryVariant) -> bool:
    found = batches.measure(asked.selected, asked.settings.threads, asked.announce)
    asked.show(batches.tables(found), batches.notes(found))
    if found:
        asked.write("batches", lambda _: batches.page(found, asked.about), batches.document(found, asked.about))
    return bool(found)


def _calls(asked: QueryVariant) -> bool:
    found = calls.measure(asked.selected, asked.budget("calls").seconds, asked.announce)
    asked.show(calls.tables(found), calls.notes(found))
    if found:
        asked.write("calls", lambda _: calls.page(found, asked.about), calls.document(found, asked.about))
    return bool(found)


def _compare(asked: QueryVariant) -> bool:
    budget = asked.budget("compare")
    found = compare.measure(asked.selected, budget.seconds, budget.limit, asked.announce)
    asked.show(compare.tables(found), (f"- {line}" for line in compare.lines(found)))
    if found.cases and asked.store is not None:
        whole = found.with_stored(asked.store / "compare.json")
        about = {key: word for key, word in asked.about.items() if key not in ("filter", "load")}  # each has its own
        asked.write("compare", lambda _: compare.page(whole, about), compare.document(whole, about))
    return bool(found.cases)


def _constraints(asked: QueryVariant) -> bool:
    budget, about = asked.budget("constraints").seconds, asked.about
    found = constraints.measure(asked.selected, budget, asked.announce)
    large = large_loops.measure(asked.selected, budget, asked.announce)
    asked.show([*constraints.tables(found), *large_loops.table(large)], constraints.notes(found))
    if found or large:
        page, stored = constraints.page(found, large, about), constraints.document(found, large, about)
        asked.write("constraints", lambda _: page, stored)
    return bool(found or large)


def _ik(asked: QueryVariant) -> bool:
    found = ik.measure(asked.selected, asked.announce)
    asked.show(ik.tables(found), ik.notes(found))
    if found:
        asked.write("ik", lambda _: ik.page(found, asked.about), ik.document(found, asked.about))
    return bool(found)


def _steps(asked: QueryVariant) -> bool:
    found = steps.measure(asked.selected, asked.announce)
    asked.show(steps.tables(found), steps.notes(found))
    if found.damped or found.accuracy:
        asked.write("steps", lambda _: steps.page(found, asked.about), steps.document(found, asked.about))
    return bool(found.damped or found.accuracy)


def _parts(asked: QueryVariant) -> bool:
    bodies = min(asked.most, parts.BODIES)
    found = parts.measure(asked.selected, asked.budget("parts").seconds, bodies, asked.announce)
    asked.show(parts.tables(found), parts.notes(found))
    if found.measured:
        asked.write("parts", lambda _: parts.page(found, asked.about), parts.document(found, asked.about))
    return bool(found.measured)


def _hardware(asked: QueryVariant) -> bool:
    found = hardware.measure(asked.selected, asked.about["commit"], asked.announce)
    asked.show(hardware.tables(found), hardware.notes(found))
    if found.commits and asked.store is not None:
        whole = found.with_stored(asked.store / "hardware.json")
        about = {
            key: word for key, word in asked.about.items() if key not in ("commit", "filter")
        }  # each case has its own
        asked.write("hardware", lambda _: hardware.page(whole, about), hardware.document(whole, about))
    return bool(found.commits)


def _step_gradients(asked: QueryVariant) -> bool:
    found = step_gradients.measure(asked.selected, asked.announce)
    asked.show(step_gradients.tables(found), step_gradients.notes(found))
    measured = bool(found.steps or found.theirs or found.rollouts)
    if measured:
        asked.write(
            "step_gradients",
            lambda _: step_gradients.page(found, asked.about),
            step_gradients.document(found, asked.about),
        )
    return measured


_LONG = {
    "backend": _backend,
    "batches": _batches,
    "calls": _calls,
    "compare": _compare,
    "cold": _cold,
    "load": _load,
    "constraints": _constraints,
    "ik": _ik,
    "steps": _steps,
    "hardware": _hardware,
    "step_gradients": _step_gradients,
    "papers": _papers,
    "parts": _parts,
    "thesis": _thesis,
    "scan": _scan,
    "scan-gpu": _scan_gpu,
    "gpu": _gpu,
    "scheduler": _scheduler,
}
"""Suites that run only where the first word begins with their name."""
_QUICK_LIMIT = 5.0


def _dump(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    typer.run(run)
