"""From what the engine is asked for to a kernel: one piece of code, or several and one that calls them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.compile.llvm.jit import OPT
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loop_plan import traits_of
from robodyn.engines.cpu.backends import begin_driver
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.engines.cpu.parts.plan import Plan
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.route import Route, SingleProgram, find_route, parts_of, writes_most
from robodyn.engines.cpu.streaming_stores import begin_streaming_stores, with_streaming_stores
from robodyn.engines.cpu.tiered_compilation import HURRIED, going_first
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.engines.cpu.hoisting import Hoisted


class Compiler(KernelCompiler):
    """Makes all kernels; see `KernelCompiler`."""

    @going_first()
    def kernel(self, request: Request, *, single: bool, plan: Plan | None = None) -> Kernel:
        """The kernel of a request; `single`: for one state at a time, where that makes a difference; `plan`: for a tree
        in parts.

        Raises:
            UnavailableError: LLVM cannot compile it, or it needs more memory than there is.
        """
        if plan is not None:
            found = self.parted(request, 1 if single or writes_most(request) else None, plan)
            found.alone = single
            return found
        begin_driver(request.for_one_state if single else request, self.cache)
        routes: list[Route | None] = []  # held, so that nothing is traced twice
        asked, route = self._asked(request, single, routes)
        assert route is not None
        if isinstance(route, SingleProgram) and route.program is not None and not single:
            self._begin_around(route.request, route.program.operations)
        found = self._made(asked, route, single)
        if not single or (route != "loops" and request.for_one_state is request):
            found = with_streaming_stores(self, asked, found)
        found.alone = single if route == "loops" or request.for_one_state is not request else None
        return found

    def _asked(
        self, request: Request, single: bool, routes: list[Route | None], *, trace: bool = True
    ) -> tuple[Request, Route | None]:
        """What is compiled for one state, or for many, and its route, as of `find_route`. Loops over bodies are what
        they are: for one state they have vectors of one. Unit vectors are run as if they were states. `routes`: gets
        all that were looked for."""

        def found(asked: Request) -> Route | None:
            routes.append(find_route(asked, self.mode, self._cache(asked), trace=trace))
            return routes[-1]

        narrow = request.for_one_state if single else request
        route = found(narrow)
        if narrow is request or isinstance(route, SingleProgram) or route is None:
            return narrow, route
        if request.algorithm.unit_input is not None:
            return request, route
        return (request, found(request)) if route == "loops" else (narrow, route)

    def _made(self, request: Request, route: Route, single: bool) -> Kernel:
        if route == "loops":
            return self.rolled(request, 1 if single or writes_most(request) else None)
        if not isinstance(route, SingleProgram) and not request.algorithm.in_stages():
            raise UnavailableError(
                f"engine 'cpu': {request.algorithm.name} of {request.model.name!r} is too large for one program"
            )
        whole = self.whole(route) if isinstance(route, SingleProgram) else None
        if whole is not None and not whole.request.vectors:
            return whole
        from robodyn.engines.cpu.chains.build import chained_kernel, flushed_kernel

        if whole is not None:
            return flushed_kernel(self, request, whole)
        return self._at_units(request) if request.algorithm.unit_input is not None else chained_kernel(self, request)

    def _at_units(self, request: Request) -> Kernel:
        """What is no program for all unit vectors: in halves, a chain that is one program at each of them, or one that
        is taken apart."""
        from robodyn.engines.cpu.chains.tensors import halved_kernel, parted_kernel, parts_at_units, repeated_kernel

        halves = self._halves(request)
        if halves is not None:
            return halved_kernel(self, request, halves)
        (part,) = parts_of(request)
        route, parts = self.route(part), parts_at_units(request.algorithm)
        if parts is None or isinstance(route, SingleProgram):
            return repeated_kernel(self, request, self._made(part, route, single=False))
        once = self.kernel(replace(request, algorithm=parts.once), single=True)
        contracted = replace(request, algorithm=parts.contracted)
        (every,) = parts_of(contracted)
        contraction = self._halves(contracted) or self._made(every, self.route(every), single=False)
        return parted_kernel(self, request, parts, once, contraction)

    def _halves(self, request: Request, *, trace: bool = True) -> Hoisted | None:
        from robodyn.engines.cpu.hoisting import find_hoisted

        return find_hoisted(request, self.mode, self._cache(request), trace=trace)

    def _begin_around(self, request: Request, operations: float) -> None:
        """Begin to compile what is around a program for batches: while it becomes machine code there is time."""
        if not request.vectors:
            begin_streaming_stores(self, request)
        else:
            from robodyn.engines.cpu.chains.build import begin_flushing

            begin_flushing(self, request, operations)

    def in_cache(self, request: Request, *, single: bool = False, plan: Plan | None = None) -> bool:
        """Whether the code of a request waits in the cache: that of its own, not what robots share."""
        asked, route = (request, "loops") if plan is not None else self._asked(request, single, [], trace=False)
        if route == "parts":
            if asked.algorithm.unit_input is not None:
                return self._units_in_cache(asked)
            return all(self.in_cache(part) for part in parts_of(asked))
        if route == "loops":
            kind = VectorType.of(request.dtype, request.target, 1 if single or writes_most(request) else None)
            linked = self._rolled_code(request, traits_of(request.model), kind, "rolled" if plan is None else "parted")
            return any(replace(linked, opt=level).code() is not None for level in (OPT, HURRIED))
        return isinstance(route, SingleProgram) and route.code is not None

    def _units_in_cache(self, request: Request) -> bool:
        """The same of what runs at every unit vector."""
        from robodyn.engines.cpu.chains.tensors import parts_at_units

        halves = self._halves(request, trace=False)
        if halves is not None and halves.images is not None:
            return True
        (part,) = parts_of(request)
        parts = parts_at_units(request.algorithm)
        route = find_route(part, self.mode, self._cache(part), trace=False)
        if parts is None or isinstance(route, SingleProgram):
            return self.in_cache(part)
        contracted = replace(request, algorithm=parts.contracted)
        once = replace(request, algorithm=parts.once)
        return route is not None and self.in_cache(once, single=True) and self._units_in_cache(contracted)

    @going_first()
    def step(self, request: Request) -> tuple[Kernel, ...]:
        """The program of an integrator's step, or where it would be too large those of its parts; nothing where these
        are too large as well, or code is to be rolled."""
        route = self.route(request)
        routes = [route] if isinstance(route, SingleProgram) else [self.route(part) for part in parts_of(request)]
        programs = [route for route in routes if isinstance(route, SingleProgram)]
        return tuple(map(self.whole, programs)) if len(programs) == len(routes) else ()
