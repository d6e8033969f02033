"""Steps under the forces of a policy, one call of machine code each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robodyn.internals.arguments import Array, address_of, real_array
from robodyn.internals.array_library import NUMPY, Library
from robodyn.internals.errors import ArgumentError

Policy = Callable[[float, Array, Array], Any]
"""(t, q (..., nq), qd (..., nv)) to tau (..., nv)."""


class BuiltInStep:
    """A built-in function that takes one step after another.

    Args:
        entry: the built-in function (`robodyn.engines.cpu.native.entry.Entry`) of q, qd, other inputs, and tau.
        others: the other inputs.
        timed: whether each has a value for each step, on an axis in front.
    """

    def __init__(self, entry: Any, others: Sequence[Array], timed: Sequence[bool]) -> None:
        self._step, self._missed = entry.strict, entry.missed
        self._others = tuple(zip(others, timed, strict=True))

    def __call__(self, k: int, q: Array, qd: Array, tau: Any) -> tuple[Array, Array] | None:
        """The state after step k. None if an array is no plain one of the right shape, or not finite."""
        found = self._step(q, qd, *[each[k] if changes else each for each, changes in self._others], tau)
        return None if found is self._missed else found


class Stop(NamedTuple):
    """Where steps under a policy stopped.

    `steps`: number of steps taken; `asked`: True if the policy was called for one more step, which could not be taken
    as it leads to a state that is not finite; `answer`: what it returned; `interrupted`: True after Ctrl-C."""

    steps: int
    asked: bool = False
    answer: Any = None
    interrupted: bool = False


def follow(
    step: BuiltInStep,
    policy: Policy,
    dt: float,
    states: tuple[Array, Array],
    leading: tuple[int, ...],
    first: int = 0,
    until: float = math.inf,
) -> Stop:
    """Fill states q (n + 1, ..., nq) and qd (n + 1, ..., nv) after the first ones. Raises what the policy raises.

    Args:
        step: takes a step.
        policy: is called once for each step. Its arguments are arrays that nothing else uses.
        dt: length of a step.
        states: the states to fill, with at most one axis for several of them.
        leading: axes of the arrays that the policy gets.
        first: number of the first step.
        until: time (`time.monotonic`) after which no step begins, unless it is the first.
    """
    all_q, all_qd = states
    shape, shapes = all_qd.shape[1:], [(*leading, each.shape[-1]) for each in states]
    reshaped = shape != shapes[1]
    done, q, qd = 0, all_q[0].copy(), all_qd[0].copy()
    try:
        for k in range(len(all_q) - 1):
            if reshaped:
                q, qd = q.reshape(shapes[0]), qd.reshape(shapes[1])
            tau = answer = policy((first + k) * dt, q, qd)
            if reshaped and type(tau) is np.ndarray and tau.shape == shapes[1]:
                tau = tau.reshape(shape)
            found = step(first + k, all_q[k], all_qd[k], tau)
            if found is None or found[1].shape != shape:  # another kind or shape, or numbers that are not finite
                tau = tau_of(answer, leading, all_qd.shape[-1], all_qd.dtype, NUMPY)
                found = step(first + k, all_q[k], all_qd[k], np.ascontiguousarray(tau).reshape(shape))
                if found is None:
                    return Stop(k, True, answer)
            q, qd = found
            all_q[k + 1], all_qd[k + 1] = q, qd
            done = k + 1
            if until < math.inf and time.monotonic() > until:
                break
    except KeyboardInterrupt:
        return Stop(done, interrupted=True)
    return Stop(done)


class PolicyLoop:
    """Steps of a window under a policy by a table of kernels, for steps that are several programs."""

    def __init__(self, table: Any, engine: Any, states: tuple[Array, Array], inputs: Mapping[str, Array]) -> None:
        self._table, self._launch, self._tau = table, engine.launch, inputs["tau"][0]
        advancing = {"q": states[0], "qd": states[1]}
        advancing |= {name: array for name, array in inputs.items() if len(array) > 1}
        self._starts = [(name, address_of(array), array.strides[0]) for name, array in advancing.items()]
        self._starts += [(f"{name}_next", at + move, move) for name, at, move in self._starts[:2]]

    def step(self, k: int, tau: Array) -> None:
        """Fill the state after step k of the window."""
        self._tau[...] = tau
        for name, start, move in self._starts:
            self._table.move(name, start + k * move)
        self._table.run(self._launch, 1)


def tau_of(answer: Any, leading: tuple[int, ...], nv: int, dtype: np.dtype[Any], library: Library) -> Array:
    """What a policy returned, as tau (..., nv) for states with these leading axes.

    Raises:
        ArgumentError: it is something else.
    """
    tau = real_array("policy", answer, (nv,), dtype, what="the tau that it returns", read=library.array)
    try:
        found: Array = np.broadcast_to(tau, (*leading, nv))
    except ValueError:
        raise ArgumentError(
            f"policy: returned shape {tau.shape} for states {leading}; wanted tau of shape {(*leading, nv)}"
        ) from None
    return found
