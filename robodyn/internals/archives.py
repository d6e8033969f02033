"""Strict readers of NumPy's files, .npz and .npy: an array must be what its header says.

Names, dtypes, shapes and sizes come from headers, so that callers can check them before any number is loaded. Arrays
are stored or deflated; pickles are refused. Memory is bounded: stored arrays take as much as the file, deflated ones,
which a small file can hold in any size, at most `MOST_UNPACKED`."""

from __future__ import annotations

import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, RobodynError, UnavailableError
from robodyn.internals.messages import printable, quoted

MOST_UNPACKED = 256 << 20
"""Most bytes of all deflated arrays of a file, unpacked."""

_MOST_ARRAYS = 64
_MOST_DIRECTORY = 64 << 10
_MOST_HEADER = 10_000
_MOST_ITEM = 1 << 20
"""Most bytes of one item; the items of a text array are as long as its longest text."""
_DEFLATED_MOST = 1032
"""Largest ratio by which deflation compresses."""
_CHUNK = 1 << 20
_SHOWN = 100

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_LOCAL = struct.Struct("<4s5H3I2H")
_STREAMED = 0x8
"""The flag of members whose sizes follow them, in a record of one of these lengths (bytes)."""
_STREAMED_ENDS = (12, 16, 20, 24)
_FLAGS = 0x806 | _STREAMED
"""Flags that do not affect reading: the level of compression, and names in UTF-8. Others are encryption and patches."""

# NumPy parses headers as Python literals; those of an attacker cause warnings, deep recursion and exhausted memory.
_FIELDS = (
    r"'descr'\s*+:\s*+'([<>=|]?[?bfiucSUOVMm]\d{0,9})'",
    r"'fortran_order'\s*+:\s*+(True|False)",
    r"'shape'\s*+:\s*+\(((?:\d{1,19}\s*+,\s*+)*+(?:\d{1,19})?)\s*+\)",
)
_HEADER = re.compile(rf"\{{\s*+(?:(?:{'|'.join(_FIELDS)})\s*+(?:,\s*+|(?=\}})))*+\}}\s*+", re.ASCII)


@contextmanager
def damaged() -> Iterator[None]:
    """Convert errors of code that reads a damaged file, which may raise almost anything.

    Raises:
        ArgumentError: for every exception but robodyn's own errors, which pass.
        UnavailableError: there is not enough memory.
    """
    try:
        yield
    except RobodynError:
        raise
    except MemoryError:
        raise UnavailableError("it cannot be read: there is no memory for what it holds") from None
    except Exception as error:
        raise ArgumentError(f"it cannot be read: {printable(str(error))[:_SHOWN] or type(error).__name__}") from None


class Archive:
    """The arrays of an .npz file.

    `keys`: their names, without duplicates.
    """

    @damaged()
    def __init__(self, file: IO[bytes]) -> None:
        """Read the directory of a seekable file; `file` must stay open.

        Raises:
            ArgumentError: not an .npz file, or not one that NumPy writes.
        """
        start = _directory(file)
        self._archive = zipfile.ZipFile(file)
        self._unpacked = 0
        infos = self._archive.infolist()
        if len(infos) > _MOST_ARRAYS:
            raise ArgumentError(f"it cannot be read: it holds {len(infos)} arrays; at most {_MOST_ARRAYS} are read")
        self._infos: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            key = info.filename.removesuffix(".npy")
            if key in self._infos:
                raise ArgumentError(f"it cannot be read: it holds {quoted(key)} twice")
            self._infos[key] = info
        self.keys = tuple(self._infos)
        _require_side_by_side(file, self._infos, start)

    @damaged()
    def like(self, key: str, kinds: str) -> Array:
        """An array without memory, of the shape and dtype in the header of `key`.

        `kinds`: the allowed kinds of dtypes (`dtype.kind`).

        Raises:
            ArgumentError: another kind, no header, or an array of another length than its header says.
        """
        with self._archive.open(self._infos[key]) as part:
            return _header(part, key, self._infos[key].file_size, kinds)[0]

    @damaged()
    def read(self, key: str, kinds: str) -> Array:
        """The array of this name, in this machine's byte order; `kinds` as for `like`.

        Raises:
            ArgumentError: as `like`; the file is damaged; too much is deflated.
            UnavailableError: there is no memory for it.
        """
        info = self._infos[key]
        with self._archive.open(info) as part:
            like, columns = _header(part, key, info.file_size, kinds)
            if info.compress_type == zipfile.ZIP_DEFLATED:
                # Callers that check numbers need them as doubles, or larger.
                self._unpacked += max(info.file_size, np.dtype(np.float64).itemsize * like.size)
            if self._unpacked > MOST_UNPACKED:
                raise ArgumentError(
                    f"it takes more than {MOST_UNPACKED} bytes unpacked, the most that is read of what is compressed; "
                    "write it by numpy.savez"
                )
            return _numbers(part, like, columns)


@damaged()
def npy_like(file: IO[bytes], kinds: str) -> Array:
    """`Archive.like` for an .npy file, from its start."""
    return _npy_header(file, kinds)[0]


@damaged()
def read_npy(file: IO[bytes], kinds: str) -> Array:
    """`Archive.read` for an .npy file, from its start."""
    return _numbers(file, *_npy_header(file, kinds))


def _npy_header(file: IO[bytes], kinds: str) -> tuple[Array, bool]:
    file.seek(0)
    return _header(file, "the array", os.fstat(file.fileno()).st_size, kinds)


def _directory(file: IO[bytes]) -> int:
    """Offset of an archive's directory, which must end the file and be small; zipfile would load any.

    The last record holds it. Large archives have another record before that, whose numbers then count, and one with the
    offset of that record.
    """
    end = file.seek(0, os.SEEK_END)
    size = min(end, _END.size + _LOCATOR64.size + _END64.size)
    file.seek(end - size)
    tail = file.read(size)
    if tail[-_END.size :][:4] != b"PK\x05\x06":
        file.seek(0)
        other = "; it looks like XML: robodyn.load reads robots of other formats" if file.read(1) == b"<" else ""
        raise ArgumentError(f"it is no .npz file, or it was cut, or something was added to its end{other}")
    _, disk, first_disk, _, _, length, start, comment = _END.unpack(tail[-_END.size :])
    stop = end - _END.size
    if tail[-_END.size - _LOCATOR64.size :][:4] == b"PK\x06\x07":
        _, disk, place, _ = _LOCATOR64.unpack(tail[-_END.size - _LOCATOR64.size : -_END.size])
        stop -= _LOCATOR64.size + _END64.size
        mark, _, _, _, _, first_disk, _, _, length, start = _END64.unpack(tail[: _END64.size])
        if mark != b"PK\x06\x06" or place != stop:
            raise ArgumentError("it cannot be read: its last records contradict each other")
    if disk or first_disk or comment or start + length != stop:
        raise ArgumentError("it cannot be read: it is an archive in parts, or one with something before or behind it")
    if length > _MOST_DIRECTORY:
        raise ArgumentError(f"it cannot be read: its directory takes {length} bytes; wanted at most {_MOST_DIRECTORY}")
    return int(start)


def _require_side_by_side(file: IO[bytes], infos: dict[str, zipfile.ZipInfo], stop: int) -> None:
    """Raise unless members fill the file up to `stop`, each as the directory describes it."""
    at = 0
    gaps: tuple[int, ...] = (0,)
    for key, info in sorted(infos.items(), key=lambda item: item[1].header_offset):
        if info.header_offset - at not in gaps:
            raise ArgumentError(f"it cannot be read: {quoted(key)} overlaps with another array, or lies apart")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & ~_FLAGS:
            raise ArgumentError(f"it cannot be read: {quoted(key)} is compressed or encrypted as NumPy does not do it")
        file.seek(info.header_offset)
        _, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
        sizes = (info.CRC, info.compress_size, info.file_size)
        file.seek(name, os.SEEK_CUR)
        large = struct.pack("<2H2Q", 1, 16, info.file_size, info.compress_size) in file.read(extra)
        same = (crc, packed, size) == sizes or (large and (crc, packed, size) == (info.CRC, 0xFFFFFFFF, 0xFFFFFFFF))
        stored = info.compress_type == zipfile.ZIP_STORED
        if (
            (flags, method) != (info.flag_bits, info.compress_type)
            or not (same or flags & _STREAMED)
            or (stored and info.compress_size != info.file_size)
            or info.file_size > _DEFLATED_MOST * (info.compress_size + 1)
        ):
            raise ArgumentError(f"it cannot be read: the sizes of {quoted(key)} contradict each other")
        at = info.header_offset + _LOCAL.size + name + extra + info.compress_size
        gaps = _STREAMED_ENDS if flags & _STREAMED else (0,)
    if stop - at not in gaps:
        raise ArgumentError("it cannot be read: there is something between its arrays and its directory")


def _header(file: IO[bytes], name: str, size: int, kinds: str) -> tuple[Array, bool]:
    """A stand-in for the array of an .npy file of `size` bytes, and True if it is stored column by column.

    Afterwards the file's position is at the numbers.
    """
    name = printable(name)[:_SHOWN]
    start = file.read(8)
    if start[:6] != np.lib.format.MAGIC_PREFIX:
        raise ArgumentError(f"it cannot be read: {name} is no array of NumPy's")
    width = {b"\x01\x00": 2, b"\x02\x00": 4}.get(start[6:])
    if width is None:
        raise ArgumentError(f"it cannot be read: {name} is not of version 1 or 2 of the format")
    length = int.from_bytes(file.read(width), "little")
    text = file.read(min(length, _MOST_HEADER)).decode("latin1")
    descr, order, extents = (re.findall(field, text, re.ASCII) for field in _FIELDS)
    once = len(descr) == len(order) == len(extents) == 1
    if not once or len(text) != length or not _HEADER.fullmatch(text):
        raise ArgumentError(f"it cannot be read: {name} has a header that NumPy does not write for real numbers")
    dtype, shape = np.dtype(descr[0]), tuple(map(int, re.findall(r"\d+", extents[0])))
    if dtype.kind not in kinds or not 0 < dtype.itemsize <= _MOST_ITEM:
        raise ArgumentError(f"it cannot be read: {name} holds {dtype}, and pickles are refused; wanted real numbers")
    if math.prod(shape) * dtype.itemsize != size - len(start) - width - length:
        raise ArgumentError(f"it cannot be read: {name} is not as long as its shape {shape} demands")
    return np.broadcast_to(np.zeros((), dtype), shape), order[0] == "True"


def _numbers(file: IO[bytes], like: Array, columns: bool) -> Array:
    """The array that `like` stands in for, from the file's current position."""
    data = np.empty(like.nbytes, np.uint8)
    at = 0
    while at < len(data):
        part = file.read(min(_CHUNK, len(data) - at))
        if not part:
            raise ArgumentError("it cannot be read: it was cut")
        data[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    numbers = data.view(like.dtype)
    array = numbers.reshape(like.shape[::-1]).transpose() if columns else numbers.reshape(like.shape)
    return array.astype(like.dtype.newbyteorder("="), copy=False)
