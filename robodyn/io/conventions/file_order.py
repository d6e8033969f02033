"""The order that a library gives the joints of a file, and the joints whose angle it stores as cosine and sine.

Libraries traverse all links of a file, including links on fixed joints. A model has merged those links into bodies, and
`Model.file_tree` keeps them.
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
    """Bodies in a library's order, without those whose joint mimics another.

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
    """True if Pinocchio stores the angle of a revolute joint as cosine and sine.

    It does so for URDF's continuous joints, but not for other joints without limits. For models without a file this
    function returns True for joints without limits.
    """
    tree, q = model.file_tree, int(model.q_start[i])
    if KINDS[model.joint_kind[i]].name != "revolute":
        return False
    if tree is not None and len(tree.joints) == model.n_bodies and (j := tree.joints[i]) >= 0:
        return tree.format != "mjcf" and tree.types[j] == "continuous"
    return bool(np.isinf([model.tree_lower[q], model.tree_upper[q]]).all())


def _merged(model: Model) -> FileTree:
    """The tree of a model's bodies, without the links that it has merged."""
    parents = tuple(model.parent.tolist())
    return FileTree("urdf", tuple(model.joint_names), ("",) * len(parents), parents, tuple(range(len(parents))))


def _fits(tree: FileTree, model: Model) -> bool:
    """True if a model still has the joints of its file, each with the same parent body."""
    if len(tree.joints) != model.n_bodies:
        return False
    bodies, children = _bodies(tree), _children(tree)
    root_bodies = bodies.get(-1, [])
    parent = {i: before for before, i in pairwise([-1, *root_bodies])}
    last_body = {-1: root_bodies[-1] if root_bodies else -1}
    queue = [-1]
    for joint in queue:
        for j in children.get(joint, ()):
            chain = [last_body[joint], *bodies.get(j, ())]
            parent |= {i: before for before, i in pairwise(chain)}
            last_body[j] = chain[-1]
            queue.append(j)
    return bool(model.parent.tolist() == [parent.get(i) for i in range(model.n_bodies)])


def _bodies(tree: FileTree) -> dict[int, list[int]]:
    """The bodies of each moving joint of the file. The key -1 has the bodies without a joint of the file."""
    bodies: dict[int, list[int]] = {}
    for i, j in enumerate(tree.joints):
        bodies.setdefault(j, []).append(i)
    return bodies


def _children(tree: FileTree) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for j, carrier in enumerate(tree.carriers):
        children.setdefault(carrier, []).append(j)
    return children


def _traversed(
    tree: FileTree, take: Callable[[deque[int]], int], add: Callable[[deque[int], list[int]], None]
) -> list[int]:
    """Bodies in the order of a tree traversal. `take` pops the next joint of the queue; `add` appends its children."""
    bodies, children = _bodies(tree), _children(tree)
    order, queue = list(bodies.get(-1, ())), deque[int]()
    add(queue, children.get(-1, []))
    while queue:
        j = take(queue)
        order += bodies.get(j, ())
        add(queue, children.get(j, []))
    return order


def _names(tree: FileTree, model: Model) -> list[str]:
    """The names of the file's joints. Joints that the model has too get the model's names."""
    names = list(tree.names)
    for j, own in _bodies(tree).items():
        if j >= 0 and len(own) == 1:
            names[j] = model.joint_names[own[0]]
    return names


def _depth_first(tree: FileTree, names: list[str] | None) -> list[int]:
    """Bodies in depth-first order. Siblings are sorted by `names`, or keep the order of the file if it is None."""

    def add(waiting: deque[int], own: list[int]) -> None:
        waiting.extend((own if names is None else sorted(own, key=lambda j: names[j]))[::-1])

    return _traversed(tree, deque[int].pop, add)


def _breadth_first(tree: FileTree) -> list[int]:
    """Bodies in breadth-first order: by the number of joints between them and the root."""
    return _traversed(tree, deque[int].popleft, deque[int].extend)
