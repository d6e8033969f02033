"""Copies to shared memory that are on their way while a thread goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robodyn.codegen.loops.blocks import Number
from robodyn.codegen.loops.c_terms import Printed, Term


class _Instruction(Printed):
    """An instruction of GPUs from sm_80 on, and what others do in its place."""

    parameters, instead = "", ""

    def instruction(self, arguments: Sequence[Any]) -> str:
        """The statements."""
        raise NotImplementedError

    def definition(self, name: str, arguments: Sequence[Any]) -> str:
        """The function of C."""
        scalars = [each.pointed for each in arguments if isinstance(each, Term)]
        scalar = scalars[0].scalar if scalars and isinstance(scalars[0], Number) else ""
        return f"""\
static __device__ __forceinline__ void {name}({self.parameters.format(T=scalar)})
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    {self.instruction(arguments)}
#else
    {self.instead}
#endif
}}
"""


class _Ask(_Instruction):
    name, parameters, instead = "ask", "{T}* to, const {T}* source", "*to = *source;"

    def __call__(self, *arguments: Any) -> None:
        to, source = arguments
        to[0] = source[0]

    def instruction(self, arguments: Sequence[Any]) -> str:
        copied = f'"r"((unsigned)__cvta_generic_to_shared(to)), "l"(source), "n"({arguments[0].pointed.size})'
        return f'asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::{copied} : "memory");'


class _Asked(_Instruction):
    name = "asked"

    def __call__(self, *arguments: Any) -> None:
        pass

    def instruction(self, arguments: Sequence[Any]) -> str:
        return 'asm volatile("cp.async.commit_group;" ::: "memory");'


class _Arrived(_Asked):
    name = "arrived"

    def instruction(self, arguments: Sequence[Any]) -> str:
        return f'asm volatile("cp.async.wait_group %0;" ::"n"({arguments[0]}) : "memory");'


ask, asked, arrived = _Ask(), _Asked(), _Arrived()
"""`ask(to, source)`: copy a scalar from global memory to shared memory; `asked()`: those until now are a group of
copies; `arrived(n)`: wait for all groups but the last n."""
