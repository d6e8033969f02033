"""LLVM's assembler, to judge machine code by."""

from __future__ import annotations

from collections.abc import Iterable

import llvmlite.binding as llvm

from robodyn.compile.llvm.jit import compile_object
from robodyn.compile.llvm.target import host_target


def assemble(lines: Iterable[str]) -> bytes:
    """The bytes of instructions, written in Intel's syntax."""
    llvm.initialize_native_asmparser()
    text = "".join(f'module asm "{line}"\n' for line in (".intel_syntax noprefix", *lines, ".att_syntax"))
    target = host_target()
    found = llvm.ObjectFileRef.from_data(compile_object(text, target, 1))
    return b"".join(section.data() for section in found.sections() if section.is_text())
