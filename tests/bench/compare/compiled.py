"""Libraries in C++: Pinocchio, MuJoCo and Drake, called from Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from robodyn.testing.mujoco_models import mujoco_model
from robodyn.testing.pinocchio_models import pinocchio_model
from robodyn.tools.benchmark import mujoco_peer, pinocchio_peer
from robodyn.tools.benchmark.contenders import Answers, Prepared, RefusedError, one_by_one
from robodyn.tools.benchmark.timing import seconds_of
from tests.bench.compare.work import DT, QUERIES, STEPS, Functions, Job, Library, alone, call_of, no_query, poses


class Ours(Library):
    """robodyn on one thread."""

    def prepare(self, model: rd.Model) -> None:
        self.name = f"robodyn {rd.__version__}"

    def job(self, query: str, batch: int) -> Job:
        """A call for one state, from a loop; a call for a batch."""
        states = self.robot.batch(max(batch, len(self.robot.states["q"])))
        dyn, arrays = rd.Dynamics(self.robot.model, threads=1), [states[name] for name in QUERIES[query]]
        call, read = call_of(dyn, query)
        first = seconds_of(lambda: call(*(array[0] for array in arrays)))
        call, read = call_of(dyn, query)  # after the first answer it may be a quicker function
        prepared = one_by_one(call, list(zip(*arrays, strict=True)), lambda answer, row: read(answer))
        if batch > 1:
            # Results are written to the same arrays every time.
            answer = call(*arrays)
            run = partial(call, *arrays, out=(answer.q, answer.qd) if query == "rollout" else answer)
            prepared = Prepared(run, lambda: read(run()), batch)
        return Job(prepared, self.robot.truth(query), compile_s=first)


class Pinocchio(Library):
    """Pinocchio's own functions."""

    def prepare(self, model: rd.Model) -> None:
        self.peer = pinocchio_peer.Pinocchio(model)
        self.name, self.made = self.peer.name, pinocchio_model(model)
        self.way = rd.converter(model, "pinocchio", joint_names=list(self.made.names)[1:])

    def job(self, query: str, batch: int) -> Job:
        """A loop; of batches, where `robodyn bench` has the query, without what a call costs."""
        there = self.peer.contenders(query, ())
        if not there:
            return super().job(query, batch)
        job, overhead = self.benched(there, batch), there[0].overhead
        if batch == 1 or overhead is None:
            return job
        return replace(job, less_ns=lambda seconds: 1e9 * overhead(seconds).best_s, remark="C++, estimated")

    def functions(self, query: str) -> Functions:
        import pinocchio as pin

        made, data = self.made, self.made.createData()
        frames = [made.getBodyId(name) for name in self.robot.model.link_names]

        def roll(q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
            for _ in range(STEPS):
                qd = qd + DT * pin.aba(made, data, q, qd, tau)
                q = pin.integrate(made, q, DT * qd)
            return q, qd

        return {
            "kinematics": (
                partial(pin.framesForwardKinematics, made, data),
                lambda _: (np.array([data.oMf[frame].homogeneous for frame in frames]),),
            ),
            "rollout": (roll, lambda found: found),
        }


class MuJoCo(Library):
    """MuJoCo's C functions and `mujoco.rollout`."""

    def prepare(self, model: rd.Model) -> None:
        self.peer = mujoco_peer.MuJoCo(model)
        import mujoco

        self.name = self.peer.name
        self.made, self.with_links = (mujoco_model(model, links=links) for links in (False, True))
        self.made.opt.timestep = DT
        self.made.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
        self.way, self.links = from_mujoco(model, self.with_links)

    def job(self, query: str, batch: int) -> Job:
        if query.endswith("gradient"):
            raise no_query(query, "finite differences alone")
        there = self.peer.contenders(query, (1,))
        if there:
            return self.benched(there, batch)
        return self._rolled(batch) if query == "rollout" else super().job(query, batch)

    def functions(self, query: str) -> Functions:
        import mujoco

        made = self.with_links if query == "kinematics" else self.made
        data, H = mujoco.MjData(made), np.zeros((made.nv, made.nv))

        def kinematics(q: Array) -> None:
            data.qpos[:] = q
            mujoco.mj_kinematics(made, data)

        def mass_matrix(q: Array) -> None:
            kinematics(q)
            mujoco.mj_comPos(made, data)
            mujoco.mj_crb(made, data)
            mujoco.mj_fullM(made, data, H)

        return {
            "mass_matrix": (mass_matrix, lambda _: (H.copy(),)),
            "kinematics": (kinematics, lambda _: (poses(np, data.site_xmat.reshape(-1, 3, 3), data.site_xpos),)),
        }

    def _rolled(self, batch: int) -> Job:
        """`mujoco.rollout` of all states, or of one after another."""
        import mujoco
        from mujoco import rollout

        q, qd, tau = self.inputs("rollout", batch)
        split, data, pool = 1 + q.shape[1], mujoco.MjData(self.made), rollout.Rollout(nthread=0)
        after = np.full((batch, STEPS, split + qd.shape[1]), np.nan)

        def run(q: Array, qd: Array, tau: Array) -> Answers:
            pool.rollout(
                [self.made] * len(q), [data], np.hstack([np.zeros((len(q), 1)), q, qd]),
                np.repeat(tau[:, None], STEPS, axis=1),
                control_spec=mujoco.mjtState.mjSTATE_QFRC_APPLIED.value, skip_checks=True, nstep=STEPS,
                state=after, sensordata=np.empty((len(q), STEPS, 0)),
            )  # fmt: skip
            return after[:, -1, 1:split], after[:, -1, split:]

        if batch > 1:
            all_of_them = partial(run, q, qd, tau)
            return Job(Prepared(all_of_them, all_of_them, batch), self.wanted("rollout"))
        each = [tuple(array[k : k + 1] for array in (q, qd, tau)) for k in range(len(q))]
        return self.looped(run, each, lambda found: tuple(x[0].copy() for x in found), "rollout", batch)


def from_mujoco(model: rd.Model, made: Any) -> tuple[Any, list[int]]:
    """A converter, and our links in MuJoCo's order of their sites: `mujoco_model` numbers both."""
    joints = [model.joint_names[int(made.joint(k).name.split()[1])] for k in range(made.njnt)]
    links = [int(made.site(k).name.split()[1]) for k in range(made.nsite)]
    return rd.converter(model, "mujoco", joint_names=joints), links


class Drake(Library):
    """Drake's MultibodyPlant, which reads the URDF file."""

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
        inverse, forward = _dynamics(plant, context, MultibodyForces(plant))
        nq = plant.num_positions()

        def mass_matrix(q: Array) -> Array:
            plant.SetPositions(context, q)
            return plant.CalcMassMatrix(context)  # type: ignore[no-any-return]

        def kinematics(q: Array) -> list[Any]:
            plant.SetPositions(context, q)
            return [plant.EvalBodyPoseInWorld(context, body) for body in self.bodies]

        return {
            "inverse_dynamics": (inverse, alone),
            "forward_dynamics": (forward, lambda rates: (rates.CopyToVector()[nq:],)),
            "mass_matrix": (mass_matrix, alone),
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
        n = plant.num_velocities()
        inverse, forward = _dynamics(plant, plant.CreateDefaultContext(), MultibodyForces_[AutoDiffXd](plant))

        def of_inverse(q: Array, v: Array, a: Array) -> Any:
            x = InitializeAutoDiff(np.concatenate((q, v)))[:, 0]
            return inverse(x[:n], x[n:], np.array([AutoDiffXd(number) for number in a]))

        def of_forward(q: Array, v: Array, tau: Array) -> Any:
            x = InitializeAutoDiff(np.concatenate((q, v, tau)))[:, 0]
            return forward(x[:n], x[n : 2 * n], x[2 * n :]).CopyToVector()[n:]

        def read(found: Any) -> Answers:
            gradient = ExtractGradient(found)
            return tuple(gradient[:, k : k + n] for k in range(0, gradient.shape[1], n))

        return {"inverse_dynamics_gradient": (of_inverse, read), "forward_dynamics_gradient": (of_forward, read)}


def _dynamics(plant: Any, context: Any, forces: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Inverse and forward dynamics of one state, of plants of any scalar."""
    port = plant.get_applied_generalized_force_input_port()

    def inverse(q: Any, v: Any, a: Any) -> Any:
        plant.SetPositions(context, q)
        plant.SetVelocities(context, v)
        plant.CalcForceElementsContribution(context, forces)
        return plant.CalcInverseDynamics(context, a, forces)

    def forward(q: Any, v: Any, tau: Any) -> Any:
        port.FixValue(context, tau)
        plant.SetPositions(context, q)
        plant.SetVelocities(context, v)
        return plant.EvalTimeDerivatives(context)

    return inverse, forward
