"""Functions of higher packages that lower ones call.

No package imports a higher one. But methods of a model write files, draw and assemble, which packages above the model
implement. `robodyn/__init__.py`, which knows all packages, registers where these functions are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Register the modules of functions, by the functions' names."""
    _HOMES.update(homes)


def provided(name: str) -> Callable[..., Any]:
    """A function of a higher package, imported on first use."""
    function: Callable[..., Any] = getattr(import_module(_HOMES[name]), name)
    return function
