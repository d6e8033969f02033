"""Requests for kernels."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from robodyn.algorithms.constraints.augmented import has_singular_mass_matrix
from robodyn.algorithms.constraints.sweeps import ConstraintQuery
from robodyn.algorithms.distances.tasks import Measured
from robodyn.algorithms.tasks import ScalarTask, Traceable
from robodyn.compile.gc_pause import no_collection
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.unrolled_code import unrolled_module
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import input_shapes, output_shape, trace
from robodyn.core.constraints.kinds import Rolling
from robodyn.core.model import Model
from robodyn.core.sweeps import Ancestors
from robodyn.engines.cpu.fingerprint import fingerprint
from robodyn.engines.cpu.sparse_results import packed_program
from robodyn.internals.records import dataclass

_Key: TypeAlias = tuple[Model, Traceable, int | None, tuple[str, ...], bool, tuple[tuple[str, bytes], ...]]

_TRACED: WeakValueDictionary[_Key, Program] = WeakValueDictionary()


@dataclass(frozen=True)
class Request:
    """A request for a kernel: a task on a model at a precision for a processor, with the motions of the base that are
    inputs and the query's link."""

    model: Model
    algorithm: Traceable
    dtype: np.dtype[Any]
    target: Target
    base: tuple[str, ...] = ()
    link: int | None = None
    vectors: frozenset[str] = frozenset()
    """Names of arrays that hold vectors of states instead of rows, as between the stages of a chain."""
    packed: bool = False
    """True if results that are vectors omit entries that are zero for every state; see `sparse_results.packing`."""

    unread: tuple[tuple[str, bytes], ...] = ()
    """Entries of vector arrays that no later stage reads, one byte each; see `chains.dead_outputs`. Programs do not
    compute them, loops do."""

    @property
    def for_one_state(self) -> Request:
        """The request for one state at a time; itself if that makes no difference."""
        target = self.target.for_one_state
        return self if target is self.target else replace(self, target=target)

    @property
    def constraint_query(self) -> ConstraintQuery | None:
        """The query about constraints that loops answer; None for other tasks, for robots with mimicking joints or
        rolling wheels, and for those whose mass matrix is singular."""
        task, model = self.algorithm, self.model
        query = task.constraint_query if isinstance(task, ScalarTask) else None
        if query is None or model.has_mimic or any(isinstance(each, Rolling) for each in model.constraints):
            return None
        return None if has_singular_mass_matrix(model) else query

    @property
    def distance_query(self) -> Measured | None:
        """The query about distances that loops over pairs answer; None for other tasks."""
        return self.algorithm.distance_query if isinstance(self.algorithm, ScalarTask) else None

    @property
    def label(self) -> str:
        """A description for people."""
        return f"{self.model.name} {self.algorithm.name} {self.dtype} {self.target.level}"

    @property
    def lanes(self) -> int:
        """Steps per body in the algorithm's longest sweep."""
        many = any(
            getattr(sweep, "lanes", False) or (isinstance(sweep, Ancestors) and not sweep.of_link)
            for sweep in self.algorithm.sweeps
        )
        return self.model.nv_tree if many else 1

    @property
    def cacheable(self) -> bool:
        """True if the algorithm's functions belong to robodyn: its sources are part of cache keys, those of others are
        not."""
        return fingerprint(self.algorithm)[1]

    def digest(self, kind: str, *facts: object) -> str:
        """A hash of everything that determines a module of this kind, except processor and versions."""
        state = hashlib.blake2b(digest_size=16)
        task = self.algorithm.name, fingerprint(self.algorithm)[0]
        arrays = sorted(self.vectors), self.packed
        state.update(repr((kind, *task, self.base, str(self.dtype), *arrays, *facts)).encode())
        return state.hexdigest()

    @property
    def scalars(self) -> list[int]:
        """Number of scalars of each result for one state."""
        return [math.prod(output_shape(self.model, output)) for output in self.algorithm.outputs.values()]

    def trace(self) -> Program:
        """The straight-line program, the same for all targets. It is traced once while a reference to it exists."""
        key = self.model, self.algorithm, self.link, self.base, self.packed, self.unread
        program = _TRACED.get(key)
        if program is None:
            with no_collection():
                program = trace(self.model, self.algorithm, link=self.link, base=self.base)
                if self.packed:
                    program = packed_program(program, self.model, self.algorithm.outputs)
                if self.unread:
                    left = {name: np.frombuffer(entries, bool).tolist() for name, entries in self.unread}
                    program = program.with_outputs(
                        tuple(port.without(left[port.name]) if port.name in left else port for port in program.outputs)
                    )
            _TRACED[key] = program
        return program

    def unrolled_module(self, program: Program) -> str:
        """The LLVM module of a program."""
        return unrolled_module(program, self.dtype, self.target, vectors=self.vectors)


def input_names(request: Request) -> tuple[str, ...]:
    """Names of a kernel's inputs, in order."""
    return tuple(input_shapes(request.model, request.algorithm, request.base))
