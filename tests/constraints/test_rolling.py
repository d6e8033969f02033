"""Wheels that roll on planes: against rates of link poses, points at an instant, closed forms and energy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import random_states
from robots import of_every_kind
from test_constraints import pose

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")
R, MASS = 0.3, 2.0


def disc(base="floating"):
    """A thin disc of uniform mass about the y axis of its link."""
    across, along = 0.25 * MASS * R * R, 0.5 * MASS * R * R
    inertial = f'<inertial><mass value="{MASS}"/><inertia ixx="{across}" iyy="{along}" izz="{across}" '
    text = f'<robot name="disc"><link name="disc">{inertial}ixy="0" ixz="0" iyz="0"/></inertial></link></robot>'
    return rd.load_urdf(text, base=base)


def cart(slope=0.0):
    """A cart on a rail along x, of 3 kg, with one wheel of radius R whose axle is y."""
    inertial = '<inertial><mass value="{}"/><inertia ixx="0.1" iyy="{}" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    return rd.load_urdf(
        f"""<robot name="cart"><link name="rail"/><link name="cart">{inertial.format(3.0, 0.1)}</link>
        <link name="wheel">{inertial.format(MASS, 0.5 * MASS * R * R)}</link>
        <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        <limit effort="1" velocity="1" lower="-9" upper="9"/></joint>
        <joint name="turn" type="continuous"><parent link="cart"/><child link="wheel"/><axis xyz="0 1 0"/>
        <origin xyz="0 0 {R}"/></joint></robot>"""
    )


def contact(T, to, wheel):
    """Of a wheel with poses T and `to`: u, forward, side and up in world axes, and the centre, by vectors."""
    up, n = to[:3, 2], T[:3, :3] @ np.array(wheel.axis)
    u = up - (up @ n) * n
    forward = np.cross(n, up)
    forward /= np.linalg.norm(forward)
    return u / np.linalg.norm(u), forward, np.cross(up, forward), up, T[:3, 3]


@pytest.mark.some(of=2, rest="matrix")
def test_residuals_rates_and_biases(make_dynamics, tolerance):
    """On a plane that moves with a link, with mimics and a moving base: heights by poses, slip by velocities of the
    material point, biases by differences of rates, J qd."""
    model = of_every_kind()
    names, rng = model.link_names, np.random.default_rng(1)
    bodies = model.link_body.tolist()
    one, other = (name for name, body in list(zip(names, bodies, strict=True))[-2:] if body >= 0)
    at, to_at = pose(rng), pose(rng)
    held = [
        rd.Rolling(one, (1.0, 2.0, -0.5), R, other, at, to_at, name="on a link"),
        rd.Rolling(other, [0.0, 1.0, 0.2], R, name="on the ground"),
    ]
    framed = model.with_frames({"wheel": (one, at), "plane": (other, to_at)})
    dyn = make_dynamics(model, constraints=held)
    judge = rd.Dynamics(dyn.model, engine="reference")
    frames = rd.Dynamics(framed, engine="reference", constraints=())
    q, qd, _ = random_states(model, (3,), seed=1)
    phi, phidot = dyn.constraint_residual(q, qd)
    J = dyn.constraint_jacobian(q)
    assert np.abs(np.einsum("bmi,bi->bm", J, qd) - phidot).max() < 1e2 * tolerance * np.abs(phidot).max()
    for k in range(3):
        places = [
            (frames.link_pose(q[k], "wheel"), frames.link_pose(q[k], "plane")),
            (frames.link_pose(q[k], other), np.eye(4)),
        ]
        for row, (wheel, (T, to), links) in enumerate(zip(held, places, ((one, other), (other, None)), strict=True)):
            u, forward, side, up, centre = contact(T, to, wheel)
            P = centre - R * u
            assert (
                abs(phi[k, 3 * row + 2] - (P - to[:3, 3]) @ up) < 1e2 * tolerance
                and not phi[k, 3 * row : 3 * row + 2].any()
            )
            slip = np.zeros(3)
            for sign, link in zip((1.0, -1.0), links, strict=True):
                if link is not None:
                    there = frames.link_pose(q[k], link)
                    inside = there[:3, :3].T @ (P - there[:3, 3])
                    slip += sign * frames.link_velocity(q[k], qd[k], link, point=inside)[3:]
            wanted = [slip @ each for each in (forward, side, up)]
            assert np.abs(phidot[k, 3 * row : 3 * row + 3] - wanted).max() < 1e3 * tolerance * np.abs(phidot).max()
    h = 1e-6
    ahead, behind = (judge.constraint_residual(model.integrate(q, s * h * qd), qd)[1] for s in (1.0, -1.0))
    r = dyn.constraint_bias(q, qd)
    assert np.abs(r - (ahead - behind) / (2 * h)).max() < max(1e-6, 1e3 * tolerance) * np.abs(r).max()


def rolling_start(seed=0):
    """A disc that leans, turns and rolls without slipping."""
    model = disc()
    wheel = rd.Rolling("disc", (0, 1, 0), R)
    rng = np.random.default_rng(seed)
    q = model.neutral()
    q[:3] = 0.2, -0.1, 0.9 * R
    q[3:7] = [0.3, 0.1, 0.2, 0.9]
    q = model.assemble(q, [wheel])
    dyn = rd.Dynamics(model, engine="reference", constraints=[wheel])
    qd, _ = dyn.impact(q, rng.standard_normal(6) + np.array([0, 0, 0, 0, 5.0, 0]))
    return model, wheel, q, qd


@pytest.mark.parametrize("seed", range(3))
def test_a_point_at_the_instant(seed, make_dynamics, tolerance):
    """The material point of contact has the acceleration R w x (du/dt - w x u): a point with this acceleration holds
    the disc with the same force."""
    model, wheel, q, qd = rolling_start(seed)
    judge = rd.Dynamics(model, engine="reference")
    T, tau = judge.link_pose(q, "disc"), np.array([0.1, 0.2, -0.3, 0.05, 0.4, -0.1])
    u, forward, side, up, centre = contact(T, np.eye(4), wheel)
    h = 1e-6
    later, before = (
        contact(judge.link_pose(model.integrate(q, s * h * qd), "disc"), np.eye(4), wheel)[0] for s in (1, -1)
    )
    w = judge.link_velocity(q, qd, "disc")[:3]
    a = R * np.cross(w, (later - before) / (2 * h) - np.cross(w, u))
    P = centre - R * u
    point = rd.Point("disc", at=T[:3, :3].T @ (P - T[:3, 3]), to_at=P)
    held = rd.Dynamics(model, engine="reference", constraints=[point])
    wanted, force = held.constrained_forward_dynamics(q, qd, tau, row_acceleration=a)
    dyn = make_dynamics(model, constraints=[wheel])
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    assert np.abs(qdd - wanted).max() < max(1e-6, 1e3 * tolerance) * np.abs(wanted).max()
    axes = np.array([forward, side, up])
    assert np.abs(lam - axes @ force).max() < max(1e-6, 1e3 * tolerance) * np.abs(force).max()
    moved = dyn.constraint_wrenches(q, lam)[0]
    assert np.abs(moved - [*np.cross(P, force), *force]).max() < max(1e-6, 1e3 * tolerance) * np.abs(force).max()


def test_a_disc_rolls_by_itself():
    """Energy is conserved to the order of the integrator, and the disc neither slips nor lifts."""
    model, wheel, q, qd = rolling_start(1)
    dyn = rd.Dynamics(model, engine="cpu", constraints=[wheel])
    gained = []
    for dt, steps in ((4e-3, 100), (2e-3, 200)):
        found = dyn.rollout(q, qd, dt=dt, steps=steps, integrator="rk4")
        phi, phidot = dyn.constraint_residual(found.q, found.qd)
        assert np.abs(phi).max() < 1e-10 and np.abs(phidot).max() < 1e-10
        energy = dyn.kinetic_energy(found.q, found.qd) + dyn.potential_energy(found.q)
        gained.append(np.abs(energy - energy[0]).max())
    assert gained[1] < 1e-7 * energy[0] and gained[0] > 8 * gained[1]
    assert np.linalg.norm(found.q[-1, :2] - q[:2]) > 0.1


@pytest.mark.parametrize("slope", [0.0, 0.2, -0.5])
def test_a_cart(slope, make_dynamics, tolerance):
    """a (M + m + I / R^2) = torque / R + weight along the slope; the force forward moves the cart."""
    model = cart()
    model = dataclasses.replace(model, gravity=9.81 * np.array([-np.sin(slope), 0.0, -np.cos(slope)]))
    dyn = make_dynamics(model, constraints=[rd.Rolling("wheel", (0, 1, 0), R)])
    assert dyn.constraint_names == ("wheel.forward", "wheel.side", "wheel.height")
    q, qd, torque = np.array([0.4, 0.7]), np.array([0.6, 2.0]), 1.5
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, [0.0, torque])
    a = (torque / R - 5.0 * 9.81 * np.sin(slope)) / (5.0 + 0.5 * MASS)
    assert np.abs(qdd - [a, a / R]).max() < 1e2 * tolerance * max(1.0, abs(a))
    assert abs(lam[0] - (5.0 * a + 5.0 * 9.81 * np.sin(slope))) < 1e3 * tolerance * 10.0 and not np.any(lam[1:])
    after, impulse = dyn.impact(q, [1.0, 0.0])
    wanted = 5.0 / (5.0 + 0.5 * MASS)  # the speed at which friction has made the wheel roll
    assert np.abs(after - [wanted, wanted / R]).max() < 1e2 * tolerance
    assert abs(impulse[0] - 5.0 * (wanted - 1.0)) < 1e3 * tolerance


def test_unicycle():
    """A disc upright by two joints: it drives a circle, whose radius is speed over rate of turning."""
    body = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = '<link name="x"/><link name="y"/>' + "".join(
        f'<link name="{name}">{body}</link>' for name in ("yaw", "wheel")
    )
    joints = (
        ("rail", "x", "prismatic", "1 0 0"),
        ("x", "y", "prismatic", "0 1 0"),
        ("y", "yaw", "continuous", "0 0 1"),
    )
    text = f'<robot name="unicycle"><link name="rail"/>{links}'
    for parent, child, kind, axis in (*joints, ("yaw", "wheel", "continuous", "0 1 0")):
        limit = '<limit effort="1" velocity="1" lower="-9" upper="9"/>' if kind == "prismatic" else ""
        origin = f'<origin xyz="0 0 {R}"/>' if child == "wheel" else ""
        text += f'<joint name="j_{child}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{origin}'
        text += f'<axis xyz="{axis}"/>{limit}</joint>'
    model = rd.load_urdf(f"{text}</robot>")
    dyn = rd.Dynamics(model, engine="cpu", constraints=[rd.Rolling("wheel", (0, 1, 0), R)])
    yaw, spin, turning = 0.5, 3.0, 0.8
    speed = spin * R
    q, qd = np.array([0.0, 0.0, yaw, 0.0]), np.array([speed * np.cos(yaw), speed * np.sin(yaw), turning, spin])
    assert np.abs(dyn.constraint_residual(q, qd)[1]).max() < 1e-15
    found = dyn.rollout(q, qd, dt=1e-2, steps=200, integrator="rk4")
    angle = yaw + turning * found.t
    radius = speed / turning
    wanted = radius * np.stack([np.sin(angle) - np.sin(yaw), np.cos(yaw) - np.cos(angle), 0 * angle], axis=1)
    assert np.abs(found.q[:, :2] - wanted[:, :2]).max() < 1e-8


def test_height_is_assembled_and_the_rest_is_free(make_dynamics, tolerance):
    """Newton steps lift the disc without regard to slip; targets put the ground below it; a wheel that lies flat has no
    direction, unless it is off."""
    model, wheel = disc(), rd.Rolling("disc", (0, 1, 0), R)
    q = model.neutral()
    q[:3], q[3:7] = (0.3, 0.2, 1.5), (0.2, 0.0, 0.3, 0.9)
    up = model.assemble(q, [wheel])
    dyn = make_dynamics(model, constraints=[wheel])
    still = np.zeros(6)
    assert np.abs(dyn.constraint_residual(up, still)[0]).max() < 10 * tolerance
    below = dyn.constraint_targets(q)
    assert np.abs(dyn.constraint_residual(q, still, below)[0]).max() < 1e2 * tolerance
    flat = np.array([0.0, 0.0, 0.1, np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    states = np.stack([flat, up])
    qdd, lam = dyn.constrained_forward_dynamics(states, still, still, active=np.array([[0], [1]]))
    assert np.isfinite(qdd).all() and not np.any(lam[0])
    assert np.abs(qdd[0] - dyn.forward_dynamics(flat, still, still)).max() < 1e2 * tolerance
    assert np.isnan(dyn.constrained_forward_dynamics(states, still, still)[0][0]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rd.Rolling("disc", (0, 1, 0), 0.0), r"Rolling.radius: got 0.0; wanted a length"),
        (lambda: rd.Rolling("disc", (0, 0, 0), R), r"Rolling.axis: got \(0, 0, 0\); wanted three numbers"),
        (lambda: rd.Rolling("disc", (0, 1), R), r"Rolling.axis: got"),
        (lambda: rd.Rolling("disc", "y", R), r"Rolling.axis: got 'y'"),
        (lambda: rd.Rolling("disc", (0, np.nan, 1), R), r"Rolling.axis: got"),
    ],
)
def test_wheels_that_are_none(make, message):
    with pytest.raises(rd.ArgumentError, match=message):
        make()
    dyn = rd.Dynamics(disc(), engine="reference", constraints=[rd.Rolling("disc", np.array([0.0, 2.0, 0.0]), R)])
    assert dyn.model.constraints[0].axis == (0.0, 1.0, 0.0)
    with pytest.raises(rd.ArgumentError, match="'world' for \"disc\", which holds forward, side, height"):
        dyn.impact(dyn.model.neutral(), np.zeros(6), axes="world")
