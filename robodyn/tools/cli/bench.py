"""The command `bench`: measures queries on the user's robot, and the same with installed peers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from robodyn.core.model import Model
from robodyn.core.tables import console
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.version import __version__
from robodyn.io.builders.values import whole_number
from robodyn.tools.benchmark.compare import Report, Settings, compare, find_peers, threads_from
from robodyn.tools.benchmark.contenders import USUAL
from robodyn.tools.benchmark.tables import HEADLINE, footnotes, tables


def settings(options: dict[str, Any]) -> Settings:
    """The settings from the command's options.

    Raises:
        ArgumentError: an option's value is not allowed.
    """
    return Settings(
        queries=_words(options["query"]) or USUAL,
        engine=options["engine"],
        dtypes=_words(options["dtype"]),
        threads=threads_from(_words(options["threads"])),
        batches=_numbers("--batch", options["batch"]),
        seconds=options["seconds"],
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in text.replace(",", " ").split()))


def _numbers(option: str, text: str) -> tuple[int, ...]:
    words = _words(text)
    numbers = {word: whole_number(word) for word in words}
    wrong = [word for word, number in numbers.items() if number is None]
    if wrong or not words:
        got = brief(wrong[0]) if wrong else "nothing"
        raise ArgumentError(f"{option}: got {got}; wanted whole numbers, comma separated")
    return tuple(sorted({number for number in numbers.values() if number is not None}))


def bench(model: Model, chosen: Settings, with_peers: bool, as_json: bool) -> None:
    """Measure and print.

    Raises:
        RobodynError: the robot or the engine cannot be measured at all.
    """
    peers, reasons = find_peers(model) if with_peers else ([], [])
    waiting = console(stderr=True)
    if waiting.is_terminal:
        with waiting.status(model.name) as status:
            report = compare(model, chosen, peers, announce=status.update)
    else:
        report = compare(model, chosen, peers)
    report.notes += reasons
    if as_json:
        print(json.dumps({"robodyn": __version__, **dataclasses.asdict(report)}, indent=1))
    else:
        _show(report)


def _show(report: Report) -> None:
    screen = console()
    for table in tables(report):
        screen.print(table.rich())
    screen.print(HEADLINE)
    for note in footnotes(report):
        screen.print(f"- {note}")


def explain(model: Model, options: dict[str, Any]) -> None:
    """Print which engine and method answer each query, and the costs of scan methods on this machine.

    With `fit`, or if this machine has no measured costs yet, the costs are measured and stored first.
    """
    from robodyn.engines.scan.costs import current_costs, measured_costs
    from robodyn.tools.benchmark.scan_costs import choice_table, coefficient_table

    screen, batches = console(), _numbers("--batch", options["batch"])
    if options["fit"] or measured_costs() is None:
        _fit()
    costs = current_costs()
    table = choice_table(model, options["engine"], _words(options["query"]), batches)
    if options["json"]:
        contents = {"costs": dict(costs.coefficients), "source": costs.source, "choices": table.rows}
        print(json.dumps({"robodyn": __version__, **contents}, indent=1))
        return
    screen.print(table.rich())
    screen.print(coefficient_table(costs).rich())


def _fit() -> None:
    from robodyn.engines.scan.costs import keep
    from robodyn.tools.benchmark.scan_costs import fit, worst_choice

    waiting = console(stderr=True)
    if waiting.is_terminal:
        with waiting.status("costs of scans") as status:
            costs, rows = fit(announce=status.update)
    else:
        costs, rows = fit()
    kept = "kept in the cache" if keep(costs) else "not kept: there is no cache"
    waiting.print(
        f"costs of scans: {len(rows)} cases measured, {kept}; the method chosen takes at most {worst_choice(rows):.2g} "
        "times as long as the quickest one"
    )
