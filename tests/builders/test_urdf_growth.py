"""The work of loading grows with the number of links, not with its square: operations are counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from cli_runner import chain, run

import robodyn as rd
from robodyn.description import Joint, Limits, Link, Mimic, RobotDescription
from robodyn.internals.errors import RobodynError

SMALL, LARGE = 150, 600
SLACK = 1.25
"""How much more than in proportion the work may grow: depths enter through logarithms, as in sorting."""

PACKAGE = str(Path(rd.__file__).parent)


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Counts the lines of this package that are run inside, a turn of a loop as one more each."""
    count = [0]

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        count[0] += event == "line"
        return in_frame

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield count
    finally:
        sys.settrace(before)


def lines(work: Callable[[int], object], n: int) -> int:
    with counted_lines() as count:
        work(n)
    return count[0]


def description(n: int, parent: Callable[[int], int], joint: Callable[[int], dict[str, Any]]) -> RobotDescription:
    """n joints: joint i, on link parent(i), moves link i + 1."""
    joints = []
    for i in range(n):
        given = {"type": "revolute", "parent": f"l{parent(i)}", "child": f"l{i + 1}", "limits": Limits(-1.0, 1.0)}
        joints.append(Joint(**{"name": f"j{i}", **given, **joint(i)}))
    return RobotDescription("r", tuple(Link(f"l{i}") for i in range(n + 1)), tuple(joints))


def plain(i: int) -> dict[str, Any]:
    return {}


TREES: dict[str, tuple[Callable[[int], int], Callable[[int], dict[str, Any]]]] = {
    "chain": (lambda i: i, plain),
    "star": (lambda i: 0, plain),
    "binary": (lambda i: (i + 1) // 2, plain),
    "fixed chain": (lambda i: i, lambda i: {"type": "fixed"}),
    "every other fixed": (lambda i: i, lambda i: {"type": "fixed"} if i % 2 else {}),
    "universal": (lambda i: i, lambda i: {"type": "universal"}),
    "names that are taken": (lambda i: i, lambda i: {"type": "universal", "name": "u" + "/1" * (i + 1)}),
    "mimics of one": (lambda i: i, lambda i: {"mimic": Mimic("j0", 1.0)} if i else {}),
    "mimic chain": (lambda i: 0, lambda i: {"mimic": Mimic(f"j{i - 1}", 1.0)} if i else {}),
    "mimic chain along the tree": (lambda i: i, lambda i: {"mimic": Mimic(f"j{i - 1}", -1.0)} if i else {}),
    "welded mimic chain": (lambda i: i, lambda i: {"mimic": Mimic(f"j{i - 1}")} if i else {"type": "fixed"}),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.some(of=4, rest="matrix")
def test_building_takes_lines_in_proportion(name, backwards):
    def build(n: int) -> None:
        made = description(n, *TREES[name])
        if backwards:  # every joint before what it hangs on, and before what it mimics
            made = RobotDescription("r", made.links[::-1], made.joints[::-1])
        rd.build_model(made, base="floating")

    build(3)  # what happens once is over
    assert lines(build, LARGE) < SLACK * LARGE / SMALL * lines(build, SMALL)


def test_a_circle_of_mimics_is_found_in_proportion():
    def refuse(n: int) -> None:
        made = description(n, lambda i: i, lambda i: {"mimic": Mimic(f"j{(i + 1) % n}")})
        with pytest.raises(RobodynError, match="mimics form a cycle"):
            rd.build_model(made)

    refuse(3)
    assert lines(refuse, LARGE) < SLACK * LARGE / SMALL * lines(refuse, SMALL)


def test_reading_takes_lines_in_proportion():
    """Text with something to report on every element."""

    def read(n: int) -> None:
        text = chain(n).replace('type="continuous"', 'type="revolute" odd="1"').replace("<inertial>", "stray<inertial>")
        rd.load_urdf(text.replace('xyz="0 1 0"', 'xyz="0 2 0"'))

    read(3)
    assert lines(read, LARGE) < SLACK * LARGE / SMALL * lines(read, SMALL)


@pytest.mark.parametrize("branching", [1.0, 2.0, float(LARGE)])
def test_topology_takes_lines_in_proportion(branching):
    properties = ("level_order", "preorder", "euler_tour", "heavy_head", "heavy_level", "subtree_size")

    def ask(n: int) -> None:
        tree = rd.auto_tree(n, branching=branching).tree
        for name in properties:
            getattr(tree, name)

    ask(3)
    assert lines(ask, LARGE) < SLACK * LARGE / SMALL * lines(ask, SMALL)


@pytest.mark.matrix
def test_showing_all_of_a_chain_takes_space_and_lines_in_proportion(tmp_path):
    sizes = {}

    def show(n: int) -> None:
        path = tmp_path / "chain.urdf"
        path.write_text(chain(n))
        status, out, _ = run("info", path, "--all")
        assert status == 0
        sizes[n] = len(out)

    show(3)
    assert lines(show, LARGE) < SLACK * LARGE / SMALL * lines(show, SMALL)
    assert sizes[LARGE] < SLACK * LARGE / SMALL * sizes[SMALL]
