"""Lines of results on the way: tables, the function that writes a line, and what calls it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assembler import assemble

import robodyn as rd
from robodyn.compile.llvm.target import host_target
from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86.pointers import RETURN
from robodyn.compile.x86.program import assembled
from robodyn.compile.x86.row_writer import (
    ARRAYS_WORD,
    Layout,
    crowded,
    entered,
    entered_text,
    finishing,
    function,
    left,
    left_text,
)
from robodyn.engines.query_table import QUERIES

dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])
levels = pytest.mark.parametrize("level", ["avx512", "avx2"])


def random_layout(rng: np.random.Generator, width: int, line: int) -> Layout:
    """Arrays of any sizes, more or less of which is zero, here and there or in one piece."""
    filled = []
    for size in rng.integers(line, 6 * line, int(rng.integers(1, 4))).tolist():
        row = rng.random(size) < rng.choice([0.0, 0.1, 0.9, 1.0])
        row[: int(rng.integers(size))] = rng.random() < 0.5
        filled.append(tuple(row.tolist()))
    return Layout(width, line, tuple(filled))


@pytest.mark.parametrize("width, line", [(8, 8), (16, 16), (4, 8), (8, 16)])
@pytest.mark.parametrize("seed", range(12))
def test_tables_make_rows_of_vectors(seed: int, width: int, line: int) -> None:
    """As the code does it, in plain NumPy: two groups of vectors, in two places that take turns."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    layout = random_layout(rng, width, line)
    assert Layout.unpacked(layout.packed()) == layout
    sizes, groups = [len(row) for row in layout.filled], 2
    wanted = [rng.standard_normal((groups * width * line, size)) for size in sizes]
    for rows, filled in zip(wanted, layout.filled, strict=True):
        rows[:, ~np.array(filled)] = 0.0
    begins = rng.integers(0, line, len(sizes)).tolist()  # scalars behind a line
    found = [np.full(begin + rows.size, np.nan) for begin, rows in zip(begins, wanted, strict=True)]
    places = np.full((2, layout.starts[-1], width), np.nan)
    for first, count in layout.gaps():
        assert np.isnan(places[:, first : first + count]).all(), "twice"
        places[:, first : first + count] = 0.0
    none, *tables = np.split(
        np.frombuffer(layout.entries(), np.int32).reshape(-1, 2),
        np.cumsum([sum(layout.lines), *(line * count for count in layout.lines)])[:-1],
    )
    assert (none == (-2, 0)).all() and len(none) == sum(layout.lines)

    def write(array: int, at: int, scalars: np.ndarray) -> None:
        place = found[array][at : at + len(scalars)]
        assert len(place) == len(scalars) and np.isnan(place).all(), "written twice, or beside the rows"
        place[:] = scalars

    for vector in range(groups * line):
        group, v = divmod(vector, line)
        rows = group * width * line + v + line * np.arange(width)
        now, other = places[vector % 2], places[1 - vector % 2]
        for array, (start, size, begin) in enumerate(zip(layout.starts, sizes, begins, strict=False)):
            columns = [k for k in layout.written(array) if k < size]
            now[[start + k for k in columns]] = wanted[array][rows][:, columns].T
            at = begin + rows * size
            off = int(at[0] % line)
            assert (at % line == off).all(), "rows that do not begin alike"
            table = tables[array].reshape(line, -1, 2)[off].tolist()
            if v == 0 and off:
                table[0] = [-2, 0]
                for state in range(width):
                    write(array, at[state], now[start : start + line - off, state])
            for source, to in table:
                vectors = np.zeros((line, width)) if source == -1 else now[source // layout.vector_bytes :][:line]
                for state in range(width if source != -2 else 0):
                    write(array, at[state] - off + to // 64 * line, vectors[:, state])
            tail = int((at[0] + size) % line) if v == line - 1 else 0
            for state in range(width):
                write(array, at[state] + size - tail, now[start + size - tail : start + size, state])
            other[start - line : start] = now[start + size - line : start + size]
    for rows, begin, lines in zip(wanted, begins, found, strict=True):
        np.testing.assert_array_equal(lines[begin:].reshape(rows.shape), rows)
        assert np.isnan(lines[:begin]).all()


@pytest.mark.parametrize("width, itemsize", [(4, 8), (8, 4), (8, 8), (16, 4)])
def test_rows_are_crowded_where_places_in_pages_are_equal(width: int, itemsize: int) -> None:
    apart = 64 // itemsize
    for scalars in range(1, 4096):
        places = {row * apart * scalars * itemsize % 4096 for row in range(width)}
        assert crowded(scalars, width) == (len(places) < width), scalars


def made(dtype: str, level: str):
    """A program of a robot whose matrix has zeros, with lines on the way."""
    model = rd.random_tree(9, seed=4, base="floating")
    engine = rd.Dynamics(model, engine="cpu", dtype=dtype).engine
    program = engine.request(QUERIES["mass_matrix"].plain_task(model)).trace()
    target = replace(host_target(), level=level)  # nothing is executed
    width, line = target.width(np.dtype(dtype)), 64 // np.dtype(dtype).itemsize
    filled = tuple(tuple(not program.is_zero(each) for each in port.scalars) for port in program.outputs)
    layout = Layout(width, line, filled)
    assert not all(filled[0]) and any(filled[0])
    vectors = frozenset(port.name for port in program.outputs)
    return assembled(program, np.dtype(dtype), target, vectors, layout=layout), layout


def jump(condition: int, over: bytes) -> bytes:
    """js or je, behind some bytes; an assembler would take a shorter one where it can."""
    return bytes((0x0F, condition)) + len(over).to_bytes(4, "little")


@levels
@dtypes
def test_code_is_that_of_llvms_assembler(dtype: str, level: str) -> None:
    code, layout = made(dtype, level)
    image = code.image()
    assert image.line_code is not None and len(code.bodies) == 2
    double, wide, lane = dtype == "float64", level == "avx512", 16 // (8 if dtype == "float64" else 4)
    parts, pieces, first, size = 4 if wide else 2, 1 if wide else 2, 31 - lane if wide else 0, len(layout.filled[0])
    assert code._register == (first if wide else 16)
    suffix, piece = "pd" if double else "ps", ("64x2" if double else "32x4") if wide else "128"
    kind, vector, evex = ("zmm", 64, "{evex} ") if wide else ("ymm", 32, "")
    word = f"{kind}word ptr"
    places = [f"{word} [rbp - {32 * (k + 1)}]" for k in range(0 if wide else 2 * lane + 1)]
    saves = [f"vmovu{suffix} {place}, ymm{k}" for k, place in enumerate(places)]
    loads = [f"vmovu{suffix} ymm{k}, {place}" for k, place in enumerate(places)]
    itemsize = 64 // layout.line
    for apart, past in ((64 * size, True), (64 * size, False), (itemsize * size, False)):
        name = "vmovntps" if past else f"vmovu{suffix}"
        head = ["movsxd r14, dword ptr [rbx]", "movsxd r15, dword ptr [rbx + 4]", "add rbx, 8"]
        head += [f"add r15, qword ptr [rbp + {8 * ARRAYS_WORD}]", "test r14, r14"]
        lines = ["add r14, r13", *saves]
        for part in range(parts):
            rows, spare = [], f"{kind}{first + pieces * lane}"
            for half in range(pieces):
                begin = first + half * lane
                for k in range(lane):
                    for place in range(parts):
                        offset = vector * (layout.width * half + lane * place + k) + 16 * part
                        memory, register = f"xmmword ptr [r14 + {offset}]", f"{kind}{begin + k}"
                        if place:
                            lines.append(f"vinsertf{piece} {register}, {register}, {memory}, {place}")
                        else:
                            lines.append(f"{evex}vmovu{suffix} xmm{begin + k}, {memory}")
                a, b, c, d = (f"{kind}{begin + k}" for k in range(4))
                if double:
                    lines += [f"vunpcklpd {spare}, {a}, {b}", f"vunpckhpd {a}, {a}, {b}"]
                    rows.append([spare, a])
                    spare = b
                else:
                    lines += [f"vunpcklps {spare}, {a}, {b}", f"vunpckhps {a}, {a}, {b}"]
                    lines += [f"vunpcklps {b}, {c}, {d}", f"vunpckhps {c}, {c}, {d}"]
                    lines += [f"vunpcklpd {d}, {spare}, {b}", f"vunpckhpd {spare}, {spare}, {b}"]
                    lines += [f"vunpcklpd {b}, {a}, {c}", f"vunpckhpd {a}, {a}, {c}"]
                    rows.append([d, spare, b, a])
                    spare = c
            for k, whole in enumerate(zip(*rows, strict=True)):
                at = apart * (lane * part + k)
                lines += [f"{name} {word} [r15 + {at + vector * half}], {row}" for half, row in enumerate(whole)]
        lines += loads
        zero = f"{kind}{first}"
        zeros = [*saves[:1], f"vxor{suffix} {zero}, {zero}, {zero}"]
        for row in range(layout.width):
            zeros += [f"{name} {word} [r15 + {apart * row + at}], {zero}" for at in range(0, 64, vector)]
        zeros += loads[:1]
        some, none = assemble([*lines, "ret"]), assemble(zeros)
        wanted = (
            assemble(head) + jump(0x88, some) + some + assemble(["cmp r14d, -2"]) + jump(0x84, none) + none + RETURN
        )
        found = b"".join(function(code.encoder, code.places.staging, first, 0, apart, past))
        assert found == wanted and found in image.code
    assert entered(7, 72) == assemble(entered_text(72)) and left() == assemble(left_text())
    calls = [each for each in code.bodies[1].code if each[0] == I.CALL]
    assert len(calls) == sum(layout.lines) and not any(each[0] == I.CALL for each in code.bodies[0].code)
    text = [*entered_text(72)[:5], "mov rbp, rdi", *entered_text(72)[6:]]
    text += [f"call qword ptr [rbp + {x}]" for *_, x in calls]
    finish = assemble([*text, *left_text(), "vzeroupper"]) + RETURN
    assert finishing(code.encoder, code.bodies[1].code) == finish and finish in image.code
    listing = [line.strip() for line in code.listing(large=True).splitlines()[1:] if "rip" not in line]
    text = assemble(listing)
    assert len(text) > 4000 and text[:20] in image.code and text[60:] in image.code  # constants' address lies between


@levels
@dtypes
def test_programs_leave_the_functions_registers_alone(dtype: str, level: str) -> None:
    code, _ = made(dtype, level)
    for body in code.bodies:
        arithmetic = [each for each in body.code if each[0] < I.MOV_ROWS]
        assert arithmetic and max(max(each[1:4]) for each in arithmetic) < code._register


@levels
@dtypes
def test_images_say_where_lines_are(dtype: str, level: str) -> None:
    from robodyn.compile.x86.image import PAGE, Image

    code, layout = made(dtype, level)
    image = code.image()
    again = Image.unpacked(image.packed())
    assert again == image and again.line_code == image.line_code is not None
    found = again.line_code.moved(1 << 20)
    assert found.layout == layout
    whole = image.code + bytes(-len(image.code) % PAGE) + image.data
    tables = layout.entries()
    assert whole[image.line_code.tables :].startswith(tables) and found.tables == image.line_code.tables + (1 << 20)
    assert whole[image.line_code.finish :].startswith(finishing(code.encoder, code.bodies[1].code))
