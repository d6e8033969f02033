"""Converts states, forces and matrices of a robot between robodyn's convention and another library's.

The other library's velocity is a linear function of robodyn's, T(q) qd. All other conversions follow from it:
accelerations are T qdd + dT/dt qd, generalised forces T^-T tau, mass matrices T^-T H T^-1, Jacobians J T^-1. T is a
permutation of joints times a block-diagonal matrix. Its blocks are identities except for floating bases and planar
joints: they rotate velocities to world axes and shift them to another point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from robodyn.algorithms.manifold import scalars
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.findings import listed
from robodyn.core.joints import KINDS, angle, is_positive
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, one_of, rows_named
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.internals.provided import provided
from robodyn.internals.records import dataclass
from robodyn.io.conventions.arrays import Axes, like, read
from robodyn.io.conventions.file_order import own_order, turns_in_a_circle
from robodyn.io.conventions.order import _names
from robodyn.io.conventions.presets import CONVENTIONS, Convention

_BACK = [1, 2, 3, 0]
"""Indices that turn a quaternion wxyz into xyzw."""
_FORTH = [3, 0, 1, 2]
"""Indices that turn a quaternion xyzw into wxyz."""


@dataclass(frozen=True)
class _Joint:
    """A joint of the other library.

    `body`: its body in the model; `q`, `v`: its coordinates and velocities among those of all joints of the tree;
    `their_q`, `their_v`: the same in the other library; `follows`: True if it mimics another joint; `circle`: True if
    the other library stores its angle as cosine and sine; `com`: (3,) m, centre of mass of a floating base.
    """

    body: int
    kind: str
    q: slice
    v: slice
    their_q: slice
    their_v: slice
    follows: bool
    circle: bool
    com: Array


_FAST: dict[str, tuple[dict[str, tuple[str | int, ...]], tuple[str | int, ...]]] = {
    "q_to": ({"q": ("nq",)}, ("their_nq",)),
    "q_from": ({"q": ("their_nq",)}, ("nq",)),
    "v_to": ({"q": ("nq",), "v": ("nv",)}, ("their_nv",)),
    "v_from": ({"q": ("nq",), "v": ("their_nv",)}, ("nv",)),
    "a_to": ({"q": ("nq",), "v": ("nv",), "a": ("nv",)}, ("their_nv",)),
    "a_from": ({"q": ("nq",), "v": ("nv",), "a": ("their_nv",)}, ("nv",)),
    "tau_to": ({"q": ("nq",), "tau": ("nv",)}, ("their_nv",)),
    "tau_from": ({"q": ("nq",), "tau": ("their_nv",)}, ("nv",)),
    "to_matrix": ({"q": ("nq",)}, ("nv", "their_nv")),
    "from_matrix": ({"q": ("nq",)}, ("their_nv", "nv")),
    "mass_matrix_to": ({"q": ("nq",), "H": ("nv", "nv")}, ("nv", "nv")),
    "mass_matrix_from": ({"q": ("nq",), "H": ("nv", "nv")}, ("nv", "nv")),
    "gradient_to": ({"q": ("nq",), "tau": ("nv",), "gradient": ("nv", "nv")}, ("nv", "nv")),
    "gradient_from": ({"q": ("nq",), "tau": ("nv",), "gradient": ("nv", "nv")}, ("nv", "nv")),
    "wrench_to": ({"q": ("nq",), "f_ext": (6,), "points": (3,)}, (6,)),
    "wrench_from": ({"q": ("nq",), "points": (3,), "wrench": (6,)}, (6,)),
}
"""Methods that become built-in functions when they are called often: axes of their arguments and of the result."""


def _quicker(owner: Converter, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    fast_path: Callable[..., Any] | None = provided("quicker")(owner, name, method)
    return fast_path


def converter(model: Model, library: str, joint_names: Sequence[str] | None = None) -> Converter:
    """Makes a converter between robodyn's convention and another library's.

    Args:
        model: the robot.
        library: "pinocchio", "mujoco", "drake", "pybullet", "newton", "isaaclab2" or "isaaclab3".
        joint_names: the other library's joints in its order, with or without joints that mimic others. None for the
            order in which the library loads the model's file: depth-first; breadth-first in Isaac Lab; in Pinocchio
            depth-first with siblings sorted by name.

    Raises:
        ArgumentError: an unknown library, an unknown or missing joint, or a floating joint whose parent is not the
            world.
    """
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {strict_types.type_name(model)}; wanted a robodyn.Model")
    return Converter(model, CONVENTIONS[one_of("library", library, tuple(CONVENTIONS))], joint_names)


class Converter:
    """Converts between robodyn's convention ("ours") and another library's ("theirs"). Made by `converter`.

    All arguments are ours, except the last one of `*_from`, which is theirs. Arrays may have leading axes, and be of
    NumPy, PyTorch or CuPy; results are of the same library. `nq` and `nv` are the sizes of their q and v, `joint_names`
    their joints in order.
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

    def __reduce__(self) -> tuple[type[Converter], tuple[Model, Convention, tuple[str, ...]]]:
        return Converter, (self.model, self.convention, self.joint_names)

    def task(self, name: str) -> ScalarTask:
        """One of the `_FAST` methods as a task: the method itself, on arrays of scalars."""
        inputs, result = _FAST[name]
        own: dict[Any, int] = {"nq": self.model.nq, "nv": self.model.nv, "their_nq": self.nq, "their_nv": self.nv}
        sizes = {each: Sized(tuple(own.get(axis, axis) for axis in axes)) for each, axes in inputs.items()}
        library, joint_names = self.convention.name, self.joint_names

        def on_scalars(model: Model, given: Mapping[str, Sequence[Any]], _: Any) -> Mapping[str, Any]:
            traced = _Traced(model, CONVENTIONS[library], joint_names)
            arrays = [scalars(given[each]).reshape(1, *size.axes) for each, size in sizes.items()]
            values = list(getattr(Converter, name)(traced, *arrays).ravel())
            if inputs.get("q") == ("nq",):
                # Quaternions of zero length are refused also where the result does not depend on them.
                for start in model.quaternion_starts.tolist() if values else ():
                    length = sum(each * each for each in given["q"][start : start + 4])
                    values[0] = values[0] + (1.0 / is_positive(length) - 1.0)
            return {"result": values}

        return ScalarTask(name, sizes, {"result": Sized(tuple(own.get(axis, axis) for axis in result))}, on_scalars)

    def __repr__(self) -> str:
        return f"<Converter of {self.model.name!r} to {self.convention.name}: nq {self.nq}, nv {self.nv}>"

    # Configurations.

    @with_fast_path(_quicker)
    def q_to(self, q: Any) -> Any:
        """Converts our q (..., nq) to theirs (..., their nq). All methods scale quaternions to unit length.

        Raises:
            ArgumentError: a wrong shape, values that are not real numbers, arguments of several libraries, or arguments
                that do not broadcast; a NumPy quaternion of zero length. In arrays of other libraries the row of such a
                quaternion becomes NaN. The same holds for all other methods.
        """
        (q,), xp = self._read(q)
        tree, c = self._q_of_tree(xp, q), self.convention
        parts = []
        for joint in self._joints:
            coordinates = tree[..., joint.q]
            if joint.kind == "floating":
                position, quaternion = coordinates[..., :3], coordinates[..., 3:]
                if c.position_at == "com":
                    position = position + _rotated(xp, quaternion, like(xp, joint.com, position), 1.0)
                quaternion = quaternion[..., _FORTH] if c.scalar_first else quaternion
                parts += [position, quaternion] if c.position_first else [quaternion, position]
            elif joint.kind == "spherical":
                parts.append(coordinates[..., _FORTH] if c.scalar_first else coordinates)
            elif joint.circle:
                parts += [coordinates[..., :-1], xp.cos(coordinates[..., -1:]), xp.sin(coordinates[..., -1:])]
            else:
                parts.append(coordinates)
        return _concatenated(xp, parts, q)

    @with_fast_path(_quicker)
    def q_from(self, q: Any) -> Any:
        """Converts their q (..., their nq) to ours (..., nq). Coordinates of joints that mimic others are ignored."""
        (q,), xp = self._arrays({"q": (q, (self.nq,))})
        c, ours = self.convention, {}
        for joint in self._joints:
            coordinates = q[..., joint.their_q]
            if joint.kind == "floating":
                split = 3 if c.position_first else 4
                position, quaternion = coordinates[..., :split], coordinates[..., split:]
                if not c.position_first:
                    position, quaternion = quaternion, position
                quaternion = _unit(xp, quaternion[..., _BACK] if c.scalar_first else quaternion)
                if c.position_at == "com":
                    position = position - _rotated(xp, quaternion, like(xp, joint.com, position), 1.0)
                coordinates = xp.concatenate((position, quaternion), -1)
            elif joint.kind == "spherical":
                coordinates = _unit(xp, coordinates[..., _BACK] if c.scalar_first else coordinates)
            elif joint.circle:
                angle = xp.arctan2(coordinates[..., -1:], coordinates[..., -2:-1])
                coordinates = xp.concatenate((coordinates[..., :-2], angle), -1) if coordinates.shape[-1] > 2 else angle
            if not joint.follows:
                ours[joint.body] = coordinates
        return _concatenated(xp, [ours[i] for i in sorted(ours)], q)

    # Velocities, accelerations and forces.

    @with_fast_path(_quicker)
    def v_to(self, q: Any, v: Any) -> Any:
        """Converts our velocity (..., nv) to theirs (..., their nv)."""
        (q, v), xp = self._read(q, v=(v, self.model.nv))
        return self._to_theirs(xp, self._q_of_tree(xp, q), self._v_of_tree(xp, v))

    @with_fast_path(_quicker)
    def v_from(self, q: Any, v: Any) -> Any:
        """Converts their velocity (..., their nv) to ours (..., nv). q is ours: `q_from` of theirs."""
        (q, v), xp = self._read(q, v=(v, self.nv))
        return self._to_ours(xp, self._q_of_tree(xp, q), v)

    @with_fast_path(_quicker)
    def a_to(self, q: Any, v: Any, a: Any) -> Any:
        """Converts our acceleration (..., nv) to theirs (..., their nv), the time derivative of their velocity.

        v is our velocity.
        """
        (q, v, a), xp = self._read(q, v=(v, self.model.nv), a=(a, self.model.nv))
        tree = self._q_of_tree(xp, q)
        return self._to_theirs(xp, tree, self._v_of_tree(xp, a)) + self._drift(xp, tree, self._v_of_tree(xp, v))

    @with_fast_path(_quicker)
    def a_from(self, q: Any, v: Any, a: Any) -> Any:
        """Converts their acceleration (..., their nv) to ours (..., nv). q and v are ours."""
        (q, v, a), xp = self._read(q, v=(v, self.model.nv), a=(a, self.nv))
        tree = self._q_of_tree(xp, q)
        return self._to_ours(xp, tree, a - self._drift(xp, tree, self._v_of_tree(xp, v)))

    @with_fast_path(_quicker)
    def tau_to(self, q: Any, tau: Any) -> Any:
        """Converts our generalised forces (..., nv) to theirs (..., their nv). Joints that mimic others get zero."""
        (q, tau), xp = self._read(q, tau=(tau, self.model.nv))
        return (self._backwards(xp, q) @ tau[..., None])[..., 0]

    @with_fast_path(_quicker)
    def tau_from(self, q: Any, tau: Any) -> Any:
        """Converts their generalised forces (..., their nv) to ours (..., nv). q is ours."""
        (q, tau), xp = self._read(q, tau=(tau, self.nv))
        return (self._forwards(xp, q) @ tau[..., None])[..., 0]

    @with_fast_path(_quicker)
    def to_matrix(self, q: Any) -> Any:
        """T' (..., nv, their nv): row i is the i-th unit vector of our velocities, converted to theirs."""
        (q,), xp = self._read(q)
        return self._forwards(xp, q)

    @with_fast_path(_quicker)
    def from_matrix(self, q: Any) -> Any:
        """T^-T (..., their nv, nv): row i is the i-th unit vector of their velocities, converted to ours."""
        (q,), xp = self._read(q)
        return self._backwards(xp, q)

    # Matrices.

    @with_fast_path(_quicker)
    def mass_matrix_to(self, q: Any, H: Any) -> Any:
        """Converts our mass matrix (..., nv, nv) to theirs."""
        (q, H), xp = self._without_followers("mass_matrix_to")._read(q, H=(H, self.nv, self.nv))
        F = self._backwards(xp, q)
        return F @ H @ _transposed(F)

    @with_fast_path(_quicker)
    def mass_matrix_from(self, q: Any, H: Any) -> Any:
        """Converts their mass matrix (..., nv, nv) to ours. q is ours."""
        (q, H), xp = self._without_followers("mass_matrix_from")._read(q, H=(H, self.nv, self.nv))
        E = self._forwards(xp, q)
        return E @ H @ _transposed(E)

    def jacobian_to(self, q: Any, J: Any) -> Any:
        """Converts a Jacobian (..., m, nv) of our velocities to theirs: only its columns change."""
        return self.tau_to(*self._rows("jacobian_to", q, J))

    def jacobian_from(self, q: Any, J: Any) -> Any:
        """Converts a Jacobian (..., m, nv) of their velocities to ours. q is ours."""
        return self.tau_from(*self._rows("jacobian_from", q, J))

    def _rows(self, name: str, q: Any, J: Any) -> tuple[Any, Any]:
        """q and a Jacobian (..., m, nv) as arrays that broadcast: its rows transform as generalised forces do."""
        plain = type(q) is np.ndarray is type(J) and q.shape == (self.model.nq,) and J.ndim > 1
        if plain and J.shape[-1] == self.nv and self._square:
            return q, J
        (q, J), _ = self._without_followers(name)._read(q, J=(J, None, self.nv))
        return q[..., None, :], J

    @with_fast_path(_quicker)
    def gradient_to(self, q: Any, tau: Any, gradient: Any) -> Any:
        """Converts the derivative (..., nv, nv) of our generalised forces on our tangent space to theirs.

        Theirs is the derivative of their forces with respect to motions along their velocities. tau (..., nv) are our
        forces at q.
        """
        (q, tau, gradient), xp = self._without_followers("gradient_to")._read(
            q, tau=(tau, self.nv), gradient=(gradient, self.nv, self.nv)
        )
        F = self._backwards(xp, q)
        return (F @ gradient + self._turning(xp, q, tau)) @ _transposed(F)

    @with_fast_path(_quicker)
    def gradient_from(self, q: Any, tau: Any, gradient: Any) -> Any:
        """Converts the derivative (..., nv, nv) of their generalised forces to ours. q and tau (..., nv) are ours."""
        (q, tau, gradient), xp = self._without_followers("gradient_from")._read(
            q, tau=(tau, self.nv), gradient=(gradient, self.nv, self.nv)
        )
        E = self._forwards(xp, q)
        return E @ (gradient @ _transposed(E) - self._turning(xp, q, tau))

    def _turning(self, xp: Any, q: Any, tau: Any) -> Any:
        """The derivative of T^-T on our tangent space times tau (..., their nv, nv).

        It is nonzero where their velocity is in world axes, because T then depends on the base's rotation.
        """
        tree, c = self._q_of_tree(xp, q), self.convention
        derivative = _zeros(xp, (*tau.shape[:-1], self.nv, self.model.nv), tau)
        units = like(xp, np.eye(3), q)
        for joint in self._joints:
            indices = self.model.v_source[joint.v]
            if joint.kind == "floating":
                linear, angular = self._halves(joint)
                quaternion, f, n = (
                    tree[..., joint.q][..., None, 3:],
                    tau[..., indices[:3].tolist()],
                    tau[..., indices[3:].tolist()],
                )
                if c.velocity_at == "com":
                    n = n - _cross(xp, like(xp, joint.com, n), f)
                for frame, at, force in ((c.linear, linear, f), (c.angular, angular, n)):
                    if frame == "world":
                        derivatives = _rotated(xp, quaternion, _cross(xp, units, force[..., None, :]), 1.0)
                        derivative[..., at, int(indices[3]) : int(indices[5]) + 1] = _transposed(derivatives)
            elif joint.kind == "planar" and c.planar == "world":
                angle, (x, y) = tree[..., joint.q][..., 2], (tau[..., int(indices[k])] for k in (0, 1))
                start = joint.their_v.start
                derivative[..., start, int(indices[2])] = -xp.sin(angle) * x - xp.cos(angle) * y
                derivative[..., start + 1, int(indices[2])] = xp.cos(angle) * x - xp.sin(angle) * y
        return derivative

    # Wrenches on bodies.

    @with_fast_path(_quicker)
    def wrench_to(self, q: Any, f_ext: Any, points: Any) -> Any:
        """Converts our wrenches on bodies to theirs (..., n, 6), in world axes.

        Args:
            q: (..., nq), ignored.
            f_ext: (..., n, 6) moment about the world's origin and force.
            points: (..., n, 3) points of application of their wrenches, in the world: MuJoCo's `xipos`, for instance.
        """
        (f_ext, points), xp = self._arrays({"f_ext": (f_ext, (6,)), "points": (points, (3,))})
        force = f_ext[..., 3:]
        moment = f_ext[..., :3] - _cross(xp, points, force)
        return _concatenated(xp, [moment, force] if self.convention.moment_first else [force, moment], f_ext)

    @with_fast_path(_quicker)
    def wrench_from(self, q: Any, points: Any, wrench: Any) -> Any:
        """Converts their wrenches (..., n, 6), applied at points (..., n, 3) in the world, to our f_ext (..., n, 6)."""
        (points, wrench), xp = self._arrays({"points": (points, (3,)), "wrench": (wrench, (6,))})
        first, second = wrench[..., :3], wrench[..., 3:]
        moment, force = (first, second) if self.convention.moment_first else (second, first)
        return _concatenated(xp, [moment + _cross(xp, points, force), force], wrench)

    # Conversions of velocities, used by all methods above.

    def _to_theirs(self, xp: Any, tree: Any, v: Any) -> Any:
        """Converts velocities of all joints of our tree to theirs."""
        c, parts = self.convention, []
        for joint in self._joints:
            velocity = v[..., joint.v]
            if joint.kind == "floating":
                quaternion, linear, angular = tree[..., joint.q][..., 3:], velocity[..., :3], velocity[..., 3:]
                if c.velocity_at == "com":
                    linear = linear + _cross(xp, angular, like(xp, joint.com, angular))
                linear = _rotated(xp, quaternion, linear, 1.0) if c.linear == "world" else linear
                angular = _rotated(xp, quaternion, angular, 1.0) if c.angular == "world" else angular
                parts += [linear, angular] if c.linear_first else [angular, linear]
            elif joint.kind == "planar" and c.planar == "world":
                parts.append(_plane_turned(xp, tree[..., joint.q][..., 2], velocity, 1.0))
            else:
                parts.append(velocity)
        return _concatenated(xp, parts, v)

    def _to_ours(self, xp: Any, tree: Any, v: Any) -> Any:
        """Converts their velocity to ours."""
        c, ours = self.convention, {}
        for joint in self._joints:
            velocity = v[..., joint.their_v]
            if joint.kind == "floating":
                quaternion = tree[..., joint.q][..., 3:]
                linear, angular = (
                    (velocity[..., :3], velocity[..., 3:]) if c.linear_first else (velocity[..., 3:], velocity[..., :3])
                )
                linear = _rotated(xp, quaternion, linear, -1.0) if c.linear == "world" else linear
                angular = _rotated(xp, quaternion, angular, -1.0) if c.angular == "world" else angular
                if c.velocity_at == "com":
                    linear = linear - _cross(xp, angular, like(xp, joint.com, angular))
                velocity = xp.concatenate((linear, angular), -1)
            elif joint.kind == "planar" and c.planar == "world":
                velocity = _plane_turned(xp, tree[..., joint.q][..., 2], velocity, -1.0)
            if not joint.follows:
                ours[joint.body] = velocity
        return _concatenated(xp, [ours[i] for i in sorted(ours)], v)

    def _drift(self, xp: Any, tree: Any, v: Any) -> Any:
        """dT/dt qd, from velocities of all joints of our tree: our axes rotate with the base, world axes do not."""
        c, parts = self.convention, []
        for joint in self._joints:
            velocity = v[..., joint.v]
            drift = 0.0 * velocity
            if joint.kind == "floating" and c.linear == "world":
                linear, angular = velocity[..., :3], velocity[..., 3:]
                if c.velocity_at == "com":
                    linear = linear + _cross(xp, angular, like(xp, joint.com, angular))
                change = _rotated(xp, tree[..., joint.q][..., 3:], _cross(xp, angular, linear), 1.0)
                drift = [change, 0.0 * change] if c.linear_first else [0.0 * change, change]
                drift = xp.concatenate(tuple(drift), -1)
            elif joint.kind == "planar" and c.planar == "world":
                x, y, rate = velocity[..., 0:1], velocity[..., 1:2], velocity[..., 2:3]
                change = xp.concatenate((-y * rate, x * rate, 0.0 * rate), -1)
                drift = _plane_turned(xp, tree[..., joint.q][..., 2], change, 1.0)
            parts.append(drift)
        return _concatenated(xp, parts, v)

    def _halves(self, joint: _Joint) -> tuple[slice, slice]:
        """Slices of a floating base's linear and angular velocity in theirs."""
        start = joint.their_v.start
        first, second = slice(start, start + 3), slice(start + 3, start + 6)
        return (first, second) if self.convention.linear_first else (second, first)

    def _without_followers(self, name: str) -> Converter:
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
        """Reads our q and other arguments, each with its trailing axes; returns broadcast arrays and their library."""
        return self._arrays(
            {"q": (q, (self.model.nq,)), **{name: (each[0], each[1:]) for name, each in others.items()}}
        )

    def _arrays(self, given: Mapping[str, tuple[Any, Axes]]) -> tuple[list[Any], Any]:
        arrays, xp, leading = read(given)
        return [
            xp.broadcast_to(array, (*leading, *array.shape[len(array.shape) - len(axes) :]))
            for array, (_, axes) in zip(arrays, given.values(), strict=True)
        ], xp

    def _forwards(self, xp: Any, q: Any) -> Any:
        """T' (..., nv, their nv)."""
        units = _units(xp, self.model.nv, q)
        return self._to_theirs(xp, self._q_of_tree(xp, q)[..., None, :], self._v_of_tree(xp, units))

    def _backwards(self, xp: Any, q: Any) -> Any:
        """T^-T (..., their nv, nv)."""
        return self._to_ours(xp, self._q_of_tree(xp, q)[..., None, :], _units(xp, self.nv, q))

    def _q_of_tree(self, xp: Any, q: Any) -> Any:
        """Expands q to the coordinates of all joints of the tree, mimicking ones included, with unit quaternions."""
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
        """Expands v to the velocities of all joints of the tree, mimicking ones included."""
        model = self.model
        return v[..., model.v_source.tolist()] * like(xp, model.v_multiplier, v) if model.has_mimic else v


class _Traced(Converter):
    """A converter of scalars of any kind, in NumPy arrays (1, ...) of one state."""

    def _arrays(self, given: Mapping[str, tuple[Any, Axes]]) -> tuple[list[Any], Any]:
        return [array for array, _ in given.values()], _ON_SCALARS


class _OnScalars:
    """NumPy's functions, for arrays of scalars of any kind."""

    sqrt, sin, cos, abs = (np.frompyfunc(function, 1, 1) for function in (np.sqrt, np.sin, np.cos, np.abs))
    arctan2 = np.frompyfunc(angle, 2, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_ON_SCALARS = _OnScalars()


def _zeros(xp: Any, shape: tuple[int, ...], other: Any) -> Any:
    return other.new_zeros(shape) if xp.__name__ == "torch" else xp.zeros(shape, dtype=other.dtype)


def _units(xp: Any, n: int, q: Any) -> Any:
    """Identity matrices (..., n, n), one for each q (..., nq)."""
    return xp.broadcast_to(like(xp, np.eye(n), q), (*q.shape[:-1], n, n))


def _unit(xp: Any, quaternion: Any) -> Any:
    """Scales a quaternion to unit length, as `robodyn.joints.unit_quaternion` does.

    Raises:
        ArgumentError: a NumPy quaternion of zero length. Other libraries' become NaN, because a check would have to
            wait for the device.
    """
    if xp is np and (nothing := (quaternion == 0.0).all(-1)).any():
        where = f" {rows_named(nothing, 0)}" if nothing.ndim else ""
        raise ArgumentError(
            f"q: a quaternion has zero length{where}; wanted four numbers that can be scaled to unit length"
        )
    with np.errstate(all="ignore"):
        step = xp.sqrt(xp.abs(quaternion)).sum(-1)[..., None]
        step = (
            step.detach() if xp.__name__ == "torch" else step
        )  # the result does not depend on `step`, so neither does its gradient
        scaled = quaternion / step / step
        return scaled / xp.sqrt((scaled * scaled).sum(-1))[..., None]


def _cross(xp: Any, a: Any, b: Any) -> Any:
    x, y, z = (a[..., k] for k in range(3))
    u, v, w = (b[..., k] for k in range(3))
    return xp.stack((y * w - z * v, z * u - x * w, x * v - y * u), -1)


def _rotated(xp: Any, quaternion: Any, vector: Any, sign: float) -> Any:
    """Rotates a vector by a unit quaternion xyzw (`sign` 1), or by its inverse (`sign` -1)."""
    axis = quaternion[..., :3]
    t = 2.0 * _cross(xp, axis, vector)
    return vector + sign * quaternion[..., 3:] * t + _cross(xp, axis, t)


def _plane_turned(xp: Any, angle: Any, v: Any, sign: float) -> Any:
    c, s, x, y = xp.cos(angle), sign * xp.sin(angle), v[..., 0], v[..., 1]
    return xp.stack((c * x - s * y, s * x + c * y, v[..., 2]), -1)


def _transposed(matrix: Any) -> Any:
    """The transpose."""
    return matrix.swapaxes(-1, -2)


def _concatenated(xp: Any, parts: list[Any], like: Any) -> Any:
    """Concatenates arrays along the last axis, after broadcasting their leading axes."""
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
    positions = {name: i for i, name in enumerate(model.joint_names)}
    names = _names("joint_names", joint_names)
    unknown = [quoted(name) for name in names if name not in positions]
    chosen = set(names)
    missing = [quoted(n) for n, i in positions.items() if model.mimics[i] < 0 and n not in chosen]
    if unknown or missing:
        problems = ((unknown, f"{model.name!r} has no joint"), (missing, "it lacks"))
        raise ArgumentError(f"joint_names: {'; '.join(f'{text} {listed(each)}' for each, text in problems if each)}")
    return [positions[name] for name in names]
