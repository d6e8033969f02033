"""Generated code for users to read."""

from __future__ import annotations

from robodyn.compile.tracing.program import Program
from robodyn.engines.cpu.kernels import Kernel
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError


class GeneratedCode:
    """The code of one query on one robot.

    `label` describes it. `mode` is one of:

    - "unrolled": one `Program`, a graph of expressions;
    - "rolled": loops over bodies, with a small program for each step and joint kind;
    - "chained": several algorithms and solves, one after another;
    - "repeated": one algorithm that runs at every unit vector;
    - "halved": two programs; the second one runs at every unit vector;
    - "apart": a chain whose stages that depend on the unit vector run at every unit vector, the others once.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.mode, self.label = kernel.mode, kernel.request.label

    def __repr__(self) -> str:
        return f"<GeneratedCode of {self.label}: {self.mode}, {self.operations} operations>"

    @cached_property
    def program(self) -> Program:
        """The expression graph of unrolled code: `counts`, `text()`, `dot()`, `evaluate()`.

        Raises:
            UnavailableError: the code is not unrolled.
        """
        if self._kernel.program is None:
            raise UnavailableError(f"{self.label}: {self.mode} code is not one graph")
        return self._kernel.program

    @cached_property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self._kernel.operations

    @cached_property
    def counts(self) -> dict[str, int]:
        """Operations for one state by kind; unrolled code only."""
        return self.program.counts

    @cached_property
    def text(self) -> str:
        """Unrolled code as readable text, one operation per line."""
        return self.program.text()

    @cached_property
    def ir(self) -> str:
        """The LLVM modules, one after another. Code of our own generator is shown as the LLVM module of the same
        program."""
        return "\n".join(self._kernel.modules)

    @cached_property
    def assembly(self) -> str:
        """The machine code in assembly language."""
        return "\n".join(self._kernel.listings)
