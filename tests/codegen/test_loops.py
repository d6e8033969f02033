"""Functions with loops: as Python and as machine code they do the same."""

from __future__ import annotations

import ast
import ctypes
import inspect
import threading
import time

import numpy as np
import pytest

from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops import language
from robodyn.compile.loops.blocks import I64, Number, Value
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Byte,
    Flag,
    Integer,
    Operator,
    Scalar,
    Static,
    Vector,
    Word,
    Words,
    address,
    all_of,
    anything,
    array,
    bound,
    call,
    chosen,
    clear,
    code_of,
    convert,
    copy,
    exchange_if,
    extracted,
    fma,
    inserted,
    leading_zeros,
    load_atomic,
    load_some,
    local,
    place,
    places_of,
    processor,
    routine,
    shifted,
    shuffled,
    spread,
    store_atomic,
    store_some,
    stream,
    struct_of,
    switch,
    unsigned_less,
    update,
    variable,
    wrapped,
)
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.source import function_text
from robodyn.internals.errors import UnavailableError

# Two vectors of 16 bytes, whatever the processor.
TYPES = {"Vector": Number("double", 2), "Scalar": Number("double"), "Words": Number("i64", 2)}


class Pair(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64), ("words", ctypes.c_int64 * 3))


class Table(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int64), ("pairs", ctypes.POINTER(Pair)))


def both(function, words, /, **known):
    """The words after the function ran on them as Python, and after its machine code did; checked to be the same."""
    module = Module(TYPES)
    module.export(function, "kernel", **known)
    code = Code(compile_object(module.text(), host_target(), OPT), host_target())
    compiled = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("kernel"))
    found = []
    for run in ("Python", "machine code"):
        memory = np.zeros(len(words) + 8, np.int64)
        own = memory[-memory.ctypes.data // 8 % 8 :][: len(words)]
        own[:] = words
        if run == "Python":
            with bound(**TYPES):
                result = function(Array(own.ctypes.data, language.I64), **known)
        else:
            result = compiled(own.ctypes.data)
        found.append((own.tolist(), int(result)))
    assert found[0] == found[1]
    return found[0]


def helper(a: Word, b: Word) -> Word:
    if a > b and b != 3:
        return a - b
    while a < b or a == 7:
        a += 3
        if a % 5 == 0:
            return a
    return a * b


@routine
def called(a: Word, twice: Static[bool]) -> Word:
    return 2 * a if twice else a


@routine
def control(w: Array[Word]) -> Word:
    total, kept = 0, 0
    for k in range(w[0]):
        if k % 3 == 1:
            continue
        if total > 1000 or k == 40:
            break
        for j in reversed(range(k, k + 4)):
            total += helper(j, w[1]) * called(k, True)
            if not (total & 1 == 0 and j != 2):
                kept += called(j, False)
    while kept > w[2]:
        kept = kept // 2
    pieces = [total, kept]
    for k in range(2):
        pieces[k] += k + 1
    w[3], w[4] = pieces
    return total - kept if kept < total else -total


@pytest.mark.parametrize("words", [(0, 0, 0), (3, 2, 5), (60, 9, 1), (60, 3, 1000), (1, -4, 0)])
def test_control(words):
    both(control, [*words, 0, 0])


def counting(w: Array[Word]) -> Flag:
    if update(w + 1, "add", 1, "monotonic") > 2:
        return True
    return w[0] > 5


@routine
def effects(w: Array[Word]) -> Word:
    if counting(w):
        return 1
    if w[1] == 2 and not counting(w):
        return 2
    return 3


@pytest.mark.parametrize("words", [(0, 1), (6, 1), (0, 2), (0, 0)])
def test_what_a_test_does_is_done_once(words):
    both(effects, words)


@routine
def quantified(w: Array[Word]) -> Word:
    same = all(w[k] == w[k + 1] for k in range(1, w[0]))
    if any(w[k] == 7 for k in range(w[0])):
        return 10 + int(same)
    if all(w[k] in (3, 4, w[1]) for k in range(1, 4)) and not any(w[k] < w[0] for k in range(2)):
        return 20 + int(same)
    return 30 + int(same) + int(w[0] in (1, 2)) + 2 * int(w[1] not in (w[2], 1))


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ((3, 7, 7, 7), 11),
        ((4, 7, 7, 8), 10),
        ((2, 3, 4, 3), 20),
        ((2, 2, 2, 2), 21),
        ((2, 1, 9, 9), 31),
        ((2, 5, 9, 9), 33),
    ],
)
def test_tests_of_all_rounds(words, result):
    assert both(quantified, [*words, 0])[1] == result


@routine
def swapped(w: Array[Word]) -> Word:
    a, b, c = w[0], w[1], 0
    while True:
        a, b = b, a
        c += 1
        if c > w[2]:
            break
    w[3], w[4] = a, b
    return c


@pytest.mark.parametrize("rounds", [0, 1, 6])
def test_variables_change_places(rounds):
    assert both(swapped, [1, 2, rounds, 0, 0])[0][3:] == ([2, 1] if rounds % 2 == 0 else [1, 2])


@routine
def registers(w: Array[Word], rows: Static[int]) -> Word:
    """Sums that stand in lists are variables of the loop around."""
    X = array(Vector, w + 4)
    sums = [[spread(Vector, 0.5 * c) for c in range(2)] for _ in range(rows)]
    for k in range(w[0]):
        value = X[k]
        for r in range(rows):
            for c in range(2):
                sums[r][c] = fma(value, X[c], sums[r][c] - 2.0)
        if k == 2:
            sums[0][0] = -sums[0][0] / 3.0
    mixed = shuffled(sums[0][0], sums[1][1], [0, 3])
    total = spread(Vector, extracted(mixed, 1)) + inserted(anything(Vector), extracted(mixed, 0), 0)
    X[3] = inserted(mixed, extracted(total, 0), 1)
    X[4] = sums[rows - 1][1]
    return 0


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_registers(rounds):
    rng = np.random.default_rng(3)
    numbers = rng.integers(-9, 9, 12).astype(float).view(np.int64)  # whose products are exact
    both(registers, [rounds, 0, 0, 0, *numbers], rows=2)


@routine
def memory(w: Array[Word]) -> Word:
    own = local(Pair, 2)
    own[0].data, own[1].data = address(w), NULL
    own[0].stride, own[1].stride = 8, -1
    words = own[1].words
    words[0], words[2] = w[1], w[0]
    clear(place(own[1], "stride"), 8)
    copy(own[0].words, own[1].words, 24)
    w[2] = own[0].words[2] + own[1].stride
    w[3] = array(Word, own[0].data + own[0].stride)[0]
    w[4] = int(own[1].data == NULL and own[0].data != NULL)
    array(Integer, w)[10] = 1 << 30
    array(Byte, w)[50] = 7
    stream(array(Word, w) + 7, w[1] + 1)
    pointer = array(Word, w) + 2
    if w[0] > 3:
        pointer = pointer - 1
    return pointer[0] + (address(w) & 7) + int(pointer) - int(address(w))


@pytest.mark.parametrize("first", [2, 5])
def test_memory(first):
    both(memory, [first, 20, 30, 40, 50, 0, 0, 0])


class Node(ctypes.Structure):
    """Of a list."""


Node._fields_ = (("value", ctypes.c_int64), ("next", ctypes.POINTER(Node)), ("others", ctypes.POINTER(ctypes.c_int32)))


@routine
def pointers(w: Array[Word]) -> Word:
    node, total = array(Node, w[0]), 0
    while node != NULL:
        total = 10 * total + node.value + convert(Word, node.others[1])
        node = node.next
    first = variable(Array[Node], "first")
    first[0] = array(Node, w[0]).next
    return 10 * total + first[0].next.value


def test_fields_that_point():
    numbers, nodes = (ctypes.c_int32 * 2)(7, -1), (Node * 3)()
    for k, node in enumerate(nodes):
        node.value, node.others = k + 2, numbers
        node.next = ctypes.pointer(nodes[k + 1]) if k < 2 else None
    assert both(pointers, [ctypes.addressof(nodes)])[1] == 1234


@routine
def seen_otherwise(w: Array[Word]) -> Word:
    """A variable that stays as it is, and is seen as an address of bytes and of words."""
    at, total = address(w), 0
    for k in range(w[0]):
        total += array(Word, at)[k + 1]
        at = address(w)
    return total


def test_addresses_of_bytes_are_seen_as_addresses_of_words():
    assert both(seen_otherwise, [3, 10, 200, 3000])[1] == 3210


@routine
def pointed(w: Array[Word]) -> Word:
    table = array(Table, w[0])
    table.pairs[1].stride = w[1]
    total = 0
    for k in range(table.count):
        total += table.pairs[k].stride
    return total + (table.pairs + 1).words[2]


def test_structures_that_point_to_structures():
    pairs = (Pair * 3)(*[(0, 10**k, (1, 2, 3)) for k in range(3)])
    table = Table(3, pairs)
    assert both(pointed, [ctypes.addressof(table), 7])[1] == 101 + 7 + 3


@routine
def integers(w: Array[Word]) -> Word:
    w[2] = wrapped(w[0] * 0x1E3779B97F4A7C15)
    w[3] = shifted(w[2], 3) ^ (w[1] << 2) | 1
    w[4] = leading_zeros(max(w[1], 1)) + min(w[0], w[1], 5)
    w[5] = int(unsigned_less(w[0], w[1])) + 2 * int(w[0] < w[1])
    w[6] = ~w[1] + chosen(w[0] < 0, -w[0], w[0])
    places = places_of(Words) * spread(Words, w[1])
    w[7] = extracted(places, 1) + int(all_of(places < spread(Words, 9)))
    return w[2] >> 5


@pytest.mark.parametrize("pair", [(1, 2), (-9, 8), (1 << 62, 77), (5, -5)])
def test_integers(pair):
    both(integers, [*pair, 0, 0, 0, 0, 0, 0])


@routine
def parts(w: Array[Word]) -> Word:
    X = array(Vector, w + 2)
    mask = places_of(Words) < spread(Words, w[0])
    X[1] = spread(Vector, 7.0)
    store_some(X + 1, mask, load_some(X, mask) + 1.0)
    array(Scalar, w)[6] = convert(Scalar, w[1]) * 0.5
    return convert(Word, array(Scalar, w)[6] * 4.0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_parts_of_vectors(count):
    numbers = np.array([1.5, -2.5]).view(np.int64)
    found, _ = both(parts, [count, 11, *numbers, 0, 0, 0, 0])
    values = np.array(found[4:6]).view(np.float64)
    np.testing.assert_array_equal(values, [2.5 if count else 7.0, -1.5 if count > 1 else 7.0])


@routine
def threads(w: Array[Word]) -> Word:
    store_atomic(w + 1, 4, "release")
    before = update(w + 1, "add", 3, "acq_rel")
    mine = exchange_if(w, 1, 9, "acquire")
    return before + 10 * load_atomic(w + 1, "acquire") + 100 * int(mine)


@pytest.mark.parametrize("first", [1, 2])
def test_words_of_threads(first):
    found, result = both(threads, [first, 0])
    assert found == [9 if first == 1 else 2, 7] and result == 74 + (100 if first == 1 else 0)


@routine
def by_address(w: Array[Word], function: Static[int]) -> Word:
    arguments = w[0], address(w)
    return call(Word, function, *arguments) + 1


def first_of(w: Array[Word], count: Word, wanted: Word) -> Word:
    for k in range(count):
        if w[k] == wanted:
            return k
    if wanted < 0:
        if w[0] < 0:
            return -2
        return -3
    return -1


@routine
def early(w: Array[Word]) -> Word:
    return first_of(w + 2, w[0], w[1])


@pytest.mark.parametrize("words", [(3, 7, 6, 7, 7), (2, 7, 6, 6, 7), (2, -7, 6, 6, 7), (0, -7, -6, 6, 7)])
def test_blocks_that_do_nothing_are_jumped_over(words):
    """All but one, which gives one of two ways from a block to another one its result."""
    both(early, words)
    module = Module(TYPES)
    module.export(early)
    assert module.text().count(":\n  br label") == 1


def test_what_is_printed_already_cannot_be_exported():
    module = Module(TYPES)
    module.export(handed_on)
    with pytest.raises(AssertionError, match="doubled"):
        module.export(doubled)


def test_calls_of_addresses():
    given = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(lambda a, at: a * 3)
    assert both(by_address, [14], function=ctypes.cast(given, ctypes.c_void_p).value)[1] == 43


def test_the_text_of_a_function_ends_where_the_function_does():
    for function in (helper, control.function, registers.function, known_as, function_text):
        assert function_text(function).rstrip() == inspect.getsource(function).rstrip()


@routine
def scaled(pair: Array[Pair], by: Word) -> Word:
    return pair.stride * by


@routine
def doubled(w: Array[Word]) -> None:
    w[0] = 2 * w[0]


@routine
def handed_on(w: Array[Word]) -> Word:
    call(None, code_of(doubled), address(w))
    return call(Word, code_of(scaled), w, 5)


def test_calls_of_the_modules_own_functions_by_address():
    assert both(handed_on, [4, 7]) == ([8, 7], 35)


class Mixed(ctypes.Structure):
    _fields_ = (("single", ctypes.c_float), ("double", ctypes.c_double))


@routine
def mixed_numbers(w: Array[Word]) -> Word:
    both = array(Mixed, w)
    both.double = 2.0 * both.double
    return convert(Word, both.single) + convert(Word, both.double)


def test_structures_of_numbers():
    numbers = Mixed(3.0, 4.5)
    words = (ctypes.c_int64 * 2).from_buffer(numbers)
    assert both(mixed_numbers, list(words))[1] == 12


@routine
def by_address_of_c(w: Array[Word], function: Static[int], text: Static[int]) -> Word:
    call(Integer, function, address(w) + 8, 24, text, w[0], fixed=3)
    return 0


def test_calls_of_functions_with_any_arguments():
    function, text = ctypes.CDLL(None).snprintf, ctypes.create_string_buffer(b"%ld")
    known = {"function": ctypes.cast(function, ctypes.c_void_p).value, "text": ctypes.addressof(text)}
    found, _ = both(by_address_of_c, [-123, 0, 0, 0], **known)
    assert np.array(found[1:]).tobytes().startswith(b"-123\0")


@routine
def last(w: Array[Word], function: Static[int]) -> Word:
    if w[0] == 1:
        return call(Word, function, w[0])
    own = local(Word, 1)
    own[0] = w[0]
    return call(Word, function, own[0])


def test_what_is_called_last_is_a_jump():
    given = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda a: a * 3)
    known = {"function": ctypes.cast(given, ctypes.c_void_p).value}
    assert [both(last, [n], **known)[1] for n in (1, 2)] == [3, 6]
    module = Module(TYPES)
    module.export(last, **known)
    assert "tail call" not in module.text(), "room of its own may be read by what is called"
    module = Module(TYPES)
    module.export(by_address, "other", function=1)
    assert "tail call" not in module.text(), "something is done behind the call"
    module = Module(TYPES)
    module.export(jump, **known)
    assert "tail call" in module.text() and both(jump, [5], **known)[1] == 15


@routine
def jump(w: Array[Word], function: Static[int]) -> Word:
    return call(Word, function, w[0])


@routine
def rooms(w: Array[Word]) -> Word:
    own = local(Word, w[0])
    for k in range(w[0]):
        own[k] = w[k]
    other = local(Word, 2)
    other[0] = other[1] = 0
    total = int(address(own) & 63 != 0)
    for k in range(w[0]):
        total += own[k] * own[k]
    return total


def test_room_of_a_size_that_is_not_known():
    assert both(rooms, [4, 1, 2, 3])[1] == 30 and both(rooms, [0])[1] == 0


@routine
def kept_count(w: Array[Word]) -> Word:
    count = variable(Word, "count")
    count[0] = count[0] + w[0]
    return count[0]


def test_variables_of_a_module():
    assert both(kept_count, [3])[1] == 3
    module = Module(TYPES)
    module.export(kept_count)
    code = Code(compile_object(module.text(), host_target(), OPT), host_target())
    word = ctypes.c_int64.from_address(code.address("count"))
    word.value = 40
    given = ctypes.c_int64(2)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("kept_count"))(ctypes.addressof(given)) == 42
    assert word.value == 42


@routine
def switching(w: Array[Word], factors: Static[list[int]]) -> Word:
    total, last = 0, -1
    for k in range(w[0]):
        for number in switch(w[k + 1], list(range(len(factors)))):
            last = number
            if k == 3:
                continue
            if total > 100:
                break
            total += factors[number] * k
        total += 1
    return total * 8 + last


@pytest.mark.parametrize("factors", [[7], [2, -3], [5, 1, 40, -9]])
def test_switches(factors):
    rng = np.random.default_rng(len(factors))
    words = rng.integers(0, len(factors), 9).tolist()
    both(switching, [9, *words], factors=factors)
    both(switching, [0, *words], factors=factors)


class Squares(Operator):
    """The sum of some squares, which is found with other ones where the function begins."""

    def read(self, reader, numbers, more):
        total = reader.once("first", lambda: reader.binary(ast.Mult(), numbers, numbers))
        name = reader.value(I64).name
        reader.do("lines", lines=[f"  %{name} = mul i64 %{more.name}, %{more.name}"])
        return reader.binary(ast.Add(), total, Value(I64, name))

    def __call__(self, number, more):
        return number * number + more * more


squares = Squares()


@routine
def with_operators(first: Word, w: Array[Word]) -> Word:
    total = 0
    for k in range(3):
        total += squares(first, w[k])
    return total


@routine
def calls_operators(w: Array[Word]) -> Word:
    return with_operators(w[3], w)


def test_operators_read_themselves():
    assert both(calls_operators, [1, 2, 3, 4])[1] == 14 + 48
    module = Module(TYPES)
    module.export(with_operators)
    assert module.text().count("mul i64 %a.first") == 1


@routine
def pausing(w: Array[Word]) -> Word:
    processor("x86.sse2.pause")
    processor("aarch64.hint", 1)
    return w[0]


def test_instructions_of_processors():
    assert pausing([3]) == 3
    module = Module(TYPES)
    module.export(pausing)
    assert "call void @llvm.x86.sse2.pause()\n" in module.text()
    assert "call void @llvm.aarch64.hint(i32 1)\n" in module.text()


def test_what_is_known_leaves_no_trace():
    @routine
    def function(w: Array[Word], large: Static[bool]) -> Word:
        width = 4 if large else 2
        while width < 8:
            width *= 2
        if large or w is None:
            return width
        return w[width]

    module = Module(TYPES)
    module.export(function, large=True)
    assert "br " not in module.text() and "load" not in module.text() and "ret i64 8" in module.text()


@routine
def undefined(w: Array[Word]) -> Word:
    if w[0] > 0:
        found = 3
    return found


@routine
def mixed(w: Array[Word]) -> Word:
    return w[0] + spread(Vector, 1.0)


@routine
def aliased(w: Array[Word]) -> Word:
    sums = [w[0], w[1]]
    for k in range(w[0]):
        sums.append(k)
    return sums[0]


def known_as(w: Array[Word], flag: Flag, at: Address) -> Word:
    return 0


@pytest.mark.parametrize(
    ("function", "message"),
    [(undefined, "found"), (mixed, "Number"), (aliased, "cannot be called with values"), (routine(known_as), "")],
)
def test_what_cannot_be_printed_is_refused(function, message):
    if message:
        with pytest.raises(TypeError, match=message):
            Module(TYPES).export(function)
    else:
        module = Module(TYPES)
        module.export(function, "other")
        assert "define i64 @other(ptr %a.w, i1 %a.flag, ptr %a.at)" in module.text()


def test_functions_without_a_text_are_refused_by_name():
    functions: dict = {"Word": Word, "Array": Array}
    exec(compile("def unread(w: Array[Word]) -> Word:\n    return w[0]\n", "/nowhere/unread.py", "exec"), functions)
    with pytest.raises(UnavailableError, match=r"/nowhere/unread\.py cannot be read: .*'unread'"):
        Module(TYPES).export(routine(functions["unread"]))


@routine
def signed_zeros(w: Array[Word]) -> Word:
    X, x = array(Scalar, w + 1), spread(Scalar, 0.0)
    if w[0] > 0:
        x = spread(Scalar, -0.0)
    X[0] = 1.0 / x
    X[1] = x * 2.0
    return w[0]


@pytest.mark.parametrize("first", [0, 1])
def test_zeros_have_signs(first):
    with np.errstate(divide="ignore"):
        found, _ = both(signed_zeros, [first, 7, 7])
    assert np.array(found[1:]).view(np.float64).tolist() == [-np.inf if first else np.inf, 0.0]


def test_threads_that_meet_a_structure_at_once_see_one_with_all_its_fields():
    asked, seen = threading.Barrier(8), []

    class Slow(type(ctypes.Structure)):
        """Of structures whose fields take their time to be found."""

        def __getattribute__(cls, name):
            if name == "value":
                time.sleep(0.01)
            return super().__getattribute__(name)

    kind = Slow("Kind", (ctypes.Structure,), {})
    kind._fields_ = (("next", ctypes.POINTER(kind)), ("value", ctypes.c_int64), ("node", ctypes.POINTER(Node)))

    def ask():
        asked.wait()
        struct = struct_of(kind)
        seen.append((struct, tuple(struct.fields)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    first, _ = seen[0]
    assert seen == [(first, ("next", "value", "node"))] * 8
    assert first.fields["next"][1].to is first
    assert first.fields["node"][1].to is struct_of(Node)
