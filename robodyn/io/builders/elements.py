"""A safe XML parser with line numbers: no DTD, no entities, no external files, bounded size."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, repeat
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from robodyn.core.findings import Notes
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.formats import reads_bytes, reads_root
from robodyn.io.builders.mend import DOCUMENT_TYPE, LATE, mend

MAX_DEPTH = 100
"""Deepest nesting of elements. Robot files have about eight levels."""

MAX_ELEMENTS = 2_000_000
"""Largest number of elements. It bounds memory and time for a hostile file of `MAX_BYTES`."""


_TEXT = re.compile(rb">\s*+[^<]")
"""Matches the beginning of a text after a tag, a comment or an instruction. Some attributes and comments match, too."""

_LATE = "XML or text declaration not at start of entity"
_INVALID = "not well-formed (invalid token)"
"""Expat's error messages."""

_SHOWN = 20
"""Bytes of an invalid XML token that an error message shows."""


_WHITE = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
"""White space that parsers keep in attributes only if it is escaped."""


class Element:
    """An XML element: tag and attributes as written (prefixes included), children, and line in the file.

    `pieces` is the text between its tags in the pieces that the parser delivers, None if it is blank.
    """

    __slots__ = ("attributes", "children", "line", "pieces", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.children: list[Element] = []
        self.pieces: list[str] | None = None

    @property
    def text(self) -> str:
        """The text between its tags, without surrounding blanks."""
        return "".join(self.pieces or ()).strip(" \t\r\n")


def parse_xml(
    data: bytes,
    root: str | tuple[str, ...] | None,
    opaque: frozenset[str],
    take: Callable[[Element], None],
    texts: bool = False,
    depth: int = MAX_DEPTH,
    notes: Notes | None = None,
) -> Element:
    """Parse an XML document and return its root element.

    Args:
        data: the document.
        root: required tag of the root element, or several allowed ones; None for any.
        opaque: tags of elements whose contents are skipped.
        take: called with each child of the root when the next child begins. The child is not kept, so the whole tree
            is never in memory.
        texts: True to keep all texts. They are also kept if some text in the document is not blank.
        depth: deepest nesting of elements.
        notes: collects findings about errors that other programs tolerate (`robodyn.io.builders.mend`). If it is None,
            such errors are refused.

    Raises:
        LoadError: no well-formed XML, a DTD or entities, another root, a nesting deeper than `depth`, or more than
            `MAX_ELEMENTS` elements.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse  # entities and external files need a DTD
    nothing = Element("", {}, None)
    opened = [nothing] * depth  # path from the root to the latest element, which may have ended
    ended: list[str] = []  # tags of ended elements: count - len(ended) elements are open
    roots = (root,) if isinstance(root, str) else root or ()
    has_text = texts or _may_have_text(data)
    count = inside = 0  # `count`: elements so far; `inside`: depth of an open opaque element, else 0
    taken = 0  # calls of `take` so far

    # The handlers run for every tag. They are nested functions, because access to shared variables is cheap there. The
    # end of an element calls `list.append` directly, without a Python function.

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count, inside, taken
        above = count - len(ended)
        count += 1
        if above >= depth or count > MAX_ELEMENTS:
            refuse()
        if inside:
            if above >= inside:
                return
            inside = 0
        element = Element(name, attributes, parser.CurrentLineNumber)
        if above > 1:
            opened[above - 1].children.append(element)
        elif not above:
            if roots and name not in roots:
                raise LoadError(
                    f"not a robot file: the root element is {quoted(name)}, not {quoted(roots[0])}"
                    + reads_root(name, attributes)
                )
        elif count > 2:
            take(opened[1])
            taken += 1
        opened[above] = element
        if name in opaque:
            inside = above + 1
            if has_text:
                parser.CharacterDataHandler, parser.EndElementHandler = None, end_unheard

    def end_unheard(name: str) -> None:
        ended.append(name)
        if count - len(ended) < inside:
            parser.CharacterDataHandler, parser.EndElementHandler = note_text, ended.append

    def refuse() -> NoReturn:
        if count > MAX_ELEMENTS:
            raise LoadError(f"the file holds more than {MAX_ELEMENTS} elements, the most that are read")
        raise LoadError(f"line {parser.CurrentLineNumber}: elements are nested more than {depth} deep")

    def note_text(data: str) -> None:
        if data.isspace():
            return
        element = opened[count - len(ended) - 1]
        if element.pieces is None:
            element.pieces = []
        element.pieces.append(data)

    parser.StartElementHandler, parser.EndElementHandler = start, ended.append
    if has_text:
        parser.buffer_text = True
        parser.CharacterDataHandler = note_text
    try:
        # All data in one call: expat takes quadratic time for a long token that comes in pieces.
        parser.Parse(data, True)
        if opened[1] is not nothing:
            take(opened[1])
    except expat.ExpatError as error:
        reader_hint = reads_bytes(data)
        if notes is None or reader_hint:
            message = expat.ErrorString(error.code)
            message = LATE if message == _LATE else message
            if message == _INVALID:
                excerpt = data[parser.ErrorByteIndex :][:_SHOWN].decode("utf-8", "replace")
                message = f"{message}, at {quoted(excerpt)}"
            where = f"line {error.lineno}, column {error.offset}"
            raise LoadError(f"not well-formed XML at {where}: {message}{reader_hint}") from None
    except LoadError:  # LoadError is a ValueError, so it is caught first
        raise
    except (ValueError, LookupError) as error:  # an encoding that expat does not read
        if notes is None:
            raise LoadError(f"cannot read the XML: {error}") from None
    else:
        return opened[0]
    finally:  # breaks the reference cycle of parser and functions
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    mended = mend(data, roots[0] if roots else "file", depth, MAX_ELEMENTS, notes)
    # `take` has seen the children before the first error. They are the same in the mended document, and are skipped.
    next_takes = chain(repeat(_skip, taken), repeat(take))
    return parse_xml(mended, root, opaque, lambda element: next(next_takes)(element), texts, depth)


def _skip(_: Element) -> None:
    """Ignore an element."""


def _may_have_text(data: bytes) -> bool:
    """False if there are only blanks between the tags of a document, as in half of all robot files.

    The encoding is a superset of ASCII, or UTF-16, which contains null bytes.
    """
    return b"\0" in data or b"<![CDATA[" in data or _TEXT.search(data) is not None


def _refuse(*_: object) -> NoReturn:
    raise LoadError(DOCUMENT_TYPE)


def written(element: Element) -> str:
    """An element as XML, its own text before its children. `parse_xml` drops comments."""
    attributes = "".join(f" {key}={quoteattr(value, _WHITE)}" for key, value in element.attributes.items())
    inside = escape(element.text) + "".join(map(written, element.children))
    start = f"<{element.tag}{attributes}"
    return f"{start}>{inside}</{element.tag}>" if inside else f"{start}/>"
