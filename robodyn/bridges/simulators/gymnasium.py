"""Robots as environments of Gymnasium: one, or thousands that one call steps as a batch.

    import robodyn.simulators.gymnasium as environments

    envs = environments.RobodynVectorEnv(dyn, 4096, reward=lambda q, qd, action: -(q**2).sum(axis=1), dt=0.01)

Importing this module registers "robodyn/CartPole-v0", "robodyn/ArmReach-v0" and "robodyn/QuadrupedWalk-v0"
(`robodyn.simulators.environments`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.bridges.simulators.rendering import MODES, Renderer
from robodyn.bridges.simulators.tasks import Parameters, States, Task
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, count
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, install

try:
    import gymnasium
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise UnavailableError(
        f"robodyn.simulators.gymnasium needs Gymnasium, which cannot be imported here ({error}): {install('gymnasium')}"
    ) from error

__all__ = ["RobodynEnv", "RobodynVectorEnv"]

AutoresetMode, Box = gymnasium.vector.AutoresetMode, gymnasium.spaces.Box
_MOST_ENVS = 1 << 31


class RobodynEnv(gymnasium.Env):
    """A robot as a `gymnasium.Env`. Needs the extra `gymnasium`.

    Args:
        dyn: the robot's `Dynamics`, or its `Model`, which gets a `Dynamics` with damping and friction.
        reward: function of (q (n, nq), qd (n, nv), action (n, m)) that returns rewards (n,), from the states after a
            step and the clipped actions. All functions take batches, here of one state.
        terminated: function of (q, qd) that returns bools (n,), True for episodes that end; None: none do.
        reset: function of (rng, n) that returns the initial (q, qd) of n episodes; rng is the environment's
            `numpy.random.Generator`. It may return (q, qd, goal) with a goal (n, k) for each episode. Then `reward`,
            `terminated` and `observation` get the goal as an additional last argument, and the default observation
            includes it. None: uniform within 0.1 around the neutral configuration and zero velocity.
        observation: function of (q, qd) that returns observations (n, k); None for q and qd concatenated.
        update: function of (q, qd, action, goal) that returns the goals (n, k) from then on: commands that change, a
            clock, the last action. `reward` and `terminated` get the goals before, `observation` those after.
        randomize: function of (rng, n) that returns arguments of `Dynamics.step` for n episodes, a dict of arrays
            (n, ...): "inertia", "gravity", "f_ext", "armature", "damping", "friction", with contacts "contact_friction"
            and "ground_pose", for "position" "kp" and "kd" (n, m). They are drawn anew for each episode, before its
            initial state; `parameters` has them.
        observation_space: a Box (k,) of observations; None for one without bounds, of the dtype of `dyn`.
        dt: seconds between actions.
        substeps: number of steps (`Dynamics.step`) in this time.
        integrator: integrator of these steps, as in `Dynamics.step`.
        actuation: meaning of an action (m,). "torque": forces, N or N m, within effort limits. "normalized": the same
            relative to the limits, -1 to 1. "position": target positions within position limits, for drives with `kp`
            and `kd` and forces within effort limits. Actions out of bounds are clipped.
        joints: names of the driven joints, in the order of actions; None for all but floating joints, mimic joints and
            those whose effort limit is 0.
        effort: (m,) or one number instead of the model's limits.
        kp: (m,) or one number, N/m or N m/rad, for "position".
        kd: (m,) or one number, N s/m or N m s/rad, for "position".
        limits: which limits of the model steps keep, as in `Dynamics.rollout`; None: "effort" for "position".
        max_episode_steps: number of steps after which an episode is truncated; None: never.
        render_mode: "rgb_array": `render` returns a picture (360, 480, 3) by Matplotlib. "human": the viewer shows the
            robot at each step, in real time; `view.url` is its address. None: nothing is drawn.

    A state that diverges (beyond 1e8 in SI units, or NaN) terminates its episode without an error. Observation and
    reward are then those of the state before, and `info["diverged"]` is True. Spaces have the dtype of `dyn`.

    Raises:
        ArgumentError: (also every call) an argument, or the result of a function, has the wrong shape, type or value.
        NumericalError: NaN in an action or in the result of a function.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES]}  # noqa: RUF012  Gymnasium's own declaration

    def __init__(
        self,
        dyn: Dynamics | Model,
        *,
        reward: Callable[..., Any],
        terminated: Callable[..., Any] | None = None,
        reset: Callable[..., Any] | None = None,
        observation: Callable[..., Any] | None = None,
        update: Callable[..., Any] | None = None,
        randomize: Callable[..., Any] | None = None,
        observation_space: Any = None,
        dt: float = 0.01,
        substeps: int = 1,
        integrator: str = "semi_implicit_euler",
        actuation: str = "torque",
        joints: Sequence[str] | None = None,
        effort: Any = None,
        kp: Any = None,
        kd: Any = None,
        limits: Sequence[str] | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.task = Task(
            dyn, reward, terminated, reset, observation, update, randomize, dt, substeps, integrator, actuation,
            joints, effort, kp, kd, limits, max_episode_steps,
        )  # fmt: skip
        self.observation_space, self.action_space = _spaces(self.task, observation_space)
        self._renderer = Renderer(self.task, render_mode)
        self.render_mode, self.metadata = render_mode, {**self.metadata, "render_fps": self._renderer.fps}
        self._states: States | None = None
        self.parameters: Parameters = {}
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode: returns an observation and an empty info."""
        super().reset(seed=seed)
        self._steps, self.parameters = 0, self.task.parameters(self.np_random, 1)
        self._states = _fixed(self.task.start(self.np_random, 1))
        self._renderer.follow(self._states)
        return _seen(self.task, self._states)[0], {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one action: returns observation, reward, terminated, truncated, info."""
        if self._states is None:
            raise gymnasium.error.ResetNeeded("reset has not been called")
        taken = self.task.action(action, 1)
        q, qd, lost = self.task.advance(self._states, self.parameters, taken)
        states = _fixed((q, qd, *self._states[2:]))
        reward, ends = self.task.judged(states, taken)
        self._states = _fixed(self.task.updated(states, taken))
        self._renderer.follow(self._states)
        self._steps += 1
        truncated = self.task.max_episode_steps is not None and self._steps >= self.task.max_episode_steps
        info = {"diverged": True} if lost[0] else {}
        return _seen(self.task, self._states)[0], float(reward[0]), bool(ends[0] | lost[0]), truncated, info

    @property
    def states(self) -> States | None:
        """The state: q (1, nq), qd (1, nv), and the goal (1, k) if there is one. Read-only; None before the first
        reset."""
        return self._states

    @property
    def view(self) -> Any:
        """The view of the mode "human", after the first reset; None in other modes."""
        return self._renderer.view

    def render(self) -> Any:
        """The picture of the mode "rgb_array"; None in other modes."""
        if self._states is None:
            raise gymnasium.error.ResetNeeded("reset has not been called")
        pictures = self._renderer.pictures(self._states, self.parameters)
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Close the view."""
        self._renderer.close()


class RobodynVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of robots as a `gymnasium.vector.VectorEnv`, stepped in one call. Needs the extra `gymnasium`.

    Args:
        dyn: the robot.
        num_envs: number of environments.
        autoreset_mode: Gymnasium's `AutoresetMode`, or its value. "NextStep": the step after an episode's end ignores
            the action, begins the next episode and returns its first observation with reward 0. "SameStep": the step
            that ends an episode begins the next one; `info["final_obs"]` and `info["final_info"]` are those of the old
            episode. "Disabled": only `reset(options={"reset_mask": mask})` begins episodes, with a bool array
            (num_envs,).

    The other arguments are those of `RobodynEnv`; the mode "human" shows the first environment. One generator,
    `np_random`, serves all environments: a seed gives the same episodes for the same number of environments. Functions
    get read-only arrays.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        dyn: Dynamics | Model,
        num_envs: int = 1,
        *,
        reward: Callable[..., Any],
        terminated: Callable[..., Any] | None = None,
        reset: Callable[..., Any] | None = None,
        observation: Callable[..., Any] | None = None,
        update: Callable[..., Any] | None = None,
        randomize: Callable[..., Any] | None = None,
        observation_space: Any = None,
        dt: float = 0.01,
        substeps: int = 1,
        integrator: str = "semi_implicit_euler",
        actuation: str = "torque",
        joints: Sequence[str] | None = None,
        effort: Any = None,
        kp: Any = None,
        kd: Any = None,
        limits: Sequence[str] | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        autoreset_mode: Any = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = count("num_envs", num_envs, 1, _MOST_ENVS)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except Exception:  # a foreign object may raise anything when it is compared
            allowed = ", ".join(repr(mode.value) for mode in AutoresetMode)
            raise ArgumentError(f"autoreset_mode: got {brief(autoreset_mode)}; allowed: {allowed}") from None
        self.task = Task(
            dyn, reward, terminated, reset, observation, update, randomize, dt, substeps, integrator, actuation,
            joints, effort, kp, kd, limits, max_episode_steps,
        )  # fmt: skip
        self.single_observation_space, self.single_action_space = _spaces(self.task, observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._renderer = Renderer(self.task, render_mode)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode, "render_fps": self._renderer.fps}
        self._states: States | None = None
        self.parameters: Parameters = {}
        self._steps = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin episodes: of all environments, or of those in `options["reset_mask"]`, a bool array (num_envs,).

        Raises:
            ArgumentError: another mask, an empty one, or one that leaves out environments that have not begun.
        """
        super().reset(seed=seed)
        mask = _mask(options, self.num_envs)
        if mask is None or mask.all():
            self.parameters = self.task.parameters(self.np_random, self.num_envs)
            self._states = _fixed(self.task.start(self.np_random, self.num_envs))
            self._steps[:], self._ended[:] = 0, False
        elif self._states is None:
            raise ArgumentError(
                "options['reset_mask']: leaves out environments that have not begun; wanted all at first"
            )
        else:
            self._states = _fixed(self._begun_anew(self._states, mask))
            self._ended[mask] = False
        self._renderer.follow(self._states)
        return _seen(self.task, self._states), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Act once in every environment: observations, rewards, terminations, truncations, infos.

        Gymnasium's `ResetNeeded` is raised before the first reset, and where episodes ended in the mode "Disabled".
        """
        if self._states is None:
            raise gymnasium.error.ResetNeeded("reset has not been called")
        ended, any_ended = self._ended, self._ended.any()
        if any_ended and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gymnasium.error.ResetNeeded(
                f"{int(ended.sum())} episodes have ended, the first in environment {int(np.argmax(ended))}: call "
                "reset(options={'reset_mask': mask})"
            )
        taken = self.task.action(actions, self.num_envs, ended)
        q, qd, lost = self.task.advance(self._states, self.parameters, taken)
        states: States = (q, qd, *self._states[2:])
        self._steps += 1
        if any_ended:
            states, lost = self._begun_anew(states, ended), lost & ~ended
        states = _fixed(states)
        rewards, terminations = self.task.judged(states, taken)
        terminations |= lost
        states = self._updated(states, taken, ended)
        max_steps = self.task.max_episode_steps
        truncations = np.zeros(self.num_envs, np.bool_) if max_steps is None else self._steps >= max_steps
        if any_ended:
            rewards = np.where(ended, 0.0, rewards)
            terminations &= ~ended
            truncations &= ~ended
        return self._told(states, rewards, terminations, truncations, lost)

    def _told(
        self, states: States, rewards: Array, terminations: Array, truncations: Array, lost: Array
    ) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """The return values of a step. In the mode "SameStep" ended episodes begin again."""
        seen, ended = _seen(self.task, states), terminations | truncations
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            for i in np.flatnonzero(ended).tolist():
                final = {"final_obs": seen[i].copy(), "final_info": {"diverged": True} if lost[i] else {}}
                infos = self._add_info(infos, final, i)
            states = _fixed(self._begun_anew(states, ended))
            seen, ended = _seen(self.task, states), np.zeros_like(ended)
        elif lost.any():
            infos = {"diverged": lost, "_diverged": lost.copy()}
        self._states, self._ended = states, ended
        self._renderer.follow(states)
        return seen, rewards, terminations, truncations, infos

    @property
    def states(self) -> States | None:
        """The states: q (num_envs, nq), qd (num_envs, nv), and goals (num_envs, k) if there are any. Read-only; None
        before the first reset."""
        return self._states

    @property
    def view(self) -> Any:
        """As of `RobodynEnv`, of the first environment."""
        return self._renderer.view

    def render(self) -> tuple[Array, ...] | None:
        """A picture of each environment in the mode "rgb_array"; None in other modes."""
        if self._states is None:
            raise gymnasium.error.ResetNeeded("reset has not been called")
        return self._renderer.pictures(self._states, self.parameters)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the view."""
        self._renderer.close()

    def _updated(self, states: States, taken: Array, begun: Array) -> States:
        """The states with the goals of the next step, except of episodes that have begun in this one."""
        after = self.task.updated(states, taken)
        if begun.any() and after is not states:
            after = (*states[:2], np.where(begun[:, None], states[2], after[2]))
        return _fixed(after)

    def _begun_anew(self, states: States, mask: Array) -> States:
        """The states with new initial states where the mask is True. These episodes get new parameters, too, and their
        counts of steps become 0."""
        self._steps[mask] = 0
        n = int(mask.sum())
        for name, rows in self.task.parameters(self.np_random, n).items():
            self.parameters[name][mask] = rows
        initial = self.task.start(self.np_random, n)
        arrays = [each.copy() for each in states]
        for array, rows in zip(arrays, initial, strict=True):
            if array.shape[1] != rows.shape[1]:
                raise ArgumentError(f"reset's goal: got {rows.shape[1]} numbers; wanted {array.shape[1]} as before")
            array[mask] = rows
        return tuple(arrays)


def _spaces(task: Task, observation_space: Any) -> tuple[Any, Any]:
    """The spaces of one environment's observations and actions."""
    dtype = task.dyn.dtype.type
    acts = Box(task.low.astype(dtype), task.high.astype(dtype), dtype=dtype)
    # One initial state shows the width of an observation. Its generator is separate, so seeds are not affected.
    width = task.observe(_fixed(task.start(np.random.default_rng(0), 1))).shape[1]
    if observation_space is None:
        return Box(-np.inf, np.inf, (width,), dtype), acts
    if not strict_types.is_a(observation_space, Box) or observation_space.shape != (width,):
        raise ArgumentError(f"observation_space: got {brief(observation_space)}; wanted a Box of shape ({width},)")
    return observation_space, acts


def _seen(task: Task, states: States) -> Array:
    """Observations in memory of their own."""
    seen = task.observe(states)
    return seen.copy() if not seen.flags.writeable or seen.base is not None else seen


def _fixed(states: States) -> States:
    """Make the state arrays read-only for the user's functions."""
    for array in states:
        array.flags.writeable = False
    return states


def _mask(options: Any, n: int) -> Array | None:
    mask = dict.get(options, "reset_mask") if strict_types.is_a(options, dict) else None
    if mask is None:
        return None
    wanted = f"wanted a bool array ({n},), some of it True"
    array = as_array("options['reset_mask']", mask, wanted) if strict_types.is_a(mask, np.ndarray) else np.empty(0)
    if array.dtype != np.bool_ or array.shape != (n,) or not array.any():
        raise ArgumentError(f"options['reset_mask']: got {brief(mask)}; {wanted}")
    return array.copy()


gymnasium.register(
    "robodyn/CartPole-v0",
    entry_point="robodyn.simulators.environments:cartpole",
    vector_entry_point="robodyn.simulators.environments:cartpoles",
    max_episode_steps=500,
)
gymnasium.register(
    "robodyn/ArmReach-v0",
    entry_point="robodyn.simulators.environments:arm_reach",
    vector_entry_point="robodyn.simulators.environments:arms_reach",
    max_episode_steps=200,
)
gymnasium.register(
    "robodyn/QuadrupedWalk-v0",
    entry_point="robodyn.simulators.environments:quadruped_walk",
    vector_entry_point="robodyn.simulators.environments:quadrupeds_walk",
    nondeterministic=True,  # by rounding: two programs solve contacts, one of which may not be compiled yet
    max_episode_steps=500,
)
