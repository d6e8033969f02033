"""Turns a RobotDescription into a Model: merges fixed links, numbers moving bodies, rotates joint axes to z.

A Model stores its bodies in arrays. Objects for single bodies exist in this module only.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.description import ONE_COORDINATE_TYPES, FileTree, Joint, RobotDescription, Vector3
from robodyn.core.findings import Notes
from robodyn.core.joints import CODE, KINDS
from robodyn.core.model import Model
from robodyn.core.model_fields import with_sound_parts
from robodyn.core.spatial import IDENTITY, ZERO3, Transform
from robodyn.internals.arguments import flag, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.axes import pose_transform, turn_to_z
from robodyn.io.builders.check_finite import check_finite
from robodyn.io.builders.check_joints import Coupling, Mimics, report_limits_left
from robodyn.io.builders.checks import MIMIC, check_and_resolve
from robodyn.io.builders.collisions import note_geometries
from robodyn.io.builders.link_inertias import of_bodies, of_links

BASES = ("fixed", "floating")
"""Ways to attach the root link to the world."""

_KIND_OF_TYPE = {"continuous": "revolute", "universal": "revolute"}
_INFINITE = float("inf")
_VALUES = ("lower", "upper", "armature", "damping", "friction", "effort", "velocity")
"""Fields of a joint for each of its coordinates (the first two) and for each of its degrees of freedom (all others)."""
_VALUES_OF_BASE = (-_INFINITE, _INFINITE, 0.0, 0.0, 0.0, _INFINITE, _INFINITE)
_NQ, _NV = [kind.nq for kind in KINDS], [kind.nv for kind in KINDS]
_Z = (0.0, 0.0, 1.0)


@dataclass(slots=True)
class _Mover:
    """One moving joint of the merged tree, before bodies are numbered."""

    joint: Joint | None
    name: str
    body: str
    kind: str
    parent: int
    Xtree: Transform
    file_order: tuple[int, int]


def build_model(
    description: RobotDescription,
    *,
    base: str = "fixed",
    mimic: str = "follow",
    strict: bool = True,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
) -> Model:
    """Turn a description into a Model; arguments as in `robodyn.load_urdf`.

    Raises:
        LoadError: the description is not a usable robot (`robodyn.io.builders.checks.check`), or its numbers overflow
            when links are merged.
        ArgumentError: an unknown option, or a gravity that is not a sequence or an array of three real numbers.
        NumericalError: NaN or infinity in `gravity`.
    """
    base, mimic, strict = one_of("base", base, BASES), one_of("mimic", mimic, MIMIC), flag("strict", strict)
    g = gravity_vector(gravity)
    checked, mimics = check_and_resolve(description, mimic=mimic, strict=strict)
    return assemble(with_sound_parts(checked), mimics, base, g)


def assemble(
    description: RobotDescription,
    mimics: Mimics,
    base: str,
    gravity: np.ndarray[Any, np.dtype[np.float64]],
    source: str | None = None,
) -> Model:
    """The Model of a checked description and its resolved mimics. `source` becomes `Model.source`.

    Raises:
        LoadError: numbers overflow when links are merged, a constraint names an unknown link or joint, or a constraint
            connects two frames of one body.
    """
    notes = Notes()
    with np.errstate(over="ignore", invalid="ignore"):  # check_finite reports overflow
        movers, placed = _merge_fixed(description, base, mimics.couplings, notes)
        order = _file_order(movers)
        model = _arrays(description, movers, placed, order, mimics.couplings, gravity, notes, source)
        check_finite(model, description)
    if description.constraints:
        try:
            resolved_constraints(model)
        except ArgumentError as error:
            raise LoadError(str(error)) from None
    return model


def gravity_vector(gravity: ArrayLike) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`gravity` as a new array of three finite numbers.

    Raises:
        ArgumentError: it is not three real numbers.
        NumericalError: one of them is NaN or infinite.
    """
    g = real_array("gravity", gravity, (3,), np.float64, what="free-fall acceleration in m/s^2")
    if g.ndim != 1:
        raise ArgumentError(f"gravity: got shape {g.shape}; wanted three numbers")
    require_finite("gravity", g, 1)
    return g.copy()


def compose(second: Transform, first: Transform) -> Transform:
    """`second.after(first)`, without arithmetic if one of them is the identity, the most common transform."""
    if first is IDENTITY:
        return second
    return first if second is IDENTITY else second.after(first)


def unused_name(name: str, taken: set[str]) -> str:
    """Prepends underscores to a name until it is not in `taken`, then adds it to `taken`."""
    while name in taken:
        name = f"_{name}"
    taken.add(name)
    return name


def _joint_frames(joint: Joint, welded_at: float | None) -> tuple[list[tuple[str, str, Transform]], Transform]:
    """Splits a joint into joints of the kinds in the table of joints.

    Returns:
        A list of (suffix of the name, kind, transform from the previous frame to the joint's frame), and the transform
        from the last frame to the child link. The list is empty for a joint that does not move.
    """
    if joint.type == "fixed":
        return [], IDENTITY
    kind = _KIND_OF_TYPE.get(joint.type, joint.type)
    if joint.type == "universal":
        (first, back), (second, end) = (_rotations_to_z(axis) for axis in (joint.axis, joint.axis2))
        return [("/1", kind, first), ("/2", kind, second.after(back))], end
    row = KINDS[CODE[kind]]
    rotation, back = _rotations_to_z(joint.axis) if row.axial and joint.axis != _Z else (IDENTITY, IDENTITY)
    if welded_at is not None:
        motion = row.transform((welded_at,), joint.pitch)
        return [], back.after(motion).after(rotation)
    return [("", kind, rotation)], back


@lru_cache(64)
def _rotations_to_z(axis: Vector3) -> tuple[Transform, Transform]:
    """The rotation to the frame in which `axis` is z, and its inverse. It is cached: most robots have few axes."""
    rotation = Transform(turn_to_z(axis), ZERO3)
    return rotation, rotation.inverse()


def _merge_fixed(
    description: RobotDescription, base: str, couplings: dict[str, Coupling], notes: Notes
) -> tuple[list[_Mover], dict[str, tuple[int, Transform]]]:
    """Traverses the tree from the root, and merges links on fixed joints into bodies.

    Returns:
        The moving joints, and for each link its (moving joint, transform from that joint's frame to the link's).
    """
    outgoing: dict[str, list[tuple[int, Joint]]] = defaultdict(list)
    for number, joint in enumerate(description.joints):
        outgoing[joint.parent].append((number, joint))
    root = description.root
    joint_names, body_names = ({part.name for part in parts} for parts in (description.joints, description.links))
    movers: list[_Mover] = []
    if base == "floating":
        name = unused_name("root_joint", joint_names)
        movers.append(_Mover(None, name, root, "floating", -1, IDENTITY, (-1, 0)))
        if root.casefold() == "world":
            message = 'the root link floats, as base="floating" asks, although it is called the world'
            notes.add("floating-world", f"link {quoted(root)}", message)
    link_places: dict[str, tuple[int, Transform]] = {root: (len(movers) - 1, IDENTITY)}
    queue = [root]
    for link in queue:
        body, X_link = link_places[link]
        for number, joint in outgoing[link]:
            coupling = couplings.get(joint.name)
            welded_at = coupling.offset if coupling is not None and coupling.joint is None else None
            rows, to_child = _joint_frames(joint, welded_at)
            X = compose(pose_transform(joint.origin), X_link)
            mover = body
            for part, (suffix, kind, step) in enumerate(rows):
                name = unused_name(joint.name + suffix, joint_names) if suffix else joint.name
                last = part == len(rows) - 1
                body_name = joint.child if last else unused_name(joint.name + suffix, body_names)
                movers.append(_Mover(joint, name, body_name, kind, mover, compose(step, X), (number, part)))
                mover, X = len(movers) - 1, IDENTITY
            link_places[joint.child] = (mover, compose(to_child, X))
            if mover == body:
                onto = "the world" if body < 0 else f"body {quoted(movers[body].body)}"
                element = f"link {quoted(joint.child)}"
                notes.gather("merged-link", element, f"fixed to {onto} and merged into it", joint.line)
            queue.append(joint.child)
    return movers, link_places


def _file_order(movers: Sequence[_Mover]) -> list[int]:
    """Indices of moving joints, parents before children, otherwise in the order of the file."""
    children: dict[int, list[int]] = defaultdict(list)
    for i, mover in enumerate(movers):
        children[mover.parent].append(i)
    ready = [(movers[i].file_order, i) for i in children[-1]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for child in children[i]:
            heapq.heappush(ready, (movers[child].file_order, child))
    return order


def _arrays(
    description: RobotDescription,
    movers: Sequence[_Mover],
    placed: dict[str, tuple[int, Transform]],
    order: Sequence[int],
    couplings: dict[str, Coupling],
    gravity: np.ndarray[Any, Any],
    notes: Notes,
    source: str | None,
) -> Model:
    """Number the bodies in `order` and fill the Model's arrays."""
    n = len(order)
    number = [-1] * (n + 1)  # the last entry is the world's
    for place, i in enumerate(order):
        number[i] = place
    names = [link.name for link in description.links]
    link_body = np.array([number[placed[name][0]] for name in names], dtype=np.intp)
    link_X = _rows([placed[name][1] for name in names])
    link_inertia = of_links(description.links)
    position_of = {name: k for k, name in enumerate(names)}
    above = {joint.child: joint for joint in description.joints}
    sorted_movers = [movers[i] for i in order]
    kinds = [CODE[mover.kind] for mover in sorted_movers]
    joints = [mover.joint for mover in sorted_movers]
    columns = _coordinates(sorted_movers, kinds, couplings)
    report_limits_left(columns, joints, notes)
    note_geometries(description.geometries, notes)
    return Model.of_checked(
        name=description.name,
        parent=np.array([number[mover.parent] for mover in sorted_movers], dtype=np.intp),
        joint_kind=np.array(kinds, dtype=np.int8),
        Xtree=_rows([mover.Xtree for mover in sorted_movers]),
        inertia=of_bodies(link_inertia, link_body, link_X, n),
        pitch=np.array([0.0 if joint is None else joint.pitch for joint in joints]),
        link_body=link_body,
        link_X=link_X,
        link_parent=np.array(
            [position_of[above[name].parent] if name in above else -1 for name in names], dtype=np.intp
        ),
        link_joints=tuple([above[name].name if name in above else "" for name in names]),
        link_inertia=link_inertia,
        gravity=gravity.copy(),
        joint_names=tuple([mover.name for mover in sorted_movers]),
        body_names=tuple([mover.body for mover in sorted_movers]),
        link_names=tuple(names),
        report=(*description.report, *notes.findings()),
        file_tree=_file_tree(description, sorted_movers),
        source=source,
        constraints=description.constraints,
        geometries=description.geometries,
        extensions=description.extensions,
        **columns,
    )


def _file_tree(description: RobotDescription, movers: Sequence[_Mover]) -> FileTree:
    joints = description.joints
    carrier = {joint.child: number for number, joint in enumerate(joints)}
    return FileTree(
        "urdf",
        tuple([joint.name for joint in joints]),
        tuple([joint.type for joint in joints]),
        tuple([carrier.get(joint.parent, -1) for joint in joints]),
        tuple([mover.file_order[0] for mover in movers]),
    )


def _rows(transforms: Sequence[Transform]) -> np.ndarray[Any, Any]:
    return np.array([(*X.E, *X.r) for X in transforms]).reshape(-1, 12)


def _coordinates(
    movers: Sequence[_Mover], kinds: Sequence[int], couplings: dict[str, Coupling]
) -> dict[str, np.ndarray[Any, Any]]:
    """The Model's arrays over coordinates and degrees of freedom of the tree: their sources and their joints' values.

    The loops fill lists. For the few joints of most robots they are faster than calls of NumPy.
    """
    by_name = {mover.name: i for i, mover in enumerate(movers)}
    coupling_of_joint = [couplings.get(mover.name) for mover in movers]
    followed = [
        (i, c, by_name[c.joint]) for i, c in enumerate(coupling_of_joint) if c is not None and c.joint is not None
    ]
    mimics = [-1] * len(movers)
    for i, _, leader in followed:
        mimics[i] = leader
    arrays: dict[str, np.ndarray[Any, Any]] = {"mimics": np.array(mimics, dtype=np.intp)}
    values = [_VALUES_OF_BASE if mover.joint is None else _values(mover.joint) for mover in movers]
    columns = dict(zip(_VALUES, zip(*values, strict=True), strict=True)) if values else dict.fromkeys(_VALUES, ())
    for letter, size_of, names in (("q", _NQ, _VALUES[:2]), ("v", _NV, _VALUES[2:])):
        sizes = [size_of[kind] for kind in kinds]
        start: list[int] = []
        source: list[int] = []
        free = 0
        for size, leader in zip(sizes, mimics, strict=True):
            start.append(len(source))
            source += range(free, free + size)
            free += size if leader < 0 else 0
        multiplier, offset = [1.0] * len(source), [0.0] * len(source)
        for i, coupling, leader in followed:
            source[start[i]] = source[start[leader]]
            multiplier[start[i]], offset[start[i]] = coupling.multiplier, coupling.offset
        arrays[f"{letter}_start"] = np.array(start, dtype=np.intp)
        arrays[f"{letter}_source"] = np.array(source, dtype=np.intp)
        arrays[f"{letter}_multiplier"] = np.array(multiplier)
        if letter == "q":
            arrays["q_offset"] = np.array(offset)
        for name in names:
            arrays[f"tree_{name}"] = np.array(
                [*chain.from_iterable(map(repeat, columns[name], sizes))], dtype=np.float64
            )
    return arrays


def _values(joint: Joint) -> tuple[float, ...]:
    """`_VALUES` of a joint. Only joints with one coordinate have position limits."""
    limits = joint.limits
    one = joint.type in ONE_COORDINATE_TYPES and joint.type != "continuous"
    return (
        -_INFINITE if limits.lower is None or not one else limits.lower,
        _INFINITE if limits.upper is None or not one else limits.upper,
        joint.armature,
        joint.damping,
        joint.friction,
        _INFINITE if limits.effort is None else limits.effort,
        _INFINITE if limits.velocity is None else limits.velocity,
    )
