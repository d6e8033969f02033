"""One state of a tree of a million bodies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.timing import measure as timed

BODIES = 1_000_000
_CHECKED_BODIES = 1000
_TOLERANCE = 1e-9
_SHAPES = {"chain": 1, "binary": 2}
_QUERIES = ("inverse_dynamics", "forward_dynamics")


@dataclass
class Huge:
    """Nanoseconds for each body, one thread; `problem` says why there are none.

    `off_by` is how far the engine is from the reference engine on a tree of the same shape and fewer bodies: forces
    relative to the largest, for forward dynamics those that its accelerations need.
    """

    shape: str
    query: str
    engine: str
    bodies: int = BODIES
    best_ns: float | None = None
    median_ns: float | None = None
    off_by: float | None = None
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        """As text."""
        times = ("" if ns is None else f"{ns:.1f}" for ns in (self.best_ns, self.median_ns))
        off_by = "" if self.off_by is None else f"{self.off_by:.0e}"
        return (self.shape, self.query, self.engine, f"{self.bodies:,}", *times, off_by, self.problem)


HEADINGS = ("shape", "query", "engine", "bodies ", "best ns a body ", "median ns a body ", "differs ", "remark")


def names() -> list[str]:
    """Names of the cases."""
    return [f"huge tree: {shape}, {query}" for shape in _SHAPES for query in _QUERIES]


def measure(name: str, engine: str, seconds: float, asked: bool, bodies: int = BODIES) -> Huge:
    """Run one case; under the reference engine, which takes minutes, only if asked for."""
    shape, query = next((s, q) for s in _SHAPES for q in _QUERIES if name == f"huge tree: {s}, {q}")
    model = rd.auto_tree(bodies, branching=_SHAPES[shape])
    dyn = rd.Dynamics(model, engine=engine, threads=1, check=False)
    result = Huge(shape, query, dyn.engine.name, bodies)
    if dyn.engine.name == "reference" and not asked:
        result.problem = "left out: the reference engine takes minutes; --huge asks for it"
        return result
    result.off_by = _difference(engine, query, _SHAPES[shape])
    if not result.off_by <= _TOLERANCE:
        result.problem = f"WRONG: differs from the reference engine by {result.off_by:.1g}"
        return result
    arguments, out = _states(bodies), np.full(bodies, np.nan)
    call = partial(getattr(dyn, query), *arguments, out=out)
    try:
        timing = timed(call, seconds)
    except (rd.RobodynError, MemoryError) as error:
        result.problem = f"{type(error).__name__}: {error}"
        return result
    result.best_ns, result.median_ns = (s / bodies * 1e9 for s in (timing.best_s, timing.median_s))
    return result


def _states(bodies: int) -> tuple[np.ndarray, ...]:
    """q, qd, and qdd or tau."""
    return tuple(np.random.default_rng(0).uniform(-1.0, 1.0, (3, bodies)))


def _difference(engine: str, query: str, branching: int) -> float:
    model = rd.auto_tree(_CHECKED_BODIES, branching=branching)
    ours, reference = rd.Dynamics(model, engine=engine), rd.Dynamics(model, engine="reference")
    q, qd, last = _states(_CHECKED_BODIES)
    if query == "inverse_dynamics":
        got, wanted = ours.inverse_dynamics(q, qd, last), reference.inverse_dynamics(q, qd, last)
        scale = np.abs(wanted).max()
    else:
        # Accelerations of long chains are ill-conditioned; the forces that they need are not.
        got, wanted = reference.inverse_dynamics(q, qd, ours.forward_dynamics(q, qd, last)), last
        scale = np.abs(reference.bias_force(q, qd)).max()
    return float(np.abs(got - wanted).max() / scale)
