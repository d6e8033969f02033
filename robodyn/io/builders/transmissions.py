"""Armatures of joints from URDF transmissions: the inertia of a motor's rotor, reflected through its gear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from robodyn.core.description import ONE_COORDINATE_TYPES, Joint
from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element
from robodyn.io.builders.values import bad_number, number

ROTORS = frozenset({"drake:rotor_inertia", "drake:gear_ratio", "motorInertia"})
"""Elements with the inertia or the gear ratio of a motor."""
_ROUNDED = 1e-9
"""Relative difference up to which a joint's armature equals that of its transmissions. Numbers in files are rounded."""


def with_armatures(joints: list[Joint], transmissions: list[Element], notes: Notes) -> list[Joint]:
    """Adds armatures from transmissions to joints: the inertia of an actuator's rotor times the square of its gear
    ratio. Several transmissions of one joint add up.

    Both numbers are attributes in Drake, `<drake:rotor_inertia value>` and `<drake:gear_ratio value>`, and text in ROS,
    `<motorInertia>` and `<mechanicalReduction>`.

    Raises:
        LoadError: an invalid number, or a joint with a different armature of its own.
    """
    types = {joint.name: joint.type for joint in joints}
    armatures: dict[str, float] = {}
    for element in transmissions:
        subject = f"transmission {quoted(element.attributes.get('name', ''))}"
        actuators = _named([element], "actuator")
        rotors = _named(actuators, "drake:rotor_inertia")
        motors = _named([element, *element.children], "motorInertia")
        if not rotors and not motors:
            notes.gather("kept-tag", subject, "<transmission> has no part in dynamics; kept as text", element.line)
            continue
        inertias, what = (rotors, "drake:rotor_inertia") if rotors else (motors, "motorInertia")
        names = [child.attributes.get("name", "") for child in _named([element], "joint")]
        if not len(names) == len(actuators) == len(inertias) == 1 or types.get(names[0]) not in ONE_COORDINATE_TYPES:
            message = f"{what} is used only from one actuator on one joint of one coordinate; skipped"
            notes.gather("rotor-inertia-not-used", subject, message, element.line)
            continue
        if rotors and motors:
            message = "motorInertia is not used where drake:rotor_inertia is given; skipped"
            notes.gather("rotor-inertia-not-used", subject, message, motors[0].line)
        armature = _drake(actuators, subject) if rotors else _ros(element, actuators, subject, notes)
        if armature is not None:
            armatures[names[0]] = armatures.get(names[0], 0.0) + armature
            message = f"its armature is {what} times {'drake:gear_ratio' if rotors else 'mechanicalReduction'} squared"
            notes.gather("armature-from-rotor", f"joint {quoted(names[0])}", message, inertias[0].line)
    return [_with_armature(joint, armatures[joint.name]) if joint.name in armatures else joint for joint in joints]


def _named(elements: Sequence[Element], tag: str) -> list[Element]:
    """The children of several elements with a tag."""
    return [child for element in elements for child in element.children if child.tag == tag]


def _drake(actuators: list[Element], subject: str) -> float:
    parts = [*_named(actuators, "drake:rotor_inertia"), *_named(actuators, "drake:gear_ratio")[:1]]
    return _product([(part.attributes.get("value", ""), part) for part in parts], subject)


def _ros(transmission: Element, actuators: list[Element], subject: str, notes: Notes) -> float | None:
    """The armature from ROS elements. None, with a finding, if the elements are in unknown places.

    The reduction is a child of the actuator, or of the transmission as in files of the PR2.
    """
    inertias = _named(actuators, "motorInertia")
    reductions = _named([transmission, *actuators], "mechanicalReduction")
    elsewhere = _named(_named([transmission], "joint"), "mechanicalReduction")
    if not inertias or elsewhere or len(reductions) > 1:
        message = "motorInertia is used only from an actuator with at most one mechanicalReduction; skipped"
        notes.gather("rotor-inertia-not-used", subject, message, transmission.line)
        return None
    return _product([(part.text, part) for part in (*inertias, *reductions)], subject)


def _product(given: list[tuple[str, Element]], subject: str) -> float:
    """An inertia times the square of the reduction. The list has the inertia, then the reduction if there is one."""
    values = []
    for text, part in given:
        value = number(text)
        if value is None:
            raise bad_number(text, f"{subject} {part.tag}{at_line(part.line)}")
        values.append(value)
    return math.prod((*values, *values[1:]))


def _with_armature(joint: Joint, armature: float) -> Joint:
    subject = f"joint {quoted(joint.name)}{at_line(joint.line)}"
    if joint.armature and not math.isclose(joint.armature, armature, rel_tol=_ROUNDED):
        both = f"both an armature, {joint.armature:g}, and transmissions with another one, {armature:g}"
        raise LoadError(f"{subject} gives {both}; give one")
    if not math.isfinite(armature):
        raise LoadError(f"{subject} armature: a finite number is wanted, not {armature}")
    return replace(joint, armature=armature)
