"""Data classes that cost an import little.

`dataclasses.dataclass` writes up to six methods for each class as text, and compiles them: half a millisecond a class,
and two fifths of the time that it took to import what answers a first query. The methods here are ready, and go by the
names of fields. Objects are made, compared, printed and protected as those of the standard library, whose `fields`,
`replace` and `asdict` know them; to make one takes about as long.

Classes with slots, of which a robot's file makes very many objects, are made and protected by the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from inspect import Signature
else:

    def dataclass(kind=None, /, **options):
        """`dataclasses.dataclass`, with those of its arguments that `_made` has."""
        return partial(_made, **options) if kind is None else _made(kind, **options)


Members: TypeAlias = "tuple[dataclasses.Field[Any], ...]"


def _made(
    kind: type,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> type:
    """The class, a new one if it is to have slots."""
    own = set(kind.__dict__)
    inherits = hasattr(kind, "__dataclass_fields__")  # from one that is frozen as well, or the library refuses
    made: Any = dataclasses.dataclass(
        kind,
        init=init and slots,
        repr=False,
        eq=False,
        frozen=frozen and (slots or inherits),
        kw_only=kw_only,
        slots=slots,
    )
    about = made.__dataclass_params__  # which the library looks at where others inherit
    about.init, about.repr, about.eq, about.frozen = init, repr, eq, frozen
    members = dataclasses.fields(made)
    methods: dict[str, Any] = {}
    if init and not slots and "__init__" not in own:
        methods |= {"__init__": _initializer(made, members), "__signature__": _Signature()}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= _comparison(members)
        if not frozen:
            methods["__hash__"] = None
    if frozen and not slots:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return cast(type, made)


def _initializer(kind: type, members: Members) -> Callable[..., None]:
    order = [each.name for each in members if each.init and not each.kw_only]
    allowed = frozenset([each.name for each in members if each.init])
    missing = dataclasses.MISSING
    defaults = {each.name: each.default for each in members if each.default is not missing}
    factories = {each.name: each.default_factory for each in members if each.default_factory is not missing}
    needed = allowed | defaults.keys() | factories.keys()
    checks = hasattr(kind, "__post_init__")

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        found = dict(zip(order, args))  # noqa: B905 - too many are told by what follows
        found.update(given)
        if len(found) < len(args) + len(given) or not allowed.issuperset(given):
            _refuse(kind, args, given)
        if len(found) < len(needed):
            for name, default in defaults.items():
                found.setdefault(name, default)
            for name, factory in factories.items():
                if name not in found:
                    found[name] = factory()
            if len(found) < len(needed):
                _refuse(kind, args, given)
        self.__dict__.update(found)
        if checks:
            self.__post_init__()

    return __init__


def _refuse(kind: type, args: tuple[Any, ...], given: dict[str, Any]) -> NoReturn:
    """Say what is wrong with the arguments of a class."""
    try:
        kind.__dict__["__signature__"].__get__(None, kind).bind(*args, **given)
    except TypeError as error:
        raise TypeError(f"{kind.__qualname__}: {error}") from None
    raise AssertionError(f"{kind.__qualname__}: {args}, {given}")


class _Signature:
    """The signature of a class, made when it is asked for."""

    def __get__(self, instance: object, kind: type) -> Signature:
        maker = next(each for each in kind.__mro__ if "__init__" in each.__dict__)
        if instance is not None or "__signature__" not in maker.__dict__:
            raise AttributeError("__signature__")  # of an object, or of a class with an `__init__` of its own
        from inspect import Parameter, Signature

        found = []
        for each in dataclasses.fields(kind):
            if each.init:
                how = Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD
                default = each.default if each.default_factory is dataclasses.MISSING else _FACTORY
                default = Parameter.empty if default is dataclasses.MISSING else default
                found.append(Parameter(each.name, how, default=default, annotation=each.type))
        return Signature(sorted(found, key=lambda each: each.kind), return_annotation=None)


class _Factory:
    """How a signature shows a default that is made anew for each object, as the standard library does."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _comparison(members: Members) -> dict[str, Callable[..., Any]]:
    """`__eq__` and `__hash__`."""
    compared = _values([each.name for each in members if each.compare])
    hashed = _values([each.name for each in members if (each.compare if each.hash is None else each.hash)])

    def __eq__(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives these attributes of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda of: tuple([getattr(of, name) for name in names])


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _is_field(of: object, name: str) -> bool:
    """Whether an attribute may not change. What a class that inherits from a data class adds may."""
    kind = type(of)
    return "__dataclass_fields__" in kind.__dict__ or name in kind.__dataclass_fields__  # type: ignore[attr-defined]


def _refuse_to_set(self: object, name: str, value: object) -> None:
    if _is_field(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: object, name: str) -> None:
    if _is_field(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)
