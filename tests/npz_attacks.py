"""Archives made by hand, so that everything in them can be wrong, and damage drawn at random."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

STORED, DEFLATED = 0, 8
LARGE = 0xFFFFFFFF


def npy(array: Any) -> bytes:
    """An array as NumPy writes it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_header(text: bytes | str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An .npy file whose header says this."""
    header = text if isinstance(text, bytes) else text.encode("latin1")
    return b"\x93NUMPY" + version + len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little") + header + data


def header(descr: str, shape: Any, order: Any = False) -> str:
    """The text of a header."""
    return f"{{'descr': {descr!r}, 'fortran_order': {order!r}, 'shape': {shape!r}, }}\n"


def deflated(data: bytes) -> bytes:
    """The data of a deflated member."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def member(name: str | bytes, data: bytes, method: int = STORED, **fields: Any) -> dict[str, Any]:
    """A member for `archive`. `fields`: what its two headers say: flags, crc, packed (size), size, and `local`, a
    mapping of those that the header before the data says otherwise."""
    packed = data if method == STORED else deflated(data)
    right = {"flags": 0, "method": method, "crc": zlib.crc32(data), "packed": len(packed), "size": len(data)}
    said = name if isinstance(name, bytes) else name.encode()
    return {"name": said, "data": packed, "extra": b"", "local": {}, "gap": b"", **right, **fields}


def archive(members: Sequence[Mapping[str, Any]], before: bytes = b"", **end: Any) -> bytes:
    """A zip file. `end`: what its last record says otherwise (disk, count, length, start); bytes `between` the
    directory and it, and `behind` it."""
    whole, directory, starts = before, b"", []
    for each in members:
        starts.append(each.get("start", len(whole)))
        local = {**each, **each["local"]}
        first = struct.pack(
            "<4s5H3I2H",
            b"PK\x03\x04",
            20,
            local["flags"],
            local["method"],
            0,
            33,
            local["crc"],
            min(local["packed"], LARGE),
            min(local["size"], LARGE),
            len(local["name"]),
            len(local["extra"]),
        )
        whole += first + local["name"] + local["extra"] + each["data"] + each["gap"]
    for each, start in zip(members, starts, strict=True):
        large = each["size"] > LARGE or each["packed"] > LARGE
        extra = struct.pack("<2H2Q", 1, 16, each["size"], each["packed"]) if large else b""
        sizes = (LARGE, LARGE) if large else (each["packed"], each["size"])
        directory += struct.pack(
            "<4s6H3I5H2I",
            b"PK\x01\x02",
            20,
            20,
            each["flags"],
            each["method"],
            0,
            33,
            each["crc"],
            *sizes,
            len(each["name"]),
            len(extra),
            0,
            0,
            0,
            0,
            start,
        )
        directory += each["name"] + extra
    said = {"disk": 0, "count": len(members), "length": len(directory), "start": len(whole), "behind": b"", **end}
    counts = (said["disk"], 0, said["count"], said["count"])
    last = struct.pack("<4s4H2IH", b"PK\x05\x06", *counts, said["length"], said["start"], 0)
    return whole + directory + said.get("between", b"") + last + said["behind"]


def rebuilt(arrays: Mapping[str, bytes], rng: np.random.Generator) -> bytes:
    """An archive of .npy files, stored or deflated."""
    method = int(rng.choice([STORED, DEFLATED]))
    return archive([member(f"{name}.npy", data, method) for name, data in arrays.items()])


def struck(data: bytes, rng: np.random.Generator, places: Sequence[int] | None = None) -> bytes:
    """The data with a few bytes flipped, cut off, cut out, inserted or repeated; at one of `places` or anywhere."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not found:
            break
        at = int(rng.choice(places) if places is not None else rng.integers(len(found))) % len(found)
        length = int(rng.integers(1, 9))
        match int(rng.integers(7)):
            case 0:
                found[at] ^= 1 << int(rng.integers(8))
            case 1:
                found[at : at + length] = rng.bytes(length)
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = rng.bytes(length)
            case 4:
                found[at : at + 4] = int(rng.choice([0, 1, 0xFFFF, 0x7FFFFFFF, LARGE])).to_bytes(4, "little")
            case 5:
                found[at:at] = found[at : at + 50 * length]
            case _:
                del found[at if rng.random() < 0.2 else len(found) - length :]
    return bytes(found)


def digits_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """An .npy file whose header has other digits or letters, of which many still make sense."""
    found, stop = bytearray(data), data.index(b"\n")
    for _ in range(int(rng.integers(1, 3))):
        at = int(rng.integers(10, stop))
        choices = b"0123456789" if chr(found[at]).isdigit() else b"<>=|fiuU84(),'T -L\\\x00\xff"
        found[at] = int(rng.choice(list(choices)))
    return bytes(found)


def records(data: bytes) -> list[int]:
    """Places of bytes in the records of a zip file."""
    places = []
    for mark, length in ((b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 22), (b"PK\x06\x06", 56)):
        at = data.find(mark)
        while at >= 0:
            places += range(at, min(at + length, len(data)))
            at = data.find(mark, at + 1)
    return places


def damaged(arrays: Mapping[str, bytes], rng: np.random.Generator) -> bytes:
    """An archive of .npy files with damage of any kind."""
    names = list(arrays)
    one = str(rng.choice(names))
    match int(rng.integers(6)):
        case 0:
            return struck(rebuilt(arrays, rng), rng)
        case 1:
            whole = rebuilt(arrays, rng)
            return struck(whole, rng, records(whole))
        case 2:  # members swapped, some lost
            kept = names[: int(rng.integers(1, len(names) + 1))]
            return rebuilt(dict(zip(kept, (arrays[str(name)] for name in rng.permutation(names)), strict=False)), rng)
        case 3:
            return rebuilt({**arrays, one: digits_changed(arrays[one], rng)}, rng)
        case 4:
            return rebuilt({**arrays, one: struck(arrays[one], rng)}, rng)
        case _:  # numbers that are others
            start = arrays[one].index(b"\n") + 1
            data = bytearray(arrays[one])
            if len(data) > start:
                at = int(rng.integers(start, len(data)))
                data[at : at + 8] = rng.bytes(min(8, len(data) - at))
            return rebuilt({**arrays, one: bytes(data)}, rng)
