"""Distances beside coal through Pinocchio, and MuJoCo: `python -m tests.bench distances --write`.

Robots are models/arm7.urdf with shapes of our own. Every case is checked against coal before it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from tests.bench.runner import Page, Run
from tests.bench.shared import robot
from tests.bench.timing import Call, least

BATCH = 4096
_TURNS, _TOLERANCE = 30, 2e-6
_LENGTHS = (0.15, 0.21, 0.21, 0.21, 0.2, 0.2, 0.08, 0.06)
_RADII = (0.08, 0.07, 0.07, 0.065, 0.06, 0.06, 0.05, 0.05)
_LINKS = ("base", *(f"link_{k}" for k in range(1, 8)))
_QUERIES = {"least": "min_distance", "gradient": "min_distance_gradient", "free": "is_free"}
_WANTED = {
    ("59 spheres", "least"): (240.0, 120.0),
    ("59 spheres", "gradient"): (500.0, 250.0),
    ("59 spheres", "free"): (None, 100.0),
    ("59 spheres, all radii different", "least"): (300.0, 150.0),
    ("11 capsules", "least"): (None, 40.0),
    ("11 capsules", "gradient"): (None, 120.0),
}
"""Nanoseconds that were set as a goal, in float64 and float32."""


@dataclass
class Case:
    """One robot with shapes.

    `ns`: of a state of a batch, one thread, by what is asked and precision; `one_us`: a call for one state; `coal_us`,
    `mujoco_us`: all distances of one state, from Python; `free`: share of the configurations.
    """

    name: str
    pairs: int
    obstacles: int
    ns: dict[str, float]
    one_us: float
    coal_us: float | None
    mujoco_us: float | None
    free: float

    @property
    def share(self) -> float:
        """Of configurations that are free, in percent."""
        return 100.0 * self.free

    @property
    def times(self) -> float | None:
        """As fast as coal."""
        return 1e3 * self.coal_us / self.ns["least float64"] if self.coal_us else None


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]


def _apart(shapes: list[Any], links: int, most: int | None = None) -> rd.Model:
    """The arm with shapes; pairs are those of links so many apart."""
    shapes = sorted(shapes, key=lambda each: _LINKS.index(each.link))
    place = [_LINKS.index(each.link) for each in shapes]
    n = range(len(shapes))
    pairs = [(i, j) for i in n for j in n if place[j] - place[i] >= links]
    return robot("arm7").with_shapes(shapes, pairs[:most])


def _spheres(counts: tuple[int, ...], links: int, most: int, spread: float) -> rd.Model:
    rng, shapes = np.random.default_rng(0), []
    for link, n, length, radius in zip(_LINKS, counts, _LENGTHS, _RADII, strict=True):
        for k in range(n):
            at = (*rng.uniform(-0.03, 0.03, 2), length * (k + 0.5) / n)
            shapes.append(rd.Sphere(link, at, radius * (0.7 if k % 2 else 0.6) + rng.uniform(-spread, spread)))
    return _apart(shapes, links, most)


def _capsules() -> rd.Model:
    each = zip(_LINKS, _LENGTHS, _RADII, strict=True)
    shapes = [rd.Capsule(link, (0.0, 0.0, 0.02), (0.0, 0.0, length), radius) for link, length, radius in each]
    shapes += [rd.Capsule(_LINKS[k], (0.0, 0.05, 0.02), (0.0, 0.1, 0.1), 0.03) for k in (3, 6, 7)]
    return _apart(shapes, 3)


def _boxes() -> rd.Model:
    rng = np.random.default_rng(0)
    return _apart([rd.Box(link, rng.uniform(-0.05, 0.05, 3), rng.uniform(0.05, 0.15, 3)) for link in _LINKS * 3], 3)


def _around() -> rd.Obstacles:
    rng = np.random.default_rng(1)
    centres = rng.uniform(-1.0, 1.0, (80, 3))
    centres[:, :2] += 0.4 * np.sign(centres[:, :2])
    return rd.Obstacles(np.concatenate([centres, np.full((80, 1), 0.08)], axis=1), ignore=["base"])


CASES: dict[str, tuple[Callable[[], rd.Model], bool]] = {
    "59 spheres": (lambda: _spheres((4, 4, 4, 4, 5, 12, 11, 15), 3, 690, 0.0), False),
    "59 spheres, all radii different": (lambda: _spheres((8, 7, 8, 7, 7, 7, 8, 7), 2, 1142, 0.005), False),
    "59 spheres among 80 spheres": (lambda: _spheres((4, 4, 4, 4, 5, 12, 11, 15), 3, 690, 0.0), True),
    "11 capsules": (_capsules, False),
    "24 boxes": (_boxes, False),
}


def measure(run: Run) -> Results:
    found = Results([])
    for name, (make, around) in CASES.items():
        if run.chosen(f"distances: {name}"):
            found.cases.append(_measured(name, make(), _around() if around else None, run.seconds))
    return found


def _measured(name: str, model: rd.Model, around: rd.Obstacles | None, seconds: float) -> Case:
    q = model.random_configuration(0, (BATCH,))
    given = () if around is None else (around,)
    calls: dict[str, Call] = {}
    for dtype in _DTYPES:
        dyn = rd.Dynamics(model, threads=1, dtype=dtype, engine="cpu")
        rows = q.astype(dtype)
        for what, query in _QUERIES.items():
            ask, out = getattr(dyn, query), {} if what == "free" else {"out": getattr(dyn, query)(rows, *given)}
            calls[f"{what} {dtype}"] = lambda ask=ask, rows=rows, out=out: ask(rows, *given, **out)
    dyn = rd.Dynamics(model, threads=1, engine="cpu")
    found, peer, other = dyn.distances(q[:20], *given), _coal(model, around), _mujoco(model, around)
    for peer_call in (peer, other):
        theirs = None if peer_call is None else np.array([peer_call(each) for each in q[:20]])
        positive = found > 0.0  # MuJoCo's overlaps of boxes are not least translations
        if theirs is not None and not np.abs(found - theirs)[positive].max() <= _TOLERANCE:
            raise rd.RobodynError(f"{name}: distances differ by {np.abs(found - theirs)[positive].max():.1g}")
    calls["one"] = lambda: dyn.min_distance(q[0], *given)
    if peer is not None:
        calls["coal"] = lambda: peer(q[0])
    if other is not None:
        calls["mujoco"] = lambda: other(q[0])
    took = {key: 1e6 * each for key, each in least(calls, seconds, _TURNS).items()}
    ns = {key: 1e3 * took[key] / BATCH for key in took if " " in key}
    free, count = float(dyn.is_free(q, *given).mean()), 0 if around is None else around.count
    return Case(name, found.shape[1], count, ns, took["one"], took.get("coal"), took.get("mujoco"), free)


def _coal(model: rd.Model, around: rd.Obstacles | None) -> Callable[[Array], Array] | None:
    """All distances of one state, by Pinocchio's kinematics and coal."""
    try:
        import coal
        import pinocchio as pin
    except ImportError:
        return None
    theirs = pin.buildModelFromXML(model.to_urdf())
    shapes, placed = pin.GeometryModel(), []
    for k, each in enumerate(model.collision_geometries):
        size = each.size
        made = {"sphere": coal.Sphere, "capsule": coal.Capsule, "box": coal.Box}[each.kind](*size)
        frame = theirs.frames[theirs.getFrameId(each.link)]
        own = pin.SE3(np.reshape(each.pose.rotation, (3, 3)), np.array(each.pose.xyz))
        placed.append(pin.GeometryObject(f"shape {k}", frame.parentJoint, frame.placement * own, made))
    pairs, n = list(model.pairs), len(placed)
    if around is not None:
        for k, (*at, radius) in enumerate(around.spheres):
            placed.append(pin.GeometryObject(f"obstacle {k}", 0, pin.SE3(np.eye(3), np.array(at)), coal.Sphere(radius)))
        pairs += [(i, n + k) for i in around.near(model) for k in range(around.count)]
    for each in placed:
        shapes.addGeometryObject(each)
    for pair in pairs:
        shapes.addCollisionPair(pin.CollisionPair(*pair))
    data, of_shapes = theirs.createData(), pin.GeometryData(shapes)

    def call(q: Array) -> Array:
        pin.computeDistances(theirs, data, shapes, of_shapes, q)
        return np.array([each.min_distance for each in of_shapes.distanceResults])

    return call


def _mujoco(model: rd.Model, around: rd.Obstacles | None) -> Callable[[Array], Array] | None:
    """The same by MuJoCo's kinematics and mj_geomDistance, pair by pair from Python."""
    try:
        import mujoco
    except ImportError:
        return None
    if around is not None:
        return None
    theirs = mujoco.MjModel.from_xml_string(model.to_mjcf())
    data, none = mujoco.MjData(theirs), np.zeros(6)
    geoms = np.flatnonzero(theirs.geom_contype).tolist()
    pairs = [(geoms[i], geoms[j]) for i, j in model.pairs]

    def call(q: Array) -> Array:
        data.qpos[:] = q
        mujoco.mj_kinematics(theirs, data)
        return np.array([mujoco.mj_geomDistance(theirs, data, i, j, 10.0, none) for i, j in pairs])

    return call


_WORDS, _DTYPES = {"least": "least", "gradient": "gradient", "free": "is_free"}, ("float64", "float32")


def notes(found: Results) -> list[str]:
    lines = []
    for each in found.cases:
        for (name, what), wanted in _WANTED.items():
            for dtype, goal in zip(_DTYPES, wanted, strict=True):
                if name == each.name and goal is not None:
                    took = each.ns[f"{what} {dtype}"]
                    ends = "reached" if took <= goal else "missed"
                    lines.append(f"{name}, {_WORDS[what]}, {dtype}: {took:.0f} ns (wanted: {goal:.0f}, {ends}).")
    return lines


PAGE = Page("distances", Results, measure, notes=notes, seconds=0.15)
