"""When contact forces count as converged."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import robodyn as rd

BALL = """<robot name="ball"><link name="ball"><inertial><mass value="0.3"/>
<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forces_that_hold_each_other_converge(cone, dtype):
    """A ball that two plates squeeze, without gravity: rounding of their forces is all that accelerates it."""
    model = replace(rd.load_urdf(BALL, base="floating"), gravity=np.zeros(3))
    ball = rd.Sphere("ball", radius=0.1)
    tilted, across = (0.6, 0.0, 0.8), (-0.6, 0.0, -0.8)
    plates = [rd.Plane(normal=tilted, offset=-0.09), rd.Plane(normal=across, offset=-0.09)]
    model = model.with_contacts([rd.Contact(ball, plate) for plate in plates], cone=cone)
    dyn = rd.Dynamics(model, dtype=dtype)
    rng = np.random.default_rng(3)
    q = np.tile(model.neutral(), (50, 1))
    q[:, :3] += 1e-9 * rng.normal(size=(50, 3))
    zero = np.zeros((50, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rd.ConvergenceWarning)
        for k in (slice(None), 0):
            _, f = dyn.contact_forward_dynamics(q[k], zero[k], zero[k])
    assert (f[:, 0] > 0.1).all()


@pytest.mark.parametrize(("dtype", "friction", "most"), [(np.float32, 0.003, 1e-2), (np.float64, 1e-4, 1e-8)])
def test_little_friction_converges(dtype, friction, most):
    """Three feet that spin. Rounding of the forces of such stiff rows exceeds the bound of the error, but not the last
    step."""
    model = rd.load_urdf(BALL, base="floating")
    corners = [(0.1, 0.0, 0.0), (-0.05, 0.09, 0.0), (-0.05, -0.09, 0.0)]
    feet = [rd.Sphere("ball", at=at, radius=0.02) for at in corners]
    model = model.with_contacts([rd.Contact(foot, rd.Plane(), friction=friction) for foot in feet])
    rng = np.random.default_rng(4)
    q = np.tile(model.neutral(), (200, 1)).astype(dtype)
    q[:, 2] = 0.0199
    qd, zero = rng.normal(0.0, 0.3, (200, 6)).astype(dtype), np.zeros((200, 6), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rd.ConvergenceWarning)
        found, _ = rd.Dynamics(model, dtype=dtype).contact_forward_dynamics(q, qd, zero)
    mujoco = pytest.importorskip("mujoco")
    m = mujoco.MjModel.from_xml_string(str(model.to_mjcf()))
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 0.0, 200, 100
    data, to = mujoco.MjData(m), rd.converter(model, "mujoco")
    for k in range(0, 200, 10):
        data.qpos[:], data.qvel[:] = to.q_to(q[k]), to.v_to(q[k], qd[k])
        mujoco.mj_forward(m, data)
        wanted = to.a_from(q[k], qd[k], data.qacc)
        assert np.abs(found[k] - wanted).max() <= most * np.abs(wanted).max()
