"""Splits steps of an `Ancestors` sweep into columns.

A joint with six degrees of freedom has six columns. A thread that carried all six up the tree would run out of
registers. Columns are independent of each other, so each is carried up on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from robodyn.compile.tracing.expression import operands
from robodyn.compile.tracing.rolled import Step
from robodyn.core.joints import KINDS
from robodyn.core.model import Model


def kinds_above(model: Model) -> dict[int, tuple[int, ...]]:
    """For each joint kind of a body: the joint kinds on the paths from such bodies to the root, their own included."""
    path = [0] * model.n_bodies
    masks: dict[int, int] = {}
    kinds = model.joint_kind.tolist()
    for i, parent in enumerate(model.parent.tolist()):
        path[i] = (path[parent] if parent >= 0 else 0) | 1 << kinds[i]
        masks[kinds[i]] = masks.get(kinds[i], 0) | path[i]
    return {kind: tuple(code for code in range(len(KINDS)) if mask >> code & 1) for kind, mask in masks.items()}


def of_column(step: Step, column: int, carried: Collection[tuple[str, int]]) -> Step:
    """The part of a step that computes one column of the blocks and the scalars `carried` for it."""

    def belongs(k: int) -> bool:
        target = step.targets[k]
        return target.column == column if target.subject == "block" else (target.field, target.index) in carried

    return _part(step, [k for k in range(len(step.targets)) if belongs(k)])


def carried_for(visits: Sequence[Step], column: int) -> set[tuple[str, int]]:
    """The scalars, as (field, index), that must be carried for a column: all that its entries depend on."""
    scalars: set[tuple[str, int]] = set()
    while True:
        needed = {
            (source.array.removeprefix("field "), source.index)
            for visit in visits
            for step in (of_column(visit, column, scalars),)
            for source, node in zip(step.sources, step.program.inputs[0].scalars, strict=True)
            if source.subject == "carry" and node != -1
        }
        if needed <= scalars:
            return scalars
        scalars |= needed


def _part(step: Step, kept: Sequence[int]) -> Step:
    """The step with only the results `kept`, without operations that only the other results need."""
    program, (port,) = step.program, step.program.outputs
    scalars = tuple(port.scalars[k] for k in kept)
    wanted: set[int] = set()
    stack = [node for node in scalars if isinstance(node, int)]
    while stack:
        node = stack.pop()
        if node in wanted:
            continue
        wanted.add(node)
        stack += operands(program.nodes[node])
    live = tuple(node for node in program.live if node in wanted)
    inputs = tuple(
        replace(each, scalars=tuple(node if node in wanted else -1 for node in each.scalars)) for each in program.inputs
    )
    outputs = (replace(port, shape=(len(scalars),), scalars=scalars),)
    targets = tuple(step.targets[k] for k in kept)
    return replace(step, program=replace(program, inputs=inputs, outputs=outputs, live=live), targets=targets)
