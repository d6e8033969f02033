"""A robot from its mjModel: the same numbers as MuJoCo's, faster for batches."""

from __future__ import annotations

from time import perf_counter

import numpy as np

import robodyn as rd

try:
    import mujoco
except ImportError:
    print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to load with")
    raise SystemExit(0) from None

HOPPER = """
<mujoco model="hopper">
  <default><geom density="1000" type="capsule"/><joint damping="0.5" armature="0.01"/></default>
  <worldbody>
    <body name="torso" pos="0 0 1"><freejoint name="root"/><geom size="0.07 0.2"/>
      <body name="thigh" pos="0 0 -0.2"><joint name="hip" type="ball"/><geom size="0.05 0.2" pos="0 0 -0.2"/>
        <body name="shank" pos="0 0 -0.4"><joint name="knee" axis="0 1 0" range="-150 0" limited="true"/>
          <geom size="0.04 0.2" pos="0 0 -0.2"/>
          <body name="foot" pos="0 0 -0.4"><joint name="ankle" axis="0 1 0"/><joint name="toe" axis="1 0 0"/>
            <geom size="0.03 0.1" euler="0 90 0"/></body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def main() -> None:
    theirs = mujoco.MjModel.from_xml_string(HOPPER)
    theirs.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    model = rd.load_mjcf(theirs)
    print(model)
    dyn, way = rd.Dynamics(model, joint_forces="damping"), rd.converter(model, "mujoco")

    rng = np.random.default_rng(0)
    n = 1000
    q = model.random_configuration(rng, (n,))
    v, a = rng.normal(size=(2, n, model.nv))
    qpos, qvel, qacc = way.q_to(q), way.v_to(q, v), way.a_to(q, v, a)
    data, wanted = mujoco.MjData(theirs), np.empty((n, theirs.nv))
    start = perf_counter()
    for k in range(n):
        data.qpos[:], data.qvel[:], data.qacc[:] = qpos[k], qvel[k], qacc[k]
        mujoco.mj_inverse(theirs, data)
        wanted[k] = data.qfrc_inverse
    by_mujoco = perf_counter() - start
    dyn.inverse_dynamics(q, v, a)  # compiles
    start = perf_counter()
    tau = dyn.inverse_dynamics(q, v, a)
    took = perf_counter() - start
    error = np.abs(way.tau_to(q, tau) - wanted).max() / np.abs(wanted).max()
    print(f"inverse dynamics of {n} states: largest difference {error:.1e} of the largest force")
    print(f"a state: MuJoCo from Python {1e6 * by_mujoco / n:.1f} us, robodyn {1e6 * took / n:.3f} us")
    assert error < 1e-12

    data.qpos[:], data.qvel[:] = qpos[0], qvel[0]
    mujoco.mj_forward(theirs, data)
    qdd = dyn.forward_dynamics(q[0], v[0], np.zeros(model.nv))
    error = np.abs(way.a_to(q[0], v[0], qdd) - data.qacc).max() / np.abs(data.qacc).max()
    print(f"free fall: accelerations differ by {error:.1e}")
    assert error < 1e-10


if __name__ == "__main__":
    main()
