"""Foreign names, texts and objects in messages and tables: short, and safe to print."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

from robodyn.internals import strict_types
from robodyn.internals.package import FOLDER

_SHOWN = 60
"""Most characters of a foreign text in a message."""

_COMPARED, _LONGEST_COMPARED = 1000, 64
"""Most names, and their longest length, that are compared with a misspelt one: the time is quadratic in the length."""


def printable(text: str) -> str:
    """`text` with unprintable characters, such as control characters and line breaks, as escapes."""
    text = strict_types.text(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, most: int) -> str:
    """`text` cut to `most` characters."""
    text = strict_types.text(text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str, most: int = _SHOWN) -> str:
    """`text` in double quotes for a message: cut to `most` characters, with unprintable ones as escapes."""
    if type(text) is str and len(text) <= most and text.isprintable():
        return f'"{text}"'
    return f'"{printable(shortened(text, most))}"'


def brief(value: Any) -> str:
    """The shortened repr of any object for a message.

    Objects without a repr show their type. Arrays on a GPU show type and shape: their repr would copy them to the host.
    """
    try:
        on_gpu = hasattr(value, "__cuda_array_interface__")
        text = (
            f"<{strict_types.type_name(value)} of shape {tuple(value.shape)}>"
            if on_gpu
            else strict_types.text(repr(value))
        )
    except Exception:  # a foreign object may raise anything, and a very long int refuses
        text = f"<{strict_types.type_name(value)}>"
    return printable(shortened(text, _SHOWN))


def alike(word: str, names: Iterable[str]) -> int | None:
    """Index of a name that differs from `word` in case only, among the first thousand, or None."""
    wanted = word.casefold()
    return next((i for i, name in enumerate(islice(names, _COMPARED)) if name.casefold() == wanted), None)


def near_misses(word: str, names: Iterable[str], otherwise: int) -> list[str]:
    """Up to three names similar to `word`, ignoring case; the first `otherwise` names if none is similar.

    Only the first thousand names are compared.
    """
    import difflib  # used for errors only

    first = list(islice(names, max(_COMPARED, otherwise)))
    short: dict[str, list[str]] = {}
    for name in first:
        if len(name) <= _LONGEST_COMPARED:
            short.setdefault(name.casefold(), []).append(name)
    near = difflib.get_close_matches(word.casefold(), short, n=3) if len(word) <= _LONGEST_COMPARED else []
    return [name for each in near for name in short[each]][:3] or first[:otherwise]


_PACKAGE = str(FOLDER)


def users_line() -> int:
    """The `stacklevel` at which a warning from the caller names the user's line: the first outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def install(extra: str) -> str:
    """How to install an extra. robodyn is on no index of packages yet, so this is done in its clone."""
    return f'pip install ".[{extra}]" in the clone of robodyn'
