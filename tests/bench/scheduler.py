"""Whether `engine="auto"` picks the fastest engine: as it is shipped, and after `robodyn tune`.

`python -m tests.bench scheduler --write`; `--largest 200 --batches 1,64` is a shorter run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from robodyn.api.queries.engine_selector import SECTION, USUAL
from robodyn.core.model import Model
from robodyn.engines.tuning_store import Row, Table
from robodyn.io.builders.load import load_urdf
from robodyn.tools.benchmark import tune
from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.tune import Grid, Judged, judged
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import MODELS, facts, show

ALLOWED = 1.5
"""Times the fastest engine that the chosen one may take."""
BODIES = (7, 20, 60, 200, 1000, 4000)
BATCHES = (1, 8, 64, 512, 4096)
"""Other trees and batches than `robodyn tune` measures, but for the smallest and the largest."""
ROBOTS = (("arm7", "fixed"), ("quadruped", "floating"), ("humanoid", "floating"))
REFERENCE, REFERENCE_BODIES = "reference", 60
"""An engine that is never chosen, asked of trees of up to n bodies: this shows that it need not be. On larger
ones it takes seconds."""
_AGAIN = 5.0
"""How much longer places are measured at which a choice was too slow."""


@dataclass
class Checked:
    """`rows`: every engine at every place; `fitted`: what `robodyn tune` would choose by; `names`: of robots, by
    bodies and levels."""

    rows: list[Row]
    fitted: Table
    names: dict[tuple[int, int], str] = field(default_factory=dict)

    def choices(self) -> dict[str, list[Judged]]:
        """What is chosen at every place, as shipped and after a fit."""
        found = Table(SECTION, self.rows)
        return {"as shipped": judged(Table(SECTION, ()), found), "after robodyn tune": judged(self.fitted, found)}

    def above(self) -> list[Judged]:
        """Places where a choice is too slow."""
        return [each for choices in self.choices().values() for each in choices if each.over > ALLOWED]


def grid(settings: Settings, largest: int) -> Grid:
    """What is checked: robots, and trees of up to `largest` bodies."""
    robots = tuple(load_urdf(MODELS / f"{name}.urdf", base=base) for name, base in ROBOTS)
    return Grid(
        tuple(n for n in BODIES if n <= largest),
        settings.batches,
        settings.dtypes,
        robots=tuple(robot for robot in robots if robot.n_bodies <= largest),
    )


def measure(
    selected: Callable[[str], bool], settings: Settings, largest: int, announce: Callable[[str], object]
) -> Checked:
    """Measure the grid and what `robodyn tune` measures, of queries whose names, "scheduler: mass_matrix", are
    selected; then once more, and for longer, wherever a choice was too slow, so that it is so twice."""
    queries = tuple(query for query in tune.MEASURED if selected(f"scheduler: {query}"))
    checked = replace(grid(settings, largest), queries=queries)
    small = replace(checked, bodies=tuple(n for n in checked.bodies if n <= REFERENCE_BODIES))
    fit_grid = Grid(dtypes=settings.dtypes, queries=queries)
    fit_grid = replace(fit_grid, bodies=tuple(n for n in fit_grid.bodies if n <= largest))
    fit_grid = replace(fit_grid, batches=tuple(b for b in fit_grid.batches if b <= max(settings.batches)))
    measured = partial(tune.fit, announce=lambda text: announce(f"scheduler: {text}"))
    names = {_size(robot): robot.name for robot in checked.robots}
    rows = (*measured(checked, settings.seconds).rows, *measured(small, settings.seconds, engines=(REFERENCE,)).rows)
    found = Checked(list(rows), measured(fit_grid, settings.seconds), names)
    confirm(found, checked, settings.seconds, measured)
    return found


def confirm(found: Checked, checked: Grid, seconds: float, measured: Callable[..., Table]) -> None:
    """Measure anew, and for longer, wherever a choice was too slow."""
    models = {_size(model): model for model in checked.models()}
    for slow in {replace(each, chosen="", fastest="", over=0.0) for each in found.above()}:
        here = Grid((), (slow.batch,), (slow.dtype,), (slow.query,), (models[slow.bodies, slow.depth],))
        engines = tuple(dict.fromkeys((USUAL, *(row.choice for row in found.rows if row.place == slow.place))))
        again = measured(here, _AGAIN * seconds, engines=engines)
        found.rows = _fastest([*found.rows, *again.rows])


def _size(model: Model) -> tuple[int, int]:
    return model.n_bodies, model.tree.n_levels


def _fastest(rows: Sequence[Row]) -> list[Row]:
    """Of several measurements of the same, the shortest."""
    best: dict[Row, Row] = {}
    for row in rows:
        place = replace(row, seconds=0.0)
        best[place] = min(best.get(place, row), row, key=lambda each: each.seconds)
    return list(best.values())


# What came out.


def tables(found: Checked) -> list[Cells]:
    """The closest choice by query and dtype, and all that are too slow."""
    rows, times = [], _Times(found.rows)
    for how, choices in found.choices().items():
        for query, dtype in dict.fromkeys((each.query, each.dtype) for each in choices):
            mine = [each for each in choices if (each.query, each.dtype) == (query, dtype)]
            closest, slow = max(mine, key=times.over_others), sum(each.over > ALLOWED for each in mine)
            rows.append((how, query, dtype, f"{len(mine)}", f"{slow}", *_choice(found, closest, times)))
    where = ("bodies ", "levels ", "batch ", "chosen", "best other", "ratio ")
    columns = ("auto", "query", "dtype", "places ", "too slow ", *where)
    slow_rows = [
        (how, each.query, each.dtype, *_choice(found, each, times))
        for how, choices in found.choices().items()
        for each in sorted(choices, key=lambda each: -each.over)
        if each.over > ALLOWED
    ]
    cells = [Cells("The closest choice", columns, rows)]
    return [*cells, Cells("Too slow", ("auto", "query", "dtype", *where), slow_rows)] if slow_rows else cells


class _Times:
    """Seconds by place and engine."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.at: dict[tuple[str, str, int, int, int], dict[str, float]] = {}
        for row in rows:
            self.at.setdefault(row.place, {})[row.choice] = row.seconds

    def best_other(self, each: Judged) -> str:
        """The fastest engine but the chosen one, or nothing."""
        found = self.at[each.place]
        return min((name for name in found if name != each.chosen), key=lambda name: found[name], default="")

    def over_others(self, each: Judged) -> float:
        """How many times longer the chosen engine takes than the best other one: over 1 where the choice is wrong."""
        found, other = self.at[each.place], self.best_other(each)
        return found.get(each.chosen, math.inf) / found[other] if other else 0.0

    def cell(self, each: Judged, name: str) -> str:
        """An engine and its time."""
        found = self.at[each.place]
        return f"{name}, {show(found[name])}" if name in found else name and f"{name}, {NOT_MEASURED}"


def _choice(found: Checked, each: Judged, times: _Times) -> tuple[str, ...]:
    robot = found.names.get((each.bodies, each.depth))
    bodies = f"{each.bodies:,}" if robot is None else f"{each.bodies:,} ({robot})"
    engines = (times.cell(each, name) for name in (each.chosen, times.best_other(each)))
    return bodies, f"{each.depth:,}", f"{each.batch:,}", *engines, f"{times.over_others(each):.3g} x"


def verdict(found: Checked) -> list[str]:
    """Whether choices are as good as they should be, and whether the engine that is never chosen should have been."""
    lines = []
    for how, choices in found.choices().items():
        worst = max((each.over for each in choices), default=1.0)
        good = "good enough" if worst <= ALLOWED else "TOO SLOW"
        lines.append(
            f"Auto {how} takes at most {worst:.3g} times as long as the fastest engine (allowed {ALLOWED}), at "
            f"{len(choices)} places: {good}."
        )
    asked = {row.place for row in found.rows if row.choice == REFERENCE}
    fastest = [each for each in judged(Table(SECTION, ()), Table(SECTION, found.rows)) if each.fastest == REFERENCE]
    lines.append(
        f"The reference engine, which is never chosen, is the fastest at {len(fastest)} of {len(asked)} places with up "
        f"to {REFERENCE_BODIES} bodies."
    )
    return lines


def document(found: Checked, about: dict[str, str], settings: Settings) -> dict[str, Any]:
    """Everything for a JSON file; a choice that was too slow to be measured is null times slower."""
    return {
        **about,
        "seconds": settings.seconds,
        "allowed": ALLOWED,
        "rows": tune.document(Table(SECTION, found.rows)),
        "fitted": tune.document(found.fitted),
        "worst": {
            how: _finite(max((each.over for each in choices), default=1.0)) for how, choices in found.choices().items()
        },
        "too_slow": [{**asdict(each), "over": _finite(each.over)} for each in found.above()],
    }


def _finite(over: float) -> float | None:
    return over if math.isfinite(over) else None


def page(found: Checked, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    engines = ", ".join(dict.fromkeys(row.choice for row in found.rows))
    lines = [
        '# What `engine="auto"` picks',
        "",
        "Printed by `python -m tests.bench scheduler --write`: at every place, a query of a batch on a tree, every",
        f"engine that answers it here ({engines}) is measured on NumPy arrays, and what `auto` picks is held against",
        f"the fastest: [the scheduler](../engines.md) must never pick one that takes more than {ALLOWED} times as",
        "long. *As shipped*: nothing was measured on the machine, so it is the CPU engine. *After robodyn tune*: by",
        "what that command measures, on other trees and batches. Where a choice was too slow, engines are measured",
        "again, and the better time of each counts. *ratio*: how many times longer the chosen engine takes than the",
        "best other one, which is above 1 where the choice is wrong; shown is the place where it is the largest.",
        "",
        f"Measured on: {facts(about)}; all processors; the best of several calls.",
        "",
        *(f"- {line}" for line in verdict(found)),
    ]
    for table in tables(found):
        lines += ["", f"## {table.title}", "", *table.markdown()]
    return "\n".join(lines) + "\n"
