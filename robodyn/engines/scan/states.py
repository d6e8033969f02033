"""What the algorithms of the scan engine start from: a model's constants and inputs as element arrays.

Bodies of one joint kind take their row of the joint table together; everything after that is the same for all kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from robodyn.core.joints import KINDS, JointKind
from robodyn.core.model import Model
from robodyn.core.spatial import Force, Inertia, Motion, Scalar, Transform
from robodyn.core.sweeps import FORCE, INERTIA, MOTION, TRANSFORM, FieldType, flatten
from robodyn.core.tree import Indices, read_only
from robodyn.engines.scan.elements import put
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.options import ScanOptions
from robodyn.engines.scan.trees.heavy_paths import HeavyPaths
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.engines.scan.trees.vector_tree import VectorTree
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import STATES_PIECE

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice


_SCALARS = 2048
"""Of memory, for each body and state, that a device must have left."""

Rows: TypeAlias = Any
"""Indices, or a slice where they are consecutive."""


@dataclass(frozen=True)
class Joints:
    """The joints of one kind: their bodies, and rows (nq, m) and (nv, m) of tree coordinates and tree velocities."""

    kind: JointKind
    bodies: Rows
    q_rows: tuple[Rows, ...]
    v_rows: tuple[Rows, ...]
    pitch: Array

    def transform(self, q: tuple[Scalar, ...]) -> Transform:
        """Across the joint."""
        return self.kind.transform(q, self.pitch if self.kind.pitched else 0.0)

    @property
    def subspace(self) -> tuple[Motion, ...]:
        """Columns of S in the body frame."""
        return self.kind.subspace(self.pitch if self.kind.pitched else 0.0)


class Layout:
    """A model for scans: its trees and its constants as element arrays (size, n, 1).

    `device`: where all arrays are, indices too; None for NumPy's. `known`: what algorithms have worked out from it.
    """

    def __init__(
        self, model: Model, dtype: np.dtype[Any], options: ScanOptions, device: ScanDevice | None = None
    ) -> None:
        self.model, self.dtype, self.options, self.device = model, dtype, options, device
        self.known: dict[str, Any] = {}
        where = None if device is None else device.placed
        self.vector_tree, self.heavy_paths = VectorTree(model.tree, where), HeavyPaths(model.tree, where)
        self.Xtree = self._constant(model.Xtree)
        self.inertia = self._constant(model.inertia)
        self.armature = self.placed(model.tree_armature.astype(dtype)[:, None])
        self.pitch = self.placed(model.pitch.astype(dtype)[None, :, None])
        bodies = {code: np.flatnonzero(model.joint_kind == code) for code in np.unique(model.joint_kind).tolist()}
        self.joints = tuple(self.joints_of(code, each, each) for code, each in bodies.items())

    @property
    def xp(self) -> Any:
        """Functions on arrays, named as NumPy's."""
        return np if self.device is None else self.device.xp

    def placed(self, array: Array) -> Array:
        """A NumPy array where arrays are."""
        return array if self.device is None else self.device.placed(array)

    def moved(self, array: Array) -> Array:
        """A NumPy array where arrays are, for one call."""
        return array if self.device is None else self.device.moved(array)

    def where(self, array: Array, *, kept: bool) -> Array:
        """`placed` or `moved`."""
        return self.placed(array) if kept else self.moved(array)

    def here(self, array: Array) -> Array:
        """An array as one of NumPy: on a device, once all that was started has led to it."""
        return array if self.device is None else self.device.here(array)

    def _constant(self, rows: Array) -> Array:
        return self.placed(np.ascontiguousarray(rows.T.astype(self.dtype))[:, :, None])

    def joints_of(self, code: int, bodies: Indices, places: Indices) -> Joints:
        """Joints of a kind, those of bodies that are at these places in arrays."""
        model, kind = self.model, KINDS[code]
        return Joints(
            kind,
            self.rows(places),
            tuple(self.rows(model.q_start[bodies] + k) for k in range(kind.nq)),
            tuple(self.rows(model.v_start[bodies] + k) for k in range(kind.nv)),
            self.placed(model.pitch[bodies].astype(self.dtype)[:, None]),
        )

    def rows(self, rows: Array, *, kept: bool = True) -> Rows:
        """Rows as a slice where they are consecutive, and the last, -1, is not among them: a slice copies nothing."""
        if rows.size and rows[0] >= 0 and rows[-1] - rows[0] + 1 == rows.size and (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return self.where(rows, kept=kept)

    @property
    def n(self) -> int:
        """Number of bodies."""
        return self.model.n_bodies

    @cached_property
    def roots(self) -> Array:
        """First bodies of trees: the children of the world."""
        return self.placed(np.flatnonzero(self.model.parent < 0))

    @cached_property
    def parent(self) -> Array:
        """(n,) the body that each hangs on; -1, the last entry of what is indexed, for the world."""
        return self.placed(self.model.parent)

    @cached_property
    def numbers(self) -> Array:
        """(n,) numbers of all bodies."""
        return self.placed(np.arange(self.n))

    @cached_property
    def first_bodies(self) -> Indices:
        """(n,) first body of the tree that each body is in, as NumPy's indices."""
        tree, roots = self.model.tree, np.flatnonzero(self.model.parent < 0)
        found = np.empty(self.n, np.intp)
        found[tree.preorder] = np.repeat(roots, tree.subtree_size[roots])
        return found

    @cached_property
    def root_of(self) -> Array:
        """`first_bodies` where arrays are."""
        return self.placed(self.first_bodies)

    @cached_property
    def sources(self) -> dict[str, tuple[Array, Array]]:
        """For joints that mimic others: whose "q" and "v" they take (nq_tree,), (nv_tree,), and times what (.., 1)."""
        model = self.model
        return {
            name: (self.placed(source), self.placed(multiplier.astype(self.dtype)[:, None]))
            for name, source, multiplier in (
                ("q", model.q_source, model.q_multiplier),
                ("v", model.v_source, model.v_multiplier),
            )
        }

    @cached_property
    def within_joints(self) -> tuple[tuple[Array, Array], ...]:
        """Pairs of velocities of one joint, an earlier and a later one, those of all joints that have both at once."""
        first, counts = self.model.v_start, np.diff(self.model.v_start, append=self.model.nv_tree)
        found = []
        for before in range(self.most_dofs):
            for after in range(before + 1, self.most_dofs):
                bodies = np.flatnonzero(counts > after)
                found.append((self.placed(first[bodies] + before), self.placed(first[bodies] + after)))
        return tuple(found)

    @cached_property
    def coupling(self) -> Array:
        """G (nv_tree, nv): velocities of all joints from the robot's, those of joints that mimic others among them."""
        model = self.model
        G = np.zeros((model.nv_tree, model.nv), self.dtype)
        G[np.arange(model.nv_tree), model.v_source] = model.v_multiplier
        return self.placed(G)

    @cached_property
    def coupled(self) -> tuple[Array, Array]:
        """Where the robot's velocities start in the list (nv + 1,) of all joints' that follow them, and that list."""
        source = self.model.v_source
        first = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=self.model.nv))))
        return self.placed(first.astype(np.int64)), self.placed(np.argsort(source, kind="stable").astype(np.int64))

    @cached_property
    def quaternions(self) -> tuple[Array, ...]:
        """Places in q of the first entries of all quaternions, of the second ones, and so on."""
        return tuple(self.placed(self.model.quaternion_starts + k) for k in range(4))

    @cached_property
    def weightless(self) -> Array:
        """(6,) the acceleration of a base in free fall."""
        return self.placed(np.concatenate((np.zeros(3), self.model.gravity)).astype(self.dtype))

    @cached_property
    def q_offset(self) -> Array:
        """(nq_tree, 1) what joints that mimic others add."""
        return self.placed(self.model.q_offset.astype(self.dtype)[:, None])

    @cached_property
    def gathering(self) -> tuple[Array, Segments, Array]:
        """Tree velocities in the order of the robot's, segments of one each, and the last place of each."""
        source = self.model.v_source
        counts = np.bincount(source, minlength=self.model.nv)
        return self.placed(np.argsort(source, kind="stable")), Segments(counts), self.placed(np.cumsum(counts) - 1)

    @property
    def free_bytes(self) -> int | None:
        """Memory of the device that can be had; None where arrays are NumPy's."""
        return None if self.device is None else self.device.free_bytes()

    @property
    def states_at_once(self) -> int:
        """States of a batch that are worked on at a time: as many as a cache holds, or a device's memory."""
        if self.device is not None:
            return max(1, self.device.free_bytes() // (_SCALARS * self.dtype.itemsize * max(1, self.n)))
        return max(1, STATES_PIECE // max(1, self.n))

    @cached_property
    def rounds(self) -> int:
        """Compositions that a blocked scan outward or inward takes one after another."""
        return sum(level.segments.rounds(self.options.block) for level in self.heavy_paths.levels)

    @property
    def most_dofs(self) -> int:
        """Degrees of freedom of the joint that has most."""
        return max((joints.kind.nv for joints in self.joints), default=0)


class State:
    """One call on one piece of a batch: inputs of all joints, followers included, with bodies along axis 1.

    Args:
        inputs: (B, ...) arrays as `robodyn.engines.protocol.Engine.run` gets them.
    """

    def __init__(self, layout: Layout, inputs: Mapping[str, Array]) -> None:
        self.layout, self.model, self.inputs = layout, layout.model, inputs
        self.n, self.dtype, self.xp = layout.n, layout.dtype, layout.xp
        self.batch = len(inputs["q"])
        self._tree_inputs: dict[str, Array] = {}

    # Inputs.

    def tree_input(self, name: str) -> Array:
        """An input over tree coordinates: q (nq_tree, B), or one per velocity (nv_tree, B)."""
        if name not in self._tree_inputs:
            layout, values = self.layout, self.inputs[name].T
            if self.model.has_mimic:
                rows, multiplier = layout.sources["q" if name == "q" else "v"]
                values = values[rows] * multiplier
                if name == "q":
                    values += layout.q_offset
            self._tree_inputs[name] = self.xp.ascontiguousarray(values)
        return self._tree_inputs[name]

    def given(self, name: str) -> bool:
        """Whether an input is there."""
        return name in self.inputs

    @property
    def base_velocity(self) -> Motion | None:
        """V0 as scalars (1, B), None for a base at rest."""
        return self._base("V0")

    @property
    def base_acceleration(self) -> Motion:
        """dV0 - g as scalars (1, B): gravity is a base that accelerates upwards."""
        given = self._base("dV0")
        x, y, z = (-float(number) for number in self.model.gravity)
        still = Motion((0.0, 0.0, 0.0), (x, y, z))
        return still if given is None else given + still

    def _base(self, name: str) -> Motion | None:
        if name not in self.inputs:
            return None
        rows = self.inputs[name].T[:, None, :]
        return Motion(tuple(rows[:3]), tuple(rows[3:]))

    # Arrays.

    def empty(self, *shape: int) -> Array:
        """To be filled."""
        found: Array = self.xp.empty(shape, self.dtype)
        return found

    def constant(self, value: Any) -> Array:
        """A quantity whose scalars are all numbers, (size, 1, 1)."""
        known: dict[Any, Array] = self.layout.known.setdefault("constants", {})
        if value not in known:
            numbers = read_only(np.array(flatten(value), self.dtype)).reshape(-1, 1, 1)
            known[value] = self.layout.placed(numbers)
        return known[value]

    def zeros(self, *shape: int) -> Array:
        """Zeros."""
        found: Array = self.xp.zeros(shape, self.dtype)
        return found

    # What joints make of inputs.

    @cached_property
    def transforms(self) -> Array:
        """X (12, n, B): from each parent's frame to the body's. Read-only: all steps of a call share it."""
        layout = self.layout
        found = self.across((joints, layout.Xtree[:, joints.bodies]) for joints in layout.joints)
        return read_only(found) if isinstance(found, np.ndarray) else found

    def across(self, joints: Iterable[tuple[Joints, Array]]) -> Array:
        """X (12, n, B) of all joints, by kinds, each with its part of Xtree."""
        q, found = self.tree_input("q"), self.empty(TRANSFORM.size(0), self.n, self.batch)
        for each, Xtree in joints:
            rows = each.q_rows
            coordinates = q[rows[0]][None] if len(rows) == 1 else self.xp.stack([q[row] for row in rows])
            step, given = joint_transform(each.kind), (Xtree, each.pitch[None], coordinates)
            if isinstance(each.bodies, slice):
                step(*given, out=found[:, each.bodies])
            else:
                put(found, each.bodies, step(*given))
        return found

    def moving(self, qdd: Array) -> State:
        """The same state at accelerations qdd (B, nv)."""
        found = State(self.layout, {**self.inputs, "qdd": qdd})
        found.__dict__["transforms"] = self.transforms
        return found

    def joint_motion(self, rates: Array) -> Array:
        """S rate (6, n, B) for rates (nv_tree, B), in body frames."""
        found = self.zeros(6, self.n, *rates.shape[1:])
        for joints in self.layout.joints:
            for column, rows in zip(joints.subspace, joints.v_rows, strict=True):
                for target, entry in zip(found, (*column.ang, *column.lin), strict=True):
                    if not _is_zero(entry):
                        target[joints.bodies] += entry * rates[rows]
        return found

    def joint_force(self, force: Array) -> Array:
        """S' f (nv_tree, B) for forces (6, n, B) in body frames."""
        found = self.zeros(self.model.nv_tree, *force.shape[2:])
        for joints in self.layout.joints:
            for column, rows in zip(joints.subspace, joints.v_rows, strict=True):
                for source, entry in zip(force, (*column.ang, *column.lin), strict=True):
                    if not _is_zero(entry):
                        found[rows] += entry * source[joints.bodies]
        return found

    def generalised(self, tree_forces: Array, out: Array) -> None:
        """Forces of all joints (nv_tree, B) as those of the robot's coordinates, into out (B, nv)."""
        from robodyn.engines.scan.semigroups import sums

        if not self.model.has_mimic:
            out[...] = tree_forces.T
            return
        order, segments, last = self.layout.gathering
        _, multiplier = self.layout.sources["v"]
        out[...] = segments.scan(sums(1), (tree_forces * multiplier)[order][None])[0, last].T

    @property
    def inertia(self) -> Array:
        """(10, n, 1), or (10, n, B) where the call gives inertias."""
        given = self.inputs.get("inertia")
        return self.layout.inertia if given is None else self.xp.ascontiguousarray(given.transpose(2, 1, 0))

    @property
    def external_forces(self) -> Array:
        """(6, n, B), in world coordinates."""
        found: Array = self.xp.ascontiguousarray(self.inputs["f_ext"].transpose(2, 1, 0))
        return found

    # Scans in the layout that the options name.

    def outward(self, op: Any, elements: Array) -> Array:
        """Elements composed along the path from the root to each body."""
        options = self.layout.options
        if options.layout == "euler":
            return self.layout.vector_tree.rootfix(op, elements, kernel=options.kernel_for(op), block=options.block)
        return self.layout.heavy_paths.outward(op, elements, kernel=options.path_kernel, block=options.block)

    def subtree_sums(self, elements: Array) -> Array:
        """Elements (size, n, ...), all in one frame, summed over subtrees."""
        from robodyn.engines.scan.semigroups import sums

        options, op = self.layout.options, sums(len(elements))
        if options.layout == "euler":
            return self.layout.vector_tree.leaffix(op, elements, kernel=options.kernel_for(op), block=options.block)
        return self.layout.heavy_paths.totals(op, elements, kernel=options.path_kernel, block=options.block)


def _is_zero(entry: Scalar) -> bool:
    """Whether an entry of a motion subspace is zero whatever the joint's pitch."""
    return isinstance(entry, int | float) and entry == 0.0


@cache
def joint_transform(kind: JointKind) -> Elementwise:
    """X (12, m, B) from Xtree, the pitch (1, m, 1) and coordinates (nq, m, B) of joints of a kind."""

    def step(Xtree: Transform, pitch: tuple[Scalar], q: tuple[Scalar, ...]) -> Transform:
        return kind.transform(q, pitch[0]).after(Xtree)

    return Elementwise(step, TRANSFORM, TRANSFORM, FieldType((0.0,)), FieldType((0.0,) * kind.nq))


def _body_force(inertia: Inertia, v: Motion, a: Motion) -> Force:
    return inertia.net_force(v, a)


body_force = Elementwise(_body_force, FORCE, INERTIA, MOTION, MOTION)
"""I a + v x* I v (6, n, B) of inertias, velocities and accelerations."""
motion_in, motion_out = (
    Elementwise(step, MOTION, TRANSFORM, MOTION) for step in (Transform.motion, Transform.motion_back)
)
"""X v and X^-1 v (6, n, B) of transforms and motions."""
force_in, force_out = (Elementwise(step, FORCE, TRANSFORM, FORCE) for step in (Transform.force, Transform.force_back))
"""X* f and X' f (6, n, B) of transforms and forces."""
motion_cross = Elementwise(Motion.cross, MOTION, MOTION, MOTION)
"""v x m (6, n, B)."""
