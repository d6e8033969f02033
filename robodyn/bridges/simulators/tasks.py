"""Actions, steps, observations and rewards of a batch of robots: the part of an environment that does not depend on
Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.equations import Equations
from robodyn.api.motion.policy import Policy
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.motion.rollout import advanced
from robodyn.api.motion.step_spec import chosen_step, limits_kept
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.api.queries.contacts import OF_CONTACTS, warn_of_rows
from robodyn.core.findings import listed
from robodyn.core.integrators import INTEGRATORS
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import (
    Array,
    as_array,
    count,
    finite_real,
    one_of,
    real_array,
    require_finite,
    rows_named,
)
from robodyn.internals.errors import ArgumentError, AssemblyError, NumericalError, UnavailableError
from robodyn.internals.messages import brief, quoted

ACTUATIONS = ("torque", "normalized", "position")
"""Meaning of an action: forces, forces relative to their limits, or target positions of drives."""
_MOST_JOINTS = 1 << 20
_START = 0.1
"""Initial configurations and velocities are drawn from this range around the neutral state."""
_ROUNDS = 3
"""Projections of initial states onto the constraints."""
_FARTHEST = 1e16
"""Squared norm, (1e8 m, rad or their rates)^2, beyond which a state has diverged and functions of it would overflow."""

PARAMETERS = ("f_ext", "inertia", "armature", "damping", "friction", "gravity")
"""Arguments of `Dynamics.step` that may differ between episodes; with contacts those of `OF_CONTACTS`, too."""
_GAINS = ("kp", "kd")
"""The same of drives to positions."""

States = tuple[Array, ...]
"""q (n, nq), qd (n, nv), and the goal (n, k) if the task has one."""
Parameters = dict[str, Array]
"""Arguments of `Dynamics.step` by name, (n, ...)."""


class Task:
    """A robot, its actuation, and the user's functions of batches of states; see `robodyn.simulators.gymnasium`."""

    def __init__(
        self,
        dyn: Dynamics | Model,
        reward: Callable[..., Any],
        terminated: Callable[..., Any] | None,
        reset: Callable[..., Any] | None,
        observation: Callable[..., Any] | None,
        update: Callable[..., Any] | None,
        randomize: Callable[..., Any] | None,
        dt: float,
        substeps: int,
        integrator: str,
        actuation: str,
        joints: Sequence[str] | None,
        effort: Any,
        kp: Any,
        kd: Any,
        limits: Sequence[str] | None,
        max_episode_steps: int | None,
    ) -> None:
        contacts = dyn.contacts if strict_types.is_a(dyn, Model) else None  # type: ignore[union-attr]
        rows = contacts is not None and contacts.dry_friction
        forces = ("damping",) if rows else ("damping", "friction")
        robot = dynamics_of(dyn, "a Gymnasium environment", "obeyed", joint_forces=forces)
        functions = {"reward": reward, "terminated": terminated, "reset": reset, "observation": observation}
        functions |= {"update": update, "randomize": randomize}
        for name, function in functions.items():
            if not callable(function) and not (function is None and name != "reward"):
                raise ArgumentError(f"{name}: got {brief(function)}; wanted a function of states")
        # check=False: a diverging state ends its episode instead of raising.
        self.dyn = robot.variant(check=False)
        self.model = robot.model
        self._contacts = self.model.contacts is not None
        if self._contacts and self.model.constraints:
            raise UnavailableError("a Gymnasium environment: a robot with contacts must have no constraints")
        self._equations = Equations(self.dyn.variant(contacts=()) if self._contacts else self.dyn)
        self._equations.require_anchored("a Gymnasium environment")
        self.reward, self.terminated, self._reset, self._observation = reward, terminated, reset, observation
        self._update, self._randomize = update, randomize
        self._middle = self.model.neutral() if reset is not None else self._first()
        seconds = finite_real(dt)
        if seconds is None or seconds <= 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a positive finite number of seconds")
        self.substeps = count("substeps", substeps, 1, 1 << 20)
        self.dt = seconds
        self.actuation = one_of("actuation", actuation, ACTUATIONS)
        # Actions that are forces are clipped already. Drives to positions may exceed effort limits.
        # Steps with contacts have neither drives nor limits: `advance` has those of positions.
        default_limits = ("effort",) if self.actuation == "position" and not self._contacts else ()
        self.integrator = one_of("integrator", integrator, tuple(INTEGRATORS))
        self.limits = limits_kept(default_limits if limits is None else limits, self.integrator)
        max_steps = max_episode_steps
        self.max_episode_steps = None if max_steps is None else count("max_episode_steps", max_steps, 1, 1 << 62)
        self.joints, self._v = self._driven(joints)
        self.effort = self._effort(effort)
        self._kp, self._kd = (self._gain(name, gain) for name, gain in zip(_GAINS, (kp, kd), strict=True))
        if self.actuation == "position":
            self._q = self._coordinates()
        self.low, self.high = self._bounds()
        # One draw shows which parameters there are. Its generator is separate, so seeds are not affected.
        self._drawn = tuple(self.parameters(np.random.default_rng(0), 1))
        # Raises if the integrator does not support the constraints, the contacts, or a parameter.
        given = tuple("dV0" if name == "gravity" else name for name in self._drawn if name not in _GAINS)
        chosen_step(self.dyn, ("tau", *given), self.integrator, self.limits, contacts=self._contacts)
        self._told = False
        warn_of_unused_forces(robot, "a Gymnasium environment")

    # Actuation.

    def _driven(self, joints: Any) -> tuple[tuple[str, ...], Array]:
        """Names of driven joints, and indices of their degrees of freedom."""
        model = self.model
        kinds = {
            name: (KINDS[code].name, int(model.v_source[start]), KINDS[code].nv, followed < 0)
            for name, code, start, followed in zip(
                model.joint_names, model.joint_kind.tolist(), model.v_start.tolist(), model.mimics.tolist(), strict=True
            )
        }
        if joints is None:
            limit = model.effort_limit
            names = tuple(
                name
                for name, (kind, start, n, free) in kinds.items()
                if free and kind != "floating" and (limit[start : start + n] > 0.0).any()
            )
        else:
            members = None if strict_types.is_a(joints, str) else strict_types.at_most(joints, _MOST_JOINTS)
            texts = [strict_types.text_or_none(each) for each in members or ()]
            names = tuple(text for text in texts if text is not None)
            if members is None or len(names) < len(texts) or len(set(names)) < len(names):
                raise ArgumentError(f"joints: got {brief(joints)}; wanted names of joints, each once")
            wrong = [quoted(name) for name in names if name not in kinds or not kinds[name][3]]
            if wrong:
                raise ArgumentError(f"joints: {model.name!r} has no joint {listed(wrong)} that follows no other")
        if not names:
            raise ArgumentError(
                "joints: there are none to drive; wanted at least one joint that has an effort limit > 0"
            )
        at = [np.arange(kinds[name][1], kinds[name][1] + kinds[name][2]) for name in names]
        return names, np.concatenate(at)

    def _coordinates(self) -> Array | slice:
        """Indices of the driven joints' coordinates. Raises for joints with several degrees of freedom."""
        model = self.model
        indices = []
        for name in self.joints:
            i = model.joint_index(name)
            kind = KINDS[model.joint_kind[i]]
            if kind.nv != 1:
                raise ArgumentError(f"joints: {quoted(name)} is {kind.name}; wanted joints of one degree of freedom")
            indices.append(int(model.q_source[model.q_start[i]]))
        return _slice_of(np.array(indices, dtype=np.intp))

    def _effort(self, effort: Any) -> Array:
        """Effort limits (m,) of actuators."""
        if effort is None:
            return self.model.effort_limit[self._v].astype(self.dyn.dtype)
        if self.actuation == "position":
            raise ArgumentError(
                f"effort: got {brief(effort)}; wanted None: drives to positions keep to the model's limits"
            )
        numbers = self._numbers("effort", effort)
        if not (numbers > 0.0).all():
            raise ArgumentError(f"effort: got {brief(effort)}; wanted positive numbers")
        return numbers

    def _gain(self, name: str, gain: Any) -> Array | None:
        """A gain (m,) of the drives."""
        if self.actuation != "position":
            if gain is not None:
                raise ArgumentError(f"{name}: got {brief(gain)}; wanted None where actuation is {self.actuation!r}")
            return None
        if gain is None:
            drive = "stiffness (N m/rad or N/m)" if name == "kp" else "damping (N m s/rad or N s/m)"
            raise ArgumentError(
                f"{name}: not given, and actuation is 'position'; wanted the {drive} of drives: a number >= 0, or one "
                f"for each of {self._v.size} degrees of freedom"
            )
        return self._numbers(name, gain)

    def _numbers(self, name: str, given: Any) -> Array:
        """Check (m,) numbers of at least 0, or one number for all."""
        numbers = real_array(name, given, (), np.float64)
        if numbers.shape not in ((), self._v.shape) or not (numbers >= 0.0).all():
            wanted = f"wanted a number >= 0, or one for each of {self._v.size} degrees of freedom"
            raise ArgumentError(f"{name}: got {brief(given)}; {wanted}")
        return np.broadcast_to(numbers, self._v.shape).astype(self.dyn.dtype)

    def _bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds (m,) of an action."""
        if self.actuation == "position":
            lower, upper = self.model.lower[self._q], self.model.upper[self._q]
            return lower.astype(self.dyn.dtype), upper.astype(self.dyn.dtype)
        if self.actuation == "normalized":
            if not np.isfinite(self.effort).all():
                names = [quoted(self.model.velocity_names[v]) for v in self._v[~np.isfinite(self.effort)].tolist()]
                raise ArgumentError(
                    f"effort: {listed(names)} have no limit, and actuation is 'normalized'; give effort="
                )
            ones = np.ones(self._v.size, self.dyn.dtype)
            return -ones, ones
        return -self.effort, self.effort

    # Episodes.

    def action(self, action: Any, n: int, ignored: Array | None = None) -> Array:
        """Check actions (n, m) and clip them to their bounds. Rows that are `ignored` become zero unchecked.

        Raises:
            ArgumentError: wrong shape or type.
            NumericalError: NaN.
        """
        array = real_array("action", action, (self._v.size,), self.dyn.dtype)
        if array.shape[:-1] not in ((n,), ()) or (array.ndim == 1 and n != 1):
            raise ArgumentError(f"action: got shape {array.shape}; wanted {(n, self._v.size)}")
        array = array.reshape(n, self._v.size)
        if ignored is not None and ignored.any():
            array = np.where(ignored[:, None], 0.0, array)
        bad = np.isnan(array)
        if bad.any():
            raise NumericalError(f"action: NaN {rows_named(bad, 1)}; wanted numbers")
        return np.clip(array, self.low, self.high)

    def advance(self, states: States, parameters: Parameters, action: Array) -> tuple[Array, Array, Array]:
        """States (n, ...) after an action, and which have diverged; diverged states keep their previous values."""
        q, qd, *_ = states
        given: dict[str, Any] = {name: array for name, array in parameters.items() if name not in _GAINS}
        policy = None
        if self.actuation != "position":
            given["tau"] = np.zeros((len(q), self.model.nv), self.dyn.dtype)
            given["tau"][:, self._v] = action * self.effort if self.actuation == "normalized" else action
        elif self._contacts:  # steps with contacts have no drives of their own
            policy = self._drives(parameters, action)
        else:
            given["q_des"] = q.copy()
            given["q_des"][:, self._q] = action
            for name in _GAINS:
                gains = self._gains(name, parameters)
                given[name] = np.zeros((*gains.shape[:-1], self.model.nv), self.dyn.dtype)
                given[name][..., self._v] = gains
        q1, qd1, lost = self._steps((q, qd), given, policy)
        with np.errstate(all="ignore"):
            lost |= ~(np.einsum("ij,ij->i", q1, q1) <= _FARTHEST) | ~(np.einsum("ij,ij->i", qd1, qd1) <= _FARTHEST)
            if self._equations.constrained:
                lost |= ~self._equations.near(q1)
        if lost.any():
            q1, qd1 = np.where(lost[:, None], q, q1), np.where(lost[:, None], qd, qd1)
        return q1, qd1, lost

    def _steps(
        self, state: tuple[Array, Array], given: dict[str, Any], policy: Policy | None
    ) -> tuple[Array, Array, Array]:
        """States after `dt`, and which have diverged."""
        each, options = self.dt / self.substeps, {"limits": self.limits, "integrator": self.integrator, **given}
        if not self._contacts:
            for _ in range(self.substeps):
                state = self.dyn.step(*state, dt=each, **options)
            return *state, np.zeros(len(state[0]), np.bool_)
        # One rollout prepares all substeps, and diverged states need no warning: they end episodes.
        q, qd, lost, converged = advanced(
            self.dyn, state, each, self.substeps, self.integrator, given, self.limits, policy
        )
        if not (self._told or converged.all()):
            self._told = True
            assert self.model.contacts is not None
            warn_of_rows("an environment (said once)", ~converged, (len(q),), self.model.contacts)
        return q, qd, lost

    def _drives(self, parameters: Parameters, action: Array) -> Policy:
        """The policy of drives to positions, within effort limits."""
        kp, kd = (self._gains(name, parameters) for name in _GAINS)
        tau = np.zeros((len(action), self.model.nv), self.dyn.dtype)
        v = _slice_of(self._v)

        def policy(t: float, q: Array, qd: Array) -> Array:
            forces = action - q[:, self._q]
            forces *= kp
            forces -= kd * qd[:, v]
            tau[:, v] = np.clip(forces, -self.effort, self.effort, out=forces)
            return tau

        return policy

    def _gains(self, name: str, parameters: Parameters) -> Array:
        """A gain of the drives, (n, m) or (m,)."""
        gains = self._kp if name == "kp" else self._kd
        assert gains is not None
        return parameters.get(name, gains)

    def parameters(self, rng: np.random.Generator, n: int) -> Parameters:
        """What the user's function draws for n episodes.

        Raises:
            ArgumentError, NumericalError: it does not return arrays of n finite rows of known names.
        """
        if self._randomize is None:
            return {}
        known = (*PARAMETERS, *(OF_CONTACTS if self._contacts else ()))
        known += _GAINS if self.actuation == "position" else ()
        returned = self._randomize(rng, n)
        if not strict_types.is_a(returned, dict):
            raise ArgumentError(f"randomize: returned {brief(returned)}; wanted a dict of arrays")
        drawn = {one_of("a key that randomize returned", name, known): value for name, value in dict.items(returned)}
        if self.__dict__.get("_drawn", tuple(drawn)) != tuple(drawn):
            raise ArgumentError(f"randomize: returned keys {[*drawn]}; wanted {[*self._drawn]}, as before")
        arrays = {}
        for key, value in drawn.items():
            name, shape = f"randomize's {key}", (self._v.size,) if key in _GAINS else self.dyn.argument_shapes[key]
            array = real_array(name, value, shape, self.dyn.dtype)
            if array.shape != (n, *shape):
                raise ArgumentError(f"{name}: got shape {array.shape}; wanted {(n, *shape)}")
            require_finite(name, array, 1)
            if key not in ("f_ext", "inertia", "gravity", "ground_pose") and (array < 0.0).any():
                raise ArgumentError(f"{name}: got {brief(float(array.min()))}; wanted numbers of at least 0")
            arrays[key] = array.copy()
        return arrays

    def start(self, rng: np.random.Generator, n: int) -> States:
        """Initial states of n episodes.

        Raises:
            ArgumentError, NumericalError: the user's function does not return finite states.
        """
        if self._reset is None:
            return self._near_neutral(rng, n)
        initial = self._reset(rng, n)
        members = strict_types.members(initial) if strict_types.is_a(initial, tuple) else ()
        if len(members) not in (2, 3):
            raise ArgumentError(f"reset: returned {brief(initial)}; wanted (q, qd), or (q, qd, goal)")
        arrays = []
        for name, value, width in zip(("q", "qd"), members, (self.model.nq, self.model.nv), strict=False):
            array = real_array(f"reset's {name}", value, (width,), self.dyn.dtype)
            if array.shape != (n, width):
                raise ArgumentError(f"reset's {name}: got shape {array.shape}; wanted {(n, width)}")
            require_finite(f"reset's {name}", array, 1)
            arrays.append(array.copy())
        if self.model.quaternion_starts.size:
            arrays[0] = self.model.normalize(arrays[0]).astype(self.dyn.dtype)
        if self._equations.constrained:
            off = self._equations.off(arrays[0])
            if off is not None:
                raise ArgumentError(f"reset's q: {off}; wanted states on the constraints, as model.assemble finds")
            arrays = [*self._equations.held(*arrays)]
        if len(members) == 3:
            goal = real_array("reset's goal", members[2], (), self.dyn.dtype)
            if goal.ndim != 2 or len(goal) != n:
                raise ArgumentError(f"reset's goal: got shape {goal.shape}; wanted ({n}, ...) with two axes")
            require_finite("reset's goal", goal, 1)
            arrays.append(goal.copy())
        return tuple(arrays)

    def _first(self) -> Array:
        """The neutral configuration, assembled to satisfy the constraints."""
        neutral = self.model.neutral()
        try:
            return self.model.assemble(neutral) if self.model.constraints else neutral
        except AssemblyError as error:
            raise ArgumentError(
                f"reset: got None; wanted a function that returns states on the constraints: {error}"
            ) from None

    def _near_neutral(self, rng: np.random.Generator, n: int) -> States:
        model = self.model
        away, qd = rng.uniform(-_START, _START, (2, n, model.nv))
        q = model.integrate(np.broadcast_to(self._middle, (n, model.nq)), away)
        lower, upper = np.nan_to_num(model.lower, nan=-np.inf), np.nan_to_num(model.upper, nan=np.inf)
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        q, qd = np.clip(q, lower, upper).astype(self.dyn.dtype), qd.astype(self.dyn.dtype)
        return self._on_constraints(q, qd) if self._equations.constrained else (q, qd)

    def _on_constraints(self, q: Array, qd: Array) -> States:
        """Project states onto the constraints; rows where that fails become the neutral state."""
        for _ in range(_ROUNDS):
            q, qd = self._equations.projected(q, qd)
        lost = ~self._equations.near(q)
        q[lost], qd[lost] = self._middle, 0.0
        return q, qd

    def updated(self, states: States, action: Array) -> States:
        """The states with the goals of the next step.

        Raises:
            ArgumentError, NumericalError: the user's function returns something else, or there are no goals.
        """
        if self._update is None:
            return states
        if len(states) < 3:
            raise ArgumentError("update: got a function; wanted None, as reset returns no goal")
        q, qd, goal = states
        array = real_array("update", self._update(q, qd, action, goal), (), self.dyn.dtype)
        if array.shape != goal.shape:
            raise ArgumentError(f"update: returned shape {array.shape}; wanted {goal.shape}, as goals have")
        require_finite("update", array, 1)
        return q, qd, array.copy()

    def observe(self, states: States) -> Array:
        """Observations (n, k): q, qd and the goal, or the user's function of these."""
        if self._observation is None:
            return np.concatenate(states, axis=1)
        observations = real_array("observation", self._observation(*states), (), self.dyn.dtype)
        if observations.ndim != 2 or len(observations) != len(states[0]):
            raise ArgumentError(f"observation: returned shape {observations.shape}; wanted ({len(states[0])}, k)")
        return observations

    def judged(self, states: States, action: Array) -> tuple[Array, Array]:
        """Rewards (n,), and which episodes terminate (n,).

        Raises:
            ArgumentError, NumericalError: a user's function returns something else.
        """
        q, qd, *goal = states
        n = len(q)
        reward = real_array("reward", self.reward(q, qd, action, *goal), (), np.float64)
        if reward.shape != (n,):
            raise ArgumentError(f"reward: returned shape {reward.shape}; wanted ({n},)")
        require_finite("reward", reward, 0)
        ends = np.zeros(n, np.bool_)
        if self.terminated is not None:
            ends = as_array("terminated", self.terminated(q, qd, *goal), f"wanted bools ({n},)")
            if ends.shape != (n,) or ends.dtype != np.bool_:
                raise ArgumentError(f"terminated: returned {ends.dtype} of shape {ends.shape}; wanted bool ({n},)")
        return reward, ends.copy()


def _slice_of(indices: Array) -> Array | slice:
    """Indices as a slice if they follow one another, which selects without copying."""
    first, n = int(indices[0]), len(indices)
    return slice(first, first + n) if (indices == np.arange(first, first + n)).all() else indices
