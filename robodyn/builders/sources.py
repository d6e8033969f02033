"""Robot files as bytes: from a path, a text, bytes or a file object, with nothing else opened or waited for."""

from __future__ import annotations

import os
import re
import stat

from robodyn.builders.findings import quoted
from robodyn.errors import ArgumentError, LoadError

MAX_BYTES = 64 * 1024 * 1024
"""Largest robot file that is read; the largest real one known is below 1 MiB."""

_LONGEST_NAME = 255
"""Longer than this, what was given as a path was meant as a text."""

ALLOWED = "a path, XML text that begins with '<', bytes, an open file, or a robot object of urdfpy, urchin or yourdfpy"
"""What a robot may be read from, for messages."""

_PATH = 300
"""So many characters of a path are quoted in a message."""

_XML_TEXT = re.compile(r"\ufeff?\s*<")
_DECLARATION = re.compile(r"\ufeff?\s*<\?xml\s[^>]*\?>")


def read_source(source: object) -> bytes:
    """The bytes of a robot file.

    `source`: a path (str or os.PathLike), XML text (a str whose first character, blanks and a byte-order mark
    aside, is "<"), bytes, or an open text or binary file, which is read to its end and not closed. Raises LoadError
    where there is nothing to read or more than `MAX_BYTES`, ArgumentError for any other kind of source.
    """
    if isinstance(source, str):
        data = _encoded(source) if _XML_TEXT.match(source) else _from_path(source)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, os.PathLike):
        data = _from_path(os.fsdecode(source))
    elif callable(getattr(source, "read", None)):
        data = _from_file(source)
    else:
        raise ArgumentError(f"cannot read a robot from an object of type {type(source).__name__}; give {ALLOWED}")
    if len(data) > MAX_BYTES:
        raise _too_large("the source")
    if not data.strip():
        raise LoadError("the source is empty; a robot file holds a <robot> element")
    return data


def _too_large(name: str) -> LoadError:
    return LoadError(f"{name} is larger than {MAX_BYTES} bytes, the most that is read")


def _encoded(text: str) -> bytes:
    """UTF-8 bytes of XML text. Its declaration is blanked, because the encoding it names is not that of these bytes;
    line breaks stay, so that line numbers stay true."""
    declaration = _DECLARATION.match(text)
    if declaration:
        text = re.sub(r"[^\r\n]", " ", declaration[0]) + text[declaration.end() :]
    try:
        return text.removeprefix("\ufeff").encode("utf-8")
    except UnicodeEncodeError as error:
        raise LoadError(f"the XML text cannot be encoded: {error}") from None


def _from_path(path: str) -> bytes:
    """Read a regular file and refuse anything that could block, such as a pipe or a device."""
    if not path.strip():
        raise LoadError(f"the path {quoted(path)} is blank; give {ALLOWED}")
    name = f"the file {quoted(path, most=_PATH)}"
    try:
        _require_regular(os.stat(path).st_mode, name)  # noqa: PTH116 - before opening, which may act on a device
        # The file may have changed since: O_NONBLOCK keeps even a pipe from blocking the second look.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            _require_regular(os.fstat(descriptor).st_mode, name)
            data = file.read(MAX_BYTES + 1)
    except LoadError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        text = "; a text counts as XML only if it begins with '<'" if "<" in path or len(path) > _LONGEST_NAME else ""
        raise LoadError(f"cannot read {name}: {reason}{text}") from None
    if len(data) > MAX_BYTES:
        raise _too_large(name)
    return data


def _require_regular(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise LoadError(f"{name} is a directory; give a robot file")
    if not stat.S_ISREG(mode):
        raise LoadError(f"{name} is a pipe, device or socket; give a regular file")


def _from_file(file: object) -> bytes:
    """Everything an open file gives, text or binary, up to one character more than allowed."""
    chunks: list[str | bytes] = []
    left = MAX_BYTES + 1
    while left > 0:
        try:
            chunk = file.read(left)  # type: ignore[attr-defined]
        except Exception as error:  # a foreign object may raise anything
            raise LoadError(f"cannot read the open file: {error}") from error
        if not isinstance(chunk, (str, bytes)) or (chunks and type(chunk) is not type(chunks[0])):
            raise LoadError(f"reading the open file gave {type(chunk).__name__}; it must give text or bytes")
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    if chunks and isinstance(chunks[0], str):
        return _encoded("".join(chunk for chunk in chunks if isinstance(chunk, str)))
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
