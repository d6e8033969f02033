"""Finds and reads included SDF files. Only the user's folders and the folder of the file are searched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robodyn.core.findings import Notes, at_line
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.files import LONGEST_PATH
from robodyn.internals.messages import brief, quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element, parse_xml
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.sources import MAX_BYTES, read_path

MAX_INCLUDES = 10_000
"""Largest number of includes of one file, nested ones counted. A file counts each time that it is included."""

MAX_CHAIN = 30
"""Deepest nesting of includes."""

_FOLDERS = "wanted a list of folders that hold models, or a dictionary of names to folders"
_CONFIGS = ("model.config", "manifest.xml")
_MODEL = "model.sdf"
_SHOWN = 5
"""Includes shown at each end of a long chain, in messages."""

_MOST_FOLDERS = 10_000


@dataclass(frozen=True, slots=True)
class Origin:
    """One SDF file.

    `version`: such as (1, 9); `folder`: its folder, None for text without a path; `label`: suffix of element names in
    messages, "" for the top-level file; `paths`: the chain of files that include it, itself last; `uris`: the URIs of
    these includes.
    """

    version: tuple[int, int]
    folder: Path | None
    label: str = ""
    paths: tuple[Path, ...] = ()
    uris: tuple[str, ...] = ()


class ModelFolders:
    """Finds and reads included files, within limits.

    Args:
        path: path of the top-level file; None for text.
        model_dirs: as in `load_sdf`.
    """

    def __init__(self, path: str | None, model_dirs: Any) -> None:
        self._named, self._read_model_dirs = _read_model_dirs(model_dirs)
        self.home = None if path is None else Path(os.path.realpath(path)).parent
        self._folders = [_real(folder) for folder in self._read_model_dirs]
        self._allowed = [*self._folders, *self._named.values(), *([self.home] if self.home is not None else [])]
        self._roots: dict[Path, tuple[int, Element, list[Element]]] = {}
        self._count = self._bytes = 0

    def find(self, uri: str, origin: Origin) -> Path:
        """The path of the SDF file that a URI names, with symbolic links resolved.

        Raises:
            LoadError: an unsupported URI, a missing file, or a file outside of the folders.
        """
        scheme, colons, rest = uri.partition("://")
        if not colons:
            scheme, rest = "", uri
        if scheme not in ("", "model", "package", "file"):
            raise LoadError(
                f"{quoted(scheme)} is not read, and nothing is fetched: download the model, and give the folder that "
                "holds it (model_dirs) and model://NAME as its URI"
            )
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        if ".." in parts or "\\" in rest or "\0" in rest:
            raise LoadError("a path with '..', a backslash or a null character; wanted one that leads downwards")
        if scheme in ("model", "package") and not parts:
            raise LoadError("it names no model")
        candidates = self._candidates(scheme, rest, parts, origin)
        path = next((place for place in candidates if _exists(place)), None)
        if path is None:
            missing = ", ".join(quoted(str(place), most=LONGEST_PATH) for place in candidates[:_SHOWN])
            more = f" and {len(candidates) - _SHOWN} more" if len(candidates) > _SHOWN else ""
            searched = f"there is no {missing}{more}" if candidates else "no folder is given to look in"
            raise LoadError(f"it is not found: {searched}; model_dirs says which folders hold models")
        return self._file(self._within(path))

    def read(self, path: Path, opaque: frozenset[str], notes: Notes) -> tuple[Element, list[Element]]:
        """The root of an SDF file and its children. Files are parsed once, so callers must not change the elements.

        Raises:
            LoadError: the file cannot be read, or a limit is exceeded.
        """
        self._count += 1
        if self._count > MAX_INCLUDES:
            raise LoadError(f"more than {MAX_INCLUDES} includes, the most that are followed")
        if path not in self._roots:
            tops: list[Element] = []
            data = read_path(str(path))
            self._roots[path] = len(data), parse_xml(data, ROOTS, opaque, tops.append, texts=True, notes=notes), tops
        size, root, tops = self._roots[path]
        self._spend(size)
        return root, tops

    def label(self, path: Path) -> str:
        """The suffix of element names of an included file in messages."""
        base = next((each for each in self._allowed if each in path.parents), path.parent)
        if path.parent == base != self.home:  # the folder of one model
            base = base.parent
        return f" of {quoted(str(path.relative_to(base)), most=LONGEST_PATH)}"

    def _spend(self, size: int) -> None:
        """Count the bytes of a file at each include. The limit bounds the total time, not only the bytes read."""
        self._bytes += size
        if self._bytes > MAX_BYTES:
            raise LoadError(f"the included files have more than {MAX_BYTES} bytes together, the most that are read")

    def _candidates(self, scheme: str, rest: str, parts: list[str], origin: Origin) -> list[Path]:
        """Candidate paths of a URI, in order of preference."""
        if scheme in ("model", "package"):
            name, inner = parts[0], parts[1:]
            named = [self._named[name]] if name in self._named else []
            same_name = [_real(each) for each in self._read_model_dirs if each.absolute().name == name]
            return [base.joinpath(*inner) for base in (*named, *(each / name for each in self._folders), *same_name)]
        if rest.startswith("/"):
            return [self._within(Path(rest))]
        base_folders = [each for each in (origin.folder, self.home) if each is not None]
        return [base.joinpath(*parts) for base in dict.fromkeys((*base_folders, *self._folders))]

    def _within(self, place: Path) -> Path:
        """Resolves symbolic links of a path, and checks that the result is in one of the folders."""
        real = _real(place)
        if not any(each == real or each in real.parents for each in self._allowed):
            raise LoadError(
                f"it leads to {quoted(str(real), most=LONGEST_PATH)}, which is in none of the folders: those of "
                "model_dirs and that of the file"
            )
        return real

    def _file(self, found: Path) -> Path:
        """The SDF file in a model's folder; a file is returned unchanged."""
        if not found.is_dir():
            return found
        for config in _CONFIGS:
            if _exists(found / config):
                path = self._within(found / config)
                data = read_path(str(path))
                self._spend(len(data))
                return self._within(found / _file_of_config(path, data))
        if not _exists(found / _MODEL):
            raise LoadError(
                f"the folder {quoted(str(found), most=LONGEST_PATH)} has neither {_CONFIGS[0]} nor {_MODEL}"
            )
        return self._within(found / _MODEL)


def chain(uris: Iterable[str]) -> str:
    """A chain of includes, for messages."""
    shown = [quoted(uri) for uri in uris]
    if len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], "...", *shown[-_SHOWN:]]
    return f"include {' > '.join(shown)}"


def _file_of_config(config: Path, data: bytes) -> str:
    """The SDF file that a model.config names.

    Of several it is the one with the newest known version, as in Gazebo; the first one if no version is known.
    """
    where = f"the file {quoted(str(config), most=LONGEST_PATH)}"
    tops: list[Element] = []
    try:
        parse_xml(
            data, "model", frozenset(), tops.append, texts=True, notes=Notes()
        )  # findings about the config file are not reported
    except LoadError as error:
        raise LoadError(f"{where}: {error}") from None
    best: tuple[tuple[int, int], str] | None = None
    for each in tops:
        if each.tag == "sdf" and each.text:
            version = version_of(each.attributes.get("version", ""))
            known = version if version is not None and version <= NEWEST else (0, 0)
            if best is None or known > best[0]:
                best = known, each.text
    if best is None:
        raise LoadError(f"{where} names no SDF file")
    parts = best[1].split("/")
    if ".." in parts or "\\" in best[1] or "\0" in best[1] or best[1].startswith("/"):
        raise LoadError(f"{where} names {quoted(best[1])}; wanted a file in its folder")
    return best[1]


OLDEST, NEWEST = (1, 2), (1, 12)
"""Oldest and newest supported version of SDF."""

ROOTS = ("sdf", "gazebo")
"""Root elements of SDF. The second one is used until version 1.2."""


def version_of(text: str) -> tuple[int, int] | None:
    """A version such as "1.9" as numbers; None for other text."""
    first, _, second = text.strip().partition(".")
    plain = first == "1" and second.isascii() and second.isdigit() and len(second) < 4
    return (1, int(second)) if plain else None


def require_model(tops: list[Element], root: Element) -> Element | None:
    """The model of an included file; None if it contains only lights and actors.

    Raises:
        LoadError: the file contains a world, an include, several models, or nothing.
    """
    models = [each for each in tops if each.tag == "model"]
    for each in tops:
        if each.tag in ("world", "include"):
            raise LoadError(f"{each.tag}{at_line(each.line)}: the file holds <{each.tag}>; wanted a <model>")
    if len(models) > 1:
        raise LoadError(f"sdf{at_line(root.line)}: the file holds {len(models)} models; wanted one")
    if not models and not any(each.tag in ("light", "actor") for each in tops):
        raise LoadError(f"sdf{at_line(root.line)}: the file holds no model")
    return models[0] if models else None


def _read_model_dirs(model_dirs: Any) -> tuple[dict[str, Path], list[Path]]:
    """Reads `model_dirs`: returns folders by name, and folders that contain models."""
    named = strict_types.is_a(model_dirs, Mapping)
    entries = None
    if not strict_types.is_a(model_dirs, str, bytes, os.PathLike):
        with foreign("model_dirs"):
            entries = strict_types.at_most(model_dirs.items() if named else model_dirs, _MOST_FOLDERS)
    if entries is None:
        raise ArgumentError(f"model_dirs: got {brief(model_dirs)}; {_FOLDERS}")
    if not named:
        return {}, [_folder(each) for each in entries]
    if not all(strict_types.text_or_none(name) for name, _ in entries):
        raise ArgumentError(f"model_dirs: got {brief(model_dirs)}; wanted names that are texts and not empty")
    return {strict_types.text(name): _real(_folder(each)) for name, each in entries}, []


def _folder(given: Any) -> Path:
    if strict_types.is_a(given, str, os.PathLike):
        with foreign("model_dirs"):
            text = strict_types.text(os.fsdecode(given))
        if "\0" not in text and Path(text).is_dir():
            return Path(text)
    raise ArgumentError(f"model_dirs: {brief(given)} is no folder; {_FOLDERS}")


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):  # the name is too long, or symbolic links form a cycle
        return False


def _real(place: Path) -> Path:
    return Path(os.path.realpath(place))
