"""Measures engines and GPU kernels on this machine, for the tables by which calls choose among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.engine_selector import ENGINES, SECTION, USUAL
from robodyn.core.model import Model
from robodyn.engines.gpu import GpuOptions, choice
from robodyn.engines.query_table import QUERIES
from robodyn.engines.tuning_store import Row, Table
from robodyn.internals.errors import RobodynError, UnavailableError
from robodyn.internals.records import dataclass
from robodyn.io.builders.auto_tree import auto_tree
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure

MEASURED = (
    *("inverse_dynamics", "forward_dynamics", "mass_matrix"),
    *("inverse_dynamics_gradient", "forward_dynamics_gradient"),
)
_SQUARE = ("mass_matrix", "inverse_dynamics_gradient", "forward_dynamics_gradient")
_SLOWEST_S = 0.3
"""Once a call takes longer (in seconds), larger cases of the engine are skipped."""
_MOST_SCALARS = {"mass_matrix": 1 << 24, "inverse_dynamics_gradient": 1 << 24}
_USUAL_MOST = 1 << 22
"""Limits of the scalars of a result. The larger limits allow matrices of some thousand bodies, for which writing the
result dominates."""


@dataclass(frozen=True)
class Grid:
    """The cases to measure: chains and trees of branching factor 2 with n bodies, other robots, and batches."""

    bodies: tuple[int, ...] = (6, 30, 150, 1000, 3000, 10_000)
    batches: tuple[int, ...] = (1, 16, 256, 4096, 65_536)
    dtypes: tuple[str, ...] = ("float64", "float32")
    queries: tuple[str, ...] = MEASURED
    robots: tuple[Model, ...] = ()

    def models(self) -> Iterator[Model]:
        """The robots, then the generated trees."""
        yield from self.robots
        for n in self.bodies:
            for branching in (1.0, 2.0):
                yield auto_tree(n, branching=branching, skew=0.3)

    def cases(self) -> Iterator[tuple[Model, str, str, int]]:
        """(tree, query, dtype, batch), small batches first."""
        for model in self.models():
            for query in self.queries:
                row, max_scalars = (
                    model.nv * (model.nv if query in _SQUARE else 1),
                    _MOST_SCALARS.get(query, _USUAL_MOST),
                )
                for dtype in self.dtypes:
                    for batch in self.batches:
                        if batch * row <= max_scalars:
                            yield model, query, dtype, batch


CHECKED = Grid(bodies=(12, 400), batches=(4, 1024), dtypes=("float64",))
"""Cases that are not in the table, to test its choices."""


def engines_here() -> tuple[str, ...]:
    """The engines that run on this machine."""
    engines, model = [], auto_tree(2)
    for name in ENGINES:
        try:
            Dynamics(model, engine=name)  # type: ignore[arg-type]
        except UnavailableError:
            continue
        engines.append(name)
    return tuple(engines)


def fit(
    grid: Grid,
    seconds: float = 0.01,
    announce: Callable[[str], object] = lambda text: None,
    engines: Sequence[str] | None = None,
) -> Table:
    """Measure a grid. `engines`: None for all engines that run here."""
    rows: list[Row] = []
    made = cache(lambda model, dtype, engine: Dynamics(model, engine=engine, dtype=dtype))
    slow: set[tuple[Model, str, str, str]] = set()
    engines = engines_here() if engines is None else engines
    for model, query, dtype, batch in grid.cases():
        arrays = _states(model, query, dtype, batch)
        for engine in engines:
            case = model, query, dtype, engine
            if engine not in QUERIES[query].engines or case in slow:
                continue
            announce(f"{query}: {engine}, {dtype}, {model.n_bodies} bodies, {batch} states")
            time = _time(made(model, dtype, engine), query, arrays, seconds)
            if time is None or time > _SLOWEST_S:
                slow.add(case)
            if time is not None:
                tree = model.n_bodies, model.tree.n_levels
                rows.append(Row(SECTION.name, query, dtype, *tree, batch, engine, time))
    return Table(SECTION, rows)


def _states(model: Model, query: str, dtype: str, batch: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(batch)
    q = model.random_configuration(rng, (batch,))
    others = () if query == "mass_matrix" else rng.uniform(-1.0, 1.0, (2, batch, model.nv))
    return tuple(array.astype(dtype) for array in (q, *others))


def _time(dyn: Dynamics, query: str, arrays: tuple[Any, ...], seconds: float) -> float | None:
    try:
        return measure(lambda: getattr(dyn, query)(*arrays), seconds).best_s
    except (RobodynError, MemoryError):
        return None


@dataclass(frozen=True)
class Judged:
    """A choice compared with measurements: `over` is its time relative to the `fastest` engine."""

    query: str
    dtype: str
    bodies: int
    depth: int
    batch: int
    chosen: str
    fastest: str
    over: float

    @property
    def place(self) -> tuple[str, str, int, int, int]:
        """The place as in rows of a table."""
        return self.query, self.dtype, self.bodies, self.depth, self.batch

    def __str__(self) -> str:
        return f"{self.query}, {self.bodies} bodies in {self.depth} levels, batch {self.batch}: {self.chosen}"


def judged(table: Table, checked: Table) -> list[Judged]:
    """Compare a table's choices with other measurements. A chosen engine that was too slow to be measured counts as
    infinitely slow."""
    times: dict[tuple[str, str, int, int, int], dict[str, float]] = {}
    for row in checked.rows:
        times.setdefault(row.place, {})[row.choice] = row.seconds
    judgements = []
    for place, seconds in times.items():
        chosen = next(iter(table.nearest(*place)), USUAL)
        fastest = min(seconds, key=lambda name: seconds[name])
        judgements.append(Judged(*place, chosen, fastest, seconds.get(chosen, math.inf) / seconds[fastest]))
    return judgements


def worst_choice(table: Table, checked: Table) -> tuple[float, str]:
    """The largest time of a chosen engine relative to the fastest one in other measurements, and its case."""
    worst = max(judged(table, checked), key=lambda each: each.over, default=None)
    return (1.0, "everywhere") if worst is None else (worst.over, str(worst))


def engine_table(table: Table) -> Cells:
    """A table with the times of all engines."""
    engines = [name for name in ENGINES if any(row.choice == name for row in table.rows)]
    places = dict.fromkeys(row.place for row in table.rows)
    times = {(*row.place, row.choice): row.seconds for row in table.rows}
    rows = []
    for place in places:
        by_engine = {name: times.get((*place, name)) for name in engines}
        timed = {name: each for name, each in by_engine.items() if each is not None}
        cells = ("-" if each is None else f"{1e6 * each:.4g}" for each in by_engine.values())
        rows.append((*map(str, place), *cells, min(timed, key=lambda name: timed[name])))
    head = ("query", "dtype", "bodies ", "levels ", "batch ", *(f"{name}, us " for name in engines), "fastest")
    return Cells("engines on NumPy arrays", head, rows)


def document(table: Table) -> list[dict[str, Any]]:
    """The times of engines, for a JSON file."""
    names = ("query", "dtype", "bodies", "depth", "batch", "engine", "seconds")
    return [dict(zip(names, (*row.place, row.choice, row.seconds), strict=True)) for row in table.rows]


# GPU kernels.


def fit_kernels(
    grid: Grid, seconds: float = 0.01, announce: Callable[[str], object] = lambda text: None
) -> tuple[Table, str]:
    """Measure every GPU kernel on arrays on the GPU. Returns the table for the GPU engine's choices, and the GPU's
    name.

    Raises:
        UnavailableError: there is no GPU.
    """
    rows: list[Row] = []
    made = cache(_with_kernel)
    slow: set[tuple[Model, str, str, choice.Variant]] = set()
    for model, query, dtype, batch in grid.cases():
        task = made(model, dtype, choice.ALWAYS).plain_task(query)
        for variant in choice.variants(model, task):
            case = model, query, dtype, variant
            if case in slow:
                continue
            announce(f"{query}: {variant}, {dtype}, {model.n_bodies} bodies, {batch} states")
            time = _time_there(made(model, dtype, variant), query, _states(model, query, dtype, batch), seconds)
            if time is None or time > _SLOWEST_S:
                slow.add(case)
            if time is not None:
                tree = model.n_bodies, model.tree.n_levels
                rows.append(Row(choice.SECTION.name, task.name, dtype, *tree, batch, str(variant), time))
    return Table(choice.SECTION, rows), Dynamics(auto_tree(2), engine="gpu")._gpu.device.name


def _with_kernel(model: Model, dtype: str, variant: choice.Variant) -> Dynamics:
    return Dynamics(model, engine="gpu", dtype=dtype, gpu=GpuOptions(variant.kernel, variant.fusion))


def _time_there(dyn: Dynamics, query: str, arrays: tuple[Any, ...], seconds: float) -> float | None:
    """Seconds of a call on arrays on the GPU, including the wait for its end."""
    device = dyn._gpu.device
    uploaded = [dyn._gpu.library.like_numpy(array) for array in arrays]

    def call() -> None:
        getattr(dyn, query)(*uploaded)
        device.settle()

    try:
        return measure(call, seconds).best_s
    except (RobodynError, MemoryError):
        return None
