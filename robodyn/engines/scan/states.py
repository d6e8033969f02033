"""The inputs of the scan engine's algorithms: a model's constants, and the inputs of a call, as element arrays.

Joint transforms and motion subspaces are computed for all bodies of one joint kind together. All later steps are the
same for all joint kinds.
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
"""Scalars of free device memory that a call needs for each body and state."""

Rows: TypeAlias = Any
"""Indices, or a slice if they are consecutive."""


@dataclass(frozen=True)
class Joints:
    """The m joints of one kind: their bodies, and the rows of their coordinates and velocities in the tree's arrays.

    `q_rows`, `v_rows`: for each coordinate and each velocity of the joint, the m rows; `pitch`: (m, 1).
    """

    kind: JointKind
    bodies: Rows
    q_rows: tuple[Rows, ...]
    v_rows: tuple[Rows, ...]
    pitch: Array

    def transform(self, q: tuple[Scalar, ...]) -> Transform:
        """The transform across the joint."""
        return self.kind.transform(q, self.pitch if self.kind.pitched else 0.0)

    @property
    def subspace(self) -> tuple[Motion, ...]:
        """The columns of the motion subspace S in the body frame."""
        return self.kind.subspace(self.pitch if self.kind.pitched else 0.0)


class Layout:
    """A model for scans: its tree layouts, and its constants as element arrays (size, n, 1).

    `device`: the device of all arrays, including indices; None for NumPy. `known`: a cache for results of algorithms
    that depend on the model only.
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
        """The array library, with NumPy's function names."""
        return np if self.device is None else self.device.xp

    def placed(self, array: Array) -> Array:
        """A NumPy array as an array of the layout's library, kept for good."""
        return array if self.device is None else self.device.placed(array)

    def moved(self, array: Array) -> Array:
        """A NumPy array as an array of the layout's library, for one call."""
        return array if self.device is None else self.device.moved(array)

    def where(self, array: Array, *, kept: bool) -> Array:
        """`placed` if `kept`, else `moved`."""
        return self.placed(array) if kept else self.moved(array)

    def here(self, array: Array) -> Array:
        """An array as a NumPy array. On a device, the host waits until it is computed."""
        return array if self.device is None else self.device.here(array)

    def _constant(self, rows: Array) -> Array:
        return self.placed(np.ascontiguousarray(rows.T.astype(self.dtype))[:, :, None])

    def joints_of(self, code: int, bodies: Indices, places: Indices) -> Joints:
        """The joints of some bodies of one kind. `places`: the indices of these bodies in arrays."""
        model, kind = self.model, KINDS[code]
        return Joints(
            kind,
            self.rows(places),
            tuple(self.rows(model.q_start[bodies] + k) for k in range(kind.nq)),
            tuple(self.rows(model.v_start[bodies] + k) for k in range(kind.nv)),
            self.placed(model.pitch[bodies].astype(self.dtype)[:, None]),
        )

    def rows(self, rows: Array, *, kept: bool = True) -> Rows:
        """Row indices, as a slice if they are consecutive and not negative. Indexing with a slice copies nothing."""
        if rows.size and rows[0] >= 0 and rows[-1] - rows[0] + 1 == rows.size and (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return self.where(rows, kept=kept)

    @property
    def n(self) -> int:
        """Number of bodies."""
        return self.model.n_bodies

    @cached_property
    def roots(self) -> Array:
        """The first bodies of trees: the children of the world."""
        return self.placed(np.flatnonzero(self.model.parent < 0))

    @cached_property
    def parent(self) -> Array:
        """(n,) parent of each body; -1 for the world, so the last entry of an indexed array must be the world's."""
        return self.placed(self.model.parent)

    @cached_property
    def numbers(self) -> Array:
        """(n,) indices of all bodies."""
        return self.placed(np.arange(self.n))

    @cached_property
    def first_bodies(self) -> Indices:
        """(n,) first body of each body's tree, as a NumPy array."""
        tree, roots = self.model.tree, np.flatnonzero(self.model.parent < 0)
        first = np.empty(self.n, np.intp)
        first[tree.preorder] = np.repeat(roots, tree.subtree_size[roots])
        return first

    @cached_property
    def root_of(self) -> Array:
        """`first_bodies` as an array of the layout's library."""
        return self.placed(self.first_bodies)

    @cached_property
    def sources(self) -> dict[str, tuple[Array, Array]]:
        """For mimicking joints, by "q" and "v": indices of the robot's coordinates (nq_tree,) or velocities (nv_tree,),
        and the multipliers (.., 1)."""
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
        """Pairs of velocities of one joint, the earlier first, as arrays over all joints with such a pair."""
        first, counts = self.model.v_start, np.diff(self.model.v_start, append=self.model.nv_tree)
        pairs = []
        for before in range(self.most_dofs):
            for after in range(before + 1, self.most_dofs):
                bodies = np.flatnonzero(counts > after)
                pairs.append((self.placed(first[bodies] + before), self.placed(first[bodies] + after)))
        return tuple(pairs)

    @cached_property
    def coupling(self) -> Array:
        """G (nv_tree, nv), from the robot's velocities to those of all joints, including mimicking joints."""
        model = self.model
        G = np.zeros((model.nv_tree, model.nv), self.dtype)
        G[np.arange(model.nv_tree), model.v_source] = model.v_multiplier
        return self.placed(G)

    @cached_property
    def coupled(self) -> tuple[Array, Array]:
        """The joint velocities that follow each velocity of the robot, in compressed form: starts (nv + 1,) and indices
        (nv_tree,)."""
        source = self.model.v_source
        first = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=self.model.nv))))
        return self.placed(first.astype(np.int64)), self.placed(np.argsort(source, kind="stable").astype(np.int64))

    @cached_property
    def quaternions(self) -> tuple[Array, ...]:
        """Indices in q of the first entries of all quaternions, of the second entries, and so on."""
        return tuple(self.placed(self.model.quaternion_starts + k) for k in range(4))

    @cached_property
    def weightless(self) -> Array:
        """(6,) the base's acceleration in free fall, m/s^2."""
        return self.placed(np.concatenate((np.zeros(3), self.model.gravity)).astype(self.dtype))

    @cached_property
    def q_offset(self) -> Array:
        """(nq_tree, 1) offsets of mimicking joints."""
        return self.placed(self.model.q_offset.astype(self.dtype)[:, None])

    @cached_property
    def gathering(self) -> tuple[Array, Segments, Array]:
        """The sums of joint forces of mimicking joints: tree velocities in the order of the robot's velocities, a
        segment for each of these, and the last index of each segment."""
        source = self.model.v_source
        counts = np.bincount(source, minlength=self.model.nv)
        return self.placed(np.argsort(source, kind="stable")), Segments(counts), self.placed(np.cumsum(counts) - 1)

    @property
    def free_bytes(self) -> int | None:
        """Bytes of device memory that can be allocated; None for NumPy arrays."""
        return None if self.device is None else self.device.free_bytes()

    @property
    def states_at_once(self) -> int:
        """States of a batch that are processed at a time: as many as fit in the cache, or in the device's memory."""
        if self.device is not None:
            return max(1, self.device.free_bytes() // (_SCALARS * self.dtype.itemsize * max(1, self.n)))
        return max(1, STATES_PIECE // max(1, self.n))

    @cached_property
    def rounds(self) -> int:
        """Sequential compositions of a blocked scan over all heavy paths."""
        return sum(level.segments.rounds(self.options.block) for level in self.heavy_paths.levels)

    @property
    def most_dofs(self) -> int:
        """The largest number of degrees of freedom of a joint."""
        return max((joints.kind.nv for joints in self.joints), default=0)


class State:
    """The inputs of one call for a piece of a batch, expanded to all joints, with bodies along axis 1 of arrays.

    Args:
        inputs: (B, ...) arrays, as in `robodyn.engines.protocol.Engine.run`.
    """

    def __init__(self, layout: Layout, inputs: Mapping[str, Array]) -> None:
        self.layout, self.model, self.inputs = layout, layout.model, inputs
        self.n, self.dtype, self.xp = layout.n, layout.dtype, layout.xp
        self.batch = len(inputs["q"])
        self._tree_inputs: dict[str, Array] = {}

    # Inputs.

    def tree_input(self, name: str) -> Array:
        """An input with entries for all joints, also mimicking ones: q (nq_tree, B), or another one (nv_tree, B)."""
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
        """Whether the call has an input of that name."""
        return name in self.inputs

    @property
    def base_velocity(self) -> Motion | None:
        """V0 with scalars (1, B); None for a base at rest."""
        return self._base("V0")

    @property
    def base_acceleration(self) -> Motion:
        """dV0 - g with scalars (1, B): gravity is equivalent to an upward acceleration of the base."""
        base = self._base("dV0")
        x, y, z = (-float(number) for number in self.model.gravity)
        still = Motion((0.0, 0.0, 0.0), (x, y, z))
        return still if base is None else base + still

    def _base(self, name: str) -> Motion | None:
        if name not in self.inputs:
            return None
        rows = self.inputs[name].T[:, None, :]
        return Motion(tuple(rows[:3]), tuple(rows[3:]))

    # Arrays.

    def empty(self, *shape: int) -> Array:
        """An uninitialised array."""
        array: Array = self.xp.empty(shape, self.dtype)
        return array

    def constant(self, value: Any) -> Array:
        """A quantity whose scalars are Python floats, as an array (size, 1, 1)."""
        known: dict[Any, Array] = self.layout.known.setdefault("constants", {})
        if value not in known:
            numbers = read_only(np.array(flatten(value), self.dtype)).reshape(-1, 1, 1)
            known[value] = self.layout.placed(numbers)
        return known[value]

    def zeros(self, *shape: int) -> Array:
        """An array of zeros."""
        array: Array = self.xp.zeros(shape, self.dtype)
        return array

    # Joint transforms, motions and forces.

    @cached_property
    def transforms(self) -> Array:
        """X (12, n, B) from the parent's frame to the body's. Read-only, because all steps of a call share it."""
        layout = self.layout
        X = self.across((joints, layout.Xtree[:, joints.bodies]) for joints in layout.joints)
        return read_only(X) if isinstance(X, np.ndarray) else X

    def across(self, joints: Iterable[tuple[Joints, Array]]) -> Array:
        """X (12, n, B) of all joints. `joints`: the joints of each kind, with their part of Xtree."""
        q, X = self.tree_input("q"), self.empty(TRANSFORM.size(0), self.n, self.batch)
        for each, Xtree in joints:
            rows = each.q_rows
            coordinates = q[rows[0]][None] if len(rows) == 1 else self.xp.stack([q[row] for row in rows])
            step, arguments = joint_transform(each.kind), (Xtree, each.pitch[None], coordinates)
            if isinstance(each.bodies, slice):
                step(*arguments, out=X[:, each.bodies])
            else:
                put(X, each.bodies, step(*arguments))
        return X

    def moving(self, qdd: Array) -> State:
        """The same state with accelerations qdd (B, nv)."""
        state = State(self.layout, {**self.inputs, "qdd": qdd})
        state.__dict__["transforms"] = self.transforms
        return state

    def joint_motion(self, rates: Array) -> Array:
        """S times rates (nv_tree, B): motions (6, n, B) in body frames."""
        motions = self.zeros(6, self.n, *rates.shape[1:])
        for joints in self.layout.joints:
            for column, rows in zip(joints.subspace, joints.v_rows, strict=True):
                for target, entry in zip(motions, (*column.ang, *column.lin), strict=True):
                    if not _is_zero(entry):
                        target[joints.bodies] += entry * rates[rows]
        return motions

    def joint_force(self, force: Array) -> Array:
        """S' f (nv_tree, B) of forces (6, n, B) in body frames."""
        forces = self.zeros(self.model.nv_tree, *force.shape[2:])
        for joints in self.layout.joints:
            for column, rows in zip(joints.subspace, joints.v_rows, strict=True):
                for source, entry in zip(force, (*column.ang, *column.lin), strict=True):
                    if not _is_zero(entry):
                        forces[rows] += entry * source[joints.bodies]
        return forces

    def generalised(self, tree_forces: Array, out: Array) -> None:
        """Sum forces of all joints (nv_tree, B) to forces of the robot's coordinates, into out (B, nv)."""
        from robodyn.engines.scan.semigroups import sums

        if not self.model.has_mimic:
            out[...] = tree_forces.T
            return
        order, segments, last = self.layout.gathering
        _, multiplier = self.layout.sources["v"]
        out[...] = segments.scan(sums(1), (tree_forces * multiplier)[order][None])[0, last].T

    @property
    def inertia(self) -> Array:
        """(10, n, 1), or (10, n, B) if inertias are an input of the call."""
        inertias = self.inputs.get("inertia")
        return self.layout.inertia if inertias is None else self.xp.ascontiguousarray(inertias.transpose(2, 1, 0))

    @property
    def external_forces(self) -> Array:
        """External forces (6, n, B) in world coordinates."""
        forces: Array = self.xp.ascontiguousarray(self.inputs["f_ext"].transpose(2, 1, 0))
        return forces

    # Scans in the layout of the options.

    def outward(self, op: Any, elements: Array) -> Array:
        """Elements (size, n, ...) composed along the path from the root to each body."""
        options = self.layout.options
        if options.layout == "euler":
            return self.layout.vector_tree.rootfix(op, elements, kernel=options.kernel_for(op), block=options.block)
        return self.layout.heavy_paths.outward(op, elements, kernel=options.path_kernel, block=options.block)

    def subtree_sums(self, elements: Array) -> Array:
        """Sums over subtrees of elements (size, n, ...), all of them in one frame."""
        from robodyn.engines.scan.semigroups import sums

        options, op = self.layout.options, sums(len(elements))
        if options.layout == "euler":
            return self.layout.vector_tree.leaffix(op, elements, kernel=options.kernel_for(op), block=options.block)
        return self.layout.heavy_paths.totals(op, elements, kernel=options.path_kernel, block=options.block)


def _is_zero(entry: Scalar) -> bool:
    """Whether an entry of a motion subspace is zero for every pitch."""
    return isinstance(entry, int | float) and entry == 0.0


@cache
def joint_transform(kind: JointKind) -> Elementwise:
    """The step for X (12, m, B) of joints of a kind, from Xtree, the pitch (1, m, 1) and coordinates (nq, m, B)."""

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
