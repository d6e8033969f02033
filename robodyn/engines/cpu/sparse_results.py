"""Results without the entries that are zero by the tree, while they are vectors of states.

A matrix over pairs of joints is zero where neither carries the other: two thirds of a humanoid's. As vectors of states
such entries would be stored, and loaded to become rows, like others; and results would not fit into the nearest cache.
So programs leave them out, with one zero at the end, and who makes rows looks up where each entry is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.compile.tracing.program import Port, Program
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import PairOutput
from robodyn.internals.arguments import Array


def packing(model: Model, output: Any) -> Array:
    """Of each scalar of one state's result, its number among those that are left: the last one is zero, if any is."""
    size = math.prod(output_shape(model, output))
    filled = np.ones(size, bool)
    if isinstance(output, PairOutput):
        filled = np.tile(_pairs(model).ravel(), output.rows or 1)
    places = np.cumsum(filled) - 1
    return np.where(filled, places, filled.sum()).astype(np.int64)


def _pairs(model: Model) -> Array:
    """(nv, nv): which entries are of two bodies that carry one another, or on the diagonal. Those of joints that mimic
    are their masters'."""
    carried = np.zeros((model.n_bodies, model.n_bodies), bool)
    for body, parent in enumerate(model.tree.parent.tolist()):
        if parent >= 0:
            carried[body] = carried[parent]
        carried[body, body] = True
    related = np.repeat(np.repeat(carried | carried.T, _dofs(model), axis=0), _dofs(model), axis=1)
    found = np.eye(model.nv, dtype=bool)
    rows, columns = np.nonzero(related)
    found[model.v_source[rows], model.v_source[columns]] = True
    return found


def _dofs(model: Model) -> Array:
    return np.diff(np.append(model.v_start, model.nv_tree))


def packed_program(program: Program, model: Model, outputs: Mapping[str, Any]) -> Program:
    """The program with results that are packed."""
    ports = (_packed(port, packing(model, outputs[port.name])) for port in program.outputs)
    return replace(program, outputs=tuple(ports))


def unpacked_program(program: Program, model: Model, outputs: Mapping[str, Any]) -> Program:
    """The program whose results are packed with whole ones."""
    ports = []
    for port in program.outputs:
        places = packing(model, outputs[port.name])
        scalars = tuple(port.scalars[place] for place in places.tolist())
        ports.append(Port(port.name, output_shape(model, outputs[port.name]), scalars))
    return replace(program, outputs=tuple(ports))


def _packed(port: Port, places: Array) -> Port:
    if places.max(initial=-1) == port.size - 1:
        return port
    scalars: list[int | float] = [0.0] * (int(places.max()) + 1)
    for scalar, place in zip(port.scalars, places.tolist(), strict=True):
        assert place < len(scalars) - 1 or (isinstance(scalar, float) and scalar == 0.0), "zero by the tree"
        scalars[place] = scalar
    return Port(port.name, (len(scalars),), tuple(scalars))
