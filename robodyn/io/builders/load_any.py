"""One door for all robots: what a source is, and who reads it."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.mjcf_files import is_binary
from robodyn.io.builders.sources import path_of, read_source, readable

_TAG = re.compile(rb"<([A-Za-z_][\w.:-]*+)[\s/>]")
_SKIPPED = ((b"<!--", b"-->"), (b"<?", b"?>"))


def load(source: Any, /, **options: Any) -> Model:
    """Load a robot, whatever it is written in.

    Args:
        source: a path, XML text, bytes or an open file of URDF, MJCF or SDF, told apart by their root elements, or a
            .mjb; a path of what `Model.save` wrote (.npz); a `mujoco.MjModel` or `MjSpec`; a `pinocchio.Model`; a robot
            object of urdfpy, urchin or yourdfpy; or a `robodyn.Model`, which is returned as it is. Never xacro, which
            can read the machine: see `load_xacro`.
        options: those of the function that reads it: `load_urdf`, `load_mjcf`, `load_sdf` or `from_pinocchio`.

    Raises:
        LoadError: not a usable robot, or xacro.
        ArgumentError: an option that the format has not, or a source of no such kind.
        UnavailableError: the format needs a library that is not installed.
    """
    if strict_types.is_a(source, Model):
        _require_options("a Model", (), options)
        model: Model = source
        return model
    home = _home(source)
    if home == "mujoco":
        return _by("load_mjcf", source, options)
    if home == "pinocchio":
        return _by("from_pinocchio", source, options)
    path = path_of(source)
    if path is not None:
        suffixes = [each.lower() for each in Path(path).suffixes[-2:]]
        if ".xacro" in suffixes:
            raise LoadError(
                f"the file {quoted(path)} is xacro, which can read the machine and is never run by load; "
                "load_xacro does (robodyn COMMAND --xacro), or expand it first (xacro FILE > robot.urdf)"
            )
        if suffixes[-1:] == [".mjb"]:
            return _by("load_mjcf", source, options)
        if suffixes[-1:] == [".npz"]:
            _require_options("Model.load", (), options)
            return Model.load(path)
    elif not strict_types.is_a(source, str, bytes, bytearray, memoryview) and not readable(source):
        return _by("load_urdf", source, options)  # a robot object
    data = read_source(source)
    reader = {"mujoco": "load_mjcf", "sdf": "load_sdf", "gazebo": "load_sdf"}.get(_root(data), "load_urdf")
    # A file is read again by its reader, which may want what is beside it; what was open is at its end.
    again = data if path is None and not strict_types.is_a(source, str) else source
    return _by("load_mjcf" if is_binary(data) else reader, again, options)


_READERS = {
    "load_urdf": "robodyn.io.builders.load",
    "load_mjcf": "robodyn.io.builders.mjcf",
    "load_sdf": "robodyn.io.builders.sdf",
    "from_pinocchio": "robodyn.io.builders.pinocchio",
}
"""Where the functions are, imported when they are asked."""


def _by(reader: str, source: Any, options: dict[str, Any]) -> Model:
    """What a function reads."""
    function = getattr(import_module(_READERS[reader]), reader)
    _require_options(reader, tuple(signature(function).parameters)[1:], options)
    model: Model = function(source, **options)
    return model


def _require_options(reader: str, allowed: tuple[str, ...], options: dict[str, Any]) -> None:
    for name in options:
        if name not in allowed:
            these = ", ".join(allowed) or "no options"
            raise ArgumentError(f"{name}: no option of {reader}; wanted {these}")


def _home(source: Any) -> str:
    """The library that an object is of, for those whose objects are robots."""
    try:
        module = strict_types.text_or_none(type(source).__module__) or ""
    except Exception:  # a metaclass may raise anything
        return ""
    home = module.split(".")[0]
    return home if home in ("mujoco", "pinocchio") else ""


def _root(data: bytes) -> str:
    """The root element of an XML document, "" where none is seen: who reads it says what is wrong."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="ignore").encode("utf-8", errors="ignore")
    at = 0
    while (at := data.find(b"<", at)) >= 0:
        end = next((end for begin, end in _SKIPPED if data.startswith(begin, at)), None)
        if end is None:
            if found := _TAG.match(data, at):
                return found[1].decode("utf-8", errors="replace")
            at += 1
        elif (at := data.find(end, at + 2)) < 0:
            return ""
    return ""
