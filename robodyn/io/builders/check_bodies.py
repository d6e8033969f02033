"""Checks of masses and inertias: of each link, and of the bodies that each joint moves."""

from __future__ import annotations

import numpy as np

from robodyn.core.description import TRANSLATING_TYPES, Link
from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.check_joints import Mimics

RELATIVE = 1e-6
"""Relative tolerance of principal moments: for negative ones, and for one that exceeds the sum of the other two. Files
have six digits, and real defects are far larger."""

SLIGHT = 0.5
"""Negative principal moments are accepted up to this share of the link's largest. Widely used robot files contain them,
from CAD programs and from identification (0.39 for TIAGo's antennas, 0.22 for a torso of Romeo). Larger ones come from
a wrong sign or a wrong order of entries."""

_SURE = 1e-12
"""Minors above this, relative to the largest entry, are positive despite rounding."""

_USUAL = 1e-90, 1e90
"""Range of the largest entry in which its cube neither underflows nor overflows."""

_NAMED = 50
"""Most links that an error message names."""

GYRATION = 1e-12
"""Moments of inertia up to this times the mass (m^2; a radius of gyration of a micrometre) count as zero. CAD programs
export them as rounding errors."""


def check_inertials(links: tuple[Link, ...], strict: bool, notes: Notes) -> None:
    """Checks mass, principal moments and triangle inequality of every link, about its centre of mass."""
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
    """True if moments of inertia belong to a real body, despite rounding. `largest` is the largest absolute entry.

    This is the case if tr(I)/2 - I is positive definite: its eigenvalues are half of the differences between the sum of
    two principal moments and the third. The test uses leading minors (Sylvester's criterion), which takes a fortieth of
    the time of computing principal moments.
    """
    xx, xy, xz, yy, yz, zz = inertia
    half = 0.5 * (xx + yy + zz)
    a, b, c = half - xx, half - yy, half - zz
    minor = a * b - xy * xy
    least = _SURE * largest
    if not (_USUAL[0] < largest < _USUAL[1] and a > least and minor > least * largest):
        return False
    determinant = c * minor - 2.0 * xy * yz * xz - a * yz * yz - b * xz * xz
    return determinant > least * largest * largest


def _refusal(impossible: list[tuple[str, Link, str]]) -> str:
    """An error message about links with impossible inertias. It names at most `_NAMED` of them."""
    texts: dict[str, list[str]] = {}
    for _, link, text in impossible:
        texts.setdefault(f"link {quoted(link.name)}{at_line(link.line)}", []).append(text)
    sentences = [f"{link}: {' and '.join(texts_of_link)}" for link, texts_of_link in texts.items()]
    if len(sentences) == 1:
        return f"{sentences[0]}; no real body has that (strict=False loads it as it is)"
    more = [f"and {len(sentences) - _NAMED} more"] if len(sentences) > _NAMED else []
    named = "; ".join([*sentences[:_NAMED], *more])
    return f"{len(sentences)} links are no real bodies (strict=False loads them as they are): {named}"


def _check_moments(bodies: list[tuple[Link, float]], notes: Notes) -> list[tuple[str, Link, str]]:
    """Checks principal moments of links, each with its largest absolute entry.

    Returns:
        (code, link, text) for links that no real body can have. Other defects become findings.
    """
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
    """Reports links and merged bodies without mass and inertia. `order`: (link, joint that moves it), parents first.

    A link on a welded joint belongs to the body of its parent link. A joint is reported if neither it nor a joint that
    mimics it moves a body with inertia.
    """
    joints = mimics.joints
    index = {link.name: i for i, link in enumerate(links)}
    mass = [link.inertial is not None and link.inertial.mass != 0.0 for link in links]
    inertia = [link.inertial is not None and any(link.inertial.inertia) for link in links]
    body = list(range(len(links)))  # the link that represents the merged body of each link
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
    # True for joints with a nonzero inertia: a translating joint needs mass, a rotating one mass or rotational inertia.
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
