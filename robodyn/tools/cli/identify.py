"""The command `identify`: parameters of a robot from a log of positions and torques."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from robodyn.core.model import Model
from robodyn.core.tables import console
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import printable, quoted
from robodyn.solve.identification.differentiation import differentiate
from robodyn.solve.identification.identify import identify
from robodyn.solve.identification.result import Identification
from robodyn.tools.cli import edits
from robodyn.tools.cli.state_files import read_state_file

_ILL = 100.0
"""A condition number from which the motion hardly tells some base parameters."""

_ALIKE = 1.0 / 1.8
"""The time for which noise is alike behind the filter of `differentiate`, in periods of its cutoff."""


def run(model: Model, options: dict[str, Any]) -> None:
    """Identify, print what was found, and write the robot where `out` says.

    Raises:
        ArgumentError: a log without q or tau, or one without velocities when `rate` is not given.
    """
    motion = _read(model, options)
    friction = "stribeck" if options["stribeck"] else options["friction"]
    found = identify(model, *motion, friction=friction, armature=options["armature"], consistent=options["consistent"])
    if options["out"] is not None:
        with contextlib.redirect_stdout(sys.stderr if options["json"] else sys.stdout):
            edits.write(found.model, options["out"], {"meshes": "auto", "package_dir": None})
    if options["json"]:
        print(json.dumps(_contents(found), indent=2))
        return
    screen = console()
    for table in _tables(model, found):
        screen.print(table)
    print(
        f"{len(found.base_values)} base parameters of {len(found.values)} unknowns from {found.samples} samples; "
        f"condition {found.condition:.3g}" + " (the motion hardly tells some of them)" * (found.condition > _ILL)
    )


def _read(model: Model, options: dict[str, Any]) -> tuple[Array, Array, Array, Array]:
    path = Path(options["log"])
    try:
        arrays = read_state_file(model, ("q", "qd", "qdd", "tau"), path)
    except (ArgumentError, NumericalError) as error:
        raise type(error)(f"LOG {quoted(path.name)}: {error}") from None
    missing = [name for name in ("q", "tau") if name not in arrays]
    if missing:
        raise ArgumentError(f"LOG {quoted(path.name)}: it has no {' and no '.join(missing)}")
    q, tau, cutoff, rate = arrays["q"], arrays["tau"], options["cutoff"], options["rate"]
    if rate is None:
        if cutoff is not None:
            raise ArgumentError("--cutoff: wants --rate, the samples a second")
        if "qd" not in arrays or "qdd" not in arrays:
            raise ArgumentError(f"LOG {quoted(path.name)}: without qd and qdd, --rate is wanted: the samples a second")
        return q, arrays["qd"], arrays["qdd"], tau
    dt = 1.0 / rate
    q, qd, qdd = differentiate(q, dt, cutoff, model=model)
    tau = differentiate(tau, dt, cutoff)[0]
    if cutoff is None:
        return q, qd, qdd, tau
    # The filter knows nothing of what was before and after, and noise of what it leaves is alike for _ALIKE / cutoff.
    ends = min(len(q) // 4, round(rate / cutoff))
    inner = slice(ends, len(q) - ends, math.ceil(_ALIKE * rate / cutoff))
    return q[inner], qd[inner], qdd[inner], tau[inner]


def _contents(found: Identification) -> dict[str, Any]:
    def numbers(array: Array) -> list[float | None]:
        return [float(each) if np.isfinite(each) else None for each in array]

    return {
        "parameters": dict(zip(found.names, numbers(found.values), strict=True)),
        "standard_deviation": dict(zip(found.names, numbers(found.standard_deviation), strict=True)),
        "base_parameters": dict(zip(found.base_names, numbers(found.base_values), strict=True)),
        "base_interval": dict(zip(found.base_names, found.base_interval.tolist(), strict=True)),
        "unseen": list(found.unseen),
        "noise": numbers(found.noise),
        "torque_error": numbers(found.torque_error),
        "misfit": found.misfit,
        "condition": found.condition,
        "samples": found.samples,
    }


def _tables(model: Model, found: Identification) -> list[Table]:
    """One row a body, and one a joint."""
    values = dict(zip(found.names, zip(found.values, found.standard_deviation, strict=True), strict=True))

    def shown(name: str) -> str:
        if name not in values:
            return ""
        value, deviation = values[name]
        return f"{value:.4g}" + (f" ± {deviation:.1g}" if np.isfinite(deviation) else "")

    bodies = Table(title="Bodies: mass, centre of mass", title_justify="left")
    for heading in ("body", "m, kg", "before, kg", "c, m"):
        bodies.add_column(heading, justify="left" if heading == "body" else "right")
    for k, name in enumerate(model.body_names):
        m, *h = found.model.inertia[k, :4].tolist()
        centre = ", ".join(f"{each / m:.4f}" for each in h) if m else ""
        bodies.add_row(printable(name), shown(f"{name}.m"), f"{model.inertia[k, 0]:.4g}", centre)
    kinds = [
        kind for kind in ("armature", "damping", "friction", "stribeck") if any(n.endswith(f".{kind}") for n in values)
    ]
    joints = Table(title="Joints (± standard deviation, where the data tell it)", title_justify="left")
    for heading in ("joint", *kinds, "noise of tau", "torque error"):
        joints.add_column(heading, justify="left" if heading == "joint" else "right")
    for k, name in enumerate(model.velocity_names):
        rest = (f"{found.noise[k]:.3g}", f"{found.torque_error[k]:.3g}")
        joints.add_row(printable(name), *(shown(f"{name}.{kind}") for kind in kinds), *rest)
    return [bodies, joints]
