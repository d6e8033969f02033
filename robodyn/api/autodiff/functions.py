"""Differentiable queries: the part of `robodyn.jax` and `robodyn.torch` that does not depend on the library."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import Signature, signature
from types import MappingProxyType
from typing import Any

import numpy as np

from robodyn.algorithms.distances.tasks import Asked
from robodyn.api.autodiff.calls import Call, QueryCall, TaskCall
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.dynamics_rules import (
    QD,
    QDD,
    Distances,
    ForwardDynamics,
    InverseDynamics,
    MassMatrix,
    MassMatrixInverse,
    PotentialEnergy,
    Q,
    Solve,
    Torques,
)
from robodyn.api.autodiff.obstacles import SHAPES, ObstacleDistances, arrays_of, parts, require_shapes
from robodyn.api.autodiff.poses import BodyPoses, OfPoses, with_links_for_bodies
from robodyn.api.autodiff.rules import Library
from robodyn.api.autodiff.steps import Stepping
from robodyn.api.autodiff.traced_rules import Answers
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.queries.contacts import PARAMETERS
from robodyn.api.queries.core import checked_choice, links_of, point_shapes
from robodyn.api.queries.obstacles import Obstacles, rows_of
from robodyn.core.model import Model
from robodyn.engines.query_table import BASE, CONSTRAINED, QUERIES, QuerySpec, QueryVariant, asked_of, find
from robodyn.internals.arguments import broadcast_leading, finite_number, require_few_axes, wanted_shape
from robodyn.internals.errors import ArgumentError, SingularError
from robodyn.internals.messages import quoted

OF_SHAPES = ("distances", "min_distance", "is_free")
"""Functions about shapes, which take obstacles."""
WITH_RULES = (
    *("inverse_dynamics", "forward_dynamics", "bias_force", "gravity_force", "mass_matrix", "mass_matrix_inverse"),
    *("kinetic_energy", "potential_energy", "forward_kinematics", "center_of_mass"),
    *OF_SHAPES,
    *("coordinate_rate", "unit_coordinates"),
)
"""Functions with derivative rules written by hand; derivatives of other queries are those of their programs."""
STATIC = ("link", "links", "relative_to", "frame", "classical", "axes")
"""Arguments that are no arrays."""
NOTHING: Mapping[str, tuple[int, ...]] = MappingProxyType({})
"""No special shapes of arguments."""
_NOT_HERE = ("self", "out", "method", "obstacles", "pairs", "dt", *PARAMETERS)
"""Parameters of methods of `Dynamics` that these functions lack; those of contacts are the defaults."""


class DifferentiableDynamics(Stepping):
    """Queries of a robot as differentiable functions.

    Shapes, units, frames and order of components are those of `robodyn.Dynamics`. Leading axes broadcast. The
    `joint_forces` of `dyn` are included. Coordinates are differentiated as nq plain numbers. Quaternions are normalised
    inside, so that the gradient with respect to a quaternion is orthogonal to it.

    All queries of `robodyn.engines.query_table` are available with all of their arrays, those about constraints for
    models that have some, which `step` and `rollout` obey; the others ignore constraints. Those of `WITH_RULES` have
    first and second derivatives for robots of any size, with the model's inertias and a base at rest. All others, and
    these with `inertia`, `V0` or `dV0`, have derivatives of every order with respect to all of their arrays. These
    derivatives are straight-line programs, so the robot must be small enough for the program to be compiled.

    Args:
        dyn: the robot's `Dynamics`, or its `Model`. Results have its dtype.
        library: the differentiating library.
    """

    def __init__(self, dyn: Dynamics | Model, library: Library) -> None:
        self.dyn = dynamics_of(dyn, "functions that are differentiated", "of the tree alone")
        self.model = model = self.dyn.model
        self._library = library
        self._calls: dict[tuple[Any, ...], Call] = {}
        self._plain = plain = self.dyn.variant(joint_forces=())
        weightless = plain.variant(replace(model, gravity=np.zeros(3)))
        self._coordinates = coordinates = Coordinates(model, library.xp, library.constant, library.fixed)
        torques = Torques(plain, plain, library, coordinates)
        without_weight = Torques(weightless, plain, library, coordinates)
        self._inverse_dynamics = InverseDynamics(torques, "inverse_dynamics", (Q, QD, QDD))
        self._bias_force = InverseDynamics(torques, "bias_force", (Q, QD))
        self._gravity_force = InverseDynamics(torques, "gravity_force", (Q,))
        self._momentum = InverseDynamics(without_weight, "inverse_dynamics", (Q, QDD))
        self._forward_dynamics = ForwardDynamics(torques, Solve(without_weight))
        self._mass_matrix = MassMatrix(without_weight)
        self._mass_matrix_inverse = MassMatrixInverse(self._mass_matrix)
        self._potential_energy = PotentialEnergy(self._gravity_force)
        self._poses = BodyPoses(plain.variant(with_links_for_bodies(model)), library, coordinates)
        self._of_poses = OfPoses(model, library)
        self._of_shapes = {name: Distances(plain, name, library, coordinates) for name in ("distances", "min_distance")}
        self._parts: dict[tuple[str, Asked], ObstacleDistances] = {}
        self._damping, self._friction = (
            library.constant(getattr(model, name)) if name in self.dyn.joint_forces else None
            for name in ("damping", "friction")
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.dyn!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's argument only."""
        return type(self), (self.dyn,)

    @abstractmethod
    def _read(self, name: str, value: Any) -> Any:
        """Convert an argument to an array of the library in the working precision; may raise an ArgumentError."""

    def _wanted(self, name: str) -> str:
        """What an argument shall be, for messages."""
        return f"wanted an array {SHAPES[name]}" if name in SHAPES else wanted_shape(self.dyn.argument_shapes[name])

    def _state(self, **given: Any) -> tuple[Any, ...]:
        """Read arguments, q first: quaternions become unit, and all arrays get equally many leading axes. f_ext may be
        None."""
        arrays = self._arrays(given, ("f_ext",))
        return tuple(arrays.get(name) for name in given)

    def _arrays(
        self, given: Mapping[str, Any], optional: tuple[str, ...], points: Mapping[str, tuple[int, ...]] = NOTHING
    ) -> dict[str, Any]:
        """Read the arguments that are not None: quaternions become unit, and all arrays get equally many leading axes.
        `points`: shapes that differ from `Dynamics.argument_shapes`."""
        shapes = {**self.dyn.argument_shapes, **points}
        for name in given:
            if given[name] is None and name not in optional:
                raise ArgumentError(f"{name}: got None; {wanted_shape(shapes[name])}")
        arrays = {name: self._read(name, value) for name, value in given.items() if value is not None}
        for name, wanted in points.items():
            if name in arrays and tuple(arrays[name].shape) == wanted[1:]:  # one for all links
                arrays[name] = arrays[name] + self._library.constant(np.zeros(wanted))
        for name, array in arrays.items():
            wanted, shape = shapes[name], tuple(array.shape)
            if shape[max(0, len(shape) - len(wanted)) :] != wanted:
                raise ArgumentError(f"{name}: got shape {shape}; {wanted_shape(wanted)}")
            require_few_axes(name, len(shape) - len(wanted))
        leading = broadcast_leading({name: (array, len(shapes[name])) for name, array in arrays.items()})
        for name, array in arrays.items():
            missing = len(leading) + len(shapes[name]) - len(array.shape)
            arrays[name] = array.reshape((1,) * missing + tuple(array.shape)) if missing else array
        arrays["q"] = self._unit(arrays["q"])
        return arrays

    # Queries without rules of their own.

    def __getattr__(self, name: str) -> Any:
        """A query without a method of this class, made at its first access."""
        if name.startswith("_") or (question := find(name)) is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name not in asked_of(self.model):
            missing = "constraints" if name in CONSTRAINED else "shapes"
            raise AttributeError(f"{name}: {quoted(self.model.name)} has no {missing}")
        function = self.__dict__[name] = self._generic(question)
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *asked_of(self.model)})

    def _generic(self, question: QuerySpec) -> Callable[..., Any]:
        """The query as a function of the library's arrays."""
        return Generic(self, question)

    def _answer(self, question: QuerySpec, given: dict[str, Any]) -> Any:
        """Results of a query from its arguments by name: one array, or a tuple."""
        of_links = [given.pop(name, None) for name in ("link", "links", "relative_to")]
        link, places = links_of(self.model, *of_links) if question.of_link else (None, None)
        chosen = {name: checked_choice(self.model, name, given.pop(name)) for name in STATIC if name in given}
        chosen["places"] = places
        if given.get("inertia") is None:  # testing a user's inertias would read their values
            self.dyn._require_possible(question)
        arrays = self._arrays(given, question.optional, NOTHING if places is None else point_shapes(places))
        self.dyn._require_loads(question, arrays)
        forces = question.joint_forces if self.dyn.joint_forces else {}
        for name in forces:
            if name in arrays:
                arrays[name] = _sum(arrays[name], _negative(self._joint_force(arrays["qd"])))
        names = tuple(name for name in question.arrays if name in arrays)
        call = self._call(question, names, link, bool(forces), **chosen)
        points = tuple(arrays[name] for name in names)
        outputs = self._library.linear(Answers(call, self._library), points, ())
        results = dict(zip(question.results, outputs, strict=True))
        for name, part in forces.items():
            if name in results:
                results[name] = _sum(results[name], self._force_added(part, arrays))
        return tuple(results.values()) if len(results) > 1 else next(iter(results.values()))

    def _call(self, question: QuerySpec, names: tuple[str, ...], link: int | None, forces: bool, **chosen: Any) -> Call:
        """The cached `Call` of a query: its method, or its task if joint forces are added here instead."""
        key = question.name, names, link, forces, *chosen.values()
        if key not in self._calls:
            dyn = self._library.asked(self._plain)
            if forces:
                inputs = tuple(name for name in names if name not in BASE)
                task = question.made(QueryVariant(self.model, inputs, damping=self._damping is not None, **chosen))
                base = tuple(name for name in names if name in BASE)
                self._calls[key] = TaskCall(dyn, question.name, task, base, link, checks=True)
            else:
                self._calls[key] = QueryCall(dyn, question, names, link, **chosen)
        return self._calls[key]

    def _force_added(self, part: str, arrays: Mapping[str, Any]) -> Any:
        """The contribution of joint forces to a result, or None. `part`: see
        `robodyn.engines.query_table.QuerySpec.joint_forces`."""
        if part == "force":
            return self._joint_force(arrays["qd"])
        if self._damping is None:
            return None
        if part == "slope":
            return self._library.constant(np.diag(self.model.damping))
        return self._damping * arrays["vector"]

    def _unit(self, q: Any) -> Any:
        return self._coordinates.unit(q)

    def _joint_force(self, qd: Any) -> Any:
        """Generalised force of damping and friction, or None."""
        force = None if self._damping is None else self._damping * qd
        if self._friction is None:
            return force
        friction = self._friction * self._library.xp.sign(qd)
        return friction if force is None else force + friction

    def _external(self, q: Any, f_ext: Any) -> Any:
        """Generalised forces of external forces, or None."""
        return None if f_ext is None else self._poses.generalised(self._body_poses(q), f_ext)

    def _require_regular(self, held: bool = False) -> None:
        reason = self.dyn._loose if held else self.dyn.singularity()
        if reason is not None:
            raise SingularError(reason)

    def _body_poses(self, q: Any) -> Any:
        return self._library.smooth(self._poses, q)

    def inverse_dynamics(
        self, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None, inertia: Any = None, V0: Any = None, dV0: Any = None
    ) -> Any:
        """Inverse dynamics: generalised forces tau (..., nv) for accelerations qdd."""
        optional = {"inertia": inertia, "V0": V0, "dV0": dV0}
        if _any(optional):
            return self._answer(QUERIES["inverse_dynamics"], {"q": q, "qd": qd, "qdd": qdd, "f_ext": f_ext, **optional})
        q, qd, qdd, f_ext = self._state(q=q, qd=qd, qdd=qdd, f_ext=f_ext)
        tau = self._library.smooth(self._inverse_dynamics, q, qd, qdd)
        return _sum(tau, self._joint_force(qd), _negative(self._external(q, f_ext)))

    def forward_dynamics(
        self, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, inertia: Any = None, V0: Any = None, dV0: Any = None
    ) -> Any:
        """Forward dynamics: accelerations qdd (..., nv) under generalised forces tau.

        Raises:
            SingularError: the mass matrix is singular at every state; names the body.
        """
        optional = {"inertia": inertia, "V0": V0, "dV0": dV0}
        if _any(optional):
            return self._answer(QUERIES["forward_dynamics"], {"q": q, "qd": qd, "tau": tau, "f_ext": f_ext, **optional})
        self._require_regular()
        q, qd, tau, f_ext = self._state(q=q, qd=qd, tau=tau, f_ext=f_ext)
        tau = _sum(tau, _negative(self._joint_force(qd)), self._external(q, f_ext))
        return self._library.smooth(self._forward_dynamics, q, qd, tau)

    def bias_force(
        self, q: Any, qd: Any, *, f_ext: Any = None, inertia: Any = None, V0: Any = None, dV0: Any = None
    ) -> Any:
        """Bias force (..., nv): inverse dynamics at qdd = 0."""
        optional = {"inertia": inertia, "V0": V0, "dV0": dV0}
        if _any(optional):
            return self._answer(QUERIES["bias_force"], {"q": q, "qd": qd, "f_ext": f_ext, **optional})
        q, qd, f_ext = self._state(q=q, qd=qd, f_ext=f_ext)
        bias = self._library.smooth(self._bias_force, q, qd)
        return _sum(bias, self._joint_force(qd), _negative(self._external(q, f_ext)))

    def gravity_force(self, q: Any, *, inertia: Any = None) -> Any:
        """Generalised forces (..., nv) that hold the robot still against gravity."""
        if inertia is not None:
            return self._answer(QUERIES["gravity_force"], {"q": q, "inertia": inertia})
        return self._library.smooth(self._gravity_force, *self._state(q=q))

    def mass_matrix(self, q: Any, *, inertia: Any = None) -> Any:
        """The joint-space inertia matrix H (..., nv, nv)."""
        if inertia is not None:
            return self._answer(QUERIES["mass_matrix"], {"q": q, "inertia": inertia})
        return self._library.smooth(self._mass_matrix, *self._state(q=q))

    def mass_matrix_inverse(self, q: Any, *, inertia: Any = None) -> Any:
        """The inverse H^-1 (..., nv, nv) of the mass matrix.

        Raises:
            SingularError: H is singular at every state; names the body.
        """
        if inertia is not None:
            return self._answer(QUERIES["mass_matrix_inverse"], {"q": q, "inertia": inertia})
        self._require_regular()
        return self._library.smooth(self._mass_matrix_inverse, *self._state(q=q))

    def kinetic_energy(self, q: Any, qd: Any, *, inertia: Any = None, V0: Any = None) -> Any:
        """Kinetic energy (...), J: qd' H qd / 2 for a base at rest."""
        optional = {"inertia": inertia, "V0": V0}
        if _any(optional):
            return self._answer(QUERIES["kinetic_energy"], {"q": q, "qd": qd, **optional})
        q, qd = self._state(q=q, qd=qd)
        return 0.5 * (qd * self._library.smooth(self._momentum, q, qd)).sum(-1)

    def potential_energy(self, q: Any, *, inertia: Any = None) -> Any:
        """Potential energy (...), J."""
        if inertia is not None:
            return self._answer(QUERIES["potential_energy"], {"q": q, "inertia": inertia})
        return self._library.smooth(self._potential_energy, *self._state(q=q))

    def forward_kinematics(self, q: Any) -> Any:
        """Homogeneous transforms (..., n_links, 4, 4), link to world coordinates, in `model.link_names` order."""
        return self._of_poses.links(self._body_poses(*self._state(q=q)))

    def center_of_mass(self, q: Any, *, inertia: Any = None) -> Any:
        """Centre of mass (..., 3) in world coordinates, m, of all moving bodies.

        Raises:
            NumericalError: no moving body has mass.
        """
        if inertia is not None:
            return self._answer(QUERIES["center_of_mass"], {"q": q, "inertia": inertia})
        self.dyn._require_mass()
        return self._of_poses.center_of_mass(self._body_poses(*self._state(q=q)))

    def distances(self, q: Any, obstacles: Any = None) -> Any:
        """Signed distances (..., n_pairs + n_shapes * n_obstacles), m, as `robodyn.Dynamics.distances`.

        Derivatives are of first order only, by q and by the arrays of obstacles. Those by poses of boxes hold along
        rigid motions.

        Args:
            obstacles: `robodyn.Obstacles`, which are constants, or a dict of arrays of the library by the names of its
                arguments: spheres, capsules, boxes=(poses, edges), and ignore=[links]. Values are not checked.
        """
        return self._measured("distances", q, obstacles)

    def min_distance(self, q: Any, obstacles: Any = None) -> Any:
        """The least of `distances` (...), m; its derivative is that of one that is least."""
        return self._measured("min_distance", q, obstacles)

    def is_free(self, q: Any, obstacles: Any = None, *, clearance: float = 0.0) -> Any:
        """True (...) where `min_distance` is above the clearance (m); False where it is NaN. It has no derivative."""
        least = finite_number("clearance", clearance)
        return self._measured("min_distance", q, obstacles) > least

    def _measured(self, name: str, q: Any, obstacles: Any) -> Any:
        """Distances to obstacles of a user, or the least of them."""
        self._require_shapes(name)
        given, ignore = arrays_of(obstacles)
        constants = isinstance(obstacles, Obstacles)
        read = {
            key: self._library.constant(np.asarray(array)) if constants else self._read(key, array)
            for key, array in given.items()
        }
        require_shapes(read)
        near = Obstacles(ignore=ignore).near(self.model) if read else ()
        return self._distances(name, near, self._read("q", q), read)

    def _require_shapes(self, name: str) -> None:
        if not self.model.collision_geometries:
            raise ArgumentError(f"{name}: {quoted(self.model.name)} has no shapes; wanted Model.with_shapes")

    def _distances(self, name: str, near: tuple[int, ...], q: Any, arrays: Mapping[str, Any]) -> Any:
        """`distances` or `min_distance` of arrays of the library. `near`: shapes that are measured to obstacles."""
        library, xp = self._library, self._library.xp
        rows = rows_of(arrays, xp)
        if not rows:
            return library.smooth(self._of_shapes[name], *self._state(q=q))
        leading = broadcast_leading({"q": (q, 1), **{kind: (array, 2) for kind, array in rows.items()}})
        rows = {
            kind: array.reshape((1,) * (len(leading) + 2 - array.ndim) + tuple(array.shape))
            for kind, array in rows.items()
        }
        (q,) = self._state(q=q)
        q = q.reshape((1,) * (len(leading) + 1 - q.ndim) + tuple(q.shape))
        found = [library.smooth(self._of_shapes[name], q)] if self.model.pairs else []
        columns: dict[str, list[Any]] = {kind: [] for kind in rows}
        for asked, blocks, k in parts(self.model, near, rows, library):
            d = library.smooth(self._to_obstacles(name, asked), q[..., None, :], blocks)
            if name == "min_distance":
                found.append(xp.amin(d, -1))
            else:
                d = d.reshape((*d.shape[:-1], len(asked.near), asked.count)).swapaxes(-3, -2)
                columns[asked.kind].append(d.reshape((*d.shape[:-2], d.shape[-2] * d.shape[-1]))[..., :k])
        if name == "min_distance":
            if not found:
                raise ArgumentError(f"{name}: {quoted(self.model.name)} has no pairs of shapes, nor any near obstacles")
            return functools.reduce(xp.minimum, found)
        of_kinds = [xp.concatenate(each, -2) for each in columns.values() if each]
        if of_kinds:
            joined = xp.concatenate([xp.broadcast_to(each, (*leading, *each.shape[-2:])) for each in of_kinds], -1)
            found.append(joined.reshape((*leading, joined.shape[-2] * joined.shape[-1])))
        return xp.concatenate([xp.broadcast_to(each, (*leading, each.shape[-1])) for each in found], -1)

    def _to_obstacles(self, name: str, asked: Asked) -> ObstacleDistances:
        """The cached function of some shapes and obstacles."""
        key = name, asked
        if key not in self._parts:
            dyn = self._library.asked(self._plain)
            self._parts[key] = ObstacleDistances(dyn, name, asked, self._library, self._coordinates)
        return self._parts[key]

    def coordinate_rate(self, q: Any, qd: Any) -> Any:
        """Rate dq/dt (..., nq) of the coordinates at velocity qd, for integrators that treat q as plain numbers.

        Quaternions are normalised first, and their rate is orthogonal to them. An integrator lets their length drift
        slowly, which does no harm; `unit_coordinates` normalises them.
        """
        q, qd = self._state(q=q, qd=qd)
        return self._new(q, self._coordinates.rate(self._coordinates.unit(q), qd))

    def unit_coordinates(self, q: Any) -> Any:
        """q (..., nq) with quaternions scaled to unit length."""
        (q,) = self._state(q=q)
        return self._new(q, self._coordinates.unit(q))

    def _new(self, q: Any, array: Any) -> Any:
        """Copy an array (..., nq), broadcast with q. Without quaternions the array may be an argument itself, and users
        may write to results."""
        return array + self._library.xp.zeros_like(q)


class Generic:
    """A query of a `DifferentiableDynamics`, made from its row of the query table."""

    def __init__(self, functions: DifferentiableDynamics, question: QuerySpec) -> None:
        method = getattr(type(functions.dyn), question.name)
        self.__self__, self._question = functions, question
        self.__name__, self.__doc__ = question.name, method.__doc__
        parameters = [each for name, each in signature(method).parameters.items() if name not in _NOT_HERE]
        self.__signature__ = Signature([each.replace(annotation=each.empty) for each in parameters])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Answer like the method of `Dynamics`."""
        try:
            bound = self.__signature__.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"{self.__name__}(): {error}") from None
        bound.apply_defaults()
        return self.__self__._answer(self._question, dict(bound.arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle like a bound method."""
        return getattr, (self.__self__, self.__name__)


def _any(given: Mapping[str, Any]) -> bool:
    """Whether an argument is given that only programs support."""
    return any(value is not None for value in given.values())


def _sum(first: Any, *others: Any) -> Any:
    for other in others:
        first = first if other is None else first + other
    return first


def _negative(array: Any) -> Any:
    return None if array is None else -array
