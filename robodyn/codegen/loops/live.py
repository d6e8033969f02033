"""Which variables of a function are read after a statement."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias, TypeGuard

Block: TypeAlias = ast.If | ast.For | ast.While


@cache
def changed_names(body: tuple[ast.AST, ...], entries: bool = True) -> tuple[str, ...]:
    """Names that statements assign; `entries`: then those of which they set an entry, as those of lists."""
    stored, entered = dict[str, None](), dict[str, None]()
    for part in body:
        own = _own_names(part)
        for each in ast.walk(part):
            if isinstance(each, (ast.Name, ast.Subscript)) and isinstance(each.ctx, ast.Store) and each not in own:
                inner: ast.expr = each
                while isinstance(inner, ast.Subscript):
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    (stored if inner is each else entered)[inner.id] = None
    return tuple({**stored, **entered} if entries else stored)


def _own_names(part: ast.AST) -> set[ast.AST]:
    """Names of comprehensions, which nobody else sees."""
    loops = [each for each in ast.walk(part) if isinstance(each, ast.comprehension)]
    return {name for each in loops for name in ast.walk(each.target)}


def _read(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    own = {each.id for each in _own_names(node) if isinstance(each, ast.Name)}
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store))
    return {each.id for each in names} - own


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
        """`changed_names` of what is in the statement."""
        return set(changed_names((*node.body, *node.orelse), entries))

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
                targets = set(changed_names((node.target,)) if isinstance(node, ast.For) else ())
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
                stored = {each.id for target in targets_ for each in ast.walk(target) if _is_stored(each)}
                return (out - stored) | _read(value) | set().union(*map(_read, targets_))
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                return (out - {name}) | _read(value)
            case ast.AugAssign():
                return out | _read(node.value) | _read(node.target) | set(changed_names((node.target,)))
        return out | _read(node)


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@cache
def live_in(body: tuple[ast.stmt, ...]) -> Live:
    """The same of a function that is read again."""
    return Live(body)
