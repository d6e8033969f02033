"""Shared parts of comparisons with other programs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install
from robodyn.tools.testing.states import SMALL, VALUES, Sizes, answers, relative

JACOBIANS = 3
"""Jacobians are compared for this many links at the end of the list, poses for all links."""

Errors = dict[str, tuple[float, float]]
"""(error, tolerance) by name of a quantity."""


def imported(name: str, module: str, wanted: str) -> Any:
    """Import the module of another program, which must have the attribute `wanted`.

    Raises:
        UnavailableError: it cannot be imported, or is another module of that name.
    """
    try:
        loaded = importlib.import_module(module)
        if hasattr(loaded, wanted):
            return loaded
        reason = f"what is found under that name has no {wanted}"
    except Exception as error:  # a foreign module may raise anything
        reason = f"{type(error).__name__}: {error}"
    wheel = {"pinocchio": "pin"}.get(module, module)
    raise UnavailableError(f"{name} is not installed here ({reason}); {install('test')} (wheel {wheel})")


def about_centre(inertia: Array) -> tuple[float, Array, Array]:
    """Mass, centre of mass, and rotational inertia (3, 3) about it, from a row of `Model.inertia`."""
    mass, h, (xx, xy, xz, yy, yz, zz) = float(inertia[0]), inertia[1:4], inertia[4:]
    c = h / mass if mass else np.zeros(3)
    about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return mass, c, about_origin - mass * (c @ c * np.eye(3) - np.outer(c, c))


class Comparison:
    """Compares results of a `Dynamics` and another program at one state. Queries that the engine lacks are skipped."""

    def __init__(self, dyn: Dynamics, sizes: Sizes) -> None:
        self.dyn, self.sizes, self.errors = dyn, sizes, Errors()

    def add(self, name: str, theirs: Any, least: float, query: str, *arguments: Any, part: Any = ...) -> None:
        """Compare a query's first result, or a part of it, with theirs; `least` as in `relative`."""
        if answers(self.dyn, query):
            ours = getattr(self.dyn, query)(*arguments)
            self.judge(name, (ours[0] if isinstance(ours, tuple) else ours)[part], theirs, least)

    def judge(self, name: str, ours: Any, theirs: Any, least: float) -> None:
        """Compare two results."""
        self.errors[name] = relative(ours, theirs, least), VALUES[self.dyn.dtype.name]

    def add_poses(self, q: Array, attitudes: Array, places: Array) -> None:
        """Compare rotations (L, 3, 3) and positions (L, 3) of all links."""
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
    largest = Errors()
    for errors in states:
        for name, (error, allowed) in errors.items():
            largest[name] = max(error, largest.get(name, (0.0, 0.0))[0]), allowed
    return largest
