"""The stored form of a program's machine code: position-independent images."""

from __future__ import annotations

import struct

from robodyn.compile.x86.row_writer import Layout
from robodyn.internals.records import dataclass

PAGE = 1 << 16
"""The largest page of the systems that are supported."""
MAGIC = b"RDcode\0\7"
_HEAD = struct.Struct("<8s7q")


@dataclass(frozen=True)
class LineCode:
    """Locations of the code that writes cache lines of results during the computation
    (`robodyn.compile.x86.row_writer`).

    `body`: the program with calls that write lines; `finish`: a function of these calls alone. `past`, `near`,
    `following`: for each array, the function that writes lines with streaming stores, with normal stores, or to
    consecutive rows. `tables`: the first table of line entries; `layout`: the layout of the result vectors.
    """

    body: int
    finish: int
    past: tuple[int, ...]
    near: tuple[int, ...]
    following: tuple[int, ...]
    tables: int
    layout: Layout

    def moved(self, by: int) -> LineCode:
        """The same with an image's address added."""
        past, near, following = (tuple(by + each for each in way) for way in (self.past, self.near, self.following))
        body, finish, tables = (by + each for each in (self.body, self.finish, self.tables))
        return LineCode(body, finish, past, near, following, tables, self.layout)


@dataclass(frozen=True)
class Image:
    """Machine code that can be loaded at any address.

    `code`: the code for W rows, and the entry. `data`: constants, the driver's list and, at the end, the driver's
    address; they begin on the next page. `entry`: offset of the entry. `driver_at`: offset of the driver's address, set
    on loading. `operations`: floating-point operations for one state. `large`: offset of the entry for large batches,
    which copies results or writes their cache lines during the computation; 0 if there is none. `lines`: offset of the
    64-bit words that describe the code of `LineCode`: number of functions, offsets of the tables, of the layout, and of
    the functions; 0 if there is none.
    """

    code: bytes
    data: bytes
    entry: int
    driver_at: int
    operations: int
    large: int = 0
    lines: int = 0

    def packed(self) -> bytes:
        """The image as bytes for storage."""
        numbers = self.entry, self.driver_at, self.operations, self.large, self.lines
        head = _HEAD.pack(MAGIC, len(self.code), len(self.data), *numbers)
        return head + self.code + self.data

    @staticmethod
    def unpacked(kept: bytes) -> Image | None:
        """The image from the bytes of `packed`, or None if they are not valid."""
        if len(kept) < _HEAD.size:
            return None
        magic, code, data, entry, driver_at, operations, large, lines = _HEAD.unpack_from(kept)
        at = _HEAD.size + code
        inside = 0 <= entry < code and 0 <= large < code and data >= 0 and 0 <= lines < driver_at
        if magic != MAGIC or len(kept) != at + data or not inside or driver_at != -(-code // PAGE) * PAGE + data - 8:
            return None
        parts = kept[_HEAD.size : at], kept[at : at + data]
        return Image(*parts, entry, driver_at, operations, large, lines)

    @property
    def line_code(self) -> LineCode | None:
        """The code that writes cache lines, as offsets from the image's start, or None."""
        if not self.lines:
            return None
        at = self.lines - -(-len(self.code) // PAGE) * PAGE
        count, tables, layout = struct.unpack_from("<3q", self.data, at)
        functions = struct.unpack_from(f"<{count}q", self.data, at + 24)
        kept = Layout.unpacked(self.data[layout + at - self.lines :])
        past, near, following = (functions[k::3] for k in (1, 2, 3))
        return LineCode(self.large, functions[0], past, near, following, tables, kept)
