"""Translates statements of restricted Python into statements of C."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from robodyn.compile.c.code import KEYWORDS
from robodyn.compile.loops.blocks import I32, I64, Number, Pointer
from robodyn.compile.loops.c_expressions import SIGNS, Expressions
from robodyn.compile.loops.c_terms import Term, c_type, has_terms
from robodyn.compile.loops.gpu import unrolled
from robodyn.compile.loops.live import live_in
from robodyn.compile.loops.source import MISSING, Source, is_static, type_named
from robodyn.compile.loops.walk import BINARY, copied, rebuilt
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.compile.loops.cuda import Module


@dataclass(eq=False)
class _Slot:
    """A variable declared before the block that assigns it: the position of the declaration, and the variable once it
    has a type."""

    name: str
    line: int
    depth: int
    term: Term | None = None


class Writer(Expressions):
    """Prints the statements of one function."""

    def __init__(self, module: Module, source: Source, name: str) -> None:
        super().__init__(module, source, name)
        self.live = live_in(source.body)
        self.lines: list[str] = []
        self.depth = 1
        self._names: Counter[str] = Counter()
        self._repeats: list[int | None] = []
        """For each enclosing loop: its depth if it is unrolled here, None if it is a loop of C."""
        self._returned: Any = None
        self._hint = "room"

    def write(self, body: Sequence[ast.stmt]) -> None:
        """Print the whole function."""
        self.statements(body)
        self.lines = [line for line in self.lines if line]

    def known_result(self) -> Any:
        """The function's result if it is known and may be so (Static)."""
        known = _own_type(self.source.returns) and not has_terms(self._returned)
        return self._returned if known else MISSING

    def results(self) -> Term | tuple[Term, ...] | None:
        """The function's result: a value, the fields of a structure, or None."""
        wanted = self.source.returns
        if wanted is None or (isinstance(wanted, ast.Constant) and wanted.value is None):
            return None
        if isinstance(wanted, ast.Subscript) and isinstance(wanted.value, ast.Name) and wanted.value.id == "tuple":
            assert isinstance(wanted.slice, ast.Tuple) and isinstance(self._returned, tuple)
            pairs = zip(wanted.slice.elts, self._returned, strict=True)
            return tuple(self._result(kind, one, f"f{k}") for k, (kind, one) in enumerate(pairs))
        return self._result(wanted, self._returned, "")

    def _result(self, annotation: ast.expr, returned: Any, name: str) -> Term:
        kind = returned.type if _own_type(annotation) else type_named(annotation, self.source, self.types)
        assert isinstance(kind, (Number, Pointer))
        return Term(name, kind, read=isinstance(returned, Term) and returned.read)

    # Text.

    def room(self, text: str) -> str:
        """Declare an array and return its name. `text` is the declaration with NAME in place of the name."""
        name = self.new(self._hint)
        self.put(text.replace("NAME", name))
        return name

    def put(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{'    ' * self.depth}{text}\n")

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self.put(f"{head} {{")
        self.depth += 1
        before = self.variables
        self.variables = copied(before)
        yield
        self.variables, self.ended = before, ""
        self.depth -= 1
        self.put("}")

    def new(self, name: str) -> str:
        """A new C name for a variable."""
        name = f"{name}_" if name in KEYWORDS else name
        self._names[name] += 1
        return name if self._names[name] == 1 else self.new(f"{name}_{self._names[name] - 1}")

    # Statements.

    def _effect(self, value: Any) -> None:
        if isinstance(value, Term):
            self.put(f"{value.text};")

    def _assign(self, node: ast.Assign) -> None:
        first, *others = node.targets
        if isinstance(first, ast.Tuple) and isinstance(node.value, ast.Tuple):
            value: Any = [self._named(*each) for each in zip(first.elts, node.value.elts, strict=True)]
        else:
            value = self._named(first, node.value)
        for target in (first, *others):
            self.store(target, value)

    def _named(self, target: ast.expr, node: ast.expr) -> Any:
        """The value of an expression. An array declared in it is named after the target."""
        self._hint = target.id if isinstance(target, ast.Name) else "room"
        return self.evaluate(node)

    def _augassign(self, node: ast.AugAssign) -> None:
        held, value = self.evaluate(node.target), self.evaluate(node.value)
        in_memory = isinstance(held, Term) and self.module.by_lanes and not re.fullmatch(r"\w+", held.text)
        if isinstance(held, Term) and isinstance(held.type, Number) and not held.fixed and not in_memory:
            self.put(f"{held.text} {SIGNS[BINARY[type(node.op)][0]][0]}= {self.typed(value, held.type).text};")
        else:
            self.store(node.target, self.binary(node.op, held, value))

    def _bind_entry(self, of: list[Any], k: Any, value: Any, name: ast.expr) -> None:
        of[k] = self._assigned(f"{ast.unparse(name)}_{k}", of[k], value)

    def _store_entry(self, of: Any, k: Any, value: Any) -> None:
        self._store_at(self._entry(of, k), value)

    def _store_field(self, of: Any, name: str, value: Any) -> None:
        self._store_at(self.field(of, name), value)

    def _store_at(self, place: Term, value: Any) -> None:
        text = self.typed(value, place.type).text
        if not self.module.by_lanes or place.type is None or "->" in place.text:
            self.put(f"{place.text} = {text};")
            return
        kept = self.new("stored")
        self.put(f"const {c_type(place.type)} {kept} = {text};")
        self.apart(f"{place.text} = {kept};")

    def apart(self, text: str) -> None:
        """Add a line that stores to memory, between barriers of the warp that other lanes' reads do not pass."""
        for each in ("__syncwarp();", text, "__syncwarp();"):
            self.put(each)

    def _parallel(self, targets: Sequence[ast.expr], values: Any) -> Sequence[Any]:
        pairs = enumerate(values)
        return [self._variable("value", one) if self._changes(targets[:k], one) else one for k, one in pairs]

    def _changes(self, targets: Sequence[ast.expr], value: Any) -> bool:
        """Whether assigning the targets may change a value."""
        if not isinstance(value, Term) or value.fixed:
            return False
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        changed = {one.text for name in names if isinstance(one := self.held(name), Term)}
        reads = not re.fullmatch(r"\w+", value.text)  # the expression may read memory
        return bool(changed & set(re.findall(r"\w+", value.text))) or (reads and len(names) < len(targets))

    def _bind(self, name: str, value: Any) -> None:
        held = self.variables.get(name, MISSING)
        if isinstance(held, _Slot) and held.term is None:
            kind = value.type if isinstance(value, Term) else self.own_type(value)
            held.term = Term(self.new(name), kind, read=isinstance(value, Term) and value.read)
            self.lines[held.line] = f"{'    ' * held.depth}{c_type(kind, held.term.read)} {held.term.text};\n"
        if isinstance(held, _Slot):
            held = held.term
        self.variables[name] = self._assigned(name, held, value)

    def _assigned(self, name: str, held: Any, value: Any) -> Any:
        """The new value of a variable: the variable itself if it is one of C that can be assigned."""
        if isinstance(value, (list, tuple)):
            olds = held if isinstance(held, type(value)) and len(held) == len(value) else [MISSING] * len(value)
            pairs = enumerate(zip(olds, value, strict=True))
            return rebuilt(value, (self._assigned(f"{name}_{k}", old, one) for k, (old, one) in pairs))
        if isinstance(held, Term) and not held.fixed and _fits(held, value):
            self.put(f"{held.text} = {self.typed(value, held.type).text};")
            return held
        if isinstance(value, Term) and not value.fixed:
            return self._variable(name, value)
        return value

    def _variable(self, name: str, value: Term) -> Term:
        """Declare a new C variable."""
        declared = Term(self.new(name), value.type, read=value.read)
        self.put(f"{c_type(value.type, value.read)} {declared.text} = {value.text};")
        return declared

    def _settle(self, node: ast.If | ast.For | ast.While) -> list[_Slot]:
        """Before a block, make the variables that it changes and that are read later into C variables. Returns the
        slots of those that have no value yet."""
        slots, assigned = [], self.live.changed(node, entries=False)
        for name in self.live.outlives(node):
            held = self.held(name)
            if name not in assigned and not isinstance(held, list):
                continue  # only entries in memory change
            if held is MISSING:
                self.variables[name] = _Slot(name, len(self.lines), self.depth)
                slots.append(self.variables[name])
                self.lines.append("")
            else:
                self.variables[name] = self._settled(name, held)
        return slots

    def _settled(self, name: str, held: Any) -> Any:
        if isinstance(held, (list, tuple)):
            return rebuilt(held, (self._settled(f"{name}_{k}", one) for k, one in enumerate(held)))
        if isinstance(held, Term) and held.fixed:
            return self._variable(name, Term(held.text, held.type, read=held.read))
        if isinstance(held, (bool, int, float)):
            return self._variable(name, self.typed(held, self.own_type(held)))
        return held

    def _return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.evaluate(node.value)
        if isinstance(value, tuple):
            texts = [each.text if isinstance(each, Term) else self.literal(each, I64) for each in value]
            inner = f"{{{', '.join(texts)}}}"
            self.put(f"return {inner};" if self.module.device else f"return ({self.name}_result){inner};")
        elif value is None:
            self.put("return;")
        else:
            assert self.source.returns is not None
            if _own_type(self.source.returns):
                text = value.text if isinstance(value, Term) else ""
            else:
                text = self.typed(value, type_named(self.source.returns, self.source, self.types)).text
            self.put(f"return {text};")
        self._returned, self.ended = value, "return"

    def _break(self, node: ast.Break) -> None:
        self._leave(node, "break")

    def _continue(self, node: ast.Continue) -> None:
        self._leave(node, "continue")

    def _leave(self, node: ast.stmt, how: str) -> None:
        if self._repeats[-1] is None:
            self.put(f"{how};")
        elif self._repeats[-1] != self.depth:
            self.refuse("leaves a loop that is repeated, where that is not known")
        self.ended = how

    def _if(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        if not isinstance(test, Term):
            self.statements(node.body if test else node.orelse)
            return
        slots, missing, ended = self._settle(node), set[str](), True
        for head, body in ((f"if ({test.text})", node.body), ("else", node.orelse)):
            if body:
                with self._block(head):
                    self.statements(body)
                    left, missed = self.ended, {each.name for each in slots if self.variables[each.name] is each}
            else:
                left, missed = "", {each.name for each in slots}
            ended = ended and bool(left)
            missing |= set() if left else missed
        self._forget(missing)
        self.ended = "both" if ended else ""

    def _forget(self, names: Iterable[str]) -> None:
        """Remove variables that do not have a value on every path."""
        for name in names:
            self.variables.pop(name)

    def _loop(self, node: ast.While) -> bool | None:
        forever = isinstance(node.test, ast.Constant)
        if not forever and not isinstance(known := self.evaluate(node.test), Term):
            return bool(known)
        slots = self._settle(node)
        self._round(node, "for (;;)" if forever else f"while ({self.evaluate(node.test).text})")
        self._forget(each.name for each in slots if not forever or each.term is None)
        return None

    def _round(self, node: ast.For | ast.While, head: str) -> None:
        self._repeats.append(None)
        with self._block(head):
            self.statements(node.body)
        self._repeats.pop()

    def _repeated(self, node: ast.For, items: Iterable[Any]) -> None:
        self._repeats.append(self.depth)
        for item in list(items):
            self.store(node.target, item)
            self.statements(node.body)
            how, self.ended = self.ended, "" if self.ended in ("break", "continue") else self.ended
            if how not in ("", "continue"):
                break
        self._repeats.pop()

    def _switch(self, node: ast.For, value: Any, numbers: Sequence[int]) -> None:
        """One test after another; the last number needs none. `break` and `continue` in it would leave a loop of C."""
        assert isinstance(node.target, ast.Name)
        self._repeats.append(-1)
        tested, slots, missing = self._variable("tested", value), self._settle(node), set[str]()
        for k, case in enumerate(numbers):
            head = "else" if k + 1 == len(numbers) else f"if ({tested.at(9)} == {case})"
            head = head if k == 0 or head == "else" else f"else {head}"
            with self._block(head):
                self.store(node.target, case)
                self.statements(node.body)
                missing |= set() if self.ended else {each.name for each in slots if self.variables[each.name] is each}
                self.ended = ""
        self._repeats.pop()
        self.variables.pop(node.target.id, None)
        self._forget(missing)

    def _counted(self, node: ast.For, bounds: tuple[Any, Any, Any], backwards: bool, how: Any) -> None:
        assert isinstance(node.target, ast.Name)
        (first, end, step), name, changed = bounds, node.target.id, self.live.changed(node)
        if name in changed:
            self.refuse("changes what it counts")
        kinds = {each.number.size for each in (first, end) if isinstance(each, Term)}
        kind = I64 if kinds and max(kinds) == 8 else I32
        slots = self._settle(node)
        one = not isinstance(step, Term) and step == 1
        step = self._kept(step, changed)
        if backwards:
            assert one
            from_, test = self.binary(ast.Sub(), end, 1), f">= {self._kept(first, changed).at(11)}"
        else:
            from_, test = first, f"< {self._kept(end, changed).at(11)}"
        text = self.new(name)
        more = f"{text}{'--' if backwards else '++'}" if one else f"{text} += {self.typed(step, kind).text}"
        begin = f"{c_type(kind)} {text} = {self.typed(from_, kind).text}"
        hidden = self.variables.get(name, MISSING)
        self.variables[name] = Term(text, kind)
        if how is not range and self.module.device:
            times = [self.known(each.value) for each in node.iter.keywords] if isinstance(node.iter, ast.Call) else []
            self.put(" ".join(map(str, ["#pragma unroll", *(times if how is unrolled else [1])])))
        self._round(node, f"for ({begin}; {text} {test}; {more})")
        self.variables.pop(name)
        self._forget(each.name for each in slots)
        if hidden is not MISSING:
            self.variables[name] = hidden

    def _kept(self, value: Any, changed: set[str]) -> Term:
        """A loop bound whose value cannot change during the loop."""
        if not isinstance(value, Term):
            return Term(str(value), I64)
        names = {one.text for name in changed if isinstance(one := self.held(name), Term)}
        plain = not re.search(r"\[|->|\w\(", value.text)  # neither memory nor calls
        return value if plain and not names & set(re.findall(r"\w+", value.text)) else self._variable("end", value)

    def _name(self, node: ast.Name) -> Any:
        held = self.variables.get(node.id)
        if not isinstance(held, _Slot):
            return super()._name(node)
        return held.term or self.refuse(f"{node.id} has no value on every way here")

    def held(self, name: str) -> Any:
        """The current value of a variable."""
        slot = self.variables.get(name, MISSING)
        return (slot.term or MISSING) if isinstance(slot, _Slot) else slot


def _own_type(annotation: ast.expr | None) -> bool:
    """Whether a result has the type of what is returned: Static[...] and Any."""
    if annotation is None:
        return False
    return is_static(annotation) or (isinstance(annotation, ast.Name) and annotation.id == "Any")


def _fits(held: Term, value: Any) -> bool:
    """Whether a C variable can hold a value."""
    if not isinstance(value, Term):
        real = isinstance(held.type, Number) and held.type.real
        return isinstance(value, (int, float) if real else int)
    if isinstance(held.type, Pointer) or isinstance(value.type, Pointer):
        return held.type == value.type and held.read >= value.read
    return held.number.size >= value.number.size and held.number.real == value.number.real
