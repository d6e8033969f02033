"""Scenes with contacts through time: heaps of boxes and balls beside MuJoCo, blocks that slide, rest and stick."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import robodyn as rd

mujoco = pytest.importorskip("mujoco")

KINDS = [(1, 2), (3, 0), (2, 2)]
"""Numbers of boxes, which touch the floor and balls, and of balls, which touch all."""
SCENES = list(itertools.product(KINDS, [0.002, 0.005, 0.01], ["pyramidal", "elliptic"]))
SCENES.append(((2, 3), 0.005, "pyramidal"))
"""The last are nearly too large for one program."""
WINDOW, WITH_THEIRS = 0.05, 4
GRAVITY = 9.81


def heap(rng: np.random.Generator, boxes: int, balls: int, dt: float, cone: str):
    """MuJoCo's model of free bodies above a floor, solved to rounding, and the least half size of each."""
    bodies, half = [], rng.uniform(0.05, 0.15, (boxes + balls, 3))
    for k, size in enumerate(half):
        box = k < boxes
        shape = f'type="box" size="{size[0]} {size[1]} {size[2]}" contype="2" conaffinity="1"'
        shape = shape if box else f'type="sphere" size="{size[0]}" contype="3" conaffinity="3"'
        material = f'mass="{rng.uniform(0.2, 3.0)}" friction="{rng.uniform(0.1, 1.0)}"'
        bodies.append(f'<body pos="0 0 {k + 1}"><freejoint/><geom {shape} {material}/></body>')
    m = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{dt}" cone="{cone}" tolerance="0" iterations="100"/>'
        f'<worldbody><geom type="plane" size="9 9 .1"/>{"".join(bodies)}</worldbody></mujoco>'
    )
    return m, np.where(np.arange(boxes + balls) < boxes, half.min(axis=1), half[:, 0])


def thrown(rng: np.random.Generator, n: int, bodies: int):
    """(n,) states of bodies in the air, above each other in any order, turned and moving at random."""
    q, heights = rng.normal(size=(n, bodies, 7)), np.tile(np.arange(bodies), (n, 1))
    q[..., :2] = rng.uniform(-0.15, 0.15, (n, bodies, 2))
    q[..., 2] = 0.35 + 0.6 * rng.permuted(heights, axis=1)
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    return q.reshape(n, -1), rng.normal(0.0, 1.0, (n, 6 * bodies))


def gain(energy: np.ndarray) -> np.ndarray:
    """By how much energies (time, ...) are ever above what they were before."""
    return (energy - np.minimum.accumulate(energy, axis=0)).max(axis=0)


def let_fall(number: int, n: int, seconds: float) -> None:
    """A batch of `n` scenes: finite, on the floor, and with no more energy than MuJoCo's own steps have."""
    (boxes, balls), dt, cone = SCENES[number % len(SCENES)]
    print(f"seed {number}: {boxes} boxes, {balls} balls, dt {dt}, {cone}")
    rng = np.random.default_rng(number)
    m, least = heap(rng, boxes, balls, dt, cone)
    model = rd.load_mjcf(m, contacts=True)
    dyn, every = rd.Dynamics(model), round(WINDOW / dt)
    states = [thrown(rng, n, boxes + balls)]
    for _ in range(round(seconds / WINDOW)):
        run = dyn.rollout(*states[-1], dt=dt, steps=every, integrator="mujoco")
        assert run.converged.all()
        states.append((run.q[-1], run.qd[-1]))
    q, qd = (np.array(each) for each in zip(*states, strict=True))
    energy = dyn.kinetic_energy(q, qd) + dyn.potential_energy(q)
    assert np.isfinite(q).all() and np.isfinite(qd).all()
    assert (energy[1:] < energy[0]).all() and (gain(energy) < 0.05 * energy[0]).all()
    assert (q[-1].reshape(n, -1, 7)[..., 2] > 0.9 * least).all(), "a body is in the floor"

    c, d = rd.converter(model, "mujoco"), mujoco.MjData(m)
    for k in range(WITH_THEIRS):
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = c.q_to(q[0, k]), c.v_to(q[0, k], qd[0, k])
        theirs = [(q[0, k], qd[0, k])]
        for _ in range(len(q) - 1):
            mujoco.mj_step(m, d, every)
            place = c.q_from(d.qpos)
            theirs.append((place, c.v_from(place, d.qvel)))
        places, speeds = (np.array(each) for each in zip(*theirs, strict=True))
        wanted = dyn.kinetic_energy(places, speeds) + dyn.potential_energy(places)
        assert gain(energy[:, k]) <= 1.01 * gain(wanted) + 1e-4 * wanted[0]
        first = round(0.5 / WINDOW)
        assert np.abs(energy[:first, k] - wanted[:first]).max() < 1e-6 * wanted[0]


def test_random_scenes():
    let_fall(2, 8, 1.5)


@pytest.mark.matrix
@pytest.mark.parametrize("number", range(len(SCENES)))
def test_a_thousand_random_scenes(number):
    let_fall(number, 53, 10.0)


def block(friction: float, slope: float, cone: str):
    """A block on a plane that rises along x by an angle (rad), and its states at rest, turned about the normal."""
    model = rd.load_mjcf(
        '<mujoco><worldbody><body name="block"><freejoint/><geom type="box" size=".2 .2 .05" mass="2"/></body>'
        "</worldbody></mujoco>"
    )
    up = np.array([-math.sin(slope), 0.0, math.cos(slope)])
    contact = rd.Contact(rd.Box("block", size=(0.4, 0.4, 0.1)), rd.Plane(normal=up), friction=friction)
    q, half = np.zeros((3, 7)), 0.5 * np.array([0.0, 0.4, math.pi / 4.0])
    a, b = np.array([0.0, -math.sin(slope / 2.0), 0.0]), math.cos(slope / 2.0)
    q[:, :3] = 0.0495 * up
    q[:, 3:6] = np.cos(half)[:, None] * a + np.sin(half)[:, None] * (np.array([0.0, 0.0, b]) + np.cross(a, [0, 0, 1]))
    q[:, 6] = b * np.cos(half)
    return rd.Dynamics(model.with_contacts([contact], cone=cone)), q


def follow(dyn, q, qd, seconds, dt=0.002):
    run = dyn.rollout(q, qd, dt=dt, steps=round(seconds / dt), integrator="mujoco")
    assert run.converged.all()
    return run


def axes_of(dyn, q):
    return dyn.forward_kinematics(q)[..., -1, :3, :3]


def velocity(dyn, q, qd):
    """Of the block, along the world's axes."""
    return np.einsum("...ij,...j->...i", axes_of(dyn, q), qd[..., :3])


CONES = pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])


@CONES
@pytest.mark.parametrize("friction", [0.3, 0.8])
@pytest.mark.some(of=2, rest="matrix")
def test_a_block_at_rest_is_carried_and_a_sliding_one_stops(friction, cone):
    """After v^2 / (2 mu g), whichever way its corners point; the floor is soft, and its force swings meanwhile."""
    dyn, q = block(friction, 0.0, cone)
    rest = follow(dyn, q, np.zeros((3, 6)), 1.0)
    _, f = dyn.contact_forward_dynamics(rest.q[-1], rest.qd[-1], np.zeros((3, 6)))
    assert np.abs(f.sum(axis=1) - [2.0 * GRAVITY, 0.0, 0.0]).max() < 1e-9
    speed = 2.0
    qd = np.zeros((3, 6))
    qd[:, :3] = speed * axes_of(dyn, rest.q[-1])[:, 0]
    run = follow(dyn, rest.q[-1], qd, speed / (friction * GRAVITY) + 0.3)
    way = run.q[-1, :, :2] - rest.q[-1, :, :2]
    assert way[:, 0] == pytest.approx(speed**2 / (2.0 * friction * GRAVITY), rel=0.015)
    assert np.abs(way[:, 1]).max() < 0.002 and np.abs(run.qd[-1]).max() < 1e-4


@CONES
@pytest.mark.parametrize("part", [0.9, 1.15])
@pytest.mark.some(of=2, rest="matrix")
def test_a_block_sticks_below_the_angle_of_friction_and_slides_above(part, cone):
    friction = 0.4
    slope = math.atan(part * friction)
    dyn, q = block(friction, slope, cone)
    run = follow(dyn, q, np.zeros((3, 6)), 2.0)
    end, qd = run.q[-1], run.qd[-1]
    down = velocity(dyn, end, qd) @ [-math.cos(slope), 0.0, -math.sin(slope)]
    if part > 1.0:
        assert down == pytest.approx(2.0 * GRAVITY * (math.sin(slope) - friction * math.cos(slope)), rel=0.15)
        return
    _, f = dyn.contact_forward_dynamics(end, qd, np.zeros((3, 6)))
    force = np.einsum("nsij,nsj->ni", dyn.contact_frames(end)[..., :3, :3], f)
    assert np.abs(force - [0.0, 0.0, 2.0 * GRAVITY]).max() < 1e-6, "the plane carries the weight"
    assert np.abs(down).max() < 0.005, "it creeps"
