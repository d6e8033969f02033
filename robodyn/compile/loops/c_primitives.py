"""Prints the operations that are functions in `language` and `gpu` as C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robodyn.compile.loops.blocks import ADDRESS, I1, I32, I64, Number, Pointer, Struct
from robodyn.compile.loops.c_terms import ATOM, CHOICE, LANE, PREFIX, Term, c_type, lanes

if TYPE_CHECKING:
    from robodyn.compile.loops.c_expressions import Expressions as Writer

_ORDERS = {
    "monotonic": "__ATOMIC_RELAXED",
    "acquire": "__ATOMIC_ACQUIRE",
    "release": "__ATOMIC_RELEASE",
    "acq_rel": "__ATOMIC_ACQ_REL",
    "seq_cst": "__ATOMIC_SEQ_CST",
}
"""C's names of memory orders."""


def _room(qualifier: str) -> Callable[..., Term]:
    def declared(writer: Writer, of: Any, count: int, alignment: int = 0) -> Term:
        if isinstance(of, Struct):
            writer.module.struct(of)
        aligned = f"alignas({alignment}) " if alignment else ""
        size = "" if qualifier.startswith("extern") else count
        return Term(writer.room(f"{aligned}{qualifier}{c_type(of)} NAME[{size}];"), Pointer(of), fixed=True)

    return declared


def _bytes(name: str) -> Callable[..., Term | None]:
    def called(writer: Writer, to: Any, *others: Any) -> Term | None:
        *given, size = others
        if writer.module.by_lanes:
            _by_lanes(writer, to, given[0] if given else None, size)
            return None
        words = [writer.typed(each, ADDRESS).text for each in (to, *(given or [0]))]
        return Term(f"{name}({', '.join(words)}, {writer.typed(size, I64).text})", None)

    return called


def _by_lanes(writer: Writer, to: Any, source: Any, size: Any) -> None:
    """Copy bytes, or set them to zero: each lane its own words of four bytes."""
    value = "0" if source is None else f"((const int*){source.at(PREFIX)})[k]"
    count = writer.typed(size, I64).at(13)
    writer.apart(f"for (long long k = {LANE}; k < {count} / 4; k += 32) ((int*){to.at(PREFIX)})[k] = {value};")


def _load_some(writer: Writer, source: Any, mask: Any) -> Term:
    return Term(f"{mask.at(CHOICE + 1)} ? {source.at(ATOM)}[{LANE}] : 0", source.pointed, CHOICE)


def _store_some(writer: Writer, to: Any, mask: Any, value: Any) -> None:
    kept, test = writer.new("stored"), writer.new("test")
    writer.put(f"const {c_type(to.pointed)} {kept} = {value.text};")
    writer.put(f"const bool {test} = {mask.text};")
    writer.apart(f"if ({test}) {to.at(ATOM)}[{LANE}] = {kept};")


def _extracted(writer: Writer, vector: Any, k: int) -> Any:
    if not isinstance(vector, Term) or lanes(vector.type) == 1:
        return vector  # vectors have one element here
    return Term(f"__shfl_sync(0xffffffffu, {vector.text}, {k})", Number(vector.number.scalar))


def _shuffled(writer: Writer, a: Any, b: Any, numbers: Sequence[int]) -> Term:
    first, count = numbers[0], len(numbers)
    assert a.text == b.text and list(numbers) == list(range(first, first + count)), "wanted elements in their order"
    place = f"{first} + {LANE} % {count}" if first else f"{LANE} % {count}"
    return Term(f"__shfl_sync(0xffffffffu, {a.text}, {place})", Number(a.number.scalar, count))


def _word(name: str) -> Callable[[Writer], Term]:
    return lambda writer: Term(f"(int){name}", I32, PREFIX, unsigned=name)


def _exchanged(name: str) -> Callable[[Writer, Term, Any], Term]:
    return lambda writer, value, distance: Term(
        f"{name}(0xffffffffu, {value.text}, {writer.typed(distance, I32).text})", value.type
    )


def _fma(writer: Writer, a: Any, b: Any, c: Any) -> Term:
    kind = next(each.type for each in (a, b, c) if isinstance(each, Term))
    x, y, z = (writer.typed(each, kind) for each in (a, b, c))
    return Term(f"{x.at(13)} * {y.at(14)} + {z.at(13)}", kind, 12)


def _unsigned(writer: Writer, value: Any) -> str:
    return f"(unsigned long long){writer.typed(value, I64).at(PREFIX)}"


def _shifted(writer: Writer, value: Any, bits: Any) -> Term:
    return Term(f"(long long)({_unsigned(writer, value)} >> {writer.typed(bits, I64).at(12)})", I64, PREFIX)


def _leading_zeros(writer: Writer, value: Any) -> Term:
    name = "__clzll" if writer.module.device else "__builtin_clzll"
    return Term(f"(long long){name}({value.text})", I64, PREFIX)


def _call(writer: Writer, of: Any, function: Any, *arguments: Any) -> Term:
    terms = [each if isinstance(each, Term) else writer.typed(each, I64) for each in arguments]
    kinds = ", ".join(c_type(each.type, each.read) for each in terms)
    return Term(f"(({c_type(of)} (*)({kinds})){function.at(PREFIX)})({', '.join(each.text for each in terms)})", of)


def _update(writer: Writer, at: Any, how: str, value: Any, order: str) -> Term:
    text = writer.typed(value, at.pointed).text
    if writer.module.device:
        return Term(f"atomic{how.capitalize()}({at.text}, {text})", at.pointed)
    return Term(f"__atomic_fetch_{how}({at.text}, {text}, {_ORDERS[order]})", at.pointed)


def _exchange_if(writer: Writer, at: Any, old: Any, new: Any, order: str) -> Term:
    words = ", ".join(writer.typed(each, at.pointed).text for each in (old, new))
    return Term(f"__sync_bool_compare_and_swap({at.text}, {words})", I1)


def _store_atomic(writer: Writer, to: Any, value: Any, order: str) -> Term:
    return Term(f"__atomic_store_n({to.text}, {writer.typed(value, to.pointed).text}, {_ORDERS[order]})", None)


C_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "array": lambda writer, of, at: writer.cast(writer.typed(at, ADDRESS), Pointer(of)),
    "address": lambda writer, of: writer.cast(writer.typed(of, ADDRESS), ADDRESS),
    "place": lambda writer, of, name: writer.field(of, name, place=True),
    "local": _room(""),
    "shared": _room("__shared__ "),
    "pool": _room("extern __shared__ "),
    "clear": _bytes("__builtin_memset"),
    "copy": _bytes("__builtin_memcpy"),
    "convert": lambda writer, of, value: writer.convert(of, value),
    "spread": lambda writer, of, value: writer.convert(of, value),
    "wrapped": lambda _, value: value,
    "fma": _fma,
    "lanes_of": lambda _, of: of.width,
    "size_of": lambda _, of: of.size,
    "extracted": _extracted,
    "shuffled": _shuffled,
    "places_of": lambda _, of: Term(LANE, of, 13),
    "load_some": _load_some,
    "store_some": _store_some,
    "all_of": lambda _, test: test,  # of scalars, which all lanes share
    "unsigned_less": lambda writer, a, b: Term(f"{_unsigned(writer, a)} < {_unsigned(writer, b)}", I1, 10),
    "shifted": _shifted,
    "leading_zeros": _leading_zeros,
    "chosen": lambda writer, test, a, b: writer.select(test, a, b),
    "call": _call,
    "load_atomic": lambda _, at, order: Term(f"__atomic_load_n({at.text}, {_ORDERS[order]})", at.pointed),
    "store_atomic": _store_atomic,
    "exchange_if": _exchange_if,
    "update": _update,
    "stream": lambda writer, to, value: Term(f"{to.at(ATOM)}[0] = {writer.typed(value, to.pointed).text}", None),
    "fetch": lambda _, at: Term(f"__builtin_prefetch({at.text})", None),
    "thread": _word("threadIdx.x"),
    "block": _word("blockIdx.x"),
    "blocks": _word("gridDim.x"),
    "distance": lambda _, first, second: Term(f"{second.at(12)} - {first.at(13)}", I64, 12),
    "barrier": lambda _: Term("__syncthreads()", None),
    "warp_barrier": lambda _: Term("__syncwarp()", None),
    "from_before": _exchanged("__shfl_up_sync"),
    "from_behind": _exchanged("__shfl_down_sync"),
    "from_lane": _exchanged("__shfl_sync"),
}
