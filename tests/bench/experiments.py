"""Experiments: who is asked what on trees of which sizes, and the curves that come out.

A contender for another device is one more entry of an experiment, under another `where`; its call must wait until the
device has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from robodyn.tools.benchmark.contenders import available_threads
from robodyn.tools.benchmark.tables import Cells
from tests.bench.drawing import curve, look
from tests.bench.points import Budget, Point, bounded_memory, remarks
from tests.bench.runner import Run
from tests.bench.shared import show, times

Call = Callable[[], Any]


@dataclass(frozen=True)
class Contender:
    """A way to compute something: `prepare` makes the call, of everything that is not part of its time.

    `answer`: what of the problem its results are. `most`, `most_of_chains`: bodies that it is asked about, of any tree
    and of chains. `fetch`: brings results here to be compared.
    """

    name: str
    prepare: Callable[[Any], Call]
    answer: str = "torques"
    most: int = 10_000_000
    most_of_chains: int = 10_000_000
    where: str = "cpu"
    fetch: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True)
class Case:
    """A tree of Featherstone's autoTree with `n` bodies, and states of it in a call."""

    n: int
    branching: float = 1.0
    batch: int = 1

    def __str__(self) -> str:
        batch = f", batch {self.batch:,}" if self.batch > 1 else ""
        return f"branching {self.branching:g}, n = {self.n:,}{batch}"


@dataclass(frozen=True)
class Experiment:
    """What is asked of contenders in cases, sizes in rising order.

    `begin`: how names begin, with the page: "scan:", "papers: 2016a figure 2,".
    """

    group: str
    begin: str
    contenders: Sequence[Contender]
    cases: Sequence[Case]


@dataclass
class Measured:
    """Points, and how they were measured. `missing`: why nothing was measured on a GPU; `machine`: facts of that."""

    points: list[Point]
    threads: int = field(default_factory=available_threads)
    missing: str = ""
    machine: dict[str, str] = field(default_factory=dict)


def over(branchings: Sequence[float], sizes: Sequence[int]) -> tuple[Case, ...]:
    """Single states of trees."""
    return tuple(Case(n, branching) for branching in branchings for n in sizes)


def measure(experiments: Sequence[Experiment], problem: Callable[[Case], Any], run: Run) -> Measured:
    """All points whose names are selected, of trees of up to the largest size; those so far if interrupted."""
    budget, found = run.budget(), Measured([])
    with suppress(KeyboardInterrupt):
        for experiment in experiments:
            begin = f"{experiment.begin} {experiment.group}"
            contenders = [each for each in experiment.contenders if run.selected(f"{begin}, {each.name}")]
            # CUDA maps more than the machine's memory.
            elsewhere = any(each.where != "cpu" for each in contenders)
            with nullcontext() if elsewhere else bounded_memory():
                for case in (case for case in experiment.cases if contenders and case.n <= run.largest):
                    run.announce(f"{begin}, {case}")
                    found.points += _points(experiment, contenders, case, problem(case), budget)
    return found


def _points(
    experiment: Experiment, contenders: Sequence[Contender], case: Case, problem: Any, budget: Budget
) -> list[Point]:
    found = []
    # Where only batches grow, they foretell each other.
    apart = case.batch if len({each.n for each in experiment.cases}) > 1 else None
    for each in contenders:
        point = Point(experiment.group, each.name, case.n, case.branching, case.batch, where=each.where)
        most = each.most if case.branching > 1.0 else min(each.most, each.most_of_chains)
        if case.n > most:
            point.problem = f"asked of at most {most:,} bodies"
        else:
            prepare, check = partial(each.prepare, problem), partial(_off_by, problem, each)
            budget.measure(point, case.n * case.batch, prepare, check, apart=apart)
        found.append(point)
    return found


def _off_by(problem: Any, contender: Contender, answer: Any) -> float:
    return problem.off_by(contender.answer, contender.fetch(answer))


class Curves:
    """Points by group, branching, series and size: the field `axis` of points, which is called `unit`."""

    def __init__(self, points: Sequence[Point], axis: str = "n", unit: str = "bodies") -> None:
        self.points, self.axis, self.unit = points, axis, unit
        self._at = {(p.group, p.branching, p.series, getattr(p, axis)): p for p in points}

    def of(self, group: str, branching: float | None = None) -> list[Point]:
        return [p for p in self.points if p.group == group and branching in (None, p.branching)]

    def sizes(self, group: str) -> list[int]:
        return sorted({getattr(p, self.axis) for p in self.of(group)})

    def series(self, group: str) -> list[str]:
        """Of a group, in the order in which they are listed."""
        return list(dict.fromkeys(p.series for p in self.of(group)))

    def at(self, group: str, branching: float, series: str, n: int) -> Point | None:
        return self._at.get((group, branching, series, n))

    def seconds(self, group: str, branching: float, series: str, n: int) -> float | None:
        point = self.at(group, branching, series, n)
        return None if point is None else point.best_s

    def ratio(self, group: str, branching: float, over: str, under: str, n: int) -> float | None:
        """How many times longer one series takes than another."""
        a, b = (self.seconds(group, branching, series, n) for series in (over, under))
        return a / b if a and b else None

    def table(
        self, group: str, branching: float, against: str | None = None, said: dict[str, dict[int, float]] | None = None
    ) -> Cells:
        """Times, with how many times faster than `against` they are; then published ones."""
        series, said = self.series(group), said or {}
        rows = []
        for n in self.sizes(group):
            cells = [self._cell(group, branching, each, n, against) for each in series]
            others = [show(column[n]) if n in column else "" for column in said.values()]
            rows.append((f"{n:,}", *cells, *others))
        columns = (f"{self.unit} ", *(f"{each} " for each in series), *(f"{each} " for each in said))
        return Cells(f"{group}, branching {branching:g}", columns, rows)

    def _cell(self, group: str, branching: float, series: str, n: int, against: str | None) -> str:
        point = self.at(group, branching, series, n)
        if point is None:
            return ""
        ratio = None if against in (None, series) else self.ratio(group, branching, str(against), series, n)
        return point.cell if ratio is None else f"{point.cell} ({times(ratio)})"

    def draw(self, panel: Any, group: str, branching: float, against: str = "", ratios: bool = False) -> None:
        """Times of all series, or how many times faster than one of them the others are."""
        for k, series in enumerate(self.series(group)):
            if not ratios:
                value = partial(self.seconds, group, branching, series)
            elif series != against:
                value = partial(self.ratio, group, branching, against, series)
            else:
                continue
            curve(panel, self.sizes(group), value, label=series, **look(k))
        if ratios:
            panel.axhline(1.0, color="#000000", linewidth=0.8)


def remarks_by(points: Sequence[Point], *names: str, how: Callable[..., str]) -> list[str]:
    """Why points have no time, by fields of points that `how` makes a name of."""
    keys = dict.fromkeys(tuple(getattr(p, name) for name in names) for p in points)
    return [
        f"{how(*key)}{remark}"
        for key in keys
        for remark in remarks([p for p in points if tuple(getattr(p, name) for name in names) == key])
    ]
