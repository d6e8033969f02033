"""Accelerations and forces with contacts as a task of engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from robodyn.algorithms.contacts.newton import Newton
from robodyn.algorithms.contacts.rows import Rows, bias_of_axes
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.contacts.kinds import Contacts
from robodyn.core.model import Model

BLOCK = 3
"""Iterations of a program; states that want more are gathered for the next ones."""


def most_iterations(contacts: Contacts) -> int:
    """Iterations after which states count as not converged."""
    if contacts.iterations is not None:
        return contacts.iterations
    if contacts.cone == "pyramidal":
        return 8
    return 12 if contacts.impratio <= 1.0 else 20 if contacts.impratio <= 10.0 else 24


def _looks(contacts: Contacts) -> int:
    if contacts.cone == "pyramidal" or contacts.impratio <= 1.0:
        return 2
    return 4 if contacts.impratio <= 10.0 else 8


def contact_task(model: Model, dt: float, iterations: int = BLOCK, warm: bool = False) -> ScalarTask:
    """Accelerations and forces after some iterations, and the relative error of the accelerations at most.

    `warm`: True to start from accelerations `qdd` of the call instead of those without contacts.
    """
    contacts = model.contacts
    assert contacts is not None
    rows = (*contacts.pairs, *contacts.limits, *contacts.dry_friction, *contacts.equalities)
    shortest = min((row.solref[0] for row in rows if row.solref[0] > 0.0), default=2.0 * dt)
    of_tangents = [pair.solreffriction[0] for pair in contacts.pairs if pair.solreffriction is not None]
    shortest = min([shortest, *(each for each in of_tangents if each > 0.0)])
    bounding = dt if contacts.refsafe and shortest < 2.0 * dt else 0.0  # others compile nothing new
    return _task(contacts.n_slots, bounding, iterations, warm)


@lru_cache(maxsize=256)
def _task(n_slots: int, dt: float, iterations: int, warm: bool) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        assert model.contacts is not None
        nv, qd = model.nv, given["qd"]
        b = bias_of_axes(model, qd)
        entries = at(CRBA)["H"]
        H = [entries[nv * i : nv * (i + 1)] for i in range(nv)]
        needed = at(rnea(("q", "qd", "qdd")), qdd=[-each for each in b])["tau"]
        force = [tau - each for tau, each in zip(given["tau"], needed, strict=True)]
        rows = Rows(model, given, at, b, dt)
        start = [x + each for x, each in zip(given["qdd"], b, strict=True)] if warm else None
        newton = Newton(H, force, rows.groups, start)
        for _ in range(iterations):
            newton.step(_looks(model.contacts))
        forces, error = newton.finish()
        members = [id(member) for group in rows.groups for member in group.members]
        by_member = dict(zip(members, forces, strict=True))
        f = [x for member in rows.of_slots for x in (*by_member[id(member)], 0.0, 0.0)[:3]]
        qdd = [x - each for x, each in zip(newton.a, b, strict=True)]
        return {"qdd": qdd, "f": f, "error": [error]}

    given = {name: Sized((size,)) for name, size in (("q", "nq"), ("qd", "nv"), ("qdd", "nv"), ("tau", "nv"))}
    if not warm:
        del given["qdd"]
    outputs = {"qdd": Sized(("nv",)), "f": Sized((n_slots, 3)), "error": Sized(())}
    name = f"contact_forward_dynamics_{iterations}_{'warm' if warm else 'cold'}_{dt!r}"
    return ScalarTask(name, given, outputs, text, one_program=True)
