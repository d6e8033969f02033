"""Checks of masses and inertias: each link by itself, and what every joint has to move."""

from __future__ import annotations

import numpy as np

from robodyn.core.description import TRANSLATING_TYPES, Link
from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.check_joints import Mimics

RELATIVE = 1e-6
"""How negative a principal moment may be, and how far it may exceed the sum of the other two, relative to the largest
moment: files print six digits. Real defects are far larger."""

SLIGHT = 0.5
"""Principal moments that are less negative than this, relative to the link's largest, are read: files of robots that
everybody uses have them, from programs for design and from identification (TIAGo's antennas 0.39, a Romeo's torso
0.22). Beyond it a sign or an order of entries is wrong."""

_SURE = 1e-12
"""Minors above this, relative to the largest entry, are positive whatever they were rounded by."""

_USUAL = 1e-90, 1e90
"""Largest entries whose cubes neither vanish nor overflow."""

_NAMED = 50
"""Links that one refusal names."""

GYRATION = 1e-12
"""Moments of inertia below this times the mass (m^2; a radius of gyration of a micrometre) are rounding of zero:
programs for design export such."""


def check_inertials(links: tuple[Link, ...], strict: bool, notes: Notes) -> None:
    """Mass, principal moments and triangle inequality of every link, about its centre of mass."""
    bodies = []
    impossible: list[tuple[str, Link, str]] = []
    for link in links:
        if link.inertial is None:
            continue
        mass, largest = link.inertial.mass, max(map(abs, link.inertial.inertia))
        if mass < 0.0:
            impossible.append(("negative-mass", link, f"the mass {mass:g} kg is negative"))
        if mass != 0.0 and largest <= GYRATION * abs(mass):
            message = "it has mass and no rotational inertia; a point mass, used as given"
            notes.add("mass-without-inertia", f"link {quoted(link.name)}", message, link.line)
        elif largest and not _is_surely_possible(link.inertial.inertia, largest):
            bodies.append((link, largest))
        if mass == 0.0 and largest:
            message = "it has rotational inertia and no mass; used as given"
            notes.add("inertia-without-mass", f"link {quoted(link.name)}", message, link.line)
    if bodies:
        impossible += _check_moments(bodies, notes)
    if strict and impossible:
        raise LoadError(_refusal(impossible))
    for code, link, text in impossible:
        notes.add(code, f"link {quoted(link.name)}", f"{text}; used as given", link.line)


def _is_surely_possible(inertia: tuple[float, ...], largest: float) -> bool:
    """Whether moments of inertia, the largest entry being `largest`, are those of a real body beyond all rounding.

    They are where tr(I)/2 - I is positive definite: its eigenvalues say by how much two principal moments exceed the
    third. By its leading minors (Sylvester); a fortieth of the time that principal moments of one link take.
    """
    xx, xy, xz, yy, yz, zz = inertia
    half = 0.5 * (xx + yy + zz)
    a, b, c = half - xx, half - yy, half - zz
    minor = a * b - xy * xy
    least = _SURE * largest
    if not (_USUAL[0] < largest < _USUAL[1] and a > least and minor > least * largest):
        return False
    whole = c * minor - 2.0 * xy * yz * xz - a * yz * yz - b * xz * xz
    return whole > least * largest * largest


def _refusal(impossible: list[tuple[str, Link, str]]) -> str:
    """One sentence on links that no real body is, the first few of them named."""
    texts: dict[str, list[str]] = {}
    for _, link, text in impossible:
        texts.setdefault(f"link {quoted(link.name)}{at_line(link.line)}", []).append(text)
    said = [f"{link}: {' and '.join(found)}" for link, found in texts.items()]
    if len(said) == 1:
        return f"{said[0]}; no real body has that (strict=False loads it as it is)"
    more = [f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else []
    listed = "; ".join([*said[:_NAMED], *more])
    return f"{len(said)} links are no real bodies (strict=False loads them as they are): {listed}"


def _check_moments(bodies: list[tuple[Link, float]], notes: Notes) -> list[tuple[str, Link, str]]:
    """Principal moments of links with their largest entries: findings are noted, links that no real body is are
    returned, as (code, link, text)."""
    impossible = []
    upper = np.array([link.inertial.inertia for link, _ in bodies if link.inertial], dtype=np.float64)
    # Scaled to largest entry 1, so that nothing overflows.
    scaled = upper / np.array([[largest] for _, largest in bodies])
    moments = np.linalg.eigvalsh(scaled[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3))
    for (link, largest), ratio in zip(bodies, moments.tolist(), strict=True):
        low, middle, high = ratio
        largest_moment = max(-low, high)
        negative = low < -RELATIVE * largest_moment
        broken = low + middle - high < -RELATIVE * largest_moment
        if not (negative or broken):
            continue
        shown = ", ".join(f"{largest * moment:.6g}" for moment in ratio)
        subject = f"link {quoted(link.name)}"
        text = f"its inertia has the negative principal moment {largest * low:.6g} kg m^2 (all: {shown})"
        if low <= -SLIGHT * largest_moment:
            impossible.append(("negative-inertia", link, text))
        elif negative:
            message = (
                f"{text}, by less than half of the largest; used as given: where nothing else moves with it, "
                "accelerations have the wrong sign"
            )
            notes.add("slightly-negative-inertia", subject, message, link.line)
        else:
            message = f"one of its principal moments {shown} kg m^2 exceeds the sum of the others; used as given"
            notes.add("inertia-triangle", subject, message, link.line)
    return impossible


def check_massless(links: tuple[Link, ...], mimics: Mimics, order: list[tuple[int, int]], notes: Notes) -> None:
    """Links and merged bodies without mass and inertia. `order`: (link, joint that moves it), parents first.

    Links on joints that never move count as one body with the link that carries them. A joint is reported when its
    own coordinate, with all joints that mimic it, has nothing with inertia to move.
    """
    joints = mimics.joints
    index = {link.name: i for i, link in enumerate(links)}
    mass = [link.inertial is not None and link.inertial.mass != 0.0 for link in links]
    inertia = [link.inertial is not None and any(link.inertial.inertia) for link in links]
    body = list(range(len(links)))  # the link that stands for the merged body
    for i, j in order:
        if not mass[i] and not inertia[i]:
            message = "no inertial, or all of it zero; its mass and inertia are zero"
            notes.gather("link-without-inertial", f"link {quoted(links[i].name)}", message, links[i].line)
        if j >= 0 and joints[j].name in mimics.welded:
            body[i] = body[index[joints[j].parent]]
            mass[body[i]] |= mass[i]
            inertia[body[i]] |= inertia[i]
    massless = [not mass[i] and not inertia[i] for i in range(len(links))]
    moving = [(i, joints[j]) for i, j in order if j >= 0 and body[i] == i]
    # Whether a coordinate has something to move: what translates needs mass, what turns needs mass or inertia.
    loaded: dict[str, bool] = {joint.name: False for joint in joints}
    for i, joint in reversed(moving):
        parent = body[index[joint.parent]]
        mass[parent] |= mass[i]
        inertia[parent] |= inertia[i]
        turns = joint.type not in TRANSLATING_TYPES
        coupling = mimics.couplings.get(joint.name)
        leader = joint.name if coupling is None or coupling.joint is None else coupling.joint
        loaded[leader] |= mass[i] or (inertia[i] and turns) or joint.armature != 0.0
    for i, joint in moving:
        if joint.name not in mimics.couplings and not loaded[joint.name]:
            message = (
                f"joint {quoted(joint.name)} moves nothing that has inertia: inverse dynamics works, forward dynamics "
                "will be singular; give mass and inertia, or an armature"
            )
            notes.add("massless-leaf", f"link {quoted(links[i].name)}", message, links[i].line)
        elif massless[i]:
            message = f"the body on joint {quoted(joint.name)} has no mass and no inertia of its own; used as given"
            notes.add("massless-moving-link", f"link {quoted(links[i].name)}", message, links[i].line)
