"""XML into light elements with line numbers, safely: no DTD, no entities, nothing fetched, bounded in size."""

from __future__ import annotations

import io
from collections.abc import Callable
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import InputSource

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.expatreader import DefusedExpatParser  # type: ignore[import-untyped]

from robodyn.errors import LoadError
from robodyn.messages import quoted

MAX_DEPTH = 100
"""Deepest nesting of elements; a robot file nests about eight deep."""

MAX_ELEMENTS = 2_000_000
"""Most elements that are read; bounds the memory and the time that a hostile file of `MAX_BYTES` can take."""


_LATE = "XML or text declaration not at start of entity"
"""How expat says it."""


class Element:
    """An XML element: its tag and attributes as written (prefixes included), children, line in the file, whether text
    other than blanks stands between its tags, and, where it was asked for, that text in the pieces it came in."""

    __slots__ = ("attributes", "children", "has_text", "line", "pieces", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.children: list[Element] = []
        self.has_text = False
        self.pieces: list[str] | None = None

    @property
    def text(self) -> str:
        """What stands between its tags, without blanks around it; "" where texts were not asked for."""
        return "".join(self.pieces or ()).strip(" \t\r\n")


def parse_xml(
    data: bytes,
    root: str | None,
    opaque: frozenset[str],
    take: Callable[[Element], None],
    texts: bool = False,
    depth: int = MAX_DEPTH,
) -> Element:
    """Parse an XML document whose root element must have the tag `root`, or any where that is None, and return that
    element.

    Each child of the root is given to `take` as soon as it is complete, and not kept, so that memory does not hold
    the whole tree. Elements with a tag in `opaque` come without their contents; texts are kept where `texts` asks for
    them. Raises LoadError for what is no well-formed XML, holds a DTD or entities, has another root, is nested deeper
    than `depth`, or exceeds `MAX_ELEMENTS`.
    """
    # One read for all of it: expat takes quadratic time over a long token that comes in pieces.
    parser = _Reader(bufsize=len(data) + 1, forbid_dtd=True)
    parser.setContentHandler(_Texts(parser.note_text))
    parser.prepare(root, opaque, take, texts, depth)
    source = InputSource()
    source.setByteStream(io.BytesIO(data))
    try:
        parser.parse(source)
    except LoadError:
        raise
    except SAXParseException as error:
        place = f"line {error.getLineNumber()}, column {error.getColumnNumber()}"
        message = error.getMessage()
        if message == _LATE:
            message = "the declaration <?xml ...?> does not stand at the very beginning"
        raise LoadError(f"not well-formed XML at {place}: {message}") from None
    except DefusedXmlException:
        raise LoadError("the XML holds a document type or entities (<!DOCTYPE ...>); they are refused") from None
    except (SAXException, ValueError, LookupError) as error:  # among others, an encoding that is not known
        raise LoadError(f"cannot read the XML: {error}") from None
    assert parser.root is not None  # a document without one is not well-formed
    return parser.root


class _Texts(ContentHandler):
    """Hands on the text between tags, which the parser gives to a content handler only."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take

    def characters(self, content: str) -> None:
        """Hand it on."""
        self._take(content)


class _Reader(DefusedExpatParser):  # type: ignore[misc]
    """Builds elements from the parser's own events, which come as plain dicts; `_open` holds the elements from the
    root to the current one."""

    def prepare(
        self, tag: str | None, opaque: frozenset[str], take: Callable[[Element], None], texts: bool, depth: int
    ) -> None:
        """Start anew: see `parse_xml` for the arguments."""
        self.root: Element | None = None
        self._tag = tag
        self._depth = depth
        self._opaque = opaque
        self._take = take
        self._texts = texts
        self._open: list[Element] = []
        self._skipped = 0  # open elements inside an opaque one
        self._count = 0

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        """Open an element, or count it where it lies in an opaque one."""
        stack = self._open
        if len(stack) + self._skipped >= self._depth:
            raise LoadError(f"line {self.getLineNumber()}: elements are nested more than {self._depth} deep")
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise LoadError(f"the file holds more than {MAX_ELEMENTS} elements, the most that are read")
        if self._skipped or (stack and stack[-1].tag in self._opaque):
            self._skipped += 1
            return
        element = Element(name, attributes, self.getLineNumber())
        if self.root is None:
            if self._tag is not None and name != self._tag:
                raise LoadError(f"not a robot file: the root element is {quoted(name)}, not {quoted(self._tag)}")
            self.root = element
        stack.append(element)

    def note_text(self, data: str) -> None:
        """Note that the current element holds text."""
        if self._open and not self._skipped and not data.isspace():
            self._open[-1].has_text = True
            if self._texts and self._open[-1].tag not in self._opaque:
                pieces = self._open[-1].pieces
                if pieces is None:
                    pieces = self._open[-1].pieces = []
                pieces.append(data)

    def end_element(self, name: str) -> None:
        """Close an element and hand it on: to its parent, or to `take` where the parent is the root."""
        if self._skipped:
            self._skipped -= 1
            return
        element = self._open.pop()
        if len(self._open) > 1:
            self._open[-1].children.append(element)
        elif self._open:
            self._take(element)
