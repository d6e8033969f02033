"""Checks of the fields of a `Model`, and ownership of its arrays: no other code can write to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from robodyn.core.constraints.kinds import KINDS as CONSTRAINTS
from robodyn.core.constraints.kinds import Constraint
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.description import (
    GEOMETRY_SIZES,
    ROLES,
    Extension,
    FileTree,
    Finding,
    Geometry,
    Pose,
    RobotDescription,
)
from robodyn.core.findings import Report, is_finding
from robodyn.core.joints import KINDS
from robodyn.core.shapes import Pairs, is_shape
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, finite_number, integer, real_array, require_finite
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.provided import provided
from robodyn.internals.records import dataclass


class Numbered(Sequence[str]):
    """The names prefix0, prefix1, ..., made on access, so that ten million of them take no memory."""

    def __init__(self, prefix: str, n: int) -> None:
        self.prefix, self.n = prefix, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self.n)[index]
        return tuple(f"{self.prefix}{i}" for i in chosen) if isinstance(chosen, range) else f"{self.prefix}{chosen}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            return (self.prefix, self.n) == (other.prefix, other.n)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))


class Configurations(Mapping[str, "NDArray[np.float64]"]):
    """Names to configurations q (nq,), read-only, in robodyn's order and convention. Immutable."""

    __slots__ = ("_places", "_rows")

    def __init__(self, names: Iterable[str] = (), rows: Array | None = None) -> None:
        ordered = tuple(names)
        self._places = {name: k for k, name in enumerate(ordered)}
        self._rows: NDArray[np.float64] = np.array(rows, np.float64) if ordered else np.zeros((0, 0))
        if len(self._places) < len(ordered) or self._rows.ndim != 2 or len(self._rows) != len(ordered):
            raise ArgumentError(
                f"rows: got shape {self._rows.shape} for {len(ordered)} names; wanted a row for each name"
            )
        self._rows.setflags(write=False)

    @property
    def rows(self) -> NDArray[np.float64]:
        """(number of configurations, nq) all of them, in the order of their names; (0, 0) if there are none."""
        return self._rows

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self._rows[self._places[name]]
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configurations):
            return NotImplemented
        return tuple(self) == tuple(other) and np.array_equal(self._rows, other._rows)

    def __hash__(self) -> int:
        return hash((tuple(self), (self._rows + 0.0).tobytes()))  # -0.0 becomes 0.0, which it equals

    def __repr__(self) -> str:
        return f"Configurations({', '.join(map(repr, self))})"

    def __reduce__(self) -> Any:
        return Configurations, (tuple(self), self._rows)


@dataclass(frozen=True)
class _Field:
    """An array field: its axes (numbers or names of sizes), its dtype, and the range of its entries."""

    axes: tuple[str | int, ...]
    dtype: Any = np.float64
    infinite: bool = False
    """True if entries may be infinite."""
    smallest: int = 0
    end: str = ""
    """Integers range from `smallest` to the size of this name, exclusive."""
    optional: bool = False
    """True if it may be None."""

    @property
    def wanted(self) -> str:
        """The allowed entries, for messages."""
        if self.dtype != np.float64:
            return "integers"
        return "numbers, finite or infinite," if self.infinite else "finite numbers"


_ARRAYS: dict[str, _Field] = {
    "parent": _Field(("n_bodies",), np.intp, smallest=-1, end="n_bodies"),
    "joint_kind": _Field(("n_bodies",), np.int8, end="joint kinds"),
    "Xtree": _Field(("n_bodies", 12)),
    "inertia": _Field(("n_bodies", 10)),
    "pitch": _Field(("n_bodies",)),
    "mimics": _Field(("n_bodies",), np.intp, smallest=-1, end="n_bodies"),
    "q_start": _Field(("n_bodies",), np.intp, end="nq_tree + 1"),
    "v_start": _Field(("n_bodies",), np.intp, end="nv_tree + 1"),
    "q_source": _Field(("nq_tree",), np.intp, end="nq"),
    "q_multiplier": _Field(("nq_tree",)),
    "q_offset": _Field(("nq_tree",)),
    "v_source": _Field(("nv_tree",), np.intp, end="nv"),
    "v_multiplier": _Field(("nv_tree",)),
    "tree_armature": _Field(("nv_tree",)),
    "tree_damping": _Field(("nv_tree",)),
    "tree_friction": _Field(("nv_tree",)),
    "tree_lower": _Field(("nq_tree",), infinite=True),
    "tree_upper": _Field(("nq_tree",), infinite=True),
    "tree_effort": _Field(("nv_tree",), infinite=True),
    "tree_velocity": _Field(("nv_tree",), infinite=True),
    "link_body": _Field(("n_links",), np.intp, smallest=-1, end="n_bodies"),
    "link_X": _Field(("n_links", 12)),
    "link_parent": _Field(("n_links",), np.intp, smallest=-1, end="n_links", optional=True),
    "link_inertia": _Field(("n_links", 10), optional=True),
    "gravity": _Field((3,)),
}
"""Array fields in the order of their checks: arrays that determine sizes come first."""
_MOST_ITERATIONS = 100
_TURNED = 1e-6
"""Tolerance for the rotation of a shape to be orthogonal."""
_NAMES = {"link_names": "n_links", "joint_names": "n_bodies", "body_names": "n_bodies", "link_joints": "n_links"}
OPTIONAL = (*(name for name, field in _ARRAYS.items() if field.optional), "link_joints")
"""Fields that may be None."""
FIRST_AXES = {**{name: str(field.axes[0]) for name, field in _ARRAYS.items() if name != "gravity"}, **_NAMES}
"""Name of the size of a field's first axis."""
REFERENCES = {name: field.end for name, field in _ARRAYS.items() if field.smallest < 0}
"""Fields whose entries are indices of bodies or links, -1 for none, and the name of their number."""


class _Owned:
    """Arrays that models own. Models that are derived from others share them.

    Arrays of other code are copied: although one is read-only, another array may write to its memory. The arrays are
    kept by identity as weak references. Dead references are dropped once they may be half of all. A callback for every
    array, as in a `WeakValueDictionary`, takes longer than all other work here.
    """

    def __init__(self) -> None:
        self._held: dict[int, ref[Array]] = {}
        self._room = 4096

    def add(self, arrays: Sequence[Array]) -> None:
        self._held.update(zip(map(id, arrays), map(ref, arrays), strict=True))
        if len(self._held) > self._room:
            self._held = {key: held for key, held in list(self._held.items()) if held() is not None}
            self._room = max(4096, 2 * len(self._held))

    def __contains__(self, array: Array) -> bool:
        held = self._held.get(id(array))
        return held is not None and held() is array


_OWNED = _Owned()


def owned(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model, from arrays that no other code holds.

    Arrays become read-only. Views of memory that others can change are copied. Other values stay as they are.
    """
    fields = dict(given)
    arrays = []
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            if not value.flags.owndata:
                fields[name] = value = _of_its_own(value)
            value.setflags(write=False)
            arrays.append(value)
    _OWNED.add(arrays)
    return fields


def _of_its_own(array: Array) -> Array:
    """A view, or a copy of it if others can change its memory."""
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    return array if isinstance(memory.base, bytes) else array.copy()  # bytes are immutable: it was unpickled


def checked_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked fields of a model: arrays that no other code can write to, names as tuples.

    Raises:
        ArgumentError: a field of another type or shape, or with values that no robot has; names it.
    """
    name = strict_types.text_or_none(given["name"])
    if name is None:
        raise ArgumentError(f"name: got {brief(given['name'])}; wanted a text")
    checked: dict[str, Any] = {"name": name, "report": _findings(given["report"])}
    checked["file_tree"] = tree = given.get("file_tree")
    if tree is not None and not _is_sound(tree):
        raise ArgumentError(f"file_tree: got {brief(tree)}; wanted a robodyn.description.FileTree or None")
    checked["source"] = source = given.get("source")
    if source is not None and type(source) is not str:
        raise ArgumentError(f"source: got {brief(source)}; wanted a text or None")
    checked["constraints"], checked["proximal"] = _constraints(given["constraints"]), _proximal(given["proximal"])
    checked["geometries"], checked["extensions"] = _geometries(given["geometries"]), _extensions(given["extensions"])
    checked["link_names"] = _names("link_names", given["link_names"], None, "")
    parent = as_array("parent", given["parent"], "wanted a one-dimensional array of integers")
    sizes = {"n_bodies": parent.shape[0] if parent.ndim == 1 else 0, "n_links": len(checked["link_names"])}
    sizes["joint kinds"] = len(KINDS)
    for name, field in _ARRAYS.items():
        if field.optional and given[name] is None:
            checked[name] = None
            continue
        checked[name] = array = _array(name, given[name], field, sizes)
        if name == "parent":
            _require_order(array)
        elif name == "mimics":
            sizes |= _sizes(checked["joint_kind"], array)
    for name in ("joint_names", "body_names", "link_joints"):
        none = given[name] is None and name in OPTIONAL
        checked[name] = None if none else _names(name, given[name], sizes[_NAMES[name]], _NAMES[name])
    checked["configurations"] = _configurations(given["configurations"], sizes["nq"])
    checked["collision_pairs"] = _collision_pairs(given["collision_pairs"], sum(map(is_shape, checked["geometries"])))
    checked["contacts"] = _contacts(given["contacts"], checked)
    _require_places(checked)
    _require_couplings(checked)
    _require_forest(checked["link_parent"])
    return checked


def _array(name: str, value: Any, field: _Field, sizes: Mapping[str, int]) -> Array:
    shape = tuple(axis if isinstance(axis, int) else sizes[axis] for axis in field.axes)
    text = ", ".join(map(str, field.axes)) + ("," if len(shape) == 1 else "")
    named = f" = ({text})" if any(isinstance(axis, str) for axis in field.axes) else ""
    wanted = f"wanted {field.wanted} of shape {shape}{named}"
    array = as_array(name, value, wanted)
    real = field.dtype == np.float64
    if array.dtype.kind not in ("fiu" if real else "iu") and (array.size or array.dtype.kind != "f"):
        raise ArgumentError(f"{name}: got {brief(value)} of dtype {array.dtype}; {wanted}")
    if array.shape != shape:
        raise ArgumentError(f"{name}: got shape {array.shape}; {wanted}")
    if not real:
        _require_range(name, array, field.smallest, sizes[field.end])
    if array not in _OWNED or array.dtype != field.dtype:
        with np.errstate(over="ignore"):  # for numbers with more bits than a float64
            array = owned({name: np.array(array, dtype=field.dtype, order="C", copy=True, subok=False)})[name]
    if real:
        wrong = np.isnan(array) if field.infinite else ~np.isfinite(array)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            raise ArgumentError(f"{name}{list(place)}: got {array[place]}; {wanted}")
    return array


def _require_range(name: str, array: Array, smallest: int, end: int) -> None:
    if array.size and not (smallest <= int(array.min()) and int(array.max()) < end):
        i = int(np.flatnonzero((array < smallest) | (array >= end))[0])
        raise ArgumentError(f"{name}[{i}]: got {array[i]}; wanted an integer from {smallest} to {end - 1}")


def _require_order(parent: Array) -> None:
    wrong = np.flatnonzero(parent >= np.arange(parent.size))
    if wrong.size:
        i = int(wrong[0])
        before = f" or a body before it, 0 to {i - 1}" if i else ""
        raise ArgumentError(f"parent[{i}]: got {parent[i]}; wanted -1 (the world){before}")


def _sizes(kind: Array, mimics: Array) -> dict[str, int]:
    """Numbers of coordinates and velocities of all joints, with those of mimicking joints and without."""
    free = np.bincount(kind[mimics < 0], minlength=len(KINDS))
    every = np.bincount(kind, minlength=len(KINDS))
    sizes = {}
    for letter in "qv":
        each = np.array([getattr(row, f"n{letter}") for row in KINDS])
        sizes[f"n{letter}"], sizes[f"n{letter}_tree"] = int(free @ each), int(every @ each)
        sizes[f"n{letter}_tree + 1"] = sizes[f"n{letter}_tree"] + 1
    return sizes


def _require_places(found: Mapping[str, Any]) -> None:
    """Raise unless tree coordinates are in the order of joints, and joints mimic only joints that mimic none."""
    kind, mimics = found["joint_kind"], found["mimics"]
    followers = np.flatnonzero(mimics >= 0)
    led = followers[mimics[mimics[followers]] >= 0]
    if led.size:
        i = int(led[0])
        raise ArgumentError(
            f"mimics[{i}]: got {mimics[i]}, whose joint follows another; wanted -1 or a body whose joint follows none"
        )
    for letter in "qv":
        each = np.array([getattr(row, f"n{letter}") for row in KINDS])[kind]
        start = np.cumsum(each) - each
        _require_equal(f"{letter}_start", found[f"{letter}_start"], start, np.arange(kind.size))
        own = np.flatnonzero(np.repeat(mimics < 0, each))
        _require_equal(f"{letter}_source", found[f"{letter}_source"][own], np.arange(own.size), own)


def _require_couplings(found: Mapping[str, Any]) -> None:
    """Raise unless coordinates of joints that mimic none are independent (multiplier 1, offset 0), and mimicking
    joints are linear functions of their leaders."""
    mimics, names = found["mimics"], found["joint_names"]
    followers = np.flatnonzero(mimics >= 0)
    leaders = mimics[followers]
    each = {letter: np.array([getattr(row, f"n{letter}") for row in KINDS])[found["joint_kind"]] for letter in "qv"}
    for name, own in (("q_multiplier", 1.0), ("q_offset", 0.0), ("v_multiplier", 1.0)):
        body = np.repeat(np.arange(mimics.size), each[name[0]])
        wrong = np.flatnonzero((mimics[body] < 0) & (found[name] != own))
        if wrong.size:
            k = int(wrong[0])
            joint = quoted(names[body[k]])
            raise ArgumentError(f"{name}[{k}]: got {found[name][k]:g}; wanted {own:g}: joint {joint} follows none")
    several = (each["q"] != 1) | (each["v"] != 1)
    for i, leader in zip(followers.tolist(), leaders.tolist(), strict=True):
        pair = f"joint {quoted(names[i])} follows {quoted(names[leader])}"
        if several[i] or several[leader]:
            raise ArgumentError(f"mimics[{i}]: got {leader}: {pair}; wanted joints of one coordinate, or -1")
    q, v = found["q_start"][followers], found["v_start"][followers]
    theirs = {letter: found[f"{letter}_source"][found[f"{letter}_start"][leaders]] for letter in "qv"}
    for name, at, wanted in (
        ("q_source", q, theirs["q"]),
        ("v_source", v, theirs["v"]),
        ("v_multiplier", v, found["q_multiplier"][q]),
    ):
        wrong = np.flatnonzero(found[name][at] != wanted)
        if wrong.size:
            k = int(wrong[0])
            pair = f"joint {quoted(names[followers[k]])} follows {quoted(names[leaders[k]])}"
            more = f" with multiplier {wanted[k]:g}" if name == "v_multiplier" else ""
            raise ArgumentError(f"{name}[{at[k]}]: got {found[name][at[k]]:g}; wanted {wanted[k]:g}: {pair}{more}")


def _require_equal(name: str, got: Array, wanted: Array, places: Array) -> None:
    wrong = np.flatnonzero(got != wanted)
    if wrong.size:
        k = wrong[0]
        raise ArgumentError(
            f"{name}[{places[k]}]: got {got[k]}; wanted {wanted[k]}: coordinates stand in the order of their joints"
        )


def _require_forest(link_parent: Array | None) -> None:
    """Raise if links form a cycle."""
    if link_parent is None or not link_parent.size:
        return
    above = np.append(link_parent, -1)  # the last entry is the parent of -1
    for _ in range(int(link_parent.size).bit_length()):
        above = above[above]
    circle = np.flatnonzero(above >= 0)
    if circle.size:
        k = int(circle[0])
        raise ArgumentError(f"link_parent[{k}]: got {link_parent[k]}, which leads in a circle; wanted a tree of links")


def _names(name: str, value: Any, count: int | None, each: str) -> Sequence[str]:
    one = "link" if each == "n_links" else "body"
    wanted = "a tuple of names" if count is None else f"a tuple of {count} names, one for each {one}"
    names = _numbered_or_texts(value)
    if names is None:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted {wanted}")
    if count is not None and len(names) != count:
        raise ArgumentError(f"{name}: got {len(names)} names; wanted {wanted}")
    return names


def _numbered_or_texts(value: Any) -> Sequence[str] | None:
    """`Numbered` names as they are; other names as a tuple of exact `str`; None for anything else."""
    if type(value) is Numbered:
        return cast(Sequence[str], value)
    if not strict_types.is_a(value, tuple, list):
        return None
    entries = strict_types.members(value)
    if strict_types.all_are(entries, str):
        return entries
    names = tuple(text for text in map(strict_types.text_or_none, entries) if text is not None)
    return names if len(names) == len(entries) else None


def _is_sound(tree: Any) -> bool:
    if not strict_types.is_whole(tree, FileTree):
        return False
    columns = ((tree.names, str), (tree.types, str), (tree.carriers, int), (tree.joints, int))
    count = len(tree.names) if type(tree.names) is tuple else 0
    return (
        type(tree.format) is str
        and all(type(each) is tuple and strict_types.all_are(each, kind) for each, kind in columns)
        and len(tree.types) == len(tree.carriers) == count
        and all(-1 <= j < count for places in (tree.carriers, tree.joints) for j in places)
    )


def _constraints(value: Any) -> tuple[Constraint, ...]:
    return _parts("constraints", value, CONSTRAINTS, "a list of Point, Weld, Rod, Rolling, Coupling or Lock")


def _geometries(value: Any) -> tuple[Geometry, ...]:
    geometries = _parts("geometries", value, (Geometry,), "a tuple of robodyn.description.Geometry")
    for k, each in enumerate(geometries):
        require_geometry(f"geometries[{k}]", each)
    return geometries


def _collision_pairs(value: Any, shapes: int) -> Pairs | None:
    """Pairs of indices of shapes, or None."""
    if value is None:
        return None
    rows = strict_types.members(value) if strict_types.is_a(value, tuple, list) else (None,)
    pairs = []
    for k, row in enumerate(rows):
        pair = strict_types.members(row) if strict_types.is_a(row, tuple, list) else ()
        one, other = (integer(i) for i in pair) if len(pair) == 2 else (None, None)
        if one is None or other is None or not (0 <= one < shapes and 0 <= other < shapes) or one == other:
            raise ArgumentError(
                f"collision_pairs[{k}]: got {brief(row)}; wanted two different indices of shapes, 0 to {shapes - 1}"
            )
        pairs.append((one, other))
    return tuple(pairs)


def _contacts(value: Any, checked: Mapping[str, Any]) -> Contacts | None:
    """Contacts whose links, joints and constraints the model has; None for none."""
    if value is None:
        return None
    if type(value) is not Contacts:
        raise ArgumentError(f"contacts: got {brief(value)}; wanted None, or a model's contacts (Model.with_contacts)")
    links, joints = {"", *checked["link_names"]}, set(checked["joint_names"])
    for k, pair in enumerate(value.pairs):
        for each in (pair.first, pair.second):
            if each.link not in links:
                raise ArgumentError(f"contacts.pairs[{k}]: got the link {brief(each.link)}, which the model has not")
    for row in (*value.limits, *value.dry_friction):
        if row.joint not in joints:
            raise ArgumentError(f"contacts: got a row of the joint {brief(row.joint)}, which the model has not")
    if len(value.equalities) != len(checked["constraints"]):
        raise ArgumentError(
            f"contacts: got rows of {len(value.equalities)} constraints for a model of {len(checked['constraints'])}; "
            "wanted with_contacts on the model with its constraints"
        )
    return value


def _extensions(value: Any) -> tuple[Extension, ...]:
    extensions = _parts("extensions", value, (Extension,), "a tuple of robodyn.description.Extension")
    for k, each in enumerate(extensions):
        _require_extension(f"extensions[{k}]", each)
    return extensions


def _parts(name: str, value: Any, kinds: Collection[type[Any]], wanted: str) -> tuple[Any, ...]:
    """A tuple of objects whose types are exactly `kinds`."""
    if not strict_types.is_a(value, tuple, list):
        raise ArgumentError(f"{name}: got {brief(value)}; wanted {wanted}")
    entries = strict_types.members(value)
    for k, each in enumerate(entries):
        if not strict_types.is_whole(each, *kinds):
            raise ArgumentError(f"{name}[{k}]: got {brief(each)}; wanted {wanted}")
    return entries


def require_geometry(name: str, each: Geometry) -> None:
    """Raise an ArgumentError unless these are the values of a geometry."""
    for key in ("link", "role", "kind", "mesh", "folder", "name", "material", "texture", "format", "elements"):
        if type(getattr(each, key)) is not str:
            raise ArgumentError(f"{name}.{key}: got {brief(getattr(each, key))}; wanted a text")
    for key, allowed in (("role", ROLES), ("kind", tuple(GEOMETRY_SIZES))):
        if getattr(each, key) not in allowed:
            raise ArgumentError(f"{name}.{key}: got {brief(getattr(each, key))}; allowed are {', '.join(allowed)}")
    if not strict_types.is_whole(each.pose, Pose):
        raise ArgumentError(f"{name}.pose: got {brief(each.pose)}; wanted a robodyn.description.Pose")
    rows = {"pose.xyz": (each.pose.xyz, 3), "pose.rotation": (each.pose.rotation, 9)}
    rows["size"] = each.size, GEOMETRY_SIZES[each.kind]
    if each.color is not None:
        rows["color"] = each.color, 4
    for key, (row, count) in rows.items():
        if type(row) is not tuple or len(row) != count or not all(type(x) is float and math.isfinite(x) for x in row):
            raise ArgumentError(f"{name}.{key}: got {brief(row)}; wanted a tuple of {count} finite floats")
    turn = np.reshape(each.pose.rotation, (3, 3))
    if not np.allclose(turn @ turn.T, np.eye(3), atol=_TURNED) or np.linalg.det(turn) < 0.0:
        raise ArgumentError(f"{name}.pose.rotation: got {each.pose.rotation}; wanted a rotation, row by row")
    least = {"mesh": -math.inf, "plane": 0.0}.get(each.kind, 5e-324)
    lengths = each.size[:1] if each.kind == "capsule" and each.size[1] == 0.0 else each.size  # a sphere
    if not all(x >= least for x in lengths) or (each.kind == "mesh" and not all(each.size)):
        wanted = {"mesh": "factors other than 0", "plane": "edges of 0 or more"}.get(each.kind, "lengths above 0")
        raise ArgumentError(f"{name}.size: got {each.size}; wanted {wanted}")
    if each.color is not None and not all(0.0 <= x <= 1.0 for x in each.color):
        raise ArgumentError(f"{name}.color: got {each.color}; wanted numbers from 0 to 1")
    pairs = each.attributes if type(each.attributes) is tuple else (None,)
    if not all(type(pair) is tuple and len(pair) == 2 and strict_types.all_are(pair, str) for pair in pairs):
        raise ArgumentError(f"{name}.attributes: got {brief(each.attributes)}; wanted a tuple of pairs of texts")


def _require_extension(name: str, each: Extension) -> None:
    for key in ("format", "parent", "of", "text"):
        if type(getattr(each, key)) is not str:
            raise ArgumentError(f"{name}.{key}: got {brief(getattr(each, key))}; wanted a text")
    try:
        provided("parse_xml")(each.text.encode("utf-8", "replace"), None, frozenset(), lambda element: None)
    except LoadError as error:
        raise ArgumentError(f"{name}.text: got {brief(each.text)}; wanted an element of XML: {error}") from None


def with_sound_parts(description: RobotDescription) -> RobotDescription:
    """The description with checked geometries and extensions, as tuples.

    Raises:
        ArgumentError: some of them are invalid.
    """
    shapes, kept = _geometries(description.geometries), _extensions(description.extensions)
    if shapes is description.geometries and kept is description.extensions:
        return description
    return replace(description, geometries=shapes, extensions=kept)


def _proximal(value: Any) -> tuple[float, int]:
    pair = strict_types.members(value) if strict_types.is_a(value, tuple, list) else ()
    if len(pair) == 2:
        size, times = finite_number("proximal", pair[0]), integer(pair[1])
        if 0.0 < size <= 1.0 and times is not None and 1 <= times <= _MOST_ITERATIONS:
            return size, times
    raise ArgumentError(
        f"proximal: got {brief(value)}; wanted (size, iterations), above 0 and at most 1, and 1 to {_MOST_ITERATIONS}"
    )


def _configurations(value: Any, nq: int) -> Configurations:
    """`Configurations` from themselves, or from a dictionary of names to arrays (nq,).

    Raises:
        ArgumentError: something else, or other shapes.
        NumericalError: NaN or infinity.
    """
    if type(value) is Configurations:
        if not value or value.rows.shape[1] == nq:
            require_finite("configurations", value.rows, 1)
            return value
        value = dict(value)
    if not strict_types.is_a(value, dict):
        raise ArgumentError(f"configurations: got {brief(value)}; wanted a dictionary of names to q of shape ({nq},)")
    named = dict(dict.items(value))
    rows: list[Array] = []
    for name, q in named.items():
        if type(name) is not str or not name.strip():
            raise ArgumentError(f"configurations: got the name {brief(name)}; wanted a text that is not blank")
        what = f"configurations[{quoted(name)}]"
        row = real_array(what, q, (nq,), np.float64)
        if row.ndim != 1:
            raise ArgumentError(f"{what}: got shape {row.shape}; wanted ({nq},)")
        require_finite(what, row, 1)
        rows.append(row)
    return Configurations(named, np.array(rows).reshape(len(rows), nq))


def _findings(value: Any) -> Report:
    findings = strict_types.members(value) if strict_types.is_a(value, tuple, list) else (None,)
    if not all(map(is_finding, findings)):
        raise ArgumentError(f"report: got {brief(value)}; wanted a tuple of findings, whose fields have their types")
    return Report(cast(tuple[Finding, ...], findings))
