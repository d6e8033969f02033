"""Reads a MJCF file with all files that it refers to, so that MuJoCo needs to open no file.

MuJoCo's parser ignores document types and entities, but it opens included files, submodels, meshes and textures. It
would block on a pipe, and read a device forever. This module reads these files instead, from the folders that MuJoCo
searches. It reads regular files only, up to a size limit. It expands includes, and replaces all other file names by
keys of a dictionary with the files' bytes.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.files import LONGEST_PATH, read_regular
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element, parse_xml
from robodyn.io.builders.formats import reads_root
from robodyn.io.builders.mjcf_missing import Missing, leave_out, may_be_missing
from robodyn.io.builders.sources import MAX_BYTES, decoded, path_of, read_path, read_source

MOST_FILES = 1000
"""Largest number of XML files of a model."""
MOST_ASSET_BYTES = 1 << 30
"""Largest total size of meshes, textures and height fields in bytes."""
MAX_DEPTH = 499
"""Deepest nesting of elements, as in MuJoCo's parser."""
_MOST_ABOVE = 50
"""Deepest nesting of included files and submodels."""
_STRIPPED = ("mesh", "hfield", "skin", "texture")
"""Elements to whose files `strippath` applies. Without a name of their own they are named after their files."""
_FOLDERS = ("assetdir", "meshdir", "texturedir")
_BINARY = (54321).to_bytes(4, sys.byteorder)


def contents(source: Any) -> tuple[bytes, Path | None]:
    """The bytes of a source, and the path of its file; None if it is no file.

    Raises:
        LoadError: the source is empty or too large.
        ArgumentError: an unsupported kind of source.
    """
    path = path_of(source)
    if path is None:
        return read_source(source), None
    return read_path(path), Path(path).absolute()


def is_binary(data: bytes) -> bool:
    """True if bytes are a .mjb, a compiled model of MuJoCo."""
    return data.startswith(_BINARY)


def self_contained(data: bytes, path: Path | None, notes: Notes) -> tuple[str, dict[str, bytes], dict[str, MeshFile]]:
    """Reads MJCF with all its files.

    Shapes and textures with missing files are omitted and reported if no inertia depends on them
    (`robodyn.io.builders.mjcf_missing`).

    Returns:
        The MJCF text, which refers to files by keys; the files' bytes by key; the mesh files by key.

    Raises:
        LoadError: not MJCF; a document type; too many files; or a file that is missing, is no regular file, is too
            large, or includes itself.
    """
    files = _Files(notes)
    document = _Document(files, Path.cwd() if path is None else path.parent)
    text = document.text(path, data, ())
    return text, files.assets, {files.keys[path]: mesh for path, mesh in files.meshes.items()}


class MeshFile(NamedTuple):
    """The path of a mesh, and its `refpos` and `refquat`. These are None if two elements have different ones."""

    path: str
    refpos: str | None
    refquat: str | None


class _Files:
    """The files that all documents of a model have read."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.assets: dict[str, bytes] = {}
        self.meshes: dict[str, MeshFile] = {}
        self.keys: dict[str, str] = {}
        self._bytes, self._count, self._left = 0, 0, MOST_ASSET_BYTES

    def count(self, name: str, data: bytes) -> None:
        """Count an XML file, and check the limits."""
        self._bytes += len(data)
        self._count += 1
        if self._bytes > MAX_BYTES or self._count > MOST_FILES:
            raise LoadError(f"{name} leads to more than {MAX_BYTES} bytes or {MOST_FILES} files, the most that is read")

    def asset(self, path: str) -> str:
        """The key of a file that is not XML. The first call for a path reads the file."""
        if path not in self.keys:
            self.keys[path] = self.add(path, self._read(path))
        return self.keys[path]

    def add(self, path: str, data: bytes) -> str:
        """Store bytes, and return their key. The key contains no folder, because some versions of MuJoCo drop it."""
        key = f"{len(self.assets)}_{os.path.basename(path)}"  # noqa: PTH119 - a name alone
        self.assets[key] = data
        return key

    def note_mesh(self, path: str, element: Element) -> None:
        """Record the path of a mesh, and the reference frame of its vertices."""
        frame = tuple(element.attributes.get(key, "").strip() for key in ("refpos", "refquat"))
        known = self.meshes.setdefault(path, MeshFile(path, frame[0], frame[1]))
        if (known.refpos, known.refquat) != frame:
            self.meshes[path] = MeshFile(path, None, None)

    def _read(self, path: str) -> bytes:
        shown = quoted(path, most=LONGEST_PATH)
        try:
            data = read_regular(path, self._left)
        except ArgumentError as error:
            raise LoadError(f"{shown}, which the MJCF names, is no regular file: {error}") from None
        except OSError as error:
            raise LoadError(f"{shown}, which the MJCF names, cannot be read: {error.strerror or error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise LoadError(f"the MJCF names files of more than {MOST_ASSET_BYTES} bytes, the most that is read")
        return data


@dataclass
class _Named:
    """An element that names a file. `here`: folder of the included XML file that contains the element, or None."""

    element: Element
    here: Path | None


@dataclass
class _Document:
    """A document: a file and all files that it includes. They share the folders of `<compiler>`."""

    files: _Files
    folder: Path
    included: set[str] = field(default_factory=set)
    named: list[_Named] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    strip: bool = False

    def text(self, path: Path | None, data: bytes, above: tuple[str, ...]) -> str:
        """The document as text that refers to keys only. `above`: the chain of files that include it."""
        if path is not None:
            self.included.add(str(path))
        root = self._parsed(_name_of(path), data)
        if root.tag != "mujoco":
            hint = reads_root(root.tag, root.attributes)
            raise LoadError(f'{_name_of(path)}: not MJCF: the root element is {quoted(root.tag)}, not "mujoco"{hint}')
        path_chain = above if path is None else (*above, str(path))
        root.children = self._expanded(root.children, None, path_chain)
        missing = [found for each in self.named if (found := self._name(each, path_chain)) is not None]
        if missing and (why := leave_out(root, missing, bool(above), self.files.notes)) is not None:
            raise LoadError(f"{missing[0].message}; {why}")
        return _written(root)

    def _parsed(self, name: str, data: bytes) -> Element:
        self.files.count(name, data)
        parts: list[Element] = []
        try:
            root = parse_xml(decoded(data), None, frozenset(), parts.append, depth=MAX_DEPTH, notes=self.files.notes)
        except LoadError as error:
            raise LoadError(f"{name}: {error}") from None
        root.children = parts
        return root

    def _expanded(self, elements: list[Element], here: Path | None, above: tuple[str, ...]) -> list[Element]:
        """Expands includes in elements. `here`: folder of the included file that contains them, or None."""
        top = Element("", {}, None)
        top.children = elements
        queue = [top]
        while queue:
            each = queue.pop()
            children: list[Element] = []
            for child in each.children:
                if child.tag.lower() == "include":
                    children += self._included(child, here, above)
                else:
                    self._note(child, here)
                    children.append(child)
                    queue.append(child)
            each.children = children
        return top.children

    def _included(self, element: Element, here: Path | None, above: tuple[str, ...]) -> list[Element]:
        """The elements of an included file."""
        file = element.attributes.get("file", "")
        if element.children:
            raise LoadError(f"<include>{at_line(element.line)}: it has elements inside; wanted none")
        path = self._found(element, file, [self.folder, *([] if here is None else [here])])
        if path in above:
            raise LoadError(f"{quoted(path, most=LONGEST_PATH)} includes itself, by way of {len(above)} files")
        if path in self.included:
            raise LoadError(f"{quoted(path, most=LONGEST_PATH)} is included twice; MuJoCo takes each file once")
        self.included.add(path)
        _require_few(above)
        root = self._parsed(_name_of(Path(path)), read_path(path))
        for each in _descendants(root):
            each.line = None  # lines of another file are not meaningful
        return self._expanded(root.children, Path(path).parent, (*above, path))

    def _note(self, element: Element, here: Path | None) -> None:
        """Record an element's file names, and move the folders of `<compiler>` from the element to this document."""
        if element.tag.lower() == "compiler":
            for key in _FOLDERS:
                if (folder := element.attributes.pop(key, None)) is not None:
                    self.folders |= dict.fromkeys(_FOLDERS[1:] if key == "assetdir" else (key,), folder)
            if (strip := element.attributes.pop("strippath", None)) is not None:
                self.strip = strip == "true"
        if any(key.startswith("file") for key in element.attributes):
            self.named.append(_Named(element, here))

    def _name(self, named: _Named, above: tuple[str, ...]) -> Missing | None:
        """Replace an element's file names by keys. Returns a missing file if the element can be omitted, else None."""
        element, missing = named.element, None
        tag = element.tag.lower()
        for key in [key for key in element.attributes if key.startswith("file")]:
            file = element.attributes[key]
            if not file:  # the same as no attribute
                del element.attributes[key]
                continue
            file_name = file.replace("\\", "/").rpartition("/")[2]
            if self.strip and tag in _STRIPPED:
                file = file_name
            if key == "file" and tag in _STRIPPED:
                element.attributes.setdefault("name", file_name.rpartition(".")[0] or file_name)
            folders = self._search_folders(tag, named.here)
            if self._first_existing(file, folders) is None and may_be_missing(element):
                missing = missing or Missing(element, file, _missing_message(element, file, folders))
                continue
            path = self._found(element, file, folders)
            if tag == "model":
                element.attributes[key] = self._submodel(path, above)
            else:
                element.attributes[key] = self.files.asset(path)
                if tag == "mesh":
                    self.files.note_mesh(path, element)
        return missing

    def _search_folders(self, tag: str, here: Path | None) -> list[Path]:
        """The folders that MuJoCo searches for the file of an element, in its order."""
        subfolder = "" if tag == "model" else self.folders.get("texturedir" if tag == "texture" else "meshdir", "")
        folders = [self.folder / subfolder.replace("\\", "/")]
        if here is None:
            return folders
        inner = [here, folders[0] / os.path.relpath(here, self.folder)]
        return [*folders, *inner] if tag in ("mesh", "texture") else [*inner, *folders]

    def _found(self, element: Element, file: str, folders: list[Path]) -> str:
        """The path of a file.

        Raises:
            LoadError: there is no such file.
        """
        path = self._first_existing(file, folders)
        if path is None:
            raise LoadError(_missing_message(element, file, folders))
        return path

    def _first_existing(self, file: str, folders: list[Path]) -> str | None:
        """The first existing path of a file in the folders, or None.

        As in MuJoCo, backslashes count as slashes, and ".." is resolved without regard to symbolic links.
        """
        if "\0" in file:
            return None
        paths = (os.path.normpath(folder / file.replace("\\", "/")) for folder in folders)
        return next((path for path in paths if Path(path).exists()), None)

    def _submodel(self, path: str, above: tuple[str, ...]) -> str:
        if path in above:
            raise LoadError(f"{quoted(path, most=LONGEST_PATH)} is a part of itself, by way of {len(above)} files")
        _require_few(above)
        document = _Document(self.files, Path(path).parent)
        return self.files.add(path, document.text(Path(path), read_path(path), above).encode())


def _missing_message(element: Element, file: str, folders: list[Path]) -> str:
    """The error message for a missing file."""
    return (
        f"<{element.tag}>{at_line(element.line)}: its file {quoted(file, most=LONGEST_PATH)} is not there; looked for "
        f"in {quoted(str(folders[0]), most=LONGEST_PATH)}"
    )


def _require_few(above: tuple[str, ...]) -> None:
    if len(above) > _MOST_ABOVE:
        raise LoadError(f"{quoted(above[0], most=LONGEST_PATH)} leads to files more than {_MOST_ABOVE} deep")


def _name_of(path: Path | None) -> str:
    return "the text" if path is None else f"the file {quoted(str(path), most=LONGEST_PATH)}"


def _descendants(element: Element) -> Iterator[Element]:
    """An element and all its descendants."""
    queue = [element]
    while queue:
        each = queue.pop()
        yield each
        queue.extend(each.children)


def _written(root: Element) -> str:
    """An element as XML text. Its descendants keep their lines, so that MuJoCo's messages have correct line numbers."""
    out, line = io.StringIO(), 1
    stack: list[tuple[Element, bool]] = [(root, False)]
    while stack:
        element, is_open = stack.pop()
        if is_open:
            out.write(f"</{element.tag}>")
            continue
        if element.line is not None and element.line > line:
            out.write("\n" * (element.line - line))
            line = element.line
        attributes = "".join(f" {key}={quoteattr(value)}" for key, value in element.attributes.items())
        out.write(f"<{element.tag}{attributes}{'>' if element.children else '/>'}")
        if element.children:
            stack.append((element, True))
            stack.extend((child, False) for child in reversed(element.children))
    return out.getvalue()
