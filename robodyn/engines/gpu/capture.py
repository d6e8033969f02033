"""Records calls of queries as CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.engines.query_table import asked_of
from robodyn.internals.arguments import one_of
from robodyn.internals.array_library import on_device
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.gpu.device import Graph


class Captured:
    """A recorded call of a query on fixed arrays.

    `results`: the arrays that every call fills: one array, a tuple of arrays, or a sparse matrix.
    """

    def __init__(self, query: str, graph: Graph, results: Any, used: tuple[Any, ...]) -> None:
        self.query, self.results = query, results
        self._graph, self._used = graph, used  # keeps code and memory of the graph alive

    def __repr__(self) -> str:
        return f"<Captured {self.query}>"

    def __call__(self) -> Any:
        """Run the query on the arrays' current values, in the order of the current stream. Returns without waiting."""
        self._graph.launch()
        return self.results


def capture(dyn: Dynamics, query: str, arrays: Sequence[Any], out: Any, others: Mapping[str, Any]) -> Captured:
    """Record a call (`Dynamics.capture`)."""
    query = one_of("query", query, tuple(asked_of(dyn.model)))
    if dyn.check:
        raise ArgumentError("check: got True; a recorded call cannot look at values, wanted False or None")
    if not any(map(on_device, (*arrays, *others.values()))):
        raise ArgumentError(
            f"capture: got no array on the GPU among the arguments of {query}; wanted all of them there"
        )
    if any(hasattr(each, "require_host") for each in (*arrays, *others.values())):
        raise ArgumentError(
            "obstacles: got some for a recorded call; wanted None, calls with obstacles are not recorded"
        )
    contacts = dyn.model.contacts
    if contacts is not None and contacts.crowded and query == "contact_forward_dynamics":
        raise ArgumentError(
            f"capture: got {query} of {dyn.model.name!r} with max_contacts, whose deepest slots are found by sorting, "
            "which is not recorded; wanted max_contacts=None"
        )
    if not dyn.model.n_bodies:
        raise ArgumentError(f"capture: got {query} of {dyn.model.name!r}, in which nothing moves; there is no kernel")
    # Arguments are converted before the recording: during it, no other library may be asked to wait for a stream.
    arguments = tuple(_taken(dyn, value) for value in arrays)
    named = {name: _taken(dyn, value) for name, value in others.items()}
    method, wrapped = getattr(dyn, query), dyn._gpu.device.wrapped
    results = method(*arguments, out=out, **named)  # compiles, and allocates the results
    _require_size(results, query)
    if hasattr(results, "indptr"):  # sparse: the pattern is constant
        target, work = results, partial(dyn._refill, results, *arguments, **named)
    else:
        target = tuple(map(wrapped, results)) if isinstance(results, tuple) else wrapped(results)
        work = partial(method, *arguments, out=target, **named)
    graph = dyn._gpu.device.record(work)
    return Captured(query, graph, results, (dyn, arguments, named, target))


def _taken(dyn: Dynamics, value: Any) -> Any:
    """An argument as an array for kernels. Arguments that are not arrays on a GPU are returned unchanged."""
    if not on_device(value):
        return value
    array = dyn._gpu.library.array("capture", value, "wanted arrays on the GPU")
    if array.dtype != dyn.dtype or not array.flags.c_contiguous:
        kind = "contiguous" if array.flags.c_contiguous else "strided"
        raise ArgumentError(
            f"capture: got {brief(value)}, a {kind} {array.dtype} array; wanted contiguous {dyn.dtype} arrays, "
            "which kernels read where they are"
        )
    return array


def _require_size(results: Any, query: str) -> None:
    if not any(np.prod(each.shape) for each in (results if isinstance(results, tuple) else (results,))):
        raise ArgumentError(f"capture: got no states for {query}; wanted at least one")
