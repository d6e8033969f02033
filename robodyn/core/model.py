"""Model: a robot as frozen flat arrays, and its configuration manifold.

The file is long because it is one class with many documented fields and methods.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from typing import Any, cast
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn.core.constraints.kinds import Constraint
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.description import Extension, FileTree, Finding, Geometry
from robodyn.core.findings import Report
from robodyn.core.followers import Limits
from robodyn.core.joints import CODE, KINDS, JointKind, unit_quaternion
from robodyn.core.model_edits import Edits
from robodyn.core.model_fields import Configurations, Numbered, checked_fields, owned
from robodyn.core.shapes import Pairs, Shape, is_shape, shape_of
from robodyn.core.tangent import apart_by, moved_by
from robodyn.core.tree import Indices, Tree, read_only
from robodyn.internals import strict_types
from robodyn.internals.arguments import (
    Array,
    batch_shape,
    broadcast_leading,
    integer,
    real_array,
    rows_named,
    within_memory,
)
from robodyn.internals.cached import cached_property, with_fast_path
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import alike, brief, near_misses, printable
from robodyn.internals.provided import provided
from robodyn.internals.records import dataclass

_TABLE_ROWS = 40
_WITHOUT_PART = ("report", "file_tree", "source", "geometries", "extensions")
"""Fields that do not affect results of queries."""
_Generator, _multiply, _add = np.random.Generator, np.multiply, np.add
_AHEAD, _MOST_AHEAD, _SHARING = 8192, 256, 8
"""Random configurations are drawn ahead in blocks: coordinates of a block, most configurations of a block, and
configurations that share one piece of memory."""
_LENGTH_RANGE = 1.0
_FARTHEST_ANGLE = 1e6
"""A position limit of an angle beyond this (rad, 160,000 turns) counts as none: sine and cosine lose their digits."""


_COMPUTED = {
    "armature": "tree_armature",
    "damping": "tree_damping",
    "friction": "tree_friction",
    "lower": "tree_lower",
    "upper": "tree_upper",
    "effort_limit": "tree_effort",
    "velocity_limit": "tree_velocity",
    "total_mass": "inertia",
    "nq": "joint_kind",
    "nv": "joint_kind",
    "n_bodies": "parent",
}
"""Computed attributes of a model, and the fields that determine them."""


def _quicker(model: Model, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    fast_path: Callable[..., Any] | None = provided("quicker")(model, name, method)
    return fast_path


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(Edits):
    """A kinematic tree as flat arrays. Frozen: arrays are read-only, and everything derived from them is computed once.

    Joint i moves body i, whose frame is at the joint, rotated so that the joint's axis is z. Joints without a single
    axis keep the link's frame. `parent[i] < i`. n bodies, L links. A "tree coordinate" is one of a joint, a mimicking
    joint included; coordinates (nq, nv) are independent, and the two differ only where joints mimic others.

    | array | meaning | shape, unit |
    |---|---|---|
    | `parent` | parent body, -1 for the world | (n,) |
    | `joint_kind` | row of `robodyn.joints.KINDS` | (n,) |
    | `Xtree` | transform from the parent body to the joint: E row-major, r | (n, 12) -, m |
    | `inertia` | m, h = m c, I (xx xy xz yy yz zz) at the body's origin | (n, 10) kg, kg m, kg m^2 |
    | `pitch` | pitch of a helical joint, else 0 | (n,) m/rad |
    | `q_start`, `v_start` | first tree coordinate, first tree velocity of each joint | (n,) |
    | `q_source`, `q_multiplier`, `q_offset` | tree coordinate = multiplier * q[source] + offset | (nq_tree,) |
    | `v_source`, `v_multiplier` | tree velocity = multiplier * qd[source] | (nv_tree,) |
    | `mimics` | the body whose joint this one follows, -1 for none | (n,) |
    | `tree_armature`, `tree_damping`, `tree_friction` | per tree velocity | (nv_tree,) SI |
    | `tree_lower`, `tree_upper` | position limits, infinite where none | (nq_tree,) m, rad |
    | `tree_effort`, `tree_velocity` | effort and velocity limits, infinite where none | (nv_tree,) SI |
    | `link_body` | body a link is fixed to, -1 for the world | (L,) |
    | `link_X` | transform from that body to the link: E row-major, r | (L, 12) -, m |
    | `link_parent` | parent link across a joint, fixed or not; -1 for none, None if unknown | (L,) |
    | `link_inertia` | as `inertia`, of links in their frames; None where only bodies' are known | (L, 10) as above |
    | `gravity` | acceleration of free fall in world coordinates | (3,) m/s^2 |

    `report`: findings of loading. `file_tree`: the joints of the file (`robodyn.description.FileTree`), None for a
    model without a file. `source`: the path of the URDF that was read, else None. `geometries`: visual and collision
    shapes (`robodyn.description.Geometry`). `extensions`: elements of the file that are kept as text, for files that
    are written (`robodyn.description.Extension`). None of them affects results of queries, except those about
    distances, to which geometries for collisions belong. Folders and paths of files are not saved.

    `constraints`: closed loops, feet and other constraints besides the joints (`robodyn.core.constraints`). `proximal`:
    (size, iterations): the size of the term that makes their forces unique, relative to the diagonal of J H^-1 J', and
    the number of iterations that remove its effect.

    `configurations`: named configurations q (nq,), read-only, such as keyframes of MJCF. They affect no result.

    `collision_pairs`: the pairs of `shapes` that distances are about, as pairs of indices; None: those that `pairs`
    finds. The shapes themselves are the `geometries` for collisions that have a formula.

    `contacts`: contacts with friction and the rows of joints that act with them, None for none; see `with_contacts`.
    """

    name: str
    parent: Indices
    joint_kind: NDArray[np.int8]
    Xtree: NDArray[np.float64]
    inertia: NDArray[np.float64]
    pitch: NDArray[np.float64]
    q_start: Indices
    v_start: Indices
    q_source: Indices
    q_multiplier: NDArray[np.float64]
    q_offset: NDArray[np.float64]
    v_source: Indices
    v_multiplier: NDArray[np.float64]
    mimics: Indices
    tree_armature: NDArray[np.float64]
    tree_damping: NDArray[np.float64]
    tree_friction: NDArray[np.float64]
    tree_lower: NDArray[np.float64]
    tree_upper: NDArray[np.float64]
    tree_effort: NDArray[np.float64]
    tree_velocity: NDArray[np.float64]
    link_body: Indices
    link_X: NDArray[np.float64]
    gravity: NDArray[np.float64]
    joint_names: Sequence[str]
    body_names: Sequence[str]
    link_names: Sequence[str]
    report: Report | tuple[Finding, ...] = field(default=Report())
    file_tree: FileTree | None = None
    source: str | None = None
    link_parent: Indices | None = None
    link_joints: Sequence[str] | None = None
    """Name of the joint, fixed or not, between each link and its parent link, "" for none; None if unknown."""
    link_inertia: NDArray[np.float64] | None = None
    constraints: tuple[Constraint, ...] = ()
    proximal: tuple[float, int] = (1e-8, 5)
    geometries: tuple[Geometry, ...] = ()
    extensions: tuple[Extension, ...] = ()
    configurations: Configurations = Configurations()
    collision_pairs: Pairs | None = None
    contacts: Contacts | None = None

    def __post_init__(self) -> None:
        """Check the fields, and keep arrays that no other code can write to (`robodyn.core.model_fields`).

        Raises:
            ArgumentError: a field of another shape or type, or with values that no robot has; names it.
        """
        for name, value in checked_fields({f.name: getattr(self, f.name) for f in fields(self)}).items():
            object.__setattr__(self, name, value)
        if self.constraints:
            from robodyn.core.constraints.resolved import resolved_constraints

            resolved_constraints(self)
        if self.configurations:
            try:
                self._normalized(self.configurations.rows)
            except ArgumentError as error:
                raise ArgumentError(f"configurations, one after another as {error}") from None

    @classmethod
    def of_checked(cls, **given: Any) -> Model:
        """A model of fields that builders have made and checked themselves; they are kept as they are."""
        model = object.__new__(cls)
        model.__setstate__({**given, "report": Report(given.get("report", ()))})
        return model

    # Identity: fields are pickled and compared; cached properties are computed again.

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(owned(state))

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self

    @cached_property
    def digest(self) -> str:
        """A hash of all fields that determine results and names, the same in every process."""
        state = hashlib.blake2b(digest_size=16)
        for f in fields(self):
            value = getattr(self, f.name)
            without_part = f.name in ("constraints", "proximal") and not self.constraints
            without_part |= f.name == "configurations" and not value  # programs may read them; the digest is their key
            without_part |= f.name in ("collision_pairs", "contacts") and value is None
            if f.name in _WITHOUT_PART or without_part:
                continue
            state.update(f.name.encode())
            state.update(value.tobytes() if isinstance(value, np.ndarray) else repr(_plain(value)).encode())
        for each in self.collision_geometries:
            state.update(repr((each.link, each.kind, each.pose, each.size, each.attributes)).encode())
        if self.collision_geometries:
            state.update(repr([each.text for each in self.extensions if "<exclude" in each.text]).encode())
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self is other or (strict_types.is_a(other, Model) and self.digest == cast(Model, other).digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __new__(cls, **given: Any) -> Model:
        """Refuse names that are not fields, such as computed attributes in `dataclasses.replace`, with a hint."""
        strange = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if strange:
            raise ArgumentError(f"Model: {_no_field(strange[0])}")
        return object.__new__(cls)

    def __repr__(self) -> str:
        return (
            f"<Model {self.name!r}: {self.n_bodies} bodies, {len(self.link_names)} links, nq {self.nq}, nv {self.nv}, "
            f"{len(self.report)} findings>"
        )

    def __str__(self) -> str:
        from robodyn.core.tables import model_table, to_text

        return to_text(model_table(self, _TABLE_ROWS))

    def _repr_html_(self) -> str:
        from robodyn.core.tables import model_table, to_html

        return to_html(model_table(self, _TABLE_ROWS))

    # Sizes.

    @property
    def n_bodies(self) -> int:
        """Number of bodies (and of joints that move)."""
        return int(self.parent.size)

    @cached_property
    def nq(self) -> int:
        """Number of coordinates."""
        return int(self.q_source.max(initial=-1)) + 1

    @cached_property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return int(self.v_source.max(initial=-1)) + 1

    @property
    def nq_tree(self) -> int:
        """Number of coordinates with those of mimicking joints."""
        return int(self.q_source.size)

    @property
    def nv_tree(self) -> int:
        """Number of velocities with those of mimicking joints."""
        return int(self.v_source.size)

    @cached_property
    def has_mimic(self) -> bool:
        """True if some joint mimics another."""
        return self.nv != self.nv_tree

    def coupling(self) -> NDArray[np.float64]:
        """G (nv_tree, nv): velocities of all joints, followers included, are G qd; forces map back by G'."""
        G = np.zeros((self.nv_tree, self.nv))
        G[np.arange(self.nv_tree), self.v_source] = self.v_multiplier
        return G

    def tree_coordinates(self, q: ArrayLike) -> NDArray[np.float64]:
        """Coordinates (..., nq_tree) of all joints, followers included, for q (..., nq)."""
        array = real_array("q", q, (self.nq,), np.float64)
        with np.errstate(all="ignore"):
            gathered: NDArray[np.float64] = array[..., self.q_source] * self.q_multiplier + self.q_offset
        return gathered

    # Topology.

    @cached_property
    def tree(self) -> Tree:
        """Levels, children, subtrees, paths, Euler tour and heavy paths (`robodyn.core.tree.Tree`)."""
        return Tree(self.parent)

    @property
    def euler_tour(self) -> tuple[Indices, Indices]:
        """(lp, rp), each (n,): the steps 0 .. 2n-1 at which an Euler tour enters and leaves each body."""
        return self.tree.euler_tour

    # Shapes.

    @cached_property
    def collision_geometries(self) -> tuple[Geometry, ...]:
        """The geometries that `shapes` are made of."""
        return tuple(each for each in self.geometries if is_shape(each))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes for distances, such as `robodyn.Sphere`: those of the file, or of `with_shapes`, in its order.

        Meshes and ellipsoids have no formula, and are not among them; see `load_urdf(meshes=)`.
        """
        return tuple(map(shape_of, self.collision_geometries))

    @cached_property
    def pairs(self) -> Pairs:
        """Pairs of indices of `shapes` that distances are about; see `with_shapes`.

        Those of a file are chosen at the first access, as by `with_shapes(model.shapes)`, whose report names what is
        left out.
        """
        if self.collision_pairs is not None:
            return self.collision_pairs
        found: Pairs = provided("auto_pairs")(self)
        return found

    @property
    def n_pairs(self) -> int:
        """Number of `pairs`."""
        return len(self.pairs)

    # Per coordinate of the robot.

    @cached_property
    def coordinate_names(self) -> tuple[str, ...]:
        """(nq) names of coordinates: the joint's, with a component where it has several ("base.qx")."""
        return self._component_names("coordinates")

    @cached_property
    def velocity_names(self) -> tuple[str, ...]:
        """(nv) names of velocities: the joint's, with a component where it has several ("base.wx")."""
        return self._component_names("velocities")

    def _component_names(self, which: str) -> tuple[str, ...]:
        parts = [getattr(kind, which) for kind in KINDS]
        return tuple(
            f"{name}.{part}" if part else name
            for name, code, followed in zip(
                self.joint_names, self.joint_kind.tolist(), self.mimics.tolist(), strict=True
            )
            if followed < 0
            for part in parts[code]
        )

    @cached_property
    def armature(self) -> NDArray[np.float64]:
        """(nv,) armature (inertia along the joint coordinate itself); followers add theirs times multiplier squared."""
        return self._gathered(self.tree_armature * self.v_multiplier**2)

    @cached_property
    def damping(self) -> NDArray[np.float64]:
        """(nv,) viscous damping; followers add theirs times multiplier squared."""
        return self._gathered(self.tree_damping * self.v_multiplier**2)

    @cached_property
    def friction(self) -> NDArray[np.float64]:
        """(nv,) Coulomb friction; followers add theirs times |multiplier|."""
        return self._gathered(self.tree_friction * np.abs(self.v_multiplier))

    def _gathered(self, tree_values: Array) -> NDArray[np.float64]:
        total = np.zeros(self.nv)
        np.add.at(total, self.v_source, tree_values)
        return read_only(total)

    @cached_property
    def _own_coordinates(self) -> tuple[Indices, Indices]:
        """Indices of tree coordinates and of tree velocities of joints that mimic none."""
        free = self.mimics < 0
        nq, nv = (np.array([getattr(kind, what) for kind in KINDS])[self.joint_kind] for what in ("nq", "nv"))
        return read_only(np.flatnonzero(np.repeat(free, nq))), read_only(np.flatnonzero(np.repeat(free, nv)))

    @cached_property
    def _limits(self) -> Limits:
        """Limits of all joints; those of mimicked joints are reduced to what their followers allow."""
        return Limits.used(vars(self))

    @property
    def lower(self) -> NDArray[np.float64]:
        """(nq,) lower position limits, -inf for none: the range that a joint and all joints that mimic it allow
        together. If there is no such range, the limits of the mimicked joint; the report says so."""
        return self._limits.lower[self._own_coordinates[0]]

    @property
    def upper(self) -> NDArray[np.float64]:
        """(nq,) upper position limits, inf for none, as `lower`."""
        return self._limits.upper[self._own_coordinates[0]]

    @property
    def effort_limit(self) -> NDArray[np.float64]:
        """(nv,) effort limits, inf for none. Limits of mimicking joints do not count: the drive is at the joint that
        they follow, and the share of its force that passes through them depends on the motion."""
        return self.tree_effort[self._own_coordinates[1]]

    @property
    def velocity_limit(self) -> NDArray[np.float64]:
        """(nv,) velocity limits, inf for none, of a joint and all that mimic it, as `lower`."""
        return self._limits.velocity[self._own_coordinates[1]]

    @property
    def n_constraints(self) -> int:
        """Number of constraints."""
        return len(self.constraints)

    @property
    def n_contacts(self) -> int:
        """Number of contacts, that is of pairs of shapes."""
        return 0 if self.contacts is None else len(self.contacts.pairs)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows of all constraints."""
        from robodyn.core.constraints.resolved import resolved_constraints

        return sum(len(each.rows) for each in resolved_constraints(self)) if self.constraints else 0

    @cached_property
    def total_mass(self) -> float:
        """Mass (kg) of all bodies."""
        return float(self.inertia[:, 0].sum())

    def link_index(self, link: str | int) -> int:
        """Index of a link in `link_names`, given its name or its index.

        Raises:
            ArgumentError: no such link; the message lists similar names among the first thousand.
        """
        name = strict_types.text_or_none(link)
        index = self._link_numbers.get(name) if name is not None else _place(link, len(self.link_names))
        if index is None:
            moved = None if name is None else self._joint_numbers.get(name, alike(name, self.joint_names))
            hint = ""
            if moved is not None:
                body = self.body_names[moved]
                hint = f" (a joint; it moves {printable(body)!r})" if body in self._link_numbers else " (a joint)"
            raise _not_found("link", link, hint, self.link_names, self.name)
        return index

    def joint_index(self, joint: str | int) -> int:
        """Index of a joint in `joint_names`, given its name or its index. It is also the index of the body it moves.

        Its coordinates begin at `q_start` and `v_start` among those of the tree. Fixed joints merge links and have no
        index.

        Raises:
            ArgumentError: no such joint, or a fixed one; the message lists similar names.
        """
        name = strict_types.text_or_none(joint)
        index = self._joint_numbers.get(name) if name is not None else _place(joint, self.n_bodies)
        if index is None:
            known = name is not None and (name in self._link_numbers or alike(name, self.link_names) is not None)
            hint = " (a link; a joint is asked for)" if known else ""
            raise _not_found("joint", joint, hint, self.joint_names, self.name)
        return index

    def coordinates(self, joint: str | int) -> tuple[slice, slice]:
        """(in q, in v): the slices of a joint's coordinates and of its velocities, given its name or its index.

        `q[..., model.coordinates("elbow")[0]]` is where the elbow is.

        Raises:
            ArgumentError: no such joint, or one that mimics another and has no coordinates of its own; names that.
        """
        index = self.joint_index(joint)
        if self.mimics[index] >= 0:
            leader = self.joint_names[self.mimics[index]]
            raise ArgumentError(
                f"joint: got {brief(joint)}, which mimics {printable(leader)!r}; wanted a joint with coordinates"
            )
        kind = KINDS[self.joint_kind[index]]
        q, v = int(self.q_source[self.q_start[index]]), int(self.v_source[self.v_start[index]])
        return slice(q, q + kind.nq), slice(v, v + kind.nv)

    def check(self, q: ArrayLike) -> list[str]:
        """What is doubtful about configurations (..., nq), a sentence each: NaN and infinity, values beyond position
        limits, angles that look like degrees, quaternions that are not unit or look like [w, x, y, z]. Queries compute
        with all of these but NaN, infinity and quaternions of zero length, so this is the place to find out. States are
        counted in the flattened batch. An empty list: nothing.

        Raises:
            ArgumentError: another shape, or not numbers.
        """
        from robodyn.core.doubts import doubts_about

        return doubts_about(self, q)

    @cached_property
    def _link_numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.link_names)}

    @cached_property
    def _joint_numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.joint_names)}

    def assemble(
        self,
        q: ArrayLike,
        constraints: Sequence[Constraint] | None = None,
        free: Sequence[str] | None = None,
        tol: float = 1e-10,
        limits: bool = False,
    ) -> NDArray[np.float64]:
        """A configuration (..., nq) near q that meets the constraints, by Levenberg-Marquardt steps on the manifold.

        Args:
            q: (..., nq) where to start.
            constraints: instead of the model's.
            free: names of the joints that may move; None: all.
            tol: largest error of a row, m or rad. For a coupling it is multiplied by the norm of its numbers if that is
                below 1; in m, by the reach of the robot if that is below 1 m. Rounding errors bound it from below.
            limits: True to keep position limits (`lower`, `upper`). The search starts at the nearest configuration
                within them, and joints at a limit stay there as long as steps lead beyond it.

        Raises:
            AssemblyError: the search ends elsewhere; names the row with the largest error, and the error. With `limits`
                it names joints at their limits, if these are in the way.
            ArgumentError: wrong shapes, or names that the model does not have.
        """
        model = self if constraints is None else dataclasses.replace(self, constraints=cast(Any, constraints))
        assembled: NDArray[np.float64] = provided("assemble")(model, q, free, tol, limits)
        return assembled

    # The configuration manifold.

    @cached_property
    def free_joints(self) -> list[tuple[JointKind, NDArray[np.intp], NDArray[np.intp]]]:
        """For every joint kind: (kind, (m, nq) coordinates, (m, nv) velocities) of its joints that mimic none."""
        free = np.flatnonzero(self.mimics < 0)
        grouped = []
        for kind in KINDS:
            bodies = free[self.joint_kind[free] == CODE[kind.name]]
            if bodies.size:
                q_index = self.q_source[self.q_start[bodies][:, None] + np.arange(kind.nq)]
                v_index = self.v_source[self.v_start[bodies][:, None] + np.arange(kind.nv)]
                grouped.append((kind, read_only(q_index), read_only(v_index)))
        return grouped

    @cached_property
    def quaternion_starts(self) -> NDArray[np.intp]:
        """(number of quaternions,) index in q at which each unit quaternion starts."""
        starts = [q_index[:, kind.quaternion] for kind, q_index, _ in self.free_joints if kind.quaternion is not None]
        return read_only(np.concatenate(starts) if starts else np.empty(0, dtype=np.intp))

    def unit_coordinates(self, q: Array) -> Array:
        """q (..., nq) with every quaternion scaled to unit length.

        A quaternion of zero length, or with an entry that is NaN or infinite, becomes NaN. The result is q itself if
        the model has no quaternions.
        """
        if not self.quaternion_starts.size:
            return q
        index = self.quaternion_starts[:, None] + np.arange(4)
        with np.errstate(all="ignore"):
            unit = np.stack(unit_quaternion(tuple(np.moveaxis(q[..., index], -1, 0))), axis=-1)
        q = q.copy()
        q[..., index] = unit
        return q

    @with_fast_path(_quicker)
    @within_memory
    def normalize(self, q: ArrayLike) -> NDArray[np.float64]:
        """q (..., nq) with every quaternion scaled to unit length. NaN and infinity stay in their rows.

        Raises:
            ArgumentError: a wrong shape, or a quaternion of zero length; names the joint's coordinate and the rows.
        """
        array = real_array("q", q, (self.nq,), np.float64)
        unit = self._normalized(array)
        return unit.copy() if unit is array else unit

    def normalized(self, q: ArrayLike) -> NDArray[np.float64]:
        """The former name of `normalize`."""
        warnings.warn("Model.normalized is now called Model.normalize", DeprecationWarning, stacklevel=2)
        return self.normalize(q)

    def _normalized(self, q: Array) -> Array:
        """`unit_coordinates`, but quaternions of zero length are an error."""
        index = self.quaternion_starts[:, None] + np.arange(4)
        empty = (q[..., index] == 0.0).all(axis=-1)
        if empty.any():
            which = int(np.argwhere(empty)[0][-1])
            where = f" {rows_named(empty, 1)}" if empty.ndim > 1 else ""
            raise ArgumentError(
                f"q: the quaternion that starts at {self.coordinate_names[index[which, 0]]!r} has zero length{where}; "
                "wanted four numbers xyzw that can be scaled to unit length"
            )
        return self.unit_coordinates(q)

    def _on_manifold(self, operation: str, result: str, *arguments: tuple[Array, str]) -> Array:
        """Apply an operation of the joint table to every free joint. "q" or "v" tells how an array is indexed."""
        leading = np.broadcast_shapes(*(array.shape[:-1] for array, _ in arguments))
        out = np.empty((*leading, self.nq if result == "q" else self.nv))
        for kind, q_index, v_index in self.free_joints:
            index = {"q": q_index, "v": v_index}
            components = [tuple(np.moveaxis(array[..., index[which]], -1, 0)) for array, which in arguments]
            with np.errstate(all="ignore"):  # NaN and infinity stay in their rows
                values = getattr(kind, operation)(*components)
            for c, value in enumerate(values):
                out[..., index[result][:, c]] = value
        return out

    @with_fast_path(_quicker)
    @within_memory
    def integrate(self, q: ArrayLike, qd: ArrayLike, dt: float | ArrayLike = 1.0) -> NDArray[np.float64]:
        """q (+) qd dt: the configuration after moving at constant velocity qd (..., nv) for dt seconds.

        Exact on the manifold: quaternions stay unit, a floating body follows one twist. Returns (..., nq).

        Raises:
            ArgumentError: wrong shapes, or a quaternion of zero length.
        """
        q_array = real_array("q", q, (self.nq,), np.float64)
        v_array = real_array("qd", qd, (self.nv,), np.float64)
        dt_array = real_array("dt", dt, (), np.float64)
        broadcast_leading({"q": (q_array, 1), "qd": (v_array, 1), "dt": (dt_array, 0)})
        with np.errstate(all="ignore"):
            step = v_array * dt_array[..., None]
        return self._on_manifold("integrate", "q", (self._normalized(q_array), "q"), (step, "v"))

    @with_fast_path(_quicker)
    @within_memory
    def difference(self, q0: ArrayLike, q1: ArrayLike) -> NDArray[np.float64]:
        """q1 (-) q0 (..., nv): the velocity that takes q0 (..., nq) to q1 in one second.

        Attitudes, and the angle of a planar joint, go the short way round. Angles of revolute joints, continuous ones
        among them, are subtracted as they are: from 3 to -3 it is -6 rad.

        Raises:
            ArgumentError: wrong shapes, or a quaternion of zero length.
        """
        a = real_array("q0", q0, (self.nq,), np.float64)
        b = real_array("q1", q1, (self.nq,), np.float64)
        broadcast_leading({"q0": (a, 1), "q1": (b, 1)})
        return self._on_manifold("difference", "v", (self._normalized(a), "q"), (self._normalized(b), "q"))

    @with_fast_path(_quicker)
    @within_memory
    def interpolate(self, q0: ArrayLike, q1: ArrayLike, t: float | ArrayLike) -> NDArray[np.float64]:
        """q0 (+) t (q1 (-) q0) (..., nq): the configuration a fraction t (...) of the way from q0 to q1.

        The path is that of `difference`: attitudes go the short way round at constant angular velocity (slerp),
        floating bodies along one twist, angles of revolute joints straight. t below 0 or above 1 extrapolates.

        Raises:
            ArgumentError: wrong shapes, or a quaternion of zero length.
        """
        fraction = real_array("t", t, (), np.float64)
        a, b = real_array("q0", q0, (self.nq,), np.float64), real_array("q1", q1, (self.nq,), np.float64)
        broadcast_leading({"q0": (a, 1), "q1": (b, 1), "t": (fraction, 0)})
        a, b = self._normalized(a), self._normalized(b)
        with np.errstate(all="ignore"):
            step = self._on_manifold("difference", "v", (a, "q"), (b, "q")) * fraction[..., None]
        return self._on_manifold("integrate", "q", (a, "q"), (step, "v"))

    @with_fast_path(_quicker)
    @within_memory
    def distance(self, q0: ArrayLike, q1: ArrayLike) -> NDArray[np.float64]:
        """The length (...) of `difference(q0, q1)`, in which rad and m have equal weight. It is zero for equal poses,
        whatever the signs of their quaternions.

        Raises:
            ArgumentError: wrong shapes, or a quaternion of zero length.
        """
        step = Model.difference(self, q0, q1)
        with np.errstate(all="ignore"):
            return cast(NDArray[np.float64], np.sqrt((step * step).sum(-1)))

    @with_fast_path(_quicker)
    @within_memory
    def integrate_gradient(
        self, q: ArrayLike, qd: ArrayLike, dt: float | ArrayLike = 1.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Derivatives (..., nv, nv) of `integrate(q, qd, dt)` by q and by qd, all on tangent spaces.

        The first matrix maps small changes of q to those of the result, the second those of qd, dt included. Joints of
        one coordinate have the entries 1 and dt; blocks of other joints depend on qd dt (`robodyn.core.tangent`).

        Raises:
            ArgumentError: wrong shapes.
        """
        q_array = real_array("q", q, (self.nq,), np.float64)
        v_array = real_array("qd", qd, (self.nv,), np.float64)
        dt_array = real_array("dt", dt, (), np.float64)
        leading = broadcast_leading({"q": (q_array, 1), "qd": (v_array, 1), "dt": (dt_array, 0)})
        with np.errstate(all="ignore"):
            times = dt_array[..., None]
            by_q, by_u = self._joint_blocks(moved_by, np.broadcast_to(v_array * times, (*leading, self.nv)))
            return by_q, by_u * times[..., None]

    @with_fast_path(_quicker)
    @within_memory
    def difference_gradient(self, q0: ArrayLike, q1: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Derivatives (..., nv, nv) of `difference(q0, q1)` by q0 and by q1, all on tangent spaces.

        Raises:
            ArgumentError: wrong shapes, or a quaternion of zero length.
        """
        with np.errstate(all="ignore"):
            by_q0, by_q1 = self._joint_blocks(apart_by, self.difference(q0, q1))
        return by_q0, by_q1

    def _joint_blocks(
        self, derivatives: Callable[[JointKind, Array], tuple[Array, Array]], step: Array
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Two matrices (..., nv, nv) with a block for every free joint."""
        matrices = np.zeros((2, *step.shape, self.nv))
        for kind, _, v_index in self.free_joints:
            for out, block in zip(matrices, derivatives(kind, step[..., v_index]), strict=True):
                out[..., v_index[:, :, None], v_index[:, None, :]] = block
        return matrices[0], matrices[1]

    def neutral(self) -> NDArray[np.float64]:
        """(nq,) zeros, and the identity for attitudes. Position limits are ignored."""
        return self._neutral.copy()

    @cached_property
    def _neutral(self) -> NDArray[np.float64]:
        q = np.zeros(self.nq)
        for kind, q_index, _ in self.free_joints:
            q[q_index] = kind.neutral
        return read_only(q)

    def random_configuration(
        self, rng: np.random.Generator | int | None = None, shape: tuple[int, ...] | int = ()
    ) -> NDArray[np.float64]:
        """(*shape, nq) random configurations, uniform within position limits; attitudes uniform over all rotations.

        The range is +-pi rad or +-1 m where a limit is missing, infinite, reversed or, of an angle, beyond 1e6 rad, and
        where the difference of the limits overflows. `rng`: a generator or a seed.

        Raises:
            ArgumentError: `rng` is neither a generator nor a seed, or `shape` neither an integer from 0 nor a tuple of
                them.
            UnavailableError: there is not that much memory.
        """
        if rng is None and type(shape) is tuple and not shape:
            try:
                return self._drawn.rows.pop()
            except IndexError:
                return self._fresh()
        generator = rng if type(rng) is _Generator else generator_of(rng)
        if type(shape) is not tuple or shape:
            shape = batch_shape("shape", shape, self.nq)
        nq, lower, width, quaternions = self._drawing
        try:
            q: NDArray[np.float64] = generator.random((*shape, nq) if shape else nq)
        except MemoryError as error:
            raise UnavailableError(
                f"shape: got {brief(shape)}, for which there is no memory ({brief(error)})"
            ) from error
        _multiply(q, width, q)
        _add(q, lower, q)
        for start in quaternions:
            x = generator.standard_normal((*shape, 4))
            a, b, c, d = x.tolist() if x.ndim == 1 else np.moveaxis(x, -1, 0)
            size = np.sqrt(a * a + b * b + c * c + d * d) if x.ndim > 1 else math.sqrt(a * a + b * b + c * c + d * d)
            for k, part in enumerate((a, b, c, d)):
                q[..., start + k] = part / size
        return q

    @cached_property
    def _drawn(self) -> _Drawn:
        return _Drawn()

    @cached_property
    def _drawing(self) -> tuple[int, NDArray[np.float64], NDArray[np.float64], list[int]]:
        """nq, `drawn_from`, and the indices at which quaternions start."""
        return self.nq, *self.drawn_from, self.quaternion_starts.tolist()

    def _fresh(self) -> NDArray[np.float64]:
        """A random configuration of the default generator: many are drawn at once, and handed out one by one."""
        rows = min(_MOST_AHEAD, max(1, _AHEAD // max(1, self.nq)))
        drawn = self.random_configuration(generator_of(None), rows)
        # Few rows share memory, so that one row keeps little alive; a copy of each would double the time.
        ready: list[Array] = [
            row for first in range(0, rows, _SHARING) for row in drawn[first : first + _SHARING].copy()
        ]
        last = ready.pop()
        self._drawn.rows.extend(ready)
        return last

    @cached_property
    def drawn_from(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(nq,) each: lower end and width of the range of `random_configuration`."""
        wide, farthest = np.full(self.nq, np.pi), np.full(self.nq, _FARTHEST_ANGLE)
        for kind, q_index, _ in self.free_joints:
            wide[q_index[:, kind.lengths]], farthest[q_index[:, kind.lengths]] = _LENGTH_RANGE, np.inf
        lower, upper = self.lower, self.upper
        with np.errstate(over="ignore"):
            bounded = np.isfinite(lower) & np.isfinite(upper) & np.isfinite(upper - lower) & (lower <= upper)
        bounded &= np.maximum(np.abs(lower), np.abs(upper)) <= farthest
        lower, upper = np.where(bounded, lower, -wide), np.where(bounded, upper, wide)
        return read_only(lower), read_only(upper - lower)


def _place(given: Any, end: int) -> int | None:
    """An integer from 0 to `end` - 1, or None for anything else."""
    number = integer(given)
    return number if number is not None and 0 <= number < end else None


def _not_found(what: str, given: Any, hint: str, names: Sequence[str], robot: str) -> ArgumentError:
    """The error for a link or a joint that a robot does not have."""
    name = strict_types.text_or_none(given)
    if name is None:
        wanted = f"a name or an index from 0 to {len(names) - 1}" if names else f"a name, but {robot!r} has none"
        return ArgumentError(f"{what}: got {brief(given)}; wanted {wanted}")
    near = ", ".join(printable(each) for each in near_misses(name, names, otherwise=5))
    such = f", such as {near}" if near else ", which has none that moves"
    such += "; fixed joints merge links, and are not among them" if what == "joint" and near else ""
    return ArgumentError(f"{what}: got {brief(given)}{hint}; wanted a {what} of {robot!r}{such}")


def generator_of(given: Any) -> np.random.Generator:
    """The generator that a user passes, or one made from a seed."""
    if strict_types.is_a(given, np.random.Generator):
        return cast(np.random.Generator, given)
    seed = integer(given)
    if given is not None and (seed is None or seed < 0):
        raise ArgumentError(f"rng: got {brief(given)}; wanted a numpy.random.Generator or an integer seed from 0")
    if seed is not None:
        return np.random.default_rng(seed)
    if not _FRESH:
        _FRESH.append(np.random.default_rng())
    return _FRESH[0]


_FRESH: list[np.random.Generator] = []
"""The generator that is used where none is given; the child of a fork makes its own."""


class _Drawn:
    """Random configurations that were drawn ahead.

    The child of a fork drops them, because the parent hands out the same ones.
    """

    __slots__ = ("__weakref__", "rows")

    def __init__(self) -> None:
        self.rows: list[Array] = []
        _UNUSED.add(self)


_UNUSED: WeakSet[_Drawn] = WeakSet()


def _forget_draws() -> None:
    _FRESH.clear()
    for each in _UNUSED:
        each.rows.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_draws)


def _no_field(name: str) -> str:
    """A hint what to set instead of an attribute that is not a field."""
    behind = _COMPUTED.get(name)
    if behind is not None:
        size = "nq_tree" if behind in ("tree_lower", "tree_upper") else "nv_tree"
        wanted = f", ({size},), mimicking joints included" if behind.startswith("tree_") else ""
        return f"{name} is computed; give the field {behind}{wanted}"
    if hasattr(Model, name):
        return f"{name} is computed from its fields, and cannot be given"
    names = [each.name for each in fields(Model)]
    return f"it has no field {brief(name)}; wanted one of {', '.join(near_misses(name, names, len(names)))}"


def _plain(value: Any) -> Any:
    if isinstance(value, Numbered):
        return (value.prefix, value.n)
    if isinstance(value, Configurations):
        return tuple((name, q.tolist()) for name, q in value.items())
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
