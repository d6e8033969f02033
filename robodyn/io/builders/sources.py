"""Reads robot files as bytes, from a path, a text, bytes or a file object. No other file is opened."""

from __future__ import annotations

import codecs
import os
import re
from typing import Any

from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.files import LONGEST_PATH, read_regular
from robodyn.internals.messages import quoted
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.formats import reads_object

MAX_BYTES = 64 * 1024 * 1024
"""Largest robot file that is read, in bytes. The largest known real one is below 1 MiB."""

_LONGEST_NAME = 255
"""Characters of the longest file name. A longer path was probably meant as XML text."""

ALLOWED = "a path, XML text that begins with '<', bytes, an open file, or a robot object of urdfpy, urchin or yourdfpy"
"""Supported sources of a robot, for error messages."""

_CHUNK = 1 << 20
_MOST_READS = 100_000
"""Most reads of an open file. The limit stops files that never end."""

_UTF_32 = tuple(first.encode(codec) for first in "\ufeff< \t\r\n" for codec in ("utf-32-le", "utf-32-be"))
"""First bytes of XML in UTF-32. UTF-16 never begins like this: its second character would be null, which XML forbids.
"""

_XML_TEXT = re.compile(r"\ufeff?[ \t\r\n]*<")
_LATE_DECLARATION = re.compile(rb"(\xef\xbb\xbf)?(\s+)(<\?xml\s[^>]*\?>)")
_DECLARATION = re.compile(r"\ufeff?[ \t\r\n]*<\?xml\s[^>]*\?>")
_LATE_IN_TEXT = re.compile(r"[ \t\r\n]+<\?xml\s")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_source(source: Any) -> bytes:
    """The bytes of a robot file.

    Args:
        source: a path (str or os.PathLike), XML text (a str that begins with "<" after blanks and a byte-order mark),
            bytes, or an open text or binary file, which is read to its end and not closed.

    Raises:
        LoadError: the source is empty, larger than `MAX_BYTES` or cannot be read.
        ArgumentError: any other kind of source.
    """
    text = strict_types.text_or_none(source)
    if (path := path_of(source)) is not None:
        return read_path(path)
    if text is not None:
        data = _encoded(text)
    elif strict_types.is_a(source, bytes, bytearray, memoryview):
        with foreign("the bytes"):  # a memoryview may have been released
            data = bytes(memoryview(source))
    elif readable(source):
        data = _from_file(source)
    else:
        kind = strict_types.type_name(source)
        raise ArgumentError(f"cannot read a robot from an object of type {kind}; give {ALLOWED}{reads_object(source)}")
    return _checked_bytes(data)


def read_path(path: str) -> bytes:
    """The bytes of the robot file at a path; raises as `read_source` does."""
    return _checked_bytes(_from_path(path))


def path_of(source: Any) -> str | None:
    """The path of a source; None if the source is no path.

    Raises:
        LoadError: an os.PathLike object raises an error.
    """
    text = strict_types.text_or_none(source)
    if text is not None:
        return None if is_xml_text(text) else text
    if not strict_types.is_a(source, os.PathLike):
        return None
    with foreign(f"the path of an object of type {strict_types.type_name(source)}"):
        return strict_types.text(os.fsdecode(source))


def _checked_bytes(data: bytes) -> bytes:
    """Checks the bytes of a source, and removes blanks before an XML declaration."""
    if len(data) > MAX_BYTES:
        raise _too_large("the source")
    if not data.strip():
        raise LoadError("the source is empty; a robot file holds a <robot> element")
    if late := _LATE_DECLARATION.match(data):
        # XML requires the declaration to come first. Blanks before it are moved behind it, which keeps line numbers.
        data = late[3] + late[2] + data[late.end() :]
    elif data.startswith(_UTF_16) and not data.startswith(_UTF_32):
        text = data.decode("utf-16", errors="ignore")
        data = _encoded(text) if _LATE_IN_TEXT.match(text) else data
    if data.startswith(_UTF_32):
        raise LoadError("the source is encoded as UTF-32, which XML parsers do not read; save it as UTF-8")
    return data


def is_xml_text(text: str) -> bool:
    """True if a text is XML and no path: it begins with "<" after blanks and a byte-order mark."""
    return _XML_TEXT.match(text) is not None


def _too_large(name: str) -> LoadError:
    return LoadError(f"{name} is larger than {MAX_BYTES} bytes, the most that is read")


def decoded(data: bytes) -> bytes:
    """Converts XML in UTF-16 to UTF-8. Other data is returned unchanged."""
    if not data.startswith(_UTF_16):
        return data
    try:
        return _encoded(data.decode("utf-16"))
    except UnicodeDecodeError as error:
        raise LoadError(f"the XML is no UTF-16, as its first bytes say: {error}") from None


def _encoded(text: str) -> bytes:
    """Encodes XML text as UTF-8.

    The XML declaration is replaced by blanks, because the encoding in it may differ. Line breaks are kept, so that line
    numbers stay correct.
    """
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
    name = f"the file {quoted(path, most=LONGEST_PATH)}"
    try:
        data = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        text = "; a text counts as XML only if it begins with '<'" if "<" in path or len(path) > _LONGEST_NAME else ""
        raise LoadError(f"cannot read {name}: {reason}{text}") from None
    if len(data) > MAX_BYTES:
        raise _too_large(name)
    return data


def readable(source: object) -> bool:
    """True if an object is an open file.

    Raises:
        LoadError: access to the object's attributes raises an error.
    """
    with foreign(f"an object of type {strict_types.type_name(source)}"):
        return callable(getattr(source, "read", None))


def _from_file(file: object) -> bytes:
    """Reads an open text or binary file to its end, or to one character beyond `MAX_BYTES`."""
    texts: list[Any] = []
    pieces: list[Any] = []
    remaining = MAX_BYTES + 1
    while remaining > 0:
        with foreign("the open file"):
            chunk = file.read(min(remaining, _CHUNK))  # type: ignore[attr-defined]
            piece = chunk if type(chunk) is bytes else _plain_chunk(chunk)
        if not piece:
            break
        (texts if type(piece) is str else pieces).append(piece)
        if texts and pieces:
            raise LoadError("reading the open file gave text as well as bytes; it must give the one or the other")
        if len(texts) + len(pieces) > _MOST_READS:
            raise LoadError(f"the open file has no end after {_MOST_READS} reads; give what it holds as text or bytes")
        remaining -= len(piece)
    return _encoded("".join(texts)) if texts else b"".join(pieces)


def _plain_chunk(chunk: Any) -> str | bytes:
    """Converts an instance of a subclass of str or bytes to str or bytes."""
    if strict_types.is_a(chunk, str):
        return strict_types.text(chunk)
    if strict_types.is_a(chunk, bytes):
        return bytes(memoryview(chunk))
    raise LoadError(f"reading the open file gave {strict_types.type_name(chunk)}; it must give text or bytes")
