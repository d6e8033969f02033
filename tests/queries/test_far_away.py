"""Far from the world's origin: what does not depend on the place of a robot loses no digits in single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from robots import own
from urdf_texts import INERTIAL

import robodyn as rd

LINK, OTHER = "front_left_foot", "hind_right_foot"
SMALL = (
    f"""<robot name="two legs"><link name="body">{INERTIAL}</link>"""
    + "".join(
        f"""<joint name="{name} hip" type="revolute"><origin xyz="{x} {x} 0" rpy="0.1 0.2 {x}"/><axis xyz="{x} 0.5 1"/>
    <parent link="body"/><child link="{name} leg"/><limit lower="-1" upper="1"/></joint>
    <link name="{name} leg">{INERTIAL}</link>
    <joint name="{name} knee" type="revolute"><origin xyz="0 0.1 -0.3" rpy="0 {x} 0"/><axis xyz="1 0 {x}"/>
    <parent link="{name} leg"/><child link="{name}"/><limit lower="-1" upper="1"/></joint>
    <link name="{name}">{INERTIAL}</link>"""
        for name, x in ((LINK, 0.3), (OTHER, -0.2))
    )
    + "</robot>"
)
"""A body that floats, and two legs: what is small compiles soon."""
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


def states(robot: str) -> tuple[rd.Model, Any, Any, Any, Any]:
    """A robot near the origin and 12 km away, both as single precision has them."""
    model = rd.load_urdf(SMALL if robot == "small" else own(robot), base="floating")
    rng = np.random.default_rng(0)
    print("seed 0")
    near = model.random_configuration(rng, (4,)).astype(np.float32)
    qd, qdd = rng.normal(size=(2, 4, model.nv)).astype(np.float32)
    far = near.copy()
    far[:, :3] = (1e4, -5e3, 3e3)
    return model, near, far, qd, qdd


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"code": "rolled"}, marks=pytest.mark.matrix), {"engine": "reference"}]
)
@pytest.mark.parametrize("robot", ["small", pytest.param("quadruped", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("query", QUERIES)
def test_the_place_of_a_robot_costs_no_digits(query, robot, options):
    model, near, far, qd, qdd = states(robot)
    ask = QUERIES[query]
    wanted = ask(rd.Dynamics(model, engine="reference"), *(each.astype(float) for each in (far, qd, qdd)))
    dyn = rd.Dynamics(model, dtype="float32", **options)
    found, at_home = (ask(dyn, q, qd, qdd) for q in (far, near))
    size = 1.0 + np.abs(wanted).max()
    assert np.abs(found - wanted).max() < 2e-6 * size and np.abs(found - at_home).max() < 2e-6 * size


@pytest.mark.parametrize("way", ["program", "arrays"])
@pytest.mark.parametrize("to", ["a foot", "the world"])
@pytest.mark.parametrize("robot", ["small", pytest.param("quadruped", marks=pytest.mark.matrix)])
def test_the_place_of_a_robot_costs_constraints_no_digits(robot, to, way, monkeypatch):
    model, near, far, qd, tau = states(robot)
    if way == "arrays":
        monkeypatch.setattr("robodyn.engines.cpu.engine.CpuEngine.run_program", lambda *_: False)
    held = [rd.Point(LINK, to=OTHER if to == "a foot" else None, baumgarte=(5.0, 1.0))]
    reference = rd.Dynamics(model, engine="reference", constraints=held)
    places = reference.link_pose(near.astype(float), OTHER)[:, :3, 3]
    targets = np.concatenate([np.tile(np.eye(3).ravel(), (4, 1)), np.round(8.0 * places) / 8.0], axis=-1)[:, None]
    there = targets.copy()
    there[:, 0, 9:] += np.round(far[:, :3])
    near = near.copy()
    near[:, :3] = 0.0
    given = [{"targets": each.astype(np.float32)} if to == "the world" else {} for each in (targets, there)]
    wanted = reference.constrained_forward_dynamics(near, qd, tau, **given[0])
    dyn = rd.Dynamics(model, constraints=held, dtype="float32")
    found = dyn.constrained_forward_dynamics(far, qd, tau, **given[1])
    for got, each in zip(found, wanted, strict=True):
        assert np.abs(got - each).max() < 2e-4 * np.abs(each).max()
