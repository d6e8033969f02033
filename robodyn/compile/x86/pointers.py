"""General registers: what they are for, addresses, and the instructions on them."""

from __future__ import annotations

from robodyn.internals.records import dataclass

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
"""Names of all, by number."""
FRAME_POINTER, POOL_POINTER, ROWS_POINTER, ROW_OFFSET = 7, 6, 0, 1
"""rdi, rsi, rax and rcx."""
ARRAY_POINTERS = (2, 8, 9, 10, 11)
"""rdx, r8 to r11: registers that a function need not give back. With rax and rcx, that is all there are, so more arrays
than these take turns. Those that no array takes keep offsets of rows, or are bases."""
SAVED = (3, 5, 13, 14, 15, 12)
"""rbx, rbp, r13 to r15 and r12: what a function has to give back. An address in the last one takes a byte more."""
NEAR = 128
"""Units on either side of a pointer that one byte of displacement reaches."""


@dataclass(frozen=True)
class Base:
    """A general register that points `start` bytes behind a pointer, for what is too far from that for one byte of
    displacement."""

    register: int
    pointer: int
    start: int


def is_near(offset: int, unit: int) -> bool:
    """Whether one byte of displacement that counts units reaches."""
    return offset % unit == 0 and -NEAR <= offset // unit < NEAR


_RBP, _R12 = 5, 12
"""What has no address without a displacement, nor r13; and what has one only by a byte for base and index."""


def displaced(pointer: int, offset: int, unit: int) -> tuple[int, bytes]:
    """ModRM without its register, and what follows: the displacement, which is one byte where it counts few units."""
    more = b"\x24" if pointer == _R12 else b""
    if offset == 0 and pointer & 7 != _RBP:
        return pointer & 7, more
    if is_near(offset, unit):
        return 0x40 | (pointer & 7), more + (offset // unit).to_bytes(1, "little", signed=True)
    return 0x80 | (pointer & 7), more + offset.to_bytes(4, "little", signed=True)


def load_pointer(register: int, pointer: int, offset: int) -> bytes:
    """mov register, [pointer + offset], of 64-bit registers."""
    modrm, tail = displaced(pointer, offset, 1)
    return bytes((0x48 | (register >> 3) << 2 | pointer >> 3, 0x8B, modrm | (register & 7) << 3)) + tail


def advance_pointer(pointer: int, offset: int) -> bytes:
    """mov rax, [pointer + offset - 8]; add [pointer + offset], rax."""
    modrm, tail = displaced(pointer, offset, 1)
    added = bytes((0x48 | pointer >> 3, 0x01, modrm | ROWS_POINTER << 3)) + tail
    return load_pointer(ROWS_POINTER, pointer, offset - 8) + added


def relative_pointer(register: int, distance: int) -> bytes:
    """lea register, [rip + distance], the distance being counted from the end of the instruction."""
    head = bytes((0x48 | (register >> 3) << 2, 0x8D, 0x05 | (register & 7) << 3))
    return head + distance.to_bytes(4, "little", signed=True)


RELATIVE_BYTES = 7
"""Length of `relative_pointer`."""


def push(register: int) -> bytes:
    """push register."""
    return b"\x41" * (register >> 3) + bytes((0x50 | register & 7,))


def pop(register: int) -> bytes:
    """pop register."""
    return b"\x41" * (register >> 3) + bytes((0x58 | register & 7,))


def point(base: Base) -> bytes:
    """lea base, [pointer + start]."""
    modrm, tail = displaced(base.pointer, base.start, 1)
    head = 0x48 | (base.register >> 3) << 2 | base.pointer >> 3
    return bytes((head, 0x8D, modrm | (base.register & 7) << 3)) + tail


def jump_to(distance: int) -> bytes:
    """jmp [rip + distance]."""
    return b"\xff\x25" + distance.to_bytes(4, "little", signed=True)


JUMP_BYTES = 6
RETURN = b"\xc3"
