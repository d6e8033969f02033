"""What pages store: data classes as JSON, lists of alike records as tables, numbers to six digits, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import ROUND_05UP, Context
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_DIGITS = Context(prec=6, rounding=ROUND_05UP)
"""A number that is rounded like this, and on a page to fewer digits, is the same as one that is rounded once."""


def save(path: Path, about: Mapping[str, str], found: Any) -> None:
    """Write what was measured, and what it holds for."""
    parts = {field.name: _plain(getattr(found, field.name)) for field in fields(found)}
    path.write_text(_text({"about": dict(about), **parts}) + "\n")


def load(path: Path, kind: type) -> tuple[dict[str, str], Any]:
    """What `save` wrote: what it holds for, and an object of a data class."""
    document = json.loads(path.read_text())
    return document.pop("about"), _restored(kind, document)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, float):
        return float(_DIGITS.create_decimal(repr(float(value))))
    if not isinstance(value, list | tuple):
        return value
    rows = [_plain(each) for each in value]
    if len(rows) > 1 and all(isinstance(each, dict) and list(each) == list(rows[0]) for each in rows):
        return {"columns": list(rows[0]), "rows": [list(each.values()) for each in rows]}
    return rows


def _restored(kind: Any, value: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kind = next((each for each in arguments if is_dataclass(each) or get_args(each)), None)
        return value if value is None or kind is None or isinstance(value, str) else _restored(kind, value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _restored(hints[name], each) for name, each in value.items()})
    if isinstance(value, dict) and value.keys() == {"columns", "rows"}:
        value = [dict(zip(value["columns"], row, strict=True)) for row in value["rows"]]
    if isinstance(value, list):
        each_kind = arguments[0] if arguments else Any
        return (tuple if get_origin(kind) is tuple else list)(_restored(each_kind, each) for each in value)
    if isinstance(value, dict) and arguments:
        return {arguments[0](key): _restored(arguments[1], each) for key, each in value.items()}
    return value


def _text(value: Any) -> str:
    """Lists and mappings of others over several lines, all else in one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(each, list | dict) for each in inner):
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_text, value)) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_text(each)}" for key, each in value.items()) + "\n}"
