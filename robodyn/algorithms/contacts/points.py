"""Queries about points of contact as tasks of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from robodyn.algorithms.contacts.geometry import Slot, ground, slots
from robodyn.algorithms.kinematics import forward_kinematics
from robodyn.algorithms.relative_motion import OfLink, Scalars
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.model import Model
from robodyn.internals.errors import ArgumentError

PART = 15_000
"""Rough operations of a program, where all pairs are too many for one."""
_COSTS = {
    ("capsule", "capsule"): 250,
    ("capsule", "box"): 1_200,
    ("plane", "cylinder"): 120,
    ("plane", "box"): 80,
}
_SIZES = {"q": Sized(("nq",)), "ground_pose": Sized((4, 4))}
_KEPT = "_contact_tasks"
"""Where a model keeps its tasks: engines compare them by identity."""


def contacts_of(model: Model, name: str) -> Contacts:
    """The contacts of a model.

    Raises:
        ArgumentError: it has none.
    """
    contacts = model.contacts
    if contacts is None or not contacts.pairs:
        raise ArgumentError(f"{name}: {model.name!r} has no contacts; wanted Model.with_contacts(contacts)")
    return contacts


def contact_points_task(
    name: str, model: Model, pairs: range | None = None, inputs: tuple[str, ...] = ("q",)
) -> ScalarTask:
    """A query about the slots of a model's contacts, or of some of its pairs only. `inputs`: also "ground_pose".

    Raises:
        ArgumentError: it has none.
    """
    contacts = contacts_of(model, name)
    chosen = range(len(contacts.pairs)) if pairs is None else pairs
    kept = vars(model).setdefault(_KEPT, {})
    key = name, chosen, inputs
    if key not in kept:
        kept[key] = _made(name, contacts, chosen, inputs)
    task: ScalarTask = kept[key]
    return task


def parts_of(contacts: Contacts) -> Iterator[tuple[range, slice]]:
    """Pairs in groups that are programs, and their slots."""
    first, start = 0, 0
    while first < len(contacts.pairs):
        last, end, total = first, start, 0
        while last < len(contacts.pairs) and (last == first or total < PART):
            total += _COSTS.get(contacts.pairs[last].kinds, 40)
            end += contacts.pairs[last].slots
            last += 1
        yield range(first, last), slice(start, end)
        first, start = last, end


def _made(name: str, contacts: Contacts, chosen: range, inputs: tuple[str, ...]) -> ScalarTask:
    pairs = [contacts.pairs[k] for k in chosen]
    count = sum(pair.slots for pair in pairs)
    output, axes, scalars = _RESULTS[name]

    def text(model: Model, given: Mapping[str, Scalars], at: OfLink) -> Mapping[str, Scalars]:
        poses: dict[str, Any] = {"": ground(given)}
        for link in {each.link for pair in pairs for each in (pair.first, pair.second)} - {""}:
            poses[link] = at(forward_kinematics(True), model.link_index(link))["T"]
        with np.errstate(all="ignore"):  # numbers among the scalars
            found = [slot for pair in pairs for slot in slots(pair, poses[pair.first.link], poses[pair.second.link])]
        return {output: [x for slot in found for x in scalars(slot)]}

    def least(model: Model) -> int:
        return sum(_COSTS.get(pair.kinds, 40) for pair in pairs) // 2

    sizes = {output: Sized((count, *axes))}
    return ScalarTask(
        "_".join((name, f"{chosen.start}to{chosen.stop}", *inputs[1:])),
        {each: _SIZES[each] for each in inputs},
        sizes,
        text,
        least=least,
        one_program=True,
    )


def _frame(slot: Slot) -> list[Any]:
    columns = slot.n, slot.t1, slot.t2, slot.point
    return [column[i] for i in range(3) for column in columns] + [0.0, 0.0, 0.0, 1.0]


_RESULTS: dict[str, tuple[str, tuple[int, ...], Callable[[Slot], list[Any]]]] = {
    "contact_distances": ("phi", (), lambda slot: [slot.dist]),
    "contact_frames": ("T", (4, 4), _frame),
    "contact_slots": ("slots", (10,), lambda slot: [slot.dist, *slot.point, *slot.n, *slot.t1]),
}
"""Name, axes of a slot, and scalars of a slot of each query's result."""
