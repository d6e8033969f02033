"""Featherstone's autoTree: a family of kinematic trees of tubes, of any size. Only arrays store the bodies.

R. Featherstone's Matlab library spatial_v2 defines it; Lynghus (Data Parallel Rigid Body Dynamics, section 7.1) uses
it for every experiment.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.joints import CODE
from robodyn.core.model import Model
from robodyn.core.model_fields import Numbered
from robodyn.internals.arguments import count, finite_number
from robodyn.internals.errors import ArgumentError
from robodyn.io.builders.assemble import gravity_vector

MAX_BODIES = 100_000_000
_SMALLEST, _LARGEST = 1e-150, 1e150
"""Range of masses and lengths whose products neither underflow nor overflow."""


def auto_tree(
    n: int,
    *,
    branching: float = 1.0,
    taper: float = 1.0,
    skew: float = 0.0,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
) -> Model:
    """Featherstone's autoTree: n bodies on revolute joints, numbered breadth-first.

    Body i (from 0) is a thin-walled tube of length l = taper^i, radius l/20 and mass taper^(3 i), lying on the x axis
    of its frame between 0 and l, and turns about its own z axis. The joints of its children sit at (l, 0, 0), turned by
    `skew` radians about x against its own joint; with skew = 0 the mechanism is planar.

    Args:
        n: number of bodies, 1 to 10^8.
        branching: average number of children of a body that has any, at least 1: 1 is a chain, 2 a binary tree, and a
            fraction lets the number of children alternate. Body i has parent floor((i - 1 + ceil(b)) / b) - 1.
        taper: ratio of the lengths of consecutively numbered bodies, positive.
        skew: radians.
        gravity: acceleration of free fall in world coordinates, m/s^2.

    Raises:
        ArgumentError: a value out of range, or a taper whose n-th mass cannot be represented.
        NumericalError: NaN or infinity in `gravity`.
    """
    n = count("n", n, 1, MAX_BODIES)
    branching, taper, skew = (
        finite_number(name, value) for name, value in (("branching", branching), ("taper", taper), ("skew", skew))
    )
    if branching < 1.0:
        raise ArgumentError(f"branching: got {branching}; wanted at least 1")
    if taper <= 0.0:
        raise ArgumentError(f"taper: got {taper}; wanted a positive number")
    # Products of a mass with a squared length must neither underflow nor overflow.
    if not abs(5 * (n - 1) * math.log10(taper)) < math.log10(_LARGEST):
        raise ArgumentError(
            f"taper: got {taper} for n = {n}; the last body's mass and inertia could not be represented; "
            f"wanted taper^(5 (n - 1)) between {_SMALLEST:g} and {_LARGEST:g}"
        )
    number = np.arange(n)
    # No body has more than n - 1 children. A larger branching gives the same tree, but its ceiling could overflow.
    most = min(branching, float(n))
    parent = np.floor((number - 1 + math.ceil(most)) / most).astype(np.intp) - 1
    parent[0] = -1
    length = taper ** number.astype(np.float64)
    mass = length**3
    Xtree = np.zeros((n, 12))
    Xtree[:, [0, 4, 8]] = 1.0
    inner = parent >= 0
    c, s = math.cos(skew), math.sin(skew)
    Xtree[inner, :9] = (1.0, 0.0, 0.0, 0.0, c, s, 0.0, -s, c)
    Xtree[inner, 9] = length[parent[inner]]
    inertia = np.zeros((n, 10))
    inertia[:, 0] = mass
    inertia[:, 1] = 0.5 * length * mass
    # A thin-walled tube with r = l / 20 has the inertia m r^2 about its axis, and m (r^2 / 2 + l^2 / 12) about the
    # other axes through its centre. The shift to its end adds m (l / 2)^2.
    moment = mass * length**2
    inertia[:, 4] = 0.0025 * moment
    inertia[:, [7, 9]] = ((1.015 / 12 + 0.25) * moment)[:, None]
    link_X = np.zeros((n, 12))
    link_X[:, [0, 4, 8]] = 1.0
    zeros, infinite = np.zeros(n), np.full(n, np.inf)
    names = Numbered("body", n)
    return Model.of_checked(
        name=f"auto_tree({n}, branching={branching:g}, taper={taper:g}, skew={skew:g})",
        parent=parent,
        joint_kind=np.full(n, CODE["revolute"], dtype=np.int8),
        Xtree=Xtree,
        inertia=inertia,
        pitch=zeros,
        q_start=number,
        v_start=number,
        q_source=number,
        q_multiplier=np.ones(n),
        q_offset=zeros,
        v_source=number,
        v_multiplier=np.ones(n),
        mimics=np.full(n, -1, dtype=np.intp),
        tree_armature=zeros,
        tree_damping=zeros,
        tree_friction=zeros,
        tree_lower=-infinite,
        tree_upper=infinite,
        tree_effort=infinite,
        tree_velocity=infinite,
        link_body=number,
        link_X=link_X,
        gravity=gravity_vector(gravity),
        joint_names=Numbered("joint", n),
        body_names=names,
        link_names=names,
    )
