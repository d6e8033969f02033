"""Identification of simulated real arms: MuJoCo moves them, with drives and sensors as real ones have.

Unknown are a payload, armature, viscous friction, and dry friction that is larger at low speed. A controller follows an
exciting motion; encoders have steps, and torques have noise.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import robots

import robodyn as rd
from robodyn.inertial_parameters import physically_consistent
from robodyn.testing import mujoco_model

ARMS = ("iiwa14", "panda_arm", "xarm7", "universalUR5", "z1")
DT, EVERY, SECONDS = 2.5e-4, 8, 10.0
"""Steps of MuJoCo, steps for each sample, and the length of a log."""
ENCODER = 2.0 * np.pi / 2**24
RUNS = int(os.environ.get("RUNS", "12"))
"""Draws of the noise."""
CUTOFF, APART, SLOWEST = 100.0, 4, 0.08
"""Of the filter, Hz, and samples from one equation to the next."""
NOISE = 0.02
"""Of torques, relative to the root mean square of the joint's."""


def driven(model, rng):
    """The real arm: a payload, armature, damping and friction that nobody told; and s and v of Stribeck's effect."""
    inertia = model.inertia.copy()
    ball = rd.inertial_parameters.from_pseudo_inertia(np.diag([2e-3, 2e-3, 2e-3, 1.5]))
    X = np.concatenate((np.eye(3).ravel(), -np.array([0.02, 0.03, 0.08])))
    inertia[-1] += rd.inertial_parameters.in_frame(ball, X)
    load = np.sqrt(np.mean(rd.Dynamics(model).gravity_force(model.random_configuration(0, (200,))) ** 2, axis=0))
    load = np.maximum(load, 0.1 * load.max())
    mass = np.diagonal(rd.Dynamics(model).mass_matrix(model.neutral()))
    drives = {
        "tree_armature": rng.uniform(0.1, 0.4, model.nv) * np.maximum(mass, 0.1 * mass.max()),
        "tree_damping": rng.uniform(0.02, 0.08, model.nv) * load,
        "tree_friction": rng.uniform(0.02, 0.08, model.nv) * load,
    }
    stribeck = np.column_stack(
        (rng.uniform(0.5, 1.0, model.nv) * drives["tree_friction"], rng.uniform(0.1, 0.2, model.nv))
    )
    return replace(model, inertia=inertia, **drives), stribeck


def resistance(true, stribeck, qd):
    speed = np.tanh(qd / 1e-3)  # a sign without chatter
    return true.damping * qd + (true.friction + stribeck[:, 0] * np.exp(-((qd / stribeck[:, 1]) ** 2))) * speed


def logged(model, true, stribeck, motion):
    """Positions, and torques of the drives, every `EVERY` steps."""
    import mujoco

    made = mujoco_model(true, links=False)
    made.opt.timestep = DT
    data, dyn = mujoco.MjData(made), rd.Dynamics(model)
    steps = int(SECONDS / DT)
    wanted = motion(DT * np.arange(steps))
    H = np.diagonal(rd.Dynamics(true).mass_matrix(model.neutral()))
    kp, kd = 400.0 * H, 40.0 * H
    data.qpos[:], rows = wanted[0][0], []
    forward = dyn.inverse_dynamics(*wanted)
    for k in range(steps):
        q, qd = data.qpos.copy(), data.qvel.copy()
        tau = forward[k] + kp * (wanted[0][k] - q) + kd * (wanted[1][k] - qd)
        data.qfrc_applied[:] = tau - resistance(true, stribeck, qd)
        mujoco.mj_step(made, data)
        if k % EVERY == 0:
            rows.append((q, tau))
    q, tau = (np.array(each) for each in zip(*rows, strict=True))
    return q, tau


def measured(q, tau, noise, rng):
    """What is given to `identify`: encoders whose steps begin anywhere, and noise of the torques."""
    encoder = ENCODER * np.floor(q / ENCODER + rng.uniform(size=q.shape[1]))
    state = rd.differentiate(encoder, DT * EVERY, CUTOFF)
    inner = slice(100, -100, APART)
    return *(each[inner] for each in state), (tau + noise * rng.standard_normal(tau.shape))[inner]


@pytest.mark.matrix
@pytest.mark.parametrize("name", ARMS)
def test_real_arms(name):
    """Base parameters within their intervals in 95 % of runs (RUNS=200 in the environment: of 200), and torques of
    another motion to the noise."""
    model = rd.load_urdf(robots.shared(name))
    rng = np.random.default_rng(1)
    true, stribeck = driven(model, rng)
    logs = [
        logged(
            model,
            true,
            stribeck,
            rd.exciting_trajectory(model, duration=SECONDS, rounds=20, acceleration_limit=6.0, rng=seed),
        )
        for seed in (0, 1)
    ]
    noise = NOISE * np.sqrt(np.mean(logs[0][1] ** 2, axis=0))
    options = {"friction": "stribeck", "slowest": SLOWEST}
    first = rd.identify(model, *measured(*logs[0], noise, rng), **options)
    truth = np.concatenate((true.inertia.ravel(), true.armature, true.damping, true.friction, stribeck.T.ravel()))
    assert physically_consistent(first.model.inertia).all()
    *other, tau = measured(*logs[1], 0.0 * noise, rng)
    off, used = first.torques(*other) - tau, np.abs(other[1]) > SLOWEST
    left = np.sqrt(np.sum(np.where(used, off, 0.0) ** 2, axis=0) / used.sum(axis=0))
    held_out = np.sqrt(1.0 + (left / noise) ** 2)
    inside, effect = [], []
    for _ in range(RUNS):
        found = rd.identify(model, *measured(*logs[0], noise, rng), **options, consistent=False)
        low, high = found.base_interval.T
        inside.append((low <= found.base_matrix @ truth) & (found.base_matrix @ truth <= high))
        effect.append(np.array([each.endswith((".speed", ".stribeck")) for each in found.base_names]))
    share, of_stribeck = np.mean(np.concatenate(inside)), np.mean(np.concatenate(inside)[np.concatenate(effect)])
    print(f"{name}: {share:.3f} of {inside[0].size} base parameters within their intervals of 95 % in {RUNS} runs,")
    print(f"of s and v {of_stribeck:.3f}; held-out torques off by {held_out.round(3)} times the noise")
    assert held_out.max() < 1.05
    # The share of a run has a standard deviation of 0.035.
    assert abs(share - 0.95) < 4.0 * 0.035 / np.sqrt(RUNS)
    assert abs(of_stribeck - 0.95) < 0.4 / np.sqrt(RUNS)
