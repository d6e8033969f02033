"""Converts actuators, sensors and excluded contacts of a mjModel to MJCF text.

They are not part of a model, and are kept as text so that they can be written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.core.description import Extension
from robodyn.core.findings import Notes
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element, written
from robodyn.io.builders.mjmodel import MjArrays

_DYNAMICS, _GAINS, _BIASES = ("none", "integrator", "filter", "filterexact"), ("fixed", "affine"), ("none", "affine")
"""Dynamics, gain and bias types of actuators that `<general>` can express by its attributes."""
_KINDS = ("Dyn", "Gain", "Bias")
_JOINT, _JOINT_IN_PARENT, _SITE, _BODY, _FRAME = "joint", "jointinparent", "site", "body", "frame"
_SENSORS = {
    **dict.fromkeys(("jointpos", "jointvel", "ballquat", "ballangvel", "jointlimitpos", "jointlimitvel"), _JOINT),
    **dict.fromkeys(("jointlimitfrc", "jointactfrc"), _JOINT),
    **dict.fromkeys(("touch", "accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer"), _SITE),
    **dict.fromkeys(("subtreecom", "subtreelinvel", "subtreeangmom"), _BODY),
    **dict.fromkeys(("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis"), _FRAME),
    **dict.fromkeys(("framelinvel", "frameangvel", "framelinacc", "frameangacc"), _FRAME),
    **dict.fromkeys(("clock", "e_potential", "e_kinetic"), ""),
}
"""The kind of object that each sensor is attached to, "" for none. A frame is that of a body or a site."""
_TARGETS = (_JOINT, _JOINT_IN_PARENT, _SITE, _BODY)
_TAGS = {"jointactfrc": "jointactuatorfrc"}


def kept_elements(
    arrays: MjArrays,
    bodies: Sequence[str],
    joints: Sequence[str],
    sites: Sequence[str],
    notes: Notes,
    contacts: bool = False,
) -> tuple[Extension, ...]:
    """The elements as text. Elements that cannot be kept are reported. `bodies`, `joints`, `sites`: all names in
    MuJoCo's order. `contacts`: whether contacts are read, explicit pairs among them."""
    elements: list[tuple[str, Element]] = []
    reader = _Reader(arrays, bodies, joints, sites)
    for parent, size, read in (
        ("actuator", "nactuator", reader.actuator),
        ("sensor", "nsensor", reader.sensor),
        ("contact", "nexclude", reader.exclude),
    ):
        for k in range(arrays.size(size)):
            element = read(k)
            name = reader.name(parent if parent != "contact" else "exclude", k)
            subject = f"{parent} {quoted(name) if name else k}"
            if element is None:
                notes.gather("ignored-tag", subject, f"an element of <{parent}> that is not kept; skipped")
                continue
            if name:
                element.attributes = {"name": name, **element.attributes}
            elements.append((parent, element))
    if (n := arrays.size("npair")) and not contacts:
        notes.add("ignored-tag", "contact", f"{n} of <pair>, which are not kept; skipped")
    return tuple(Extension("mjcf", parent, "", written(element)) for parent, element in elements)


class _Reader:
    """Reads elements by their indices."""

    def __init__(self, arrays: MjArrays, bodies: Sequence[str], joints: Sequence[str], sites: Sequence[str]) -> None:
        self._arrays, self._columns = arrays, dict[str, list[Any]]()
        self._names = {_JOINT: joints, _JOINT_IN_PARENT: joints, _SITE: sites, _BODY: bodies, "xbody": bodies}
        prefixes = {"Trn": "TRN", "Dyn": "DYN", "Gain": "GAIN", "Bias": "BIAS", "Sensor": "SENS", "Obj": "OBJ"}
        self._words = {kind: self._words_of(f"mjt{kind}", f"mj{prefix}_") for kind, prefix in prefixes.items()}

    def _words_of(self, enumeration: str, prefix: str) -> dict[int, str]:
        """The names of the values of one of MuJoCo's enumerations."""
        kinds = getattr(self._arrays.mujoco, enumeration)
        names = [name for name in dir(kinds) if name.startswith(prefix)]
        return {int(getattr(kinds, name)): name.removeprefix(prefix).lower() for name in names}

    def _column(self, name: str) -> list[Any]:
        """An array as a list of numbers, or of rows of numbers."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._arrays[name].tolist()
        return column

    def _has_more(self, names: Sequence[str], k: int) -> bool:
        """True if one of these arrays has nonzero data about element k. Not all versions of MuJoCo have the arrays."""
        rows = (getattr(self._arrays.m, name, None) for name in names)
        return any(row is not None and len(row) > k and np.any(row[k]) for row in rows)

    def name(self, kind: str, k: int) -> str:
        """The name of an object in the file, "" if it has none."""
        object_type = getattr(self._arrays.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        text = self._arrays.mujoco.mj_id2name(self._arrays.m, object_type, k)
        return "" if text is None else str(text)

    def actuator(self, k: int) -> Element | None:
        """An actuator with one control and one output, as `<general>`. None for other actuators."""
        column = self._column
        target = self._words["Trn"].get(column("actuator_trntype")[k], "")
        types = [self._words[kind].get(column(f"actuator_{kind.lower()}type")[k], "") for kind in _KINDS]
        first = dict.fromkeys(("ctrl", "out"), k)
        for name in first:
            if self._arrays.get(f"actuator_{name}num") is not None:
                if column(f"actuator_{name}num")[k] != 1:
                    return None
                first[name] = column(f"actuator_{name}adr")[k]
        known = types[0] in _DYNAMICS and types[1] in _GAINS and types[2] in _BIASES and target in _TARGETS
        number, second = column("actuator_trnid")[k]
        if not known or second >= 0 or self._has_more(("actuator_delay", "actuator_history"), k):
            return None
        target_name = self._named(target, number)
        if target_name is None:
            return None
        element = Element(
            "general", {target: target_name, "gear": _numbers(column("actuator_gear")[first["out"]])}, None
        )
        for kind, word in zip(_KINDS, types, strict=True):
            key = kind.lower()
            element.attributes |= {f"{key}type": word, f"{key}prm": _numbers(column(f"actuator_{key}prm")[k])}
        for key, row in (("ctrl", first["ctrl"]), ("force", k), ("act", k)):
            limited = bool(column(f"actuator_{key}limited")[row])
            element.attributes[f"{key}limited"] = "true" if limited else "false"
            if limited:
                element.attributes[f"{key}range"] = _numbers(column(f"actuator_{key}range")[row])
        if column("actuator_actearly")[k]:
            element.attributes["actearly"] = "true"
        self._add_user(element, "actuator_user", k)
        return element

    def sensor(self, k: int) -> Element | None:
        """A sensor of a joint, a site, a body or a frame, or one without an object. None for other sensors."""
        column, objects = self._column, self._words["Obj"]
        kind = self._words["Sensor"].get(column("sensor_type")[k], "")
        attached_to, object_type = _SENSORS.get(kind), objects.get(column("sensor_objtype")[k], "")
        object_name = self._named(object_type, column("sensor_objid")[k]) if attached_to else ""
        if (
            attached_to is None
            or object_name is None
            or self._has_more(("sensor_delay", "sensor_history", "sensor_interval"), k)
        ):
            return None
        attributes = (
            {"objtype": object_type, "objname": object_name}
            if attached_to == _FRAME
            else {attached_to: object_name}
            if attached_to
            else {}
        )
        element = Element(_TAGS.get(kind, kind), attributes, None)
        reference = column("sensor_refid")[k]
        if reference >= 0:
            reference_type = objects.get(column("sensor_reftype")[k], "")
            other = self._named(reference_type, reference)
            if other is None:
                return None
            element.attributes |= {"reftype": reference_type, "refname": other}
        for key in ("cutoff", "noise"):
            if column(f"sensor_{key}")[k]:
                element.attributes[key] = repr(column(f"sensor_{key}")[k])
        self._add_user(element, "sensor_user", k)
        return element

    def exclude(self, k: int) -> Element | None:
        """A pair of bodies that do not collide. Their indices are the upper and lower 16 bits of the signature."""
        signature = self._column("exclude_signature")[k]
        pair = [self._named(_BODY, number) for number in (signature >> 16, signature & 0xFFFF)]
        if pair[0] is None or pair[1] is None:
            return None
        return Element("exclude", {"body1": pair[0], "body2": pair[1]}, None)

    def _add_user(self, element: Element, name: str, k: int) -> None:
        """Add the user data of an element, which MuJoCo ignores."""
        if self._has_more((name,), k):
            element.attributes["user"] = _numbers(getattr(self._arrays.m, name)[k])

    def _named(self, kind: str, number: int) -> str | None:
        names = self._names.get(kind, ())
        return (names[number] or None) if 0 <= number < len(names) else None


def _numbers(row: Sequence[float]) -> str:
    """Numbers as the text of an attribute. At least two are kept; zeros at the end are dropped."""
    values = [float(x) for x in row]
    while len(values) > 2 and not values[-1]:
        values.pop()
    return " ".join(map(repr, values))
