"""First answers with an empty cache: `python -m tests.bench cold --write`, `--whole` for every query of every robot.

From a robot's file to the answer of a query, for one state and for 1,024, in a new process, imports not counted.
Without `--whole`, the queries that take longest of robots of all sizes, and every query of an arm. Beside the worst of
them what loops over bodies take, which robots share and a cold cache has not: why straight-line code is waited for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from robodyn.engines.query_table import QUERIES
from robodyn.tools.benchmark.tables import Cells
from tests.bench.cold_child import Case
from tests.bench.first_answer import First, measure_case
from tests.bench.shared import MODELS, ROOT, page_of, show
from tests.robots import SHARED_FOLDER

STATES = (1, 1024)
ROBOTS = (
    "universalUR5",
    "a1",
    "shadow_hand_right",
    "h1",
    "cassie_v4",
    "talos_full_v2",
    "g1_29dof_with_hand",
    "pr2_pr2",
    "ergoCubGazeboSN000_model",
)
"""Of the shared collection, where it is there."""
SLOWEST = (
    "mass_matrix_inverse",
    "inverse_dynamics_gradient",
    "forward_dynamics_gradient",
    "forward_dynamics_parameter_gradient",
    "inverse_dynamics_hessian",
    "forward_dynamics_hessian",
)
SECOND_ORDER = ("inverse_dynamics_hessian", "forward_dynamics_hessian")
WANTED_S, WANTED_SECOND_S, WANTED_ARM_S = 1.0, 3.0, 0.15
ARM = "arm7"
PROCESSES = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "inverse_dynamics_gradient")
"""Queries of the arm in processes of their own, of which the whole time is shown as well."""
_WORST, _BESIDE, _TRIES = 20, 8, 3


@dataclass
class Answered:
    """Seconds to the first answer, of work of all threads until then, and to the second; `loops_work_s`: of work for
    the first by loops."""

    case: Case
    first_s: float = 0.0
    work_s: float = 0.0
    again_s: float = 0.0
    bodies: int = 0
    problem: str = ""
    loops_work_s: float | None = None

    @property
    def robot(self) -> str:
        """Its name."""
        return Path(self.case.path).stem

    @property
    def wanted_s(self) -> float:
        """What was wanted."""
        if self.robot == ARM:
            return WANTED_ARM_S if self.case.query not in SECOND_ORDER else WANTED_S
        return WANTED_SECOND_S if self.case.query in SECOND_ORDER else WANTED_S

    def cells(self) -> tuple[str, ...]:
        """As text."""
        case = self.case
        query = case.query + (", whole" if case.whole else "")
        times = (self.work_s, self.first_s, self.again_s, self.loops_work_s)
        return (self.robot, case.base, str(self.bodies), query, str(case.states), *map(show, times))


@dataclass
class Measured:
    """What the suite found."""

    answers: list[Answered]
    processes: list[First]


def cases(whole: bool) -> Iterator[Case]:
    """What is asked."""
    yield from _of(MODELS / f"{ARM}.urdf", "fixed", QUERIES)
    for path in sorted(SHARED_FOLDER.glob("*.urdf")):
        if whole or path.stem in ROBOTS:
            for base in ("floating", "fixed") if whole else ("floating",):
                yield from _of(path, base, QUERIES if whole else SLOWEST)


def _of(path: Path, base: str, queries: Any) -> Iterator[Case]:
    for query in queries:
        question = QUERIES[query]
        if not question.of_constraints:
            for tensor in (False, True) if "vector" in question.optional else (False,):
                yield from (Case(str(path), base, query, tensor, states) for states in STATES)


def measure(selected: Callable[[str], bool], whole: bool, announce: Callable[[str], object]) -> Measured:
    """Run the cases whose names are selected."""
    chosen = [case for case in cases(whole) if selected(f"cold: {Path(case.path).stem}, {case.base}, {case.query}")]
    if not chosen:
        return Measured([], [])
    with _child() as child:
        found = [_answered(child, case, announce) for case in chosen]
        for each in _worst(found)[:_BESIDE]:
            loops = _answered(child, replace(each.case, code="rolled"), announce)
            each.loops_work_s = None if loops.problem else loops.work_s
    processes = [measure_case(ARM, "fixed", query, "cpu") for query in PROCESSES if selected(f"cold: {ARM}, {query}")]
    return Measured(found, processes)


def _worst(found: list[Answered]) -> list[Answered]:
    """By work, which other processes stretch less than time, beside what was wanted."""
    return sorted((each for each in found if not each.problem), key=lambda each: -each.work_s / each.wanted_s)


def _child(*options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-m", "tests.bench.cold_child", *options]
    folder = tempfile.gettempdir()
    return subprocess.Popen(
        command, env=environment, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _answered(child: subprocess.Popen[str], case: Case, announce: Callable[[str], object]) -> Answered:
    """By a fork of the child, or of an arm, where that would be a large part of what is wanted, by a new process; where
    it takes more than wanted, the quickest of some counts, which are new processes."""
    found = [] if Path(case.path).stem == ARM else [_ask(child, case, announce)]
    while len(found) < _TRIES and all(each.first_s > each.wanted_s for each in found):
        with _child("--alone") as alone:
            found.append(_ask(alone, case, announce))
    return min(found, key=lambda each: each.first_s)


def _ask(child: subprocess.Popen[str], case: Case, announce: Callable[[str], object]) -> Answered:
    assert child.stdin is not None and child.stdout is not None
    announce(f"{Path(case.path).stem}, {case.base}, {case.query}, {case.states} states, {case.code}")
    child.stdin.write(json.dumps(asdict(case)) + "\n")
    child.stdin.flush()
    said = child.stdout.readline() or json.dumps({"problem": "the process ended without an answer"})
    return Answered(case, **json.loads(said))


def tables(found: Measured) -> list[Cells]:
    """For the screen and the page."""
    headings = ("robot", "base", "bodies ", "query", "states ", "work ", "first answer ", "second ", "work, loops ")
    rows = [each.cells() for each in _worst(found.answers)[:_WORST]]
    processes = [each.cells() for each in found.processes]
    times = ("robot", "query", "engine", "cold ", "cached ", "process, cold ", "process, cached ", "remark")
    return [Cells("the slowest for what was wanted", headings, rows)] + (
        [Cells("an arm in a new process", times, processes)] if processes else []
    )


def notes(found: Measured) -> list[str]:
    """What the tables say."""
    answered = [each for each in found.answers if not each.problem]
    if not answered:
        return []
    groups = {
        f"of an arm, wanted within {WANTED_ARM_S:g} s": [each for each in answered if each.wanted_s == WANTED_ARM_S],
        f"of robots, and second derivatives of an arm, wanted within {WANTED_S:g} s": [
            each for each in answered if each.wanted_s == WANTED_S
        ],
        f"second derivatives of robots, wanted within {WANTED_SECOND_S:g} s": [
            each for each in answered if each.wanted_s == WANTED_SECOND_S
        ],
    }
    lines = []
    for name, group in groups.items():
        if group:
            first, work = [[each.first_s for each in group], [each.work_s for each in group]]
            wanted = group[0].wanted_s
            counts = [sum(seconds <= wanted for seconds in each) for each in (work, first)]
            lines.append(
                f"{len(group)} first answers {name}. By the work of all threads {counts[0]} are: {show(median(work))} "
                f"in the middle, {show(max(work))} at most. By the clock, on a machine as busy as it was, {counts[1]}: "
                f"{show(median(first))} in the middle, {show(max(first))} at most."
            )
    beside = [each.loops_work_s / each.work_s for each in answered if each.loops_work_s]
    if beside:
        lines.append(
            f"Loops over bodies take {median(beside):.2f} of the work in the middle of the {len(beside)} slowest, "
            f"{min(beside):.2f} to {max(beside):.2f}."
        )
    problems = Counter(each.problem for each in found.answers if each.problem)
    return lines + [f"Left out: {count} cases ({problem})." for problem, count in problems.items()]


def page(found: Measured, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench cold --write` (`--whole` asks every query of every robot): the time from a",
        "robot's file to its first answer with an empty cache, for one state and for 1,024. Each is a new process,",
        "whose imports are not counted: of an arm one that was started for it, of others a fork, which takes some",
        f"25 ms more; where it took more than wanted, the quickest of {_TRIES}. The last table has whole processes",
        "too. `work` is that of all threads, which other processes stretch less than the time by the clock; `second`",
        'the next answer; `work, loops` that of the first answer with `code="rolled"`. See',
        "[engines](../engines.md#first-answers).",
    ]
    return page_of("First answers with an empty cache", text, about, notes(found), tables(found))


def document(found: Measured, about: dict[str, str]) -> dict[str, Any]:
    """The same for programs, answers as lines: they are thousands."""
    answers = [_line(each) for each in found.answers]
    return {**about, "answers": [_LINE, *answers], "processes": [asdict(each) for each in found.processes]}


_LINE = "robot base query states first_s work_s again_s"


def _line(each: Answered) -> str:
    case = each.case
    query = f"{case.query},whole" if case.whole else case.query
    seconds = each.problem or " ".join(f"{s:.3g}" for s in (each.first_s, each.work_s, each.again_s))
    return f"{each.robot} {case.base} {query} {case.states} {seconds}"
