"""MJCF and SDF that others publish, loaded and compared: `python tests/formats.py --write`.

Files of packages on the index, unpacked into a folder and never installed. What MuJoCo compiles is loaded with
`robodyn.load_mjcf`, what Drake reads of SDF with `robodyn.load_sdf`; inverse and forward dynamics, mass matrices and
poses of all bodies are compared with theirs at random states, constraints and passive forces switched off.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import drake_oracle  # noqa: E402

import robodyn as rd  # noqa: E402

SDF_PACKAGES = ("drake", "pybullet")
PACKAGES = ("dm_control", "gymnasium", "gymnasium-robotics", "mujoco-mjx", "robosuite", "metaworld")
PAGE = ROOT / "docs" / "benchmarks" / "formats.md"
MOST_DOFS, STATES, GOOD = 300, 3, 1e-8


@dataclass
class Result:
    """What became of a file: "agrees", "reported", "refused" or "not a robot", and why."""

    package: str
    file: str
    outcome: str
    why: str
    errors: dict[str, float]


def unpacked(package: str, folder: Path) -> Path:
    """The files of a package's wheel."""
    target = folder / package
    if not target.exists():
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), package]
        subprocess.run(command, check=True)
        (wheel,) = wheels.glob(f"{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    return target


def compared(mujoco: Any, path: Path) -> tuple[str, str, dict[str, float]]:
    """The outcome for one file."""
    try:
        theirs = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        return (
            "not a robot",
            f"MuJoCo does not compile it: {str(error).splitlines()[0].replace(str(path.parent), '.')[:60]}",
            {},
        )
    if not 0 < theirs.nv <= MOST_DOFS:
        return "not a robot", f"{theirs.nv} degrees of freedom", {}
    try:
        model = rd.load_mjcf(theirs)
        way = rd.converter(model, "mujoco")
    except rd.RobodynError as error:
        return "refused", str(error)[:100], {}
    errors = _errors(mujoco, theirs, model, way)
    worst = max(errors.values())
    if worst < GOOD:
        return ("agrees", "", errors) if "FD" in errors else ("reported", "the mass matrix is singular", errors)
    codes = [each.code for each in model.report if each.code in ("mjcf-free-armature", "mjcf-tendon", "mjcf-flex")]
    return ("reported" if codes else "differs"), ", ".join(codes), errors


def compared_sdf(path: Path) -> tuple[str, str, dict[str, float]]:
    """The outcome for one file of SDF."""
    try:
        model = rd.load_sdf(path)
    except rd.LoadError as error:
        refused = str(error)[:100]
    else:
        refused = ""
    try:
        text, done = drake_oracle.readable(path)
    except RuntimeError as error:
        why = " ".join(str(error).split("error:")[-1].split())[:60]
        return ("neither reads it", refused, {}) if refused else ("loaded, not compared", why, {})
    if refused:
        return "refused", refused, {}
    errors = drake_oracle.errors(text, rd.load_sdf(text, gravity=drake_oracle.DOWN), STATES)
    about = f"{model.nv} degrees of freedom" + (f"; {done}" if done else "")
    return ("agrees" if max(errors.values()) < GOOD else "differs"), about, errors


def _errors(mujoco: Any, theirs: Any, model: rd.Model, way: Any) -> dict[str, float]:
    """The largest errors, relative to the largest number there is."""
    flags = mujoco.mjtDisableBit
    theirs.opt.disableflags |= int(flags.mjDSBL_CONSTRAINT)
    for name in ("mjDSBL_SPRING", "mjDSBL_DAMPER", "mjDSBL_PASSIVE"):
        if hasattr(flags, name):
            theirs.opt.disableflags |= int(getattr(flags, name))
    theirs.opt.density = theirs.opt.viscosity = 0.0
    theirs.body_gravcomp[:] = 0.0
    data, dyn = mujoco.MjData(theirs), rd.Dynamics(model, engine="reference")
    rng, found = np.random.default_rng(0), Counter()
    for _ in range(STATES):
        q = model.random_configuration(rng)
        qd, qdd = rng.uniform(-1.0, 1.0, (2, model.nv))
        data.qpos[:], data.qvel[:], data.qacc[:] = way.q_to(q), way.v_to(q, qd), way.a_to(q, qd, qdd)
        mujoco.mj_inverse(theirs, data)
        tau = dyn.inverse_dynamics(q, qd, qdd)
        _note(found, "ID", way.tau_to(q, tau), data.qfrc_inverse)
        H = np.zeros((theirs.nv, theirs.nv))
        for row, unit in zip(H, np.eye(theirs.nv), strict=True):
            mujoco.mj_mulM(theirs, data, row, unit)
        _note(found, "H", way.mass_matrix_to(q, dyn.mass_matrix(q)), H)
        if dyn.singularity() is None:
            back = dyn.forward_dynamics(q, qd, tau)
            _note(found, "FD", dyn.inverse_dynamics(q, qd, back), tau)
        poses = dyn.forward_kinematics(q)
        for b in range(theirs.nbody):
            name = mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_BODY, b) or f"body_{b}"
            pose = poses[model.link_names.index(name)]
            _note(found, "FK", pose[:3, 3], data.xpos[b], 1.0)
            _note(found, "FK", pose[:3, :3].ravel(), data.xmat[b], 1.0)
    return dict(found)


def _note(found: Counter[str], name: str, got: Any, wanted: Any, least: float = 1e-3) -> None:
    error = np.abs(got - wanted).max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), least)
    found[name] = max(found[name], float("inf") if np.isnan(error) else float(error))


def main() -> None:
    """Print the table, and store it."""
    import mujoco

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "robodyn-formats"))
    asked = parser.parse_args()
    mujoco.set_mju_user_warning(lambda _: None)
    results = []
    for package in PACKAGES:
        root = unpacked(package, Path(asked.folder))
        for path in sorted(root.rglob("*.xml")):
            if "<mujoco" not in path.read_text(errors="replace")[:20000]:
                continue
            results.append(Result(package, str(path.relative_to(root)), *compared(mujoco, path)))
            if results[-1].outcome in ("refused", "differs"):
                print(results[-1])
    sys.path.append(str(unpacked("drake", Path(asked.folder))))
    read = []
    for package in SDF_PACKAGES:
        root = unpacked(package, Path(asked.folder))
        for path in sorted(root.rglob("*.sdf")):
            read.append(Result(package, str(path.relative_to(root)), *compared_sdf(path)))
    text = page(results, mujoco.__version__) + sdf_page(read)
    print(text)
    if asked.write:
        PAGE.write_text(text)


def page(results: list[Result], version: str) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# MJCF and SDF that others publish",
        "",
        "Printed by `python tests/formats.py --write`. First MuJoCo: every MJCF file of six packages on the index,",
        f"loaded with `robodyn.load_mjcf` and compared with MuJoCo {version} at {STATES} random states. Inverse",
        "dynamics, mass matrices, poses of all bodies and the residual of forward dynamics are relative to the largest",
        "number; constraints and passive forces are off.",
        "",
        "| package | files | compiled, 1 to 300 dofs | agree below 1e-8 | reported | refused | differ | worst |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for package in (*PACKAGES, None):
        own = [each for each in results if package in (None, each.package)]
        count = Counter(each.outcome for each in own)
        worst = max((max(each.errors.values()) for each in own if each.outcome == "agrees"), default=0.0)
        cells = [
            package or "all",
            len(own),
            len(own) - count["not a robot"],
            count["agrees"],
            count["reported"],
            count["refused"],
            count["differs"],
            f"{worst:.1e}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    rest = [each for each in results if each.outcome in ("reported", "refused", "differs")]
    heading = "| package | file | what | why | ID | FD | H | FK |"
    lines += ["", "## Files that do not agree", "", heading, "|---|---|---|---|---:|---:|---:|---:|"]
    for each in rest:
        errors = " | ".join(f"{each.errors.get(name, float('nan')):.0e}" for name in ("ID", "FD", "H", "FK"))
        lines.append(f"| {each.package} | {each.file} | {each.outcome} | {each.why} | {errors} |")
    reasons = Counter(each.why for each in results if each.outcome == "not a robot")
    lines += ["", "## Files that are no robots here", "", "| why | files |", "|---|---:|"]
    lines += [f"| {why} | {n} |" for why, n in reasons.most_common()]
    return "\n".join(lines) + "\n"


def sdf_page(results: list[Result]) -> str:
    """The part of the page about SDF."""
    import importlib.metadata

    drake = next(each.version for each in importlib.metadata.distributions(path=sys.path[-1:]) if each.name == "drake")
    lines = [
        "",
        "## SDF and Drake",
        "",
        "Every SDF file of Drake's wheel and of PyBullet's, loaded with `robodyn.load_sdf` and compared with Drake",
        f"{drake} at {STATES} random states, floating bases among them: inverse dynamics, mass matrices, gravity,",
        "poses of all links and frames, and the residual of forward dynamics, relative to the largest number. Where",
        "Drake objects to contacts and shapes, they are taken out before; where a link has inertia and no mass, which",
        "is used as given here and has 1 kg in Drake, it is given 0.5 kg.",
        "",
        "| package | file | outcome | | ID | FD | H | gravity | FK |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for each in results:
        errors = [
            f"{each.errors[name]:.0e}" if name in each.errors else "" for name in ("ID", "FD", "H", "gravity", "FK")
        ]
        file = each.file.removeprefix("pydrake/share/drake/")
        lines.append("| " + " | ".join([each.package, file, each.outcome, each.why.replace("|", ""), *errors]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
