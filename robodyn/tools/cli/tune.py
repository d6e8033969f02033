"""What the command `tune` does: measure this machine once, and keep what engines choose by."""

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
    """Measure scans, kernels of a GPU if there is one, and engines against each other; keep and print it.

    Raises:
        ArgumentError: no time to measure in.
    """
    if finite_real(seconds) is None or not 0.0 < seconds <= 10.0:
        raise ArgumentError(f"--seconds: got {brief(seconds)}; wanted a number of seconds up to 10")
    grid = QUICK if quick else Grid()
    kept = []
    with _announcing() as announce:
        if not quick:
            found, _ = fit_scans(seconds, announce)
            kept.append(costs.keep(found))
        if "gpu" in engines_here():
            kept.append(keep(*fit_kernels(grid, seconds, announce)))
        table = fit(grid, seconds, announce)
        kept.append(keep(table))
        ratio, where = worst_choice(table, fit(CHECKED, seconds, announce))
    words = "kept in the cache" if all(kept) else "not kept: no cache can be written to (robodyn cache)"
    if as_json:
        engines = document(table)
        worst = ratio if math.isfinite(ratio) else None  # the engine chosen was too slow to be measured
        found_all = {"robodyn": __version__, "kept": all(kept), "engines": engines, "worst": worst, "where": where}
        print(json.dumps(found_all, indent=1))
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
    """Something that is told what is being measured, and shows it where somebody looks."""
    waiting = console(stderr=True)
    if not waiting.is_terminal:
        yield lambda text: None
        return
    with waiting.status("tune") as status:
        yield lambda text: status.update(text)
