"""Steps under the feedback of a plan, all of them in one call of machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from robodyn.algorithms.called_steps import AroundStep
from robodyn.algorithms.manifold import joint_by_joint, scalars
from robodyn.algorithms.tasks import Configuration, Sized, Step
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.step_spec import chosen_step
from robodyn.core.model import Model
from robodyn.core.sweeps import DofOutput, NamedScalars, Tracer
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

_PLAN = ("u_plan", "k", "size", "K", "q_plan", "qd_plan")
_MOST_TABLES = 64
_INTEGRATOR = "semi_implicit_euler"


@dataclass(frozen=True, eq=False)
class FollowedStep(AroundStep):
    """A step under u = u_plan + size k + K (x (-) x_plan), clipped to [-upper, upper] if `bounded`.

    `step`: the step; `nv`: number of velocities; `actuated`: those that u drives. Other joint forces
    are zero.
    """

    step: Step
    nv: int
    actuated: tuple[int, ...]
    bounded: bool
    recurrent: ClassVar[bool] = True

    @cached_property
    def name(self) -> str:
        """That of the step, and what is driven."""
        return "_".join((self.step.name, "followed", "clipped" * self.bounded, *map(str, self.actuated)))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Those of the step without joint forces, and the plan."""
        others = tuple(name for name in self.step.inputs if name != "tau")
        return (*others, *_PLAN, *(("upper",) if self.bounded else ()))

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """The state after the step, and u."""
        return {**self.step.outputs, "u": Sized((len(self.actuated),))}

    @property
    def extra(self) -> Mapping[str, Any]:
        """The plan."""
        own = Sized((len(self.actuated),))
        sizes = {"u_plan": own, "k": own, "upper": own, "size": Sized((1,)), "K": Sized((len(self.actuated), 2 * self.nv))}
        return {**self.step.extra, **sizes, "q_plan": Configuration(), "qd_plan": DofOutput("")}

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        model, state = tracer.model, {name: given[name] for name in self.inputs if name in self.step.inputs}
        off = [*_apart(model, given["q_plan"], given["q"]), *(scalars(given["qd"]) - scalars(given["qd_plan"]))]
        n, (size,), u = len(off), given["size"], []
        for i in range(len(self.actuated)):
            value = given["u_plan"][i] + size * given["k"][i]
            for gain, each in zip(given["K"][i * n : (i + 1) * n], off, strict=True):
                value = value + gain * each
            if self.bounded:
                most = given["upper"][i]
                value = np.maximum(np.minimum(value, most), -most)
            u.append(value)
        tau: list[Any] = [0.0] * model.nv
        for v, value in zip(self.actuated, u, strict=True):
            tau[v] = value
        return {**self.step.trace(tracer, {**state, "tau": tau}), "u": u}


def _apart(model: Model, a: Sequence[Any], b: Sequence[Any]) -> Any:
    """b (-) a of unit quaternions."""
    a, b = scalars(a), scalars(b)
    return joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(a[at]), tuple(b[at])))


@cache
def _task(step: Step, nv: int, actuated: tuple[int, ...], bounded: bool) -> FollowedStep:
    """A `FollowedStep`, cached because engines compare tasks by identity."""
    return FollowedStep(step, nv, actuated, bounded)


class Follower:
    """Rolls out plans with feedback.

    Args:
        dyn: the robot, in double precision.
        steps, dt: of the plan.
        actuated: (nu,) velocities that controls drive.
        upper: (nu,) bounds of |u|, or None.
        given: names of further inputs of steps, "active" and "targets".
    """

    def __init__(
        self, dyn: Dynamics, steps: int, dt: float, actuated: Array, upper: Array | None, given: Sequence[str]
    ) -> None:
        step = chosen_step(dyn, ("tau", *given), _INTEGRATOR, ())
        self._task = _task(step, dyn.model.nv, tuple(int(v) for v in actuated), upper is not None)
        self._engine, self._steps, self._shape = dyn.engine, steps, (dyn.model.nq, dyn.model.nv, len(actuated))
        self._constant = {"dt": np.full((1, 1, 1), dt)} | ({} if upper is None else {"upper": upper[None, None]})
        self._tables: dict[Any, Any] = {}

    @property
    def available(self) -> bool:
        """Whether the engine has one program for a step."""
        find: Any = getattr(self._engine, "has_program", None)
        return self._engine.native and bool(find(self._task)) and bool(find(self._task, (), True))

    def __call__(
        self,
        start: tuple[Array, Array],
        plan: tuple[Array, Array, Array],
        size: Array,
        k: Array,
        K: Array,
        given: Mapping[str, Array],
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """States q (R, N + 1, nq) and qd (R, N + 1, nv), and controls u (R, N, nu).

        Args:
            start: q0 (R, nq) and qd0 (R, nv).
            plan: q, qd and u of the same shapes as the results, or (1, ...) for all.
            size: (R,) times which k is added.
            k, K: (R or 1, N, nu) and (R or 1, N, nu, 2 nv).
            given: further inputs (R or 1, N or 1, ...).
            out: arrays for the results.
        """
        rows, n, (nq, nv, nu) = len(size), self._steps, self._shape
        if out is None:
            out = np.empty((rows, n + 1, nq)), np.empty((rows, n + 1, nv)), np.empty((rows, n, nu))
        q, qd, u = out
        q[:, 0], qd[:, 0] = start
        arrays = {"q": q[:, :-1], "qd": qd[:, :-1], "q_next": q[:, 1:], "qd_next": qd[:, 1:], "u": u}
        arrays |= {"q_plan": plan[0][:, :-1], "qd_plan": plan[1][:, :-1], "u_plan": plan[2], "k": k, "K": K}
        arrays |= {"size": size[:, None, None], **self._constant, **given}
        key = rows, *(array.strides if len(array) > 1 else (0, *array.strides[1:]) for array in arrays.values())
        table = self._tables.get(key)
        if table is None:
            table = self._made(key, arrays, rows)
        else:
            for name, array in arrays.items():
                table.move(name, array.ctypes.data)
        table.run(self._engine.launch, n)
        return out

    def _made(self, key: Any, arrays: Mapping[str, Array], rows: int) -> Any:
        wide = {
            name: np.broadcast_to(array, (rows, *array.shape[1:])).swapaxes(0, 1) for name, array in arrays.items()
        }
        if len(self._tables) >= _MOST_TABLES:
            self._tables.clear()
        table = self._tables[key] = self._engine.backward_table(self._task, wide, rows)
        return table
