"""Loads xacro, a macro language for URDF. Xacro can read any file, so only an explicit call runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from numpy.typing import ArrayLike

from robodyn.core.description import Finding
from robodyn.core.findings import LISTED, Notes, Report, listed
from robodyn.core.model import Model
from robodyn.internals import forks, strict_types
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError, LoadError, UnavailableError
from robodyn.internals.files import LONGEST_PATH, path_text
from robodyn.internals.messages import brief, install, near_misses, printable, quoted, shortened
from robodyn.io.builders.assemble import BASES, assemble, gravity_vector
from robodyn.io.builders.elements import MAX_DEPTH, MAX_ELEMENTS, parse_xml
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.mend import mend
from robodyn.io.builders.sources import is_xml_text, path_of, read_path
from robodyn.io.builders.urdf import read_and_resolve

_SHOWN = 300
"""Characters of xacro's error messages that are shown."""

_ONE_AT_A_TIME = forks.lock()
"""Allows one expansion at a time, because xacro stores its state in its modules."""

_FORKING: list[Any] = []
"""Contains the lock while this process forks."""


def _before_fork() -> None:
    _ONE_AT_A_TIME.acquire()
    _FORKING.append(_ONE_AT_A_TIME)


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().release()


if hasattr(os, "register_at_fork"):
    # A fork waits until another thread's expansion has ended. xacrodoc imports modules in every expansion. A child that
    # is forked during such an import would wait forever for Python's import lock.
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

_DEEPEST = 100
"""Deepest nesting of included files."""


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

    A xacro file evaluates expressions, includes other files, and can read the environment and YAML files. Load only
    files that you trust. The resulting URDF is checked as in `load_urdf`, and line numbers in the report refer to it.
    Arguments that no file declares, and XML errors in the files, are reported as findings.

    Args:
        path: path of the file.
        args: values of its `<xacro:arg>`, by name.
        package_dirs: folders for `$(find package)`: folders that contain packages, or the folders of packages by name.
            Further packages are searched in the folders above the file, ROS_PACKAGE_PATH, and ROS if it is installed.
        base: as in `load_urdf`.
        mimic: as in `load_urdf`.
        strict: as in `load_urdf`.
        gravity: as in `load_urdf`.

    Raises:
        LoadError: the file cannot be expanded, only defines macros, or is no usable robot; the message gives the reason
            and names the files and macros.
        ArgumentError: an unknown option, or an invalid path, name or folder.
        UnavailableError: xacrodoc is not installed.
    """
    text = strict_types.text_or_none(path)
    if (text is None and not strict_types.is_a(path, os.PathLike)) or (text is not None and is_xml_text(text)):
        shown = "XML text" if text is not None else strict_types.type_name(path)
        raise ArgumentError(f"path: got {shown}; wanted the path of a xacro file, which may include others beside it")
    arguments = _args({} if args is None else args)
    name = path_of(path)
    if path_text(name) is None:
        raise LoadError(f"cannot expand the xacro {brief(name)}: no file can have such a name")
    file = Path(str(name)).absolute()
    with _ONE_AT_A_TIME:
        expanded, findings = _expanded(file, arguments, package_dirs)
    description, mimics = read_and_resolve(expanded, mimic=mimic, strict=strict)
    description = replace(description, report=Report((*findings, *description.report)))
    return assemble(description, mimics, one_of("base", base, BASES), gravity_vector(gravity))


def _expanded(file: Path, given: _Arguments, package_dirs: Any) -> tuple[str, list[Finding]]:
    """The URDF from a xacro file, and findings about its files and arguments."""
    packages, sources, notes = _Packages(file, package_dirs), _Sources(file), Notes()
    with _reading(packages.find, sources.parse) as xacro:
        try:
            document = xacro.process_file(str(file), mappings=given, verbosity=0)
            expanded: str = document.toxml()
        except MemoryError as error:
            raise UnavailableError(f"cannot expand {quoted(str(file))}: there is not enough memory") from error
        except Exception as error:  # errors of xacro, and any error that expressions in the file raise
            why = packages.lacking or " ".join(str(error).split()) or strict_types.type_name(error)
            where = _position_in_files(xacro)
            raise LoadError(
                f"cannot expand the xacro {_path(file)}: {shortened(printable(why), _SHOWN)}{where}"
            ) from None
    if sources.macros and not document.getElementsByTagName("link"):
        names = listed([quoted(name) for name in sources.macros])
        raise LoadError(
            f"the xacro {_path(file)} gives no links: it only defines macros ({names}); load a file that calls them"
        )
    for name in given.unused():
        near = [quoted(each) for each in near_misses(name, given.used, 0)]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        notes.add("xacro-argument-not-used", f"argument {quoted(name)}", f"no <xacro:arg> declares it{hint}")
    return expanded, [*sources.findings, *notes.findings()]


def _path(path: object) -> str:
    return quoted(str(path), most=LONGEST_PATH)


def _position_in_files(xacro: Any) -> str:
    """Names the macros and files that xacro is processing, innermost first, for an error message."""
    macros = [
        f"macro {quoted(macro.body.getAttribute('name'))} of {_path(macro.history[-1][-1])}"
        for macro in reversed(xacro.macrostack or ())
    ]
    files = [_path(name) for name in reversed((xacro.filestack or ())[1:])]
    places = [f", {'called by' if i else 'in'} {macro}" for i, macro in enumerate(macros)]
    places += [f", {'included by' if i else 'in'} {name}" for i, name in enumerate(files)]
    return "".join(places[:LISTED]) + (f", and {len(places) - LISTED} more" if len(places) > LISTED else "")


class _Arguments(dict[str, str]):
    """Values of arguments by name. `used`: names that the files declare or use."""

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(given)
        self._given, self.used = tuple(given), dict[str, None]()

    def __contains__(self, name: object) -> bool:
        """Called by xacro for each declared argument."""
        self.used[str(name)] = None
        return super().__contains__(name)

    def __getitem__(self, name: str) -> str:
        self.used[name] = None
        return super().__getitem__(name)

    def unused(self) -> list[str]:
        """Names of arguments that no file declares or uses."""
        return [name for name in self._given if name not in self.used]


class _Sources:
    """Parses the files of one robot for xacro. `macros`: names of the defined macros; `findings`: about the files."""

    def __init__(self, file: Path) -> None:
        self._file, self.macros = str(file), dict[str, None]()
        self.findings: list[Finding] = []

    def parse(self, text: Any, filename: str | None = None) -> Any:
        """Replaces `xacro.parse`: returns the document of a file. It limits the size, refuses document types, and uses
        the declared encoding."""
        import xacro

        name = str(filename)
        if not os.path.lexists(name):
            xacro.filestack.pop()  # as xacro does: the error's place is the including file
            raise xacro.XacroException(f"there is no file {_path(name)}", exc=FileNotFoundError())
        if len(xacro.filestack) > _DEEPEST:
            raise LoadError(f"includes are nested more than {_DEEPEST} deep")
        data = read_path(name)
        parse_xml(data, "robot" if name == self._file else None, frozenset(), lambda element: None, notes=Notes())
        try:
            document = minidom.parseString(data)
        except (ExpatError, ValueError, LookupError):
            notes = Notes()
            document = minidom.parseString(mend(data, f"file {_path(name)}", MAX_DEPTH, MAX_ELEMENTS, notes))
            self.findings += notes.findings()
        for macro in document.getElementsByTagName("xacro:macro"):
            self.macros[macro.getAttribute("name")] = None
        return document


def _args(args: Any) -> _Arguments:
    """Converts values to text, as on a command line."""
    if not strict_types.is_a(args, Mapping):
        raise ArgumentError(f"args: got {brief(args)}; wanted a mapping from names to values")
    with foreign("args"):
        pairs = [(strict_types.text_or_none(name), value) for name, value in args.items()]
        if any(name is None for name, _ in pairs):
            raise ArgumentError(f"args: got {brief(args)}; wanted names that are texts")
        return _Arguments(
            {
                str(name): ("true" if value else "false") if isinstance(value, bool) else str(value)
                for name, value in pairs
            }
        )


class _Packages:
    """Finds packages for one file. `lacking`: the error message for a package that was not found."""

    def __init__(self, file: Path, package_dirs: Any) -> None:
        try:
            from xacrodoc.packages import PackageFinder, PackageNotFoundError
        except ImportError as error:
            raise UnavailableError(
                f"load_xacro: xacrodoc cannot be imported here ({error}): {install('xacro')}"
            ) from error
        self._finder, self._none, self.lacking = PackageFinder(), PackageNotFoundError, ""
        self._finder.walk_up_from(file)
        self._folders: list[str] = []
        if strict_types.is_a(package_dirs, Mapping):
            with foreign("package_dirs"):
                self._finder.update_package_cache({str(name): _folder(each) for name, each in package_dirs.items()})
        elif strict_types.is_a(package_dirs, str, bytes, os.PathLike) or not strict_types.is_a(package_dirs, Iterable):
            raise ArgumentError(f"package_dirs: got {brief(package_dirs)}; wanted several folders, or folders by name")
        else:
            with foreign("package_dirs"):
                self._folders = [_folder(each) for each in package_dirs]
            if self._folders:
                self._finder.look_in(self._folders)

    def find(self, package: str) -> str:
        """The folder of a package: one whose package.xml has this name, or a folder with this name."""
        try:
            return str(self._finder.get_path(package))
        except self._none:
            for folder in self._folders:
                if (Path(folder) / package).is_dir():
                    return str(Path(folder) / package)
            self.lacking = f"there is no package {quoted(package)}; say where by package_dirs"
            raise


def _folder(given: Any) -> str:
    text = path_text(given)
    if text is None or not Path(text).is_dir():
        raise ArgumentError(f"package_dirs: {brief(given)} is no folder")
    return str(Path(text).absolute())


@contextmanager
def _reading(find: Callable[[str], str], parse: Callable[..., Any]) -> Iterator[Any]:
    """Context in which xacro's module calls `find` for packages and `parse` for files."""
    import xacro
    from xacro import substitution_args

    originals = substitution_args._eval_find, xacro.parse
    substitution_args._eval_find, xacro.parse = find, parse
    try:
        yield xacro
    finally:
        substitution_args._eval_find, xacro.parse = originals
