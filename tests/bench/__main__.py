"""The benchmark runner: `python -m tests.bench [PAGE] [WORD ...] [--write]`.

Prints the commit, the machine and versions, then tables of every case whose name contains all words. `--write` also
stores the page and its JSON in docs/benchmarks; `--render` makes pages of what is stored there, without measuring. It
installs nothing; peers that are not installed are named and left out.

A page is asked for by its name, which the first word begins with; without one it is "cpu", whose cases are "dynamics:
arm7, forward_dynamics", "first answer: ..." and "huge tree: ...". The others, whose cases begin with their names:
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from robodyn.core.tables import console
from robodyn.internals.errors import ArgumentError
from robodyn.tools.benchmark.compare import Settings, threads_from
from tests.bench import shared
from tests.bench.drawing import pyplot
from tests.bench.runner import Page, Run, execute, render

PAGES = {
    "cpu": "queries beside Pinocchio, MuJoCo and JAX; first answers; huge trees",
    "batches": "batches of up to a million states, beside what their bytes take",
    "calls": "one call for one state, with every argument, beside Pinocchio's",
    "cold": "first answers with an empty cache; --whole: every query of every robot",
    "compare": "the same work by other libraries, each in a process of its own; minutes",
    "constraints": "feet and closed loops, beside Pinocchio's; loops of large trees",
    "contacts": "steps with contacts, beside MuJoCo's",
    "control": "whole-body control: calls and batches",
    "distances": "least distances of shapes, beside coal's and MuJoCo's",
    "gpu": "the GPU engine; parts of which nothing is asked stay as stored",
    "ik": "inverse kinematics of arms, beside what else is installed",
    "load": "loading and imports, beside Pinocchio's parser; the reference engine",
    "papers": "the figures of the papers that the scan engine is made from",
    "scan": "which method of the scan engine is the fastest where",
    "scan-gpu": "scans on a GPU; what is not asked for stays as stored",
    "trajectories": "trajectory optimisation and model predictive control, beside Crocoddyl",
}
_MODULES = {"gpu": "gpu.suite", "compare": "compare.suite", "scan": "scan_map", "scan-gpu": "scan_gpu"}
_WIDTH = 170
__doc__ += "\n" + "\n".join(f"- {name}: {what}" for name, what in PAGES.items())


def page_called(name: str) -> Page:
    """One of `PAGES`."""
    found: Page = import_module(f"tests.bench.{_MODULES.get(name, name)}").PAGE
    return found


def run(
    words: Annotated[list[str] | None, typer.Argument(help="A page, and words of the names of its cases.")] = None,
    write: Annotated[bool, typer.Option(help="Store the page in docs/benchmarks.")] = False,
    again: Annotated[
        bool, typer.Option("--render", help="Make the page of what is stored, without measuring.")
    ] = False,
    engine: Annotated[str, typer.Option(help="Our engine.")] = "auto",
    batch: Annotated[str, typer.Option("--batch", "--batches", help="States in a call; those of the page.")] = "",
    dtype: Annotated[str, typer.Option(help="Precisions.")] = "float64,float32",
    threads: Annotated[str, typer.Option(help="Numbers of threads.")] = "1,all",
    seconds: Annotated[float | None, typer.Option(help="Time for each case; that of the page.")] = None,
    largest: Annotated[int, typer.Option(help="Most bodies of a tree.")] = 4_000_000,
    limit: Annotated[float | None, typer.Option(help="The longest call of curves, in seconds.")] = None,
    whole: Annotated[bool, typer.Option(help="cold: every query of every robot (an hour).")] = False,
    fit: Annotated[bool, typer.Option(help="gpu: measure every kernel, and choose by that from now on.")] = False,
    folder: Annotated[
        Path, typer.Option(help="Where pages are stored.", file_okay=False, writable=True)
    ] = shared.FOLDER,
) -> None:
    """Measure and print; store with --write."""
    words = words or []
    name = max((each for each in PAGES if words and words[0].startswith(each)), key=len, default="cpu")
    page = page_called(name)
    if again:
        render(page, folder)
        return
    if write:  # what is measured for half an hour shall have a place to go
        folder.mkdir(parents=True, exist_ok=True)
        if pyplot() is None:
            console(stderr=True).print("pages are stored without pictures: no matplotlib; pip install '.[bench]'")
    if limit is not None and not limit >= 0.0:
        raise typer.BadParameter(f"--limit: got {limit}; wanted a number of seconds from 0")
    try:
        settings = Settings(
            engine=engine,
            dtypes=tuple(dtype.split(",")),
            threads=threads_from(threads.split(",")),
            batches=tuple(sorted(map(int, batch.split(",")))) if batch else page.batches,
            seconds=page.seconds if seconds is None else seconds,
        )
    except (ArgumentError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    longest = page.limit if limit is None else limit
    asked = Run(tuple(words), settings, longest, largest, whole=whole, fit=fit)
    screen, about = console(), shared.header() | {"load": shared.load()}
    screen.width = max(screen.width, _WIDTH)
    if words and words != [name]:
        about["filter"] = repr(" ".join(words))
    screen.print(shared.facts(about))
    if not execute(page, asked, about, screen, folder if write else None):
        given = " and ".join(map(repr, words)) or "nothing"
        raise typer.BadParameter(f"nothing was measured: no case that is small enough has {given} in its name")


if __name__ == "__main__":
    run.__doc__ = __doc__
    typer.run(run)
