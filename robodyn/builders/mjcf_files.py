"""What a MJCF opens: looked at before MuJoCo does, which follows names wherever they lead.

MuJoCo's parser reads no document types and no entities, but opens included files, submodels, meshes and textures, and
would wait for a pipe or read a device without end. Here every XML file is read once before, safely and bounded, and
names that lead to something else than regular files are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robodyn import exact
from robodyn.builders.elements import Element, parse_xml
from robodyn.builders.sources import MAX_BYTES, is_xml_text, read_source
from robodyn.errors import LoadError
from robodyn.messages import quoted

MOST_FILES = 1000
"""XML files that a model may be made of."""
_ROOTS = ("mujoco", "mujocoinclude")
_FOLDERS = ("meshdir", "texturedir", "assetdir")
_XML = ("include", "model")
"""Elements whose file is XML."""


def file_of(source: Any) -> Path | None:
    """The file that a source names, once all that it leads to is looked at; None for what is no name of a file.

    Raises:
        LoadError: no regular file, too large, too many or a circle of them, a document type, or not MJCF.
    """
    text = exact.text_or_none(source)
    if text is None and not exact.is_a(source, os.PathLike):
        return None
    if text is not None and is_xml_text(text):
        return None
    path = Path(os.fsdecode(source if text is None else text)).absolute()
    if path.suffix == ".mjb":
        read_source(path)
        return path
    _Look(path.parent).at(path, read_source(path), ())
    return path


def checked_text(source: Any) -> str:
    """The MJCF text of a source, once all that it leads to is looked at; raises as `file_of` does."""
    data = read_source(source)
    _Look(Path.cwd()).at(None, data, ())
    return data.decode("utf-8", errors="replace")


class _Look:
    """A look at the files of one model."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._bytes, self._files = folder, 0, 0

    def at(self, path: Path | None, data: bytes, above: tuple[Path, ...]) -> None:
        """Read one, and what it names; `above` are those that lead to it."""
        name = "the text" if path is None else f"the file {quoted(str(path))}"
        self._bytes += len(data)
        self._files += 1
        if self._bytes > MAX_BYTES or self._files > MOST_FILES:
            raise LoadError(f"{name} leads to more than {MAX_BYTES} bytes or {MOST_FILES} files, the most that is read")
        parts: list[Element] = []
        try:
            parse_xml(data, _ROOTS, frozenset(), parts.append)
        except LoadError as error:
            raise LoadError(f"{name}: {error}") from None
        here = self._folder if path is None else path.parent
        every = [element for part in parts for element in _inside(part)]
        asides = {each.attributes.get(key) for each in every if each.tag == "compiler" for key in _FOLDERS} - {None}
        for element in every:
            if (file := element.attributes.get("file")) is not None:
                for found in _candidates(file, {self._folder, here}, asides):
                    self._follow(found, element.tag in _XML, (*above, *(() if path is None else (path,))))

    def _follow(self, found: Path, is_xml: bool, above: tuple[Path, ...]) -> None:
        if not found.is_file():
            raise LoadError(f"{quoted(str(found))}, which the MJCF names, is no regular file")
        if not is_xml:
            return
        if found.resolve() in {each.resolve() for each in above}:
            raise LoadError(f"{quoted(str(found))} includes itself, by way of {len(above)} files")
        self.at(found, read_source(found), above)


def _inside(element: Element) -> Iterator[Element]:
    """An element and all below it."""
    waiting = [element]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(each.children)


def _candidates(file: str, folders: set[Path], asides: set[str | None]) -> Iterator[Path]:
    """What is there of the places that MuJoCo may look for a file at."""
    names = {file, *(f"{aside}/{file}" for aside in asides)}
    for place in {folder / name for folder in folders for name in names}:
        if os.path.lexists(place):
            yield place
