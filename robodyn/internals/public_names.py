"""Public names of modules that are deeper in the package: `import robodyn.jax` imports `robodyn.bridges.jax`.

Both names refer to one module object. Retired names raise a DeprecationWarning, as docs/public.md says.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

_TOP = "robodyn."
HOMES = {
    "casadi": "bridges.casadi",
    "conventions": "io.conventions",
    "costs": "solve.trajectories.costs",
    "description": "core.description",
    "distributed": "bridges.distributed",
    "errors": "internals.errors",
    "hardware": "tools.hardware",
    "inertial_parameters": "core.inertial_parameters",
    "jax": "bridges.jax",
    "joints": "core.joints",
    "plots": "tools.plots",
    "simulators": "bridges.simulators",
    "spatial": "core.spatial",
    "sweeps": "core.sweeps",
    "testing": "tools.testing",
    "torch": "bridges.torch",
}
RETIRED = {"chains": "algorithms.tasks", "questions": "engines.query_table"}


class _Alias(Loader):
    """Loads a module under its public name: imports it under its real name and returns it unchanged."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module under its real name."""
        module = import_module(self._home)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which Python has replaced with that of the public name."""
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module, for `python -m`."""
        spec = find_spec(self._home)
        loader: Any = None if spec is None else spec.loader
        code: CodeType | None = None if loader is None else loader.get_code(self._home)
        return code


def spec_of(fullname: str) -> ModuleSpec | None:
    """The spec of a module, or a submodule, by its public name; None for all other names."""
    first, _, rest = fullname.removeprefix(_TOP).partition(".")
    home = HOMES.get(first) or RETIRED.get(first)
    if home is None:
        return None
    name = f"{_TOP}{home}.{rest}" if rest else _TOP + home
    if rest and find_spec(name) is None:
        return None
    if first in RETIRED and not rest:
        text = f"robodyn.{first} is now robodyn.{home}; the old name goes in version 0.4"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    return ModuleSpec(fullname, _Alias(name), origin=name)
