"""Loads robots of any format: recognises the format of a source and calls the reader for it."""

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
    """Load a robot of any format.

    Args:
        source: a path, XML text, bytes or an open file of URDF, MJCF or SDF, which are recognised by their root
            elements; a .mjb file; a path of a file that `Model.save` wrote (.npz); a `mujoco.MjModel` or `MjSpec`; a
            `pinocchio.Model`; a robot object of urdfpy, urchin or yourdfpy; or a `robodyn.Model`, which is returned
            unchanged. Xacro is refused, because it can read other files of the machine: see `load_xacro`.
        options: keyword arguments of the reader: `load_urdf`, `load_mjcf`, `load_sdf` or `from_pinocchio`.

    Raises:
        LoadError: not a usable robot, or xacro.
        ArgumentError: an option that the reader lacks, or an unsupported kind of source.
        UnavailableError: the format needs a library that is not installed.
    """
    if strict_types.is_a(source, Model):
        _require_options("a Model", (), options)
        model: Model = source
        return model
    home = _library_of(source)
    if home == "mujoco":
        return _read_by("load_mjcf", source, options)
    if home == "pinocchio":
        return _read_by("from_pinocchio", source, options)
    path = path_of(source)
    if path is not None:
        suffixes = [each.lower() for each in Path(path).suffixes[-2:]]
        if ".xacro" in suffixes:
            raise LoadError(
                f"the file {quoted(path)} is xacro, which can read the machine and is never run by load; "
                "load_xacro does (robodyn COMMAND --xacro), or expand it first (xacro FILE > robot.urdf)"
            )
        if suffixes[-1:] == [".mjb"]:
            return _read_by("load_mjcf", source, options)
        if suffixes[-1:] == [".npz"]:
            _require_options("Model.load", (), options)
            return Model.load(path)
    elif not strict_types.is_a(source, str, bytes, bytearray, memoryview) and not readable(source):
        return _read_by("load_urdf", source, options)  # a robot object
    data = read_source(source)
    reader = {"mujoco": "load_mjcf", "sdf": "load_sdf", "gazebo": "load_sdf"}.get(_root(data), "load_urdf")
    # The reader gets a path as it is, because it may need files in the same folder. An open file has been read to its
    # end, so the reader gets its bytes.
    again = data if path is None and not strict_types.is_a(source, str) else source
    return _read_by("load_mjcf" if is_binary(data) else reader, again, options)


_READERS = {
    "load_urdf": "robodyn.io.builders.load",
    "load_mjcf": "robodyn.io.builders.mjcf",
    "load_sdf": "robodyn.io.builders.sdf",
    "from_pinocchio": "robodyn.io.builders.pinocchio",
}
"""Module of each reader, imported at its first use."""


def _read_by(reader: str, source: Any, options: dict[str, Any]) -> Model:
    """Calls a reader, named by its function, after a check of its options."""
    function = getattr(import_module(_READERS[reader]), reader)
    _require_options(reader, tuple(signature(function).parameters)[1:], options)
    model: Model = function(source, **options)
    return model


def _require_options(reader: str, allowed: tuple[str, ...], options: dict[str, Any]) -> None:
    for name in options:
        if name not in allowed:
            these = ", ".join(allowed) or "no options"
            raise ArgumentError(f"{name}: no option of {reader}; wanted {these}")


def _library_of(source: Any) -> str:
    """The library of an object: mujoco or pinocchio. Empty for all other objects."""
    try:
        module = strict_types.text_or_none(type(source).__module__) or ""
    except Exception:  # a metaclass may raise anything
        return ""
    home = module.split(".")[0]
    return home if home in ("mujoco", "pinocchio") else ""


def _root(data: bytes) -> str:
    """The tag of an XML document's root element; "" if there is none, which the reader reports as an error."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="ignore").encode("utf-8", errors="ignore")
    at = 0
    while (at := data.find(b"<", at)) >= 0:
        end = next((end for begin, end in _SKIPPED if data.startswith(begin, at)), None)
        if end is None:
            if match := _TAG.match(data, at):
                return match[1].decode("utf-8", errors="replace")
            at += 1
        elif (at := data.find(end, at + 2)) < 0:
            return ""
    return ""
