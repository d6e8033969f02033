"""Traced straight-line programs as device functions of kernels."""

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
    """A program as a function of arrays: its inputs, and its one output, which may be one of the inputs.

    After the arrays come their strides in scalars: one for each array, one for all, or none if scalars are contiguous.

    Args:
        name: the function's name.
        program: the program to compute.
        dtype: the type of scalars.
        value: True if the output is one scalar and is returned.
        inline: True to inline the function in its callers.
        reads: when inputs are loaded. "first": all at the beginning; "once": each before its first use, which saves
            registers; "always": at every use.
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
        """The stride of each array's scalars, by name."""
        strides = list(arguments[len(self._ports) :]) or [1]
        return dict(zip(self._ports, strides if len(strides) > 1 else strides * len(self._ports), strict=True))

    def __call__(self, *arguments: Any) -> Any:
        """Run the program in Python."""
        apart, dtype = self._apart(arguments), np.dtype("f4" if self.scalar == "float" else "f8")
        inputs = {
            port.name: np.array(
                [0.0 if node == -1 else at[k * apart[port.name]] for k, node in enumerate(port.scalars)], dtype
            )
            for port, at in zip(self.program.inputs, arguments, strict=False)
        }
        (port,) = self.program.outputs
        values = self.program.evaluate(inputs)[port.name].ravel()
        if self.result is not None:
            return values[0]
        for k, value in enumerate(values):
            arguments[len(self._ports) - 1][k * apart["out"]] = value
        return None

    def definition(self, name: str, arguments: Sequence[Any]) -> str:
        """The function's CUDA text."""
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
