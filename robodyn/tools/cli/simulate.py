"""The command `simulate`: a robot through time, with its contacts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.core.tables import console, rollout_table
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import require_writable, whole_file
from robodyn.internals.messages import printable, quoted
from robodyn.io.builders.mjcf_keyframes import INITIAL
from robodyn.tools.cli.states import numbers
from robodyn.tools.plots.trajectories import MOST_COORDINATES

_MJCF = (".xml", ".mjcf", ".mjb")
_MOST_STEPS = 10_000_000
_FIGURES = (".svg", ".png", ".pdf")


def contacts_of(file: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a reader for contacts: those of MJCF are read, unless they are left out."""
    wanted = options["contacts"]
    if wanted is None:
        wanted = Path(file).suffix.lower() in _MJCF
    if not wanted:
        if options["max_contacts"] is not None:
            raise ArgumentError("--max-contacts: there are no contacts; they are read from MJCF, with --contacts")
        return {}
    unsupported = "ignore" if options["ignore_unsupported"] else "refuse"
    return {"contacts": True, "max_contacts": options["max_contacts"], "unsupported": unsupported}


def simulate(load: Callable[[], Model], options: dict[str, Any]) -> bool:
    """Simulate, print a summary, and write files; True if the state stays finite."""
    page, out, figure = (
        None if options[key] is None else require_writable(options[key], f"--{key}") for key in ("html", "out", "plot")
    )
    if figure is not None and figure.suffix.lower() not in _FIGURES:
        raise ArgumentError(f"--plot: got {printable(str(figure))}; wanted a name that ends in {', '.join(_FIGURES)}")
    if figure is not None:
        from robodyn.tools.plots.style import pyplot

        pyplot("--plot")  # before the simulation, which may take long
    steps = max(1, round(options["seconds"] / options["dt"]))
    if steps > _MOST_STEPS:
        raise ArgumentError(f"--seconds: got {options['seconds']:g}, {steps} steps; wanted at most {_MOST_STEPS}")
    model = load()
    if figure is not None and not 0 < model.nq <= MOST_COORDINATES:
        raise ArgumentError(
            f"--plot: {quoted(model.name)} has {model.nq} coordinates; wanted 1 to {MOST_COORDINATES}, or "
            "Rollout.plot(joints=...) in Python"
        )
    forces = [word.strip() for word in options["joint_forces"].split(",") if word.strip()]
    dyn = Dynamics(model, joint_forces=forces)
    q = model.configurations.get(INITIAL, model.neutral())
    if options["q"] is not None:
        q = np.array(numbers("--q", options["q"], model.coordinate_names))
    if options["keyframe"] is not None:
        if options["q"] is not None or options["keyframe"] not in model.configurations:
            known = ", ".join(map(quoted, model.configurations)) or "none"
            raise ArgumentError(f"--keyframe: got {quoted(options['keyframe'])}; wanted one of {known}, and no --q")
        q = model.configurations[options["keyframe"]]
    qd = np.zeros(model.nv)
    if options["qd"] is not None:
        qd = np.array(numbers("--qd", options["qd"], model.velocity_names))
    begun = time.perf_counter()
    run = dyn.rollout(q, qd, None, options["dt"], steps, integrator=options["integrator"])
    taken = time.perf_counter() - begun
    console().print(rollout_table(run))
    print(f"{printable(model.name)}: {run.t[-1]:g} s by {options['integrator']!r} in {taken:.3g} s")
    if model.contacts is not None:
        print(f"{len(model.contacts.pairs)} pairs of shapes; forces of contacts converged: {bool(run.converged)}")
    if out is not None:
        run.save(out)
        print(f"wrote {printable(str(out))}")
    if page is not None:
        run.save_html(page)
        print(f"wrote {printable(str(page))}")
    if figure is not None:
        drawn = run.plot(model=dyn)
        with whole_file(figure, "--plot") as file:
            drawn.savefig(file, format=figure.suffix[1:].lower())
        print(f"wrote {printable(str(figure))}")
    return bool(run.diverged < 0)
