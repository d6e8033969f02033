"""Live-variable analysis: the variables of a function that are read after a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

Block: TypeAlias = ast.If | ast.For | ast.While


def each_statement(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, and all statements nested in them."""
    for each in body:
        yield each
        if isinstance(each, (ast.If, ast.For, ast.While)):
            yield from each_statement((*each.body, *each.orelse))


@cache
def changed_names(body: tuple[ast.stmt, ...]) -> dict[str, bool]:
    """Names that statements change. True: the name is assigned; False: only an entry of it is set, as of a list."""
    changed: dict[str, bool] = {}
    for each in each_statement(body):
        for name, whole in set_names(getattr(each, "targets", [getattr(each, "target", None)])).items():
            changed[name] = whole or changed.get(name, False)
    return changed


def set_names(targets: Iterable[ast.expr | None]) -> dict[str, bool]:
    """Names that assignment targets change, as in `changed_names`."""
    names: dict[str, bool] = {}
    for target in targets:
        inner = target
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            names[inner.id] = inner is target
        elif isinstance(inner, (ast.Tuple, ast.List)):
            names |= set_names(inner.elts)
    return names


def _read(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    nodes = list(ast.walk(node))
    bound = {name for each in nodes if isinstance(each, ast.comprehension) for name in set_names([each.target])}
    return {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)} - bound


class Live:
    """The live variables behind each `if` and each loop of a body, the next round of the loop included."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._later: dict[ast.stmt, set[str]] = {}
        self._loops: list[tuple[set[str], set[str]]] = []
        self._block(body, set())

    def outlives(self, node: Block) -> list[str]:
        """Names that the statement changes and that are read afterwards, sorted."""
        return sorted(self.changed(node) & self._later[node])

    def changed(self, node: Block, entries: bool = True) -> set[str]:
        """Names that the nested statements assign; with `entries`, also names of which they only set an entry."""
        names = changed_names((*node.body, *node.orelse))
        return {name for name, whole in names.items() if whole or entries}

    def _block(self, body: Sequence[ast.stmt], out: set[str]) -> set[str]:
        for each in reversed(body):
            out = self._before(each, out)
        return out

    def _before(self, node: ast.stmt, out: set[str]) -> set[str]:
        match node:
            case ast.If():
                self._later[node] = out
                return _read(node.test) | self._block(node.body, out) | self._block(node.orelse, out)
            case ast.For() | ast.While():
                head = out | _read(node.test if isinstance(node, ast.While) else None)
                targets = set(set_names([node.target]) if isinstance(node, ast.For) else ())
                for _ in range(2):  # the second pass adds names that the next round of the loop reads
                    self._loops.append((out, head))
                    head = head | (self._block(node.body, head) - targets)
                    self._loops.pop()
                self._later[node] = head
                return head | _read(node.iter if isinstance(node, ast.For) else None)
            case ast.Break():
                return self._loops[-1][0]
            case ast.Continue():
                return self._loops[-1][1]
            case ast.Return():
                return _read(node.value)
            case ast.Assign(targets=targets_, value=value):
                stored = {name for name, whole in set_names(targets_).items() if whole}
                return (out - stored) | _read(value) | set().union(*map(_read, targets_))
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                return (out - {name}) | _read(value)
            case ast.AugAssign():
                return out | _read(node.value) | _read(node.target) | set(set_names([node.target]))
        return out | _read(node)


@cache
def live_in(body: tuple[ast.stmt, ...]) -> Live:
    """The `Live` of a function's body. It is cached, because functions are read repeatedly."""
    return Live(body)
