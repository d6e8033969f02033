"""Fits the cost model of the scan engine's methods to measurements on this machine."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES
from robodyn.engines.scan.costs import TERMS, Costs, choices_of, terms
from robodyn.engines.scan.engine import ScanEngine
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import RobodynError
from robodyn.io.builders.auto_tree import auto_tree
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure

CHOSEN = ("inverse_dynamics", "forward_dynamics")
"""Queries whose scan methods are chosen by cost."""
BODIES = (4, 16, 64, 256, 1024, 4096)
BATCHES = (1, 16, 256)
BRANCHING = (1.0, 2.0)
_MOST = 1 << 16
_SLOWEST_S = 0.3
"""Once a call takes longer (in seconds), larger cases of the method are skipped."""


def cases() -> Iterator[tuple[float, int, int]]:
    """(branching factor, bodies, batch) of every measurement, small ones first."""
    grid = ((factor, n, batch) for n in BODIES for batch in BATCHES for factor in BRANCHING)
    return (case for case in grid if case[1] * case[2] <= _MOST)


def fit(seconds: float = 0.02, announce: Callable[[str], None] = lambda text: None) -> tuple[Costs, list[Any]]:
    """Measure and fit all methods. Returns costs, and rows (method, branching, bodies, batch, seconds measured, seconds
    by the cost model)."""
    measured: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TERMS}
    too_slow: set[tuple[str, float, int]] = set()
    for factor, n, batch in cases():
        dyn = Dynamics(auto_tree(n, branching=factor, skew=0.3), engine="scan")
        arrays = _states(dyn, batch)
        for query in CHOSEN:
            for method in choices_of(query):
                if any((method, factor, fewer) in too_slow for fewer in BODIES if fewer <= n):
                    continue
                announce(f"{method}: {n} bodies, branching {factor:g}, {batch} states")
                time = _time(dyn, query, method, arrays, seconds)
                if time > _SLOWEST_S:
                    too_slow.add((method, factor, n))
                assert isinstance(dyn.engine, ScanEngine)
                measured[method].append((factor, n, batch, time, terms(dyn.engine.layout, method, batch)))
    coefficients = {name: _fitted(rows) for name, rows in measured.items()}
    table = [(name, *row[:4], float(row[4] @ coefficients[name])) for name, rows in measured.items() for row in rows]
    source = f"measured on {platform.node() or 'this machine'} with NumPy {np.__version__}"
    return Costs({name: tuple(map(float, values)) for name, values in coefficients.items()}, source), table


def _states(dyn: Dynamics, batch: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(batch)
    return tuple(rng.uniform(-1.0, 1.0, (3, batch, dyn.model.nv)))


def _time(dyn: Dynamics, query: str, method: str, arrays: tuple[Any, ...], seconds: float) -> float:
    try:
        return measure(lambda: getattr(dyn, query)(*arrays, method=method), seconds).best_s
    except (RobodynError, MemoryError):
        return float("inf")


def _fitted(rows: list[tuple[Any, ...]]) -> np.ndarray:
    """Nonnegative coefficients that minimise the relative errors of measured times."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    finite = [row for row in rows if np.isfinite(row[3])]
    matrix = np.array([row[4] / row[3] for row in finite])
    scale = matrix.max(axis=0)
    scale[scale == 0.0] = 1.0
    return nnls(matrix / scale, np.ones(len(finite)))[0] / scale  # type: ignore[no-any-return]


def coefficient_table(costs: Costs) -> Cells:
    """A table of the costs of all terms, in nanoseconds per unit."""
    names = list(dict.fromkeys(name for row in TERMS.values() for name in row))
    rows = [
        (method, *(_ns(dict(zip(TERMS[method], fitted, strict=True)).get(name)) for name in names))
        for method, fitted in costs.coefficients.items()
    ]
    return Cells(f"what scans cost, ns ({costs.source})", ("method", *(f"{name} " for name in names)), rows)


def _ns(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e9 * seconds:.3g}"


def choice_table(model: Model, engine: str, queries: Sequence[str], batches: Sequence[int]) -> Cells:
    """A table of the methods that the given engine and the scan engine would use."""
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys((engine, "scan")):
        dyn = Dynamics(model, engine=name)  # type: ignore[arg-type]
        for query in queries or CHOSEN:
            for batch in batches:
                if QUERIES[one_of("query", query, tuple(QUERIES))].is_answered_by(dyn.engine.name):
                    explanation = dyn.explain(query, batch)
                    rows.append((query, str(batch), explanation.engine, explanation.method, explanation.reason))
    return Cells(f"what answers {model.name}", ("query", "batch ", "engine", "method", "why"), rows)


def worst_choice(rows: list[Any]) -> float:
    """The largest time of the method that the cost model chooses, relative to the fastest method."""
    worst = 1.0
    for methods in map(choices_of, CHOSEN):
        for case in {row[1:4] for row in rows}:
            times = {row[0]: (row[5], row[4]) for row in rows if row[1:4] == case and row[0] in methods}
            if times:
                chosen = min(times.values())[1]
                worst = max(worst, chosen / min(time for _, time in times.values()))
    return worst
