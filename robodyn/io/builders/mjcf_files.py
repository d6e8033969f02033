"""A MJCF with all that it names, as text and bytes: MuJoCo is given these, and opens no file itself.

MuJoCo's parser reads no document types and no entities, but opens included files, submodels, meshes and textures, and
would wait for a pipe or read a device without end. So files are found and read here, where MuJoCo would look for them,
regular ones alone and bounded; includes are put in their places, and every other name of a file becomes one that stands
in the dictionary beside the text.
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
"""XML files that a model may be made of."""
MOST_ASSET_BYTES = 1 << 30
"""Bytes of meshes, textures and height fields."""
MAX_DEPTH = 499
"""Deepest nesting of elements, as in MuJoCo's parser."""
_MOST_ABOVE = 50
"""How many files may lead to one."""
_STRIPPED = ("mesh", "hfield", "skin", "texture")
"""Elements whose files lose their folders by `strippath`. They are called as their files where they have no name."""
_FOLDERS = ("assetdir", "meshdir", "texturedir")
_BINARY = (54321).to_bytes(4, sys.byteorder)


def contents(source: Any) -> tuple[bytes, Path | None]:
    """The bytes of a source, and the file that they are of, None where it is none.

    Raises:
        LoadError: nothing to read, or too large.
        ArgumentError: no such kind of source.
    """
    path = path_of(source)
    if path is None:
        return read_source(source), None
    return read_path(path), Path(path).absolute()


def is_binary(data: bytes) -> bool:
    """Whether bytes are those of a .mjb, which MuJoCo has compiled."""
    return data.startswith(_BINARY)


def self_contained(data: bytes, path: Path | None, notes: Notes) -> tuple[str, dict[str, bytes], dict[str, MeshFile]]:
    """MJCF as text, whose files are those of a dictionary of bytes, and what meshes these are, by the same keys.

    Shapes and pictures whose files are missing are left out where no inertia depends on them, and noted
    (`robodyn.io.builders.mjcf_missing`).

    Raises:
        LoadError: a file that it names is not there, is no regular file, is too large, or includes itself; there are
            too many; a document type; not MJCF.
    """
    files = _Files(notes)
    document = _Document(files, Path.cwd() if path is None else path.parent)
    text = document.text(path, data, ())
    return text, files.assets, {files.keys[path]: mesh for path, mesh in files.meshes.items()}


class MeshFile(NamedTuple):
    """The path of a mesh, and what `refpos` and `refquat` say of it: None if two elements say different things."""

    path: str
    refpos: str | None
    refquat: str | None


class _Files:
    """What all documents of a model have read."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.assets: dict[str, bytes] = {}
        self.meshes: dict[str, MeshFile] = {}
        self.keys: dict[str, str] = {}
        self._bytes, self._count, self._left = 0, 0, MOST_ASSET_BYTES

    def count(self, name: str, data: bytes) -> None:
        """Note one more file of XML."""
        self._bytes += len(data)
        self._count += 1
        if self._bytes > MAX_BYTES or self._count > MOST_FILES:
            raise LoadError(f"{name} leads to more than {MAX_BYTES} bytes or {MOST_FILES} files, the most that is read")

    def asset(self, path: str) -> str:
        """The key of a file that is no XML, read when it is first named."""
        if path not in self.keys:
            self.keys[path] = self.add(path, self._read(path))
        return self.keys[path]

    def add(self, path: str, data: bytes) -> str:
        """The key of new bytes. It has no folder: some versions of MuJoCo drop them."""
        key = f"{len(self.assets)}_{os.path.basename(path)}"  # noqa: PTH119 - a name alone
        self.assets[key] = data
        return key

    def note_mesh(self, path: str, element: Element) -> None:
        """Note where a mesh lies, and the frame in which the places of its file are taken."""
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
    """An element that names a file, and where its own file lies, from which included ones are looked for first."""

    element: Element
    here: Path | None


@dataclass
class _Document:
    """One document: a file and those that it includes, which share folders."""

    files: _Files
    folder: Path
    included: set[str] = field(default_factory=set)
    named: list[_Named] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    strip: bool = False

    def text(self, path: Path | None, data: bytes, above: tuple[str, ...]) -> str:
        """The document as text that names nothing but assets; `above` are the files that lead to it."""
        if path is not None:
            self.included.add(str(path))
        root = self._parsed(_name_of(path), data)
        if root.tag != "mujoco":
            other = reads_root(root.tag, root.attributes)
            raise LoadError(f'{_name_of(path)}: not MJCF: the root element is {quoted(root.tag)}, not "mujoco"{other}')
        own = above if path is None else (*above, str(path))
        root.children = self._expanded(root.children, None, own)
        missing = [found for each in self.named if (found := self._name(each, own)) is not None]
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
        """Elements with what they include in the place of includes; `here` is the folder of an included file."""
        top = Element("", {}, None)
        top.children = elements
        waiting = [top]
        while waiting:
            each = waiting.pop()
            children: list[Element] = []
            for child in each.children:
                if child.tag.lower() == "include":
                    children += self._included(child, here, above)
                else:
                    self._note(child, here)
                    children.append(child)
                    waiting.append(child)
            each.children = children
        return top.children

    def _included(self, element: Element, here: Path | None, above: tuple[str, ...]) -> list[Element]:
        """What an include stands for."""
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
        for each in _inside(root):
            each.line = None  # of another file
        return self._expanded(root.children, Path(path).parent, (*above, path))

    def _note(self, element: Element, here: Path | None) -> None:
        """Keep what an element says about files, and take from it what says where they lie."""
        if element.tag.lower() == "compiler":
            for key in _FOLDERS:
                if (folder := element.attributes.pop(key, None)) is not None:
                    self.folders |= dict.fromkeys(_FOLDERS[1:] if key == "assetdir" else (key,), folder)
            if (strip := element.attributes.pop("strippath", None)) is not None:
                self.strip = strip == "true"
        if any(key.startswith("file") for key in element.attributes):
            self.named.append(_Named(element, here))

    def _name(self, named: _Named, above: tuple[str, ...]) -> Missing | None:
        """Let an element name assets in the place of files; what is missing of one that may be left out."""
        element, missing = named.element, None
        tag = element.tag.lower()
        for key in [key for key in element.attributes if key.startswith("file")]:
            file = element.attributes[key]
            if not file:  # as if it were not there
                del element.attributes[key]
                continue
            base = file.replace("\\", "/").rpartition("/")[2]
            if self.strip and tag in _STRIPPED:
                file = base
            if key == "file" and tag in _STRIPPED:
                element.attributes.setdefault("name", base.rpartition(".")[0] or base)
            folders = self._places(tag, named.here)
            if self._looked_for(file, folders) is None and may_be_missing(element):
                missing = missing or Missing(element, file, _absent(element, file, folders))
                continue
            path = self._found(element, file, folders)
            if tag == "model":
                element.attributes[key] = self._submodel(path, above)
            else:
                element.attributes[key] = self.files.asset(path)
                if tag == "mesh":
                    self.files.note_mesh(path, element)
        return missing

    def _places(self, tag: str, here: Path | None) -> list[Path]:
        """The folders that MuJoCo looks at for the file of an element, in its order."""
        aside = "" if tag == "model" else self.folders.get("texturedir" if tag == "texture" else "meshdir", "")
        main = [self.folder / aside.replace("\\", "/")]
        if here is None:
            return main
        inner = [here, main[0] / os.path.relpath(here, self.folder)]
        return [*main, *inner] if tag in ("mesh", "texture") else [*inner, *main]

    def _found(self, element: Element, file: str, folders: list[Path]) -> str:
        """The file of a name.

        Raises:
            LoadError: it is not there.
        """
        path = self._looked_for(file, folders)
        if path is None:
            raise LoadError(_absent(element, file, folders))
        return path

    def _looked_for(self, file: str, folders: list[Path]) -> str | None:
        """The file of a name: the first that is there. MuJoCo takes backslashes for slashes, and reduces names without
        a look at links."""
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


def _absent(element: Element, file: str, folders: list[Path]) -> str:
    """That a file is not there, in words."""
    return (
        f"<{element.tag}>{at_line(element.line)}: its file {quoted(file, most=LONGEST_PATH)} is not there; looked for "
        f"in {quoted(str(folders[0]), most=LONGEST_PATH)}"
    )


def _require_few(above: tuple[str, ...]) -> None:
    if len(above) > _MOST_ABOVE:
        raise LoadError(f"{quoted(above[0], most=LONGEST_PATH)} leads to files more than {_MOST_ABOVE} deep")


def _name_of(path: Path | None) -> str:
    return "the text" if path is None else f"the file {quoted(str(path), most=LONGEST_PATH)}"


def _inside(element: Element) -> Iterator[Element]:
    """An element and all below it."""
    waiting = [element]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(each.children)


def _written(root: Element) -> str:
    """An element as text, its parts in the lines that they came from, so that MuJoCo's messages name the right ones."""
    out, line = io.StringIO(), 1
    waiting: list[tuple[Element, bool]] = [(root, False)]
    while waiting:
        element, is_open = waiting.pop()
        if is_open:
            out.write(f"</{element.tag}>")
            continue
        if element.line is not None and element.line > line:
            out.write("\n" * (element.line - line))
            line = element.line
        attributes = "".join(f" {key}={quoteattr(value)}" for key, value in element.attributes.items())
        out.write(f"<{element.tag}{attributes}{'>' if element.children else '/>'}")
        if element.children:
            waiting.append((element, True))
            waiting.extend((child, False) for child in reversed(element.children))
    return out.getvalue()
