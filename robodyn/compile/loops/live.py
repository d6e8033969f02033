"""Which variables of a function are read after a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

Block: TypeAlias = ast.If | ast.For | ast.While


def each_statement(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those in them."""
    for each in body:
        yield each
        if isinstance(each, (ast.If, ast.For, ast.While)):
            yield from each_statement((*each.body, *each.orelse))


@cache
def changed_names(body: tuple[ast.stmt, ...]) -> dict[str, bool]:
    """Names that statements change, and whether they assign them, or only set an entry as those of lists."""
    found: dict[str, bool] = {}
    for each in each_statement(body):
        for name, whole in set_names(getattr(each, "targets", [getattr(each, "target", None)])).items():
            found[name] = whole or found.get(name, False)
    return found


def set_names(targets: Iterable[ast.expr | None]) -> dict[str, bool]:
    """The same of targets."""
    found: dict[str, bool] = {}
    for target in targets:
        inner = target
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            found[inner.id] = inner is target
        elif isinstance(inner, (ast.Tuple, ast.List)):
            found |= set_names(inner.elts)
    return found


def _read(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    every = list(ast.walk(node))
    own = {name for each in every if isinstance(each, ast.comprehension) for name in set_names([each.target])}
    return {each.id for each in every if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)} - own


class Live:
    """Names that are read after each `if` and each loop, or in the next round of it; see `outlives`."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._later: dict[ast.stmt, set[str]] = {}
        self._loops: list[tuple[set[str], set[str]]] = []
        self._block(body, set())

    def outlives(self, node: Block) -> list[str]:
        """Names that the statement changes and that somebody reads then, in order."""
        return sorted(self.changed(node) & self._later[node])

    def changed(self, node: Block, entries: bool = True) -> set[str]:
        """Names that what is in the statement assigns; `entries`: also those of which it sets an entry."""
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
                for _ in range(2):  # what the first round needs the last one has left
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
    """The same of a function that is read again."""
    return Live(body)
