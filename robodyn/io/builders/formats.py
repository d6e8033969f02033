"""Hints for error messages: the function that reads a robot which was passed to the wrong reader."""

from __future__ import annotations

import sys
from collections.abc import Container
from typing import Any

from robodyn.internals import strict_types

_ROOTS = {
    "robot": ("URDF", "robodyn.load_urdf"),
    "mujoco": ("MJCF", "robodyn.load_mjcf"),
    "sdf": ("SDF", "robodyn.load_sdf"),
    "gazebo": ("old SDF", "robodyn.load_sdf"),
}
"""Format and reader by the root element of XML."""
_STARTS = (
    (b"PK\3\4", "it may be what Model.save wrote: robodyn.Model.load reads that"),
    ((54321).to_bytes(4, sys.byteorder), "it is a compiled model of MuJoCo (.mjb): give its path to robodyn.load_mjcf"),
    (b"PXR-USDC", "it is USD, which robodyn does not read: write it as URDF or MJCF"),
    (b"#usda", "it is USD, which robodyn does not read: write it as URDF or MJCF"),
)
"""Hints by the first bytes of binary files."""
_OBJECTS = {
    ("mujoco", "MjModel"): "it is MuJoCo's: give it to robodyn.load_mjcf",
    ("mujoco", "MjSpec"): "it is MuJoCo's: give it to robodyn.load_mjcf",
    ("mujoco", "MjData"): "it is a state of MuJoCo's: give its model to robodyn.load_mjcf",
    ("pinocchio", "Model"): "it is Pinocchio's: give it to robodyn.from_pinocchio",
    ("pinocchio", "RobotWrapper"): "it is Pinocchio's: give its model to robodyn.from_pinocchio",
    ("robodyn", "Model"): "it is a robodyn.Model, which needs no reading",
    ("robodyn", "Dynamics"): "it is a robodyn.Dynamics: its model needs no reading",
    ("robodyn", "RobotDescription"): "it is a robodyn.RobotDescription: give it to robodyn.build_model",
}
"""Hints by library and class name of an object."""


def reads_root(tag: str, attributes: Container[str] = ()) -> str:
    """A hint that ends an error message: the reader of XML with this root element; "" if no reader reads it."""
    if tag == "robot" and "xmlns:xacro" in attributes:
        return "; it is xacro: give its path to robodyn.load_xacro"
    if tag == "mujocoinclude":
        return "; it is a part of MJCF: give the file that includes it to robodyn.load_mjcf"
    if tag == "gazebo" and "version" not in attributes:
        return ", and has no version, as old SDF has; the <gazebo> of URDF stands inside of <robot>"
    format, reader = _ROOTS.get(tag, ("", ""))
    return f"; it is {format}: give it to {reader}" if format else ""


def reads_bytes(data: bytes) -> str:
    """The same hint for binary data."""
    return next((f"; {text}" for start, text in _STARTS if data.startswith(start)), "")


def reads_object(source: Any) -> str:
    """The same hint for an object of robodyn or of another library."""
    try:
        kinds = [(strict_types.text(kind.__module__).partition(".")[0], kind.__name__) for kind in type(source).__mro__]
    except Exception:  # a metaclass may raise anything
        return ""
    return next((f"; {_OBJECTS[kind]}" for kind in kinds if kind in _OBJECTS), "")
