"""Experiments: who is asked what of trees of which sizes, how far answers are off, and the curves that come out.

Trees are those of Featherstone's autoTree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import astuple, dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES
from robodyn.engines.scan import ScanOptions
from robodyn.internals.arguments import Array
from robodyn.plots.style import look as line
from robodyn.tools.benchmark.contenders import available_threads
from robodyn.tools.benchmark.tables import Cells
from tests.bench.gpu.machine import Machine
from tests.bench.points import Point, bounded_memory, difference
from tests.bench.runner import Run
from tests.bench.shared import columns, show, times

Call = Callable[[], Any]
Size = tuple[int, int]
"""States in a call, and bodies."""
INVERSE, FORWARD = "inverse_dynamics", "forward_dynamics"
MATRICES = "mass_matrix"
"""H and the bias force, one after the other: what the thesis times."""
GRADIENT = "inverse_dynamics_gradient"
_ROWS_AT_ONCE = 1 << 24
"""Scalars of a matrix that are brought to the host in one go."""


@lru_cache(maxsize=1)
def tree(n: int, branching: float, skew: float) -> Model:
    """The last one is kept."""
    return rd.auto_tree(n, branching=branching, skew=skew)


class Problem:
    """A batch of states of a tree. `given`: q, qd and accelerations or torques, each (batch, nv), in [-1, 1]."""

    def __init__(self, model: Model, batch: int = 1, judge: str = "cpu") -> None:
        self.model, self.batch = model, batch
        self._made: dict[tuple[Any, ...], rd.Dynamics] = {}
        self.given = tuple(np.random.default_rng(0).uniform(-1.0, 1.0, (3, batch, model.nv)))
        self._weights = np.random.default_rng(1).uniform(-1.0, 1.0, (batch, model.nv))
        self.judge = self.dynamics(judge)

    def dynamics(self, engine: str, threads: int | None = 1, scan: ScanOptions | None = None) -> rd.Dynamics:
        """An engine with these options, made once: large trees take a while to lay out."""
        options = engine, threads if engine == "cpu" else None, scan  # only that engine has threads of its own
        if options not in self._made:
            engine, threads, scan = options
            self._made[options] = rd.Dynamics(self.model, engine=engine, threads=threads, scan=scan, check=False)
        return self._made[options]

    def off_by(self, query: str, answer: Any, to_numpy: Callable[[Any], Array] = np.asarray) -> float:
        """How far the answer to a query is from what the judge says, relative to the largest entry.

        Of accelerations: the torques that they need, relative to the largest bias force. Of matrices: sums of their
        rows with random weights, which no matrix is made for.
        """
        if query == INVERSE:
            return difference(to_numpy(answer), self.torques)
        if query == FORWARD:
            q, qd, tau = self.given
            needed = self.judge.inverse_dynamics(q, qd, to_numpy(answer))
            return float(np.abs(needed - tau).max() / np.abs(self.judge.bias_force(q, qd)).max())
        # Of dtau/dq, dtau/dqd and H.
        matrices, wanted = (answer, self._weighted[:2]) if query == GRADIENT else ((answer,), self._weighted[2:])
        return max(difference(self._sum(each, to_numpy), right) for each, right in zip(matrices, wanted, strict=True))

    @cached_property
    def torques(self) -> Array:
        return self.judge.inverse_dynamics(*self.given)

    @cached_property
    def _weighted(self) -> tuple[Array, ...]:
        return self.judge.inverse_dynamics_vjp(*self.given, vector=self._weights)

    def _sum(self, matrix: Any, to_numpy: Callable[[Any], Array]) -> Array:
        """Of the rows of (batch, n, n), or of a sparse matrix of one state, some rows at a time."""
        sparse, count, found = matrix.ndim == 2, matrix.shape[-1], 0.0
        step = max(1, _ROWS_AT_ONCE // (self.batch * count))
        for piece in (slice(start, start + step) for start in range(0, count, step)):
            rows = to_numpy(matrix[piece].toarray())[None] if sparse else to_numpy(matrix[:, piece])
            found = found + np.einsum("bi,bij->bj", self._weights[:, piece], rows)
        return found


@dataclass(frozen=True)
class Contender:
    """A query asked of an engine: on NumPy arrays, or on those of a GPU, whose calls wait until it has finished.

    `recorded`: by `Dynamics.capture`; `scan`: options of the engine, `options`: of the query; `most`, `most_of_chains`:
    bodies that it is asked about, of any tree and of chains.
    """

    name: str
    query: str
    engine: str
    threads: int | None = 1
    machine: Machine | None = None
    recorded: bool = False
    scan: ScanOptions | None = None
    options: dict[str, Any] = field(default_factory=dict)
    most: int = 10_000_000
    most_of_chains: int = 10_000_000

    def prepare(self, problem: Problem) -> Call:
        """A call whose results go where there is room for them already, if it is not recorded."""
        device = None if self.machine is None else self.machine.device
        xp = np if device is None else device.xp
        dyn = problem.dynamics(self.engine, self.threads, self.scan)
        given = q, qd, _ = tuple(map(xp.asarray, problem.given))
        sparse = self.options.get("sparse", False)
        asked = (
            {"bias_force": (q, qd), MATRICES: (q[0] if sparse else q,)}
            if self.query == MATRICES
            else {self.query: given}
        )

        def step(query: str, arguments: tuple[Any, ...]) -> Call:
            options = dict(self.options) if query == self.query else {}
            if self.recorded:
                return dyn.capture(query, *arguments, **options)
            if not (sparse and query == MATRICES):
                shapes = QUERIES[query].shapes(problem.model, QUERIES[query].inputs).values()
                out = tuple(xp.empty((problem.batch, *shape), dyn.dtype) for shape in shapes)
                options["out"] = out if len(out) > 1 else out[0]
            # Looked up at every call: an engine may put a faster entry in the place of the method.
            return lambda: getattr(dyn, query)(*arguments, **options)

        *before, last = (step(*each) for each in asked.items())
        if device is None and not before:
            return last  # nothing to wait for: one more function of Python is a tenth of a small tree's time

        def call() -> Any:
            for each in before:
                each()
            found = last()
            if device is not None:
                device.settle()
            return found

        return call

    @property
    def where(self) -> str:
        """On which kind of processor."""
        return "cpu" if self.machine is None else "gpu"

    def off_by(self, problem: Problem, answer: Any) -> float:
        to_numpy = np.asarray if self.machine is None else self.machine.device.xp.asnumpy
        return problem.off_by(self.query, answer, to_numpy)


@dataclass(frozen=True)
class Case:
    """A tree of `n` bodies, and states of it in a call."""

    n: int
    branching: float = 1.0
    batch: int = 1


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


def measure(experiments: Sequence[Experiment], skew: float, run: Run) -> Measured:
    """All points whose names are selected, of trees of up to the largest size; those so far if interrupted."""
    budget, found = run.budget(), Measured([])
    with suppress(KeyboardInterrupt):
        for experiment in experiments:
            begin = f"{experiment.begin} {experiment.group}"
            contenders = [each for each in experiment.contenders if run.selected(f"{begin}, {each.name}")]
            cases = [case for case in experiment.cases if contenders and case.n <= run.largest]
            # Where only batches grow, they foretell each other.
            grow = len({case.n for case in experiment.cases}) > 1
            # CUDA maps more than the machine's memory.
            elsewhere = any(each.machine is not None for each in contenders)
            with nullcontext() if elsewhere else bounded_memory():
                for case in cases:
                    run.announce(f"{begin}, branching {case.branching:g}, n = {case.n:,}, batch {case.batch:,}")
                    problem = Problem(tree(case.n, case.branching, skew), case.batch)
                    for each in contenders:
                        point = Point(experiment.group, each.name, *astuple(case), where=each.where)
                        found.points.append(point)
                        most = each.most if case.branching > 1.0 else min(each.most, each.most_of_chains)
                        if case.n > most:
                            point.problem = f"asked of at most {most:,} bodies"
                            continue
                        prepare, check = partial(each.prepare, problem), partial(each.off_by, problem)
                        apart = case.batch if grow else None
                        budget.measure(point, case.n * case.batch, prepare, check, apart=apart)
    return found


class Curves:
    """Points of one group, or of one branching factor of it, by series and size.

    `unit`: what is shown of sizes: "bodies" or "links", or "groups", states in a call.
    """

    def __init__(self, points: Sequence[Point], group: str, branching: float | None = None, unit: str = "bodies"):
        mine = [point for point in points if point.group == group]
        self.series = list(dict.fromkeys(point.series for point in mine))
        self.points = [point for point in mine if branching in (None, point.branching)]
        self.sizes = sorted({(point.batch, point.n) for point in mine})
        self.group, self.unit = group, unit
        self._at = {(point.series, (point.batch, point.n)): point for point in self.points}

    def shown(self, size: Size) -> int:
        return size[0 if self.unit == "groups" else 1]

    def seconds(self, series: str, size: Size) -> float | None:
        point = self._at.get((series, size))
        return None if point is None else point.best_s

    def known(self, series: str, over: str = "") -> list[tuple[int, float]]:
        """Sizes as they are shown, and seconds; or how many times longer another series takes."""
        found = [(size, self.ratio(over, series, size) if over else self.seconds(series, size)) for size in self.sizes]
        return [(self.shown(size), value) for size, value in found if value]

    def ratio(self, over: str, under: str, size: Size) -> float | None:
        """How many times longer one series takes than another."""
        a, b = (self.seconds(series, size) for series in (over, under))
        return a / b if a and b else None

    def table(self, title: str, against: str, said: dict[str, dict[int, float]] | None = None) -> Cells:
        """Times, with how many times faster than `against` they are; then published ones."""
        said, rows = said or {}, []
        for size in self.sizes:
            n = self.shown(size)
            others = [show(column.get(n)) for column in said.values()]
            rows.append((f"{n:,}", *(self._cell(each, size, against) for each in self.series), *others))
        return Cells(title, columns(*(f"#{each}" for each in (self.unit, *self.series, *said))), rows)

    def _cell(self, series: str, size: Size, against: str) -> str:
        point = self._at.get((series, size))
        ratio = None if against == series else self.ratio(against, series, size)
        return "" if point is None else point.cell if ratio is None else f"{point.cell} ({times(ratio)})"

    def draw(self, panel: Any) -> None:
        for k, series in enumerate(self.series):
            if there := self.known(series):
                look = line(k) | {"marker": "o", "markersize": 3, "linewidth": 1.3}
                panel.plot(*zip(*there, strict=True), label=series, **look)
