"""Kernels of a trajectory's problems on a GPU, and the arrays of some of them there.

Arrays have knots before problems: q (N + 1, M, nq), u (N, M, nu). So a roll-out is one launch, which goes from knot to
knot, and all knots of all problems are the rows of one launch for derivatives. The tasks are those of the CPU engine
(`programs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.api.motion.step_spec import chosen_step, gradient_of
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.unrolled_kernels import MAX_OPERATIONS, marching_kernel, unrolled_kernel
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.solve.trajectories.backward_kernel import backward_source
from robodyn.solve.trajectories.follow import followed
from robodyn.solve.trajectories.knot_costs import expansion_task, value_task
from robodyn.solve.trajectories.problem import Problem
from robodyn.solve.trajectories.programs import INTEGRATOR
from robodyn.solve.trajectories.riccati_kernel import DeviceScan, chosen_length, scan_sources

_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
"""Kernels of engines, by what determines their texts."""


class DeviceKernels:
    """The kernels of a problem. `backward`: "auto", "recursion" or "scan".

    Raises:
        UnavailableError: one of them is too large, or the options of the engine want other kernels.
    """

    def __init__(self, problem: Problem, backward: str) -> None:
        dyn, nv, nu = problem.dyn, problem.nv, problem.nu
        self.engine = cast(Any, dyn.engine)
        self.xp, self.dtype, model = self.engine.device.xp, self.engine.dtype, dyn.model
        self.terms = {final: tuple(each for each in problem.terms if each.final is final) for final in (False, True)}
        pieces = {final: tuple(each.piece for each in some) for final, some in self.terms.items()}
        given = problem.phases.names
        step = chosen_step(dyn, ("tau", *given), INTEGRATOR, ())
        driven = tuple(int(v) for v in problem.actuated)
        follow: Any = followed(step, nv, driven, problem.boxed, value_task(pieces[False], nu))

        gains = 2 * nv * nu
        if gains > MAX_OPERATIONS:  # tracing what is too large would take minutes
            raise self._refusal(
                "roll-outs", f"its feedback has {gains} gains, and programs at most {MAX_OPERATIONS} operations"
            )

        def unrolled(task: Any) -> Callable[[], KernelSource]:
            return lambda: unrolled_kernel(model, task, self.dtype)

        gradient, value = gradient_of(step, model, ("tau", *given)), value_task(pieces[True], 0)
        running, last = (expansion_task(pieces[final], 0 if final else nu, nv, False) for final in (False, True))
        n, boxed, shared = 2 * nv, problem.boxed, self.engine.device.shared_bytes
        wanted = [
            ("roll-outs", follow, lambda: marching_kernel(model, follow, self.dtype)),
            ("derivatives", gradient, unrolled(gradient)),
            ("costs", running, unrolled(running)),
            ("the backward pass", (n, nu, boxed), lambda: backward_source(n, nu, self.dtype, shared, box=boxed)),
        ]
        if pieces[True]:
            wanted += [("costs", value, unrolled(value)), ("costs", last, unrolled(last))]
        self.follow, self.gradient, self.model, self.backward, *ends = self._loaded(wanted)
        self.last_value: Any = ends[0] if ends else None
        self.last_model: Any = ends[1] if ends else None
        self.scan = self._scan(problem, backward)

    def _scan(self, problem: Problem, backward: str) -> DeviceScan | None:
        """Scans of backward passes, where they are wanted or shorter."""
        n, nu, steps = 2 * problem.nv, problem.nu, problem.steps
        if backward == "recursion" or steps < 2:
            return None
        length = chosen_length(n, nu, steps, problem.count, self.backward.blocks)
        if not length and backward == "auto":
            return None
        sources = scan_sources(n, nu, self.dtype, self.engine.device.shared_bytes)
        wanted = [("scans", (n, nu, each.name), lambda each=each: each) for each in sources]
        return DeviceScan((*self._loaded(wanted), self.backward), n, nu, length or math.isqrt(steps), self.xp)

    def _loaded(self, wanted: Sequence[tuple[str, Any, Callable[[], KernelSource]]]) -> list[Any]:
        """Kernels, each with what it is for, what determines its text, and the text."""
        known, missing = _KNOWN.setdefault(self.engine, {}), dict[Any, KernelSource]()
        for what, key, source in wanted:
            if key not in known and key not in missing:
                try:
                    missing[key] = source()
                except UnavailableError as error:
                    raise self._refusal(what, f"({error})") from error
        known.update(zip(missing, self.engine.launches([*missing.values()]), strict=True))
        return [known[key] for _, key, _ in wanted]

    def _refusal(self, what: str, reason: str) -> UnavailableError:
        name = quoted(self.engine.model.name)
        return UnavailableError(
            f"optimize_trajectory: engine 'gpu' has no kernel for {what} of {name}: {reason}; allowed: "
            "'cpu', 'reference'"
        )


class DeviceArrays:
    """Arrays of M problems on the device.

    Args:
        kernels: of the problem.
        problem: all problems.
        rows: (M,) the problems.
        u: (M, N, nu) first controls.
    """

    def __init__(self, kernels: DeviceKernels, problem: Problem, rows: Array, u: Array) -> None:
        self.kernels, self._problem, self.rows = kernels, problem, rows
        many, n, nv, nu, nq = len(rows), problem.steps, problem.nv, problem.nu, problem.q0.shape[1]
        self._knots, self._empty = n, kernels.xp.empty
        self.start = {"q": self.to_device(problem.q0[rows]), "qd": self.to_device(problem.qd0[rows])}
        self.given = {name: self._of_knots(each, many, n) for name, each in problem.phases.of(rows).items()}
        self.numbers = {
            final: {
                f"{letter}{k}": self._of_knots(each, many, 1 if final else n)
                for k, term in enumerate(terms)
                for letter, each in zip("wg", term.numbers(rows), strict=True)
            }
            for final, terms in kernels.terms.items()
        }
        zeros = kernels.xp.zeros
        self.q, self.qd = self._states(many, nq), self._states(many, nv)
        self.q[...] = self.to_device(problem.dyn.model.neutral())
        self.qd[...] = 0.0
        self.u = self.to_device(u.swapaxes(0, 1))
        self.k, self.K = zeros((n, many, nu), kernels.dtype), zeros((n, many, nu, 2 * nv), kernels.dtype)
        self.gains, self.mu = zeros(self.K.shape, kernels.dtype), np.zeros(many)
        self.trial: tuple[Array, Array, Array] = self.q, self.qd, self.u

    def _states(self, many: int, size: int) -> Array:
        found: Array = self._empty((self._knots + 1, many, size), self.kernels.dtype)
        return found

    def to_device(self, array: Array) -> Array:
        """A copy on the device."""
        found: Array = self.kernels.xp.asarray(np.ascontiguousarray(array, self.kernels.dtype))
        return found

    def to_host(self, array: Array) -> Array:
        """A copy as NumPy's."""
        found: Array = self.kernels.xp.asnumpy(array)
        return found

    def _of_knots(self, array: Array, many: int, knots: int) -> Array:
        """(knots, M, ...) of (M or 1, knots or 1, ...)."""
        return self.to_device(np.broadcast_to(array, (many, knots, *array.shape[2:])).swapaxes(0, 1))

    def part(self, places: Array) -> DeviceArrays:
        """Those of some of the problems, by their places."""
        made = object.__new__(DeviceArrays)
        made.__dict__.update(self.__dict__)
        xp = self.kernels.xp
        at = xp.asarray(places)
        made.rows, made.mu = self.rows[places], self.mu[places]
        made.start = {name: xp.take(each, at, axis=0) for name, each in self.start.items()}
        for name in ("q", "qd", "u", "k", "K", "gains"):
            setattr(made, name, xp.take(getattr(self, name), at, axis=1))
        made.given = {name: xp.take(each, at, axis=1) for name, each in self.given.items()}
        made.numbers = {
            final: {name: xp.take(each, at, axis=1) for name, each in some.items()}
            for final, some in self.numbers.items()
        }
        made.trial = made.q, made.qd, made.u
        return made

    def roll_out(self, size: float) -> Array:
        """Costs (M,) of trajectories under u + size k + K (x (-) x_plan), which become `trial`; not finite if a state
        is not."""
        kernels, many, n = self.kernels, len(self.rows), self._knots
        xp, dtype = kernels.xp, kernels.dtype
        q, qd, u = (
            self._states(many, self.q.shape[2]),
            self._states(many, self.qd.shape[2]),
            self._empty(self.u.shape, dtype),
        )
        q[0], qd[0] = self.start["q"], self.start["qd"]
        cost = self._empty((n, many, 1), dtype)
        arrays = {"q": q[0], "qd": qd[0], "q_next": q[1:], "qd_next": qd[1:], "u": u, "cost": cost}
        arrays |= {"q_plan": self.q[:-1], "qd_plan": self.qd[:-1], "u_plan": self.u, "k": self.k, "K": self.K}
        arrays |= {**self.given, **self.numbers[False]}
        still = {"size": xp.full((many, 1), size, dtype), "dt": xp.full((many, 1), self._problem.dt, dtype)}
        still["upper"] = xp.ascontiguousarray(xp.broadcast_to(self.to_device(self._problem.upper), (many, u.shape[2])))
        source = kernels.follow.kernel.source
        numbers = [n if name == "steps" else int(name.removesuffix("_moves") not in still) for name in source.numbers]
        kernels.follow({**arrays, **still}, many, xp, numbers)
        total = cost[..., 0].sum(axis=0) + 0.0 * (q[-1].sum(axis=1) + qd[-1].sum(axis=1) + u[-1].sum(axis=1))
        if kernels.last_value is not None:
            last = self._empty((many, 1), dtype)
            kernels.last_value({"q": q[-1], "qd": qd[-1], "cost": last, **self._last_numbers()}, many, xp)
            total = total + last[:, 0]
        self.trial = q, qd, u
        return self.to_host(total)

    def _last_numbers(self) -> dict[str, Array]:
        return {name: each[0] for name, each in self.numbers[True].items()}

    def solve(self) -> Array:
        """Derivatives, and the backward pass: k, K, and the predicted changes (M, 2), NaN where it fails."""
        kernels, many, n = self.kernels, len(self.rows), self._knots
        xp, dtype, problem = kernels.xp, kernels.dtype, self._problem
        nv, nu, all_knots = problem.nv, problem.nu, n * many
        nx = 2 * nv

        def rows(array: Array) -> Array:
            return array.reshape((all_knots, *array.shape[2:]))

        tau = self.u
        if nu < nv:
            tau = xp.zeros((n, many, nv), dtype)
            tau[..., xp.asarray(problem.actuated)] = self.u
        A, B = self._empty((n, many, nx, nx), dtype), self._empty((n, many, nx, nv), dtype)
        at = {"q": rows(self.q[:-1]), "qd": rows(self.qd[:-1])}
        arrays = {**at, "tau": rows(tau), "dt": xp.full((all_knots, 1), problem.dt, dtype), "A": rows(A), "B": rows(B)}
        arrays |= {name: rows(each) for name, each in self.given.items()}
        kernels.gradient(arrays, all_knots, xp)
        if nu < nv:
            B = xp.take(B, xp.asarray(problem.actuated), axis=-1)
        lx, lxx = xp.zeros((n + 1, many, nx), dtype), xp.zeros((n + 1, many, nx, nx), dtype)
        lu, diagonal = self._empty((n, many, nu), dtype), self._empty((n, many, nu), dtype)
        results = {"lx": rows(lx[:-1]), "lxx": rows(lxx[:-1]), "lu": rows(lu), "luu": rows(diagonal)}
        running = {name: rows(each) for name, each in self.numbers[False].items()}
        kernels.model({**at, "u": rows(self.u), **running, **results}, all_knots, xp)
        luu = diagonal[..., None] * xp.eye(nu, dtype=dtype)
        if kernels.last_model is not None:
            last = {"q": self.q[-1], "qd": self.qd[-1], "lx": lx[-1], "lxx": lxx[-1]}
            kernels.last_model({**last, **self._last_numbers()}, many, xp)
        mu, expected = self.to_device(self.mu), self._empty((many, 2), dtype)
        given = {"A": A, "B": B, "lx": lx[:-1], "lxx": lxx[:-1], "lu": lu, "luu": luu, "vx": lx[-1], "vxx": lxx[-1]}
        given |= {"mu": mu, "k": self.k, "K": self.K, "expected": expected}
        if problem.boxed:
            given |= {"lower": self.to_device(problem.lower) - self.u, "upper": self.to_device(problem.upper) - self.u}
        if kernels.scan is not None:
            return self.to_host(kernels.scan(given, many, n))
        kernels.backward(given, many, xp, [many, 0, n])
        return self.to_host(expected)

    def accept(self, taken: Array) -> None:
        """Take the trial where a mask (M,) is set."""
        mask = self.kernels.xp.asarray(taken)[None, :, None]
        self.q, self.qd, self.u = (
            self.kernels.xp.where(mask, new, old)
            for new, old in zip(self.trial, (self.q, self.qd, self.u), strict=True)
        )

    def keep_gains(self, solved: Array) -> None:
        """Keep the gains of problems whose backward pass succeeded."""
        self.gains = self.kernels.xp.where(self.kernels.xp.asarray(solved)[None, :, None, None], self.K, self.gains)


def bytes_of_problem(problem: Problem) -> int:
    """Device memory of a problem."""
    nv, nu = problem.nv, problem.nu
    of_knot = 12 * nv * nv + 2 * nv * nu + 6 * nu * nv + 4 * nu * nu + 12 * nv
    of_terms: int = sum(math.prod(each.numbers(np.arange(0))[k].shape[2:]) for each in problem.terms for k in range(2))
    return 8 * (problem.steps + 1) * (2 * of_knot + of_terms)
