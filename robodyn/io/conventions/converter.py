"""States, forces and matrices of a robot between this library's convention and another one's.

A velocity of theirs is a linear function of ours, T(q) qd. Everything follows from it: accelerations are
T qdd + dT/dt qd, generalised forces T^-T tau, mass matrices T^-T H T^-1, Jacobians J T^-1. T is the identity but for
floating bases, whose blocks turn velocities into world axes and move them to another point, for planar joints, and for
the order of joints.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from robodyn.core.findings import listed
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, one_of, rows_named
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.conventions.arrays import like, read
from robodyn.io.conventions.file_order import own_order, turns_in_a_circle
from robodyn.io.conventions.order import _names
from robodyn.io.conventions.presets import CONVENTIONS, Convention

_BACK = [1, 2, 3, 0]
"""xyzw of wxyz; three times that is the way back."""
_FORTH = [3, 0, 1, 2]


@dataclass(frozen=True)
class _Joint:
    """A joint of theirs: our tree's body, and where its numbers stand, ours of the tree and theirs."""

    body: int
    kind: str
    q: slice
    v: slice
    their_q: slice
    their_v: slice
    follows: bool
    circle: bool
    com: Array


def converter(model: Model, library: str, joint_names: Sequence[str] | None = None) -> Converter:
    """The way between this library's states and another one's.

    Args:
        model: the robot.
        library: "pinocchio", "mujoco", "drake", "pybullet", "newton", "isaaclab2" or "isaaclab3".
        joint_names: the other library's joints in its order; None for the order that it gives a file of its own: depth
            first, or breadth first in Isaac Lab; in Pinocchio depth first, siblings by name. Joints that
            mimic others may be among them.

    Raises:
        ArgumentError: no such library; names that are no joints of the robot, or joints that are missing; a floating
            joint that does not stand in the world.
    """
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {strict_types.type_name(model)}; wanted a robodyn.Model")
    return Converter(model, CONVENTIONS[one_of("library", library, tuple(CONVENTIONS))], joint_names)


class Converter:
    """Made by `converter`. Arguments q, qd and others are ours in every call; only the last one of `*_from` is theirs.

    Arrays may have leading axes, and be of NumPy, PyTorch or CuPy: results are of the same library. `nq` and `nv` are
    the numbers of theirs, `joint_names` their joints in order.
    """

    def __init__(self, model: Model, convention: Convention, joint_names: Sequence[str] | None) -> None:
        self.model, self.convention = model, convention
        order = own_order(model, convention) if joint_names is None else _named(model, joint_names)
        self.joint_names = tuple(model.joint_names[i] for i in order)
        self._joints: list[_Joint] = []
        at_q = at_v = 0
        for i in order:
            joint = _joint(model, convention, i, at_q, at_v)
            self._joints.append(joint)
            at_q, at_v = joint.their_q.stop, joint.their_v.stop
        self.nq, self.nv = at_q, at_v
        self._quaternions = sorted(
            joint.q.stop - 4 for joint in self._joints if joint.kind in ("floating", "spherical")
        )
        self._square = not any(joint.follows for joint in self._joints)

    def __repr__(self) -> str:
        return f"<Converter of {self.model.name!r} to {self.convention.name}: nq {self.nq}, nv {self.nv}>"

    # Configurations.

    def q_to(self, q: Any) -> Any:
        """Their q (..., their nq). Quaternions are scaled to unit length, here and in every other call.

        Raises:
            ArgumentError: another shape, no real numbers, or a quaternion of zero length in NumPy's arrays (in others
                its row becomes NaN). So in all calls; also where arguments are of several libraries, or do not
                broadcast.
        """
        (q,), xp, _ = read({"q": (q, (self.model.nq,))})
        tree, c = self._q_of_tree(xp, q), self.convention
        parts = []
        for joint in self._joints:
            own = tree[..., joint.q]
            if joint.kind == "floating":
                at, turned = own[..., :3], own[..., 3:]
                if c.position_at == "com":
                    at = at + _rotated(xp, turned, like(xp, joint.com, at), 1.0)
                turned = turned[..., _FORTH] if c.scalar_first else turned
                parts += [at, turned] if c.position_first else [turned, at]
            elif joint.kind == "spherical":
                parts.append(own[..., _FORTH] if c.scalar_first else own)
            elif joint.circle:
                parts += [own[..., :-1], xp.cos(own[..., -1:]), xp.sin(own[..., -1:])]
            else:
                parts.append(own)
        return _joined(xp, parts, q)

    def q_from(self, q: Any) -> Any:
        """Our q (..., nq) of theirs. Numbers of joints that mimic others are not looked at."""
        (q,), xp, _ = read({"q": (q, (self.nq,))})
        c, found = self.convention, {}
        for joint in self._joints:
            own = q[..., joint.their_q]
            if joint.kind == "floating":
                split = 3 if c.position_first else 4
                at, turned = own[..., :split], own[..., split:]
                if not c.position_first:
                    at, turned = turned, at
                turned = _unit(xp, turned[..., _BACK] if c.scalar_first else turned)
                if c.position_at == "com":
                    at = at - _rotated(xp, turned, like(xp, joint.com, at), 1.0)
                own = xp.concatenate((at, turned), -1)
            elif joint.kind == "spherical":
                own = _unit(xp, own[..., _BACK] if c.scalar_first else own)
            elif joint.circle:
                angle = xp.arctan2(own[..., -1:], own[..., -2:-1])
                own = xp.concatenate((own[..., :-2], angle), -1) if own.shape[-1] > 2 else angle
            if not joint.follows:
                found[joint.body] = own
        return _joined(xp, [found[i] for i in sorted(found)], q)

    # Velocities, accelerations and forces.

    def v_to(self, q: Any, v: Any) -> Any:
        """Their velocity (..., their nv) of ours (..., nv)."""
        (q, v), xp = self._read(q, v=(v, self.model.nv))
        return self._forth(xp, self._q_of_tree(xp, q), self._v_of_tree(xp, v))

    def v_from(self, q: Any, v: Any) -> Any:
        """Our velocity (..., nv) of theirs (..., their nv)."""
        (q, v), xp = self._read(q, v=(v, self.nv))
        return self._back(xp, self._q_of_tree(xp, q), v)

    def a_to(self, q: Any, v: Any, a: Any) -> Any:
        """Their acceleration (..., their nv), the rate of their velocity, of ours (..., nv); v is ours."""
        (q, v, a), xp = self._read(q, v=(v, self.model.nv), a=(a, self.model.nv))
        tree = self._q_of_tree(xp, q)
        return self._forth(xp, tree, self._v_of_tree(xp, a)) + self._drift(xp, tree, self._v_of_tree(xp, v))

    def a_from(self, q: Any, v: Any, a: Any) -> Any:
        """Our acceleration (..., nv) of theirs (..., their nv); v is ours."""
        (q, v, a), xp = self._read(q, v=(v, self.model.nv), a=(a, self.nv))
        tree = self._q_of_tree(xp, q)
        return self._back(xp, tree, a - self._drift(xp, tree, self._v_of_tree(xp, v)))

    def tau_to(self, q: Any, tau: Any) -> Any:
        """Their generalised forces (..., their nv) of ours (..., nv); zero for joints that mimic others."""
        (q, tau), xp = self._read(q, tau=(tau, self.model.nv))
        return (self._backwards(xp, q) @ tau[..., None])[..., 0]

    def tau_from(self, q: Any, tau: Any) -> Any:
        """Our generalised forces (..., nv) of theirs (..., their nv)."""
        (q, tau), xp = self._read(q, tau=(tau, self.nv))
        return (self._forwards(xp, q) @ tau[..., None])[..., 0]

    def to_matrix(self, q: Any) -> Any:
        """T' (..., nv, their nv): row i is their velocity of the i-th unit vector of ours."""
        (q,), xp = self._read(q)
        return self._forwards(xp, q)

    def from_matrix(self, q: Any) -> Any:
        """T^-T (..., their nv, nv): row i is our velocity of the i-th unit vector of theirs."""
        (q,), xp = self._read(q)
        return self._backwards(xp, q)

    # Matrices.

    def mass_matrix_to(self, q: Any, H: Any) -> Any:
        """Their mass matrix (..., nv, nv) of ours."""
        (q, H), xp = self._whole("mass_matrix_to")._read(q, H=(H, self.nv, self.nv))
        F = self._backwards(xp, q)
        return F @ H @ _turned(F)

    def mass_matrix_from(self, q: Any, H: Any) -> Any:
        """Our mass matrix (..., nv, nv) of theirs."""
        (q, H), xp = self._whole("mass_matrix_from")._read(q, H=(H, self.nv, self.nv))
        E = self._forwards(xp, q)
        return E @ H @ _turned(E)

    def jacobian_to(self, q: Any, J: Any) -> Any:
        """The Jacobian (..., m, nv) by their velocities of one by ours. Its rows stay as they are."""
        (q, J), xp = self._whole("jacobian_to")._read(q, J=(J, None, self.nv))
        return J @ _turned(self._backwards(xp, q))

    def jacobian_from(self, q: Any, J: Any) -> Any:
        """The Jacobian (..., m, nv) by our velocities of one by theirs."""
        (q, J), xp = self._whole("jacobian_from")._read(q, J=(J, None, self.nv))
        return J @ _turned(self._forwards(xp, q))

    def gradient_to(self, q: Any, tau: Any, gradient: Any) -> Any:
        """The derivative (..., nv, nv) of their generalised forces by motions along their velocities, of that of ours
        by motions on our tangent space; tau (..., nv) are ours there."""
        (q, tau, gradient), xp = self._whole("gradient_to")._read(
            q, tau=(tau, self.nv), gradient=(gradient, self.nv, self.nv)
        )
        F = self._backwards(xp, q)
        return (F @ gradient + self._turning(xp, q, tau)) @ _turned(F)

    def gradient_from(self, q: Any, tau: Any, gradient: Any) -> Any:
        """The derivative of our forces on our tangent space, of that of theirs; q and tau are ours."""
        (q, tau, gradient), xp = self._whole("gradient_from")._read(
            q, tau=(tau, self.nv), gradient=(gradient, self.nv, self.nv)
        )
        E = self._forwards(xp, q)
        return E @ (gradient @ _turned(E) - self._turning(xp, q, tau))

    def _turning(self, xp: Any, q: Any, tau: Any) -> Any:
        """The derivative of T^-T by our motions, times tau (..., their nv, nv): world axes turn with the base."""
        tree, c = self._q_of_tree(xp, q), self.convention
        found = _zeros(xp, (*tau.shape[:-1], self.nv, self.model.nv), tau)
        units = like(xp, np.eye(3), q)
        for joint in self._joints:
            own = self.model.v_source[joint.v]
            if joint.kind == "floating":
                linear, angular = self._halves(joint)
                turned, f, n = tree[..., joint.q][..., None, 3:], tau[..., own[:3].tolist()], tau[..., own[3:].tolist()]
                if c.velocity_at == "com":
                    n = n - _cross(xp, like(xp, joint.com, n), f)
                for frame, at, force in ((c.linear, linear, f), (c.angular, angular, n)):
                    if frame == "world":
                        change = _rotated(xp, turned, _cross(xp, units, force[..., None, :]), 1.0)
                        found[..., at, int(own[3]) : int(own[5]) + 1] = _turned(change)
            elif joint.kind == "planar" and c.planar == "world":
                angle, (x, y) = tree[..., joint.q][..., 2], (tau[..., int(own[k])] for k in (0, 1))
                start = joint.their_v.start
                found[..., start, int(own[2])] = -xp.sin(angle) * x - xp.cos(angle) * y
                found[..., start + 1, int(own[2])] = xp.cos(angle) * x - xp.sin(angle) * y
        return found

    # Wrenches on bodies.

    def wrench_to(self, q: Any, f_ext: Any, points: Any) -> Any:
        """Their wrenches (..., n, 6) on bodies, in world axes, of ours.

        Args:
            q: (..., nq), not looked at.
            f_ext: (..., n, 6) moment about the world's origin and force.
            points: (..., n, 3) where theirs act, in the world: MuJoCo's `xipos`, for instance.
        """
        (f_ext, points), xp, _ = read({"f_ext": (f_ext, (6,)), "points": (points, (3,))})
        force = f_ext[..., 3:]
        moment = f_ext[..., :3] - _cross(xp, points, force)
        return _joined(xp, [moment, force] if self.convention.moment_first else [force, moment], f_ext)

    def wrench_from(self, q: Any, points: Any, wrench: Any) -> Any:
        """Our f_ext (..., n, 6) of their wrenches, which act at points (..., n, 3) of the world."""
        (points, wrench), xp, _ = read({"points": (points, (3,)), "wrench": (wrench, (6,))})
        first, second = wrench[..., :3], wrench[..., 3:]
        moment, force = (first, second) if self.convention.moment_first else (second, first)
        return _joined(xp, [moment + _cross(xp, points, force), force], wrench)

    # What all of that is made of.

    def _forth(self, xp: Any, tree: Any, v: Any) -> Any:
        """Their velocity of ours of the tree."""
        c, parts = self.convention, []
        for joint in self._joints:
            own = v[..., joint.v]
            if joint.kind == "floating":
                turned, linear, angular = tree[..., joint.q][..., 3:], own[..., :3], own[..., 3:]
                if c.velocity_at == "com":
                    linear = linear + _cross(xp, angular, like(xp, joint.com, angular))
                linear = _rotated(xp, turned, linear, 1.0) if c.linear == "world" else linear
                angular = _rotated(xp, turned, angular, 1.0) if c.angular == "world" else angular
                parts += [linear, angular] if c.linear_first else [angular, linear]
            elif joint.kind == "planar" and c.planar == "world":
                parts.append(_plane_turned(xp, tree[..., joint.q][..., 2], own, 1.0))
            else:
                parts.append(own)
        return _joined(xp, parts, v)

    def _back(self, xp: Any, tree: Any, v: Any) -> Any:
        """Our velocity of theirs."""
        c, found = self.convention, {}
        for joint in self._joints:
            own = v[..., joint.their_v]
            if joint.kind == "floating":
                turned = tree[..., joint.q][..., 3:]
                linear, angular = (own[..., :3], own[..., 3:]) if c.linear_first else (own[..., 3:], own[..., :3])
                linear = _rotated(xp, turned, linear, -1.0) if c.linear == "world" else linear
                angular = _rotated(xp, turned, angular, -1.0) if c.angular == "world" else angular
                if c.velocity_at == "com":
                    linear = linear - _cross(xp, angular, like(xp, joint.com, angular))
                own = xp.concatenate((linear, angular), -1)
            elif joint.kind == "planar" and c.planar == "world":
                own = _plane_turned(xp, tree[..., joint.q][..., 2], own, -1.0)
            if not joint.follows:
                found[joint.body] = own
        return _joined(xp, [found[i] for i in sorted(found)], v)

    def _drift(self, xp: Any, tree: Any, v: Any) -> Any:
        """dT/dt qd, of velocities of the tree: world axes do not turn with the base, whose own do."""
        c, parts = self.convention, []
        for joint in self._joints:
            own = v[..., joint.v]
            rest = 0.0 * own
            if joint.kind == "floating" and c.linear == "world":
                linear, angular = own[..., :3], own[..., 3:]
                if c.velocity_at == "com":
                    linear = linear + _cross(xp, angular, like(xp, joint.com, angular))
                turning = _rotated(xp, tree[..., joint.q][..., 3:], _cross(xp, angular, linear), 1.0)
                rest = [turning, 0.0 * turning] if c.linear_first else [0.0 * turning, turning]
                rest = xp.concatenate(tuple(rest), -1)
            elif joint.kind == "planar" and c.planar == "world":
                x, y, rate = own[..., 0:1], own[..., 1:2], own[..., 2:3]
                turning = xp.concatenate((-y * rate, x * rate, 0.0 * rate), -1)
                rest = _plane_turned(xp, tree[..., joint.q][..., 2], turning, 1.0)
            parts.append(rest)
        return _joined(xp, parts, v)

    def _halves(self, joint: _Joint) -> tuple[slice, slice]:
        """Where the linear and the angular part of a floating base's velocity stand in theirs."""
        start = joint.their_v.start
        first, second = slice(start, start + 3), slice(start + 3, start + 6)
        return (first, second) if self.convention.linear_first else (second, first)

    def _whole(self, name: str) -> Converter:
        if not self._square:
            followers = [
                quoted(name) for name, each in zip(self.joint_names, self._joints, strict=True) if each.follows
            ]
            raise ArgumentError(
                f"{name}: joint_names has {listed(followers)}, which mimic others; wanted free joints alone, as in our "
                "matrices"
            )
        return self

    def _read(self, q: Any, **others: tuple[Any, ...]) -> tuple[list[Any], Any]:
        """q and other arguments, each with its trailing axes, broadcast; and the functions of their library."""
        axes = {"q": (self.model.nq,), **{name: tuple(given[1:]) for name, given in others.items()}}
        values = {"q": q, **{name: given[0] for name, given in others.items()}}
        arrays, xp, leading = read({name: (values[name], axes[name]) for name in values})
        return [
            xp.broadcast_to(array, (*leading, *array.shape[len(array.shape) - len(own) :]))
            for array, own in zip(arrays, axes.values(), strict=True)
        ], xp

    def _forwards(self, xp: Any, q: Any) -> Any:
        """T' (..., nv, their nv)."""
        units = _units(xp, self.model.nv, q)
        return self._forth(xp, self._q_of_tree(xp, q)[..., None, :], self._v_of_tree(xp, units))

    def _backwards(self, xp: Any, q: Any) -> Any:
        """T^-T (..., their nv, nv)."""
        return self._back(xp, self._q_of_tree(xp, q)[..., None, :], _units(xp, self.nv, q))

    def _q_of_tree(self, xp: Any, q: Any) -> Any:
        """Coordinates of all joints of the tree, followers with theirs, of free ones; quaternions of unit length."""
        model = self.model
        if model.has_mimic:
            q = q[..., model.q_source.tolist()] * like(xp, model.q_multiplier, q) + like(xp, model.q_offset, q)
        if not self._quaternions:
            return q
        ends = [0, *(end for start in self._quaternions for end in (start, start + 4)), q.shape[-1]]
        parts = [q[..., start:end] for start, end in pairwise(ends)]
        parts[1::2] = [_unit(xp, part) for part in parts[1::2]]
        return xp.concatenate(tuple(parts), -1)

    def _v_of_tree(self, xp: Any, v: Any) -> Any:
        """Velocities of all joints of the tree, of free ones."""
        model = self.model
        return v[..., model.v_source.tolist()] * like(xp, model.v_multiplier, v) if model.has_mimic else v


def _zeros(xp: Any, shape: tuple[int, ...], other: Any) -> Any:
    return other.new_zeros(shape) if xp.__name__ == "torch" else xp.zeros(shape, dtype=other.dtype)


def _units(xp: Any, n: int, q: Any) -> Any:
    """Unit vectors (..., n, n) for each q (..., nq)."""
    return xp.broadcast_to(like(xp, np.eye(n), q), (*q.shape[:-1], n, n))


def _unit(xp: Any, quaternion: Any) -> Any:
    """A quaternion scaled to unit length, as `robodyn.joints.unit_quaternion` does it.

    Raises:
        ArgumentError: NumPy's, of zero length. Elsewhere it becomes NaN: to look would be to wait for a device.
    """
    if xp is np and (nothing := (quaternion == 0.0).all(-1)).any():
        where = f" {rows_named(nothing, 0)}" if nothing.ndim else ""
        raise ArgumentError(
            f"q: a quaternion has zero length{where}; wanted four numbers that can be scaled to unit length"
        )
    with np.errstate(all="ignore"):
        step = xp.sqrt(xp.abs(quaternion)).sum(-1)[..., None]
        step = step.detach() if xp.__name__ == "torch" else step  # the direction does not depend on it
        scaled = quaternion / step / step
        return scaled / xp.sqrt((scaled * scaled).sum(-1))[..., None]


def _cross(xp: Any, a: Any, b: Any) -> Any:
    x, y, z = (a[..., k] for k in range(3))
    u, v, w = (b[..., k] for k in range(3))
    return xp.stack((y * w - z * v, z * u - x * w, x * v - y * u), -1)


def _rotated(xp: Any, quaternion: Any, vector: Any, sign: float) -> Any:
    """A vector turned by a unit quaternion xyzw, or back."""
    axis = quaternion[..., :3]
    t = 2.0 * _cross(xp, axis, vector)
    return vector + sign * quaternion[..., 3:] * t + _cross(xp, axis, t)


def _plane_turned(xp: Any, angle: Any, v: Any, sign: float) -> Any:
    c, s, x, y = xp.cos(angle), sign * xp.sin(angle), v[..., 0], v[..., 1]
    return xp.stack((c * x - s * y, s * x + c * y, v[..., 2]), -1)


def _turned(matrix: Any) -> Any:
    """The transpose."""
    return matrix.swapaxes(-1, -2)


def _joined(xp: Any, parts: list[Any], like: Any) -> Any:
    """Numbers side by side."""
    if not parts:
        return like[..., :0]
    shapes = {tuple(part.shape[:-1]) for part in parts}
    if len(shapes) > 1:
        leading = np.broadcast_shapes(*shapes)
        parts = [xp.broadcast_to(part, (*leading, part.shape[-1])) for part in parts]
    return xp.concatenate(tuple(parts), -1)


def _joint(model: Model, convention: Convention, i: int, at_q: int, at_v: int) -> _Joint:
    kind = KINDS[model.joint_kind[i]]
    q, v = int(model.q_start[i]), int(model.v_start[i])
    floats = kind.name == "floating"
    identity = np.concatenate([np.eye(3).ravel(), np.zeros(3)])
    if floats and (model.parent[i] >= 0 or not np.array_equal(model.Xtree[i], identity)):
        raise ArgumentError(
            f"model: joint {quoted(model.joint_names[i])} floats from a frame that is not the world's; wanted one "
            "whose parent is the root link, at its origin"
        )
    circle = convention.circle and (kind.name == "planar" or turns_in_a_circle(model, i))
    mass = float(model.inertia[i, 0])
    return _Joint(
        i,
        kind.name,
        slice(q, q + kind.nq),
        slice(v, v + kind.nv),
        slice(at_q, at_q + kind.nq + circle),
        slice(at_v, at_v + kind.nv),
        bool(model.mimics[i] >= 0),
        circle,
        model.inertia[i, 1:4] / mass if mass and floats else np.zeros(3),
    )


def _named(model: Model, joint_names: Any) -> list[int]:
    place = {name: i for i, name in enumerate(model.joint_names)}
    names = _names("joint_names", joint_names)
    unknown = [quoted(name) for name in names if name not in place]
    given = set(names)
    missing = [quoted(n) for n, i in place.items() if model.mimics[i] < 0 and n not in given]
    if unknown or missing:
        told = ((unknown, f"{model.name!r} has no joint"), (missing, "it lacks"))
        raise ArgumentError(f"joint_names: {'; '.join(f'{text} {listed(each)}' for each, text in told if each)}")
    return [place[name] for name in names]
