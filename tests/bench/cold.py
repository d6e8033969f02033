"""First answers with an empty cache, of a new process, for one state and for many.

Without `--whole`, the queries that take longest of robots of all sizes, and every query of an arm. Beside the worst of
them what loops over bodies take, which robots share and a cold cache has not: why straight-line code is waited for.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from robodyn.engines.query_table import QUERIES
from tests.bench.first_answers import Case, ask
from tests.bench.runner import Page, Run
from tests.bench.shared import COLLECTION, MODELS, show
from tests.bench.shared import ROBOTS as BASES

STATES = (1, 1024)
ROBOTS = (
    *("universalUR5", "a1", "shadow_hand_right", "h1", "cassie_v4", "talos_full_v2", "g1_29dof_with_hand", "pr2_pr2"),
    "ergoCubGazeboSN000_model",
)
"""Of the shared collection, where it is there."""
SECOND_ORDER = ("inverse_dynamics_hessian", "forward_dynamics_hessian")
SLOWEST = (
    *("mass_matrix_inverse", "inverse_dynamics_gradient", "forward_dynamics_gradient"),
    *("forward_dynamics_parameter_gradient", *SECOND_ORDER),
)
WANTED_S, WANTED_SECOND_S, WANTED_ARM_S = 1.0, 3.0, 0.15
ARM = "arm7"
PROCESSES = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "inverse_dynamics_gradient")
"""Queries of the arm in processes of their own, of which the whole time is shown as well."""
_WORST, _BESIDE, _TRIES, _CACHED_RUNS = 20, 8, 3, 3


@dataclass
class Answered:
    """Seconds to the first answer, of work of all threads until then, and to the second; `loops_work_s`: of work for
    the first by loops."""

    robot: str
    base: str
    query: str
    whole: bool
    states: int
    first_s: float = 0.0
    work_s: float = 0.0
    again_s: float = 0.0
    bodies: int = 0
    problem: str = ""
    loops_work_s: float | None = None

    @property
    def asked(self) -> str:
        return self.query + ", whole" * self.whole

    @property
    def wanted_s(self) -> float:
        slow = self.query in SECOND_ORDER
        if self.robot == ARM:
            return WANTED_S if slow else WANTED_ARM_S
        return WANTED_SECOND_S if slow else WANTED_S


@dataclass
class First:
    """Seconds from `load_urdf` to the first answer, imports not counted; the whole process as well."""

    robot: str
    query: str
    engine: str
    cold_s: float | None = None
    cached_s: float | None = None
    process_cold_s: float | None = None
    process_cached_s: float | None = None
    problem: str = ""


@dataclass
class Results:
    """The slowest answers, what is to be said of all of them, and an arm in new processes."""

    slowest: list[Answered]
    notes: list[str]
    processes: list[First]


def cases(whole: bool) -> Iterator[Case]:
    asked = [(MODELS / f"{ARM}.urdf", "fixed", tuple(QUERIES))]
    for path in sorted(COLLECTION.glob("*.urdf")):
        if whole or path.stem in ROBOTS:
            bases = ("floating", "fixed") if whole else ("floating",)
            asked += [(path, base, tuple(QUERIES) if whole else SLOWEST) for base in bases]
    for path, base, queries in asked:
        for question in (QUERIES[query] for query in queries if not QUERIES[query].of_constraints):
            for tensor in (False, True) if "vector" in question.optional else (False,):
                yield from (Case(str(path), base, question.name, tensor, states) for states in STATES)


def measure(run: Run) -> Results:
    found = []
    for case in cases(run.whole):
        if run.chosen(f"cold: {Path(case.path).stem}, {case.base}, {case.query}, {case.states} states"):
            found.append((case, _answered(case, _TRIES)))
    # By work, which other processes stretch less than time.
    answered = [each for each in found if not each[1].problem]
    slowest = sorted(answered, key=lambda each: -each[1].work_s / each[1].wanted_s)[:_WORST]
    for case, each in slowest[:_BESIDE]:
        loops = _answered(replace(case, code="rolled"), 1)
        each.loops_work_s = None if loops.problem else loops.work_s
    processes = [first_answer(ARM, query) for query in PROCESSES if run.selected(f"cold: {ARM}, {query}")]
    return Results([each for _, each in slowest], notes_of([each for _, each in found]), processes)


def _answered(case: Case, tries: int) -> Answered:
    """Where an answer takes more than wanted, the quickest of some counts."""
    found: list[Answered] = []
    while len(found) < tries and all(each.first_s > each.wanted_s for each in found):
        with tempfile.TemporaryDirectory() as folder:
            said = ask(case, folder)
        told = {name: said[name] for name in said.keys() & {"first_s", "work_s", "again_s", "bodies", "problem"}}
        found.append(Answered(Path(case.path).stem, case.base, case.query, case.whole, case.states, **told))
    return min(found, key=lambda each: each.first_s)


def first_answer(robot: str, query: str, engine: str = "cpu") -> First:
    """A query of a robot of models/ with an empty cache, then with what that left; the best of the latter."""
    case = Case(str(MODELS / f"{robot}.urdf"), BASES[robot], query, engine=engine)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        ask(case, other)  # leaves bytecode to those that count
        cold, *cached = [ask(case, folder) for _ in range(1 + _CACHED_RUNS)]
    problem = next((run["problem"] for run in (cold, *cached) if "problem" in run), "")
    if problem:
        return First(robot, query, engine, problem=problem)
    best, whole = (min(run[name] for run in cached) for name in ("first_s", "process"))
    return First(robot, query, cold["engine"], cold["first_s"], best, cold["process"], whole)


def notes_of(found: list[Answered]) -> list[str]:
    """What all answers say."""
    kinds = {
        WANTED_ARM_S: f"of an arm, wanted within {WANTED_ARM_S:g} s",
        WANTED_S: f"of robots, and second derivatives of an arm, wanted within {WANTED_S:g} s",
        WANTED_SECOND_S: f"second derivatives of robots, wanted within {WANTED_SECOND_S:g} s",
    }
    lines = []
    for wanted, name in kinds.items():
        group = [each for each in found if each.wanted_s == wanted and not each.problem]
        times = {"work of all threads": [each.work_s for each in group], "clock": [each.first_s for each in group]}
        told = (
            f"by the {what} {sum(each <= wanted for each in took)} are: {show(median(took))} in the middle, "
            f"{show(max(took))} at most"
            for what, took in times.items()
            if took
        )
        lines += [f"{len(group)} first answers {name}, {'; '.join(told)}."] if group else []
    beside = [each.loops_work_s / each.work_s for each in found if each.loops_work_s]
    if beside:
        lines.append(
            f"Loops over bodies take {median(beside):.2f} of the work in the middle of the {len(beside)} slowest, "
            f"{min(beside):.2f} to {max(beside):.2f}."
        )
    problems = Counter(each.problem for each in found if each.problem)
    return lines + [f"Left out: {count} cases ({problem})." for problem, count in problems.items()]


PAGE = Page("cold", Results, measure, notes=lambda found: found.notes)
