"""Checks of joints' limits, coefficients and mimics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from robodyn.core.description import ONE_COORDINATE_TYPES, UNLIMITED, Joint, Limits, Mimic
from robodyn.core.findings import Notes, at_line, cycle, listed
from robodyn.core.followers import Limits as Bounds
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass

_NO_LIMITS = Limits()
_ROUNDED = 1e-9
"""Relative or absolute difference up to which two limits are equal. It allows for rounded numbers in files."""


def check_joint_values(joints: tuple[Joint, ...], strict: bool, notes: Notes) -> None:
    """Checks damping, friction, armature and limits of every joint."""
    for joint in joints:
        if joint.type == "fixed":
            _report_unused(joint, notes)
            continue
        if joint.damping or joint.friction or joint.armature:
            _check_coefficients(joint, strict, notes)
        _check_limits(joint, notes)


def limits_of(given: Mapping[str, float | None], subject: str, line: int | None, notes: Notes) -> Limits:
    """Limits of a joint from a file or an object. An infinite limit is dropped with a finding.

    Args:
        given: a finite number, an infinity, or None for each limit by name.
        subject: name of the joint in findings.
        line: line of the file, or None.
        notes: collects findings.
    """
    for name, value in given.items():
        if value is not None and math.isinf(value):
            usual = (value < 0.0) == (name == "lower")
            message = f"the {name} limit is {value:g}; taken as no limit"
            notes.gather("limit-infinite", subject, message, line, None if usual else "warning")
    return Limits(**{name: value for name, value in given.items() if value is not None and abs(value) < UNLIMITED})


def _check_coefficients(joint: Joint, strict: bool, notes: Notes) -> None:
    subject = _subject(joint)
    for what, value in (("damping", joint.damping), ("friction", joint.friction), ("armature", joint.armature)):
        if value < 0.0:
            message = f"its {what} {value:g} is negative"
            if strict:
                allowed = "at least 0 is allowed (strict=False loads it as it is)"
                raise LoadError(f"{subject}{at_line(joint.line)}: {message}; {allowed}")
            notes.add("negative-coefficient", subject, f"{message}; used as given", joint.line)
    if joint.damping or joint.friction:
        report_joint_forces(subject, notes, joint.line)


def report_joint_forces(subject: str, notes: Notes, line: int | None = None) -> None:
    """Report that damping and friction of a joint act only through `joint_forces`."""
    message = "its damping and friction act only where joint_forces asks for them"
    notes.gather("joint-forces-not-used", subject, message, line)


def _subject(joint: Joint) -> str:
    """The joint's name in findings."""
    return f"joint {quoted(joint.name)}"


def _report_unused(joint: Joint, notes: Notes) -> None:
    if joint.limits != _NO_LIMITS:
        notes.gather("limit-not-used", _subject(joint), "limits of a fixed joint are not used", joint.line)
    if joint.damping or joint.friction or joint.armature:
        message = "damping, friction and armature of a fixed joint are not used"
        notes.gather("dynamics-not-used", _subject(joint), message, joint.line)


def _check_limits(joint: Joint, notes: Notes) -> None:
    limits = joint.limits
    lower, upper = limits.lower, limits.upper
    subject = _subject(joint)
    if joint.type not in ONE_COORDINATE_TYPES or joint.type == "continuous":
        if lower is not None or upper is not None:
            message = f"position limits of a {joint.type} joint are not used"
            notes.gather("limit-not-used", subject, message, joint.line)
    elif lower is None or upper is None:
        notes.gather("limit-missing", subject, "lower or upper limit missing; unlimited there", joint.line)
    elif lower > upper:
        message = f"the lower limit {lower:g} is above the upper limit {upper:g}; kept as given"
        notes.add("limit-reversed", subject, message, joint.line)
    elif lower == upper:
        notes.add("limit-equal", subject, f"both limits are {lower:g}; kept as given", joint.line)
    for what, value in (("effort", limits.effort), ("velocity", limits.velocity)):
        if value is not None and value < 0.0:
            notes.add("limit-negative", subject, f"the {what} limit {value:g} is negative; kept as given", joint.line)
    if limits.effort == 0.0:
        message = "the effort limit is zero; limits never enter the dynamics"
        notes.gather("effort-zero", subject, message, joint.line)


@dataclass(frozen=True, slots=True)
class Coupling:
    """A resolved mimic: position = multiplier * (position of `joint`) + offset.

    `joint` is a joint without mimic. If it is None the mimicking joint is welded at the offset, and the multiplier is
    zero.
    """

    joint: str | None
    multiplier: float
    offset: float


@dataclass(frozen=True)
class Mimics:
    """The result of `resolve_mimics`.

    `joints`: the joints, without dropped mimics. `couplings`: the resolved mimic of each mimicking joint, by name.
    `welded`: names of joints that never move: fixed joints, and joints that follow a fixed joint or have a multiplier
    of zero.
    """

    joints: tuple[Joint, ...]
    couplings: dict[str, Coupling]
    welded: frozenset[str]


def resolve_mimics(joints: tuple[Joint, ...], follow: bool, notes: Notes) -> Mimics:
    """Check all mimics and resolve chains of them, or drop all mimics if `follow` is False."""
    by_name = {joint.name: joint for joint in joints}
    kept = tuple(
        joint if joint.mimic is None else _with_valid_mimic(joint, joint.mimic, by_name, follow, notes)
        for joint in joints
    )
    by_name = {joint.name: joint for joint in kept}
    couplings: dict[str, Coupling] = {}
    for joint in kept:
        if joint.mimic is None:
            continue
        # Follow mimics up to a joint without mimic or with a known coupling. Then resolve the path backwards.
        path: dict[str, Mimic] = {}
        name = joint.name
        while name not in couplings and (mimic := by_name[name].mimic) is not None:
            if name in path:
                raise _mimic_cycle(list(path), name)
            path[name] = mimic
            name = mimic.joint
        fixed = by_name[name].type == "fixed"
        master = couplings.get(name) or (Coupling(None, 0.0, 0.0) if fixed else Coupling(name, 1.0, 0.0))
        for follower, mimic in reversed(path.items()):
            couplings[follower] = master = _coupling(by_name[follower], mimic, master)
    for joint in kept:
        if joint.mimic is not None:
            _report(joint, joint.mimic, by_name, couplings, notes)
    fixed_names = {joint.name for joint in kept if joint.type == "fixed"}
    welded = fixed_names | {name for name, coupling in couplings.items() if coupling.joint is None}
    return Mimics(kept, couplings, frozenset(welded))


def _coupling(joint: Joint, mimic: Mimic, master: Coupling) -> Coupling:
    """The coupling of a joint, from its mimic and its master's coupling."""
    multiplier = mimic.multiplier * master.multiplier
    offset = mimic.multiplier * master.offset + mimic.offset
    if not (math.isfinite(multiplier) and math.isfinite(offset)):
        raise LoadError(
            f"joint {quoted(joint.name)}{at_line(joint.line)} mimics joint {quoted(mimic.joint)}: with the mimics of "
            f"that, its multiplier becomes {multiplier:g} and its offset {offset:g}; they must stay finite"
        )
    return Coupling(master.joint if multiplier else None, multiplier, offset)


def _with_valid_mimic(joint: Joint, mimic: Mimic, by_name: dict[str, Joint], follow: bool, notes: Notes) -> Joint:
    """The joint with its mimic, or without it if the mimic is not followed.

    Raises:
        LoadError: the mimic should be followed but is invalid.
    """
    subject = f"joint {quoted(joint.name)}"
    defect = _defect(joint, mimic, by_name)
    if not follow:
        message = f"its mimic of joint {quoted(mimic.joint)} is ignored as asked; it moves on its own"
        message += f"; it could not be followed: {defect}" if defect else ""
        notes.add("mimic-ignored", subject, message, joint.line)
        return replace(joint, mimic=None)
    if joint.type == "fixed":
        message = f"a fixed joint cannot follow joint {quoted(mimic.joint)}; the mimic is dropped"
        notes.add("mimic-on-fixed-joint", subject, message, joint.line)
        return replace(joint, mimic=None)
    if defect:
        place = f"{subject}{at_line(joint.line)} mimics joint {quoted(mimic.joint)}"
        raise LoadError(f'{place}: {defect}; correct it, or load with mimic="ignore"')
    return joint


def _defect(joint: Joint, mimic: Mimic, by_name: dict[str, Joint]) -> str | None:
    """The reason why a mimic is invalid, or None. Cycles are checked elsewhere."""
    if mimic.joint not in by_name:
        return f"there is no joint {quoted(mimic.joint)}"
    for one in (joint, by_name[mimic.joint]):
        if one.type not in ONE_COORDINATE_TYPES and one.type != "fixed":
            return f"joint {quoted(one.name)} is {one.type}, and mimics are between joints of one coordinate"
    return None


def _mimic_cycle(path: list[str], name: str) -> LoadError:
    names = path[path.index(name) :]
    return LoadError(f"mimics form a cycle: {cycle(names)}; one of these joints must move on its own")


def _report(
    joint: Joint, mimic: Mimic, by_name: dict[str, Joint], couplings: dict[str, Coupling], notes: Notes
) -> None:
    subject, master = _subject(joint), by_name[mimic.joint]
    coupling = couplings[joint.name]
    if coupling.joint is None:
        _report_place(joint, coupling.offset, notes)
    if master.type == "fixed":
        message = f"it mimics the fixed joint {quoted(master.name)}; welded at {coupling.offset:g}"
        notes.add("mimic-of-fixed-joint", subject, message, joint.line)
    elif mimic.multiplier == 0.0:
        message = f"its mimic's multiplier is zero; welded at {coupling.offset:g}"
        notes.add("mimic-multiplier-zero", subject, message, joint.line)
    elif master.mimic is not None:
        if coupling.joint is None and couplings[master.name].joint is not None:
            message = f"the multipliers of its chain of mimics multiply to zero; welded at {coupling.offset:g}"
            notes.add("mimic-multiplier-zero", subject, message, joint.line)
        message = f"it mimics {quoted(master.name)}, which mimics {quoted(master.mimic.joint)}; the chain is followed"
        notes.add("mimic-chain", subject, message, joint.line)


def _report_place(joint: Joint, at: float, notes: Notes) -> None:
    """Report a joint that its mimic welds outside its limits."""
    lower, upper = joint.limits.lower, joint.limits.upper
    limited = joint.type != "continuous"
    if limited and ((lower is not None and at < lower) or (upper is not None and at > upper)):
        ends = [f"{end:g}" for end in (lower, upper) if end is not None]
        message = f"its mimic welds it at {at:g}, outside of its limits {' to '.join(ends)}"
        notes.add("mimic-outside-limits", _subject(joint), message, joint.line)


def report_limits_left(fields: Mapping[str, Array], joints: Sequence[Joint | None], notes: Notes) -> None:
    """Report joints whose range is smaller than their own limits because of joints that mimic them.

    Args:
        fields: fields of a `Model`, by name.
        joints: joint of each body; None for a floating base.
        notes: collects findings.
    """
    followers = np.flatnonzero(fields["mimics"] >= 0)
    if not followers.size:
        return
    own, remaining = Bounds.own(fields), Bounds.left(fields)
    for leader in np.unique(fields["mimics"][followers]).tolist():
        joint, q, v = joints[leader], int(fields["q_start"][leader]), int(fields["v_start"][leader])
        assert joint is not None  # no joint mimics a floating base
        mimicking = [joints[i] for i in followers[fields["mimics"][followers] == leader].tolist()]
        names = listed([quoted(each.name) for each in mimicking if each is not None])
        ends = [(float(each.lower[q]), float(each.upper[q])) for each in (own, remaining)]
        _report_left(joint, names, "positions from {:g} to {:g}", ends[0], ends[1], notes)
        fastest = [(0.0, float(each.velocity[v])) for each in (own, remaining)]
        _report_left(joint, names, "velocities from {:g} to {:g}", fastest[0], fastest[1], notes)


def _report_left(
    joint: Joint, by: str, what: str, own: tuple[float, float], left: tuple[float, float], notes: Notes
) -> None:
    """Report one kind of limits (lower, upper) of a joint if its followers narrow them.

    Args:
        joint: the joint.
        by: names of joints that mimic it.
        what: format of a range, for the message.
        own: the joint's own limits.
        left: the range that remains.
        notes: collects findings.
    """
    if own[0] > own[1] or all(map(partial(math.isclose, rel_tol=_ROUNDED, abs_tol=_ROUNDED), own, left)):
        return
    subject, allowed, theirs = _subject(joint), what.format(*own), f"limits of joints that mimic it ({by})"
    if left[0] > left[1]:
        message = f"its own limits allow {allowed}, and the {theirs} none of these; its own are used"
        notes.add("limits-contradict", subject, message, joint.line)
        return
    stuck = left[0] == left[1]
    message = f"its own limits allow {allowed}, with the {theirs} {what.format(*left)}"
    message += ": it cannot move within limits" if stuck else ""
    notes.gather("limit-narrowed", subject, message, joint.line, "warning" if stuck else None)
