"""Dynamics: a model and an engine, answering queries for one state or a batch.

Most of it are signatures and docstrings of what users call; queries and rollouts are in rooms of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.constraints.redundancy import warn_of_redundancy
from robodyn.algorithms.tasks import Task
from robodyn.api.motion.adjoint import rollout_vjp
from robodyn.api.motion.result import Rollout
from robodyn.api.motion.rollout import rollout, step, step_gradient
from robodyn.api.motion.run import Policy
from robodyn.api.motion.step_spec import forces_given
from robodyn.api.queries.constrained import ConstraintQueries
from robodyn.api.queries.core import require_model
from robodyn.api.queries.energies import EnergyQueries
from robodyn.api.queries.explanation import explain
from robodyn.api.queries.fast_path import changing
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
from robodyn.core.sweeps import PER_BODY, PER_VELOCITY, POINT
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
"""What is smaller vanishes beside the diagonal that it is a part of."""
_MOST_WORDS = 100
"""Words of `joint_forces` that are looked at: a few, or somebody's iterator has no end."""


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
):
    """Answers rigid-body dynamics queries about a model.

    Args:
        model: what to compute with.
        engine: "auto" (the fastest that runs here), "reference", "cpu", "gpu" or "scan".
        dtype: "float64" or "float32": of all results, and of the arithmetic.
        threads: threads for a batch or a large tree, None for as many as the process may run on. The reference engine
            uses one.
        compile: when engines that compile do so. "lazy": at a query's first call, which waits. "eager": inverse and
            forward dynamics, mass matrix and bias force now, the others lazily; no code is replaced by better code
            later, which otherwise happens to large loops, without a change of results. "background": at a query's
            first call, which does not wait: a slower engine answers until the code is there.
        check: whether NaN and infinity raise. None: for single states yes, for batches no.
        joint_forces: of "damping" and "friction", which of the model's to include in generalised forces:
            tau = ID + damping qd + friction sign(qd). None: neither; rollouts and simulations of a robot whose joints
            have some say so once, by a `robodyn.JointForcesWarning`. () is the same without the warning.
        code: "unrolled" (straight-line code for this robot) or "rolled" (loops over bodies, for code too large to
            unroll) forces what engines that compile otherwise choose by the number of operations.
        scan: how the scan engine scans (`robodyn.engines.scan.ScanOptions`), None for the defaults.
        gpu: which kernels the GPU engine runs (`robodyn.engines.gpu.GpuOptions`), None for the defaults.
        constraints: what holds the robot besides its joints (`robodyn.Point`, `Weld`, `Rod`, `Coupling`, `Lock`),
            instead of the model's; `dyn.model` has them. None: the model's; (): none. Rows that follow from others are
            named by a `robodyn.RedundantWarning`: accelerations are unique all the same. Queries about constraints,
            `step` and `rollout` obey them; all other queries are about the tree alone, as if there were none, and what
            does neither refuses robots that have some (docs/constraints.md).
        proximal: the term that makes constraint forces unique, instead of the model's: its size beside the
            diagonal of J H^-1 J', and how many iterations take it away. The size is 1e-14 at least, 1e-5 in float32.

    Arrays: q (..., nq), qd, qdd, tau (..., nv), f_ext (..., n_bodies, 6) in world coordinates about the world's origin
    (moment, force; see `robodyn.external_force`), inertia (..., n_bodies, 10) like `model.inertia`, None for the
    model's own, V0 and dV0 (..., 6) the base's spatial velocity and acceleration in world coordinates, without gravity,
    None for a base at rest. Leading axes broadcast as in NumPy. SI units, radians. Every query takes `out=` (a tuple
    where it returns several) and then returns it. Generalised vectors of floating and planar joints are in the body
    frame, linear first (docs/notation.md). Arrays on a GPU (CuPy's, or others that have `__cuda_array_interface__` or
    DLPack) are for the engines "gpu" and "auto"; results are then CuPy arrays (docs/engines.md).

    Raises:
        ArgumentError: (also every query) an argument of the wrong shape, type or value.
        NumericalError: (every query, where checked) NaN or infinity, naming the rows.
        UnavailableError: an engine that this version does not have.
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
    ) -> None:
        require_model(model)
        engine_name = one_of("engine", engine, ENGINE_NAMES)
        when = one_of("compile", compile, ("lazy", "eager", "background"))
        mode = one_of("code", code, ("auto", "unrolled", "rolled"))
        self.dtype = _dtype(dtype)
        self.model = model = _constrained(model, constraints, proximal, self.dtype)
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
        """Set an attribute, and let go of the quick functions that were made for the old one."""
        if name == "engine" and not _is_engine(value):
            raise ArgumentError(f"engine: got {brief(value)}; wanted a robodyn.engines.protocol.Engine")
        if find(name) is not None:  # a function that a user puts in place of a query stays there
            object.__setattr__(self, name, value)
            return
        epoch = changing(self)
        if epoch is not None:
            epoch.ends()  # what another thread learns from now on holds for the old value, or for none
        try:
            object.__setattr__(self, name, value)
        finally:
            if epoch is not None:
                epoch.ends()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments: what engines have prepared or compiled stays in its process."""
        return partial(type(self), **self._arguments), (self.model,)

    @property
    def _arguments(self) -> dict[str, Any]:
        """What it was made with, besides the model."""
        own = {"dtype": self.dtype.name, "check": self.check}
        return {**vars(self._options), **own, "joint_forces": self.joint_forces if self._forces_chosen else None}

    @property
    def _forces_chosen(self) -> bool:
        """Whether somebody has said which joint forces count, or that none do."""
        return bool(self.joint_forces) or not self._leaves_forces

    def variant(self, model: Model | None = None, **options: Any) -> Dynamics:
        """A `Dynamics` with the same options but for those given, of the same model or of another one.

        It compiles nothing before it is asked: "eager" becomes "lazy", unless it is given.
        """
        given = self._arguments
        if given["compile"] == "eager":
            given["compile"] = "lazy"
        return type(self)(self.model if model is None else model, **{**given, **options})

    def mass_matrix_operator(self, q: ArrayLike, *, inverse: bool = False) -> Any:
        """H(q), or with `inverse` its inverse, as a `scipy.sparse.linalg.LinearOperator` (nv, nv), for huge trees.

        A product takes as long as inverse, or forward, dynamics of one state, and no matrix is made; products with
        several columns at once are a batch. What acts besides inertia (gravity, damping, friction) has no part.

        Args:
            q: (nq,) one state.
            inverse: whether products are H^-1 x.

        Raises:
            ArgumentError: another shape, or a quaternion of zero length.
            NumericalError: NaN or infinity in q.
            SingularError: (a product with the inverse) the mass matrix is singular whatever the state.
        """
        return mass_matrix_operator(self, q, inverse)

    def plain_task(self, name: str) -> Task:
        """What answers a plain call of a query on this model.

        Raises:
            ArgumentError: no query of that name that arrays alone ask.
        """
        return asked_of(self.model)[one_of("query", name, plain_questions(self.model))].plain_task(self.model)

    def explain(self, query: str, batch: int = 1) -> Explanation:
        """Which engine and method answer a plain call of a query, and why; print it.

        Args:
            query: the name of a query, such as "forward_dynamics".
            batch: states in the call.

        Raises:
            ArgumentError: no query of that name, or no number of states.
            UnavailableError: the engine does not answer the query.
        """
        return explain(self, query, batch)

    def capture(self, query: str, *arrays: Any, out: Any = None, **others: Any) -> Captured:
        """A call of a query on these very arrays, recorded as a CUDA graph; call what is returned to run it again.

        For small batches, whose kernels take less time than a call from Python: arguments are not looked at again, and
        one launch does it all. Write new states into the arrays given, launch, and read the same results:

            step = dyn.capture("forward_dynamics", q, qd, tau)
            q[...] = q_next
            qdd = step()

        Of `mass_matrix(q, sparse=True)` launching fills the entries of the matrix that it returned.

        Args:
            query: the name of a query, such as "forward_dynamics".
            arrays: its arguments in order, arrays on the GPU: of this dtype, and contiguous.
            out: arrays for the results, None for new ones.
            others: its other arguments, by name.

        Raises:
            ArgumentError: no query of that name, arrays that would have to be copied, or check=True, which would wait
                for the GPU.
            UnavailableError: no GPU, or a method of the scan engine that looks at values on its way, or solves with a
                dense mass matrix by CuPy's libraries.
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
        limits: Iterable[str] = (),
        save_every: int | None = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
        out: tuple[Array, Array] | None = None,
    ) -> Rollout:
        """Follow states through time under forces that are constant within each step.

        Configurations stay on their manifold: quaternions stay unit, and "rk4" keeps its order for them. A robot with
        constraints obeys them, and every step ends with `project`.

        Args:
            q0: (..., nq) configurations at the start; their leading axes and those of qd0 are the batch.
            qd0: (..., nv) velocities at the start.
            tau: (..., nv) generalised forces, or (steps, ..., nv), others in each step; None for none.
            dt: seconds of a step.
            steps: how many.
            integrator: "semi_implicit_euler", "implicit", "euler", "midpoint" or "rk4" (`robodyn.core.integrators`).
            f_ext: (..., n_bodies, 6) or (steps, ..., n_bodies, 6) external forces, as elsewhere.
            policy: instead of tau a function of (t, q, qd) that returns tau (..., nv); it is asked once for each step.
            inertia: (..., n_bodies, 10), as elsewhere.
            armature: (..., nv) instead of the model's, kg or kg m^2.
            damping: (..., nv) instead of the model's, N s/m or N m s/rad; it counts whatever `joint_forces` says, as
                does friction.
            friction: (..., nv) instead of the model's, N or N m.
            gravity: (..., 3) instead of the model's, m/s^2.
            V0: (..., 6) or (steps, ..., 6) velocity of the base, as elsewhere.
            dV0: (..., 6) or (steps, ..., 6) acceleration of the base, as elsewhere.
            kp: (..., nv) stiffness, N/m or N m/rad: kp (q_des (-) q) is added to tau.
            kd: (..., nv) damping of the drives, N s/m or N m s/rad: -kd qd is added to tau.
            q_des: (..., nq) or (steps, ..., nq) what kp drives to.
            targets: (..., n_constraints, 12) or (steps, ..., n_constraints, 12) places that constraints to the world
                hold, as elsewhere; None: where constraints without a place are at the start.
            active: (..., n_constraints) or (steps, ..., n_constraints) 1 or True for constraints that hold, 0 or False
                for others; or one bool.
            limits: of the model's, "effort", "velocity" and "position" to keep to; the last two by the integrators
                "semi_implicit_euler" and "implicit" alone.
            save_every: of this many states one is kept, and the last one; None for the first and the last alone.
            checkpoint: a file of NumPy's .npz format that what was computed is written to, at the start, now and then,
                and at the end (`Rollout.load`). What is there is replaced by a whole file, or stays.
            progress: whether to show a progress bar.
            out: contiguous arrays (K, ..., nq) and (K, ..., nv) for the states, K as many as are kept. They may share
                memory with arguments.

        Returns:
            times and states, time first; which rows diverged. Rows that are no longer finite keep their last finite
            state, and the others go on. After Ctrl-C it is what was computed.

        Raises:
            ArgumentError: also dt or steps that are not positive, a policy that returns something else, or a checkpoint
                that names a symbolic link, folder, pipe, socket or device.
            NumericalError: values are checked, and an argument is NaN or infinite.
            OSError: the checkpoint cannot be written at the start, or its folder is not there.
            SingularError: the mass matrix is singular whatever the state.
            UnavailableError: there is no memory for the states that are kept; or a robot with constraints, and the
                integrator "implicit".

        Warns:
            RuntimeWarning: rows diverged, and why where the inputs tell; Ctrl-C; or a checkpoint that cannot be written
                after the start.
            JointForcesWarning: joints have damping or friction that was not asked for (once for each robot).
        """
        given = forces_given(locals())
        return rollout(
            self, q0, qd0, tau, dt, steps, integrator, given, limits, policy, save_every, checkpoint, progress, out
        )

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
        limits: Iterable[str] = (),
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """The state dt seconds later, q (..., nq) and qd (..., nv): one step of `rollout`, whose arguments these are.

        A state that is no longer finite is returned as it is.

        Args:
            out: contiguous arrays for q and qd.

        Raises:
            ArgumentError: also a dt that is not positive.
            NumericalError: values are checked, and an argument or a result is NaN or infinite.
            SingularError: the mass matrix is singular whatever the state.
            UnavailableError: the robot has constraints, which the integrator "implicit" does not know.

        Warns:
            RuntimeWarning: an explicit step is too long for the damping.
        """
        given = forces_given(locals())
        return step(self, q, qd, tau, dt, integrator, given, limits, out)

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
        limits: Iterable[str] = (),
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """The derivatives of `step`, whose arguments these are: A (..., 2 nv, 2 nv) by the state and B (..., 2 nv, nv)
        by tau.

        Analytical, of the very step that is taken: with its resistance, targets and limits. A small change of the state
        is one of q on its tangent space, in front, and one of qd: with d = [dq, dqd], d_next = A d + B dtau. Where the
        step has a kink (at a limit, or at a speed of 1e-3 of what has friction) it is the derivative of one side, or
        between those of both. `robodyn.algorithms.dual_numbers` has the text.

        Args:
            out: contiguous arrays for A and B.

        Raises:
            ArgumentError: also a dt that is not positive.
            NumericalError: values are checked, and an argument or a result is NaN or infinite.
            SingularError: the mass matrix is singular whatever the state.
            UnavailableError: the robot has constraints.

        Warns:
            RuntimeWarning: an explicit step is too long for the damping.
        """
        given = forces_given(locals())
        return step_gradient(self, q, qd, tau, dt, integrator, given, limits, out)

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
        limits: Iterable[str] = (),
        save_every: int | None = 1,
    ) -> dict[str, Array]:
        """The gradient of the sum of weights times the states of `rollout`, whose arguments the others are.

        Weights go backwards through the steps that are taken. States are made twice and kept for one window at a time:
        n steps take the memory of 2 sqrt(n) states, besides weights and results. For the gradient of a function of the
        states, give its derivatives by them for weights.

        Args:
            q_weight: (K, ..., nv) weights of small changes of configurations, on tangent spaces, for each of the K
                states that `rollout` keeps with this `save_every`; None for none.
            qd_weight: (K, ..., nv) weights of velocities.
            wrt: what it is the gradient by: "q0", "qd0", "tau", and names of other arrays that are given.

        Returns:
            by name, in the order of `wrt`: (..., nv) for the state at the start and tau, (steps, ..., nv) for a tau of
            each step, and so on; by configurations on tangent spaces, also by q_des. Arrays that are shared by states
            have a gradient for each state. Rows that diverge have NaN.

        Raises:
            ArgumentError: also a name in `wrt` of what is not given.
            NumericalError: values are checked, and an argument or the gradient is NaN or infinite.
            SingularError: the mass matrix is singular whatever the state.
            UnavailableError: the robot has constraints; there is no memory; or a robot too large for straight-line
                code, and `wrt` has more than "q0", "qd0" and "tau".

        Warns:
            RuntimeWarning: rows diverged, or an explicit step is too long for the damping.
        """
        given = forces_given(locals())
        weights = q_weight, qd_weight
        return rollout_vjp(self, q0, qd0, tau, dt, steps, integrator, given, limits, weights, save_every, wrt)

    def program(self, query: str) -> GeneratedCode | GeneratedKernels:
        """The code that answers a query: its mode, operation counts, readable text, IR and assembly.

        Args:
            query: the name of a query that is not about a link, such as "forward_dynamics".

        Raises:
            ArgumentError: no such query.
            SingularError: it needs the inverse of a mass matrix that has none.
            NumericalError: it needs a centre of mass, and nothing that moves has mass.
            UnavailableError: an engine that does not compile.
        """
        query = one_of("query", query, plain_questions(self.model))
        task = self.plain_task(query)
        self._require_possible(asked_of(self.model)[query])
        return self.engine.generated(task)


def _constrained(
    model: Model, constraints: Sequence[Constraint] | None, proximal: tuple[float, int] | None, dtype: np.dtype[Any]
) -> Model:
    """The model with other constraints, and a proximal term that the precision can do with."""
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
