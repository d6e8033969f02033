"""What others published, beside ours; and what we set out to reach, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from robodyn.tools.benchmark.tables import Cells, number
from tests.bench import published
from tests.bench.first_answers import First
from tests.bench.gpu import kernels
from tests.bench.gpu.ceilings import Ceilings
from tests.bench.gpu.queries import Point
from tests.bench.shared import NOT_MEASURED, columns, show, table, times

BATCH, DTYPE = 65_536, "float32"
TIMES_GRID = {"arm7": 5.0, "humanoid, floating": 3.0}
"""States per second of forward dynamics, over GRiD's published ones."""
OVER_ROOFLINE = 3.0
FIRST_ANSWER_S = 3.0


@dataclass(frozen=True)
class Goal:
    """`reached`: None where it was not measured."""

    what: str
    wanted: str
    found: str
    reached: bool | None

    @property
    def told(self) -> str:
        return {None: NOT_MEASURED, True: "yes", False: "NO"}[self.reached]


def goal(what: str, wanted: float, found: float | None, where: str = "", most: bool = False, unit: Any = times) -> Goal:
    """What is wanted at least, or at `most`, beside what was found; `where`: of what that is."""
    reached = None if found is None else found <= wanted if most else found >= wanted
    return Goal(what, unit(wanted), unit(found) + (f" ({where})" if where else ""), reached)


def goals(
    points: Sequence[Point], ceilings: Ceilings | None, first: Sequence[First], trials: Sequence[kernels.Trial]
) -> list[Goal]:
    cold = [each.cold_s for each in first if each.robot == "arm7" and each.cold_s is not None]
    over = {f"{p.robot}, {p.query}": p.over_roofline(ceilings) for p in points if (p.batch, p.dtype) == (BATCH, DTYPE)}
    farthest, where = max(((each, name) for name, each in over.items() if each is not None), default=(None, ""))
    return [
        *(_times_grid(points, robot, wanted) for robot, wanted in TIMES_GRID.items()),
        goal(
            f"kernels over the roofline, {DTYPE}, {BATCH:,} states, the farthest of all queries",
            *(OVER_ROOFLINE, farthest, where),
            most=True,
        ),
        goal(
            "arm7: first answer with nothing compiled, the slowest query",
            *(FIRST_ANSWER_S, max(cold, default=None)),
            most=True,
            unit=partial(show, missing=NOT_MEASURED),
        ),
        goal("the chosen kernel over the fastest, at most", kernels.ALLOWED, kernels.worst(trials), most=True),
    ]


def at(points: Sequence[Point], robot: str, query: str, batch: int) -> Point | None:
    """The point in single precision."""
    asked = robot, query, DTYPE, batch
    return next((each for each in points if (each.robot, each.query, each.dtype, each.batch) == asked), None)


def _times_grid(points: Sequence[Point], robot: str, wanted: float) -> Goal:
    theirs = next(each for each in published.GRID if (each.ours, each.query) == (robot, "forward_dynamics"))
    rate = published.GRID_BATCH / theirs.kernel_us * 1e6
    point = at(points, robot, "forward_dynamics", BATCH)
    what = (
        f"{robot}: forward dynamics, {DTYPE}, {BATCH:,} states, over GRiD's {number(rate)} states/s of {theirs.robot} "
        f"({published.GRID_HARDWARE})"
    )
    return goal(what, wanted, point.states_per_s / rate if point and point.states_per_s else None)


def goal_table(found: Sequence[Goal]) -> Cells:
    return table(
        "Goals", found, "what | {0.what}", "#wanted | {0.wanted}", "#measured | {0.found}", "reached | {0.told}"
    )


def beside_published(points: Sequence[Point]) -> Cells:
    """GRiD's table, and ours at the same batch."""
    rows = []
    for each in published.GRID:
        point = at(points, each.ours, each.query, published.GRID_BATCH)
        ours = (None, None) if point is None else (point.kernel_s, point.call_s)
        others = ", ".join(f"{name} {time:,} us" for name, time in each.others_us.items())
        theirs = f"{each.kernel_us:g} us", f"{each.call_us:g} us", others
        rows.append((each.query, each.robot, *theirs, each.ours, *(show(time, NOT_MEASURED) for time in ours)))
    headings = "query|published robot|#GRiD kernel|#GRiD call|published others|our robot|#our kernel|#our call"
    return Cells("Published figures", columns(headings), rows)
