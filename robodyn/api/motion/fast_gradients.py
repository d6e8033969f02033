"""Gradients of short rollouts: one loop of programs computes the states, and another one goes back.

`Dynamics.rollout_vjp` keeps few states, as rollouts may be long. Those of short ones fit into memory. A call like one
before is answered here, under the conditions of `robodyn.api.motion.fast_rollouts`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from robodyn.algorithms.backward_steps import ADDED, AFTER, BackwardStep
from robodyn.algorithms.contacts.tasks import at_answer
from robodyn.algorithms.tasks import AtAnswer, against
from robodyn.api.motion.built_in_steps import GIVEN, MOST_SCALARS, Loop, kind_of_call, loop_of, shapes_of_call
from robodyn.api.motion.fast_rollouts import MOST_KNOWN, kept_states
from robodyn.api.motion.result import Rollout
from robodyn.api.motion.step_spec import WITH_CONTACTS, contact_step_at, step_solver
from robodyn.api.queries.fast_path import FAST_GRADIENTS
from robodyn.internals.arguments import Array, address_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.motion.run import Run

_STATE = ("q0", "qd0")
_ABSENT = dict.fromkeys(("policy", "checkpoint", "out", "targets", "active"))
"""Arguments of rollouts that their gradients have not."""


class _Known(NamedTuple):
    """What calls of one kind share.

    `loop`: computes the states; `shape`: that of all their velocities; `table`: arguments of the loop back; `task`: its
    step; `wrt`: names of gradients;
    `others`: those with respect to inputs, and True where each step has its own; `kept`: numbers of the states that
    have weights, None for all."""

    loop: Loop
    shape: tuple[int, ...]
    table: Any
    task: BackwardStep
    wrt: tuple[str, ...]
    others: dict[str, bool]
    kept: Array | None


class FastGradients:
    """The kinds of calls of a `Dynamics` that are known. It lives until the `Dynamics` changes."""

    def __init__(self) -> None:
        self._known: dict[Any, _Known | None] = {}

    def answer(self, dyn: Dynamics, arguments: Mapping[str, Any]) -> dict[str, Array] | None:
        """Gradients by name, or None if the call must go the long way. `arguments`: all of it, by name."""
        arguments = {**_ABSENT, "progress": False, **arguments}
        known = self._known.get(_key(dyn, arguments))
        weights = arguments["q_weight"], arguments["qd_weight"]
        if known is None or not all(_fits(known, weight, dyn.dtype) for weight in weights):
            return None
        states = known.loop.states(dyn, arguments)
        return None if states is None else _gradients(dyn, known, states, arguments, weights)

    def of_function(
        self, dyn: Dynamics, arguments: Mapping[str, Any], function: Callable[[Rollout], tuple[Any, Any, Any]]
    ) -> tuple[tuple[Any, Any, Any], dict[str, Array] | None] | None:
        """What a function of the states returns, and gradients; these are None if they must go the long way."""
        arguments = {**_ABSENT, "progress": False, **arguments}
        known = self._known.get(_key(dyn, arguments))
        states = None if known is None else known.loop.states(dyn, arguments)
        if known is None or states is None:
            return None
        q, qd = states if known.kept is None else (each[known.kept] for each in states)
        steps, diverged = len(states[0]) - 1, np.full(q.shape[1:-1], -1, np.int64)[()]
        times = np.arange(len(q)) if known.kept is None else known.kept
        answer = _checked(function(Rollout(times * arguments["dt"], q, qd, diverged, steps, dyn.model)))
        if not all(_fits(known, weight, dyn.dtype) for weight in answer[1:]):
            return answer, None
        return answer, _gradients(dyn, known, states, arguments, answer[1:])

    def learn(self, run: Run, arguments: Mapping[str, Any], every: int, wrt: tuple[str, ...]) -> None:
        """Answer calls like one that went the long way, if they can be answered so."""
        arguments = {**_ABSENT, "progress": False, **arguments}
        key = _key(run.dyn, arguments)
        if key is not None and key not in self._known and len(self._known) < MOST_KNOWN:
            self._known[key] = _known(run, arguments, every, wrt)


def _known(run: Run, arguments: Mapping[str, Any], every: int, wrt: tuple[str, ...]) -> _Known | None:
    dyn, model, steps, batch = run.dyn, run.dyn.model, run.steps, run.start.batch
    if steps * batch * (model.nq + model.nv) > MOST_SCALARS:
        return None
    loop = loop_of(run, arguments)
    given = {name: arguments[name] for name in GIVEN if arguments[name] is not None}
    if not all(name in run.given and address_of(run.given[name]) == address_of(each) for name, each in given.items()):
        return None  # the loop back reads arrays as they are
    names = tuple(dict.fromkeys(name for name in wrt if name not in _STATE))
    if loop is None or not {*names} <= {"tau", *given} - ({"q_des"} if model.quaternion_starts.size else set()):
        return None
    task, whole = _step_back(run, ("q", "qd", *names))
    weights = task.step.weights
    q, qd = (np.empty((steps + 1, batch, n), dyn.dtype) for n in (model.nq, model.nv))
    backwards = {name: array[::-1] if len(array) > 1 else array for name, array in run.given.items()}
    arrays = {**backwards, "q": q[-2::-1], "qd": qd[-2::-1], "dt": np.full((1, batch, 1), run.dt, dyn.dtype)}
    arrays |= {weights["q_next"]: qd[:0:-1], weights["qd_next"]: qd[:0:-1], AFTER: q[:0:-1]}
    arrays |= dict.fromkeys(("by_q", "by_qd", *ADDED), qd[-2::-1])
    sizes = {name: run.given[name].shape[2:] for name in names}
    arrays |= {f"by_{name}": np.empty((steps, batch, *size), dyn.dtype)[::-1] for name, size in sizes.items()}
    table = cast(Any, dyn.engine).task_loop(whole, arrays, batch)
    if table is None:
        return None
    others = {name: name in run.timed for name in names}
    shape = steps + 1, *run.start.leading, model.nv
    return _Known(loop, shape, table, task, wrt, others, kept_states(steps, every))


def _step_back(run: Run, wrt: tuple[str, ...]) -> tuple[BackwardStep, BackwardStep | AtAnswer]:
    """A step back, and what calls of its loop compute: with contacts also the accelerations at which it goes back."""
    if run.dyn.model.contacts is None:
        task = BackwardStep(against(run.step, wrt))
        return task, task
    inputs = ("q", "qd", *(name for name in run.given if name in WITH_CONTACTS), "dt")
    task = BackwardStep(against(contact_step_at(run.dyn, run.integrator, run.dt, (*inputs, "qdd")), wrt))
    return task, at_answer(step_solver(run.dyn, run.integrator, run.dt).by_blocks(inputs, ("qdd",)), task)


def value_and_gradient(dyn: Dynamics, function: Any, arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Array]]:
    """The value of a function of a rollout's states, and its gradient (see `Dynamics.rollout_gradient`)."""
    if not callable(function):
        raise ArgumentError(f"function: got {brief(function)}; wanted a function of a Rollout")
    known: FastGradients | None = dyn.__dict__.get(FAST_GRADIENTS)
    quick = None if known is None else known.of_function(dyn, arguments, function)
    if quick is not None and quick[1] is not None:
        return quick[0][0], quick[1]
    others = {name: value for name, value in arguments.items() if name != "wrt"}
    value, q_weight, qd_weight = _checked(function(dyn.rollout(**others))) if quick is None else quick[0]
    return value, dyn.rollout_vjp(**arguments, q_weight=q_weight, qd_weight=qd_weight)


def _checked(answer: Any) -> tuple[Any, Any, Any]:
    """What a function of states has returned.

    Raises:
        ArgumentError: something else than a value and two weights.
    """
    if type(answer) is not tuple or len(answer) != 3:
        raise ArgumentError(
            f"function: returned {brief(answer)}; wanted its value, and its derivatives with respect to configurations "
            "and velocities (None for zero)"
        )
    return answer


def _gradients(
    dyn: Dynamics,
    known: _Known,
    states: tuple[Array, Array],
    arguments: Mapping[str, Any],
    of_states: tuple[Array | None, Array | None],
) -> dict[str, Array] | None:
    """Gradients of the weighted sum of states, None if they are not finite."""
    q, qd = states
    steps, leading, weights = len(q) - 1, q.shape[1:-1], known.task.step.weights
    by_q, by_qd = np.empty_like(qd), np.empty_like(qd)
    added_q, added_qd = (_weights(known, each, qd.shape, dyn.dtype) for each in of_states)
    by_q[-1], by_qd[-1] = added_q[-1], added_qd[-1]
    table = known.table.copied()
    for name in known.loop.inputs.names:
        array = arguments[name]
        timed = array.ndim - len(dyn.argument_shapes[name]) > len(leading)
        table.move(name, address_of(array[-1] if timed else array))
    table.move(AFTER, address_of(q[-1]))
    for name, array in (("q", q), ("qd", qd), *zip(ADDED, (added_q, added_qd), strict=True)):
        table.move(name, address_of(array[-2]))
    for name, array in (("q", by_q), ("qd", by_qd)):
        table.move(weights[f"{name}_next"], address_of(array[-1]))
        table.move(f"by_{name}", address_of(array[-2]))
    others = {}
    for name in known.others:
        others[name] = np.empty((steps, *leading, *dyn.argument_shapes[name]), dyn.dtype)
        table.move(f"by_{name}", address_of(others[name][-1]))
    table.run(cast(Any, dyn.engine).launch, steps)
    found = {"q0": by_q[0], "qd0": by_qd[0]}
    found |= {name: array if known.others[name] else array.sum(axis=0) for name, array in others.items()}
    results = {name: np.array(found[name]) for name in known.wrt}
    return results if all(math.isfinite(np.vdot(each, each)) for each in (by_q[0], *results.values())) else None


def _weights(known: _Known, given: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Weights (steps + 1, ..., nv) of all states."""
    if given is None:
        return np.zeros(shape, dtype)
    if known.kept is None:
        return np.ascontiguousarray(np.broadcast_to(given, shape))
    every = np.zeros(shape, dtype)
    every[known.kept] = given
    return every


def _key(dyn: Dynamics, arguments: Mapping[str, Any]) -> Any:
    """What calls of one kind have in common; None for those that always go the long way."""
    kind, shapes, wrt = kind_of_call(arguments), shapes_of_call(dyn, arguments), arguments["wrt"]
    words = (wrt,) if type(wrt) is str else wrt
    if kind is None or shapes is None or type(words) is not tuple or not all(type(word) is str for word in words):
        return None
    return kind, shapes, words


def _fits(known: _Known, weight: Any, dtype: np.dtype[Any]) -> bool:
    """Whether weights are None, or an array of the dtype for the states that are kept."""
    shape = known.shape if known.kept is None else (len(known.kept), *known.shape[1:])
    if weight is None:
        return True
    if type(weight) is not np.ndarray or weight.dtype is not dtype or weight.ndim > len(shape):
        return False
    return all(n in (1, of) for n, of in zip(weight.shape[::-1], shape[::-1], strict=False)) and weight.ndim > 0
