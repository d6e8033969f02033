"""Contacts as users and models say them.

`Contact` is what users make of two shapes. `Model.with_contacts` makes a `Contacts` of them, with complete numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from robodyn.core.description import Geometry
from robodyn.core.shapes import KINDS, HeightField, Shape
from robodyn.internals import strict_types
from robodyn.internals.arguments import count, finite_number, finite_real, flag, one_of
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

Pair: TypeAlias = tuple[float, float]
Solimp: TypeAlias = tuple[float, float, float, float, float]
Cone: TypeAlias = Literal["pyramidal", "elliptic"]
CONES: tuple[Cone, ...] = ("pyramidal", "elliptic")
SOLREF: Pair = (0.02, 1.0)
SOLIMP: Solimp = (0.9, 0.95, 0.001, 0.5, 2.0)
TORSIONAL, ROLLING = 0.005, 0.0001
"""MuJoCo's defaults."""
CONDIMS = (1, 3, 4, 6)
LEAST_FRICTION = 1e-5
"""The least coefficient of friction, as of MuJoCo."""
_MOST_SELECTIONS = 40_000
"""Most selections of heights of a contact: rows times columns times those near a shape, roughly."""
MOST_POWER = 16
"""The largest power of `solimp`."""
_LEAST, _MOST = 1e-4, 0.9999
"""Bounds of impedances, as of MuJoCo."""
ORDER = ("plane", "height field", "sphere", "capsule", "cylinder", "box")
"""Kinds of shapes in the order of MuJoCo's types: its first shape of a contact is the one with the lower type."""
SLOTS = {
    ("plane", "sphere"): 1,
    ("plane", "capsule"): 2,
    ("plane", "cylinder"): 4,
    ("plane", "box"): 4,
    ("height field", "sphere"): 1,
    ("height field", "capsule"): 3,
    ("sphere", "sphere"): 1,
    ("sphere", "capsule"): 1,
    ("sphere", "cylinder"): 1,
    ("sphere", "box"): 1,
    ("capsule", "capsule"): 2,
    ("capsule", "box"): 2,
}
"""Points of contact that a pair of kinds can have, kinds in the order of `ORDER`."""


@dataclass(frozen=True)
class Softness:
    """How soft a row is, as in MuJoCo (chapter Computation, "Solver parameters").

    `solref`: (time constant in s, damping ratio), both above 0, or (-stiffness, -damping), both 0 or less. `solimp`:
    (dmin, dmax, width, midpoint, power) of the impedance. `margin`: the row acts where its distance is below it, m or
    rad. `invweight`: inverse inertia along the row at the reference, which sets its regularisation, 1/kg or
    1/(kg m^2).
    """

    solref: Pair = SOLREF
    solimp: Solimp = SOLIMP
    margin: float = 0.0
    invweight: float | None = None

    @property
    def impedance(self) -> Solimp:
        """`solimp` within MuJoCo's bounds."""
        dmin, dmax, width, middle, power = self.solimp
        dmin, dmax, middle = (min(max(x, _LEAST), _MOST) for x in (dmin, dmax, middle))
        return dmin, dmax, width, middle, power

    def gains(self, dt: Any, refsafe: bool, solref: Pair | None = None) -> tuple[Any, Any]:
        """Stiffness K and damping B of the row, for time steps of dt in s, a number or a scalar. `solref`: instead
        of its own."""
        time, ratio = self.solref if solref is None else solref
        dmax = self.impedance[1]
        if time > 0.0 and refsafe and not isinstance(dt, float):
            rate = 1.0 / (dmax * np.maximum(2.0 * dt, time))
            return rate * rate * (1.0 / ratio**2), 2.0 * rate
        if time > 0.0:
            time = max(time, 2.0 * dt) if refsafe else time
            with np.errstate(all="ignore"):  # infinite or zero where numbers are extreme
                rates = 1.0 / (np.float64(dmax) * time * np.array((ratio, 1.0)))
                return float(rates[0] ** 2), float(2.0 * rates[1])
        return -time / dmax**2, -ratio / dmax


@dataclass(frozen=True, init=False)
class Contact:
    """A contact with friction of two shapes.

    Args:
        first, second: shapes, such as `robodyn.Sphere` and `robodyn.Plane`, on links of different bodies. A shape
            without a link (`Plane()`) is fixed to the world.
        friction: coefficient of friction, or two, along both tangents; below 1e-5 it is 1e-5.
        solref, solimp: softness, as in MuJoCo: `solref` (time constant in s, damping ratio) or (-stiffness, -damping),
            `solimp` (dmin, dmax, width in m, midpoint, power).
        margin: distance below which the contact acts, m. The force is zero farther apart.
        condim: 3, or 1 without friction, 4 with friction against turning about the normal, 6 also against rolling.
        torsional: coefficient of friction against turning about the normal, m, of condim 4 and 6; at least 1e-5.
        rolling: likewise against rolling, about both tangents, or two, of condim 6.
        solreffriction: `solref` of the other rows than the normal's of an elliptic cone, None: as `solref`.
        invweight: inverse mass of both bodies at the point, 1/kg, which scales the softness. None: it is computed at
            the neutral configuration, as MuJoCo does.

    Raises:
        ArgumentError: numbers out of these ranges, or no shapes.
        UnavailableError: no such contact yet: other pairs of kinds.
        NumericalError: NaN or infinity.
    """

    first: Shape
    second: Shape
    friction: Pair
    solref: Pair
    solimp: Solimp
    margin: float
    condim: int
    torsional: float
    rolling: Pair
    solreffriction: Pair | None
    invweight: float | None

    def __init__(
        self,
        first: Shape,
        second: Shape,
        friction: Any = 1.0,
        solref: Any = SOLREF,
        solimp: Any = SOLIMP,
        margin: float = 0.0,
        condim: int = 3,
        solreffriction: Any = None,
        invweight: float | None = None,
        torsional: float = TORSIONAL,
        rolling: Any = ROLLING,
    ) -> None:
        for name, shape in (("first", first), ("second", second)):
            if type(shape) not in (*KINDS, HeightField):
                wanted = "wanted a robodyn.Sphere, Capsule, Box, Cylinder, Plane or HeightField"
                raise ArgumentError(f"Contact.{name}: got {brief(shape)}; {wanted}")
        if ordered(first.kind, second.kind) not in SLOTS:
            known = ", ".join(f"{one} and {other}" for one, other in SLOTS)
            got = f"got a {first.kind} and a {second.kind}"
            raise UnavailableError(f"Contact: {got}; wanted one of the pairs that have contacts: {known}")
        if HeightField in (type(first), type(second)):
            _require_few_heights(*((first, second) if type(first) is HeightField else (second, first)), margin)
        if count("Contact.condim", condim, 1, 6) not in CONDIMS:
            raise ArgumentError(f"Contact.condim: got {condim}; wanted one of {', '.join(map(str, CONDIMS))}")
        numbers = {"friction": friction, "solref": solref, "solimp": solimp, "margin": margin}
        numbers |= {"torsional": torsional, "rolling": rolling}
        numbers |= {"solreffriction": solreffriction, "invweight": invweight}
        values = {"first": first, "second": second, "condim": int(condim), **numbers}
        values |= checked_softness("Contact", numbers)
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class ContactPair(Softness):
    """A contact of a model.

    `first`, `second`: its shapes, as geometries for collisions; their link is "" for the world. `friction`: along both
    tangents. `torsional`, `rolling`: against turning about the normal and the tangents, m. `solreffriction`: of all
    rows but the normal's, or None. `condim`: 1, 3, 4 or 6.
    """

    first: Geometry = field(default=None)  # type: ignore[assignment]
    second: Geometry = field(default=None)  # type: ignore[assignment]
    friction: Pair = (1.0, 1.0)
    torsional: float = TORSIONAL
    rolling: Pair = (ROLLING, ROLLING)
    solreffriction: Pair | None = None
    condim: int = 3

    @property
    def turning(self) -> tuple[float, ...]:
        """Coefficients of friction against turning that it has, about the normal and the tangents, m."""
        return (self.torsional, *self.rolling)[: max(self.condim - 3, 0)]

    @property
    def kinds(self) -> tuple[str, str]:
        """The kinds of both shapes, in the order of `ORDER`."""
        return ordered(self.first.kind, self.second.kind)

    @property
    def turned(self) -> bool:
        """True if the first shape has the lower kind in `ORDER`, so that MuJoCo's normal points from it."""
        return ORDER.index(self.first.kind) < ORDER.index(self.second.kind)

    @property
    def slots(self) -> int:
        """Points of contact that it can have."""
        return SLOTS[self.kinds]


@dataclass(frozen=True)
class JointRow(Softness):
    """A limit or dry friction of a joint: `joint` by name, `component` of its velocity.

    `most`: the limit of a spherical joint, the largest angle by which it turns, rad. Those of others are the model's.
    """

    joint: str = ""
    component: int = 0
    most: float | None = None


@dataclass(frozen=True)
class EqualityRows(Softness):
    """The softness of a constraint of the model, whose name is `constraint`. `invweight` is that of translations.

    `rotational`: of rotations, 1/(kg m^2).
    """

    constraint: str = ""
    rotational: float | None = None


@dataclass(frozen=True)
class Contacts:
    """Contacts of a model and the rows that act with them, with complete numbers.

    `pairs`: contacts. `limits`, `dry_friction`: rows of joints; positions and forces are those of the model.
    `equalities`: of the model's constraints, in their order. `cone`, `impratio`, `refsafe`: options of MuJoCo.
    `iterations`: of Newton's method at most, None for as many as the cone wants. `max_contacts`: slots that can act at
    once, the deepest; None for all.
    """

    pairs: tuple[ContactPair, ...] = ()
    limits: tuple[JointRow, ...] = ()
    dry_friction: tuple[JointRow, ...] = ()
    equalities: tuple[EqualityRows, ...] = ()
    cone: Cone = "pyramidal"
    impratio: float = 1.0
    refsafe: bool = True
    iterations: int | None = None
    max_contacts: int | None = None

    NAMES: ClassVar[tuple[str, ...]] = ("cone", "impratio", "refsafe", "iterations", "max_contacts")

    @cached_property
    def slot_pairs(self) -> tuple[int, ...]:
        """For every slot of all pairs the index of its pair. Slots of a pair are adjacent."""
        return tuple(k for k, pair in enumerate(self.pairs) for _ in range(pair.slots))

    @cached_property
    def shortest_time(self) -> float:
        """The least time constant of all rows that time steps bound from below, s; infinity if there is none."""
        if not self.refsafe:
            return math.inf
        rows = (*self.pairs, *self.limits, *self.dry_friction, *self.equalities)
        times = [row.solref[0] for row in rows]
        times += [pair.solreffriction[0] for pair in self.pairs if pair.solreffriction is not None]
        return min((time for time in times if time > 0.0), default=math.inf)

    def bounding(self, dt: float) -> float:
        """The time step if it bounds a time constant, else 0. What is computed depends on no other time steps."""
        return dt if 2.0 * dt > self.shortest_time else 0.0

    @property
    def n_slots(self) -> int:
        """Number of slots that can act at once."""
        every = len(self.slot_pairs)
        return every if self.max_contacts is None else min(every, self.max_contacts)

    @property
    def crowded(self) -> bool:
        """True if there are more slots than can act at once."""
        return self.n_slots < len(self.slot_pairs)


def heights_around(count: int, edge: float, reach: float) -> int:
    """How many of a height field's vertices along an axis are looked at, so that all within `reach` of a point are.

    `count`: vertices along the axis; `edge`: length of the field along it, m.
    """
    return min(2 * math.ceil(reach * (count - 1) / edge) + 2, count)


def _require_few_heights(field: Any, shape: Shape, margin: Any) -> None:
    """Refuse contacts whose programs would be too large: their operations grow with the selections of heights."""
    radius, *length = shape.geometry.size
    reach = radius + 0.5 * sum(length) + _not_negative("Contact.margin", margin)
    rows, columns = field.heights.shape
    at_once = heights_around(columns, field.size[0], reach)
    selections = at_once * rows * (columns - at_once + 1)
    if selections > _MOST_SELECTIONS:
        raise UnavailableError(
            f"Contact: got a HeightField of {rows} by {columns} heights, of which a {shape.kind} with a reach of "
            f"{reach:g} m is near {at_once} along x: {selections} selections; wanted at most {_MOST_SELECTIONS}"
        )


def ordered(one: str, other: str) -> tuple[str, str]:
    """Two kinds of shapes in the order of `ORDER`."""
    return (one, other) if ORDER.index(one) <= ORDER.index(other) else (other, one)


def checked_options(cone: Any, impratio: Any, refsafe: Any, iterations: Any, max_contacts: Any) -> dict[str, Any]:
    """The options of `Contacts`.

    Raises:
        ArgumentError: one of another type or out of its range; names it.
    """
    ratio = finite_number("impratio", impratio)
    if not ratio > 0.0:
        raise ArgumentError(f"impratio: got {ratio:g}; wanted a number above 0")
    return {
        "cone": one_of("cone", cone, CONES),
        "impratio": ratio,
        "refsafe": flag("refsafe", refsafe),
        "iterations": None if iterations is None else count("iterations", iterations, 1, 1000),
        "max_contacts": None if max_contacts is None else count("max_contacts", max_contacts, 1, 1 << 20),
    }


def checked_softness(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a contact or a row.

    Raises:
        ArgumentError, UnavailableError, NumericalError: as of `Contact`.
    """
    found: dict[str, Any] = {
        "solref": _solref(f"{what}.solref", given["solref"]),
        "solimp": _solimp(f"{what}.solimp", given["solimp"]),
        "margin": _not_negative(f"{what}.margin", given["margin"]),
    }
    for name in ("friction", "rolling"):
        if name in given:
            found[name] = _friction(f"{what}.{name}", given[name])
    if "torsional" in given:
        found["torsional"] = max(_not_negative(f"{what}.torsional", given["torsional"]), LEAST_FRICTION)
    if given.get("solreffriction") is not None:
        found["solreffriction"] = _solref(f"{what}.solreffriction", given["solreffriction"])
    for name in ("invweight", "rotational"):
        if given.get(name) is not None:
            found[name] = _not_negative(f"{what}.{name}", given[name])
    return found


def _friction(name: str, given: Any) -> Pair:
    members = strict_types.members(given) if strict_types.is_a(given, tuple, list) else (given, given)
    if len(members) != 2:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a number, or two, one for each tangent")
    one, other = (max(_not_negative(name, each), LEAST_FRICTION) for each in members)
    return one, other


def _solref(name: str, given: Any) -> Pair:
    one, other = _numbers(name, given, 2)
    if (one > 0.0) != (other > 0.0):
        wanted = "wanted (time constant, damping ratio) above 0, or (-stiffness, -damping)"
        raise ArgumentError(f"{name}: got {brief(given)}; {wanted}")
    return one, other


def _solimp(name: str, given: Any) -> Solimp:
    dmin, dmax, width, middle, power = _numbers(name, given, 5)
    if not (all(0.0 <= x <= 1.0 for x in (dmin, dmax, middle)) and width >= 0.0 and power >= 1.0):
        wanted = "wanted (dmin, dmax, width, midpoint, power): dmin, dmax and midpoint of 0 to 1, width 0 or more, "
        raise ArgumentError(f"{name}: got {brief(given)}; {wanted}power 1 or more")
    if 2.0 * power != int(2.0 * power) or power > MOST_POWER:
        wanted = f"wanted a power of 1, 1.5, 2 and so on to {MOST_POWER}"
        raise UnavailableError(f"{name}: got a power of {power:g}; {wanted}")
    return dmin, dmax, width, middle, power


def _numbers(name: str, given: Any, n: int) -> tuple[float, ...]:
    members = strict_types.members(given) if strict_types.is_a(given, tuple, list) else ()
    if len(members) != n or any(finite_real(each) is None for each in members):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted {n} finite numbers")
    return tuple(finite_number(name, each) for each in members)


def _not_negative(name: str, given: Any) -> float:
    number = finite_number(name, given)
    if number < 0.0:
        raise ArgumentError(f"{name}: got {number:g}; wanted 0 or more")
    return number
