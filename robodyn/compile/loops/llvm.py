"""Modules of functions in LLVM's language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from robodyn.compile.gc_pause import no_collection
from robodyn.compile.keys import printed
from robodyn.compile.llvm.vectors import literal
from robodyn.compile.loops.blocks import (
    Block,
    End,
    Function,
    Number,
    Operation,
    Pointer,
    Struct,
    Type,
    Value,
    simplify,
)
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.reader import Reader
from robodyn.compile.loops.source import Source, source_of, value_type

_INTEGERS = {"div": "sdiv", "rem": "srem"}
_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "ult": "ult"}


def _type(kind: Number | Pointer | None) -> str:
    return "void" if kind is None else kind.name


def _suffix(kind: Number) -> str:
    short = {"float": "f32", "double": "f64"}.get(kind.scalar, kind.scalar)
    return short if kind.width == 1 else f"v{kind.width}{short}"


def _entry(kind: Number | Struct | Pointer | None) -> str:
    """The type whose size is the step of address arithmetic."""
    if kind is None:
        return "i8"
    return f"[{kind.size} x i8]" if isinstance(kind, Struct) else kind.name


def _text(value: Value) -> str:
    if value.constant is None:
        return value.name if value.name == "poison" else f"%{value.name}"
    kind, number = value.type, value.constant
    if isinstance(kind, Pointer):
        return f"inttoptr (i64 {int(number)} to ptr)" if number else "null"
    if kind.real:
        one = literal(float(number), kind.scalar)
    elif kind.scalar == "i1":
        one = "true" if number else "false"
    else:
        one = str(int(number))
    return one if kind.width == 1 else f"splat ({kind.scalar} {one})"


def _typed(value: Value) -> str:
    return f"{value.type.name} {_text(value)}"


def _listed(values: Iterable[Value]) -> str:
    return ", ".join(map(_typed, values))


class Module:
    """A module of functions, each printed once.

    Args:
        types: the types of type names.
        attributes: the attribute group of every function, such as "#0", or nothing.
    """

    def __init__(self, types: Mapping[str, Type], attributes: str = "") -> None:
        self.types, self.attributes = types, attributes
        self._functions: dict[tuple[object, ...], tuple[Function, Source]] = {}
        self._texts: list[str] = []
        self._declared: dict[str, None] = {}
        self._stores_past = False

    def export(self, routine: Routine[..., Any], name: str | None = None, **known: Any) -> None:
        """Print a public function, which other code can look up. `known`: values of parameters that are known."""
        with no_collection():
            function, _ = self._function(routine, known, name or routine.__name__, public=True)
        assert function.public, f"{function.name}: others call it already, so it is printed: export it before them"

    def function(self, routine: Routine[..., Any], known: Mapping[str, Any]) -> tuple[Function, Source]:
        """The function of a routine for these known parameters."""
        return self._function(routine, known, "", public=False)

    def _function(
        self, routine: Routine[..., Any], known: Mapping[str, Any], name: str, *, public: bool
    ) -> tuple[Function, Source]:
        key = routine, *((each, _fact(value)) for each, value in known.items())
        if key not in self._functions:
            source = source_of(routine.function)
            result = None if source.returns is None else _result(source, self.types)
            count = sum(first is routine for first, *_ in self._functions)
            printed_function = Function(name or f"{routine.__name__}{f'.{count}' if count else ''}", [], result, public)
            self._functions[key] = printed_function, source
            for parameter, annotation in source.parameters:
                if parameter not in known:
                    assert annotation is not None
                    kind = value_type(annotation, source, self.types)
                    printed_function.parameters.append(Value(kind, f"a.{parameter}"))
            Reader(printed_function, self).read(source, known, printed_function.parameters)
            simplify(printed_function)
            self._texts.append(_Printer(printed_function, self).text())
            for block in printed_function.blocks:
                block.operations, block.end = [], None  # breaks cycles, so that memory is freed without the collector
            printed_function.blocks.clear()
        return self._functions[key]

    def declare(self, text: str) -> None:
        """Declare a function of LLVM."""
        self._declared[f"declare {text}\n"] = None

    def variable(self, name: str, kind: str) -> None:
        """Define a variable that other code can look up."""
        self._declared[f"@{name} = global {kind} zeroinitializer, align 8\n"] = None

    def text(self) -> str:
        """The module's text."""
        return "".join((*self._declared, "\n", *self._texts, "!0 = !{i32 1}\n" if self._stores_past else ""))

    def nontemporal(self) -> str:
        """The suffix of a streaming store."""
        self._stores_past = True
        return ", !nontemporal !0"


def printed_module(
    facts: object, types: Mapping[str, Type], export: Callable[[Module], None], attributes: str = ""
) -> str:
    """The text of a module, from the cache or else printed; see `printed`.

    Args:
        facts: everything that determines the text.
        types: the types of type names.
        export: exports the public functions to a module.
        attributes: the text of the attributes of all functions.
    """

    def make() -> str:
        module = Module(types, "#0" if attributes else "")
        export(module)
        return module.text() + attributes

    return printed(facts, make)


def _fact(value: Any) -> object:
    return tuple(map(_fact, value)) if isinstance(value, (list, tuple)) else value


def _result(source: Source, types: Mapping[str, Type]) -> Number | Pointer | None:
    assert source.returns is not None
    if getattr(source.returns, "value", 0) is None:
        return None
    return value_type(source.returns, source, types)


class _Printer:
    """Prints one function."""

    def __init__(self, function: Function, module: Module) -> None:
        self.function, self.module = function, module
        self.lines: list[str] = []
        self.names = 0
        self.has_room = any(each.code == "local" for block in function.blocks for each in block.operations)

    def text(self) -> str:
        """The function's text."""
        function = self.function
        parameters = ", ".join(f"{each.type.name} %{each.name}" for each in function.parameters)
        linkage = "" if function.public else "internal "
        head = f"define {linkage}{_type(function.result)} @{function.name}({parameters})"
        entering: dict[Block, list[tuple[str, list[Value]]]] = {}
        for block in function.blocks:
            for edge in block.end.edges if block.end is not None else ():
                entering.setdefault(edge.block, []).append((block.name, edge.arguments))
        for block in function.blocks:
            self._block(block, entering.get(block, []))
        if any(block.end is not None and block.end.cases for block in function.blocks):
            self.lines.append("nowhere:\n  unreachable\n")
        attributes = f" {self.module.attributes}" if self.module.attributes else ""
        return f"{head}{attributes} {{\n{''.join(self.lines)}}}\n\n"

    def _block(self, block: Block, entering: Sequence[tuple[str, list[Value]]]) -> None:
        put = self.lines.append
        put(f"{block.name}:\n")
        for k, parameter in enumerate(block.parameters):
            incoming = ", ".join([f"[ {_text(arguments[k])}, %{name} ]" for name, arguments in entering])
            put(f"  %{parameter.name} = phi {parameter.type.name} {incoming}\n")
        last = self._last(block)
        for operation in block.operations:
            text = _OPERATIONS[operation.code](self, operation)
            if operation is last:
                text = f"tail {text}"
            put(f"  {text}\n" if operation.result is None else f"  %{operation.result.name} = {text}\n")
        put(f"  {self._end(block.end)}\n")

    def _end(self, end: End | None) -> str:
        result = self.function.result
        if end is None or (not end.edges and result is not None and end.result is None):
            return "unreachable"
        if not end.edges:
            return "ret void" if result is None or end.result is None else f"ret {_typed(end.result)}"
        labels = [f"label %{edge.block.name}" for edge in end.edges]
        if end.test is None:
            return f"br {labels[0]}"
        if not end.cases:
            return f"br {_typed(end.test)}, {', '.join(labels)}"
        cases = zip(end.cases, labels, strict=True)
        listed = " ".join(f"{end.test.type.name} {number}, {label}" for number, label in cases)
        return f"switch {_typed(end.test)}, label %nowhere [ {listed} ]"

    def _last(self, block: Block) -> Operation | None:
        """A call that may become a tail call: nothing follows it, and the function has no local memory that it could
        read."""
        end, last = block.end, block.operations[-1] if block.operations else None
        if last is None or last.code not in ("call", "call at") or self.has_room or end is None or end.edges:
            return None
        return last if self.function.result is None or end.result == last.result else None

    def new(self, text: str) -> str:
        """Add an instruction and return the name of its result."""
        self.names += 1
        self.lines.append(f"  %p{self.names} = {text}\n")
        return f"%p{self.names}"

    def intrinsic(self, name: str, result: Number | None, given: Sequence[Value | str]) -> str:
        """A call of an LLVM intrinsic. Operands that are strings are constants."""
        words = [each if isinstance(each, str) else _typed(each) for each in given]
        kinds = [each.rsplit(" ", 1)[0] if isinstance(each, str) else each.type.name for each in given]
        self.module.declare(f"{_type(result)} @llvm.{name}({', '.join(kinds)})")
        return f"call {_type(result)} @llvm.{name}({', '.join(words)})"


def _binary(printer: _Printer, it: Any) -> str:
    a, b = it.operands
    code = f"f{it.code}" if a.type.real else _INTEGERS.get(it.code, it.code)
    return f"{code} {_typed(a)}, {_text(b)}"


def _compare(printer: _Printer, it: Any) -> str:
    a, b = it.operands
    real, how = isinstance(a.type, Number) and a.type.real, it.facts["how"]
    return f"{'f' if real else 'i'}cmp {(_ORDERED if real else _SIGNED)[how]} {_typed(a)}, {_text(b)}"


def _memory(it: Any, at: Any) -> tuple[str, str]:
    """The parts of a load or store before its type and at its end."""
    order = it.facts.get("order")
    return " atomic" if order else "", f"{f' {order}' if order else ''}, align {at.type.to.alignment}"


def _load(printer: _Printer, it: Any) -> str:
    (at,) = it.operands
    atomic, end = _memory(it, at)
    return f"load{atomic} {it.result.type.name}, {_typed(at)}{end}"


def _store(printer: _Printer, it: Any) -> str:
    atomic, end = _memory(it, it.operands[1])
    past = printer.module.nontemporal() if it.facts.get("nontemporal") else ""
    return f"store{atomic} {_listed(it.operands)}{end}{past}"


def _local(printer: _Printer, it: Any) -> str:
    kind = _entry(it.facts["of"])
    if it.operands:
        return f"alloca {kind}, {_typed(it.operands[0])}, align 64"
    return f"alloca [{it.facts['count']} x {kind}], align 64"


def _variable(printer: _Printer, it: Any) -> str:
    printer.module.variable(it.facts["name"], _entry(it.result.type.to))
    return f"getelementptr i8, ptr @{it.facts['name']}, i64 0"


def _clear(printer: _Printer, it: Any) -> str:
    at, size = it.operands
    printer.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    where = f"ptr align {it.facts['align']} {_text(at)}"
    return f"call void @llvm.memset.p0.i64({where}, i8 0, {_typed(size)}, i1 false)"


def _copy(printer: _Printer, it: Any) -> str:
    *pair, size = it.operands
    printer.module.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    where = ", ".join(f"ptr align {n} {_text(each)}" for n, each in zip(it.facts["align"], pair, strict=True))
    return f"call void @llvm.memcpy.p0.p0.i64({where}, {_typed(size)}, i1 false)"


def _fetch(printer: _Printer, it: Any) -> str:
    printer.module.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return f"call void @llvm.prefetch.p0({_typed(it.operands[0])}, i32 0, i32 3, i32 1)"


def _load_some(printer: _Printer, it: Any) -> str:
    (at, mask), kind = it.operands, it.result.type
    arguments = at, f"i32 {_place_align(at)}", mask, f"{kind.name} zeroinitializer"
    return printer.intrinsic(f"masked.load.{_suffix(kind)}.p0", kind, arguments)


def _store_some(printer: _Printer, it: Any) -> str:
    value, at, mask = it.operands
    arguments = value, at, f"i32 {_place_align(at)}", mask
    return printer.intrinsic(f"masked.store.{_suffix(value.type)}.p0", None, arguments)


def _place_align(at: Any) -> int:
    """Alignment of a partially loaded or stored vector: that of its scalars, or 1."""
    return int(min(at.type.to.alignment, at.type.to.size // at.type.to.width))


def _spread(printer: _Printer, it: Any) -> str:
    T, W = it.result.type.name, it.result.type.width
    one = printer.new(f"insertelement {T} poison, {_typed(it.operands[0])}, i32 0")
    return f"shufflevector {T} {one}, {T} poison, <{W} x i32> zeroinitializer"


def _places(printer: _Printer, it: Any) -> str:
    kind = it.result.type
    numbers = ", ".join(f"{kind.scalar} {k}" for k in range(kind.width))
    return f"add {kind.name} <{numbers}>, zeroinitializer"


def _convert(printer: _Printer, it: Any) -> str:
    (value,), to = it.operands, it.result.type
    narrower = to.size < value.type.size
    if value.type.real:
        code = ("fptrunc" if narrower else "fpext") if to.real else "fptosi"
    elif to.real:
        code = "sitofp"
    else:
        code = "zext" if value.type.scalar == "i1" else "trunc" if narrower else "sext"
    return f"{code} {_typed(value)} to {to.name}"


def _shuffle(printer: _Printer, it: Any) -> str:
    numbers = it.facts["numbers"]
    listed = ", ".join("i32 " + ("poison" if k < 0 else str(k)) for k in numbers)
    return f"shufflevector {_listed(it.operands)}, <{len(numbers)} x i32> <{listed}>"


def _all(printer: _Printer, it: Any) -> str:
    (mask,) = it.operands
    bits = printer.new(f"bitcast {_typed(mask)} to i{mask.type.width}")
    return f"icmp eq i{mask.type.width} {bits}, -1"


def _call(printer: _Printer, it: Any) -> str:
    function = it.facts["function"]
    return f"call {_type(function.result)} @{function.name}({_listed(it.operands)})"


def _call_at(printer: _Printer, it: Any) -> str:
    function, *arguments = it.operands
    kind, fixed = _type(it.result and it.result.type), it.facts["fixed"]
    if fixed is not None:
        kind += f" ({', '.join([*(each.type.name for each in arguments[:fixed]), '...'])})"
    return f"call {kind} {_text(function)}({_listed(arguments)})"


def _exchange(printer: _Printer, it: Any) -> str:
    pair = printer.new(f"cmpxchg {_listed(it.operands)} {it.facts['order']} monotonic")
    return f"extractvalue {{ {it.operands[1].type.name}, i1 }} {pair}, 1"


_OPERATIONS: Mapping[str, Callable[[_Printer, Any], str]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "ashr", "lshr"), _binary),
    "neg": lambda _, it: f"fneg {_typed(it.operands[0])}",
    "compare": _compare,
    "select": lambda _, it: f"select {_listed(it.operands)}",
    "load": _load,
    "store": _store,
    "move": lambda _, it: f"getelementptr {_entry(it.operands[0].type.to)}, {_listed(it.operands)}",
    "local": _local,
    "variable": _variable,
    "clear": _clear,
    "copy": _copy,
    "fetch": _fetch,
    "load some": _load_some,
    "store some": _store_some,
    "spread": _spread,
    "places": _places,
    "convert": _convert,
    "same": lambda _, it: f"bitcast {_typed(it.operands[0])} to {it.result.type.name}",
    "word": lambda _, it: f"ptrtoint {_typed(it.operands[0])} to i64",
    "pointer": lambda _, it: f"inttoptr {_typed(it.operands[0])} to ptr",
    "shuffle": _shuffle,
    "extract": lambda _, it: f"extractelement {_typed(it.operands[0])}, i32 {it.facts['number']}",
    "insert": lambda _, it: f"insertelement {_listed(it.operands)}, i32 {it.facts['number']}",
    "all": _all,
    "fma": lambda printer, it: printer.intrinsic(f"fmuladd.{_suffix(it.result.type)}", it.result.type, it.operands),
    "intrinsic": lambda printer, it: printer.intrinsic(it.facts["name"], it.result and it.result.type, it.operands),
    "call": _call,
    "call at": _call_at,
    "code": lambda _, it: f"bitcast ptr @{it.facts['function'].name} to ptr",
    "lines": lambda _, it: "\n".join(it.facts["lines"]).strip(),
    "exchange": _exchange,
    "update": lambda _, it: f"atomicrmw {it.facts['how']} {_listed(it.operands)} {it.facts['order']}",
}
