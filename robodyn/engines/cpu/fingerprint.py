"""Descriptions of tasks as text that is the same in every process, for cache keys: names of tasks are not unique."""

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
    """A description of a task's parts, sweeps, fields, functions and values in closures. And a flag: True if all
    functions belong to robodyn, whose sources are part of cache keys; code of other functions may change unnoticed."""
    description = _KNOWN.get(task)
    if description is None:
        own: list[bool] = []
        description = _KNOWN[task] = (_described(task, own), all(own))
    return description


def _described(value: Any, own: list[bool]) -> str:
    """A description of a value. A flag is appended to `own` for each function: True if it is robodyn's."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, FunctionType):
        own.append(value.__module__.startswith("robodyn."))
        closure = [cell.cell_contents for cell in value.__closure__ or ()]
        # Names of functions are not unique, e.g. of lambdas; the line number distinguishes them.
        where = value.__module__, value.__qualname__, value.__code__.co_firstlineno
        return f"{where}{_described(closure, own)}{_described(value.__defaults__ or (), own)}"
    if isinstance(value, partial):
        return f"partial({_described((value.func, value.args, value.keywords), own)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_described(each, own)}" for key, each in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(_described(each, own) for each in value)})"
    if is_dataclass(value) and not isinstance(value, type):
        parts = ", ".join(_described(getattr(value, field.name), own) for field in fields(value))
        return f"{type(value).__name__}({parts})"
    own.append(False)  # a value of unknown type: its description may be incomplete
    return repr(type(value))
