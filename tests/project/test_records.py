"""Our data classes beside those of the standard library: the same objects from the same arguments."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from dataclasses import field
from typing import Any, ClassVar

import pytest
from robots import ROOT

from robodyn.internals import records

OPTIONS = [
    {"frozen": True},
    {},
    {"frozen": True, "eq": False},
    {"frozen": True, "kw_only": True},
    {"frozen": True, "repr": False},
    {"frozen": True, "slots": True},
    {"slots": True},
]


def classes(make: Any, options: dict[str, Any]) -> tuple[type, type, type]:
    """A class with all kinds of fields, one that inherits from it, and an empty one."""

    @make(**options)
    class Base:
        """A record."""

        a: int
        b: Any
        c: float = 3.0
        d: list[int] = field(default_factory=list, compare=False)
        e: str = field(default="e", repr=False)
        shared: ClassVar[int] = 7

        def sum(self) -> float:
            return self.a + self.c

    @make(**options)
    class Derived(Base):
        """A record with more."""

        f: Any = None
        g: Any = field(default=1, init=False)

    @make(**options)
    class Nothing:
        """A record of nothing."""

    for kind in (Base, Derived, Nothing):
        kind.__qualname__ = kind.__name__
    return Base, Derived, Nothing


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 5.0, [3], "x"), {}),
    ((1, 2, 5.0, [3], "x", "f"), {}),
    ((1, 2, 5.0, [3], "x", "f", "g", "h"), {}),
    ((), {"a": 1, "b": 2}),
    ((1,), {"b": 2, "e": "y"}),
    ((1,), {"a": 1, "b": 2}),
    ((1, 2), {"z": 3}),
    ((1, 2), {"g": 3}),
    ((), {"b": 2}),
    ((), {"a": 1, "b": 2, "d": [], "f": (), "c": 0.0}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_are_those_of_the_standard_library(options):
    for ours, theirs in zip(classes(records.dataclass, options), classes(dataclasses.dataclass, options), strict=True):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(theirs)]
        assert ours.__match_args__ == theirs.__match_args__
        assert (ours.__hash__ is None) == (theirs.__hash__ is None)
        made = []
        for args, given in CALLS:
            try:
                wanted = theirs(*args, **given)
            except TypeError:
                with pytest.raises(TypeError, match=ours.__name__):
                    ours(*args, **given)
                continue
            found = ours(*args, **given)
            made.append((found, wanted))
            assert dataclasses.asdict(found) == dataclasses.asdict(wanted)
            if options.get("repr", True):
                assert repr(found) == repr(wanted)
            assert repr(copy.copy(found)) == repr(found) or not options.get("repr", True)
            if "a" in given or args:
                changed = dataclasses.replace(found, a=9)
                assert changed.a == 9 and changed.b is found.b
        for found, wanted in made:
            for other, other_wanted in made:
                assert (found == other) == (wanted == other_wanted)
                if wanted.__hash__ is not None:
                    assert (hash(found) == hash(other)) == (hash(wanted) == hash(other_wanted))
            assert found != wanted and found != 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fields_of_frozen_ones_stay(options):
    base, derived, _ = classes(records.dataclass, options)
    for kind in (base, derived):
        one = kind(a=1, b=2)
        if not options.get("frozen"):
            one.a = 3
            assert one.a == 3
            continue
        for name in ("a", "other") if not options.get("slots") else ("a",):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(one, name, 3)
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(one, name)
        assert one.a == 1 and one.sum() == 4.0


def test_what_a_plain_class_adds_may_change():
    base, _, _ = classes(records.dataclass, {"frozen": True})

    class More(base):
        def __init__(self):
            super().__init__(1, 2)
            self.more = 3

    one = More()
    one.more = 4
    assert (one.a, one.more) == (1, 4)
    del one.more
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2
    assert list(inspect.signature(More).parameters) == []


def test_others_inherit_from_them_as_from_those_of_the_standard_library():
    base, _, _ = classes(records.dataclass, {"frozen": True})

    @dataclasses.dataclass(frozen=True)
    class More(base):
        """Frozen as well."""

        more: int = 3

    assert repr(More(1, 2)).endswith("More(a=1, b=2, c=3.0, d=[], more=3)") and More(1, 2) == More(1, 2) != More(1, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        More(1, 2).more = 1
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Open", (base,), {"__annotations__": {"x": int}, "__doc__": ""}))

    class Plain(base):
        pass

    assert inspect.signature(Plain) == inspect.signature(base) and Plain(1, 2).b == 2
    with pytest.raises(TypeError, match="missing"):
        Plain(1)


def test_what_a_class_writes_itself_stays():
    @records.dataclass(frozen=True)
    class Own:
        """Own methods."""

        a: int

        def __init__(self):
            object.__setattr__(self, "a", 5)

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 3

    assert (Own().a, repr(Own()), Own() == 1, hash(Own())) == (5, "own", True, 3)
    assert list(inspect.signature(Own).parameters) == []


def test_checks_of_its_own_come_last():
    @records.dataclass(frozen=True)
    class Checked:
        """Refuses."""

        a: int = 1
        doubled: int = field(init=False)

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("negative")
            object.__setattr__(self, "doubled", 2 * self.a)

    assert Checked().doubled == 2 and repr(Checked(4)).endswith("Checked(a=4, doubled=8)")
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


@records.dataclass(frozen=True)
class Pickled:
    """At the top of a module, where pickle finds it."""

    a: int
    b: tuple[int, ...] = ()


def test_objects_are_pickled_and_hold_themselves():
    one = Pickled(1, (2, 3))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(one, protocol))
        assert again == one and hash(again) == hash(one) and again is not one
    itself: list[Any] = []
    holder = Pickled(1, itself)  # type: ignore[arg-type]
    itself.append(holder)
    assert repr(holder) == "Pickled(a=1, b=[...])"
    match one:
        case Pickled(a, b):
            assert (a, b) == (1, (2, 3))


def test_all_data_classes_of_the_package_are_these():
    plain = re.compile(r"^from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass", re.MULTILINE)
    found = [path.name for path in (ROOT / "robodyn").rglob("*.py") if plain.search(path.read_text())]
    assert not found
