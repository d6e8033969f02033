"""Dynamics: a model and an engine, answering queries for one state or a batch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms import energy, kinematics
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.arguments import (
    Array,
    broadcast_leading,
    count,
    flag,
    one_of,
    real_array,
)
from robodyn.engines.dense import solve
from robodyn.engines.protocol import DTYPES, ENGINE_NAMES, METHODS, make_engine
from robodyn.errors import ArgumentError, NumericalError, SingularError
from robodyn.model import Model
from robodyn.query import Query
from robodyn.singularity import singularity
from robodyn.sweeps import Algorithm

if TYPE_CHECKING:
    from robodyn.engines.cpu.generated import GeneratedCode

FRAMES = ("world", "body", "world_aligned")
_MAX_THREADS = 4096

PLAIN_CALLS: dict[str, tuple[Algorithm, tuple[str, ...]]] = {
    "inverse_dynamics": (rnea(("q", "qd", "qdd")), ("q", "qd", "qdd")),
    "forward_dynamics": (aba(("q", "qd", "tau")), ("q", "qd", "tau")),
    "mass_matrix": (CRBA, ("q",)),
    "mass_matrix_inverse": (INVERSE_MASS_MATRIX, ("q",)),
    "bias_force": (rnea(("q", "qd")), ("q", "qd")),
    "gravity_force": (rnea(("q",)), ("q",)),
    "coriolis_matrix": (CORIOLIS_MATRIX, ("q", "qd")),
    "forward_kinematics": (kinematics.forward_kinematics(False), ("q",)),
    "kinetic_energy": (energy.KINETIC_ENERGY, ("q", "qd")),
    "potential_energy": (energy.POTENTIAL_ENERGY, ("q",)),
    "center_of_mass": (energy.CENTER_OF_MASS, ("q",)),
}
"""Queries that one algorithm answers from arrays alone: its name, the algorithm, and the arrays in order."""


_MASS_MATRICES_BYTES = 1 << 26
_EAGER = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force")


class Dynamics:
    """Answers rigid-body dynamics queries about a model.

    Args:
        model: what to compute with.
        engine: "auto" (the fastest that runs here), "reference", "cpu", "gpu" or "scan".
        dtype: "float64" or "float32": of all results, and of the arithmetic.
        threads: threads for a batch, None for as many as the process may run on. The reference engine uses one.
        compile: when engines that compile do so. "lazy": at a query's first call, which waits. "eager": inverse and
            forward dynamics, mass matrix and bias force now, the others lazily. "background": at a query's first call,
            which does not wait: a slower engine answers until the code is there.
        check: whether NaN and infinity raise. None: for single states yes, for batches no.
        joint_forces: of "damping" and "friction", which of the model's to include in generalised forces:
            tau = ID + damping qd + friction sign(qd).
        code: "unrolled" (straight-line code for this robot) or "rolled" (loops over bodies, for code too large to
            unroll) forces what engines that compile otherwise choose by the number of operations.

    Arrays: q (..., nq), qd, qdd, tau (..., nv), f_ext (..., n_bodies, 6) in world coordinates about the world's origin
    (moment, force; see `robodyn.external_force`), V0 and dV0 (..., 6) the base's spatial velocity and acceleration in
    world coordinates, without gravity, None for a base at rest. Leading axes broadcast as in NumPy. SI units, radians.
    Every query takes `out=` (a tuple where it returns several) and then returns it. Generalised vectors of floating
    and planar joints are in the body frame, linear first (docs/notation.md).

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
        joint_forces: Iterable[str] = (),
        *,
        code: Literal["auto", "unrolled", "rolled"] = "auto",
    ) -> None:
        _require_model(model)
        one_of("engine", engine, ENGINE_NAMES)
        one_of("compile", compile, ("lazy", "eager", "background"))
        one_of("code", code, ("auto", "unrolled", "rolled"))
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
        self.model = model
        self.dtype = np.dtype(one_of("dtype", name, DTYPES))
        self.threads = None if threads is None else count("threads", threads, 1, _MAX_THREADS)
        self.check = None if check is None else flag("check", check)
        self.joint_forces = _joint_forces(joint_forces)
        self.engine = make_engine(engine, model, self.dtype, self.threads, compile, code)
        self._engine_asked, self._compile, self._code = engine, compile, code
        self.argument_shapes: dict[str, tuple[int, ...]] = {
            "q": (model.nq,),
            **dict.fromkeys(("qd", "qdd", "tau"), (model.nv,)),
            "f_ext": (model.n_bodies, 6),
            **dict.fromkeys(("V0", "dV0"), (6,)),
        }
        if compile == "eager":
            for name in _EAGER:
                self.engine.prepare(PLAIN_CALLS[name][0])

    def __repr__(self) -> str:
        return f"<Dynamics of {self.model.name!r}: engine {self.engine.name!r}, {self.dtype}>"

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, and let go of the quick functions that were made for the old one."""
        object.__setattr__(self, name, value)
        for query in PLAIN_CALLS:
            self.__dict__.pop(query, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments: what engines have prepared or compiled stays in its process."""
        options = (self._engine_asked, self.dtype.name, self.threads, self._compile, self.check, self.joint_forces)
        return partial(type(self), code=self._code), (self.model, *options)

    def _answered(self, name: str, result: Any) -> Any:
        """After the first answer to a query: let machine code take its plain calls from then on.

        It hides the method of that name on this object, answers calls that give the arrays of `PLAIN_CALLS` and nothing
        else, and passes every other call on to the method.
        """
        overridden = getattr(type(self), name) is not getattr(Dynamics, name)
        if name not in self.__dict__ and not overridden:
            algorithm, _ = PLAIN_CALLS[name]
            followers = self.model.has_mimic and name in ("forward_dynamics", "mass_matrix_inverse")
            forces = self.joint_forces and name in ("inverse_dynamics", "forward_dynamics", "bias_force")
            entry = None if followers or forces else self.engine.fast_call(name, algorithm, self)
            if entry is not None:
                self.__dict__[name] = entry
        return result

    def _joint_force(self, qd: Array) -> Array | float:
        """Damping and friction as a generalised force that drives must supply."""
        force: Array | float = 0.0
        if "damping" in self.joint_forces:
            force = force + self.model.damping.astype(self.dtype) * qd
        if "friction" in self.joint_forces:
            force = force + self.model.friction.astype(self.dtype) * np.sign(qd)
        return force

    # Forces and accelerations.

    def inverse_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Generalised forces tau (..., nv), N or N m, that give accelerations qdd. RNEA, RBDA table 5.1."""
        one_of("method", method, ("auto", *METHODS["inverse_dynamics"]))
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("inverse_dynamics", query.finish({"tau": self._rnea(query)})))

    def _rnea(self, query: Query) -> Array:
        tau = query.result(0, self.model.nv)
        query.run(rnea(query.names), tau=tau)
        if self.joint_forces and "qd" in query.inputs:
            with np.errstate(all="ignore"):
                tau += self._joint_force(query.inputs["qd"])
        return tau

    def forward_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Accelerations qdd (..., nv) under generalised forces tau.

        `method`: "aba" (RBDA table 7.1; for models without mimicking joints), "crba" (mass matrix and L'DL), or "auto".

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body.
        """
        one_of("method", method, ("auto", *METHODS["forward_dynamics"]))
        if method == "aba" and self.model.has_mimic:
            raise ArgumentError("method: got 'aba' for a model whose joints mimic others; allowed: 'auto', 'crba'")
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("forward_dynamics", query.finish({"qdd": self._forward(query, method)})))

    def _forward(self, query: Query, method: str = "auto") -> Array:
        self._require_regular()
        tau = query.inputs["tau"]
        if self.joint_forces:
            with np.errstate(all="ignore"):
                tau = tau - self._joint_force(query.inputs["qd"])
        qdd = query.result(0, self.model.nv)
        given = {**query.inputs, "tau": tau}
        if method == "crba" or self.model.has_mimic:
            self._solve_forward(given, query.names, qdd)
        else:
            self.engine.run(aba(query.names), given, {"qdd": qdd})
        return qdd

    def _solve_forward(self, given: dict[str, Array], names: tuple[str, ...], qdd: Array) -> None:
        """H qdd = tau - bias, some rows at a time: mass matrices of a whole batch may be more than there is memory."""
        nv = self.model.nv
        rows = max(1, _MASS_MATRICES_BYTES // max(1, nv * nv * self.dtype.itemsize))
        inputs = tuple(name for name in names if name != "tau")
        for start in range(0, qdd.shape[0], rows):
            part = {name: array[start : start + rows] for name, array in given.items()}
            count = part["tau"].shape[0]
            bias, H = np.empty((count, nv), self.dtype), np.empty((count, nv, nv), self.dtype)
            self.engine.run(rnea(inputs), part, {"tau": bias})
            self.engine.run(CRBA, part, {"H": H})
            with np.errstate(all="ignore"):
                force = part["tau"] - bias
            qdd[start : start + rows] = solve(H, force[..., None])[..., 0]

    def mass_matrix(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """The joint-space inertia matrix H (..., nv, nv), armature included. CRBA, RBDA table 6.2."""
        query = Query(self, out, q=q)
        H = query.result(0, self.model.nv, self.model.nv)
        query.run(CRBA, H=H)
        return cast(Array, self._answered("mass_matrix", query.finish({"H": H})))

    def mass_matrix_inverse(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """H^-1 (..., nv, nv), by the articulated-body recursion.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        query = Query(self, out, q=q)
        Hinv = self._inverse(query, query.result(0, self.model.nv, self.model.nv))
        return cast(Array, self._answered("mass_matrix_inverse", query.finish({"Hinv": Hinv})))

    def _inverse(self, query: Query, Hinv: Array) -> Array:
        """H^-1, in the array given where that is no detour."""
        self._require_regular()
        if not self.model.has_mimic:
            query.run(INVERSE_MASS_MATRIX, Hinv=Hinv)
            return Hinv
        H = query.new(*Hinv.shape[1:])
        query.run(CRBA, H=H)
        return solve(H, np.broadcast_to(np.eye(self.model.nv, dtype=self.dtype), H.shape).copy())

    def bias_force(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Inverse dynamics at qdd = 0 (..., nv): Coriolis, centrifugal and gravity forces minus external ones."""
        query = Query(self, out, q=q, qd=qd, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("bias_force", query.finish({"bias": self._rnea(query)})))

    def gravity_force(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Generalised forces (..., nv) that hold the robot still against gravity: the gradient of potential energy."""
        query = Query(self, out, q=q)
        return cast(Array, self._answered("gravity_force", query.finish({"gravity": self._rnea(query)})))

    def coriolis_matrix(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """C (..., nv, nv) with C qd + g = bias for a base at rest and Hdot - 2 C skew-symmetric.

        With a moving base (V0), C is the block of the robot's own velocities in the Coriolis matrix of robot and base.
        Echeandia and Wensing 2021, algorithm 1. Damping and friction are not part of it.
        """
        query = Query(self, out, q=q, qd=qd, V0=V0)
        C = query.result(0, self.model.nv, self.model.nv)
        query.run(CORIOLIS_MATRIX, C=C)
        return cast(Array, self._answered("coriolis_matrix", query.finish({"C": C})))

    # Gradients.

    def inverse_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dtau/dq, dtau/dqd), each (..., nv, nv): column j is the change with coordinate j.

        With respect to q on the tangent space (`model.integrate`); external forces stay constant in the world.
        Plancher et al., algorithm 2. dtau/dqdd is the mass matrix.
        """
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, V0=V0, dV0=dV0)
        nv = self.model.nv
        by_q, by_qd = query.result(0, nv, nv), query.result(1, nv, nv)
        self._rnea_gradient(query, by_q, by_qd)
        return cast(tuple[Array, Array], query.finish({"dtau_dq": by_q, "dtau_dqd": by_qd}))

    def _rnea_gradient(self, query: Query, by_q: Array, by_qd: Array) -> None:
        nv = self.model.nv
        inputs = tuple(name for name in query.names if name != "tau")
        query.run(rnea_gradient(inputs), tau_q=by_q, tau_qd=by_qd)
        if "damping" in self.joint_forces:
            by_qd[:, np.arange(nv), np.arange(nv)] += self.model.damping.astype(self.dtype)

    def forward_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """(dqdd/dq, dqdd/dqd, dqdd/dtau), each (..., nv, nv): -H^-1 dtau/dq, -H^-1 dtau/dqd, H^-1.

        Plancher et al., algorithm 3; conventions as for `inverse_dynamics_gradient`.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, V0=V0, dV0=dV0)
        nv = self.model.nv
        by_q, by_qd, Hinv = query.new(nv, nv), query.new(nv, nv), query.result(2, nv, nv)
        query.inputs["qdd"] = self._forward(query)
        self._rnea_gradient(query, by_q, by_qd)
        Hinv = self._inverse(query, Hinv)
        with np.errstate(all="ignore"):
            results = {"dqdd_dq": -(Hinv @ by_q), "dqdd_dqd": -(Hinv @ by_qd), "dqdd_dtau": Hinv}
        return cast(tuple[Array, Array, Array], query.finish(results))

    # Kinematics.

    def forward_kinematics(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Homogeneous transforms (..., n_links, 4, 4), link to world coordinates, in `model.link_names` order."""
        query = Query(self, out, q=q)
        return cast(Array, self._answered("forward_kinematics", query.finish({"T": self._poses(query, None)})))

    def _poses(self, query: Query, link: int | None) -> Array:
        T = query.result(0, *(() if link is not None else (len(self.model.link_names),)), 4, 4)
        query.run(kinematics.forward_kinematics(link is not None), link=link, T=T)
        return T

    def jacobian(self, q: ArrayLike, link: str | int, frame: Frame = "world", *, out: Array | None = None) -> Array:
        """Geometric Jacobian J (..., 6, nv) of a link: its spatial velocity is J qd, angular part first.

        `frame`: "world": world axes, velocity of the link's point at the world's origin; "body": the link's frame;
        "world_aligned": world axes, velocity of the link's origin.
        """
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q)
        J = query.result(0, 6, self.model.nv)
        query.run(kinematics.jacobian(frame), link=number, J=J)
        return cast(Array, query.finish({"J": J}))

    def link_velocity(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        link: str | int,
        frame: Frame = "world",
        *,
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial velocity (..., 6) of a link, angular part first (rad/s, m/s); `frame` as for `jacobian`."""
        one_of("frame", frame, FRAMES)
        number = self.model.link_index(link)
        query = Query(self, out, q=q, qd=qd, V0=V0)
        V = query.result(0, 6)
        query.run(kinematics.link_velocity(frame), link=number, V=V)
        return cast(Array, query.finish({"V": V}))

    def link_acceleration(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        link: str | int,
        frame: Frame = "world",
        *,
        classical: bool = False,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Spatial acceleration (..., 6) of a link, without gravity; `frame` as for `jacobian`.

        `classical=True` gives the acceleration of the link's origin, a point that moves with the link, instead of the
        spatial one (RBDA eq. 2.50); in the frame "world" it is then that of "world_aligned".

        At qdd = 0 it is the bias Jdot qd of `jacobian`: of the frames "world" and "body" the spatial acceleration, of
        "world_aligned", whose origin moves while its axes do not, the classical one.
        """
        one_of("frame", frame, FRAMES)
        flag("classical", classical)
        number = self.model.link_index(link)
        query = Query(self, out, q=q, qd=qd, qdd=qdd, V0=V0, dV0=dV0)
        A = query.result(0, 6)
        query.run(kinematics.link_acceleration(frame, classical), link=number, A=A)
        return cast(Array, query.finish({"A": A}))

    # Totals.

    def kinetic_energy(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """Kinetic energy (...), J, armature included: qd' H qd / 2 for a base at rest."""
        query = Query(self, out, q=q, qd=qd, V0=V0)
        K = query.result(0)
        query.run(energy.KINETIC_ENERGY, K=K)
        return cast(Array, self._answered("kinetic_energy", query.finish({"K": K})))

    def potential_energy(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Potential energy (...), J, of everything that can move, zero at the height of the world's origin."""
        query = Query(self, out, q=q)
        U = query.result(0)
        query.run(energy.POTENTIAL_ENERGY, U=U)
        return cast(Array, self._answered("potential_energy", query.finish({"U": U})))

    def center_of_mass(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Centre of mass (..., 3) in world coordinates, m, of everything that can move.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        self._require_mass()
        query = Query(self, out, q=q)
        com = query.result(0, 3)
        query.run(energy.CENTER_OF_MASS, com=com)
        return cast(Array, self._answered("center_of_mass", query.finish({"com": com})))

    def centroidal_momentum(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """(h, A): momentum h (..., 6) about the centre of mass in world axes, angular part first, and the matrix A
        (..., 6, nv) with h = A qd for a base at rest. Orin, Goswami, Lee 2013. Armature does not count.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        self._require_mass()
        query = Query(self, out, q=q, qd=qd, V0=V0)
        h, A = query.result(0, 6), query.result(1, 6, self.model.nv)
        query.run(energy.CENTROIDAL_MOMENTUM, h=h, A=A)
        return cast(tuple[Array, Array], query.finish({"h": h, "A": A}))

    def program(self, query: str) -> GeneratedCode:
        """The code that answers a query: its mode, operation counts, readable text, IR and assembly.

        Args:
            query: a name in `PLAIN_CALLS`, or "inverse_dynamics_gradient".

        Raises:
            ArgumentError: a query that is not one program.
            UnavailableError: an engine that does not compile.
        """
        known = {name: algorithm for name, (algorithm, _) in PLAIN_CALLS.items()}
        known["inverse_dynamics_gradient"] = rnea_gradient()
        one_of("query", query, tuple(known))
        return self.engine.generated(known[query])

    # What no state can cure.

    def _require_mass(self) -> None:
        if self.model.total_mass == 0.0:
            raise NumericalError(f"model {self.model.name!r}: nothing that moves has mass, so it has no centre of mass")

    def singularity(self) -> str | None:
        """Why the mass matrix is singular at every state, naming the body, or None where it is not.

        Forward dynamics, the inverse mass matrix and gradients of forward dynamics raise a `SingularError` with this
        message; inverse dynamics does not need the inverse and answers all the same.
        """
        return self._singular

    def _require_regular(self) -> None:
        if self._singular is not None:
            raise SingularError(self._singular)

    @cached_property
    def _singular(self) -> str | None:
        return singularity(self.model)


def _require_model(model: Any) -> None:
    if not isinstance(model, Model):
        raise ArgumentError(f"model: got {type(model).__name__}; wanted a robodyn.Model (robodyn.load_urdf)")


def _joint_forces(given: Any) -> tuple[str, ...]:
    chosen = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    return tuple(one_of("joint_forces", each, ("damping", "friction")) for each in chosen)


def external_force(
    model: Model, q: ArrayLike, link: str | int, wrench: ArrayLike, frame: Frame = "world_aligned"
) -> Array:
    """The `f_ext` of one wrench on one link: (..., n_bodies, 6), in world coordinates about the world's origin.

    Args:
        model: the robot.
        q: (..., nq) configurations.
        link: name or index of the link that the wrench acts on.
        wrench: (..., 6) moment (N m), then force (N).
        frame: the frame the wrench is given in: "world_aligned" (world axes, moment about the link's origin), "body"
            (the link's frame), "world" (world axes, moment about the world's origin).

    Add the results of several wrenches. A link fixed to the world takes any force; the result is zero.
    """
    _require_model(model)
    one_of("frame", frame, FRAMES)
    number = model.link_index(link)
    dyn = Dynamics(model, engine="reference", check=False)
    given = real_array("wrench", wrench, (6,), np.float64, what="moment, then force")
    query = Query(dyn, q=q)
    T = dyn._poses(query, number).reshape(*query.leading, 4, 4)
    leading = broadcast_leading({"q": (T, 2), "wrench": (given, 1)})
    moment, force = given[..., :3], given[..., 3:]
    with np.errstate(all="ignore"):
        if frame == "body":
            R = T[..., :3, :3]
            moment, force = (R @ moment[..., None])[..., 0], (R @ force[..., None])[..., 0]
        if frame != "world":
            moment = moment + np.cross(T[..., :3, 3], force)
    f_ext = np.zeros((*leading, model.n_bodies, 6))
    body = model.link_body[number]
    if body >= 0:
        f_ext[..., body, :3], f_ext[..., body, 3:] = moment, force
    return f_ext
