"""Queries about points of contact."""

from __future__ import annotations

from typing import Any, cast

from numpy.typing import ArrayLike

from robodyn.algorithms.contacts.points import contact_points_task, contacts_of, parts_of
from robodyn.api.queries.call import Call
from robodyn.api.queries.contacts import require_of_contacts
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class ContactPointQueries(Core):
    """Queries about the slots of `model.contacts`: points of contact that can act, pair by pair in their order, as
    `model.contacts.slot_pairs` tells, whether they act or not.

    Distances are signed, in m, negative where shapes overlap. They are those of MuJoCo's contacts, which are
    approximate for shapes that overlap deeply. A slot that its pair does not have in a configuration, such as the
    second point of two capsules that are not parallel, has the distance 1e10 m.

    `ground_pose` (..., 4, 4) carries all shapes that are fixed to the world, as in `contact_forward_dynamics`.

    Raises, in all of them:
        ArgumentError: the model has no contacts, or a matrix is no pose.
        UnavailableError: on a GPU: a pair is too large for one program.
    """

    @query
    def contact_distances(
        self, q: ArrayLike, *, ground_pose: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """Distances (..., n_slots), m."""
        return cast(Array, self._about_slots("contact_distances", locals()))

    @query
    def contact_frames(self, q: ArrayLike, *, ground_pose: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Places and axes of contacts in world coordinates, as matrices (..., n_slots, 4, 4).

        The columns are the normal, two tangents, and the point in the middle between both surfaces (m). The normal
        points from the second shape of the pair to the first. Tangents are MuJoCo's, along which friction acts. On a
        horizontal plane the axes are z, y and -x.
        """
        return cast(Array, self._about_slots("contact_frames", locals()))

    def _about_slots(self, name: str, given: dict[str, Any]) -> Any:
        """Answer a query by one program, or by several where that would be too large."""
        model, arrays = self.model, {each: given[each] for each in ("q", "ground_pose") if given[each] is not None}
        task = contact_points_task(name, model)
        if len(arrays) == 1 and (not self.engine.native or not model.n_bodies or self.engine.has_program(task)):
            return self._ask(name, given)
        call = Call(self, arrays, (), given.get("out"))
        for each, array in call.inputs.items() if call.checked or not call.library.on_device else ():
            require_of_contacts(model, each, array, call.library)
        (key, sized), contacts = next(iter(task.outputs.items())), contacts_of(model, name)
        result = call.result(0, *sized.shape(model))
        for pairs, slots in parts_of(contacts) if result.size else ():
            part = contact_points_task(name, model, pairs, tuple(arrays))
            found = call.new(slots.stop - slots.start, *result.shape[2:])
            call.engine.compose(part, call.inputs, {key: found})
            result[:, slots] = found
        return call.finish({key: result})
