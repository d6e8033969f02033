"""Commands that edit robots: read any format and write URDF, MJCF or .npz."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robodyn.core.description import Pose, rotation_from_rpy
from robodyn.core.findings import Report
from robodyn.core.model import Model
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import require_writable, whole_file
from robodyn.internals.messages import printable, quoted
from robodyn.io.builders.load_any import load
from robodyn.io.builders.values import number
from robodyn.io.editing.urdf_geometries import MESHES
from robodyn.tools.cli.state_files import NO_NUMBER
from robodyn.tools.cli.states import numbers

_TEXTS = (".urdf", ".xml", ".mjcf")
"""Suffixes of text files that can be written; the last two are MJCF."""


def read(file: str, given: Mapping[str, Any]) -> Model:
    """Load the robot of a file. Options that are not given have the format's defaults."""
    options = {name: given[name] for name in ("base", "mimic", "equality") if given.get(name) is not None}
    options |= {"model_dirs": given["model_dir"]} if given["model_dir"] else {}
    options |= {"strict": False} if given["lenient"] else {}
    if file == "-" and sys.stdin is None:
        raise ArgumentError("FILE is - but there is no standard input")
    if not file.strip():
        raise ArgumentError(f"FILE is {quoted(file)}; wanted the path of a robot file, or - for standard input")
    # A Path, because a str may also be the text of a robot.
    return load(sys.stdin.buffer if file == "-" else Path(file), **options)


def of_sdf(file: str, given: Mapping[str, Any]) -> dict[str, list[str] | None]:
    """The option `model_dir` for one of two files: None unless it is SDF, since other formats lack the option."""
    return {"model_dir": given["model_dir"] if Path(file).suffix.lower() in (".sdf", ".world") else None}


def locked(model: Model, joints: Sequence[str]) -> dict[str | int, list[float] | float | None]:
    """Parse options `NAME` and `NAME=NUMBERS` to the argument of `Model.lock`."""
    joints_locked: dict[str | int, list[float] | float | None] = {}
    for text in joints:
        name, equals, after = text.rpartition("=")
        values: list[float] | float | None = None
        if text in model.joint_names or not equals:
            name = text
        else:
            words = [number(word) for word in after.split(",")]
            numbers_read = [value for value in words if value is not None]
            if len(numbers_read) < len(words):
                raise ArgumentError(f"--joint: {quoted(text)} does not end in numbers; {NO_NUMBER}")
            values = numbers_read[0] if len(numbers_read) == 1 else numbers_read
        if name in joints_locked:
            raise ArgumentError(f"--joint: {quoted(name)} is given twice; wanted each joint once")
        joints_locked[name] = values
    return joints_locked


def pose(xyz: str, rpy: str) -> Pose:
    """The pose of the options --xyz and --rpy."""
    x, y, z = numbers("--xyz", xyz, ("x", "y", "z"))
    return Pose((x, y, z), rotation_from_rpy(*numbers("--rpy", rpy, ("r", "p", "y"))))


def write(model: Model, out: str, given: Mapping[str, Any]) -> None:
    """Write a robot in the format of the file's suffix, and print what the format cannot express."""
    from robodyn.core import tables

    named, package_dirs = one_of("--meshes", given["meshes"], MESHES), given["package_dir"] or []
    if out == "-":
        print(model.to_urdf(meshes=named, package_dirs=package_dirs), end="")
        return
    path = require_writable(out, "OUT")
    kind = path.suffix.lower()
    report = Report()
    if kind == ".npz":
        model.save(path)
    elif kind in _TEXTS:
        if kind == ".urdf":
            text = model.to_urdf(meshes=named, folder=path.absolute().parent, package_dirs=package_dirs)
        else:
            text = model.to_mjcf(package_dirs=package_dirs)
        report = text.report
        with whole_file(path, "OUT") as file:
            file.write(text.encode())
    else:
        raise ArgumentError(f"OUT: got {quoted(out)}; wanted a name that ends in {', '.join(_TEXTS)} or .npz, or -")
    size = f"{len(model.link_names)} links, {model.n_bodies} joints that move, nq {model.nq}, nv {model.nv}"
    print(f"wrote {printable(str(path))}: {printable(model.name)}, {size}")
    if report:
        tables.console().print(tables.report_table(report))
