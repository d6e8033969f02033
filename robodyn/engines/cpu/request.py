"""What a kernel is asked for."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from robodyn.algorithms.tasks import Traceable
from robodyn.compile.gc_pause import no_collection
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.unrolled_code import unrolled_module
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import input_shapes, output_shape, trace
from robodyn.core.model import Model
from robodyn.core.sweeps import Ancestors
from robodyn.engines.cpu.fingerprint import fingerprint
from robodyn.engines.cpu.sparse_results import packed_program
from robodyn.internals.records import dataclass

_Key: TypeAlias = tuple[Model, Traceable, int | None, tuple[str, ...], bool, tuple[tuple[str, bytes], ...]]

_TRACED: WeakValueDictionary[_Key, Program] = WeakValueDictionary()


@dataclass(frozen=True)
class Request:
    """What a kernel is for: an algorithm or a chain on a model, with the base motions that are given and the query's
    link."""

    model: Model
    algorithm: Traceable
    dtype: np.dtype[Any]
    target: Target
    base: tuple[str, ...] = ()
    link: int | None = None
    vectors: frozenset[str] = frozenset()
    """Arrays that hold vectors of states instead of rows, as between the stages of a chain."""
    packed: bool = False
    """Whether these have no place for what the tree makes zero: see `packing`."""

    unread: tuple[tuple[str, bytes], ...] = ()
    """Of arrays of vectors the entries that nobody reads, a byte for each: see `chains.unread`. Programs leave them
    out, loops do not."""

    @property
    def for_one_state(self) -> Request:
        """The same for one state at a time; itself where that makes no difference."""
        target = self.target.for_one_state
        return self if target is self.target else replace(self, target=target)

    @property
    def label(self) -> str:
        """What it is, in words."""
        return f"{self.model.name} {self.algorithm.name} {self.dtype} {self.target.level}"

    @property
    def lanes(self) -> int:
        """Steps for a body in the algorithm's longest sweep."""
        many = any(
            getattr(sweep, "lanes", False) or (isinstance(sweep, Ancestors) and not sweep.of_link)
            for sweep in self.algorithm.sweeps
        )
        return self.model.nv_tree if many else 1

    @property
    def cacheable(self) -> bool:
        """Whether the algorithm's steps are part of robodyn, whose sources are part of a key; others may change."""
        return fingerprint(self.algorithm)[1]

    def digest(self, kind: str, *facts: object) -> str:
        """A hash of what determines a module of a kind, besides processor and versions."""
        state = hashlib.blake2b(digest_size=16)
        task = self.algorithm.name, fingerprint(self.algorithm)[0]
        arrays = sorted(self.vectors), self.packed
        state.update(repr((kind, *task, self.base, str(self.dtype), *arrays, *facts)).encode())
        return state.hexdigest()

    @property
    def scalars(self) -> list[int]:
        """Scalars of one state of each result."""
        return [math.prod(output_shape(self.model, output)) for output in self.algorithm.outputs.values()]

    def trace(self) -> Program:
        """The straight-line program; the same for all targets, and not traced again as long as anybody has it."""
        key = self.model, self.algorithm, self.link, self.base, self.packed, self.unread
        found = _TRACED.get(key)
        if found is None:
            with no_collection():
                found = trace(self.model, self.algorithm, link=self.link, base=self.base)
                if self.packed:
                    found = packed_program(found, self.model, self.algorithm.outputs)
                if self.unread:
                    left = {name: np.frombuffer(entries, bool).tolist() for name, entries in self.unread}
                    found = found.with_outputs(
                        tuple(port.without(left[port.name]) if port.name in left else port for port in found.outputs)
                    )
            _TRACED[key] = found
        return found

    def unrolled_module(self, program: Program) -> str:
        """The module of that program."""
        return unrolled_module(program, self.dtype, self.target, vectors=self.vectors)


def input_names(request: Request) -> tuple[str, ...]:
    """A kernel's inputs, in order."""
    return tuple(input_shapes(request.model, request.algorithm, request.base))
