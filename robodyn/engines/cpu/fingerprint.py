"""What a task is made of, in words that are the same in every process: two tasks of one name need not be the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from robodyn.algorithms.tasks import Traceable

_PLAIN = (str, int, float, bool, type(None))
_KNOWN: WeakKeyDictionary[Traceable, tuple[str, bool]] = WeakKeyDictionary()


def fingerprint(task: Traceable) -> tuple[str, bool]:
    """A task's parts, sweeps and fields, and their functions by name, with what these have closed over; and whether all
    functions are robodyn's own, whose sources are part of a key where others may change."""
    found = _KNOWN.get(task)
    if found is None:
        own: list[bool] = []
        found = _KNOWN[task] = (_described(task, own), all(own))
    return found


def _described(value: Any, own: list[bool]) -> str:
    """A value in words; `own` gets whether each function met is robodyn's."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, FunctionType):
        own.append(value.__module__.startswith("robodyn."))
        inside = [cell.cell_contents for cell in value.__closure__ or ()]
        # Two functions may have one name, such as a lambda's: the line tells them apart.
        where = value.__module__, value.__qualname__, value.__code__.co_firstlineno
        return f"{where}{_described(inside, own)}{_described(value.__defaults__ or (), own)}"
    if isinstance(value, partial):
        return f"partial({_described((value.func, value.args, value.keywords), own)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_described(each, own)}" for key, each in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(_described(each, own) for each in value)})"
    if is_dataclass(value) and not isinstance(value, type):
        parts = ", ".join(_described(getattr(value, field.name), own) for field in fields(value))
        return f"{type(value).__name__}({parts})"
    own.append(False)  # nothing is known of what else there may be
    return repr(type(value))
