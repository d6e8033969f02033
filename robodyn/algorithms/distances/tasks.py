"""Queries about distances as tasks of engines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from robodyn.algorithms.distances.formulas import nearest
from robodyn.algorithms.distances.scene import (
    Place,
    Scene,
    floating_root,
    least,
    least_with_gradient,
    obstacles_of,
)
from robodyn.algorithms.distances.solids import FORM_OF, Form
from robodyn.algorithms.relative_motion import OfLink, Scalars
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.description import Geometry
from robodyn.core.model import Model
from robodyn.core.shapes import Pairs
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass

OBSTACLES = {"spheres": 4, "capsules": 7, "boxes": 15}
"""Kinds of obstacles, and how many numbers each has; see `robodyn.algorithms.distances.scene.obstacles_of`."""
BLOCKS = {"spheres": 8, "capsules": 4, "boxes": 2}
"""Obstacles of a program. The last block of a call repeats its last obstacle."""
PART = 15_000
"""Rough operations of a program about obstacles, where all of them are too many for one."""
_ROUND = {"sphere": "ball", "spheres": "ball", "capsule": "rod", "cylinder": "rod", "capsules": "rod", "boxes": "box"}
_COSTS = {
    frozenset({"ball"}): 9,
    frozenset({"ball", "rod"}): 25,
    frozenset({"rod"}): 150,
    frozenset({"ball", "box"}): 50,
    frozenset({"rod", "box"}): 400,
    frozenset({"box"}): 6000,
}


@cache
def cost(one: str, other: str) -> int:
    """A rough lower bound of the operations for a distance between shapes of two kinds."""
    return _COSTS.get(frozenset({_ROUND.get(one, one), _ROUND.get(other, other)}), 6)


@dataclass(frozen=True)
class Asked:
    """What a task is about: pairs of a model's shapes, or shapes and obstacles.

    `near`: shapes that are measured to every obstacle, which are inputs: `count` of a `kind` of `OBSTACLES`; "" for
    none. `others`: obstacles of further kinds, in their order.
    """

    pairs: Pairs = ()
    near: tuple[int, ...] = ()
    kind: str = ""
    count: int = 0
    others: tuple[tuple[str, int], ...] = ()

    @property
    def around(self) -> tuple[tuple[str, int], ...]:
        """Kinds of obstacles and their numbers."""
        return (((self.kind, self.count),) if self.count else ()) + self.others

    @property
    def size(self) -> int:
        """Number of distances."""
        return len(self.pairs) + len(self.near) * sum(count for _, count in self.around)

    def least_operations(self, model: Model) -> int:
        """A rough lower bound of the operations for all distances."""
        kinds = [each.kind for each in model.collision_geometries]
        pairs = [(kinds[i], kinds[j]) for i, j in self.pairs]
        to_obstacles = sum(count * sum(cost(kinds[k], kind) for k in self.near) for kind, count in self.around)
        return sum(cost(*pair) for pair in pairs) + to_obstacles

    def places(self, scene: Scene, given: Mapping[str, Scalars]) -> list[tuple[Place, Place]]:
        """Pairs of shapes and obstacles in world coordinates."""
        every = [(scene.place(i), scene.place(j)) for i, j in self.pairs]
        obstacles = obstacles_of(given)
        return every + [(scene.place(k), (-1, obstacle)) for k in self.near for obstacle in obstacles]


def obstacle_blocks(
    model: Model, near: Sequence[int], counts: Mapping[str, int]
) -> Iterator[tuple[str, Asked, Array, Array]]:
    """Shapes and obstacles in parts that are programs for a block of obstacles: the kind, what is asked, places of the
    shapes in `near`, and numbers (blocks, block) of the obstacles; the last block repeats the last obstacle.

    `near`: indices of the shapes; `counts`: numbers of obstacles by kind, in `OBSTACLES`.
    """
    kinds = [each.kind for each in model.collision_geometries]
    for kind, k in counts.items():
        block, first = BLOCKS[kind], 0
        numbers = np.minimum(np.arange(-(-k // block) * block), k - 1).reshape(-1, block)
        while first < len(near):
            last, total = first, 0
            while last < len(near) and (last == first or total < PART):
                total += block * cost(kinds[near[last]], kind)
                last += 1
            yield kind, Asked((), tuple(near[first:last]), kind, block), np.arange(first, last), numbers
            first = last


@dataclass(frozen=True)
class Measured:
    """What loops over tables answer.

    `name`: of the query; `pairs`: of a model's shapes; `near`: shapes that are measured to obstacles; `kinds`: kinds of
    obstacles, which are inputs of any number; `limited`: True if distances above a clearance, an input, do not matter.
    """

    name: str
    pairs: Pairs
    near: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    limited: bool = False

    @property
    def is_least(self) -> bool:
        """True for the least distance."""
        return self.name.startswith("min_distance")

    @property
    def gradient(self) -> bool:
        """True for derivatives."""
        return "gradient" in self.name

    @property
    def obstacle_forms(self) -> tuple[Form, ...]:
        """Forms of the obstacles."""
        return tuple(FORM_OF[kind] for kind in self.kinds)

    def rounds(self, counts: Mapping[str, int]) -> int:
        """How often work with obstacles in these numbers repeats that without any, roughly."""
        return 1 + len(self.near) * sum(counts.values()) // max(100, len(self.pairs))

    def at_origin(self, model: Model) -> bool:
        """True if a floating base counts as at the world's origin; see `Scene`."""
        relative = not self.kinds and self.name != "witness_points"
        return relative and floating_root(model, model.collision_geometries) >= 0


def loops_task(model: Model, measured: Measured) -> ScalarTask:
    """A query that engines answer by loops alone. Its inputs are those of `Measured`, all with a row for each state:
    `counts`, 64-bit integers, the numbers of obstacles of each kind; `clearance`; and obstacles of each kind."""
    kept = vars(model).setdefault(_KEPT, {})
    task: ScalarTask | None = kept.get(measured)
    if task is None:
        given = {"q": Sized(("nq",)), **({"clearance": Sized(())} if measured.limited else {})}
        if measured.kinds:
            given["counts"] = Sized((len(measured.kinds),))
        given |= {kind: Sized((1, OBSTACLES[kind])) for kind in measured.kinds}
        outputs = {key: Sized(axes) for key, axes in _outputs(measured.name, len(measured.pairs)).items()}
        name = f"{measured.name}_loops"
        task = kept[measured] = ScalarTask(
            name, given, outputs, _no_text, least=_endless, distance_query=measured, one_program=True
        )
    return task


def _no_text(model: Model, given: Mapping[str, Scalars], at: OfLink) -> Mapping[str, Scalars]:
    raise NotImplementedError


def _endless(model: Model) -> int:
    return 1 << 62


def distance_task(name: str, model: Model) -> ScalarTask:
    """A query about all pairs of a model.

    Raises:
        ArgumentError: it has none.
    """
    if not model.pairs:
        raise ArgumentError(f"{name}: {model.name!r} has no pairs of shapes; wanted Model.with_shapes(shapes, pairs)")
    kept = vars(model).setdefault(_KEPT, {})
    task: ScalarTask | None = kept.get(name)  # without the hash of all pairs
    if task is None:
        task = kept[name] = task_of(name, model, Asked(model.pairs))
    return task


_KEPT = "_distance_tasks"
"""Where a model keeps its tasks: engines compare them by identity."""


def task_of(name: str, model: Model, asked: Asked) -> ScalarTask:
    """A query about some pairs of a model's shapes, and obstacles."""
    kept = vars(model).setdefault(_KEPT, {})
    key = name, asked
    if key not in kept:
        kept[key] = _made(name, model.collision_geometries, asked)
    task: ScalarTask = kept[key]
    return task


def _made(name: str, geometries: tuple[Geometry, ...], asked: Asked) -> ScalarTask:
    outputs = _outputs(name, asked.size)

    def text(model: Model, given: Mapping[str, Scalars], at: OfLink) -> Mapping[str, Scalars]:
        moved = bool(asked.around) or name in ("witness_points", "contacts")
        scene = Scene(model, geometries, at, given["q"], moved)
        with np.errstate(all="ignore"):  # numbers among the scalars, of shapes that do not move
            return _results(name, scene, asked.places(scene, given), model.nv, tuple(outputs))

    given = {"q": Sized(("nq",))}
    given |= {kind: Sized((count, OBSTACLES[kind])) for kind, count in asked.around}
    digest = hashlib.blake2b(repr((geometries, asked)).encode(), digest_size=16).hexdigest()
    sizes = {key: Sized(axes) for key, axes in outputs.items()}
    loops = None if asked.around or name in ("contacts", "min_distance_with_gradient") else Measured(name, asked.pairs)
    least = asked.least_operations
    return ScalarTask(f"{name}_{digest}", given, sizes, text, least=least, one_program=True, distance_query=loops)


def result_shape(model: Model, name: str, n: int) -> tuple[int, ...]:
    """The shape of the result of a query about n pairs, for one state."""
    axes = next(iter(_outputs(name, n).values()))
    return tuple(model.nv if each == "nv" else int(each) for each in axes)


def _outputs(name: str, n: int) -> dict[str, tuple[int | str, ...]]:
    shapes: dict[str, dict[str, tuple[int | str, ...]]] = {
        "distances": {"d": (n,)},
        "min_distance": {"d_min": ()},
        "min_distance_gradient": {"dd_min_dq": ("nv",)},
        "distances_gradient": {"dd_dq": (n, "nv")},
        "witness_points": {"p": (n, 2, 3)},
        "min_distance_with_gradient": {"d_min": (), "dd_min_dq": ("nv",)},
        "contacts": {"d": (n,), "n": (n, 3), "p": (n, 3)},
    }
    return shapes[name]


def _results(
    name: str, scene: Scene, places: Sequence[tuple[Place, Place]], nv: int, outputs: tuple[str, ...]
) -> dict[str, list[Any]]:
    if name == "min_distance":
        return {"d_min": scene.poisoned([least(places)])}
    if name.startswith("min_distance"):
        d, row = least_with_gradient(scene, places, nv)
        return {key: scene.poisoned([d] if key == "d_min" else row) for key in outputs}
    found = [nearest(one, other) for (_, one), (_, other) in places]
    if name == "distances":
        return {"d": [near.d for near in found]}
    if name == "contacts":
        return {
            "d": [near.d for near in found],
            "n": [x for near in found for x in near.n],
            "p": [x for near in found for x in near.p2],
        }
    if name == "witness_points":
        return {"p": [x for near in found for p in (near.p1, near.p2) for x in p]}
    rows = [
        scene.gradient(one, other, near.n, near.p1) for ((one, _), (other, _)), near in zip(places, found, strict=True)
    ]
    return {"dd_dq": [row.get(k, 0.0) for row in rows for k in range(nv)]}
