"""Calls of a control loop for one state: steps, their gradients, short rollouts, inverse kinematics.

Beside them stand, where they are installed: `mj_step` of MuJoCo on the same robot, Pinocchio's derivatives of forward
dynamics with the derivatives of its `integrate`, and the gradient of a rollout of a cart-pole as JAX compiles it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.errors import UnavailableError
from robodyn.testing.mujoco_models import mujoco_model
from robodyn.testing.pinocchio_models import pinocchio_model
from tests.bench.timing import Call

STEPS, CARTPOLE = 50, "cartpole"
ROBOTS = (CARTPOLE, "arm7", "humanoid")
_DT = 1e-3
_SEVERAL = 20


def cases(model: rd.Model) -> Iterator[tuple[str, str, Call]]:
    """Names, what is given besides, and calls."""
    dyn, rng, nv = rd.Dynamics(model, threads=1), np.random.default_rng(0), model.nv
    q, qd, tau = model.random_configuration(rng), 0.1 * rng.standard_normal(nv), rng.standard_normal(nv)
    states = [np.repeat(each[None], _SEVERAL, 0) for each in (q, qd, tau)]
    A, B = dyn.step_gradient(*states, _DT)
    ik, target = rd.InverseKinematics(model, model.link_names[-1]), dyn.link_pose(q, model.link_names[-1])
    near, weight = model.integrate(q, np.full(nv, 0.05)), np.ones((STEPS + 1, nv))
    held = np.zeros(nv)
    yield "step", "", lambda: dyn.step(q, qd, tau, _DT)
    yield "step", "damping", lambda: dyn.step(q, qd, tau, _DT, damping=held)
    yield "forward_dynamics_gradient", "one state", lambda: dyn.forward_dynamics_gradient(q, qd, tau)
    yield "step_gradient", "", lambda: dyn.step_gradient(q, qd, tau, _DT)
    yield "forward_dynamics_gradient", f"{_SEVERAL} states", lambda: dyn.forward_dynamics_gradient(*states)
    yield "step_gradient", f"{_SEVERAL} states", lambda: dyn.step_gradient(*states, _DT)
    yield "step_gradient", f"{_SEVERAL} states, out", lambda: dyn.step_gradient(*states, _DT, out=(A, B))
    yield "rollout", f"{STEPS} steps", lambda: dyn.rollout(q, qd, tau, _DT, STEPS)
    yield "rollout", f"{STEPS} steps, policy", lambda: dyn.rollout(q, qd, policy=lambda *_: held, dt=_DT, steps=STEPS)
    yield "rollout_vjp", f"{STEPS} steps", lambda: dyn.rollout_vjp(q, qd, tau, _DT, STEPS, q_weight=weight)
    yield "InverseKinematics.solve", "a start nearby", lambda: ik.solve(target, near, seeds=1)


def peers(model: rd.Model) -> dict[tuple[str, str], tuple[str, Call]]:
    """The library and its call, by name and what is given besides."""
    found = {}
    for library, name, what, make in (
        ("MuJoCo", "step", "", _mujoco_step),
        ("Pinocchio", "step_gradient", "", _pinocchio_gradient),
        ("JAX", "rollout_vjp", f"{STEPS} steps", _jax_gradient),
    ):
        try:
            found[name, what] = library, make(model)
        except (UnavailableError, ImportError):
            continue
    return found


def _mujoco_step(model: rd.Model) -> Call:
    made = mujoco_model(model)
    import mujoco

    made.opt.timestep = _DT
    data: Any = mujoco.MjData(made)
    return lambda: mujoco.mj_step(made, data)


def _pinocchio_gradient(model: rd.Model) -> Call:
    made = pinocchio_model(model)
    import pinocchio

    pin: Any = pinocchio
    data, q, v = made.createData(), pin.neutral(made), np.zeros(made.nv)

    def call() -> Any:
        pin.computeABADerivatives(made, data, q, v, v)
        moved = v + _DT * data.ddq
        return [pin.dIntegrate(made, q, _DT * moved, at) for at in (pin.ARG0, pin.ARG1)]

    return call


def _jax_gradient(model: rd.Model) -> Call:
    if model.name != CARTPOLE:
        raise UnavailableError("JAX takes minutes to compile rollouts of larger robots")
    import jax
    import jax.numpy as jnp

    from tests.bench.jax_rnea import aba

    accelerations = aba(model, "float64")

    def value(q: Any, qd: Any, tau: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            q, qd = state
            qd = qd + _DT * accelerations(q[None], qd[None], tau[None])[0]
            return (q + _DT * qd, qd), q

        _, states = jax.lax.scan(step, (q, qd), None, length=STEPS)
        return jnp.sum(states)

    compiled = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
    state = np.zeros(model.nv), np.zeros(model.nv), np.ones(model.nv)
    return lambda: jax.block_until_ready(compiled(*state))
