"""XML into light elements with line numbers, safely: no DTD, no entities, nothing fetched, bounded in size."""

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
"""Deepest nesting of elements; a robot file nests about eight deep."""

MAX_ELEMENTS = 2_000_000
"""Most elements that are read; bounds the memory and the time that a hostile file of `MAX_BYTES` can take."""


_TEXT = re.compile(rb">\s*+[^<]")
"""How a text begins behind a tag, a comment or an instruction; what some attributes and comments hold looks alike."""

_LATE = "XML or text declaration not at start of entity"
_INVALID = "not well-formed (invalid token)"
"""How expat says it."""

_SHOWN = 20
"""So many bytes are shown of what is no token of XML."""


_WHITE = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
"""Blanks that an attribute keeps only when they are written so."""


class Element:
    """An XML element: its tag and attributes as written (prefixes included), children, line in the file and, where text
    other than blanks stands between its tags, the pieces that it came in."""

    __slots__ = ("attributes", "children", "line", "pieces", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.children: list[Element] = []
        self.pieces: list[str] | None = None

    @property
    def text(self) -> str:
        """What stands between its tags, without blanks around it."""
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
    """Parse an XML document whose root element must have the tag `root`, of several any, or any at all where that is
    None, and return that element.

    Each child of the root is given to `take` when it is complete and the next one begins, and not kept, so that memory
    does not hold the whole tree. Elements with a tag in `opaque` come without their contents; texts are kept where
    `texts` asks for them, or where some text in the document is no blank. Errors that other programs let pass
    (`robodyn.io.builders.mend`) are let pass with a finding in `notes`, and refused where that is None. Raises
    LoadError for what is no well-formed XML, holds a DTD or entities, has another root, is nested deeper than `depth`,
    or exceeds `MAX_ELEMENTS`."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse  # entities, and all that is fetched, come after one
    nothing = Element("", {}, None)
    opened = [nothing] * depth  # from the root to the element that was opened last, which may have ended
    ended: list[str] = []  # tags of those that have; how many are open is the difference
    roots = (root,) if isinstance(root, str) else root or ()
    heard = texts or _may_have_text(data)
    count = inside = 0  # elements so far, and open ones where contents are skipped, with the opaque one
    taken = 0  # children of the root that `take` was given

    # Functions of this one rather than methods: what they share costs next to nothing to reach, and they are called for
    # every tag. The end of an element calls a method of a list, without a function of Python.

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
            if heard:
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
    if heard:
        parser.buffer_text = True
        parser.CharacterDataHandler = note_text
    try:
        # At once: expat takes quadratic time over a long token that comes in pieces.
        parser.Parse(data, True)
        if opened[1] is not nothing:
            take(opened[1])
    except expat.ExpatError as error:
        other = reads_bytes(data)
        if notes is None or other:
            message = expat.ErrorString(error.code)
            message = LATE if message == _LATE else message
            if message == _INVALID:
                here = data[parser.ErrorByteIndex :][:_SHOWN].decode("utf-8", "replace")
                message = f"{message}, at {quoted(here)}"
            where = f"line {error.lineno}, column {error.offset}"
            raise LoadError(f"not well-formed XML at {where}: {message}{other}") from None
    except LoadError:  # of the functions above and of `take`: a ValueError as well
        raise
    except (ValueError, LookupError) as error:  # an encoding that expat does not read
        if notes is None:
            raise LoadError(f"cannot read the XML: {error}") from None
    else:
        return opened[0]
    finally:  # parser and functions hold each other
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    mended = mend(data, roots[0] if roots else "file", depth, MAX_ELEMENTS, notes)
    # What was given to `take` stood before the first error, and stands there again.
    left = chain(repeat(_skip, taken), repeat(take))
    return parse_xml(mended, root, opaque, lambda element: next(left)(element), texts, depth)


def _skip(_: Element) -> None:
    """Take nothing."""


def _may_have_text(data: bytes) -> bool:
    """False where nothing but blanks stands between the tags of a document, as in half of all robot files. A document
    is in an encoding that has ASCII's characters where ASCII has them, or in UTF-16, which has nulls."""
    return b"\0" in data or b"<![CDATA[" in data or _TEXT.search(data) is not None


def _refuse(*_: object) -> NoReturn:
    raise LoadError(DOCUMENT_TYPE)


def written(element: Element) -> str:
    """An element as XML, its own text before its children. Comments are not kept by `parse_xml`."""
    attributes = "".join(f" {key}={quoteattr(value, _WHITE)}" for key, value in element.attributes.items())
    inside = escape(element.text) + "".join(map(written, element.children))
    start = f"<{element.tag}{attributes}"
    return f"{start}>{inside}</{element.tag}>" if inside else f"{start}/>"
