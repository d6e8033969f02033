"""Damping and friction around a kernel: functions with loops."""

from __future__ import annotations

from typing import Any

from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import Address, Array, Flag, Static, Word, array, call, chosen, convert, routine
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.native.context import Force, Job

DOUBLE: Any = Number("double", align=1)
SINGLE: Any = Number("float", align=1)
"""Numbers in users' arrays, without alignment."""


@routine
def force(to: Address, source: Address, rates: Address, law: Array[Force], sign: Word, kind: Static[Any]) -> None:
    """Numbers of one state: the source plus sign (damping x + friction sign(x)), where x are the rates."""
    damping, friction, x = array(kind, law.damping), array(kind, law.friction), array(kind, rates)
    before, after = array(kind, source), array(kind, to)
    step, factor = law.step, convert(kind, sign)
    for i in range(law.n):
        rate = x[i]
        direction = chosen(rate > 0.0, 1.0, chosen(rate < 0.0, -1.0, rate * 0.0))
        after[i * step] = before[i * step] + (damping[i] * rate + friction[i] * direction) * factor


def row(record: Array[Argument], number: Word) -> Address:
    """Address of a row of an array."""
    at: Address = record.data + record.stride * number
    return at


@routine
def forces(job: Array[Job], first: Word, last: Word, before: Flag) -> None:
    """Apply joint forces: before the query's kernel subtract them from a copy of an input, after it add them to
    results."""
    context = job.context
    for k in range(context.forces):
        law = context.force + k
        target = law.target
        if (target == context.drive) == before:
            results, sources = job.table + target, (job.given if before else job.table) + target
            constant, rates = law.source < 0, job.given + max(law.source, 0)
            sign = -1 if before else 1
            for r in range(first, last):
                to, source = row(results, r), row(sources, r)
                x = law.ones if constant else row(rates, r)
                if context.itemsize == 8:
                    force(to, source, x, law, sign, DOUBLE)
                else:
                    force(to, source, x, law, sign, SINGLE)


@routine
def worked(job: Array[Job], first: Word, last: Word, workspace: Address) -> None:
    """A kernel that does a query's work, including damping and friction."""
    forces(job, first, last, True)
    call(None, job.kernel, job.table, first, last, workspace)
    forces(job, first, last, False)
