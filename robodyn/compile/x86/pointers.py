"""The general registers and their uses, memory addresses, and the instructions on general registers."""

from __future__ import annotations

from robodyn.internals.records import dataclass

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
"""Names of the registers, by number."""
FRAME_POINTER, POOL_POINTER, ROWS_POINTER, ROW_OFFSET = 7, 6, 0, 1
"""rdi, rsi, rax and rcx."""
ARRAY_POINTERS = (2, 8, 9, 10, 11)
"""rdx, r8 to r11: with rax and rcx, all caller-saved registers. If there are more arrays, they take turns. Registers
that no array uses hold offsets of rows, or are bases."""
SAVED = (3, 5, 13, 14, 15, 12)
"""rbx, rbp, r13 to r15 and r12: callee-saved registers. Addresses relative to r12 take one byte more."""
NEAR = 128
"""Reach of a one-byte displacement on either side of a pointer, in units of the displacement."""

_MOV, _ADD_TO_MEMORY, _LEA, _PUSH, _POP, _JMP = 0x8B, 0x01, 0x8D, 0x50, 0x58, b"\xff\x25"
"""Opcodes. The register's number is added to those of push and pop; that of jmp includes the ModRM byte."""


@dataclass(frozen=True)
class Base:
    """A general register that points `start` bytes behind a pointer. It makes places addressable with a one-byte
    displacement that are too far from the pointer."""

    register: int
    pointer: int
    start: int


def is_near(offset: int, unit: int) -> bool:
    """Whether a one-byte displacement, counted in units, reaches the offset."""
    return offset % unit == 0 and -NEAR <= offset // unit < NEAR


_RBP, _R12 = 5, 12
"""rbp and r13 cannot be addressed without a displacement; r12 needs a SIB byte."""


def displaced(pointer: int, offset: int, unit: int) -> tuple[int, bytes]:
    """ModRM without its register field, and the bytes behind it: the SIB byte if there is one, and the displacement,
    which has one byte if it is near."""
    more = b"\x24" if pointer == _R12 else b""
    if offset == 0 and pointer & 7 != _RBP:
        return pointer & 7, more
    if is_near(offset, unit):
        return 0x40 | (pointer & 7), more + (offset // unit).to_bytes(1, "little", signed=True)
    return 0x80 | (pointer & 7), more + offset.to_bytes(4, "little", signed=True)


def load_pointer(register: int, pointer: int, offset: int) -> bytes:
    """mov register, [pointer + offset], of 64-bit registers."""
    modrm, tail = displaced(pointer, offset, 1)
    return bytes((0x48 | (register >> 3) << 2 | pointer >> 3, _MOV, modrm | (register & 7) << 3)) + tail


def advance_pointer(pointer: int, offset: int) -> bytes:
    """mov rax, [pointer + offset - 8]; add [pointer + offset], rax."""
    modrm, tail = displaced(pointer, offset, 1)
    added = bytes((0x48 | pointer >> 3, _ADD_TO_MEMORY, modrm | ROWS_POINTER << 3)) + tail
    return load_pointer(ROWS_POINTER, pointer, offset - 8) + added


def relative_pointer(register: int, distance: int) -> bytes:
    """lea register, [rip + distance]. The distance counts from the end of the instruction."""
    head = bytes((0x48 | (register >> 3) << 2, _LEA, 0x05 | (register & 7) << 3))
    return head + distance.to_bytes(4, "little", signed=True)


RELATIVE_BYTES = 7
"""Length of the instruction of `relative_pointer`."""


def push(register: int) -> bytes:
    """push register."""
    return b"\x41" * (register >> 3) + bytes((_PUSH | register & 7,))


def pop(register: int) -> bytes:
    """pop register."""
    return b"\x41" * (register >> 3) + bytes((_POP | register & 7,))


def point(base: Base) -> bytes:
    """lea base, [pointer + start]."""
    modrm, tail = displaced(base.pointer, base.start, 1)
    head = 0x48 | (base.register >> 3) << 2 | base.pointer >> 3
    return bytes((head, _LEA, modrm | (base.register & 7) << 3)) + tail


def jump_to(distance: int) -> bytes:
    """jmp [rip + distance]."""
    return _JMP + distance.to_bytes(4, "little", signed=True)


JUMP_BYTES = 6
RETURN = b"\xc3"
