"""Generated code for people to look at."""

from __future__ import annotations

from robodyn.compile.tracing.program import Program
from robodyn.engines.cpu.kernels import Kernel
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError


class GeneratedCode:
    """The code of one query on one robot.

    `mode` is "unrolled", "rolled", "chained", "repeated", "halved" or "apart", `label` says what it is. Unrolled code
    comes from a `Program`, a graph of expressions; rolled code from several small ones, one for each step and joint
    kind; chained code is that of several algorithms and solves; repeated code is that of one algorithm, run at every
    unit vector; halved code is two programs, of which the second runs at every unit vector; of code that is apart the
    stages of a chain that depend on the unit vector do.
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
            UnavailableError: rolled code has no graph of its own.
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
        """Operations for one state by kind, of unrolled code."""
        return self.program.counts

    @cached_property
    def text(self) -> str:
        """Unrolled code as readable lines, one operation each."""
        return self.program.text()

    @cached_property
    def ir(self) -> str:
        """The module in LLVM's language; of code that is several modules, one after the other. Where our own code
        generator made the machine code, what LLVM would be given."""
        return "\n".join(self._kernel.modules)

    @cached_property
    def assembly(self) -> str:
        """The machine code in the processor's language."""
        return "\n".join(self._kernel.listings)
