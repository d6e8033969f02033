"""The order that a library gives the joints of a file, and which of them it writes as a cosine and a sine.

Libraries walk over links, those that fixed joints hold included, which a model has merged: `Model.file_tree` remembers
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from robodyn.core.description import FileTree
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.errors import ArgumentError
from robodyn.io.conventions.presets import Convention


def own_order(model: Model, convention: Convention) -> list[int]:
    """Bodies whose joints are free, in the order that a library gives them.

    Raises:
        ArgumentError: the order is not known.
    """
    tree = model.file_tree or _merged(model)
    if not _fits(tree, model):
        raise ArgumentError(
            f"joint_names: the joints of {model.name!r} are no longer those of its file, so the order of "
            f"{convention.name} is not known; wanted the names in that order"
        )
    if tree.format == convention.name:
        order = list(range(model.n_bodies))
    elif convention.order == "breadth-first":
        order = _breadth_first(tree)
        if order != _breadth_first(_merged(model)):
            raise ArgumentError(
                f"joint_names: fixed joints of {model.name!r} stand where the order of {convention.name} depends on "
                "whether its importer merges them; wanted the names in that order"
            )
    elif tree.format == "sdf" and convention.order == "alphabetical":
        raise ArgumentError(
            f"joint_names: the order that {convention.name} gives joints of SDF is not known; wanted the names in that "
            "order"
        )
    else:
        by_name = convention.order == "alphabetical" and tree.format == "urdf"
        order = _depth_first(tree, _names(tree, model) if by_name else None)
    return [i for i in order if model.mimics[i] < 0]


def turns_in_a_circle(model: Model, i: int) -> bool:
    """Whether Pinocchio writes the angle of a revolute joint as a cosine and a sine: URDF's continuous joints alone, so
    not those that have no limits otherwise. Where no file says it, joints without limits."""
    tree, q = model.file_tree, int(model.q_start[i])
    if KINDS[model.joint_kind[i]].name != "revolute":
        return False
    if tree is not None and len(tree.joints) == model.n_bodies and (j := tree.joints[i]) >= 0:
        return tree.format != "mjcf" and tree.types[j] == "continuous"
    return bool(np.isinf([model.tree_lower[q], model.tree_upper[q]]).all())


def _merged(model: Model) -> FileTree:
    """The tree that a model shows by itself."""
    parents = tuple(model.parent.tolist())
    return FileTree("urdf", tuple(model.joint_names), ("",) * len(parents), parents, tuple(range(len(parents))))


def _fits(tree: FileTree, model: Model) -> bool:
    """Whether a model still has the joints of its file, each on the body that the file puts it on."""
    if len(tree.joints) != model.n_bodies:
        return False
    bodies, children = _bodies(tree), _children(tree)
    made = bodies.get(-1, [])
    parent = {i: before for before, i in pairwise([-1, *made])}
    carrying = {-1: made[-1] if made else -1}
    waiting = [-1]
    for joint in waiting:
        for j in children.get(joint, ()):
            chain = [carrying[joint], *bodies.get(j, ())]
            parent |= {i: before for before, i in pairwise(chain)}
            carrying[j] = chain[-1]
            waiting.append(j)
    return bool(model.parent.tolist() == [parent.get(i) for i in range(model.n_bodies)])


def _bodies(tree: FileTree) -> dict[int, list[int]]:
    """The bodies of each joint of the file that moves, and under -1 those of no joint of it."""
    found: dict[int, list[int]] = {}
    for i, j in enumerate(tree.joints):
        found.setdefault(j, []).append(i)
    return found


def _children(tree: FileTree) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for j, carrier in enumerate(tree.carriers):
        found.setdefault(carrier, []).append(j)
    return found


def _walked(
    tree: FileTree, take: Callable[[deque[int]], int], add: Callable[[deque[int], list[int]], None]
) -> list[int]:
    """Bodies in the order in which joints of the file are taken from those that wait."""
    bodies, children = _bodies(tree), _children(tree)
    order, waiting = list(bodies.get(-1, ())), deque[int]()
    add(waiting, children.get(-1, []))
    while waiting:
        j = take(waiting)
        order += bodies.get(j, ())
        add(waiting, children.get(j, []))
    return order


def _names(tree: FileTree, model: Model) -> list[str]:
    """The names of the file's joints, those of the model where it has them."""
    names = list(tree.names)
    for j, own in _bodies(tree).items():
        if j >= 0 and len(own) == 1:
            names[j] = model.joint_names[own[0]]
    return names


def _depth_first(tree: FileTree, names: list[str] | None) -> list[int]:
    """Bodies, each followed by those that it carries; siblings by these names, or in the order of the file."""

    def add(waiting: deque[int], own: list[int]) -> None:
        waiting.extend((own if names is None else sorted(own, key=lambda j: names[j]))[::-1])

    return _walked(tree, deque[int].pop, add)


def _breadth_first(tree: FileTree) -> list[int]:
    """Bodies by the number of joints before them, those of one carrier together."""
    return _walked(tree, deque[int].popleft, deque[int].extend)
