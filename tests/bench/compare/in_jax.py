"""Libraries in JAX: functions of one state, `jit` of them for one state and of their `vmap` for a batch."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.testing.mujoco_models import mujoco_model
from robodyn.tools.benchmark.contenders import Answers, Prepared, RefusedError
from tests.bench.compare.compiled import from_mujoco
from tests.bench.compare.work import DT, STEPS, Job, Library, Robot, no_query, poses

_SCHEDULER_SINCE = (0, 9, 1)
_GRADIENT_OF = {
    "inverse_dynamics_gradient": ("inverse_dynamics", (0, 1)),
    "forward_dynamics_gradient": ("forward_dynamics", (0, 1, 2)),
}


def _flags() -> str:
    """One thread, and the scheduler that frax asks for. XLA ends a process for a flag that it does not know."""
    numbers = tuple(int(word) for word in version("jax").split(".")[:3])
    scheduler = " --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
    return "--xla_cpu_multi_thread_eigen=false" + (scheduler if numbers >= _SCHEDULER_SINCE else "")


class Jax(Library):
    """What these libraries have in common.

    `single`: functions of one state, by query. A query may be made of others: gradients are `jacfwd`, a rollout is a
    `scan` of forward dynamics and `integrate`.
    """

    module, package = "jax", "jax"

    def prepare(self, model: rd.Model) -> None:
        try:
            os.environ["XLA_FLAGS"] = _flags()
            import_module(self.module)
        except ImportError as error:  # of JAX, too: then it has no version
            raise RefusedError(f"not installed ({error})") from None
        import jax

        self.jax: Any = jax
        self.name = f"{self.package} {version(self.package)}, JAX {jax.__version__}"
        self.single: dict[str, Callable[..., Any]] = {}
        self.load(model, jax.numpy)

    def load(self, model: rd.Model, jnp: Any) -> None:
        """Fill `way`, `single` and `links`."""
        raise NotImplementedError

    def integrate(self, q: Any, v: Any) -> Any:
        if self.way.nq != self.way.nv:
            raise no_query("rollout", "it has no integration of a floating base")
        return q + DT * v

    def _function(self, query: str) -> Callable[..., Any]:
        if query in self.single:
            return self.single[query]
        if query in _GRADIENT_OF:
            of, places = _GRADIENT_OF[query]
            if self.robot.base == "floating":
                raise no_query(query, "jacfwd of a floating base is by other motions than ours; see the arm")
            return self.jax.jacfwd(self._function(of), argnums=places)  # type: ignore[no-any-return]
        if query != "rollout" or "forward_dynamics" not in self.single:
            raise no_query(query)
        forward = self.single["forward_dynamics"]

        def roll(q: Any, v: Any, tau: Any) -> Any:
            def step(state: Any, _: Any) -> Any:
                at, speed = state
                speed = speed + DT * forward(at, speed, tau)
                return (self.integrate(at, speed), speed), None

            return self.jax.lax.scan(step, (q, v), None, length=STEPS)[0]

        return roll

    def job(self, query: str, batch: int) -> Job:
        """Compile, and lay inputs out as arrays of JAX."""
        jax, function = self.jax, self._function(query)
        arrays = [jax.numpy.asarray(array) for array in self.inputs(query, batch)]
        example = arrays if batch > 1 else [array[0] for array in arrays]
        begin = time.perf_counter()
        compiled = jax.jit(jax.vmap(function) if batch > 1 else function).lower(*example).compile()
        seconds = time.perf_counter() - begin
        if batch > 1:
            run = lambda: jax.block_until_ready(compiled(*arrays))  # noqa: E731
            return Job(Prepared(run, lambda: _answers(run()), batch), self.wanted(query), compile_s=seconds)
        rows = list(zip(*arrays, strict=True))
        call = lambda *row: jax.block_until_ready(compiled(*row))  # noqa: E731
        return replace(self.looped(call, rows, _answers, query, batch), compile_s=seconds)


def _answers(found: Any) -> Answers:
    return tuple(map(np.asarray, found)) if isinstance(found, tuple | list) else (np.asarray(found),)


class Mjx(Jax):
    """MuJoCo in JAX; its robot is made of our arrays."""

    module, package = "mujoco.mjx", "mujoco-mjx"

    def __init__(self, robot: Robot, dtype: str = "float64") -> None:
        self.dtype = dtype
        super().__init__(robot)

    def load(self, model: rd.Model, jnp: Any) -> None:
        import mujoco
        from mujoco import mjx

        made = mujoco_model(model)
        made.opt.timestep = DT
        made.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
        try:
            mx = self._precise(mjx.put_model(made))
        except Exception as error:  # a version that does not know this MuJoCo may raise anything
            raise RefusedError(f"it does not take MuJoCo {mujoco.__version__}: {error}") from error
        self.way, self.links = from_mujoco(model, made)
        blank = self._precise(mjx.make_data(mx))

        def at(q: Any, **others: Any) -> Any:
            return blank.replace(qpos=q, **others)

        def mass_matrix(q: Any) -> Any:
            data = mjx.crb(mx, mjx.com_pos(mx, mjx.kinematics(mx, at(q))))
            return mjx.full_m(mx, data)

        def kinematics(q: Any) -> Any:
            data = mjx.kinematics(mx, at(q))
            return poses(jnp, data.site_xmat.reshape(-1, 3, 3), data.site_xpos)

        def rollout(q: Any, v: Any, tau: Any) -> Any:
            data = at(q, qvel=v, qfrc_applied=tau)
            data = self.jax.lax.scan(lambda d, _: (mjx.step(mx, d), None), data, None, length=STEPS)[0]
            return data.qpos, data.qvel

        self.single = {
            "inverse_dynamics": lambda q, v, a: mjx.inverse(mx, at(q, qvel=v, qacc=a)).qfrc_inverse,
            "forward_dynamics": lambda q, v, tau: mjx.forward(mx, at(q, qvel=v, qfrc_applied=tau)).qacc,
            "mass_matrix": mass_matrix,
            "kinematics": kinematics,
            "rollout": rollout,
        }

    def _precise(self, tree: Any) -> Any:
        return self.jax.tree.map(lambda x: x.astype(self.dtype) if x.dtype == np.float64 else x, tree)


class Frax(Jax):
    """frax: dense formulations without loops; it reads the URDF file."""

    module = package = "frax"

    def load(self, model: rd.Model, jnp: Any) -> None:
        from frax import Robot as Theirs

        floating = self.robot.base == "floating"
        self._made = made = Theirs(str(self.robot.path), floating_base="quaternion" if floating else None)
        first = 6 if floating else 0
        names = list(made.joint_names[first:])
        self.way = rd.converter(model, "mujoco", joint_names=[*model.joint_names[: 1 if floating else 0], *names])
        # The frame of a joint is that of the link that it carries.
        children = [model.link_index(model.body_names[model.joint_index(name)]) for name in names]
        self.links = [0, *children] if floating else children
        # It takes the acceleration of the base that stands for gravity, linear part first.
        up = jnp.array([*(-model.gravity), 0.0, 0.0, 0.0])
        start = first - 1 if floating else 0
        self.single = {
            "inverse_dynamics": lambda q, v, a: made.rnea(q, v, a, up, None),
            "forward_dynamics": lambda q, v, tau: made.forward_dynamics(q, v, tau, None),
            "mass_matrix": made.mass_matrix,
            "kinematics": lambda q: made.joint_to_world_transforms(q)[start:],
        }

    def integrate(self, q: Any, v: Any) -> Any:
        return self._made.integrate(q, v, DT)


class Adam(Jax):
    """adam in JAX; it reads the URDF file. Velocities of the base are in its axes."""

    module, package = "adam.jax", "adam-robotics"

    def load(self, model: rd.Model, jnp: Any) -> None:
        from adam import Representations
        from adam.jax import KinDynComputations
        from jax.scipy.spatial.transform import Rotation

        floating = self.robot.base == "floating"
        names = list(model.joint_names[1:] if floating else model.joint_names)
        gravity = jnp.array([*model.gravity, 0.0, 0.0, 0.0])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "robot.urdf"
            path.write_bytes(_with_origins(self.robot.path))
            made = KinDynComputations(str(path), names, gravity=gravity)
        made.set_frame_velocity_representation(Representations.BODY_FIXED_REPRESENTATION)
        self.way = rd.converter(model, "pinocchio", joint_names=list(model.joint_names))

        def parts(q: Any, *rates: Any) -> tuple[Any, ...]:
            """Pose of the base, coordinates of joints, then of each rate the base's and the joints'."""
            if not floating:
                return (jnp.eye(4), q, *(part for rate in rates for part in (jnp.zeros(6), rate)))
            R = Rotation.from_quat(q[3:7]).as_matrix()
            rates = tuple(part for rate in rates for part in (rate[:6], rate[6:]))
            return (poses(jnp, R[None], q[None, :3])[0], q[7:], *rates)

        def mass_matrix(q: Any) -> Any:
            H = made.mass_matrix(*parts(q))
            return H if floating else H[6:, 6:]

        def bias_force(q: Any, v: Any) -> Any:
            bias = made.bias_force(*parts(q, v))
            return bias if floating else bias[6:]

        def forward_dynamics(q: Any, v: Any, tau: Any) -> Any:
            if not floating:
                # Its ABA has a floating base; of a fixed one the mass matrix is solved with.
                return jnp.linalg.solve(mass_matrix(q), tau - bias_force(q, v))
            return made.aba(*parts(q, v), tau)

        self.single = {
            "inverse_dynamics": lambda q, v, a: mass_matrix(q) @ a + bias_force(q, v),
            "forward_dynamics": forward_dynamics,
            "mass_matrix": mass_matrix,
            "kinematics": lambda q: jnp.stack([made.forward_kinematics(link, *parts(q)) for link in model.link_names]),
        }


def _with_origins(path: Path) -> bytes:
    """A file of URDF with an origin where one may be left out."""
    from xml.etree import ElementTree

    root = ElementTree.parse(path).getroot()
    for element in [*root.iter("inertial"), *root.iter("joint")]:
        if element.find("origin") is None:
            ElementTree.SubElement(element, "origin", xyz="0 0 0", rpy="0 0 0")
    return ElementTree.tostring(root)
