"""Finds out from a rollout's inputs why rows diverged. It runs after the divergence, so other rollouts cost nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.api.motion.equations import Equations
from robodyn.core.model import Model
from robodyn.internals.arguments import Array, row_named
from robodyn.internals.messages import quoted

if TYPE_CHECKING:
    from robodyn.api.motion.run import Run

_MOST_ROWS = 5
"""At most this many rows are examined."""


def causes(run: Run, diverged: Mapping[int, int], untold: Collection[int] = ()) -> str:
    """Sentences that state why rows diverged, or that a smaller dt may help.

    Args:
        run: the rollout.
        diverged: by row of the batch, the step after which its state was not finite.
        untold: rows for which the policy returned forces that are not finite.
    """
    rows_by_cause: dict[str, list[str]] = {}
    for row, step in list(diverged.items())[:_MOST_ROWS]:
        cause = "the policy returned a tau that is not finite" if row in untold else _cause(run, row, step)
        rows_by_cause.setdefault(cause, []).append(row_named(row, run.start.leading))
    messages = [(f"{', '.join(rows)}: " if rows[0] else "") + cause for cause, rows in rows_by_cause.items() if cause]
    sentences = [each[0].upper() + each[1:] for each in messages]
    if "" in rows_by_cause or len(diverged) > _MOST_ROWS:
        sentences.append("A smaller dt may help" + (" the others" if messages else ""))
    return ". ".join(sentences)


def _cause(run: Run, row: int, step: int) -> str:
    """The input that made a row diverge in a step; "" if the inputs do not show it."""
    q0, qd0 = (run.library.to_numpy(array[row]) for array in run.as_given_at_start())
    cause = _not_finite(run.dyn.model, "q0", q0) or _not_finite(run.dyn.model, "qd0", qd0)
    cause = cause or _without_length(run.dyn.model, "q0", q0)
    for name, array in run.as_given.items():
        if cause:
            return cause
        cause = _of_input(run, name, run.library.to_numpy(array[: max(step, 1), row]))
    return cause or _off_constraints(run, row)


def _of_input(run: Run, name: str, values: Array) -> str:
    """Description of the first bad entry of an input (steps, ...) or (1, ...); "" if there is none."""
    axes = tuple(range(1, values.ndim))
    wrong = ~np.isfinite(values).all(axis=axes)
    if name == "q_des" and run.dyn.model.quaternion_starts.size:
        wrong |= np.array([bool(_without_length(run.dyn.model, name, each)) for each in values])
    if not wrong.any():
        return ""
    k = int(np.flatnonzero(wrong)[0])
    when = f" for step {k + 1} (index {k})" if name in run.timed else ""
    model, label = run.dyn.model, f"{name}{when}"
    return _not_finite(model, label, values[k], name) or _without_length(model, label, values[k])


def _not_finite(model: Model, said: str, values: Array, name: str = "") -> str:
    """Description of the first NaN or infinite entry of an input (...); "" if there is none."""
    wrong = np.argwhere(~np.isfinite(values))
    if not len(wrong):
        return ""
    at = tuple(wrong[0].tolist())
    names = _names(model, name or said)
    where = "" if not at else f" at {quoted(names[at[0]])}" if names else f" at index {', '.join(map(str, at))}"
    return f"{said} is {'NaN' if np.isnan(values[at]) else 'infinite'}{where}"


def _names(model: Model, name: str) -> Any:
    """Names of the entries along the first axis of an input."""
    if name in ("q0", "q_des"):
        return model.coordinate_names
    if name in ("f_ext", "inertia"):
        return model.body_names
    if name in ("targets", "active"):
        return [each.name for each in model.constraints]
    return None if name in ("gravity", "V0", "dV0") else model.velocity_names


def _without_length(model: Model, said: str, q: Array) -> str:
    """Description of the first quaternion of zero length in a configuration (nq,); "" if there is none."""
    for start in model.quaternion_starts.tolist():
        if not q[start : start + 4].any():
            return f"the quaternion of {said} that starts at {quoted(model.coordinate_names[start])} has zero length"
    return ""


def _off_constraints(run: Run, row: int) -> str:
    """Description of the constraint that the first state violates; "" if it violates none."""
    model = run.dyn.model
    if not model.constraints:
        return ""
    options = {
        name: run.library.to_numpy(run.given[name][0, row]) for name in ("targets", "active") if name in run.given
    }
    equations = Equations(run.dyn.variant(engine="reference"), **options)
    off = equations.off(run.library.to_numpy(run.first()[0][row]))
    if off is None:
        return ""
    return f"the start is off the constraints, {off}: model.assemble(q0) finds a start on them"
