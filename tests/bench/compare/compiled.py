"""Libraries in C++: Pinocchio, MuJoCo and Drake, called from Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from robodyn.testing.mujoco_models import mujoco_model
from robodyn.testing.pinocchio_models import PinocchioIndices, pinocchio_model
from robodyn.tools.benchmark import contenders, mujoco_peer, pinocchio_peer
from robodyn.tools.benchmark.contenders import Answers, Prepared, one_by_one
from robodyn.tools.benchmark.timing import seconds_of
from tests.bench.compare.work import DT, QUERIES, STEPS, Functions, Job, Library, RefusedError, call_of, no_query


class Ours(Library):
    """robodyn on one thread."""

    how = "`Dynamics(model, threads=1)`. Compiling is the first call, with an empty cache of compiled code."

    def prepare(self, model: rd.Model) -> None:
        self.name = f"robodyn {rd.__version__}"

    def job(self, query: str, batch: int) -> Job:
        """A call for one state, from a loop; a call for a batch."""
        states = self.robot.batch(max(batch, len(self.robot.states["q"])))
        dyn, arrays = rd.Dynamics(self.robot.model, threads=1), [states[name] for name in QUERIES[query]]
        call, read = call_of(dyn, query)
        first = seconds_of(lambda: call(*(array[0] for array in arrays)))
        call, read = call_of(dyn, query)  # after the first answer it may be a quicker function
        if batch > 1:
            # Results are written to the same arrays every time.
            answer = call(*arrays)
            run = partial(call, *arrays, out=(answer.q, answer.qd) if query == "rollout" else answer)
            prepared = Prepared(run, lambda: read(run()), batch)
        else:
            prepared = one_by_one(call, list(zip(*arrays, strict=True)), lambda answer, row: read(answer))
        return Job(prepared, self.robot.truth(query), compile_s=first)


class Benched(Library):
    """A library that `robodyn bench` measures too: `peer` has some of the queries."""

    make: Callable[[rd.Model], Any]

    def prepare(self, model: rd.Model) -> None:
        try:
            self.peer = type(self).make(model)
        except contenders.RefusedError as error:
            raise RefusedError(str(error)) from None
        self.name = self.peer.name

    def benched(self, query: str, batch: int) -> tuple[Prepared, Any] | None:
        """A loop over single calls, or a call for a batch on one thread."""
        found = [each for each in self.peer.contenders(query, (1,)) if each.single == (batch == 1)]
        states = self.robot.batch(batch) if batch > 1 else self.robot.states
        return (found[0].prepare(states), found[0]) if found else None


class Pinocchio(Benched):
    """Pinocchio's own functions."""

    make = pinocchio_peer.Pinocchio
    how = (
        "Its Python module. One state: rnea, aba, crba, framesForwardKinematics, computeRNEADerivatives and "
        "computeABADerivatives in a loop. Batches: the loop less what one call costs on a robot of one joint, an "
        "estimate of what its C++ takes; rneaInParallel and abaInParallel wait by spinning, which on one processor "
        "takes longer. Rollouts are a loop in Python of aba and integrate."
    )

    def job(self, query: str, batch: int) -> Job:
        single, truth = self.benched(query, 1), self.robot.truth(query)
        if single is not None and batch == 1:
            return Job(single[0], truth)
        if single is not None:
            less_ns = lambda seconds: float(single[1].overhead(seconds).best_s * 1e9)  # noqa: E731
            return Job(single[0], truth, less_ns=less_ns, remark="C++, estimated")
        import pinocchio as pin

        states, model = self.robot.states, pinocchio_model(self.robot.model)
        data, at = model.createData(), PinocchioIndices(self.robot.model, model)
        q, qd, tau = at.coordinates(states["q"]), at.rates(states["qd"]), at.rates(states["tau"])
        if query == "kinematics":
            frames = [model.getBodyId(name) for name in self.robot.model.link_names]
            read = lambda _: (np.array([data.oMf[frame].homogeneous for frame in frames]),)  # noqa: E731
            call = partial(pin.framesForwardKinematics, model, data)
            return self.looped(call, [(row,) for row in q], read, query, batch)

        def roll(q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
            for _ in range(STEPS):
                qd = qd + DT * pin.aba(model, data, q, qd, tau)
                q = pin.integrate(model, q, DT * qd)
            return q, qd

        prepared = one_by_one(roll, list(zip(q, qd, tau, strict=True)), lambda answer, row: answer)
        wanted = at.coordinates(truth[0]), at.rates(truth[1])
        return Job(prepared, wanted, remark="one by one" if batch > 1 else "")

    def wanted(self, query: str) -> Answers:
        return self.robot.truth(query)


class MuJoCo(Benched):
    """MuJoCo's C functions and `mujoco.rollout`."""

    make = mujoco_peer.MuJoCo
    how = (
        "Its Python module, constraints and contacts off. One state: mj_inverse, mj_forward, mj_crb and mj_fullM, "
        "mj_kinematics in a loop, arguments copied into MjData first. Batches: `mujoco.rollout` on one thread, of one "
        "step for forward dynamics. It has derivatives by finite differences alone (mjd_transitionFD)."
    )

    def job(self, query: str, batch: int) -> Job:
        if query.endswith("gradient"):
            raise no_query(query, "finite differences alone")
        if query == "rollout":
            return self._rolled(batch)
        found = self.benched(query, batch) or self.benched(query, 1)
        if found is None:
            return super().job(query, batch)
        alone = batch > 1 and found[1].single
        return Job(found[0], self.robot.truth(query), remark="one by one" if alone else "")

    def _made(self, links: bool) -> tuple[Any, Any]:
        """A model and its data; `way` and `links` are those of it."""
        import mujoco

        made = mujoco_model(self.robot.model, links=links)
        made.opt.timestep = DT
        self.way = rd.converter(self.robot.model, "mujoco", joint_names=mujoco_joints(self.robot.model, made))
        self.links = mujoco_links(made)
        return made, mujoco.MjData(made)

    def functions(self, query: str) -> Functions:
        """What `robodyn bench` does not ask."""
        import mujoco

        made, data = self._made(links=query == "kinematics")
        H = np.zeros((made.nv, made.nv))

        def kinematics(qpos: Array) -> None:
            data.qpos[:] = qpos
            mujoco.mj_kinematics(made, data)

        def mass_matrix(qpos: Array) -> None:
            kinematics(qpos)
            mujoco.mj_comPos(made, data)
            mujoco.mj_crb(made, data)
            mujoco.mj_fullM(made, data, H)

        return {
            "mass_matrix": (mass_matrix, lambda _: (H.copy(),)),
            "kinematics": (kinematics, lambda _: (homogeneous(data.site_xmat.reshape(-1, 3, 3), data.site_xpos),)),
        }

    def _rolled(self, batch: int) -> Job:
        from mujoco import mjtState, rollout

        made, data = self._made(links=False)
        q, qd, tau = self.inputs("rollout", batch)
        rows, split = batch if batch > 1 else 1, 1 + q.shape[1]
        pool = rollout.Rollout(nthread=0)
        after = np.full((rows, STEPS, split + qd.shape[1]), np.nan)

        def run(q: Array, qd: Array, tau: Array) -> Answers:
            initial = np.hstack([np.zeros((len(q), 1)), q, qd])
            pool.rollout(
                [made] * len(q), [data], initial, np.repeat(tau[:, None], STEPS, axis=1),
                control_spec=mjtState.mjSTATE_QFRC_APPLIED.value, skip_checks=True, nstep=STEPS,
                state=after, sensordata=np.empty((len(q), STEPS, 0)),
            )  # fmt: skip
            return after[:, -1, 1:split], after[:, -1, split:]

        if batch > 1:
            all_of_them = partial(run, q, qd, tau)
            return Job(Prepared(all_of_them, all_of_them, batch), self.wanted("rollout"))
        each = [tuple(array[k : k + 1] for array in (q, qd, tau)) for k in range(len(q))]
        return self.looped(run, each, lambda found: tuple(x[0].copy() for x in found), "rollout", batch)


def mujoco_joints(model: rd.Model, made: Any) -> list[str]:
    """Our joints in MuJoCo's order: `mujoco_model` numbers them."""
    return [model.joint_names[int(made.joint(k).name.split()[1])] for k in range(made.njnt)]


def mujoco_links(made: Any) -> list[int]:
    """Our links in MuJoCo's order of their sites."""
    return [int(made.site(k).name.split()[1]) for k in range(made.nsite)]


def homogeneous(R: Array, p: Array) -> Array:
    """Poses (n, 4, 4)."""
    found = np.tile(np.eye(4), (len(R), 1, 1))
    found[:, :3, :3], found[:, :3, 3] = R, p
    return found


class Drake(Library):
    """Drake's MultibodyPlant, which reads the URDF file."""

    how = (
        "Its Python module, MultibodyPlant, one state a call. Forward dynamics is EvalTimeDerivatives with applied "
        "forces, after setting positions and velocities, so that no cache answers; gradients by AutoDiffXd; the "
        "rollout is a Simulator of the discrete plant."
    )

    def prepare(self, model: rd.Model) -> None:
        """Order joints and links as it does."""
        try:
            from pydrake.multibody.tree import BodyIndex, JointIndex
        except ImportError as error:
            raise RefusedError(f"not installed ({error})") from None
        from importlib.metadata import version

        self.name = f"Drake {version('drake')}"
        logging.getLogger("drake").setLevel(logging.ERROR)
        self.plant = plant = self._made(0.0)
        joints = [plant.get_joint(JointIndex(i)) for i in range(plant.num_joints())]
        moving = sorted((each for each in joints if each.num_velocities()), key=lambda each: each.velocity_start())
        root = model.joint_names[0] if self.robot.base == "floating" else ""
        names = [each.name() if each.name() in model.joint_names else root for each in moving]
        self.way = rd.converter(model, "drake", names)
        bodies = {plant.get_body(BodyIndex(i)).name(): plant.get_body(BodyIndex(i)) for i in range(plant.num_bodies())}
        self.links = [k for k, name in enumerate(model.link_names) if name in bodies]
        self.bodies = [bodies[model.link_names[k]] for k in self.links]

    def _made(self, step: float) -> Any:
        from pydrake.multibody.parsing import Parser
        from pydrake.multibody.plant import MultibodyPlant
        from pydrake.multibody.tree import JointIndex

        plant = MultibodyPlant(step)
        (instance,) = Parser(plant).AddModels(str(self.robot.path))
        if self.robot.base == "fixed":
            root = plant.GetFrameByName(self.robot.model.link_names[0], instance)
            plant.WeldFrames(plant.world_frame(), root)
        for i in range(plant.num_joints()):
            joint = plant.get_joint(JointIndex(i))
            if joint.num_velocities() == 1:
                joint.set_default_damping(0.0)
                joint.set_position_limits([-np.inf], [np.inf])  # which its steps would keep to
        plant.Finalize()
        return plant

    def functions(self, query: str) -> Functions:
        if query == "rollout":
            return {query: self._rolling()}
        if query.endswith("gradient"):
            return self._gradients(query)
        from pydrake.multibody.tree import MultibodyForces

        plant, context = self.plant, self.plant.CreateDefaultContext()
        forces, port = MultibodyForces(plant), plant.get_applied_generalized_force_input_port()
        nq = plant.num_positions()

        def inverse_dynamics(q: Array, v: Array, a: Array) -> Array:
            plant.SetPositions(context, q)
            plant.SetVelocities(context, v)
            plant.CalcForceElementsContribution(context, forces)
            return plant.CalcInverseDynamics(context, a, forces)  # type: ignore[no-any-return]

        def forward_dynamics(q: Array, v: Array, tau: Array) -> Any:
            port.FixValue(context, tau)
            plant.SetPositions(context, q)
            plant.SetVelocities(context, v)
            return plant.EvalTimeDerivatives(context)

        def mass_matrix(q: Array) -> Array:
            plant.SetPositions(context, q)
            return plant.CalcMassMatrix(context)  # type: ignore[no-any-return]

        def kinematics(q: Array) -> list[Any]:
            plant.SetPositions(context, q)
            return [plant.EvalBodyPoseInWorld(context, body) for body in self.bodies]

        return {
            "inverse_dynamics": (inverse_dynamics, lambda tau: (tau,)),
            "forward_dynamics": (forward_dynamics, lambda rates: (rates.CopyToVector()[nq:],)),
            "mass_matrix": (mass_matrix, lambda H: (H,)),
            "kinematics": (kinematics, lambda poses: (np.array([pose.GetAsMatrix4() for pose in poses]),)),
        }

    def _rolling(self) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
        from pydrake.systems.analysis import Simulator

        plant = self._made(DT)
        simulator = Simulator(plant)
        context = simulator.get_mutable_context()
        port = plant.get_applied_generalized_force_input_port()

        def call(q: Array, v: Array, tau: Array) -> None:
            context.SetTime(0.0)
            port.FixValue(context, tau)
            plant.SetPositions(context, q)
            plant.SetVelocities(context, v)
            simulator.Initialize()
            simulator.AdvanceTo(STEPS * DT)

        return call, lambda _: (plant.GetPositions(context), plant.GetVelocities(context))

    def _gradients(self, query: str) -> Functions:
        if self.robot.base == "floating":
            raise no_query(query, "AutoDiffXd differentiates by a floating base's quaternion")
        from pydrake.autodiffutils import AutoDiffXd, ExtractGradient, InitializeAutoDiff
        from pydrake.multibody.tree import MultibodyForces_

        plant = self.plant.ToAutoDiffXd()
        context, forces = plant.CreateDefaultContext(), MultibodyForces_[AutoDiffXd](plant)
        port, n = plant.get_applied_generalized_force_input_port(), plant.num_velocities()

        def at(*parts: Array) -> Any:
            x = InitializeAutoDiff(np.concatenate(parts))[:, 0]
            plant.SetPositions(context, x[:n])
            plant.SetVelocities(context, x[n : 2 * n])
            return x[2 * n :]

        def inverse(q: Array, v: Array, a: Array) -> Any:
            at(q, v)
            plant.CalcForceElementsContribution(context, forces)
            return plant.CalcInverseDynamics(context, np.array([AutoDiffXd(number) for number in a]), forces)

        def forward(q: Array, v: Array, tau: Array) -> Any:
            port.FixValue(context, at(q, v, tau))
            return plant.EvalTimeDerivatives(context).CopyToVector()[n:]

        def read(found: Any) -> Answers:
            gradient = ExtractGradient(found)
            return tuple(gradient[:, k : k + n] for k in range(0, gradient.shape[1], n))

        return {"inverse_dynamics_gradient": (inverse, read), "forward_dynamics_gradient": (forward, read)}
