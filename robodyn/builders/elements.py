"""XML into light elements with line numbers, safely: no DTD, no entities, nothing fetched, bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn
from xml.parsers import expat

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
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse  # entities, and all that is fetched, come after one
    opened: list[Element] = []  # from the root to the current one
    first: list[Element] = []
    count = skipped = 0  # elements so far, and open ones inside an opaque one

    # Functions of this one rather than methods: what they share costs next to nothing to reach, and they are called for
    # every tag.

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        above = len(opened)
        if above >= depth or count > MAX_ELEMENTS:
            refuse()
        element = Element(name, attributes, parser.CurrentLineNumber)
        if above > 1:
            opened[-1].children.append(element)
        elif not above:
            if root is not None and name != root:
                raise LoadError(f"not a robot file: the root element is {quoted(name)}, not {quoted(root)}")
            first.append(element)
        opened.append(element)
        if name in opaque:
            parser.StartElementHandler, parser.EndElementHandler = start_skipped, end_skipped
            parser.CharacterDataHandler = None

    def start_skipped(_: str, __: dict[str, str]) -> None:
        nonlocal count, skipped
        count += 1
        if len(opened) + skipped >= depth or count > MAX_ELEMENTS:
            refuse()
        skipped += 1

    def refuse() -> NoReturn:
        if count > MAX_ELEMENTS:
            raise LoadError(f"the file holds more than {MAX_ELEMENTS} elements, the most that are read")
        raise LoadError(f"line {parser.CurrentLineNumber}: elements are nested more than {depth} deep")

    def note_text(data: str) -> None:
        if data.isspace():
            return
        element = opened[-1]
        element.has_text = True
        if texts:
            if element.pieces is None:
                element.pieces = []
            element.pieces.append(data)

    def end(_: str) -> None:
        element = opened.pop()
        if len(opened) == 1:
            take(element)

    def end_skipped(name: str) -> None:
        nonlocal skipped
        if skipped:
            skipped -= 1
            return
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler = note_text
        end(name)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, note_text
    try:
        # At once: expat takes quadratic time over a long token that comes in pieces.
        parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        if message == _LATE:
            message = "the declaration <?xml ...?> does not stand at the very beginning"
        raise LoadError(f"not well-formed XML at line {error.lineno}, column {error.offset}: {message}") from None
    except LoadError:  # of the functions above and of `take`: a ValueError as well
        raise
    except (ValueError, LookupError) as error:  # an encoding that is not known
        raise LoadError(f"cannot read the XML: {error}") from None
    finally:  # parser and functions hold each other
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    return first[0]  # a document without one is not well-formed


def _refuse(*_: object) -> NoReturn:
    raise LoadError("the XML holds a document type or entities (<!DOCTYPE ...>); they are refused")
