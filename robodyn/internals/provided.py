"""Functions of higher rooms that lower ones call.

No room imports one above it. But methods of a model write files, draw and assemble, which is done by rooms that are
built on models. The package, which knows all of its rooms, tells the lower ones where these functions are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Say in which modules functions are, by their names."""
    _HOMES.update(homes)


def provided(name: str) -> Callable[..., Any]:
    """A function of a higher room, which is imported when it is first asked for."""
    found: Callable[..., Any] = getattr(import_module(_HOMES[name]), name)
    return found
