"""The configuration manifold as tasks: operations of `robodyn.Model` on one configuration, joint by joint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from robodyn.algorithms.definite import is_zero
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import JointKind, unit_quaternion
from robodyn.core.model import Model
from robodyn.core.tangent import apart_by, moved_by

_Given = Mapping[str, Sequence[Any]]
_Q, _V, _MATRIX = Sized(("nq",)), Sized(("nv",)), Sized(("nv", "nv"))


def joint_by_joint(model: Model, result: str, operation: Callable[[JointKind, Any, Any], Any]) -> Any:
    """An array of scalars (nq,) for a `result` "q", (nv,) for "v".

    For every joint that mimics none, `operation` computes its entries from its kind and its indices in q and in v.
    """
    out = np.zeros(model.nq if result == "q" else model.nv, dtype=object)
    for kind, q_index, v_index in model.free_joints:
        for at, along in zip(q_index, v_index, strict=True):
            for place, value in zip(at if result == "q" else along, operation(kind, at, along), strict=True):
                out[place] = value
    return out


def scalars(values: Sequence[Any]) -> Any:
    """A NumPy array of expressions and numbers."""
    out = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):  # one by one: NumPy would read the elements of device arrays
        out[k] = value
    return out


def unit(model: Model, q: Sequence[Any]) -> Any:
    """A configuration whose quaternions are scaled to unit length, as an array of scalars."""
    scaled = scalars(q)
    for start in model.quaternion_starts.tolist():
        scaled[start : start + 4] = scalars(unit_quaternion(tuple(scaled[start : start + 4])))
    return scaled


_BY_ENTRY = SimpleNamespace(
    cos=np.frompyfunc(np.cos, 1, 1),
    sin=np.frompyfunc(np.sin, 1, 1),
    stack=np.stack,
    concatenate=np.concatenate,
    linalg=np.linalg,
)
"""NumPy for arrays of scalars: its own functions of angles do not ask the entries."""


def rates_of_coordinates(model: Model, q: Sequence[Any]) -> list[dict[int, Any]]:
    """G of dq/dt = G v, row by row, without structural zeros."""
    rows: list[dict[int, Any]] = [{} for _ in q]
    for kind, q_index, v_index in model.free_joints:
        for at, along in zip(q_index, v_index, strict=True):
            place = np.stack([scalars([q[i] for i in at])] * kind.nv)
            for dof, rates in zip(along, kind.rate(place, np.eye(kind.nv).astype(object), _BY_ENTRY), strict=True):
                for i, slope in zip(at, rates, strict=True):
                    if not is_zero(slope):
                        rows[i][int(dof)] = slope
    return rows


def _moved(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    q, step = unit(model, given["q"]), scalars(given["qd"])
    if "dt" in given:
        step = step * scalars(given["dt"])
    moved = joint_by_joint(model, "q", lambda kind, at, along: kind.integrate(tuple(q[at]), tuple(step[along])))
    return {"moved": list(moved)}


def _apart(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    a, b = unit(model, given["q0"]), unit(model, given["q1"])
    return {"step": list(joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(a[at]), tuple(b[at]))))}


def _between(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    a, b, (t,) = unit(model, given["q0"]), unit(model, given["q1"]), given["t"]

    def operation(kind: JointKind, at: Any, _: Any) -> Any:
        step = kind.difference(tuple(a[at]), tuple(b[at]))
        return kind.integrate(tuple(a[at]), tuple(t * each for each in step))

    return {"between": list(joint_by_joint(model, "q", operation))}


def _length(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    squares = [each * each for each in _apart(model, given, _)["step"]]
    while len(squares) > 1:  # in pairs: terms that are computed late, as those of attitudes, have few sums after them
        squares = [sum(squares[k : k + 2]) for k in range(0, len(squares), 2)]
    return {"length": [np.sqrt(sum(squares, 0.0))]}


def _unit(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    return {"unit": list(unit(model, given["q"]))}


def joint_blocks(model: Model, step: Any, derivatives: Callable[[JointKind, Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Two matrices of scalars (nv, nv) with a block for every joint that mimics none."""
    pair = np.zeros((2, model.nv, model.nv), dtype=object)
    for kind, _, v_index in model.free_joints:
        for along in v_index:
            for out, block in zip(pair, derivatives(kind, step[along]), strict=True):
                out[np.ix_(along, along)] = block
    return pair[0], pair[1]


def _moved_gradient(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    dt = scalars(given["dt"]) if "dt" in given else 1.0
    by_q, by_step = joint_blocks(model, scalars(given["qd"]) * dt, moved_by)
    return {"by_q": list(by_q.ravel()), "by_qd": list((by_step * dt).ravel())}


def _apart_gradient(model: Model, given: _Given, _: Any) -> Mapping[str, Any]:
    by_q0, by_q1 = joint_blocks(model, scalars(_apart(model, given, _)["step"]), apart_by)
    return {"by_q0": list(by_q0.ravel()), "by_q1": list(by_q1.ravel())}


NORMALIZE = ScalarTask("normalize", {"q": _Q}, {"unit": _Q}, _unit)
"""`Model.normalize`."""
INTEGRATE = ScalarTask("integrate", {"q": _Q, "qd": _V}, {"moved": _Q}, _moved)
"""`Model.integrate` for one second."""
INTEGRATE_FOR = ScalarTask("integrate_for", {"q": _Q, "qd": _V, "dt": Sized(())}, {"moved": _Q}, _moved)
"""`Model.integrate` for dt seconds."""
INTEGRATE_GRADIENT = ScalarTask(
    "integrate_gradient", {"q": _Q, "qd": _V}, {"by_q": _MATRIX, "by_qd": _MATRIX}, _moved_gradient
)
"""`Model.integrate_gradient` for one second."""
INTEGRATE_GRADIENT_FOR = ScalarTask(
    "integrate_gradient_for",
    {"q": _Q, "qd": _V, "dt": Sized(())},
    {"by_q": _MATRIX, "by_qd": _MATRIX},
    _moved_gradient,
)
"""`Model.integrate_gradient` for dt seconds."""
DIFFERENCE_GRADIENT = ScalarTask(
    "difference_gradient", {"q0": _Q, "q1": _Q}, {"by_q0": _MATRIX, "by_q1": _MATRIX}, _apart_gradient
)
"""`Model.difference_gradient`."""
DIFFERENCE = ScalarTask("difference", {"q0": _Q, "q1": _Q}, {"step": _V}, _apart)
"""`Model.difference`."""
INTERPOLATE = ScalarTask("interpolate", {"q0": _Q, "q1": _Q, "t": Sized(())}, {"between": _Q}, _between)
"""`Model.interpolate`."""
DISTANCE = ScalarTask("distance", {"q0": _Q, "q1": _Q}, {"length": Sized(())}, _length)
"""`Model.distance`."""
