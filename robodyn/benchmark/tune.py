"""Measures this machine once: engines against each other, and the methods of scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from robodyn.benchmark.tables import Cells
from robodyn.benchmark.timing import measure
from robodyn.builders.auto_tree import auto_tree
from robodyn.dynamics import Dynamics
from robodyn.engines.gpu import GpuOptions, choice
from robodyn.engines.protocol import SUPPORT
from robodyn.errors import RobodynError, UnavailableError
from robodyn.model import Model
from robodyn.scheduler import ENGINES, Row, Table

QUERIES = (
    *("inverse_dynamics", "forward_dynamics", "mass_matrix"),
    *("inverse_dynamics_gradient", "forward_dynamics_gradient"),
)
_SQUARE = ("mass_matrix", "inverse_dynamics_gradient", "forward_dynamics_gradient")
_SLOWEST_S = 0.3
"""Seconds of a call from which larger ones of the engine are left out."""
_MOST_SCALARS = 1 << 22


@dataclass(frozen=True)
class Grid:
    """What is measured: chains and trees of branching factor 2 with so many bodies, and batches."""

    bodies: tuple[int, ...] = (6, 30, 150, 1000, 10_000)
    batches: tuple[int, ...] = (1, 16, 256, 4096, 65_536)
    dtypes: tuple[str, ...] = ("float64", "float32")
    queries: tuple[str, ...] = QUERIES

    def cases(self) -> Iterator[tuple[Model, str, str, int]]:
        """(tree, query, dtype, batch), small batches first."""
        for n in self.bodies:
            for branching in (1.0, 2.0):
                model = auto_tree(n, branching=branching, skew=0.3)
                for query in self.queries:
                    for dtype in self.dtypes:
                        for batch in self.batches:
                            if batch * n * (n if query in _SQUARE else 1) <= _MOST_SCALARS:
                                yield model, query, dtype, batch


CHECKED = Grid(bodies=(12, 400), batches=(4, 1024), dtypes=("float64",))
"""Beside what the table has: what its choices are judged by."""


def engines_here() -> tuple[str, ...]:
    """Those of the engines that run on this machine."""
    found, model = [], auto_tree(2)
    for name in ENGINES:
        try:
            Dynamics(model, engine=name)  # type: ignore[arg-type]
        except UnavailableError:
            continue
        found.append(name)
    return tuple(found)


def fit(grid: Grid, seconds: float = 0.01, announce: Callable[[str], object] = lambda text: None) -> Table:
    """The table of a grid: every engine that runs here."""
    rows: list[Row] = []
    made = cache(lambda model, dtype, engine: Dynamics(model, engine=engine, dtype=dtype))
    slow: set[tuple[Model, str, str, str]] = set()
    engines = engines_here()
    for model, query, dtype, batch in grid.cases():
        arrays = _states(model, query, dtype, batch)
        for engine in engines:
            case = model, query, dtype, engine
            if engine not in SUPPORT[query] or case in slow:
                continue
            announce(f"{query}: {engine}, {dtype}, {model.n_bodies} bodies, {batch} states")
            time = _time(made(model, dtype, engine), query, arrays, seconds)
            if time is None or time > _SLOWEST_S:
                slow.add(case)
            if time is not None:
                rows.append(Row(query, dtype, model.n_bodies, model.tree.n_levels, batch, engine, time))
    return Table(rows)


def _states(model: Model, query: str, dtype: str, batch: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(batch)
    count = 1 if query == "mass_matrix" else 3
    return tuple(rng.uniform(-1.0, 1.0, (count, batch, model.nv)).astype(dtype))


def _time(dyn: Dynamics, query: str, arrays: tuple[Any, ...], seconds: float) -> float | None:
    try:
        return measure(lambda: getattr(dyn, query)(*arrays), seconds).best_s
    except (RobodynError, MemoryError):
        return None


def worst_choice(table: Table, checked: Table) -> tuple[float, str]:
    """How many times longer than the fastest engine the chosen one takes at most in other measurements, and where."""
    worst, where = 1.0, "everywhere"
    places = {(row.query, row.dtype, row.bodies, row.depth, row.batch) for row in checked.rows}
    for query, dtype, bodies, depth, batch in sorted(places):
        found = {
            row.engine: row.seconds
            for row in checked.rows
            if (row.query, row.dtype, row.bodies, row.depth, row.batch) == (query, dtype, bodies, depth, batch)
        }
        model = auto_tree(bodies, branching=1.0 if depth == bodies else 2.0, skew=0.3)
        chosen = next(iter(table.estimates(query, dtype, model, batch)), "cpu")
        ratio = found.get(chosen, float("inf")) / min(found.values())
        if ratio > worst:
            worst, where = ratio, f"{query}, {bodies} bodies in {depth} levels, batch {batch}: {chosen}"
    return worst, where


def engine_table(table: Table) -> Cells:
    """Times of engines beside each other."""
    engines = [name for name in ENGINES if any(row.engine == name for row in table.rows)]
    places = dict.fromkeys((row.query, row.dtype, row.bodies, row.depth, row.batch) for row in table.rows)
    times = {(row.query, row.dtype, row.bodies, row.depth, row.batch, row.engine): row.seconds for row in table.rows}
    rows = []
    for place in places:
        found = {name: times.get((*place, name)) for name in engines}
        there = {name: each for name, each in found.items() if each is not None}
        cells = ("-" if each is None else f"{1e6 * each:.4g}" for each in found.values())
        rows.append((*map(str, place), *cells, min(there, key=lambda name: there[name])))
    head = ("query", "dtype", "bodies ", "levels ", "batch ", *(f"{name}, us " for name in engines), "fastest")
    return Cells("engines on NumPy arrays", head, rows)


# Kernels of a GPU.


def fit_kernels(
    grid: Grid, seconds: float = 0.01, announce: Callable[[str], object] = lambda text: None
) -> tuple[list[choice.Row], str]:
    """What the GPU engine is to choose its kernels by: every kernel on arrays that live there, and the GPU's name.

    Raises:
        UnavailableError: no GPU.
    """
    rows: list[choice.Row] = []
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
                bodies, kind = model.n_bodies, (variant.kernel, variant.fusion)
                rows.append(choice.Row(task.name, dtype, bodies, batch, *kind, time))
    return rows, Dynamics(auto_tree(2), engine="gpu")._gpu.device.name


def _with_kernel(model: Model, dtype: str, variant: choice.Variant) -> Dynamics:
    return Dynamics(model, engine="gpu", dtype=dtype, gpu=GpuOptions(variant.kernel, variant.fusion))


def _time_there(dyn: Dynamics, query: str, arrays: tuple[Any, ...], seconds: float) -> float | None:
    """Seconds of a call on arrays on the GPU, waited for."""
    device = dyn._gpu.device
    there = [dyn._gpu.library.like_numpy(array) for array in arrays]

    def call() -> None:
        getattr(dyn, query)(*there)
        device.settle()

    try:
        return measure(call, seconds).best_s
    except (RobodynError, MemoryError):
        return None
