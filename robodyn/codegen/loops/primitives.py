"""How operations that have names of their own in `language` are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from robodyn.codegen.loops.blocks import (
    ADDRESS,
    I1,
    I32,
    I64,
    Number,
    Operation,
    Pointer,
    Struct,
    Value,
)
from robodyn.codegen.loops.language import Routine
from robodyn.codegen.loops.reader import Reader, loaded_type


def _array(reader: Reader, of: Any, at: Any) -> Value:
    return reader.cast(reader.typed(at, ADDRESS), Pointer(of))


def _address(reader: Reader, of: Any) -> Value:
    return reader.cast(reader.typed(of, ADDRESS), ADDRESS)


def _local(reader: Reader, of: Any, count: Any) -> Value:
    """Room of a known size is made where the function begins, once, wherever it is asked for."""
    if isinstance(count, Value):
        found: Value = reader.do("local", count, type=Pointer(of), of=of)
        return found
    result = reader.value(Pointer(of))
    reader.function.blocks[0].operations.insert(0, Operation("local", (), result, {"of": of, "count": count}))
    return result


def _variable(reader: Reader, of: Any, name: str) -> Value:
    found: Value = reader.do("variable", type=Pointer(of), name=name)
    return found


def _clear(reader: Reader, at: Any, size: Any) -> None:
    reader.do("clear", reader.typed(at, ADDRESS), reader.typed(size, I64), align=_alignment(at))


def _copy(reader: Reader, to: Any, source: Any, size: Any) -> None:
    pair = reader.typed(to, ADDRESS), reader.typed(source, ADDRESS)
    reader.do("copy", *pair, reader.typed(size, I64), align=(_alignment(to), _alignment(source)))


def _alignment(at: Value) -> int:
    assert isinstance(at.type, Pointer)
    return at.type.to.alignment if isinstance(at.type.to, (Number, Pointer)) else 1


def _fetch(reader: Reader, at: Any) -> None:
    reader.do("fetch", reader.typed(at, ADDRESS))


def _stream(reader: Reader, to: Value, value: Any) -> None:
    reader.do("store", reader.typed(value, loaded_type(to)), to, nontemporal=True)


def _load_some(reader: Reader, source: Value, mask: Value) -> Value:
    kind = loaded_type(source)
    found: Value = reader.do("load some", source, mask, type=kind)
    return found


def _store_some(reader: Reader, to: Value, mask: Value, value: Any) -> None:
    reader.do("store some", reader.typed(value, loaded_type(to)), to, mask)


def _spread(reader: Reader, of: Number, value: Any) -> Value:
    if not isinstance(value, Value):
        return reader.typed(value, of.value)
    if value.type == of.value:
        return value
    found: Value = reader.do("spread", value, type=of.value)
    return found


def _places_of(reader: Reader, of: Number) -> Value:
    found: Value = reader.do("places", type=of.value)
    return found


def _convert(reader: Reader, of: Number, value: Any) -> Value:
    value = reader.typed(value, None) if not isinstance(value, float) else reader.typed(value, of.value)
    found: Value = value if value.type == of.value else reader.do("convert", value, type=of.value)
    return found


def _shuffled(reader: Reader, a: Value, b: Value, numbers: Iterable[int]) -> Value:
    numbers = tuple(numbers)
    assert isinstance(a.type, Number)
    found: Value = reader.do("shuffle", a, b, type=Number(a.type.scalar, len(numbers)), numbers=numbers)
    return found


def _permuted(reader: Reader, a: Value, numbers: Value, b: Value) -> Value:
    assert isinstance(a.type, Number) and a.type.size == 64
    kind = {"double": "pd", "float": "ps"}[a.type.scalar]
    found: Value = reader.do("intrinsic", a, numbers, b, type=a.type, name=f"x86.avx512.vpermi2var.{kind}.512")
    return found


def _size_of(reader: Reader, of: Number | Pointer | Struct) -> int:
    return of.size


def _lanes_of(reader: Reader, of: Number) -> int:
    return of.width


def _extracted(reader: Reader, vector: Value, k: int) -> Value:
    assert isinstance(vector.type, Number)
    if vector.type.width == 1:
        return vector
    found: Value = reader.do("extract", vector, type=Number(vector.type.scalar), number=k)
    return found


def _inserted(reader: Reader, vector: Value, value: Any, k: int) -> Value:
    assert isinstance(vector.type, Number)
    one = reader.typed(value, Number(vector.type.scalar))
    if vector.type.width == 1:
        return one
    found: Value = reader.do("insert", vector, one, type=vector.type, number=k)
    return found


def _anything(reader: Reader, of: Number) -> Value:
    return Value(of.value, "poison")


def _all_of(reader: Reader, mask: Value) -> Value:
    found: Value = reader.do("all", mask, type=I1)
    return found


def _wrapped(reader: Reader, value: Any) -> Any:
    return value if isinstance(value, Value) else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _fma(reader: Reader, a: Any, b: Any, c: Any) -> Value:
    kind = next(each.type for each in (a, b, c) if isinstance(each, Value))
    found: Value = reader.do("fma", *(reader.typed(each, kind) for each in (a, b, c)), type=kind)
    return found


def _unsigned_less(reader: Reader, a: Any, b: Any) -> Value:
    kind = a.type if isinstance(a, Value) else b.type
    width = kind.width if isinstance(kind, Number) else 1
    pair = reader.typed(a, kind), reader.typed(b, kind)
    found: Value = reader.do("compare", *pair, type=Number("i1", width), how="ult")
    return found


def _shifted(reader: Reader, value: Value, bits: Any) -> Value:
    value = reader.word(value) if isinstance(value.type, Pointer) else value
    found: Value = reader.do("lshr", value, reader.typed(bits, value.type), type=value.type)
    return found


def _leading_zeros(reader: Reader, value: Value) -> Value:
    found: Value = reader.do("intrinsic", value, reader.typed(True, I1), type=I64, name="ctlz.i64")
    return found


def _call(reader: Reader, of: Any, function: Any, *arguments: Any, fixed: int | None = None) -> Any:
    given = [reader.typed(each, None) for each in arguments]
    return reader.do("call at", reader.typed(function, ADDRESS), *given, type=of, fixed=fixed)


def _code_of(reader: Reader, routine: Routine[..., Any]) -> Value:
    function, _ = reader.callees.function(routine, {})
    found: Value = reader.do("code", type=ADDRESS, function=function)
    return found


def _load_atomic(reader: Reader, source: Value, order: str) -> Value:
    found: Value = reader.do("load", source, type=loaded_type(source), order=order)
    return found


def _store_atomic(reader: Reader, to: Value, value: Any, order: str) -> None:
    reader.do("store", reader.typed(value, loaded_type(to)), to, order=order)


def _exchange_if(reader: Reader, at: Value, old: Any, new: Any, order: str) -> Value:
    kind = loaded_type(at)
    found: Value = reader.do("exchange", at, reader.typed(old, kind), reader.typed(new, kind), type=I1, order=order)
    return found


def _update(reader: Reader, at: Value, how: str, value: Any, order: str) -> Value:
    kind = loaded_type(at)
    found: Value = reader.do("update", at, reader.typed(value, kind), type=kind, how=how, order=order)
    return found


def _processor(reader: Reader, name: str, *operands: int) -> None:
    reader.do("intrinsic", *(Value(I32, constant=each) for each in operands), type=None, name=name)


PRIMITIVE_READERS: Mapping[str, Callable[..., Any]] = {
    "array": _array,
    "address": _address,
    "place": Reader.field,
    "local": _local,
    "size_of": _size_of,
    "lanes_of": _lanes_of,
    "variable": _variable,
    "clear": _clear,
    "copy": _copy,
    "fetch": _fetch,
    "stream": _stream,
    "load_some": _load_some,
    "store_some": _store_some,
    "wrapped": _wrapped,
    "fma": _fma,
    "spread": _spread,
    "places_of": _places_of,
    "convert": _convert,
    "shuffled": _shuffled,
    "permuted": _permuted,
    "extracted": _extracted,
    "inserted": _inserted,
    "anything": _anything,
    "all_of": _all_of,
    "unsigned_less": _unsigned_less,
    "shifted": _shifted,
    "leading_zeros": _leading_zeros,
    "chosen": Reader.select,
    "call": _call,
    "code_of": _code_of,
    "load_atomic": _load_atomic,
    "store_atomic": _store_atomic,
    "exchange_if": _exchange_if,
    "update": _update,
    "processor": _processor,
}
