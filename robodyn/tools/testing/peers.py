"""What models for other programs, and comparisons with them, share."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.testing.states import SMALL, VALUES, Sizes, answers, relative

JACOBIANS = 3
"""Links whose Jacobians are asked about: the last ones. Poses are those of all."""

Errors = dict[str, tuple[float, float]]
"""Quantities, each with its error and what is allowed."""


def imported(name: str, module: str, wanted: str) -> Any:
    """The module of another program, which has to have the attribute `wanted`.

    Raises:
        UnavailableError: it cannot be imported, or is something else of that name.
    """
    try:
        found = importlib.import_module(module)
        if hasattr(found, wanted):
            return found
        reason = f"what is found under that name has no {wanted}"
    except Exception as error:  # a foreign module may raise anything
        reason = f"{type(error).__name__}: {error}"
    wheel = {"pinocchio": "pin"}.get(module, module)
    raise UnavailableError(f'{name} is not installed here ({reason}); pip install "robodyn[test]" (wheel {wheel})')


def about_centre(inertia: Array) -> tuple[float, Array, Array]:
    """Mass, centre of mass and rotational inertia (3, 3) about it, of a row of `Model.inertia`."""
    mass, h, (xx, xy, xz, yy, yz, zz) = float(inertia[0]), inertia[1:4], inertia[4:]
    c = h / mass if mass else np.zeros(3)
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return mass, c, about_origin - mass * (c @ c * np.eye(3) - np.outer(c, c))


class Comparison:
    """What a `Dynamics` and another program say of one state; queries that the engine does not answer are left out."""

    def __init__(self, dyn: Dynamics, sizes: Sizes) -> None:
        self.dyn, self.sizes, self.errors = dyn, sizes, Errors()

    def add(self, name: str, theirs: Any, least: float, query: str, *arguments: Any, part: Any = ...) -> None:
        """Compare a query's answer, the first of several and a part of it, with theirs (`relative`)."""
        if answers(self.dyn, query):
            ours = getattr(self.dyn, query)(*arguments)
            self.judge(name, (ours[0] if isinstance(ours, tuple) else ours)[part], theirs, least)

    def judge(self, name: str, ours: Any, theirs: Any, least: float) -> None:
        """Compare two answers."""
        self.errors[name] = relative(ours, theirs, least), VALUES[self.dyn.dtype.name]

    def add_poses(self, q: Array, attitudes: Array, places: Array) -> None:
        """Compare those of all links, (L, 3, 3) and (L, 3)."""
        least = SMALL * self.sizes.reach
        self.add("attitudes of links", attitudes, 1.0, "forward_kinematics", q, part=np.s_[:, :3, :3])
        self.add("places of links", places, least, "forward_kinematics", q, part=np.s_[:, :3, 3])

    def add_jacobian(self, q: Array, link: str, J: Array) -> None:
        """Compare the Jacobian of a link, (6, nv), angular rows first."""
        least = SMALL * self.sizes.reach
        self.add(f"Jacobian of {link}, angular", J[:3], 1.0, "jacobian", q, link, part=np.s_[:3])
        self.add(f"Jacobian of {link}, linear", J[3:], least, "jacobian", q, link, part=np.s_[3:])


def worst(states: Iterable[Errors]) -> Errors:
    """The largest error of each quantity at any state."""
    found = Errors()
    for errors in states:
        for name, (error, allowed) in errors.items():
            found[name] = max(error, found.get(name, (0.0, 0.0))[0]), allowed
    return found
