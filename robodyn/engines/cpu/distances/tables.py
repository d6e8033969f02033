"""Tables of shapes and pairs that loops read.

Shapes of one link form a *cluster*, with a sphere around them; a half-space is a cluster of its own. A *visit* is a
pair of clusters; those that are nearest on average come first. Its *groups* are its pairs of spheres with equal sums of
radii, which need one root together; its other pairs of spheres; and all other pairs, one by one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence

import numpy as np

from robodyn.algorithms.distances.formulas import Ball, Flat, Solid
from robodyn.algorithms.distances.solids import (
    BALL,
    FLAT,
    FRAME,
    SIZES,
    enclosed,
    enclosing_sphere,
    form_of,
    link_frames,
    numbers_of,
    on_link,
)
from robodyn.algorithms.distances.tasks import Measured, cost
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Motion, Transform
from robodyn.engines.reference import ReferenceEngine
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import TESTED_OPERATIONS

NUMBERS = max(SIZES)
"""Numbers of a shape in its table."""
SPACE = tuple(size + (form not in (BALL, FLAT)) for form, size in enumerate(SIZES))
"""Vectors of a shape in world coordinates: its numbers, and the radius of a sphere around it if it has another one."""
FORMS = range(len(SIZES))
"""Codes of forms; `len(FORMS) * one + other` is that of a pair."""
SPHERES = len(FORMS) ** 2
"""The code of a group of spheres with different sums of radii."""
_EQUAL = 3
"""Pairs of spheres from which equal sums of radii are a group."""
_SAMPLES = 64
"""Configurations in which spheres are compared for the order of visits."""
DOF = 9
"""Numbers of a degree of freedom: its motion in the frame of its link, the first rank of the bodies that it moves and
the one after the last, and the multiplier of its velocity."""


class Placed(ctypes.Structure):
    """A shape: the first number of its link's frame, and its own first vector."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("frame", "at"))


class Cluster(ctypes.Structure):
    """The frame of its link, the shapes that obstacles are measured to, and 1 if its sphere is worth a test."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("frame", "first", "last", "tested"))


class Near(ctypes.Structure):
    """A shape that obstacles are measured to: its form, first vector, cluster and body."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("form", "at", "cluster", "body"))


class Visit(ctypes.Structure):
    """Two clusters, the groups of their pairs, and 1 if their spheres are worth a test."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("one", "other", "first", "last", "tested"))


class Group(ctypes.Structure):
    """The code of its pairs, these, and its visit."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("code", "first", "last", "visit"))


class Pair(ctypes.Structure):
    """First vectors of two shapes."""

    _fields_ = tuple((name, ctypes.c_int32) for name in ("one", "other"))


class Listed(ctypes.Structure):
    """A pair in the order of the results: its code, first vectors of both shapes, and their bodies."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("code", "one", "other", "body", "other_body"))


class Dof(ctypes.Structure):
    """A degree of freedom: the first number of its link's frame, and its velocity."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("frame", "velocity"))


@dataclass(frozen=True)
class Tables:
    """What loops read.

    `arrays`: integers and real numbers by name; `forms`: forms of all shapes; `near_forms`: of those that obstacles are
    measured to; `own_codes`: of pairs or groups; `links`: links whose frames are read; `vectors`: vectors of all
    shapes; `blind`: True if a coordinate may be NaN while all spheres are numbers; `operations`: a rough number for one
    state.
    """

    arrays: dict[str, Array]
    forms: tuple[int, ...]
    near_forms: tuple[int, ...]
    own_codes: tuple[int, ...]
    links: tuple[int, ...]
    vectors: int
    blind: bool
    operations: int


class _Maker:
    def __init__(self, model: Model, asked: Measured) -> None:
        self.model, self.asked = model, asked
        self.geometries = model.collision_geometries
        self.links = [model.link_index(each.link) for each in self.geometries]
        self.solids: list[Solid] = [on_link(each) for each in self.geometries]
        self.forms = [form_of(each) for each in self.solids]
        used = {k for pair in asked.pairs for k in pair} | set(asked.near)
        self.order = sorted(used, key=lambda k: (self.forms[k], self.links[k]))
        sizes = [SPACE[self.forms[k]] for k in self.order]
        self.at = dict(zip(self.order, (np.cumsum(sizes) - sizes).tolist(), strict=True))
        self.vectors = sum(sizes)
        self.clusters: dict[tuple[int, int], list[int]] = {}
        for k in sorted(used):
            self.clusters.setdefault(self._key(k), []).append(k)
        self.numbers = {key: n for n, key in enumerate(self.clusters)}
        self.arrays = {**self.shapes(), **self.spheres()}
        self.arrays |= {"parent": model.parent, "v_start": model.v_start}
        self.arrays |= self.visits() if asked.is_least else {"listed": self.listed()}

    def _key(self, k: int) -> tuple[int, int]:
        return self.links[k], k if isinstance(self.solids[k], Flat) else -1

    def cluster(self, k: int) -> int:
        return self.numbers[self._key(k)]

    def code(self, i: int, j: int) -> int:
        return len(FORMS) * self.forms[i] + self.forms[j]

    def body(self, k: int) -> int:
        return int(self.model.link_body[self.links[k]])

    def cost(self, i: int, j: int) -> int:
        return cost(self.geometries[i].kind, self.geometries[j].kind)

    def shapes(self) -> dict[str, Array]:
        own = np.zeros((len(self.order), NUMBERS))
        for row, k in enumerate(self.order):
            numbers = numbers_of(self.solids[k])
            own[row, : len(numbers)] = numbers
        starts = np.searchsorted([self.forms[k] for k in self.order], [*FORMS, len(FORMS)])
        rows = [(12 * self.links[k], self.at[k]) for k in self.order]
        return {"shapes": _table(rows, Placed), "shape numbers": own, "form starts": starts}

    def spheres(self) -> dict[str, Array]:
        """Clusters, their spheres, and the ranks of their bodies."""
        near = sorted(self.asked.near, key=lambda k: (self.cluster(k), self.forms[k]))
        places = [self.cluster(k) for k in near]
        first, last = (np.searchsorted(places, range(len(self.clusters)), side) for side in ("left", "right"))
        rows, spheres, ranks = [], [], []
        for n, members in enumerate(self.clusters.values()):
            centre, radius = enclosing_sphere([self.solids[k] for k in members])
            some = [k for k in near[first[n] : last[n]] if self.forms[k] != BALL]
            tested = math.isfinite(radius) and (bool(some) or last[n] - first[n] > 1)
            rows.append((12 * self.links[members[0]], int(first[n]), int(last[n]), int(tested)))
            spheres.append((*centre, radius))
            ranks.append(self._rank(self.body(members[0])))
        return {
            "clusters": _table(rows, Cluster),
            "enclosing": np.array(spheres),
            "ranks": np.array(ranks),
            "near": _table([(self.forms[k], self.at[k], self.cluster(k), self.body(k)) for k in near], Near),
            "near columns": np.array([self.asked.near.index(k) for k in near], np.int64),
        }

    def _rank(self, body: int) -> float:
        return float(self.model.tree.preorder_rank[body]) if body >= 0 else -1.0

    def visits(self) -> dict[str, Array]:
        """Visits, their groups, and the pairs of these."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, j in self.asked.pairs:
            found.setdefault((self.cluster(i), self.cluster(j)), []).append((i, j))
        visits, groups, pairs = list[tuple[int, ...]](), list[tuple[int, int, int, int]](), list[tuple[int, int]]()
        for one, other in self._nearest_first(found):
            members = found[one, other]
            first = len(groups)
            for code, part in self._groups(members):
                groups.append((code, len(pairs), len(pairs) + len(part), len(visits)))
                pairs += [(self.at[i], self.at[j]) for i, j in part]
            flat = any(isinstance(self.solids[k], Flat) for k in members[0])
            tested = not flat and sum(self.cost(*pair) for pair in members) > TESTED_OPERATIONS
            visits.append((one, other, first, len(groups), int(tested)))
        sizes = [last - first for _, first, last, _ in groups]
        return {
            "visits": _table(visits, Visit),
            "groups": _table(groups, Group),
            "pairs": np.array(pairs, np.int32).reshape(-1, 2),
            "pair groups": np.repeat(np.arange(len(groups)), np.array(sizes, np.int64)),
        }

    def _groups(self, members: list[tuple[int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
        """The groups of a visit, with their codes."""
        by_sum: dict[float, list[tuple[int, int]]] = {}
        groups, others = [], []
        for i, j in members:
            one, other = self.solids[i], self.solids[j]
            if isinstance(one, Ball) and isinstance(other, Ball):
                by_sum.setdefault(one.r + other.r, []).append((i, j))
            else:
                others.append((self.code(i, j), [(i, j)]))
        for part in by_sum.values():
            if len(part) >= _EQUAL:
                groups.append((0, part))
        apart = [pair for part in by_sum.values() if len(part) < _EQUAL for pair in part]
        if len(others) > 1:
            others.sort(key=lambda each: _gap(self.centres, *each[1][0]))
        return [*groups, *([(SPHERES, apart)] if apart else []), *others]

    def _nearest_first(self, visits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Visits in the order of the mean distance of their spheres. Then others are often too far apart to matter."""
        centres = self._centres([link for link, _ in self.clusters], self.arrays["enclosing"])
        return sorted(visits, key=lambda pair: _gap(centres, *pair))

    def _centres(self, links: list[int], spheres: Array) -> tuple[Array, Array]:
        """Centres (samples, n, 3) of spheres on links in some configurations, and their radii."""
        frames = self.frames[:, links]
        axes = frames[..., :9].reshape(_SAMPLES, -1, 3, 3)
        centres = frames[..., 9:] + np.einsum("sckx,ck->scx", axes, spheres[:, :3])
        return centres, np.where(np.isfinite(spheres[:, 3]), spheres[:, 3], 0.0)

    @cached_property
    def centres(self) -> tuple[Array, Array]:
        """The same of spheres around all shapes."""
        flat = (0.0,) * 4
        spheres = [flat if isinstance(each, Flat) else enclosed(each) for each in self.solids]
        return self._centres(self.links, np.array(spheres, float))

    @cached_property
    def frames(self) -> Array:
        """Frames of links in some configurations."""
        model = self.model
        q = model.random_configuration(np.random.default_rng(0), (_SAMPLES,))
        frames = np.empty((_SAMPLES, len(model.link_names), FRAME))
        ReferenceEngine(model, q.dtype).run(link_frames(False), {"q": q}, {"frames": frames})
        return frames

    def listed(self) -> Array:
        pairs = self.asked.pairs
        rows = [(self.code(i, j), self.at[i], self.at[j], self.body(i), self.body(j)) for i, j in pairs]
        return _table(rows, Listed)

    def dofs(self) -> tuple[dict[str, Array], set[int]]:
        """Degrees of freedom of the tree, and the links in whose frames their motions are."""
        model, tree = self.model, self.model.tree
        link_of = {int(body): link for link, body in reversed(list(enumerate(model.link_body.tolist())))}
        rows, numbers = [], []
        for body in range(model.n_bodies):
            link, kind = link_of[body], KINDS[model.joint_kind[body]]
            row = model.link_X[link]
            X = Transform(tuple(row[:9]), tuple(row[9:]))
            low = float(tree.preorder_rank[body])
            for k, S in enumerate(kind.subspace(float(model.pitch[body]))):
                moved: Motion = X.motion(S)
                v = int(model.v_start[body]) + k
                rows.append((12 * link, int(model.v_source[v])))
                limits = low, low + float(tree.subtree_size[body])
                numbers.append((*moved.ang, *moved.lin, *limits, float(model.v_multiplier[v])))
        arrays = {"dofs": _table(rows, Dof), "dof numbers": np.array(numbers).reshape(-1, DOF)}
        return arrays, {link_of[body] for body in range(model.n_bodies)}

    def blind(self) -> bool:
        """True if a joint moves no cluster."""
        tree, seen = self.model.tree, np.zeros(self.model.n_bodies + 1, np.int64)
        ranks = [tree.preorder_rank[body] for link, _ in self.clusters if (body := self.model.link_body[link]) >= 0]
        np.add.at(seen, np.array(ranks, np.int64) + 1, 1)
        before = np.cumsum(seen)
        start = tree.preorder_rank
        return bool((before[start + tree.subtree_size] == before[start]).any()) if self.model.n_bodies else False


def _gap(spheres: tuple[Array, Array], one: int, other: int) -> float:
    """The mean distance of two spheres."""
    centres, radii = spheres
    apart = np.linalg.norm(centres[:, one] - centres[:, other], axis=-1)
    return float(apart.mean() - radii[one] - radii[other])


def _table(rows: Sequence[tuple[int, ...]], of: type[ctypes.Structure]) -> Array:
    return np.array(rows, np.int64).reshape(-1, len(of._fields_))


def tables_of(model: Model, asked: Measured) -> Tables:
    """The tables of a query."""
    maker = _Maker(model, asked)
    arrays = maker.arrays
    links = set(maker.links)
    if asked.gradient:
        dofs, more = maker.dofs()
        arrays, links = {**arrays, **dofs}, links | more
    codes = arrays["groups"][:, 0] if asked.is_least else arrays["listed"][:, 0]
    near_forms = {maker.forms[k] for k in asked.near}
    operations = sum(maker.cost(i, j) for i, j in asked.pairs) + 100
    return Tables(
        arrays,
        tuple(sorted({maker.forms[k] for k in maker.order})),
        tuple(sorted(near_forms)),
        tuple(np.unique(codes).tolist()),
        tuple(sorted(links)),
        maker.vectors,
        maker.blind() or asked.at_origin(model),
        operations,
    )
