"""Iterations of a few problems on arrays that stay where they are: no table is made again, and one call
runs all kernels (`robodyn.solve.trajectories.iteration_code`), but for steps shorter than 1, and for derivatives of a
large robot whose knots threads share."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.internals.arguments import Array, address_of
from robodyn.internals.cached import cached_property
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.iteration_code import SHORTER, Copied, Piece, Round, module_text
from robodyn.solve.trajectories.problem import Plan, Problem, part_of
from robodyn.solve.trajectories.shooting import relaxed, shorter_steps, stiffened
from robodyn.solve.trajectories.terms import Residual

_BLOCK = 16
"""Problems that go through all kernels together: their arrays stay in the cache."""
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_CODE: dict[Target, Any] = {}
"""Loaded code by target."""


class FixedArrays:
    """Iterations of single shooting on M trajectories.

    Attributes: `plan`: q (M, N + 1, nq), qd (M, N + 1, nv), u (M, N, nu); `start`: where roll-outs begin, q (M, nq) and
    qd (M, nv); `gains` (M, N, nu, 2 nv); `cost`, `mu` (M,); `outcome` (M,): of `iteration_code`, of the last call.

    Args:
        problem: with programs, and without limits of states.
        rows: (M,) the problems that the trajectories belong to, which the caller changes in place.
        plan, gains, cost, mu: contiguous arrays, likewise.
        tolerance: an iteration that would lower the cost by less than this part of it is the last.
    """

    def __init__(
        self, problem: Problem, rows: Array, plan: Plan, gains: Array, cost: Array, mu: Array, tolerance: float
    ) -> None:
        programs = problem.programs
        assert programs is not None and not problem.limits
        assert all(each.flags.c_contiguous for each in (*plan, gains, cost, mu))
        self._problem, self._programs, self._rows = problem, programs, rows
        self.plan, self.gains, self.cost, self.mu, self._tolerance = plan, gains, cost, mu, tolerance
        self._engine: Any = problem.dyn.engine
        many, n, (nq, nv, nu) = len(rows), problem.steps, programs.sizes
        self._of_phases = _filled(problem.phases.of(rows), many, n)
        self._numbers = {
            final: _filled(programs.numbers(rows, final), many, 1 if final else n) for final in (False, True)
        }
        terms = ((final, *each) for final in (False, True) for each in enumerate(programs.terms_of(final)))
        self._terms = [
            (term, tuple(self._numbers[final][f"{letter}{number}"] for letter in "wg")) for final, number, term in terms
        ]
        # Terms with numbers of their own for each of several problems; all of one, which may be any.
        self._varying = [each for each in self._terms if any(self._varies(array) for array in each[1])]
        self._trial: Plan = np.zeros((many, n + 1, nq)), np.zeros((many, n + 1, nv)), np.zeros((many, n, nu))
        self.start = self._trial[0][:, 0], self._trial[1][:, 0]
        self._costs = np.zeros((many, n + 1, 1))
        self._k, self._K = np.zeros((many, n, nu)), np.zeros((many, n, nu, 2 * nv))
        self._expected, self._ok = np.zeros((many, 2)), np.zeros(many, bool)
        self.outcome = np.zeros(many, np.int64)
        self._bounds = (np.zeros_like(plan[2]), np.zeros_like(plan[2])) if problem.boxed else (None, None)
        self._tau = plan[2] if nu == nv else np.zeros((many, n, nv))

    @staticmethod
    def possible(problem: Problem) -> bool:
        """Whether a problem has them."""
        programs = problem.programs
        if programs is None or problem.limits:
            return False
        return programs.gradient_loop.available(False) and (problem.steps > 1 or programs.gradient_loop.available(True))

    def follow(self, many: int) -> None:
        """Replace the first plans by roll-outs with the feedback `gains` from `start`, where those are finite."""
        self._following.run(many)

    def iterate(self, many: int) -> None:
        """One iteration of the first plans."""
        u, (lower, upper) = self.plan[2], self._bounds
        if self._tau is not u:
            self._tau[..., self._problem.actuated] = u
        if lower is not None and upper is not None:
            np.subtract(self._problem.upper, u, out=upper)
            np.subtract(self._problem.lower, u, out=lower)
        self._iteration.run(many)
        if SHORTER in self.outcome[:many].tolist():
            self._shorten(np.flatnonzero(self.outcome[:many] == SHORTER))

    def _shorten(self, at: Array) -> None:
        """Steps shorter than 1, or more regularisation where none lowers the cost enough."""
        found = shorter_steps(
            self._problem,
            self._rows[at],
            part_of(self.plan, at),
            self.cost[at],
            self._k[at],
            self._K[at],
            self._expected[at],
        )
        number, tried, cost = found
        taken = at[number >= 0]
        for to, each in zip((*self.plan, self.cost), (*tried, cost), strict=True):
            to[taken] = each
        mu = self.mu[at]
        self.mu[at] = np.where(number == 0, relaxed(mu), np.where(number < 0, stiffened(mu), mu))

    def read(self, rows: Array, to: Array) -> None:
        """Read weights, goals and phases of problems, for some of the trajectories."""
        for term, arrays in self._varying:
            for array, each in zip(arrays, term.numbers(rows), strict=True):
                if self._varies(array):
                    array[to] = each
        for name, each in self._problem.phases.of(rows).items():
            if self._varies(self._of_phases[name]):
                self._of_phases[name][to] = each

    def _varies(self, array: Array) -> bool:
        return len(array) == len(self._rows)

    def read_phases(self, rows: Array) -> None:
        """Read phases of all trajectories again."""
        for name, each in self._problem.phases.of(rows).items():
            self._of_phases[name][...] = each

    def read_goals(self, rows: Array) -> None:
        """Read goals of configurations and poses of all trajectories again."""
        for term, (_, goal) in self._terms:
            if isinstance(term, Residual):
                goal[...] = term.numbers(rows)[1]

    def move(self, source: int, to: int) -> None:
        """Copy what `read` has read for one trajectory to another one."""
        for arrays in (self._of_phases, *self._numbers.values()):
            for each in arrays.values():
                if self._varies(each):
                    each[to] = each[source]

    def _roll_out(self, size: float, step: Array, gains: Array) -> list[_Loop]:
        """Roll-outs u + size step + gains (x (-) x_plan), and their costs."""
        programs, many, n = self._programs, len(self._rows), self._problem.steps
        arrays = programs.follow_arrays(self._trial, self._costs, self.plan, np.full(many, size), step, gains)
        arrays |= {**self._of_phases, **self._numbers[False]}
        found = [_Loop(programs.follow_loop.table(arrays, many), n)]
        if programs.last:
            q, qd, _ = self._trial
            last = {"q": q[:, n:], "qd": qd[:, n:], "cost": self._costs[:, n:], **self._numbers[True]}
            found.append(_Loop(programs.last_loop.table(last, many), 1))
        return found

    def _copies(self) -> list[tuple[Array, Array, bool]]:
        return [(to, each, False) for to, each in zip(self.plan, self._trial, strict=True)]

    @cached_property
    def _following(self) -> _Calls:
        given = self._round(None)
        return _Calls(self._engine, given, self._roll_out(0.0, np.zeros_like(self._k), self.gains), self._copies())

    @cached_property
    def _iteration(self) -> _Calls:
        """Derivatives of steps and costs, the backward pass, and roll-outs with its step and feedback."""
        programs, problem, (_, nv, nu) = self._programs, self._problem, self._programs.sizes
        many, n, nx, engine = len(self._rows), problem.steps, 2 * nv, self._engine
        q, qd, u = self.plan
        if programs.linear:
            steps, dt = {"Y": np.zeros((many, n, nv, nu + nx))}, np.array(problem.dt)
        else:
            steps, dt = {"A": np.zeros((many, n, nx, nx)), "B": np.zeros((many, n, nx, nv))}, None
        to = programs.models(many)
        arrays = {"q": q[:, :-1], "qd": qd[:, :-1], "tau": self._tau, "dt": programs.constant["dt"], **self._of_phases}
        arrays |= steps
        running, last = programs.model_arrays(q, qd, u, to)
        running |= self._numbers[False]
        alone = many == 1
        if alone:  # knots are rows
            arrays, running = ({name: each.swapaxes(0, 1) for name, each in some.items()} for some in (arrays, running))
        loops = [
            _Loop(loop.table(some, n if alone else many), 1 if alone else n, n if alone else 0)
            for loop, some in ((programs.gradient_loop, arrays), (programs.model_loop, running))
        ]
        if programs.last:
            loops.append(_Loop(programs.last_model_loop.table({**last, **self._numbers[True]}, many), 1))
        columns = None if programs.linear or nu == nv else problem.actuated
        backward = BackwardPass(nv, nu, n, box=problem.boxed, engine=engine, columns=columns)
        lxx, lx = (None, to["lxx"]) if programs.diagonal else (to["lxx"], None), to["lx"]
        costs = lx[:, :-1], to["lu"], lxx[0], None, None, lx[:, n], to["vxx"][:, 0]
        first = steps.get("A"), steps.get("B"), None
        inputs = *first, *costs, self.mu, *self._bounds, lxx[1], to["luu"], steps.get("Y"), dt
        passed = backward.bound(inputs, (self._k, self._K, self._expected, self._ok), many)
        calls = [*loops, passed, *self._roll_out(1.0, self._k, self._K)]
        return _Calls(engine, self._round(self._tolerance), calls, [(self.gains, self._K, True), *self._copies()])

    def _round(self, tolerance: float | None) -> Round:
        """What calls have, without pieces and copies; without a backward pass if there is no tolerance."""
        (nq, nv, _), (q, qd, _) = self._programs.sizes, self._trial
        given = Round(block=_BLOCK, knots=self._problem.steps + 1, nq=nq, nv=nv)
        given.costs, given.q, given.qd = (address_of(each) for each in (self._costs, q, qd))
        given.cost, given.outcome = address_of(self.cost), address_of(self.outcome)
        if tolerance is not None:
            given.mu, given.expected, given.ok = (address_of(each) for each in (self.mu, self._expected, self._ok))
            given.tolerance = tolerance
        return given


class _Loop:
    """A loop over the knots of the problems, or, if `rows` is not 0, one call for so many rows."""

    def __init__(self, table: Any, steps: int, rows: int = 0) -> None:
        self._owner, self.rows, self.steps = table, rows, steps
        self.kernel, self.table = table.of_steps(steps)

    def run(self, launch: Any) -> None:
        """Call it for its rows."""
        self._owner.run(launch, self.steps)


class _Calls:
    """Kernels that one call runs for some problems at a time, as the kernel of an engine.

    Args:
        engine: whose threads share the problems.
        given: all but pieces and copies, of arrays that stay alive.
        calls: loops, and a backward pass.
        copies: arrays (M, ...), where they are from, and whether only a backward pass must succeed.
    """

    def __init__(
        self, engine: Any, given: Round, calls: Sequence[Any], copies: Sequence[tuple[Array, Array, bool]]
    ) -> None:
        self._engine, self._given, self._owners = engine, given, (calls, copies)
        # Threads share the knots of a large robot.
        self._first = [each for each in calls if getattr(each, "rows", 0) and self._shares(each)]
        rest = [each for each in calls if each not in self._first]
        pieces = [Piece(each.kernel.address, each.table, getattr(each, "rows", 0)) for each in rest]
        given.pieces, given.n_pieces = (Piece * len(pieces))(*pieces), len(pieces)
        moved = [Copied(address_of(to), address_of(source), to[0].nbytes, always) for to, source, always in copies]
        given.copies, given.n_copies = (Copied * len(moved))(*moved), len(moved)
        target = engine.target
        if target not in _CODE:
            text = module_text(target)
            _CODE[target] = engine.compiler.shared(text, f"robodyn iteration {target.level}", target)
        self.address = _CODE[target].address("kernel")
        self.function = _KERNEL(self.address)
        self.workspace_bytes = max(each.kernel.workspace_bytes for each in rest)
        self.row_ns = sum(each.kernel.row_ns * getattr(each, "steps", 1) for each in rest)

    def _shares(self, loop: _Loop) -> bool:
        return bool(self._engine.threads > 1 and loop.rows >= self._engine.share_rows(loop.kernel))

    def run(self, rows: int) -> None:
        """Call all for the first rows."""
        for each in self._first:
            each.run(self._engine.launch)
        self._engine.launch(self, ctypes.addressof(self._given), rows)


def _filled(arrays: Mapping[str, Array], many: int, knots: int) -> dict[str, Array]:
    """Copies of (M or 1, N or 1, ...); (1, N, ...) for one problem, whose numbers others replace."""
    filled = {}
    for name, each in arrays.items():
        filled[name] = np.empty((1, knots, *each.shape[2:])) if many == 1 else np.empty_like(each, order="C")
        filled[name][...] = each
    return filled
