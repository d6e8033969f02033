"""Far from the world's origin: what does not depend on the place of a robot loses no digits in single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from robots import own

import robodyn as rd

LINK, OTHER = "front_left_foot", "hind_right_foot"
QUERIES: dict[str, Callable[..., Any]] = {
    **{
        f"{name}, {frame}": lambda dyn, q, qd, qdd, ask=ask, frame=frame: ask(dyn, q, qd, qdd, frame=frame)
        for frame in ("world_aligned", "body")
        for name, ask in {
            "jacobian": lambda dyn, q, qd, qdd, **named: dyn.jacobian(q, LINK, **named),
            "its derivative": lambda dyn, q, qd, qdd, **named: dyn.jacobian_derivative(q, qd, LINK, **named),
            "velocity": lambda dyn, q, qd, qdd, **named: dyn.link_velocity(q, qd, LINK, **named),
            "acceleration": lambda dyn, q, qd, qdd, **named: dyn.link_acceleration(q, qd, qdd, LINK, **named),
            "classical": lambda dyn, q, qd, qdd, **named: dyn.link_acceleration(
                q, qd, qdd, LINK, classical=True, **named
            ),
            "pose_hessian": lambda dyn, q, qd, qdd, **named: dyn.pose_hessian(q, LINK, **named),
            "velocity's gradient": lambda dyn, q, qd, qdd, **named: dyn.link_velocity_gradient(q, qd, LINK, **named)[0],
            "acceleration's": lambda dyn, q, qd, qdd, **named: dyn.link_acceleration_gradient(
                q, qd, qdd, LINK, **named
            )[0],
            "relative jacobian": lambda dyn, q, qd, qdd, **named: dyn.jacobian(q, LINK, relative_to=OTHER, **named),
            "relative velocity": lambda dyn, q, qd, qdd, **named: dyn.link_velocity(
                q, qd, LINK, relative_to=OTHER, **named
            ),
            "relative acceleration": lambda dyn, q, qd, qdd, **named: dyn.link_acceleration(
                q, qd, qdd, LINK, relative_to=OTHER, **named
            ),
        }.items()
    },
    "relative pose": lambda dyn, q, qd, qdd: dyn.link_pose(q, LINK, relative_to=OTHER),
    "all Jacobians": lambda dyn, q, qd, qdd: dyn.forward_kinematics_gradient(q),
    "momentum": lambda dyn, q, qd, qdd: dyn.centroidal_momentum(q, qd)[0],
    "its matrix": lambda dyn, q, qd, qdd: dyn.centroidal_momentum(q, qd)[1],
    "its rate": lambda dyn, q, qd, qdd: dyn.centroidal_momentum_rate(q, qd, qdd),
    "its matrix's": lambda dyn, q, qd, qdd: dyn.centroidal_momentum_matrix_derivative(q, qd),
}


@pytest.fixture(scope="module")
def states() -> tuple[rd.Model, Any, Any, Any, Any]:
    """A quadruped near the origin and 12 km away, both as single precision has them."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    rng = np.random.default_rng(0)
    print("seed 0")
    near = model.random_configuration(rng, (4,)).astype(np.float32)
    qd, qdd = rng.normal(size=(2, 4, model.nv)).astype(np.float32)
    far = near.copy()
    far[:, :3] = (1e4, -5e3, 3e3)
    return model, near, far, qd, qdd


@pytest.mark.parametrize("options", [{}, {"code": "rolled"}, {"engine": "reference"}])
@pytest.mark.some(of=1, rest="matrix")
@pytest.mark.parametrize("query", QUERIES)
def test_the_place_of_a_robot_costs_no_digits(query, options, states):
    model, near, far, qd, qdd = states
    ask = QUERIES[query]
    wanted = ask(rd.Dynamics(model), *(each.astype(float) for each in (far, qd, qdd)))
    dyn = rd.Dynamics(model, dtype="float32", **options)
    found, at_home = (ask(dyn, q, qd, qdd) for q in (far, near))
    size = 1.0 + np.abs(wanted).max()
    assert np.abs(found - wanted).max() < 2e-6 * size and np.abs(found - at_home).max() < 2e-6 * size


@pytest.mark.parametrize("way", ["program", "arrays"])
@pytest.mark.parametrize("to", ["a foot", "the world"])
def test_the_place_of_a_robot_costs_constraints_no_digits(to, way, states, monkeypatch):
    model, near, far, qd, tau = states
    if way == "arrays":
        monkeypatch.setattr("robodyn.engines.cpu.engine.CpuEngine.run_program", lambda *_: False)
    held = [rd.Point(LINK, to=OTHER if to == "a foot" else None, baumgarte=(5.0, 1.0))]
    places = rd.Dynamics(model).link_pose(near.astype(float), OTHER)[:, :3, 3]
    targets = np.concatenate([np.tile(np.eye(3).ravel(), (4, 1)), np.round(8.0 * places) / 8.0], axis=-1)[:, None]
    there = targets.copy()
    there[:, 0, 9:] += np.round(far[:, :3])
    near = near.copy()
    near[:, :3] = 0.0
    given = [{"targets": each.astype(np.float32)} if to == "the world" else {} for each in (targets, there)]
    wanted, _ = (
        rd.Dynamics(model, constraints=held).constrained_forward_dynamics(near, qd, tau, **each) for each in given
    )
    dyn = rd.Dynamics(model, constraints=held, dtype="float32")
    found = dyn.constrained_forward_dynamics(far, qd, tau, **given[1])
    for got, each in zip(found, wanted, strict=True):
        assert np.abs(got - each).max() < 2e-4 * np.abs(each).max()
