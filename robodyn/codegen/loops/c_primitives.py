"""How operations that have names of their own in `language` and `gpu` are printed in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from robodyn.codegen.loops.blocks import ADDRESS, I1, I32, I64, Number, Pointer, Struct, Type
from robodyn.codegen.loops.c_terms import ATOM, PREFIX, Term, c_type

if TYPE_CHECKING:
    from robodyn.codegen.loops.c_expressions import Expressions as Writer

_ORDERS = {
    "monotonic": "__ATOMIC_RELAXED",
    "acquire": "__ATOMIC_ACQUIRE",
    "release": "__ATOMIC_RELEASE",
    "acq_rel": "__ATOMIC_ACQ_REL",
    "seq_cst": "__ATOMIC_SEQ_CST",
}
"""C's names of orders in memory."""


def _array(writer: Writer, of: Any, at: Any) -> Term:
    return writer.cast(writer.typed(at, ADDRESS), Pointer(of))


def _address(writer: Writer, of: Any) -> Term:
    return writer.cast(writer.typed(of, ADDRESS), ADDRESS)


def _room(qualifier: str) -> Callable[[Writer, Type, int], Term]:
    def declared(writer: Writer, of: Any, count: int) -> Term:
        if isinstance(of, Struct):
            writer.module.struct(of)
        size = "" if qualifier.startswith("extern") else count
        return Term(writer.room(f"{qualifier}{c_type(of)} NAME[{size}];"), Pointer(of), fixed=True)

    return declared


def _bytes(name: str) -> Callable[..., Term]:
    def called(writer: Writer, to: Any, *others: Any) -> Term:
        *given, size = others
        words = [writer.typed(to, ADDRESS).text, *(writer.typed(each, ADDRESS).text for each in given or [0])]
        return Term(f"{name}({', '.join(words)}, {writer.typed(size, I64).text})", None)

    return called


def _word(name: str) -> Callable[[Writer], Term]:
    return lambda writer: Term(f"(int){name}", I32, PREFIX, unsigned=name)


def _statement(text: str) -> Callable[[Writer], Term]:
    return lambda writer: Term(text, None)


def _exchanged(name: str) -> Callable[[Writer, Term, Any], Term]:
    def called(writer: Writer, value: Term, distance: Any) -> Term:
        return Term(f"{name}(0xffffffffu, {value.text}, {writer.typed(distance, I32).text})", value.type)

    return called


def _distance(writer: Writer, first: Term, second: Term) -> Term:
    return Term(f"{second.at(12)} - {first.at(13)}", I64, 12)


def _convert(writer: Writer, of: Any, value: Any) -> Any:
    return writer.convert(of, value)


def _same(writer: Writer, value: Any) -> Any:
    return value


def _fma(writer: Writer, a: Any, b: Any, c: Any) -> Term:
    kind = next(each.type for each in (a, b, c) if isinstance(each, Term))
    x, y, z = (writer.typed(each, kind) for each in (a, b, c))
    return Term(f"{x.at(13)} * {y.at(14)} + {z.at(13)}", kind, 12)


def _unsigned(sign: str) -> Callable[[Writer, Any, Any], Term]:
    def printed(writer: Writer, a: Any, b: Any) -> Term:
        first, second = (f"(unsigned long long){writer.typed(each, I64).at(PREFIX)}" for each in (a, b))
        if sign == "<":
            return Term(f"{first} < {second}", I1, 10)
        return Term(f"(long long)({first} >> {writer.typed(b, I64).at(12)})", I64, PREFIX)

    return printed


def _leading_zeros(writer: Writer, value: Any) -> Term:
    name = "__clzll" if writer.module.device else "__builtin_clzll"
    return Term(f"(long long){name}({value.text})", I64, PREFIX)


def _call(writer: Writer, of: Any, function: Any, *arguments: Any) -> Term:
    terms = [each if isinstance(each, Term) else writer.typed(each, I64) for each in arguments]
    kinds = ", ".join(c_type(each.type, each.read) for each in terms)
    return Term(f"(({c_type(of)} (*)({kinds})){function.at(PREFIX)})({', '.join(each.text for each in terms)})", of)


def _load_atomic(writer: Writer, source: Term, order: str) -> Term:
    return Term(f"__atomic_load_n({source.text}, {_ORDERS[order]})", _pointed(source))


def _store_atomic(writer: Writer, to: Term, value: Any, order: str) -> Term:
    return Term(f"__atomic_store_n({to.text}, {writer.typed(value, _pointed(to)).text}, {_ORDERS[order]})", None)


def _update(writer: Writer, at: Term, how: str, value: Any, order: str) -> Term:
    kind = _pointed(at)
    text = writer.typed(value, kind).text
    if writer.module.device:
        return Term(f"atomic{how.capitalize()}({at.text}, {text})", kind)
    return Term(f"__atomic_fetch_{how}({at.text}, {text}, {_ORDERS[order]})", kind)


def _exchange_if(writer: Writer, at: Term, old: Any, new: Any, order: str) -> Term:
    first, second = (writer.typed(each, _pointed(at)).text for each in (old, new))
    return Term(f"__sync_bool_compare_and_swap({at.text}, {first}, {second})", I1)


def _stream(writer: Writer, to: Term, value: Any) -> Term:
    return Term(f"{to.at(ATOM)}[0] = {writer.typed(value, _pointed(to)).text}", None)


def _fetch(writer: Writer, at: Term) -> Term:
    return Term(f"__builtin_prefetch({at.text})", None)


def _pointed(at: Term) -> Number | Pointer:
    assert not isinstance(at.pointed, Struct)
    return at.pointed


C_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "array": _array,
    "address": _address,
    "place": lambda writer, of, name: writer.field(of, name, place=True),
    "local": _room(""),
    "shared": _room("__shared__ "),
    "pool": _room("extern __shared__ "),
    "clear": _bytes("__builtin_memset"),
    "copy": _bytes("__builtin_memcpy"),
    "convert": _convert,
    "spread": _convert,
    "wrapped": _same,
    "fma": _fma,
    "unsigned_less": _unsigned("<"),
    "shifted": _unsigned(">>"),
    "leading_zeros": _leading_zeros,
    "chosen": lambda writer, test, a, b: writer.select(test, a, b),
    "call": _call,
    "load_atomic": _load_atomic,
    "store_atomic": _store_atomic,
    "exchange_if": _exchange_if,
    "update": _update,
    "stream": _stream,
    "fetch": _fetch,
    "thread": _word("threadIdx.x"),
    "block": _word("blockIdx.x"),
    "blocks": _word("gridDim.x"),
    "distance": _distance,
    "barrier": _statement("__syncthreads()"),
    "warp_barrier": _statement("__syncwarp()"),
    "from_before": _exchanged("__shfl_up_sync"),
    "from_behind": _exchanged("__shfl_down_sync"),
}
