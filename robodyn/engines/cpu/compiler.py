"""Makes the kernel of a request: one piece of code, or several pieces and a kernel that calls them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.compile.llvm.jit import OPT
from robodyn.compile.llvm.vectors import VectorType
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
    """Makes all kinds of kernels; see `KernelCompiler`."""

    @going_first()
    def kernel(self, request: Request, *, single: bool, plan: Plan | None = None) -> Kernel:
        """The kernel of a request; `single`: for one state at a time; `plan`: for a tree in parts.

        Raises:
            UnavailableError: LLVM cannot compile it, or it needs more memory than there is.
        """
        if plan is not None:
            kernel = self.parted(request, 1 if single or writes_most(request) else None, plan)
            kernel.alone = single
            return kernel
        begin_driver(request.for_one_state if single else request, self.cache)
        routes: list[Route | None] = []  # kept alive, so that no program is traced twice
        asked, route = self._route_of(request, single, routes)
        assert route is not None
        if isinstance(route, SingleProgram) and route.program is not None and not single:
            self._begin_wrappers(route.request, route.program.operations)
        kernel = self._made(asked, route, single)
        query = request.distance_query
        longer = query is not None and bool(query.kinds)  # rows of results, than the request says
        if not longer and (not single or (route != "loops" and request.for_one_state is request)):
            kernel = with_streaming_stores(self, asked, kernel)
        kernel.alone = single if route == "loops" or request.for_one_state is not request else None
        return kernel

    def _route_of(
        self, request: Request, single: bool, routes: list[Route | None], *, trace: bool = True
    ) -> tuple[Request, Route | None]:
        """The request to compile, and its route as from `find_route`. For single states, programs are compiled for the
        narrow target, loops over bodies and unit vectors for the usual one. `routes` collects all routes."""

        def found(asked: Request) -> Route | None:
            routes.append(find_route(asked, self.mode, self._cache(asked), trace=trace))
            return routes[-1]

        narrow = request.for_one_state if single else request
        route = found(narrow)
        if narrow is request or isinstance(route, SingleProgram) or route is None:
            return narrow, route
        if request.algorithm.unit_input is not None:
            return request, route
        if request.distance_query is not None:
            return narrow, route
        return (request, found(request)) if route == "loops" else (narrow, route)

    def _made(self, request: Request, route: Route, single: bool) -> Kernel:
        if route == "loops" and request.distance_query is not None:
            from robodyn.engines.cpu.distances.program import distance_kernel

            return distance_kernel(self, request)
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
        """The kernel of a task at all unit vectors: two programs with hoisted code, one program called for every unit
        vector, or a chain split into parts."""
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

    def _begin_wrappers(self, request: Request, operations: float) -> None:
        """Start to compile the code around a program for batches, while the program becomes machine code."""
        if not request.vectors:
            begin_streaming_stores(self, request)
        else:
            from robodyn.engines.cpu.chains.build import begin_flushing

            begin_flushing(self, request, operations)

    def in_cache(self, request: Request, *, single: bool = False, plan: Plan | None = None) -> bool:
        """True if the cache has the request's own code. Code that all robots share is not considered."""
        effective, route = (request, "loops") if plan is not None else self._route_of(request, single, [], trace=False)
        if route == "parts":
            if effective.algorithm.unit_input is not None:
                return self._units_in_cache(effective)
            return all(self.in_cache(part) for part in parts_of(effective))
        if route == "loops":
            kind = VectorType.of(request.dtype, request.target, 1 if single or writes_most(request) else None)
            linked = self._rolled_code(request, kind, "rolled" if plan is None else "parted")
            return any(replace(linked, opt=level).code() is not None for level in (OPT, HURRIED))
        return isinstance(route, SingleProgram) and route.code is not None

    def _units_in_cache(self, request: Request) -> bool:
        """`in_cache` for tasks at every unit vector."""
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
        """The program of an integrator's step, or the programs of its parts if it is too large. Empty if these are too
        large as well, or if code is to be rolled."""
        route = self.route(request)
        routes = [route] if isinstance(route, SingleProgram) else [self.route(part) for part in parts_of(request)]
        programs = [route for route in routes if isinstance(route, SingleProgram)]
        return tuple(map(self.whole, programs)) if len(programs) == len(routes) else ()
