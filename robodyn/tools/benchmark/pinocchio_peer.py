"""Pinocchio as a peer: its algorithms on the same robot, converted joint by joint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError
from robodyn.io.builders.auto_tree import auto_tree
from robodyn.tools.benchmark.contenders import Answers, Contender, Prepared, RefusedError, States, one_by_one
from robodyn.tools.benchmark.timing import Timing, measure
from robodyn.tools.testing.pinocchio_models import PinocchioIndices, pinocchio_model, symmetric

_CALLS = {
    "inverse_dynamics": "rnea",
    "forward_dynamics": "aba",
    "mass_matrix": "crba",
    "bias_force": "nonLinearEffects",
    "inverse_dynamics_gradient": "computeRNEADerivatives",
    "forward_dynamics_gradient": "computeABADerivatives",
}
_PARALLEL = {"inverse_dynamics": "rneaInParallel", "forward_dynamics": "abaInParallel"}
_MOST_BODIES = 2000
_OVERHEAD_STATES = 64


class Pinocchio:
    """A robot in Pinocchio. Pinocchio requires depth-first joints, so our arrays are reordered.

    Raises:
        RefusedError: Pinocchio is not installed, or cannot represent the robot.
    """

    notes: tuple[str, ...] = (
        "pin.NAME: the function of Pinocchio's Python module, called in a loop in Python.",
        "pin C++, estimated: pin.NAME less what one call costs on a robot of one joint, measured by the same loop. "
        "That also takes away the arithmetic of one joint, in Pinocchio's favour; the copies of results, which grow "
        "with the robot, stay.",
        "rneaInParallel, abaInParallel: results are written to the same array every time. Their threads wait by "
        "spinning: where another process takes one of the processors, a call takes a turn of the scheduler, some "
        "milliseconds, whatever the batch.",
        "pin.computeRNEADerivatives also gives the mass matrix.",
    )

    def __init__(self, model: Model) -> None:
        if model.has_mimic:
            raise RefusedError("Pinocchio: not compared on robots with joints that mimic others")
        if model.n_bodies > _MOST_BODIES:
            raise RefusedError(f"Pinocchio: not compared on robots of more than {_MOST_BODIES} bodies")
        try:
            self._pin: Any = import_module("pinocchio")
        except Exception as error:  # a module built for another NumPy may raise anything
            raise RefusedError(f"Pinocchio is not installed ({error})") from None
        self.name = f"Pinocchio {self._pin.__version__}"
        try:
            self._model = pinocchio_model(model)
        except UnavailableError as error:
            raise RefusedError(str(error)) from None
        self._at = PinocchioIndices(model, self._model)
        self._data = self._model.createData()

    def _arguments(self, query: str, states: States) -> list[Array]:
        return [
            self._at.coordinates(states[name]) if name == "q" else self._at.rates(states[name])
            for name in QUERIES[query].plain
        ]

    def _read(self, query: str, answer: Any) -> Answers:
        """Convert one state's results to our order. Pinocchio fills only one triangle of symmetric matrices."""
        square = self._at.square
        if query == "mass_matrix":
            return (square(symmetric(answer)),)
        if query == "inverse_dynamics_gradient":
            by_q, by_qd, _ = answer
            return square(by_q), square(by_qd)
        if query == "forward_dynamics_gradient":
            by_q, by_qd, by_tau = answer
            return square(by_q), square(by_qd), square(symmetric(by_tau))
        return (answer[self._at.velocities],)

    # Contenders.

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """Single calls, and the parallel function, if there is one, for each number of threads."""
        if query not in _CALLS:
            return []
        contenders = [
            Contender(
                f"pin.{_CALLS[query]}",
                query,
                "float64",
                1,
                single=True,
                prepare=partial(self._single, query),
                overhead=partial(self._overhead, query),
                overhead_name="pin C++, estimated",
            )
        ]
        if query in _PARALLEL:
            for count in threads:
                prepare = partial(self._parallel, query, count)
                contenders.append(Contender(_PARALLEL[query], query, "float64", count, single=False, prepare=prepare))
        return contenders

    def _single(self, query: str, states: States) -> Prepared:
        call = getattr(self._pin, _CALLS[query])
        rows = [(self._model, self._data, *row) for row in zip(*self._arguments(query, states), strict=True)]
        return one_by_one(call, rows, lambda answer, row: self._read(query, answer))

    def _overhead(self, query: str, seconds: float) -> Timing:
        one = self._smallest
        states = dict.fromkeys(("q", "qd", "qdd", "tau"), np.full((_OVERHEAD_STATES, 1), 0.5))
        timing = measure(one._single(query, states).run, seconds)
        return Timing(timing.best_s / _OVERHEAD_STATES, timing.median_s / _OVERHEAD_STATES, timing.runs)

    @cached_property
    def _smallest(self) -> Pinocchio:
        """A robot with one joint, to measure the overhead of calls."""
        return Pinocchio(auto_tree(1))

    def _parallel(self, query: str, threads: int, states: States) -> Prepared:
        # Pinocchio stores states in columns: a transpose of our rows, without a copy.
        columns = [array.T for array in self._arguments(query, states)]
        pool = self._pin.ModelPool(self._model, threads)
        out = np.full_like(columns[1], np.nan)
        call: Callable[..., object] = getattr(self._pin, _PARALLEL[query])
        run = partial(call, threads, pool, *columns, out)
        return Prepared(run, lambda: (out.T[:, self._at.velocities],), out.shape[1])
