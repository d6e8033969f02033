"""Translates the operations that are functions in `language` into operations of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from robodyn.compile.loops.blocks import ADDRESS, I1, I32, I64, Number, Operation, Pointer, Value, loaded_type
from robodyn.compile.loops.language import Routine

if TYPE_CHECKING:
    from robodyn.compile.loops.reader import Reader


def _local(reader: Reader, of: Any, count: Any) -> Value:
    """Memory of known size is allocated once, at the beginning of the function."""
    if isinstance(count, Value):
        return reader.make(Pointer(of), "local", count, of=of)
    result = reader.value(Pointer(of))
    reader.function.blocks[0].operations.insert(0, Operation("local", (), result, {"of": of, "count": count}))
    return result


def _clear(reader: Reader, at: Any, size: Any) -> None:
    reader.do("clear", reader.typed(at, ADDRESS), reader.typed(size, I64), align=_alignment(at))


def _copy(reader: Reader, to: Any, source: Any, size: Any) -> None:
    pair = reader.typed(to, ADDRESS), reader.typed(source, ADDRESS)
    reader.do("copy", *pair, reader.typed(size, I64), align=(_alignment(to), _alignment(source)))


def _alignment(at: Value) -> int:
    assert isinstance(at.type, Pointer)
    return at.type.to.alignment if isinstance(at.type.to, (Number, Pointer)) else 1


def _spread(reader: Reader, of: Number, value: Any) -> Value:
    if not isinstance(value, Value):
        return reader.typed(value, of.value)
    return value if value.type is of.value else reader.make(of.value, "spread", value)


def _convert(reader: Reader, of: Number, value: Any) -> Value:
    value = reader.typed(value, of.value if isinstance(value, float) else None)
    return value if value.type is of.value else reader.make(of.value, "convert", value)


def _shuffled(reader: Reader, a: Value, b: Value, numbers: Iterable[int]) -> Value:
    numbers = tuple(numbers)
    assert isinstance(a.type, Number)
    return reader.make(Number(a.type.scalar, len(numbers)), "shuffle", a, b, numbers=numbers)


def _permuted(reader: Reader, a: Value, numbers: Value, b: Value) -> Value:
    assert isinstance(a.type, Number) and a.type.size == 64
    kind = {"double": "pd", "float": "ps"}[a.type.scalar]
    return reader.make(a.type, "intrinsic", a, numbers, b, name=f"x86.avx512.vpermi2var.{kind}.512")


def _extracted(reader: Reader, vector: Value, k: int) -> Value:
    assert isinstance(vector.type, Number)
    return vector if vector.type.width == 1 else reader.make(Number(vector.type.scalar), "extract", vector, number=k)


def _inserted(reader: Reader, vector: Value, value: Any, k: int) -> Value:
    assert isinstance(vector.type, Number)
    one = reader.typed(value, Number(vector.type.scalar))
    return one if vector.type.width == 1 else reader.make(vector.type, "insert", vector, one, number=k)


def _wrapped(reader: Reader, value: Any) -> Any:
    return value if isinstance(value, Value) else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _fma(reader: Reader, a: Any, b: Any, c: Any) -> Value:
    kind = next(each.type for each in (a, b, c) if isinstance(each, Value))
    return reader.make(kind, "fma", reader.typed(a, kind), reader.typed(b, kind), reader.typed(c, kind))


def _shifted(reader: Reader, value: Value, bits: Any) -> Value:
    value = reader.word(value) if isinstance(value.type, Pointer) else value
    return reader.make(value.type, "lshr", value, reader.typed(bits, value.type))


def _call(reader: Reader, of: Any, function: Any, *arguments: Any, fixed: int | None = None) -> Any:
    given = [reader.typed(each, None) for each in arguments]
    return reader.called(of, "call at", reader.typed(function, ADDRESS), *given, fixed=fixed)


def _code_of(reader: Reader, routine: Routine[..., Any]) -> Value:
    return reader.make(ADDRESS, "code", function=reader.module.function(routine, {})[0])


def _changed(reader: Reader, code: str, at: Value, *values: Any, result: Number | None = None, **facts: str) -> Value:
    """An operation that changes a value in memory atomically."""
    kind = loaded_type(at)
    return reader.make(result or kind, code, at, *(reader.typed(each, kind) for each in values), **facts)


def _processor(reader: Reader, name: str, *operands: Any) -> None:
    given = (each if isinstance(each, Value) else Value(I32, constant=each) for each in operands)
    reader.do("intrinsic", *given, name=name)


PRIMITIVE_READERS: Mapping[str, Callable[..., Any]] = {
    "array": lambda reader, of, at: reader.cast(reader.typed(at, ADDRESS), Pointer(of)),
    "address": lambda reader, of: reader.cast(reader.typed(of, ADDRESS), ADDRESS),
    "place": lambda reader, of, name: reader.place(of, name),
    "local": _local,
    "size_of": lambda reader, of: of.size,
    "lanes_of": lambda reader, of: of.width,
    "variable": lambda reader, of, name: reader.make(Pointer(of), "variable", name=name),
    "clear": _clear,
    "copy": _copy,
    "fetch": lambda reader, at: reader.do("fetch", reader.typed(at, ADDRESS)),
    "stream": lambda reader, to, value: reader.store_at(to, value, nontemporal=True),
    "load_some": lambda reader, source, mask: reader.make(loaded_type(source), "load some", source, mask),
    "store_some": lambda reader, to, mask, value: reader.do(
        "store some", reader.typed(value, loaded_type(to)), to, mask
    ),
    "wrapped": _wrapped,
    "fma": _fma,
    "spread": _spread,
    "places_of": lambda reader, of: reader.make(of.value, "places"),
    "convert": _convert,
    "shuffled": _shuffled,
    "permuted": _permuted,
    "extracted": _extracted,
    "inserted": _inserted,
    "anything": lambda reader, of: Value(of.value, "poison"),
    "all_of": lambda reader, mask: reader.make(I1, "all", mask),
    "unsigned_less": lambda reader, a, b: reader.comparison("ult", a, b),
    "shifted": _shifted,
    "leading_zeros": lambda reader, value: reader.make(
        I64, "intrinsic", value, reader.typed(True, I1), name="ctlz.i64"
    ),
    "chosen": lambda reader, test, a, b: reader.select(test, a, b),
    "call": _call,
    "code_of": _code_of,
    "load_atomic": lambda reader, source, order: reader.make(loaded_type(source), "load", source, order=order),
    "store_atomic": lambda reader, to, value, order: reader.store_at(to, value, order=order),
    "exchange_if": lambda reader, at, old, new, order: _changed(
        reader, "exchange", at, old, new, result=I1, order=order
    ),
    "update": lambda reader, at, how, value, order: _changed(reader, "update", at, value, order=order, how=how),
    "processor": _processor,
}
