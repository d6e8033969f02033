"""The page that compares libraries: the same work, in the same run, each library in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robodyn.tools.benchmark.tables import Cells
from tests.bench.compare.work import BATCHES, QUERIES, ROBOTS, STEPS, TOLERANCE, USUAL_TOLERANCE
from tests.bench.compare.worker import LIBRARIES
from tests.bench.shared import ROOT, load, page_of, show

TOTAL_S = 280.0
"""Seconds of a whole run; what was not begun by then is left out, and said."""
_PATIENCE_S = 60.0
"""Seconds that a library may take to load."""
_NO_TIME = "left out: no time was left"
_TOO_LONG = 3
"""Cases that may take too long, or crash, before the rest of a library on a robot is left out."""
NAMED = {
    "rigidax": "no wheel of it was found on PyPI when this was written",
    "bard": "PyPI's package of this name is another, empty one; no wheel was found when this was written",
    "jaxsim": "it reads URDF by way of Gazebo's program `gz sdf`, which no wheel brings",
}
"""Libraries that have no row, and why."""
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
    def key(self) -> tuple[Any, ...]:
        """What it is."""
        return self.robot, self.library, self.query, self.batch


@dataclass
class Found:
    """Everything that was measured. `names`: of libraries with versions; `loads`: of the machine before each."""

    cases: list[Case] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    loads: dict[str, str] = field(default_factory=dict)

    def with_stored(self, path: Path) -> Found:
        """The same, and what a file has that was not measured now: a page can be measured library by library."""
        if not path.exists():
            return self
        stored = json.loads(path.read_text())
        at = {case.key: case for case in (Case(**each) for each in stored["cases"])}
        at |= {case.key: case for case in self.cases if case.problem != _NO_TIME or case.key not in at}
        order = [list(ROBOTS), list(LIBRARIES), list(QUERIES), list(BATCHES)]
        found = sorted(at.values(), key=lambda case: [of.index(part) for of, part in zip(order, case.key, strict=True)])
        return Found(found, stored["libraries"] | self.names, stored["loads"] | self.loads)


def measure(
    selected: Callable[[str], bool],
    seconds: float,
    longest: float,
    announce: Callable[[str], object],
    total: float = TOTAL_S,
) -> Found:
    """Run the cases whose names are selected: "compare: ROBOT, LIBRARY, QUERY"."""
    found, begin = Found(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        asked = [
            [Case(robot, library, query, batch) for query in queries for batch in BATCHES]
            for robot in ROBOTS
            for library in LIBRARIES
            if (queries := [query for query in QUERIES if selected(f"compare: {robot}, {library}, {query}")])
        ]
        for k, cases in enumerate(asked):
            announce(f"{cases[0].robot}: {cases[0].library}")
            found.loads[cases[0].library] = load()
            # What is left is shared: those that compile for long do not take it from others.
            now = time.monotonic()
            share = max(0.0, begin + total - now) / (len(asked) - k)
            _fill(cases, found, seconds, longest, now + share, folder)
            found.cases += cases
    return found


def _fill(cases: Sequence[Case], found: Found, seconds: float, longest: float, end: float, folder: str) -> None:
    """Ask a worker case by case; another one after it crashed or was stopped."""
    left, failed = list(cases), 0
    while left:
        if failed == _TOO_LONG:
            _say(left, f"left out after {_TOO_LONG} that took too long or failed")
            return
        with _worker(left, seconds, folder) as (lines, errors):
            first = _next(lines, min(_PATIENCE_S, end - time.monotonic()))
            if first is None or "name" not in first:
                why = _ended(lines, errors, _PATIENCE_S) if first is None else first["refused"]
                _say(left, _NO_TIME if end < time.monotonic() else why)
                return
            found.names[left[0].library] = first["name"]
            while left:
                limit = min(longest, end - time.monotonic())
                result = _next(lines, limit) if limit > 0.0 else None
                if result is None and limit < longest:
                    _say(left, _NO_TIME)
                    return
                case = left.pop(0)
                if result is None:
                    case.problem, failed = _ended(lines, errors, longest), failed + 1
                    break
                for name, value in result.items():
                    if name != "case":
                        setattr(case, name, value)


def _say(cases: Sequence[Case], problem: str) -> None:
    for case in cases:
        case.problem = problem


@contextlib.contextmanager
def _worker(cases: Sequence[Case], seconds: float, folder: str) -> Iterator[tuple[queue.Queue[str | None], Any]]:
    """Lines of a new process that answers the cases in order, None when it has ended, and what it wrote to stderr."""
    library = cases[0].library
    python = os.environ.get(f"ROBODYN_COMPARE_{library.upper()}", sys.executable)
    words = [f"{case.query}:{case.batch}" for case in cases]
    command = [python, "-m", "tests.bench.compare.worker", library, cases[0].robot, str(seconds), *words]
    environment = os.environ | _ENVIRONMENT | {"ROBODYN_CACHE_DIR": folder}
    with (
        tempfile.TemporaryFile("w+", dir=folder) as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            process.wait()
            lines.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield lines, (process, errors)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the library may have started others, in its session
                os.killpg(process.pid, signal.SIGKILL)
            reader.join()


def _next(lines: queue.Queue[str | None], limit: float) -> dict[str, Any] | None:
    """The next line within some seconds, None where there is none."""
    try:
        line = lines.get(timeout=max(0.0, limit))
    except queue.Empty:
        return None
    return None if line is None else json.loads(line)


def _ended(lines: queue.Queue[str | None], errors: Any, limit: float) -> str:
    """Why no line came: the process has ended, or goes on."""
    process, text = errors
    if process.poll() is None:
        return f"took more than {limit:g} s with compiling"
    text.seek(0)
    last = next((line.strip() for line in reversed(text.read().splitlines()) if line.strip()), "")
    return f"its process ended with status {process.returncode}" + (f": {last[:160]}" if last else "")


# What is shown.


def _footnotes(found: Found) -> list[str]:
    return list(dict.fromkeys(case.problem for case in found.cases if case.problem))


def _cell(case: Case | None, what: Callable[[Case], str], notes: Sequence[str]) -> str:
    if case is None:
        return ""
    if case.problem:
        return f"[{notes.index(case.problem) + 1}]"
    return what(case)


def _time(case: Case) -> str:
    per_step = STEPS if case.query == "rollout" else 1
    assert case.best_ns is not None
    return show(case.best_ns * 1e-9 / per_step) + (f" ({case.remark})" if case.remark else "")


def _compile(case: Case) -> str:
    return "none" if case.compile_s is None else show(case.compile_s)


def tables(found: Found) -> list[Cells]:
    """For each robot: one state, a batch, and compile times; libraries down, queries across."""
    notes, made = _footnotes(found), []
    for robot in dict.fromkeys(case.robot for case in found.cases):
        of_robot = [case for case in found.cases if case.robot == robot]
        queries = [query for query in QUERIES if any(case.query == query for case in of_robot)]
        libraries = list(dict.fromkeys(case.library for case in of_robot))
        at = {(case.library, case.query, case.batch): case for case in of_robot}
        one, many = BATCHES
        for title, batch, what in (
            (f"{robot}: one state a call", one, _time),
            (f"{robot}: a state of a batch of {many:,}", many, _time),
            (f"{robot}: compile times, one state", one, _compile),
        ):
            rows = [
                (found.names.get(library, library), *(_cell(at.get((library, q, batch)), what, notes) for q in queries))
                for library in libraries
            ]
            made.append(Cells(title, ("library", *(f"{query.replace('_', ' ')} " for query in queries)), rows))
    return made


def lines(found: Found) -> list[str]:
    """What the tables' numbers in brackets say, how each library was asked, and which have no row."""
    said = [f"[{n}] {text}" for n, text in enumerate(_footnotes(found), start=1)]
    said += [
        f"{found.names.get(name, name)}: {LIBRARIES[name].how} Load before it: {found.loads[name]}."
        for name in LIBRARIES
        if any(case.library == name for case in found.cases)
    ]
    for name, why in NAMED.items():
        there = importlib.util.find_spec(name) is not None
        said.append(f"{name}: not measured. {'It is installed, but: ' if there else ''}{why}.")
    worst = {
        kind: max((case.off_by for case in found.cases if case.off_by is not None and not case.problem
                   and (case.query == "rollout") == (kind == "rollouts")), default=None)
        for kind in ("queries", "rollouts")
    }  # fmt: skip
    if worst["queries"] is not None:
        said.append(f"Largest difference of what is shown: {worst['queries']:.1g}.")
    if worst["rollouts"] is not None:
        said.append(
            f"Of rollouts: {worst['rollouts']:.1g}. Positions of a floating base follow its twist here and in "
            "Pinocchio, its velocity in the world elsewhere."
        )
    return said


def page(found: Found, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "The same work on the same robots, by `python -m tests.bench compare --write`: inverse and forward",
        f"dynamics, mass matrix, poses of all links, derivatives, and rollouts of {STEPS} steps under constant forces.",
        "Times are for one state, and of rollouts for one step of one, in float64. A library's answers at 64 states",
        f"are compared with ours first: what differs by more than {USUAL_TOLERANCE:g} of the largest entry (of",
        f"rollouts {TOLERANCE['rollout']:g}) has no time, but a note that says WRONG.",
        "",
        "**One thread**: each library runs in a process of its own, which is pinned to one processor, with one",
        "thread for BLAS and Eigen. One state a call is a loop in Python over 64 states; a batch is one call, and of",
        "libraries without batches a loop (*one by one*). Times are those of the processor, the best of many runs:",
        "what other programs take of it does not count, what they do to its caches does. Compile times are by the",
        "clock. Rows may be of several runs of the command: what each library met is said below.",
        "",
        "MuJoCo and Drake do more in a call than dynamics, what is written in JAX runs on GPUs and can be",
        "differentiated further, and Pinocchio is written for C++: see [other programs](../related.md). [Queries",
        "beside peers](cpu.md) has more batches and both precisions. What is written in JAX ran under the version that",
        "its row names.",
    ]
    return page_of("The same work by other libraries", text, about, lines(found), tables(found))


def document(found: Found, about: dict[str, str]) -> dict[str, Any]:
    """Everything for a JSON file."""
    cases = [asdict(case) for case in found.cases]
    return {**about, "libraries": found.names, "loads": found.loads, "cases": cases}
