"""Queries on a batch of states of one tree: what engines are given, who is asked how, and how far an answer is off."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.core.model import Model
from robodyn.engines.scan import ScanOptions
from robodyn.internals.arguments import Array
from tests.bench.experiments import Call, Contender
from tests.bench.gpu.machine import Machine
from tests.bench.points import difference

INVERSE, FORWARD = "inverse_dynamics", "forward_dynamics"
MATRICES = "mass_matrix"
"""H and the bias force, one after the other: what the thesis times."""
GRADIENT = "inverse_dynamics_gradient"
_ROWS_AT_ONCE = 1 << 24
"""Scalars of a matrix that are brought to the host in one go."""


@lru_cache(maxsize=1)
def tree(n: int, branching: float, skew: float) -> Model:
    """Of Featherstone's autoTree; the last one is kept."""
    return rd.auto_tree(n, branching=branching, skew=skew)


class Problem:
    """A batch of states of a tree. `given`: q, qd and accelerations or torques, each (batch, nv), in [-1, 1]."""

    def __init__(self, model: Model, batch: int = 1) -> None:
        self.model, self.batch = model, batch
        self._made: dict[tuple[Any, ...], rd.Dynamics] = {}
        self.given = tuple(np.random.default_rng(0).uniform(-1.0, 1.0, (3, batch, model.nv)))

    def dynamics(self, engine: str, threads: int | None = None, scan: ScanOptions | None = None) -> rd.Dynamics:
        """An engine with these options, made once: large trees take a while to lay out."""
        options = engine, threads, scan
        if options not in self._made:
            made = rd.Dynamics(self.model, engine=engine, threads=threads, scan=scan, check=False)  # type: ignore[arg-type]
            self._made[options] = made
        return self._made[options]

    @property
    def recursion(self) -> rd.Dynamics:
        return self.dynamics("cpu", threads=1)

    @cached_property
    def torques(self) -> Array:
        return self.recursion.inverse_dynamics(*self.given)

    @cached_property
    def _weights(self) -> Array:
        return np.random.default_rng(1).uniform(-1.0, 1.0, (self.batch, self.model.nv))

    @cached_property
    def _weighted(self) -> tuple[Array, ...]:
        """Sums of the rows of dtau/dq, dtau/dqd and H with these weights: no matrix is made."""
        return self.recursion.inverse_dynamics_vjp(*self.given, vector=self._weights)

    def off_by(self, what: str, answer: Any) -> float:
        """How far the answer to a query is from what the recursion says, relative to the largest entry.

        Of accelerations: the torques that they need, relative to the largest bias force. Of matrices, which come as
        `rows_of` makes of them: sums of their rows with random weights.
        """
        if what == INVERSE:
            return difference(answer, self.torques)
        if what == FORWARD:
            q, qd, tau = self.given
            needed = self.recursion.inverse_dynamics(q, qd, answer)
            return float(np.abs(needed - tau).max() / np.abs(self.recursion.bias_force(q, qd)).max())
        wanted = self._weighted[2:] if what == MATRICES else self._weighted[:2]
        sums = (self._sum(shape, rows) for shape, rows in answer)
        return max(difference(got, right) for got, right in zip(sums, wanted, strict=True))

    def _sum(self, count: int, rows: Callable[[slice], Array]) -> Array:
        step = max(1, _ROWS_AT_ONCE // (self.batch * count))
        found = np.zeros_like(self._weights)
        for start in range(0, count, step):
            piece = slice(start, start + step)
            found += np.einsum("bi,bij->bj", self._weights[:, piece], rows(piece))
        return found


def rows_of(matrix: Any, to_numpy: Callable[[Any], Any] = np.asarray) -> tuple[int, Callable[[slice], Array]]:
    """A matrix (batch, n, n), or a sparse one of one state: how many rows, and a function that brings some here."""
    if matrix.ndim == 2:
        return matrix.shape[0], lambda piece: to_numpy(matrix[piece].toarray())[None]
    return matrix.shape[1], lambda piece: to_numpy(matrix[:, piece])


def asking(
    dyn: rd.Dynamics,
    query: str,
    given: tuple[Any, ...],
    xp: ModuleType | Any = np,
    settle: Callable[[], object] = lambda: None,
    sparse: bool = False,
    **options: Any,
) -> Call:
    """A call on arrays of `xp` whose results go where there is room for them already, and which `settle` waits for."""
    q, qd, _ = given
    batch, nv = qd.shape

    def room(*shape: int) -> Any:
        return xp.empty((batch, *shape), dyn.dtype)

    if query == MATRICES:
        q = q[0] if sparse else q
        kept, c = {"sparse": True} if sparse else {"out": room(nv, nv)}, room(nv)

        def matrices() -> Any:
            dyn.bias_force(given[0], qd, out=c)
            H = dyn.mass_matrix(q, **kept)
            settle()
            return H

        return matrices
    out = (room(nv, nv), room(nv, nv)) if query == GRADIENT else room(nv)

    def call() -> Any:
        # Looked up at every call: an engine may put a faster entry in the place of the method.
        found = getattr(dyn, query)(*given, out=out, **options)
        settle()
        return found

    return call


def _fetched(query: str, to_numpy: Callable[[Any], Any] = np.asarray) -> Callable[[Any], Any]:
    """What `Problem.off_by` takes, of what calls return."""
    if query in (INVERSE, FORWARD):
        return to_numpy
    several = query == GRADIENT
    return lambda found: [rows_of(each, to_numpy) for each in (found if several else (found,))]


def on_cpu(name: str, query: str, engine: str, threads: int | None = 1, **options: Any) -> Contender:
    """A contender on NumPy arrays; `options` are those of the query, and `scan` of the engine."""
    scan: ScanOptions | None = options.pop("scan", None)

    def prepare(problem: Problem) -> Call:
        # Only the CPU engine has threads of its own.
        dyn = problem.dynamics(engine, threads if engine == "cpu" else None, scan)
        return asking(dyn, query, problem.given, **options)

    return Contender(name, prepare, answer=query, fetch=_fetched(query))


def on_gpu(name: str, query: str, engine: str, machine: Machine, recorded: bool = False, **options: Any) -> Contender:
    """A contender on arrays that live on a GPU, whose calls wait until it has finished; `recorded`: by
    `Dynamics.capture`."""
    scan: ScanOptions | None = options.pop("scan", None)
    device = machine.device

    def prepare(problem: Problem) -> Call:
        dyn = problem.dynamics(engine, scan=scan)
        given = tuple(device.xp.asarray(array) for array in problem.given)
        if not recorded:
            return asking(dyn, query, given, device.xp, device.settle, **options)
        q, qd, _ = given
        steps = [dyn.capture("bias_force", q, qd)] if query == MATRICES else []
        asked = (q[0] if options.get("sparse") else q,) if query == MATRICES else given
        steps.append(dyn.capture(query, *asked, **options))

        def call() -> Any:
            found = [step() for step in steps]
            device.settle()
            return found[-1]

        return call

    return Contender(name, prepare, answer=query, where="gpu", fetch=_fetched(query, device.xp.asnumpy))
