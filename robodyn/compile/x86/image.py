"""Machine code of a program as it is kept: an image that can lie anywhere."""

from __future__ import annotations

import struct

from robodyn.compile.x86.row_writer import Layout
from robodyn.internals.records import dataclass

PAGE = 4096
MAGIC = b"RDx86\0\0\6"
_HEAD = struct.Struct("<8s7q")


@dataclass(frozen=True)
class LineCode:
    """Where things are that write lines of results on the way (`robodyn.compile.x86.row_writer`).

    `body`: what computes and calls; `finish`: calls alone; `past`, `near`, `following`: by array the function that
    writes lines past the caches, to them, or to rows that follow one another; `tables`: the first table of lines;
    `layout`: of the vectors that lines are made of.
    """

    body: int
    finish: int
    past: tuple[int, ...]
    near: tuple[int, ...]
    following: tuple[int, ...]
    tables: int
    layout: Layout

    def moved(self, by: int) -> LineCode:
        """The same as addresses."""
        past, near, following = (tuple(by + each for each in way) for way in (self.past, self.near, self.following))
        body, finish, tables = (by + each for each in (self.body, self.finish, self.tables))
        return LineCode(body, finish, past, near, following, tables, self.layout)


@dataclass(frozen=True)
class Image:
    """Machine code that can be loaded anywhere.

    `code`: what runs for W rows, and the entry; `data`: constants, the driver's list and at last the
    driver's address, which begin on the next page; `entry`: where the entry is; `driver_at`: where the driver's address
    is to be; `operations`: what a state takes; `large`: the entry for large batches, which copies results on the way
    or writes their lines; 0 where there is none; `lines`: where 64-bit words say of what writes lines (`LineCode`) how
    many functions there are, where tables are, the layout, and the functions; 0 if there is none.
    """

    code: bytes
    data: bytes
    entry: int
    driver_at: int
    operations: int
    large: int = 0
    lines: int = 0

    def packed(self) -> bytes:
        """All of it, as it is kept."""
        numbers = self.entry, self.driver_at, self.operations, self.large, self.lines
        head = _HEAD.pack(MAGIC, len(self.code), len(self.data), *numbers)
        return head + self.code + self.data

    @staticmethod
    def unpacked(kept: bytes) -> Image | None:
        """What `packed` made; None if it did not."""
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
        """What writes lines on the way, as bytes from the image's start."""
        if not self.lines:
            return None
        at = self.lines - -(-len(self.code) // PAGE) * PAGE
        count, tables, layout = struct.unpack_from("<3q", self.data, at)
        functions = struct.unpack_from(f"<{count}q", self.data, at + 24)
        kept = Layout.unpacked(self.data[layout + at - self.lines :])
        past, near, following = (functions[k::3] for k in (1, 2, 3))
        return LineCode(self.large, functions[0], past, near, following, tables, kept)
