"""Repairs XML that is not well-formed, but that other programs read.

XML 1.0 requires a parser to stop at the first error. TinyXML-2, the parser of urdfdom (ROS, Pinocchio), MuJoCo, Drake
and Gazebo, tolerates many errors, and files with such errors are in use. This module accepts the same errors as
TinyXML-2, interprets them in the same way, and reports each as a finding. All other errors are refused; the message
names the error and its line. Entities and document types are refused as in all XML.

One pass from left to right reads the text, so the time is linear in its length. Line ends are kept, so line numbers in
later messages are those of the file. Two rules differ from TinyXML-2: text after the root element is skipped, and
undefined entities are refused.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NoReturn

from robodyn.core.findings import Notes
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted

MAX_ERRORS = 10_000
"""Largest number of errors that are tolerated in one file."""

LATE = "the declaration <?xml ...?> does not stand at the very beginning"
"""Error message for a declaration that is not at the beginning."""

DOCUMENT_TYPE = "the XML holds a document type or entities (<!DOCTYPE ...>); they are refused"

_S = "[ \t\r\n]"
_NAME = "[:A-Z_a-z\x80-\U0010ffff][-.0-9:A-Z_a-z\x80-\U0010ffff]*+"
_START_TAG = re.compile(rf"<({_S}*+)({_NAME})")
_END_TAG = re.compile(rf"</({_NAME})([^<>]*+)>")
_ATTRIBUTE = re.compile(rf"""({_S}*+)({_NAME})({_S}*+={_S}*+)("[^"]*+"|'[^']*+')""")
_TAG_END = re.compile(rf"({_S}*+)(/?>)")
_NAME_ONLY = re.compile(rf"{_S}*+({_NAME})")
_DECLARATION = re.compile(
    rf"""<\?xml{_S}+version{_S}*={_S}*("[^"]+"|'[^']+')({_S}+encoding{_S}*={_S}*("[^"]+"|'[^']+'))?"""
    rf"""({_S}+standalone{_S}*={_S}*("(yes|no)"|'(yes|no)'))?{_S}*\?>"""
)
_DECLARED = re.compile(rb"""\s*<\?xml\s[^>]*?encoding\s*=\s*["']?([-.:\w]+)""")
_OTHER = re.compile("<!(?:(DOCTYPE|ENTITY|ELEMENT|ATTLIST|NOTATION)|[^<>\\[]*+>)", re.IGNORECASE)
_BLANK = re.compile("[\x0b\x0c]")
_ODD = re.compile("[&<\x00-\x08\x0e-\x1f\ufffe\uffff]|]]>")
_REFERENCE = re.compile(rf"&(?:#[0-9]++|#x[0-9A-Fa-f]++|({_NAME}));")
_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})
_FORBIDDEN = re.compile("[\x01-\x08\x0e-\x1f\ufffe\uffff]")
_BARE = 'a bare "<" in text; write "&lt;"'
_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}
"""Maps the surrogates of Python's "surrogateescape", which stand for bytes that are not UTF-8, to Latin-1."""

_CODECS = re.compile(
    r"iso8859-\d+|cp(125\d|437|85\d|866|932|949)|koi8-[rtu]|mac-.*|gb2312|gbk|gb18030|big5|shift_jis|euc_.."
)
"""Declared encodings that are used, by Python's names. All of them are supersets of ASCII."""


def mend(data: bytes, subject: str, depth: int, elements: int, notes: Notes) -> bytes:
    """Repairs a document that is not well-formed. Returns well-formed UTF-8.

    Args:
        data: the document.
        subject: subject of the findings, one for each error.
        depth: deepest nesting of elements.
        elements: largest number of elements.
        notes: collects findings.

    Raises:
        LoadError: an error that is not tolerated.
    """
    text, errors = _text_of(data)
    if blank := _BLANK.search(text):
        errors.append((1 + _lines(text, 0, blank.start()), "form feeds or vertical tabs; read as blanks"))
        text = _BLANK.sub(" ", text)
    mender = _Mender(text, depth, elements)
    mended = mender.mend()
    for line, what in (*errors, *mender.errors):
        notes.gather("xml-not-well-formed", subject, f"not well-formed XML, which is let pass: {what}", line)
    return mended.encode("utf-8")


def _text_of(data: bytes) -> tuple[str, list[tuple[int, str]]]:
    """The text of a document, and errors of its encoding as (line, message)."""
    for order, mark in (("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)):
        if data.startswith((mark, "<".encode(order))):
            try:
                return data.removeprefix(mark).decode(order), []
            except UnicodeDecodeError as error:
                raise LoadError(f"not well-formed XML: it is no UTF-16, as its first bytes say: {error}") from None
    errors = []
    declared = _DECLARED.match(data)  # ignored after a byte-order mark, which takes precedence
    name = declared[1].decode("ascii", "replace") if declared else "utf-8"
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        codec = "unknown"
    if _CODECS.fullmatch(codec):
        with suppress(UnicodeDecodeError):
            return data.decode(codec), []
    if codec != "utf-8":
        errors.append((1, f"the declared encoding {quoted(name)} is not known, or not that of the file; read as UTF-8"))
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        errors.append((1 + _lines(text, 0, error.start), "bytes that are not UTF-8; read as Latin-1"))
        text = text.translate(_LATIN_1)
    return text, errors


def _lines(text: str, start: int, end: int) -> int:
    """The number of line ends in a part of a text."""
    returns = text.count("\r", start, end)
    return text.count("\n", start, end) + (returns - text.count("\r\n", start, end) if returns else 0)


class _Mender:
    """Repairs one document. `errors`: tolerated errors as (line, message)."""

    def __init__(self, text: str, depth: int, elements: int) -> None:
        self.errors: list[tuple[int, str]] = []
        self._text, self._depth, self._most, self._count = text, depth, elements, 0
        self._end = len(text) if (null := text.find("\0")) < 0 else null
        self._out: list[str] = []
        self._open: list[str] = []
        self._begun = self._done = False  # True once the root element has begun, and ended
        self._declarations = 0
        self._first = True  # only declarations so far
        self._line, self._counted = 1, 0

    def mend(self) -> str:
        """The repaired document."""
        at, end = 0, self._end
        while at < end:
            start = self._text.find("<", at, end)
            start = end if start < 0 else start
            if start > at:
                self._take_text(at, start)
            at = self._take_markup(start) if start < end else end
        if end < len(self._text):
            if not self._done or self._open:
                self._refuse("a null character", end)
            self._pass("a null character, after which nothing is read", end)
        if self._open:
            self._refuse(f"<{self._shown(self._open[-1])}> is not closed before the file ends", end)
        if not self._begun:
            self._refuse("there is no element", end)
        return "".join(self._out)

    def _line_of(self, at: int) -> int:
        """The line of a position. Positions of successive calls must not decrease."""
        self._line += _lines(self._text, self._counted, at)
        self._counted = max(at, self._counted)
        return self._line

    def _pass(self, what: str, at: int) -> None:
        """Record a tolerated error."""
        self.errors.append((self._line_of(at), what))
        if len(self.errors) > MAX_ERRORS:
            self._refuse(f"more than {MAX_ERRORS} errors, the most that are passed over; the last one: {what}", at)

    def _refuse(self, what: str, at: int) -> NoReturn:
        raise LoadError(f"not well-formed XML at line {self._line_of(at)}: {what}")

    @staticmethod
    def _shown(name: str) -> str:
        return quoted(name)[1:-1]

    def _put(self, start: int, end: int, piece: str) -> None:
        """Write the replacement of a part of the text: `piece` inside the root element, only line ends elsewhere."""
        inside = self._begun and not self._done
        self._out.append(piece if inside else "\n" * _lines(self._text, start, end))

    def _take_text(self, start: int, end: int) -> None:
        piece = self._text[start:end]
        if self._begun and not self._done:
            piece = self._escaped(piece, start, "text")
        elif stray := piece.lstrip(" \t\r\n"):
            self._first = False
            self._pass("text outside of the root element", end - len(stray))
        self._put(start, end, piece)

    def _escaped(self, piece: str, start: int, where: str) -> str:
        """Escapes forbidden characters in a text or in the value of an attribute."""
        if not _ODD.search(piece):
            return piece
        parts, at = [], 0
        for odd in _ODD.finditer(piece):
            matched, position = odd[0], start + odd.start()
            parts.append(piece[at : odd.start()])
            at = odd.end()
            if matched == "&":
                parts.append(self._ampersand(odd.start(), piece, position, where))
            elif matched == "]]>":
                parts.append("]]&gt;")
                if where == "text":
                    self._pass('a "]]>" in text, which should be "]]&gt;"', position)
            elif matched == "<":
                parts.append("&lt;")
                self._pass(f'a bare "<" in {where}, which should be "&lt;"', position)
            else:
                parts.append("\ufffd")
                self._pass(f"a control character in {where}", position)
        return "".join((*parts, piece[at:]))

    def _ampersand(self, at: int, piece: str, here: int, where: str) -> str:
        reference = _REFERENCE.match(piece, at)
        if reference is None:
            self._pass(f'a bare "&" in {where}, which should be "&amp;"', here)
            return "&amp;"
        name = reference[1]
        if name is not None and name not in _PREDEFINED:
            self._refuse(
                f'undefined entity &{self._shown(name)}; in {where}: write the character, or "&amp;" for "&"', here
            )
        return "&"

    def _take_markup(self, at: int) -> int:
        """Process the markup that begins with "<" at a position; returns the position of its end."""
        text = self._text
        if text.startswith("<?", at):
            return self._take_instruction(at)
        self._first = False
        if text.startswith("<!--", at):
            after = self._end_of("-->", "a comment", at, at + 4)
            inner = text[at + 4 : after - 3]
            if "--" in inner or inner.endswith("-"):
                self._pass('a comment holds "--"', at)
                inner = inner.replace("--", "  ")
                inner = f"{inner[:-1]} " if inner.endswith("-") else inner
            if _FORBIDDEN.search(inner):
                self._pass("a control character in a comment", at)
                inner = _FORBIDDEN.sub("\ufffd", inner)
            self._put(at, after, f"<!--{inner}-->")
            return after
        if text.startswith("<![CDATA[", at):
            after = self._end_of("]]>", "a <![CDATA[", at, at + 9)
            piece = text[at:after]
            if not self._begun or self._done:
                self._pass("text outside of the root element", at)
            elif _FORBIDDEN.search(piece):
                self._pass("a control character in text", at)
                piece = _FORBIDDEN.sub("\ufffd", piece)
            self._put(at, after, piece)
            return after
        if text.startswith("<!", at):
            return self._take_other(at)
        return self._take_end_tag(at) if text.startswith("</", at) else self._take_start_tag(at)

    def _take_other(self, at: int) -> int:
        """Process markup that begins with "<!" and is no comment; returns the position of its end."""
        other = _OTHER.match(self._text, at)
        if other is not None and other[1]:
            raise LoadError(DOCUMENT_TYPE)
        if other is None:
            self._refuse('a "<!" that begins no comment; comments are written <!-- ... -->', at)
        self._pass(f"{quoted(other[0])} is no comment, and skipped", at)
        self._put(at, other.end(), "\n" * _lines(self._text, at, other.end()))
        return other.end()

    def _end_of(self, mark: str, what: str, at: int, start: int) -> int:
        """The position behind the next `mark`, which closes the markup."""
        position = self._text.find(mark, start)
        if position > self._end:
            self._refuse("a null character", self._end)
        if position < 0:
            self._refuse(f'{what} that does not end: there is no "{mark}" after it', at)
        return position + len(mark)

    def _take_instruction(self, at: int) -> int:
        after = self._end_of("?>", 'a "<?"', at, at + 2)
        if re.match(rf"<\?xml({_S}|\?)", self._text[at : at + 6]):
            if not self._first:
                self._refuse(LATE, at)
            if self._declarations:
                self._pass("a second declaration <?xml ...?>", at)
            elif not _DECLARATION.fullmatch(self._text, at, after):
                self._pass("the declaration <?xml ...?> is not as XML wants it", at)
            self._declarations += 1
        else:
            self._first = False
        self._put(at, after, self._text[at:after])
        return after

    def _take_end_tag(self, at: int) -> int:
        tag = _END_TAG.match(self._text, at)
        if tag is None:
            self._refuse('a "</" that begins no end tag', at)
        shown = self._shown(tag[1])
        if not self._open:
            if not self._done:
                self._refuse(f"mismatched tag: </{shown}> before the root element", at)
            self._pass(f"an end tag </{shown}> after the root element", at)
        elif (wanted := self._open.pop()) != tag[1]:
            self._refuse(f"mismatched tag: </{shown}> where </{self._shown(wanted)}> is wanted", at)
        elif tag[2].strip(" \t\r\n"):
            self._pass(f"an end tag </{shown}> that holds more than its name", at)
        self._put(at, tag.end(), f"</{tag[1]}{chr(10) * _lines(self._text, at, tag.end())}>")
        self._done = self._done or not self._open
        return tag.end()

    def _take_start_tag(self, at: int) -> int:
        text = self._text
        tag = _START_TAG.match(text, at)
        if tag is None:
            self._refuse(_BARE, at)
        self._count += 1
        if self._count > self._most:
            raise LoadError(f"the file holds more than {self._most} elements, the most that are read")
        name, shown = tag[2], self._shown(tag[2])
        if self._done and not self._open:
            self._pass(f"a second root element <{shown}>, which is skipped", at)
        self._begun = True
        if tag[1]:
            self._pass(f"blanks between < and {shown}", at)
        parts, position, names = ["<", name, tag[1]], tag.end(), set[str]()
        while (attribute := _ATTRIBUTE.match(text, position)) is not None:
            blanks, key, equals, value = attribute.groups()
            if key in names:
                self._refuse(f"duplicate attribute {quoted(key)} of <{shown}>", attribute.start(2))
            names.add(key)
            if not blanks:
                self._pass(f"no blank before an attribute of <{shown}>", attribute.start(2))
            escaped = self._escaped(value[1:-1], attribute.start(4) + 1, "an attribute")
            parts += blanks or " ", key, equals, value[0], escaped, value[0]
            position = attribute.end()
        close = _TAG_END.match(text, position)
        if close is None and tag[1]:
            self._refuse(_BARE, at)
        if close is None:
            key = _NAME_ONLY.match(text, position)
            what = f"the attribute {quoted(key[1])} has no value in quotes" if key else "no attribute and no end"
            self._refuse(f"in <{shown}>: {what}", position)
        self._put(at, close.end(), "".join((*parts, *close.groups())))
        if close[2] == ">":
            self._open.append(name)
            if len(self._open) > self._depth:
                self._refuse(f"elements are nested more than {self._depth} deep", at)
        elif not self._open:
            self._done = True
        return close.end()
