"""Shapes of robots that others publish, written and read again: `python tests/written_shapes.py --write`.

Every URDF of the installed packages, of the shared collection and of models/.
"""

from __future__ import annotations

import sys
import sysconfig
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from robots import OWN, SHARED, example_robot_data  # noqa: E402

import robodyn as rd  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "written_shapes.md"
CLOSE = 1e-12


def looks(geometry: Any) -> tuple[Any, ...]:
    """What is to be the same again, but for the pose; a mesh by the name of its file alone."""
    mesh = Path(geometry.mesh).name
    return geometry.link, geometry.role, geometry.kind, geometry.size, geometry.color, geometry.name, mesh


def same(model: rd.Model, back: rd.Model) -> bool:
    """Whether two models have the same shapes and kept elements."""
    pairs = zip(model.geometries, back.geometries, strict=False)
    numbers = [((*a.pose.xyz, *a.pose.rotation), (*b.pose.xyz, *b.pose.rotation)) for a, b in pairs]
    kept = (sorted(each.text for each in robot.extensions) for robot in (model, back))
    return (
        list(map(looks, model.geometries)) == list(map(looks, back.geometries))
        and all(np.allclose(a, b, rtol=0.0, atol=CLOSE) for a, b in numbers)
        and next(kept) == next(kept)
    )


def count(path: Path, found: Counter[str]) -> None:
    """Write one robot, read it again, and count what became of it."""
    found["files"] += 1
    try:
        model = rd.load_urdf(path, strict=False)
    except rd.RobodynError:
        found["refused as they are read"] += 1
        return
    found["visuals"] += sum(each.role == "visual" for each in model.geometries)
    found["collisions"] += sum(each.role == "collision" for each in model.geometries)
    found["other elements that are kept"] += len(model.extensions)
    found["written as URDF and not the same again"] += not same(model, rd.load_urdf(str(model.to_urdf()), strict=False))
    try:
        text = model.to_mjcf()
        found["geoms in MuJoCo"] += mujoco.MjModel.from_xml_string(str(text)).ngeom
        found["written as MJCF and compiled by MuJoCo"] += 1
    except (rd.UnavailableError, ValueError) as error:
        reported = isinstance(error, rd.UnavailableError) or "refused-by-mujoco" in {each.code for each in text.report}
        found["not compiled, " + ("as the report says" if reported else "and the report does not say so")] += 1


def main() -> None:
    """Print the page, and store it where that is asked for."""
    warnings.simplefilter("ignore")
    installed = Path(sysconfig.get_path("purelib")).glob("[!.]*/**/*.urdf")
    found: Counter[str] = Counter()
    for path in sorted({*installed, *example_robot_data(), *SHARED, *OWN}):
        count(path, found)
    lines = [
        "# Shapes that are written",
        "",
        "Printed by `python tests/written_shapes.py --write`: every URDF file of the packages that are installed",
        "(example-robot-data, PyBullet and Drake among them), of a collection of 44 robots and of models/, written",
        f"and read again. Shapes have to be the same, poses to {CLOSE:g}. MuJoCo {mujoco.__version__}.",
        "",
        "| | |",
        "|---|---:|",
        *(f"| {what} | {found[what]:,} |" for what in sorted(found, key=lambda what: (-found[what], what))),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
