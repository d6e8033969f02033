"""Vectors of results without the entries that are zero for every state.

A matrix over pairs of joints is zero where neither joint carries the other: two thirds of a humanoid's entries. Vectors
of these zeros would be stored, loaded again to become rows, and would fill the first-level cache. So programs omit them
and store one zero after the others. The kernel that makes rows has a table with the index of each entry.
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
    """For each scalar of one state's result, its index among the stored scalars. All zeros share the last index."""
    size = math.prod(output_shape(model, output))
    filled = np.ones(size, bool)
    if isinstance(output, PairOutput):
        filled = np.tile(_pairs(model).ravel(), output.rows or 1)
    places = np.cumsum(filled) - 1
    return np.where(filled, places, filled.sum()).astype(np.int64)


def _pairs(model: Model) -> Array:
    """(nv, nv): True on the diagonal, and for joints of which one carries the other. A mimicking joint counts as the
    joint that it follows."""
    carried = np.zeros((model.n_bodies, model.n_bodies), bool)
    for body, parent in enumerate(model.tree.parent.tolist()):
        if parent >= 0:
            carried[body] = carried[parent]
        carried[body, body] = True
    related = np.repeat(np.repeat(carried | carried.T, _dofs(model), axis=0), _dofs(model), axis=1)
    nonzero = np.eye(model.nv, dtype=bool)
    rows, columns = np.nonzero(related)
    nonzero[model.v_source[rows], model.v_source[columns]] = True
    return nonzero


def _dofs(model: Model) -> Array:
    return np.diff(np.append(model.v_start, model.nv_tree))


def packed_program(program: Program, model: Model, outputs: Mapping[str, Any]) -> Program:
    """The program with packed results."""
    ports = (_packed(port, packing(model, outputs[port.name])) for port in program.outputs)
    return replace(program, outputs=tuple(ports))


def unpacked_program(program: Program, model: Model, outputs: Mapping[str, Any]) -> Program:
    """The inverse of `packed_program`."""
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
