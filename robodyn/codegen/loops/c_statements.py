"""From statements of restricted Python to statements of C."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from robodyn.codegen.loops.blocks import I32, I64, Number, Pointer
from robodyn.codegen.loops.c_expressions import BINARY, Expressions
from robodyn.codegen.loops.c_terms import WORDS, Term, c_type, rebuilt
from robodyn.codegen.loops.gpu import rolled, unrolled
from robodyn.codegen.loops.live import live_in
from robodyn.codegen.loops.source import MISSING, Source, is_static, type_named
from robodyn.records import dataclass

if TYPE_CHECKING:
    from robodyn.codegen.loops.cuda import Module


@dataclass(eq=False)
class _Slot:
    """A variable that is declared before the block that gives it a value: where, and what it is then."""

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
        self._ended = ""
        """Whether what follows is behind a return, break or continue; and which."""
        self._repeats: list[int | None] = []
        """Of loops around: the depth of those that are repeated, None of those of C."""
        self._returned: Any = None
        self._hint = "room"

    def write(self, body: Sequence[ast.stmt]) -> None:
        """Print the whole function."""
        self._statements(body)
        self.lines = [line for line in self.lines if line]

    def results(self) -> Term | tuple[Term, ...] | None:
        """What the function returns, or None: a value, or fields of a structure."""
        wanted = self.source.returns
        if wanted is None or (isinstance(wanted, ast.Constant) and wanted.value is None):
            return None
        if isinstance(wanted, ast.Subscript) and isinstance(wanted.value, ast.Name) and wanted.value.id == "tuple":
            assert isinstance(wanted.slice, ast.Tuple) and isinstance(self._returned, tuple)
            pairs = zip(wanted.slice.elts, self._returned, strict=True)
            return tuple(self._result(kind, one, f"f{k}") for k, (kind, one) in enumerate(pairs))
        return self._result(wanted, self._returned, "")

    def _result(self, annotation: ast.expr, returned: Any, name: str) -> Term:
        kind = type_named(annotation, self.source, self.module.types)
        assert isinstance(kind, (Number, Pointer))
        return Term(name, kind, read=isinstance(returned, Term) and returned.read)

    # Text.

    def room(self, text: str) -> str:
        """A name like that of what is assigned, of an array that `text` declares where it says NAME."""
        name = self.new(self._hint)
        self.put(text.replace("NAME", name))
        return name

    def put(self, text: str) -> None:
        """A line."""
        self.lines.append(f"{'    ' * self.depth}{text}\n")

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self.put(f"{head} {{")
        self.depth += 1
        before = self.variables
        self.variables = _copied(before)
        yield
        self.variables, self._ended = before, ""
        self.depth -= 1
        self.put("}")

    def new(self, name: str) -> str:
        """A name of C for a variable."""
        name = f"{name}_" if name in WORDS or keyword.iskeyword(name) else name
        self._names[name] += 1
        return name if self._names[name] == 1 else self.new(f"{name}_{self._names[name] - 1}")

    # Statements.

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for each in body:
            if self._ended:
                return
            method = getattr(self, f"_{type(each).__name__.lower()}", None)
            if method is None:
                self.refuse(each, "no such statement here")
            method(each)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _expr(self, node: ast.Expr) -> None:
        value = None if isinstance(node.value, ast.Constant) else self.evaluate(node.value)
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
        """A value; arrays of its own are called like what it is for."""
        self._hint = target.id if isinstance(target, ast.Name) else "room"
        return self.evaluate(node)

    def _annassign(self, node: ast.AnnAssign) -> None:
        assert node.value is not None and isinstance(node.target, ast.Name)
        value = self.evaluate(node.value)
        if not is_static(node.annotation):
            kind = type_named(node.annotation, self.source, self.module.types)
            assert isinstance(kind, (Number, Pointer))
            value = self.typed(value, kind)
            value = Term(value.text, kind, value.level, value.read)
        self.store(node.target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        held, value = self.evaluate(node.target), self.evaluate(node.value)
        if isinstance(held, Term) and isinstance(held.type, Number) and not held.fixed:
            self.put(f"{held.text} {BINARY[type(node.op)][0]}= {self.typed(value, held.type).text};")
        else:
            self.store(node.target, self.binary(node, node.op, held, value))

    def store(self, target: ast.expr, value: Any) -> None:
        """Give a value to a variable, or memory."""
        match target:
            case ast.Name(id=name):
                self._bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = list(value)
                for k, one in enumerate(values):
                    values[k] = self._variable("value", one) if self._changes(targets[:k], one) else one
                for each, one in zip(targets, values, strict=True):
                    self.store(each, one)
            case ast.Subscript(value=of, slice=index):
                container, k = self.evaluate(of), self.evaluate(index)
                if isinstance(container, list):
                    container[k] = self._assigned(f"{ast.unparse(of)}_{k}", container[k], value)
                    return
                place = self._entry(container, k)
                self.put(f"{place.text} = {self.typed(value, place.type).text};")
            case ast.Attribute(value=of, attr=name):
                place = self.field(self.evaluate(of), name)
                self.put(f"{place.text} = {self.typed(value, place.type).text};")
            case _:
                self.refuse(target, "no such target")

    def _changes(self, targets: Sequence[ast.expr], value: Any) -> bool:
        """Whether assigning the targets may change what a value says."""
        if not isinstance(value, Term) or value.fixed:
            return False
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        changed = {one.text for name in names if isinstance(one := self.held(name), Term)}
        reads = not re.fullmatch(r"\w+", value.text)  # memory, perhaps
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
        """What a variable becomes: itself, if it is one of C that can be assigned."""
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
        """A new variable of C."""
        found = Term(self.new(name), value.type, read=value.read)
        self.put(f"{c_type(value.type, value.read)} {found.text} = {value.text};")
        return found

    def _settle(self, node: ast.If | ast.For | ast.While) -> list[_Slot]:
        """Before a block: what it changes and what is read later are variables of C. Those that have no value yet."""
        slots, assigned = [], self.live.changed(node, entries=False)
        for name in self.live.outlives(node):
            held = self.held(name)
            if name not in assigned and not isinstance(held, list):
                continue  # entries of memory
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
            texts = [each.text if isinstance(each, Term) else self._literal(each, I64) for each in value]
            inner = f"{{{', '.join(texts)}}}"
            self.put(f"return {inner};" if self.module.device else f"return ({self.name}_result){inner};")
        elif value is None:
            self.put("return;")
        else:
            assert self.source.returns is not None
            kind = type_named(self.source.returns, self.source, self.module.types)
            self.put(f"return {self.typed(value, kind).text};")
        self._returned, self._ended = value, "return"

    def _break(self, node: ast.Break) -> None:
        self._leave(node, "break")

    def _continue(self, node: ast.Continue) -> None:
        self._leave(node, "continue")

    def _leave(self, node: ast.stmt, how: str) -> None:
        if self._repeats[-1] is None:
            self.put(f"{how};")
        elif self._repeats[-1] != self.depth:
            self.refuse(node, "leaves a loop that is repeated, where that is not known")
        self._ended = how

    def _if(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        if not isinstance(test, Term):
            self._statements(node.body if test else node.orelse)
            return
        slots, missing, ended = self._settle(node), set[str](), True
        for head, body in ((f"if ({test.text})", node.body), ("else", node.orelse)):
            if body:
                with self._block(head):
                    self._statements(body)
                    here, missed = self._ended, {each.name for each in slots if self.variables[each.name] is each}
            else:
                here, missed = "", {each.name for each in slots}
            ended = ended and bool(here)
            missing |= set() if here else missed
        self._forget(missing)
        self._ended = "both" if ended else ""

    def _forget(self, names: Iterable[str]) -> None:
        """Variables that have no value on every way."""
        for name in names:
            self.variables.pop(name)

    def _while(self, node: ast.While) -> None:
        forever = isinstance(node.test, ast.Constant) and node.test.value is True
        while not forever:
            test = self.evaluate(node.test)
            if isinstance(test, Term):
                break
            if not test:
                return
            self._statements(node.body)  # a loop over what is known
        slots = self._settle(node)
        self._round(node, "for (;;)" if forever else f"while ({self.evaluate(node.test).text})")
        self._forget(each.name for each in slots if not forever or each.term is None)

    def _round(self, node: ast.For | ast.While, head: str) -> None:
        self._repeats.append(None)
        with self._block(head):
            self._statements(node.body)
        self._repeats.pop()

    def _for(self, node: ast.For) -> None:
        inner: ast.expr = node.iter
        backwards = isinstance(inner, ast.Call) and self.evaluate(inner.func) is reversed
        if backwards and isinstance(inner, ast.Call):
            (inner,) = inner.args
        function = self.evaluate(inner.func) if isinstance(inner, ast.Call) else None
        if isinstance(inner, ast.Call) and function in (range, rolled, unrolled):
            bounds = [self.evaluate(each) for each in inner.args]
            if function is not range or any(isinstance(each, Term) for each in bounds):
                first, end, step = (*([0] if len(bounds) == 1 else []), *bounds, 1)[:3]
                unroll = {unrolled: "#pragma unroll", rolled: "#pragma unroll 1"}.get(function, "")
                unroll += "".join(f" {self.evaluate(each.value)}" for each in inner.keywords)
                self._counted(node, first, end, step, backwards, unroll)
                return
        self._repeats.append(self.depth)
        for item in list(self.evaluate(node.iter)):
            self.store(node.target, item)
            self._statements(node.body)
            how, self._ended = self._ended, "" if self._ended in ("break", "continue") else self._ended
            if how not in ("", "continue"):
                break
        self._repeats.pop()

    def _counted(self, node: ast.For, first: Any, end: Any, step: Any, backwards: bool, unroll: str) -> None:
        assert isinstance(node.target, ast.Name)
        changed = self.live.changed(node)
        if node.target.id in changed:
            self.refuse(node, "changes what it counts")
        kinds = {each.number.size for each in (first, end) if isinstance(each, Term)}
        kind = I64 if kinds and max(kinds) == 8 else I32
        slots = self._settle(node)
        one = not isinstance(step, Term) and step == 1
        step = self._kept(step, changed)
        if backwards:
            assert one
            from_, test = self.binary(node, ast.Sub(), end, 1), f">= {self._kept(first, changed).at(11)}"
        else:
            from_, test = first, f"< {self._kept(end, changed).at(11)}"
        text = self.new(node.target.id)
        more = f"{text}{'--' if backwards else '++'}" if one else f"{text} += {self.typed(step, kind).text}"
        begin = f"{c_type(kind)} {text} = {self.typed(from_, kind).text}"
        hidden = self.variables.get(node.target.id, MISSING)
        self.variables[node.target.id] = Term(text, kind)
        if unroll and self.module.device:
            self.put(unroll)
        self._round(node, f"for ({begin}; {text} {test}; {more})")
        self.variables.pop(node.target.id)
        self._forget(each.name for each in slots)
        if hidden is not MISSING:
            self.variables[node.target.id] = hidden

    def _kept(self, value: Any, changed: set[str]) -> Term:
        """A bound of a loop, which stays what it was."""
        if not isinstance(value, Term):
            return Term(str(value), I64)
        names = {one.text for name in changed if isinstance(one := self.held(name), Term)}
        plain = not re.search(r"\[|->|\w\(", value.text)  # neither memory nor calls
        return value if plain and not names & set(re.findall(r"\w+", value.text)) else self._variable("end", value)

    def held(self, name: str) -> Any:
        """What a variable has."""
        found = self.variables.get(name, MISSING)
        return (found.term or MISSING) if isinstance(found, _Slot) else found


def _fits(held: Term, value: Any) -> bool:
    """Whether a variable of C can have a value."""
    if not isinstance(value, Term):
        real = isinstance(held.type, Number) and held.type.real
        return isinstance(value, (int, float) if real else int)
    if isinstance(held.type, Pointer) or isinstance(value.type, Pointer):
        return held.type == value.type and held.read >= value.read
    return held.number.size >= value.number.size and held.number.real == value.number.real


def _copied(variable: Any) -> Any:
    if isinstance(variable, dict):
        return {name: _copied(each) for name, each in variable.items()}
    return [_copied(each) for each in variable] if isinstance(variable, list) else variable
