"""Modules of functions in LLVM's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robodyn.codegen.collector import no_collection
from robodyn.codegen.keys import printed
from robodyn.codegen.llvm.vectors import literal
from robodyn.codegen.loops.blocks import (
    Block,
    Function,
    Number,
    Operation,
    Pointer,
    Struct,
    Type,
    Value,
    simplify,
)
from robodyn.codegen.loops.language import Routine
from robodyn.codegen.loops.reader import Callees, Reader
from robodyn.codegen.loops.source import Source, source_of, value_type

_INTEGERS = {"div": "sdiv", "rem": "srem"}
_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "ult": "ult"}
_MEMSET = "void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
_MEMCPY = "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
_PREFETCH = "void @llvm.prefetch.p0(ptr, i32, i32, i32)"


def type_name(kind: Number | Pointer | None) -> str:
    """A type in LLVM's language."""
    if kind is None:
        return "void"
    if isinstance(kind, Pointer):
        return "ptr"
    return kind.scalar if kind.width == 1 else f"<{kind.width} x {kind.scalar}>"


def _suffix(kind: Number) -> str:
    short = {"float": "f32", "double": "f64"}.get(kind.scalar, kind.scalar)
    return short if kind.width == 1 else f"v{kind.width}{short}"


def _entry(kind: Number | Struct | Pointer | None) -> str:
    """The type by which an address moves."""
    if kind is None:
        return "i8"
    return f"[{kind.size} x i8]" if isinstance(kind, Struct) else type_name(kind)


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
    return f"{type_name(value.type)} {_text(value)}"


class Module(Callees):
    """Functions, each printed once.

    Args:
        types: what names of types stand for.
        attributes: of every function, as "#0", or nothing.
    """

    def __init__(self, types: Mapping[str, Type], attributes: str = "") -> None:
        self.types, self.attributes = types, attributes
        self._functions: dict[tuple[object, ...], tuple[Function, Source]] = {}
        self._texts: list[str] = []
        self._declared: dict[str, None] = {}
        self._stores_past = False

    def export(self, routine: Routine[..., Any], name: str | None = None, **known: Any) -> None:
        """Have a function, with what is known of its parameters, that others may look up."""
        with no_collection():
            function, _ = self._function(routine, known, name or routine.__name__, public=True)
        assert function.public, f"{function.name}: others call it already, so it is printed: export it before them"

    def function(self, routine: Routine[..., Any], known: Mapping[str, Any]) -> tuple[Function, Source]:
        """The function of a routine with some parameters known."""
        return self._function(routine, known, "", public=False)

    def _function(
        self, routine: Routine[..., Any], known: Mapping[str, Any], name: str, *, public: bool
    ) -> tuple[Function, Source]:
        key = routine, *((each, _fact(value)) for each, value in known.items())
        if key not in self._functions:
            source = source_of(routine.function)
            result = None if source.returns is None else _result(source, self.types)
            count = sum(first is routine for first, *_ in self._functions)
            found = Function(name or f"{routine.__name__}{f'.{count}' if count else ''}", [], result, public)
            self._functions[key] = found, source
            for parameter, annotation in source.parameters:
                if parameter not in known:
                    assert annotation is not None
                    kind = value_type(annotation, source, self.types)
                    found.parameters.append(Value(kind, f"a.{parameter}"))
            Reader(found, self.types, self).read(source, known, found.parameters)
            simplify(found)
            self._texts.append(_Printer(found, self).text())
        return self._functions[key]

    def declare(self, text: str) -> None:
        """A function that LLVM has."""
        self._declared[f"declare {text}\n"] = None

    def variable(self, name: str, kind: str) -> None:
        """A variable that others may look up."""
        self._declared[f"@{name} = global {kind} zeroinitializer, align 8\n"] = None

    def text(self) -> str:
        """The module."""
        return "".join((*self._declared, "\n", *self._texts, "!0 = !{i32 1}\n" if self._stores_past else ""))

    def past_caches(self) -> str:
        """What a store says that goes past the caches."""
        self._stores_past = True
        return ", !nontemporal !0"


def printed_module(
    facts: object, types: Mapping[str, Type], export: Callable[[Module], None], attributes: str = ""
) -> str:
    """The text of a module, from the cache or made: see `printed`.

    Args:
        facts: what determines it.
        types: what names of types stand for.
        export: has the module export what others call.
        attributes: the text of attributes that all functions have.
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
        operations = (each.code for block in function.blocks for each in block.operations)
        self.has_room = "local" in operations

    def text(self) -> str:
        """The function."""
        function = self.function
        parameters = ", ".join(f"{type_name(each.type)} %{each.name}" for each in function.parameters)
        linkage = "" if function.public else "internal "
        head = f"define {linkage}{type_name(function.result)} @{function.name}({parameters})"
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
        self.lines.append(f"{block.name}:\n")
        for k, parameter in enumerate(block.parameters):
            given = ", ".join(f"[ {_text(arguments[k])}, %{name} ]" for name, arguments in entering)
            self._put(f"%{parameter.name} = phi {type_name(parameter.type)} {given}")
        for operation in block.operations:
            result = "" if operation.result is None else f"%{operation.result.name} = "
            text = _OPERATIONS[operation.code](self, operation)
            self._put(result + ("tail " if self._is_last(operation, block) else "") + text)
        end = block.end
        if end is None:
            self._put("unreachable")
        elif not end.edges:
            result = "void" if self.function.result is None else _typed(end.result) if end.result else "unreachable"
            self._put(f"ret {result}" if result != "unreachable" else result)
        elif len(end.edges) == 1:
            self._put(f"br label %{end.edges[0].block.name}")
        else:
            assert end.test is not None
            labels = [f"label %{edge.block.name}" for edge in end.edges]
            if end.cases:
                cases = zip(end.cases, labels, strict=True)
                listed = " ".join(f"{type_name(end.test.type)} {number}, {label}" for number, label in cases)
                self._put(f"switch {_typed(end.test)}, label %nowhere [ {listed} ]")
            else:
                self._put(f"br {_typed(end.test)}, {', '.join(labels)}")

    def _is_last(self, operation: Operation, block: Block) -> bool:
        """Whether it is a call that may be a jump: nothing is done behind it, and nothing of this function's own is
        read by it."""
        if operation.code not in ("call", "call at") or self.has_room or operation is not block.operations[-1]:
            return False
        end = block.end
        return end is not None and not end.edges and (self.function.result is None or end.result == operation.result)

    def _put(self, text: str) -> None:
        self.lines.append(f"  {text}\n")

    def new(self, text: str) -> str:
        """The name of an intermediate result."""
        self.names += 1
        self._put(f"%p{self.names} = {text}")
        return f"%p{self.names}"

    def intrinsic(self, name: str, result: Number | None, given: Sequence[Value | str]) -> str:
        """A call of a function that LLVM has; constants are given as text."""
        words = [each if isinstance(each, str) else _typed(each) for each in given]
        kinds = ", ".join(
            word.rsplit(" ", 1)[0] if isinstance(each, str) else type_name(each.type)
            for word, each in zip(words, given, strict=True)
        )
        self.module.declare(f"{type_name(result)} @llvm.{name}({kinds})")
        return f"call {type_name(result)} @llvm.{name}({', '.join(words)})"


def _binary(printer: _Printer, it: Operation) -> str:
    a, b = it.operands
    assert isinstance(a.type, Number)
    code = f"f{it.code}" if a.type.real else _INTEGERS.get(it.code, it.code)
    return f"{code} {_typed(a)}, {_text(b)}"


def _neg(printer: _Printer, it: Operation) -> str:
    return f"fneg {_typed(it.operands[0])}"


def _compare(printer: _Printer, it: Operation) -> str:
    a, b = it.operands
    real = isinstance(a.type, Number) and a.type.real
    how = str(it.facts["how"])
    return f"{'f' if real else 'i'}cmp {(_ORDERED if real else _SIGNED)[how]} {_typed(a)}, {_text(b)}"


def _select(printer: _Printer, it: Operation) -> str:
    return f"select {', '.join(map(_typed, it.operands))}"


def _memory(it: Operation, at: Value) -> str:
    assert isinstance(at.type, Pointer) and isinstance(at.type.to, (Number, Pointer))
    order = f" {it.facts['order']}" if "order" in it.facts else ""
    return f"{order}, align {at.type.to.alignment}"


def _load(printer: _Printer, it: Operation) -> str:
    (at,) = it.operands
    assert it.result is not None
    atomic = " atomic" if "order" in it.facts else ""
    return f"load{atomic} {type_name(it.result.type)}, {_typed(at)}{_memory(it, at)}"


def _store(printer: _Printer, it: Operation) -> str:
    value, at = it.operands
    atomic = " atomic" if "order" in it.facts else ""
    past = printer.module.past_caches() if it.facts.get("nontemporal") else ""
    return f"store{atomic} {_typed(value)}, {_typed(at)}{_memory(it, at)}{past}"


def _move(printer: _Printer, it: Operation) -> str:
    at, k = it.operands
    assert isinstance(at.type, Pointer)
    return f"getelementptr {_entry(at.type.to)}, {_typed(at)}, {_typed(k)}"


def _local(printer: _Printer, it: Operation) -> str:
    kind = _entry(it.facts["of"])  # type: ignore[arg-type]
    if it.operands:
        return f"alloca {kind}, {_typed(it.operands[0])}, align 64"
    return f"alloca [{it.facts['count']} x {kind}], align 64"


def _variable(printer: _Printer, it: Operation) -> str:
    assert it.result is not None and isinstance(it.result.type, Pointer)
    printer.module.variable(str(it.facts["name"]), _entry(it.result.type.to))
    return f"getelementptr i8, ptr @{it.facts['name']}, i64 0"


def _clear(printer: _Printer, it: Operation) -> str:
    at, size = it.operands
    printer.module.declare(_MEMSET)
    where = f"ptr align {it.facts['align']} {_text(at)}"
    return f"call void @llvm.memset.p0.i64({where}, i8 0, {_typed(size)}, i1 false)"


def _copy(printer: _Printer, it: Operation) -> str:
    to, source, size = it.operands
    printer.module.declare(_MEMCPY)
    aligned = it.facts["align"]
    assert isinstance(aligned, tuple)
    pair = ", ".join(f"ptr align {n} {_text(each)}" for n, each in zip(aligned, (to, source), strict=True))
    return f"call void @llvm.memcpy.p0.p0.i64({pair}, {_typed(size)}, i1 false)"


def _fetch(printer: _Printer, it: Operation) -> str:
    printer.module.declare(_PREFETCH)
    return f"call void @llvm.prefetch.p0({_typed(it.operands[0])}, i32 0, i32 3, i32 1)"


def _load_some(printer: _Printer, it: Operation) -> str:
    at, mask = it.operands
    assert it.result is not None and isinstance(it.result.type, Number)
    kind = it.result.type
    zero = f"{type_name(kind)} zeroinitializer"
    return printer.intrinsic(f"masked.load.{_suffix(kind)}.p0", kind, (at, f"i32 {_place_align(at)}", mask, zero))


def _store_some(printer: _Printer, it: Operation) -> str:
    value, at, mask = it.operands
    assert isinstance(value.type, Number)
    return printer.intrinsic(
        f"masked.store.{_suffix(value.type)}.p0", None, (value, at, f"i32 {_place_align(at)}", mask)
    )


def _place_align(at: Value) -> int:
    """Of a vector whose first places may be missing: what its scalars are aligned to, or 1."""
    assert isinstance(at.type, Pointer) and isinstance(at.type.to, Number)
    kind = at.type.to
    return min(kind.alignment, kind.size // kind.width)


def _spread(printer: _Printer, it: Operation) -> str:
    (value,) = it.operands
    assert it.result is not None and isinstance(it.result.type, Number)
    T, W = type_name(it.result.type), it.result.type.width
    one = printer.new(f"insertelement {T} poison, {_typed(value)}, i32 0")
    return f"shufflevector {T} {one}, {T} poison, <{W} x i32> zeroinitializer"


def _places(printer: _Printer, it: Operation) -> str:
    assert it.result is not None and isinstance(it.result.type, Number)
    kind = it.result.type
    numbers = ", ".join(f"{kind.scalar} {k}" for k in range(kind.width))
    return f"add {type_name(kind)} <{numbers}>, zeroinitializer"


def _convert(printer: _Printer, it: Operation) -> str:
    (value,) = it.operands
    assert it.result is not None and isinstance(value.type, Number) and isinstance(it.result.type, Number)
    to, narrower = it.result.type, it.result.type.size < value.type.size
    if value.type.real:
        code = ("fptrunc" if narrower else "fpext") if to.real else "fptosi"
    elif to.real:
        code = "sitofp"
    else:
        code = "zext" if value.type.scalar == "i1" else "trunc" if narrower else "sext"
    return f"{code} {_typed(value)} to {type_name(to)}"


def _word(printer: _Printer, it: Operation) -> str:
    return f"ptrtoint {_typed(it.operands[0])} to i64"


def _pointer(printer: _Printer, it: Operation) -> str:
    return f"inttoptr {_typed(it.operands[0])} to ptr"


def _shuffle(printer: _Printer, it: Operation) -> str:
    a, b = it.operands
    numbers = it.facts["numbers"]
    assert isinstance(numbers, tuple)
    listed = ", ".join("i32 " + ("poison" if k < 0 else str(k)) for k in numbers)
    return f"shufflevector {_typed(a)}, {_typed(b)}, <{len(numbers)} x i32> <{listed}>"


def _extract(printer: _Printer, it: Operation) -> str:
    return f"extractelement {_typed(it.operands[0])}, i32 {it.facts['number']}"


def _insert(printer: _Printer, it: Operation) -> str:
    vector, value = it.operands
    return f"insertelement {_typed(vector)}, {_typed(value)}, i32 {it.facts['number']}"


def _all(printer: _Printer, it: Operation) -> str:
    (mask,) = it.operands
    assert isinstance(mask.type, Number)
    W = mask.type.width
    bits = printer.new(f"bitcast {_typed(mask)} to i{W}")
    return f"icmp eq i{W} {bits}, -1"


def _fma(printer: _Printer, it: Operation) -> str:
    assert it.result is not None and isinstance(it.result.type, Number)
    return printer.intrinsic(f"fmuladd.{_suffix(it.result.type)}", it.result.type, it.operands)


def _intrinsic(printer: _Printer, it: Operation) -> str:
    kind = None if it.result is None else it.result.type
    assert kind is None or isinstance(kind, Number)
    return printer.intrinsic(str(it.facts["name"]), kind, it.operands)


def _call(printer: _Printer, it: Operation) -> str:
    function = it.facts["function"]
    assert isinstance(function, Function)
    return f"call {type_name(function.result)} @{function.name}({', '.join(map(_typed, it.operands))})"


def _call_at(printer: _Printer, it: Operation) -> str:
    function, *given = it.operands
    result, fixed = None if it.result is None else it.result.type, it.facts["fixed"]
    kind = type_name(result)
    if isinstance(fixed, int):
        kind += f" ({', '.join([*(type_name(each.type) for each in given[:fixed]), '...'])})"
    return f"call {kind} {_text(function)}({', '.join(map(_typed, given))})"


def _lines(printer: _Printer, it: Operation) -> str:
    return "\n".join(it.facts["lines"]).strip()  # type: ignore[arg-type]


def _code(printer: _Printer, it: Operation) -> str:
    function = it.facts["function"]
    assert isinstance(function, Function)
    return f"bitcast ptr @{function.name} to ptr"


def _exchange(printer: _Printer, it: Operation) -> str:
    at, old, new = it.operands
    pair = printer.new(f"cmpxchg {_typed(at)}, {_typed(old)}, {_typed(new)} {it.facts['order']} monotonic")
    return f"extractvalue {{ {type_name(old.type)}, i1 }} {pair}, 1"


def _update(printer: _Printer, it: Operation) -> str:
    at, value = it.operands
    return f"atomicrmw {it.facts['how']} {_typed(at)}, {_typed(value)} {it.facts['order']}"


_OPERATIONS: Mapping[str, Callable[[_Printer, Operation], str]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "ashr", "lshr"), _binary),
    "neg": _neg,
    "compare": _compare,
    "select": _select,
    "load": _load,
    "store": _store,
    "move": _move,
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
    "word": _word,
    "pointer": _pointer,
    "shuffle": _shuffle,
    "extract": _extract,
    "insert": _insert,
    "all": _all,
    "fma": _fma,
    "intrinsic": _intrinsic,
    "call": _call,
    "call at": _call_at,
    "code": _code,
    "lines": _lines,
    "exchange": _exchange,
    "update": _update,
}
