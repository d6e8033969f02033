"""Frames of SDF: each link, joint, model and frame has a pose relative to another frame, which may be defined later."""

from __future__ import annotations

import math
from dataclasses import field

from robodyn.core.findings import at_line, cycle
from robodyn.core.spatial import IDENTITY, Transform
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import near_misses, quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.assemble import compose
from robodyn.io.builders.sources import MAX_BYTES

WORLD = 0
"""Index of the world frame, the root of all frames."""

_NEAR = 4
"""Number of ancestors in which a common ancestor of two frames is searched. A path through the world would lose digits.
"""


@dataclass(slots=True)
class Scope:
    """The scope of names in a model or the world.

    `prefix`: prefix of full names; `node`: its own frame; `depth`: its nesting; `names`: frames by name; `scopes`:
    nested models by name; `joints`: indices of its joints in the list of all joints, by name.
    """

    prefix: str
    node: int
    depth: int
    names: dict[str, int] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(default_factory=dict)
    joints: dict[str, int] = field(default_factory=dict)

    def merged(self, node: int) -> Scope:
        """The scope of a model that is merged into this one: the same names, but its own frame."""
        return Scope(self.prefix, node, self.depth, self.names, self.scopes, self.joints)


@dataclass(slots=True)
class _Frame:
    """A frame.

    `pose`: the transform from the frame `under` to this one; `held_by`: the frame that this one is attached to, itself
    if it is a link. `under` and `held_by` are (scope, name) until all frames are known.
    """

    subject: str
    line: int | None
    pose: Transform = IDENTITY
    under: int | tuple[Scope, str] = WORLD
    held_by: int | tuple[Scope, str] = WORLD


class Frames:
    """All frames of a file."""

    def __init__(self) -> None:
        self._frames = [_Frame("the world", None)]
        self._in_world: list[Transform] = []
        self._bodies: list[int] = []
        self._placed: list[tuple[int, Scope, str]] = []
        self._spent = 0

    def new(self, subject: str, line: int | None) -> int:
        """Create a frame, and return its index. `put` and `hold` define it later."""
        self._frames.append(_Frame(subject, line))
        return len(self._frames) - 1

    def put(self, node: int, pose: Transform, under: int | tuple[Scope, str]) -> None:
        """Set the pose of a frame relative to the frame `under`."""
        self._frames[node].pose, self._frames[node].under = pose, under

    def hold(self, node: int, held_by: int | tuple[Scope, str]) -> None:
        """Attach a frame to another one."""
        self._frames[node].held_by = held_by

    def place(self, model: int, scope: Scope, name: str) -> None:
        """Declare that the pose of a model is the pose of a frame inside it (`placement_frame`)."""
        self._placed.append((model, scope, name))

    def full_name(self, scope: Scope, name: str) -> str:
        """A name with the names of its enclosing models as prefix.

        Raises:
            LoadError: all names together are longer than the size limit of files.
        """
        full = f"{scope.prefix}{name}"
        self._spent += len(full)
        if self._spent > MAX_BYTES:
            raise LoadError(f"names of nested models have more than {MAX_BYTES} characters, the most that are read")
        return full

    def resolve(self) -> None:
        """Look up all named frames, and compute the poses of all frames.

        Raises:
            LoadError: an unknown name, a cycle of frames, or numbers that overflow.
        """
        for node, frame in enumerate(self._frames):
            frame.under = self._found(frame.under, node)
            frame.held_by = self._found(frame.held_by, node)
        for model, scope, name in reversed(
            self._placed
        ):  # inner models first: the pose of an outer one may depend on theirs
            self._move(model, self._found((scope, name), model))
        parents = [_known(frame.under) for frame in self._frames]
        order = self._order(parents, "the poses")
        self._in_world = [IDENTITY] * len(self._frames)
        for node in order:
            self._in_world[node] = compose(self._frames[node].pose, self._in_world[parents[node]])
            if not all(map(math.isfinite, self._in_world[node].r)):
                raise LoadError(f"{self._named(node)}: its pose overflows; give numbers of a robot")
        holders = [_known(frame.held_by) for frame in self._frames]
        self._bodies = list(range(len(self._frames)))
        for node in self._order(holders, "what they are attached to"):
            self._bodies[node] = self._bodies[holders[node]]

    def body(self, node: int) -> int:
        """The frame of the link, or of the world, that a frame is fixed to."""
        return self._bodies[node]

    def find(self, scope: Scope, name: str, subject: str, line: int | None, own: int = -1) -> int:
        """Look up a frame by its name in a scope, such as "arm", "__model__" or "gripper::finger".

        Args:
            scope: the scope.
            name: the name.
            subject: name of the referring element in messages.
            line: its line.
            own: its frame, which is not suggested in the error message.

        Raises:
            LoadError: there is no such frame.
        """
        inner, rest = scope, name
        while True:
            if rest in inner.names:
                return inner.names[rest]
            if rest == "__model__" and inner.node != WORLD:
                return inner.node
            first, colons, remaining = rest.partition("::")
            if not colons or first not in inner.scopes:
                break
            inner, rest = inner.scopes[first], remaining
        if name == "world":
            return WORLD
        others = [each for each, node in inner.names.items() if node != own]
        near = ", ".join(quoted(name.removesuffix(rest) + each) for each in near_misses(rest, others, 3))
        raise LoadError(
            f"{subject}{at_line(line)}: there is no frame {quoted(name)}; near it are {near or 'none at all'}"
        )

    def carrier(self, scope: Scope, name: str, subject: str, line: int | None, own: int = -1) -> int:
        """Like `find`, but "world" always means the world, even if another frame has this name."""
        return WORLD if name == "world" else self.find(scope, name, subject, line, own)

    def relative(self, of: int, in_: int) -> Transform:
        """The transform from the frame `in_` to the frame `of`, at the poses of the file."""
        if of == in_:
            return IDENTITY
        frames = self._frames
        if frames[of].under == in_:
            return frames[of].pose
        if frames[in_].under == of:
            return _inverse(frames[in_].pose)
        above_of, above_in = self._above(of), self._above(in_)
        common = next(node for node in above_of if node in above_in)
        return compose(above_of[common], _inverse(above_in[common]))

    def in_world(self, node: int) -> Transform:
        """The transform from the world to a frame, at the poses of the file."""
        return self._in_world[node]

    def _above(self, node: int) -> dict[int, Transform]:
        """A frame, its nearest ancestors and the world, each with the transform from there to the frame."""
        ancestors, X, node_above = {node: IDENTITY}, IDENTITY, node
        while node_above != WORLD and len(ancestors) < _NEAR:
            X = compose(X, self._frames[node_above].pose)
            node_above = _known(self._frames[node_above].under)
            ancestors[node_above] = X
        ancestors.setdefault(WORLD, self._in_world[node])
        return ancestors

    def _found(self, named: int | tuple[Scope, str], node: int) -> int:
        if isinstance(named, int):
            return named
        frame = self._frames[node]
        result = self.find(*named, frame.subject, frame.line, node)
        if result == node:
            raise LoadError(f"{frame.subject}{at_line(frame.line)} is given by {quoted(named[1])}, which is itself")
        return result

    def _move(self, model: int, inner: int) -> None:
        """Shift a model such that the frame `inner` inside it is at the model's pose."""
        X, node, steps = IDENTITY, inner, 0
        while node not in (model, WORLD):
            X, node, steps = compose(X, self._frames[node].pose), _known(self._frames[node].under), steps + 1
            if steps > len(self._frames):
                raise LoadError(f"{self._named(inner)}: the poses it is given by form a circle")
        if node != model:
            raise LoadError(f"{self._named(model)}: its placement_frame is not in it")
        self._frames[model].pose = X.inverse().after(self._frames[model].pose)

    def _order(self, parents: list[int], what: str) -> list[int]:
        """Sort frames such that parents come first. A root is its own parent.

        Raises:
            LoadError: frames form a cycle.
        """
        children: list[list[int]] = [[] for _ in parents]
        order = []
        for node, parent in enumerate(parents):
            if parent == node:
                order.append(node)
            else:
                children[parent].append(node)
        for node in order:  # grows during the loop
            order.extend(children[node])
        if len(order) < len(parents):
            reached = set(order)
            seen: dict[int, None] = {}
            node_on_cycle = next(node for node in range(len(parents)) if node not in reached)
            while node_on_cycle not in seen:
                seen[node_on_cycle] = None
                node_on_cycle = parents[node_on_cycle]
            circle = list(seen)[list(seen).index(node_on_cycle) :]
            names = cycle([self._frames[node].subject for node in circle])
            raise LoadError(f"{what} of frames form a circle: {names}; each must end at a link or a model")
        return order

    def _named(self, node: int) -> str:
        return f"{self._frames[node].subject}{at_line(self._frames[node].line)}"


def _inverse(X: Transform) -> Transform:
    """The inverse transform. The inverse of the identity is exactly the identity."""
    return IDENTITY if X is IDENTITY else X.inverse()


def _known(named: int | tuple[Scope, str]) -> int:
    assert isinstance(named, int)  # after Frames.resolve
    return named
