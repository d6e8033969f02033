"""Loads robots by name from the package robot_descriptions, which downloads them at their first use."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from typing import Any

from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, LoadError, UnavailableError
from robodyn.internals.messages import brief, install, near_misses, quoted
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.load_any import load

_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,99}")
_PATHS = ("URDF_PATH", "MJCF_PATH", "SDF_PATH")


def load_description(name: str, **options: Any) -> Model:
    """Load a robot of the package robot_descriptions, which clones it the first time. Needs the extra `descriptions`.

    Args:
        name: such as "panda_description" or "go2_mj_description". `robot_descriptions.DESCRIPTIONS` lists all names.
        options: keyword arguments of the reader: `load_urdf`, `load_mjcf`, `load_sdf`, or `load_xacro` (with its extra)
            for descriptions that only have xacro.

    Raises:
        LoadError: not a usable robot.
        ArgumentError: an unknown name, or an option that the reader lacks.
        UnavailableError: the package is not installed, or cannot download the robot.
    """
    text = strict_types.text_or_none(name)
    if text is None:
        raise ArgumentError(f"name: got {brief(name)}; wanted a name such as 'panda_description'")
    module = _module(text)
    for attribute in _PATHS:
        if (path := strict_types.text_or_none(getattr(module, attribute, None))) is not None:
            return load(path, **options)
    path = strict_types.text_or_none(getattr(module, "XACRO_PATH", None))
    if path is None:
        raise LoadError(f"the description {quoted(text)} has none of {', '.join(_PATHS)} and XACRO_PATH")
    return _expanded(module, path, options)


def _expanded(module: Any, path: str, options: dict[str, Any]) -> Model:
    """Loads a description in xacro. Arguments and packages of the caller override those of the description."""
    from robodyn.io.builders.xacro import load_xacro

    with foreign(f"the module {quoted(module.__name__)}"):
        args = {**getattr(module, "XACRO_ARGS", {}), **options.pop("args", {})}
        packages = {**getattr(module, "XACRO_PACKAGE_PATHS", {})}
    return load_xacro(path, args, options.pop("package_dirs", packages), **options)


def _module(name: str) -> Any:
    """The module of a description. Its import downloads the robot."""
    try:
        package = import_module("robot_descriptions")
    except ImportError as error:
        raise UnavailableError(
            f"load_description: robot_descriptions cannot be imported here ({error}): {install('descriptions')}"
        ) from error
    known = [each.name for each in pkgutil.iter_modules(package.__path__) if each.name.endswith("_description")]
    if not _NAME.fullmatch(name) or name not in known:
        near = ", ".join(quoted(each) for each in near_misses(name, sorted(known), 5))
        raise ArgumentError(f"name: there is no description {quoted(name)}; near it are {near}")
    try:
        return import_module(f"robot_descriptions.{name}")
    except MemoryError:
        raise
    except Exception as error:
        raise UnavailableError(f"load_description: {name} could not be fetched: {brief(error)}") from error
