"""The command `tune`: measures this machine and stores the tables that engines choose by."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from robodyn.core.tables import console
from robodyn.engines.scan import costs
from robodyn.engines.tuning_store import keep
from robodyn.internals.arguments import finite_real
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.version import __version__
from robodyn.tools.benchmark.scan_costs import coefficient_table
from robodyn.tools.benchmark.scan_costs import fit as fit_scans
from robodyn.tools.benchmark.tune import (
    CHECKED,
    Grid,
    document,
    engine_table,
    engines_here,
    fit,
    fit_kernels,
    worst_choice,
)

QUICK = Grid(bodies=(6, 150), batches=(1, 256), dtypes=("float64",))


def tune(seconds: float, quick: bool, as_json: bool) -> None:
    """Measure scan costs, GPU kernels (if there is a GPU) and engines; store and print the results.

    Raises:
        ArgumentError: `seconds` is not in the allowed range.
    """
    if finite_real(seconds) is None or not 0.0 < seconds <= 10.0:
        raise ArgumentError(f"--seconds: got {brief(seconds)}; wanted a number of seconds up to 10")
    grid = QUICK if quick else Grid()
    stored = []
    with _announcing() as announce:
        if not quick:
            scan_costs, _ = fit_scans(seconds, announce)
            stored.append(costs.keep(scan_costs))
        if "gpu" in engines_here():
            stored.append(keep(*fit_kernels(grid, seconds, announce)))
        table = fit(grid, seconds, announce)
        stored.append(keep(table))
        ratio, where = worst_choice(table, fit(CHECKED, seconds, announce))
    words = "kept in the cache" if all(stored) else "not kept: no cache can be written to (robodyn cache)"
    if as_json:
        engines = document(table)
        worst = ratio if math.isfinite(ratio) else None  # infinite: the chosen engine was too slow to be measured
        contents = {"robodyn": __version__, "kept": all(stored), "engines": engines, "worst": worst, "where": where}
        print(json.dumps(contents, indent=1))
        return
    screen = console()
    screen.print(engine_table(table).rich())
    screen.print(coefficient_table(costs.current_costs()).rich())
    screen.print(
        f"{len(table.rows)} times of {', '.join(engines_here())}, {words}. In other measurements the engine chosen "
        f"takes at most {ratio:.2f} times as long as the fastest one ({where})."
    )


@contextmanager
def _announcing() -> Iterator[Callable[[str], None]]:
    """A function that shows the current measurement, if stderr is a terminal."""
    waiting = console(stderr=True)
    if not waiting.is_terminal:
        yield lambda text: None
        return
    with waiting.status("tune") as status:
        yield lambda text: status.update(text)
