"""The page that compares libraries: the same work, in the same run, each library in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robodyn.tools.benchmark.tables import Cells
from tests.bench.compare.work import BATCHES, QUERIES, ROBOTS, STEPS
from tests.bench.runner import Page, Run
from tests.bench.shared import ROOT, columns, load, show

TOTAL_S = 280.0
"""Seconds of a whole run; what was not begun by then is left out, and said."""
_NO_TIME = "left out: no time was left"
_TOO_LONG = 3
"""Cases that may take too long, or crash, before the rest of a library on a robot is left out."""
_TOLD = tomllib.loads(Path(__file__).with_name("libraries.toml").read_text())
HOW = {name: " ".join(text.split()) for name, text in _TOLD["how"].items()}
"""Libraries, and how they are asked."""
_OF_ROLLOUTS = (
    "Of rollouts: {:.1g}. Positions of a floating base follow its twist here and in Pinocchio, its velocity in the "
    "world elsewhere."
)
_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "JAX_ENABLE_X64": "1",
    "JAX_PLATFORMS": "cpu",
}


@dataclass
class Case:
    """A query of a library on a robot, at a batch. `problem`: why there is no time."""

    robot: str
    library: str
    query: str
    batch: int
    best_ns: float | None = None
    median_ns: float | None = None
    runs: int = 0
    off_by: float | None = None
    compile_s: float | None = None
    remark: str = ""
    problem: str = ""

    @property
    def time(self) -> str:
        """Of a state, or of a step of a rollout."""
        per_step = STEPS if self.query == "rollout" else 1
        remark = f" ({self.remark})" if self.remark else ""
        return "" if self.best_ns is None else show(self.best_ns * 1e-9 / per_step) + remark

    @property
    def key(self) -> tuple[Any, ...]:
        return self.robot, self.library, self.query, self.batch


@dataclass
class Results:
    """Everything that was measured. `libraries`: names with versions; `loads`: of the machine before each."""

    cases: list[Case] = field(default_factory=list)
    libraries: dict[str, str] = field(default_factory=dict)
    loads: dict[str, str] = field(default_factory=dict)


def merge(found: Results, old: Results, about: dict[str, str], old_about: dict[str, str]) -> Results:
    """The same, and what is stored of what was not measured now: a page can be measured library by library."""
    at = {case.key: case for case in old.cases}
    at |= {case.key: case for case in found.cases if case.problem != _NO_TIME or case.key not in at}
    order = [list(ROBOTS), list(HOW), list(QUERIES), list(BATCHES)]
    cases = sorted(at.values(), key=lambda case: [of.index(part) for of, part in zip(order, case.key, strict=True)])
    return Results(cases, old.libraries | found.libraries, old.loads | found.loads)


def measure(run: Run, total: float = TOTAL_S) -> Results:
    """Run the cases whose names are selected: "compare: ROBOT, LIBRARY, QUERY"."""
    found, end = Results(), time.monotonic() + total
    asked = [
        [Case(robot, library, query, batch) for query in queries for batch in BATCHES]
        for robot in ROBOTS
        for library in HOW
        if (queries := [query for query in QUERIES if run.selected(f"compare: {robot}, {library}, {query}")])
    ]
    with tempfile.TemporaryDirectory() as folder:
        for k, cases in enumerate(asked):
            run.announce(f"{cases[0].robot}: {cases[0].library}")
            found.loads[cases[0].library] = load()
            # What is left is shared: those that compile for long do not take it from others.
            share = max(0.0, end - time.monotonic()) / (len(asked) - k)
            _fill(cases, found, run, time.monotonic() + share, folder)
            found.cases += cases
    return found


def _fill(cases: Sequence[Case], found: Results, run: Run, end: float, folder: str) -> None:
    """Ask a process for all cases; another one for the rest after it crashed or took too long."""
    left, failed, problem = list(cases), 0, ""
    while left and not problem:
        seconds = end - time.monotonic()
        if failed == _TOO_LONG or seconds <= 0.0:
            problem = f"left out after {_TOO_LONG} that took too long or failed" if seconds > 0.0 else _NO_TIME
            break
        lines, ended = _ask(left, run, seconds, folder)
        if not lines or "name" not in lines[0]:
            problem = lines[0]["refused"] if lines else ended or _NO_TIME
            break
        found.libraries[left[0].library] = lines[0]["name"]
        for result in lines[1:]:
            vars(left.pop(0)).update(result)
        if left and ended:
            left.pop(0).problem, failed = ended, failed + 1
    for case in left:
        case.problem = problem


def _ask(cases: Sequence[Case], run: Run, seconds: float, folder: str) -> tuple[list[dict[str, Any]], str]:
    """What a new process says in that time, line by line, and why it ended too soon; nothing where time was up."""
    library = cases[0].library
    python = os.environ.get(f"ROBODYN_COMPARE_{library.upper()}", sys.executable)
    asked = library, cases[0].robot, str(run.seconds), str(run.limit), *(f"{case.query}:{case.batch}" for case in cases)
    environment = os.environ | _ENVIRONMENT | {"ROBODYN_CACHE_DIR": folder}
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [python, "-m", "tests.bench.compare.worker", *asked], cwd=ROOT, env=environment, stdout=told,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        status = 0
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(seconds)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the library may have started others, in its session
            process.wait()
        told.seek(0)
        errors.seek(0)
        lines = [json.loads(line) for line in told.read().splitlines() if line.endswith("}")]
        last = next((f": {line.strip()[:160]}" for line in reversed(errors.readlines()) if line.strip()), "")
    if status == -signal.SIGALRM:
        return lines, f"took more than {run.limit:g} s with compiling"
    return lines, f"its process ended with status {status}{last}" if status else ""


# What is shown.


def _footnotes(found: Results) -> list[str]:
    return list(dict.fromkeys(case.problem for case in found.cases if case.problem))


def tables(found: Results) -> list[Cells]:
    """For each robot: one state, a batch, and compile times; libraries down, queries across."""
    notes, made = _footnotes(found), []

    def cell(case: Case | None, compiling: bool) -> str:
        if case is None or case.problem:
            return "" if case is None else f"[{notes.index(case.problem) + 1}]"
        return show(case.compile_s, "none") if compiling else case.time

    for robot in dict.fromkeys(case.robot for case in found.cases):
        at = {(case.library, case.query, case.batch): case for case in found.cases if case.robot == robot}
        libraries = dict.fromkeys(library for library, _, _ in at)
        queries = [query for query in QUERIES if any(query == asked for _, asked, _ in at)]
        headings, (one, many) = columns("library", *(f"#{query.replace('_', ' ')}" for query in queries)), BATCHES
        for title, batch in (
            ("one state a call", one),
            (f"a state of a batch of {many:,}", many),
            ("compile times, one state", one),
        ):
            compiling = title.startswith("compile")
            cells = {each: [cell(at.get((each, query, batch)), compiling) for query in queries] for each in libraries}
            rows = [(found.libraries.get(each, each), *row) for each, row in cells.items()]
            made.append(Cells(f"{robot}: {title}", headings, rows))
    return made


def notes(found: Results) -> list[str]:
    """What the tables' numbers in brackets say, how each library was asked, and which have no row."""
    said = [f"[{n}] {text}" for n, text in enumerate(_footnotes(found), start=1)]
    for name, how in HOW.items():
        if any(case.library == name for case in found.cases):
            said.append(f"{found.libraries.get(name, name)}: {how} Load before it: {found.loads[name]}.")
    said += [f"{name}: not measured. {why}." for name, why in _TOLD["left_out"].items()]
    known = [case for case in found.cases if case.off_by is not None and not case.problem]
    for words, rolled in (("Largest difference of what is shown: {:.1g}.", False), (_OF_ROLLOUTS, True)):
        differences = [case.off_by or 0.0 for case in known if (case.query == "rollout") == rolled]
        said += [words.format(max(differences))] if differences else []
    return said


PAGE = Page("compare", Results, measure, tables, notes, merge=merge, apart=("filter", "load"), seconds=0.05, limit=12.0)
