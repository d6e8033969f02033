"""Traced programs as functions of kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robodyn.compile.c import sincos
from robodyn.compile.c.body import Body
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.c_terms import Printed, Term, c_type
from robodyn.compile.ordering import in_short_order
from robodyn.compile.tracing.program import Port, Program
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS


class Straight(Printed):
    """A program as a function of arrays: its inputs, and its one output, which may be one of them. Behind them stands
    how far the scalars of each array lie apart, or one number for all; nothing where they are neighbours.

    Args:
        name: of the function.
        program: what it computes.
        dtype: of scalars.
        value: whether the output is one scalar, and the function's result.
        inline: whether it becomes a part of its callers.
        reads: when inputs are read: "first", all of them; "once", each when it is needed first, as all at once may fill
            the registers; "always", wherever it is needed.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        dtype: np.dtype[Any],
        *,
        value: bool = False,
        inline: bool = True,
        reads: str = "once",
    ) -> None:
        self.name, self.program, self.scalar = name, program, SCALARS[dtype.name]
        self.inline, self.reads = inline, reads
        self.result = Number(self.scalar) if value else None
        self._ports = [port.name for port in program.inputs] + ["out"] * (not value)
        turning = program.counts.get("sin") or program.counts.get("cos")
        self.needs = FUSED + (sincos.text(self.scalar) if turning else "")

    def _apart(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """How far scalars of arrays lie apart."""
        given = list(arguments[len(self._ports) :]) or [1]
        return dict(zip(self._ports, given if len(given) > 1 else given * len(self._ports), strict=True))

    def __call__(self, *arguments: Any) -> Any:
        """Run it as Python."""
        apart, dtype = self._apart(arguments), np.dtype("f4" if self.scalar == "float" else "f8")
        given = {
            port.name: np.array(
                [0.0 if node == -1 else at[k * apart[port.name]] for k, node in enumerate(port.scalars)], dtype
            )
            for port, at in zip(self.program.inputs, arguments, strict=False)
        }
        (port,) = self.program.outputs
        found = self.program.evaluate(given)[port.name].ravel()
        if self.result is not None:
            return found[0]
        for k, value in enumerate(found):
            arguments[len(self._ports) - 1][k * apart["out"]] = value
        return None

    def definition(self, name: str, arguments: Sequence[Any]) -> str:
        """The function of C."""
        apart = self._apart(arguments)
        count = len(arguments) - len(self._ports)
        names = [*self._ports, *(["apart"] if count == 1 else [f"{port}_apart" for port in self._ports[:count]])]

        def entry(port: str, k: int) -> str:
            one = "apart" if count == 1 else f"{port}_apart"
            return f"{port}[{f'{k} * {one}' if isinstance(apart[port], Term) else k * apart[port]}]"

        def place(port: Port, k: int) -> str:
            if port.name == "out" and self.result is not None:
                return "out"
            return entry(port.name, k) if port.name == "out" or self.reads == "always" else f"{port.name}_{k}"

        body = Body(in_short_order(self.program), CudaDialect(self.scalar), place, len(self.program.nodes) + 1)
        (statements,) = body.parts()
        read: set[str] = set()

        def loads(text: str) -> Iterator[str]:
            for each, port, k in re.findall(r"\b((in\d+)_(\d+))\b", text):
                if each not in read:
                    read.add(each)
                    yield f"const {self.scalar} {each} = {entry(port, int(k))};"

        every = [f"{port.name}_{k}" for port in self.program.inputs for k, node in enumerate(port.scalars) if node >= 0]
        lines = list(loads(" ".join(every))) if self.reads == "first" else []
        for statement in statements:
            lines += [*loads(statement), statement]
        listed = [
            f"{c_type(each.type, each.read)} {one}"
            for each, one in zip(arguments, names, strict=True)
            if isinstance(each, Term)
        ]
        if self.result is not None:
            lines = [f"{self.scalar} out;", *lines, "return out;"]
        kept = "__forceinline__" if self.inline else "__noinline__"
        head = f"static __device__ {kept} {c_type(self.result)} {name}({', '.join(listed)})"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}", ""])
