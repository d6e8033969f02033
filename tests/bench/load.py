"""Loading of URDF beside Pinocchio's parser: `python -m tests.bench load --write`.

Both read the file and make a model, warm, in turns: the least time of some loads of each robot of the collection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import robodyn as rd
from robodyn.tools.benchmark.tables import Cells
from tests.bench.shared import page_of, show
from tests.robots import SHARED

TIMES = 25
WANTED = 3.0
"""Times Pinocchio's."""


@dataclass
class Loaded:
    """Seconds of work of a load, ours and Pinocchio's, and what the file is."""

    robot: str
    size: int
    links: int
    ours_s: float
    peer_s: float

    @property
    def ratio(self) -> float:
        """How many times as long ours takes."""
        return self.ours_s / self.peer_s


def measure(selected: Callable[[str], bool], announce: Callable[[str], object]) -> list[Loaded]:
    """Run the cases whose names are selected; nothing without Pinocchio or the collection."""
    try:
        import pinocchio
    except ImportError:
        return []
    found = []
    for path in SHARED:
        if selected(f"load: {path.stem}"):
            announce(path.stem)
            ours, peer = (
                (lambda path=path: rd.load_urdf(path)),
                (lambda path=path: pinocchio.buildModelFromUrdf(str(path))),
            )
            seconds = [_seconds(ours, peer) for _ in range(TIMES)]
            least = [min(times) for times in zip(*seconds, strict=True)]
            found.append(Loaded(path.stem, path.stat().st_size, len(rd.load_urdf(path).link_names), *least))
    return found


def _seconds(*calls: Callable[[], object]) -> tuple[float, ...]:
    found = []
    for call in calls:
        start = time.thread_time()
        call()
        found.append(time.thread_time() - start)
    return tuple(found)


def tables(found: list[Loaded]) -> list[Cells]:
    """For the screen and the page."""
    rows = [
        (
            each.robot,
            f"{each.size / 1024:.0f}",
            str(each.links),
            show(each.ours_s),
            show(each.peer_s),
            f"{each.ratio:.1f}",
        )
        for each in sorted(found, key=lambda each: each.ratio)
    ]
    return [Cells("loads", ("robot", "KiB ", "links ", "ours ", "Pinocchio ", "times "), rows)]


def notes(found: list[Loaded]) -> list[str]:
    """What the table says."""
    if not found:
        return []
    ratios = [each.ratio for each in found]
    large = sorted(found, key=lambda each: -each.size)[:5]
    return [
        f"{len(found)} robots: {median(ratios):.1f} times Pinocchio's time in the middle (wanted: {WANTED:g}), "
        f"{min(ratios):.1f} to {max(ratios):.1f}; {sum(ratio <= WANTED for ratio in ratios)} within {WANTED:g}.",
        f"The five largest files: {', '.join(f'{each.robot} {each.ratio:.1f}' for each in large)}.",
    ]


def page(found: list[Loaded], about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench load --write`: `load_urdf` beside `pinocchio.buildModelFromUrdf`, from the",
        "file to a model, warm, in turns; work of the thread, the least of some loads. Ours is Python and looks at",
        "every element and number on the way ([loading](../loading.md)); nothing is remembered between loads.",
    ]
    return page_of("Loading beside Pinocchio", text, about, notes(found), tables(found))


def document(found: list[Loaded], about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    return {**about, "loads": [asdict(each) for each in found]}
