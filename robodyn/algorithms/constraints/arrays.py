"""Constraint forces and their effects on arrays of states (B, ...), where an engine has neither a program nor loops.

The equations are those of `robodyn.algorithms.constraints.terms` and `robodyn.algorithms.constraints.scalars`.
Constraints of a kind are evaluated together: a scalar of the formulas is an array (B, K) of K constraints, or for
entries of the Jacobian (B, P) of P pairs of a constraint and a degree of freedom that moves it. H^-1 J' takes a forward
dynamics for each row, O(n m), forces a dense solve, O(m^3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from robodyn.algorithms import dense
from robodyn.algorithms.aba import aba
from robodyn.algorithms.constraints.array_derivatives import ArrayDerivatives
from robodyn.algorithms.constraints.augmented import has_singular_mass_matrix, least_pivot, weights
from robodyn.algorithms.constraints.gradients import motion_of, transform_of
from robodyn.algorithms.constraints.terms import (
    Contact,
    Terms,
    frame_entries,
    frame_rows,
    moves,
    orthonormal,
    place_of_base,
    rod_entry,
    rod_row,
    rolling_entries,
    rolling_rows,
    with_inputs,
)
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.kinematics import POSES, POSES_OF_KNOWN, acceleration, base_motion
from robodyn.algorithms.tasks import Placed, RunAlgorithm, floating_place
from robodyn.core.constraints.kinds import Constraint, Rod, Rolling
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints, row_sizes
from robodyn.core.joints import KINDS, is_positive, unit_quaternion
from robodyn.core.model import Model
from robodyn.core.spatial import IDENTITY, ZERO_MOTION, Motion, Transform, rotate_back
from robodyn.core.sweeps import MOTION, TRANSFORM, Algorithm, FieldOutput, Outward, World
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_PLACES = Algorithm(
    name="poses_of_bodies",
    inputs=("q",),
    fields={"X0": TRANSFORM},
    sweeps=POSES,
    outputs={"X0": FieldOutput("X0", (12,))},
)
_MOTIONS = Algorithm(
    name="motions_of_bodies",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "a": MOTION},
    sweeps=(
        World(base_motion, writes=("v", "a")),
        Outward(acceleration, carries=("v", "a"), writes=("X", "v", "a")),
        *POSES_OF_KNOWN,
    ),
    outputs={"X0": FieldOutput("X0", (12,)), "v": FieldOutput("v", (6,)), "a": FieldOutput("a", (6,))},
)
"""For all bodies: transforms from the world, velocities, and accelerations at qdd = 0 without gravity, in their
axes."""


_MOST_SCALARS, _OF_A_PAIR, _OF_AN_ENTRY = 1 << 24, 60, 16
"""Approximate number of intermediate numbers that may be kept, and of those per pair and per entry of J."""


@dataclass(frozen=True)
class _Group:
    """Constraints of one kind between frames, with the same rows; all of them to the world or none.

    `numbers`, `first`: indices of the constraints and of their first rows in the model. `bodies`, `holders`: bodies of
    frames b and a, -1 for the world. `X`, `X_to`: (K, 12) transforms from these bodies to the frames. `lengths` (K,).
    For pairs of a constraint and a degree of freedom of the tree: `owners`: constraints of the group. `dofs`: degrees
    of freedom. `places`: their indices in `_Layout.dofs`. `signs`: 1 where b is moved, -1 where a is. `shares`: squares
    of the multipliers of tree velocities.
    """

    kind: type[Constraint]
    rows: tuple[str, ...]
    to_world: bool
    numbers: Array
    first: Array
    bodies: Array
    holders: Array
    X: Array
    X_to: Array
    lengths: Array
    owners: Array
    dofs: Array
    places: Array
    signs: Array
    shares: Array


@dataclass(frozen=True)
class _Layout:
    """Quantities of a model's constraints that do not depend on the state.

    `groups`; `simple`: couplings and locks with their first rows. `dofs` (U,): degrees of freedom of the tree that move
    some frame, `carriers` (U,) their bodies, `S` (U, 6) their motions in the bodies' frames. `numbers` (m,): the
    constraint of each row. `sizes` (m,): `row_sizes`. `mimic` (nv_tree, nv): tree velocities from velocities, None
    without mimicking joints. `leaders` (nv,): the tree velocity that equals each velocity.
    """

    groups: tuple[_Group, ...]
    simple: tuple[tuple[int, ResolvedConstraint], ...]
    dofs: Array
    carriers: Array
    S: Array
    numbers: Array
    sizes: Array
    mimic: Array | None
    leaders: Array


@lru_cache(maxsize=16)
def _layout(model: Model) -> _Layout:
    held, starts = resolved_constraints(model), [*model.v_start.tolist(), model.nv_tree]
    first = np.cumsum([0, *(len(each.rows) for each in held)])
    keys: dict[Any, list[ResolvedConstraint]] = {}
    for each in held:
        if each.framed:
            keys.setdefault((each.kind, each.rows, each.to < 0), []).append(each)
    pairs = {each.number: list(_moving(model, each, starts)) for each in held if each.framed}
    dofs = np.unique([v for each in pairs.values() for v, _ in each]).astype(np.intp)
    carriers = np.searchsorted(model.v_start, dofs, side="right") - 1
    S = np.zeros((len(dofs), 6))
    for k, (v, i) in enumerate(zip(dofs.tolist(), carriers.tolist(), strict=True)):
        column = KINDS[model.joint_kind[i]].subspace(float(model.pitch[i]))[v - starts[i]]
        S[k] = (*column.ang, *column.lin)
    mimic = None
    if model.has_mimic:
        mimic = np.zeros((model.nv_tree, model.nv))
        mimic[np.arange(model.nv_tree), model.v_source] = model.v_multiplier
    groups = tuple(_group(model, key, members, first, pairs, dofs) for key, members in keys.items())
    simple = tuple((int(first[each.number]), each) for each in held if not each.framed)
    numbers = np.repeat(np.arange(len(held)), np.diff(first))
    leaders = np.empty(model.nv, np.intp)
    free = np.flatnonzero(np.repeat(model.mimics < 0, np.diff(starts)))
    leaders[model.v_source[free]] = free
    return _Layout(groups, simple, dofs, carriers, S, numbers, row_sizes(model, held), mimic, leaders)


def _moving(model: Model, held: ResolvedConstraint, starts: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Degrees of freedom of the tree that move one frame relative to the other, with signs."""
    body, holder = (int(model.link_body[link]) if link >= 0 else -1 for link in (held.link, held.to))
    while body != holder:  # up to the common ancestor; parents have smaller numbers
        last, sign = (body, 1.0) if body > holder else (holder, -1.0)
        yield from ((v, sign) for v in range(starts[last], starts[last + 1]))
        above = int(model.parent[last])
        body, holder = (above, holder) if sign > 0.0 else (body, above)


def _group(
    model: Model, key: Any, members: list[ResolvedConstraint], first: Array, pairs: Mapping[int, Any], dofs: Array
) -> _Group:
    kind, rows, to_world = key
    links = np.array([each.link for each in members])
    holders = np.array([each.to for each in members])
    every = [(k, v, sign) for k, each in enumerate(members) for v, sign in pairs[each.number]]
    owners, moved, signs = (np.array(column) for column in zip(*every, strict=True))
    # Frames are relative to bodies, as links do not move on them.
    X = [each.X.after(transform_of(model.link_X[each.link])) for each in members]
    X_to = [each.X_to if each.to < 0 else each.X_to.after(transform_of(model.link_X[each.to])) for each in members]
    numbers = np.array([each.number for each in members])
    return _Group(
        kind,
        rows,
        to_world,
        numbers,
        first[numbers],
        model.link_body[links],
        np.where(holders < 0, -1, model.link_body[holders]),
        np.array([(*x.E, *x.r) for x in X], float),
        np.array([(*x.E, *x.r) for x in X_to], float),
        np.array([each.length for each in members]),
        owners,
        moved,
        np.searchsorted(dofs, moved),
        signs.astype(float),
        model.v_multiplier[moved] ** 2,
    )


class BatchResponse:
    """H^-1 J' and A = J H^-1 J'.

    Args:
        J: (B, m, nv).
        responses: (B, m, nv), H^-1 J' row by row.
        H: (B, nv, nv), where `less` is needed.
        weights: (B, m), R of rows if H is H + J' R J.
    """

    def __init__(self, J: Array, responses: Array, H: Array | None = None, weights: Array | None = None) -> None:
        self.weights = weights
        self._J, self._responses, self._H = J, responses, H
        self.A: Array = J @ np.swapaxes(responses, 1, 2)

    def rates(self, accelerations: Array) -> Array:
        """J qdd (B, m)."""
        rates: Array = (self._J @ accelerations[:, :, None])[:, :, 0]
        return rates

    def accelerations(self, free: Array, forces: Array) -> Array:
        """Accelerations (B, nv): those without constraints plus H^-1 J' lambda."""
        total: Array = free + (forces[:, None, :] @ self._responses)[:, 0]
        return total

    @property
    def columns(self) -> Array:
        """H^-1 J' (B, nv, m)."""
        return np.swapaxes(self._responses, 1, 2)

    def less(self, W: Array, G: Array) -> Array:
        """H^-1 - W G (B, nv, nv), for responses by the mass matrix."""
        assert self._H is not None
        n = self._H.shape[1]
        inverse = dense.solve(self._H, np.broadcast_to(np.eye(n, dtype=self._H.dtype, like=self._H), self._H.shape))
        less: Array = inverse - W @ G
        return less


class ProximalSolver:
    """Solves A lambda = b by proximal iterations: see `robodyn.algorithms.constraints.scalars.ProximalSolver`. Rows are
    scaled to A_kk = 1, because `numpy.linalg.solve` chooses pivots by their size.

    Args:
        A: (B, m, m).
        moving: (B, m) 1 for rows that move, 0 for others.
        proximal: mu, and the number of iterations.
    """

    def __init__(self, A: Array, moving: Array, proximal: tuple[float, int]) -> None:
        self._mu, self._iterations = proximal
        every = np.arange(A.shape[1], like=A)
        self._scale: Array = moving / np.sqrt(A[:, every, every] * moving + (1.0 - moving))
        self._scaled: Array = self._scale[:, :, None] * A * self._scale[:, None, :]
        self._scaled[:, every, every] = 1.0 + self._mu

    def forces(self, rhs: Array) -> Array:
        """lambda (B, m) with A lambda = rhs."""
        return self._solved(rhs[:, :, None])[:, :, 0]

    @property
    def inverse(self) -> Array:
        """The matrix (B, m, m) of `forces`."""
        m = self._scale.shape[1]
        return self._solved(np.eye(m, dtype=self._scale.dtype, like=self._scale)[None])

    def _solved(self, rhs: Array) -> Array:
        b = self._scale[:, :, None] * rhs
        solution = np.linalg.solve(self._scaled, b)
        for _ in range(self._iterations - 1):
            solution = np.linalg.solve(self._scaled, b + self._mu * solution)
        solved: Array = self._scale[:, :, None] * solution
        return solved


class ConstraintState(ArrayDerivatives):
    """Constraints of a robot in B states.

    `phi`, `phidot`, `gamma` (B, m): residuals, their rates, and their accelerations at qdd = 0. `jacobian` (B, m, nv).

    Args:
        model: the robot.
        given: inputs (B, ...), with unit quaternions in q.
        run: runs an algorithm on inputs.
        placed: converts NumPy constants to arrays of the library of the inputs.
        moving: True to compute rates.
    """

    def __init__(
        self, model: Model, given: Mapping[str, Array], run: RunAlgorithm, placed: Placed, moving: bool = True
    ) -> None:
        self._model, self._given, self._run, self._placed, self._moving = model, given, run, placed, moving
        self._at, self._q = _layout(model), given["q"]
        of_rows = placed(self._at.numbers)
        self._active = is_positive(given["active"])[:, of_rows] if "active" in given else None
        batch, m = len(self._q), len(self._at.numbers)
        self.phi, self.phidot, self.gamma, self._size = (self._new(batch, m) for _ in range(4))
        self._tree_jacobian = self._new(batch, m, model.nv_tree)
        self._world = self.constant((*IDENTITY.E, *IDENTITY.r))
        place = floating_place(model) if not any(name in given for name in ("V0", "dV0")) else []
        if place:  # the world's origin moves to the base, as in `Terms`
            at, q = slice(place[0], place[0] + 3), self._q.copy()
            self._world = self._new(batch, 1, 12) + self._world
            for k, shift in enumerate(place_of_base(model, tuple(q[:, at].T))):
                self._world[:, 0, 9 + k] = -shift
            q[:, at] = 0.0
            given = {**given, "q": q}
        self._near = given["q"]
        self._bodies = run(_MOTIONS if moving else _PLACES, given)
        self._frames: list[tuple[_Group, Transform]] = []
        columns = self._columns()
        for group in self._at.groups:
            self._framed(group, columns)
        for row, held in self._at.simple:
            self._simple(row, held)
        J = self._tree_jacobian
        self.jacobian: Array = J if self._at.mimic is None else J @ self.constant(self._at.mimic)

    def _new(self, *shape: int) -> Array:
        return np.zeros_like(self._q, shape=shape)

    def constant(self, values: Any) -> Array:
        """An array of constants, the same in all states."""
        return self._placed(np.array(values, self._q.dtype))

    # Rows.

    def _columns(self) -> Motion:
        """Motions of the degrees of freedom in `_Layout.dofs`, (B, U), in world coordinates."""
        X0 = transform_of(self._bodies["X0"][:, self._placed(self._at.carriers)])
        return X0.motion_back(motion_of(self.constant(self._at.S)))

    def _frame(self, bodies: Array, X: Array) -> tuple[Transform, Motion, Motion]:
        """The transform from the world to frames on bodies, and their motion in world coordinates (v, a)."""
        at, some_stand = self._placed(bodies), bool((bodies < 0).any())
        stand = at < 0

        def of_bodies(name: str, standing: Any) -> Array:
            moving: Array = self._bodies[name][:, at]
            return np.where(stand[:, None], standing, moving) if some_stand else moving

        X0 = transform_of(of_bodies("X0", self._world))
        v = a = ZERO_MOTION
        if self._moving:
            # Frames on the world move with the base, whose motion is in world coordinates.
            seen = [of_bodies(name, self._of_base(base)) for name, base in (("v", "V0"), ("a", "dV0"))]
            v, a = (X0.motion_back(motion_of(each)) for each in seen)
        return transform_of(self.constant(X)).after(X0), v, a

    def _of_base(self, name: str) -> Any:
        """A motion of the base (B, 1, 6), or zero if it is not an input."""
        return self._given[name][:, None] if name in self._given else 0.0

    def _apart(self, group: _Group) -> tuple[Transform, Transform, Motion, Motion]:
        """Frames a and b, V and A of `robodyn.algorithms.constraints.terms`."""
        b, V_b, A_b = self._frame(group.bodies, group.X)
        if not group.to_world:
            a, V_a, A_a = self._frame(group.holders, group.X_to)
            V = V_b - V_a
            return a, b, V, A_b - A_a - V_a.cross(V)
        if "targets" in self._given:
            a = transform_of(self._given["targets"][:, self._placed(group.numbers)])
            a = Transform(orthonormal(a.E), a.r)
        else:
            a = transform_of(self.constant(group.X_to))
        return (a.after(transform_of(self._world)) if self._world.ndim > 1 else a), b, V_b, A_b

    def _framed(self, group: _Group, columns: Motion) -> None:
        a, b, V, A = self._apart(group)
        self._frames.append((group, a))
        places, owners, dofs, first = map(self._placed, (group.places, group.owners, group.dofs, group.first))
        signs, shares = self.constant(group.signs), self.constant(group.shares)
        column = Motion(*(tuple(x[:, places] * signs for x in part) for part in columns))

        def of_pairs(part: Any) -> Any:
            return tuple(scalar[..., owners] if getattr(scalar, "ndim", 0) else scalar for scalar in part)

        b_of_pairs, entries = Transform(b.E, of_pairs(b.r)), []
        if group.kind is Rod:
            weight = None if self._active is None else self._active[:, first]
            phi, phidot, gamma, u = rod_row(self.constant(group.lengths), a, b, V, A, weight)
            rows = [(phi, phidot, gamma)]
            entries = [rod_entry(of_pairs(u), b_of_pairs, column)]
        elif group.kind is Rolling:
            weight = None if self._active is None else self._active[:, first]
            rows, contact = rolling_rows(self.constant(group.lengths), a, b, V, A, weight)
            entries = rolling_entries(Contact(*map(of_pairs, contact)), b_of_pairs, column)
        else:
            rows = list(frame_rows(group.kind, group.rows, a, b, V, A).values())
            a_of_pairs = Transform(of_pairs(a.E), a.r)
            entries = list(frame_entries(group.rows, a_of_pairs, b_of_pairs, column).values())
        for k, (values, (entry, size)) in enumerate(zip(rows, entries, strict=True)):
            at = first + k
            for target, value in zip((self.phi, self.phidot, self.gamma), values, strict=True):
                target[:, at] = value
            # The squares of each row's pairs are summed in the places of its entries.
            self._tree_jacobian[:, at[owners], dofs] = size * shares
            self._size[:, at] = self._tree_jacobian[:, at].sum(axis=2)
            self._tree_jacobian[:, at[owners], dofs] = entry

    def _simple(self, first: int, held: ResolvedConstraint) -> None:
        """Rows of a coupling or a lock, which are constants of the model and few coordinates."""
        coordinates = {name: _Columns(self._given[name]) for name in ("q", "qd") if name in self._given}
        terms = Terms(self._model, [held], cast(Any, coordinates), cast(Any, None), self._moving)
        for k, row in enumerate(terms.rows()):
            self.phi[:, first + k], self.phidot[:, first + k] = row.phi, row.phidot
            self._size[:, first + k] = row.size
            # Entries belong to independent velocities: they go to the tree velocities of joints that mimic none.
            for v in np.flatnonzero(row.J or ()):
                self._tree_jacobian[:, first + k, self._at.leaders[v]] = row.J[v]  # type: ignore[index]

    # The interface of `_State` in `robodyn.algorithms.constraints.tasks`.

    def at(self, q: Array) -> ConstraintState:
        """The same constraints in other configurations."""
        return ConstraintState(self._model, {**self._given, "q": q}, self._run, self._placed)

    def given(self, name: str) -> Any:
        """An input (B, n), or None."""
        array = self._given.get(name)
        return array if array is None or array.ndim > 1 else array[:, None]

    def masked(self, values: Array) -> Array:
        """Values of rows (B, m), with zeros for inactive constraints."""
        return values if self._active is None else self._active * values

    def moved(self, step: Array) -> Array:
        """q (+) step (B, nq)."""
        start, four = self._q.copy(), self._model.quaternion_starts[:, None] + np.arange(4)
        if four.size:
            at = self._placed(four)
            for k, entry in enumerate(unit_quaternion(tuple(np.moveaxis(start[:, at], -1, 0)))):
                start[:, at[:, k]] = entry
        moved_q = np.zeros_like(start)
        for kind, places, along in self._model.free_joints:
            at, on = self._placed(places), self._placed(along)
            q, v = (tuple(np.moveaxis(array[:, index], -1, 0)) for array, index in ((start, at), (step, on)))
            for k, value in enumerate(kind.integrate(q, v)):
                moved_q[:, at[:, k]] = value
        return moved_q

    def response(self, r: Array | None = None, by_matrix: bool = False) -> tuple[BatchResponse, Array]:
        """H^-1 J' and A, and zeros: the accelerations (B, nv) of a robot at rest without forces.

        `by_matrix`: True to use the mass matrix, as `BatchResponse.less` must.
        """
        J = self._masked_jacobian()
        rest = np.zeros(J.shape[::2], J.dtype)
        if r is not None and has_singular_mass_matrix(self._model):
            H = self._run(with_inputs(CRBA, self._given), self._given)["H"]
            return self._augmented(H, rest, r)
        if not (self._model.has_mimic or by_matrix):
            return BatchResponse(J, self._at_rest(J)), rest
        H = self._run(with_inputs(CRBA, self._given), self._given)["H"]
        return self._by_matrix(H), rest

    def _by_matrix(self, H: Array) -> BatchResponse:
        J = self._masked_jacobian()
        return BatchResponse(J, np.swapaxes(dense.solve(H, np.swapaxes(J, 1, 2)), 1, 2), H)

    def _at_rest(self, forces: Array) -> Array:
        """H^-1 f (B, m, nv): accelerations of the robot at rest, whose base falls freely."""
        batch, m, nv = forces.shape
        inputs = {name: self._given[name] for name in ("q", "inertia", "armature") if name in self._given}
        every = {name: np.broadcast_to(each[:, None], (batch, m, *each.shape[1:])) for name, each in inputs.items()}
        rows = {name: each.reshape(batch * m, *each.shape[2:]) for name, each in every.items()}
        falling = self.constant((0.0, 0.0, 0.0, *self._model.gravity))
        rows |= {"tau": forces.reshape(batch * m, nv), "dV0": np.broadcast_to(falling, (batch * m, 6))}
        rows["V0"] = np.zeros_like(rows["dV0"])
        return self._run(with_inputs(aba(("q", "tau")), inputs), rows)["qdd"].reshape(forces.shape)

    def _augmented(self, H: Array, force: Array, r: Array) -> tuple[BatchResponse, Array]:
        """The response by H + J' R J, and the accelerations under the force less J' R r."""
        J, proximal, n = self._masked_jacobian(), self._model.proximal, self._model.nv
        every = np.arange(n, like=H)
        R = weights(H[:, every, every].sum(axis=1)[:, None] / n, self._moving_rows(proximal), (J * J).sum(axis=2))
        H = H + np.swapaxes(J, 1, 2) @ (R[:, :, None] * J)
        with np.errstate(all="ignore"):
            pivots = dense.ltdl(H)[1]
        regular: Array = (pivots > least_pivot(proximal) * H[:, every, every]).all(axis=1)  # type: ignore[assignment]
        H = np.where(regular[:, None, None], H, np.nan)
        force = force - ((R * r)[:, None, :] @ J)[:, 0]
        solved = np.swapaxes(dense.solve(H, np.swapaxes(np.concatenate((J, force[:, None]), axis=1), 1, 2)), 1, 2)
        return BatchResponse(J, solved[:, :-1], H, R), solved[:, -1]

    def response_of_forces(self, r: Array | None = None, by_matrix: bool = False) -> tuple[BatchResponse, Array]:
        """H^-1 J' and A, and the accelerations without constraints (B, nv).

        `by_matrix`: True to use the mass matrix, as `BatchResponse.less` must.
        """
        inputs = tuple(name for name in ("q", "qd", "tau", "f_ext") if name in self._given)
        augmented = r is not None and has_singular_mass_matrix(self._model)
        if not (self._model.has_mimic or augmented or by_matrix):
            return self.response()[0], self._run(with_inputs(aba(inputs), self._given), self._given)["qdd"]
        less = tuple(name for name in inputs if name != "tau")
        terms = self._run(with_inputs(bias_and_mass_matrix(less), self._given), self._given)
        if augmented:
            return self._augmented(terms["H"], self._given["tau"] - terms["tau"], cast(Array, r))
        free = dense.solve(terms["H"], (self._given["tau"] - terms["tau"])[:, :, None])[:, :, 0]
        return self._by_matrix(terms["H"]), free

    def _masked_jacobian(self) -> Array:
        return self.jacobian if self._active is None else self._active[:, :, None] * self.jacobian

    def solver(self, responds: BatchResponse, proximal: tuple[float, int]) -> ProximalSolver:
        """The solver of forces. Rows that are inactive, or move nothing, get none."""
        return ProximalSolver(responds.A, self._moving_rows(proximal), proximal)

    def _moving_rows(self, proximal: tuple[float, int]) -> Array:
        """(B, m) 1 for rows that move with some joint and are active, 0 for others."""
        J, sizes = self._masked_jacobian(), self.constant(self._at.sizes)
        return cast(Array, moves((J * J).sum(axis=2), self._size, sizes, proximal))

    def delassus(self, responds: BatchResponse) -> Array:
        """A (B, m, m), with 1 on the diagonal of inactive rows."""
        A = responds.A.copy()
        if self._active is not None:
            every = np.arange(A.shape[1], like=A)
            A[:, every, every] = A[:, every, every] + (1.0 - self._active)
        return A

    def in_world(self, forces: Array) -> Array:
        """Forces of rows (B, m) in world axes: of every three rows that are along the axes of a frame."""
        turned = forces.copy()
        for group, a in self._frames:
            for k in range(0, 0 if group.kind in (Rod, Rolling) else len(group.rows), 3):
                x, y, z = (self._placed(group.first + k + each) for each in range(3))
                vector = rotate_back(a.E, (forces[:, x], forces[:, y], forces[:, z]))
                turned[:, x], turned[:, y], turned[:, z] = vector
        return turned


class _Columns:
    """The columns (B,) of an array (B, n)."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, k: int) -> Array:
        column: Array = self._array[:, k]
        return column


def piece_by_piece(
    model: Model,
    given: Mapping[str, Array],
    text: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    matrices: bool = False,
) -> dict[str, Array]:
    """Results (B, ...) of pieces of a batch that are small enough to limit memory (`_MOST_SCALARS`).

    `matrices`: True if matrices (nv, nv) are computed.
    """
    pairs = sum(len(group.owners) for group in _layout(model).groups)
    entries = (model.n_rows + model.nv * matrices) * model.nv_tree
    at_once = max(1, _MOST_SCALARS // (_OF_A_PAIR * pairs + _OF_AN_ENTRY * entries + 1))
    starts = range(0, max(1, len(given["q"])), at_once)
    pieces = [text({name: array[k : k + at_once] for name, array in given.items()}) for k in starts]
    if len(pieces) == 1:
        return dict(pieces[0])
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
