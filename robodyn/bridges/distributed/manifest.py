"""What a map computes, in words by which another call is known as the same."""

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
    """What a map computes, in words that are the same in every process."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.words = words
        self.unknown: list[str] = []
        """Why some of them are missing, which are None."""
        self.functions: dict[str, str] = {}
        """Hashes of functions that workers can compare with theirs."""

    def add(self, name: str, words: Callable[[], str]) -> None:
        """Words by name, or why they are not certain."""
        try:
            self.words[name] = words()
        except UncertainError as error:
            self.words[name] = None
            self.unknown.append(str(error))

    def function(self, name: str, value: Any, by_key: bool) -> str:
        """The hash of an argument."""
        found = identity(name, value, by_key)
        if value is not None and not by_key:
            self.functions[name] = found
        return found


def manifest_of(dyn: Dynamics, asked: MapCall, reducing: Reduction | None, key: str | None) -> Manifest:
    """What a map computes. Its version stands for what is robodyn's."""
    inputs, by_key = asked.inputs, key is not None
    options = {name: value for name, value in dyn._arguments.items() if name not in ("threads", "compile")}
    found = Manifest(
        {
            "version": __version__,
            "query": asked.question.name,
            "states": inputs.states,
            "chunk": inputs.chunk,
            "key": key or "",
        }
    )
    found.add("robot", lambda: _robot(dyn, by_key))
    found.add("dynamics", lambda: f"{dyn.engine.name} {identity('dyn', options, by_key)}")
    found.add("inputs", lambda: inputs.digest(by_key))
    drawn = "" if inputs.seeds is None else f"numpy {np.__version__} "  # its generators may draw other numbers
    found.add("draw", lambda: drawn + found.function("draw", inputs.draw, by_key))
    found.add("reduce", lambda: found.function("reduce", reducing, by_key))
    found.add(
        "arguments", lambda: identity("arguments", {name: _plain(each) for name, each in sorted(asked.choices.items())})
    )
    return found


def _plain(value: Any) -> Any:
    """A name or number of a link, or several, of Python's own types: what a call takes for the same is the same."""
    if strict_types.is_a(value, list, tuple):
        return [_plain(each) for each in strict_types.members(value)]
    text, number = strict_types.text_or_none(value), integer(value)
    return next((each for each in (text, number) if each is not None), value)


def _robot(dyn: Dynamics, by_key: bool) -> str:
    """What a robot is known by, its constraints included.

    Raises:
        UncertainError: it is of a class of the user's, which may answer otherwise.
    """
    if not by_key and (type(dyn) is not Dynamics or type(dyn.model) is not Model):
        raise UncertainError(
            f"dyn: {strict_types.type_name(dyn)} of a {strict_types.type_name(dyn.model)}, not both robodyn's own"
        )
    return f"{quoted(dyn.model.name)} {dyn.model.digest}"


_LONGEST_KEY = 200


def key_of(given: Any) -> str | None:
    """A name that a user gave, or None.

    Raises:
        ArgumentError: it is no word.
    """
    if given is None:
        return None
    text = strict_types.text_or_none(given)
    if text is None or not 0 < len(text) <= _LONGEST_KEY or not text.isprintable():
        raise ArgumentError(f"key: got {brief(given)}; wanted 1 to {_LONGEST_KEY} characters that can be printed")
    return text
