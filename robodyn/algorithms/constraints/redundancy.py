"""Rows of constraints that depend on each other.

Every `Dynamics` with constraints looks for them, so nothing is compiled for it: states are floats, and only joints that
affect the constraints are evaluated."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.assembly import assembled
from robodyn.algorithms.constraints.terms import Row, Terms, moves
from robodyn.algorithms.kinematics import forward_kinematics, link_pose, pose
from robodyn.algorithms.manifold import INTEGRATE
from robodyn.algorithms.relative_motion import Scalars
from robodyn.core.constraints.resolved import ResolvedConstraint, frame_of, resolved_constraints, row_names, row_sizes
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import IDENTITY, ZERO_MOTION, Motion, Transform
from robodyn.core.sweeps import Algorithm
from robodyn.internals.arguments import Array
from robodyn.internals.errors import AssemblyError, RedundantWarning
from robodyn.internals.messages import users_line

_RANK, _NOTHING = 1e-9, (1e-10, 1)
"""Share of a row that is left if it depends on others, and a `proximal` for `moves`: smaller rows are zero."""
_STATES = 3
_ASSEMBLED, _STEPS, _TOLERANCE = 100, 50, 1e-9
"""Most bodies of robots whose states are assembled, which would take seconds for larger ones; steps and tolerance of
the assembly."""
_MOST_VISITS, _MOST_ENTRIES, _MOST_PRODUCTS = 20_000, 2 * 10**6, 10**9
"""Most visits to bodies for poses and columns, entries of the Jacobian, and products for a group of rows: each takes a
second at most. Above the first two no rows are judged, above the last not those of the group."""


def warn_of_redundancy(model: Model) -> None:
    """Warn of rows that depend on others."""
    rows = redundant_rows(model)
    if rows:
        warnings.warn(
            f"constraints of {model.name!r}: {', '.join(rows)} follow from rows before them; accelerations are unique, "
            "forces the smallest ones",
            RedundantWarning,
            stacklevel=users_line(),
        )


@lru_cache(maxsize=64)
@np.errstate(over="ignore", invalid="ignore")
def redundant_rows(model: Model) -> tuple[str, ...]:
    """Names of rows that are combinations of earlier rows at three random configurations.

    Configurations are assembled where the constraints can be met and the robot has no more than 100 bodies. The first
    configuration without such rows ends the search.
    """
    held = resolved_constraints(model)
    if not held or model.n_rows * model.nv > _MOST_ENTRIES or not _near(model, held):
        return ()
    rng, numbers = np.random.default_rng(0), Numbers(model, held)
    # Feet whose places are inputs of each call stand wherever they are.
    fixed = [each for each in held if not each.anchored]
    placed = Numbers(model, fixed)
    least: set[int] | None = None
    for _ in range(_STATES):
        q = model.random_configuration(rng)
        if model.n_bodies <= _ASSEMBLED:
            with contextlib.suppress(AssemblyError):
                q = assembled(
                    model, fixed, placed, placed.integrate, q, np.ones(model.nv, bool), _TOLERANCE, steps=_STEPS
                )
        dependent = _dependent(numbers.constraint_jacobian(q))
        least = dependent if least is None else least & dependent
        if not least:
            return ()
    return tuple(row_names(model)[k] for k in sorted(least or ()))


def _near(model: Model, held: Sequence[ResolvedConstraint]) -> bool:
    """True if few enough bodies carry the two frames of constraints, or lie between them."""
    parent, visits, known = model.parent, 0, {-1}
    for each in held:
        ends = [int(model.link_body[link]) if link >= 0 else -1 for link in (each.link, each.to)]
        for body in ends:
            while body not in known and visits <= _MOST_VISITS:
                known.add(body)
                visits, body = visits + 1, int(parent[body])
        low, high = sorted(ends)
        while low != high and visits <= _MOST_VISITS:  # parents have smaller numbers
            low, high = sorted((low, int(parent[high])))
            visits += 1
    return visits <= _MOST_VISITS


class Numbers:
    """Evaluates constraints at one state on floats; methods have the names of queries.

    Args:
        model: the robot.
        held: the constraints to evaluate.
    """

    def __init__(self, model: Model, held: Sequence[ResolvedConstraint]) -> None:
        self._model, self._held = model, held
        self._q: bytes | None = None

    def constraint_residual(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """(phi, phidot), (m,) each, of a robot at rest."""
        rows = self._at(q, False)
        return np.array([row.phi for row in rows], float), np.zeros(len(rows))

    def constraint_jacobian(self, q: Array) -> Array:
        """J (m, nv), zero where a row is a rounding error."""
        rows = self._at(q, True)
        J = np.array([row.J for row in rows], float).reshape(-1, self._model.nv)
        sizes = row_sizes(self._model, self._held).tolist()
        squares = (J * J).sum(axis=1).tolist()
        moving = [
            bool(moves(square, row.size, size, _NOTHING))
            for square, row, size in zip(squares, rows, sizes, strict=True)
        ]
        return np.where(np.array(moving, bool)[:, None], J, 0.0)

    def forward_kinematics(self, q: Array) -> _Poses:
        """T (4, 4) of links by their index."""
        return _Poses(self._state(q))

    def integrate(self, q: Array, step: Array) -> Array:
        """q (+) step."""
        inputs = {"q": q.tolist(), "qd": step.tolist()}
        return np.array(INTEGRATE.text(self._model, inputs, self._state(q))["moved"], float)

    def _state(self, q: Array) -> _State:
        if self._q != q.tobytes():
            self._q, self._last = q.tobytes(), _State(self._model, q)
        return self._last

    def _at(self, q: Array, columns: bool) -> list[Row]:
        with np.errstate(all="ignore"):  # a rod without length has no direction
            return Terms(self._model, self._held, {"q": q.tolist()}, self._state(q), False, columns).rows()


_POSE = forward_kinematics(True)


@lru_cache(maxsize=16)
def _moved_by(model: Model) -> list[list[tuple[int, int, float]]]:
    """For every degree of freedom the joint columns that it moves: (body, column, multiplier)."""
    moved: list[list[tuple[int, int, float]]] = [[] for _ in range(model.nv)]
    for i, (start, code) in enumerate(zip(model.v_start.tolist(), model.joint_kind.tolist(), strict=True)):
        for k in range(KINDS[code].nv):
            moved[int(model.v_source[start + k])].append((i, k, float(model.v_multiplier[start + k])))
    return moved


class _State:
    """Poses and Jacobians of links at a state, computed on request for the bodies they need; a
    `robodyn.algorithms.relative_motion.OfLink`.
    `robodyn.algorithms.relative_motion.OfLink`.

    Args:
        model: the robot.
        q: (nq,), quaternions of unit length.
    """

    def __init__(self, model: Model, q: Array) -> None:
        self.model, self._X0 = model, {-1: IDENTITY}
        self._q = (model.q_multiplier * q[model.q_source] + model.q_offset).tolist()
        self._motions: dict[int, tuple[Motion, ...]] = {}
        self.moved_by = _moved_by(model)

    def __call__(
        self, algorithm: Algorithm, link: int | None = None, point: Scalars | None = None, **others: Scalars
    ) -> Mapping[str, Any]:
        """The pose of a link, or its Jacobian in the world's frame."""
        assert link is not None and point is None and not others
        body = int(self.model.link_body[link])
        if algorithm is not _POSE:
            return {"J": _Jacobian(self, body)}
        constants: Any = SimpleNamespace(X=frame_of(self.model.link_X[link]))
        own: Any = SimpleNamespace(X0=self._transform(body))
        return link_pose(constants, own)

    def motions(self, i: int) -> tuple[Motion, ...]:
        """Columns X_i0^-1 S of a body's joint."""
        if i not in self._motions:
            X0, S = self._transform(i), KINDS[self.model.joint_kind[i]].subspace(float(self.model.pitch[i]))
            self._motions[i] = tuple(X0.motion_back(column) for column in S)
        return self._motions[i]

    def _transform(self, body: int) -> Transform:
        model, above = self.model, []
        while body not in self._X0:
            above.append(body)
            body = int(model.parent[body])
        for i in reversed(above):
            kind, start = KINDS[model.joint_kind[i]], int(model.q_start[i])
            seen: Any = SimpleNamespace(
                joint=kind,
                q=tuple(self._q[start : start + kind.nq]),
                pitch=float(model.pitch[i]),
                Xtree=frame_of(model.Xtree[i]),
            )
            carried: Any = SimpleNamespace(X0=self._X0[body])
            self._X0[i], body = pose(seen, carried, carried)["X0"], i
        return self._X0[body]


class _Poses:
    """Poses (4, 4) of links, computed on request."""

    def __init__(self, state: _State) -> None:
        self._state = state

    def __getitem__(self, link: int) -> Array:
        return np.array(self._state(_POSE, link)["T"]).reshape(4, 4)


class _Jacobian(dict[int, float]):
    """Entries of the Jacobian (6, nv) of a body in the world's frame, row by row, computed on request."""

    def __init__(self, state: _State, body: int) -> None:
        super().__init__()
        self._state, self._body = state, body

    def __missing__(self, place: int) -> float:
        """A column: the summed motions of all joints that a coordinate moves and that carry the body."""
        n = self._state.model.nv
        tree, total, column = self._state.model.tree, ZERO_MOTION, place % n
        rank = int(tree.preorder_rank[self._body]) if self._body >= 0 else -1
        for i, k, multiplier in self._state.moved_by[column]:
            if 0 <= rank - int(tree.preorder_rank[i]) < int(tree.subtree_size[i]):
                moves = self._state.motions(i)[k]
                total = total + (moves if multiplier == 1.0 else moves.scaled(multiplier))
        self.update(zip(range(column, 6 * n, n), (*total.ang, *total.lin), strict=True))
        return self[place]


def _dependent(J: Array) -> set[int]:
    """Indices of rows that are combinations of earlier rows, by groups without common columns."""
    dependent: set[int] = set()
    for rows in _groups(J):
        columns = np.flatnonzero(J[rows].any(axis=0))
        if len(rows) ** 2 * len(columns) > _MOST_PRODUCTS:
            continue
        basis = np.zeros((0, len(columns)))
        for k in rows:
            row = left = J[k, columns]
            for _ in range(2):
                left = left - (left @ basis.T) @ basis
            size = float(np.linalg.norm(left))
            if size > _RANK * max(float(np.linalg.norm(row)), 1e-300):
                basis = np.vstack((basis, left / size))
            else:
                dependent.add(k)
    return dependent


def _groups(J: Array) -> list[list[int]]:
    """Indices of rows, grouped by the columns that they share directly or through other rows."""
    label = np.arange(J.shape[1])
    for row in J:
        shared = np.zeros(len(label), bool)
        shared[label[row != 0.0]] = True
        if shared.any():
            label[shared[label]] = shared.argmax()
    groups: dict[int, list[int]] = {}
    for k, row in enumerate(J):
        # A row of zeros is its own group.
        groups.setdefault(int(label[np.argmax(row != 0.0)]) if row.any() else -1 - k, []).append(k)
    return list(groups.values())
