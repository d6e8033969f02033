"""Robot files as bytes: from a path, a text, bytes or a file object, with nothing else opened or waited for."""

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
"""Largest robot file that is read; the largest real one known is below 1 MiB."""

_LONGEST_NAME = 255
"""Longer than this, what was given as a path was meant as a text."""

ALLOWED = "a path, XML text that begins with '<', bytes, an open file, or a robot object of urdfpy, urchin or yourdfpy"
"""What a robot may be read from, for messages."""

_CHUNK = 1 << 20
_MOST_READS = 100_000
"""An open file that gives next to nothing at each read ends after this many reads."""

_UTF_32 = tuple(first.encode(codec) for first in "\ufeff< \t\r\n" for codec in ("utf-32-le", "utf-32-be"))
"""How XML in UTF-32 begins. UTF-16 never begins so: its second character would be null, which XML does not allow."""

_XML_TEXT = re.compile(r"\ufeff?[ \t\r\n]*<")
_LATE_DECLARATION = re.compile(rb"(\xef\xbb\xbf)?(\s+)(<\?xml\s[^>]*\?>)")
_DECLARATION = re.compile(r"\ufeff?[ \t\r\n]*<\?xml\s[^>]*\?>")
_LATE_IN_TEXT = re.compile(r"[ \t\r\n]+<\?xml\s")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_source(source: Any) -> bytes:
    """The bytes of a robot file.

    `source`: a path (str or os.PathLike), XML text (a str whose first character, blanks and a byte-order mark
    aside, is "<"), bytes, or an open text or binary file, which is read to its end and not closed. Raises LoadError
    where there is nothing to read or more than `MAX_BYTES`, ArgumentError for any other kind of source.
    """
    given = strict_types.text_or_none(source)
    if (path := path_of(source)) is not None:
        return read_path(path)
    if given is not None:
        data = _encoded(given)
    elif strict_types.is_a(source, bytes, bytearray, memoryview):
        with foreign("the bytes"):  # a memoryview may have been released
            data = bytes(memoryview(source))
    elif readable(source):
        data = _from_file(source)
    else:
        kind = strict_types.type_name(source)
        raise ArgumentError(f"cannot read a robot from an object of type {kind}; give {ALLOWED}{reads_object(source)}")
    return _looked_through(data)


def read_path(path: str) -> bytes:
    """The bytes of the robot file at a path; raises as `read_source` does."""
    return _looked_through(_from_path(path))


def path_of(source: Any) -> str | None:
    """The path that a source is; None for XML text and all else.

    Raises:
        LoadError: an object that should give a path, and raises.
    """
    given = strict_types.text_or_none(source)
    if given is not None:
        return None if is_xml_text(given) else given
    if not strict_types.is_a(source, os.PathLike):
        return None
    with foreign(f"the path of an object of type {strict_types.type_name(source)}"):
        return strict_types.text(os.fsdecode(source))


def _looked_through(data: bytes) -> bytes:
    """The bytes of a source in a form that XML parsers take."""
    if len(data) > MAX_BYTES:
        raise _too_large("the source")
    if not data.strip():
        raise LoadError("the source is empty; a robot file holds a <robot> element")
    if late := _LATE_DECLARATION.match(data):
        # XML wants it first; as in texts, blanks before it are let pass. Lines keep their numbers.
        data = late[3] + late[2] + data[late.end() :]
    elif data.startswith(_UTF_16) and not data.startswith(_UTF_32):
        text = data.decode("utf-16", errors="ignore")
        data = _encoded(text) if _LATE_IN_TEXT.match(text) else data
    if data.startswith(_UTF_32):
        raise LoadError("the source is encoded as UTF-32, which XML parsers do not read; save it as UTF-8")
    return data


def is_xml_text(text: str) -> bool:
    """Whether a text is XML, and no path: blanks and a byte-order mark aside, it begins with "<"."""
    return _XML_TEXT.match(text) is not None


def _too_large(name: str) -> LoadError:
    return LoadError(f"{name} is larger than {MAX_BYTES} bytes, the most that is read")


def decoded(data: bytes) -> bytes:
    """The same XML in UTF-8 where it was in UTF-16; everything else as it is."""
    if not data.startswith(_UTF_16):
        return data
    try:
        return _encoded(data.decode("utf-16"))
    except UnicodeDecodeError as error:
        raise LoadError(f"the XML is no UTF-16, as its first bytes say: {error}") from None


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
    """Whether an object is an open file.

    Raises:
        LoadError: it raises as it is looked at.
    """
    with foreign(f"an object of type {strict_types.type_name(source)}"):
        return callable(getattr(source, "read", None))


def _from_file(file: object) -> bytes:
    """Everything an open file gives, text or binary, up to one character more than allowed."""
    texts: list[Any] = []
    pieces: list[Any] = []
    left = MAX_BYTES + 1
    while left > 0:
        with foreign("the open file"):
            chunk = file.read(min(left, _CHUNK))  # type: ignore[attr-defined]
            piece = chunk if type(chunk) is bytes else _exact_chunk(chunk)
        if not piece:
            break
        (texts if type(piece) is str else pieces).append(piece)
        if texts and pieces:
            raise LoadError("reading the open file gave text as well as bytes; it must give the one or the other")
        if len(texts) + len(pieces) > _MOST_READS:
            raise LoadError(f"the open file has no end after {_MOST_READS} reads; give what it holds as text or bytes")
        left -= len(piece)
    return _encoded("".join(texts)) if texts else b"".join(pieces)


def _exact_chunk(chunk: Any) -> str | bytes:
    """What a file gave, of a subclass of str or bytes."""
    if strict_types.is_a(chunk, str):
        return strict_types.text(chunk)
    if strict_types.is_a(chunk, bytes):
        return bytes(memoryview(chunk))
    raise LoadError(f"reading the open file gave {strict_types.type_name(chunk)}; it must give text or bytes")
