"""The command `ik`: finds a configuration for a pose, and prints it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from robodyn.core.description import rotation_from_rpy
from robodyn.core.model import Model
from robodyn.core.tables import console, number_tables, units
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import printable
from robodyn.solve.inverse_kinematics.solver import InverseKinematics
from robodyn.solve.inverse_kinematics.tasks import (
    POSTURES,
    ManipulabilityTask,
    PoseTask,
    PositionTask,
    PostureTask,
    Task,
)
from robodyn.tools.cli.obstacle_files import read_obstacles
from robodyn.tools.cli.results import linked
from robodyn.tools.cli.states import numbers


def solve(model: Model, options: dict[str, Any]) -> bool:
    """Find and print a configuration; True if it reaches the target.

    Raises:
        ArgumentError: a text that is no number, or an unknown link.
    """
    point = numbers("--point", options["point"], ("x", "y", "z")) if options["point"] is not None else (0.0, 0.0, 0.0)
    target = np.eye(4)
    if options["position"] is None and options["rpy"] is None:
        raise ArgumentError("--position: not given; wanted --position X,Y,Z, --rpy R,P,Y, or both")
    if options["position"] is not None:
        target[:3, 3] = numbers("--position", options["position"], ("x", "y", "z"))
    if options["rpy"] is not None:
        rotation = rotation_from_rpy(*numbers("--rpy", options["rpy"], ("r", "p", "y")))
        target[:3, :3] = np.array(rotation, float).reshape(3, 3)
    task: Task
    link = linked(model, options["link"])
    model.link_index(link)  # raises here, because an error of the solver would mention numbers of tasks
    if options["rpy"] is None:
        task = PositionTask(link, point=point)
    else:
        task = PoseTask(link, weight=(1.0, float(options["position"] is not None)), point=point)
    names = model.coordinate_names
    start = None if options["q"] is None else numbers("--q", options["q"], names)
    things = None if options["obstacles"] is None else read_obstacles(options["obstacles"])
    apart = {"clearance": options["clearance"], "obstacles": things}
    tasks: list[Task] = [task]
    if options["posture"] is not None:
        tasks.append(PostureTask(one_of("--posture", options["posture"], POSTURES)))
    if options["manipulability"]:
        axes = "translation" if options["rpy"] is None else "rotation" if options["position"] is None else "all"
        tasks.append(ManipulabilityTask(link, axes=axes))
    solver = InverseKinematics(model, tasks, limits=not options["without_limits"], **apart)
    q, report = solver.solve(target, start, seeds=options["seeds"])
    if not np.isfinite(q).all():
        raise ArgumentError(f"--position: got {options['position']!r}; wanted a place whose distance can be squared")
    off, turned = (float(each) for each in report.residual[0])
    done = bool(report.converged)
    if options["json"]:
        contents = {"converged": done, "q": q.tolist(), "residual": {"m": off, "rad": turned}}
        if report.clearance is not None:
            contents["clearance"] = float(report.clearance)
        print(json.dumps({**contents, "iterations": int(report.iterations), "start": int(report.start)}, indent=2))
        return done
    screen, each = console(), zip(names, units(model, "q"), strict=True)
    columns = [f"{printable(name)}\n[{unit}]" if unit else printable(name) for name, unit in each]
    for table in number_tables("q", [""], columns, q[None], screen.width):
        screen.print(table)
    what = "reached" if done else "not reached: this is the nearest that was found"
    kept = "" if report.clearance is None else f"; shapes at least {float(report.clearance):.3g} m apart"
    print(f"{printable(options['link'])} {what}, {off:.3g} m and {turned:.3g} rad off{kept}")
    return done
