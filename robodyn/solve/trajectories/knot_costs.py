"""Costs of knots as programs of a robot: values, and gradients with Gauss-Newton Hessians.

A term is 1/2 sum w e^2. Its weights and its goal are the inputs `w` and `g` with the term's number behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from robodyn.algorithms.energy import CENTER_OF_MASS, CENTER_OF_MASS_JACOBIAN
from robodyn.algorithms.kinematics import forward_kinematics, jacobian
from robodyn.algorithms.manifold import joint_blocks, joint_by_joint, scalars, unit
from robodyn.algorithms.poses import TASKS
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.model import Model
from robodyn.core.tangent import apart_by
from robodyn.internals.records import dataclass

_POSE, _JACOBIAN = forward_kinematics(True), jacobian("world_aligned")
_ERROR, _ERROR_GRADIENT = TASKS["pose_error_world_aligned"], TASKS["pose_error_gradient_world_aligned"]
_Given = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Piece:
    """A term: "State" and "Velocity" (the parts q and qd of `State`), "Control", "Pose" or "CenterOfMass", and the link
    of a pose."""

    kind: str
    link: int = -1

    def sizes(self, controls: int) -> tuple[Sized, Sized]:
        """Of weights and of the goal."""
        if self.kind == "State":
            return Sized(("nv",)), Sized(("nq",))
        if self.kind == "Pose":
            return Sized((6,)), Sized((4, 4))
        own = Sized(("nv",) if self.kind == "Velocity" else (controls,) if self.kind == "Control" else (3,))
        return own, own

    def error(self, model: Model, given: _Given, goal: Sequence[Any], at: OfLink) -> list[Any]:
        """e, up to its sign."""
        if self.kind == "State":
            a, b = unit(model, goal), scalars(given["q"])
            return list(joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(a[at]), tuple(b[at]))))
        if self.kind == "Pose":
            return list(_ERROR.text(model, {"T1": at(_POSE, self.link)["T"], "T2": goal}, at)["error"])
        own = at(CENTER_OF_MASS)["com"] if self.kind == "CenterOfMass" else given[_ARGUMENTS[self.kind]]
        return [one - wanted for one, wanted in zip(own, goal, strict=True)]

    def jacobian(self, model: Model, given: _Given, goal: Sequence[Any], e: Sequence[Any], at: OfLink) -> Any:
        """Rows de/dq of terms that depend on q, (n, nv)."""
        nv = model.nv
        if self.kind == "State":
            return joint_blocks(model, scalars(e), apart_by)[1]
        if self.kind == "CenterOfMass":
            return scalars(at(CENTER_OF_MASS_JACOBIAN)["J"]).reshape(3, nv)
        poses = {"T1": at(_POSE, self.link)["T"], "T2": goal}
        by_pose = scalars(_ERROR_GRADIENT.text(model, poses, at)["by_T1"]).reshape(6, 6)
        return by_pose @ scalars(at(_JACOBIAN, self.link)["J"]).reshape(6, nv)


_ARGUMENTS = {"Velocity": "qd", "Control": "u"}


def _inputs(pieces: Sequence[Piece], controls: int) -> dict[str, Sized]:
    """The state, the control if there is one, weights and goals."""
    sizes = {"q": Sized(("nq",)), "qd": Sized(("nv",))} | ({"u": Sized((controls,))} if controls else {})
    for number, piece in enumerate(pieces):
        sizes[f"w{number}"], sizes[f"g{number}"] = piece.sizes(controls)
    return sizes


def _name(what: str, pieces: Sequence[Piece], controls: int) -> str:
    words = (f"{piece.kind}{piece.link}" if piece.link >= 0 else piece.kind for piece in pieces)
    return "_".join((what, str(controls), *words))


@cache
def value_task(pieces: tuple[Piece, ...], controls: int) -> ScalarTask:
    """The cost (1,) of a knot. `controls`: number of controls, 0 for the last knot."""

    def text(model: Model, given: _Given, at: Any) -> Mapping[str, Any]:
        total: Any = 0.0
        for number, piece in enumerate(pieces):
            e = piece.error(model, given, given[f"g{number}"], at)
            for w, each in zip(given[f"w{number}"], e, strict=True):
                total = total + w * each * each
        return {"cost": [0.5 * total]}

    name = _name("cost_of_knot", pieces, controls)
    return ScalarTask(name, _inputs(pieces, controls), {"cost": Sized((1,))}, text)


def is_diagonal(pieces: Sequence[Piece], flat: bool) -> bool:
    """Whether the Hessian of the state is diagonal. `flat`: all joints have one coordinate."""
    return all(piece.kind in _ARGUMENTS or (flat and piece.kind == "State") for piece in pieces)


@cache
def expansion_task(pieces: tuple[Piece, ...], controls: int, nv: int, diagonal: bool) -> ScalarTask:
    """The quadratic model of the cost of a knot: lx (2 nv,), lxx (2 nv, 2 nv), or (2 nv,) of a `diagonal` one, and with
    controls lu (controls,) and the diagonal luu (controls,)."""
    nx = 2 * nv

    def text(model: Model, given: _Given, at: Any) -> Mapping[str, Any]:
        lx, lxx = [0.0] * nx, [[0.0] * nx for _ in range(nx)]
        lu, luu = [0.0] * controls, [0.0] * controls
        for number, piece in enumerate(pieces):
            w, goal = given[f"w{number}"], given[f"g{number}"]
            e = piece.error(model, given, goal, at)
            if piece.kind == "Control":
                for k, (weight, each) in enumerate(zip(w, e, strict=True)):
                    lu[k], luu[k] = lu[k] + weight * each, luu[k] + weight
                continue
            if piece.kind == "Velocity" or diagonal:
                start = nv if piece.kind == "Velocity" else 0
                for k, (weight, each) in enumerate(zip(w, e, strict=True), start):
                    lx[k], lxx[k][k] = lx[k] + weight * each, lxx[k][k] + weight
                continue
            J = piece.jacobian(model, given, goal, e, at)
            for weight, each, row in zip(w, e, J, strict=True):
                for i in range(nv):
                    part = weight * row[i]
                    lx[i] = lx[i] + part * each
                    for j in range(i, nv):
                        lxx[i][j] = lxx[i][j] + part * row[j]
        for i in range(nv):
            for j in range(i):
                lxx[i][j] = lxx[j][i]
        entries = [lxx[i][i] for i in range(nx)] if diagonal else [each for row in lxx for each in row]
        return {"lx": lx, "lxx": entries} | ({"lu": lu, "luu": luu} if controls else {})

    outputs = {"lx": Sized((nx,)), "lxx": Sized((nx,) if diagonal else (nx, nx))}
    if controls:
        outputs |= {"lu": Sized((controls,)), "luu": Sized((controls,))}
    name = _name("diagonal_model_of_knot" if diagonal else "model_of_knot", pieces, controls)
    return ScalarTask(name, _inputs(pieces, controls), outputs, text)
