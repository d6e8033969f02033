"""Shapes of a model for distances, and the pairs of them that distances are about."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.distances.formulas import Solid, nearest
from robodyn.algorithms.distances.scene import solid
from robodyn.algorithms.kinematics import forward_kinematics
from robodyn.core.description import Geometry
from robodyn.core.findings import Notes, Report
from robodyn.core.joints import CODE
from robodyn.core.shapes import KINDS, HeightField, Pairs, Shape
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, integer, one_of
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.io.builders.collisions import PAIR_CODES, note_geometries
from robodyn.io.builders.elements import Element, parse_xml
from robodyn.io.builders.sources import read_source
from robodyn.io.editing.carried import element_of

if TYPE_CHECKING:
    from robodyn.core.model import Model

_SAMPLES, _FIRST = 1000, 50
"""Random configurations in which pairs are looked at: most of them, and those that come first."""
_ALWAYS, _OFTEN = 0.95, 0.6
"""Share of the samples from which a pair counts as always touching; and share of the first ones below which the others
need not be looked at: of a pair that touches in 95 % of all, 50 have 30 or fewer with a probability below 1e-12."""
_MOST = 2000
"""Most shapes of which all pairs are looked at."""
_WANTED = (
    "wanted robodyn.Sphere, Capsule, Box, Cylinder or Plane: convex shapes with a formula; fit_spheres covers a mesh "
    "with spheres"
)


def with_shapes(model: Model, shapes: Any, pairs: Any, srdf: str | bytes | os.PathLike[str] | None) -> Model:
    """A model with other shapes; see `Model.with_shapes`."""
    given = strict_types.members(shapes) if strict_types.is_a(shapes, list, tuple) else None
    if given is None:
        raise ArgumentError(f"shapes: got {brief(shapes)}; wanted a list of shapes, {_WANTED.removeprefix('wanted ')}")
    for k, shape in enumerate(given):
        if type(shape) is HeightField:
            where = quoted(shape.link or "the world")
            raise UnavailableError(
                f"shapes[{k}]: got a HeightField on {where}; there is no formula for distances to height fields; cover "
                "it with Boxes or Spheres"
            )
        if type(shape) not in KINDS:
            raise ArgumentError(f"shapes[{k}]: got {brief(shape)}; {_WANTED}")
        try:
            model.link_index(shape.link)
        except ArgumentError as error:
            raise ArgumentError(f"shapes[{k}].{error}") from None
    looks = [replace(each, role="visual") for each in model.geometries if each.role == "both"]
    looks += [each for each in model.geometries if each.role == "visual"]
    report = Report(each for each in model.report if each.code not in PAIR_CODES)
    placed = tuple(shape.geometry for shape in given)
    bare = replace(model, geometries=(*looks, *placed), report=report, collision_pairs=())
    vars(bare)["shapes"] = given  # as they were given, and not as geometries give them to rounding
    notes = Notes()
    note_geometries(placed, notes)
    if strict_types.text_or_none(pairs) is not None:
        one_of("pairs", pairs, ("auto",))
        chosen = _auto(bare, notes) if srdf is None else _by_srdf(bare, srdf, notes)
    elif srdf is not None:
        raise ArgumentError("srdf: got one and a list of pairs; wanted pairs='auto' with an SRDF")
    else:
        chosen = _listed(bare, pairs)
    whole = replace(bare, collision_pairs=chosen, report=Report((*report, *notes.findings())))
    vars(whole)["shapes"] = given
    return whole


def auto_pairs(model: Model) -> Pairs:
    """The pairs of a model's shapes that `with_shapes` with pairs="auto" chooses."""
    return _auto(model, Notes())


def _listed(model: Model, pairs: Any) -> Pairs:
    """Pairs that a user lists: of shapes, by themselves, their names or indices, or of all shapes of links."""
    rows = strict_types.members(pairs) if strict_types.is_a(pairs, list, tuple) else None
    if rows is None:
        raise ArgumentError(f"pairs: got {brief(pairs)}; wanted 'auto' or a list of pairs of shapes or links")
    found: dict[tuple[int, int], None] = {}
    for k, row in enumerate(rows):
        members = strict_types.members(row) if strict_types.is_a(row, list, tuple) else ()
        if len(members) != 2:
            raise ArgumentError(f"pairs[{k}]: got {brief(row)}; wanted a pair of shapes or links")
        ones, others = (_named(model, f"pairs[{k}][{side}]", each) for side, each in enumerate(members))
        for i in ones:
            for j in others:
                if i == j:
                    raise ArgumentError(f"pairs[{k}]: got {_name(model, i)} twice; wanted two different shapes")
                if (j, i) not in found:
                    found[i, j] = None
                _require_formula(model, k, i, j)
    return tuple(found)


def _named(model: Model, where: str, given: Any) -> list[int]:
    """The indices of the shapes that a user names."""
    shapes = model.shapes
    number = integer(given)
    if number is not None:
        if not 0 <= number < len(shapes):
            raise ArgumentError(f"{where}: got {number}; wanted the index of a shape, 0 to {len(shapes) - 1}")
        return [number]
    if isinstance(given, Shape):
        same = [k for k, each in enumerate(shapes) if each is given] or [
            k for k, each in enumerate(shapes) if each == given
        ]
        if not same:
            raise ArgumentError(f"{where}: got {brief(given)}, which is not among the shapes; wanted one of them")
        return same[:1]
    name = strict_types.text_or_none(given)
    called = [k for k, each in enumerate(shapes) if name is not None and each.name == name]
    on_link = [k for k, each in enumerate(shapes) if each.link == name]
    if called and on_link and called != on_link:
        raise ArgumentError(
            f"{where}: got {brief(given)}, the name of a shape and of a link with other shapes; wanted the shape or "
            "its index"
        )
    if len(called) > 1:
        raise ArgumentError(
            f"{where}: got {brief(given)}, the name of {len(called)} shapes; wanted one of their indices"
        )
    if called or on_link:
        return called or on_link
    if name in model.link_names:
        raise ArgumentError(f"{where}: got the link {brief(given)}, which has no shape; wanted one that has")
    raise ArgumentError(f"{where}: got {brief(given)}; wanted a shape, its name or index, or the name of a link")


def _require_formula(model: Model, k: int, i: int, j: int) -> None:
    if model.collision_geometries[i].kind == model.collision_geometries[j].kind == "plane":
        raise UnavailableError(f"pairs[{k}]: there is no formula for the distance of two planes")


def _name(model: Model, k: int) -> str:
    shape = model.collision_geometries[k]
    return f"shape {k} " + (quoted(shape.name) if shape.name else f"of {quoted(shape.link)}")


class _Left:
    """Pairs that remain, and the notes of those that do not."""

    def __init__(self, model: Model, notes: Notes) -> None:
        self._model, self._notes = model, notes
        if len(model.collision_geometries) > _MOST:
            raise UnavailableError(
                f"pairs: {model.name!r} has {len(model.collision_geometries)} shapes; all pairs are looked at for at "
                f"most {_MOST}; wanted a list of pairs"
            )
        self.pairs = list(combinations(range(len(model.collision_geometries)), 2))

    def without(self, drops: Callable[[int, int], bool], reason: str) -> None:
        """Leave out pairs."""
        kept = []
        for i, j in self.pairs:
            if drops(i, j):
                self._notes.gather("pair-left-out", f"{_name(self._model, i)} - {_name(self._model, j)}", reason)
            else:
                kept.append((i, j))
        self.pairs = kept


def _auto(model: Model, notes: Notes) -> Pairs:
    left, body = _bodies_apart(model, notes), _bodies(model)
    above, tree = _carriers(model, body)
    left.without(lambda i, j: above[i] == body[j] or above[j] == body[i], "they are on neighbouring bodies")
    left.without(_of_mjcf(model), "the file excludes their contact")
    # What floats freely touches the floor or not, wherever its base happens to be put.
    free = [(i, j) for i, j in left.pairs if tree[i] != tree[j]]
    left.pairs = [(i, j) for i, j in left.pairs if tree[i] == tree[j]]
    touching = _touching(model, left.pairs, _reference(model)[None])[0]
    _drop(left, touching, "they touch where all joints are at zero, or at the limit next to it")
    rng = np.random.default_rng(0)
    hits = _touching(model, left.pairs, model.random_configuration(rng, (_FIRST,)))
    often = hits.mean(axis=0) > _OFTEN
    some = [pair for pair, is_often in zip(left.pairs, often, strict=True) if is_often]
    more = _touching(model, some, model.random_configuration(rng, (_SAMPLES - _FIRST,)))
    share = np.zeros(len(left.pairs))
    share[often] = (hits[:, often].sum(axis=0) + more.sum(axis=0)) / _SAMPLES
    _drop(left, share >= _ALWAYS, f"they touch in {_ALWAYS:.0%} or more of {_SAMPLES} random configurations")
    return tuple(sorted([*left.pairs, *free]))


def _carriers(model: Model, bodies: Sequence[int]) -> tuple[list[int | None], list[int]]:
    """For each of some bodies: the body that carries it, None for the world and what floats freely; and the root of its
    tree if that floats, else -1.

    Bodies without mass and shapes carry nothing: they are between the joints of one link, as of a universal joint.
    """
    parent = model.parent.tolist()
    solid_bodies = {*np.flatnonzero(model.inertia.any(axis=1)).tolist(), *bodies}
    above: list[int | None] = []
    tree = []
    for body in bodies:
        carrier, floats = body, False
        while carrier >= 0 and (carrier == body or carrier not in solid_bodies):
            floats = model.joint_kind[carrier] == CODE["floating"]
            carrier = parent[carrier]
        above.append(None if body < 0 or floats else carrier)
        root = int(model.tree.path(body)[0]) if body >= 0 else -1
        tree.append(root if root >= 0 and model.joint_kind[root] == CODE["floating"] else -1)
    return above, tree


def _bodies_apart(model: Model, notes: Notes) -> _Left:
    """All pairs but those of one body, and those without a formula."""
    left, body = _Left(model, notes), _bodies(model)
    kinds = [each.kind for each in model.collision_geometries]
    left.without(lambda i, j: body[i] == body[j], "they are on one body")
    left.without(lambda i, j: kinds[i] == kinds[j] == "plane", "there is no formula for two planes")
    return left


def _drop(left: _Left, flags: Array, reason: str) -> None:
    dropped = {pair for pair, flag in zip(left.pairs, flags.tolist(), strict=True) if flag}
    left.without(lambda i, j: (i, j) in dropped, reason)


def _bodies(model: Model) -> list[int]:
    return [int(model.link_body[model.link_index(each.link)]) for each in model.collision_geometries]


def _reference(model: Model) -> Array:
    """Zero, or the nearest value within limits."""
    q = model.neutral()
    lower, upper = model.lower, model.upper
    with np.errstate(invalid="ignore"):
        clipped: Array = np.where(lower <= upper, np.clip(q, lower, upper), q)
    return clipped


def _of_mjcf(model: Model) -> Callable[[int, int], bool]:
    """Whether the MJCF that was read excludes a pair: by its bit masks, or by an element `<exclude>`."""
    masks = []
    for each in model.collision_geometries:
        found = dict(each.attributes) if each.format == "mjcf" else {}
        masks.append((int(found.get("contype", 1)), int(found.get("conaffinity", 1))))
    pairs = set()
    for extension in model.extensions:
        if extension.format == "mjcf" and extension.text.startswith("<exclude"):
            named = element_of(extension).attributes
            pairs.add(frozenset({named.get("body1"), named.get("body2")}))
    links = [each.link for each in model.collision_geometries]

    def excludes(i: int, j: int) -> bool:
        (type_i, with_i), (type_j, with_j) = masks[i], masks[j]
        return not (type_i & with_j or type_j & with_i) or frozenset({links[i], links[j]}) in pairs

    return excludes


def _touching(model: Model, pairs: Sequence[tuple[int, int]], q: Array) -> Array:
    """(B, pairs) True where a pair touches in the configurations q (B, nq)."""
    hits = np.zeros((len(q), len(pairs)), bool)
    if not pairs:
        return hits
    T = np.empty((len(q), len(model.link_names), 4, 4))
    with np.errstate(all="ignore"):
        ReferenceEngine(model, np.dtype(np.float64)).run(forward_kinematics(False), {"q": q}, {"T": T})
        shapes, kinds = model.collision_geometries, [each.kind for each in model.collision_geometries]
        groups: dict[tuple[str, str], list[int]] = {}
        for p, (i, j) in enumerate(pairs):
            groups.setdefault((kinds[i], kinds[j]), []).append(p)
        for members in groups.values():
            ones, others = ([shapes[pairs[p][side]] for p in members] for side in (0, 1))
            hits[:, members] = nearest(_stacked(model, ones, T), _stacked(model, others, T)).d <= 0.0
    return hits


def _stacked(model: Model, shapes: Sequence[Geometry], T: Array) -> Solid:
    """Shapes of one kind in many configurations, as one whose scalars are arrays (B, shapes)."""
    poses = T[:, [model.link_index(each.link) for each in shapes]].reshape(len(T), len(shapes), 16)
    xyz, rotation, size = (
        list(np.array(rows).T)
        for rows in zip(*((each.pose.xyz, each.pose.rotation, each.size) for each in shapes), strict=True)
    )
    return solid(shapes[0].kind, xyz, rotation, size, list(np.moveaxis(poses, -1, 0)))


def _by_srdf(model: Model, srdf: str | bytes | os.PathLike[str], notes: Notes) -> Pairs:
    """All pairs of different bodies that an SRDF does not disable."""
    elements: list[Element] = []
    parse_xml(read_source(srdf), None, frozenset(), elements.append)
    disabled, enabled, alone = set(), set(), set()
    for element in elements:
        names = [element.attributes.get(key, "") for key in ("link1", "link2")]
        if element.tag == "disable_collisions":
            disabled.add(frozenset(names))
        elif element.tag == "enable_collisions":
            enabled.add(frozenset(names))
        elif element.tag == "disable_default_collisions":
            alone.add(element.attributes.get("link", ""))
    known = set(model.link_names)
    for name in sorted({name for pair in disabled | enabled for name in pair} | alone):
        if name not in known:
            notes.gather("srdf-unknown-link", f"link {quoted(name)}", "the SRDF names a link that the robot lacks")
    links = [each.link for each in model.collision_geometries]

    def disables(i: int, j: int) -> bool:
        pair = frozenset({links[i], links[j]})
        return pair not in enabled and (pair in disabled or bool(pair & alone))

    left = _bodies_apart(model, notes)
    left.without(disables, "the SRDF disables their links")
    return tuple(left.pairs)
