"""Derivatives of constrained dynamics.

Accelerations and forces solve ID(q, qd, qdd) = tau + J' lambda and J qdd + r = 0. With r1 = d(ID - J' lambda) and
r2 = d(J qdd + r), both at fixed qdd and lambda, W = H^-1 J', and A = J W,

    d lambda = A^-1 (W' r1 - r2)      d qdd = W d lambda - H^-1 r1

and the same for tau, with r1 = -1 and r2 = 0. With G = A^-1 W' and P = H^-1 - W G this is

    d lambda = G r1 - A^-1 r2         d qdd = -P r1 - G' r2

Rows depend on the motion of frame b seen from frame a. The joints between them are a chain from a to b. All vectors are
in axes of a: with w_j the angular velocity of b and l_j the velocity of its origin p at unit velocity of degree of
freedom j (columns of J),

    dw_i/dq_j = w_j x w_i     dl_i/dq_j = w_j x l_i     if j moves the axis of i,     else 0 and w_i x l_j

An axis is moved by the joints before it on the chain. Those of one joint are fixed in its body, so they also move one
another where the chain goes away from the root. Let omega_o and u_o be the angular velocity of the parent of j's body
and the velocity of its point at p, alpha_o and beta_o the angular acceleration and the acceleration of that point, and
omega, u, alpha, beta the same of b. Then with R = u - u_o

    du/dq_j     = omega_o x l_j + w_j x R
    dbeta/dq_j  = alpha_o x l_j + omega_o x (omega_o x l_j) + 2 omega_o x (w_j x R)
                  + w_j x (beta - beta_o - 2 omega_o x R)
    dbeta/dqd_j = (omega_o + omega_j) x l_j + w_j x (2 u - u_o - u_j)

and the angular rows have the same without the terms of l_j, dalpha/dqd_j = (omega_o + omega_j - omega) x w_j. Motions
of common ancestors change nothing. Rows of wheels are in `robodyn.algorithms.constraints.wheel_gradients`.

Where rows depend on each other, A^-1 is the map of the proximal iterations, a pseudo-inverse, and d lambda lacks

    (1 - A^-1 A) D^-1 (dA y - dD lambda)      A y = D lambda, D = diag(A)

the change of those directions of lambda that exert no force. dD would take a gradient of H for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from robodyn.algorithms.constraints.wheel_gradients import Wheel, duals, values
from robodyn.algorithms.kinematics import ACCELERATIONS, POSES, POSES_OF_KNOWN, VELOCITIES
from robodyn.core.constraints.kinds import ROWS, Lock, Rod, Rolling
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Motion, Transform, Vec3, add, cross, dot, rotate, scale, sub
from robodyn.core.sweeps import MOTION, TRANSFORM, Algorithm, FieldOutput
from robodyn.core.tangent import apart_by
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

POSES_OF_BODIES = Algorithm(
    name="poses_of_all_bodies",
    inputs=("q",),
    fields={"X0": TRANSFORM},
    sweeps=POSES,
    outputs={"X0": FieldOutput("X0", (12,))},
)
VELOCITIES_OF_BODIES = Algorithm(
    name="velocities_of_bodies",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION},
    sweeps=(*VELOCITIES, *POSES_OF_KNOWN),
    outputs={"X0": FieldOutput("X0", (12,)), "v": FieldOutput("v", (6,))},
)
MOTIONS_OF_BODIES = Algorithm(
    name="motions_of_bodies_at",
    inputs=("q", "qd", "qdd"),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "a": MOTION},
    sweeps=(*ACCELERATIONS, *POSES_OF_KNOWN),
    outputs={"X0": FieldOutput("X0", (12,)), "v": FieldOutput("v", (6,)), "a": FieldOutput("a", (6,))},
)
"""Of all bodies: transforms from the world, velocities and accelerations without gravity, in their axes."""


def motions_of_bodies(given: Container[str]) -> Algorithm:
    """The algorithm that computes motions at the velocities and accelerations that are given."""
    if "qdd" in given:
        return MOTIONS_OF_BODIES
    return VELOCITIES_OF_BODIES if "qd" in given else POSES_OF_BODIES


class Moving(Protocol):
    """What derivatives of rows need of the constraints of a robot in one state, or in many. Arrays have the axes given,
    after that of the states; the scalars of vectors and transforms are arrays of one or more entries."""

    phi: Any

    def masked(self, values: Any) -> Any:
        """Values of rows, with zeros for inactive constraints."""

    def frames(self, held: ResolvedConstraint) -> tuple[Transform, Transform]:
        """Transforms from the world to frames a and b, of arrays of one entry."""

    def motions(self, qdd: Any) -> Mapping[str, Any]:
        """ "X0" (n + 1, 12), "v" and "a" (n + 1, 6) of all bodies and of the base, which is the last. In their axes."""

    def constant(self, values: Any) -> Any:
        """An array of constants, the same in all states."""

    def index(self, numbers: Array) -> Any:
        """Indices of entries of its arrays."""

    def zeros(self, *shape: int) -> Any:
        """Zeros of each state."""


@dataclass(frozen=True)
class _Path:
    """The degrees of freedom of the tree between the frames of a constraint.

    `body`, `holder`: of frames b and a, -1 for
    the base. `to_world`: True if frame a is at rest. `dofs` (P,), `bodies`, `parents`: their bodies, and those before
    them in the tree. `S` (P, 6): their motions, in their body's axes; negative where they move a. `moves` (P, P): 1
    where the degree of freedom of the column moves the axis of that of the row.
    """

    body: int
    holder: int
    to_world: bool
    dofs: Array
    bodies: Array
    parents: Array
    S: Array
    moves: Array


@lru_cache(maxsize=64)
def _paths(model: Model) -> dict[int, _Path]:
    """The paths of constraints between frames, by the constraints' numbers."""
    return {held.number: _path(model, held) for held in resolved_constraints(model) if held.framed}


def _path(model: Model, held: ResolvedConstraint) -> _Path:
    body, holder = (int(model.link_body[link]) if link >= 0 else -1 for link in (held.link, held.to))
    starts = [*model.v_start.tolist(), model.nv_tree]
    dofs, bodies, S, places, signs = [], [], [], [], []
    for place, (i, sign) in enumerate(_between(model, body, holder)):
        columns = KINDS[model.joint_kind[i]].subspace(float(model.pitch[i]))
        for v, column in zip(range(starts[i], starts[i + 1]), columns, strict=True):
            dofs.append(v)
            bodies.append(i)
            S.append([sign * number for number in (*column.ang, *column.lin)])
            places.append(place)
            signs.append(sign)
    at, away = np.array(places), np.array(signs) > 0.0
    moves = (at[None] < at[:, None]) | ((at[None] == at[:, None]) & away[:, None])
    return _Path(
        body,
        holder,
        held.to < 0,
        np.array(dofs),
        np.array(bodies),
        model.parent[bodies],
        np.array(S),
        moves.astype(float),
    )


def _between(model: Model, body: int, holder: int) -> Iterator[tuple[int, float]]:
    """Bodies whose joints are between two bodies, from the holder to the body, and the signs of their motions."""
    down: list[int] = []
    while body != holder:  # up to the common ancestor; parents have smaller numbers
        if body > holder:
            down.append(body)
            body = int(model.parent[body])
        else:
            yield holder, -1.0
            holder = int(model.parent[holder])
    yield from ((i, 1.0) for i in reversed(down))


class RowGradients:
    """Derivatives of all rows, on the tangent space.

    Args:
        model: the robot.
        state: its constraints.
    """

    def __init__(self, model: Model, state: Moving) -> None:
        self._held = list(_numbered(model))
        self._model, self._state, self._paths = model, state, _paths(model)

    def forces(self, lam: Any) -> Any:
        """Derivatives (nv, nv) of J' lambda by q."""
        total = self._state.zeros(self._model.nv_tree, self._model.nv_tree)
        motions = self._motions()
        for held, rows in self._held:
            if held.framed:
                at = self._frames(held, motions)
                forces = _FORCES.get(held.kind, _forces_of_frames)(at, lam[..., rows])
                dofs = self._state.index(at.path.dofs)
                block = (..., dofs[:, None], dofs)
                total[block] = total[block] + forces
        G = self._followers
        return total if G is None else G.T @ total @ G

    def errors(self) -> Any:
        """Derivatives (m, nv) of phi by q."""
        motions = self._motions()
        return self._wide(lambda held: _errors(self._frames(held, motions)), self._errors_of_coordinates)

    def rates(self, qd: Any, share: Any = None) -> Any:
        """Derivatives (m, nv) of phidot by q. `share` (1,): a factor on the velocity of the base, or None for 1."""
        motions = self._motions(share, qd=qd)
        return self._wide(lambda held: _rates(self._frames(held, motions)))

    def accelerations(self, qdd: Any) -> tuple[Any, Any]:
        """Derivatives (m, nv) of J qdd + r by q and by qd."""
        motions = self._motions(qdd=qdd)
        by_q = self._wide(
            lambda held: _accelerations_by_q(self._frames(held, motions)),
            lambda held, rows: held.gains[1] * self._errors_of_coordinates(held, rows),
        )
        by_qd = self._wide(
            lambda held: _accelerations_by_qd(self._frames(held, motions)),
            lambda held, rows: held.gains[0] * self._jacobian_of_coordinates(held),
        )
        return by_q, by_qd

    def _motions(self, share: Any = None, **others: Any) -> Mapping[str, Any]:
        """Motions of bodies, if some constraint is between frames."""
        return self._state.motions(share, **others) if self._paths else {}

    def _frames(self, held: ResolvedConstraint, motions: Mapping[str, Any]) -> _Frames:
        row = next(rows for each, rows in self._held if each is held).start
        at = _Frames(self._state, held, self._paths[held.number], motions, self._state.phi[..., row : row + 1])
        if held.kind is Rolling:
            weights = self._state.masked(self._state.constant(np.ones(self._model.n_rows)))
            at.wheel = Wheel(held.length, at.axes[2], at.w, at.l, weights[..., row : row + 1])
        return at

    def _wide(
        self,
        of_frames: Callable[[ResolvedConstraint], Sequence[Any]],
        of_coordinates: Callable[[ResolvedConstraint, slice], Any] | None = None,
    ) -> Any:
        """A matrix (m, nv) of rows between frames, each (P,), and of rows of coordinates, (rows, nv_tree)."""
        total = self._state.zeros(self._model.n_rows, self._model.nv_tree)
        for held, rows in self._held:
            if held.framed:
                dofs = self._state.index(self._paths[held.number].dofs)
                for row, values in enumerate(of_frames(held), rows.start):
                    total[..., row, dofs] = values
            elif of_coordinates is not None:
                total[..., rows, :] = of_coordinates(held, rows)
        return total if self._followers is None else total @ self._followers

    @property
    def _followers(self) -> Any:
        """(nv_tree, nv) tree velocities of velocities, or None if no joint mimics another."""
        model = self._model
        if not model.has_mimic:
            return None
        G = np.zeros((model.nv_tree, model.nv))
        G[np.arange(model.nv_tree), model.v_source] = model.v_multiplier
        return self._state.constant(G)

    def _jacobian_of_coordinates(self, held: ResolvedConstraint) -> Any:
        """Rows (rows, nv_tree) of a coupling or a lock."""
        J = np.zeros((len(held.rows), self._model.nv_tree))
        for v, _, c in held.joints:
            J[0, v] += c
        if held.kind is Lock:
            J[:, self._locked(held)] = np.eye(len(J))
        return self._state.constant(J)

    def _errors_of_coordinates(self, held: ResolvedConstraint, rows: slice) -> Any:
        """Derivatives of phi of a coupling or a lock: J, but of attitudes."""
        J = self._jacobian_of_coordinates(held)
        if len(held.rows) == 1:
            return J
        turned = apart_by(KINDS[self._model.joint_kind[held.joint]], self._state.phi[..., rows])[1]
        by_q = self._state.zeros(*J.shape)
        by_q[..., self._locked(held)] = turned
        return by_q

    def _locked(self, held: ResolvedConstraint) -> slice:
        """Degrees of freedom of the tree of a locked joint."""
        start = int(self._model.v_start[held.joint])
        return slice(start, start + len(held.rows))


def _numbered(model: Model) -> Iterator[tuple[ResolvedConstraint, slice]]:
    """Constraints with their rows."""
    first = 0
    for held in resolved_constraints(model):
        yield held, slice(first, first + len(held.rows))
        first += len(held.rows)


class _Frames:
    """A constraint's frames. All vectors are in axes of a, those of b at its origin p. `wheel`: for rolling wheels.

    `w`, `l` (P,): columns. `d`: from a to p. `axes`: of b. `phi`: of its first row. Motions of b seen from a, if
    `motions` has them: `omega`, `u`, `domega`, `du` (derivatives by q), and `alpha`, `beta`, `dalpha`, `dbeta`,
    `dalpha_qd`, `dbeta_qd` (by qd).
    """

    wheel: Wheel

    def __init__(
        self, state: Moving, held: ResolvedConstraint, path: _Path, motions: Mapping[str, Any], phi: Any
    ) -> None:
        self.held, self.path, self.phi, self._constant, self._motions = held, path, phi, state.constant, motions
        a, b = state.frames(held)
        self._E, self._p = a.E, b.r
        self.d = rotate(a.E, sub(b.r, a.r))
        self.axes = [rotate(a.E, b.E[3 * k : 3 * k + 3]) for k in range(3)]
        self._bodies, self._parents = state.index(path.bodies), state.index(path.parents)
        X0 = transform_of(motions["X0"][..., self._bodies, :])
        self.w, self.l = self._at_p(X0.motion_back(motion_of(state.constant(path.S))))
        if "v" in motions:
            self._move()

    def _move(self) -> None:
        path, w, l = self.path, self.w, self.l
        still = motion_of(self._constant(np.zeros((1, 6))))
        body, holder = _only(path.body), _only(path.holder)
        V_a, A_a = (still, still) if path.to_world else (self._world("v", holder), None)
        V, V_o, V_j = (self._world("v", at) - V_a for at in (body, self._parents, self._bodies))
        (self.omega, self.u), (omega_o, u_o), (omega_j, u_j) = map(self._at_p, (V, V_o, V_j))
        R, rest = sub(self.u, u_o), sub(self.omega, omega_o)
        wR, wrest = cross(w, R), cross(w, rest)
        self.domega, self.du = wrest, add(cross(omega_o, l), wR)
        if "a" not in self._motions:
            return
        A_a = self._world("a", holder) if A_a is None else A_a

        def seen(at: Any, V: Motion, omega: Vec3, u: Vec3) -> tuple[Vec3, Vec3]:
            alpha, beta = self._at_p(self._world("a", at) - A_a - V_a.cross(V))
            return alpha, add(beta, cross(omega, u))

        self.alpha, self.beta = seen(body, V, self.omega, self.u)
        alpha_o, beta_o = seen(self._parents, V_o, omega_o, u_o)
        turned = add(cross(omega_o, l), scale(2.0, wR))
        beta_rest = sub(sub(self.beta, beta_o), scale(2.0, cross(omega_o, R)))
        self.dbeta = add(add(cross(alpha_o, l), cross(omega_o, turned)), cross(w, beta_rest))
        alpha_rest = sub(sub(self.alpha, alpha_o), cross(omega_o, rest))
        self.dalpha = add(cross(omega_o, wrest), cross(w, alpha_rest))
        both = add(omega_o, omega_j)
        self.dbeta_qd = add(cross(both, l), cross(w, sub(add(self.u, R), u_j)))
        self.dalpha_qd = cross(sub(both, self.omega), w)

    def _world(self, name: str, at: Any) -> Motion:
        """A motion of bodies in world coordinates."""
        X0 = transform_of(self._motions["X0"][..., at, :])
        return X0.motion_back(motion_of(self._motions[name][..., at, :]))

    def _at_p(self, of: Motion) -> tuple[Vec3, Vec3]:
        """The angular part, and the linear part at p, in axes of a."""
        return rotate(self._E, of.ang), rotate(self._E, add(of.lin, cross(of.ang, self._p)))

    def forces(self, moment: Vec3, force: Vec3) -> Any:
        """(P, P) derivatives of w_i . moment + l_i . force by q_j, row by row."""
        at_p = cross(self.l, force)
        moved = add(cross(self.w, moment), at_p)
        if_moves = dot(_along_rows(moved), _along_columns(self.w))
        if_not = dot(_along_rows(self.w), _along_columns(at_p))
        moves = self._constant(self.path.moves)
        return moves * if_moves + (1.0 - moves) * if_not

    @property
    def e(self) -> Vec3:
        """The direction of a rod."""
        return cast(Vec3, scale(self.shrunk, self.d))

    @property
    def shrunk(self) -> Any:
        """1 / |d| of a rod."""
        return 1.0 / (self.phi + self.held.length)

    @property
    def along(self) -> Any:
        """Derivatives of a rod's |d|."""
        return dot(self.e, self.l)

    @property
    def de(self) -> Vec3:
        """Derivatives of a rod's direction."""
        return cast(Vec3, scale(self.shrunk, sub(self.l, scale(self.along, self.e))))

    def chosen(self, turns: Vec3, moves: Vec3) -> list[Any]:
        """The rows of a point or a weld among three angular and three linear ones."""
        every = dict(zip(ROWS, (*turns, *moves), strict=True))
        return [every[name] for name in self.held.rows]


def _forces_of_frames(at: _Frames, lam: Any) -> Any:
    strength = {name: lam[..., k : k + 1] for k, name in enumerate(at.held.rows)}
    every = [strength.get(name, 0.0 * lam[..., :1]) for name in ROWS]
    return at.forces(cast(Vec3, tuple(every[:3])), cast(Vec3, tuple(every[3:])))


def _forces_of_rod(at: _Frames, lam: Any) -> Any:
    pull = scale(lam, at.e)
    turned = dot(_along_rows(scale(lam, at.l)), _along_columns(at.de))
    return at.forces(cast(Vec3, tuple(0.0 * each for each in pull)), pull) + turned


def _forces_of_wheel(at: _Frames, lam: Any) -> Any:
    moment, force = at.wheel.wrench(lam)
    turned = at.wheel.turned(moment, force, _along_rows, _along_columns)
    return at.forces(values(moment), values(force)) + turned


_FORCES = {Rod: _forces_of_rod, Rolling: _forces_of_wheel}


def _errors(at: _Frames) -> list[Any]:
    """Of phi by q."""
    if at.held.kind is Rolling:
        return at.wheel.errors()
    return [at.along] if at.held.kind is Rod else at.chosen(_turned_by(at), at.l)


def _turned_by(at: _Frames) -> Vec3:
    """Derivatives of phi_ang by q (`robodyn.algorithms.constraints.terms`): of a_k x b_k they are
    w (a_k . b_k) - b_k (a_k . w)."""
    free = [k for k, name in enumerate(("rx", "ry", "rz")) if name not in at.held.rows]
    axes, weight = (free, 1.0) if len(free) == 1 else ([0, 1, 2], 0.5)
    total: Any = (0.0, 0.0, 0.0)
    for k in axes:
        b_k = at.axes[k]  # its components are products with the axes of a
        total = add(total, sub(scale(b_k[k], at.w), scale(at.w[k], b_k)))
    return cast(Vec3, scale(weight, total))


def _rates(at: _Frames) -> list[Any]:
    """Of phidot by q. A rod's is e . u."""
    if at.held.kind is Rod:
        return [dot(at.e, at.du) + dot(at.de, at.u)]
    if at.held.kind is Rolling:
        return at.wheel.rates(duals(at.omega, at.domega), duals(at.u, at.du))
    return at.chosen(at.domega, at.du)


def _accelerations_by_q(at: _Frames) -> list[Any]:
    """Of J qdd + r by q. A rod's acceleration is e . beta + (u . u - (e . u)^2) / |d|."""
    if at.held.kind is Rod:
        speed = dot(at.e, at.u)
        across, change = dot(at.u, at.u) - speed * speed, dot(at.u, at.du) - speed * _rates(at)[0]
        turned = at.shrunk * (2.0 * change - across * at.shrunk * at.along)
        rows = [dot(at.e, at.dbeta) + dot(at.de, at.beta) + turned]
    elif at.held.kind is Rolling:
        motion = ("omega", "u", "alpha", "beta")
        rows = at.wheel.accelerations(*(duals(getattr(at, each), getattr(at, f"d{each}")) for each in motion))
    else:
        rows = at.chosen(at.dalpha, at.dbeta)
    for gain, change_of in zip(at.held.gains, (_rates, _errors), strict=True):
        if gain:
            rows = [row + gain * change for row, change in zip(rows, change_of(at), strict=True)]
    return rows


def _accelerations_by_qd(at: _Frames) -> list[Any]:
    """Of J qdd + r by qd."""
    k_v = at.held.gains[0]
    if at.held.kind is Rod:
        speed = dot(at.e, at.u)
        across = dot(at.u, at.l) - speed * at.along
        return [dot(at.e, at.dbeta_qd) + 2.0 * at.shrunk * across + k_v * at.along]
    if at.held.kind is Rolling:
        motions = (at.omega, at.w), (at.u, at.l), (at.alpha, at.dalpha_qd), (at.beta, at.dbeta_qd)
        rows, columns = at.wheel.accelerations_by_qd(*(duals(*each) for each in motions)), at.wheel.columns()
    else:
        rows, columns = at.chosen(at.dalpha_qd, at.dbeta_qd), at.chosen(at.w, at.l)
    return [row + k_v * column for row, column in zip(rows, columns, strict=True)]


def _only(body: int) -> slice:
    """The row of a body, or the last one, which is that of the base."""
    return slice(body, body + 1) if body >= 0 else slice(-1, None)


def _along_rows(a: Vec3) -> Vec3:
    return cast(Vec3, tuple(each[..., :, None] for each in a))


def _along_columns(a: Vec3) -> Vec3:
    return cast(Vec3, tuple(each[..., None, :] for each in a))


def transform_of(numbers: Any) -> Transform:
    """The transform of 12 numbers along the last axis; its scalars have the other axes."""
    every = tuple(np.moveaxis(numbers, -1, 0))
    return Transform(every[:9], every[9:])


def motion_of(numbers: Any) -> Motion:
    """The motion of 6 numbers along the last axis; its scalars have the other axes."""
    every = tuple(np.moveaxis(numbers, -1, 0))
    return Motion(every[:3], every[3:])
