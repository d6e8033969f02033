"""Machine code of our own against LLVM's: bytes of instructions, allocation, and results to the bit."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from assembler import assemble
from random_programs import MADE, Vectors, random_program, random_steps, run
from robots import own
from x86_checker import Checker

import robodyn as rd
from robodyn.compile import pages
from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.target import host_target
from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86 import memory
from robodyn.compile.x86.allocation import UNARY, Allocator
from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.forms import forms
from robodyn.compile.x86.general import shared_out
from robodyn.compile.x86.image import Image
from robodyn.compile.x86.listing import Listing
from robodyn.compile.x86.pointers import ARRAY_POINTERS, GENERAL, SAVED, Base, load_pointer, point, pop, push
from robodyn.compile.x86.program import assembled
from robodyn.compile.x86.staging import Staging
from robodyn.engines.cpu import backends

pytestmark = pytest.mark.skipif(
    host_target().level == "neon" or not backends._runs(host_target().level),
    reason="this processor or system has it not",
)
MOVING = ["avx2"] + ["avx512"] * (host_target().level == "avx512")
"""Kinds of code that move rows into vectors and back."""
ALONE = {f"one scalar, {level}": level for level in MOVING}
LEVELS = [*MOVING, *ALONE]
ONCE = I.ARRAYS + 2 * I.SPACE
"""The space of an array that has one scalar for all states, where instructions can spread it."""
BYTES = {"avx2": 32, "avx512": 64}
SIZES = {"float64": 8, "float32": 4}
kinds = pytest.mark.parametrize(("level", "dtype"), list(itertools.product(LEVELS, SIZES)))
moving = pytest.mark.parametrize(("level", "dtype"), list(itertools.product(MOVING, SIZES)))


def target_of(level):
    return host_target(ALONE[level]).for_one_state if level in ALONE else host_target(level)


def bytes_of(level, dtype):
    return BYTES.get(level, SIZES[dtype])


def registers_of(level):
    return 32 if ALONE.get(level, level) == "avx512" else 16


def encoder_of(level, dtype, coarse=False):
    starts = {I.SPILLS: -8192, I.POOL: -512, I.VECTORS: 128, I.HEADER: 0, I.ARRAYS: 0, I.ARRAYS + I.SPACE: 64, ONCE: 0}
    pointers = {I.SPILLS: 7, I.POOL: 6, I.VECTORS: 6, I.HEADER: 7, I.ARRAYS: 2, I.ARRAYS + I.SPACE: 9, ONCE: 0}
    mixed = ALONE.get(level) == "avx512"
    spread = (ONCE,) if level == "avx512" else ()
    of = SIZES[dtype], bytes_of(level, dtype), starts, pointers
    return Encoder(*of, mixed=mixed, coarse=mixed and coarse, spread=spread)


ON_ROWS = (
    *(I.LOAD_ROW, I.STORE_ROW, I.INSERTF128, I.INSERTF64X4),
    *(I.EXTRACTF128_STORE, I.MOVU_MASKED, I.MOVLPD, I.MOVHPD, I.EXTRACTPS),
)


def places():
    """Memory in every space: no displacement, one byte of it, four bytes, either sign."""
    for space in (I.SPILLS, I.POOL, I.VECTORS, I.ARRAYS, I.ARRAYS + I.SPACE, ONCE):
        for index in (0, 1, 3, 4, 63, 64, 127, 128, 129, 255, 256, 257, 300, 5000):
            yield ~(space + index)


def instructions_of(encoder):
    """Every instruction with every register in each place, and with memory where it may be; those on rows with each
    register that may keep the offset, and with none."""
    code = list(without_kept_offsets(encoder))
    rows = [each for each in code if each[0] in ON_ROWS]
    ahead = [(I.PREFETCHT0, 0, 0, x) for x in (0, 64, 127, 128, 3584, 100000)]
    ahead += [(I.PREFETCHW, 0, 0, x) for x in (0, 1, 8, 15, 16, 31, 32, 1000)] if encoder.wide else []
    yield from (*code, *ahead)
    for register in (I.NO_INDEX, *ARRAY_POINTERS, *SAVED):
        yield from ((I.USE_OFFSET, register, 0, 0), *rows[register % 3 :: 3], *ahead)


def without_kept_offsets(encoder):
    count = 32 if encoder.wide or encoder.mixed else 16
    memories = list(places())
    rng = random.Random(1)
    for code, form in (encoder.evex_forms or forms(encoder.itemsize, encoder.bytes)).items():
        if code in (I.LOAD_ROW, I.STORE_ROW):
            masks = range(1, 8) if encoder.wide else range(count if code == I.LOAD_ROW else 0)
            for d, mask in itertools.product(range(count), (-1, *masks)):
                yield code, d, mask, rng.choice((0, 1, 8, 16, 31, 100))
            continue
        if code in (I.INSERTF128, I.INSERTF64X4):
            starts = (0, 1, 2, 3, 4, 8, 100, 127, 128, 1000)
            lanes = range(encoder.bytes // 16 if code == I.INSERTF128 else 2)
            yield from ((code, *each) for each in itertools.product(range(count), lanes, starts))
            continue
        if code == I.EXTRACTF128:
            lanes, some = range(encoder.bytes // 16), (0, 7, 9, count - 1)
            yield from ((code, d, lane, x) for d, lane, x in itertools.product(range(count), lanes, some))
            yield from ((code, 5, lane, x) for lane, x in itertools.product(lanes, range(count)))
            continue
        if I.EXTRACTF128_STORE <= code <= I.EXTRACTPS or code == I.MOVU_MASKED:
            parts = {I.EXTRACTF128_STORE: range(encoder.bytes // 16), I.EXTRACTPS: range(4)}.get(code, (0,))
            starts = (0, 1, 2, 3, 4, 8, 100, 127, 128, 1000)
            yield from ((code, *each) for each in itertools.product(range(count), parts, starts))
            continue
        alone = form.sources == 1
        stores = code in (I.STORE, I.MOVNT)
        if code != I.LOAD and not stores:
            for d in range(count):
                yield from (
                    (code, d, 0 if alone else a, x) for a in ((0,) if alone else (0, 7, 8, d)) for x in (0, 9, d)
                )
            yield from ((code, 5, 0 if alone else a, x) for a in range(1 if alone else count) for x in range(count))
        if (code in UNARY.values() and code != I.SQRT) or code in (
            I.MOVE,
            I.UNPCKL,
            I.UNPCKH,
            I.UNPCKLPD,
            I.UNPCKHPD,
            I.SHUFF_EVEN,
            I.SHUFF_ODD,
        ):
            continue
        for x in memories:
            if not stores or ~x // I.SPACE * I.SPACE not in (I.POOL, ONCE):
                yield code, rng.randrange(count), 0 if alone else rng.randrange(count), x
    for code in (I.MOV_ROWS, I.MOV_OFFSET):
        yield from ((code, 0, 0, ~(I.HEADER + k)) for k in (0, 1, 15, 16, 17, 1000))
    if encoder.wide:
        yield from ((I.KMOV, 0, mask, n) for mask in range(1, 8) for n in range(1, 17))
    if encoder.scalar:
        yield from ((I.CLEAR, d, 0, 0) for d in range(16))
        many = [32 // encoder.itemsize >> k for k in range(encoder.itemsize.bit_length() - 1)]
        yield from ((I.STORE_ZEROS, d, n, rng.choice(memories)) for d in range(16) for n in many)


@kinds
@pytest.mark.some(of=2, rest="matrix")
def test_instructions_are_those_of_llvms_assembler(level, dtype):
    encoder = encoder_of(level, dtype)
    code = list(instructions_of(encoder))
    lines = list(Listing(encoder).lines(code))
    assert len(code) > 1200
    if encoder.encode(code) == assemble(lines):
        return
    before = []
    for instruction in code:  # which one is it?
        if instruction[0] in (I.USE_OFFSET, I.MOV_OFFSET):
            before = [instruction]
        text = list(Listing(encoder).lines([*before, instruction]))
        assert encoder.encode([*before, instruction]).hex() == assemble(text).hex(), text
    raise AssertionError("each is, but not all together")


@kinds
@pytest.mark.parametrize("register", [*SAVED, 8, 10, 11])
@pytest.mark.some(of=12, when="matrix")
def test_bases_are_near_what_is_far_from_pointers(register, level, dtype):
    """At each base, and at all ends of what is near it."""
    for coarse in (False, True)[: 1 + (ALONE.get(level) == "avx512")]:
        require_bases(lambda coarse=coarse: encoder_of(level, dtype, coarse), register)


def require_bases(encoder_again, register):
    plain, encoder = encoder_again(), encoder_again()
    code = [each for each in instructions_of(plain) if each[0] != I.USE_OFFSET and each[3] < 0]
    code += [(I.STORE, 1, 0, ~(I.SPILLS + k)) for k in range(120, 1200)]
    code += [(operation, 0, 0, ~(I.HEADER + k)) for k in range(1, 40) for operation in (I.ADVANCE, I.MOV_ROWS)]
    far = plain.far(code)
    assert len({pointer for pointer, _ in far}) == 5  # of the encoder's, and of the frame
    for pointer, start in far:
        base = Base(register, pointer, start)
        encoder.reach([base])
        near, shorter = [], 0
        for each in code:
            there, offset = encoder.address(~each[3])
            was, before = plain.address(~each[3])
            if there == register:
                assert (was, before) == (pointer, offset + start)
                near.append(each)
                shorter += len(plain.encode([each])) > len(encoder.encode([each]))
            else:
                assert (there, offset) == (was, before)
        assert len(near) >= far[pointer, start] > 0 and (shorter > 0 or register >= 8)
        lines = list(Listing(encoder).lines(near))
        assert encoder.encode(near) == assemble(lines)
        assert point(base) == assemble([f"lea {GENERAL[register]}, [{GENERAL[pointer]} + {start}]"])
        encoder = encoder_again()  # which has encoded nothing with another base


def test_registers_are_saved_as_by_llvms_assembler():
    for register in (*ARRAY_POINTERS, *SAVED):
        assert push(register) + pop(register) == assemble([f"push {GENERAL[register]}", f"pop {GENERAL[register]}"])


def test_registers_go_to_what_saves_most_bytes():
    far = Counter({(7, 512): 8, (6, 1024): 100, (7, 1024): 7, (2, 4096): 9})
    bases, offsets = shared_out(Counter({1: 40, 2: 1, 3: 3, 4: 90}), far, (10, 11), SAVED, True)
    assert [(each.register, each.pointer, each.start) for each in bases] == [(10, 6, 1024), (3, 2, 4096), (5, 7, 512)]
    assert offsets == [11, 12]  # what is loaded once, and what saves less than to give a register back, has none
    bases, offsets = shared_out(Counter({1: 40, 2: 1, 3: 3, 4: 90}), far, (10, 11), SAVED, False)
    assert [each.register for each in bases] == [3, 5, 13] and offsets == [11, 10]
    assert shared_out(Counter({1: 3}), Counter(), (), SAVED, True) == ([], [])


def test_pointers_are_those_of_llvms_assembler():
    for register, pointer in itertools.product((0, 2, 8, 11), (6, 7)):
        for offset in (0, 8, -128, 127, 128, 5000, -5000):
            text = f"mov {GENERAL[register]}, qword ptr [{GENERAL[pointer]} + {offset}]"
            assert load_pointer(register, pointer, offset) == assemble([text]), text


# Allocation.


@pytest.mark.parametrize("registers", [5, 16, 32])
@pytest.mark.parametrize("seed", range(40))
def test_operands_are_where_instructions_look_for_them(seed, registers):
    homes, stored, steps, _ = random_steps(seed, 300)
    Checker(registers, homes, stored).check(steps, Allocator(registers, homes, stored).run(steps))


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("registers", [5, 16, 32])
@pytest.mark.parametrize("seed", range(20))
def test_scalars_are_where_instructions_look_for_them(seed, registers, itemsize):
    """And no more of what was stored, or of an array, is read than there is, and all zeros are written."""
    homes, stored, steps, _ = random_steps(seed, 300)
    zeros = [(I.ARRAYS + 2 * I.SPACE + 100 * k, n) for k, n in enumerate((3, 4, 7, 8, 9, 31))]
    steps.append(("zeros", -1, ()))
    code = Allocator(registers, homes, stored, scalar=itemsize, zeros=zeros).run(steps)
    checker = Checker(registers, homes, stored, width=1)
    checker.check(steps, code)
    cleared = {place + k for place, n in zeros for k in range(n)}
    assert {place for place, value in checker.written.items() if value == (Checker.ZERO,)} == cleared
    bits = [each for each in code if each[0] in I.BITWISE]
    assert len(bits) > 20 and not any(x < 0 and ~x // I.SPACE != I.POOL // I.SPACE for *_, x in bits)


@moving
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(of=3, rest="matrix")
def test_rows_are_where_instructions_look_for_them(seed, level, dtype):
    itemsize = SIZES[dtype]
    vectors = Vectors(BYTES[level] // itemsize)
    staging = Staging(itemsize, BYTES[level], vectors.mask, vectors.constants)
    homes, stored, steps, blocks = random_steps(seed, 300, staging)
    for registers in (registers_of(level), staging.registers + 3):
        code = Allocator(registers, homes, stored, staging, blocks).run(steps)
        checker = Checker(registers, homes, stored, blocks, staging.width, 16 // itemsize)
        checker.memory |= vectors.memory
        checker.check(steps, code)


def test_the_checker_sees_what_is_wrong():
    """Each register and each place of an allocation that is changed is a fault, but for few that nothing reads."""
    vectors = Vectors(4)
    staging = Staging(8, 32, vectors.mask, vectors.constants)
    homes, stored, steps, blocks = random_steps(3, 80, staging)
    good = Allocator(9, homes, stored, staging, blocks).run(steps)
    missed = 0
    for k, (operation, d, a, x) in enumerate(good):
        other = (x + 1) % 9 if x >= 0 else x - 1
        changed = [*good[:k], (operation, d, a, other), *good[k + 1 :]]
        checker = Checker(9, homes, stored, blocks, 4, 2)
        checker.memory |= vectors.memory
        try:
            checker.check(steps, changed)
        except (AssertionError, KeyError):
            continue
        missed += 1
    assert missed < 0.1 * len(good)


# Results.


@kinds
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=6, rest="matrix")
def test_random_programs_have_llvms_bits(seed, level, dtype):
    compare(seed, 150, level, dtype, plain=True)


@pytest.mark.nightly
@kinds
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_programs_have_llvms_bits(seed, level, dtype):
    compare(seed, 30 + 10 * (seed % 60), level, dtype)


def compare(seed, count, level, dtype, plain=False):
    """Bits of random programs; `plain`: roundings and ranges let results be compared with plain arithmetic, too."""
    from robodyn.compile.llvm.jit import Code, compile_object
    from robodyn.compile.llvm.unrolled_code import unrolled_module

    program, target = random_program(seed, count), target_of(level)
    wanted_dtype = np.dtype(dtype)
    width = target.width(wanted_dtype)
    least = Staging(SIZES[dtype], bytes_of(level, dtype), int, len).registers + 3
    driver = backends._driver(target, width, ObjectCache.from_environment())
    llvm = Code(compile_object(unrolled_module(program, wanted_dtype, target), target, 1), target)
    rng = np.random.default_rng(seed)
    for rows in (1, 2, max(width - 1, 1), width, 2 * width + 3):
        given = [rng.normal(size=(rows, port.size)).astype(dtype) * 2 for port in program.inputs]
        given[0][0, 0] = rng.choice([np.nan, -np.inf, 1e20, -0.0, 2.0**21, 2.0**21 + 1, 2.0**50, 2.0**50 + 1, 1.0])
        found = []
        for code in (llvm, *(assembled(program, wanted_dtype, target, registers=n).image() for n in (least, None))):
            loaded = memory.LoadedImage(code, driver.address("drive"), driver) if isinstance(code, Image) else code
            outputs = [np.full((rows, port.size), 777.0, dtype) for port in program.outputs]
            run(loaded.address("kernel"), [*given, *outputs])
            found.append(outputs)
        for outputs in found[1:]:
            for one, other in zip(found[0], outputs, strict=True):
                np.testing.assert_array_equal(one, other)
                np.testing.assert_array_equal(np.signbit(one) & ~np.isnan(one), np.signbit(other) & ~np.isnan(other))
        if plain:
            exact = {port.name: array.astype(float) for port, array in zip(program.inputs, given, strict=True)}
            with np.errstate(all="ignore"):
                wanted = program.evaluate(exact)
            for one, port in zip(found[0], program.outputs, strict=True):
                sound = np.isfinite(wanted[port.name]) & (np.abs(given[0][:, :1]) < 100)
                np.testing.assert_allclose(one[sound], wanted[port.name][sound], rtol=2e-3, atol=2e-3)


def require_advances(body, addresses):
    """Each address of rows goes on once, when it is not read any more, and through a register that nobody reads then
    before it is written."""
    wanted, there = set(addresses), True
    for operation, _, _, x in body.code:
        if operation == I.ADVANCE:
            wanted.remove(~x)
            there = False
        elif operation == I.MOV_ROWS:
            there = True
        assert there or operation not in (*ON_ROWS, I.PREFETCHT0, I.PREFETCHW)
        assert operation not in (I.MOV_ROWS, I.MOV_POINTER) or ~x in wanted or ~x not in addresses
    assert not wanted


@kinds
@pytest.mark.some(of=3, rest="matrix")
def test_whole_programs_are_what_llvms_assembler_makes_of_their_listing(level, dtype):
    model = rd.random_tree(6, seed=2, base="floating")
    engine_model = rd.Dynamics(model, engine="cpu", dtype=dtype).engine
    from robodyn.engines.query_table import QUERIES

    for query in ("forward_dynamics", "inverse_dynamics_gradient"):
        program = engine_model.request(QUERIES[query].plain_task(model)).trace()
        vectors = frozenset(port.name for port in program.outputs[:1]) | {program.inputs[-1].name}
        kinds = [(frozenset(), False), (vectors, False)]
        if level not in ALONE:
            kinds.append((frozenset(), True))
        for chosen, copies in kinds:
            made = assembled(program, np.dtype(dtype), target_of(level), chosen, copies=copies)
            image = made.image()
            assert len(made.bodies) == 1 + copies == 1 + (image.large > 0)
            assert Image.unpacked(image.packed()) == image
            for k, body in enumerate(made.bodies):
                lines = [line.strip() for line in made.listing(large=k > 0).splitlines()[1:] if "rip" not in line]
                before, after = made._before(body), made._after(body)
                require_advances(body, made._headers(len(body.rows), 0))
                assert assemble(lines) == before + after
                assert before in image.code and after in image.code
                copied = k * sum(port.size for port in program.outputs)
                assert sum(each[0] == I.MOVNT for each in body.code) == copied
                fetched = [x for operation, *_, x in body.code if operation == I.PREFETCHT0]
                spans = [made.width * port.size * np.dtype(dtype).itemsize for port in program.inputs]
                lines = k * sum(-(-span // 64) for span in spans)
                assert lines <= len(fetched) <= 2 * lines  # columns that are loaded twice bring theirs twice
                assert not fetched or min(fetched) == max(3584, min(spans) // 64 * 64)


@moving
def test_nothing_else_knows_the_register_of_copies(level, dtype):
    program, target = random_program(3, 400), target_of(level)
    made = assembled(program, np.dtype(dtype), target, copies=True)
    registers = registers_of(level)
    assert made.bodies[0].code and not any(
        registers - 1 in each[1:4] for each in made.bodies[0].code if each[0] < I.MOV_ROWS
    )
    copies = [each for each in made.bodies[1].code if each[1] == registers - 1 and each[0] in (I.LOAD, I.MOVNT)]
    assert len(copies) == 2 * sum(port.size for port in program.outputs)


def long_rows(size):
    """A program with two arrays of that many scalars, and their products."""
    from robodyn.compile.tracing.expression import Graph
    from robodyn.compile.tracing.program import Program

    graph = Graph()
    inputs = {name: ((size,), graph.inputs(size)) for name in ("a", "b")}
    results = [x * y for x, y in zip(inputs["a"][1], inputs["b"][1], strict=True)]
    return Program.of("long rows", graph, inputs, {"x": ((size,), results)})


@moving
def test_registers_keep_offsets_and_lines_are_fetched_ahead(level, dtype):
    """Of long rows: no register that an array of vectors has, and no line behind the end of a row. Some registers are
    saved first, which short rows are not worth."""
    program, target = long_rows(160), target_of(level)
    for vectors, registers in ((frozenset(), 5), (frozenset("a"), 4), (frozenset("ab"), 3)):
        made = assembled(program, np.dtype(dtype), target, vectors)
        staging = made.places.staging
        others = [base.register for base in made.bases]
        assert len(made.offsets) == min(registers + len(SAVED) - len(others), (3 - len(vectors)) * (staging.width - 1))
        assert len({*made.offsets.values(), *made.pointers, *others}) == sum(
            map(len, (made.offsets, made.pointers, others))
        )
        short = assembled(long_rows(2 * staging.width), np.dtype(dtype), target, vectors)
        assert not {*short.offsets.values(), *(base.register for base in short.bases)} & {*SAVED}
        assert sum(code == I.USE_OFFSET and d == I.NO_INDEX for code, d, *_ in made.code) > 0
        ahead = [x for code, *_, x in made.code if code == I.PREFETCHW]
        behind = [start + count for start, count in staging.blocks(160) if start + count < 160]
        assert sorted(ahead) == sorted(staging.width * behind if level == "avx512" else [])


@kinds
def test_more_arrays_of_vectors_than_registers_take_turns(level, dtype):
    from robodyn.compile.llvm.jit import Code, compile_object
    from robodyn.compile.llvm.unrolled_code import unrolled_module
    from robodyn.compile.tracing.expression import Graph
    from robodyn.compile.tracing.program import Program

    rng, graph = random.Random(5), Graph()
    inputs = {f"in{k}": ((5,), graph.inputs(5)) for k in range(8)}
    known = [each for _, scalars in inputs.values() for each in scalars]
    for _ in range(120):
        x, y, z = (rng.choice(known) for _ in range(3))
        known.append(0.5 * rng.choice(MADE[:4])(x, y, z))
    outputs = {f"out{k}": ((4,), rng.sample(known, 4)) for k in range(4)}
    program, target = Program.of("many arrays", graph, inputs, outputs), target_of(level)
    width, names = target.width(np.dtype(dtype)), frozenset((*inputs, *outputs))
    driver = backends._driver(target, width, ObjectCache.from_environment())
    llvm = unrolled_module(program, np.dtype(dtype), target, vectors=names)
    codes = [Code(compile_object(llvm, target, 1), target)]
    for registers in (Staging(SIZES[dtype], bytes_of(level, dtype), int, len).registers + 3, None):
        made = assembled(program, np.dtype(dtype), target, names, registers)
        turns = sum(code == I.MOV_POINTER for code, *_ in made.code)
        assert turns > 5 and len(made.pointers) == 5
        lines = [line.strip() for line in made.listing().splitlines()[1:] if "rip" not in line]
        (body,) = made.bodies
        assert assemble(lines) == made._before(body) + made._after(body)
        codes.append(memory.LoadedImage(made.image(), driver.address("drive"), driver))

    def aligned(values):
        memory = np.empty(values.nbytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        array = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        array[:] = values
        return array

    given = [aligned(np.random.default_rng(k).normal(size=(5, width)).astype(dtype)) for k in range(len(inputs))]
    found = []
    for code in codes:
        results = [aligned(np.full((4, width), 777.0, dtype)) for _ in outputs]
        run(code.address("kernel"), [*given, *results], rows=1)
        found.append(results)
    for results in found[1:]:
        np.testing.assert_array_equal(found[0], results)
    assert np.isfinite(found[0]).all() and not (np.array(found[0])[..., 0] == 777.0).any()


# Where it is taken, and where not.


@pytest.fixture
def arm(monkeypatch, tmp_path):
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    return rd.random_tree(4, seed=9)


def torques(model):
    dyn = rd.Dynamics(model, engine="cpu", threads=1)
    rng = np.random.default_rng(2)
    q, v = model.random_configuration(rng, (5,)), rng.normal(size=(5, model.nv))
    return dyn.inverse_dynamics(q, v, v), dyn.program("inverse_dynamics").assembly


@pytest.mark.parametrize("word", ["auto", "", "x86", "llvm"])
def test_a_variable_says_which(word, arm, monkeypatch):
    wanted = torques(arm)[0]
    monkeypatch.setenv(backends.BACKEND_VARIABLE, word)
    found, assembly = torques(arm)
    assert (found == wanted).all()
    assert ("lea rsi, [rip + constants]" in assembly) == (word != "llvm")


def test_other_words_are_refused(arm, monkeypatch):
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "gcc")
    allowed = "'auto', 'x86', 'neon', 'llvm'"
    with pytest.raises(rd.UnavailableError, match=f"ROBODYN_CPU_BACKEND: got 'gcc'; allowed: {allowed}"):
        torques(arm)
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "neon")
    with pytest.raises(rd.UnavailableError, match="got 'neon'; wanted an aarch64 processor, with libgcc_s, Linux"):
        torques(arm)


def test_llvm_serves_where_our_code_has_no_memory(arm, monkeypatch):
    wanted = torques(arm)[0]

    def refuse(start, size, how):
        if how & pages.EXECUTE:
            raise rd.UnavailableError("engine 'cpu': the system does not protect memory for machine code")

    monkeypatch.setattr(memory, "_RAN", [])
    with monkeypatch.context() as patched:
        patched.setattr(memory, "protect", refuse)
        assert (torques(arm)[0] == wanted).all() and "constants]" not in torques(arm)[1]
        assert backends.backend_of(rd.Dynamics(arm).engine.request(_task(arm))) is backends.LLVM
        patched.setenv(backends.BACKEND_VARIABLE, "x86")
        with pytest.raises(rd.UnavailableError, match="got 'x86'; wanted a processor with AVX2 or AVX-512, Linux"):
            torques(arm)
    # What was refused once is not refused for ever.
    assert backends.backend_of(rd.Dynamics(arm).engine.request(_task(arm))) is backends.X86


_REFUSED = """
import ctypes, os, sys, warnings
import numpy as np
import robodyn as rd
model, z = rd.load_urdf(sys.argv[1]), np.zeros(7)
wanted = rd.Dynamics(model, engine="reference").forward_dynamics(z, z, z)
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE: no memory is written and then executed
    sys.exit(77)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = rd.Dynamics(model).forward_dynamics(z, z, z)
assert np.abs(found - wanted).max() < 1e-9 and "the reference engine answers instead" in str(caught[0].message)
try:
    rd.Dynamics(model, engine="cpu").forward_dynamics(z, z, z)
except rd.UnavailableError as error:
    assert "does not let a process execute what it wrote" in str(error) or os.environ[sys.argv[2]] == "x86", error
else:
    raise AssertionError("it ran")
"""


@pytest.mark.parametrize("word", ["auto", "llvm", "x86"])
def test_the_reference_engine_serves_where_nothing_that_was_written_may_be_executed(word):
    command = [sys.executable, "-c", _REFUSED, str(own("arm7")), backends.BACKEND_VARIABLE]
    environment = {**os.environ, backends.BACKEND_VARIABLE: word}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip("this kernel refuses nothing")
    assert done.returncode == 0, done.stderr


def _task(model):
    from robodyn.engines.query_table import QUERIES

    return QUERIES["inverse_dynamics"].plain_task(model)


def test_pages_are_executed_or_written_to(arm):
    """And given back with the code."""

    def rights(address):
        for line in Path("/proc/self/maps").read_text().splitlines():
            where, how = line.split()[:2]
            start, end = (int(word, 16) for word in where.split("-"))
            if start <= address < end:
                return how, end
        return None, address

    dyn = rd.Dynamics(arm, engine="cpu", threads=1)
    dyn.mass_matrix(arm.neutral())
    kernel = next(iter(dyn.engine._kernels.values()))
    loaded = (kernel.plain or kernel).code
    entry = loaded._entry
    how, constants = rights(entry)
    assert how == "r-xp" and rights(constants)[0] == "r--p"
    del dyn, kernel, loaded
    gc.collect()
    assert rights(entry)[0] != "r-xp"


def test_code_comes_from_the_cache(arm, monkeypatch):
    wanted = torques(arm)[0]
    monkeypatch.setattr(backends, "assembled", lambda *_: pytest.fail("made again"))
    dyn = rd.Dynamics(arm, engine="cpu", threads=1)
    rng = np.random.default_rng(2)
    q, v = arm.random_configuration(rng, (5,)), rng.normal(size=(5, arm.nv))
    assert (dyn.inverse_dynamics(q, v, v) == wanted).all()


def test_threads_make_and_load_code_at_once(arm):
    from concurrent.futures import ThreadPoolExecutor

    wanted = torques(arm)[0]
    with ThreadPoolExecutor(8) as pool:
        for found, _ in pool.map(lambda _: torques(arm), range(16)):
            assert (found == wanted).all()
