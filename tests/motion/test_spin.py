"""Steps with implicit gyroscopic forces: closed forms, conservation laws, MuJoCo, and engines against each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from driven import ROBOTS, every_kind, everything, far
from robots import own

import robodyn as rd
from robodyn.algorithms.linearly_implicit import linearly_implicit

INERTIA = np.array([17e-5, 0.65e-5, 17.3e-5])
"""Of a thin rod along y, about its centre."""


def rod(com: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> rd.Model:
    """A body that floats without gravity."""
    x, y, z = INERTIA
    place = " ".join(map(str, com))
    text = f"""<robot name="rod"><link name="rod"><inertial><origin xyz="{place}"/><mass value="0.1"/>
    <inertia ixx="{x}" iyy="{y}" izz="{z}" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""
    return rd.load_urdf(text, base="floating", gravity=(0.0, 0.0, 0.0))


def stepped(dyn: rd.Dynamics, share: float, q: Any, qd: Any, tau: Any, dt: float) -> Any:
    """Velocities after a step."""
    task = linearly_implicit(("q", "qd", "tau"), share)
    qdd = np.empty_like(qd)
    dyn.engine.compose(task, {"q": q, "qd": qd, "tau": tau, "dt": np.full((len(q), 1), dt)}, {"qdd": qdd})
    return qd + dt * qdd


@pytest.mark.parametrize("spin", [10.0, 50.0, 200.0])
@pytest.mark.parametrize("com", [(0.0, 0.0, 0.0), (0.05, 0.02, 0.0)])
def test_a_free_body_keeps_energy_and_momentum(spin, com):
    """10 s at a millisecond. What a step turns momentum by beside the body is (spin dt)^3 / 12."""
    model, dt, steps = rod(com), 1e-3, 10_000
    dyn, w = rd.Dynamics(model), spin * np.array([0.02, 1.0, 0.01])
    q0, qd0 = model.neutral(), np.concatenate([np.array([1.0, 0.0, 0.0]) + np.cross(com, w), w])
    run = dyn.rollout(q0, qd0, dt=dt, steps=steps, integrator="implicit", save_every=100)
    assert run.diverged == -1
    energy, momentum = dyn.kinetic_energy(run.q, run.qd), dyn.centroidal_momentum(run.q, run.qd)[0]
    turned = (spin * dt) ** 2
    assert np.abs(energy / energy[0] - 1.0).max() < 0.25 * turned
    for part in (momentum[:, :3], momentum[:, 3:]):
        sizes = np.linalg.norm(part, axis=-1)
        assert np.abs(sizes / sizes[0] - 1.0).max() < 0.25 * turned
    seconds = 0.5  # and where it points
    after = momentum[int(seconds / (100 * dt))]
    for part in (slice(0, 3), slice(3, 6)):
        missed = np.linalg.norm(after[part] - momentum[0, part]) / np.linalg.norm(momentum[0, part])
        assert missed < 0.01 + spin**3 * dt**2 / 12.0 * seconds


def test_a_free_body_is_the_discrete_euler_top():
    """I_1 (w_1' - w_1) = dt (I_2 - I_3) (w_2' w_3 + w_2 w_3') / 2 and so on (Hirota and Kimura 2000)."""
    w = np.array([300.0, -200.0, 100.0])
    dt = 1e-3
    after = rd.Dynamics(rod()).step(rod().neutral(), np.concatenate([np.zeros(3), w]), dt=dt, integrator="implicit")[1]
    u = after[3:]
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        change = dt * (INERTIA[j] - INERTIA[k]) * (u[j] * w[k] + w[j] * u[k]) / 2.0
        assert INERTIA[i] * (u[i] - w[i]) == pytest.approx(change, abs=1e-12 * INERTIA[i] * 300.0)


@pytest.mark.parametrize("robot", ["every_kind", "mimicking"])
@pytest.mark.parametrize("fast", [1.0, 30.0])
@pytest.mark.some(of=8, rest="matrix")
def test_a_step_is_kahans(robot, fast, make_dynamics, engine_dtype, tolerance):
    """H (v' - v) / dt + B(v, v') + C(0) = tau, where B is the symmetric bilinear form of what is quadratic in C."""
    model, dt = ROBOTS[robot](), 2e-3
    q, v, tau = random_states(model, (4,))
    v = fast * v
    after = make_dynamics(model).step(q, v, tau, dt, integrator="implicit")[1]
    dyn, u = rd.Dynamics(model, engine="reference"), np.asarray(after, float)
    still = dyn.bias_force(q, 0.0 * v)
    mixed = 0.5 * (dyn.bias_force(q, u + v) - dyn.bias_force(q, u) - dyn.bias_force(q, v) + still)
    found = v + dt * np.linalg.solve(dyn.mass_matrix(q), (tau - mixed - still)[..., None])[..., 0]
    assert far(u, found) < 10.0 * tolerance


@pytest.mark.parametrize(
    "options",
    [
        {"engine": "reference"},
        {"threads": 2},
        pytest.param({"engine": "scan"}, marks=pytest.mark.matrix),
        pytest.param({"code": "rolled"}, marks=pytest.mark.matrix),
    ],
)
def test_other_code_and_engines(options):
    """Programs and arrays, with all that a step can be given."""
    model = every_kind()
    q, qd, tau = random_states(model, (5,))
    given = everything(model, (5,))
    wanted = rd.Dynamics(model, engine="cpu").rollout(q, qd, tau, 1e-3, 3, integrator="implicit", **given)
    found = rd.Dynamics(model, **options).rollout(q, qd, tau, 1e-3, 3, integrator="implicit", **given)
    assert far(found.qd[-1], wanted.qd[-1]) < 1e-10


@pytest.mark.parametrize(
    ("bodies", "engine"), [(3, "cpu"), (6, "reference"), pytest.param(70, "cpu", marks=pytest.mark.matrix)]
)
def test_programs_and_arrays_solve_the_equation(bodies, engine, monkeypatch):
    """Programs, and arrays where a robot is too large for one, state by state; derivatives against differences."""
    monkeypatch.setattr("robodyn.algorithms.linearly_implicit._MOST_SCALARS", 1)
    model, dt = rd.random_tree(bodies, seed=1, shape="chain"), 1e-3
    q, qd, tau = random_states(model, (2,))
    dyn = rd.Dynamics(model, engine=engine)
    after = dyn.step(q, qd, tau, dt, integrator="implicit")[1]
    gradient = dyn.inverse_dynamics_gradient(q, qd, 0.0 * qd)[1]
    M = dyn.mass_matrix(q) + 0.5 * dt * gradient
    assert far(after, qd + dt * np.linalg.solve(M, (tau - dyn.bias_force(q, qd))[..., None])[..., 0]) < 1e-10
    A, B = dyn.step_gradient(q, qd, tau, dt, integrator="implicit")
    rng = np.random.default_rng(3)
    print("seed 3")
    d = rng.normal(size=(2, 3 * model.nv))
    small = 1e-6
    ends = []
    for sign in (small, -small):
        dq, dqd, dtau = np.split(sign * d, 3, axis=-1)
        ends.append(dyn.step(model.integrate(q, dq), qd + dqd, tau + dtau, dt, integrator="implicit"))
    change = np.concatenate([model.difference(ends[1][0], ends[0][0]), ends[0][1] - ends[1][1]], -1) / (2.0 * small)
    assert relative(np.einsum("bij,bj->bi", np.concatenate([A, B], -1), d), change) < 1e-6


@pytest.mark.parametrize("name", ["arm7", "double_pendulum", 5, 6])
def test_with_all_of_the_derivative_steps_are_mujocos(name):
    """MuJoCo's "implicit", step by step: bases are fixed, so that velocities are the same."""
    mujoco = pytest.importorskip("mujoco")
    from robodyn.testing.mujoco_models import mujoco_model, places

    joints = ("revolute", "prismatic", "spherical")
    model = rd.load_urdf(own(name)) if isinstance(name, str) else rd.random_tree(8, seed=name, joints=joints)
    dt, steps, dyn = 2e-3, 40, rd.Dynamics(model)
    q, qd, tau = (each[None] for each in random_states(model))
    qd = 5.0 * qd
    theirs = mujoco_model(model, links=False)
    theirs.opt.timestep, theirs.opt.integrator = dt, mujoco.mjtIntegrator.mjINT_IMPLICIT
    data, (q_at, v_at) = mujoco.MjData(theirs), places(model, theirs)
    order = np.arange(model.nq)
    for start in model.quaternion_starts.tolist():
        order[start : start + 4] = [start + 3, start, start + 1, start + 2]
    data.qpos[q_at], data.qvel[v_at], data.qfrc_applied[v_at] = q[0, order], qd[0], tau[0]
    for _ in range(steps):
        qd = stepped(dyn, 1.0, q, qd, tau, dt)
        q = model.integrate(q, qd, dt)
        mujoco.mj_step(theirs, data)
        assert far(qd[0], data.qvel[v_at]) < 1e-10
    found = np.empty(model.nq)
    found[order] = data.qpos[q_at]
    assert np.abs(model.difference(q[0], found)).max() < 1e-10


def test_constraints_are_refused_by_name():
    model = dataclasses.replace(rd.load_urdf(own("arm7")), constraints=[rd.Point("link_7", at=(0, 0, 0.1))])
    dyn, q = rd.Dynamics(model), np.zeros(7)
    match = (
        "integrator: 'implicit' is not available for robots with constraints; .* wanted one of 'semi_implicit_euler'"
    )
    with pytest.raises(rd.UnavailableError, match=match):
        dyn.step(q, q, integrator="implicit")
    with pytest.raises(rd.UnavailableError, match=match):
        dyn.rollout(q, q, steps=2, integrator="implicit")
    with pytest.raises(rd.UnavailableError, match="constraints"):
        dyn.step_gradient(q, q, integrator="implicit")


def test_what_is_not_finite_stays_in_its_row():
    model = every_kind()
    for engine in ("cpu", "reference"):
        dyn = rd.Dynamics(model, engine=engine)
        q, qd, tau = random_states(model, (3,))
        wanted = dyn.step(q, qd, tau, integrator="implicit")[1]
        tau[1] = np.nan
        found = dyn.step(q, qd, tau, integrator="implicit")[1]
        assert np.array_equal(found[[0, 2]], wanted[[0, 2]]) and np.isnan(found[1]).any()
    nothing = rd.Dynamics(rd.random_tree(0, seed=0))
    assert nothing.step(np.zeros(0), np.zeros(0), integrator="implicit")[1].shape == (0,)
    q, qd, _ = random_states(model, (0, 2))
    assert rd.Dynamics(model).step(q, qd, integrator="implicit")[1].shape == (0, 2, model.nv)
