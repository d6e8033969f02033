"""Data classes that are cheap to import.

`dataclasses.dataclass` generates the text of up to six methods for each class and compiles it, half a millisecond per
class. The methods here are closures over the names of fields. Their objects are created, compared, printed and
protected like those of the standard library, whose `fields`, `replace` and `asdict` work on them; creating one takes
about as long.

Classes with slots, of which loading a robot creates very many objects, get the methods of the standard library.
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
        """`dataclasses.dataclass` with the arguments of `_made`."""
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
    """The data class; a new class if it has slots."""
    own = set(kind.__dict__)
    inherits = hasattr(kind, "__dataclass_fields__")  # the library wants the same `frozen` as in the base class
    cls: Any = dataclasses.dataclass(
        kind,
        init=init and slots,
        repr=False,
        eq=False,
        frozen=frozen and (slots or inherits),
        kw_only=kw_only,
        slots=slots,
    )
    about = cls.__dataclass_params__  # the library reads it for subclasses
    about.init, about.repr, about.eq, about.frozen = init, repr, eq, frozen
    members = dataclasses.fields(cls)
    methods: dict[str, Any] = {}
    if init and not slots and "__init__" not in own:
        methods |= {"__init__": _initializer(cls, members), "__signature__": _Signature()}
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
            setattr(cls, name, method)
    return cast(type, cls)


def _initializer(kind: type, members: Members) -> Callable[..., None]:
    order = [each.name for each in members if each.init and not each.kw_only]
    allowed = frozenset([each.name for each in members if each.init])
    missing = dataclasses.MISSING
    defaults = {each.name: each.default for each in members if each.default is not missing}
    factories = {each.name: each.default_factory for each in members if each.default_factory is not missing}
    needed = allowed | defaults.keys() | factories.keys()
    checks = hasattr(kind, "__post_init__")

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        values = dict(zip(order, args))  # noqa: B905 - too many are told by what follows
        values.update(given)
        if len(values) < len(args) + len(given) or not allowed.issuperset(given):
            _refuse(kind, args, given)
        if len(values) < len(needed):
            for name, default in defaults.items():
                values.setdefault(name, default)
            for name, factory in factories.items():
                if name not in values:
                    values[name] = factory()
            if len(values) < len(needed):
                _refuse(kind, args, given)
        self.__dict__.update(values)
        if checks:
            self.__post_init__()

    return __init__


def _refuse(kind: type, args: tuple[Any, ...], given: dict[str, Any]) -> NoReturn:
    """Raise the error for wrong arguments of a class."""
    try:
        kind.__dict__["__signature__"].__get__(None, kind).bind(*args, **given)
    except TypeError as error:
        raise TypeError(f"{kind.__qualname__}: {error}") from None
    raise AssertionError(f"{kind.__qualname__}: {args}, {given}")


class _Signature:
    """The signature of a class, made on access."""

    def __get__(self, instance: object, kind: type) -> Signature:
        maker = next(each for each in kind.__mro__ if "__init__" in each.__dict__)
        if instance is not None or "__signature__" not in maker.__dict__:
            raise AttributeError("__signature__")  # for objects, and for classes with an own `__init__`
        from inspect import Parameter, Signature

        parameters = []
        for each in dataclasses.fields(kind):
            if each.init:
                how = Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD
                default = each.default if each.default_factory is dataclasses.MISSING else _FACTORY
                default = Parameter.empty if default is dataclasses.MISSING else default
                parameters.append(Parameter(each.name, how, default=default, annotation=each.type))
        return Signature(sorted(parameters, key=lambda each: each.kind), return_annotation=None)


class _Factory:
    """Representation in signatures of a default that a factory makes, as in the standard library."""

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
    """A function that returns these attributes of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda of: tuple([getattr(of, name) for name in names])


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _is_field(of: object, name: str) -> bool:
    """True if an attribute may not change. Attributes that a plain subclass of a data class adds may."""
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
