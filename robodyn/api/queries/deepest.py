"""The deepest slots of each state: a stage before the program of a robot with more slots than can act at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from robodyn.algorithms.contacts.points import contact_points_task, contacts_of, parts_of
from robodyn.algorithms.contacts.rows import POINT, impedance_of, regularisation
from robodyn.algorithms.relative_motion import between
from robodyn.core.contacts.kinds import LEAST_FRICTION
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array
from robodyn.internals.array_library import Library
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted

_KEPT = "_deepest_slots"
"""Where a model keeps its stages, one for each bound of time constants."""
_BLOCK = 256
"""States at once, whose slots are all in memory."""
_DEVICE_BLOCK = 1 << 14
"""The same on a GPU."""
_MOST_GAP = 1e3
"""Distance above margins, m, beyond which slots are equally far."""


class Chosen(NamedTuple):
    """The slots (B, K) that were chosen, in their order, numbers of each (B, K, POINT) as `Rows` reads them, the sides
    (B, K, nv), and whether more than K slots act (B,)."""

    slots: Array
    points: Array
    sides: Array
    overflow: Array


class Deepest:
    """The stage of a model. `points` has of each slot what rows need besides the robot's motion; `sides` tells for each
    degree of freedom whether it moves the first shape (1), the second (-1), or both or none (0).

    Raises:
        UnavailableError: joints mimic others, contacts of condim 4 or 6, or elliptic ones with and without friction.
    """

    def __init__(self, model: Model, bounding: float) -> None:
        contacts = contacts_of(model, "max_contacts")
        mixed = len({pair.condim for pair in contacts.pairs}) > 1
        turns = max(pair.condim for pair in contacts.pairs) > 3
        if model.has_mimic or turns or (mixed and contacts.cone == "elliptic"):
            why = "contacts of condim 4 or 6" if turns else "elliptic contacts with and without friction"
            why = "mimicking joints" if model.has_mimic else why
            raise UnavailableError(
                f"max_contacts: {quoted(model.name)} has {why}; wanted none, or max_contacts=None, for all slots"
            )
        self._model, self._contacts = model, contacts
        self._count = contacts.max_contacts or 0
        self._of_slots = of_slots = np.array(contacts.slot_pairs)
        pairs, elliptic = contacts.pairs, contacts.cone == "elliptic"
        normal = [pair.gains(bounding, contacts.refsafe) for pair in pairs]
        tangent = [pair.gains(bounding, contacts.refsafe, pair.solreffriction if elliptic else None) for pair in pairs]
        self._margin = np.array([pair.margin for pair in pairs])[of_slots]
        self._forms = {pair.impedance: pair for pair in pairs}
        forms = list(self._forms)
        self._form = np.array([forms.index(pair.impedance) for pair in pairs])[of_slots]
        constants = [(pair.invweight, K, B, B_t) for pair, (K, B), (_, B_t) in zip(pairs, normal, tangent, strict=True)]
        self._constants = np.array(constants)[of_slots]
        self._friction = np.array([pair.friction for pair in pairs])[of_slots]
        self._rubs = np.array([pair.condim > 1 for pair in pairs])[of_slots]
        self._frictionless = 4.0 if mixed else 1.0
        """Factor of R without friction; mixed with others it is a pyramid whose four edges are the normal."""
        sides = []
        for pair in pairs:
            moved = [
                np.array(between(model, model.link_index(each.link) if each.link else -1, -1), float)
                for each in (pair.first, pair.second)
            ]
            sides.append(moved[0] - moved[1])
        self._sides = np.array(sides)[of_slots]

    def __call__(self, engine: Engine, library: Library, inputs: Mapping[str, Array]) -> Chosen:
        """Choose in each of the states. `inputs`: arrays of the library, "q" (B, nq), and "contact_friction" and
        "ground_pose" if given."""
        size = _DEVICE_BLOCK if library.on_device else _BLOCK
        read = {name: inputs[name] for name in ("q", "contact_friction", "ground_pose") if name in inputs}
        blocks = range(0, max(1, len(inputs["q"])), size)
        parts = [self._block(engine, library, {name: a[k : k + size] for name, a in read.items()}) for k in blocks]
        return parts[0] if len(parts) == 1 else Chosen(*map(library.xp.concatenate, zip(*parts, strict=True)))

    def _block(self, engine: Engine, library: Library, inputs: dict[str, Array]) -> Chosen:
        xp, placed = library.xp, library.constant
        q, friction = inputs["q"], inputs.pop("contact_friction", None)
        every = xp.empty((len(q), len(self._margin), _SLOT), q.dtype)
        for pairs, slots in parts_of(self._contacts):
            task = contact_points_task("contact_slots", self._model, pairs, tuple(inputs))
            part = xp.empty((len(q), slots.stop - slots.start, _SLOT), q.dtype)
            engine.compose(task, inputs, {"slots": part})
            every[:, slots] = part
        gaps = every[..., 0] - placed(self._margin.astype(q.dtype))
        k = self._count
        chosen = xp.sort(xp.argpartition(gaps, k - 1, axis=1)[:, :k], axis=1)
        gap = np.minimum(xp.take_along_axis(gaps, chosen, 1), _MOST_GAP)
        points = xp.empty((*chosen.shape, POINT), q.dtype)
        points[..., 0] = gap
        points[..., 1:10] = xp.take_along_axis(every[..., 1:], chosen[..., None], 1)
        weight, K, B, B_t = xp.moveaxis(placed(self._constants)[chosen], -1, 0)
        rubs, mu = placed(self._rubs)[chosen], placed(self._friction)[chosen]
        if friction is not None:
            own = xp.take_along_axis(xp.take(friction, placed(self._of_slots), axis=1), chosen, 1)
            mu = xp.repeat(np.maximum(own, LEAST_FRICTION)[..., None], 2, -1)
        factor = xp.where(rubs, regularisation(1.0, 3, mu[..., 0], self._contacts), self._frictionless)
        form, I = placed(self._form)[chosen], xp.zeros(gap.shape, gap.dtype)
        for number, pair in enumerate(self._forms.values()):
            I = xp.where(form == number, impedance_of(pair, gap), I)
        points[..., 10] = (1.0 - I) / I * (factor * weight)
        points[..., 11] = K * I
        points[..., 12], points[..., 13] = B, B_t
        points[..., 14:] = xp.where(rubs[..., None], mu, 0.0)
        return Chosen(chosen, points, placed(self._sides)[chosen].astype(q.dtype), (gaps < 0.0).sum(1) > k)


_SLOT = 10
"""Numbers of a slot of the query `contact_slots`."""


def deepest_of(model: Model, bounding: float) -> Deepest:
    """The stage of a model, made once. `bounding`: `Contacts.bounding` of the time step."""
    kept: dict[float, Deepest] = vars(model).setdefault(_KEPT, {})
    if bounding not in kept:
        kept[bounding] = Deepest(model, bounding)
    return kept[bounding]
