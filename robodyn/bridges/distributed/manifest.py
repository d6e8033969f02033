"""The manifest of a map: a description of its computation, compared to decide whether another call may resume it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.bridges.distributed.identity import UncertainError, identity
from robodyn.bridges.distributed.inputs import MapCall
from robodyn.bridges.distributed.reductions import Reduction
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import integer
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.version import __version__


class Manifest:
    """Describes the computation of a map by texts that are the same in every process."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.words = words
        self.unknown: list[str] = []
        """Reasons for entries that are None."""
        self.functions: dict[str, str] = {}
        """Hashes of functions, which workers compare with theirs."""

    def add(self, name: str, words: Callable[[], str]) -> None:
        """Add an entry; None, with the reason in `unknown`, if its identity is uncertain."""
        try:
            self.words[name] = words()
        except UncertainError as error:
            self.words[name] = None
            self.unknown.append(str(error))

    def function(self, name: str, value: Any, by_key: bool) -> str:
        """The hash of an argument that is a function."""
        digest = identity(name, value, by_key)
        if value is not None and not by_key:
            self.functions[name] = digest
        return digest


def manifest_of(dyn: Dynamics, asked: MapCall, reducing: Reduction | None, key: str | None) -> Manifest:
    """The manifest of a map. The version stands for robodyn's own code."""
    inputs, by_key = asked.inputs, key is not None
    options = {name: value for name, value in dyn._arguments.items() if name not in ("threads", "compile")}
    entries = Manifest(
        {
            "version": __version__,
            "query": asked.question.name,
            "states": inputs.states,
            "chunk": inputs.chunk,
            "key": key or "",
        }
    )
    entries.add("robot", lambda: _robot(dyn, by_key))
    entries.add("dynamics", lambda: f"{dyn.engine.name} {identity('dyn', options, by_key)}")
    entries.add("inputs", lambda: inputs.digest(by_key))
    drawn = "" if inputs.seeds is None else f"numpy {np.__version__} "  # other versions may draw other numbers
    entries.add("draw", lambda: drawn + entries.function("draw", inputs.draw, by_key))
    entries.add("reduce", lambda: entries.function("reduce", reducing, by_key))
    entries.add(
        "arguments", lambda: identity("arguments", {name: _plain(each) for name, each in sorted(asked.choices.items())})
    )
    return entries


def _plain(value: Any) -> Any:
    """Convert names and numbers of links to plain Python types, so that equivalent arguments get the same hash."""
    if strict_types.is_a(value, list, tuple):
        return [_plain(each) for each in strict_types.members(value)]
    text, number = strict_types.text_or_none(value), integer(value)
    return next((each for each in (text, number) if each is not None), value)


def _robot(dyn: Dynamics, by_key: bool) -> str:
    """Name and digest of a robot, including its constraints.

    Raises:
        UncertainError: its class is the user's, whose methods may differ.
    """
    if not by_key and (type(dyn) is not Dynamics or type(dyn.model) is not Model):
        raise UncertainError(
            f"dyn: {strict_types.type_name(dyn)} of a {strict_types.type_name(dyn.model)}, not both robodyn's own"
        )
    return f"{quoted(dyn.model.name)} {dyn.model.digest}"


_LONGEST_KEY = 200


def key_of(given: Any) -> str | None:
    """Check the user's argument `key`.

    Raises:
        ArgumentError: it is neither None nor a short printable text.
    """
    if given is None:
        return None
    text = strict_types.text_or_none(given)
    if text is None or not 0 < len(text) <= _LONGEST_KEY or not text.isprintable():
        raise ArgumentError(f"key: got {brief(given)}; wanted 1 to {_LONGEST_KEY} characters that can be printed")
    return text
