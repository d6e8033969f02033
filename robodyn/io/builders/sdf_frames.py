"""Frames of SDF: every link, joint, model and frame has one, given in another one, whatever order they come in."""

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
"""The frame that all others end in."""

_NEAR = 4
"""A frame so few steps above two others is found without going through the world, which costs digits."""


@dataclass(slots=True)
class Scope:
    """A model, or the world: the names in it, its own frame, and where in the list of all joints its joints are."""

    prefix: str
    node: int
    depth: int
    names: dict[str, int] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(default_factory=dict)
    joints: dict[str, int] = field(default_factory=dict)

    def merged(self, node: int) -> Scope:
        """That of a model which is merged into this one: the same names, and a frame of its own."""
        return Scope(self.prefix, node, self.depth, self.names, self.scopes, self.joints)


@dataclass(slots=True)
class _Frame:
    """`pose`: the transform from the frame `under` to this one; `held_by`: the frame that this one moves with, itself
    where it is a body. Both are names until all frames are known: (scope, name)."""

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
        """A frame of which more will be said."""
        self._frames.append(_Frame(subject, line))
        return len(self._frames) - 1

    def put(self, node: int, pose: Transform, under: int | tuple[Scope, str]) -> None:
        """Where a frame is."""
        self._frames[node].pose, self._frames[node].under = pose, under

    def hold(self, node: int, held_by: int | tuple[Scope, str]) -> None:
        """What a frame moves with."""
        self._frames[node].held_by = held_by

    def place(self, model: int, scope: Scope, name: str) -> None:
        """The pose of a model is that of a frame in it."""
        self._placed.append((model, scope, name))

    def full_name(self, scope: Scope, name: str) -> str:
        """A name with those of the models around it. Raises LoadError where names have grown beyond what files hold."""
        found = f"{scope.prefix}{name}"
        self._spent += len(found)
        if self._spent > MAX_BYTES:
            raise LoadError(f"names of nested models have more than {MAX_BYTES} characters, the most that are read")
        return found

    def resolve(self) -> None:
        """Find every frame that was named, and where all are.

        Raises:
            LoadError: a name that no frame has, frames given in a circle, or numbers that overflow.
        """
        for node, frame in enumerate(self._frames):
            frame.under = self._found(frame.under, node)
            frame.held_by = self._found(frame.held_by, node)
        for model, scope, name in reversed(self._placed):  # inner models first: an outer one may go through them
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
        """The link, or the world, that a frame moves with."""
        return self._bodies[node]

    def find(self, scope: Scope, name: str, subject: str, line: int | None, own: int = -1) -> int:
        """The frame of a name in a scope, such as "arm", "__model__" or "gripper::finger". `own`: the frame of what
        names it, which is not what was meant.

        Raises:
            LoadError: there is none.
        """
        inner, rest = scope, name
        while True:
            if rest in inner.names:
                return inner.names[rest]
            if rest == "__model__" and inner.node != WORLD:
                return inner.node
            first, colons, after = rest.partition("::")
            if not colons or first not in inner.scopes:
                break
            inner, rest = inner.scopes[first], after
        if name == "world":
            return WORLD
        others = [each for each, node in inner.names.items() if node != own]
        near = ", ".join(quoted(name.removesuffix(rest) + each) for each in near_misses(rest, others, 3))
        raise LoadError(
            f"{subject}{at_line(line)}: there is no frame {quoted(name)}; near it are {near or 'none at all'}"
        )

    def carrier(self, scope: Scope, name: str, subject: str, line: int | None, own: int = -1) -> int:
        """The frame of a name that "world" may be, which means the world whatever else is called so."""
        return WORLD if name == "world" else self.find(scope, name, subject, line, own)

    def relative(self, of: int, in_: int) -> Transform:
        """The transform from the frame `in_` to the frame `of`, at the poses of the file."""
        if of == in_:
            return IDENTITY
        frames = self._frames
        if frames[of].under == in_:
            return frames[of].pose
        if frames[in_].under == of:
            return _back(frames[in_].pose)
        above_of, above_in = self._above(of), self._above(in_)
        common = next(node for node in above_of if node in above_in)
        return compose(above_of[common], _back(above_in[common]))

    def in_world(self, node: int) -> Transform:
        """The transform from the world to a frame, at the poses of the file."""
        return self._in_world[node]

    def _above(self, node: int) -> dict[int, Transform]:
        """The nearest frames above a frame, itself among them, and the world, with the transforms from there."""
        found, X, at = {node: IDENTITY}, IDENTITY, node
        while at != WORLD and len(found) < _NEAR:
            X = compose(X, self._frames[at].pose)
            at = _known(self._frames[at].under)
            found[at] = X
        found.setdefault(WORLD, self._in_world[node])
        return found

    def _found(self, named: int | tuple[Scope, str], node: int) -> int:
        if isinstance(named, int):
            return named
        frame = self._frames[node]
        found = self.find(*named, frame.subject, frame.line, node)
        if found == node:
            raise LoadError(f"{frame.subject}{at_line(frame.line)} is given by {quoted(named[1])}, which is itself")
        return found

    def _move(self, model: int, inner: int) -> None:
        """Shift a model so that a frame in it is where its pose says."""
        X, at, steps = IDENTITY, inner, 0
        while at not in (model, WORLD):
            X, at, steps = compose(X, self._frames[at].pose), _known(self._frames[at].under), steps + 1
            if steps > len(self._frames):
                raise LoadError(f"{self._named(inner)}: the poses it is given by form a circle")
        if at != model:
            raise LoadError(f"{self._named(model)}: its placement_frame is not in it")
        self._frames[model].pose = X.inverse().after(self._frames[model].pose)

    def _order(self, parents: list[int], what: str) -> list[int]:
        """Frames after their parents; frames that are their own come first.

        Raises:
            LoadError: some form a circle.
        """
        below: list[list[int]] = [[] for _ in parents]
        order = []
        for node, parent in enumerate(parents):
            if parent == node:
                order.append(node)
            else:
                below[parent].append(node)
        for node in order:  # grows while it is walked
            order.extend(below[node])
        if len(order) < len(parents):
            reached = set(order)
            seen: dict[int, None] = {}
            at = next(node for node in range(len(parents)) if node not in reached)
            while at not in seen:
                seen[at] = None
                at = parents[at]
            circle = list(seen)[list(seen).index(at) :]
            names = cycle([self._frames[node].subject for node in circle])
            raise LoadError(f"{what} of frames form a circle: {names}; each must end at a link or a model")
        return order

    def _named(self, node: int) -> str:
        return f"{self._frames[node].subject}{at_line(self._frames[node].line)}"


def _back(X: Transform) -> Transform:
    """The inverse; that of the identity is itself, exactly."""
    return IDENTITY if X is IDENTITY else X.inverse()


def _known(named: int | tuple[Scope, str]) -> int:
    assert isinstance(named, int)  # after Frames.resolve
    return named
