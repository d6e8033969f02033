"""Inverse kinematics of arms, cold and warm, beside TRAC-IK and the closed-loop method of Pinocchio's example; and
velocities for wished twists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

import robodyn as rd
from robodyn.internals.arguments import Array
from tests.bench.runner import Page, Run
from tests.bench.shared import robot_file
from tests.bench.timing import least
from tests.bench.velocities import SLOW, Velocities
from tests.bench.velocities import measure as measure_velocities

TARGETS, SINGLE, FOR_PEERS, BATCH = 100_000, 500, 500, 4096
STARTS = ("cold", "warm")
_Solve = Callable[[Array, Array], Array]
"""Joints by a target and a start."""
DTYPES = {"float64": 1e-6, "float32": 1e-4}
"""Tolerances in m and rad."""
_TURNS = 3
_WARM = 0.05
_SUCCESS, _RATES = 0.999, {"cold": 1e5, "warm": 1e6}
_RATE_AMONG = 5e4
_CALL = {False: 10.0, True: 30.0}
"""What was set as a goal in float64."""
_ARMS = {
    **dict.fromkeys(("arm6", "arm7", "abbIrb120", "kr16_2", "universalUR5"), "tool0"),
    "iiwa14": "ee_link",
    "kinovaGen3V12": "tool_frame",
    "panda_arm": "panda_link8",
    "xarm7": "link_eef",
    "z1": "link06",
}
"""Our arms, and those of the shared collection, and their tools."""
AMONG, _KEPT, _SPHERES = "arm7 among spheres", 0.02, 40
"""An arm of capsules that keeps a clearance, m, from itself and from spheres around it."""


@dataclass
class Case:
    """One solver on one arm, from one kind of start.

    `rate`: solves a second of one processor, of all targets at once where it does batches; `success`: the share that is
    solved; `median`, `tail`: microseconds of a call for one target, the 99th percentile the latter.
    """

    arm: str
    dofs: int
    solver: str
    start: str
    targets: int
    success: float
    rate: float
    median: float
    tail: float

    @property
    def starts(self) -> str:
        return f"{self.start.capitalize()} starts"

    @property
    def percent(self) -> float:
        return 100.0 * self.success


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]
    velocities: list[Velocities] = field(default_factory=list)


class _Work:
    """Targets (n, 4, 4) of an arm's tool, and where to start, by kind."""

    def __init__(self, name: str, path: Path, tool: str) -> None:
        self.name, self.path, self.tool = name, path, tool
        self.model, rng = rd.load_urdf(path), np.random.default_rng(0)
        there = self.model.random_configuration(rng, TARGETS)
        warm = np.clip(there + rng.uniform(-_WARM, _WARM, there.shape), self.model.lower, self.model.upper)
        self.first = {"cold": self.model.random_configuration(rng, TARGETS), "warm": warm}
        self.targets = rd.Dynamics(self.model).link_pose(there, tool)

    def solved(self, q: Array, tolerance: float) -> float:
        """The share of configurations that put the tool at the targets, within the limits."""
        T, wanted = rd.Dynamics(self.model).link_pose(q, self.tool), self.targets[: len(q)]
        far = np.linalg.norm(T[:, :3, 3] - wanted[:, :3, 3], axis=1)
        turned = Rotation.from_matrix(wanted[:, :3, :3].swapaxes(1, 2) @ T[:, :3, :3]).magnitude()
        inside = ((q >= self.model.lower) & (q <= self.model.upper)).all(axis=1)
        return float(((far <= tolerance) & (turned <= tolerance) & inside).mean())

    def one_by_one(self, start: str, solve: _Solve, count: int) -> tuple[Array, Array]:
        """Seconds of a call for each of the first targets, and the answers."""
        answers, times = [], [time.perf_counter()]
        for target, first in zip(self.targets[:count], self.first[start][:count], strict=True):
            answers.append(solve(target, first))
            times.append(time.perf_counter())
        return np.diff(times), np.array(answers)

    def case(self, solver: str, start: str, q: Array, rate: float, alone: Array, tolerance: float) -> Case:
        median, tail = (1e6 * float(each) for each in np.percentile(alone, (50, 99)))
        success = self.solved(q, tolerance)
        return Case(self.name, self.model.nv, solver, start, len(q), success, rate, median, tail)


class _Among(_Work):
    """The same for an arm of capsules among spheres; targets are reached where it is free by twice the clearance."""

    def __init__(self) -> None:
        self.name, self.tool, rng = AMONG, "tool0", np.random.default_rng(0)
        arm = rd.load_urdf(robot_file("arm7") or "")
        names, T = arm.link_names, rd.Dynamics(arm).forward_kinematics(arm.neutral())
        ends = [(np.linalg.inv(T[k]) @ T[k + 1])[:3, 3] for k in range(1, 7)]
        rods = [rd.Capsule(names[k], (0.0, 0.0, 0.0), end, 0.03) for k, end in enumerate(ends, 1)]
        self.model = arm.with_shapes([*rods, rd.Sphere("tool0", (0.0, 0.0, 0.0), 0.04)])
        centres = rng.uniform((-1.0, -1.0, 0.0), (1.0, 1.0, 1.3), (3 * _SPHERES, 3))
        centres = centres[np.linalg.norm(centres - [0.0, 0.0, 0.3], axis=1) > 0.5][:_SPHERES]
        self.around = rd.Obstacles(spheres=np.c_[centres, np.full(_SPHERES, 0.14)])
        q = self.model.random_configuration(rng, 4 * BATCH)
        self.dyn = rd.Dynamics(self.model)
        there = q[self.dyn.is_free(q, self.around, 2.0 * _KEPT)][:BATCH]
        warm = np.clip(there + rng.uniform(-_WARM, _WARM, there.shape), self.model.lower, self.model.upper)
        self.first = {"cold": self.model.random_configuration(rng, BATCH), "warm": warm}
        self.targets = self.dyn.link_pose(there, self.tool)

    def solved(self, q: Array, tolerance: float) -> float:
        free = self.dyn.is_free(q, self.around, _KEPT)
        return super().solved(np.where(free[:, None], q, np.nan), tolerance) if free.any() else 0.0


def measure(run: Run) -> Results:
    """Run the arms whose names are selected."""
    found = Results([])
    for name, tool in _ARMS.items():
        path = robot_file(name)
        if path is not None and run.chosen(f"ik: {name}"):
            found.cases += _measured(_Work(name, path, tool), _PEERS)
    if run.chosen(f"ik: {AMONG}"):
        among = _Among()
        found.cases += _measured(among, {}, clearance=_KEPT, obstacles=among.around)
    found.velocities = list(measure_velocities(run))
    return found


def merge(found: Results, old: Results, about: dict[str, str], old_about: dict[str, str]) -> Results:
    """This, and what is stored of the part that nobody asked about now."""
    if not found.cases and old.cases:
        told = f"velocities commit {about['commit']}, load {about['load']}"
        about.pop("filter", None)  # it is told by what has another commit
        about |= old_about | {"load": f"{old_about['load'].split(', velocities')[0]}, {told}"}
        return Results(old.cases, found.velocities)
    return found if found.velocities else Results(found.cases, old.velocities)


def _measured(work: _Work, peers: dict[str, Callable[[_Work], _Solve]], **options: Any) -> Iterator[Case]:
    for dtype, tolerance in DTYPES.items():
        ik = rd.InverseKinematics(work.model, work.tool, dtype=dtype, threads=1, **options)

        def solve(target: Array, start: Array, ik: Any = ik) -> Array:
            return ik.solve(target[..., None, :, :], start)[0]

        for start in STARTS:
            solve(work.targets[:99], work.first[start][:99])
            given = work.targets, work.first[start]
            best = least({"": partial(solve, *given)}, 0.0, _TURNS, clock=time.process_time, warm=0)[""]
            alone, _ = work.one_by_one(start, solve, SINGLE)
            q = solve(*given).astype(np.float64)
            yield work.case(f"robodyn, {dtype}", start, q, len(q) / best, alone, tolerance)
    for solver, make in peers.items():
        with suppress(ImportError):
            solve = make(work)
            for start in STARTS:
                alone, answers = work.one_by_one(start, solve, FOR_PEERS)
                yield work.case(solver, start, answers, len(alone) / alone.sum(), alone, DTYPES["float64"])


# Peers.


def _trac_ik(work: _Work) -> _Solve:
    import pytracik  # type: ignore[import-not-found, unused-ignore]

    chain = work.model.link_names[0], work.tool, work.path.read_text()
    solver = pytracik.TRAC_IK(*chain, 0.005, 1e-7, pytracik.SolveType.Speed)

    def solve(target: Array, first: Array) -> Array:
        x, y, z, w = Rotation.from_matrix(target[:3, :3]).as_quat()
        found = np.array(pytracik.ik(solver, first, *target[:3, 3], x, y, z, w))
        return found[1:] if found[0] >= 0 else first

    return solve


def _clik(work: _Work) -> _Solve:
    import pinocchio as pin

    model = pin.buildModelFromXML(work.path.read_text())
    data, frame = model.createData(), model.getFrameId(work.tool)
    if list(model.names)[1:] != list(work.model.joint_names) or model.nq != model.nv:
        raise ImportError("other coordinates")

    def solve(target: Array, first: Array) -> Array:
        q, wanted = first, pin.SE3(target)
        for _ in range(1000):
            pin.framesForwardKinematics(model, data, q)
            off = data.oMf[frame].actInv(wanted)
            error = pin.log6(off).vector
            if np.linalg.norm(error) < 1e-7:
                break
            J = -pin.Jlog6(off.inverse()) @ pin.computeFrameJacobian(model, data, q, frame)
            v = -J.T @ np.linalg.solve(J @ J.T + 1e-12 * np.eye(6), error)
            q = pin.integrate(model, q, v * 0.1)
        return np.asarray(q)

    return solve


_PEERS = {"TRAC-IK": _trac_ik, "Pinocchio's CLIK": _clik}

# What is shown.


def notes(found: Results) -> list[str]:
    lines = []
    for start, rate in _RATES.items():
        every = [each for each in found.cases if each.start == start and each.solver == "robodyn, float64"]
        lines += [
            f"{AMONG}, {start} starts, float64: {each.rate:,.0f} solves a second, {each.percent:.2f} % solved (wanted: "
            f"{_RATE_AMONG:,.0f} from warm starts, 99 %)."
            for each in every
            if each.arm == AMONG
        ]
        ours = [each for each in every if each.arm != AMONG]
        if not ours:
            continue
        reached = sum(each.rate >= rate for each in ours)
        rates, success = [each.rate for each in ours], min(each.success for each in ours)
        lines.append(
            f"{start} starts, float64: {min(rates):,.0f} to {max(rates):,.0f} solves a second on one thread (wanted: "
            f"{rate:,.0f}, reached by {reached} of {len(ours)}); at least {100 * success:.3f} % are solved (wanted: "
            f"{100 * _SUCCESS:g} %)."
        )
    for dtype in DTYPES if found.velocities else ():
        every = [each for each in found.velocities if each.dtype == dtype and each.twists == SLOW]
        lines += [
            f"velocities of {each.robot}, {dtype}: {each.single:.1f} us a call (wanted: {_CALL[each.dofs > 7]:g}), "
            f"{each.rate:,.0f} states a second{'' if each.dofs > 7 else ' (wanted: 1,000,000)'}."
            for each in every
        ]
    missing = [name for name in _PEERS if all(each.solver != name for each in found.cases)]
    lines.append(f"Not installed: {', '.join([*missing, 'PyRoki and tracikpy (no wheels on the index)'])}.")
    return lines


PAGE = Page("ik", Results, measure, notes=notes, merge=merge)
