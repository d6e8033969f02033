"""`Dynamics.step` and `Dynamics.step_gradient` as built-in functions, which answer calls without running Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from robodyn.algorithms.called_steps import CalledStep
from robodyn.algorithms.contacts.tasks import STEPS as CONTACT_STEPS
from robodyn.algorithms.contacts.tasks import at_answer
from robodyn.algorithms.tasks import COEFFICIENTS, AtAnswer, Repeated
from robodyn.api.motion.built_in_steps import is_calm, nearly_unit
from robodyn.api.motion.step_spec import (
    chosen_step,
    contact_step_gradient_of,
    gradient_of,
    limits_kept,
    needs_armature,
    require_targets,
    step_solver,
)
from robodyn.api.queries.contacts import OF_CONTACTS
from robodyn.api.queries.fast_path import WORD_BITS, FastPath, built_in, one_of_types
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.integrators import INTEGRATORS, STABLE
from robodyn.core.sweeps import PER_BODY
from robodyn.engines.query_table import BASE, OF_CONSTRAINTS
from robodyn.internals.arguments import Array
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import RobodynError, UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument, Forms

_PER_DOF = (*COEFFICIENTS, "kp", "kd")
"""Arrays of numbers that are not negative, in batches of unchecked states too."""
_ARRAYS = ("q", "qd", "tau", "dt", *PER_BODY, *_PER_DOF, "gravity", *BASE, "q_des", *OF_CONSTRAINTS)
_MOST_LIMITS = _MOST_GUARDED = 16
_MOST_LENGTHS = 1 << WORD_BITS
_WITH_CONTACTS = {"q", "qd", "tau", "f_ext", "inertia", "dV0"}
"""Arrays of steps with contacts. Values of others are checked or turned into others: the method answers for them."""


class Called(NamedTuple):
    """Calls that machine code answers in one way: the arrays that are given, the integrator, and the limits; and the
    length of steps with contacts, of which softness may depend on it."""

    arrays: tuple[str, ...]
    integrator: str
    limits: tuple[str, ...]
    dt: float | None = None


class _Limits:
    """Replaces the argument `limits` in calls of the built-in function. Equal to itself only."""

    __slots__ = ("number", "words")

    def __init__(self, number: int, words: tuple[str, ...]) -> None:
        self.number, self.words = number, words


_NO_LIMITS = _Limits(0, ())


class _Guarded(NamedTuple):
    """How calls are answered that need a look at their numbers first, or the places of feet.

    `limits`: stands for all choices of these calls in calls of the built-in function; `stable`: the largest product of
    a step's length and a rate of damping, None if there is none; `feet`: True if feet stay where they are."""

    answers: Answers
    limits: _Limits
    stable: float | None
    feet: bool


class FastStep(FastPath):
    """The function behind a built-in `step` or `step_gradient`: it answers other calls by the method, and learns."""

    lists = "limits"

    def __init__(self, dyn: Dynamics, name: str, method: Callable[..., Any]) -> None:
        super().__init__(dyn, method, dyn.dtype)
        self._name = name
        self._asked: set[Called] = set()
        self._lengths: dict[float, int] = {}
        self._tasks: dict[tuple[Any, ...], CalledStep] = {}
        self._limits: dict[tuple[str, ...], _Limits] = {(): _NO_LIMITS}
        self._guarded: tuple[Forms | None, dict[Called, _Guarded]] = None, {}
        """Calls that the built-in function answers only after `_guarded_answer`, and the forms that they belong to."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that the built-in function passed on."""
        if self._guarded[0] is self.entry.forms:
            given = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
            if len(given) == len(args) + len(kwargs):
                answer = self._guarded_answer(given)
                if answer is not self.entry.missed:
                    return answer
        return super().__call__(*args, **kwargs)

    def _guarded_answer(self, given: dict[str, Any]) -> Any:
        """The answer to a call that is guarded; `missed` if the method must answer."""
        missed = self.entry.missed
        if "limits" in given:
            given["limits"] = self.listed(given["limits"])
        calls, dyn = self.calls(given), self.__self__
        guarded = None if calls is None else self._guarded[1].get(calls)
        if calls is None or guarded is None or not given.keys() <= self.defaults.keys():
            return missed
        keywords = {name: given[name] for name in calls.arrays if name != "dt"}
        if not all(type(each) is np.ndarray and each.dtype is self._dtype for each in keywords.values()):
            return missed
        dt = given.get("dt", self.defaults["dt"])
        with suppress(ValueError, IndexError, RobodynError):  # the method tells what is wrong
            if guarded.stable is not None:
                own = dyn.model.damping if "damping" in dyn.joint_forces else 0.0
                if type(dt) is not float or not dt > 0.0 or not is_calm(dyn, keywords, own, guarded.stable / dt):
                    return missed
            if guarded.feet:
                keywords["targets"] = dyn.constraint_targets(nearly_unit(dyn.model, keywords["q"]))
            if "dt" in calls.arrays:
                keywords["dt"] = dt
            if given.get("out") is not None:
                keywords["out"] = given["out"]
            return self.entry.strict(**keywords, limits=guarded.limits)
        return missed

    def _learn(self, forms: Forms, given: int, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        by_name = dict(zip((*self._parameters[:given], *names), values, strict=True))
        calls = self.calls(by_name)
        if calls is None or calls in forms.refused or self._guards(calls) == (None, False):
            super()._learn(forms, given, names, values)
            return
        try:
            self._learn_guarded(forms, calls, by_name)
        except UnavailableError:
            forms.refused.add(calls)

    def _learn_guarded(self, forms: Forms, calls: Called, given: Mapping[str, Any]) -> None:
        if self._guarded[0] is not forms:
            self._guarded = forms, {}
        every, (stable, feet) = self._guarded[1], self._guards(calls)
        known = every.get(calls)
        answers = None if known is None else known.answers
        if answers is None or not answers.whole:
            inward = [*(name for name in calls.arrays if name != "dt"), *["targets"] * feet]
            arrays = (*inward, *["dt"] * ("dt" in calls.arrays))
            answers = self.answers(calls._replace(arrays=arrays), given)
            if answers is None or (known is None and len(every) >= _MOST_GUARDED):
                return
            limits = _Limits(_MOST_LIMITS + len(every), ()) if known is None else known.limits
            for out in ((), ("out",)):
                names = (*arrays, *out, "limits")
                values, last = [*(given.get(name) for name in names[:-1]), limits], len(names) - 1
                if feet:
                    values[len(inward) - 1] = 0  # any array
                forms.add(0, names, [*map(self.argument, names)], values, {last: limits.number}, answers)
            every[calls] = _Guarded(answers, limits, stable, feet)
        if answers.knows:
            self.remember(answers, given)

    def _guards(self, calls: Called) -> tuple[float | None, bool]:
        """The largest product of a step's length and a rate of damping for which steps are stable, None if there is no
        such limit; and whether feet without given places stay where they are."""
        dyn = self.__self__
        damped = {"damping", "kd"} & {*calls.arrays, *dyn.joint_forces}
        feet = dyn.model.contacts is None and "targets" not in calls.arrays
        feet = feet and anchored_by_calls(dyn.model.constraints)
        return STABLE.get(calls.integrator) if damped else None, feet

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
        if not given.keys().isdisjoint(OF_CONTACTS):
            return None
        arrays = tuple(name for name in _ARRAYS if given.get(name) is not None)
        integrator, limits = given.get("integrator", self.defaults["integrator"]), given.get("limits", _NO_LIMITS)
        if type(integrator) is not str or integrator not in INTEGRATORS or type(limits) is not _Limits:
            return None
        calls, contacts = Called(arrays, integrator, limits.words), self.__self__.model.contacts
        return calls if contacts is None else self._with_contacts(calls, contacts, given.get("dt", self.defaults["dt"]))

    def _with_contacts(self, calls: Called, contacts: Contacts, dt: Any) -> Called | None:
        """The calls of a robot with contacts; None where the method must answer."""
        arrays = tuple(name for name in calls.arrays if name != "dt")
        if not {*arrays} <= _WITH_CONTACTS or calls.integrator not in CONTACT_STEPS or calls.limits:
            return None
        if contacts.crowded or type(dt) is not float or not 0.0 < dt < math.inf:
            return None
        if len(self._lengths) < _MOST_LENGTHS:
            self._lengths.setdefault(dt, len(self._lengths))
        return calls._replace(arrays=arrays, dt=dt) if dt in self._lengths else None

    def answers(self, calls: Called, given: Mapping[str, Any]) -> Answers | None:
        """Compiled answers, from the second call on; None at the first."""
        if calls not in self._asked:
            self._asked.add(calls)
            return None
        if calls.dt is not None:
            return self._answers_with_contacts(calls, calls.dt, given)
        dyn, task = self.__self__, self._task(calls)
        names, defaults = calls.arrays, {} if "dt" in calls.arrays else {"dt": self.defaults["dt"]}
        single = all(np.size(given.get(name, 0.0)) <= prod(dyn.argument_shapes[name]) for name in names if name != "dt")
        called = getattr(dyn.engine, "called", None)
        if called is None:
            raise UnavailableError(f"engine {dyn.engine.name!r} has no built-in functions")
        found: Answers = called(task, _ARRAYS, single=single, check=dyn.check, nonnegative=_PER_DOF, defaults=defaults)
        return found

    def _answers_with_contacts(self, calls: Called, dt: float, given: Mapping[str, Any]) -> Answers | None:
        """The same for steps with contacts. Calls whose forces do not converge are left to the method, whatever is
        checked: their results are not finite."""
        dyn, names = self.__self__, calls.arrays
        if not dyn.engine.native or dyn.singularity() is not None:
            raise UnavailableError(f"{self._name}: no built-in function for this engine, or for a singular mass matrix")
        inputs = tuple(dict.fromkeys((*names, "tau", "dt")))
        solver = step_solver(dyn, calls.integrator, dt)
        single = all(np.size(given[name]) <= prod(dyn.argument_shapes[name]) for name in names)
        if self._name == "step":
            task: Repeated | AtAnswer = solver.by_blocks(inputs, ("q_next", "qd_next"))
        elif not single:
            return None  # a search for numbers that are not finite takes long: the method looks at errors
        else:
            gradient = contact_step_gradient_of(dyn, calls.integrator, dt, (*inputs, "qdd"))
            task = at_answer(solver.by_blocks(inputs, ("qdd",)), gradient)
        still = {"tau": np.zeros(dyn.model.nv, dyn.dtype)} if "tau" not in names else {}
        called = cast(Any, dyn.engine).called
        found: Answers = called(task, _ARRAYS, single=single, check=True, defaults={"dt": dt}, fixed=still)
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
        """Raise where a call needs a search for singular mass matrices."""
        dyn, given = self.__self__, {name: name in calls.arrays or None for name in ("kp", "q_des")}
        require_targets(given)
        singular = dyn.singularity() is not None  # unless damping or targets move what has no mass
        if singular or ("armature" in calls.arrays and needs_armature(dyn)):
            raise UnavailableError(f"{self._name}: no built-in function for these calls")

    def argument(self, name: str) -> Argument:
        """Kind of the argument: an array, a float, `out`, or a choice."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name == "dt" and self.__self__.model.contacts is not None:
            return Argument("choice", types=(float,), bits=WORD_BITS)
        if name in _ARRAYS:
            return Argument("array", _ARRAYS.index(name), name not in ("q", "qd", "dt"), number=name == "dt")
        return Argument("choice", types=(str,) if name == "integrator" else (_Limits,), bits=WORD_BITS)

    def number(self, name: str, value: Any) -> int:
        """Index of an integrator, of words for limits, or of the length of a step with contacts."""
        if name == "dt":
            return self._lengths[value]
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
