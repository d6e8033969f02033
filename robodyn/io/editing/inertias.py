"""Changes inertias of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.description import Inertial, Link, Pose
from robodyn.core.findings import Notes, Report
from robodyn.internals.arguments import Array, finite_number, real_array, require_finite
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.io.builders.check_bodies import check_inertials
from robodyn.io.builders.link_inertias import of_links
from robodyn.io.editing.parts import fields_of, finished

if TYPE_CHECKING:
    from robodyn.core.model import Model

_SQUARE = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
"""Indices into xx xy xz yy yz zz that give the entries of the matrix."""
_ROUNDING = 32 * np.finfo(np.float64).eps


def about_centre(ten: Array) -> Inertial | None:
    """The inertial of ten parameters: mass, centre of mass, and inertia about it in the link's axes. None if all are 0.

    Raises:
        ArgumentError: the mass is zero and the first moment is not, or the numbers overflow.
    """
    if not ten.any():
        return None
    m, h, about = float(ten[0]), ten[1:4], ten[4:]
    if m == 0.0 and h.any():
        raise ArgumentError(f"inertia: got mass 0 with first moment {h.tolist()}, which has no centre of mass")
    c = h / m if m else np.zeros(3)
    with np.errstate(over="ignore", invalid="ignore"):
        shift = m * (float(c @ c) * np.eye(3) - np.outer(c, c))
    if not np.isfinite(shift).all():
        raise ArgumentError(f"inertia: mass {m:g} kg at {c.tolist()} m overflows about its centre of mass")
    central = about - shift[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]]
    if np.abs(central).max() <= _ROUNDING * np.abs(about).max():  # a point mass: only rounding errors remain
        central = np.zeros(6)
    (x, y, z), moments = c.tolist(), central.tolist()
    return Inertial(m, Pose((x, y, z)), (moments[0], moments[1], moments[2], moments[3], moments[4], moments[5]))


def with_inertia(model: Model, link: str | int, mass: Any, com: Any, inertia: Any) -> Model:
    """Changes the inertia of a link; see `Model.with_inertia`."""
    k = model.link_index(link)
    fields = fields_of(model)
    current = about_centre(fields["link_inertia"][k]) or Inertial(0.0, Pose(), (0.0,) * 6)
    m = current.mass if mass is None else finite_number("mass", mass)
    x, y, z = current.pose.xyz if com is None else _numbers("com", com, (3,))
    moments = current.inertia if inertia is None else _six(inertia)
    notes = Notes()
    new_link = Link(model.link_names[k], Inertial(m, Pose((x, y, z)), moments))
    try:
        check_inertials((new_link,), True, notes)
    except LoadError as error:
        raise ArgumentError(str(error).replace(" (strict=False loads it as it is)", "")) from None
    rows = np.array(fields["link_inertia"])
    with np.errstate(over="ignore", invalid="ignore"):
        rows[k] = of_links((new_link,))[0]
    fields["link_inertia"] = rows
    fields["report"] = Report((*model.report, *notes.findings()))
    return finished(model, fields)


def _numbers(name: str, given: Any, shape: tuple[int, ...]) -> tuple[float, ...]:
    array = real_array(name, given, shape, np.float64)
    if array.ndim != len(shape):
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted {shape}")
    require_finite(name, array, array.ndim)
    return tuple(array.ravel().tolist())


def _six(given: Any) -> tuple[float, float, float, float, float, float]:
    """xx, xy, xz, yy, yz, zz of an inertia, which is an array of these or a matrix (3, 3)."""
    array = real_array("inertia", given, (), np.float64, what="a matrix (3, 3), or xx, xy, xz, yy, yz, zz")
    if array.shape == (3, 3):
        require_finite("inertia", array, 2)
        if (np.abs(array - array.T) > 1e-9 * np.abs(array).max()).any():
            raise ArgumentError("inertia: got a matrix that is not symmetric; wanted a symmetric one")
        array = array[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]]
    if array.shape != (6,):
        raise ArgumentError(f"inertia: got shape {array.shape}; wanted (3, 3), or (6,): xx, xy, xz, yy, yz, zz")
    require_finite("inertia", array, 1)
    xx, xy, xz, yy, yz, zz = array.tolist()
    return xx, xy, xz, yy, yz, zz
