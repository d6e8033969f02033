"""Folds: recursions from body to body along stretches of paths, in parallel over all stretches.

A stretch is a run of consecutive bodies of a heavy path (`order.py`, which also defines the order of arrays). The state
of the recursion is its carry. With NumPy, the step runs on the k-th bodies of all stretches at once, for k = 0, 1, ...
On the device of a call, a thread runs along each stretch, with its carry in registers.

The initial carries of stretches come from a scan along the path, over one element for each stretch. A path that is a
single stretch needs no scan: its fold is the plain recursion.
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
    """A recursion along stretches.

    Args:
        step: returns the step for a joint kind. The step takes the carry, the body's quantities, and for each quantity
            of degrees of freedom a tuple with an entry for each of the joint's. It returns the new carry, the body's
            result, and a tuple with a result for each degree of freedom. It must not branch on values.
        carry, bodies, dofs, found, found_dofs: the types of the carry, of the quantities of bodies and of degrees of
            freedom, and of the results for bodies and for degrees of freedom.
        inward: True to run from the last body of each stretch to the first.
        hung: the index of the quantity in `bodies` to which the contributions of paths that hang on the body are added;
            None without such contributions.
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
        """The step for a joint kind, on element arrays of the carry, of bodies and of degrees of freedom."""
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
        """Run the fold and return the final carries (size, R, B) of the R stretches.

        Args:
            along: the stretches.
            carry: the initial carries (size, .., B).
            bodies, dofs: quantities (size, n, B) and (size, nv, B); a batch axis of length 1 broadcasts.
            found, found_dofs: arrays for the results of bodies and of degrees of freedom.
            sources: (R,) the index in `carry` of each stretch; None if `carry` has one entry for each stretch, or one
                for all.
            handed: the contributions of paths that hang on bodies, for folds with `hung`.
            into: an array for the final carries.
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
                arguments = [taken(result, rows), *(taken(array, here) for array in bodies)]
                results = self.of_kind(code)(*arguments, *(_per_dof(array, there) for array in dofs))
                put(result, rows, results[:size])
                if found is not None:
                    put(found, here, results[size:middle])
                if found_dofs is not None:
                    self._put_dofs(found_dofs, there, results[middle:])
        if into is None:
            return result
        into[...] = result
        return into

    def _put_dofs(self, target: Array, dofs: Array, made: Array) -> None:
        """Assign results `made` (nv x size, m, B) to degrees of freedom `dofs` (nv, m)."""
        size = self.found_dofs.size(0)
        for k, which in enumerate(dofs):
            put(target, which, made[k * size : (k + 1) * size])


def _per_dof(array: Array, dofs: Array) -> Array:
    """The entries of an array (size, nv, B) for degrees of freedom `dofs` (k, m), as (k x size, m, B)."""
    entries = array[:, dofs].swapaxes(0, 1)
    return entries.reshape(-1, *entries.shape[2:])


class Handed:
    """Contributions that paths pass inward to the bodies that they hang on.

    Kernels read the contributions of the paths and add them. NumPy adds them to the quantities of the bodies.

    Args:
        state, order: the call's state and order.
        held: (size, n + 1, B) the quantities of the bodies that receive contributions.
        carry: scalars of the final carry of an inward fold. Its last `size` scalars are the contribution.
    """

    def __init__(self, state: State, order: Order, held: Array, carry: int) -> None:
        self._layout, self._held, self._all = state.layout, held, None
        if kernels_for(held) is not None:
            self._all = state.empty(carry, order.paths, state.batch)

    @property
    def of_paths(self) -> Array | None:
        """The contributions of all paths (size, paths, B), for kernels; else None."""
        return None if self._all is None else self._all[-len(self._held) :]

    def place(self, paths: Paths) -> Array | None:
        """The array into which a fold along these paths can write its final carries directly; None if there is none."""
        return None if self._all is None or paths.along.several else self._all[:, paths.which]

    def take(self, paths: Paths, found: Array) -> None:
        """Pass on the final carries `found` of a fold along these paths."""
        if self._all is None or not paths.direct:
            total = taken(found[-len(self._held) :], paths.along.first)
            self._layout.heavy_paths.join(sums(len(self._held)), self._held, paths.level, total)
        elif paths.along.several:
            self._all[:, paths.which] = taken(found, paths.along.first)


def scanned(op: Semigroup, along: Stretches, elements: Array, *, backwards: bool) -> Array:
    """The scan of the stretches' elements (size, R, B) along paths."""
    options = along.order.layout.options
    return along.segments.scan(op, elements, options.path_kernel, block=options.block, backwards=backwards)


def entered(op: Semigroup, along: Stretches, alone: Array, start: Array) -> Array:
    """The prefixes before stretches (size, R, B), outward.

    `start`: (size, paths, B), the prefixes before paths; `alone`: the elements of the stretches, which are overwritten.
    """
    first, (open_, following) = along.first, along.open
    put(alone, first, op.compose(start, taken(alone, first)))
    before: Array = along.order.layout.xp.empty_like(alone)
    put(before, first, start)
    put(before, following, taken(scanned(op, along, alone, backwards=False), open_))
    return before
