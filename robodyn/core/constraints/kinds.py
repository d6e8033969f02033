"""Kinds of constraints, as users make them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from robodyn.core.poses import row_of, transform_of
from robodyn.internals import strict_types
from robodyn.internals.arguments import as_array, finite_number, finite_real
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

Numbers: TypeAlias = tuple[float, ...]
ROWS = ("rx", "ry", "rz", "x", "y", "z")
"""Rows of a weld: rotations about the axes of a, then translations along them."""
IDENTITY_ROW: Numbers = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
"""The identity, as a row of `Model.link_X`."""
_UNIT = 1e-15
"""Rounding error of the length of a unit vector."""


@dataclass(frozen=True, init=False)
class Baumgarte:
    """Gains by which errors of constraints decay, each given separately.

    Rows with residual phi get accelerations phiddot = -velocity phidot - position phi. The pair (omega, zeta) means
    velocity = 2 zeta omega and position = omega^2. Only this class can express a velocity gain alone: it damps errors
    of velocity and leaves errors of position as they are.

    Rows with residual phi are held with accelerations phiddot = -velocity phidot - position phi. As (omega, zeta) says
    the same with velocity = 2 zeta omega and position = omega^2, a velocity gain alone is said by this class only: it
    damps errors of velocity and leaves errors of position as they are.

    Args:
        velocity: gain on phidot, 1/s, 0 or more.
        position: gain on phi, 1/s^2, 0 or more.
    """

    velocity: float
    position: float

    def __init__(self, velocity: float, position: float = 0.0) -> None:
        for name, gain in {"velocity": velocity, "position": position}.items():
            object.__setattr__(self, name, _gain(f"Baumgarte.{name}", gain))


Decay: TypeAlias = Baumgarte | tuple[float, float] | None
"""Decay of a constraint's errors: gains, (omega, zeta), or None for no decay."""


@dataclass(frozen=True)
class _Framed:
    """Fields of constraints between two frames.

    `at`, `to_at`: transforms from the link to the frame, (E row-major, r), as rows of `Model.link_X`.
    """

    link: str
    to: str | None
    at: Numbers
    to_at: Numbers | None
    baumgarte: Decay
    name: str


@dataclass(frozen=True, init=False)
class Point(_Framed):
    """Two points coincide: a ball joint between links, or a foot that stands.

    Args:
        link: name of the link, or frame, that is held.
        to: name of the link that holds it; None: the world.
        at: the point on `link`: three numbers (m) in its axes from its origin, or a pose as for `Model.with_frames`.
            It is stored as twelve numbers, a row of `Model.link_X`; such rows are accepted, too.
        to_at: the point on `to`, likewise; forces are in its axes. None: the origin of `to`. None for the world: the
            place is an input of each call, `targets`, and the world's origin without them.
        baumgarte: (omega, zeta): errors decay as an oscillator of natural frequency omega (rad/s) and damping ratio
            zeta: phiddot = -2 zeta omega phidot - omega^2 phi. A number alone is omega, with zeta = 1. Other gains, as
            on the velocity alone, are a `robodyn.Baumgarte`. None: accelerations ignore errors.
        name: for rows and messages; None: the link's name. Where several constraints of a model have one name, rows
            of the second and later ones begin with "name_2", "name_3".
    """

    rows: ClassVar[tuple[str, ...]] = ROWS[3:]

    def __init__(
        self,
        link: str,
        to: str | None = None,
        at: Any = None,
        to_at: Any = None,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        _set_frames(self, link, to, at, to_at, baumgarte, name)


@dataclass(frozen=True, init=False)
class Weld(_Framed):
    """Two frames coincide in all or some of six rows. A row that is left out frees a rotation or translation.

    Args:
        link, to, at, to_at, baumgarte, name: as of `Point`; `at` and `to_at` are poses.
        rows: those that are held, of "rx", "ry", "rz" (rotations about the axes of the frame on `to`), "x", "y", "z".
    """

    rows: tuple[str, ...]

    def __init__(
        self,
        link: str,
        to: str | None = None,
        at: Any = None,
        to_at: Any = None,
        rows: Sequence[str] = ROWS,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        entries = strict_types.members(rows) if strict_types.is_a(rows, list, tuple) else ()
        wanted = {text for text in map(strict_types.text_or_none, entries) if text in ROWS}
        if not wanted or len(wanted) != len(entries):
            raise ArgumentError(f"Weld.rows: got {brief(rows)}; wanted some of {', '.join(map(repr, ROWS))}")
        object.__setattr__(self, "rows", tuple(row for row in ROWS if row in wanted))
        _set_frames(self, link, to, at, to_at, baumgarte, name)


@dataclass(frozen=True, init=False)
class Rod(_Framed):
    """Two points stay at a distance: a massless rod with a ball joint at either end.

    Args:
        link, to, at, to_at, baumgarte, name: as of `Point`. To the world `to_at` is required, as a distance does not
            determine the direction of the other end. `targets` move it.
        length: the distance, m, greater than zero.
    """

    length: float

    rows: ClassVar[tuple[str, ...]] = ("length",)

    def __init__(
        self,
        link: str,
        to: str | None = None,
        at: Any = None,
        to_at: Any = None,
        length: float = 0.0,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        long = finite_number("Rod.length", length)
        if long <= 0.0:
            raise ArgumentError(f"Rod.length: got {brief(length)}; wanted a distance greater than 0 m")
        if to is None and to_at is None:
            raise ArgumentError("Rod.to_at: got None with to=None; wanted a place in the world that holds the rod")
        object.__setattr__(self, "length", long)
        _set_frames(self, link, to, at, to_at, baumgarte, name)


@dataclass(frozen=True, init=False)
class Rolling(_Framed):
    """A wheel rolls on a plane without slipping or lifting: a thin disc that touches it with its lowest point.

    The rows "forward" and "side" say that the material point of contact does not move along the track and across it.
    They restrict velocities only, so their residual is zero. The row "height" says that the lowest point is in the
    plane. A positive rate of the wheel about `axis` rolls it forward, along the axis times the plane's normal.

    Args:
        link, to, baumgarte, name: as of `Point`.
        axis: the wheel's axle: a direction in the axes of `at`, through its origin. It is made a unit vector.
        radius: of the wheel, m, greater than zero.
        at: the wheel's centre on `link`, three numbers or a pose.
        to_at: the plane: the x-y plane of a frame on `to`, with z on the wheel's side. None for the world: the ground
            z = 0, which `targets` move.
    """

    axis: Numbers
    radius: float

    rows: ClassVar[tuple[str, ...]] = ("forward", "side", "height")

    def __init__(
        self,
        link: str,
        axis: Any = (0.0, 0.0, 1.0),
        radius: float = 0.0,
        to: str | None = None,
        at: Any = None,
        to_at: Any = None,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        size = finite_number("Rolling.radius", radius)
        if size <= 0.0:
            raise ArgumentError(f"Rolling.radius: got {brief(radius)}; wanted a length greater than 0 m")
        members = strict_types.members(axis) if strict_types.is_a(axis, list, tuple) else ()
        if strict_types.is_a(axis, np.ndarray):
            members = tuple(as_array("Rolling.axis", axis, "wanted three numbers").ravel().tolist())
        numbers = [number for number in map(finite_real, members) if number is not None]
        length = math.hypot(*numbers)
        if len(numbers) != 3 or len(members) != 3 or not 0.0 < length < math.inf:
            raise ArgumentError(f"Rolling.axis: got {brief(axis)}; wanted three numbers, not all zero")
        object.__setattr__(self, "radius", size)
        if abs(length - 1.0) > _UNIT:  # an axis that is one already keeps its bits
            numbers = [number / length for number in numbers]
        object.__setattr__(self, "axis", tuple(numbers))
        _set_frames(self, link, to, at, IDENTITY_ROW if to is None and to_at is None else to_at, baumgarte, name)


@dataclass(frozen=True, init=False)
class Coupling:
    """A sum of multiples of joint coordinates is constant: sum of c_j q_j = offset.

    Args:
        joints: numbers c_j by the names of joints of one degree of freedom: a dictionary, or pairs.
        offset: in rad or m.
        baumgarte, name: as of `Point`; the default name is made of the joints' names.
    """

    joints: tuple[tuple[str, float], ...]
    offset: float
    baumgarte: Decay
    name: str

    rows: ClassVar[tuple[str, ...]] = ("sum",)

    def __init__(
        self,
        joints: Mapping[str, float] | Sequence[tuple[str, float]],
        offset: float = 0.0,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        pairs = tuple(
            (_name("Coupling.joints", joint), finite_number(f"Coupling.joints[{brief(joint)}]", number))
            for joint, number in _pairs(joints)
        )
        if len({joint for joint, _ in pairs}) < len(pairs):
            raise ArgumentError(f"Coupling.joints: got {brief(joints)}; wanted each joint once")
        if not any(number for _, number in pairs):
            raise ArgumentError(f"Coupling.joints: got {brief(joints)}; wanted a number that is not zero")
        object.__setattr__(self, "joints", pairs)
        object.__setattr__(self, "offset", finite_number("Coupling.offset", offset))
        object.__setattr__(self, "baumgarte", _baumgarte("Coupling", baumgarte))
        own = "+".join(joint for joint, _ in pairs)
        object.__setattr__(self, "name", own if name is None else _name("Coupling.name", name))


@dataclass(frozen=True, init=False)
class Lock:
    """A joint does not move.

    Args:
        joint: its name.
        value: its coordinates, as many as it has; None: neutral, zeros and the identity.
        baumgarte, name: as of `Point`; the default name is the joint's.
    """

    joint: str
    value: Numbers | None
    baumgarte: Decay
    name: str

    def __init__(
        self,
        joint: str,
        value: Any = None,
        baumgarte: Baumgarte | Sequence[float] | float | None = None,
        name: str | None = None,
    ) -> None:
        object.__setattr__(self, "joint", _name("Lock.joint", joint))
        numbers = None
        if value is not None:
            values = strict_types.members(value) if strict_types.is_a(value, list, tuple) else (value,)
            numbers = tuple(finite_number("Lock.value", number) for number in values)
        object.__setattr__(self, "value", numbers)
        object.__setattr__(self, "baumgarte", _baumgarte("Lock", baumgarte))
        object.__setattr__(self, "name", self.joint if name is None else _name("Lock.name", name))


Constraint: TypeAlias = Point | Weld | Rod | Rolling | Coupling | Lock
"""Any of the six kinds."""
KINDS = (Point, Weld, Rod, Rolling, Coupling, Lock)


def _set_frames(made: Any, link: Any, to: Any, at: Any, to_at: Any, baumgarte: Any, name: Any) -> None:
    what = type(made).__name__
    link = _name(f"{what}.link", link)
    for field, value in {
        "link": link,
        "to": None if to is None else _name(f"{what}.to", to),
        "at": tuple(row_of(transform_of(f"{what}.at", at))),
        "to_at": None if to_at is None else tuple(row_of(transform_of(f"{what}.to_at", to_at))),
        "baumgarte": _baumgarte(what, baumgarte),
        "name": link if name is None else _name(f"{what}.name", name),
    }.items():
        object.__setattr__(made, field, value)


def _name(what: str, given: Any) -> str:
    text = strict_types.text_or_none(given)
    if text is None or not text:
        raise ArgumentError(f"{what}: got {brief(given)}; wanted a name")
    return text


def _pairs(joints: Any) -> list[tuple[Any, Any]]:
    """Pairs of a joint and its number."""
    if strict_types.is_a(joints, dict):
        pairs = list(dict.items(joints))
    else:
        members = strict_types.members(joints) if strict_types.is_a(joints, list, tuple) else ()
        pairs = [strict_types.members(each) if strict_types.is_a(each, list, tuple) else () for each in members]
    if not pairs or any(len(each) != 2 for each in pairs):
        raise ArgumentError(f"Coupling.joints: got {brief(joints)}; wanted a dictionary of joints to numbers")
    return pairs


def _baumgarte(what: str, given: Any) -> Decay:
    """The checked decay of errors.

    Raises:
        ArgumentError: not a number, a pair of numbers or gains; or a pair without effect.
    """
    if given is None or strict_types.is_a(given, Baumgarte):
        return cast(Decay, given)
    wanted = "wanted (omega, zeta), both 0 or more, omega alone, or a robodyn.Baumgarte(velocity, position)"
    members = strict_types.members(given) if strict_types.is_a(given, list, tuple) else (given, 1.0)
    numbers = [number for number in map(finite_real, members) if number is not None and number >= 0.0]
    if len(numbers) != 2 or len(members) != 2 or not all(map(math.isfinite, gains((numbers[0], numbers[1])))):
        raise ArgumentError(f"{what}.baumgarte: got {brief(given)}; {wanted}")
    omega, zeta = numbers
    if omega == 0.0 and zeta != 0.0:
        raise ArgumentError(
            f"{what}.baumgarte: got {brief(given)}, that is omega = 0, by which no error decays, whatever zeta; to "
            "damp errors of velocity alone give robodyn.Baumgarte(velocity=...)"
        )
    return omega, zeta


def gains(decay: Decay) -> tuple[float, float]:
    """The velocity gain, 1/s, and the position gain, 1/s^2, of a constraint."""
    if decay is None:
        return 0.0, 0.0
    if isinstance(decay, Baumgarte):
        return decay.velocity, decay.position
    omega, zeta = decay
    return 2.0 * zeta * omega, omega * omega


def _gain(name: str, given: Any) -> float:
    """A checked gain."""
    number = finite_real(given)
    if number is None or number < 0.0:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a finite gain of 0 or more")
    return number
