"""`Dynamics.step` and `Dynamics.step_gradient` as built-in functions, which answer calls without running Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robodyn.algorithms.called_steps import CalledStep
from robodyn.algorithms.tasks import COEFFICIENTS
from robodyn.api.motion.step_spec import chosen_step, gradient_of, limits_kept, needs_armature, require_targets
from robodyn.api.queries.fast_path import WORD_BITS, FastPath, built_in, one_of_types
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.integrators import INTEGRATORS, STABLE
from robodyn.core.sweeps import PER_BODY
from robodyn.engines.query_table import BASE, OF_CONSTRAINTS
from robodyn.internals.arguments import Array
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument

_PER_DOF = (*COEFFICIENTS, "kp", "kd")
"""Arrays of numbers that are not negative, in batches of unchecked states too."""
_ARRAYS = ("q", "qd", "tau", "dt", *PER_BODY, *_PER_DOF, "gravity", *BASE, "q_des", *OF_CONSTRAINTS)
_MOST_LIMITS = 16


class Called(NamedTuple):
    """Calls that machine code answers in one way: the arrays that are given, the integrator, and the limits."""

    arrays: tuple[str, ...]
    integrator: str
    limits: tuple[str, ...]


class _Limits:
    """Replaces the argument `limits` in calls of the built-in function. Equal to itself only."""

    __slots__ = ("number", "words")

    def __init__(self, number: int, words: tuple[str, ...]) -> None:
        self.number, self.words = number, words


_NO_LIMITS = _Limits(0, ())


class FastStep(FastPath):
    """The function behind a built-in `step` or `step_gradient`: it answers other calls by the method, and learns."""

    lists = "limits"

    def __init__(self, dyn: Dynamics, name: str, method: Callable[..., Any]) -> None:
        super().__init__(dyn, method, dyn.dtype)
        self._name = name
        self._asked: set[Called] = set()
        self._tasks: dict[tuple[Any, ...], CalledStep] = {}
        self._limits: dict[tuple[str, ...], _Limits] = {(): _NO_LIMITS}

    def listed(self, limits: Any) -> Any:
        """One object for equal tuples or lists of words. Other values are returned unchanged."""
        if not one_of_types(limits, (tuple, list)) or not all(type(word) is str for word in limits):
            return limits
        words = tuple(limits)
        if words not in self._limits and len(self._limits) < _MOST_LIMITS:
            self._limits[words] = _Limits(len(self._limits), words)
        return self._limits.get(words, limits)

    def calls(self, given: Mapping[str, Any]) -> Called | None:
        """The arrays that are given, and the choices; None where the method must answer."""
        arrays = tuple(name for name in _ARRAYS if given.get(name) is not None)
        integrator, limits = given.get("integrator", self.defaults["integrator"]), given.get("limits", _NO_LIMITS)
        if type(integrator) is not str or integrator not in INTEGRATORS or type(limits) is not _Limits:
            return None
        return Called(arrays, integrator, limits.words)

    def answers(self, calls: Called, given: Mapping[str, Any]) -> Answers | None:
        """Compiled answers, from the second call on; None at the first."""
        if calls not in self._asked:
            self._asked.add(calls)
            return None
        dyn, task = self.__self__, self._task(calls)
        names, defaults = calls.arrays, {} if "dt" in calls.arrays else {"dt": self.defaults["dt"]}
        single = all(np.ndim(given[name]) <= len(dyn.argument_shapes[name]) for name in names if name != "dt")
        called = getattr(dyn.engine, "called", None)
        if called is None:
            raise UnavailableError(f"engine {dyn.engine.name!r} has no built-in functions")
        found: Answers = called(task, _ARRAYS, single=single, check=dyn.check, nonnegative=_PER_DOF, defaults=defaults)
        return found

    def _task(self, calls: Called) -> CalledStep:
        """The program for these calls.

        Raises:
            UnavailableError: the method must answer them.
        """
        dyn = self.__self__
        key = calls, dyn.model, dyn.joint_forces
        if key not in self._tasks:
            self._require_possible(calls)
            names = [name for name in calls.arrays if name != "dt"]
            inward = tuple(dict.fromkeys(("tau", *("dV0" if name == "gravity" else name for name in names))))
            step = chosen_step(dyn, inward, calls.integrator, limits_kept(calls.limits, calls.integrator))
            task = step if self._name == "step" else gradient_of(step, dyn.model, inward)
            self._tasks[key] = CalledStep(task, (*names, "dt"), float(np.finfo(dyn.dtype).eps))
        return self._tasks[key]

    def _require_possible(self, calls: Called) -> None:
        """Raise where a call needs more than its numbers: a warning about the step's length, the places of feet at the
        start, or a search for singular mass matrices."""
        dyn, given = self.__self__, {name: name in calls.arrays or None for name in ("kp", "q_des")}
        require_targets(given)
        explicit = calls.integrator in STABLE and ({"damping", "kd"} & {*calls.arrays, *dyn.joint_forces})
        feet = "targets" not in calls.arrays and anchored_by_calls(dyn.model.constraints)
        singular = dyn.singularity() is not None  # unless damping or targets move what has no mass
        if explicit or feet or singular or ("armature" in calls.arrays and needs_armature(dyn)):
            raise UnavailableError(f"{self._name}: no built-in function for these calls")

    def argument(self, name: str) -> Argument:
        """Kind of the argument: an array, a float, `out`, or a choice."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name in _ARRAYS:
            return Argument("array", _ARRAYS.index(name), name not in ("q", "qd", "dt"), number=name == "dt")
        return Argument("choice", types=(str,) if name == "integrator" else (_Limits,), bits=WORD_BITS)

    def number(self, name: str, value: Any) -> int:
        """Index of an integrator, or of words for limits."""
        return tuple(INTEGRATORS).index(value) if name == "integrator" else int(value.number)

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:
        """Let machine code answer calls with these inertias, if they leave a regular mass matrix."""
        array: Array = np.array(given["inertia"], self._dtype)
        rows = array.astype(np.float64, copy=False).reshape(-1, *array.shape[-2:])
        if not self.__self__._judge.singular(rows).any():
            answers.know(array)


def _fast_step(dyn: Dynamics, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    if not dyn.engine.native:
        return None
    function = built_in(dyn, name, method, lambda: FastStep(dyn, name, method))
    if function is not None:
        dyn.__dict__[name] = function
    return function


fast_step = with_fast_path(_fast_step)
"""Declare a method of a `Dynamics` a step that a built-in function answers, if the engine has one."""
