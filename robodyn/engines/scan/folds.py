"""Folds: a step that is taken from body to body along stretches of paths, all stretches side by side.

What a stretch has so far is its carry. On NumPy arrays the step runs on the k-th bodies of all stretches at once, for
k = 0, 1, ...; on the device of a call a thread goes along each stretch, its carry in registers. What stretches need of
each other comes from scans of what each is by itself: a path of one stretch needs none, and is gone along as a
recursion would. Stretches, and the order of arrays, are those of `order.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from robodyn.core.joints import KINDS
from robodyn.core.sweeps import FieldType
from robodyn.engines.scan.elements import put, taken
from robodyn.engines.scan.elementwise import Elementwise, kernels_for
from robodyn.engines.scan.order import Order, Paths, Stretches
from robodyn.engines.scan.semigroups import Semigroup, sums
from robodyn.engines.scan.states import State
from robodyn.internals.arguments import Array


class Fold:
    """A step along stretches.

    Args:
        step: gives the step for a kind of joint. That takes the carry, what is known of the body, and for each quantity
            of its degrees of freedom a tuple; it gives the carry, what is found of the body, and a tuple of what is
            found of each degree of freedom. It must not branch on values.
        carry, bodies, dofs, found, found_dofs: what these look like.
        inward: from the last body of each stretch to the first.
        hung: to which of `bodies` that is added which paths hand to the bodies that they hang on, if to any.
    """

    def __init__(
        self,
        step: Callable[[int], Callable[..., Any]],
        carry: FieldType,
        bodies: tuple[FieldType, ...],
        dofs: tuple[FieldType, ...],
        found: FieldType | None = None,
        found_dofs: FieldType | None = None,
        *,
        inward: bool,
        hung: int | None = None,
    ) -> None:
        self.step, self.carry, self.bodies, self.dofs = step, carry, bodies, dofs
        self.inward, self.hung = inward, hung
        self.found, self.found_dofs = found or FieldType(()), found_dofs or FieldType(())
        self.size = carry.size(0)
        self._kinds: dict[int, Elementwise] = {}

    def of_kind(self, code: int) -> Elementwise:
        """The step for a kind of joint, on element arrays: carry, bodies, degrees of freedom."""
        if code not in self._kinds:
            nv = KINDS[code].nv
            result = FieldType((self.carry.template, self.found.template, (self.found_dofs.template,) * nv))
            dofs = (FieldType((each.template,) * nv) for each in self.dofs)
            self._kinds[code] = Elementwise(self.step(code), result, self.carry, *self.bodies, *dofs)
        return self._kinds[code]

    def __call__(
        self,
        along: Stretches,
        carry: Array,
        bodies: Sequence[Array],
        dofs: Sequence[Array],
        found: Array | None = None,
        found_dofs: Array | None = None,
        *,
        sources: Array | None = None,
        handed: Handed | None = None,
        into: Array | None = None,
    ) -> Array:
        """What stretches have in the end (size, R, B).

        Args:
            along: the stretches.
            carry: what they have at first (size, .., B).
            bodies, dofs: (size, n, B) and (size, nv, B); axes of length 1 serve all states.
            found, found_dofs: take what is found of bodies and of degrees of freedom.
            sources: (R,) which of `carry` each stretch has; None: its own, or the only one.
            handed: what hangs on bodies, for folds that ask for it.
            into: takes the result.
        """
        device = kernels_for(bodies[0])
        if device is not None:
            return device.fold(self, along, carry, bodies, dofs, found, found_dofs, sources, handed, into)
        batch = max(array.shape[2] for array in (carry, *bodies, *dofs))
        before = carry if sources is None else taken(carry, sources)
        result: Array = along.order.layout.xp.empty((len(carry), len(along), batch), carry.dtype)
        result[...] = before
        size, middle = len(carry), len(carry) + self.found.size(0)
        for each in along.inward if self.inward else along.outward:
            for code, rows, here, there in each:
                given = [taken(result, rows), *(taken(array, here) for array in bodies)]
                made = self.of_kind(code)(*given, *(_per_dof(array, there) for array in dofs))
                put(result, rows, made[:size])
                if found is not None:
                    put(found, here, made[size:middle])
                if found_dofs is not None:
                    self._put_dofs(found_dofs, there, made[middle:])
        if into is None:
            return result
        into[...] = result
        return into

    def _put_dofs(self, target: Array, dofs: Array, made: Array) -> None:
        """Let what is found of degrees of freedom (nv, m) be `made` (nv x size, m, B)."""
        size = self.found_dofs.size(0)
        for k, which in enumerate(dofs):
            put(target, which, made[k * size : (k + 1) * size])


def _per_dof(array: Array, dofs: Array) -> Array:
    """Of (size, nv, B) what degrees of freedom (nv, m) have, one after another: (nv x size, m, B)."""
    found = array[:, dofs].swapaxes(0, 1)
    return found.reshape(-1, *found.shape[2:])


class Handed:
    """What paths hand to the bodies that they hang on, inward: kernels look for it, elsewhere it is added to what
    bodies have.

    Args:
        state, order: of the call.
        held: (size, n + 1, B) what bodies have.
        carry: scalars that a fold inward has in the end, the last ones being what is handed.
    """

    def __init__(self, state: State, order: Order, held: Array, carry: int) -> None:
        self._layout, self._held, self._all = state.layout, held, None
        if kernels_for(held) is not None:
            self._all = state.empty(carry, order.paths, state.batch)

    @property
    def of_paths(self) -> Array | None:
        """(size, all paths, B), for kernels."""
        return None if self._all is None else self._all[-len(self._held) :]

    def place(self, paths: Paths) -> Array | None:
        """Where a fold along these may put what it has in the end."""
        return None if self._all is None or paths.along.several else self._all[:, paths.which]

    def take(self, paths: Paths, found: Array) -> None:
        """Take what a fold along these has in the end."""
        if self._all is None or not paths.direct:
            total = taken(found[-len(self._held) :], paths.along.first)
            self._layout.heavy_paths.join(sums(len(self._held)), self._held, paths.level, total)
        elif paths.along.several:
            self._all[:, paths.which] = taken(found, paths.along.first)


def scanned(op: Semigroup, along: Stretches, elements: Array, *, backwards: bool) -> Array:
    """Elements of stretches (size, R, B) scanned along paths."""
    options = along.order.layout.options
    return along.segments.scan(op, elements, options.path_kernel, block=options.block, backwards=backwards)


def entered(op: Semigroup, along: Stretches, alone: Array, start: Array) -> Array:
    """What comes before stretches (size, R, B), outward: from what comes before paths, `start` (size, paths, B), and
    from what stretches are by themselves, which is changed."""
    first, (open_, following) = along.first, along.open
    put(alone, first, op.compose(start, taken(alone, first)))
    before: Array = along.order.layout.xp.empty_like(alone)
    put(before, first, start)
    put(before, following, taken(scanned(op, along, alone, backwards=False), open_))
    return before
