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
from tests.bench.compare.work import DT, QUERIES, STEPS, Job, RefusedError, Robot, inputs, no_query, of_links

ONE_BY_ONE = "one by one"


class Ours:
    """robodyn on one thread."""

    how = "`Dynamics(model, threads=1)`. Compiling is the first call, with an empty cache of compiled code."

    def __init__(self, robot: Robot) -> None:
        self.name, self._robot = f"robodyn {rd.__version__}", robot

    def job(self, query: str, batch: int) -> Job:
        """A call for one state, from a loop; a call for a batch."""
        robot, states = self._robot, self._robot.batch(max(batch, len(self._robot.states["q"])))
        dyn = rd.Dynamics(robot.model, threads=1)
        call, arrays = _call(dyn, query), [states[name] for name in QUERIES[query]]
        first = seconds_of(lambda: call(*(array[0] for array in arrays)))
        call = _call(dyn, query)  # after the first answer it may be a quicker function
        if batch > 1:
            # Results are written to the same arrays every time.
            first_answer = call(*arrays)
            out = (first_answer.q, first_answer.qd) if query == "rollout" else first_answer
            run = partial(call, *arrays, out=out)
            prepared = Prepared(run, lambda: _tuple(query, run()), batch)
        else:
            prepared = one_by_one(call, list(zip(*arrays, strict=True)), lambda answer, row: _tuple(query, answer))
        return Job(prepared, robot.truth(query), compile_s=first)


def _call(dyn: rd.Dynamics, query: str) -> Callable[..., Any]:
    if query == "rollout":
        return partial(dyn.rollout, dt=DT, steps=STEPS, save_every=None)
    return getattr(dyn, "forward_kinematics" if query == "kinematics" else query)  # type: ignore[no-any-return]


def _tuple(query: str, answer: Any) -> Answers:
    if query == "rollout":
        return answer.q[-1], answer.qd[-1]
    return answer if isinstance(answer, tuple) else (answer,)


def _reused(peer: Any, query: str, robot: Robot, batch: int) -> tuple[Prepared, Any] | None:
    """What `robodyn bench` has of a peer: a loop over single calls, or a call for a batch on one thread."""
    found = [each for each in peer.contenders(query, (1,)) if each.single == (batch == 1)]
    states = robot.batch(batch) if batch > 1 else robot.states
    return (found[0].prepare(states), found[0]) if found else None


class Pinocchio:
    """Pinocchio's own functions; its robot is made of our arrays."""

    how = (
        "Its Python module. One state: rnea, aba, crba, framesForwardKinematics, computeRNEADerivatives and "
        "computeABADerivatives in a loop. Batches: the loop less what one call costs on a robot of one joint, an "
        "estimate of what its C++ takes; rneaInParallel and abaInParallel wait by spinning, which on one processor "
        "takes longer. Rollouts are a loop in Python of aba and integrate."
    )

    def __init__(self, robot: Robot) -> None:
        try:
            self._peer = pinocchio_peer.Pinocchio(robot.model)
        except contenders.RefusedError as error:
            raise RefusedError(str(error)) from None
        import pinocchio

        self._pin: Any = pinocchio
        self._robot, self.name = robot, self._peer.name
        self._model = pinocchio_model(robot.model)
        self._data, self._at = self._model.createData(), PinocchioIndices(robot.model, self._model)
        self._ways = {"q": self._at.coordinates, "qd": self._at.rates, "tau": self._at.rates}
        self._frames = [self._model.getBodyId(name) for name in robot.model.link_names]

    def job(self, query: str, batch: int) -> Job:
        """See `how`."""
        single = _reused(self._peer, query, self._robot, 1)
        if single is not None:
            prepared, contender = single
            truth = self._robot.truth(query)
            if batch == 1:
                return Job(prepared, truth)

            def less_ns(seconds: float) -> float:
                return float(contender.overhead(seconds).best_s * 1e9)

            return Job(prepared, truth, less_ns=less_ns, remark="C++, estimated")
        q, qd, tau = (to(self._robot.states[name]) for name, to in self._ways.items())
        remark = ONE_BY_ONE if batch > 1 else ""
        truth = self._robot.truth(query)
        if query == "kinematics":
            call = partial(self._pin.framesForwardKinematics, self._model, self._data)

            def read(answer: Any, row: int) -> Answers:
                return (np.array([self._data.oMf[frame].homogeneous for frame in self._frames]),)

            return Job(one_by_one(call, [(row,) for row in q], read), truth, remark=remark)
        prepared = one_by_one(self._roll, list(zip(q, qd, tau, strict=True)), lambda answer, row: answer)
        return Job(prepared, (self._at.coordinates(truth[0]), self._at.rates(truth[1])), remark=remark)

    def _roll(self, q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
        for _ in range(STEPS):
            qd = qd + DT * self._pin.aba(self._model, self._data, q, qd, tau)
            q = self._pin.integrate(self._model, q, DT * qd)
        return q, qd


class MuJoCo:
    """MuJoCo's C functions and `mujoco.rollout`; its robot is made of our arrays."""

    how = (
        "Its Python module, constraints and contacts off. One state: mj_inverse, mj_forward, mj_crb and mj_fullM, "
        "mj_kinematics in a loop, arguments copied into MjData first. Batches: `mujoco.rollout` on one thread, of one "
        "step for forward dynamics. It has derivatives by finite differences alone (mjd_transitionFD)."
    )

    def __init__(self, robot: Robot) -> None:
        try:
            self._peer = mujoco_peer.MuJoCo(robot.model)
        except contenders.RefusedError as error:
            raise RefusedError(str(error)) from None
        import mujoco
        from mujoco import rollout

        self._mujoco: Any = mujoco
        self._rollout: Any = rollout
        self._robot, self.name = robot, self._peer.name

    def job(self, query: str, batch: int) -> Job:
        """See `how`."""
        if query.endswith("gradient"):
            raise no_query(query, "finite differences alone")
        remark = ONE_BY_ONE if batch > 1 else ""
        if query == "rollout":
            return self._rolled(batch)
        reused = _reused(self._peer, query, self._robot, batch) or _reused(self._peer, query, self._robot, 1)
        if reused is not None:
            return Job(reused[0], self._robot.truth(query), remark="" if batch == 1 or not reused[1].single else remark)
        way, made, data = self._made(links=query == "kinematics")
        mujoco, q = self._mujoco, way.q_to(self._robot.states["q"])
        H = np.zeros((made.nv, made.nv))

        def mass_matrix(qpos: Array) -> Array:
            data.qpos[:] = qpos
            mujoco.mj_kinematics(made, data)
            mujoco.mj_comPos(made, data)
            mujoco.mj_crb(made, data)
            mujoco.mj_fullM(made, data, H)
            return H

        def kinematics(qpos: Array) -> None:
            data.qpos[:] = qpos
            mujoco.mj_kinematics(made, data)

        def poses(answer: Any, row: int) -> Answers:
            return (homogeneous(data.site_xmat.reshape(-1, 3, 3), data.site_xpos),)

        call, read = (
            (kinematics, poses) if query == "kinematics" else (mass_matrix, lambda answer, row: (answer.copy(),))
        )
        wanted = self._robot.wanted(way, query)
        if query == "kinematics":
            wanted = of_links(wanted, mujoco_links(made))
        return Job(one_by_one(call, [(row,) for row in q], read), wanted, remark=remark)

    def _made(self, links: bool) -> tuple[Any, Any, Any]:
        """The way to its convention, a model, and its data."""
        made = mujoco_model(self._robot.model, links=links)
        made.opt.timestep = DT
        return (
            rd.converter(self._robot.model, "mujoco", joint_names=mujoco_joints(self._robot.model, made)),
            made,
            self._mujoco.MjData(made),
        )

    def _rolled(self, batch: int) -> Job:
        way, made, data = self._made(links=False)
        q, qd, tau = inputs(way, "rollout", self._robot.batch(batch) if batch > 1 else self._robot.states)
        rows = batch if batch > 1 else 1
        pool = self._rollout.Rollout(nthread=0)
        after = np.full((rows, STEPS, 1 + q.shape[1] + qd.shape[1]), np.nan)

        def run(q: Array, qd: Array, tau: Array) -> Array:
            initial = np.hstack([np.zeros((len(q), 1)), q, qd])
            pool.rollout(
                [made] * len(q), [data], initial, np.repeat(tau[:, None], STEPS, axis=1),
                control_spec=self._mujoco.mjtState.mjSTATE_QFRC_APPLIED.value, skip_checks=True, nstep=STEPS,
                state=after, sensordata=np.empty((len(q), STEPS, 0)),
            )  # fmt: skip
            return after[:, -1]

        split = 1 + q.shape[1]
        wanted = self._robot.wanted(way, "rollout")
        if batch > 1:

            def answers() -> Answers:
                last = run(q, qd, tau)
                return last[:, 1:split], last[:, split:]

            return Job(Prepared(partial(run, q, qd, tau), answers, batch), wanted)
        rows_of = [tuple(array[k : k + 1] for array in (q, qd, tau)) for k in range(len(q))]
        return Job(
            one_by_one(run, rows_of, lambda last, row: (last[0, 1:split].copy(), last[0, split:].copy())), wanted
        )


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


class Drake:
    """Drake's MultibodyPlant, which reads the URDF file."""

    how = (
        "Its Python module, MultibodyPlant, one state a call. Forward dynamics is EvalTimeDerivatives with applied "
        "forces, after setting positions and velocities, so that no cache answers; gradients by AutoDiffXd; the "
        "rollout is a Simulator of the discrete plant."
    )

    def __init__(self, robot: Robot) -> None:
        try:
            import pydrake
            from pydrake.multibody.tree import BodyIndex, JointIndex
        except ImportError as error:
            raise RefusedError(f"not installed ({error})") from None
        from importlib.metadata import version

        self.name, self._robot, self._drake = f"Drake {version('drake')}", robot, pydrake
        logging.getLogger("drake").setLevel(logging.ERROR)
        self._plant = plant = self._made(0.0)
        self._context = plant.CreateDefaultContext()
        joints = [plant.get_joint(JointIndex(i)) for i in range(plant.num_joints())]
        moving = sorted((each for each in joints if each.num_velocities()), key=lambda each: each.velocity_start())
        names = [each.name() for each in moving]
        root = robot.model.joint_names[0] if robot.base == "floating" else ""
        self._way = rd.converter(
            robot.model, "drake", [name if name in robot.model.joint_names else root for name in names]
        )
        bodies = {plant.get_body(BodyIndex(i)).name(): plant.get_body(BodyIndex(i)) for i in range(plant.num_bodies())}
        self._links = [k for k, name in enumerate(robot.model.link_names) if name in bodies]
        self._bodies = [bodies[robot.model.link_names[k]] for k in self._links]

    def _made(self, step: float) -> Any:
        from pydrake.multibody.parsing import Parser
        from pydrake.multibody.plant import MultibodyPlant
        from pydrake.multibody.tree import JointIndex

        plant = MultibodyPlant(step)
        (instance,) = Parser(plant).AddModels(str(self._robot.path))
        root = self._robot.model.link_names[0]
        if self._robot.base == "fixed":
            plant.WeldFrames(plant.world_frame(), plant.GetFrameByName(root, instance))
        for i in range(plant.num_joints()):
            joint = plant.get_joint(JointIndex(i))
            if joint.num_velocities() == 1:
                joint.set_default_damping(0.0)
                joint.set_position_limits([-np.inf], [np.inf])  # which its steps would keep to
        plant.Finalize()
        return plant

    def job(self, query: str, batch: int) -> Job:
        """See `how`."""
        call = {
            "inverse_dynamics": self._inverse_dynamics,
            "forward_dynamics": self._forward_dynamics,
            "mass_matrix": self._mass_matrix,
            "kinematics": self._kinematics,
            "rollout": self._rolling,
        }.get(query)
        if call is None:
            return self._gradient(query, batch)
        given = inputs(self._way, query, self._robot.states)
        function, read = call()
        wanted = self._robot.wanted(self._way, query)
        if query == "kinematics":
            wanted = of_links(wanted, self._links)
        prepared = one_by_one(function, list(zip(*given, strict=True)), lambda answer, row: read(answer))
        return Job(prepared, wanted, remark=ONE_BY_ONE if batch > 1 else "")

    def _inverse_dynamics(self) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
        from pydrake.multibody.tree import MultibodyForces

        plant, context = self._plant, self._context
        forces = MultibodyForces(plant)

        def call(q: Array, v: Array, a: Array) -> Array:
            plant.SetPositions(context, q)
            plant.SetVelocities(context, v)
            plant.CalcForceElementsContribution(context, forces)
            return plant.CalcInverseDynamics(context, a, forces)  # type: ignore[no-any-return]

        return call, lambda tau: (tau,)

    def _forward_dynamics(self) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
        plant, context = self._plant, self._context
        port = plant.get_applied_generalized_force_input_port()
        nq = plant.num_positions()

        def call(q: Array, v: Array, tau: Array) -> Any:
            port.FixValue(context, tau)
            plant.SetPositions(context, q)
            plant.SetVelocities(context, v)
            return plant.EvalTimeDerivatives(context)

        return call, lambda rates: (rates.CopyToVector()[nq:],)

    def _mass_matrix(self) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
        def call(q: Array) -> Array:
            self._plant.SetPositions(self._context, q)
            return self._plant.CalcMassMatrix(self._context)  # type: ignore[no-any-return]

        return call, lambda H: (H,)

    def _kinematics(self) -> tuple[Callable[..., Any], Callable[[Any], Answers]]:
        def call(q: Array) -> list[Any]:
            self._plant.SetPositions(self._context, q)
            return [self._plant.EvalBodyPoseInWorld(self._context, body) for body in self._bodies]

        return call, lambda poses: (np.array([pose.GetAsMatrix4() for pose in poses]),)

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

    def _gradient(self, query: str, batch: int) -> Job:
        if self._robot.base == "floating":
            raise no_query(query, "AutoDiffXd differentiates by a floating base's quaternion")
        from pydrake.autodiffutils import AutoDiffXd, ExtractGradient, InitializeAutoDiff
        from pydrake.multibody.tree import MultibodyForces_

        plant = self._plant.ToAutoDiffXd()
        context = plant.CreateDefaultContext()
        forces = MultibodyForces_[AutoDiffXd](plant)
        port = plant.get_applied_generalized_force_input_port()
        n = plant.num_velocities()

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

        def read(found: Any, row: int) -> Answers:
            gradient = ExtractGradient(found)
            return tuple(gradient[:, k : k + n] for k in range(0, gradient.shape[1], n))

        rows = list(zip(*inputs(self._way, query, self._robot.states), strict=True))
        prepared = one_by_one(inverse if query.startswith("inverse") else forward, rows, read)
        return Job(prepared, self._robot.truth(query), remark=ONE_BY_ONE if batch > 1 else "")
