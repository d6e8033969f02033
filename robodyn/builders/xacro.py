"""xacro: URDF that is computed. It reads what it likes, so that nothing but an explicit call runs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from robodyn import exact
from robodyn.builders.elements import parse_xml
from robodyn.builders.foreign import foreign
from robodyn.builders.load import load_urdf
from robodyn.builders.sources import is_xml_text, read_source
from robodyn.errors import ArgumentError, LoadError, UnavailableError
from robodyn.messages import brief, printable, quoted, shortened
from robodyn.model import Model

_SHOWN = 300
"""So many characters of what xacro says are shown."""

_ONE_AT_A_TIME = threading.Lock()
"""xacro keeps its state in its modules."""


def load_xacro(
    path: str | os.PathLike[str],
    args: Mapping[str, Any] | None = None,
    package_dirs: Iterable[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] = (),
    *,
    base: Literal["fixed", "floating"] = "fixed",
    mimic: Literal["follow", "ignore"] = "follow",
    strict: bool = True,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
) -> Model:
    """Load a robot from xacro, without ROS. Needs the extra `xacro`.

    A xacro file evaluates expressions, includes other files and can read the environment and YAML files: call this for
    files that you trust. Of the URDF that comes out everything is checked as `load_urdf` does; its report's lines are
    those of that text.

    Args:
        path: of the file.
        args: values of its `<xacro:arg>`, by name.
        package_dirs: where `$(find package)` looks: folders that have packages in them, or the folders of packages by
            name. After those: the folders above the file, ROS_PACKAGE_PATH, and ROS where it is installed.
        base: as of `load_urdf`, and so are the others.
        mimic: as of `load_urdf`.
        strict: as of `load_urdf`.
        gravity: as of `load_urdf`.

    Raises:
        LoadError: the file cannot be expanded, or is no usable robot then; says why.
        ArgumentError: an option that does not exist, or what is no path, name or folder.
        UnavailableError: xacrodoc is not installed.
    """
    text = exact.text_or_none(path)
    if (text is None and not exact.is_a(path, os.PathLike)) or (text is not None and is_xml_text(text)):
        shown = "XML text" if text is not None else exact.type_name(path)
        raise ArgumentError(f"path: got {shown}; wanted the path of a xacro file, which may include others beside it")
    given = _args({} if args is None else args)
    with foreign("the path"):
        file = Path(os.fsdecode(path)).absolute()
    parse_xml(read_source(file), "robot", frozenset(), lambda element: None)
    packages = _Packages(file, package_dirs)
    with _finding(packages.find) as xacro:
        try:
            expanded = xacro.process_file(str(file), mappings=given, verbosity=0).toxml()
        except MemoryError as error:
            raise UnavailableError(f"cannot expand {quoted(str(file))}: there is not enough memory") from error
        except Exception as error:  # xacro's own, and whatever the expressions of the file raise
            why = packages.lacking or " ".join(str(error).split()) or exact.type_name(error)
            raise LoadError(
                f"cannot expand the xacro {quoted(str(file))}: {shortened(printable(why), _SHOWN)}"
            ) from None
    return load_urdf(expanded, base=base, mimic=mimic, strict=strict, gravity=gravity)


def _args(args: Any) -> dict[str, str]:
    """Values as text, as they would come from a command line."""
    if not exact.is_a(args, Mapping):
        raise ArgumentError(f"args: got {brief(args)}; wanted a mapping from names to values")
    with foreign("args"):
        pairs = [(exact.text_or_none(name), value) for name, value in args.items()]
        if any(name is None for name, _ in pairs):
            raise ArgumentError(f"args: got {brief(args)}; wanted names that are texts")
        return {
            str(name): ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in pairs
        }


class _Packages:
    """Where packages are, for one file. `lacking`: what is to be said of the one that was not found."""

    def __init__(self, file: Path, package_dirs: Any) -> None:
        try:
            from xacrodoc.packages import PackageFinder, PackageNotFoundError
        except ImportError as error:
            raise UnavailableError(
                f"load_xacro: xacrodoc cannot be imported here ({error}): pip install 'robodyn[xacro]'"
            ) from error
        self._finder, self._none, self.lacking = PackageFinder(), PackageNotFoundError, ""
        self._finder.walk_up_from(file)
        self._folders: list[str] = []
        if exact.is_a(package_dirs, Mapping):
            with foreign("package_dirs"):
                self._finder.update_package_cache({str(name): _folder(each) for name, each in package_dirs.items()})
        elif exact.is_a(package_dirs, str, bytes, os.PathLike) or not exact.is_a(package_dirs, Iterable):
            raise ArgumentError(f"package_dirs: got {brief(package_dirs)}; wanted several folders, or folders by name")
        else:
            with foreign("package_dirs"):
                self._folders = [_folder(each) for each in package_dirs]
            if self._folders:
                self._finder.look_in(self._folders)

    def find(self, package: str) -> str:
        """The folder of a package: one that says so (package.xml), or of that name."""
        try:
            return str(self._finder.get_path(package))
        except self._none:
            for folder in self._folders:
                if (Path(folder) / package).is_dir():
                    return str(Path(folder) / package)
            self.lacking = f"there is no package {quoted(package)}; say where by package_dirs"
            raise


def _folder(given: Any) -> str:
    if not exact.is_a(given, str, os.PathLike) or not Path(os.fsdecode(given)).is_dir():
        raise ArgumentError(f"package_dirs: {brief(given)} is no folder")
    return str(Path(os.fsdecode(given)).absolute())


@contextmanager
def _finding(find: Callable[[str], str]) -> Iterator[Any]:
    """xacro's module, which asks `find` for packages meanwhile."""
    import xacro
    from xacro import substitution_args

    with _ONE_AT_A_TIME:
        before, substitution_args._eval_find = substitution_args._eval_find, find
        try:
            yield xacro
        finally:
            substitution_args._eval_find = before
