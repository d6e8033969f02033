"""Actuators, sensors and excluded contacts of a mjModel as elements of MJCF, which have no part in a model and are kept
as text, so that they can be written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.elements import Element, written
from robodyn.builders.findings import Notes
from robodyn.builders.mjmodel import MjArrays
from robodyn.description import Extension
from robodyn.messages import quoted

_DYNAMICS, _GAINS, _BIASES = ("none", "integrator", "filter", "filterexact"), ("fixed", "affine"), ("none", "affine")
"""Types of actuators that `<general>` has without further elements."""
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
"""Sensors by what they are on, "" for none; a frame is that of a body or a site."""
_TAGS = {"jointactfrc": "jointactuatorfrc"}


def kept_elements(
    arrays: MjArrays, bodies: Sequence[str], joints: Sequence[str], sites: Sequence[str], notes: Notes
) -> tuple[Extension, ...]:
    """The elements, and findings on those that cannot be kept. The names are those of MuJoCo's numbers."""
    found: list[tuple[str, Element]] = []
    reader = _Reader(arrays, bodies, joints, sites)
    for parent, size, read in (
        ("actuator", "nactuator", reader.actuator),
        ("sensor", "nsensor", reader.sensor),
        ("contact", "nexclude", reader.exclude),
    ):
        for k in range(arrays.size(size)):
            element = read(k)
            name = reader.name(parent if parent != "contact" else "exclude", k)
            at = f"{parent} {quoted(name) if name else k}"
            if element is None:
                notes.gather("ignored-tag", at, f"an element of <{parent}> that is not kept; skipped")
                continue
            if name:
                element.attributes = {"name": name, **element.attributes}
            found.append((parent, element))
    if n := arrays.size("npair"):
        notes.add("ignored-tag", "contact", f"{n} of <pair>, which are not kept; skipped")
    return tuple(Extension("mjcf", parent, "", written(element)) for parent, element in found)


class _Reader:
    """Reads elements by their numbers."""

    def __init__(self, arrays: MjArrays, bodies: Sequence[str], joints: Sequence[str], sites: Sequence[str]) -> None:
        self._a = arrays
        self._names = {_JOINT: joints, _JOINT_IN_PARENT: joints, _SITE: sites, _BODY: bodies, "xbody": bodies}

    def name(self, kind: str, k: int) -> str:
        """The name in the file, "" for none."""
        object_type = getattr(self._a.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        found = self._a.mujoco.mj_id2name(self._a.m, object_type, k)
        return "" if found is None else str(found)

    def _type(self, enumeration: str, prefix: str, number: int) -> str:
        """The word for a number of one of MuJoCo's enumerations, "" for none."""
        kinds = getattr(self._a.mujoco, enumeration)
        names = [name for name in dir(kinds) if name.startswith(prefix)]
        return next((name.removeprefix(prefix).lower() for name in names if int(getattr(kinds, name)) == number), "")

    def actuator(self, k: int) -> Element | None:
        """An actuator of one control and one output, as `<general>`."""
        a = self._a
        target = self._type("mjtTrn", "mjTRN_", int(a["actuator_trntype"][k]))
        numbers = {kind: int(a[f"actuator_{kind.lower()}type"][k]) for kind in _KINDS}
        types = [self._type(f"mjt{kind}", f"mj{kind.upper()}_", number) for kind, number in numbers.items()]
        one = all(a.get(f"actuator_{n}num") is None or a[f"actuator_{n}num"][k] == 1 for n in ("ctrl", "out"))
        known = types[0] in _DYNAMICS and types[1] in _GAINS and types[2] in _BIASES
        second = int(a["actuator_trnid"][k, 1])
        if not (one and known and target in (_JOINT, _JOINT_IN_PARENT, _SITE, _BODY)) or second >= 0:
            return None
        at = self._named(target, int(a["actuator_trnid"][k, 0]))
        if at is None:
            return None
        control = k if a.get("actuator_ctrladr") is None else int(a["actuator_ctrladr"][k])
        output = k if a.get("actuator_outadr") is None else int(a["actuator_outadr"][k])
        element = Element("general", {target: at, "gear": _numbers(a["actuator_gear"][output])}, None)
        for kind, word in zip(_KINDS, types, strict=True):
            key = kind.lower()
            element.attributes |= {f"{key}type": word, f"{key}prm": _numbers(a[f"actuator_{key}prm"][k])}
        for key, row in (("ctrl", control), ("force", k), ("act", k)):
            limited = bool(a[f"actuator_{key}limited"][row])
            element.attributes[f"{key}limited"] = "true" if limited else "false"
            if limited:
                element.attributes[f"{key}range"] = _numbers(a[f"actuator_{key}range"][row])
        if a["actuator_actearly"][k]:
            element.attributes["actearly"] = "true"
        return element

    def sensor(self, k: int) -> Element | None:
        """A sensor of joints, sites and frames."""
        a = self._a
        kind = self._type("mjtSensor", "mjSENS_", int(a["sensor_type"][k]))
        on, number = _SENSORS.get(kind), int(a["sensor_objid"][k])
        object_type = self._type("mjtObj", "mjOBJ_", int(a["sensor_objtype"][k]))
        at = self._named(object_type, number) if on else ""
        if on is None or at is None:
            return None
        place = {"objtype": object_type, "objname": at} if on == _FRAME else {on: at} if on else {}
        element = Element(_TAGS.get(kind, kind), place, None)
        reference = int(a["sensor_refid"][k])
        if reference >= 0:
            reference_type = self._type("mjtObj", "mjOBJ_", int(a["sensor_reftype"][k]))
            other = self._named(reference_type, reference)
            if other is None:
                return None
            element.attributes |= {"reftype": reference_type, "refname": other}
        for key in ("cutoff", "noise"):
            if a[f"sensor_{key}"][k]:
                element.attributes[key] = _numbers([a[f"sensor_{key}"][k]])
        return element

    def exclude(self, k: int) -> Element | None:
        """Two bodies that do not collide; their numbers are the two halves of a word."""
        signature = int(self._a["exclude_signature"][k])
        pair = [self._named(_BODY, number) for number in (signature >> 16, signature & 0xFFFF)]
        if pair[0] is None or pair[1] is None:
            return None
        return Element("exclude", {"body1": pair[0], "body2": pair[1]}, None)

    def _named(self, kind: str, number: int) -> str | None:
        names = self._names.get(kind, ())
        return (names[number] or None) if 0 <= number < len(names) else None


def _numbers(row: Array | Sequence[Any]) -> str:
    """Numbers as an attribute, without the zeros at their end."""
    values = np.asarray(row, dtype=np.float64)
    last = int(np.flatnonzero(values)[-1]) + 1 if values.any() else 1
    return " ".join(repr(float(x)) for x in values[: max(last, min(values.size, 2))])
