"""Saves and loads models as files of NumPy's .npz format. Arrays are stored directly, all other fields as JSON.

Sizes in a file are checked before memory is allocated (`robodyn.internals.archives`). The checks of `Model` follow.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.serialization import constraint_of, plain
from robodyn.core.contacts.serialization import contacts_of
from robodyn.core.contacts.serialization import plain as plain_contacts
from robodyn.core.description import Extension, FileTree, Finding, Geometry, Pose, Severity
from robodyn.core.findings import SEVERITIES
from robodyn.core.model_fields import Configurations, Numbered, require_geometry
from robodyn.internals.archives import Archive, damaged
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.files import LONGEST_PATH, file_named, open_regular, whole_file
from robodyn.internals.messages import brief, quoted

if TYPE_CHECKING:
    from robodyn.core.model import Model

_FORMAT = "robodyn model"
_VERSION = 1
_SEVERITIES: dict[str, Severity] = {each: each for each in SEVERITIES.values()}
_TEXTS = "texts"
"""Name of the byte array with the JSON text of all fields that are no arrays."""


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model; see `Model.save`."""
    arrays: dict[str, Array] = {}
    texts: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    for each in dataclasses.fields(model):
        value = getattr(model, each.name)
        if each.name == "source":  # paths on this machine are private
            continue
        if isinstance(value, Configurations):
            if value:  # earlier versions of robodyn read files without configurations
                arrays[each.name], texts[each.name] = value.rows, list(value)
        elif isinstance(value, np.ndarray):
            arrays[each.name] = value.astype(value.dtype.newbyteorder("<"))
        elif isinstance(value, Numbered):
            texts[each.name] = {"prefix": value.prefix, "n": value.n}
        elif each.name == "report":
            texts[each.name] = [dataclasses.asdict(finding) for finding in value]
        elif each.name == "file_tree":
            texts[each.name] = None if value is None else dataclasses.asdict(value)
        elif each.name == "constraints":
            texts[each.name] = [plain(constraint) for constraint in value]
        elif each.name == "contacts":
            texts |= {} if value is None else {each.name: plain_contacts(value)}
        elif each.name == "collision_pairs":
            texts |= {} if value is None else {each.name: value}
        elif each.name in ("geometries", "extensions"):
            bare = [dataclasses.replace(part, folder="") if hasattr(part, "folder") else part for part in value]
            texts |= {each.name: list(map(dataclasses.asdict, bare))} if value else {}
        else:
            texts[each.name] = value
    data = json.dumps(texts).encode("ascii")
    with whole_file(path) as file:
        np.savez(file, **{_TEXTS: np.frombuffer(data, np.uint8)}, **arrays)  # type: ignore[arg-type]


def load(kind: type[Model], path: str | os.PathLike[str]) -> Model:
    """Loads a model from a file; see `Model.load`."""
    checked_path = file_named("path", path)
    try:
        with open_regular(checked_path) as file:
            return _read(kind, Archive(file))
    except ArgumentError as error:
        raise LoadError(f"the file {quoted(str(checked_path), most=LONGEST_PATH)}: {error}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise LoadError(f"cannot read the file {quoted(str(checked_path), most=LONGEST_PATH)}: {reason}") from None


@damaged()
def _read(kind: type[Model], archive: Archive) -> Model:
    if _TEXTS not in archive.keys:
        raise ArgumentError("it holds no model of robodyn's; wanted a file that Model.save wrote")
    texts = json.loads(archive.read(_TEXTS, "u").tobytes().decode("ascii"))
    if type(texts) is not dict or texts.pop("format", None) != _FORMAT:
        raise ArgumentError("it holds no model of robodyn's; wanted a file that Model.save wrote")
    version = texts.pop("version", None)
    names = {each.name for each in dataclasses.fields(kind)}
    unknown = sorted((texts.keys() | set(archive.keys)) - (names - {"source"}) - {_TEXTS})
    if version != _VERSION or unknown:
        what = f"it has fields {', '.join(map(quoted, unknown[:5]))}" if unknown else f"it is of version {version}"
        raise ArgumentError(f"{what}, which this version of robodyn does not know; wanted version {_VERSION}")
    fields: dict[str, Any] = {name: archive.read(name, "fiu") for name in archive.keys if name != _TEXTS}
    for name, value in texts.items():
        if name == "report":
            fields[name] = tuple(_finding(each) for each in value)
        elif name == "file_tree":
            fields[name] = None if value is None else _file_tree(value)
        elif name == "constraints":
            fields[name] = tuple(map(constraint_of, value))
        elif name == "geometries":
            fields[name] = tuple(map(_geometry, value))
        elif name == "contacts":
            fields[name] = contacts_of(value, _shape)
        elif name == "collision_pairs":
            fields[name] = tuple(map(tuple, value))
        elif name == "extensions":
            fields[name] = tuple(Extension(**each) for each in value)
        elif name == "configurations":
            rows = dict.fromkeys(map(_text, value))
            fields[name] = dict(zip(rows, fields[name], strict=True))
        elif type(value) is dict:
            fields[name] = Numbered(_text(value["prefix"]), _count(value["n"]))
        else:
            fields[name] = tuple(value) if type(value) is list else value
    needed = [each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]
    missing = [name for name in needed if name not in fields]
    if missing:
        raise ArgumentError(f"it lacks {', '.join(missing)}")
    return kind(**fields)


def _finding(given: dict[str, Any]) -> Finding:
    line, elements = given["line"], given["elements"]
    if given["code"] not in SEVERITIES or not (line is None or type(line) is int):
        raise ArgumentError(f"it holds a finding {quoted(str(given['code']))} that this version does not know")
    code = _text(given["code"])
    severity = _SEVERITIES.get(_text(given["severity"]))
    if severity is None:
        raise ArgumentError(f"it holds a finding of severity {quoted(given['severity'])}, which there is not")
    element, message = _text(given["element"]), _text(given["message"])
    return Finding(severity, code, element, message, line, tuple(map(_text, elements)))


def _shape(given: dict[str, Any]) -> Geometry:
    """A shape of a contact, checked; that of a height field has all heights in its size."""
    found = _geometry(given)
    size = found.size
    if found.kind == "height field":
        n = math.prod(int(x) for x in size[2:4]) if len(size) > 4 and all(math.isfinite(x) for x in size) else -1
        if len(size) != 4 + n or min(size[2:4]) < 2.0 or min(size[:2]) <= 0.0:
            raise ArgumentError(f"it holds a height field of size {brief(size)}")
        found = dataclasses.replace(found, kind="box", size=(1.0, 1.0, 1.0))
    require_geometry("contacts", found)
    return dataclasses.replace(found, kind=given["kind"], size=size)


def _geometry(given: dict[str, Any]) -> Geometry:
    """Builds a geometry. `Model` checks its values."""
    rows = {name: tuple(value) for name, value in given.items() if type(value) is list and name != "attributes"}
    pose = Pose(tuple(given["pose"]["xyz"]), tuple(given["pose"]["rotation"]))
    return Geometry(**{**given, **rows, "pose": pose, "attributes": tuple(map(tuple, given["attributes"]))})


def _file_tree(given: dict[str, Any]) -> FileTree:
    """Builds a file tree. `Model` checks its values."""
    columns = (tuple(given[name]) for name in ("names", "types", "carriers", "joints"))
    return FileTree(_text(given["format"]), *columns)


def _text(given: Any) -> str:
    if type(given) is not str:
        raise ArgumentError("it holds something else where a text is wanted")
    return given


def _count(given: Any) -> int:
    if type(given) is not int or not 0 <= given < 1 << 48:
        raise ArgumentError("it holds something else where a number of names is wanted")
    return given
