"""Parses numbers, vectors, colours and directions from text, with strict rules for numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from robodyn.core import spatial
from robodyn.core.description import Rotation, Vector3
from robodyn.core.spatial import transpose
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted

MIN_NORM = 1e-6
"""Axes and quaternions with a smaller norm have no usable direction, because exporters print six decimals."""

UNIT_TOLERANCE = 1e-3
"""A norm that differs from one by more than this is reported. Axes with three or four decimals are within it."""

# float() also accepts "1_0", digits of other scripts, "nan", "infinity" and blanks that XML does not have. str.split()
# accepts such blanks as well. Text without such characters is plain and needs no check by a regular expression, which
# saves time because most of a file is numbers.
_BLANK = r"[ \t\r\n]"
_DECIMAL = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(f"{_BLANK}*{_DECIMAL}{_BLANK}*")
_INFINITY = re.compile(f"{_BLANK}*[+-]?inf(?:inity)?{_BLANK}*", re.IGNORECASE | re.ASCII)
_BLANKS = re.compile(f"{_BLANK}+")
_WHOLE = re.compile("[0-9]{1,18}")  # larger numbers are not needed, and Python refuses texts of thousands of digits


def number(text: str) -> float | None:
    """The finite number in `text` in plain decimal ASCII, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    plain = text.isascii() and text.isprintable() and "_" not in text
    return value if plain or _NUMBER.fullmatch(text) else None


def infinity(text: str) -> float | None:
    """Plus or minus infinity if `text` is "inf" or "infinity" in any case, with or without sign, else None."""
    return float(text) if _INFINITY.fullmatch(text) else None


def whole_number(text: str) -> int | None:
    """The integer in a text of up to 18 ASCII digits, or None."""
    return int(text) if _WHOLE.fullmatch(text) else None


def numbers(text: str, count: int) -> tuple[float, ...] | None:
    """The `count` finite numbers in `text`, in plain decimal ASCII and separated by blanks, or None."""
    plain = text.isascii() and text.isprintable() and "_" not in text
    parts = text.split(maxsplit=count) if plain else _BLANKS.split(text.strip(" \t\r\n"), maxsplit=count)
    if len(parts) == count and (plain or all(map(_NUMBER.fullmatch, parts))):
        try:
            values = tuple(map(float, parts))
        except ValueError:
            return None
        if math.isfinite(sum(values)) or all(map(math.isfinite, values)):
            return values
    return None


def color(rgba: Iterable[float]) -> tuple[float, float, float, float]:
    """Red, green, blue and opacity, each clipped to 0 to 1."""
    red, green, blue, opacity = (float(min(max(x, 0.0), 1.0)) for x in rgba)
    return red, green, blue, opacity


def color_of(text: str) -> tuple[float, float, float, float] | None:
    """The colour in a text of three or four numbers, or None. Three numbers have the opacity 1."""
    rgba = numbers(text, 4) or numbers(f"{text} 1", 4)
    return None if rgba is None else color(rgba)


def bad_number(text: str, where: str, count: int = 1) -> LoadError:
    """The error for a text that is not `count` numbers."""
    wanted = "a finite number" if count == 1 else f"{count} finite numbers, separated by blanks,"
    return LoadError(f"{where}: {quoted(text)} is not {wanted} in plain decimals such as 1, -0.5 or 2e-3{hint(text)}")


def hint(text: str) -> str:
    """The end of an error message about a text with unexpanded xacro; "" for other texts."""
    return "; it looks like xacro: expand the file with xacro first, as robodyn.load_xacro does" if "$" in text else ""


def unit_axis(xyz: Vector3, where: str) -> tuple[Vector3, float]:
    """The direction of an axis as a unit vector, and its original norm. A unit vector is returned unchanged.

    Raises:
        LoadError: a norm below `MIN_NORM`.
    """
    norm = math.hypot(*xyz)
    if not MIN_NORM <= norm < math.inf:
        raise LoadError(f"{where}: the axis {xyz} has norm {norm:g}; give a vector with a direction, best of norm 1")
    if norm == 1.0:
        return xyz, norm
    x, y, z = xyz
    return (x / norm, y / norm, z / norm), norm


def rotation_from_quaternion(xyzw: tuple[float, ...], where: str) -> tuple[Rotation, float]:
    """The rotation of a quaternion (x, y, z, w), and its original norm.

    Raises:
        LoadError: a norm below `MIN_NORM`.
    """
    norm = math.hypot(*xyzw)
    if not MIN_NORM <= norm < math.inf:
        raise LoadError(f"{where}: the quaternion {xyzw} has norm {norm:g}; give one of norm 1")
    x, y, z, w = (value / norm for value in xyzw)
    return transpose(spatial.rotation_from_quaternion(x, y, z, w)), norm


def off_unit(norm: float) -> bool:
    """True if a norm differs enough from one to be reported."""
    return abs(norm - 1.0) > UNIT_TOLERANCE
