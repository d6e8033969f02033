"""Tables of a model's constraints that loops read.

A constraint acts on the *tips* of its paths: the bodies of its two frames, or of its joints. A *visit* is a constraint
and a body on one of its paths to the root. Bodies with the same constraints form a *segment*: their responses to the
rows of these constraints are one matrix, with a line for each degree of freedom.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from robodyn.algorithms.tasks import floating_place
from robodyn.core.constraints.kinds import Constraint, Lock
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints, row_sizes
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Transform
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

BLOCK = 4
"""Rows of a matrix that are multiplied at a time; lines of segments are filled up with zeros."""
FRAMES = 25
"""Numbers of a constraint: X, X_to and length; or the coordinates of a lock; or the offset of a coupling."""
PUSH = 6
"""Numbers of a force."""


class Held(ctypes.Structure):
    """A constraint: index of its form, first row and number of rows, bodies of frames b and a (-1: the world) or the
    body of a lock, and the range of its terms if it is a coupling."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("form", "row", "rows", "b", "a", "first_term", "last_term"))


class Visit(ctypes.Structure):
    """A body on a path of a constraint: where its responses begin and how far apart lines are, where forces on the body
    and on its parent are summed, and the index of its numbers (-1: no row has an entry there)."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("body", "constraint", "place", "line", "own", "above", "numbers")
    )


class Segment(ctypes.Structure):
    """Where its rows begin and how many there are, its degrees of freedom, and its responses."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("row", "rows", "dof", "dofs", "place"))


class Term(ctypes.Structure):
    """A joint of a coupling: its coordinate and its velocity."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("q", "v"))


@dataclass(frozen=True)
class Form:
    """What formulas of a constraint depend on: its kind, its rows, whether it is to the world, and for a lock the code
    of the joint's kind."""

    kind: type[Constraint]
    rows: tuple[str, ...]
    to_world: bool = False
    joint: int = -1


@dataclass(frozen=True)
class ConstraintTraits:
    """What loops over constraints depend on: forms of constraints, whether errors decay by their gains on rates and on
    residuals, and whether the world's origin moves to a floating base."""

    forms: tuple[Form, ...]
    gains: tuple[bool, bool]
    nearby: bool


@dataclass(frozen=True)
class Tables:
    """Arrays that loops read, by name, and numbers of vectors in arrays of the workspace."""

    forms: tuple[Form, ...]
    arrays: dict[str, Array]
    responses: int
    pushes: int


def constraint_traits(model: Model, base: tuple[str, ...]) -> ConstraintTraits:
    """Traits of a model's constraints. `base`: the motions of the base that are inputs."""
    held = resolved_constraints(model)
    gains = any(each.gains[0] for each in held), any(each.gains[1] for each in held)
    return ConstraintTraits(_forms(model), gains, not base and bool(floating_place(model)))


@lru_cache(maxsize=64)
def _forms(model: Model) -> tuple[Form, ...]:
    return tuple(dict.fromkeys(_form(model, each) for each in resolved_constraints(model)))


def _form(model: Model, held: ResolvedConstraint) -> Form:
    if held.framed:
        return Form(held.kind, held.rows, held.to < 0)
    return Form(held.kind, held.rows, joint=int(model.joint_kind[held.joint]) if held.kind is Lock else -1)


@lru_cache(maxsize=16)
def tables(model: Model) -> Tables:
    """The tables of a model without mimicking joints."""
    held, forms = resolved_constraints(model), _forms(model)
    rows = np.cumsum([0, *(len(each.rows) for each in held)])
    terms, weights = _terms(held)
    lasts = np.cumsum([len(each.joints) for each in held]).tolist()
    frames, told = np.zeros((len(held), FRAMES)), []
    for k, each in enumerate(held):
        frames[k] = _frames(model, each)
        bodies = _bodies(model, each)
        told.append(
            (forms.index(_form(model, each)), rows[k], len(each.rows), *bodies, lasts[k] - len(each.joints), lasts[k])
        )
    visits, numbers, pushes = _visits(model, held)
    segments, segment_rows, segment_dofs, responses = _segments(model, visits, rows)
    sizes = np.array([_size(each) for each in held for _ in each.rows])
    arrays: dict[str, Array] = {
        "held": np.array(told, np.int64),
        "visits": visits,
        "segments": segments,
        "segment_rows": segment_rows,
        "segment_dofs": segment_dofs,
        "terms": terms,
        "place": np.array([*floating_place(model), 12 * int(np.argmin(model.parent))], np.int64),
        "frames": frames,
        "gains": np.array([gain for each in held for _ in each.rows for gain in each.gains]),
        "row_sizes": row_sizes(model, held),
        "numbers": numbers,
        "weights_of_terms": weights,
        "sizes": sizes,
    }
    return Tables(forms, arrays, responses, pushes)


def _size(held: ResolvedConstraint) -> float:
    """The sum of squares of the terms of a row's entries where these are constants."""
    if held.kind is Lock:
        return 1.0
    return sum(c * c for _, _, c in held.joints)


def _terms(held: tuple[ResolvedConstraint, ...]) -> tuple[Array, Array]:
    joints = [joint for each in held for joint in each.joints]
    return np.array([(q, v) for v, q, _ in joints], np.int64).reshape(-1, 2), np.array([c for _, _, c in joints], float)


def _transform(numbers: Array) -> Transform:
    return Transform(tuple(numbers[:9]), tuple(numbers[9:]))


def _frames(model: Model, held: ResolvedConstraint) -> Array:
    """Frames are relative to bodies, as links do not move on them."""
    numbers = np.zeros(FRAMES)
    if held.framed:
        X = held.X.after(_transform(model.link_X[held.link]))
        X_to = held.X_to if held.to < 0 else held.X_to.after(_transform(model.link_X[held.to]))
        numbers[:] = (*X.E, *X.r, *X_to.E, *X_to.r, held.length)
    elif held.kind is Lock:
        numbers[: len(held.value)] = held.value
    else:
        numbers[0] = held.offset
    return numbers


def _bodies(model: Model, held: ResolvedConstraint) -> tuple[int, int]:
    if held.framed:
        link, to = (int(model.link_body[each]) if each >= 0 else -1 for each in (held.link, held.to))
        return link, to
    return held.joint, -1


def _tips(model: Model, held: ResolvedConstraint) -> tuple[list[int], dict[int, list[float]]]:
    """Ends of a constraint's paths, and for a lock or a coupling entries of J: for each body a block (rows, nv), column
    by column."""
    if held.framed:
        return [body for body in _bodies(model, held) if body >= 0], {}
    if held.kind is Lock:
        return [held.joint], {held.joint: np.eye(len(held.rows)).ravel().tolist()}
    entries: dict[int, list[float]] = {}
    for v, _, c in held.joints:
        body = int(np.searchsorted(model.v_start, v, side="right")) - 1
        entries[body] = [entries.get(body, [0.0])[0] + c]
    return list(entries), entries


def _visits(model: Model, held: tuple[ResolvedConstraint, ...]) -> tuple[Array, Array, int]:
    """Visits from the leaves to the root, the numbers that belong to them, and the numbers of sums of forces."""
    found, numbers = [], [1.0, -1.0]
    pushes = PUSH * max(len(each.rows) for each in held)  # forces on the world are summed there, and not read
    for each in held:
        tips, entries = _tips(model, each)
        paths = [model.tree.path(tip) for tip in tips]
        bodies = np.unique(np.concatenate(paths))
        over = np.stack([np.isin(bodies, path) for path in paths], axis=1)
        # Forces wait at most once on each part of the paths between places where they meet.
        parts, part = np.unique(over, axis=0, return_inverse=True)
        size = PUSH * len(each.rows)
        own, above, parent = pushes + size * part.reshape(-1), np.zeros(len(bodies), np.int64), model.parent[bodies]
        above[parent >= 0] = own[np.searchsorted(bodies, parent[parent >= 0])]
        pushes += size * len(parts)
        number = np.full(len(bodies), -1)
        if each.framed:
            moves = over[:, 0] if len(tips) == 1 else over[:, 0] != over[:, 1]
            number[moves] = np.where(over[moves, 0] == (_bodies(model, each)[0] >= 0), 0, 1)
        for body, block in entries.items():
            number[np.searchsorted(bodies, body)] = len(numbers)
            numbers += block
        found.append(np.stack([bodies, np.full(len(bodies), each.number), own, above, number], axis=1))
    every = np.concatenate(found)
    visits = np.zeros((len(every), len(Visit._fields_)), np.int64)
    visits[:, [0, 1, 4, 5, 6]] = every[np.lexsort((every[:, 1], -every[:, 0]))]
    return visits, np.array(numbers), pushes


def _segments(model: Model, visits: Array, rows: Array) -> tuple[Array, Array, Array, int]:
    """Segments, their rows and degrees of freedom, and the number of responses. Enters the places of responses into
    visits."""
    nv = np.array([kind.nv for kind in KINDS])[model.joint_kind]
    starts = np.flatnonzero(np.diff(visits[:, 0], prepend=-1))
    ends = np.append(starts[1:], len(visits))
    members: dict[bytes, list[int]] = {}
    every = np.ascontiguousarray(visits[:, 1])
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        members.setdefault(every[start:end].tobytes(), []).append(start)
    found, segment_rows, segment_dofs, place = [], list[Array](), list[Array](), 0
    n_rows = n_dofs = 0
    for key, firsts in members.items():
        held = np.frombuffer(key, np.int64)
        counts, at = rows[held + 1] - rows[held], np.array(firsts)[:, None] + np.arange(len(held))
        line, bodies = -(-int(counts.sum()) // BLOCK) * BLOCK, visits[firsts, 0]
        before = np.cumsum(nv[bodies]) - nv[bodies]
        visits[at, 2] = place + before[:, None] * line + (np.cumsum(counts) - counts)
        visits[at, 3] = line
        own = np.full(line, rows[-1])  # the row that fills up lines
        own[: counts.sum()] = np.concatenate([np.arange(rows[c], rows[c + 1]) for c in held])
        dofs = np.repeat(model.v_start[bodies] - before, nv[bodies]) + np.arange(nv[bodies].sum())
        found.append((n_rows, line, n_dofs, len(dofs), place))
        segment_rows.append(own)
        segment_dofs.append(dofs)
        n_rows, n_dofs, place = n_rows + line, n_dofs + len(dofs), place + len(dofs) * line
    tables = (np.array(found, np.int64), np.concatenate(segment_rows), np.concatenate(segment_dofs))
    return *tables, place
