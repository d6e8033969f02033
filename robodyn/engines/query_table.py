"""The table of queries: one row for each query of `Dynamics`.

Engines, the command line, exports, the bridges to JAX and PyTorch, benchmarks, native entries and the documentation
read this table. docs/add_a_query.md explains how to add a row. The module is long because it is a table: first the
definition of a row, then the rows, to be looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, NoReturn, cast

import numpy as np

from robodyn.algorithms import energy, kinematic_gradients, kinematics, momentum, motion_gradients
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.constraints.tasks import constraint_task
from robodyn.algorithms.contacts.points import contact_points_task
from robodyn.algorithms.contacts.tasks import contact_answer
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.distances.tasks import distance_task
from robodyn.algorithms.forward_gradient import forward_by_mass_matrix, forward_gradient, inverse_by_mass_matrix
from robodyn.algorithms.forward_hessian import forward_hessian
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.regressor import (
    BODY_REGRESSOR,
    EXTERNAL_FORCE_GRADIENT,
    FORWARD_EXTERNAL_FORCE_GRADIENT,
    FORWARD_GRAVITY_GRADIENT,
    GRAVITY_GRADIENT,
    KINETIC_ENERGY_REGRESSOR,
    POTENTIAL_ENERGY_REGRESSOR,
    REGRESSOR,
    forward_regressor,
)
from robodyn.algorithms.relative_motion import RELATIVE, of_places
from robodyn.algorithms.rest_gradient import GRAVITY_FORCE_GRADIENT, MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.algorithms.rnea import joint_reaction, rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.rnea_vjp import rnea_vjp
from robodyn.algorithms.tasks import Chain, ScalarTask, Task, on_inertia, with_identity_seeds
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.joints import CODE
from robodyn.core.model import Model
from robodyn.core.sweeps import INPUTS, PER_ROW, Algorithm, with_given
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass

FRAMES = ("world", "body", "world_aligned")
FORCE_AXES = ("to", "world")
"""Axes of constraint forces: those of the frame on `to`, or the world's."""
BASE = ("V0", "dV0")
"""Velocity and acceleration of the base: inputs of every algorithm, zero if they are not given."""
OF_CONSTRAINTS = ("targets", "active", "restitution", *PER_ROW)
"""Inputs of queries about constraints only."""
FLAGS = ("active",)
"""Inputs that are flags. Arrays of bool are allowed."""
_ARRAYS = tuple(name for name in INPUTS if name != "armature")
"""Inputs that a query may take. An armature for each state is an input of integrators' steps only."""
RECURSIONS = ("reference", "cpu", "gpu")
"""Engines that run algorithms, and so answer every query."""
EVERYWHERE = (*RECURSIONS, "scan")
_COUNTED_BODIES = 8
"""For trees of at most so many bodies with other joints than revolute and helical ones, operations are counted to
choose a formulation of the gradient of inverse dynamics: columns in body frames (`rnea_gradient`) are cheaper on some
of them. On all other trees composites (`idsva`) are cheaper. Counting traces both, which delays the first answer."""


@dataclass(frozen=True)
class LinkSelection:
    """The links of a call that is not about exactly one link: `links` by index. `several`: True if results have an axis
    for the links. `relative_to`: index of the link relative to which motions are measured, or None."""

    links: tuple[int, ...]
    several: bool
    relative_to: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `Dynamics` methods."""
        selection = {"links": list(self.links)} if self.several else {"link": self.links[0]}
        return {**selection, "relative_to": self.relative_to} if self.relative_to is not None else selection


@dataclass(frozen=True)
class QueryVariant:
    """A variant of a query, for which a task is made: the model, the names of the input arrays (without V0 and dV0, in
    the order of `robodyn.core.sweeps.INPUTS`), and the options of the call.

    `damping`: True if joints are damped by the model's coefficients; `places`: links, for queries that are not about
    exactly one link; `axes`: those of constraint forces.
    """

    model: Model
    inputs: tuple[str, ...]
    method: str = "auto"
    frame: Frame = "world_aligned"
    classical: bool = False
    damping: bool = False
    places: LinkSelection | None = None
    axes: str = "to"


AXES: dict[str, Callable[[Model], int]] = {
    "nq": lambda model: model.nq,
    "nv": lambda model: model.nv,
    "n_rows": lambda model: model.n_rows,
    "n_links": lambda model: len(model.link_names),
    "n_bodies": lambda model: model.n_bodies,
    "n_pairs": lambda model: model.n_pairs,
    "n_slots": lambda model: len(model.contacts.slot_pairs) if model.contacts is not None else 0,
    "parameters": lambda model: 10 * model.n_bodies,
}
"""Names of axes of results, and functions for their lengths."""


@dataclass(frozen=True)
class Result:
    """A result of a query: its axes after those of the batch, and its unit.

    `axes`: lengths, or names in `AXES`. `unit`: SI units in words, or quantities whose units depend on the model, rows
    over columns: "tau / qdd". "step" is a small change of q on the tangent space.
    """

    axes: tuple[int | str, ...]
    unit: str

    def shape(self, model: Model) -> tuple[int, ...]:
        """Shape of the result for one state."""
        return tuple(AXES[axis](model) if isinstance(axis, str) else axis for axis in self.axes)


@dataclass(frozen=True)
class Method:
    """A method that `method=` can name, and the engines that implement it.

    `recursive`: True if the method treats every joint as independent; models with mimicking joints cannot use it.
    """

    name: str
    engines: tuple[str, ...] = RECURSIONS
    recursive: bool = False


@dataclass(frozen=True)
class QuerySpec:
    """A query of `Dynamics`.

    Args:
        name: name of the method of `Dynamics`.
        inputs: required arrays, in the order of the method's arguments.
        optional: optional arrays: "vector", "f_ext", "inertia", "V0", "dV0", and "point" of queries about a link.
            Without an optional vector, every result has one more axis in front, for the unit vectors that take its
            place.
        results: results in order.
        task: makes the task that engines with algorithms run; the results are the task's outputs, in order. Equal
            arguments must return the same object: engines compare tasks by identity.
        about: a sentence that describes the query.
        methods: methods that `method=` can name besides "auto"; empty if there is no choice.
        needs: "inverse" if the mass matrix must be invertible, "held" if constraints may hold what makes it singular,
            "mass" if a moving part must have mass.
        joint_forces: how damping and friction enter, if `Dynamics` is told to count them. Keys: a result that they are
            added to, or an input that they are subtracted from. Values: "force", "slope" (damping, on the diagonal) or
            "slope of vector" (damping times the vector). Empty: they do not affect the query.
        engines: engines that answer the query.
        of_link: True if the query is about one link.
        in_frame: True if the result is a link's motion, expressed in a frame that the caller chooses.
        of_constraints: True if the query is about the model's constraints.
        of_shapes: True if the query is about the model's shapes.
        of_contacts: True if the query is about the model's contacts.
        of_loads: True if the result depends on all forces on bodies: if the model has constraints, `f_ext` is required.
        short: a shorter name, for the command line and for names in C.
        eager: True if `compile="eager"` compiles the query at once.
        variants: further names on the command line, and the options that they stand for.
        check_precision: True if results in single precision are compared with results in double precision.
    """

    name: str
    inputs: tuple[str, ...]
    results: Mapping[str, Result]
    task: Callable[[QueryVariant], Task]
    about: str
    optional: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()
    needs: tuple[str, ...] = ()
    joint_forces: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = RECURSIONS
    of_link: bool = False
    in_frame: bool = False
    of_constraints: bool = False
    of_shapes: bool = False
    of_contacts: bool = False
    of_loads: bool = False
    short: str = ""
    eager: bool = False
    variants: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    check_precision: bool = False

    def __post_init__(self) -> None:
        of_others = {*(() if self.of_link else ("point",)), *(() if self.of_constraints else OF_CONSTRAINTS)}
        allowed = tuple(name for name in (*_ARRAYS, *BASE) if name not in of_others)
        if self.inputs != tuple(name for name in _ARRAYS if name in self.inputs) or "q" not in self.inputs:
            self._wrong("inputs", self.inputs, f"q and others of {', '.join(_ARRAYS)}, in this order")
        if not set(self.optional) <= set(allowed) - set(self.inputs):
            self._wrong("optional", self.optional, f"others of {', '.join(allowed)}")
        if not set(self.needs) <= {"inverse", "held", "mass"}:
            self._wrong("needs", self.needs, "of 'inverse', 'held', 'mass'")
        axes = {axis for result in self.results.values() for axis in result.axes if isinstance(axis, str)}
        if not self.results or not axes <= set(AXES):
            self._wrong("results", dict(self.results), f"at least one, with axes that are numbers or {', '.join(AXES)}")
        parts = {"force", "slope", "slope of vector"}
        if not (set(self.joint_forces) <= {*self.results, "tau"} and set(self.joint_forces.values()) <= parts):
            self._wrong(
                "joint_forces", dict(self.joint_forces), f"names of results, or tau, to {', '.join(sorted(parts))}"
            )
        if self.joint_forces and "qd" not in self.inputs:
            self._wrong("joint_forces", dict(self.joint_forces), "none for a query without qd")

    def _wrong(self, field: str, got: object, wanted: str) -> NoReturn:
        raise ArgumentError(f"question {self.name!r}: {field}: got {got!r}; wanted {wanted}")

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of all its arrays, in the order in which engines take them."""
        return tuple(name for name in (*INPUTS, *BASE) if name in self.inputs or name in self.optional)

    @property
    def plain(self) -> tuple[str, ...]:
        """Arrays of a plain call: the required ones, and a vector to contract with."""
        return tuple(name for name in INPUTS if name in self.inputs or (name == "vector" and name in self.optional))

    def is_answered_by(self, engine: str) -> bool:
        """True if an engine answers the query. Engines that no row names run algorithms, which answer all queries."""
        return engine in self.engines or engine not in EVERYWHERE

    def shapes(
        self, model: Model, given: Iterable[str], places: LinkSelection | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Shapes of all results for one state, if arrays with these names are given."""
        stacked = "vector" in self.optional and "vector" not in given
        more: tuple[int, ...] = (model.nv,) if stacked else ()
        if places is not None and places.several:
            more = (len(places.links),)
        return {name: (*more, *result.shape(model)) for name, result in self.results.items()}

    def arguments(self, arrays: Mapping[str, Any], link: str | int | None = None) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of its `Dynamics` method, from arrays by name and the link."""
        positional = [name for name in self.inputs if name != "vector"]
        by_place = [arrays[name] for name in positional] + ([link] if self.of_link and link is not None else [])
        return by_place, {name: array for name, array in arrays.items() if name not in positional}

    def made(self, asked: QueryVariant) -> Task | ScalarTask:
        """The task, with inertias and points as inputs if these are given.

        Raises:
            ArgumentError: the task contradicts the row.
        """
        task = self.task(asked)
        if len(task.outputs) != len(self.results):
            self._wrong("results", tuple(self.results), f"one for each output of its task, {', '.join(task.outputs)}")
        if self.of_link != any(getattr(sweep, "of_link", False) for sweep in task.sweeps):
            self._wrong("of_link", self.of_link, f"{not self.of_link}, as its task {task.name!r} has it")
        if asked.places is not None:
            return self._of_places(cast(Algorithm, task), asked.places, asked)
        if self.of_constraints or self.of_shapes or self.of_contacts:
            return task
        if "point" in asked.inputs:
            return with_given(cast(Algorithm, task), "point")
        return on_inertia(task) if "inertia" in asked.inputs else task

    def _of_places(self, task: Algorithm, places: LinkSelection, asked: QueryVariant) -> ScalarTask:
        """The task for several links, or for motion relative to another link."""
        return of_places(
            self.name,
            task,
            tuple(result.axes for result in self.results.values()),
            places.links,
            places.several,
            places.relative_to,
            "point" in asked.inputs,
            asked.frame,
            asked.classical,
        )

    @property
    def can_be_relative(self) -> bool:
        """True if the query can be about a link's motion relative to another link."""
        return self.name in RELATIVE

    def plain_task(self, model: Model) -> Task:
        """The task of a plain call."""
        return self.task(QueryVariant(model, self.plain))

    def methods_on(self, engine: str) -> tuple[str, ...]:
        """Names of its methods on an engine. Engines that no row names have those of the reference engine."""
        known = engine if engine in EVERYWHERE else "reference"
        return tuple(method.name for method in self.methods if known in method.engines)

    def possible(self, model: Model, engine: str) -> tuple[str, ...]:
        """Names of its methods on an engine that work for a model."""
        recursive = [method.name for method in self.methods if method.recursive and model.has_mimic]
        return tuple(name for name in self.methods_on(engine) if name not in recursive)


_SCAN = ("scan",)
_FORCES = ("f_ext", "inertia", *BASE)


def _one_tree(asked: QueryVariant) -> bool:
    return int((asked.model.parent < 0).sum()) == 1


def _cheapest_gradient(model: Model, inputs: tuple[str, ...]) -> Algorithm:
    """The formulation of the gradient of inverse dynamics with the fewest operations."""
    turns = np.isin(model.joint_kind, (CODE["revolute"], CODE["helical"])).all()
    heavy = model.inertia.any(axis=1).all()
    return idsva(inputs) if (turns and heavy) or model.n_bodies > _COUNTED_BODIES else _counted_gradient(model, inputs)


@lru_cache(maxsize=64)
def _counted_gradient(model: Model, inputs: tuple[str, ...]) -> Algorithm:
    return min((idsva(inputs), rnea_gradient(inputs)), key=lambda each: trace(model, each).operations)


def _gradient(asked: QueryVariant) -> Task:
    if asked.method == "auto":
        return _cheapest_gradient(asked.model, asked.inputs)
    return {"idsva": idsva, "columns": rnea_gradient}[asked.method](asked.inputs)


def _forward(asked: QueryVariant) -> Task:
    by_matrix = asked.model.has_mimic or asked.method == "crba"
    return forward_by_mass_matrix(asked.inputs) if by_matrix else aba(asked.inputs)


def _contracted(contraction: Callable[[tuple[str, ...]], Algorithm | Chain], asked: QueryVariant) -> Task:
    """A contraction with the given vector, or with every unit vector if none is given."""
    task = contraction(tuple(name for name in INPUTS if name == "vector" or name in asked.inputs))
    return task if "vector" in asked.inputs else with_identity_seeds(task)


_DYNAMICS = (
    QuerySpec(
        "inverse_dynamics",
        ("q", "qd", "qdd"),
        {"tau": Result(("nv",), "tau")},
        lambda asked: rnea(asked.inputs),
        "Inverse dynamics: the generalised forces tau that give accelerations qdd.",
        optional=_FORCES,
        methods=(Method("rnea", EVERYWHERE), Method("rnea_world", _SCAN), Method("twist_pair", _SCAN)),
        joint_forces={"tau": "force"},
        engines=EVERYWHERE,
        short="id",
        eager=True,
    ),
    QuerySpec(
        "forward_dynamics",
        ("q", "qd", "tau"),
        {"qdd": Result(("nv",), "qdd")},
        _forward,
        "Forward dynamics: the accelerations qdd under generalised forces tau.",
        optional=_FORCES,
        methods=(
            Method("aba", recursive=True),
            Method("aba_scan", _SCAN, recursive=True),
            Method("crba", EVERYWHERE),
            Method("jsiia", _SCAN),
            Method("hybrid_abia", _SCAN, recursive=True),
            Method("hybrid_abia_fused", _SCAN, recursive=True),
            Method("cfa", _SCAN, recursive=True),
        ),
        needs=("inverse",),
        joint_forces={"tau": "force"},
        engines=EVERYWHERE,
        short="fd",
        eager=True,
    ),
    QuerySpec(
        "mass_matrix",
        ("q",),
        {"H": Result(("nv", "nv"), "tau / qdd")},
        lambda _: CRBA,
        "The joint-space inertia matrix H, armature included.",
        optional=("inertia",),
        engines=EVERYWHERE,
        eager=True,
    ),
    QuerySpec(
        "mass_matrix_inverse",
        ("q",),
        {"Hinv": Result(("nv", "nv"), "qdd / tau")},
        lambda asked: inverse_by_mass_matrix() if asked.model.has_mimic else INVERSE_MASS_MATRIX,
        "The inverse of the joint-space inertia matrix.",
        optional=("inertia",),
        needs=("inverse",),
    ),
    QuerySpec(
        "bias_force",
        ("q", "qd"),
        {"bias": Result(("nv",), "tau")},
        lambda asked: rnea(asked.inputs),
        "Inverse dynamics at qdd = 0: Coriolis, centrifugal and gravity forces, minus external ones.",
        optional=_FORCES,
        joint_forces={"bias": "force"},
        engines=EVERYWHERE,
        short="bias",
        eager=True,
    ),
    QuerySpec(
        "gravity_force",
        ("q",),
        {"gravity": Result(("nv",), "tau")},
        lambda asked: rnea(asked.inputs),
        "Generalised forces that hold the robot still against gravity.",
        optional=("inertia",),
        engines=EVERYWHERE,
        short="gravity",
    ),
    QuerySpec(
        "coriolis_matrix",
        ("q", "qd"),
        {"C": Result(("nv", "nv"), "tau / qd")},
        lambda _: CORIOLIS_MATRIX,
        "The matrix C with C qd + gravity = bias, and dH/dt - 2 C skew-symmetric.",
        optional=("inertia", "V0"),
        short="coriolis",
    ),
    QuerySpec(
        "joint_reaction",
        ("q", "qd", "qdd"),
        {"reaction": Result(("n_bodies", 6), "N m, N")},
        lambda asked: joint_reaction(asked.inputs),
        "Forces that each joint transmits to its body and what follows it, in the body's frame about its origin.",
        optional=_FORCES,
        of_loads=True,
    ),
)

_DERIVATIVES = (
    QuerySpec(
        "inverse_dynamics_gradient",
        ("q", "qd", "qdd"),
        {"dtau_dq": Result(("nv", "nv"), "tau / step"), "dtau_dqd": Result(("nv", "nv"), "tau / qd")},
        _gradient,
        "Derivatives of inverse dynamics: row i, column j is that of tau[i] by q[j] (on the tangent space: a small "
        "velocity times time) and by qd[j].",
        optional=_FORCES,
        methods=(Method("idsva", EVERYWHERE), Method("columns")),
        joint_forces={"dtau_dqd": "slope"},
        engines=EVERYWHERE,
        short="id_gradient",
    ),
    QuerySpec(
        "forward_dynamics_gradient",
        ("q", "qd", "tau"),
        {
            "dqdd_dq": Result(("nv", "nv"), "qdd / step"),
            "dqdd_dqd": Result(("nv", "nv"), "qdd / qd"),
            "dqdd_dtau": Result(("nv", "nv"), "qdd / tau"),
        },
        lambda asked: forward_gradient(asked.inputs, damping=asked.damping),
        "Derivatives of forward dynamics: row i, column j is that of qdd[i] by q[j] (on the tangent space), by qd[j] "
        "and by tau[j].",
        optional=_FORCES,
        needs=("inverse",),
        joint_forces={"tau": "force"},
        short="fd_gradient",
    ),
    QuerySpec(
        "inverse_dynamics_vjp",
        ("q", "qd", "qdd", "vector"),
        {
            "by_q": Result(("nv",), "W / step"),
            "by_qd": Result(("nv",), "W / qd"),
            "by_qdd": Result(("nv",), "W / qdd"),
        },
        lambda asked: rnea_vjp(asked.inputs),
        "The gradient of vector' tau by q (on the tangent space), qd and qdd; units where the vector is a velocity.",
        optional=_FORCES,
        joint_forces={"by_qd": "slope of vector"},
    ),
    QuerySpec(
        "inverse_dynamics_hessian",
        ("q", "qd", "qdd"),
        {
            "d2tau_dqdq": Result(("nv", "nv"), "W / step step"),
            "d2tau_dqdqd": Result(("nv", "nv"), "W / step qd"),
            "d2tau_dqddqd": Result(("nv", "nv"), "W / qd qd"),
            "d2tau_dqdqdd": Result(("nv", "nv"), "W / step qdd"),
        },
        lambda asked: _contracted(idsva_hessian, asked),
        "Second derivatives of vector' tau, row k, column m by component k of the first and m of the second; "
        "units where the vector is a velocity.",
        optional=("vector", *_FORCES),
        check_precision=True,
    ),
    QuerySpec(
        "forward_dynamics_hessian",
        ("q", "qd", "tau"),
        {
            "d2qdd_dqdq": Result(("nv", "nv"), "N m rad/s^2 / step step"),
            "d2qdd_dqdqd": Result(("nv", "nv"), "N m rad/s^2 / step qd"),
            "d2qdd_dqddqd": Result(("nv", "nv"), "N m rad/s^2 / qd qd"),
            "d2qdd_dqdtau": Result(("nv", "nv"), "N m rad/s^2 / step tau"),
        },
        lambda asked: _contracted(lambda inputs: forward_hessian(inputs, damping=asked.damping), asked),
        "Second derivatives of vector' qdd, row k, column m by component k of the first and m of the second; "
        "units where the vector is a generalised force.",
        optional=("vector", *_FORCES),
        check_precision=True,
        needs=("inverse",),
        joint_forces={"tau": "force"},
    ),
    QuerySpec(
        "gravity_force_gradient",
        ("q",),
        {"dg_dq": Result(("nv", "nv"), "tau / step")},
        lambda _: GRAVITY_FORCE_GRADIENT,
        "Derivatives of the gravity force by q, on the tangent space.",
        optional=("inertia",),
    ),
    QuerySpec(
        "mass_matrix_product_gradient",
        ("q", "vector"),
        {"dHx_dq": Result(("nv", "nv"), "tau / step")},
        lambda _: MASS_MATRIX_PRODUCT_GRADIENT,
        "Derivatives of H vector by q, on the tangent space; the unit where the vector is an acceleration.",
        optional=("inertia",),
    ),
)

_PARAMETERS = (
    QuerySpec(
        "regressor",
        ("q", "qd", "qdd"),
        {"Y": Result(("nv", "parameters"), "tau / parameter")},
        lambda _: REGRESSOR,
        "The matrix Y with tau = Y pi, pi being the bodies' inertial parameters.",
        optional=BASE,
    ),
    QuerySpec(
        "body_regressor",
        ("q", "qd", "qdd"),
        {"Y_body": Result(("n_bodies", 6, 10), "N m, N / parameter")},
        lambda _: BODY_REGRESSOR,
        "Matrices A_i with A_i pi_i = I a + v x* I v, the force that moves body i against gravity, in its frame.",
        optional=BASE,
    ),
    QuerySpec(
        "kinetic_energy_regressor",
        ("q", "qd"),
        {"Y_kinetic": Result(("parameters",), "J / parameter")},
        lambda _: KINETIC_ENERGY_REGRESSOR,
        "The vector k with k . pi the kinetic energy, but for that of armature.",
        optional=("V0",),
    ),
    QuerySpec(
        "potential_energy_regressor",
        ("q",),
        {"Y_potential": Result(("parameters",), "J / parameter")},
        lambda _: POTENTIAL_ENERGY_REGRESSOR,
        "The vector u with u . pi the potential energy.",
    ),
    QuerySpec(
        "inverse_dynamics_external_force_gradient",
        ("q",),
        {"dtau_df_ext": Result(("nv", "n_bodies", 6), "tau / N m, N")},
        lambda _: EXTERNAL_FORCE_GRADIENT,
        "Derivatives of tau by external forces.",
    ),
    QuerySpec(
        "inverse_dynamics_gravity_gradient",
        ("q",),
        {"dtau_dgravity": Result(("nv", 3), "tau / m/s^2")},
        lambda _: GRAVITY_GRADIENT,
        "Derivatives of tau by the acceleration of free fall.",
        optional=("inertia",),
    ),
    QuerySpec(
        "forward_dynamics_parameter_gradient",
        ("q", "qd", "tau"),
        {"dqdd_dpi": Result(("nv", "parameters"), "qdd / parameter")},
        lambda asked: forward_regressor(asked.inputs),
        "Derivatives of accelerations by the bodies' inertial parameters.",
        optional=_FORCES,
        needs=("inverse",),
        joint_forces={"tau": "force"},
    ),
    QuerySpec(
        "forward_dynamics_external_force_gradient",
        ("q",),
        {"dqdd_df_ext": Result(("nv", "n_bodies", 6), "qdd / N m, N")},
        lambda _: FORWARD_EXTERNAL_FORCE_GRADIENT,
        "Derivatives of accelerations by external forces.",
        optional=("inertia",),
        needs=("inverse",),
    ),
    QuerySpec(
        "forward_dynamics_gravity_gradient",
        ("q",),
        {"dqdd_dgravity": Result(("nv", 3), "qdd / m/s^2")},
        lambda _: FORWARD_GRAVITY_GRADIENT,
        "Derivatives of accelerations by the acceleration of free fall.",
        optional=("inertia",),
        needs=("inverse",),
    ),
)

_KINEMATICS = (
    QuerySpec(
        "forward_kinematics",
        ("q",),
        {"T": Result(("n_links", 4, 4), "1, m")},
        lambda _: kinematics.forward_kinematics(False),
        "Poses of all links: homogeneous transforms from link to world coordinates.",
        short="fk",
    ),
    QuerySpec(
        "forward_kinematics_gradient",
        ("q",),
        {"J": Result(("n_links", 6, "nv"), "rad, m / step")},
        lambda _: kinematics.LINK_JACOBIANS,
        "Jacobians of all links, in world axes about each link's origin.",
    ),
    QuerySpec(
        "link_pose",
        ("q",),
        {"T": Result((4, 4), "1, m")},
        lambda _: kinematics.forward_kinematics(True),
        "Pose of the link: the homogeneous transform from link to world coordinates.",
        optional=("point",),
        of_link=True,
    ),
    QuerySpec(
        "jacobian",
        ("q",),
        {"J": Result((6, "nv"), "rad, m / step")},
        lambda asked: kinematics.jacobian(asked.frame),
        "Geometric Jacobian of the link: its velocity is J qd.",
        optional=("point",),
        of_link=True,
        in_frame=True,
    ),
    QuerySpec(
        "jacobian_derivative",
        ("q", "qd"),
        {"Jdot": Result((6, "nv"), "rad/s, m/s / step")},
        lambda asked: kinematic_gradients.jacobian_derivative(asked.frame),
        "Time derivative of the link's Jacobian while the robot moves with qd.",
        optional=("point", "V0"),
        of_link=True,
        in_frame=True,
    ),
    QuerySpec(
        "pose_hessian",
        ("q",),
        {"H": Result((6, "nv", "nv"), "rad, m / step step")},
        lambda asked: kinematic_gradients.pose_hessian(asked.frame),
        "Derivatives of the link's Jacobian by q, on the tangent space.",
        optional=("point",),
        of_link=True,
        in_frame=True,
    ),
    QuerySpec(
        "link_velocity",
        ("q", "qd"),
        {"V": Result((6,), "rad/s, m/s")},
        lambda asked: kinematics.link_velocity(asked.frame),
        "Spatial velocity of the link.",
        optional=("point", "V0"),
        of_link=True,
        in_frame=True,
    ),
    QuerySpec(
        "link_acceleration",
        ("q", "qd", "qdd"),
        {"A": Result((6,), "rad/s^2, m/s^2")},
        lambda asked: kinematics.link_acceleration(asked.frame, asked.classical),
        "Acceleration of the link, without gravity.",
        optional=("point", *BASE),
        of_link=True,
        in_frame=True,
        variants={"classical_acceleration": {"classical": True}},
    ),
    QuerySpec(
        "link_velocity_gradient",
        ("q", "qd"),
        {
            "dV_dq": Result((6, "nv"), "rad/s, m/s / step"),
            "dV_dqd": Result((6, "nv"), "rad, m / step"),
        },
        lambda asked: motion_gradients.link_velocity_gradient(asked.frame),
        "Derivatives of the link's velocity by q (on the tangent space) and qd.",
        optional=("point", "V0"),
        of_link=True,
        in_frame=True,
    ),
    QuerySpec(
        "link_acceleration_gradient",
        ("q", "qd", "qdd"),
        {
            "dA_dq": Result((6, "nv"), "rad/s^2, m/s^2 / step"),
            "dA_dqd": Result((6, "nv"), "rad/s, m/s / step"),
            "dA_dqdd": Result((6, "nv"), "rad, m / step"),
        },
        lambda asked: motion_gradients.link_acceleration_gradient(asked.frame, asked.classical),
        "Derivatives of the link's acceleration by q (on the tangent space), qd and qdd.",
        optional=("point", *BASE),
        of_link=True,
        in_frame=True,
        variants={"classical_acceleration_gradient": {"classical": True}},
    ),
)

_TOTALS = (
    QuerySpec(
        "kinetic_energy",
        ("q", "qd"),
        {"K": Result((), "J")},
        lambda _: energy.KINETIC_ENERGY,
        "Kinetic energy, J, armature included.",
        optional=("inertia", "V0"),
    ),
    QuerySpec(
        "kinetic_energy_gradient",
        ("q", "qd"),
        {"dK_dq": Result(("nv",), "J / step"), "dK_dqd": Result(("nv",), "J / qd")},
        lambda _: energy.KINETIC_ENERGY_GRADIENT,
        "Derivatives of kinetic energy by q (on the tangent space) and by qd.",
        optional=("inertia", "V0"),
    ),
    QuerySpec(
        "potential_energy",
        ("q",),
        {"U": Result((), "J")},
        lambda _: energy.POTENTIAL_ENERGY,
        "Potential energy, J, zero at the height of the world's origin.",
        optional=("inertia",),
    ),
    QuerySpec(
        "potential_energy_gradient",
        ("q",),
        {"dU_dq": Result(("nv",), "J / step")},
        lambda asked: rnea(asked.inputs),
        "Derivatives of potential energy by q, on the tangent space.",
        optional=("inertia",),
    ),
    QuerySpec(
        "center_of_mass",
        ("q",),
        {"com": Result((3,), "m")},
        lambda _: energy.CENTER_OF_MASS,
        "Centre of mass in world coordinates, m.",
        optional=("inertia",),
        needs=("mass",),
    ),
    QuerySpec(
        "center_of_mass_jacobian",
        ("q",),
        {"J": Result((3, "nv"), "m / step")},
        lambda _: energy.CENTER_OF_MASS_JACOBIAN,
        "Jacobian of the centre of mass.",
        optional=("inertia",),
        needs=("mass",),
    ),
    QuerySpec(
        "centroidal_momentum",
        ("q", "qd"),
        {"h": Result((6,), "kg m^2/s, kg m/s"), "A": Result((6, "nv"), "kg m^2/s, kg m/s / qd")},
        lambda asked: energy.centroidal_momentum(_one_tree(asked)),
        "Momentum h about the centre of mass in world axes, and the matrix A with h = A qd for a base at rest.",
        optional=("inertia", "V0"),
        needs=("mass",),
    ),
)

_MOMENTA = (
    QuerySpec(
        "center_of_mass_velocity",
        ("q", "qd"),
        {"vcom": Result((3,), "m/s")},
        lambda _: momentum.CENTER_OF_MASS_VELOCITY,
        "Velocity of the centre of mass, m/s in world axes.",
        optional=("inertia", "V0"),
        needs=("mass",),
    ),
    QuerySpec(
        "center_of_mass_acceleration",
        ("q", "qd", "qdd"),
        {"acom": Result((3,), "m/s^2")},
        lambda _: momentum.CENTER_OF_MASS_ACCELERATION,
        "Acceleration of the centre of mass, m/s^2 in world axes, without gravity.",
        optional=("inertia", *BASE),
        needs=("mass",),
    ),
    QuerySpec(
        "subtree_center_of_mass",
        ("q",),
        {"com": Result(("n_bodies", 3), "m")},
        lambda _: momentum.SUBTREE_CENTERS_OF_MASS,
        "Centres of mass of every body and what follows it, in world coordinates, m.",
        optional=("inertia",),
    ),
    QuerySpec(
        "centroidal_momentum_rate",
        ("q", "qd", "qdd"),
        {"hdot": Result((6,), "N m, N")},
        lambda asked: momentum.centroidal_momentum_rate(_one_tree(asked)),
        "The rate of the momentum about the centre of mass, in world axes, without gravity.",
        optional=("inertia", *BASE),
        needs=("mass",),
    ),
    QuerySpec(
        "centroidal_momentum_matrix_derivative",
        ("q", "qd"),
        {"Adot": Result((6, "nv"), "N m s, N s / qd")},
        lambda asked: momentum.centroidal_matrix_derivative(_one_tree(asked)),
        "Time derivative of the matrix A of the momentum about the centre of mass while the robot moves with qd.",
        optional=("inertia", "V0"),
        needs=("mass",),
    ),
    QuerySpec(
        "center_of_mass_velocity_gradient",
        ("q", "qd"),
        {"dv_dq": Result((3, "nv"), "m/s / step"), "dv_dqd": Result((3, "nv"), "m/s / qd")},
        lambda _: momentum.CENTER_OF_MASS_VELOCITY_GRADIENT,
        "Derivatives of the velocity of the centre of mass by q (on the tangent space) and qd.",
        optional=("inertia", "V0"),
        needs=("mass",),
    ),
    QuerySpec(
        "centroidal_momentum_gradient",
        ("q", "qd"),
        {
            "dh_dq": Result((6, "nv"), "kg m^2/s, kg m/s / step"),
            "dh_dqd": Result((6, "nv"), "kg m^2/s, kg m/s / qd"),
        },
        lambda asked: momentum.centroidal_momentum_gradient(_one_tree(asked)),
        "Derivatives of the momentum about the centre of mass by q (on the tangent space) and qd.",
        optional=("inertia", "V0"),
        needs=("mass",),
    ),
    QuerySpec(
        "composite_inertia",
        ("q",),
        {"Ic": Result(("n_bodies", 10), "kg, kg m, kg m^2")},
        lambda _: momentum.COMPOSITE_INERTIAS,
        "Inertial parameters of every body and what follows it as one rigid body, in the body's frame.",
        optional=("inertia",),
    ),
    QuerySpec(
        "centroidal_inertia",
        ("q",),
        {"IG": Result((6, 6), "kg m^2, kg")},
        lambda asked: momentum.centroidal_inertia(_one_tree(asked)),
        "Inertia of the whole robot, its joints locked, about its centre of mass in world axes.",
        optional=("inertia",),
        needs=("mass",),
    ),
)

_CONSTRAINED = (
    QuerySpec(
        "constrained_forward_dynamics",
        ("q", "qd", "tau"),
        {"qdd": Result(("nv",), "qdd"), "lam": Result(("n_rows",), "N, N m")},
        lambda asked: constraint_task(
            "constrained_forward_dynamics", asked.inputs, asked.model.proximal, axes=asked.axes
        ),
        "Accelerations qdd and constraint forces lambda under generalised forces tau.",
        optional=("f_ext", "inertia", "targets", "active", "row_velocity", "row_acceleration", *BASE),
        needs=("held",),
        joint_forces={"tau": "force"},
        of_constraints=True,
    ),
    QuerySpec(
        "constrained_forward_dynamics_gradient",
        ("q", "qd", "tau"),
        {
            "qdd_q": Result(("nv", "nv"), "qdd / step"),
            "qdd_qd": Result(("nv", "nv"), "qdd / qd"),
            "qdd_tau": Result(("nv", "nv"), "qdd / tau"),
            "lam_q": Result(("n_rows", "nv"), "N, N m / step"),
            "lam_qd": Result(("n_rows", "nv"), "N, N m / qd"),
            "lam_tau": Result(("n_rows", "nv"), "N, N m / tau"),
        },
        lambda asked: constraint_task(
            "constrained_forward_dynamics_gradient", asked.inputs, asked.model.proximal, damping=asked.damping
        ),
        "Derivatives of constrained accelerations and of constraint forces by q (on the tangent space), qd and tau.",
        optional=("f_ext", "inertia", "targets", "active", *BASE),
        needs=("held",),
        joint_forces={"tau": "force"},
        of_constraints=True,
    ),
    QuerySpec(
        "constraint_residual",
        ("q", "qd"),
        {"phi": Result(("n_rows",), "m, rad"), "phidot": Result(("n_rows",), "m/s, rad/s")},
        lambda asked: constraint_task("constraint_residual", asked.inputs, asked.model.proximal),
        "How far constraints are from what they hold, and the rate of that.",
        optional=("targets", "V0"),
        of_constraints=True,
    ),
    QuerySpec(
        "constraint_jacobian",
        ("q",),
        {"J": Result(("n_rows", "nv"), "m, rad / step")},
        lambda asked: constraint_task("constraint_jacobian", asked.inputs, asked.model.proximal),
        "The Jacobian of the constraints: their rates are J qd for a base at rest.",
        optional=("targets",),
        of_constraints=True,
    ),
    QuerySpec(
        "constraint_bias",
        ("q", "qd"),
        {"r": Result(("n_rows",), "m/s^2, rad/s^2")},
        lambda asked: constraint_task("constraint_bias", asked.inputs, asked.model.proximal),
        "The vector r of J qdd + r = 0, which accelerations that obey the constraints satisfy.",
        optional=("targets", "active", "row_velocity", "row_acceleration", *BASE),
        of_constraints=True,
    ),
    QuerySpec(
        "delassus",
        ("q", "qd", "tau"),
        {"A": Result(("n_rows", "n_rows"), "1/kg, 1/kg m^2"), "v_free": Result(("n_rows",), "m/s^2, rad/s^2")},
        lambda asked: constraint_task("delassus", asked.inputs, asked.model.proximal),
        "How constraints respond to forces, A = J H^-1 J', and their accelerations without any.",
        optional=("f_ext", "inertia", "targets", "active", "row_velocity", "row_acceleration", *BASE),
        needs=("inverse",),
        joint_forces={"tau": "force"},
        of_constraints=True,
    ),
    QuerySpec(
        "impact",
        ("q", "qd"),
        {"qd_after": Result(("nv",), "qd"), "impulse": Result(("n_rows",), "N s, N m s")},
        lambda asked: constraint_task("impact", asked.inputs, asked.model.proximal, axes=asked.axes),
        "Velocities after constraints have closed at once, and their impulses.",
        optional=("inertia", "targets", "active", "restitution", "row_restitution", "row_velocity", "V0"),
        needs=("held",),
        of_constraints=True,
    ),
    QuerySpec(
        "impact_gradient",
        ("q", "qd"),
        {
            "qd_after_q": Result(("nv", "nv"), "qd / step"),
            "qd_after_qd": Result(("nv", "nv"), "qd / qd"),
            "impulse_q": Result(("n_rows", "nv"), "N s, N m s / step"),
            "impulse_qd": Result(("n_rows", "nv"), "N s, N m s / qd"),
        },
        lambda asked: constraint_task("impact_gradient", asked.inputs, asked.model.proximal),
        "Derivatives of velocities and impulses of an impact by q (on the tangent space) and qd.",
        optional=("inertia", "targets", "active", "restitution", "V0"),
        needs=("held",),
        of_constraints=True,
    ),
    QuerySpec(
        "project",
        ("q", "qd"),
        {"q_held": Result(("nq",), "m, rad"), "qd_held": Result(("nv",), "qd")},
        lambda asked: constraint_task("project", asked.inputs, asked.model.proximal),
        "The state moved onto the constraints: one Newton step in the mass metric, and the velocity.",
        optional=("inertia", "targets", "active", "V0"),
        needs=("held",),
        of_constraints=True,
    ),
)

_DISTANCES = (
    QuerySpec(
        "distances",
        ("q",),
        {"d": Result(("n_pairs",), "m")},
        lambda asked: distance_task("distances", asked.model),
        "Signed distances of the model's pairs of shapes, negative where they overlap.",
        of_shapes=True,
    ),
    QuerySpec(
        "min_distance",
        ("q",),
        {"d_min": Result((), "m")},
        lambda asked: distance_task("min_distance", asked.model),
        "The least of the distances.",
        of_shapes=True,
    ),
    QuerySpec(
        "min_distance_gradient",
        ("q",),
        {"dd_min_dq": Result(("nv",), "m / step")},
        lambda asked: distance_task("min_distance_gradient", asked.model),
        "The derivative of the least distance by q, on the tangent space.",
        of_shapes=True,
    ),
    QuerySpec(
        "distances_gradient",
        ("q",),
        {"dd_dq": Result(("n_pairs", "nv"), "m / step")},
        lambda asked: distance_task("distances_gradient", asked.model),
        "Derivatives of the distances by q, on the tangent space.",
        of_shapes=True,
    ),
    QuerySpec(
        "witness_points",
        ("q",),
        {"p": Result(("n_pairs", 2, 3), "m")},
        lambda asked: distance_task("witness_points", asked.model),
        "The points of both shapes of each pair that are nearest to each other, in world coordinates.",
        of_shapes=True,
    ),
)

_CONTACTS = (
    QuerySpec(
        "contact_distances",
        ("q",),
        {"phi": Result(("n_slots",), "m")},
        lambda asked: contact_points_task("contact_distances", asked.model),
        "Signed distances of the slots of the model's contacts, negative where shapes overlap.",
        of_contacts=True,
    ),
    QuerySpec(
        "contact_frames",
        ("q",),
        {"T": Result(("n_slots", 4, 4), "1, m")},
        lambda asked: contact_points_task("contact_frames", asked.model),
        "Normals, tangents and places of the slots of the model's contacts, in world coordinates.",
        of_contacts=True,
    ),
    QuerySpec(
        "contact_forward_dynamics",
        ("q", "qd", "tau"),
        {"qdd": Result(("nv",), "qdd"), "f": Result(("n_slots", 3), "N")},
        lambda asked: contact_answer(asked.model, asked.inputs),
        "Accelerations qdd and forces f of the slots of the model's contacts under generalised forces tau.",
        optional=("f_ext", "inertia", "dV0"),
        needs=("inverse",),
        joint_forces={"tau": "force"},
        engines=("reference", "cpu", "gpu"),
        of_contacts=True,
    ),
)

QUERIES: dict[str, QuerySpec] = {
    question.name: question
    for rows in (_DYNAMICS, _DERIVATIVES, _PARAMETERS, _KINEMATICS, _TOTALS, _MOMENTA)
    for question in rows
}
"""Every query by its name, except those about constraints, shapes and contacts. Read the table at the time of use: rows
may be added later."""


CONSTRAINED: dict[str, QuerySpec] = {question.name: question for question in _CONSTRAINED}
"""Queries about constraints, for models that have constraints."""


OF_SHAPES: dict[str, QuerySpec] = {question.name: question for question in _DISTANCES}
"""Queries about distances, for models that have shapes."""


OF_CONTACTS: dict[str, QuerySpec] = {question.name: question for question in _CONTACTS}
"""Queries about contacts, for models that have contacts."""


def find(name: str) -> QuerySpec | None:
    """The query of that name, from any table, or None."""
    return QUERIES.get(name) or CONSTRAINED.get(name) or OF_SHAPES.get(name) or OF_CONTACTS.get(name)


def every_query() -> dict[str, QuerySpec]:
    """The rows of all tables."""
    return {**QUERIES, **CONSTRAINED, **OF_SHAPES, **OF_CONTACTS}


def asked_of(model: Model) -> dict[str, QuerySpec]:
    """Queries that apply to a model: those about constraints, shapes or contacts only if it has some."""
    return {
        **QUERIES,
        **(CONSTRAINED if model.constraints else {}),
        **(OF_SHAPES if model.collision_geometries else {}),
        **(OF_CONTACTS if model.contacts is not None and model.contacts.pairs else {}),
    }


def plain_questions(model: Model | None = None) -> tuple[str, ...]:
    """Names of queries that need arrays only, and no link. Without a model: except those about
    constraints, shapes and contacts."""
    rows = QUERIES if model is None else asked_of(model)
    return tuple(name for name, question in rows.items() if not question.of_link)


def named() -> dict[str, tuple[QuerySpec, Mapping[str, bool]]]:
    """Queries of all tables by all of their names, and the options that a name stands for."""
    return {**{name: (question, {}) for name, question in every_query().items()}, **short_names()}


def short_names() -> dict[str, tuple[QuerySpec, Mapping[str, bool]]]:
    """Queries by their names on the command line, and the options that a name stands for."""
    names: dict[str, tuple[QuerySpec, Mapping[str, bool]]] = {}
    for question in every_query().values():
        names[question.short or question.name] = (question, {})
        names.update({name: (question, options) for name, options in question.variants.items()})
    return names
