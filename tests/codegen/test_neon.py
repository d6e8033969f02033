"""Machine code of our own for aarch64, as far as any processor can judge it: words against LLVM's, and allocation. What
the code computes is compared in emulation (`.ci/aarch64`)."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from string import Formatter

import llvmlite.binding as llvm
import numpy as np
import pytest
from random_programs import Vectors, random_program, random_steps
from x86_checker import Checker

from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.unrolled_code import unrolled_module
from robodyn.compile.neon import forms as F
from robodyn.compile.neon.allocation import NeonAllocator
from robodyn.compile.neon.encoding import FREE_REGISTERS, VECTOR_REGISTERS, Encoder
from robodyn.compile.neon.program import assembled
from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86.image import PAGE, Image
from robodyn.compile.x86.staging import Staging

TARGET = Target("aarch64-unknown-linux-gnu", "generic", "", "neon")
SIZES = {"float64": 8, "float32": 4}
dtypes = pytest.mark.parametrize("dtype", SIZES)
alone = pytest.mark.parametrize("narrow", [False, True])


def forms():
    """Every form, by its text."""
    found = [*F.MOVES.values(), *F.LANES.values(), F.MOV, F.CLEAR, F.LOAD_WORD, F.STORE_WORD]
    found += [F.ADD_NUMBER, F.ADD_PAGES, F.ADD_WORD, F.BRANCH, F.RETURN]
    found += [form for size in SIZES.values() for scalar in (False, True) for form in F.forms(size, scalar).values()]
    return {form.text: form for form in found}


_SPECIAL = """
define <2 x double> @lanes(<2 x double> %a, <2 x double> %b, <4 x float> %c, ptr %p, i64 %n) {
  %one = extractelement <2 x double> %a, i32 1
  store double %one, ptr %p
  %far = getelementptr i8, ptr %p, i64 %n
  %l1 = extractelement <4 x float> %c, i32 1
  store float %l1, ptr %far
  %p2 = getelementptr i8, ptr %p, i64 75300
  %l2 = extractelement <4 x float> %c, i32 2
  store float %l2, ptr %p2
  %l3 = extractelement <4 x float> %c, i32 3
  %p3 = getelementptr i8, ptr %far, i64 %n
  store float %l3, ptr %p3
  %p4 = getelementptr i8, ptr %p3, i64 %n
  %f = load float, ptr %p4
  %c1 = insertelement <4 x float> %c, float %f, i32 2
  store <4 x float> %c1, ptr %far
  %p5 = getelementptr i8, ptr %p4, i64 40000
  %q = load i64, ptr %p5
  store i64 %q, ptr %p4
  store <2 x i64> zeroinitializer, ptr %p3
  ret <2 x double> %b
}
define <2 x double> @masks(<2 x double> %x, <2 x double> %y, <2 x double> %z, <4 x float> %v, <4 x float> %w, ptr %p) {
  %ax = call <2 x double> @llvm.fabs.v2f64(<2 x double> %x)
  %ay = call <2 x double> @llvm.fabs.v2f64(<2 x double> %y)
  %far = fcmp ogt <2 x double> %ax, %ay
  %chosen = select <2 x i1> %far, <2 x double> %y, <2 x double> %z
  %av = call <4 x float> @llvm.fabs.v4f32(<4 x float> %v)
  %aw = call <4 x float> @llvm.fabs.v4f32(<4 x float> %w)
  %farther = fcmp ogt <4 x float> %av, %aw
  %wide = sext <4 x i1> %farther to <4 x i32>
  store <4 x i32> %wide, ptr %p
  ret <2 x double> %chosen
}
define void @moves(ptr %p, ptr %r, <2 x i64> %a, <4 x i32> %b, double %c, double %d, float %e, <2 x i64> %f, ptr %g) {
  %p1 = getelementptr i8, ptr %p, i64 -24
  %x = load <2 x i64>, ptr %p1, align 4
  %p2 = getelementptr i8, ptr %p, i64 -92
  %y = load double, ptr %p2, align 4
  %p3 = getelementptr i8, ptr %p, i64 33
  %z = load float, ptr %p3, align 1
  %r1 = getelementptr i8, ptr %r, i64 -40
  store <2 x i64> %x, ptr %r1, align 4
  %r2 = getelementptr i8, ptr %r, i64 57
  store double %y, ptr %r2, align 1
  %r3 = getelementptr i8, ptr %r, i64 -65
  store float %z, ptr %r3, align 1
  %s = ashr <2 x i64> %a, <i64 63, i64 63>
  %o = or <2 x i64> %s, %f
  %t = ashr <4 x i32> %b, <i32 31, i32 31, i32 31, i32 31>
  %g1 = getelementptr i8, ptr %g, i64 64
  store <2 x i64> %o, ptr %g1, align 16
  %g2 = getelementptr i8, ptr %g, i64 80
  store <4 x i32> %t, ptr %g2, align 16
  %g3 = getelementptr i8, ptr %g, i64 160
  store double %d, ptr %g3, align 8
  %g4 = getelementptr i8, ptr %g, i64 168
  store double %c, ptr %g4, align 8
  %next = load ptr, ptr %p
  musttail call void %next(ptr %p, ptr %r, <2 x i64> %a, <4 x i32> zeroinitializer,
                           double %c, double %d, float %e, <2 x i64> %f, ptr %g)
  ret void
}
define <4 x float> @least(<4 x float> %x, <4 x float> %y, <2 x double> %a, <2 x double> %b,
                          double %c, double %d, float %e, float %f, ptr %p) {
  %m = call <4 x float> @llvm.minimum.v4f32(<4 x float> %x, <4 x float> %y)
  %n = call <4 x float> @llvm.maximum.v4f32(<4 x float> %m, <4 x float> %x)
  %o = call <2 x double> @llvm.minimum.v2f64(<2 x double> %a, <2 x double> %b)
  %q = call <2 x double> @llvm.maximum.v2f64(<2 x double> %o, <2 x double> %a)
  store <2 x double> %q, ptr %p
  %r = call double @llvm.minimum.f64(double %c, double %d)
  %s = call double @llvm.maximum.f64(double %r, double %c)
  store double %s, ptr %p
  %t = call float @llvm.minimum.f32(float %e, float %f)
  %u = call float @llvm.maximum.f32(float %t, float %e)
  store float %u, ptr %p
  ret <4 x float> %n
}
declare <4 x float> @llvm.minimum.v4f32(<4 x float>, <4 x float>)
declare <4 x float> @llvm.maximum.v4f32(<4 x float>, <4 x float>)
declare <2 x double> @llvm.minimum.v2f64(<2 x double>, <2 x double>)
declare <2 x double> @llvm.maximum.v2f64(<2 x double>, <2 x double>)
declare double @llvm.minimum.f64(double, double)
declare double @llvm.maximum.f64(double, double)
declare float @llvm.minimum.f32(float, float)
declare float @llvm.maximum.f32(float, float)
declare <2 x double> @llvm.fabs.v2f64(<2 x double>)
declare <4 x float> @llvm.fabs.v4f32(<4 x float>)
"""
"""What programs hardly need, or seldom."""


@cache
def machine():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TARGET.triple).create_target_machine(cpu="generic", opt=2, reloc="pic")


def instructions_by_llvm(text):
    """The instructions that LLVM makes of a module: text and word of each."""
    module = llvm.parse_assembly(text)
    module.triple = TARGET.triple
    code = llvm.ObjectFileRef.from_data(machine().emit_object(module))
    words = b"".join(section.data() for section in code.sections() if section.is_text())
    lines = [line.strip() for line in machine().emit_assembly(module).splitlines()]
    lines = [line for line in lines if re.match(r"[a-z][a-z0-9.]*(\s|$)", line)]
    assert 4 * len(lines) == len(words)
    return zip(lines, np.frombuffer(words, "<u4").tolist(), strict=True)


def pattern(form):
    """What matches the text of an instruction of a form."""
    found, order = "", []
    for literal, operand, _, _ in Formatter().parse(form.text):
        found += re.escape(literal)
        if operand is not None:
            found += r"(-?\d+)"
            order.append(int(operand))
    return re.compile(found), order


def test_words_are_those_of_llvm():
    """Instructions in LLVM's code for programs, as far as ours have the same form."""
    texts = [_SPECIAL]
    for seed, (narrow, size) in enumerate([(narrow, size) for narrow in (False, True) for size in SIZES]):
        of = np.dtype(size), replace(TARGET, narrow=narrow)
        texts.append(unrolled_module(random_program(seed, 100), *of))
    patterns = [(form, *pattern(form)) for form in forms().values()]
    seen: Counter[str] = Counter()
    for text in texts:
        for line, word in instructions_by_llvm(text):
            line = re.sub(r"\s*//.*", "", re.sub(r"\s+", " ", line)).replace("{ ", "{").replace(" }", "}")
            line = re.sub(r"\[(x\d+)\]$", r"[\1, #0]", line) if not line.startswith(("st1", "ld1")) else line
            for form, matched, order in patterns:
                found = matched.fullmatch(line)
                if found is None:
                    continue
                operands = dict(zip(order, map(int, found.groups()), strict=True))
                if form is F.MOV:
                    operands[2] = operands[1]
                values = [operands[k] for k in range(len(form.fields))]
                assert form.encoded(*values) == word, line
                assert form.line(word) == line
                seen[form.text] += 1
    missing = set(forms()) - set(seen)
    assert not missing and sum(seen.values()) > 2000


def test_far_places_are_addressed():
    """Offsets of every size and alignment, by the words of `test_words_are_those_of_llvm`."""
    for size, load in itertools.product((4, 8, 16), (False, True)):
        for offset in (0, 4, 8, 16, 255, 256, 260, 4096, 16380, 16384, 32760, 32768, 65520, 65536, 70_004, 1_000_004):
            encoder = Encoder(8, 16, {}, ())
            encoder.move(load, 5, 3, offset, size)
            reached, base = 0, 3
            for form, word in zip(encoder.used, encoder.words, strict=True):
                d, n, number = (field.decoded(word) for field in form.fields)
                assert n == base
                base, reached = d, reached + number * (4096 if form is F.ADD_PAGES else 1)
            assert reached == offset and base == 5
            assert form is F.MOVES[("ld" if load else "st") + ("ur" if "ur" in form.text else "r"), size]


@dtypes
def test_zeros_are_stored_once_each(dtype):
    size = SIZES[dtype]
    for first, power in itertools.product(range(0, 4000, 7), range(4)):
        count = (32 // size) >> power
        encoder = Encoder(size, size, {I.HEADER: 0}, (I.HEADER,))
        encoder.encode([(I.STORE_ZEROS, 3, max(count, 1), ~(I.ARRAYS + first))])
        encoder.used, encoder.words = encoder.used[1:], encoder.words[1:]  # without the load of the address
        written = []
        for form, word in zip(encoder.used, encoder.words, strict=True):
            (bytes_of,) = [key[1] for key, each in F.MOVES.items() if each is form]
            offset = form.fields[2].decoded(word)
            written += range(offset, offset + bytes_of)
        assert written == [*range(first * size, (first + max(count, 1)) * size)]


@pytest.mark.parametrize("registers", [5, 32])
@pytest.mark.parametrize("seed", range(10))
def test_operands_are_where_instructions_look_for_them(seed, registers):
    homes, stored, steps, _ = random_steps(seed, 300)
    code = NeonAllocator(registers, homes, stored).run(steps)
    Checker(registers, homes, stored).check(steps, code)
    require_registers(code)


@pytest.mark.parametrize("registers", [5, 32])
@pytest.mark.parametrize("seed", range(10))
def test_scalars_are_where_instructions_look_for_them(seed, registers):
    homes, stored, steps, _ = random_steps(seed, 300)
    zeros = [(I.ARRAYS + 2 * I.SPACE + 100 * k, n) for k, n in enumerate((3, 4, 7, 8, 9, 31))]
    steps.append(("zeros", -1, ()))
    code = NeonAllocator(registers, homes, stored, scalar=8, zeros=zeros).run(steps)
    checker = Checker(registers, homes, stored, width=1)
    checker.check(steps, code)
    cleared = {place + k for place, n in zeros for k in range(n)}
    assert {place for place, value in checker.written.items() if value == (Checker.ZERO,)} == cleared
    require_registers(code)


@dtypes
@pytest.mark.parametrize("seed", range(10))
def test_rows_are_where_instructions_look_for_them(seed, dtype):
    width = 16 // SIZES[dtype]
    vectors = Vectors(width)
    staging = Staging(SIZES[dtype], 16, vectors.mask, vectors.constants)
    homes, stored, steps, blocks = random_steps(seed, 300, staging)
    for registers in (32, staging.registers + 3):
        code = NeonAllocator(registers, homes, stored, staging, blocks).run(steps)
        checker = Checker(registers, homes, stored, blocks, width, width)
        checker.memory |= vectors.memory
        checker.check(steps, code)
        require_registers(code)


def require_registers(code):
    """No instruction but loads and stores reads memory, and no multiply-add of vectors but that which NEON has."""
    moves = (I.LOAD, I.STORE, I.STORE_ZEROS, I.MOV_ROWS, I.MOV_OFFSET)
    assert all(x >= 0 or operation in moves for operation, _, _, x in code)
    others = {*range(I.FMADD132, I.FNMADD231 + 1)} - {I.FMADD231, I.FMSUB231, I.FNMADD231}
    assert not others.intersection(operation for operation, *_ in code)


@dtypes
@alone
def test_programs_keep_to_the_calling_convention(dtype, narrow):
    """Of registers that belong to the caller they use those that they give back, and no others."""
    few = 0
    for seed in range(6):
        program = random_program(seed, 150)
        code = assembled(program, np.dtype(dtype), replace(TARGET, narrow=narrow))
        image = code.image()
        again = Image.unpacked(image.packed())
        assert again == image and image.driver_at == PAGE + len(image.data) - 8
        assert len(code.listing().splitlines()) == 1 + image.entry // 4
        lines = code.listing()
        kept = {int(each) for each in re.findall(r"st[rp] d(\d+),.*\[x0", lines.split("adrp")[0])}
        kept |= {int(each) for each in re.findall(r"stp d\d+, d(\d+), \[x0", lines.split("adrp")[0])}
        used = {int(each) for each in re.findall(r"[vdsq](\d+)", lines)}
        assert kept == set(code.saved) == used & set(VECTOR_REGISTERS[FREE_REGISTERS:]) == used & set(range(8, 16))
        general = {int(each) for each in re.findall(r"\bx(\d+)", lines)}
        assert general <= {*range(18)}
        few += not kept
    assert few < 6
