"""`Dynamics` combines a model and an engine and answers queries for one state or a batch.

This file holds mostly signatures and docstrings. `api.queries` implements the queries, `api.motion` the rollouts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.constraints.redundancy import warn_of_redundancy
from robodyn.algorithms.tasks import Task
from robodyn.api.motion.adjoint import rollout_vjp
from robodyn.api.motion.fast_gradients import value_and_gradient
from robodyn.api.motion.fast_steps import fast_step
from robodyn.api.motion.policy import Policy
from robodyn.api.motion.result import Rollout
from robodyn.api.motion.rollout import rollout, step, step_gradient
from robodyn.api.motion.step_spec import forces_given
from robodyn.api.queries.constrained import ConstraintQueries
from robodyn.api.queries.contact_points import ContactPointQueries
from robodyn.api.queries.contacts import ContactQueries
from robodyn.api.queries.core import require_model
from robodyn.api.queries.distances import DistanceQueries
from robodyn.api.queries.energies import EnergyQueries
from robodyn.api.queries.explanation import explain
from robodyn.api.queries.fast_path import FAST_GRADIENTS, FAST_ROLLOUTS, STEPS, changing
from robodyn.api.queries.forces import ForceQueries
from robodyn.api.queries.gradients import GradientQueries
from robodyn.api.queries.kinematic import KinematicQueries
from robodyn.api.queries.momenta import MomentumQueries
from robodyn.api.queries.operators import mass_matrix_operator
from robodyn.api.queries.parameters import ParameterQueries
from robodyn.api.queries.rest import RestQueries
from robodyn.api.queries.second_order import SecondOrderQueries
from robodyn.core.constraints.kinds import Constraint
from robodyn.core.model import Model
from robodyn.core.sweeps import PER_BODY, PER_ROW, PER_VELOCITY, POINT
from robodyn.engines.gpu.capture import Captured, capture
from robodyn.engines.gpu.options import GpuOptions, gpu_options
from robodyn.engines.make import make_engine
from robodyn.engines.options import ENGINE_NAMES, Options
from robodyn.engines.protocol import DTYPES, Engine, Explanation
from robodyn.engines.query_table import asked_of, find, plain_questions
from robodyn.engines.scan.options import ScanOptions, scan_options
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, flag, one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.engines.cpu.generated import GeneratedCode
    from robodyn.engines.gpu.generated import GeneratedKernels

_MAX_THREADS = 4096
_LEAST_PROXIMAL = {"float64": 1e-14, "float32": 1e-5}
"""Smallest proximal term, relative to the diagonal. Rounding would absorb a smaller one."""
_MOST_WORDS = 100
"""At most this many words of `joint_forces` are read, because an iterator may be endless."""


class Dynamics(
    ForceQueries,
    GradientQueries,
    SecondOrderQueries,
    ParameterQueries,
    RestQueries,
    KinematicQueries,
    ConstraintQueries,
    EnergyQueries,
    MomentumQueries,
    ContactPointQueries,
    DistanceQueries,
    ContactQueries,
):
    """Answers rigid-body dynamics queries about a model, for one state or a batch of states.

    Args:
        model: the robot.
        engine: "auto" (the fastest that runs here), "reference", "cpu", "gpu" or "scan".
        dtype: "float64" or "float32", of the arithmetic and of all results.
        threads: number of threads for a batch or a large tree; None: one for each CPU that the process may use. The
            reference engine uses one.
        compile: when compiling engines compile a query. "lazy": at its first call, which waits for the compiler.
            "eager": inverse and forward dynamics, mass matrix and bias force now, other queries lazily. Otherwise
            large loops run quickly compiled code first and better code later, with the same results; with "eager"
            they do not. "background": the first call does not wait; a slower engine answers until the code is ready.
        check: True: NaN and infinity raise. None: True for single states, False for batches.
        joint_forces: which joint forces of the model, "damping" and "friction", generalised forces include:
            tau = ID + damping qd + friction sign(qd). None: neither; rollouts and simulations of a robot with damping
            or friction then issue one `robodyn.JointForcesWarning`. (): neither, without the warning.
        code: form of compiled code. "unrolled": straight-line code for this robot. "rolled": loops over bodies, for
            robots whose unrolled code is too large. "auto": by the number of operations.
        scan: options of the scan engine (`robodyn.engines.scan.ScanOptions`), None for the defaults.
        gpu: kernel options of the GPU engine (`robodyn.engines.gpu.GpuOptions`), None for the defaults.
        constraints: constraints besides the joints (`robodyn.Point`, `Weld`, `Rod`, `Rolling`, `Coupling`, `Lock`),
            instead of the model's; `dyn.model` has them. None: the model's; (): none. A `robodyn.RedundantWarning`
            names rows that depend on others; accelerations are unique all the same. Constraint queries, `step` and
            `rollout` obey the constraints. All other queries ignore them and treat the tree alone. Functions that can
            do neither raise for constrained robots (docs/constraints.md).
        contacts: None: the model's (`Model.with_contacts`); (): none. `contact_forward_dynamics`, `step`, `rollout`
            and their gradients obey them, other queries ignore them, and functions that can do neither raise.
        proximal: (size, iterations) of the proximal term that makes constraint forces unique, instead of the model's.
            The size is relative to the diagonal of J H^-1 J', at least 1e-14, in float32 1e-5. The iterations remove
            the term's effect again.

    Arrays: q is (..., nq); qd, qdd and tau are (..., nv). f_ext is (..., n_bodies, 6): moment, then force, in world
    coordinates about the world's origin (see `robodyn.external_force`). inertia is (..., n_bodies, 10) like
    `model.inertia`; None: the model's. V0 and dV0 (..., 6) are the base's spatial velocity and acceleration in world
    coordinates, without gravity; None: a base at rest. Leading axes broadcast as in NumPy. Units are SI, angles are
    radians. Every query takes `out=` and then returns it, a tuple for several results. Generalised vectors of floating
    and planar joints are in the body frame, linear part first (docs/notation.md). The engines "gpu", "scan" and "auto"
    also take arrays on a GPU (CuPy's, or others with `__cuda_array_interface__` or DLPack) and then return CuPy arrays
    (docs/engines.md).

    Raises:
        ArgumentError: (also every query) an argument has the wrong shape, type or value.
        NumericalError: (every query, where checked) NaN or infinity; names the rows.
        UnavailableError: this version does not have the engine.
    """

    def __init__(
        self,
        model: Model,
        engine: Literal["auto", "reference", "cpu", "gpu", "scan"] = "auto",
        dtype: str = "float64",
        threads: int | None = None,
        compile: Literal["lazy", "eager", "background"] = "lazy",
        check: bool | None = None,
        joint_forces: Iterable[str] | None = None,
        *,
        code: Literal["auto", "unrolled", "rolled"] = "auto",
        scan: ScanOptions | None = None,
        gpu: GpuOptions | None = None,
        constraints: Sequence[Constraint] | None = None,
        proximal: tuple[float, int] | None = None,
        contacts: tuple[()] | None = None,
    ) -> None:
        require_model(model)
        engine_name = one_of("engine", engine, ENGINE_NAMES)
        when = one_of("compile", compile, ("lazy", "eager", "background"))
        mode = one_of("code", code, ("auto", "unrolled", "rolled"))
        self.dtype = _dtype(dtype)
        self.model = model = _constrained(_touching(model, contacts), constraints, proximal, self.dtype)
        self.threads = None if threads is None else count("threads", threads, 1, _MAX_THREADS)
        self.check = None if check is None else flag("check", check)
        self.joint_forces = () if joint_forces is None else _joint_forces(joint_forces)
        self._leaves_forces = joint_forces is None
        self._options = Options(engine_name, self.threads, when, mode, scan_options(scan), gpu_options(gpu))
        self.engine = make_engine(model, self.dtype, self._options)
        self.argument_shapes: dict[str, tuple[int, ...]] = {
            "q": (model.nq,),
            **dict.fromkeys(PER_VELOCITY, (model.nv,)),
            **{name: (model.n_bodies, width) for name, width in PER_BODY.items()},
            **dict.fromkeys(("V0", "dV0"), (6,)),
            **dict.fromkeys(("damping", "friction", "kp", "kd"), (model.nv,)),
            **dict.fromkeys(("q0", "q_des"), (model.nq,)),
            "qd0": (model.nv,),
            "gravity": (3,),
            "point": (POINT,),
            "targets": (model.n_constraints, 12),
            "active": (model.n_constraints,),
            "restitution": (),
            "contact_friction": (model.n_contacts,),
            "ground_pose": (4, 4),
            **dict.fromkeys(PER_ROW, (model.n_rows,)),
            "dt": (),
        }
        if constraints:
            warn_of_redundancy(model)
        if when == "eager":
            for question in asked_of(model).values():
                if question.eager:
                    self.engine.prepare(question.plain_task(model))

    def __repr__(self) -> str:
        return f"<Dynamics of {self.model.name!r}: engine {self.engine.name!r}, {self.dtype}>"

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute and drop the built-in functions that were made for its old value."""
        if name == "engine" and not _is_engine(value):
            raise ArgumentError(f"engine: got {brief(value)}; wanted a robodyn.engines.protocol.Engine")
        if find(name) is not None or name in STEPS:  # a user's function that replaces a query stays
            object.__setattr__(self, name, value)
            return
        epoch = changing(self)
        if epoch is not None:
            epoch.ends()  # drops learnt calls; the second `ends` drops those that other threads learn meanwhile
        try:
            object.__setattr__(self, name, value)
        finally:
            changing(self)
            if epoch is not None:
                epoch.ends()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor arguments only: compiled code stays in its process."""
        return partial(type(self), **self._arguments), (self.model,)

    @property
    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments besides the model."""
        own = {"dtype": self.dtype.name, "check": self.check}
        return {**vars(self._options), **own, "joint_forces": self.joint_forces if self._forces_chosen else None}

    @property
    def _forces_chosen(self) -> bool:
        """Whether `joint_forces` was set, also to ()."""
        return bool(self.joint_forces) or not self._leaves_forces

    def variant(self, model: Model | None = None, **options: Any) -> Dynamics:
        """A `Dynamics` of the same or another model, with the same options except those passed here.

        It compiles nothing in advance: "eager" becomes "lazy" unless `compile` is passed.
        """
        arguments = self._arguments
        if arguments["compile"] == "eager":
            arguments["compile"] = "lazy"
        return type(self)(self.model if model is None else model, **{**arguments, **options})

    def mass_matrix_operator(self, q: ArrayLike, *, inverse: bool = False) -> Any:
        """H(q) or its inverse as a `scipy.sparse.linalg.LinearOperator` (nv, nv), for huge trees.

        A product takes as long as inverse (or forward) dynamics of one state and forms no matrix. A product with
        several columns is a batch. Gravity, damping and friction have no part in it.

        Args:
            q: (nq,) one state.
            inverse: True for products H^-1 x instead of H x.

        Raises:
            ArgumentError: another shape, or a quaternion of zero length.
            NumericalError: NaN or infinity in q.
            SingularError: (a product with the inverse) the mass matrix is singular at every state.
        """
        return mass_matrix_operator(self, q, inverse)

    def plain_task(self, name: str) -> Task:
        """The task that answers a call of a query with its required arrays alone.

        Raises:
            ArgumentError: no query of that name, or one that needs more than arrays.
        """
        return asked_of(self.model)[one_of("query", name, plain_questions(self.model))].plain_task(self.model)

    def explain(self, query: str, batch: int = 1) -> Explanation:
        """Which engine and method answer a plain call of a query, and why; print the result to read it.

        Args:
            query: the name of a query, such as "forward_dynamics".
            batch: states in the call.

        Raises:
            ArgumentError: no query of that name, or `batch` is no positive integer.
            UnavailableError: the engine does not answer the query.
        """
        return explain(self, query, batch)

    def capture(self, query: str, *arrays: Any, out: Any = None, **others: Any) -> Captured:
        """Record a call of a query on these arrays as a CUDA graph; call the returned object to run it again.

        Useful for small batches, whose kernels take less time than a call from Python: a replay is one launch and
        does not check its arguments. Write new states into the same arrays, launch, and read the same results:

            step = dyn.capture("forward_dynamics", q, qd, tau)
            q[...] = q_next
            qdd = step()

        With `mass_matrix(q, sparse=True)` a launch fills the entries of the matrix that the recorded call returned.

        Args:
            query: the name of a query, such as "forward_dynamics".
            arrays: its arguments in order: contiguous arrays on the GPU, of this dtype.
            out: arrays for the results, None for new ones.
            others: its other arguments, by name.

        Raises:
            ArgumentError: no query of that name, arrays that would have to be copied, or check=True, which would wait
                for the GPU.
            UnavailableError: no GPU, or a scan method that reads values on the CPU in between or solves with a dense
                mass matrix by CuPy's libraries.
        """
        return capture(self, query, arrays, out, others)

    def rollout(
        self,
        q0: ArrayLike,
        qd0: ArrayLike,
        tau: ArrayLike | None = None,
        dt: float = 1e-3,
        steps: int = 1000,
        *,
        integrator: str = "semi_implicit_euler",
        f_ext: ArrayLike | None = None,
        policy: Policy | None = None,
        inertia: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        friction: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        kp: ArrayLike | None = None,
        kd: ArrayLike | None = None,
        q_des: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        active: ArrayLike | None = None,
        contact_friction: ArrayLike | None = None,
        ground_pose: ArrayLike | None = None,
        limits: Iterable[str] = (),
        save_every: int | None = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
        out: tuple[Array, Array] | None = None,
    ) -> Rollout:
        """Simulate states over time under forces that are constant within each step.

        Configurations stay on their manifold: quaternions stay unit, and "rk4" keeps its order for them. A robot with
        constraints obeys them, and every step ends with `project`.

        Args:
            q0: (..., nq) initial configurations; the leading axes of q0 and qd0 are the batch.
            qd0: (..., nv) initial velocities.
            tau: (..., nv) generalised forces, or (steps, ..., nv) for each step; None for none.
            dt: step length in seconds.
            steps: number of steps.
            integrator: "semi_implicit_euler", "implicit", "euler", "midpoint", "rk4" or "mujoco"
                (`robodyn.core.integrators`).
            f_ext: (..., n_bodies, 6) or (steps, ..., n_bodies, 6) external forces, as elsewhere.
            policy: function of (t, q, qd) that returns tau (..., nv), instead of tau; called once a step.
            inertia: (..., n_bodies, 10), as elsewhere.
            armature: (..., nv) instead of the model's, kg or kg m^2.
            damping: (..., nv) instead of the model's, N s/m or N m s/rad; acts whatever `joint_forces` says, as does
                friction.
            friction: (..., nv) instead of the model's, N or N m.
            gravity: (..., 3) instead of the model's, m/s^2.
            V0: (..., 6) or (steps, ..., 6) velocity of the base, as elsewhere.
            dV0: (..., 6) or (steps, ..., 6) acceleration of the base, as elsewhere.
            kp: (..., nv) stiffness of the drives, N/m or N m/rad: kp (q_des (-) q) is added to tau.
            kd: (..., nv) damping of the drives, N s/m or N m s/rad: -kd qd is added to tau.
            q_des: (..., nq) or (steps, ..., nq) target configuration of the drives.
            targets: (..., n_constraints, 12) or (steps, ..., n_constraints, 12) target poses of constraints to the
                world, as elsewhere; None: constraints without a target hold their initial place.
            active: (..., n_constraints) or (steps, ..., n_constraints), 1 or True for constraints that hold, 0 or
                False for others; or one bool.
            contact_friction: (..., n_contacts) coefficient of friction of each contact of `model.contacts.pairs`, along
                both tangents, instead of the model's.
            ground_pose: (..., 4, 4) pose of the ground: it carries all shapes of contacts that are fixed to the world,
                such as planes.
            limits: which limits of the model to keep, "effort", "velocity" and "position"; the last two need the
                integrator "semi_implicit_euler" or "implicit".
            save_every: keep every n-th state and the last one; None for the first and the last alone.
            checkpoint: .npz file that states are written to at the start, now and then, and at the end (see
                `Rollout.load`). The file is replaced as a whole or left as it is.
            progress: True to show a progress bar.
            out: contiguous arrays (K, ..., nq) and (K, ..., nv) for the K states that are kept. They may share memory
                with arguments.

        Returns:
            Times, states (time is the first axis), and which rows diverged. A row that is no longer finite keeps its
            last finite state while the others go on. After Ctrl-C: the states computed so far.

        Raises:
            ArgumentError: also dt or steps that are not positive, a policy that returns something else, or a checkpoint
                that names a symbolic link, folder, pipe, socket or device.
            NumericalError: values are checked, and an argument is NaN or infinite.
            OSError: the checkpoint cannot be written at the start, or its folder does not exist.
            SingularError: the mass matrix is singular at every state.
            UnavailableError: no memory for the states that are kept; or the integrator is "implicit" and the robot
                has constraints.

        Warns:
            RuntimeWarning: rows diverged, with the cause if the inputs show it; Ctrl-C; or a checkpoint that cannot
                be written after the start.
            JointForcesWarning: joints have damping or friction, and `joint_forces` is None (once for each robot).
        """
        arguments = locals()
        known = self.__dict__.get(FAST_ROLLOUTS)
        found = None if known is None else known.answer(self, arguments)
        return found if isinstance(found, Rollout) else rollout(self, arguments, found)

    @fast_step
    def step(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike | None = None,
        dt: float = 1e-3,
        *,
        integrator: str = "semi_implicit_euler",
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        friction: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        kp: ArrayLike | None = None,
        kd: ArrayLike | None = None,
        q_des: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        active: ArrayLike | None = None,
        contact_friction: ArrayLike | None = None,
        ground_pose: ArrayLike | None = None,
        limits: Iterable[str] = (),
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """The state dt seconds later, q (..., nq) and qd (..., nv): one step of `rollout`, with the same arguments.

        A state that is no longer finite is returned as it is.

        Args:
            out: contiguous arrays for q and qd.

        Raises:
            ArgumentError: also a dt that is not positive.
            NumericalError: values are checked, and an argument or a result is NaN or infinite.
            SingularError: the mass matrix is singular at every state.
            UnavailableError: the integrator is "implicit" and the robot has constraints.

        Warns:
            RuntimeWarning: an explicit step is too long for the damping.
        """
        forces = forces_given(locals())
        return step(self, q, qd, tau, dt, integrator, forces, limits, out)

    @fast_step
    def step_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike | None = None,
        dt: float = 1e-3,
        *,
        integrator: str = "semi_implicit_euler",
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        friction: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        kp: ArrayLike | None = None,
        kd: ArrayLike | None = None,
        q_des: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        active: ArrayLike | None = None,
        contact_friction: ArrayLike | None = None,
        ground_pose: ArrayLike | None = None,
        limits: Iterable[str] = (),
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """Derivatives of `step`: A (..., 2 nv, 2 nv) with respect to the state, B (..., 2 nv, nv) with respect to tau.

        A small change of the state is d = [dq, dqd], with dq on the tangent space: d_next = A d + B dtau. The
        derivatives are analytical and include damping, friction, drives and limits. At a kink (a limit, or a speed of
        1e-3 in a joint with friction) the derivative is that of one side or lies between those of both
        (`robodyn.algorithms.dual_numbers`). Arguments are those of `step`.

        For robots with constraints the projection at the end of the step is included. Targets stay where they are, also
        those of constraints without a place in the world, which hold their links where q has them.

        Args:
            out: contiguous arrays for A and B.

        Raises:
            ArgumentError: also a dt that is not positive.
            NumericalError: values are checked, and an argument or a result is NaN or infinite.
            SingularError: the mass matrix is singular at every state.
        Warns:
            RuntimeWarning: an explicit step is too long for the damping.
        """
        forces = forces_given(locals())
        return step_gradient(self, q, qd, tau, dt, integrator, forces, limits, out)

    def rollout_vjp(
        self,
        q0: ArrayLike,
        qd0: ArrayLike,
        tau: ArrayLike | None = None,
        dt: float = 1e-3,
        steps: int = 1000,
        *,
        q_weight: ArrayLike | None = None,
        qd_weight: ArrayLike | None = None,
        wrt: str | Iterable[str] = ("q0", "qd0", "tau"),
        integrator: str = "semi_implicit_euler",
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        friction: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        kp: ArrayLike | None = None,
        kd: ArrayLike | None = None,
        q_des: ArrayLike | None = None,
        targets: ArrayLike | None = None,
        active: ArrayLike | None = None,
        contact_friction: ArrayLike | None = None,
        ground_pose: ArrayLike | None = None,
        limits: Iterable[str] = (),
        save_every: int | None = 1,
    ) -> dict[str, Array]:
        """Gradient of a weighted sum of the states of `rollout`, by reverse mode. It takes the arguments of `rollout`.

        For the gradient of a function of the states pass its derivatives with respect to them as weights. The weights
        are propagated backwards through the steps. States are computed twice and kept for one window at a time:
        n steps need the memory of 2 sqrt(n) states, besides weights and results. Rollouts of up to two million numbers
        are kept whole. Targets of constraints stay where they are, also of those without a place in the world, which
        hold their links where q0 has them.

        Args:
            q_weight: (K, ..., nv) weights of small changes of configurations, on tangent spaces, for each of the K
                states that `rollout` keeps with this `save_every`; None for none.
            qd_weight: (K, ..., nv) weights of velocities.
            wrt: arguments to differentiate with respect to: "q0", "qd0", "tau", and names of other arrays in the call.

        Returns:
            Gradients by name, in the order of `wrt`: (..., nv) for q0, qd0 and tau, (steps, ..., nv) for a tau of each
            step, and so on. Gradients with respect to configurations, also q_des, are on tangent spaces. An array that
            several states share has a gradient for each state. Rows that diverge have NaN.

        Raises:
            ArgumentError: also a name in `wrt` that is not an argument of the call.
            NumericalError: values are checked, and an argument or the gradient is NaN or infinite.
            SingularError: the mass matrix is singular at every state.
            UnavailableError: there is no memory; or the robot is too large for straight-line code, and `wrt` has more
                than "q0", "qd0" and "tau".

        Warns:
            RuntimeWarning: rows diverged, or an explicit step is too long for the damping.
        """
        arguments = locals()
        known = self.__dict__.get(FAST_GRADIENTS)
        gradients = None if known is None else known.answer(self, arguments)
        return rollout_vjp(self, arguments) if gradients is None else gradients

    def rollout_gradient(
        self,
        function: Callable[[Rollout], tuple[Any, ArrayLike | None, ArrayLike | None]],
        q0: ArrayLike,
        qd0: ArrayLike,
        tau: ArrayLike | None = None,
        dt: float = 1e-3,
        steps: int = 1000,
        *,
        wrt: str | Iterable[str] = ("q0", "qd0", "tau"),
        **arguments: Any,
    ) -> tuple[Any, dict[str, Array]]:
        """Value and gradient of a function of a rollout's states, in one call.

        Args:
            function: takes the `Rollout` and returns its value, and the value's derivatives with respect to the states
                that are kept: (K, ..., nv) by configurations, on tangent spaces, and (K, ..., nv) by velocities; None
                for zero.
            q0, qd0, tau, dt, steps: as in `rollout`.
            wrt: as in `rollout_vjp`.
            arguments: others of `rollout_vjp`.

        Returns:
            The value, and gradients by name as `rollout_vjp` returns them.

        Raises:
            ArgumentError: also a function that returns something else.
            NumericalError, SingularError, UnavailableError: as in `rollout_vjp`.
        """
        unknown = arguments.keys() - _OF_GRADIENTS.keys()
        if unknown:
            raise TypeError(f"rollout_gradient() got an unexpected keyword argument {min(unknown)!r}")
        every = {**_OF_GRADIENTS, "q0": q0, "qd0": qd0, "tau": tau, "dt": dt, "steps": steps, "wrt": wrt, **arguments}
        return value_and_gradient(self, function, every)

    def program(self, query: str) -> GeneratedCode | GeneratedKernels:
        """The generated code of a query: its mode, operation counts, readable source, IR and assembly.

        Args:
            query: the name of a query that is not about a link, such as "forward_dynamics".

        Raises:
            ArgumentError: no such query.
            SingularError: the query needs the inverse of a mass matrix that is singular at every state.
            NumericalError: the query needs a centre of mass, and no moving body has mass.
            UnavailableError: the engine does not compile.
        """
        query = one_of("query", query, plain_questions(self.model))
        task = self.plain_task(query)
        self._require_possible(asked_of(self.model)[query])
        return self.engine.generated(task)


def _touching(model: Model, contacts: Any) -> Model:
    """The model, or the model without contacts."""
    if contacts is None:
        return model
    if not strict_types.is_a(contacts, tuple, list) or strict_types.members(contacts):
        raise ArgumentError(
            f"contacts: got {brief(contacts)}; wanted None, the model's (Model.with_contacts), or () for none"
        )
    return replace(model, contacts=None) if model.contacts is not None else model


def _constrained(
    model: Model, constraints: Sequence[Constraint] | None, proximal: tuple[float, int] | None, dtype: np.dtype[Any]
) -> Model:
    """The model with other constraints and a proximal term that is not too small for the precision."""
    changed: dict[str, Any] = {} if constraints is None else {"constraints": constraints}
    if proximal is not None:
        changed["proximal"] = proximal
    if changed:
        model = replace(model, **changed)
    least = _LEAST_PROXIMAL[dtype.name]
    if model.constraints and model.proximal[0] < least:
        model = replace(model, proximal=(least, model.proximal[1]))
    return model


def _dtype(given: Any) -> np.dtype[Any]:
    name = given
    if strict_types.is_a(given, type):
        name = strict_types.name_of(given)
    elif strict_types.is_a(given, np.dtype):
        name = str(given)
    return np.dtype(one_of("dtype", name, DTYPES))


def _is_engine(value: Any) -> bool:
    try:
        return isinstance(value, Engine)
    except Exception:  # a foreign object may raise anything
        return False


def _joint_forces(given: Any) -> tuple[str, ...]:
    chosen = (given,) if strict_types.is_a(given, str) else strict_types.at_most(given, _MOST_WORDS)
    if chosen is None:
        raise ArgumentError(f"joint_forces: got {brief(given)}; allowed: 'damping', 'friction'")
    return tuple(one_of("joint_forces", each, ("damping", "friction")) for each in chosen)


_OF_GRADIENTS = {
    name: parameter.default
    for name, parameter in signature(Dynamics.rollout_vjp).parameters.items()
    if parameter.default is not Parameter.empty and name not in ("q_weight", "qd_weight")
}
"""Optional arguments of gradients of rollouts, besides weights."""
